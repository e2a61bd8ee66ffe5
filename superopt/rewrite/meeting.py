"""Parts of terms and where they meet: in which order matches are best made, and what they cancel or mix."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator, Sequence

from superopt.graph import Attribute, Term
from superopt.match import Match

LARGEST = 6
"""Operators of a left side, at most."""


def in_order(term: Term) -> tuple[str, str, float, tuple[str, ...]]:
    """The operator and the place of the term among others, then its weights.

    So siblings made of parts of one term stand in the order of the parts, and the weights of equal layers are joined in one
    order, and shared as before.
    """
    return term.op, *_part(term), tuple(a.key for a in term.args if a.constant)


def covered_first(match: Match) -> tuple[list[tuple[str, float]], int, int]:
    """Where the parts are that the match covers at a commutative operator, which tells its matches there apart, how many
    concatenations it makes of parts in another order, and how many are mixed.
    """
    if not match.rests[0]:
        return [], 0, mixed(match)
    turned = sum(term.op == "concat" and _part(term.args[0]) > _part(term.args[1]) for term in made(match))
    return sorted(_part(term) for term in match.covered.elements()), turned, mixed(match)


def _part(term: Term) -> tuple[str, float]:
    """The term, and the position in it, of the part that this is, or of the first part that it is applied to."""
    for part in map(beneath, (term, *term.args)):
        if part.op == "slice":
            start = part["start"]
            return part.args[0].key, start if isinstance(start, int) else math.inf
    return "", 0


def beneath(term: Term) -> Term:
    """What the term is, but for its shape and how often it is repeated."""
    while term.op in ("reshape", "expand"):
        term = term.args[0]
    return term


def _source(term: Term) -> Term:
    """What the term is, but for its shape."""
    while term.op == "reshape":
        term = term.args[0]
    return term


def added(match: Match, live: Container[Term]) -> int:
    """How many terms that are computed at run time the match adds to those that are live."""
    stack, met = list(match.replacements), set[Term]()
    while stack:
        term = stack.pop()
        if term not in met and term not in live and not term.is_variable and not term.constant:
            met.add(term)
            stack += term.args
    return len(met)


def change(match: Match, live: Container[Term]) -> tuple[int, int]:
    """By how many operators there are more after the match, and how many concatenations are then mixed; of neighbouring parts
    that meet again, three operators are going to be one.
    """
    more = added(match, live) - _matched(match) - 2 * sum(map(meeting, made(match)))
    return more, mixed(match) if more < 0 else 0


def meeting(term: Term) -> bool:
    """Whether it concatenates neighbouring parts of one term, along the axis where they were cut or reshaped since."""
    if term.op != "concat":
        return False
    first, last = map(_source, term.args)
    if not (first.op == last.op == "slice" and first.args == last.args and first["axis"] == last["axis"]):
        return False
    reshaped = first is not term.args[0] or last is not term.args[1]
    return first["stop"] == last["start"] and (reshaped or first["axis"] == term["axis"])


def made(match: Match) -> Iterator[Term]:
    """The terms of the replacements above what the pattern's variables stand for, and what it leaves alone."""
    met, stack = {*match.binding.tensors.values(), *itertools.chain(*match.rests)}, [*match.replacements]
    while stack:
        term = stack.pop()
        if term not in met:
            met.add(term)
            stack += term.args
            yield term


def mixed(match: Match) -> int:
    """How many concatenations of the replacements join what different operators make, or parts of a term other than along the
    axis where they were cut: such do not cancel.
    """
    joined = [t for t in made(match) if t.op == "concat" and not t.constant]
    return sum(len({_origin(a) for a in t.args}) > 1 or _origin(t.args[0])[2] not in (0, t["axis"]) for t in joined)


def mixture(matches: Sequence[Match]) -> tuple[float, int]:
    """How many concatenations are mixed by a match, on average; then, negative, how many matches there are."""
    return sum(map(mixed, matches)) / len(matches), -len(matches)


def _origin(term: Term) -> tuple[str, str, Attribute]:
    """The operator that makes the term, none of a weight; the term that it is a part of, and along which axis."""
    part = _source(term)
    if term.constant:
        return "", "", 0
    return (part.op, part.args[0].key, part["axis"]) if part.op == "slice" else (part.op, "", 0)


def _matched(match: Match) -> int:
    """How many operators the match covers, `LARGEST` at most: operands of a sum that it leaves alone are not told apart."""
    below = set(match.binding.tensors.values())
    stack, met = list(match.roots), set(match.roots)
    while stack and len(met) < LARGEST:
        more = [a for a in stack.pop().args if a not in met and a not in below]
        met.update(more)
        stack += more
    return len(met)
