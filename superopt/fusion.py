"""Fusions: what operators are equal to that are defined by smaller ones, read from what is computed to the operator.

A spec states in `FUSIONS` what its definition says, brought to the form in which models write it: moves that can be undone
stand on the side of the operator. A fusion is a rule, but no stored one: an operator of the standard may be newer than a
model's opset, and one of another domain runs in ONNX Runtime alone, so that it is asked for (`model.offered`). Tests compare
both sides of each.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from superopt.fp_flags import FpFlag
from superopt.op import operator, registry
from superopt.rule import Rule, stated_rules

FLAGS = frozenset(FpFlag) - {FpFlag.RANGE, FpFlag.CANCEL}
"""The flags of a fusion: a kernel may sum and round in another order, and forms what its definition forms."""


@functools.cache
def fusions() -> Mapping[str, Rule]:
    """Every fusion of specs/ by its full name `operator.name`."""
    return {
        f"{spec.name}.{rule.name}": replace(rule, name=f"{spec.name}.{rule.name}", flags=FLAGS)
        for spec in registry().values()
        for rule in stated_rules(getattr(spec.module, "FUSIONS", ""))
    }


def written_as(fusion: Rule) -> tuple[str, ...]:
    """The ONNX operators that what the fusion puts in is written as, each with its domain before it where that is not the
    standard's.
    """
    return operator(fusion.name.partition(".")[0]).onnx
