"""max(x, 0), elementwise (ONNX Relu)."""

from __future__ import annotations

from superopt.graph import Term
from superopt.index import Tensor, call, tensor
from superopt.op import Emit, Node, apply

ONNX = "Relu"
EXACT = "order"

AXIOMS = """
    twice:         relu(relu(x)) == relu(x)  for x[1, 2, 3, 4]
    zeros:         relu(zeros(shape=s)) == zeros(shape=s)  for s[1, 2, 3, 4]
    scale:         relu(scale(x, factor=a)) == scale(relu(x), factor=a)  for x[1, 2, 3, 4] where a >= 0
    concat:        relu(concat(x, y, axis=k)) == concat(relu(x), relu(y), axis=k)
                   for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4]
    slice:         relu(slice(x, axis=k, start=a, stop=b)) == slice(relu(x), axis=k, start=a, stop=b)
                   for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    transpose:     relu(transpose(x, perm=(-1, -2))) == transpose(relu(x), perm=(-1, -2))  for x[2]
    transpose-3:   relu(transpose(x, perm=(i, j, k))) == transpose(relu(x), perm=(i, j, k))
                   for x[3], i[-1, -2, -3], j[-1, -2, -3], k[-1, -2, -3]
    transpose-4:   relu(transpose(x, perm=(-4, i, j, k))) == transpose(relu(x), perm=(-4, i, j, k))
                   for x[4], i[-1, -2, -3], j[-1, -2, -3], k[-1, -2, -3]
    expand:        relu(expand(x, shape=s, axes=(k,))) == expand(relu(x), shape=s, axes=(k,))
                   for x[1], s[2, 3, 4], k[-1, -2, -3, -4]
    expand-matrix: relu(expand(x, shape=s, axes=(-2, -1))) == expand(relu(x), shape=s, axes=(-2, -1))  for x[2], s[3, 4]
    reshape:       relu(reshape(x, shape=s)) == reshape(relu(x), shape=s)  for x[1, 2, 3, 4], s[1, 2, 3, 4]
    pad:           relu(pad(x, before=p, after=q)) == pad(relu(x), before=p, after=q)
                   for x[1, 2, 3, 4], p[1, 2, 3, 4], q[1, 2, 3, 4]
"""


def relu(x: Tensor) -> Tensor:
    return tensor(x.shape, lambda *i: call("relu", x[i]))


def lift(node: Node) -> Term | None:
    return apply("relu", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    return emit("Relu", *term.args)
