"""Stored rules in ONNX Runtime: both sides, lowered to ONNX at random sizes and attributes, agree to rounding.

The tests run each rule once at two of its choices of ranks. `scripts/check_rules` runs all choices several times, and
benchmarks/rules.json is its output.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from superopt.algebra.operators import apply
from superopt.algebra.terms import variable
from superopt.model.term_pairs import TermPair, largest_differences
from superopt.rules.match import Pattern
from superopt.rules.rule import Rule, parse_rule
from superopt.rules.store import load
from tests.operator_cases import arrays_for
from tests.rule_cases import TOLERANCE, cases, chosen, measured, rules_digest

pytestmark = pytest.mark.slow

CHOICES = 1
INSTANCES = 1
SHARE = 50
RULES = [stored.rule for stored in load()]


@pytest.mark.parametrize("start", range(0, len(RULES), SHARE))
def test_both_sides_agree_in_onnx_runtime(start: int) -> None:
    found = list(measured(cases(RULES[start : start + SHARE], instances=INSTANCES, choices=CHOICES)))
    assert {case.rule.name for case, _ in found} == {rule.name for rule in RULES[start : start + SHARE]}
    assert [(case.rule.name, case.ranks, case.seed, apart) for case, apart in found if not apart <= TOLERANCE] == []


def test_every_stored_rule_can_be_applied() -> None:
    assert RULES
    for rule in RULES:
        assert all(Pattern.of(equation).usable for equation in rule.equations), rule.name


# ---------------------------------------------------------------- the helpers of these tests

WRONG = parse_rule("wrong: relu(x + y) => relu(x) + relu(y)  for x[1, 2, 3, 4], y[1, 2, 3, 4]")
RIGHT = parse_rule("right: x - y => x + scale(y, factor=-1)  for x[1, 2, 3, 4], y[1, 2, 3, 4]")


def test_a_wrong_rule_among_right_ones_is_found() -> None:
    apart: dict[str, list[float]] = {}
    for case, found in measured(cases([RIGHT, WRONG, RIGHT], instances=3)):
        apart.setdefault(case.rule.name, []).append(found)
    assert max(apart["right"]) <= TOLERANCE
    assert max(apart["wrong"]) > 0.1
    assert len(apart["wrong"]) == 12


def test_sides_that_cannot_be_run_are_told_and_do_not_hide_others() -> None:
    x, y = variable("x", (2, 2)), variable("y", (1, 1, 9, 9))
    dilated = apply("max_pool", y, kernel=(2, 2), strides=(1, 1), pads=(0, 0, 0, 0), dilations=(2, 2))
    pairs = [TermPair((t,), (t,), arrays_for(t)) for t in (apply("relu", x), dilated, apply("matmul", x, x))]
    found = largest_differences(pairs, opset=8)
    assert math.isnan(found[1])
    assert found[0] == found[2] == 0


def test_the_choices_of_ranks_are_the_rules_own() -> None:
    assert chosen(RIGHT, 0) == RIGHT.equations
    assert len(chosen(RIGHT, 2)) == 2
    assert chosen(RIGHT, 2) == chosen(Rule("other", RIGHT.statement), 2)


def test_the_committed_full_run_is_of_the_stored_rules() -> None:
    """`scripts/check_rules --json benchmarks/rules.json` writes the file again."""
    told = json.loads((Path(__file__).parent.parent / "benchmarks" / "rules.json").read_text())
    assert told["digest"] == rules_digest(RULES)
    assert told["rules"] == len(RULES)
    assert told["different"] == 0
    assert told["instantiations"] >= 2 * told["choices of ranks"]
