"""Replay refuses rules and proofs with random changes, and adds an axis to an equation only if the equation then holds."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from superopt.errors import InstantiationError, NotationError, ShapeError, SpecError, UnprovedError
from superopt.notation.parsing import Equation
from superopt.proof.axioms.replay import replay_proof, shorten_proof, type_objection
from superopt.proof.definitions import arithmetic
from superopt.proof.definitions.assumptions import Assumptions
from superopt.proof.definitions.batching import follows_by_batching, representatives
from superopt.proof.ledger import prove_store, write_proofs
from superopt.proof.recheck import is_converse_proof_pair, recheck_converses, recheck_proof, record_proof
from superopt.proof.sample import mismatch
from superopt.proof.verify import prove_rule
from superopt.rules.rule import Rule, digest, parse_rule
from superopt.rules.store import LedgerEntry, StoredRule, entry_of, load, read_family, spec_digests, write_family
from superopt.rules.verdict import Proved, Unknown

pytestmark = pytest.mark.slow

MUTANTS = 24
SEED = 5


def sides_differ(equation: Equation) -> bool:
    """Return whether random instances refute the equation, or whether only its right side is ill typed."""
    try:
        return type_objection(Assumptions(equation)) is not None or mismatch(equation, instances=12, seed=0) is not None
    except (InstantiationError, ShapeError):
        return False


def changed(text: str, other: str, rng: random.Random) -> str:
    """Return the text with one of its words, numbers or signs replaced by a random one from either text."""
    word = re.compile(r"[a-z_]+|[0-9]+|[-+*@]")
    here = rng.choice(list(word.finditer(text)))
    return f"{text[: here.start()]}{rng.choice(word.findall(text + other))}{text[here.end() :]}"


def mutants(rules: list[StoredRule], rng: random.Random) -> Iterator[tuple[StoredRule, Rule]]:
    """Yield wrong rules with the stored rules from which they are made.

    A wrong rule has a changed right side or lacks a condition.
    """
    while True:
        stored = rng.choice(rules)
        said = stored.rule.statement
        if said.where and rng.random() < 0.5:
            dropped = rng.choice(said.where)
            statement = replace(said, where=tuple(c for c in said.where if c != dropped))
        else:
            statement = replace(said, right=changed(said.right, said.left, rng))
        rule = Rule(stored.rule.name, statement)
        try:
            equations = rule.equations
        except (NotationError, ShapeError, SpecError, SyntaxError):
            continue
        if len(equations) <= 20 and any(map(sides_differ, equations)):
            yield stored, rule


def forged(stored: StoredRule, rule: Rule, folder: Path) -> str:
    """Store a rule with the proof of another rule, and return the verdict of the store's check."""
    ledger: LedgerEntry = replace(stored.entry, key=digest(rule), specs=spec_digests(rule, stored.entry.axioms))
    write_family("forged", "", [(rule, ledger)], folder)
    (row,) = prove_store(fresh=False, folder=folder)
    return row.word


@pytest.fixture(scope="module")
def rules() -> list[StoredRule]:
    return [stored for stored in load() if len(stored.entry.ranks) <= 10 and not stored.entry.bounded]


def test_wrong_rules_are_refused_whatever_proof_is_filed_with_them(rules: list[StoredRule], tmp_path: Path) -> None:
    found = mutants(rules, random.Random(SEED))
    kinds = set()
    for _ in range(MUTANTS):
        stored, rule = next(found)
        kinds.add((stored.entry.kind, bool(stored.rule.statement.where)))
        assert forged(stored, rule, tmp_path) != "proved", f"{rule} with the proof of {stored.rule}"
    assert len(kinds) == 4


def test_a_true_rule_needs_its_own_proof(rules: list[StoredRule]) -> None:
    rng = random.Random(SEED)
    with_proofs = [stored for stored in rules if len(stored.entry.instances) > 1]
    for stored in rng.sample(with_proofs, 12):
        others = rng.choice(with_proofs).entry.instances
        if set(others) != set(stored.entry.instances):
            assert isinstance(replay_proof(stored.rule, others), Unknown), stored.rule
        assert isinstance(replay_proof(stored.rule, stored.entry.instances[:0]), Unknown), stored.rule


