"""Hosts: terms that one ONNX node computes together with what is added to them along an axis, or what multiplies them.

A spec says which terms it takes: `bias_axis` and `factor_axis` give the axis of a host along which it takes a bias or a factor,
or None, and `lower_biased` and `lower_scaled` write host and row as one node. `DEPTH` is how many operators deep its hosts are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from superopt.graph import Term
from superopt.op import Emit, Operator, apply, registry

ROLES = {"add": ("bias_axis", "lower_biased", "Add"), "mul": ("factor_axis", "lower_scaled", "Mul")}


def taken(op: str, host: Term, operands: Iterable[Term]) -> list[Term]:
    """Those operands of a sum or product, rows and numbers, that one ONNX node can combine with what the host computes."""
    axis = _axis(op, host)
    return [x for x in operands if axis and x.constant and x.op == "expand" and x.integers("axes") in ((axis,), ())]


def row(op: str, host: Term, operand: Term) -> Term:
    """What an operand that is `taken` is along the host's axis."""
    (inner,) = operand.args
    return inner if operand.integers("axes") else apply("expand", inner, shape=(host.shape[_axis(op, host)],), axes=())


def _axis(op: str, host: Term) -> int:
    """The axis along which a node combines the host with a row, counted from the last; 0 where none does."""
    spec = _composite(op, host)
    return 0 if spec is None else int(getattr(spec.module, ROLES[op][0])(host))


def written(op: str, host: Term, row: Term, emit: Emit) -> str:
    """The value of one node that computes the host and adds the row to it, or multiplies it by the row."""
    spec = _composite(op, host)
    assert spec is not None
    name: str = getattr(spec.module, ROLES[op][1])(host, row, emit)
    return name


def _composite(op: str, host: Term) -> Operator | None:
    """The spec that takes the host; of several that which takes the most of its operators."""
    axis = ROLES[op][0]
    specs = [spec for spec in _composites(axis) if getattr(spec.module, axis)(host) is not None]
    return max(specs, key=lambda spec: getattr(spec.module, "DEPTH", 1), default=None)


@functools.cache
def _composites(axis: str) -> tuple[Operator, ...]:
    """The specs that have this function."""
    return tuple(spec for spec in registry().values() if hasattr(spec.module, axis))
