"""Concatenation of two tensors along an axis (ONNX Concat; more operands nest to the right)."""

from __future__ import annotations

from functools import reduce

from superopt.graph import Term
from superopt.index import Axis, Tensor, require, same, select, tensor
from superopt.op import Emit, Node, apply

ONNX = "Concat"

AXIOMS = """
    associativity:  concat(concat(x, y, axis=-1), z, axis=-1) == concat(x, concat(y, z, axis=-1), axis=-1)
                    for x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4]
    slice-first:    slice(concat(x, y, axis=-1), axis=-1, start=0, stop=x.shape[-1]) == x   for x[1, 2, 3, 4], y[1, 2, 3, 4]
"""


def concat(x: Tensor, y: Tensor, *, axis: Axis) -> Tensor:
    require(x.rank == y.rank, "concat: ranks agree")
    for a in range(-x.rank, 0):
        if a != axis:
            require(same(x.shape[a], y.shape[a]), "concat: the other axes agree")
    n = x.shape[axis]
    shape = tuple(n + y.shape[axis] if a == axis else x.shape[a] for a in range(-x.rank, 0))

    def at(*i):
        shifted = tuple(v - n if a == axis else v for a, v in zip(range(-x.rank, 0), i, strict=True))
        return select(i[axis] < n, x[i], y[shifted])

    return tensor(shape, at)


def lift(node: Node) -> Term | None:
    axis = node.attribute("axis")
    return reduce(lambda rest, x: apply("concat", x, rest, axis=axis), reversed(node.inputs))


def lower(term: Term, emit: Emit) -> str:
    operands, axis = [term.args[0]], term["axis"]
    rest = term.args[1]
    while rest.op == "concat" and rest["axis"] == axis:
        operands.append(rest.args[0])
        rest = rest.args[1]
    return emit("Concat", *operands, rest, axis=axis)
