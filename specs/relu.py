"""max(x, 0), elementwise (ONNX Relu)."""

from __future__ import annotations

from superopt.graph import Term
from superopt.index import Tensor, call, tensor
from superopt.op import Emit, Node, apply

ONNX = "Relu"
EXACT = "order"

AXIOMS = """
    concat:  relu(concat(x, y, axis=-1)) == concat(relu(x), relu(y), axis=-1)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
"""


def relu(x: Tensor) -> Tensor:
    return tensor(x.shape, lambda *i: call("relu", x[i]))


def lift(node: Node) -> Term | None:
    return apply("relu", node.inputs[0])


def lower(term: Term, emit: Emit) -> str:
    return emit("Relu", *term.args)
