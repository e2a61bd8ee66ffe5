"""Partial rules: found by mutants at several sizes, stored with certificates, judged again, and matched first in the search."""

from __future__ import annotations

import dataclasses
import json
import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, size, subterms, variable
from superopt.cli.main import main
from superopt.errors import StoreError, UnprovedError
from superopt.partial import library
from superopt.partial import proofs as proving
from superopt.partial.conditions import StatedCondition, candidate_conditions, conjoin_stated, separating_conditions
from superopt.partial.discover import LARGER, SMALLEST, discover_mutants
from superopt.partial.fitting import Expressions, NamedNumber
from superopt.partial.judge import equal_positions, judge
from superopt.partial.library import PartialCertificate, PartialRule, certificate_objection, recall_mutants
from superopt.partial.phrase import name_partial_rules
from superopt.partial.sizes import FamilyDraw, ProgramFamily, Range, draws, neighbours
from superopt.partial.trial import judge_draw
from superopt.rules.rule import Rule, digest, parse_rule
from superopt.rules.store import ALL_SIZES, sealed_line, sealed_lines
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
    """A device on which pooling that counts what is inside takes long."""
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


def certified(rule: Rule, like: PartialRule) -> PartialRule:
    """The rule with the certificate of another, as if it were its own."""
    return PartialRule(rule, dataclasses.replace(like.certificate, key=digest(rule), name=rule.name))


def stored(name: str) -> PartialRule:
    return next(p for p in library.load_partial_rules() if p.rule.name == name)


WRONG = "wrong: avg_pool(x, kernel=k, strides=s, pads=p) ~> avg_pool(x, kernel=k, strides=s, pads=p, include_pads=1) {}"
EVERYWHERE, UNPADDED = (
    WRONG.format(f"for x[4], k[2], s[2], p[4]{where}") for where in ("", " where p0 == 0, p1 == 0, p2 == 0, p3 == 0")
)


# ---------------------------------------------------------------- the store


def test_every_stored_rule_has_a_certificate_of_many_sizes() -> None:
    rules = library.load_partial_rules()
    assert len({p.rule.name for p in rules}) == len(rules) > 5
    for partial in rules:
        assert partial.rule.statement.arrow == "~>"
        assert min(len(partial.certificate.sizes), 20) == 20
        assert partial.certificate.log2_error <= -60
        assert bool(partial.certificate.refused) == bool(partial.rule.statement.where)


def test_rules_without_conditions_hold_at_the_smallest_sizes() -> None:
    rules = [p for p in library.load_partial_rules() if not p.rule.statement.where]
    assert len(rules) > 5
    for partial in rules:
        right = partial.rule.equations[0].right[0]
        for draw in islice(draws(partial.family, SMALLEST, np.random.default_rng(1)), 4):
            assert judge_draw(partial.family, right, draw).holds


def test_stored_rules_match_and_what_they_make_is_equal() -> None:
    program = pooled(X)
    found = {r.rule: r.term for r in recall_mutants(program, library.load_partial_rules())}
    assert {"average-as-conv", "average-as-avg-pool"} <= found.keys()
    for term in found.values():
        assert not judge(program, term).unequal
        assert equal_positions(program, term).all()
        assert not any(t.op == "reciprocal" for t in subterms(term))


def test_a_certificate_is_judged_again() -> None:
    partial = stored("average-as-avg-pool")
    few = dataclasses.replace(
        partial.certificate, sizes=partial.certificate.sizes[:6], boxes=partial.certificate.boxes[:6], refused=()
    )
    assert certificate_objection(PartialRule(partial.rule, few)) is None
    boxes = (few.boxes[0] + 1, *few.boxes[1:])
    assert "not shown to hold" in str(certificate_objection(PartialRule(partial.rule, dataclasses.replace(few, boxes=boxes))))


def test_a_rule_that_is_wrong_is_refused_whatever_its_certificate_says() -> None:
    like = stored("average-as-avg-pool")
    assert "not shown to hold" in str(certificate_objection(certified(parse_rule(EVERYWHERE), like)))


def test_a_condition_that_is_not_needed_is_refused() -> None:
    like = stored("average-as-avg-pool")
    unpadded = drawn(like.family, 3, "p0 == 0, p1 == 0, p2 == 0, p3 == 0")
    padded = drawn(like.family, 3, "p0 + p1 >= 1")
    rule = dataclasses.replace(like.rule.statement, where=("p0 == 0", "p1 == 0", "p2 == 0", "p3 == 0"))
    narrow = certified(Rule("narrow", rule), like)
    certificate = dataclasses.replace(
        narrow.certificate,
        sizes=tuple(d.numbers for d in unpadded),
        boxes=(1, 1, 1),
        refused=tuple(d.numbers for d in padded),
    )
    assert "should not hold" in str(certificate_objection(PartialRule(narrow.rule, certificate)))