def test_an_instance_that_is_not_used_is_refused_and_left_out_on_writing() -> None:
    rule = parse_rule("a: x @ y + x @ z => x @ (y + z) for x[2, 3], y[2], z[2]")
    needed, superfluous = "matmul.distribute-right(x=x, y=y, z=z)", "relu.twice(x=concat(y, w, axis=-1))"
    assert isinstance(replay_proof(rule, [needed]), Proved)
    assert isinstance(replay_proof(rule, [needed, superfluous.replace("w", "y")]), Proved | Unknown)
    wide = "concat.slice-first(x=x, y=y, k=-3)"
    verdict = replay_proof(rule, [needed, wide])
    assert isinstance(verdict, Unknown)
    assert wide in verdict.reason
    kept = shorten_proof(rule, [needed, wide])
    assert isinstance(kept, Proved)
    assert kept.instances == (needed,)


def test_writing_proofs_changes_nothing_but_proofs(tmp_path: Path) -> None:
    rule = parse_rule("a: x @ y + x @ z => x @ (y + z) for x[2, 3], y[2], z[2]")
    needed = "matmul.distribute-right(x=x, y=y, z=z)"
    proof = Proved(1.0, axioms=("concat.slice-first", "matmul.distribute-right"), kind="axioms")
    long = replace(proof, instances=("concat.slice-first(x=x, y=y, k=-3)", needed))
    write_family("matrix", "", [(rule, entry_of(rule, long, solver="none", origin="a test", samples=3))], tmp_path)
    text = (tmp_path / "matrix.rules").read_bytes()
    rows = list(prove_store(fresh=False, folder=tmp_path))
    assert [row.word for row in rows] == ["unknown"]
    with pytest.raises(UnprovedError, match="nothing is written"):
        write_proofs(rows, tmp_path)
    write_proofs(list(prove_store(fresh=False, record=True, folder=tmp_path)), tmp_path)
    ((_, entry),) = read_family("matrix", tmp_path)
    assert entry is not None
    assert (entry.instances, entry.axioms) == ((needed,), ("matmul.distribute-right",))
    assert (entry.origin, entry.samples) == ("a test", 3)
    assert (tmp_path / "matrix.rules").read_bytes() == text
    assert [row.word for row in prove_store(fresh=False, folder=tmp_path)] == ["proved"]


# ---------------------------------------------------------------- arithmetic questions that a check can skip


@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [
        ("sub(reciprocal(x), reciprocal(x)) + y", "sub(x, x) + y", "axioms"),
        ("sub(log(x), log(x)) + y", "sub(x, x) + y", "axioms"),
        ("x * reciprocal(x) * y", "y + sub(x, x)", "index"),
    ],
)
def test_a_proof_is_none_of_a_converse_that_is_defined_at_fewer_places(left: str, right: str, kind: str) -> None:
    rule, converse = parse_rule(f"a: {left} => {right} for x[1], y[1]"), parse_rule(f"b: {right} => {left} for x[1], y[1]")
    assert is_converse_proof_pair(rule, converse)
    proof = prove_rule(rule)
    assert isinstance(proof, Proved)
    assert proof.kind == kind
    one, other = recheck_converses((rule, proof), (converse, proof))
    assert isinstance(one, Proved)
    assert isinstance(other, Unknown)
    assert "not shown to be defined" in other.reason


