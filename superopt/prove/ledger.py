"""The work of `superopt prove`: every axiom proved, every stored rule replayed or proved anew, a row for each."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from superopt.execute import in_order
from superopt.prove.arithmetic import version
from superopt.prove.index import prove_again, prove_axiom
from superopt.prove.replay import replay
from superopt.prove.sample import instantiations, mismatch_at
from superopt.prove.standing import resting_on_axioms
from superopt.prove.verify import prove
from superopt.rule import Rule, digest, laws
from superopt.store import Entry, entry_of, families, objection, read_family, spec_digests
from superopt.verdict import Counterexample, Proved, Refuted, Unknown, Verdict


@dataclass(frozen=True)
class Row:
    """What was found out about one axiom or rule. `how` is "definitions", "axioms", "index" or "replayed"."""

    name: str
    family: str
    rule: Rule
    verdict: Verdict
    how: str

    @property
    def milliseconds(self) -> float:
        return self.verdict.milliseconds

    @property
    def proved(self) -> bool:
        return isinstance(self.verdict, Proved)

    @property
    def bounded(self) -> tuple[str, ...]:
        """What was not left symbolic; empty for a proof about all sizes."""
        return self.verdict.bounded if isinstance(self.verdict, Proved) else ()

    @property
    def ranks(self) -> tuple[str, ...]:
        """The choices of ranks that the verdict covers."""
        return tuple(" ".join(f"{name}[{rank}]" for name, rank in e.ranks) for e in self.rule.equations)

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


def prove_axioms(*, seed: int = 0, workers: int = 1) -> Iterator[Row]:
    """Every axiom and regrouping law proved from the definitions, one row each, in alphabetical order."""
    known = sorted(laws().items())
    verdicts = in_order(_axiom, [(name, seed) for name, _ in known], workers=workers)
    for (name, law), verdict in zip(known, verdicts, strict=True):
        yield Row(name, name.partition(".")[0], law, verdict, "definitions")


def _axiom(name: str, seed: int) -> Verdict:
    return prove_axiom(laws()[name], seed=seed)


def axiom_entry(row: Row) -> Entry:
    """The ledger line for an axiom's row."""
    if isinstance(row.verdict, Proved):
        return replace(entry_of(row.rule, row.verdict, solver=version(), origin="specs"), name=row.name)
    specs = spec_digests(row.rule, ())
    return Entry(digest(row.rule), row.name, row.word, "index", row.word, (), row.ranks, (), (), version(), specs, "specs")


def prove_store(*, fresh: bool, seed: int = 0, workers: int = 1, folder: Path | None = None) -> Iterator[Row]:
    """Every stored rule checked, one row each: `fresh` proves it from nothing, otherwise its stored proof is replayed.

    Rules whose proof is stale get the verdict `Unknown`, unless `fresh`.

    Raises:
        StoreError: the store cannot be read.
    """
    known = [(family, *pair) for family in families(folder) for pair in read_family(family, folder)]
    verdicts = in_order(_checked, [(rule, entry, fresh, seed) for _, rule, entry in known], workers=workers)
    for (family, rule, _), verdict in zip(known, verdicts, strict=True):
        how = "replayed" if not fresh else verdict.kind if isinstance(verdict, Proved) else ""
        yield Row(rule.name, family, rule, verdict, how)


def _checked(rule: Rule, entry: Entry | None, fresh: bool, seed: int) -> Verdict:
    return prove(rule, seed=seed) if fresh else _replayed(rule, entry, seed)


def _replayed(rule: Rule, entry: Entry | None, seed: int) -> Verdict:
    """The stored proof of a rule, checked again without a search."""
    why = objection(rule, entry)
    if entry is None or why is not None:
        return Unknown(why or "no proof")
    if entry.kind == "index":
        return prove_again(rule, seed=seed)
    started = time.perf_counter()
    verdict = replay(rule, entry.instances)
    if isinstance(verdict, Proved):
        verdict = resting_on_axioms(verdict)
    return replace(verdict, milliseconds=(time.perf_counter() - started) * 1e3)


@dataclass(frozen=True)
class Sampled:
    """How a stored rule fared on random shape-legal instantiations, and where its sides differ, if anywhere."""

    name: str
    family: str
    instances: int
    mismatch: Counterexample | None


def sample_store(*, instances: int, seed: int = 0, workers: int = 1, folder: Path | None = None) -> Iterator[Sampled]:
    """Every stored rule on at least that many random instantiations, spread evenly over its choices of ranks.

    Raises:
        StoreError: the store cannot be read. InstantiationError: a rule's conditions leave no small sizes to try.
    """
    known = [(family, rule) for family in families(folder) for rule, _ in read_family(family, folder)]
    arguments = [(family, rule, -(-instances // len(rule.equations)), seed) for family, rule in known]
    yield from in_order(_sampled, arguments, workers=workers)


def _sampled(family: str, rule: Rule, each: int, seed: int) -> Sampled:
    tried = 0
    for equation in rule.equations:
        for instance in itertools.islice(instantiations(equation, np.random.default_rng(seed)), each):
            tried += 1
            found = mismatch_at(equation, instance, seed + tried)
            if found is not None:
                return Sampled(rule.name, family, tried, found)
    return Sampled(rule.name, family, tried, None)
