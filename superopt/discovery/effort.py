"""The run-time cost of a graph in arbitrary units. The cost decides which directions of an equality are useful in a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from superopt.algebra.terms import Attribute, Shape, Term, subterms
from superopt.discovery.universe import WEIGHTS
from superopt.policy import DISCOVERY
from superopt.rules.work import work

VIEWS = ("expand", "reshape")
"""Operators that neither compute nor copy: ONNX broadcasts operands implicitly, and a reshaped tensor uses the same memory."""


@dataclass(frozen=True)
class Effort:
    """The run-time cost of a graph.

    Attributes:
        operators: the count of executed operators.
        work: arithmetic plus memory traffic, in units of moving one element.
    """

    operators: int
    work: float

    @property
    def total(self) -> float:
        """The total cost. Starting an operator costs as much as moving `DISCOVERY.launch_element_count` elements."""
        return self.work + DISCOVERY.launch_element_count * self.operators


def effort(roots: Sequence[Term], *, weights_known: bool) -> Effort:
    """Return the run-time cost of the graph with outputs `roots`. All extents in the graph must be numbers.

    If `weights_known` is True, terms that depend only on weights cost nothing.
    """
    live = _live(roots, weights_known=weights_known)
    return Effort(len(live), sum(map(_work, live), 0.0))


def effort_operator_counts(*roots: Term) -> Counter[str]:
    """Return a counter that states how often each operator is executed at run time. Terms that depend only on weights are not
    counted.
    """
    return Counter(term.op for term in _live(roots, weights_known=True))


def _live(roots: Sequence[Term], *, weights_known: bool) -> list[Term]:
    """Return the subterms that are computed at run time.

    A subterm is left out if its root operator neither computes nor copies. If `weights_known` is True, terms that depend only
    on weights are not computed at run time.
    """
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
    """Return the work of the term's root operator: its memory traffic plus its arithmetic, both in units of moving one element.

    The memory traffic is the count of elements that the operator reads and writes. `DISCOVERY.operations_per_element_count`
    arithmetic operations cost as much as moving one element.
    """
    kind = term.op, term.attributes, tuple(a.shape for a in term.args)
    found = _known.get(kind)
    if found is None:
        found = _known[kind] = _moved(term) + work(term).flops / DISCOVERY.operations_per_element_count
    return found


def is_compute_intensive(root: Term) -> bool:
    """Return whether some operator in the term does many operations for each element that it reads or writes."""
    return any(
        _work(t) - _moved(t) > DISCOVERY.heavy_operation_count / DISCOVERY.operations_per_element_count * _moved(t)
        for t in subterms(root)
        if t.args
    )


def _moved(term: Term) -> float:
    return sum(map(_elements, (term, *term.args)))


def _elements(term: Term) -> float:
    count = 1.0
    for extent in term.sizes:
        count *= extent
    return count
