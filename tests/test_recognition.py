"""Recognition of operators in the forms in which models write them."""

from __future__ import annotations

import numpy as np
import pytest

from superopt.algebra.evaluate import Floats, evaluate_terms
from superopt.algebra.operators import registry
from superopt.algebra.terms import Term, variable
from superopt.algebra.value_analysis import ORDINARY_INPUT
from superopt.notation.parsing import parse
from superopt.rules.fp_flags import FpMode
from superopt.search.absorption import absorption
from superopt.search.backtracking import SearchResult
from superopt.search.fuse import with_single_operators
from superopt.search.gate import Gate
from superopt.search.recognition import recognized_rules
from superopt.search.ruleset import RuleSet

X = variable("x", (6, 16))
GAMMA, BETA = (variable(name, (16,), constant=True) for name in ("gamma", "beta"))
MASK = variable("mask", (6, 16), constant=True, condition=True)
NORM = "(c := x - expand(reduce_mean(x, axes=(-1,)), shape=(6, 16), axes=(-2,)))"
DEVIATION = (
    "expand(rsqrt(reduce_mean(c * c, axes=(-1,)) + scale(ones(shape=(6,)), factor={epsilon})), shape=(6, 16), axes=(-2,))"
)

FAST_DEVIATION = (
    "expand(rsqrt(relu(reduce_mean(x * x, axes=(-1,)) - (m := reduce_mean(x, axes=(-1,))) * m)"
    " + scale(ones(shape=(6,)), factor=1e-5)), shape=(6, 16), axes=(-2,))"
)
"""The variance as a difference of moments, which is clamped because rounding can make the difference negative."""

AFFINE_NORM = (
    f"x * (s := {DEVIATION.format(epsilon=1e-5).replace('c * c', f'{NORM} * c')} * expand(gamma, shape=(6, 16), axes=(-1,)))"
    " + (expand(beta, shape=(6, 16), axes=(-1,)) - s * expand(reduce_mean(x, axes=(-1,)), shape=(6, 16), axes=(-2,)))"
)

ROWS = "expand({}, shape=(6, 16), axes=(-2,))"


def term(text: str) -> Term:
    (found,) = parse(text, {"x": X, "gamma": GAMMA, "beta": BETA, "mask": MASK})
    return found


