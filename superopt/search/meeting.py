"""Sort keys for matches that join slices: the order in which slices are joined, and whether joined slices cancel."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator, Sequence

from superopt.algebra.terms import Attribute, Term
from superopt.policy import SEARCH
from superopt.rules.match import Match


def meeting_sort_key(term: Term) -> tuple[str, str, float, tuple[str, ...]]:
    """Return a sort key of the term: the operator, the slice that the term is made from, and the weights that the term reads.

    Terms that are made from slices of one term are sorted in the order of the slices. The weights of equal layers are then
    joined in the same order in every layer, so that the layers can share the joined weights.
    """
    return term.op, *_part(term), tuple(a.key for a in term.args if a.constant)


def covered_first(match: Match) -> tuple[list[tuple[str, float]], int, int]:
    """Return a sort key that orders the matches of one rule at a commutative operator.

    Returns:
        Three values. The first contains the positions of the slices from which the matched operands are made. The second is the
        number of new concatenations that reverse the order of slices. The third is the number of mixed concatenations (see
        `mixed_concat_count`). If the match covers all operands, the first value is empty and the second value is 0.
    """
    if not match.rests[0]:
        return [], 0, mixed_concat_count(match)
    turned = sum(term.op == "concat" and _part(term.args[0]) > _part(term.args[1]) for term in new_terms(match))
    return sorted(_part(term) for term in match.covered.elements()), turned, mixed_concat_count(match)


def _part(term: Term) -> tuple[str, float]:
    """Return the key of the sliced term and the start of the slice, if the term is a slice or has a slice as an operand.

    Reshapes and expands of a slice are skipped. If several operands are slices, the first slice is used. If there is no slice,
    the result is an empty text and 0.
    """
    for part in map(below_reshapes, (term, *term.args)):
        if part.op == "slice":
            start = part["start"]
            return part.args[0].key, start if isinstance(start, int) else math.inf
    return "", 0


def below_reshapes(term: Term) -> Term:
    """Follow the chain of reshapes and expands down from `term`, and return the operand below the chain.

    If there is no chain, return `term`. The callers check whether the returned term is a slice.
    """
    while term.op in ("reshape", "expand"):
        term = term.args[0]
    return term


def _source(term: Term) -> Term:
    """Return the operand below the chain of reshapes at `term`. If `term` is not a reshape, return `term`."""
    while term.op == "reshape":
        term = term.args[0]
    return term


def added_term_count(match: Match, live: Container[Term]) -> int:
    """Return the number of terms that the match adds and that `live` does not contain.

    Only terms that are computed at run time are counted.
    """
    stack, met = list(match.replacements), set[Term]()
    while stack:
        term = stack.pop()
        if term not in met and term not in live and not term.is_variable and not term.constant:
            met.add(term)
            stack += term.args
    return len(met)


def operator_count_change_key(match: Match, live: Container[Term]) -> tuple[int, int]:
    """Return a sort key: the change in the operator count, and the number of mixed concatenations that the match adds.

    If the match concatenates two neighbouring slices of one term, the concatenation and the slices can later become one
    operator. Two operators are therefore subtracted for each such concatenation. The number of mixed concatenations (see
    `mixed_concat_count`) counts as 0 if the operator count does not fall.
    """
    more = added_term_count(match, live) - _matched(match) - 2 * sum(map(rejoins_slices, new_terms(match)))
    return more, mixed_concat_count(match) if more < 0 else 0


def rejoins_slices(term: Term) -> bool:
    """Return whether the term concatenates neighbouring slices of one term.

    The concatenation must be along the axis of the slices, or a slice must be reshaped before the concatenation.
    """
    if term.op != "concat":
        return False
    first, last = map(_source, term.args)
    if not (first.op == last.op == "slice" and first.args == last.args and first["axis"] == last["axis"]):
        return False
    reshaped = first is not term.args[0] or last is not term.args[1]
    return first["stop"] == last["start"] and (reshaped or first["axis"] == term["axis"])


def new_terms(match: Match) -> Iterator[Term]:
    """Yield the terms that the match adds: the replacements, and the terms below the replacements.

    Terms that are bound to the rule's variables are left out. If the rule matches only some operands of a sum, the remaining
    operands are left out too.
    """
    met, stack = {*match.binding.tensors.values(), *itertools.chain(*match.rests)}, [*match.replacements]
    while stack:
        term = stack.pop()
        if term not in met:
            met.add(term)
            stack += term.args
            yield term


def mixed_concat_count(match: Match) -> int:
    """Return the number of mixed concatenations that the match adds. Mixed concatenations do not cancel with slices.

    A mixed concatenation joins results of different operators, or joins slices of a term along an axis that is not the axis of
    the slices.
    """
    joined = [t for t in new_terms(match) if t.op == "concat" and not t.constant]
    return sum(len({_origin(a) for a in t.args}) > 1 or _origin(t.args[0])[2] not in (0, t["axis"]) for t in joined)


def mixture(matches: Sequence[Match]) -> tuple[float, int]:
    """Return a sort key of the matches: the mean number of mixed concatenations, and the negated number of matches.

    `mixed_concat_count` explains mixed concatenations.
    """
    return sum(map(mixed_concat_count, matches)) / len(matches), -len(matches)


def _origin(term: Term) -> tuple[str, str, Attribute]:
    """Return a key of a term's origin: the operator, and for a slice also the key of the sliced term and the axis.

    For a weight, the name of the operator is an empty text. Reshapes are skipped.
    """
    part = _source(term)
    if term.constant:
        return "", "", 0
    return (part.op, part.args[0].key, part["axis"]) if part.op == "slice" else (part.op, "", 0)


def _matched(match: Match) -> int:
    """Return the number of operators that the match replaces. Counting stops at about `SEARCH.max_meeting_operators`.

    If the match replaces only some operands of a sum, the remaining operands are counted too.
    """
    below = set(match.binding.tensors.values())
    stack, met = list(match.roots), set(match.roots)
    while stack and len(met) < SEARCH.max_meeting_operators:
        more = [a for a in stack.pop().args if a not in met and a not in below]
        met.update(more)
        stack += more
    return len(met)
