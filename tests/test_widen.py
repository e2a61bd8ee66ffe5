"""Islands in wider form: padding moves up into weights, slices move down and merge, and no padding is left at run time."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, subterms, variable
from superopt.policy import SEARCH
from superopt.rules.match import Match
from superopt.rules.rule import parse_rules
from superopt.search.apply import State, run_time_terms
from superopt.search.ruleset import PaddingUndo, RuleSet, no_terms_for_other_outputs
from superopt.search.sweep import sweep
from superopt.search.widen import _Walk, widened_states
from tests.operator_cases import evaluated

UNDO = "undo: slice(pad(x, before=(0, 0, 0, 0), after=(0, n, 0, 0)), axis=-3, stop=x.shape[-3]) => x for x[4]"
MORE_KERNELS = """
more-kernels:
    pad(conv(x, w, strides=s, pads=p, dilations=d), before=(0, 0, 0, 0), after=(0, n, 0, 0))
    => conv(x, pad(w, before=(0, 0, 0, 0), after=(n, 0, 0, 0)), strides=s, pads=p, dilations=d)
    for x[4], w[4], d[2], p[4], s[2]
"""
MORE_INPUTS = """
more-inputs:
    conv(slice(y, axis=-3, start=0, stop=c), w, strides=s, pads=p, dilations=d)
    => conv(y, pad(w, before=(0, 0, 0, 0), after=(0, y.shape[-3] - c, 0, 0)), strides=s, pads=p, dilations=d)
    for y[4], w[4], d[2], p[4], s[2]
"""
DEPTHWISE = """
depthwise:
    conv(slice(y, axis=-3, start=0, stop=u.shape[-4]), u, strides=s, pads=p, dilations=d, group=u.shape[-4])
    => slice(conv(y, pad(u, before=(0, 0, 0, 0), after=(y.shape[-3] - u.shape[-4], 0, 0, 0)), strides=s, pads=p, dilations=d,
    group=y.shape[-3]), axis=-3, start=0, stop=u.shape[-4])
    for y[4], u[4], d[2], p[4], s[2]
"""
RELU = """
relu:
    pad(relu(x), before=(0, 0, 0, 0), after=(0, n, 0, 0)) => relu(pad(x, before=(0, 0, 0, 0), after=(0, n, 0, 0))) for x[4]
"""
RELU_TWICE = """
relu-twice:
    pad(relu(x), before=(0, 0, 0, 0), after=(0, n, 0, 0))
    => relu(pad(relu(x), before=(0, 0, 0, 0), after=(0, n, 0, 0))) for x[4]
"""
SUM = """
sum:
    pad(x + y, before=(0, 0, 0, 0), after=(0, n, 0, 0))
    => pad(x, before=(0, 0, 0, 0), after=(0, n, 0, 0)) + pad(y, before=(0, 0, 0, 0), after=(0, n, 0, 0)) for x[4], y[4]
"""
RELU_OF_PARTS = """
relu-of-parts: concat(relu(x), relu(y), axis=-3) => relu(concat(x, y, axis=-3)) for x[4], y[4]
"""
CONVOLVED_PARTS = """
convolved-parts:
    conv(concat(y, x, axis=-3), concat(w, v, axis=-3), strides=s, pads=p, dilations=d)
    => conv(x, v, strides=s, pads=p, dilations=d) + conv(y, w, strides=s, pads=p, dilations=d)
    for x[4], y[4], w[4], v[4], d[2], p[4], s[2] where v.shape[-3] == x.shape[-3]
"""
BIAS = """
bias:
    pad(expand(t, shape=n, axes=(-3,)), before=(0, 0, 0, 0), after=(0, o0, 0, 0))
    => expand(pad(t, before=(0,), after=(o0,)), shape=(n0, n1 + o0, n2, n3), axes=(-3,))
    for t[1], n[4]