def names(text: str) -> set[str]:
    return {rule.name for rule in recognized_rules((term(text),), list(registry()))}


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("scale(clip(x + scale(ones(shape=(6, 16)), factor=3), low=0, high=6) * x, factor=1 / 6)", "hard_swish"),
        (
            "minimum(relu(scale(x, factor=0.16666667163372) + scale(ones(shape=(6, 16)), factor=0.5)), ones(shape=(6, 16)))",
            "hard_sigmoid",
        ),
        ("x * clip(scale(x, factor=0.16666667163372) + scale(ones(shape=(6, 16)), factor=0.5), low=0, high=1)", "hard_swish"),
        ("x * clip(scale(x, factor=0.16666667) + scale(ones(shape=(6, 16)), factor=0.5), low=0, high=1)", "hard_swish"),
        ("x * clip(scale(x, factor=0.16666666) + scale(ones(shape=(6, 16)), factor=0.5), low=0, high=1)", "hard_swish"),
        ("scale(clip(x + scale(ones(shape=(6, 16)), factor=3), low=0, high=6), factor=1 / 6)", "hard_sigmoid"),
        ("x * reciprocal(ones(shape=(6, 16)) + exp(scale(x, factor=-1)))", "silu"),
        ("log(ones(shape=(6, 16)) + exp(x))", "softplus"),
        ("minimum(relu(x), scale(ones(shape=(6, 16)), factor=6))", "clip"),
        ("relu(x) - relu(x - scale(ones(shape=(6, 16)), factor=6))", "clip"),
        ("scale(sigmoid(scale(x, factor=2)), factor=2) - ones(shape=(6, 16))", "tanh"),
        ("(exp(scale(x, factor=2)) - ones(shape=(6, 16))) * reciprocal(exp(scale(x, factor=2)) + ones(shape=(6, 16)))", "tanh"),
        ("x * tanh(log(ones(shape=(6, 16)) + exp(x)))", "mish"),
        ("relu(x) - scale(relu(scale(x, factor=-1)), factor=0.2)", "leaky_relu"),
        ("maximum(scale(x, factor=4), scale(x, factor=3)) * reciprocal(scale(ones(shape=(6, 16)), factor=4))", "leaky_relu"),
        (
            "scale(x * (ones(shape=(6, 16)) + erf(scale(x, factor=0.70710677))), factor=0.5)",
            "gelu",
        ),
        ("power(x, exponent=-1 / 2)", "rsqrt"),
        ("scale(x, factor=0.55) + scale(abs(x), factor=0.45)", "leaky_relu"),
        ("elu(x, alpha=1)", "celu"),
        ("exp(x - expand(reduce_log_sum_exp(x, axes=(-1,)), shape=(6, 16), axes=(-2,)))", "softmax"),
        (f"{NORM} * {DEVIATION.format(epsilon=1e-5)}", "layer_norm"),
        (AFFINE_NORM, "layer_norm"),
        (f"{NORM} * {FAST_DEVIATION}", "layer_norm"),
    ],
)
def test_an_operator_is_recognized_in_another_form(text: str, operator: str) -> None:
    assert f"{operator}.recognized" in names(text)


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("scale(clip(x + scale(ones(shape=(6, 16)), factor=3), low=0, high=6) * x, factor=1 / 6)", "hard_sigmoid"),
        ("x * clip(scale(x, factor=0.1667) + scale(ones(shape=(6, 16)), factor=0.5), low=0, high=1)", "hard_swish"),
        ("x * reciprocal(ones(shape=(6, 16)) + exp(scale(x, factor=-1.702)))", "gelu"),
        ("clip(x, low=-10000, high=10000) * sigmoid(x)", "silu"),
        ("exp(clip(x, low=-50, high=3e38))", "exp"),
        ("softmax(where(mask, x, scale(ones(shape=(6, 16)), factor=-1e9)), axis=-1)", "softmax"),
        ("relu(x) - scale(relu(scale(x, factor=-1) - scale(ones(shape=(6, 16)), factor=1000)), factor=0.2)", "relu"),
        ("x * reciprocal(ones(shape=(6, 16)) + exp(scale(x, factor=-1)) + scale(ones(shape=(6, 16)), factor=1e-4))", "silu"),
    ],
)
def test_a_function_that_differs_anywhere_is_not_recognized(text: str, operator: str) -> None:
    assert f"{operator}.recognized" not in names(text)


def test_the_epsilon_of_a_norm_is_that_of_the_model() -> None:
    (rule,) = (r for r in recognized_rules((term(f"{NORM} * {DEVIATION.format(epsilon=1e-3)}"),), ["layer_norm"]))
    (right,) = rule.equations[0].right
    assert right.real("epsilon") == pytest.approx(1e-3)


def test_a_recognized_operator_is_kept_only_where_it_is_faster() -> None:
    start = (term("x * reciprocal(ones(shape=(6, 16)) + exp(scale(x, factor=-1)))"),)
    found = SearchResult(start, (), 1.0, 1.0, 0, "")
    rules = RuleSet(recognized_rules(start, ["silu"]))
    kept = with_single_operators(found, rules, faster=lambda *_: 2.0)
    assert [step.rule for step in kept.steps] == ["silu.recognized"]
    assert kept.after == 0.5
    assert kept.outputs[0].op == "silu"
    assert not with_single_operators(found, rules, faster=lambda *_: 1.0).steps


