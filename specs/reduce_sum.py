"""Sums over whole axes (ONNX ReduceSum). The reduced axes are removed.

A node with keepdims=1 is lifted to a reduction and a reshape.
"""

from __future__ import annotations

from superopt.algebra.index import Axes, Tensor, total
from superopt.algebra.operators import Emit, Node
from superopt.algebra.terms import Term
from superopt.speclib.reduction import lifted, lowered, reduced

ONNX = "ReduceSum"

AXIOMS = """
    add:            reduce_sum(x + y, axes=(k,)) == reduce_sum(x, axes=(k,)) + reduce_sum(y, axes=(k,))
                    for x[2, 3, 4], y[2, 3, 4], k[-1, -2, -3, -4]
    add-image:      reduce_sum(x + y, axes=(-2, -1)) == reduce_sum(x, axes=(-2, -1)) + reduce_sum(y, axes=(-2, -1))
                    for x[3, 4], y[3, 4]
    scale:          reduce_sum(scale(x, factor=a), axes=(k,)) == scale(reduce_sum(x, axes=(k,)), factor=a)
                    for x[2, 3, 4], k[-1, -2, -3, -4]
    scale-image:    reduce_sum(scale(x, factor=a), axes=(-2, -1)) == scale(reduce_sum(x, axes=(-2, -1)), factor=a)  for x[3, 4]
    concat-summed:  reduce_sum(concat(x, y, axis=k), axes=(k,)) == reduce_sum(x, axes=(k,)) + reduce_sum(y, axes=(k,))
                    for x[2, 3, 4], y[2, 3, 4], k[-1, -2, -3, -4]
    concat-inner:   reduce_sum(concat(x, y, axis=j), axes=(k,))
                    == concat(reduce_sum(x, axes=(k,)), reduce_sum(y, axes=(k,)), axis=j)
                    for x[2, 3, 4], y[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j > k
    concat-outer:   reduce_sum(concat(x, y, axis=j), axes=(k,))
                    == concat(reduce_sum(x, axes=(k,)), reduce_sum(y, axes=(k,)), axis=j + 1)
                    for x[2, 3, 4], y[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j < k
    concat-image:   reduce_sum(concat(x, y, axis=j), axes=(-2, -1))
                    == concat(reduce_sum(x, axes=(-2, -1)), reduce_sum(y, axes=(-2, -1)), axis=j + 2)
                    for x[3, 4], y[3, 4], j[-3, -4]
    slice-inner:    reduce_sum(slice(x, axis=j, start=a, stop=b), axes=(k,))
                    == slice(reduce_sum(x, axes=(k,)), axis=j, start=a, stop=b)
                    for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j > k
    slice-outer:    reduce_sum(slice(x, axis=j, start=a, stop=b), axes=(k,))
                    == slice(reduce_sum(x, axes=(k,)), axis=j + 1, start=a, stop=b)
                    for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j < k
    twice:          reduce_sum(reduce_sum(x, axes=(-1,)), axes=(-1,)) == reduce_sum(x, axes=(-2, -1))  for x[3, 4]
    transpose:      reduce_sum(transpose(x, perm=(-1, -2)), axes=(-1,)) == reduce_sum(x, axes=(-2,))  for x[2]
    transpose-rows: reduce_sum(transpose(x, perm=(-1, -2)), axes=(-2,)) == reduce_sum(x, axes=(-1,))  for x[2]
    expand-rows:    reduce_sum(expand(x, shape=(m, n), axes=(-1,)), axes=(-2,)) == scale(x, factor=m)  for x[1]
    expand-columns: reduce_sum(expand(x, shape=(m, n), axes=(-2,)), axes=(-1,)) == scale(x, factor=n)  for x[1]
    mul-rows:       reduce_sum(x * expand(t, shape=x.shape, axes=(-2,)), axes=(-1,)) == reduce_sum(x, axes=(-1,)) * t
                    for x[2], t[1]
    mul-columns:    reduce_sum(x * expand(t, shape=x.shape, axes=(-1,)), axes=(-2,)) == reduce_sum(x, axes=(-2,)) * t
                    for x[2], t[1]
    mul-channels:   reduce_sum(x * expand(t, shape=x.shape, axes=(-3,)), axes=(-2, -1))
                    == reduce_sum(x, axes=(-2, -1)) * expand(t, shape=(x.shape[-4], x.shape[-3]), axes=(-1,))
                    for x[4], t[1]
    matmul:         reduce_sum(x @ y, axes=(k,)) == reduce_sum(x, axes=(k,)) @ y  for x[3, 4], y[2], k[-2, -3, -4]
    matmul-rows:    reduce_sum(x @ y, axes=(-2,))
                    == reshape(reshape(reduce_sum(x, axes=(-2,)), shape=(1, x.shape[-1])) @ y, shape=(y.shape[-1],))
                    for x[2], y[2]
    matmul-columns: reduce_sum(x @ y, axes=(-1,))
                    == reshape(x @ reshape(reduce_sum(y, axes=(-1,)), shape=(y.shape[-2], 1)), shape=(x.shape[-2],))
                    for x[2], y[2]
    as-matmul:      reduce_sum(x, axes=(-1,)) == reshape(x @ ones(shape=(x.shape[-1], 1)), shape=(x.shape[-2],))  for x[2]
"""


def reduce_sum(x: Tensor, *, axes: Axes) -> Tensor:
    return reduced(x, axes, total)


def lift(node: Node) -> Term | None:
    return lifted(node, "reduce_sum")


def lower(term: Term, emit: Emit) -> str:
    return lowered(term, emit)
