"""Translation of Softmax and LogSoftmax nodes to terms and back, at every opset.

Before opset 13, the operators normalize over the given axis and all following axes together.
"""

from __future__ import annotations

from math import prod

from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term

ONE_AXIS = 13


def lifted(node: Node, name: str) -> Term:
    """Return the term of a Softmax or LogSoftmax node: the operator `name` applied along the node's axis."""
    x = node.operand(0)
    if node.opset >= ONE_AXIS:
        return apply(name, x, axis=node.attribute("axis", -1))
    axis = node.attribute("axis", 1)
    axis = axis if axis >= 0 else axis + x.rank
    if prod(x.sizes[axis + 1 :]) == 1:
        return apply(name, x, axis=axis)
    flat = apply("reshape", x, shape=(prod(x.sizes[:axis]), prod(x.sizes[axis:])))
    return apply("reshape", apply(name, flat, axis=-1), shape=x.shape)


def lowered(term: Term, op_type: str, emit: Emit) -> str:
    """Write a softmax or log_softmax as a node of the ONNX operator `op_type`, and return the name of the result.

    Before opset 13, if further axes follow the softmax axis, Transpose nodes move this axis to the end and back.
    """
    x = term.args[0]
    axis = term.integer("axis") + x.rank
    if emit.opset >= ONE_AXIS or prod(x.sizes[axis + 1 :]) == 1:
        return emit(op_type, x, axis=axis)
    perm = (*(a for a in range(x.rank) if a != axis), axis)
    back = tuple(perm.index(a) for a in range(x.rank))
    moved = emit(op_type, apply("transpose", x, perm=perm), axis=x.rank - 1)
    return emit("Transpose", moved, perm=back)
