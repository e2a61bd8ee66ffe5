"""Matrix product (ONNX MatMul): x of any rank by a matrix, or by a tensor with the same leading (batch) axes."""

from __future__ import annotations

from superopt.graph import Term
from superopt.index import Tensor, require, same, tensor, total
from superopt.op import Emit, Node, apply

ONNX = "MatMul"

AXIOMS = """
    associativity:     (x @ y) @ z == x @ (y @ z)                                   for x[2, 3, 4], y[2], z[2]
    concat-columns:    x @ concat(y, z, axis=-1) == concat(x @ y, x @ z, axis=-1)   for x[2, 3, 4], y[2], z[2]
    concat-rows:       concat(x, y, axis=-2) @ z == concat(x @ z, y @ z, axis=-2)   for x[2, 3, 4], y[2, 3, 4], z[2]
    concat-inner:      concat(x, y, axis=-1) @ concat(z, w, axis=-2) == x @ z + y @ w
                       for x[2, 3, 4], y[2, 3, 4], z[2], w[2]
    distribute-right:  x @ (y + z) == x @ y + x @ z                                 for x[2, 3, 4], y[2], z[2]
    distribute-left:   (x + y) @ z == x @ z + y @ z                                 for x[2, 3, 4], y[2, 3, 4], z[2]
    scale-left:        scale(x, factor=a) @ y == scale(x @ y, factor=a)             for x[2, 3, 4], y[2]
    scale-right:       x @ scale(y, factor=a) == scale(x @ y, factor=a)             for x[2, 3, 4], y[2]
    transpose:         transpose(x @ y, perm=(-1, -2)) == transpose(y, perm=(-1, -2)) @ transpose(x, perm=(-1, -2))
                       for x[2], y[2]
    identity-right:    x @ eye(n=x.shape[-1]) == x                                  for x[2, 3, 4]
    identity-left:     eye(n=x.shape[-2]) @ x == x                                  for x[2]
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
    x, y = node.inputs
    if x is None or y is None or x.rank < 2 or y.rank not in (2, x.rank) or (y.rank > 2 and x.shape[:-2] != y.shape[:-2]):
        return None
    return apply("matmul", x, y)


def lower(term: Term, emit: Emit) -> str:
    return emit("MatMul", *term.args)
