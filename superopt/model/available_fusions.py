"""Operators that may replace terms: fusions in the model's opset or in ONNX Runtime's own domains, and recognized operators."""

from __future__ import annotations

import onnx

from superopt.algebra.operators import registry
from superopt.errors import ShapeError
from superopt.protobuf.nodes import schema_of
from superopt.rules.fusion import fusion_rule_node_types, fusions
from superopt.rules.rule import Rule


def fusions_at_opset(opset: int) -> tuple[Rule, ...]:
    """Return the rules that replace a term by one standard operator that exists at this opset."""
    return tuple(
        rule for rule in fusions().values() if any(exists_at_opset(name, opset) for name in fusion_rule_node_types(rule))
    )


def contrib_fusions() -> tuple[Rule, ...]:
    """Return the rules that replace a term by one operator of a non-standard domain, such as `com.microsoft`."""
    return tuple(rule for rule in fusions().values() if all("." in name for name in fusion_rule_node_types(rule)))


def recognizable_operators(*, allow_contrib: bool) -> tuple[str, ...]:
    """Return, in alphabetical order, the operators of the algebra that a single ONNX operator computes.

    If `allow_contrib` is False, ONNX operators of non-standard domains do not count.
    """
    return tuple(
        spec.name
        for spec in registry().values()
        if spec.onnx and spec.lower and (allow_contrib or not all("." in name for name in spec.onnx))
    )


def newest_opset() -> int:
    """Return the newest opset of the ONNX standard that the package onnx knows."""
    return onnx.defs.onnx_opset_version()


def exists_at_opset(name: str, opset: int) -> bool:
    """Return whether the ONNX standard has the operator at this opset. Operators of other domains have a dot in their name."""
    try:
        return "." not in name and bool(schema_of(name, opset))
    except ShapeError:
        return False
