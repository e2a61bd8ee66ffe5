"""Sampling: instances are legal and include the hard cases, comparison is exact, and a seed always gives the same instances."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from superopt.algebra.terms import substitute_cond
from superopt.errors import InstantiationError
from superopt.notation.parsing import Equation
from superopt.proof.sample import instantiations, mismatch, refutation_inputs, refutation_number_domain
from superopt.rules.instances import Instance, equation_instance_conditions
from superopt.rules.rule import axioms, parse_rule

pytestmark = pytest.mark.slow

CONV = "conv(x, w, strides=s, pads=p, dilations=d, group=g)"
GROUPED = f"{CONV} => {CONV} for x[4], w[4], s[2], p[4], d[2]"


def equation(text: str) -> Equation:
    return parse_rule(f"law: {text}").equations[0]


def drawn(text: str, count: int = 150) -> list[Instance]:
    return list(itertools.islice(instantiations(equation(text), np.random.default_rng(0)), count))


@pytest.mark.parametrize("name", list(axioms())[::4])
def test_instances_of_an_axiom_are_legal_and_agree(name: str) -> None:
    for law in axioms()[name].equations:
        asked = equation_instance_conditions(law)
        for instance in itertools.islice(instantiations(law, np.random.default_rng(0)), 2):
            assert all(substitute_cond(c, instance.value()) is True for c in asked)
        assert mismatch(law, instances=2, seed=0) is None


@pytest.mark.parametrize(
    ("what", "holds"),
    [
        ("several groups", lambda x, w, a: a["g"] > 1),
        ("depthwise", lambda x, w, a: a["g"] == x[1] > 1),
        ("more outputs than inputs per group", lambda x, w, a: a["g"] > 1 and w[0] > x[1]),
        ("stride 2", lambda x, w, a: a["s0"] == 2 or a["s1"] == 2),
        ("dilation 2 of a real window", lambda x, w, a: a["d0"] == 2 and w[2] > 1),
        ("asymmetric pads", lambda x, w, a: a["p0"] != a["p2"]),
        ("even kernel", lambda x, w, a: w[2] % 2 == 0),
        (
            "a last row that no window reaches",
            lambda x, w, a: (x[2] + a["p0"] + a["p2"] - a["d0"] * (w[2] - 1) - 1) % a["s0"] > 0,
        ),
        ("one channel", lambda x, w, a: x[1] == 1),
    ],
)
def test_hard_cases_are_drawn(what: str, holds: Callable[..., bool]) -> None:
    found = [i for i in drawn(GROUPED) if holds(i.shapes["x"], i.shapes["w"], i.attributes)]
    assert len(found) >= 8, what


def test_equal_extents_that_only_a_quotient_relates_are_found() -> None:
    pooled = "conv(x, w, strides=s) + y => y + conv(x, w, strides=s) for x[4], w[4], y[4], s[2]"
    assert any(i.attributes["s0"] == 2 and i.shapes["y"][2] > 1 for i in drawn(pooled, 50))
    two = "conv(x, v, strides=s, pads=p) + conv(x, w, strides=s) => conv(x, w, strides=s) + conv(x, v, strides=s, pads=p)"
    assert any(i.shapes["v"] != i.shapes["w"] for i in drawn(f"{two} for x[4], v[4], w[4], s[2], p[4]", 30))


def factors(instances: list[Instance]) -> list[Fraction]:
    return [Fraction(str(i.attributes["a"])) for i in instances]


def test_real_attributes_are_of_both_signs_unless_forbidden() -> None:
    law = "relu(scale(x, factor=a)) => relu(scale(x, factor=a)) for x[1]"
    free = factors(drawn(law))
    assert min(free) < 0 < max(free)
    assert any(f.denominator > 1 for f in free)
    assert min(factors(drawn(f"{law} where a >= 0"))) >= 0


def test_a_reciprocal_of_an_extent_is_exact() -> None:
    law = "scale(x, factor=a) => scale(x, factor=a) for x[1] where a == 1 / x.shape[-1]"
    instances = drawn(law, 20)
    assert factors(instances) == [Fraction(1, i.shapes["x"][-1]) for i in instances]


def test_sizes_of_a_variable_that_no_term_reads() -> None:
    law = "slice(y, axis=-1, start=0, stop=x.shape[-1]) => slice(y, axis=-1, start=0, stop=x.shape[-1]) for x[2], y[1]"
    assert all(i.shapes["x"][-1] <= i.shapes["y"][-1] for i in drawn(law, 20))
    assert mismatch(equation(law), instances=20, seed=0) is None


def test_conditions_without_small_instances_are_reported() -> None:
    for impossible in ("x.shape[-1] == 0", "x.shape[-1] >= 1000", "x.shape[-1] == 2, x.shape[-1] == 3"):
        with pytest.raises(InstantiationError):
            mismatch(equation(f"x => x for x[1] where {impossible}"), instances=1, seed=0)


def test_same_seed_draws_the_same() -> None:
    first, second = drawn(GROUPED, 20), drawn(GROUPED, 20)
    assert first == second
    law = equation(GROUPED)
    one, other = (refutation_inputs(law, first[0], 7) for _ in range(2))
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("law", "fields"),
    [
        ("x @ y => x @ y for x[2], y[2]", 1),
        ("relu(x) => relu(x) for x[2]", 1),
        ("exp(x) => exp(x) for x[2]", 2),
        ("softmax(x, axis=-1) => softmax(x, axis=-1) for x[2]", 2),
        ("log(x) => log(x) for x[2]", 3),
    ],
)
def test_as_many_fields_as_the_operators_ask_for(law: str, fields: int) -> None:
    domain = refutation_number_domain(*equation(law).left)
    assert (domain.length, domain.strict) == (fields, True)


def test_a_difference_in_one_element_is_found() -> None:
    doubled = "scale(slice(x, axis=-1, start=a, stop=x.shape[-1]), factor=2)"
    law = equation(f"x => concat(slice(x, axis=-1, start=0, stop=a), {doubled}, axis=-1) for x[1]")
    found = mismatch(law, instances=5, seed=0)
    assert found is not None
    assert found.position >= (int(dict(found.attributes)["a"]),)
    assert str(found.position[0]) in str(found)


def test_shapes_that_differ_are_a_counterexample() -> None:
    found = mismatch(equation("x => y for x[1], y[1]"), instances=5, seed=0)
    assert found is not None
    assert found.position == ()
    assert "shape" in str(found)


def test_roots_are_taken_of_positive_inputs() -> None:
    law = equation("rsqrt(x) * rsqrt(x) * x => ones(shape=x.shape) for x[2]")
    assert mismatch(law, instances=20, seed=0) is None