def test_a_changed_rule_is_not_read(tmp_path: Path) -> None:
    rules = [stored("average-as-avg-pool")]
    library.write("pooling", "About.", rules, tmp_path)
    assert [p.certificate for p in library.load_partial_rules(tmp_path)] == [rules[0].certificate]
    path = tmp_path / "partial" / "pooling.rules"
    path.write_text(path.read_text().replace("include_pads=1", "include_pads=0"))
    with pytest.raises(StoreError, match="there is no certificate of the rule in its present form"):
        library.load_partial_rules(tmp_path)


def test_a_certificate_of_another_definition_is_not_read(tmp_path: Path) -> None:
    library.write("pooling", "About.", [stored("average-as-avg-pool")], tmp_path)
    path = tmp_path / "partial" / "pooling.certificates.jsonl"
    (row,) = sealed_lines(path)
    path.write_text(sealed_line({**row, "specs": {**row["specs"], "avg_pool": "0" * 16}}))
    with pytest.raises(StoreError, match="there is no certificate of the rule in its present form"):
        library.load_partial_rules(tmp_path)
    path.write_text(sealed_line({k: v for k, v in row.items() if k != "sizes"}))
    with pytest.raises(StoreError, match="lacks sizes"):
        library.load_partial_rules(tmp_path)
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(StoreError, match="the entry of average-as-avg-pool was edited"):
        library.load_partial_rules(tmp_path)


def test_what_is_proved_for_all_sizes_has_a_proof_that_holds() -> None:
    proofs = [p for p in library.load_partial_rules() if p.proof is not None]
    assert len(proofs) >= 17
    for partial in proofs:
        assert partial.proof is not None
        assert (partial.proof.status, partial.proof.origin) == (ALL_SIZES, "mutants")
        few = dataclasses.replace(partial.certificate, sizes=(), boxes=(), refused=())
        assert proving.recheck_objection(dataclasses.replace(partial, certificate=few)) is None


def test_what_holds_at_some_sizes_alone_has_no_proof() -> None:
    assert not proving.attach_proof(stored("counted-average-as-avg-pool")).proved
    wrong = certified(parse_rule(EVERYWHERE), stored("average-as-avg-pool"))
    assert not proving.attach_proof(wrong).proved
    claimed = dataclasses.replace(
        wrong, certificate=dataclasses.replace(wrong.certificate, sizes=(), boxes=(), refused=()),
        proof=stored("average-as-avg-pool").proof,
    )  # fmt: skip
    assert "its proof does not hold" in str(proving.recheck_objection(claimed))


def test_a_proof_of_another_definition_is_not_read(tmp_path: Path) -> None:
    rules = [stored("average-as-conv")]
    library.write("pooling", "About.", rules, tmp_path)
    assert library.load_partial_rules(tmp_path) == rules
    path = tmp_path / "partial" / "pooling.proofs.jsonl"
    (row,) = sealed_lines(path)
    path.write_text(sealed_line({**row, "specs": {**row["specs"], "conv": "0" * 16}}))
    with pytest.raises(StoreError, match=r"specs/conv.py, or code that it uses, has changed"):
        library.load_partial_rules(tmp_path)
    path.unlink()
    assert [p.proved for p in library.load_partial_rules(tmp_path)] == [False]


def test_there_may_be_no_partial_rules(tmp_path: Path) -> None:
    assert library.load_partial_rules(tmp_path) == []


# ---------------------------------------------------------------- found


@pytest.mark.long
def test_a_small_family_gives_the_same_bytes_again(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        library.write("along", "Along one axis.", name_partial_rules(discover_mutants(ALONG, 0, drawn=6), 0), tmp_path / folder)
    one, other = (sorted((tmp_path / folder / "partial").iterdir()) for folder in ("one", "other"))
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in other]
    (partial,) = library.load_partial_rules(tmp_path / "one")
    assert partial.rule.statement.where == ()
    assert "include_pads=1" in partial.rule.statement.right
    assert "reciprocal" in partial.rule.statement.right
    assert isinstance(partial.certificate, PartialCertificate)


