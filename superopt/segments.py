"""Segments: the windows of a model's islands, each distinct one searched once, and what that gained for all its copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from superopt.absorption import absorption
from superopt.errors import failure
from superopt.fp_flags import FpMode
from superopt.model.bodies import Scope
from superopt.model.islands import Chart, Island
from superopt.model.splice import Replacement
from superopt.rewrite.apply import State
from superopt.rewrite.canonical import Canonical, canonical
from superopt.rewrite.gate import Gate
from superopt.rewrite.partition import windows
from superopt.rewrite.ruleset import RuleSet
from superopt.rewrite.schedule import states
from superopt.rewrite.search import Found
from superopt.rewrite.vanish import vanished
from superopt.rule import Rule
from superopt.value_facts import Facts, joined

Runs: TypeAlias = "Mapping[Scope, float]"
"""How often each body of a model runs when the model runs once; what is not listed does so once."""


@dataclass(frozen=True, eq=False)
class Segment:
    """A window of an island, and the form that it shares with every segment that differs from it in names alone.

    `runs` is how often it runs when the model runs once, which in the body of a loop may be more than once.
    """

    island: Island
    form: Canonical
    runs: float = 1.0

    @property
    def state(self) -> State:
        """What the segment computes, over numbered variables."""
        return self.form.outputs

    @property
    def facts(self) -> dict[str, Facts]:
        """The facts of the numbered variables."""
        return {name: self.island.facts[term.name] for name, term in self.form.names.items()}


LEFT = "left as it is: "
"""How the reason begins for which the search of a segment stopped that could not be searched, be it timed or lowered."""


@dataclass(frozen=True, eq=False)
class Gain:
    """What the search found for segments that are equal up to names.

    `steps` are the seconds that each step saves, `bytes` how much larger the model's weights become (negative: smaller).
    """

    copies: tuple[Segment, ...]
    found: Found
    steps: tuple[float, ...]
    bytes: float = 0.0

    @property
    def seconds(self) -> float:
        """What all copies save in a run, by the cost model."""
        return (self.found.before - self.found.after) * self.runs

    @property
    def runs(self) -> float:
        """How often the copies run, taken together, when the model runs once."""
        return sum(segment.runs for segment in self.copies)

    @property
    def left(self) -> str:
        """Why the segments were left as they are, where they could not be searched; empty elsewhere."""
        return self.found.stopped.removeprefix(LEFT) if self.found.stopped.startswith(LEFT) else ""

    def halved(self) -> Gain | None:
        """The first half of the steps, weights taken to grow as they do by all of them; None where there is only one."""
        count = len(self.steps) // 2
        if not count:
            return None
        *_, outputs = states(self.copies[0].state, self.found.steps[:count])
        after = self.found.before - sum(self.steps[:count])
        found = replace(self.found, outputs=outputs, steps=self.found.steps[:count], after=after)
        return replace(self, found=found, steps=self.steps[:count])

    def replacements(self) -> Iterator[Replacement]:
        """What to compute the copies' outputs by."""
        for segment in self.copies:
            terms = segment.form.restored(self.found.outputs)
            island = segment.island
            outputs = dict(zip(island.outputs, terms, strict=True))
            yield Replacement(outputs, island.dtype, island.conditions, island.sizings, island.scope)


def segments(chart: Chart, runs: Runs, *, between: bool = False) -> list[Segment]:
    """The windows of all islands that run; with `between`, those in which the seams of the others lie."""
    return [
        _segment(chart.island(nodes), runs)
        for island in running(chart, runs)
        for nodes in windows(island.nodes, island.reads, island.kinds, between=between)
    ]


def whole(chart: Chart, runs: Runs) -> list[Segment]:
    """Every island of several nodes that runs as one segment."""
    return [_segment(island, runs) for island in running(chart, runs) if len(island.nodes) > 1]


def running(chart: Chart, runs: Runs) -> list[Island]:
    """The islands but for those of bodies that never ran: what is done there would be neither measured nor checked."""
    return [island for island in chart.islands() if runs.get(island.scope, 1.0)]


def written(parts: Iterable[Segment], rules: Sequence[Rule], mode: FpMode = FpMode.FAST) -> tuple[Gain, ...]:
    """What changes nothing but the nodes by which the segments are computed: those that lowering writes, without such as the
    rules say compute what is there already.
    """
    known, found = RuleSet(rules), list[Gain]()
    for part in parts:
        try:
            state, steps = vanished(part.state, known.gated(gate_of([part], mode)))
        except Exception as error:  # noqa: BLE001
            failure(error)
            continue
        found.append(Gain((part,), Found(state, steps, 0.0, 0.0, 0, ""), (0.0,) * len(steps)))
    return tuple(found)


def left(copies: Iterable[Segment], why: str) -> Gain:
    """Segments that stay as they are, for they could not be searched."""
    parts = tuple(copies)
    return Gain(parts, Found(parts[0].state, (), 0.0, 0.0, 0, LEFT + why), ())


def _segment(island: Island, runs: Runs) -> Segment:
    return Segment(island, canonical(tuple(island.outputs.values())), runs.get(island.scope, 1.0))


Passes: TypeAlias = "tuple[tuple[Gain, ...], ...]"


def gate_of(copies: Sequence[Segment], mode: FpMode, *, strict: bool = True) -> Gate:
    """The gate for segments that are equal up to names: it admits what the facts of every one of them allow."""
    first, *others = (segment.facts for segment in copies)
    facts = {name: joined(known, *(one[name] for one in others)) for name, known in first.items()}
    return Gate(mode, facts, absorption, strict=strict)
