"""Verdicts on rules and on the store: the prover that answers, the proofs that are replayed, and stale proofs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from superopt.policy import PROCESS
from superopt.proof.axioms.standing import axiom_verdict
from superopt.proof.definitions.arithmetic import z3_solver_version
from superopt.proof.ledger import LedgerRow, axiom_proof_entry, prove_store, sample_store
from superopt.proof.verify import prove_rule
from superopt.rules.rule import Rule, axiom_laws, parse_rule, parse_rules
from superopt.rules.store import BOUNDED, LedgerEntry, entry_of, load, load_axioms, write_axioms, write_family
from superopt.rules.verdict import Proved, Refuted, Unknown

RULES = parse_rules(
    """
    factor:         x @ y + x @ z + x @ w => x @ (y + z + w)  for x[2, 3], y[2], z[2], w[2]
    undo:           x - (x - y) => y  for x[1, 2], y[1, 2]
    permuted:       transpose(transpose(x, perm=(-4, -1, -3, -2)), perm=(-4, -1, -3, -2))
                    => transpose(x, perm=(-4, -2, -1, -3))  for x[4]
    share:          (x @ y, x @ z) => (slice(m := x @ concat(y, z, axis=-1), axis=-1, stop=y.shape[-1]),
                    slice(m, axis=-1, start=y.shape[-1], stop=y.shape[-1] + z.shape[-1]))  for x[2, 3], y[2], z[2]
    """
)


def stored(rules: list[Rule]) -> list[tuple[Rule, LedgerEntry]]:
    found: list[tuple[Rule, LedgerEntry]] = []
    for rule in rules:
        verdict = prove_rule(rule)
        assert isinstance(verdict, Proved), rule
        found.append((rule, entry_of(rule, verdict, solver=z3_solver_version(), origin="a test", samples=200)))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("substitutions")
    write_family("matrix", "Rules of a test.", stored(RULES), where)
    return where


def test_what_axioms_do_not_reach_is_proved_from_the_definitions() -> None:
    for rule, kind in zip(RULES, ("axioms", "axioms", "index", "axioms"), strict=True):
        verdict = prove_rule(rule)
        assert isinstance(verdict, Proved), rule
        assert verdict.kind == kind
        assert bool(verdict.axioms) == bool(verdict.instances) == (kind == "axioms")
        assert verdict.milliseconds > 0


@pytest.mark.parametrize(
    "text",
    [
        "relu(x) => x for x[2]",
        "x @ y => y @ x for x[2], y[2] where x.shape[-2] == y.shape[-1]",
        "x => slice(x, axis=-1, start=0, stop=y.shape[-1]) for x[2], y[2]",
    ],
)
def test_what_is_false_is_refuted(text: str) -> None:
    assert isinstance(prove_rule(parse_rule(f"a: {text}")), Refuted)


def test_what_needs_more_than_the_left_side_gives_is_not_proved() -> None:
    verdict = prove_rule(parse_rule("a: conv(x, v) => conv(x, v + w - w) for x[4], v[4], w[4]"))
    assert isinstance(verdict, Unknown)
    assert "well typed" in verdict.reason


def test_proving_does_not_depend_on_what_was_proved_before() -> None:
    assert stored(RULES) == list(reversed(stored(list(reversed(RULES)))))


@pytest.mark.parametrize("fresh", [True, False])
def test_every_stored_rule_is_proved_again(folder: Path, fresh: bool) -> None:
    rows = list(prove_store(fresh=fresh, folder=folder))
    assert [(row.name, row.family, row.word) for row in rows] == [(rule.name, "matrix", "proved") for rule in RULES]
    assert [row.how for row in rows] == (["axioms", "axioms", "index", "axioms"] if fresh else ["replayed"] * 4)
    assert rows[1].ranks == ("x[1] y[1]", "x[2] y[2]")
    assert all(row.milliseconds > 0 for row in rows)
    for row, loaded in zip(rows, load(folder), strict=True):
        assert isinstance(row.verdict, Proved)
        if loaded.entry.kind == "axioms":
            assert set(row.verdict.instances) == set(loaded.entry.instances)


def test_sides_are_compared_at_the_wanted_number_of_instances(folder: Path) -> None:
    sampled = list(sample_store(instances=4, folder=folder))
    assert [(one.name, one.family, one.instances, one.mismatch) for one in sampled] == [
        (rule.name, "matrix", 4, None) for rule in RULES
    ]


def test_other_processes_prove_the_same_in_the_same_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superopt.worker_pool.PROCESS", replace(PROCESS, chunk_task_count=1))
    alone, spread = (
        [
            (row.name, row.how, replace(row.verdict, milliseconds=0.0))
            for row in prove_store(fresh=True, folder=folder, workers=n)
        ]
        for n in (1, 2)
    )
    assert alone == spread


def test_an_edited_rule_is_stale_until_it_is_proved_afresh(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    path = tmp_path / "matrix.rules"
    path.write_text(path.read_text(encoding="utf-8").replace("x - (x - y)", "y - (y - y)"), encoding="utf-8")
    by_name = {row.name: row for row in prove_store(fresh=False, folder=tmp_path)}
    assert by_name["undo"].word == "unknown"
    assert by_name["factor"].word == "proved"
    by_name = {row.name: row for row in prove_store(fresh=True, folder=tmp_path)}
    assert by_name["undo"].word == "proved"


def test_the_axioms_have_a_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = LedgerRow(
        "matmul.associativity", "matmul", axiom_laws()["matmul.associativity"], Proved(3.0, ("g in 1, 2",)), "definitions"
    )
    failed = LedgerRow("relu.twice", "relu", axiom_laws()["relu.twice"], Unknown("not found"), "definitions")
    write_axioms([axiom_proof_entry(bounded), axiom_proof_entry(failed)], tmp_path)
    ledger = load_axioms(tmp_path)
    assert ledger["matmul.associativity"].status == BOUNDED
    assert ledger["relu.twice"].verdict == "unknown"
    monkeypatch.setattr("superopt.proof.axioms.standing.axiom_ledger", lambda: ledger)
    axiom_verdict.cache_clear()
    try:
        assert axiom_verdict("matmul.associativity") == Proved(0.0, ("g in 1, 2",))
        assert isinstance(axiom_verdict("relu.twice"), Unknown)
        assert isinstance(axiom_verdict("add.regroup"), Proved)
    finally:
        axiom_verdict.cache_clear()
