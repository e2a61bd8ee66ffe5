"""Matrix product (ONNX MatMul) of two tensors with the same leading (batch) axes, or of a matrix and a tensor.

ONNX broadcasts batch axes that are missing or have extent 1. Lifting makes this broadcasting explicit: an operand that is
repeated along all batch axes becomes a matrix, and an operand that is repeated along some batch axes gets an `expand`. A vector
becomes a matrix with one row or column.
"""

from __future__ import annotations

from itertools import zip_longest

from superopt.algebra.index import Tensor, require, same, tensor, total
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term

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
    concat-one-batch: x @ concat(y, z, axis=k) == concat(x @ y, x @ z, axis=k)  for x[2], y[3, 4], z[3, 4], k[-3, -4]
    slice-columns:    slice(x @ y, axis=-1, start=a, stop=b) == x @ slice(y, axis=-1, start=a, stop=b)
                      for x[2, 3, 4], y[2, 3, 4]
    slice-rows:       slice(x @ y, axis=-2, start=a, stop=b) == slice(x, axis=-2, start=a, stop=b) @ y
                      for x[2, 3, 4], y[2, 3, 4]
    slice-batch:      slice(x @ y, axis=k, start=a, stop=b)
                      == slice(x, axis=k, start=a, stop=b) @ slice(y, axis=k, start=a, stop=b)
                      for x[3, 4], y[3, 4], k[-3, -4]
    slice-batch-one:  slice(x @ y, axis=k, start=a, stop=b) == slice(x, axis=k, start=a, stop=b) @ y
                      for x[3, 4], y[2], k[-3, -4]
    slice-one-batch:  slice(x @ y, axis=k, start=a, stop=b) == x @ slice(y, axis=k, start=a, stop=b)
                      for x[2], y[3, 4], k[-3, -4]
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
    transpose-right:  transpose(x @ y, perm=(-3, -1, -2)) == transpose(y, perm=(-1, -2)) @ transpose(x, perm=(-3, -1, -2))
                      for x[3], y[2]
    transpose-left:   transpose(x @ y, perm=(-3, -1, -2)) == transpose(y, perm=(-3, -1, -2)) @ transpose(x, perm=(-1, -2))
                      for x[2], y[3]
    transpose-batch:  transpose(x @ y, perm=(-2, -3, -1)) == transpose(x, perm=(-2, -3, -1)) @ y  for x[3], y[2]
    swap-batch:       transpose(x @ y, perm=(-3, -4, -2, -1))
                      == transpose(x, perm=(-3, -4, -2, -1)) @ transpose(y, perm=(-3, -4, -2, -1))
                      for x[4], y[4]
    flatten:          reshape(x @ y, shape=(x.shape[-3] * x.shape[-2], y.shape[-1]))
                      == reshape(x, shape=(x.shape[-3] * x.shape[-2], x.shape[-1])) @ y
                      for x[3], y[2]
    unit-batch:       reshape(x @ y, shape=(1, x.shape[-2], y.shape[-1]))
                      == reshape(x, shape=(1, x.shape[-2], x.shape[-1])) @ reshape(y, shape=(1, y.shape[-2], y.shape[-1]))
                      for x[2], y[2]
    unit-batch-one:   reshape(x @ y, shape=(1, x.shape[-2], y.shape[-1])) == reshape(x, shape=(1, x.shape[-2], x.shape[-1])) @ y
                      for x[2], y[2]
    unit-batch-4:     reshape(x @ y, shape=(1, x.shape[-3], x.shape[-2], y.shape[-1]))
                      == reshape(x, shape=(1, x.shape[-3], x.shape[-2], x.shape[-1]))
                      @ reshape(y, shape=(1, y.shape[-3], y.shape[-2], y.shape[-1]))
                      for x[3], y[3]
    broadcast:        x @ expand(y, shape=(x.shape[-3], y.shape[-2], y.shape[-1]), axes=(-2, -1)) == x @ y  for x[3], y[2]
    broadcast-left:   expand(x, shape=(y.shape[-3], x.shape[-2], x.shape[-1]), axes=(-2, -1)) @ y == x @ y  for x[2], y[3]
    broadcast-4:      x @ expand(y, shape=(x.shape[-4], x.shape[-3], y.shape[-2], y.shape[-1]), axes=(-2, -1)) == x @ y
                      for x[4], y[2]
    broadcast-left-4: expand(x, shape=(y.shape[-4], y.shape[-3], x.shape[-2], x.shape[-1]), axes=(-2, -1)) @ y == x @ y
                      for x[2], y[4]
    identity-right:   x @ eye(n=x.shape[-1]) == x  for x[2, 3, 4]
    identity-left:    eye(n=x.shape[-2]) @ x == x  for x[2, 3, 4]
    zeros-right:      x @ zeros(shape=(x.shape[-1], n)) == zeros(shape=(x.shape[-2], n))  for x[2]
    zeros-left:       zeros(shape=(m, x.shape[-2])) @ x == zeros(shape=(m, x.shape[-1]))  for x[2]
