"""Rules from mutants: they are generalised from several sizes, proved, stored, and matched before a search makes mutants."""

from __future__ import annotations

import dataclasses
import json
import re
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
import pytest

from superopt.algebra.operators import apply
from superopt.algebra.terms import Dim, Term, size, subterms, variable
from superopt.discovery.candidates import UniverseCounts
from superopt.discovery.explore import prove_all
from superopt.partial.closed import fold_reciprocals
from superopt.partial.conditions import (
    StatedCondition,
    candidate_conditions,
    conjoin_separating_conditions,
    separating_conditions,
)
from superopt.partial.discover import LARGER, SMALLEST, _Bench, discover_mutants
from superopt.partial.families import MUTANTS, PROGRAMS
from superopt.partial.fitting import Expressions, NamedNumber, reals
from superopt.partial.generalise import generalise_terms, mutant_skeleton
from superopt.partial.judge import equal_positions, judge
from superopt.partial.phrase import rule_of
from superopt.partial.sizes import FamilyDraw, ProgramFamily, Range, draws, neighbours
from superopt.partial.trial import Trial, judge_draw
from superopt.policy import MUTANT
from superopt.rules.rule import Rule, parse_rule
from superopt.rules.store import load, select_rules
from superopt.search.apply import State
from superopt.search.mutants import MutantTally, search_mutants
from superopt.search.roofline import CPU, estimate_seconds
from superopt.search.ruleset import RuleSet

pytestmark = pytest.mark.slow

X = variable("x", (1, 6, 12, 12))


def pooled(x: Term) -> Term:
    return apply("avg_pool", x, kernel=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1), include_pads=0)


TWICE = pooled(pooled(X))


def estimate(state: State) -> float:
    return estimate_seconds(state, CPU)


def slow_pools(state: State) -> float:
    """Return the cost on a device where average pools that leave out the padding are slow."""
    pools = sum(t.op == "avg_pool" and t.integer("include_pads") == 0 for t in subterms(*state))
    return estimate(state) + 1e-3 * pools


RANGE = Range((1, 9), (0, 4))
ALONG = ProgramFamily(
    "along",
    "avg_pool1d(x, kernel=k, stride=s, before=a, after=b)",
    "x[3]",
    typical="x.shape[-3] >= 2, x.shape[-2] >= 2, x.shape[-1] >= 5, k >= 2, a + b >= 1",
)
DILATED = ProgramFamily("dilated", "conv(x, w, pads=p, dilations=(d, d))", "x[4], w[4], p[4]", ("w",))


def drawn(family: ProgramFamily, count: int, where: str = "") -> list[FamilyDraw]:
    found = draws(family, RANGE, np.random.default_rng(0), where=dataclasses.replace(family, typical=where).conditions)
    return [next(found) for _ in range(count)]


STORED = select_rules(load(), family=MUTANTS)
RULES = RuleSet([], mutants=[stored.rule for stored in STORED])


def results(program: Term) -> dict[str, Term]:
    """Return the results of the stored rules for a program, by rule name."""
    return {name: match.replacements[0] for name, match in RULES.mutants.matches(program)}


WRONG = parse_rule(
    "wrong: avg_pool(x, kernel=k, strides=s, pads=p) => avg_pool(x, kernel=k, strides=s, pads=p, include_pads=1)"
    " for x[4], k[2], s[2], p[4]"
)


# ---------------------------------------------------------------- the store


def test_rules_of_each_program_are_stored() -> None:
    assert {stored.entry.origin for stored in STORED} == {f"mutants of {family.name}" for family in PROGRAMS}
    assert len(STORED) >= 17


def test_stored_rules_match_and_their_results_are_equal() -> None:
    program = pooled(X)
    found = results(program)
    assert len(found) >= 2
    for term in found.values():
        assert equal_positions(program, fold_reciprocals(term)).all()


def test_a_rule_that_is_wrong_at_borders_is_not_proved() -> None:
    findings = prove_all(UniverseCounts(MUTANTS, "wrong"), [Rule("", WRONG.statement)], "mutants of average", 0)
    assert findings.definitions == ()
    assert len(findings.undecided) == 1


# ---------------------------------------------------------------- generalisation


@pytest.mark.long
def test_a_small_family_gives_the_same_rule_again() -> None:
    one, other = ([rule_of(found) for found in discover_mutants(ALONG, 0, drawn=6)] for _ in range(2))
    assert one == other
    (rule,) = one
    assert rule.statement.where == ()
    assert "include_pads=1" in rule.statement.right
    assert "reciprocal" in rule.statement.right


def test_the_skeleton_of_a_term_has_no_extents_but_their_number() -> None:
    shaped = [apply("reshape", variable("x", (6 * n,)), shape=shape) for n, shape in ((1, (2, 3)), (2, (3, 4)), (1, (1, 2, 3)))]
    one, other, longer = map(mutant_skeleton, shaped)
    assert one == other != longer


