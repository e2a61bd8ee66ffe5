"""Segments, which are the parts of a model that are searched one by one, and the gains that the searches find.

A segment is a whole island (a convex region of the model), a window of consecutive nodes of an island, or a group of equal
islands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from superopt.algebra.value_analysis import Facts, join_facts
from superopt.errors import failure
from superopt.model.bodies import Scope
from superopt.model.islands import Chart, Island
from superopt.model.splice import Replacement
from superopt.rules.fp_flags import FpMode
from superopt.rules.rule import Rule
from superopt.search.absorption import absorption
from superopt.search.apply import State
from superopt.search.backtracking import SearchResult
from superopt.search.canonical import Canonical, canonical
from superopt.search.gate import Gate
from superopt.search.partition import windows
from superopt.search.reroll import reroll_recurrences
from superopt.search.ruleset import RuleSet
from superopt.search.schedule import states
from superopt.search.vanish import remove_vanishing

Runs: TypeAlias = "Mapping[Scope, float]"
"""The number of runs of each body (subgraph of a control-flow operator) in one run of the model. A body that is not in the
mapping runs once.
"""


@dataclass(frozen=True, eq=False)
class Segment:
    """A part of a model that one search rewrites.

    Attributes:
        island: The nodes of the segment, as terms.
        form: The segment's terms over numbered variables. Segments that differ only in names have the same terms.
        runs: The number of times that the segment runs in one run of the model. A segment in the body of a loop may run several
            times.
    """

    island: Island
    form: Canonical
    runs: float = 1.0

    @classmethod
    def of(cls, island: Island, runs: Runs) -> Segment:
        """Return the segment with the nodes of the island (a convex region of the model), over numbered variables."""
        return cls(island, canonical(tuple(island.outputs.values())), runs.get(island.scope, 1.0))

    @property
    def state(self) -> State:
        """The terms that the segment computes, over numbered variables (`x0`, `w0` and so on)."""
        return self.form.outputs

    @property
    def facts(self) -> dict[str, Facts]:
        """The known bounds and other facts of the values of the segment's numbered variables, by name."""
        return {name: self.island.facts[term.name] for name, term in self.form.names.items()}


LEFT = "left as it is: "
"""The prefix of the stop reason of a segment that could not be searched, for example because the segment could not be timed."""


@dataclass(frozen=True, eq=False)
class Gain:
    """The search result for segments (parts of a model) that are equal up to names.

    Attributes:
        copies: The segments.
        found: The search result.
        steps: The seconds that each step of the search result saves.
        bytes: The growth of the model's weights. Negative if the weights shrink.
        share_in_context: The quotient of two savings: the saving in the whole model, and the saving of the segments in
            isolation. The two savings differ if ONNX Runtime fuses the segments' nodes with surrounding nodes, or converts
            layouts around the segments.
    """

    copies: tuple[Segment, ...]
    found: SearchResult
    steps: tuple[float, ...]
    bytes: float = 0.0
    share_in_context: float = 1.0

    @property
    def seconds(self) -> float:
        """The seconds that all copies (equal segments) save in one run of the model, according to the cost model."""
        return (self.found.before - self.found.after) * self.runs * self.share_in_context

    @property
    def runs(self) -> float:
        """The total number of times that the copies (equal segments) run in one run of the model."""
        return sum(segment.runs for segment in self.copies)

    @property
    def left(self) -> str:
        """The reason why the segments could not be searched. Empty if the segments were searched."""
        return self.found.stopped.removeprefix(LEFT) if self.found.stopped.startswith(LEFT) else ""

    def halved(self) -> Gain | None:
        """Return a gain with only the first half of the steps. For a single step, return None.

        `bytes`, the growth of the weights, stays the same.
        """
        count = len(self.steps) // 2
        if not count:
            return None
        *_, outputs = states(self.copies[0].state, self.found.steps[:count])
        after = self.found.before - sum(self.steps[:count])
        found = replace(self.found, outputs=outputs, steps=self.found.steps[:count], after=after)
        return replace(self, found=found, steps=self.steps[:count])

    def replacements(self) -> Iterator[Replacement]:
        """Yield, for each copy (equal segment), the new terms for the copy's outputs in the model."""
        for segment in self.copies:
            terms = segment.form.restored(self.found.outputs)
            island = segment.island
            outputs = dict(zip(island.outputs, terms, strict=True))
            yield Replacement(outputs, island.dtype, island.conditions, island.sizings, island.scope)


