"""Fusions: rules that replace a term of smaller operators by one operator with that definition.

A spec's `FUSIONS` states the operator's definition in the form in which models write it. Invertible moves, such as reshapes,
may be on the side of the operator. A fusion is a rule, but is not in the rule store, because not every model may use the
operator. A standard operator may be newer than the model's opset. An operator of another domain runs only in ONNX Runtime, so
callers must request it (`superopt.model.available_fusions`). Tests compare both sides of each fusion.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from superopt.algebra.operators import operator, registry
from superopt.rules.fp_flags import FpFlag
from superopt.rules.rule import Rule, stated_rules

FLAGS = frozenset(FpFlag) - {FpFlag.RANGE, FpFlag.CANCEL}
"""The flags of a fusion. A kernel may sum and round in another order than the definition, but computes the same function."""


@functools.cache
def fusions() -> Mapping[str, Rule]:
    """Return every fusion of specs/ by its full name `operator.name`."""
    return {
        f"{spec.name}.{rule.name}": replace(rule, name=f"{spec.name}.{rule.name}", flags=FLAGS)
        for spec in registry().values()
        for rule in stated_rules(getattr(spec.module, "FUSIONS", ""))
    }


def fused_node_types(fusion: Rule) -> tuple[str, ...]:
    """Return the names of the ONNX operators for the fused operator. A non-standard name has its domain in front."""
    return operator(fusion.name.partition(".")[0]).onnx
