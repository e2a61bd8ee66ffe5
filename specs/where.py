"""x where the condition is not 0, and y elsewhere (ONNX Where). The condition, x and y have equal shapes."""

from __future__ import annotations

from superopt.algebra.index import Tensor, call, require, same, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term

ONNX = "Where"
EXACT = "order"

AXIOMS = """
    concat:       where(concat(c, d, axis=k), concat(x, z, axis=k), concat(y, w, axis=k))
                  == concat(where(c, x, y), where(d, z, w), axis=k)
                  for c[1, 2, 3, 4], d[1, 2, 3, 4], x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4], w[1, 2, 3, 4],
                  k[-1, -2, -3, -4]
    slice:        where(slice(c, axis=k, start=a, stop=b), slice(x, axis=k, start=a, stop=b), slice(y, axis=k, start=a, stop=b))
                  == slice(where(c, x, y), axis=k, start=a, stop=b)
                  for c[1, 2, 3, 4], x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4]
    transpose:    where(transpose(c, perm=(-1, -2)), transpose(x, perm=(-1, -2)), transpose(y, perm=(-1, -2)))
                  == transpose(where(c, x, y), perm=(-1, -2))  for c[2], x[2], y[2]
    transpose-3:  where(transpose(c, perm=(i, j, k)), transpose(x, perm=(i, j, k)), transpose(y, perm=(i, j, k)))
                  == transpose(where(c, x, y), perm=(i, j, k))
                  for c[3], x[3], y[3], i[-1, -2, -3], j[-1, -2, -3], k[-1, -2, -3]
    transpose-4:  where(transpose(c, perm=(-4, i, j, k)), transpose(x, perm=(-4, i, j, k)), transpose(y, perm=(-4, i, j, k)))
                  == transpose(where(c, x, y), perm=(-4, i, j, k))
                  for c[4], x[4], y[4], i[-1, -2, -3], j[-1, -2, -3], k[-1, -2, -3]
    expand:       where(expand(c, shape=s, axes=(k,)), expand(x, shape=s, axes=(k,)), expand(y, shape=s, axes=(k,)))
                  == expand(where(c, x, y), shape=s, axes=(k,))  for c[1], x[1], y[1], s[2, 3, 4], k[-1, -2, -3, -4]
    expand-matrix: where(expand(c, shape=s, axes=(-2, -1)), expand(x, shape=s, axes=(-2, -1)),
                  expand(y, shape=s, axes=(-2, -1)))
                  == expand(where(c, x, y), shape=s, axes=(-2, -1))  for c[2], x[2], y[2], s[3, 4]
    reshape:      where(reshape(c, shape=s), reshape(x, shape=s), reshape(y, shape=s)) == reshape(where(c, x, y), shape=s)
                  for c[1, 2, 3, 4], x[1, 2, 3, 4], y[1, 2, 3, 4], s[1, 2, 3, 4]
    pad:          where(pad(c, before=p, after=q), pad(x, before=p, after=q), pad(y, before=p, after=q))
                  == pad(where(c, x, y), before=p, after=q)
                  for c[1, 2, 3, 4], x[1, 2, 3, 4], y[1, 2, 3, 4], p[1, 2, 3, 4], q[1, 2, 3, 4]
    same:         where(c, x, x) == x  for c[1, 2, 3, 4], x[1, 2, 3, 4]
    inner-then:   where(c, where(c, x, y), z) == where(c, x, z)
                  for c[1, 2, 3, 4], x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4]
    inner-other:  where(c, x, where(c, y, z)) == where(c, x, z)
                  for c[1, 2, 3, 4], x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4]
    not:          where(logical_not(c), x, y) == where(c, y, x)  for c[1, 2, 3, 4], x[1, 2, 3, 4], y[1, 2, 3, 4]
    and:          where(logical_and(c, d), x, y) == where(c, where(d, x, y), y)
                  for c[1, 2, 3, 4], d[1, 2, 3, 4], x[1, 2, 3, 4], y[1, 2, 3, 4]
    number:       where(c, ones(shape=c.shape), zeros(shape=c.shape)) == logical_not(logical_not(c))  for c[1, 2, 3, 4]
    never:        where(zeros(shape=x.shape), x, y) == y  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    always:       where(ones(shape=x.shape), x, y) == x  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    add:          where(c, x, y) + where(c, z, w) == where(c, x + z, y + w)
                  for c[1, 2, 3, 4], x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4], w[1, 2, 3, 4]
    mul:          where(c, x, y) * where(c, z, w) == where(c, x * z, y * w)
                  for c[1, 2, 3, 4], x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4], w[1, 2, 3, 4]
    scale:        where(c, scale(x, factor=a), scale(y, factor=a)) == scale(where(c, x, y), factor=a)
                  for c[1, 2, 3, 4], x[1, 2, 3, 4], y[1, 2, 3, 4]
    relu:         relu(where(c, x, y)) == where(c, relu(x), relu(y))  for c[1, 2, 3, 4], x[1, 2, 3, 4], y[1, 2, 3, 4]
    exp:          exp(where(c, x, y)) == where(c, exp(x), exp(y))  for c[1, 2, 3, 4], x[1, 2, 3, 4], y[1, 2, 3, 4]
"""


def where(c: Tensor, x: Tensor, y: Tensor) -> Tensor:
    require(c.rank == x.rank == y.rank, "where: ranks agree")
    for here, there, elsewhere in zip(c.shape, x.shape, y.shape, strict=True):
        require(same(here, there), "where: shapes agree")
        require(same(there, elsewhere), "where: shapes agree")
    return tensor(x.shape, lambda *i: call("choose", c[i], x[i], y[i]))


def lift(node: Node) -> Term | None:
    return apply("where", *node.broadcast())


def lower(term: Term, emit: Emit) -> str:
    return emit("Where", *emit.inputs(term))
