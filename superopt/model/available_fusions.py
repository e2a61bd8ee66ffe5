"""Fusions that an optimized model may contain: operators of the model's opset and, on request, ONNX Runtime's own operators."""

from __future__ import annotations

from superopt.errors import ShapeError
from superopt.protobuf.nodes import schema_of
from superopt.rules.fusion import fusions, written_as
from superopt.rules.rule import Rule


def offered(opset: int) -> tuple[Rule, ...]:
    """Return the fusions to standard operators that exist at this opset."""
    return tuple(rule for rule in fusions().values() if any(_has(opset, name) for name in written_as(rule)))


def contributed() -> tuple[Rule, ...]:
    """Return the fusions to operators of non-standard domains."""
    return tuple(rule for rule in fusions().values() if all("." in name for name in written_as(rule)))


def _has(opset: int, name: str) -> bool:
    try:
        return "." not in name and bool(schema_of(name, opset))
    except ShapeError:
        return False