"""
ALL = (UNDO, MORE_KERNELS, MORE_INPUTS, DEPTHWISE, RELU, SUM)
PARTS = (*ALL, RELU_OF_PARTS, CONVOLVED_PARTS)


def rules_of(*texts: str) -> RuleSet:
    return RuleSet(parse_rules("\n".join(texts)))


def block(channels: int) -> State:
    """Return a pointwise convolution with a bias and a relu, followed by a separable convolution."""
    x = variable("x", (1, 8, 6, 6))
    w, v = (variable(name, (channels, count, 1, 1), constant=True) for name, count in (("w", 8), ("v", channels)))
    u, b = variable("u", (channels, 1, 3, 3), constant=True), variable("b", (channels,), constant=True)
    pads = {"pads": (0, 0, 0, 0)}
    bias = apply("expand", b, shape=(1, channels, 6, 6), axes=(-3,))
    first = apply("relu", apply("add", apply("conv", x, w, **pads), bias))
    return (apply("conv", apply("conv", first, u, pads=(1, 1, 1, 1), group=channels), v, **pads),)


def channels_of(state: State) -> Counter[object]:
    return Counter(term.shape[-3] for term in subterms(*state) if term.op == "conv")


def values(state: State) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {t.name: rng.standard_normal(t.sizes) for t in subterms(*state) if t.is_variable}


def padded_at_run_time(state: State) -> list[Term]:
    return [term for term in run_time_terms(state) if term.op == "pad"]


def test_padding_ends_in_weights_and_one_slice_is_left() -> None:
    start = block(44)
    ((state, steps),) = widened_states(start, rules_of(*ALL))
    assert channels_of(state) == {48: 3}
    assert not padded_at_run_time(state)
    assert sum(term.op == "slice" for term in run_time_terms(state)) == 1
    assert steps[0].rule == "undo"
    assert {step.rule for step in steps} == {"undo", "more-kernels", "more-inputs", "depthwise", "relu", "sum"}
    arrays = values(start)
    np.testing.assert_allclose(evaluated(arrays, *state), evaluated(arrays, *start), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("channels", [48, 20])
def test_what_is_fine_or_would_grow_too_much_is_left_alone(channels: int) -> None:
    assert not [*widened_states(block(channels), rules_of(*ALL))]


def joined(channels: int, branches: int) -> State:
    """Return a pointwise convolution of the relu of several concatenated pointwise convolutions."""
    x = variable("x", (1, 8, 6, 6))
    parts = [apply("conv", x, variable(f"w{n}", (channels, 8, 1, 1), constant=True), pads=(0,) * 4) for n in range(branches)]
    whole = functools.reduce(lambda a, b: apply("concat", a, b, axis=-3), parts)
    v = variable("v", (channels, branches * channels, 1, 1), constant=True)
    return (apply("conv", apply("relu", whole), v, pads=(0,) * 4),)


@pytest.mark.parametrize("branches", [2, 3, 6])
def test_wide_parts_go_into_what_takes_them_one_by_one(branches: int) -> None:
    start = joined(44, branches)
    ((state, steps),) = widened_states(start, rules_of(*PARTS))
    assert channels_of(state) == {48: 2 * branches}
    assert sum(term.op in ("slice", "concat") for term in run_time_terms(state)) == 1
    assert not padded_at_run_time(state)
    assert {"relu-of-parts", "convolved-parts"} <= {step.rule for step in steps}
    arrays = values(start)
    np.testing.assert_allclose(evaluated(arrays, *state), evaluated(arrays, *start), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("missing", PARTS)
def test_whatever_rule_of_parts_is_missing_what_is_made_is_equal(missing: str) -> None:
    start = joined(44, 3)
    arrays = values(start)
    for state, _ in widened_states(start, rules_of(*(text for text in PARTS if text != missing))):
        assert not padded_at_run_time(state)
        np.testing.assert_allclose(evaluated(arrays, *state), evaluated(arrays, *start), rtol=1e-12, atol=1e-12)


def test_a_bias_stays_a_vector_that_is_repeated() -> None:
    ((state, steps),) = widened_states(block(44), rules_of(*ALL, BIAS))
    (bias,) = {a for term in run_time_terms(state) if term.op == "add" for a in term.args if a.constant}
    assert bias.op == "expand"
    assert bias.args[0].shape == (48,)
    assert "bias" in {step.rule for step in steps}


@pytest.mark.parametrize("missing", ALL)
def test_whatever_rule_is_missing_what_is_made_is_equal(missing: str) -> None:
    start = block(44)
    arrays = values(start)
    for state, _ in widened_states(start, rules_of(*(text for text in ALL if text != missing))):
        assert not padded_at_run_time(state)
        np.testing.assert_allclose(evaluated(arrays, *state), evaluated(arrays, *start), rtol=1e-12, atol=1e-12)


def test_a_slice_that_begins_past_zero_is_not_the_slice_of_a_wider_term() -> None:
    late = """
    late: relu(slice(y, axis=-3, start=0, stop=c))
          => slice(relu(concat(scale(y, factor=2), y, axis=-3)), axis=-3, start=y.shape[-3], stop=y.shape[-3] + c) for y[4]
    """
    x, w = variable("x", (1, 8, 6, 6)), variable("w", (44, 8, 1, 1), constant=True)
    start = (apply("relu", apply("conv", x, w, pads=(0, 0, 0, 0))),)
    ((state, steps),) = widened_states(start, rules_of(UNDO, MORE_KERNELS, late))
    assert "late" in {step.rule for step in steps}
    arrays = values(start)
    np.testing.assert_allclose(evaluated(arrays, *state), evaluated(arrays, *start), rtol=1e-12, atol=1e-12)


def test_a_rule_undoes_padding_along_its_own_axis() -> None:
    assert [*rules_of(*ALL).undoing()] == [PaddingUndo("undo", 4, -3)]
    assert not [*rules_of(RELU).undoing()]


def test_the_wider_form_is_taken_where_it_measures_faster() -> None:
    start = block(44)
    rules = rules_of(*ALL)

    def measure(state: State) -> float:
        return 2.0 - sum(term.op == "conv" and term.shape[-3] == 48 for term in run_time_terms(state)) / 3

    found = sweep(start, rules, estimate=lambda _: 1.0, measure=measure)
    assert channels_of(found.outputs) == {48: 3}
    assert found.steps[0].rule == "undo"
    assert sweep(start, rules, estimate=lambda _: 1.0, measure=lambda _: 1.0).outputs == start


def test_a_sum_of_many_is_taken_apart_in_few_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    x = variable("x", (1, 8, 6, 6))
    kernels = [variable(f"w{n}", (44, 8, 1, 1), constant=True) for n in range(9)]
    parts = [apply("conv", x, w, pads=(0, 0, 0, 0)) for w in kernels]
    stuck = functools.reduce(lambda one, other: apply("add", one, other), [*parts, variable("y", (1, 44, 6, 6))])
    tried: Counter[Term] = Counter()
    moved = _Walk._padded_by_rules

    def counted(walk: _Walk, term: Term, more: int, depth: int) -> Term | None:
        tried[term] += 1
        return moved(walk, term, more, depth)

    monkeypatch.setattr(_Walk, "_padded_by_rules", counted)
    assert not [*widened_states((stuck,), rules_of(UNDO, SUM))]
    assert tried.total() <= 2 * SEARCH.max_widening_tries


class CountingRules(RuleSet):
    """Rules that record the `pad` terms against which they are matched."""

    def __init__(self, *texts: str) -> None:
        super().__init__(parse_rules("\n".join(texts)))
        self.padded: list[Term] = []

    def matches(
        self, term: Term, candidates: Callable[[str], Sequence[Term]] = no_terms_for_other_outputs
    ) -> Iterator[tuple[str, Match]]:
        if term.op == "pad":
            self.padded.append(term)
        return super().matches(term, candidates)


def test_padding_that_a_rule_moves_in_a_circle_is_given_up_at_the_depth_limit() -> None:
    rules = CountingRules(UNDO, RELU_TWICE)
    assert not [*widened_states((apply("relu", variable("x", (1, 44, 6, 6))),), rules)]
    assert len(rules.padded) == SEARCH.max_widening_depth
