"""Fusions: rules that replace a term of smaller operators by a single operator. The operator is defined as this term.

The constant `FUSIONS` in an operator's file in specs/ states the definition in the form in which models contain it. The side
that contains the operator can also contain invertible moves, such as reshapes. Fusions are not in the rule store, because some
models cannot use the operator that a fusion introduces. For example, a standard ONNX operator can be newer than the model's
opset. An operator that is not a standard ONNX operator runs only in ONNX Runtime, so callers must request such operators
(`superopt.model.available_fusions`). Tests compare both sides of each fusion.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from superopt.algebra.operators import operator, registry
from superopt.rules.fp_flags import FpFlag
from superopt.rules.rule import Rule, stated_rules

FLAGS = frozenset(FpFlag) - {FpFlag.RANGE, FpFlag.CANCEL}
"""The flags of a fusion. A kernel computes the same function as the definition, but can sum and round in a different order."""

RECOGNIZED = ".recognized"
"""The suffix of the name of a step that replaces a term by an operator that computes the same function.

The name of the operator comes before the suffix. Such a step needs the flags `FLAGS`. The term can have any form, so no rule
states such a step.
"""


def recognized_operator(name: str) -> str | None:
    """Return the operator in a rule name of the form `operator.recognized`, or None for any other rule name.

    A step with such a name replaces a term that computes the same function as the operator.
    """
    op, suffix = name.removesuffix(RECOGNIZED), name.endswith(RECOGNIZED)
    return op if suffix and op in registry() else None


def recognition_text(name: str) -> str:
    """Describe the steps in a certificate that name a rule of the form `operator.recognized`.

    No rule states these steps, so the description is shown in place of a rule's text. If a term defines the operator, the
    description contains this term.
    """
    op = name.removesuffix(RECOGNIZED)
    composite = registry()[op].composite.partition(" for ")[0].strip()
    return f"another form of {op}" + (f", which is {composite}" if composite else "")


@functools.cache
def fusions() -> Mapping[str, Rule]:
    """Return a mapping from the full name `operator.name` of every fusion in specs/ to the fusion."""
    return {
        f"{spec.name}.{rule.name}": replace(rule, name=f"{spec.name}.{rule.name}", flags=FLAGS)
        for spec in registry().values()
        for rule in stated_rules(getattr(spec.module, "FUSIONS", ""))
    }


def fusion_rule_node_types(fusion: Rule) -> tuple[str, ...]:
    """Return the names of the ONNX operators that can compute the result of a fusion.

    A fusion replaces a term by a single operator. Each of the named ONNX operators computes this single operator. The name of a
    non-standard operator includes its domain, as in `com.microsoft.Attention`.
    """
    return operator(fusion.name.partition(".")[0]).onnx
