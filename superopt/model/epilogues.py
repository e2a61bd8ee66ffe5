"""Epilogue fusion: one ONNX node computes a term, and also adds a bias or multiplies by a factor.

For example, one Conv computes a convolution and its bias. The term (in this example, the convolution) is called the host. The
bias or factor varies along only one axis. The bias or factor, written as a vector, is called a row.

A spec (a module in `specs/` that defines an operator) states which terms can be hosts. The spec's functions `bias_axis` and
`factor_axis` take a term and return the axis of its bias or factor. They return None if the term cannot be a host. The
functions `lower_biased` and `lower_scaled` write a host and a row as one node. `DEPTH` is the number of nested operators in a
host.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from superopt.algebra.operators import Emit, Operator, apply, registry
from superopt.algebra.terms import Term

ROLES = {"add": ("bias_axis", "lower_biased", "Add"), "mul": ("factor_axis", "lower_scaled", "Mul")}


def fusable_operands(op: str, host: Term, operands: Iterable[Term]) -> list[Term]:
    """Return the operands that can be fused with the term `host`. One ONNX node then computes the host, and also adds the
    operand or multiplies by the operand.

    `operands` are the operands of a sum (`op` is "add") or a product ("mul"). The result contains only constants whose elements
    are all equal, or differ only along the axis of the host's bias or factor.
    """
    axis = _axis(op, host)
    return [x for x in operands if axis and x.constant and x.op == "expand" and x.integers("axes") in ((axis,), ())]


def row(op: str, host: Term, operand: Term) -> Term:
    """Return the bias or factor `operand` of the term `host` as a vector. The elements of `operand` differ only along one axis
    of the host, and the vector contains one element for each position on this axis.

    The operand must be a result of `fusable_operands`. If all elements of `operand` are equal, the vector repeats this element.
    """
    (inner,) = operand.args
    return inner if operand.integers("axes") else apply("expand", inner, shape=(host.shape[_axis(op, host)],), axes=())


def _axis(op: str, host: Term) -> int:
    """Return the axis along which a bias or factor of the term `host` may vary, as a negative number that counts from the end.

    The result is 0 if no single ONNX node can compute the host and also add a bias (`op` is "add") or multiply by a factor
    ("mul").
    """
    spec = _composite(op, host)
    return 0 if spec is None else int(getattr(spec.module, ROLES[op][0])(host))


def emit_epilogue(op: str, host: Term, row: Term, emit: Emit) -> str:
    """Write one node that computes `host` plus a bias (`op` is "add"), or `host` times a factor ("mul").

    Returns the name of the node's result. `row` is the bias or factor as a vector, which is a result of the function `row`.
    """
    spec = _composite(op, host)
    assert spec is not None
    name: str = getattr(spec.module, ROLES[op][1])(host, row, emit)
    return name


def _composite(op: str, host: Term) -> Operator | None:
    """Return the operator whose module in `specs/` can write the term `host` and a bias or factor as one node. Return None if
    there is no such operator.

    If there are several such operators, return the operator with the largest `DEPTH`. `DEPTH` is the number of nested operators
    that the node computes.
    """
    axis = ROLES[op][0]
    specs = [spec for spec in _composites(axis) if getattr(spec.module, axis)(host) is not None]
    return max(specs, key=lambda spec: getattr(spec.module, "DEPTH", 1), default=None)


@functools.cache
def _composites(axis: str) -> tuple[Operator, ...]:
    """Return the operators whose module in `specs/` defines a certain function. The string `axis` is the function's name:
    "bias_axis" or "factor_axis".
    """
    return tuple(spec for spec in registry().values() if hasattr(spec.module, axis))
