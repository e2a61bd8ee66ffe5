"""Matrix product (ONNX MatMul): x of any rank by a matrix, or by a tensor with the same leading (batch) axes."""

from __future__ import annotations

from superopt.graph import Term
from superopt.index import Tensor, require, same, tensor, total
from superopt.op import Emit, Node, apply

ONNX = "MatMul"

AXIOMS = """
    associativity:    (x @ y) @ z == x @ (y @ z)  for x[2, 3, 4], y[2, 3, 4], z[2, 3, 4]
    concat-columns:   x @ concat(y, z, axis=-1) == concat(x @ y, x @ z, axis=-1)  for x[2, 3, 4], y[2, 3, 4], z[2, 3, 4]
    concat-rows:      concat(x, y, axis=-2) @ z == concat(x @ z, y @ z, axis=-2)  for x[2, 3, 4], y[2, 3, 4], z[2, 3, 4]
    concat-inner:     concat(x, y, axis=-1) @ concat(z, w, axis=-2) == x @ z + y @ w
                      for x[2, 3, 4], y[2, 3, 4], z[2, 3, 4], w[2, 3, 4]
    concat-batch:     concat(x, y, axis=k) @ concat(z, w, axis=k) == concat(x @ z, y @ w, axis=k)
                      for x[3, 4], y[3, 4], z[3, 4], w[3, 4], k[-3, -4]
    concat-batch-one: concat(x, y, axis=k) @ z == concat(x @ z, y @ z, axis=k)  for x[3, 4], y[3, 4], z[2], k[-3, -4]
    slice-columns:    slice(x @ y, axis=-1, start=a, stop=b) == x @ slice(y, axis=-1, start=a, stop=b)
                      for x[2, 3, 4], y[2, 3, 4]
    slice-rows:       slice(x @ y, axis=-2, start=a, stop=b) == slice(x, axis=-2, start=a, stop=b) @ y
                      for x[2, 3, 4], y[2, 3, 4]
    slice-batch:      slice(x @ y, axis=k, start=a, stop=b)
                      == slice(x, axis=k, start=a, stop=b) @ slice(y, axis=k, start=a, stop=b)
                      for x[3, 4], y[3, 4], k[-3, -4]
    slice-batch-one:  slice(x @ y, axis=k, start=a, stop=b) == slice(x, axis=k, start=a, stop=b) @ y
                      for x[3, 4], y[2], k[-3, -4]
    distribute-right: x @ (y + z) == x @ y + x @ z  for x[2, 3, 4], y[2, 3, 4], z[2, 3, 4]
    distribute-left:  (x + y) @ z == x @ z + y @ z  for x[2, 3, 4], y[2, 3, 4], z[2, 3, 4]
    subtract-right:   x @ (y - z) == x @ y - x @ z  for x[2, 3, 4], y[2, 3, 4], z[2, 3, 4]
    subtract-left:    (x - y) @ z == x @ z - y @ z  for x[2, 3, 4], y[2, 3, 4], z[2, 3, 4]
    scale-left:       scale(x, factor=a) @ y == scale(x @ y, factor=a)  for x[2, 3, 4], y[2, 3, 4]
    scale-right:      x @ scale(y, factor=a) == scale(x @ y, factor=a)  for x[2, 3, 4], y[2, 3, 4]
    scale-inner:      (x * expand(s, shape=x.shape, axes=(-1,))) @ w == x @ (w * expand(s, shape=w.shape, axes=(-2,)))
                      for x[2, 3, 4], s[1], w[2, 3, 4]
    scale-columns:    (x @ w) * expand(s, shape=(x @ w).shape, axes=(-1,)) == x @ (w * expand(s, shape=w.shape, axes=(-1,)))
                      for x[2, 3, 4], s[1], w[2, 3, 4]
    scale-rows:       (x @ w) * expand(s, shape=(x @ w).shape, axes=(-2,)) == (x * expand(s, shape=x.shape, axes=(-2,))) @ w
                      for x[2, 3, 4], s[1], w[2, 3, 4]
    transpose:        transpose(x @ y, perm=(-1, -2)) == transpose(y, perm=(-1, -2)) @ transpose(x, perm=(-1, -2))
                      for x[2], y[2]
    transpose-3:      transpose(x @ y, perm=(-3, -1, -2)) == transpose(y, perm=(-3, -1, -2)) @ transpose(x, perm=(-3, -1, -2))
                      for x[3], y[3]
    transpose-4:      transpose(x @ y, perm=(-4, -3, -1, -2))
                      == transpose(y, perm=(-4, -3, -1, -2)) @ transpose(x, perm=(-4, -3, -1, -2))
                      for x[4], y[4]
    transpose-batch:  transpose(x @ y, perm=(-2, -3, -1)) == transpose(x, perm=(-2, -3, -1)) @ y  for x[3], y[2]
    flatten:          reshape(x @ y, shape=(x.shape[-3] * x.shape[-2], y.shape[-1]))
                      == reshape(x, shape=(x.shape[-3] * x.shape[-2], x.shape[-1])) @ y
                      for x[3], y[2]
    broadcast:        x @ expand(y, shape=(x.shape[-3], y.shape[-2], y.shape[-1]), axes=(-2, -1)) == x @ y  for x[3], y[2]
    broadcast-4:      x @ expand(y, shape=(x.shape[-4], x.shape[-3], y.shape[-2], y.shape[-1]), axes=(-2, -1)) == x @ y
                      for x[4], y[2]
    identity-right:   x @ eye(n=x.shape[-1]) == x  for x[2, 3, 4]
    identity-left:    eye(n=x.shape[-2]) @ x == x  for x[2]
    zeros-right:      x @ zeros(shape=(x.shape[-1], n)) == zeros(shape=(x.shape[-2], n))  for x[2]
    zeros-left:       zeros(shape=(m, x.shape[-2])) @ x == zeros(shape=(m, x.shape[-1]))  for x[2]
"""


def matmul(x: Tensor, y: Tensor) -> Tensor:
    batch = x.shape[:-2]
    require(x.rank >= 2 and (y.rank == 2 or y.rank == x.rank), "matmul takes matrices, or two tensors of one rank")
    require(same(x.shape[-1], y.shape[-2]), "matmul: inner dimensions agree")
    for here, there in zip(batch, y.shape[:-2], strict=False):
        require(same(here, there), "matmul: leading dimensions agree")

    def at(*position):
        *lead, i, j = position
        of_y = lead if y.rank > 2 else ()
        return total(x.shape[-1], lambda k: x[(*lead, i, k)] * y[(*of_y, k, j)])

    return tensor((*x.shape[:-1], y.shape[-1]), at)


def lift(node: Node) -> Term | None:
    return apply("matmul", node.operand(0), node.operand(1))


def lower(term: Term, emit: Emit) -> str:
    return emit("MatMul", *term.args)
