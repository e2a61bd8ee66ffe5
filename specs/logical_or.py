"""1 where at least one of two conditions is nonzero, and 0 elsewhere (ONNX Or). The conditions have equal shapes."""

from __future__ import annotations

from superopt.algebra.index import Tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed

ONNX = "Or"

COMPOSITE = """
    logical_not(logical_and(logical_not(c), logical_not(d)))
    for c[1, 2, 3, 4], d[1, 2, 3, 4]
"""


def logical_or(c: Tensor, d: Tensor) -> Tensor:
    return composed(COMPOSITE, {"c": c, "d": d})


def lift(node: Node) -> Term | None:
    return apply("logical_or", *node.broadcast())


def lower(term: Term, emit: Emit) -> str:
    return emit.chain("Or", term)
