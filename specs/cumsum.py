"""Cumulative sums along an axis (ONNX CumSum): at each position, the sum of the elements up to this position.

If `exclusive` is 1, the sum omits the element at this position. If `reverse` is 1, the sums begin at the end of the axis.
"""

from __future__ import annotations

from superopt.algebra.index import Axis, Index, Tensor, Value, number, require, select, tensor, total
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term

ONNX = "CumSum"

AXIOMS = """
    add:            cumsum(x + y, axis=k, exclusive=e, reverse=r)
                    == cumsum(x, axis=k, exclusive=e, reverse=r) + cumsum(y, axis=k, exclusive=e, reverse=r)
                    for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4]
    scale:          cumsum(scale(x, factor=a), axis=k, exclusive=e, reverse=r)
                    == scale(cumsum(x, axis=k, exclusive=e, reverse=r), factor=a)
                    for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    concat:         cumsum(concat(x, y, axis=j), axis=k, exclusive=e, reverse=r)
                    == concat(cumsum(x, axis=k, exclusive=e, reverse=r), cumsum(y, axis=k, exclusive=e, reverse=r), axis=j)
                    for x[2, 3, 4], y[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    slice:          cumsum(slice(x, axis=j, start=a, stop=b), axis=k, exclusive=e, reverse=r)
                    == slice(cumsum(x, axis=k, exclusive=e, reverse=r), axis=j, start=a, stop=b)
                    for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    first:          slice(cumsum(x, axis=k, exclusive=e, reverse=0), axis=k, start=0, stop=b)
                    == cumsum(slice(x, axis=k, start=0, stop=b), axis=k, exclusive=e, reverse=0)
                    for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    transpose:      cumsum(transpose(x, perm=(-1, -2)), axis=-1, exclusive=e, reverse=r)
                    == transpose(cumsum(x, axis=-2, exclusive=e, reverse=r), perm=(-1, -2))
                    for x[2]
    transpose-rows: cumsum(transpose(x, perm=(-1, -2)), axis=-2, exclusive=e, reverse=r)
                    == transpose(cumsum(x, axis=-1, exclusive=e, reverse=r), perm=(-1, -2))
                    for x[2]
    exclusive:      cumsum(x, axis=k, exclusive=1, reverse=r) == cumsum(x, axis=k, exclusive=0, reverse=r) - x
                    for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    reverse:        cumsum(x, axis=-2, exclusive=0, reverse=1)
                    == expand(reduce_sum(x, axes=(-2,)), shape=x.shape, axes=others(x, -2))
                    - cumsum(x, axis=-2, exclusive=1, reverse=0)
                    for x[2, 3, 4]
    matmul:         cumsum(x @ y, axis=-2, exclusive=e, reverse=r) == cumsum(x, axis=-2, exclusive=e, reverse=r) @ y
                    for x[2, 3, 4], y[2, 3, 4]
    matmul-columns: cumsum(x @ y, axis=-1, exclusive=e, reverse=r) == x @ cumsum(y, axis=-1, exclusive=e, reverse=r)
                    for x[2, 3, 4], y[2, 3, 4]
    as-matmul:      cumsum(x, axis=-2, exclusive=e, reverse=0)
                    == lower_triangle(ones(shape=(x.shape[-2], x.shape[-2])), offset=-e) @ x
                    for x[2, 3, 4]
    as-matmul-back: cumsum(x, axis=-2, exclusive=e, reverse=1)
                    == upper_triangle(ones(shape=(x.shape[-2], x.shape[-2])), offset=e) @ x
                    for x[2, 3, 4]
    as-matmul-row:  cumsum(x, axis=-1, exclusive=e, reverse=0)
                    == x @ upper_triangle(ones(shape=(x.shape[-1], x.shape[-1])), offset=e)
                    for x[2, 3, 4]
"""


def cumsum(x: Tensor, *, axis: Axis, exclusive: Extent = 0, reverse: Extent = 0) -> Tensor:
    require((exclusive >= 0) & (exclusive <= 1), "cumsum: exclusive is 0 or 1")
    require((reverse >= 0) & (reverse <= 1), "cumsum: reverse is 0 or 1")

    def at(*position: Index) -> Value:
        def element(n: Index) -> Value:
            return x[tuple(n if a == axis else i for a, i in zip(range(-x.rank, 0), position, strict=True))]

        def forward(n: Index) -> Value:
            return select(n + exclusive <= position[axis], element(n), number(0))

        def backward(n: Index) -> Value:
            return select(n >= position[axis] + exclusive, element(n), number(0))

        def term(n: Index) -> Value:
            if reverse in (0, 1):
                return backward(n) if reverse == 1 else forward(n)
            return select(reverse >= 1, backward(n), forward(n))

        return total(x.shape[axis], term)

    return tensor(x.shape, at)


def lift(node: Node) -> Term | None:
    marks = {name: node.attribute(name, 0) for name in ("exclusive", "reverse")}
    return apply("cumsum", node.operand(0), axis=node.attribute("axis"), **marks)


def lower(term: Term, emit: Emit) -> str:
    marks = {name: term.integer(name) for name in ("exclusive", "reverse")}
    return emit("CumSum", *term.args, axis=term.integer("axis") + term.rank, **marks)
