"""Fusions that an optimized model may contain: operators of the model's opset and, on request, ONNX Runtime's own operators."""

from __future__ import annotations

from superopt.errors import ShapeError
from superopt.protobuf.nodes import schema_of
from superopt.rules.fusion import fused_node_types, fusions
from superopt.rules.rule import Rule


def fusions_at_opset(opset: int) -> tuple[Rule, ...]:
    """Return the fusions to standard operators that exist at this opset."""
    return tuple(rule for rule in fusions().values() if any(_has(opset, name) for name in fused_node_types(rule)))


def contrib_fusions() -> tuple[Rule, ...]:
    """Return the fusions to operators of non-standard domains."""
    return tuple(rule for rule in fusions().values() if all("." in name for name in fused_node_types(rule)))


def _has(opset: int, name: str) -> bool:
    try:
        return "." not in name and bool(schema_of(name, opset))
    except ShapeError:
        return False
