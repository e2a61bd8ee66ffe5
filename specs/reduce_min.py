"""The smallest element over whole axes (ONNX ReduceMin). The reduced axes are removed.

A node with keepdims=1 is lifted to a reduction and a reshape.
"""

from __future__ import annotations

from collections.abc import Callable

from superopt.algebra.index import Axes, Index, Tensor, Value, maximum, number
from superopt.algebra.operators import Emit, Node
from superopt.algebra.terms import Extent, Term
from superopt.speclib.reduction import lifted, lowered, reduced

ONNX = "ReduceMin"
EXACT = "order"

AXIOMS = """
    as-max:       reduce_min(x, axes=(k,)) == scale(reduce_max(scale(x, factor=-1), axes=(k,)), factor=-1)
                  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    as-max-image: reduce_min(x, axes=(-2, -1)) == scale(reduce_max(scale(x, factor=-1), axes=(-2, -1)), factor=-1)
                  for x[2, 3, 4]
"""


def reduce_min(x: Tensor, *, axes: Axes) -> Tensor:
    def minimum(extent: Extent, body: Callable[[Index], Value]) -> Value:
        return number(0) - maximum(extent, lambda k: number(0) - body(k))

    return reduced(x, axes, minimum)


def lift(node: Node) -> Term | None:
    return lifted(node, "reduce_min")


def lower(term: Term, emit: Emit) -> str:
    return lowered(term, emit)
