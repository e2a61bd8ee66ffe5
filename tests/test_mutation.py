"""Mutants as moves of the search: a replacement equals the replaced term, and is taken only if it measures cheaper."""

from __future__ import annotations

import functools
import itertools
import time
from dataclasses import replace

import pytest

from superopt.algebra.dim_binding import dimension
from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, subterms, variable
from superopt.budget import active_time
from superopt.partial.judge import equal_positions
from superopt.policy import MUTANT
from superopt.rules.accuracy import admit_by_growth, is_fast_algorithm_rule
from superopt.rules.store import load_rules
from superopt.runtime.cache import Cache
from superopt.search.apply import State, run_time_terms
from superopt.search.backtracking import OUT_OF_TIME, Cost, SearchLimits, SearchResult
from superopt.search.mutants import Faster, MutantTally, search_mutants
from superopt.search.record import result_from_json, result_to_json
from superopt.search.roofline import CPU, estimate_seconds
from superopt.search.ruleset import RuleSet
from superopt.search.schedule import gains, search_all

pytestmark = pytest.mark.slow

X = variable("x", (1, 6, 12, 12))


def pooled(x: Term) -> Term:
    return apply("avg_pool", x, kernel=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1), include_pads=0)


TWICE = apply("relu", pooled(apply("relu", pooled(X))))


def estimate(state: State) -> float:
    return estimate_seconds(state, CPU)


def slow_pools(state: State) -> float:
    """Return the cost on a device where average pools that leave out the padding are slow."""
    pools = sum(t.op == "avg_pool" and t.integer("include_pads") == 0 for t in subterms(*state))
    return estimate(state) + 1e-3 * pools


@functools.cache
def first() -> tuple[SearchResult, Cache, MutantTally]:
    """Search for mutants of the pool once for all tests, and return the result, the cache and the counts."""
    memory, tally = Cache(), MutantTally()
    found = search_mutants((TWICE,), RuleSet([]), estimate=estimate, measure=slow_pools, memory=memory, tally=tally)
    return found, memory, tally


def searched(limits: SearchLimits | None = None, faster: Faster | None = None) -> SearchResult:
    """Run a search that finds all enumerated mutants in the cache, unless limits are given."""
    memory = None if limits else first()[1]
    start, rules = (TWICE,), RuleSet([])
    return search_mutants(start, rules, estimate=estimate, measure=slow_pools, limits=limits, faster=faster, memory=memory)


def linear(term: Term) -> Term:
    """Return the term without its relus, so that values over a field can be compared."""
    done: dict[Term, Term] = {}
    for one in subterms(term):
        args = [done[a] for a in one.args]
        done[one] = args[0] if one.op == "relu" else one if one.is_variable else apply(one.op, *args, **dict(one.attributes))
    return done[term]


@pytest.mark.long
def test_every_place_of_an_operator_is_exchanged_for_the_corrected_mutant() -> None:
    found, _, _ = first()
    (after,) = found.outputs
    assert not any(t.op == "avg_pool" and t.integer("include_pads") == 0 for t in subterms(after))
    assert [t.op for t in subterms(after)].count("relu") == 2
    assert equal_positions(linear(TWICE), linear(after)).all()
    assert found.after == slow_pools(found.outputs) < found.before
    assert len(found.steps) == 2
    assert len({step.rule for step in found.steps}) == 1


def test_steps_lead_from_the_start_to_what_is_found() -> None:
    found = searched()
    saved = gains((TWICE,), found.steps, slow_pools)
    assert abs(sum(saved) - (found.before - found.after)) < 1e-12
    assert all(s > 0 for s in saved)


def test_a_step_says_what_it_exchanges() -> None:
    step = searched().steps[1]
    assert step.rule.startswith("~> ")
    left, right = step.text.split("  ~>  ")
    assert left == "avg_pool(x0, kernel=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1))"
    assert "x0" in right
    assert "relu" not in right


def test_what_was_found_can_be_kept() -> None:
    found = searched()
    assert result_from_json(result_to_json(found)) == found


def test_nothing_is_exchanged_where_nothing_is_cheaper() -> None:
    plain = apply("avg_pool", X, kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0), include_pads=1)
    found = search_mutants((plain,), RuleSet([]), estimate=estimate, measure=lambda s: float(s != (plain,)) + 1.0)
    assert (found.outputs, found.steps, found.after) == ((plain,), (), found.before)


def test_the_deadline_is_kept() -> None:
    found = searched(SearchLimits(deadline=active_time()))
    assert (found.outputs, found.steps, found.stopped) == ((TWICE,), (), OUT_OF_TIME)


def test_operators_of_open_extents_are_left_as_they_are() -> None:
    start = (apply("relu", pooled(variable("x", (dimension("batch"), 6, 12, 12)))),)
    found = search_mutants(start, RuleSet([]), estimate=lambda _: 1.0, measure=lambda _: 1.0)
    assert (found.outputs, found.steps) == (start, ())


def test_numbers_have_no_layout_to_exchange() -> None:
    matrix = variable("x", (6, 8))
    start = (apply("reduce_sum", matrix, axes=(-2, -1)), apply("reduce_sum", apply("mul", matrix, matrix), axes=(-2, -1)))
    assert {root.rank for root in start} == {0}
    found = search_mutants(start, RuleSet([]), estimate=lambda _: 1.0, measure=lambda _: 1.0)
    assert found.outputs == start


