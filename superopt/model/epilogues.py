"""Hosts: terms that one ONNX node computes together with a bias or a factor along an axis.

A spec (a module in `specs/` that defines an operator) also defines the hosts of its operator. Its functions `bias_axis` and
`factor_axis` return the axis along which a host can be combined with a bias or a factor, or None. Its functions `lower_biased`
and `lower_scaled` write a host and a row as one node. `DEPTH` is the number of operators that a host is deep.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from superopt.algebra.operators import Emit, Operator, apply, registry
from superopt.algebra.terms import Term

ROLES = {"add": ("bias_axis", "lower_biased", "Add"), "mul": ("factor_axis", "lower_scaled", "Mul")}


def fusable_operands(op: str, host: Term, operands: Iterable[Term]) -> list[Term]:
    """Return the rows and numbers among the operands of a sum or product that one ONNX node can combine with the host."""
    axis = _axis(op, host)
    return [x for x in operands if axis and x.constant and x.op == "expand" and x.integers("axes") in ((axis,), ())]


def row(op: str, host: Term, operand: Term) -> Term:
    """Return a row or number that `fusable_operands` returned as a row along the host's axis."""
    (inner,) = operand.args
    return inner if operand.integers("axes") else apply("expand", inner, shape=(host.shape[_axis(op, host)],), axes=())


def _axis(op: str, host: Term) -> int:
    """Return the axis along which one node can combine the host with a row, counted from the last axis.

    Returns 0 if no node can combine them.
    """
    spec = _composite(op, host)
    return 0 if spec is None else int(getattr(spec.module, ROLES[op][0])(host))


def emit_epilogue(op: str, host: Term, row: Term, emit: Emit) -> str:
    """Write one node that adds the row to the host or multiplies the host by the row, and return the name of its result."""
    spec = _composite(op, host)
    assert spec is not None
    name: str = getattr(spec.module, ROLES[op][1])(host, row, emit)
    return name


def _composite(op: str, host: Term) -> Operator | None:
    """Return the spec that can combine the host with a row, or None.

    If there are several, the spec whose hosts have the most operators is returned.
    """
    axis = ROLES[op][0]
    specs = [spec for spec in _composites(axis) if getattr(spec.module, axis)(host) is not None]
    return max(specs, key=lambda spec: getattr(spec.module, "DEPTH", 1), default=None)


@functools.cache
def _composites(axis: str) -> tuple[Operator, ...]:
    """Return the specs that define the function named `axis`."""
    return tuple(spec for spec in registry().values() if hasattr(spec.module, axis))
