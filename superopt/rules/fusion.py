"""Fusions: rules that replace a term of smaller operators by one operator that is defined by this term.

The constant `FUSIONS` in an operator's file in specs/ states the definition in the form in which models write it. The side with
the operator may also have invertible moves, such as reshapes. Fusions are not in the rule store, because not every model may
use the operator. A standard operator may be newer than the model's opset. An operator of another domain runs only in ONNX
Runtime, so callers must request such operators (`superopt.model.available_fusions`). Tests compare both sides of each fusion.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from superopt.algebra.operators import operator, registry
from superopt.rules.fp_flags import FpFlag
from superopt.rules.rule import Rule, stated_rules

FLAGS = frozenset(FpFlag) - {FpFlag.RANGE, FpFlag.CANCEL}
"""The flags of a fusion. A kernel computes the same function as the definition, but may sum and round in another order."""


@functools.cache
def fusions() -> Mapping[str, Rule]:
    """Return every fusion of specs/ by its full name `operator.name`."""
    return {
        f"{spec.name}.{rule.name}": replace(rule, name=f"{spec.name}.{rule.name}", flags=FLAGS)
        for spec in registry().values()
        for rule in stated_rules(getattr(spec.module, "FUSIONS", ""))
    }


def fusion_rule_node_types(fusion: Rule) -> tuple[str, ...]:
    """Return the names of the ONNX operators that compute the operator by which a fusion replaces a term.

    The name of a non-standard operator includes its domain, as in `com.microsoft.Attention`.
    """
    return operator(fusion.name.partition(".")[0]).onnx
