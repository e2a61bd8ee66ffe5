"""Rules with two outputs, by joining: two terms that are each equal to one part of a third are computed by it alone."""

from __future__ import annotations

from collections.abc import Iterator

from superopt.find.enumerate import Candidate, Enumeration
from superopt.graph import Extent, Term, subterms

MOVES = frozenset({"slice", "concat", "transpose", "reshape", "expand", "pad"})


def joins(enumeration: Enumeration) -> Iterator[Candidate]:
    """Every pair of representatives that are the two parts of a term which does less arithmetic than both together."""
    parts: dict[tuple[Term, int], dict[tuple[Extent, Extent], Term]] = {}
    for term in enumeration.class_of:
        if term.op == "slice":
            axis = term["axis"]
            assert isinstance(axis, int)
            parts.setdefault((term.args[0], axis), {})[term["start"], term["stop"]] = term  # type: ignore[index]
    for (whole, axis), pieces in parts.items():
        for (start, stop), first in pieces.items():
            second = pieces.get((stop, whole.shape[axis]))
            if start != 0 or second is None or whole.is_variable or whole.op == "concat":
                continue
            left = enumeration.class_of[first], enumeration.class_of[second]
            if left[0] is not left[1] and not any(t.is_variable for t in left) and _saves(left, whole):
                yield Candidate(enumeration.universe, left, (first, second))


def _saves(left: tuple[Term, Term], whole: Term) -> bool:
    """Whether the whole takes fewer operators that compute than its parts do, and is none of what they are made of."""
    return _computing(whole) < _computing(*left) and whole not in subterms(*left)


def _computing(*roots: Term) -> int:
    return sum(t.op not in MOVES for t in subterms(*roots) if t.args)
