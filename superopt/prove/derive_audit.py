"""A second opinion on a minimal core: egglog, at numbers, on every rule that is said not to follow from the others.

Where the sides saturate apart, that is decided. Where egglog joins them at two instances that have nothing in common, the
symbolic search is tried again with wide limits; what it still does not derive is contested, and counted.
"""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np

from superopt.errors import InstantiationError, ShapeError
from superopt.graph import subterms
from superopt.prove.definedness import is_partial
from superopt.prove.derive import Laws, derivable, operators_of
from superopt.prove.derive_chain import Chain
from superopt.prove.derive_egglog import Outcome, outcome
from superopt.prove.ematch import Direction
from superopt.prove.instance import Instance, instantiations
from superopt.prove.saturate import Limits
from superopt.rule import Rule
from superopt.text import Equation

WIDE = Limits(rounds=24, terms=1_500, steps=60_000, growth=((0, 2), (2, 4), (4, 8), (8, 14), (20, 30)))
DRAWS = 24
SEEDS = (0, 1)
MEMORY = 3 << 30
"""Bytes of memory that a process may take in which egglog looks at one instance."""


@dataclass(frozen=True)
class Opinion:
    """What egglog says of one rule, given all others, and the derivation where the symbolic search found one after all."""

    rule: Rule
    outcome: Outcome
    chains: tuple[Chain, ...] | None = None

    @property
    def contested(self) -> bool:
        """Whether egglog joins the sides and no chain is known."""
        return self.outcome is Outcome.JOINED and self.chains is None


def opinions(rules: Sequence[Rule], workers: int = 1) -> Iterator[Opinion]:
    """An opinion on each rule, in their order: one choice of ranks at which its sides stay apart settles it."""
    laws = Laws(rules)
    with ExitStack() as closed, ThreadPoolExecutor(workers) as threads:
        idle = SimpleQueue[Apart]()
        for _ in range(workers):
            idle.put(closed.enter_context(closing(Apart())))

        def opinion(position: int) -> Opinion:
            apart = idle.get()
            try:
                return _opinion(laws, rules[position], position, apart)
            finally:
                idle.put(apart)

        yield from threads.map(opinion, range(len(rules)))


def _opinion(laws: Laws, rule: Rule, position: int, apart: Apart) -> Opinion:
    """On the rule, given the laws but for that at the position."""
    said = Outcome.JOINED
    for equation in rule.equations:
        said = _at(equation, laws, position, apart)
        if said is not Outcome.JOINED:
            break
    chains = derivable(rule, laws, WIDE, {position}) if said is Outcome.JOINED else None
    return Opinion(rule, said, chains)


def _at(equation: Equation, laws: Laws, position: int, apart: Apart) -> Outcome:
    """Apart where the sides are at either instance, joined where they are at both."""
    allowed = laws.grown(operators_of(subterms(*equation.left, *equation.right)))
    every = (d for found in laws.among(allowed, {position}).values() for d in found)
    readings = [d for d in every if not (laws.directed(d.axiom) and _divides(d))]
    said: list[Outcome] = []
    for seed in SEEDS:
        try:
            said.append(apart.outcome(equation, generic(equation, seed), readings))
        except (InstantiationError, ShapeError):
            said.append(Outcome.LIMIT)
        if said[-1] is Outcome.APART:
            return Outcome.APART
    return Outcome.LIMIT if Outcome.LIMIT in said else Outcome.JOINED


def _divides(reading: Direction) -> bool:
    """Whether a left side is read where it may be undefined: `x / x` for 1. All would be joined where `x` is 0."""
    return reading.source is reading.equation.right[0] and any(map(is_partial, subterms(reading.target)))


class Apart:
    """A process beside this one that may take so many bytes of memory; another takes its place when it needed more."""

    def __init__(self, memory: int = MEMORY) -> None:
        self._memory = memory
        self._process: ProcessPoolExecutor | None = None

    def outcome(self, equation: Equation, instance: Instance, readings: Sequence[Direction]) -> Outcome:
        """`derive_egglog.outcome`, found there; a limit is reached where the memory does not do.

        Raises:
            ShapeError: a side is not well typed there.
        """
        if self._process is None:
            self._process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _limit, (self._memory,))
        try:
            return self._process.submit(_outcome, equation, instance, readings).result()
        except (BrokenProcessPool, MemoryError):
            self.close()
            return Outcome.LIMIT

    def close(self) -> None:
        """The process has ended."""
        if self._process is not None:
            self._process.shutdown()
            self._process = None


def _outcome(equation: Equation, instance: Instance, readings: Sequence[Direction]) -> Outcome:
    try:
        return outcome(equation, instance, readings)
    except (Exception, KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001 (what egglog raises where it gets no memory is no Exception, and cannot be sent)
        return Outcome.LIMIT


def _limit(memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def generic(equation: Equation, seed: int) -> Instance:
    """Of some random instances, the one whose numbers coincide least, with each other and with 0, 1 and 2.

    Raises:
        InstantiationError: there is no instance.
    """
    drawn = instantiations(equation, np.random.default_rng(seed))
    return min((next(drawn) for _ in range(DRAWS)), key=_coincidences)


def _coincidences(instance: Instance) -> int:
    extents = [n for shape in instance.shapes.values() for n in shape]
    values = [*dict.fromkeys(extents), *instance.attributes.values()]
    return len(values) - len(set(values)) + sum(v in (0, 1, 2, -1) for v in values)
