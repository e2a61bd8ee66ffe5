"""Elementwise product (ONNX Mul), shapes equal; associative and commutative."""

from __future__ import annotations

from superopt.graph import Term
from superopt.index import Tensor, require, same, tensor
from superopt.op import Emit, Node, apply

ONNX = "Mul"  # by a scalar constant: see scale
COMMUTATIVE = True

AXIOMS = """
    one:           x * ones(shape=x.shape) == x  for x[1, 2, 3, 4]
    zero:          x * zeros(shape=x.shape) == zeros(shape=x.shape)  for x[1, 2, 3, 4]
    distribute:    x * (y + z) == x * y + x * z  for x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4]
    concat:        concat(x, y, axis=k) * concat(z, w, axis=k) == concat(x * z, y * w, axis=k)
                   for x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4], w[1, 2, 3, 4], k[-1, -2, -3, -4]
    slice:         slice(x * y, axis=k, start=a, stop=b)
                   == slice(x, axis=k, start=a, stop=b) * slice(y, axis=k, start=a, stop=b)
                   for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4]
    transpose:     transpose(x * y, perm=(-1, -2)) == transpose(x, perm=(-1, -2)) * transpose(y, perm=(-1, -2)) for x[2], y[2]
    transpose-3:   transpose(x * y, perm=(i, j, k)) == transpose(x, perm=(i, j, k)) * transpose(y, perm=(i, j, k))
                   for x[3], y[3], i[-1, -2, -3], j[-1, -2, -3], k[-1, -2, -3]
    transpose-4:   transpose(x * y, perm=(-4, i, j, k)) == transpose(x, perm=(-4, i, j, k)) * transpose(y, perm=(-4, i, j, k))
                   for x[4], y[4], i[-1, -2, -3], j[-1, -2, -3], k[-1, -2, -3]
    expand:        expand(x * y, shape=s, axes=(k,)) == expand(x, shape=s, axes=(k,)) * expand(y, shape=s, axes=(k,))
                   for x[1], y[1], s[2, 3, 4], k[-1, -2, -3, -4]
    expand-matrix: expand(x * y, shape=s, axes=(-2, -1))
                       == expand(x, shape=s, axes=(-2, -1)) * expand(y, shape=s, axes=(-2, -1))
                   for x[2], y[2], s[3, 4]
    reshape:       reshape(x * y, shape=s) == reshape(x, shape=s) * reshape(y, shape=s)
                   for x[1, 2, 3, 4], y[1, 2, 3, 4], s[1, 2, 3, 4]
    pad:           pad(x * y, before=p, after=q) == pad(x, before=p, after=q) * pad(y, before=p, after=q)
                   for x[1, 2, 3, 4], y[1, 2, 3, 4], p[1, 2, 3, 4], q[1, 2, 3, 4]
"""


def mul(x: Tensor, y: Tensor) -> Tensor:
    require(x.rank == y.rank, "mul: ranks agree")
    for here, there in zip(x.shape, y.shape, strict=True):
        require(same(here, there), "mul: shapes agree")
    return tensor(x.shape, lambda *i: x[i] * y[i])


def lift(node: Node) -> Term | None:
    if node.scalar(0) is not None or node.scalar(1) is not None:
        return None
    return apply("mul", *node.broadcast())


def lower(term: Term, emit: Emit) -> str:
    return emit.chain("Mul", term, inverse=("Div", _divisor))


def _divisor(factor: Term) -> Term | None:
    return factor.args[0] if factor.op == "reciprocal" else None
