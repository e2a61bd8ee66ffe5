"""What a graph with numeric extents costs at run time, in arbitrary units: the measure by which directions serve a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from superopt.find.universe import WEIGHTS
from superopt.graph import Attribute, Shape, Term, subterms
from superopt.work import work

LAUNCH = 10000.0
VECTOR = 16.0
INTENSE = 8.0
VIEWS = ("expand", "reshape")
"""Operators that compute nothing and copy nothing: ONNX broadcasts by itself, and a reshaped tensor is the same memory."""


@dataclass(frozen=True)
class Effort:
    """What a graph costs at run time: operators executed, and arithmetic plus traffic in arbitrary units."""

    operators: int
    work: float

    @property
    def total(self) -> float:
        """Both in one number: starting an operator costs as much as moving `LAUNCH` elements."""
        return self.work + LAUNCH * self.operators


def effort(roots: Sequence[Term], *, weights_known: bool) -> Effort:
    """The cost of numeric terms; with `weights_known`, what depends on weights alone is free."""
    live = _live(roots, weights_known=weights_known)
    return Effort(len(live), sum(map(_work, live), 0.0))


def executed(*roots: Term) -> Counter[str]:
    """How many of each operator are executed, weights known."""
    return Counter(term.op for term in _live(roots, weights_known=True))


def _live(roots: Sequence[Term], *, weights_known: bool) -> list[Term]:
    """What is computed at run time, by operators that compute something."""
    live = list[Term]()
    free: set[Term] = set()
    for term in subterms(*roots):
        known = weights_known and term.is_variable and term.name in WEIGHTS
        if known or (not term.is_variable and all(a in free for a in term.args)):
            free.add(term)
        elif not term.is_variable and term.op not in VIEWS:
            live.append(term)
    return live


_known: dict[tuple[str, tuple[tuple[str, Attribute], ...], tuple[Shape, ...]], float] = {}


def _work(term: Term) -> float:
    """Elements read and written, and operations, `VECTOR` of which take as long as moving one element."""
    kind = term.op, term.attributes, tuple(a.shape for a in term.args)
    found = _known.get(kind)
    if found is None:
        found = _known[kind] = _moved(term) + work(term).flops / VECTOR
    return found


def heavy(root: Term) -> bool:
    """Whether an operator in the term does more than `INTENSE` operations for each element that it reads or writes."""
    return any(_work(t) - _moved(t) > INTENSE / VECTOR * _moved(t) for t in subterms(root) if t.args)


def _moved(term: Term) -> float:
    return sum(map(_elements, (term, *term.args)))


def _elements(term: Term) -> float:
    count = 1.0
    for extent in term.sizes:
        count *= extent
    return count
