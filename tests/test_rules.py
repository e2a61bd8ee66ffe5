"""Stored rules in ONNX Runtime: both sides, lowered to ONNX at random sizes and attributes, agree to rounding."""

from __future__ import annotations

import numpy as np
import pytest

from superopt.graph import variable
from superopt.match import Binding, Pattern, instantiate
from superopt.model.lower import lower
from superopt.prove.sample import instantiations
from superopt.store import Stored, load
from superopt.text import Equation
from tests.operator_cases import Array, arrays_for, ran

OPSET = 20
INSTANCES = 2
RULES = load()


@pytest.mark.parametrize("stored", RULES, ids=lambda stored: stored.rule.name)
def test_both_sides_agree_in_onnx_runtime(stored: Stored) -> None:
    for equation in stored.rule.equations:
        for seed in range(INSTANCES):
            _agree(equation, seed)


def _agree(equation: Equation, seed: int) -> None:
    instance = next(instantiations(equation, np.random.default_rng(seed)))
    tensors = {name: variable(name, shape) for name, shape in instance.shapes.items()}
    binding = Binding(tensors, instance.attributes)
    results: list[list[Array]] = []
    for side in (equation.left, equation.right):
        terms = {f"out{i}": instantiate(term, binding) for i, term in enumerate(side)}
        arrays = arrays_for(*tensors.values(), seed=seed)
        results.append(ran(lower(terms, OPSET), terms, arrays, OPSET))
    for left, right in zip(*results, strict=True):
        scale = max(float(np.abs(left).max()), 1.0)
        np.testing.assert_allclose(left, right, rtol=0, atol=2e-5 * scale)


def test_every_stored_rule_can_be_applied() -> None:
    assert RULES
    for stored in RULES:
        assert all(Pattern.of(equation).usable for equation in stored.rule.equations), stored.rule.name
