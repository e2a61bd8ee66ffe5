"""Explicit broadcasting: axis a of x becomes axis axes[a] of the result, and x is repeated along all other axes of the result.

The implicit broadcasting of ONNX operators is lifted to this operator. Lowering omits an `expand` if ONNX broadcasts the
operand implicitly, and writes an ONNX Expand otherwise.
"""

from __future__ import annotations

from itertools import pairwise, zip_longest

from superopt.algebra.index import Axes, Extents, Tensor, require, same, tensor
from superopt.algebra.operators import Emit, Node
from superopt.algebra.terms import Term

ONNX = "Expand"

AXIOMS = """
    identity:       expand(x, shape=x.shape, axes=(-1,)) == x  for x[1]
    identity-2:     expand(x, shape=x.shape, axes=(-2, -1)) == x  for x[2]
    identity-3:     expand(x, shape=x.shape, axes=(-3, -2, -1)) == x  for x[3]
    identity-4:     expand(x, shape=x.shape, axes=(-4, -3, -2, -1)) == x  for x[4]
    twice:          expand(expand(x, shape=s, axes=(k,)), shape=t, axes=(-2, -1)) == expand(x, shape=t, axes=(k,))
                    for x[1], s[2], t[3, 4], k[-1, -2]
    twice-3:        expand(expand(x, shape=s, axes=(k,)), shape=t, axes=(-3, -2, -1)) == expand(x, shape=t, axes=(k,))
                    for x[1], s[3], t[4], k[-1, -2, -3]
    twice-matrix:   expand(expand(x, shape=s, axes=(-2, -1)), shape=t, axes=(-3, -2, -1)) == expand(x, shape=t, axes=(-2, -1))
                    for x[2], s[3], t[4]
    zeros:          expand(zeros(shape=s), shape=t, axes=(k,)) == zeros(shape=t)  for s[1], t[2, 3, 4], k[-1, -2, -3, -4]
    ones:           expand(ones(shape=s), shape=t, axes=(k,)) == ones(shape=t)  for s[1], t[2, 3, 4], k[-1, -2, -3, -4]
    concat-row:     expand(concat(x, y, axis=-1), shape=(m, x.shape[-1] + y.shape[-1]), axes=(-1,))
                    == concat(expand(x, shape=(m, x.shape[-1]), axes=(-1,)),
                              expand(y, shape=(m, y.shape[-1]), axes=(-1,)), axis=-1)
                    for x[1], y[1]
    concat-column:  expand(concat(x, y, axis=-1), shape=(x.shape[-1] + y.shape[-1], m), axes=(-2,))
                    == concat(expand(x, shape=(x.shape[-1], m), axes=(-2,)),
                              expand(y, shape=(y.shape[-1], m), axes=(-2,)), axis=-2)
                    for x[1], y[1]
    concat-row-3:   expand(concat(x, y, axis=-1), shape=(b, m, x.shape[-1] + y.shape[-1]), axes=(-1,))
                    == concat(expand(x, shape=(b, m, x.shape[-1]), axes=(-1,)),
                              expand(y, shape=(b, m, y.shape[-1]), axes=(-1,)), axis=-1)
                    for x[1], y[1]
    concat-channel: expand(concat(x, y, axis=-1), shape=(n, x.shape[-1] + y.shape[-1], h, w), axes=(-3,))
                    == concat(expand(x, shape=(n, x.shape[-1], h, w), axes=(-3,)),
                              expand(y, shape=(n, y.shape[-1], h, w), axes=(-3,)), axis=-3)
                    for x[1], y[1]
    concat-kernel:  expand(concat(x, y, axis=-1), shape=(x.shape[-1] + y.shape[-1], c, h, w), axes=(-4,))
                    == concat(expand(x, shape=(x.shape[-1], c, h, w), axes=(-4,)),
                              expand(y, shape=(y.shape[-1], c, h, w), axes=(-4,)), axis=-4)
                    for x[1], y[1]
    join-rows:      concat(expand(x, shape=(m, n), axes=(-1,)), expand(x, shape=(l, n), axes=(-1,)), axis=-2)
                    == expand(x, shape=(m + l, n), axes=(-1,))
                    for x[1]
    join-columns:   concat(expand(x, shape=(n, m), axes=(-2,)), expand(x, shape=(n, l), axes=(-2,)), axis=-1)
                    == expand(x, shape=(n, m + l), axes=(-2,))
                    for x[1]
    join-inputs:    concat(expand(x, shape=(f, c, h, w), axes=(-4,)), expand(x, shape=(f, d, h, w), axes=(-4,)), axis=-3)
                    == expand(x, shape=(f, c + d, h, w), axes=(-4,))
                    for x[1]
"""


def expand(x: Tensor, *, shape: Extents, axes: Axes) -> Tensor:
    rank = len(shape)
    require(len(axes) == x.rank and rank >= x.rank, "expand: axes gives every axis of x its place")
    require(all(a < b for a, b in pairwise(axes)), "expand: axes are in order")
    for extent, axis in zip(x.shape, axes, strict=True):
        require(same(extent, shape[axis]), "expand: the axes of x keep their extents")
    for axis in range(-rank, 0):
        require(shape[axis] >= 1, "expand: the result is not empty")
    return tensor(shape, lambda *i: x[tuple(i[a] for a in axes)])


def lift(node: Node) -> Term | None:
    x, asked = node.operand(0), node.attribute("shape")
    pairs = zip_longest(reversed(x.sizes), reversed(asked), fillvalue=1)
    return node.expanded(x, tuple(max(here, there) for here, there in pairs)[::-1])


def lower(term: Term, emit: Emit) -> str:
    return emit("Expand", emit.aligned(term), shape=term.sizes)