def test_what_was_found_of_a_program_is_taken_from_memory_in_another_island() -> None:
    found, memory, tally = first()
    again = MutantTally()
    other = apply("relu", pooled(apply("exp", X)))
    later = search_mutants((other,), RuleSet([]), estimate=estimate, measure=slow_pools, memory=memory, tally=again)
    assert tally.remembered == 0 < tally.judged
    assert (again.remembered, again.enumerated, again.judged) == (1, 0, 0)
    assert later.steps[0].text == found.steps[0].text
    assert later.after == slow_pools(later.outputs) < later.before


@pytest.mark.long
def test_a_search_that_is_cut_short_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, clock = Cache(), itertools.chain([0.0, 0.0], itertools.repeat(2.0))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    cut = search_mutants(
        (TWICE,), RuleSet([]), estimate=estimate, measure=slow_pools, memory=memory, limits=SearchLimits(deadline=1.0)
    )
    monkeypatch.undo()
    assert (cut.steps, cut.stopped) == ((), OUT_OF_TIME)
    tally = MutantTally()
    whole = search_mutants((TWICE,), RuleSet([]), estimate=estimate, measure=slow_pools, memory=memory, tally=tally)
    assert tally.remembered == 0
    assert whole.outputs == searched().outputs


def test_weights_are_solved_for_only_where_that_can_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the quick cost `glance` is high for everything but the program, no weights are solved for and no mutant is judged.

    As in a search outside of tests, up to `MUTANT.max_mutants_per_operator` mutants are measured.
    """
    monkeypatch.setattr("superopt.search.mutants.MUTANT", MUTANT)
    tally = MutantTally()
    found = search_mutants(
        (TWICE,),
        RuleSet([]),
        estimate=estimate,
        measure=slow_pools,
        glance=lambda state: float(not any(t.op == "avg_pool" and t.sizes == X.sizes for t in subterms(*state))),
        tally=tally,
    )
    assert found.steps == ()
    assert tally.measured > 5
    assert (tally.solved, tally.judged) == (0, 0)


def test_judgements_compare_few_of_all_positions() -> None:
    _, _, tally = first()
    assert 0 < tally.positions < tally.total
    assert {"recall", "enumerate", "glance", "measure", "solve", "judge", "correct"} == tally.seconds.keys()


# ---------------------------------------------------------------- mutants with algorithms

DILATED = apply("conv", X, variable("w", (6, 6, 3, 3), constant=True), pads=(2, 2, 2, 2), dilations=(2, 2))


def counted(state: State) -> float:
    """Return the cost on a device where a convolution takes twice as long as its algorithm, and other operators take little."""
    return sum({"conv": 1.0, "winograd": 0.5}.get(term.op, 0.01) for term in run_time_terms(state))


def algorithms() -> RuleSet:
    return RuleSet([], [rule for rule in admit_by_growth(load_rules(), 4.0) if is_fast_algorithm_rule(rule)])


def test_a_mutant_is_taken_for_what_an_algorithm_makes_of_it() -> None:
    """No rule gives an algorithm to a dilated convolution.

    The mutant is a dense convolution on every second row and column. Without an algorithm, the mutant costs more.
    """
    alone = search_mutants((DILATED,), RuleSet([]), estimate=counted, measure=counted)
    assert (alone.outputs, alone.steps) == ((DILATED,), ())
    memory = Cache()
    found = search_mutants((DILATED,), algorithms(), estimate=counted, measure=counted, memory=memory)
    assert "winograd" in {term.op for term in run_time_terms(found.outputs)}
    assert [step.rule.partition("-")[0] for step in found.steps[1:]] == ["conv"]
    assert found.after == counted(found.outputs) < found.before
    assert sum(gains((DILATED,), found.steps, counted)) == pytest.approx(found.before - found.after)
    again = search_mutants(
        (DILATED,), algorithms(), estimate=counted, measure=counted, memory=memory, tally=(tally := MutantTally())
    )
    assert (again.outputs, again.steps, tally.remembered) == (found.outputs, found.steps, 1)


def test_no_mutant_is_taken_whose_weights_are_too_large() -> None:
    found = search_mutants((DILATED,), algorithms(), estimate=counted, measure=counted, limits=SearchLimits(growth=0.0))
    assert (found.outputs, found.steps) == ((DILATED,), ())


def test_nothing_is_measured_after_the_deadline() -> None:
    def measure(_: State) -> Cost:
        raise AssertionError("there is no time for this")

    ((_, found),) = search_all({(DILATED,): 1.0}, RuleSet([]), estimate=counted, measure=measure, deadline=active_time())
    assert (found.outputs, found.steps, found.after, found.stopped) == ((DILATED,), (), 1.0, OUT_OF_TIME)


@pytest.mark.parametrize(("sure", "ratio", "taken"), [(1e6, 1.0, 0), (1e6, 1.1, 2), (0.0, 1.0, 2)])
def test_what_is_not_much_faster_is_timed_in_turns_before_it_is_taken(
    sure: float, ratio: float, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant that is `sure` times as fast is taken without a comparison in turns. In turns, the mutant is `ratio` times as
    fast.
    """
    asked: list[tuple[State, State]] = []

    def faster(one: State, other: State) -> float:
        asked.append((one, other))
        return ratio

    monkeypatch.setattr("superopt.search.mutants.MUTANT", replace(MUTANT, believed_speedup_factor=sure))
    found = searched(faster=faster)
    assert len(found.steps) == taken
    assert len(asked) == (sure > 0)
    assert all(slow_pools(one) > slow_pools(other) for one, other in asked)
