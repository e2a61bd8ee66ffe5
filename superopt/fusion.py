"""Fusions: what operators of other domains than the standard's are equal to, read from what is computed to the operator.

A spec states in `FUSIONS` what its definition says, brought to the form in which models write it: moves that can be undone
stand on the side of the operator. A fusion is a rule, but no stored one: results with such operators run in ONNX Runtime alone,
so they are asked for. Tests compare both sides of each.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from superopt.op import registry
from superopt.rule import Rule, stated_rules


@functools.cache
def fusions() -> Mapping[str, Rule]:
    """Every fusion of specs/ by its full name `operator.name`."""
    return {
        f"{spec.name}.{rule.name}": replace(rule, name=f"{spec.name}.{rule.name}")
        for spec in registry().values()
        for rule in stated_rules(getattr(spec.module, "FUSIONS", ""))
    }