def segments(chart: Chart, runs: Runs, *, between: bool = False) -> list[Segment]:
    """Cut all islands (convex regions of the model) into windows of consecutive nodes, and return the windows as segments.

    Islands that never run are left out. If `between` is True, the windows are shifted, so that each cut between two unshifted
    windows lies inside a shifted window.
    """
    return [
        Segment.of(chart.island(nodes), runs)
        for island in searchable_islands(chart, runs)
        for nodes in windows(island.nodes, island.reads, island.kinds, between=between)
    ]


def whole_islands(chart: Chart, runs: Runs) -> list[Segment]:
    """Return one segment for each island (convex region of the model). Islands that never run or have one node are left out."""
    return [Segment.of(island, runs) for island in searchable_islands(chart, runs) if len(island.nodes) > 1]


def parallel_islands(chart: Chart, runs: Runs) -> list[Segment]:
    """Return one segment for each group of equal islands that do not read the same values (see `Chart.parallel_islands`).

    Islands that never run are left out.
    """
    return [Segment.of(island, runs) for island in chart.parallel_islands() if runs.get(island.scope, 1.0)]


def searchable_islands(chart: Chart, runs: Runs) -> list[Island]:
    """Return the islands (convex regions) of the model that a search can divide into segments.

    Islands in control-flow bodies that never ran are left out, because changes in these bodies could not be measured or
    checked.
    """
    return [island for island in chart.islands() if runs.get(island.scope, 1.0)]


def relower(parts: Iterable[Segment], rules: Sequence[Rule], mode: FpMode = FpMode.FAST) -> tuple[Gain, ...]:
    """Return, for each segment (part of a model), a search result whose terms are the segment's own terms.

    If the results are applied to the model, the nodes of the segments are generated anew from these terms. A term is left out
    if a rule proves the term equal to one of its operands, as for `x + zeros`. No term is left out if the change would merge
    sums that must keep their rounding. There is no result for a segment with an unrolled recurrence. The reason is that an
    initial state of zeros would become a weight, and the first step of the recurrence would then differ from the later steps.
    """
    known, found = RuleSet(rules), list[Gain]()
    for part in parts:
        try:
            gate = gate_of([part], mode)
            gated = known.gated(gate)
            if reroll_recurrences(part.state, gated)[1]:
                continue
            state, steps = remove_vanishing(part.state, gated)
            if steps and gate.rounds_otherwise(state):
                state, steps = part.state, ()
        except Exception as error:  # noqa: BLE001
            failure(error)
            continue
        found.append(Gain((part,), SearchResult(state, steps, 0.0, 0.0, 0, ""), (0.0,) * len(steps)))
    return tuple(found)


def unsearched(copies: Iterable[Segment], why: str) -> Gain:
    """Return a search result with no steps for segments that could not be searched. `why` is the reason."""
    parts = tuple(copies)
    return Gain(parts, SearchResult(parts[0].state, (), 0.0, 0.0, 0, LEFT + why), ())


Passes: TypeAlias = "tuple[tuple[Gain, ...], ...]"


def gate_of(copies: Sequence[Segment], mode: FpMode, *, strict: bool = True) -> Gate:
    """Return the filter of rule matches in the floating-point mode `mode`, for segments that are equal up to names.

    The filter permits a match only if the known facts about the values of every segment permit the match.
    """
    first, *others = (segment.facts for segment in copies)
    facts = {name: join_facts(known, *(one[name] for one in others)) for name, known in first.items()}
    signed = any(segment.island.signed for segment in copies)
    relative = any(segment.island.relative for segment in copies)
    return Gate(mode, facts, absorption, strict=strict, signed_zeros=signed, relative=relative)