@pytest.mark.parametrize(
    "text",
    [
        f"exp(x) * {ROWS.format('reciprocal(reduce_sum(exp(x), axes=(-1,)) + scale(ones(shape=(6,)), factor=1e-7))')}",
        "log(reduce_sum(exp(x), axes=(-1,)) + scale(ones(shape=(6,)), factor=1e-10))",
        "sqrt(reduce_mean(x * x, axes=(-1,)))",
        "scale(reduce_sum(x, axes=(-1,)), factor=1 / 5)",
        "scale(reduce_sum(x, axes=(-1,)), factor=1 / 16)",
        "sqrt(reduce_sum(x * x, axes=(-1,)) + scale(ones(shape=(6,)), factor=1e-12))",
        "expand(rsqrt(reduce_sum(x * x, axes=(-1,)) + scale(ones(shape=(6,)), factor=1e-16)), shape=(6, 16), axes=(-2,)) * x",
        "clip(log(x), low=-100, high=3e38)",
        "clip(sigmoid(x), low=1e-7, high=1)",
        "clip(softmax(x, axis=-1), low=1e-8, high=1)",
        "maximum(scale(ones(shape=(6, 16)), factor=1e-12), x)",
        "x * reciprocal(ones(shape=(6, 16)) + exp(clip(scale(x, factor=-1), low=-20, high=20)))",
        "relu(scale(relu(x), factor=-0.01) - scale(ones(shape=(6, 16)), factor=0.05))",
        "relu(x) + scale(relu(scale(x, factor=0.02) - scale(ones(shape=(6, 16)), factor=13854)), factor=0.01)",
        "maximum(scale(x, factor=0.1) * (g := expand(gamma, shape=(6, 16), axes=(-1,))), g * x)",
        "softmax(where(mask, x, scale(ones(shape=(6, 16)), factor=-1e9)), axis=-1)",
        "x * sigmoid(where(mask, x, zeros(shape=(6, 16))))",
        "maximum(scale(x, factor=-1) * (g := expand(gamma, shape=(6, 16), axes=(-1,))), g * x)",
    ],
)
def test_a_rule_computes_the_same_at_other_sizes_signs_and_edges(text: str) -> None:
    state = (term(text),)
    rules = RuleSet(recognized_rules(state, list(registry())))
    found = with_single_operators(SearchResult(state, (), 1.0, 1.0, 0, ""), rules, faster=lambda *_: 2.0)
    rng = np.random.default_rng(0)
    weights = {"mask": rng.integers(0, 2, (6, 16)), **{name: rng.standard_normal(16) for name in ("gamma", "beta")}}
    for x in (
        *(scale * rng.standard_normal((6, 16)) for scale in (1e-8, 1e-3, 1.0, 30.0, 1e6)),
        np.zeros((6, 16)),
        -rng.uniform(150, 250, (6, 16)),
    ):
        with np.errstate(all="ignore"):
            (one,), (other,) = (
                evaluate_terms(terms, {"x": x, **weights}, lambda _: None, Floats()) for terms in (state, found.outputs)
            )
        np.testing.assert_allclose(other[np.isfinite(one)], one[np.isfinite(one)], rtol=1e-4, atol=1e-11)


@pytest.mark.parametrize(("divisor", "recognized"), [(16, True), (17, False)])
def test_a_mean_is_recognized_as_a_sum_divided_by_the_extent(divisor: int, recognized: bool) -> None:
    mean = f"scale(reduce_sum(x * x, axes=(-1,)), factor=1 / {divisor})"
    root = term(f"x * {ROWS.format(f'rsqrt({mean} + scale(ones(shape=(6,)), factor=1e-5))')}")
    rules = [rule for rule in recognized_rules((root,), ["rms_norm"]) if rule.name == "rms_norm.recognized"]
    assert bool(rules) == recognized
    assert all(str(rule).endswith(" where x.shape[-1] == 16") for rule in rules)
    assert all(any(RuleSet(rules).matches(root)) for _ in rules)
    wide = variable("x", (6, 17))
    (other,) = parse(str(rules[0].statement.left), {"x": wide}) if rules else (root,)
    assert not rules or not any(RuleSet(rules).matches(other))


def test_the_relaxed_mode_permits_a_normalization_that_subtracts_the_mean_last() -> None:
    root = term(AFFINE_NORM)
    gate = Gate(FpMode.RELAXED, dict.fromkeys(("x", "gamma", "beta"), ORDINARY_INPUT), absorption, strict=False)
    rules = recognized_rules((root,), ["layer_norm"])
    assert any(match.roots == (root,) for _, match in RuleSet(rules).gated(gate).matches(root))