def test_expressions_of_few_operations_fit_first() -> None:
    names = {name: size(d) for name, d in zip("nhd", DILATED.atoms[:3], strict=True)}
    rows = {"n": (2, 3, 5, 2), "h": (8, 9, 12, 6), "d": (2, 3, 4, 3)}
    expressions = Expressions([NamedNumber(names[name], column) for name, column in rows.items()], 2)
    quotient, product = (next(expressions.fitting(c)) for c in ((4, 3, 3, 2), (8, 27, 80, 18)))
    assert str(quotient) == f"(({names['h']}) // ({names['d']}))"
    assert product == names["n"] * names["d"] * names["d"]
    assert next(expressions.fitting((7, 7, 7, 7))) == 7
    assert list(expressions.fitting((1001, 5, 90001, 17))) == []


def test_the_weakest_condition_tells_sizes_apart() -> None:
    every = drawn(DILATED, 120)
    rows = DILATED.atoms[2]
    (dilation,) = (a for a in DILATED.atoms if str(size(a)) == "d")
    good = [d for d in every if d.values[rows] % d.values[dilation] == 0]
    found = separating_conditions(DILATED, good, [d for d in every if d not in good])
    assert found is not None
    assert [c.text for c in found] == ["x.shape[-2] % d == 0"]
    assert all(d.holds(conjoin_stated(found)) == (d in good) for d in every)
    assert separating_conditions(DILATED, good, good) is None
    assert separating_conditions(DILATED, good, []) == ()


def test_as_many_conditions_are_taken_as_are_needed_each_the_simplest() -> None:
    extents, outputs = (
        [c for c in candidate_conditions(DILATED) if re.fullmatch(pattern, c.text)]
        for pattern in (r"(x\.shape\[-[12]\]|p[0-3]) % d == 0", r"\(.*\) % d == 0")
    )
    assert (len(extents), len(outputs)) == (6, 2)
    where = conjoin_stated(extents)
    less_one = [[o for o in extents if o is not one] for one in extents]
    every = [draw for some in ([], outputs, extents, *less_one) for draw in met(some)]
    found = separating_conditions(DILATED, [d for d in every if d.holds(where)], [d for d in every if not d.holds(where)])
    assert found is not None
    assert [c.text for c in found] == [c.text for c in extents]


def met(stated: list[StatedCondition]) -> list[FamilyDraw]:
    """Some sizes at which the conditions hold."""
    return list(islice(draws(DILATED, LARGER, np.random.default_rng(0), where=conjoin_stated(stated)), 80))


def test_draws_are_well_typed_and_their_neighbours_differ_in_one_number() -> None:
    one = drawn(DILATED, 1, "d >= 2")[0]
    assert all(near.program.rank == 4 for near in neighbours(one))
    steps = [[abs(a - b) for a, b in zip(one.numbers, near.numbers, strict=True)] for near in neighbours(one)]
    assert len(steps) > 8
    channels = {1, 5}
    assert all({k for k, step in enumerate(s) if step} <= channels or sum(s) == 1 for s in steps)


def test_no_neighbour_has_empty_data() -> None:
    one_row = FamilyDraw(DILATED, (1, 1, 1, 5, 1, 1, 1, 1, 1, 2, 0, 2, 0))
    near = list(neighbours(one_row))
    assert near
    assert min(n for draw in near for n in draw.numbers[:8]) == 1


# ---------------------------------------------------------------- in the search


def test_where_a_stored_rule_helps_nothing_is_enumerated() -> None:
    tally = MutantTally()
    found = search_mutants(
        (TWICE,), RuleSet([]), estimate=estimate, measure=slow_pools, tally=tally, partial=library.load_partial_rules()
    )
    assert tally.recalled >= 2
    assert (tally.enumerated, len(found.steps)) == (0, 2)
    assert found.steps[0].rule.startswith("~> average-as-")
    assert equal_positions(TWICE, found.outputs[0]).all()
    assert found.after == slow_pools(found.outputs) < found.before


def test_what_a_proved_rule_makes_is_not_judged_in_the_search() -> None:
    counts: list[tuple[int, str]] = []
    for rule in (stored("average-as-conv"), dataclasses.replace(stored("average-as-conv"), proof=None)):
        tally = MutantTally()
        found = search_mutants((TWICE,), RuleSet([]), estimate=estimate, measure=slow_pools, tally=tally, partial=[rule])
        counts.append((tally.judged, found.steps[0].rule.rpartition("; ")[2]))
        assert equal_positions(TWICE, found.outputs[0]).all()
    assert counts == [(0, "proved"), (1, "equal")]