def test_a_generalised_mutant_holds_at_the_smallest_sizes() -> None:
    right = apply("mul", DILATED.program, apply("ones", shape=DILATED.program.shape))
    for draw in islice(draws(DILATED, SMALLEST, np.random.default_rng(1)), 4):
        assert judge_draw(DILATED, right, draw).holds


def test_numbers_that_vary_with_the_sizes_become_expressions() -> None:
    every = drawn(DILATED, 8, "p0 >= 1, x.shape[-2] >= d")
    (dilation,) = (a for a in DILATED.atoms if str(size(a)) == "d")
    images = [draw.program.args[0] for draw in every]
    cuts = [apply("slice", x, axis=-2, start=0, stop=draw.values[dilation]) for x, draw in zip(images, every, strict=True)]
    assert next(generalise_terms(every, cuts)) == apply("slice", variable("x", 4), axis=-2, start=0, stop=size(dilation))


def test_expressions_of_few_operations_fit_first() -> None:
    names = {name: size(d) for name, d in zip("nhd", DILATED.atoms[:3], strict=True)}
    rows = {"n": (2, 3, 5, 2), "h": (8, 9, 12, 6), "d": (2, 3, 4, 3)}
    expressions = Expressions([NamedNumber(names[name], column) for name, column in rows.items()], 2)
    quotient, product, square = (next(expressions.fitting(c)) for c in ((4, 3, 3, 2), (8, 27, 80, 18), (4, 9, 16, 9)))
    assert str(quotient) == f"(({names['h']}) // ({names['d']}))"
    assert product == names["n"] * names["d"] * names["d"]
    assert square == names["d"] * names["d"]
    assert next(expressions.fitting((7, 7, 7, 7))) == 7
    assert list(expressions.fitting((1001, 5, 90001, 17))) == []
    assert next(reals(Expressions([NamedNumber(names["n"], (2,))], 1), (Fraction(3, 4),))) == Fraction(3, 4)


def test_the_weakest_condition_tells_sizes_apart() -> None:
    every = drawn(DILATED, 120)
    rows = DILATED.atoms[2]
    (dilation,) = (a for a in DILATED.atoms if str(size(a)) == "d")
    good = [d for d in every if d.values[rows] % d.values[dilation] == 0]
    found = separating_conditions(DILATED, good, [d for d in every if d not in good])
    assert found is not None
    assert [c.text for c in found] == ["x.shape[-2] % d == 0"]
    assert all(d.holds(conjoin_separating_conditions(found)) == (d in good) for d in every)
    assert separating_conditions(DILATED, good, good) is None
    assert separating_conditions(DILATED, good, []) == ()


def test_as_many_conditions_are_taken_as_are_needed_each_the_simplest() -> None:
    extents, outputs = (
        [c for c in candidate_conditions(DILATED) if re.fullmatch(pattern, c.text)]
        for pattern in (r"(x\.shape\[-[12]\]|p[0-3]) % d == 0", r"\(.*\) % d == 0")
    )
    assert (len(extents), len(outputs)) == (6, 2)
    where = conjoin_separating_conditions(extents)
    less_one = [[o for o in extents if o is not one] for one in extents]
    every = [draw for some in ([], outputs, extents, *less_one) for draw in met(some)]
    found = separating_conditions(DILATED, [d for d in every if d.holds(where)], [d for d in every if not d.holds(where)])
    assert found is not None
    assert [c.text for c in found] == [c.text for c in extents]


def met(stated: list[StatedCondition]) -> list[FamilyDraw]:
    """Return some sizes at which the conditions hold."""
    return list(islice(draws(DILATED, LARGER, np.random.default_rng(0), where=conjoin_separating_conditions(stated)), 80))


def test_draws_are_well_typed_and_their_neighbours_differ_in_one_number() -> None:
    one = drawn(DILATED, 1, "d >= 2")[0]
    assert all(near.program.rank == 4 for near in neighbours(one))
    steps = [[abs(a - b) for a, b in zip(one.numbers, near.numbers, strict=True)] for near in neighbours(one)]
    assert len(steps) > 8
    channels = {1, 5}
    assert all({k for k, step in enumerate(s) if step} <= channels or sum(s) == 1 for s in steps)


def test_each_number_of_a_draw_becomes_one_less_and_one_more() -> None:
    one = drawn(DILATED, 1, "d >= 2")[0]
    near = list(neighbours(one))
    changes = {(k, b - a) for draw in near for k, (a, b) in enumerate(zip(one.numbers, draw.numbers, strict=True))}
    can_fall = {k for k, (atom, n) in enumerate(zip(DILATED.atoms, one.numbers, strict=True)) if n > isinstance(atom, Dim)}
    assert {k for k, change in changes if change == 1} == {*range(len(one.numbers))}
    assert {k for k, change in changes if change == -1} == can_fall
    assert one not in near


def test_no_neighbour_has_empty_data() -> None:
    one_row = FamilyDraw(DILATED, (1, 1, 1, 5, 1, 1, 1, 1, 1, 2, 0, 2, 0))
    near = list(neighbours(one_row))
    assert near
    assert min(n for draw in near for n in draw.numbers[:8]) == 1


