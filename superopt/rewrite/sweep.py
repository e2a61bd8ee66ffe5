"""Sweeps: a rule of one output applied at all of its places in a whole island at once, and again to what that makes.

What pays only when it is done everywhere no window shows: a product of every time step moved in front of the slices that take
the steps apart costs more at each of them, and at all of them together it is one product. Sweeps are followed by estimate
alone, several of them one after another, and only ends that are estimated cheaper are measured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from superopt.errors import ShapeError
from superopt.graph import Term, subterms
from superopt.match import Match
from superopt.op import apply, rebuild
from superopt.rewrite.apply import State, Step
from superopt.rewrite.lookahead import GAIN
from superopt.rewrite.ruleset import RuleSet
from superopt.rewrite.search import NOISE, OUT_OF_TIME, Cost, Found, Limits

SWEPT = "no sweep gains more"
MEASURED = 3
"""How many of the states that are estimated cheaper are measured, the cheapest first."""


@dataclass(frozen=True)
class Reach:
    """How many sweeps follow one another, how many states go from one to the next, and how often a rule is applied anew."""

    depth: int = 5
    beam: int = 5
    again: int = 6


@dataclass(frozen=True)
class Swept:
    """A state, the sweeps that lead to it, and its estimate."""

    state: State
    steps: tuple[Step, ...]
    estimate: float


def sweep(start: State, rules: RuleSet, *, estimate: Cost, measure: Cost, limits: Limits | None = None) -> Found:
    """The cheapest state that sweeps reach, those that begin where others ended included; `start` if nothing is cheaper."""
    within = limits or Limits()
    found = Found(start, (), cost := measure(start), cost, 0, SWEPT)
    while True:
        sweeper = Sweeper(rules, estimate, within.alpha * estimate(found.outputs), within.deadline)
        ends = sorted(sweeper.cheaper(found.outputs), key=lambda end: end.estimate)
        measured = [(measure(end.state), end) for end in ends[:MEASURED]]
        stopped = OUT_OF_TIME if time.monotonic() >= within.deadline else SWEPT
        found = replace(found, expanded=found.expanded + len(measured), stopped=stopped)
        after, best = min(measured, key=lambda pair: pair[0], default=(math.inf, None))
        if best is None or after >= found.after * (1 - NOISE):
            return found
        found = replace(found, outputs=best.state, steps=(*found.steps, *best.steps), after=after)
        if stopped == OUT_OF_TIME:
            return found


@dataclass(frozen=True)
class Sweeper:
    """Sweeps within limits: states are estimated no dearer than `ceiling`, and nothing is begun after `deadline`."""

    rules: RuleSet
    estimate: Cost
    ceiling: float
    deadline: float
    reach: Reach = Reach()

    def cheaper(self, start: State) -> Iterator[Swept]:
        """States that sweeps lead to and that are estimated cheaper than `start`, as they are met."""
        here = self.estimate(start)
        seen = {start}
        frontier = [Swept(start, (), here)]
        for _ in range(self.reach.depth):
            ahead: list[Swept] = []
            for swept in frontier:
                for end in self._ends(swept):
                    if end.state not in seen:
                        seen.add(end.state)
                        ahead.append(end)
                        if end.estimate < here * (1 - GAIN):
                            yield end
            frontier = sorted(ahead, key=lambda s: s.estimate)[: self.reach.beam]

    def _ends(self, start: Swept) -> Iterator[Swept]:
        """For each rule, where its sweep leads; then where repeating it leads."""
        for rule, matches in self._places(start.state).items():
            swept = start
            for again in range(self.reach.again):
                if time.monotonic() >= self.deadline:
                    return
                found = matches if not again else self._places(swept.state, rule).get(rule, [])
                after = self._swept(swept, rule, found)
                if after is None or after.state == swept.state:
                    break
                swept = after
                yield swept

    def _places(self, state: State, only: str = "") -> Mapping[str, list[Match]]:
        """The matches of each rule of one output that has more than one, or of one rule; operands before what uses them."""
        live = [t for t in subterms(*state) if not t.is_variable and not t.constant]
        found: dict[str, list[Match]] = {}
        for term in live:
            for name, match in self.rules.matches(term, lambda _: ()):
                if only in ("", name):
                    found.setdefault(name, []).append(match)
        return {name: matches for name, matches in found.items() if only or len(matches) > 1}

    def _swept(self, start: Swept, rule: str, matches: Sequence[Match]) -> Swept | None:
        """The state with a match at each of the roots rewritten; None if it is too dear."""
        wanted: dict[Term, Term] = {}
        for match in matches:
            wanted.setdefault(match.roots[0], match.replacements[0])
        done: dict[Term, Term] = {}
        try:
            for term in subterms(*start.state):
                if term in wanted:
                    done[term] = rebuild(wanted[term], {}, done)
                elif any(done.get(a, a) is not a for a in term.args):
                    done[term] = apply(term.op, *(done.get(a, a) for a in term.args), **dict(term.attributes))
        except ShapeError:
            return None
        state = tuple(done.get(root, root) for root in start.state)
        estimate = self.estimate(state)
        if estimate > self.ceiling:
            return None
        roots = tuple(wanted)
        return Swept(state, (*start.steps, Step(rule, roots, tuple(done[r] for r in roots))), estimate)
