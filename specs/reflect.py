"""x, extended along an axis by its mirror images, which leave out the border elements (ONNX Pad, mode reflect).

A node that pads several axes is lifted to one `reflect` for each axis. Nested operators are lowered to one node again.
"""

from __future__ import annotations

from superopt.algebra.index import Axis, Tensor, require, select, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term

ONNX = "Pad"

AXIOMS = """
    none:             reflect(x, axis=k, before=0, after=0) == x  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    before:           reflect(x, axis=k, before=p, after=0)
                      == concat(reverse(slice(x, axis=k, start=1, stop=p + 1), axis=k), x, axis=k)
                      for x[1, 2, 3, 4], k[-1, -2, -3, -4] where p >= 1
    after:            reflect(x, axis=k, before=0, after=q)
                      == concat(x, reverse(slice(x, axis=k, start=x.shape[k] - q - 1, stop=x.shape[k] - 1), axis=k), axis=k)
                      for x[1, 2, 3, 4], k[-1, -2, -3, -4] where q >= 1
    both:             reflect(x, axis=k, before=p, after=q)
                      == concat(reverse(slice(x, axis=k, start=1, stop=p + 1), axis=k),
                                concat(x, reverse(slice(x, axis=k, start=x.shape[k] - q - 1, stop=x.shape[k] - 1), axis=k),
                                       axis=k),
                                axis=k)
                      for x[1, 2, 3, 4], k[-1, -2, -3, -4] where p >= 1, q >= 1
    one:              reflect(x, axis=k, before=1, after=1)
                      == concat(slice(x, axis=k, start=1, stop=2),
                                concat(x, slice(x, axis=k, start=x.shape[k] - 2, stop=x.shape[k] - 1), axis=k), axis=k)
                      for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    exchange:         reflect(reflect(x, axis=k, before=p, after=q), axis=j, before=r, after=s)
                      == reflect(reflect(x, axis=j, before=r, after=s), axis=k, before=p, after=q)
                      for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j < k
    undo:             slice(reflect(x, axis=k, before=p, after=q), axis=k, start=p, stop=p + x.shape[k]) == x
                      for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    slice-other:      slice(reflect(x, axis=k, before=p, after=q), axis=j, start=a, stop=b)
                      == reflect(slice(x, axis=j, start=a, stop=b), axis=k, before=p, after=q)
                      for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    concat-other:     reflect(concat(x, y, axis=j), axis=k, before=p, after=q)
                      == concat(reflect(x, axis=k, before=p, after=q), reflect(y, axis=k, before=p, after=q), axis=j)
                      for x[2, 3, 4], y[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    transpose:        reflect(transpose(x, perm=(-1, -2)), axis=-1, before=p, after=q)
                      == transpose(reflect(x, axis=-2, before=p, after=q), perm=(-1, -2))
                      for x[2]
    transpose-rows:   reflect(transpose(x, perm=(-1, -2)), axis=-2, before=p, after=q)
                      == transpose(reflect(x, axis=-1, before=p, after=q), perm=(-1, -2))
                      for x[2]
    matmul-rows:      reflect(x @ y, axis=-2, before=p, after=q) == reflect(x, axis=-2, before=p, after=q) @ y
                      for x[2, 3, 4], y[2, 3, 4]
    matmul-columns:   reflect(x @ y, axis=-1, before=p, after=q) == x @ reflect(y, axis=-1, before=p, after=q)
                      for x[2, 3, 4], y[2, 3, 4]
"""


def reflect(x: Tensor, *, axis: Axis, before: Extent, after: Extent) -> Tensor:
    axes = range(-x.rank, 0)
    n = x.shape[axis]
    for amount in (before, after):
        require(amount >= 0, "reflect: amounts are not negative")
        require(amount <= n - 1, "reflect: the axis is longer than the border")
    shape = tuple(before + n + after if a == axis else x.shape[a] for a in axes)

    def at(*position):
        i = position[axis] - before
        here = select(i < 0, read(position, -i), read(position, i))
        return select(i >= n, read(position, 2 * (n - 1) - i), here)

    def read(position, i):
        return x[tuple(i if a == axis else v for a, v in zip(axes, position, strict=True))]

    return tensor(shape, at)


def lift(node: Node) -> Term | None:
    x, pads = node.operand(0), node.attribute("pads")
    if node.attribute("mode", "constant") != "reflect":
        return None
    axes = node.attribute("axes", tuple(range(x.rank)))
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        x = apply("reflect", x, axis=axis, before=before, after=after) if before != 0 or after != 0 else x
    return x


def lower(term: Term, emit: Emit) -> str:
    before, after = [0] * term.rank, [0] * term.rank
    while term.op == "reflect" and not (before[term.integer("axis")] or after[term.integer("axis")]):
        axis = term.integer("axis")
        before[axis], after[axis] = term.integer("before"), term.integer("after")
        term = term.args[0]
    return emit("Pad", term, mode="reflect", pads=(*before, *after))
