"""For each index, a row of zeros with a one at this position (ONNX OneHot with constant indices and the values 0 and 1).

A negative index counts from the end. An index that is out of range gives a row of zeros.
"""

from __future__ import annotations

import numpy as np

from superopt.algebra.index import Index, Tensor, Value, call, number, require, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term

ONNX = "OneHot"
EXACT = "order"

AXIOMS = """
    concat:       one_hot(concat(i, j, axis=-1), depth=n) == concat(one_hot(i, depth=n), one_hot(j, depth=n), axis=-2)
                  for i[1], j[1]
    slice:        one_hot(slice(i, axis=-1, start=a, stop=b), depth=n)
                  == slice(one_hot(i, depth=n), axis=-2, start=a, stop=b)
                  for i[1]
"""


def one_hot(indices: Tensor, *, depth: Extent) -> Tensor:
    require(indices.rank == 1, "one_hot: the indices are a vector")
    require(depth >= 1, "one_hot: not empty")

    def at(i: Index, n: Index) -> Value:
        index = indices[i]
        return call("zero", (index - number(n)) * (index - number(n) + number(depth)))

    return tensor((indices.shape[0], depth), at)


def lift(node: Node) -> Term | None:
    numbers, shape = node.integers(0)
    depth, values = node.scalar(1), node.attribute("values")
    if len(shape) != 1 or not numbers or depth is None or values != (0, 1) or node.attribute("axis", -1) not in (-1, 1):
        return None
    return apply("one_hot", node.constant(0), depth=int(depth))


def lower(term: Term, emit: Emit) -> str:
    depth = term.integer("depth")
    off, on = apply("zeros", shape=(1,)), apply("ones", shape=(1,))
    return emit("OneHot", emit.integers(term.args[0], depth), np.array(depth), apply("concat", off, on, axis=0))
