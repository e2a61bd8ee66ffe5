"""Which fusions a result may have: those whose operator its opset offers, and, where it is asked for, ONNX Runtime's own."""

from __future__ import annotations

from superopt.errors import ShapeError
from superopt.fusion import fusions, written_as
from superopt.model.nodes import schema_of
from superopt.rule import Rule


def offered(opset: int) -> tuple[Rule, ...]:
    """The fusions to operators of the standard that are there at this opset."""
    return tuple(rule for rule in fusions().values() if any(_has(opset, name) for name in written_as(rule)))


def contributed() -> tuple[Rule, ...]:
    """The fusions to operators of other domains than the standard's."""
    return tuple(rule for rule in fusions().values() if all("." in name for name in written_as(rule)))


def _has(opset: int, name: str) -> bool:
    try:
        return "." not in name and bool(schema_of(name, opset))
    except ShapeError:
        return False
