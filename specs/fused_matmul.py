"""alpha * x' @ y', where the last two axes of x and y trade places first if transA and transB say so (contrib FusedMatMul).

It is lifted to its parts, of which ONNX Runtime makes one node again when it loads a model. What has batch axes that trade
places is outside the binding.
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
    """What `matmul` asks of a node: its operands, and how ONNX broadcasts."""

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
    """The matrices with their axes the other way round; a vector as it is."""
    return apply("transpose", x, perm=(*range(x.rank - 2), x.rank - 1, x.rank - 2)) if x.rank > 1 else x