"""


def matmul(x: Tensor, y: Tensor) -> Tensor:
    require(x.rank >= 2 and y.rank >= 2, "matmul takes matrices, or tensors of them")
    require(x.rank == y.rank or 2 in (x.rank, y.rank), "matmul: both operands have the batch axes, or one has none")
    require(same(x.shape[-1], y.shape[-2]), "matmul: inner dimensions agree")
    for here, there in zip(x.shape[:-2], y.shape[:-2], strict=False):
        require(same(here, there), "matmul: batch axes agree")
    batch = max(x.shape[:-2], y.shape[:-2], key=len)

    def at(*position):
        *lead, i, j = position
        of_x = lead if x.rank > 2 else ()
        of_y = lead if y.rank > 2 else ()
        return total(x.shape[-1], lambda k: x[(*of_x, i, k)] * y[(*of_y, k, j)])

    return tensor((*batch, x.shape[-2], y.shape[-1]), at)


def lift(node: Node) -> Term | None:
    x, y = node.operand(0), node.operand(1)
    if not x.rank or not y.rank:
        return None
    left = apply("reshape", x, shape=(1, x.shape[0])) if x.rank == 1 else x
    right = apply("reshape", y, shape=(y.shape[0], 1)) if y.rank == 1 else y
    pairs = zip_longest(reversed(left.sizes[:-2]), reversed(right.sizes[:-2]), fillvalue=1)
    batch = tuple(max(here, there) for here, there in pairs)[::-1]
    product = apply("matmul", *(left, right) if _is_direct(left, right) else _repeated(node, left, right, batch))
    shape = (*batch, *x.shape[:-1][-1:], *y.shape[1:][-1:])
    return apply("reshape", product, shape=shape) if product.shape != shape else product


def _is_direct(x: Term, y: Term) -> bool:
    return 2 in (x.rank, y.rank) or x.shape[:-2] == y.shape[:-2]


def _repeated(node: Node, x: Term, y: Term, batch: tuple[int, ...]) -> list[Term]:
    """Return the operands, expanded to the batch axes `batch`.

    If all batch axes of an operand have extent 1, this operand becomes a matrix instead. This is done for at most one operand.
    """
    single = [all(n == 1 for n in operand.sizes[:-2]) for operand in (x, y)]
    alone = single.index(True) if any(single) else None
    return [
        _matrix(operand) if position == alone else node.expanded(operand, (*batch, *operand.sizes[-2:]))
        for position, operand in enumerate((x, y))
    ]


def _matrix(x: Term) -> Term:
    return apply("reshape", x, shape=x.shape[-2:]) if x.rank > 2 else x


def lower(term: Term, emit: Emit) -> str:
    x, y = term.args
    for left in (_bare(x, emit), x):
        for right in (_bare(y, emit), y):
            if _broadcasts(left, right, term):
                return emit("MatMul", left, right)
    return emit("MatMul", x, y)


def _bare(x: Term, emit: Emit) -> Term:
    """Return the operand without repetition along batch axes and without leading axes of extent 1.

    MatMul broadcasts this operand implicitly.
    """
    if x.op == "expand" and x.integers("axes")[-2:] == (-2, -1):
        x = emit.aligned(x)
    if x.op == "reshape" and x.rank < x.args[0].rank and x.sizes == x.args[0].sizes[-x.rank :]:
        return x.args[0]
    return x


def _broadcasts(x: Term, y: Term, term: Term) -> bool:
    """Return whether ONNX broadcasts the batch axes of x and y to the batch axes of the term."""
    pairs = zip_longest(reversed(x.sizes[:-2]), reversed(y.sizes[:-2]), fillvalue=1)
    return tuple(max(here, there) for here, there in pairs)[::-1] == term.sizes[:-2]
