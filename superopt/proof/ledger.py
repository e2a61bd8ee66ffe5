"""The implementation of the command `superopt prove`.

The command proves every axiom, and replays or renews the proof of every stored rule.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from superopt.errors import UnprovedError
from superopt.policy import PROOF
from superopt.proof.definitions.arithmetic import z3_solver_version
from superopt.proof.definitions.index import prove_axiom
from superopt.proof.recheck import is_converse_proof_pair, prove_and_record, recheck_converses, recheck_proof, record_proof
from superopt.proof.sample import instantiations, mismatch_at
from superopt.proof.verify import prove_rule
from superopt.rules.rule import Rule, axiom_laws, digest
from superopt.rules.store import LedgerEntry, entry_of, families, ledger_objection, read_family, spec_digests, write_ledger
from superopt.rules.verdict import Counterexample, Proved, Refuted, Unknown, Verdict
from superopt.worker_pool import map_in_order

Stored: TypeAlias = "tuple[Rule, LedgerEntry | None]"
Checked: TypeAlias = "tuple[Verdict, tuple[str, ...]]"


@dataclass(frozen=True)
class LedgerRow:
    """The verdict on one axiom or rule.

    Attributes:
        how: How the verdict was reached: "definitions" for an axiom, "axioms" or "index" for a new proof of a rule, or
            "replayed" for a stored proof. The text is empty if a search for a new proof failed.
        ranks: The choices of ranks at which the axiom or rule is stated.
        entry: The ledger entry of a stored rule, if there is one.
    """

    name: str
    family: str
    rule: Rule
    verdict: Verdict
    how: str
    ranks: tuple[str, ...] = ()
    entry: LedgerEntry | None = None

    @property
    def milliseconds(self) -> float:
        return self.verdict.milliseconds

    @property
    def proved(self) -> bool:
        return isinstance(self.verdict, Proved)

    @property
    def bounded(self) -> tuple[str, ...]:
        """The limits of the proof, such as `g in 1, 2, 3, 4` for a group count g.

        The result is empty if the proof covers all sizes.
        """
        return self.verdict.bounded if isinstance(self.verdict, Proved) else ()

    @property
    def word(self) -> str:
        """The verdict in one word."""
        match self.verdict:
            case Proved():
                return "proved"
            case Refuted():
                return "refuted"
            case Unknown():
                return "unknown"


def prove_axioms(*, operators: Collection[str] = (), seed: int = 0, workers: int = 1) -> Iterator[LedgerRow]:
    """Prove every axiom and every regrouping law from the definitions. Yield a row for each axiom and each regrouping law, in
    alphabetical order.

    A regrouping law states that the operands of an operator such as `add` can be grouped and ordered in any way. If `operators`
    is not empty, only the axioms and regrouping laws of these operators are proved.
    """
    known = sorted((name, law) for name, law in axiom_laws().items() if not operators or name.partition(".")[0] in operators)
    verdicts = map_in_order(_axiom, [(name, seed) for name, _ in known], workers=workers)
    for (name, law), (verdict, choices) in zip(known, verdicts, strict=True):
        yield LedgerRow(name, name.partition(".")[0], law, verdict, "definitions", choices)


def _axiom(name: str, seed: int) -> tuple[Verdict, tuple[str, ...]]:
    law = axiom_laws()[name]
    return prove_axiom(law, seed=seed), law.choices


def axiom_proof_entry(row: LedgerRow) -> LedgerEntry:
    """Return the ledger entry for the verdict on an axiom. The ledger is the file of stored verdicts."""
    if isinstance(row.verdict, Proved):
        return replace(entry_of(row.rule, row.verdict, solver=z3_solver_version(), origin="specs"), name=row.name)
    specs = spec_digests(row.rule, ())
    return LedgerEntry(
        digest(row.rule), row.name, row.word, "index", row.word, (), row.ranks, (), (), z3_solver_version(), specs, "specs"
    )


def prove_store(
    *, fresh: bool, record: bool = False, seed: int = 0, workers: int = 1, folder: Path | None = None
) -> Iterator[LedgerRow]:
    """Check every stored rule and yield a row for each rule.

    If `fresh` is True, each rule is proved anew. Otherwise the stored proof is checked without a search. If a stored proof is
    outdated, the verdict is `Unknown`. If `record` is False, a stored proof with an unused axiom instance also has the verdict
    `Unknown`. If `record` is True, the returned proof contains no unused axiom instances. The returned proof then also lists
    the arithmetic questions that a later check can skip.

    Raises:
        StoreError: The store cannot be read.
    """
    known: list[tuple[str, Rule, LedgerEntry | None]] = []

    def stored() -> Iterator[Stored]:
        for family in families(folder):
            for rule, entry in read_family(family, folder):
                known.append((family, rule, entry))
                yield rule, entry

    if fresh:
        checked = map_in_order(
            _proved, ((rule, record, seed) for rule, _ in stored()), workers=workers, chunk=PROOF.replayed_rule_count
        )
    else:
        groups = map_in_order(
            _replayed, ((group, record) for group in _together(stored())), workers=workers, chunk=PROOF.replayed_rule_count
        )
        checked = itertools.chain.from_iterable(groups)
    for place, (verdict, choices) in enumerate(checked):
        family, rule, entry = known[place]
        how = "replayed" if not fresh else verdict.kind if isinstance(verdict, Proved) else ""
        yield LedgerRow(rule.name, family, rule, verdict, how, choices, entry)


def _proved(rule: Rule, record: bool, seed: int) -> Checked:
    return prove_and_record(rule, seed=seed) if record else prove_rule(rule, seed=seed), rule.choices


def _together(stored: Iterable[Stored]) -> Iterator[tuple[Stored, ...]]:
    """Split the sequence of rules into groups of one or two neighboring rules.

    Two neighboring rules form one group if they are converses: each rule, read from right to left, is the other rule.
    """
    waiting: Stored | None = None
    for pair in stored:
        if waiting is not None and is_converse_proof_pair(waiting[0], pair[0]):
            yield waiting, pair
            waiting = None
            continue
        if waiting is not None:
            yield (waiting,)
        waiting = pair
    if waiting is not None:
        yield (waiting,)


def _replayed(stored: Sequence[Stored], record: bool) -> list[Checked]:
    """Check the stored proofs of `stored`, which is one rule, or a rule and its converse (the rule read from right to left)."""
    known = [(rule, entry.proof) for rule, entry in stored if entry is not None and ledger_objection(rule, entry) is None]
    if record:
        verdicts = [record_proof(rule, proof) for rule, proof in known]
    else:
        verdicts = recheck_converses(*known) if len(known) == 2 else [recheck_proof(rule, proof) for rule, proof in known]
    found = dict(zip([rule.name for rule, _ in known], verdicts, strict=True))
    return [(found.get(rule.name) or Unknown(ledger_objection(rule, entry) or ""), rule.choices) for rule, entry in stored]


def write_proofs(rows: Sequence[LedgerRow], folder: Path | None = None) -> None:
    """Write the proofs in the rows to the ledgers of the rules' families. The rules and their origins stay unchanged.

    Raises:
        StoreError: A ledger cannot be written.
        UnprovedError: The rule of a row is not proved. In this case, nothing is written.
    """
    lines: dict[str, list[LedgerEntry]] = {}
    for row in rows:
        if not isinstance(row.verdict, Proved):
            raise UnprovedError(f"nothing is written, because {row.name} is not proved ({row.verdict})")
        found = entry_of(row.rule, row.verdict, solver=z3_solver_version())
        if row.entry is not None:
            known = row.entry
            found = replace(found, origin=known.origin, samples=known.samples, part=known.part)
            found = replace(found, flags=known.flags, flags_basis=known.flags_basis)
        lines.setdefault(row.family, []).append(found)
    for family, entries in lines.items():
        write_ledger(family, entries, folder)


@dataclass(frozen=True)
class Sampled:
    """The result of comparing both sides of a stored rule on random instances.

    Attributes:
        instances: The number of instances that were tried.
        mismatch: The counterexample, or None if the sides agree at all instances.
    """

    name: str
    family: str
    instances: int
    mismatch: Counterexample | None


def sample_store(*, instances: int, seed: int = 0, workers: int = 1, folder: Path | None = None) -> Iterator[Sampled]:
    """Compare the sides of every stored rule on random instances, and yield a result for each rule.

    At least `instances` instances are tried for each rule, unless a counterexample is found earlier. Instances (choices of
    sizes and attributes) are spread evenly over the rule's choices of ranks.

    Raises:
        StoreError: The store cannot be read.
        InstantiationError: A rule's conditions exclude all small sizes.
    """
    known = [(family, rule) for family in families(folder) for rule, _ in read_family(family, folder)]
    arguments = [(family, rule, -(-instances // len(rule.equations)), seed) for family, rule in known]
    yield from map_in_order(_sampled, arguments, workers=workers)


def _sampled(family: str, rule: Rule, each: int, seed: int) -> Sampled:
    tried = 0
    for equation in rule.equations:
        for instance in itertools.islice(instantiations(equation, np.random.default_rng(seed), stubborn=True), each):
            tried += 1
            found = mismatch_at(equation, instance, seed + tried)
            if found is not None:
                return Sampled(rule.name, family, tried, found)
    return Sampled(rule.name, family, tried, None)
