"""Parallel chains of layers become one operator for each layer of the chain.

The numbers and widths of the layers occur in no model.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, subterms, variable
from superopt.budget import active_time
from superopt.rules.match import Match
from superopt.rules.store import load_rules
from superopt.search import roofline
from superopt.search.apply import State, run_time_terms
from superopt.search.backtracking import SearchLimits
from superopt.search.layers import has_wide_layer, join_layers
from superopt.search.ruleset import RuleSet
from superopt.search.sweep import sweep
from superopt.search.sweeper import Sweeper, Swept
from tests.justified_steps import apply_step, is_justified_step
from tests.operator_cases import evaluated

pytestmark = pytest.mark.slow


def estimate(state: State) -> float:
    return roofline.estimate_seconds(state, roofline.CPU)


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return RuleSet(load_rules())


def weight(name: str, *shape: int) -> Term:
    return variable(name, shape, constant=True)


def bias(name: str, width: int) -> Term:
    return apply("expand", weight(name, width), shape=(1, width), axes=(-1,))


def experts(count: int, width: int, hidden: int, out: int, *, biased: bool) -> State:
    """Return experts of two layers each, side by side, over one row."""
    x = variable("x", (1, width))
    found: list[Term] = []
    for n in range(count):
        h = apply("matmul", x, weight(f"w{n}", width, hidden))
        h = apply("relu", apply("add", h, bias(f"b{n}", hidden)) if biased else h)
        y = apply("matmul", h, weight(f"v{n}", hidden, out))
        found.append(apply("relu", apply("add", y, bias(f"c{n}", out)) if biased else y))
    state = found[0]
    for y in found[1:]:
        state = apply("concat", state, y, axis=-1)
    return (state,)


def mixture(count: int, width: int, hidden: int) -> State:
    """Return the sum of experts, each multiplied by its own element of a softmax gate."""
    x = variable("x", (1, width))
    gates = apply("softmax", apply("matmul", x, weight("g", width, count)), axis=-1)
    state: Term | None = None
    for n in range(count):
        h = apply("relu", apply("add", apply("matmul", x, weight(f"w{n}", width, hidden)), bias(f"b{n}", hidden)))
        y = apply("matmul", h, weight(f"v{n}", hidden, width))
        number = apply("reshape", apply("slice", gates, axis=-1, start=n, stop=n + 1), shape=())
        gated = apply("mul", y, apply("expand", number, shape=(1, width), axes=()))
        state = gated if state is None else apply("add", state, gated)
    assert state is not None
    return (state,)


def tables(count: int, rows: int, width: int) -> State:
    """Return rows of several tables, each at its own position and followed by its own layer."""
    ids = variable("i", (1, count))
    found: list[Term] = []
    for n in range(count):
        at = apply("reshape", apply("slice", ids, axis=-1, start=n, stop=n + 1), shape=(1,))
        row = apply("lookup", weight(f"u{n}", rows, width), at)
        found.append(apply("relu", apply("matmul", row, weight(f"w{n}", width, width))))
    state = found[0]
    for y in found[1:]:
        state = apply("concat", state, y, axis=-1)
    return (state,)


def arrays(state: State) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {t.name: t.sizes for t in subterms(*state) if t.is_variable}
    return {n: rng.integers(0, 5, s) * 1.0 if n == "i" else rng.standard_normal(s) for n, s in shapes.items()}


def joined(start: State, rules: RuleSet) -> State:
    sweeper = Sweeper(rules, estimate, math.inf, active_time() + 300)
    *_, last = join_layers(Swept(start, (), estimate(start)), sweeper)
    assert last.steps
    return last.state


def test_only_the_first_join_of_a_layer_tries_all_rules(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight equal operators are joined three times, in pairs. The later joins first try the rule of the first join."""
    tried: Counter[str] = Counter()
    joins = Sweeper.joins

    def counted(
        sweeper: Sweeper, layers: Iterable[Sequence[Term]], live: Sequence[Term], only: str = ""
    ) -> Mapping[str, list[Match]]:
        tried["one rule" if only else "all rules"] += 1
        return joins(sweeper, layers, live, only)

    monkeypatch.setattr(Sweeper, "joins", counted)
    joined(experts(8, width=8, hidden=12, out=4, biased=True), rules)
    assert tried["one rule"] > tried["all rules"]


def test_branches_on_different_inputs_become_one_operator(rules: RuleSet) -> None:
    """The join of the operands adds a layer at the inputs, before the layer of the products."""
    x, w = [variable(f"x{n}", (2, 3)) for n in range(4)], weight("w", 3, 5)
    state = joined(tuple(apply("relu", apply("matmul", one, w)) for one in x), rules)
    live = Counter(t.op for t in run_time_terms(state))
    assert (live["matmul"], live["relu"]) == (1, 1)


@pytest.mark.parametrize(("count", "biased"), [(4, True), (6, False)])
def test_two_layers_of_experts_become_two_products(rules: RuleSet, count: int, biased: bool) -> None:
    start = experts(count, width=8, hidden=12, out=4, biased=biased)
    state = joined(start, rules)
    live = Counter(t.op for t in run_time_terms(state))
    assert (live["matmul"], live["relu"], live["add"]) == (2, 2, 2 * biased)
    assert live["slice"] == live["concat"] == 0
    given = arrays(start)
    np.testing.assert_allclose(evaluated(given, *state)[0], evaluated(given, *start)[0], rtol=1e-9, atol=1e-12)


