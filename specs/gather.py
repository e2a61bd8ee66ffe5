"""Elements of x at the indices in a vector, along an axis (ONNX Gather with constant indices, for example of embedding tables).

A negative index counts from the end. An index that is out of range gives zeros, so that every vector is a valid operand. A
gather therefore equals the product of a matrix of zeros and ones (`one_hot`) and x. ONNX does not allow indices out of range,
and lowering refuses them.
"""

from __future__ import annotations

from math import prod

from superopt.algebra.index import Axis, Index, Tensor, Value, call, number, require, tensor, total
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term

ONNX = "Gather"
EXACT = "order"

AXIOMS = """
    add:            gather(x + y, i, axis=k) == gather(x, i, axis=k) + gather(y, i, axis=k)
                    for x[1, 2, 3, 4], y[1, 2, 3, 4], i[1], k[-1, -2, -3, -4]
    sub:            gather(x - y, i, axis=k) == gather(x, i, axis=k) - gather(y, i, axis=k)
                    for x[1, 2, 3, 4], y[1, 2, 3, 4], i[1], k[-1, -2, -3, -4]
    scale:          gather(scale(x, factor=a), i, axis=k) == scale(gather(x, i, axis=k), factor=a)
                    for x[1, 2, 3, 4], i[1], k[-1, -2, -3, -4]
    zeros:          gather(zeros(shape=s), i, axis=-2) == zeros(shape=(i.shape[-1], s1))  for s[2], i[1]
    concat:         gather(concat(x, y, axis=j), i, axis=k) == concat(gather(x, i, axis=k), gather(y, i, axis=k), axis=j)
                    for x[2, 3, 4], y[2, 3, 4], i[1], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    slice:          gather(slice(x, axis=j, start=a, stop=b), i, axis=k) == slice(gather(x, i, axis=k), axis=j, start=a, stop=b)
                    for x[2, 3, 4], i[1], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    concat-indices: gather(x, concat(i, j, axis=-1), axis=k) == concat(gather(x, i, axis=k), gather(x, j, axis=k), axis=k)
                    for x[1, 2, 3, 4], i[1], j[1], k[-1, -2, -3, -4]
    slice-indices:  gather(x, slice(i, axis=-1, start=a, stop=b), axis=k)
                    == slice(gather(x, i, axis=k), axis=k, start=a, stop=b)
                    for x[1, 2, 3, 4], i[1], k[-1, -2, -3, -4]
    exchange:       gather(gather(x, i, axis=j), h, axis=k) == gather(gather(x, h, axis=k), i, axis=j)
                    for x[2, 3, 4], i[1], h[1], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j < k
    transpose:      gather(transpose(x, perm=(-1, -2)), i, axis=-1) == transpose(gather(x, i, axis=-2), perm=(-1, -2))
                    for x[2], i[1]
    transpose-rows: gather(transpose(x, perm=(-1, -2)), i, axis=-2) == transpose(gather(x, i, axis=-1), perm=(-1, -2))
                    for x[2], i[1]
    sum-inner:      reduce_sum(gather(x, i, axis=j), axes=(k,)) == gather(reduce_sum(x, axes=(k,)), i, axis=j)
                    for x[2, 3, 4], i[1], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j > k
    sum-outer:      reduce_sum(gather(x, i, axis=j), axes=(k,)) == gather(reduce_sum(x, axes=(k,)), i, axis=j + 1)
                    for x[2, 3, 4], i[1], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j < k
    mean-inner:     reduce_mean(gather(x, i, axis=j), axes=(k,)) == gather(reduce_mean(x, axes=(k,)), i, axis=j)
                    for x[2, 3, 4], i[1], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j > k
    mean-outer:     reduce_mean(gather(x, i, axis=j), axes=(k,)) == gather(reduce_mean(x, axes=(k,)), i, axis=j + 1)
                    for x[2, 3, 4], i[1], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j < k
    mul:            gather(x * expand(t, shape=x.shape, axes=(j,)), i, axis=k)
                    == gather(x, i, axis=k) * expand(t, shape=gather(x, i, axis=k).shape, axes=(j,))
                    for x[2, 3, 4], t[1], i[1], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    matmul-rows:    gather(x @ y, i, axis=-2) == gather(x, i, axis=-2) @ y  for x[2, 3, 4], y[2, 3, 4], i[1]
    matmul-columns: gather(x @ y, i, axis=-1) == x @ gather(y, i, axis=-1)  for x[2, 3, 4], y[2, 3, 4], i[1]
    matmul-batch:   gather(x @ y, i, axis=k) == gather(x, i, axis=k) @ y  for x[3, 4], y[2], i[1], k[-3, -4]
    batch-matmul:   gather(x @ y, i, axis=k) == x @ gather(y, i, axis=k)  for x[2], y[3, 4], i[1], k[-3, -4]
    as-matmul:      gather(x, i, axis=-2) == one_hot(i, depth=x.shape[-2]) @ x  for x[2, 3, 4], i[1]
"""


def gather(x: Tensor, indices: Tensor, *, axis: Axis) -> Tensor:
    require(indices.rank == 1, "gather: the indices are a vector")
    n = x.shape[axis]

    def at(*position: Index) -> Value:
        index = indices[position[axis]]

        def picked(k: Index) -> Value:
            source = tuple(k if a == axis else i for a, i in zip(range(-x.rank, 0), position, strict=True))
            return x[source] * call("zero", (index - number(k)) * (index - number(k) + number(n)))

        return total(n, picked)

    return tensor(tuple(indices.shape[0] if a == axis else x.shape[a] for a in range(-x.rank, 0)), at)


def lift(node: Node) -> Term | None:
    x, axis = node.operand(0), node.attribute("axis", 0)
    axis = axis if axis < 0 else axis - x.rank
    numbers, shape = node.integers(1)
    n = x.sizes[axis]
    wanted = (*x.sizes[:axis], *shape, *(x.sizes[axis:][1:]))
    if not numbers or any(not -n <= i < n for i in numbers):
        return None
    first = numbers[0] % n
    if [i % n for i in numbers] == list(range(first, first + len(numbers))):
        picked = apply("slice", x, axis=axis, start=first, stop=first + len(numbers)) if len(numbers) < n else x
    else:
        indices = node.constant(1)
        flat = apply("reshape", indices, shape=(prod(shape),)) if len(shape) != 1 else indices
        picked = apply("gather", x, flat, axis=axis)
    return apply("reshape", picked, shape=wanted) if picked.shape != wanted else picked


def lower(term: Term, emit: Emit) -> str:
    x, indices = term.args
    axis = term.integer("axis") + x.rank
    return emit("Gather", x, emit.integers(indices, x.sizes[axis]), axis=axis)