# ---------------------------------------------------------------- use in the search


def test_where_a_stored_rule_helps_nothing_is_enumerated_or_judged() -> None:
    tally = MutantTally()
    found = search_mutants((TWICE,), RULES, estimate=estimate, measure=slow_pools, tally=tally)
    assert tally.recalled >= 2
    assert (tally.enumerated, tally.judged, len(found.steps)) == (0, 0, 2)
    assert {step.rule for step in found.steps} <= {stored.rule.name for stored in STORED}
    assert equal_positions(TWICE, fold_reciprocals(found.outputs[0])).all()
    assert found.after == slow_pools(found.outputs) < found.before


@pytest.mark.long
def test_where_no_stored_rule_helps_mutants_are_enumerated() -> None:
    tally = MutantTally()
    found = search_mutants((TWICE,), RuleSet([]), estimate=estimate, measure=slow_pools, tally=tally)
    assert tally.recalled == 0 < tally.enumerated
    assert [step.rule.startswith("~> ") for step in found.steps] == [True, True]


class Stored(dict[str, Any]):
    """A cache of results whose keys are stored as JSON text."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(json.dumps(key), default)

    def put(self, key: Any, value: Any) -> None:
        self[json.dumps(key)] = json.loads(json.dumps(value))


def test_a_program_that_was_examined_is_not_examined_again() -> None:
    memory, tallies = Stored(), (MutantTally(), MutantTally())
    first, second = (
        search_mutants((TWICE,), RULES, estimate=estimate, measure=slow_pools, memory=memory, tally=tally) for tally in tallies
    )
    assert [tally.remembered for tally in tallies] == [0, tallies[1].programs]
    assert (tallies[1].measured, second.outputs) == (0, first.outputs)


def weighted(x: Term) -> Term:
    return apply("conv", x, variable("w", (6, 6, 3, 3), constant=True), pads=(2, 2, 2, 2), dilations=(2, 2))


def test_a_dilated_convolution_is_recalled_as_a_dense_one_where_the_dilation_divides_rows_and_columns() -> None:
    def dilations(program: Term) -> set[tuple[int, ...]]:
        found = results(program).values()
        assert all(not judge(program, fold_reciprocals(term)).unequal for term in found)
        return {t.integers("dilations") for term in found for t in subterms(term) if t.op == "conv"}

    assert dilations(weighted(X)) >= {(1, 1), (1, 2)}
    assert dilations(weighted(variable("x", (1, 6, 12, 13)))) >= {(1, 2)}
    for columns in (12, 13):
        assert (1, 1) not in dilations(weighted(variable("x", (1, 6, 25 - columns, columns))))


def slow_dilations(state: State) -> float:
    """Return the cost on a device where dilated convolutions are slow, and slower with dilated rows and columns."""
    spaced = sum(n > 1 for t in subterms(*state) if t.op == "conv" for n in t.integers("dilations"))
    return estimate(state) + 1e-3 * spaced


def test_of_the_stored_rules_about_dilated_convolutions_the_search_takes_the_dense_one() -> None:
    wide, weight = variable("x", (1, 32, 24, 24)), variable("w", (64, 32, 3, 3), constant=True)
    program = apply("conv", wide, weight, pads=(2, 2, 2, 2), dilations=(2, 2))
    found = search_mutants((program,), RULES, estimate=estimate, measure=slow_dilations)
    (step,) = found.steps
    (origin,) = (stored.entry.origin for stored in STORED if stored.rule.name == step.rule)
    assert origin == "mutants of dilated"
    assert slow_dilations(found.outputs) == estimate(found.outputs)
    assert equal_positions(program, found.outputs[0]).all()


def test_a_convolution_of_single_pixels_is_recalled_as_a_product_of_matrices() -> None:
    def products(rows: int) -> list[Term]:
        program = apply("conv", X, variable("w", (5, 6, rows, 1), constant=True))
        found = [term for term in results(program).values() if any(t.op == "matmul" for t in subterms(term))]
        assert all(equal_positions(program, fold_reciprocals(term)).all() for term in found)
        return found

    assert len(products(1)) == 1
    assert products(2) == []


@pytest.mark.parametrize("failures", [0, 5, 6, 12])
def test_a_term_is_tested_further_if_it_holds_at_more_than_half_of_the_typical_sizes(
    failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = _Bench(PROGRAMS[0], np.random.default_rng(0))
    tried: list[FamilyDraw] = []

    def judged(_: _Bench, term: Term, draw: FamilyDraw) -> Trial:
        tried.append(draw)
        return Trial(draw, None if len(tried) <= failures else judge(term, term))

    monkeypatch.setattr(_Bench, "_tried", judged)
    half = MUTANT.trial_size_count // 2
    assert bench._general(X) == (failures < half)
    assert len(tried) == (half if failures >= half else MUTANT.trial_size_count)