def test_branches_are_joined_in_the_order_of_the_longest_concatenation(rules: RuleSet) -> None:
    x = variable("x", (1, 8))
    branches = [apply("relu", apply("matmul", x, weight(f"w{n}", 8, 4))) for n in range(4)]
    whole = functools.reduce(lambda rest, part: apply("concat", part, rest, axis=-1), reversed(branches))
    state = joined((whole, apply("concat", branches[2], branches[0], axis=-1)), rules)
    live = Counter(t.op for t in run_time_terms(state))
    assert (live["matmul"], live["concat"]) == (1, 1)


def test_branches_are_joined_in_the_order_of_the_slices_that_they_read(rules: RuleSet) -> None:
    state = joined(mixture(4, width=6, hidden=10), rules)
    assert Counter(t.op for t in run_time_terms(state))["concat"] <= 3


def test_branches_beside_a_product_of_fewer_axes_are_joined(rules: RuleSet) -> None:
    x, y = variable("x", (1, 8)), variable("y", (2, 1, 8))
    branches = [apply("relu", apply("matmul", y, weight(f"w{n}", 8, 4))) for n in range(4)]
    whole = functools.reduce(lambda rest, part: apply("concat", rest, part, axis=-1), branches)
    beside = apply("relu", apply("matmul", x, weight("v", 8, 4)))
    state = joined((whole, beside), rules)
    assert Counter(t.op for t in run_time_terms(state)) == {"matmul": 2, "relu": 2}
    assert state[1] is beside


def test_what_is_joined_when_time_is_out_is_told(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    start = experts(8, width=8, hidden=12, out=4, biased=False)
    asked = itertools.count()
    monkeypatch.setattr("superopt.search.layers.expired", lambda _: next(asked) >= 3)
    state = joined(start, rules)
    products = [sum(t.op == "matmul" for t in run_time_terms(one)) for one in (start, state)]
    assert products == [16, 10]


def test_tables_and_what_is_behind_them_become_one_lookup(rules: RuleSet) -> None:
    start = tables(6, rows=7, width=6)
    state = joined(start, rules)
    live = Counter(t.op for t in run_time_terms(state))
    assert (live["lookup"], live["matmul"], live["relu"]) == (1, 1, 1)
    given = arrays(start)
    np.testing.assert_allclose(evaluated(given, *state)[0], evaluated(given, *start)[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("count", "products", "cut"), [(4, 4, 2), pytest.param(7, 5, 4, marks=pytest.mark.long)])
def test_a_mixture_of_experts_becomes_a_few_products(rules: RuleSet, count: int, products: int, cut: int) -> None:
    """The elements of the gate keep their order.

    Only an odd number of experts makes it necessary to slice a layer and concatenate the parts again.
    """
    start = mixture(count, width=6, hidden=10)
    found = sweep(start, rules, estimate=estimate, measure=estimate, limits=SearchLimits(deadline=active_time() + 120))
    live = Counter(t.op for t in run_time_terms(found.outputs))
    assert live["matmul"] <= products
    assert live["relu"] == 1
    assert live["slice"] <= cut
    assert live["concat"] <= 2
    here: tuple[Term, ...] | None = start
    for step in found.steps:
        assert here is not None
        only = RuleSet([rule for rule in load_rules() if rule.name == step.rule])
        assert is_justified_step(step, here, only), step.rule
        here = apply_step(here, step)
    assert here == found.outputs
    given = arrays(start)
    np.testing.assert_allclose(evaluated(given, *found.outputs)[0], evaluated(given, *start)[0], rtol=1e-9, atol=1e-12)


def test_weights_are_joined_with_weights() -> None:
    """The test joins pairs of sums, with their operands in any order, and then joins the joined sums again."""
    only = RuleSet([rule for rule in load_rules() if rule.name == "concat-add-to-add-concat"])
    sweeper = Sweeper(only, estimate, math.inf, active_time() + 60)
    sums = [apply("add", variable(f"x{n}", (1, 1, 6)), weight(f"c{n}", 1, 1, 6)) for n in range(32)]
    while len(sums) > 1:
        state = tuple(apply("concat", *pair, axis=-2) for pair in zip(sums[::2], sums[1::2], strict=True))
        matches = [match for term in state for match in only.alone(term, "concat-add-to-add-concat")]
        after = sweeper.swept(Swept(state, (), estimate(state)), "concat-add-to-add-concat", matches)
        assert after is not None
        sums = list(after.state)
    joined = [t for t in subterms(*sums) if t.op == "concat"]
    assert all(len({a.constant for a in t.args}) == 1 for t in joined)


def test_few_siblings_are_left_to_other_sweeps() -> None:
    start = experts(3, width=8, hidden=12, out=4, biased=True)
    assert not has_wide_layer(start)
    assert has_wide_layer(experts(4, width=8, hidden=12, out=4, biased=True))


def test_a_sweep_takes_joined_layers_where_they_measure_faster(rules: RuleSet) -> None:
    start = experts(4, width=8, hidden=8, out=8, biased=False)
    found = sweep(start, rules, estimate=estimate, measure=estimate)
    assert Counter(t.op for t in run_time_terms(found.outputs))["matmul"] == 2
    assert found.after < found.before
