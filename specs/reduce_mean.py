"""Means over whole axes (ONNX ReduceMean and GlobalAveragePool). The reduced axes are removed.

GlobalAveragePool nodes and nodes with keepdims=1 are lifted to a reduction and a reshape.
"""

from __future__ import annotations

from collections.abc import Callable

from superopt.algebra.index import Axes, Index, Tensor, Value, number, total
from superopt.algebra.operators import Emit, Node
from superopt.algebra.terms import Extent, Term, inverse
from superopt.speclib.reduction import lifted, lowered, over_axes, reduced

ONNX = ("ReduceMean", "GlobalAveragePool")
EXACT = "quotient"

AXIOMS = """
    as-sum:       reduce_mean(x, axes=(k,)) == scale(reduce_sum(x, axes=(k,)), factor=1 / x.shape[k])
                  for x[2, 3, 4], k[-1, -2, -3, -4]
    as-sum-image: reduce_mean(x, axes=(-2, -1)) == scale(reduce_sum(x, axes=(-2, -1)), factor=1 / (x.shape[-2] * x.shape[-1]))
                  for x[3, 4]
    add:          reduce_mean(x + y, axes=(k,)) == reduce_mean(x, axes=(k,)) + reduce_mean(y, axes=(k,))
                  for x[2, 3, 4], y[2, 3, 4], k[-1, -2, -3, -4]
    add-image:    reduce_mean(x + y, axes=(-2, -1)) == reduce_mean(x, axes=(-2, -1)) + reduce_mean(y, axes=(-2, -1))
                  for x[3, 4], y[3, 4]
    scale:        reduce_mean(scale(x, factor=a), axes=(k,)) == scale(reduce_mean(x, axes=(k,)), factor=a)
                  for x[2, 3, 4], k[-1, -2, -3, -4]
    concat-image: reduce_mean(concat(x, y, axis=j), axes=(-2, -1))
                  == concat(reduce_mean(x, axes=(-2, -1)), reduce_mean(y, axes=(-2, -1)), axis=j + 2)
                  for x[3, 4], y[3, 4], j[-3, -4]
    mul-channels: reduce_mean(x * expand(t, shape=x.shape, axes=(-3,)), axes=(-2, -1))
                  == reduce_mean(x, axes=(-2, -1)) * expand(t, shape=(x.shape[-4], x.shape[-3]), axes=(-1,))
                  for x[4], t[1]
    expand-rows:  reduce_mean(expand(x, shape=(m, n), axes=(-1,)), axes=(-2,)) == x  for x[1]
    expand-image: reduce_mean(expand(x, shape=s, axes=(-4, -3)), axes=(-2, -1)) == x  for x[2], s[4]
    matmul:       reduce_mean(x @ y, axes=(k,)) == reduce_mean(x, axes=(k,)) @ y  for x[3, 4], y[2], k[-2, -3, -4]
    matmul-rows:  reduce_mean(x @ y, axes=(-2,))
                  == reshape(reshape(reduce_mean(x, axes=(-2,)), shape=(1, x.shape[-1])) @ y, shape=(y.shape[-1],))
                  for x[2], y[2]
"""


def reduce_mean(x: Tensor, *, axes: Axes) -> Tensor:
    def mean(extent: Extent, body: Callable[[Index], Value]) -> Value:
        return total(extent, body) * number(inverse(extent))

    return reduced(x, axes, mean)


def lift(node: Node) -> Term | None:
    if node.op_type == "GlobalAveragePool":
        x = node.operand(0)
        return over_axes(x, "reduce_mean", tuple(range(2, x.rank)), keep=True) if x.rank > 2 else None
    return lifted(node, "reduce_mean")


def lower(term: Term, emit: Emit) -> str:
    return lowered(term, emit)
