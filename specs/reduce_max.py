"""The largest element over whole axes (ONNX ReduceMax). The reduced axes are removed.

A node with keepdims=1 is lifted to a reduction and a reshape.
"""

from __future__ import annotations

from superopt.algebra.index import Axes, Tensor, maximum
from superopt.algebra.operators import Emit, Node
from superopt.algebra.terms import Term
from superopt.speclib.reduction import lifted, lowered, over_axes, reduced

ONNX = ("ReduceMax", "GlobalMaxPool")
EXACT = "order"

AXIOMS = """
    scale:          reduce_max(scale(x, factor=a), axes=(k,)) == scale(reduce_max(x, axes=(k,)), factor=a)
                    for x[1, 2, 3, 4], k[-1, -2, -3, -4] where a >= 0
    relu:           reduce_max(relu(x), axes=(k,)) == relu(reduce_max(x, axes=(k,)))  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    relu-image:     reduce_max(relu(x), axes=(-2, -1)) == relu(reduce_max(x, axes=(-2, -1)))  for x[3, 4]
    maximum:        reduce_max(maximum(x, y), axes=(k,)) == maximum(reduce_max(x, axes=(k,)), reduce_max(y, axes=(k,)))
                    for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4]
    add-rows:       reduce_max(x + expand(t, shape=x.shape, axes=(-2,)), axes=(-1,)) == reduce_max(x, axes=(-1,)) + t
                    for x[2], t[1]
    add-rows-3:     reduce_max(x + expand(t, shape=x.shape, axes=(-3, -2)), axes=(-1,)) == reduce_max(x, axes=(-1,)) + t
                    for x[3], t[2]
    add-rows-4:     reduce_max(x + expand(t, shape=x.shape, axes=(-4, -3, -2)), axes=(-1,)) == reduce_max(x, axes=(-1,)) + t
                    for x[4], t[3]
    concat-reduced: reduce_max(concat(x, y, axis=k), axes=(k,))
                    == maximum(reduce_max(x, axes=(k,)), reduce_max(y, axes=(k,)))
                    for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4]
    concat-inner:   reduce_max(concat(x, y, axis=j), axes=(k,))
                    == concat(reduce_max(x, axes=(k,)), reduce_max(y, axes=(k,)), axis=j)
                    for x[2, 3, 4], y[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j > k
    concat-outer:   reduce_max(concat(x, y, axis=j), axes=(k,))
                    == concat(reduce_max(x, axes=(k,)), reduce_max(y, axes=(k,)), axis=j + 1)
                    for x[2, 3, 4], y[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j < k
    concat-image:   reduce_max(concat(x, y, axis=j), axes=(-2, -1))
                    == concat(reduce_max(x, axes=(-2, -1)), reduce_max(y, axes=(-2, -1)), axis=j + 2)
                    for x[3, 4], y[3, 4], j[-3, -4]
    slice-inner:    reduce_max(slice(x, axis=j, start=a, stop=b), axes=(k,))
                    == slice(reduce_max(x, axes=(k,)), axis=j, start=a, stop=b)
                    for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j > k
    slice-outer:    reduce_max(slice(x, axis=j, start=a, stop=b), axes=(k,))
                    == slice(reduce_max(x, axes=(k,)), axis=j + 1, start=a, stop=b)
                    for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j < k
    global-pool:    max_pool(x, kernel=(x.shape[-2], x.shape[-1]), strides=s, pads=(0, 0, 0, 0), dilations=(1, 1))
                    == reshape(reduce_max(x, axes=(-2, -1)), shape=(x.shape[-4], x.shape[-3], 1, 1))
                    for x[4], s[2]
    expand-rows:    reduce_max(expand(x, shape=(m, n), axes=(-1,)), axes=(-2,)) == x  for x[1]
    expand-columns: reduce_max(expand(x, shape=(n, m), axes=(-2,)), axes=(-1,)) == x  for x[1]
    expand-image:   reduce_max(expand(x, shape=s, axes=(-4, -3)), axes=(-2, -1)) == x  for x[2], s[4]
    twice:          reduce_max(reduce_max(x, axes=(-1,)), axes=(-1,)) == reduce_max(x, axes=(-2, -1))  for x[2, 3, 4]
    transpose:      reduce_max(transpose(x, perm=(-1, -2)), axes=(-1,)) == reduce_max(x, axes=(-2,))  for x[2]
    transpose-rows: reduce_max(transpose(x, perm=(-1, -2)), axes=(-2,)) == reduce_max(x, axes=(-1,))  for x[2]
"""


def reduce_max(x: Tensor, *, axes: Axes) -> Tensor:
    return reduced(x, axes, maximum)


def lift(node: Node) -> Term | None:
    if node.op_type == "GlobalMaxPool":
        x = node.operand(0)
        return over_axes(x, "reduce_max", tuple(range(2, x.rank)), keep=True) if x.rank > 2 else None
    return lifted(node, "reduce_max")


def lower(term: Term, emit: Emit) -> str:
    return lowered(term, emit)
