"""A permutation of the axes (ONNX Transpose): axis i of the result is axis perm[i] of x."""

from __future__ import annotations

from superopt.algebra.index import Axes, Tensor, require, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term

ONNX = "Transpose"

AXIOMS = """
    identity:       transpose(x, perm=(-2, -1)) == x  for x[2]
    identity-3:     transpose(x, perm=(-3, -2, -1)) == x  for x[3]
    identity-4:     transpose(x, perm=(-4, -3, -2, -1)) == x  for x[4]
    twice:          transpose(transpose(x, perm=(-1, -2)), perm=(-1, -2)) == x  for x[2]
    swap-last:      transpose(transpose(x, perm=(-3, -1, -2)), perm=(-3, -1, -2)) == x  for x[3]
    swap-first:     transpose(transpose(x, perm=(-2, -3, -1)), perm=(-2, -3, -1)) == x  for x[3]
    swap-outer:     transpose(transpose(x, perm=(-1, -2, -3)), perm=(-1, -2, -3)) == x  for x[3]
    rotate:         transpose(transpose(x, perm=(-2, -1, -3)), perm=(-1, -3, -2)) == x  for x[3]
    rotate-back:    transpose(transpose(x, perm=(-1, -3, -2)), perm=(-2, -1, -3)) == x  for x[3]
    rotate-twice:   transpose(transpose(x, perm=(-2, -1, -3)), perm=(-2, -1, -3)) == transpose(x, perm=(-1, -3, -2))  for x[3]
    swap-last-4:    transpose(transpose(x, perm=(-4, -3, -1, -2)), perm=(-4, -3, -1, -2)) == x  for x[4]
    swap-middle-4:  transpose(transpose(x, perm=(-4, -2, -3, -1)), perm=(-4, -2, -3, -1)) == x  for x[4]
    channels-last:  transpose(transpose(x, perm=(-4, -2, -1, -3)), perm=(-4, -1, -3, -2)) == x  for x[4]
    channels-first: transpose(transpose(x, perm=(-4, -1, -3, -2)), perm=(-4, -2, -1, -3)) == x  for x[4]
    zeros:          transpose(zeros(shape=s), perm=(-1, -2)) == zeros(shape=(s1, s0))  for s[2]
    ones:           transpose(ones(shape=s), perm=(-1, -2)) == ones(shape=(s1, s0))  for s[2]
    row:            transpose(reshape(x, shape=(1, x.shape[-1])), perm=(-1, -2)) == reshape(x, shape=(x.shape[-1], 1))
                    for x[1]
    expand:         transpose(expand(x, shape=(m, n), axes=(-1,)), perm=(-1, -2))
                    == expand(x, shape=(n, m), axes=(-2,))  for x[1]
    expand-columns: transpose(expand(x, shape=(m, n), axes=(-2,)), perm=(-1, -2))
                    == expand(x, shape=(n, m), axes=(-1,))  for x[1]
"""


def transpose(x: Tensor, *, perm: Axes) -> Tensor:
    axes = range(-x.rank, 0)
    require(sorted(perm) == list(axes), "transpose: perm names every axis once")
    source = [perm.index(a) for a in axes]
    return tensor(tuple(x.shape[a] for a in perm), lambda *i: x[tuple(i[a] for a in source)])


def lift(node: Node) -> Term | None:
    x = node.operand(0)
    return apply("transpose", x, perm=node.attribute("perm", tuple(reversed(range(x.rank)))))


def lower(term: Term, emit: Emit) -> str:
    return emit("Transpose", *term.args, perm=tuple(a + term.rank for a in term.integers("perm")))