def test_where_a_stored_rule_is_wrong_its_instance_is_corrected_or_refused() -> None:
    like = stored("average-as-avg-pool")
    wrong = certified(parse_rule(EVERYWHERE), like)
    found = search_mutants((TWICE,), RuleSet([]), estimate=estimate, measure=slow_pools, partial=[wrong])
    assert len(found.steps) == 2
    assert equal_positions(TWICE, found.outputs[0]).all()


def test_where_no_stored_rule_helps_mutants_are_enumerated() -> None:
    tally = MutantTally()
    wrong = certified(parse_rule(UNPADDED), stored("average-as-avg-pool"))
    found = search_mutants((TWICE,), RuleSet([]), estimate=estimate, measure=slow_pools, tally=tally, partial=[wrong])
    assert tally.recalled == 0 < tally.enumerated
    assert len(found.steps) == 2


def weighted(x: Term) -> Term:
    return apply("conv", x, variable("w", (6, 6, 3, 3), constant=True), pads=(2, 2, 2, 2), dilations=(2, 2))


def test_a_dilated_convolution_is_recalled_as_a_dense_one_where_the_dilation_divides_rows_and_columns() -> None:
    def dilations(program: Term) -> set[tuple[int, ...]]:
        found = [r.term for r in recall_mutants(program, library.load_partial_rules()) if r.rule.startswith("dilated")]
        assert all(not judge(program, term).unequal for term in found)
        return {t.integers("dilations") for term in found for t in subterms(term) if t.op == "conv"}

    assert dilations(weighted(X)) >= {(1, 1), (1, 2)}
    assert dilations(weighted(variable("x", (1, 6, 12, 13)))) >= {(1, 2)}
    for columns in (12, 13):
        assert (1, 1) not in dilations(weighted(variable("x", (1, 6, 25 - columns, columns))))


def slow_dilations(state: State) -> float:
    """A device on which convolutions take long on spaced rows, and longer on spaced rows and columns."""
    spaced = sum(n > 1 for t in subterms(*state) if t.op == "conv" for n in t.integers("dilations"))
    return estimate(state) + 1e-3 * spaced


def test_of_the_stored_rules_about_dilated_convolutions_the_search_takes_the_dense_one() -> None:
    wide, weight = variable("x", (1, 32, 24, 24)), variable("w", (64, 32, 3, 3), constant=True)
    program, rules = apply("conv", wide, weight, pads=(2, 2, 2, 2), dilations=(2, 2)), library.load_partial_rules()
    found = search_mutants((program,), RuleSet([]), estimate=estimate, measure=slow_dilations, partial=rules)
    assert [step.rule.startswith("~> dilated-as-conv") for step in found.steps] == [True]
    assert slow_dilations(found.outputs) == estimate(found.outputs)
    assert equal_positions(program, found.outputs[0]).all()


def test_a_convolution_of_single_pixels_is_recalled_as_a_product_of_matrices() -> None:
    def products(rows: int) -> list[Term]:
        program = apply("conv", X, variable("w", (5, 6, rows, 1), constant=True))
        found = [r.term for r in recall_mutants(program, library.load_partial_rules()) if r.rule == "pointwise-as-matmul"]
        assert all(not judge(program, term).unequal for term in found)
        assert all(equal_positions(program, term).all() for term in found)
        return found

    assert len(products(1)) == 1
    assert products(2) == []


# ---------------------------------------------------------------- commands


def test_the_command_line_shows_partial_rules_with_their_certificates(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "partial"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("average-as-avg-pool: avg_pool(x, kernel=k, strides=s, pads=p) ~> ") for line in lines)
    assert sum("judged equal at" in line for line in lines) == len(library.load_partial_rules())


def test_an_unknown_family_of_partial_rules_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--mutants", "--family", "nothing", "--output", str(tmp_path)]) == StoreError.exit_code
    assert capsys.readouterr().err == (
        "superopt: unknown family 'nothing': the families of partial rules are pooling, convolution\n"
    )


def test_stored_partial_rules_that_are_wrong_end_with_their_own_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    like = stored("average-as-avg-pool")
    few = PartialRule(
        like.rule,
        dataclasses.replace(like.certificate, sizes=like.certificate.sizes[:3], boxes=like.certificate.boxes[:3]),
    )
    monkeypatch.setattr(library, "load_partial_rules", lambda: [few])
    assert main(["prove", "--mutants"]) == 0
    said = "1 partial rules hold at 3 sizes, and do not at 0; 0 are proved for all sizes: 0 are not as certified"
    assert said in capsys.readouterr().out
    monkeypatch.setattr(library, "load_partial_rules", lambda: [certified(parse_rule(EVERYWHERE), few)])
    assert main(["prove", "--mutants"]) == UnprovedError.exit_code
