"""Parts of terms and where they meet: the order in which matches are made, and which parts cancel or mix."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator, Sequence

from superopt.algebra.terms import Attribute, Term
from superopt.policy import SEARCH
from superopt.rules.match import Match


def in_order(term: Term) -> tuple[str, str, float, tuple[str, ...]]:
    """Return a sort key: the term's operator, its place among other terms, then its weights.

    With this order, siblings made from parts of one term stand in the order of the parts. The weights of equal layers are
    joined in one order and stay shared.
    """
    return term.op, *_part(term), tuple(a.key for a in term.args if a.constant)


def covered_first(match: Match) -> tuple[list[tuple[str, float]], int, int]:
    """Return a sort key that distinguishes the matches at a commutative operator.

    Returns:
        The places of the parts that the match covers, the number of concatenations that the match makes of parts in another
        order, and the number of mixed concatenations.
    """
    if not match.rests[0]:
        return [], 0, mixed(match)
    turned = sum(term.op == "concat" and _part(term.args[0]) > _part(term.args[1]) for term in made(match))
    return sorted(_part(term) for term in match.covered.elements()), turned, mixed(match)


def _part(term: Term) -> tuple[str, float]:
    """Return the key of the term that this term is a part of, or is applied to a part of, and the start of the part.

    If the term is applied to several parts, the first part counts.
    """
    for part in map(beneath, (term, *term.args)):
        if part.op == "slice":
            start = part["start"]
            return part.args[0].key, start if isinstance(start, int) else math.inf
    return "", 0


def beneath(term: Term) -> Term:
    """Return the term below reshapes and expands."""
    while term.op in ("reshape", "expand"):
        term = term.args[0]
    return term


def _source(term: Term) -> Term:
    """Return the term below reshapes."""
    while term.op == "reshape":
        term = term.args[0]
    return term


def added(match: Match, live: Container[Term]) -> int:
    """Return how many terms that are computed at run time the match adds to the live terms."""
    stack, met = list(match.replacements), set[Term]()
    while stack:
        term = stack.pop()
        if term not in met and term not in live and not term.is_variable and not term.constant:
            met.add(term)
            stack += term.args
    return len(met)


def change(match: Match, live: Container[Term]) -> tuple[int, int]:
    """Return the change in the number of operators, and the number of mixed concatenations afterwards.

    Where neighbouring parts of a term meet again, three operators will become one, so two are subtracted. The number of mixed
    concatenations is 0 if the number of operators does not fall.
    """
    more = added(match, live) - _matched(match) - 2 * sum(map(meeting, made(match)))
    return more, mixed(match) if more < 0 else 0


def meeting(term: Term) -> bool:
    """Return whether the term concatenates neighbouring parts of one term.

    The parts have to meet along the axis where they were cut, or have to be reshaped since.
    """
    if term.op != "concat":
        return False
    first, last = map(_source, term.args)
    if not (first.op == last.op == "slice" and first.args == last.args and first["axis"] == last["axis"]):
        return False
    reshaped = first is not term.args[0] or last is not term.args[1]
    return first["stop"] == last["start"] and (reshaped or first["axis"] == term["axis"])


def made(match: Match) -> Iterator[Term]:
    """Yield the replacement terms above the terms that the pattern's variables stand for and that the match leaves alone."""
    met, stack = {*match.binding.tensors.values(), *itertools.chain(*match.rests)}, [*match.replacements]
    while stack:
        term = stack.pop()
        if term not in met:
            met.add(term)
            stack += term.args
            yield term


def mixed(match: Match) -> int:
    """Return how many concatenations of the replacements are mixed, so that they do not cancel.

    A mixed concatenation joins results of different operators, or joins parts of a term along another axis than they were cut.
    """
    joined = [t for t in made(match) if t.op == "concat" and not t.constant]
    return sum(len({_origin(a) for a in t.args}) > 1 or _origin(t.args[0])[2] not in (0, t["axis"]) for t in joined)


def mixture(matches: Sequence[Match]) -> tuple[float, int]:
    """Return the mean number of mixed concatenations per match, then the negative number of matches."""
    return sum(map(mixed, matches)) / len(matches), -len(matches)


def _origin(term: Term) -> tuple[str, str, Attribute]:
    """Return the operator that makes the term (empty for a weight), the key of the term it is a part of, and the axis."""
    part = _source(term)
    if term.constant:
        return "", "", 0
    return (part.op, part.args[0].key, part["axis"]) if part.op == "slice" else (part.op, "", 0)


def _matched(match: Match) -> int:
    """Return how many operators the match covers, up to `SEARCH.max_meeting_operators`.

    The operands of a sum that the match leaves alone are not told apart from those that it covers.
    """
    below = set(match.binding.tensors.values())
    stack, met = list(match.roots), set(match.roots)
    while stack and len(met) < SEARCH.max_meeting_operators:
        more = [a for a in stack.pop().args if a not in met and a not in below]
        met.update(more)
        stack += more
    return len(met)