def test_converse_rules_are_checked_together_as_each_by_itself(rules: list[StoredRule]) -> None:
    pairs = [(one, two) for one, two in itertools.pairwise(rules) if is_converse_proof_pair(one.rule, two.rule)]
    assert len(pairs) > 300
    for one, two in random.Random(SEED).sample(pairs, 12):
        known = (one.rule, one.entry.proof), (two.rule, two.entry.proof)
        together = recheck_converses(*known)
        assert [replace(v, milliseconds=0) for v in together] == [replace(recheck_proof(*k), milliseconds=0) for k in known]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Record the arithmetic questions that a proof asks, by digest, with their answers."""
    found: dict[str, bool] = {}
    answer = arithmetic._answer

    def noted(*question: Any) -> bool:
        holds = found[arithmetic._digest(*question)] = answer(*question)
        return holds

    monkeypatch.setattr(arithmetic, "_answer", noted)
    return found


def test_a_proof_is_recorded_with_the_questions_that_checking_it_can_do_without(
    rules: list[StoredRule], asked: dict[str, bool]
) -> None:
    from_definitions = [stored for stored in rules if stored.entry.kind == "index"]
    questions = 0
    for stored in random.Random(SEED).sample(from_definitions, 12):
        proof = record_proof(stored.rule, stored.entry.proof)
        assert isinstance(proof, Proved)
        assert not any(asked[name] for name in proof.unasked)
        asked.clear()
        again = recheck_proof(stored.rule, proof)
        assert isinstance(again, Proved), stored.rule
        assert not asked.keys() & set(proof.unasked)
        asked.clear()
        questions += len(proof.unasked)
    assert questions


def test_a_proof_without_an_answer_that_it_needs_is_refused(asked: dict[str, bool]) -> None:
    text = "a: slice(slice(x, axis=-1, stop=a), axis=-1, stop=b) => slice(x, axis=-1, stop=b) for x[1] where a >= b"
    rule = parse_rule(text)
    proof = record_proof(rule, Proved(0.0))
    assert isinstance(proof, Proved)
    assert any(asked.values())
    assert isinstance(recheck_proof(rule, replace(proof, unasked=tuple(asked))), Unknown)


# ---------------------------------------------------------------- one more axis


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        ("a: relu(relu(x)) => relu(x) for x[1, 2, 3, 4]", 1),
        ("a: relu(relu(x)) => relu(x) for x[0, 1, 2]", 1),
        ("a: x @ y + x @ z => x @ (y + z) for x[2, 3, 4], y[2, 3, 4], z[2, 3, 4]", 1),
        ("a: reduce_sum(relu(x), axes=(k,)) => reduce_sum(relu(x), axes=(k,)) for x[2, 3, 4], k[-1, -2, -3, -4]", 2),
        ("a: silu(concat(x, y, axis=k)) => concat(silu(x), silu(y), axis=k) for x[1, 2, 3], y[1, 2, 3], k[-1, -2, -3]", 1),
        ("a: softmax(x, axis=k) => softmax(x, axis=k) for x[1, 2, 3], k[-1, -2, -3]", 1),
        ("a: expand(t, shape=n, axes=(k,)) => expand(t, shape=n, axes=(k,)) for t[1], n[1, 2, 3], k[-1, -2, -3]", 1),
        ("a: reshape(x, shape=(x.shape[-1] * x.shape[-2],)) => reshape(x, shape=(x.shape[-1] * x.shape[-2],)) for x[2, 3]", 2),
    ],
)
def test_axes_on_which_every_operator_acts_apart_are_carried(text: str, apart: int) -> None:
    assert len(representatives(parse_rule(text).equations)) <= apart


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ("relu(relu(x)) => relu(x) for x[1]", "relu(relu(x)) => x for x[2]"),
        ("x + y => y + x for x[1], y[1]", "x + y => x + x for x[2], y[2]"),
        (
            "reduce_sum(x, axes=(-1,)) => reduce_sum(x, axes=(-1,)) for x[2]",
            "reduce_sum(x, axes=(-1,)) => reduce_sum(x, axes=(-2,)) for x[3]",
        ),
        ("softmax(x, axis=-1) => softmax(x, axis=-1) for x[1]", "softmax(x, axis=-1) => softmax(x, axis=-2) for x[2]"),
        (
            "reverse(x, axis=-1) => reverse(x, axis=-1) for x[1]",
            "reverse(x, axis=-1) => reverse(reverse(x, axis=-1), axis=-2) for x[2]",
        ),
        ("scale(x, factor=a) => scale(x, factor=a) for x[1]", "scale(x, factor=a) => scale(x, factor=2) for x[2]"),
        ("x @ y => x @ y for x[2], y[2]", "x @ y => x @ transpose(y, perm=(-3, -1, -2)) for x[3], y[3]"),
        ("x => x for x[1] where x.shape[-1] == 1", "x => x for x[2]"),
        ("x => slice(x, axis=-1, stop=x.shape[-1]) for x[1]", "x => slice(x, axis=-1, stop=x.shape[-2]) for x[2]"),
        (
            "concat(x, y, axis=-1) => concat(x, y, axis=-1) for x[1], y[1]",
            "concat(x, y, axis=-1) => concat(y, x, axis=-1) for x[2], y[2]",
        ),
    ],
)
def test_what_does_not_hold_slice_by_slice_is_not_carried(smaller: str, larger: str) -> None:
    (one,), (other,) = parse_rule(f"a: {smaller}").equations, parse_rule(f"a: {larger}").equations
    assert not follows_by_batching(other, one)


def test_no_wrong_equation_follows_from_a_right_one_with_an_axis_less(rules: list[StoredRule]) -> None:
    rng = random.Random(SEED)
    several = [stored for stored in rules if len(stored.entry.ranks) > 1]
    found = mutants(several, rng)
    tried = 0
    while tried < 10 * MUTANTS:
        stored, rule = next(found)
        for larger in filter(sides_differ, rule.equations):
            for smaller in stored.rule.equations:
                tried += 1
                assert not follows_by_batching(larger, smaller), f"{larger} from {smaller}"
