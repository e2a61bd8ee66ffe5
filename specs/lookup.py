"""Rows of a table at positions that are known only at run time (ONNX Gather and GatherND, for example of embedding tables).

For one table, out[..., c] = x[i[...], c]. In a stack of tables, each table has its own positions: out[b, r, c] = x[b, i[b, r],
c] (ONNX GatherND). A position is rounded down and taken modulo the number of rows, so every number is a valid position. For
example, -1 is the last row. For n rows, ONNX allows only positions from -n to n - 1. The result of a model for other positions
is not defined.
"""

from __future__ import annotations

from math import prod

from superopt.algebra.index import Index, Tensor, Value, picked, require, same, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term

ONNX = ("Gather", "GatherND")
EXACT = "order"

AXIOMS = """
    matmul:         lookup(x @ y, i) == lookup(x, i) @ y  for x[2, 3], y[2, 3], i[1, 2, 3]
    add:            lookup(x + y, i) == lookup(x, i) + lookup(y, i)  for x[2, 3], y[2, 3], i[1, 2, 3]
    sub:            lookup(x - y, i) == lookup(x, i) - lookup(y, i)  for x[2, 3], y[2, 3], i[1, 2, 3]
    mul:            lookup(x * y, i) == lookup(x, i) * lookup(y, i)  for x[2, 3], y[2, 3], i[1, 2, 3]
    scale:          lookup(scale(x, factor=a), i) == scale(lookup(x, i), factor=a)  for x[2, 3], i[1, 2, 3]
    relu:           lookup(relu(x), i) == relu(lookup(x, i))  for x[2, 3], i[1, 2, 3]
    erf:            lookup(erf(x), i) == erf(lookup(x, i))  for x[2, 3], i[1, 2, 3]
    exp:            lookup(exp(x), i) == exp(lookup(x, i))  for x[2, 3], i[1, 2, 3]
    sqrt:           lookup(sqrt(x), i) == sqrt(lookup(x, i))  for x[2, 3], i[1, 2, 3]
    reciprocal:     lookup(reciprocal(x), i) == reciprocal(lookup(x, i))  for x[2, 3], i[1, 2, 3]
    power:          lookup(power(x, exponent=e), i) == power(lookup(x, i), exponent=e)  for x[2, 3], i[1, 2, 3]
    maximum:        lookup(maximum(x, y), i) == maximum(lookup(x, i), lookup(y, i))  for x[2, 3], y[2, 3], i[1, 2, 3]
    row:            lookup(expand(t, shape=s, axes=(-1,)), i)
                    == expand(t, shape=lookup(expand(t, shape=s, axes=(-1,)), i).shape, axes=(-1,))
                    for t[1], i[1, 2, 3], s[2]
    concat:         lookup(concat(x, y, axis=-1), i) == concat(lookup(x, i), lookup(y, i), axis=-1)
                    for x[2, 3], y[2, 3], i[1, 2, 3]
    slice:          lookup(slice(x, axis=-1, start=a, stop=b), i) == slice(lookup(x, i), axis=-1, start=a, stop=b)
                    for x[2, 3], i[1, 2, 3]
    concat-indices: lookup(x, concat(i, j, axis=k)) == concat(lookup(x, i), lookup(x, j), axis=k - 1)
                    for x[2], i[1, 2, 3], j[1, 2, 3], k[-1, -2, -3]
    slice-indices:  lookup(x, slice(i, axis=k, start=a, stop=b)) == slice(lookup(x, i), axis=k - 1, start=a, stop=b)
                    for x[2], i[1, 2, 3], k[-1, -2, -3]
    reshape:        lookup(x, reshape(i, shape=(s0,))) == reshape(lookup(x, i), shape=(s0, x.shape[-1]))
                    for x[2], i[1, 2, 3], s[1]
    stack:          lookup(concat(x, y, axis=-3), concat(i, j, axis=-2)) == concat(lookup(x, i), lookup(y, j), axis=-3)
                    for x[3], y[3], i[2], j[2]
    stack-slice:    lookup(slice(x, axis=-3, start=a, stop=b), slice(i, axis=-2, start=a, stop=b))
                    == slice(lookup(x, i), axis=-3, start=a, stop=b)  for x[3], i[2]
    stack-indices:  lookup(x, concat(i, j, axis=-1)) == concat(lookup(x, i), lookup(x, j), axis=-2)  for x[3], i[2], j[2]
    single:         lookup(reshape(x, shape=(1, x.shape[-2], x.shape[-1])), reshape(i, shape=(1, i.shape[-1])))
                    == reshape(lookup(x, i), shape=(1, i.shape[-1], x.shape[-1]))  for x[2], i[1]
"""


def lookup(x: Tensor, indices: Tensor) -> Tensor:
    require(x.rank >= 2, "lookup: a table has rows and columns")
    require(x.rank == 2 <= indices.rank + 1 or indices.rank == x.rank - 1, "lookup: positions for each table")
    tables = x.rank - 2
    for here, there in zip(indices.shape[:tables], x.shape[:-2], strict=True):
        require(same(here, there), "lookup: as many vectors of positions as tables")

    def at(*position: Index) -> Value:
        *row, column = position
        return picked(indices[tuple(row)], x.shape[-2], lambda k: x[(*row[:tables], k, column)])

    return tensor((*indices.shape, x.shape[-1]), at)


def lift(node: Node) -> Term | None:
    x, indices = node.operand(0), node.operand(1)
    if node.op_type == "GatherND":
        return _in_stack(node, x, indices)
    if node.attribute("axis", 0) not in (0, -x.rank):
        return None
    table = x if x.rank == 2 else apply("reshape", x, shape=(x.sizes[0], prod(x.sizes[1:])))
    flat = indices if indices.rank == 1 else apply("reshape", indices, shape=(prod(indices.sizes),))
    found = apply("lookup", table, flat)
    wanted = (*indices.sizes, *x.sizes[1:])
    return apply("reshape", found, shape=wanted) if found.shape != wanted else found


def _in_stack(node: Node, x: Term, indices: Term) -> Term | None:
    """Return the term of a GatherND node that reads rows of each table in a stack of tables.

    The positions lie along a last axis of extent 1. Return None for any other node.
    """
    tables = x.rank - 2
    if tables < 1 or node.attribute("batch_dims", 0) != tables or indices.rank != tables + 2 or indices.sizes[-1] != 1:
        return None
    under = indices.args[0] if indices.op == "reshape" else indices
    flat = under if under.shape == indices.shape[:-1] else apply("reshape", indices, shape=indices.shape[:-1])
    return apply("lookup", x, flat)


def lower(term: Term, emit: Emit) -> str:
    x, indices = term.args
    rows = x.sizes[-2]
    if x.rank == 2:
        return emit("Gather", x, emit.integers(indices, rows), axis=0)
    apart = apply("reshape", indices, shape=(*indices.sizes, 1))
    return emit("GatherND", x, emit.integers(apart, rows), batch_dims=x.rank - 2)
