"""Means over whole axes, which disappear (ONNX ReduceMean; GlobalAveragePool and keepdims=1 lift with a reshape)."""

from __future__ import annotations

from itertools import pairwise

from superopt.graph import Term, inverse
from superopt.index import Axes, Index, Tensor, Value, number, require, tensor, total
from superopt.op import Emit, Node, apply

ONNX = ("ReduceMean", "GlobalAveragePool")

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
    require(len(axes) > 0 and all(a < b for a, b in pairwise(axes)), "reduce_mean: axes are in order, and at least one")
    kept = [a for a in range(-x.rank, 0) if a not in axes]

    def at(*position: Index) -> Value:
        def mean(rest: Axes, index: dict[int, Index]) -> Value:
            if not rest:
                return x[tuple(index[a] for a in range(-x.rank, 0))]
            extent = x.shape[rest[0]]
            return total(extent, lambda k: mean(rest[1:], {**index, rest[0]: k})) * number(inverse(extent))

        return mean(axes, dict(zip(kept, position, strict=True)))

    return tensor(tuple(x.shape[a] for a in kept), at)


def lift(node: Node) -> Term | None:
    x = node.operand(0)
    pooled = node.op_type == "GlobalAveragePool"
    if node.attribute("noop_with_empty_axes", 0) and not node.attribute("axes"):
        return x
    axes = node.attribute("axes") or tuple(range(2 if pooled else 0, x.rank))
    reduced = apply("reduce_mean", x, axes=tuple(sorted(a % x.rank for a in axes)))
    if not pooled and not node.attribute("keepdims", 1):
        return reduced
    return apply("reshape", reduced, shape=tuple(1 if a in axes or a - x.rank in axes else n for a, n in enumerate(x.shape)))


def lower(term: Term, emit: Emit) -> str:
    x = term.args[0]
    return emit("ReduceMean", x, axes=tuple(a + x.rank for a in term.integers("axes")), keepdims=0)
