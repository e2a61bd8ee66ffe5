"""Select the fusion rules that a model may use at its opset, and the fusion rules for ONNX Runtime's own domains. Also list the
operators of the algebra that are lowered to ONNX nodes.
"""

from __future__ import annotations

import onnx

from superopt.algebra.operators import registry
from superopt.errors import ShapeError
from superopt.protobuf.nodes import schema_of
from superopt.rules.fusion import fusion_rule_node_types, fusions
from superopt.rules.rule import Rule


def fusions_at_opset(opset: int) -> tuple[Rule, ...]:
    """Return the fusion rules that a model may use at its opset.

    Each rule replaces a term by one standard operator that exists at this opset.
    """
    return tuple(
        rule for rule in fusions().values() if any(exists_at_opset(name, opset) for name in fusion_rule_node_types(rule))
    )


def contrib_fusions() -> tuple[Rule, ...]:
    """Return the fusion rules that a model may use in ONNX Runtime's own domains, such as `com.microsoft`."""
    return tuple(rule for rule in fusions().values() if all("." in name for name in fusion_rule_node_types(rule)))


def recognizable_operators(*, allow_contrib: bool) -> tuple[str, ...]:
    """Return the names of the operators that are lowered to ONNX nodes, in alphabetical order.

    A composite without a corresponding ONNX operator, such as `rsqrt`, is included. A composite is an operator that is defined
    by a term of other operators. If `allow_contrib` is False, operators that correspond only to ONNX operators of non-standard
    domains are left out.
    """
    return tuple(
        spec.name
        for spec in registry().values()
        if spec.lower and (spec.composite if not spec.onnx else allow_contrib or not all("." in name for name in spec.onnx))
    )


def newest_opset() -> int:
    """Return the newest opset of the ONNX standard that the package onnx knows."""
    return onnx.defs.onnx_opset_version()


def exists_at_opset(name: str, opset: int) -> bool:
    """Return whether the ONNX standard has the operator at this opset. Return False for a name with a dot, because such an
    operator is in a non-standard domain.
    """
    try:
        return "." not in name and bool(schema_of(name, opset))
    except ShapeError:
        return False
