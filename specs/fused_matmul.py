"""alpha * x' @ y', where transA and transB swap the last two axes of x and y (ONNX Runtime's contrib FusedMatMul).

A node is lifted to transposes, a product and a scale. When ONNX Runtime loads a model, it fuses all of them into one node
again. Nodes that also transpose batch axes are not supported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from superopt.algebra.operators import Node, apply, fraction_of, operator
from superopt.algebra.terms import Term

ONNX = "com.microsoft.FusedMatMul"

COMPOSITE = "scale(x @ y, factor=alpha)"


@dataclass(frozen=True)
class _Product:
    """The parts of a node that `matmul` reads: the operands, and the broadcasting of ONNX."""

    node: Node
    operands: Sequence[Term]

    def operand(self, position: int) -> Term:
        return self.operands[position]

    def expanded(self, x: Term, shape: tuple[int, ...]) -> Term:
        return self.node.expanded(x, shape)


def lift(node: Node) -> Term | None:
    if node.attribute("transBatchA", 0) or node.attribute("transBatchB", 0):
        return None
    turned = [node.attribute(name, 0) for name in ("transA", "transB")]
    operands = [_turned(node.operand(position)) if turn else node.operand(position) for position, turn in enumerate(turned)]
    product: Term | None = operator("matmul").module.lift(_Product(node, operands))
    alpha = fraction_of(node.attribute("alpha", 1.0))
    return product if product is None or alpha == 1 else apply("scale", product, factor=alpha)


def _turned(x: Term) -> Term:
    """Return x with its last two axes swapped. A vector is returned unchanged."""
    return apply("transpose", x, perm=(*range(x.rank - 2), x.rank - 1, x.rank - 2)) if x.rank > 1 else x
