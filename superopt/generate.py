"""FLOW 1, on one page: enumerate -> dedupe -> verify -> prune -> store.

Terms are enumerated universe by universe and grouped by value; what two terms of one value suggest is dropped if rules already
kept say it, generalised, proved, and kept in the directions that serve a search.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from superopt import store
from superopt.discovery import SAMPLES, Counts, Discovery, Found
from superopt.find.enumerate import candidate_order, enumerate_universe
from superopt.find.families import FAMILIES, UNIVERSES
from superopt.find.join import joins
from superopt.find.universe import Universe
from superopt.prove.arithmetic import version

ABOUT = {
    "matrix": "Rules between elementwise operators, matrix products, pieces of tensors and reductions.",
    "convolution": "Rules about convolutions, pools, channels and the layout of images.",
}


@dataclass(frozen=True)
class Generation:
    """What a run found, universe by universe; `seconds` of processor time and the peak of the process's memory, in bytes."""

    seed: int
    counts: tuple[Counts, ...]
    rules: tuple[Found, ...]
    undecided: tuple[tuple[str, str], ...]
    seconds: float
    peak_bytes: int

    def of(self, family: str) -> tuple[Found, ...]:
        """The rules of one family, in the order in which they are stored."""
        return tuple(found for found in self.rules if found.family == family)


def generate(
    *,
    seed: int = 0,
    families: Sequence[str] = FAMILIES,
    folder: Path | None = None,
    progress: Callable[[Counts], None] = lambda _: None,
) -> Generation:
    """Finds, proves and stores the rules of the families; the same seed gives the same files.

    Families that come before one of those asked for are enumerated too, since their rules make others redundant.

    Raises:
        StoreError: the store cannot be written.
    """
    started = time.process_time()
    discovery = Discovery(seed)
    last = max(FAMILIES.index(family) for family in families)
    counts = []
    for universe in (u for u in UNIVERSES if FAMILIES.index(u.family) <= last):
        counts.append(explore(universe, discovery))
        progress(counts[-1])
    discovery.settle()
    for family in families:
        entries = [(f.rule, _entry(f)) for f in discovery.named(family)]
        store.write_family(family, ABOUT[family], entries, folder)
    store.write_refuted([*store.load_refuted(folder).values(), *discovery.rejected], folder)
    return Generation(
        seed=seed,
        counts=tuple(counts),
        rules=tuple(f for family in families for f in discovery.named(family)),
        undecided=tuple(discovery.undecided),
        seconds=time.process_time() - started,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def explore(universe: Universe, discovery: Discovery) -> Counts:
    """What one universe suggests is decided: small equalities first, then two outputs joined in one term."""
    started = time.process_time()
    enumeration = enumerate_universe(universe, discovery.seed)
    counts = Counts(universe.family, universe.name, enumeration.built, enumeration.graphs, len(enumeration.representatives))
    for candidate in [*sorted(enumeration.candidates, key=candidate_order), *joins(enumeration)]:
        counts.candidates += 1
        part = discovery.kept.part(candidate)
        if part is None:
            counts.redundant += 1
        else:
            discovery.decide(candidate, part, counts)
    counts.seconds = time.process_time() - started
    return counts


def _entry(found: Found) -> store.Entry:
    return store.entry_of(found.rule, found.proof, solver=version(), origin=found.origin, samples=SAMPLES, part=found.part)
