"""Fusions: rules from a term of smaller operators to the operator that it defines.

A spec's `FUSIONS` states the operator's definition in the form in which models write it, with invertible moves on the side of
the operator. A fusion is a rule, but is not stored: an operator of the standard may be newer than a model's opset, and an
operator of another domain runs only in ONNX Runtime, so it must be requested (`model.offered`). Tests compare both sides of
each fusion.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from superopt.algebra.operators import operator, registry
from superopt.rules.fp_flags import FpFlag
from superopt.rules.rule import Rule, stated_rules

FLAGS = frozenset(FpFlag) - {FpFlag.RANGE, FpFlag.CANCEL}
"""The flags of a fusion: a kernel may sum and round in another order, but computes what its definition computes."""


@functools.cache
def fusions() -> Mapping[str, Rule]:
    """Return every fusion of specs/ by its full name `operator.name`."""
    return {
        f"{spec.name}.{rule.name}": replace(rule, name=f"{spec.name}.{rule.name}", flags=FLAGS)
        for spec in registry().values()
        for rule in stated_rules(getattr(spec.module, "FUSIONS", ""))
    }


def written_as(fusion: Rule) -> tuple[str, ...]:
    """Return the ONNX operators that the fused operator is written as, with the domain in front unless it is the standard's."""
    return operator(fusion.name.partition(".")[0]).onnx
