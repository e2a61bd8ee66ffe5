"""The quantized regions of a model: the nodes before an operator that rounds, and the nodes that may compute in integers.

An operator such as QuantizeLinear rounds numbers to a coarse grid. A number in the middle between two points of the grid is
rounded up or down, depending on its last bit. So a rewrite that changes the last bit of one operand can change a quantized
number by one. Even a rewrite that only moves elements can change the last bit, because ONNX Runtime may fuse different nodes
after the rewrite.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

import onnx_ir as ir

from superopt.model.bodies import bodies_in
from superopt.model.lift import STANDARD, constant_tensor

DOMAINS = (*STANDARD, "com.microsoft")
# fmt: off
ROUNDING = frozenset(
    {
        "DynamicQuantizeLSTM", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "QMoE", "QuantizeLinear", "Round",
    }
)
"""Operators that quantize floating-point numbers: they round the numbers to a coarse grid."""
MOVES = frozenset(
    {
        "Cast", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Pad", "Reshape", "Resize", "Slice",
        "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
    }
)
"""Operators that select elements. If such an operator reads the result of a DequantizeLinear, ONNX Runtime may exchange the two
nodes.
"""
# fmt: on
PRODUCTS = frozenset({"Gemm", "MatMul"})
"""Operators that ONNX Runtime computes in integers if an operand is the result of a DequantizeLinear.

ONNX Runtime then quantizes the other operand too, even if the model does not quantize this operand.
"""
_QUANTIZED_BITS = 8
"""The largest bit width of the types of quantized numbers. A cast to a wider integer usually computes a position or a size."""
_INTEGER_ACCURACY = 4
"""The attribute `accuracy_level` of a MatMulNBits that quantizes its floating-point operand."""


def nodes_in_integers(graph: ir.Graph) -> frozenset[ir.Node]:
    """Return the nodes that ONNX Runtime may compute in integers.

    There are two kinds of such nodes. A node of the first kind reads the result of a DequantizeLinear, directly or through
    nodes that only move elements. A node of the second kind is on a path from a DequantizeLinear to a QuantizeLinear, and the
    operand of this DequantizeLinear is not a weight. ONNX Runtime may even quantize the weights of a Conv on this path.
    """
    nodes = [*ir.traversal.RecursiveGraphIterator(graph)]
    starts = _dequantized(nodes)
    changing = [node for node in starts if any(v is not None and constant_tensor(v) is None for v in node.inputs[:1])]
    quantized = (value for node in nodes if node.op_type == "QuantizeLinear" for value in node.inputs[:1])
    return _after(starts, MOVES) | (_after(changing) & _before(nodes, filter(None, quantized)))


def _after(nodes: Iterable[ir.Node], through: Container[str] | None = None) -> frozenset[ir.Node]:
    """Return the nodes that read results of the given nodes, directly or through nodes whose operator is in `through`.

    If `through` is None, the path may lead through nodes of any operator.
    """
    found: set[ir.Node] = set()
    stack = [*nodes]
    while stack:
        readers = {use.node for value in stack.pop().outputs for use in value.uses()} - found
        found |= readers
        stack += (node for node in readers if through is None or (node.op_type in through and node.domain in STANDARD))
    return frozenset(found)


def nodes_before_rounding(graph: ir.Graph) -> frozenset[ir.Node]:
    """Return the nodes on whose results an operator that rounds depends. Nodes in the bodies of control flow are included.

    Nodes on which only sizes depend are left out, because a Shape does not depend on the elements of its operand.
    """
    nodes = [*ir.traversal.RecursiveGraphIterator(graph)]
    products = {node for node in _after(_dequantized(nodes), MOVES) if node.op_type in PRODUCTS and node.domain in STANDARD}
    return _before(nodes, (value for node in nodes if node in products or _rounds(node) for value in _floats(node)))


def _before(nodes: Iterable[ir.Node], values: Iterable[ir.Value]) -> frozenset[ir.Node]:
    """Return the nodes on whose results the values in `values` depend. `nodes` contains all nodes, including the nodes of
    control flow bodies.

    An input of a body depends on all operands of the control flow node.
    """
    owners = {body: node for node in nodes for body in bodies_in(node)}
    found: set[ir.Node] = set()
    stack = [*values]
    while stack:
        value = stack.pop()
        node = value.producer() or (owners.get(value.graph) if value.is_graph_input() and value.graph is not None else None)
        if node is not None and node not in found and node.op_type not in ("Shape", "Size"):
            found.add(node)
            stack += (operand for operand in node.inputs if operand is not None)
            stack += (result for body in bodies_in(node) for result in body.outputs)
    return frozenset(found)


def _dequantized(nodes: Iterable[ir.Node]) -> list[ir.Node]:
    return [node for node in nodes if node.op_type == "DequantizeLinear" and node.domain in DOMAINS]


def _rounds(node: ir.Node) -> bool:
    """Return whether the node quantizes floating-point numbers."""
    if node.domain not in DOMAINS:
        return False
    if node.op_type == "Cast":
        kind = node.outputs[0].dtype
        return kind not in (None, ir.DataType.BOOL, ir.DataType.STRING) and kind.bitwidth <= _QUANTIZED_BITS
    if node.op_type == "MatMulNBits":
        accuracy = node.attributes.get("accuracy_level")
        return accuracy is not None and accuracy.as_int() == _INTEGER_ACCURACY
    return node.op_type in ROUNDING


def _floats(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the operands of the node that may contain floating-point numbers."""
    for value in node.inputs:
        if value is not None and (value.dtype is None or value.dtype.is_floating_point()):
            yield value
