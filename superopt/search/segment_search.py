"""The search over a model's segments, which are the parts of the model that are searched one by one.

Each distinct segment is searched once. A faster equivalent of a segment is used only if a second measurement confirms the gain.
Results are cached.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from superopt.algebra.dim_binding import DimBinding
from superopt.algebra.operators import specs_folder
from superopt.algebra.terms import Term, subterms
from superopt.budget import active_time, expired
from superopt.cost.measure import Clock
from superopt.cost.segment_cost import Measured
from superopt.errors import InvalidModelError, ShapeError, failure
from superopt.model.available_fusions import contrib_fusions, fusions_at_opset, recognizable_operators
from superopt.model.islands import Island
from superopt.partial.families import MUTANTS
from superopt.policy import COMPARISON, OPTIMIZATION, SEARCH
from superopt.rules.accuracy import is_fast_algorithm_rule
from superopt.rules.fp_flags import FpMode
from superopt.rules.rule import Rule
from superopt.runtime.cache import Part, json_digest, json_number
from superopt.runtime.result_cache import cache_code_digest, digest_of_packages
from superopt.search import roofline
from superopt.search.apply import State, run_time_terms
from superopt.search.backtracking import Cost, SearchLimits, SearchResult, search
from superopt.search.fuse import ORDERS, fusion_states, with_fusions, with_single_operators
from superopt.search.gate import Gate
from superopt.search.island import search_island
from superopt.search.mutants import MutantTally, search_mutants
from superopt.search.rearrangement import rearrangements
from superopt.search.recognition import recognized_rules
from superopt.search.recombination import recombinations
from superopt.search.record import record_terms_as_json, result_from_json, result_to_json
from superopt.search.ruleset import RuleSet, only_reshapes
from superopt.search.schedule import Find, gains, search_all, unchanged_result, weight_elements
from superopt.search.search_log import SearchLog
from superopt.search.segments import LEFT, Gain, Segment, gate_of, unsearched
from superopt.search.vanish import search_cleaned

MACHINES = {"cpu": roofline.CPU, "cuda": roofline.CUDA, "tensorrt": roofline.CUDA}
"""The assumed speeds of a device without measured speeds, by execution provider."""
SEARCHING = ("algebra", "cost", "model", "notation", "partial", "protobuf", "rules", "runtime", "search", "speclib")
"""The packages of superopt whose code determines the results of a search, together with specs/."""


@functools.cache
def search_code_version() -> str:
    """Return a digest of the code that searches segments and measures their times. A cached search result is valid only if the
    digest is unchanged.
    """
    return json_digest([digest_of_packages(SEARCHING), cache_code_digest(specs_folder().glob("*.py"))])


@dataclass(frozen=True, eq=False)
class SegmentTask:
    """The arguments of the search of one segment (a part of a model). `start` contains the segment's output terms."""

    start: State
    rules: RuleSet
    estimate: Cost
    measure: Cost
    limits: SearchLimits

    def restricted(self, gate: Gate, weights: Cost, room: float) -> SegmentTask:
        """Return the task with rules filtered by the gate, and with an infinite cost for inadmissible states.

        The gate is the filter for the floating-point mode. A state is inadmissible if its weights exceed the weights of the
        start by more than `room` elements, or if the gate rejects a reordered sum in the state. An inadmissible state is never
        the result of the search, because the cost of the state is infinite. In the precise mode, an inadmissible state also has
        an infinite estimate, so that no sequence of steps leads through the state.
        """
        most = weights(self.start) + room

        def admitted(cost: Cost) -> Cost:
            def cost_if_admitted(state: State) -> float:
                if weights(state) > most or (state != self.start and gate.rounds_otherwise(state)):
                    return math.inf
                return cost(state)

            return cost_if_admitted

        estimate = admitted(self.estimate) if gate.mode is FpMode.PRECISE else self.estimate
        limits = replace(self.limits, room=room)
        return replace(self, rules=self.rules.gated(gate), estimate=estimate, measure=admitted(self.measure), limits=limits)


@dataclass(frozen=True, eq=False)
class Batch:
    """Segments of one element type that are searched by one method, `find`.

    Attributes:
        find: The search method.
        island: The island (a convex region of the model) from which one of the segments is cut.
        measured: Measurements of segments of this element type.
        glanced: Quick measurements with warm caches, for searches for mutants (cheaper terms in place of operators).
        gates: For each segment, the filter of rule matches for the floating-point mode.
        rooms: For each segment, the number of elements by which its weights may grow.
        runs: For each segment, the number of times that the segment and its copies run in one run of the model.
        repeated: Whether the segments are searched again because a deadline ended the first search.
        latest: The active time at which every search must end.
    """

    find: Find
    island: Island
    measured: Measured
    glanced: Measured
    gates: Mapping[State, Gate]
    rooms: Mapping[State, float]
    runs: Mapping[State, float]
    repeated: bool
    latest: float


class SegmentSearch:
    """The search for cheaper equivalents of the segments (parts) of one model.

    A segment's cost is the time on the clock's device, summed over all `sizings` (sizes for the dynamic dimensions). The
    results of an earlier search with the same rules and the same `budget` are read from the clock's cache.

    Args:
        rules: The rules of the search.
        clock: Measures and caches times.
        opset: The opset of the model. A term that equals the definition of an operator in this opset can be replaced by the
            operator.
        sizings: The sizes of dynamic dimensions at which segments are timed.
        budget: The search budget in seconds. The budget is part of the key of cached results.
        allow_contrib: Whether terms may also be replaced by ONNX Runtime's own operators.
        mode: The floating-point mode.
        strict: See `Gate`.
        log: The log of the search.

    Attributes:
        tally: Counts of the work of searches for mutants.
        recognition_seconds: The seconds that are left for the recognition of operators.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        clock: Clock,
        opset: int,
        sizings: Sequence[DimBinding],
        budget: float,
        *,
        allow_contrib: bool,
        mode: FpMode,
        strict: bool,
        log: SearchLog,
    ) -> None:
        self.mode, self.strict, self.log = mode, strict, log
        mutants = [rule for rule in rules if rule.family == MUTANTS]
        algorithms = [rule for rule in rules if is_fast_algorithm_rule(rule)]
        apart = {rule.name for rule in (*algorithms, *mutants)}
        others = [rule for rule in rules if not (rule.name in apart or only_reshapes(rule))]
        self.rules = RuleSet(others, algorithms, mutants)
        standard, own = fusions_at_opset(opset), contrib_fusions() if allow_contrib else ()
        self.stated = [rule for rule in standard if ORDERS.isdisjoint(rule.operators)]
        ordered = tuple(rule for rule in standard if rule not in self.stated)
        self.fusions = [RuleSet(some) for some in dict.fromkeys(((*ordered, *own), own)) if some]
        self.recognizable = recognizable_operators(allow_contrib=allow_contrib)
        self.recognition_seconds = SEARCH.recognition_time_share * max(budget, OPTIMIZATION.min_search_seconds)
        self.clock = clock
        self.opset = opset
        self.sizings = sizings
        self.machine = machine(clock)
        texts = [f"{rule} {sorted(rule.flags)}" for rule in (*rules, *standard, *own)]
        calibration = [*astuple(self.machine)] if clock.roofline is not None else []
        self.settings = [search_code_version(), json_digest(texts), *clock.settings, opset, budget, *calibration]
        self.tally = MutantTally()

    def gains(
        self,
        parts: Sequence[Segment],
        deadline: float,
        *,
        find: Find = search,
        weight_budget: float = math.inf,
        repeated: bool = False,
        latest: float = math.inf,
    ) -> Iterator[Gain]:
        """Search each distinct segment, and yield its gain (the search result for all copies of the segment).

        A gain has no steps if no equivalent is cheaper, or if the segment cannot be timed or written as ONNX nodes. Together,
        the weights of all copies of a segment grow by at most `weight_budget` bytes. If the model's weights fit in the
        last-level cache, the weights must still fit after operators get alternative algorithms. Weights that no longer fit
        would make the remaining nodes slower than measured. If `repeated` is True, a deadline ended an earlier search of the
        segments, and the cached results of that search are not used.

        The searches end at the active time `deadline`, or later by the time for replacements of terms by single operators, but
        not after the active time `latest`.
        """
        by_type: dict[str, list[Segment]] = {}
        for part in parts:
            by_type.setdefault(part.island.dtype.name, []).append(part)
        for same_type in by_type.values():
            island = same_type[0].island
            copies: dict[State, list[Segment]] = {}
            for part in same_type:
                copies.setdefault(part.state, []).append(part)
            for state, why in self._inadmissible(copies).items():
                yield unsearched(copies.pop(state), why)
            elements, dtype = weight_budget / island.dtype.itemsize, island.dtype.numpy()
            batch = Batch(
                find,
                island,
                Measured(self.clock, self.opset, dtype=dtype),
                Measured(self.clock.warm(), self.opset, dtype=dtype),
                gates={state: gate_of(alike, self.mode, strict=self.strict) for state, alike in copies.items()},
                rooms={state: elements / len(alike) for state, alike in copies.items()},
                runs={state: sum(segment.runs for segment in alike) for state, alike in copies.items()},
                repeated=repeated,
                latest=latest,
            )
            growth = elements if self.clock.cold else min(elements, self.clock.spare / island.dtype.itemsize)
            for state, found in search_all(
                batch.runs,
                self.rules,
                estimate=self._estimate,
                measure=functools.partial(self._measure, batch.measured, island.sizings),
                deadline=deadline,
                limits=SearchLimits(growth=growth),
                find=functools.partial(self._search_segment, batch),
                on_timeout=functools.partial(self._search_segment, batch, in_time=False),
            ):
                yield self._gain(batch, copies[state], found)

    def _gain(self, batch: Batch, copies: Sequence[Segment], found: SearchResult) -> Gain:
        """Convert the search result for a segment into the gain for all copies of the segment, and return the gain."""
        state, island = copies[0].state, batch.island
        try:
            saved = self._saved(state, found, self._measure(batch.measured, island.sizings, state)) if found.steps else ()
            more = self._weights(found.outputs) - self._weights(state)
        except Exception as error:  # noqa: BLE001
            return unsearched(copies, failure(error))
        return Gain(tuple(copies), found, tuple(saved), more * len(copies) * island.dtype.itemsize)

    def _search_segment(
        self,
        batch: Batch,
        start: State,
        rules: RuleSet,
        /,
        *,
        estimate: Cost,
        measure: Cost,
        limits: SearchLimits | None,
        in_time: bool = True,
    ) -> SearchResult:
        """Return the cheapest equivalent of a segment. If a stage fails, return the unchanged segment with the reason.

        The stages run in this order:

        1. `restricted` applies the gate (the filter for the floating-point mode) and the weight budget. The gate and the weight
           budget are part of the cache key.
        2. `_recall` looks in the cache before anything is measured. Cached results have already been confirmed.
        3. For a whole island, `_recognize` replaces terms by single operators that compute the same functions.
        4. `_find` searches. Terms that compute nothing are removed first, because they prevent rules from matching.
        5. For a whole island, `_fuse` and `_recognize` put single operators in place of terms that the search has created.
        6. `_confirm` comes last, because it measures the gain of all steps together.

        If `in_time` is False, only the cache is used, and a segment that is not in the cache stays unchanged.
        """

        def result() -> SearchResult:
            if not in_time:
                return unchanged_result(start, estimate)
            find = self._find_in_island if batch.find is search_island else self._find
            found = self._fuse(batch, task, find(batch, task))
            return self._confirm(batch, task, self._recognize(batch, task, found, self.stated))

        try:
            task = SegmentTask(start, rules, estimate, measure, limits or SearchLimits())
            task = task.restricted(batch.gates[start], self._weights, batch.rooms[start])
            whole = batch.find is not search_mutants
            counted = self.log.counted_measure(task.measure, start, batch.runs[start], whole=whole)
            task = replace(task, estimate=self.log.counted_estimate(task.estimate), measure=counted)
            return self._recall(batch, task, result)
        except Exception as error:  # noqa: BLE001
            return replace(unchanged_result(start, estimate), stopped=LEFT + failure(error))

    def _recall(self, batch: Batch, task: SegmentTask, result: Callable[[], SearchResult]) -> SearchResult:
        """Return the cached result of an earlier search of an equal segment with the same settings.

        If there is no cached result, return and cache `result()`. If there was no time to search the segment, `result()`
        returns the unchanged segment, and this result is cached too.
        """
        sizes = [[*map(str, sizings)] for sizings in (self.sizings, batch.island.sizings)]
        key = [
            "found",
            getattr(batch.find, "__name__", ""),
            batch.island.dtype.name,
            *sizes,
            *self.settings,
            task.limits.growth,
            task.limits.room,
            record_terms_as_json(task.start)[0],
            batch.gates[task.start].key,
            batch.repeated,
        ]
        return result_from_json(self.clock.cache.kept(key, lambda: result_to_json(result())))

    def _find_in_island(self, batch: Batch, task: SegmentTask) -> SearchResult:
        """Replace terms of a whole island by single operators if this makes the island faster, and search the result.

        The search ends later by the time of these replacements, which would otherwise leave little time for a large island. But
        the search does not end after `Batch.latest`. The replacements may have been timed as a whole, which the sum of the
        kernels' times does not show. So the cost of the result is scaled by the ratio of both times.
        """
        start = active_time()
        begun = self._recognize(batch, task, unchanged_result(task.start, task.measure), ())
        extended = min(task.limits.deadline + active_time() - start, batch.latest)
        limits = replace(task.limits, deadline=max(task.limits.deadline, extended))
        found = self._find(batch, replace(task, start=begun.outputs, limits=limits))
        if not begun.steps:
            return found
        scale = begun.after / max(found.before, SEARCH.min_seconds) if math.isfinite(found.before) else 1.0
        steps, expanded = (*begun.steps, *found.steps), begun.expanded + found.expanded
        return replace(found, steps=steps, before=begun.before, after=found.after * scale, expanded=expanded)

    def _find(self, batch: Batch, task: SegmentTask) -> SearchResult:
        """Search the segment with the batch's search method, and return the result.

        A search for mutants also gets quick measurements with warm caches, and a store for its results in the time cache.
        """
        if batch.find is not search_mutants:
            find = search_island if batch.find is search_island else functools.partial(search_cleaned, batch.find)
            return find(task.start, task.rules, estimate=task.estimate, measure=task.measure, limits=task.limits)
        island = batch.island
        return search_mutants(
            task.start,
            task.rules,
            estimate=task.estimate,
            measure=task.measure,
            glance=self._measure(batch.glanced, island.sizings, task.start),
            faster=functools.partial(self._faster, batch.measured, island.sizings),
            limits=task.limits,
            memory=Part(self.clock.cache, [search_code_version(), *self.clock.settings, self.opset, island.dtype.name]),
            tally=self.tally,
        )

    def _fuse(self, batch: Batch, task: SegmentTask, found: SearchResult) -> SearchResult:
        """Apply fusions to the search result of an island if they make the island faster, and return the new result.

        A fusion replaces a term by an operator whose definition equals the term. Two sets of fusions are tried: all available
        fusions, and only the fusions to ONNX Runtime's own operators. If the search method is not `search_island`, the result
        `found` is returned unchanged.
        """
        if batch.find is not search_island:
            return found
        faster = self._fusion_faster(batch.measured, batch.island.sizings, task.measure, batch.latest)
        fusions = (some.gated(task.rules.gate) for some in self.fusions)
        return min((found, *(with_fusions(found, some, faster=faster) for some in fusions)), key=lambda f: f.after)

    def _recognize(self, batch: Batch, task: SegmentTask, found: SearchResult, stated: Sequence[Rule]) -> SearchResult:
        """Replace terms of a whole island by single operators where this makes the island faster, and return the new result.

        The fusions in the list `stated` are tried too. If the search method is not `search_island`, the result `found` is
        returned unchanged.
        """
        if batch.find is not search_island:
            return found
        faster = self._fusion_faster(batch.measured, batch.island.sizings, task.measure, batch.latest)
        start = active_time()
        deadline, gate = min(start + self.recognition_seconds, batch.latest), batch.gates[task.start]
        rules = RuleSet((*recognized_rules(found.outputs, self.recognizable, deadline), *stated)).gated(gate)
        others = functools.partial(self._replacements, gate=gate, deadline=deadline)
        others(found.outputs)
        self.recognition_seconds -= active_time() - start
        return with_single_operators(found, rules, faster=faster, others=others)

    def _replacements(self, state: State, *, gate: Gate, deadline: float) -> dict[str, dict[Term, Term]]:
        """Return replacements of terms by operators that move elements or combine several tensors.

        See `rearrangements` and `recombinations`.
        """
        names = self.recognizable
        return rearrangements(state, gate, deadline) | recombinations(state, names, gate, deadline)

    def _confirm(self, batch: Batch, task: SegmentTask, found: SearchResult) -> SearchResult:
        """If a second measurement confirms the gain, return the search result. Otherwise, return the unchanged start.

        A result in which the gate rejects a reordered sum is not confirmed.
        """
        gate = batch.gates[task.start]
        if not found.steps or (not gate.rounds_otherwise(found.outputs) and self._stands(task.start, found, batch.measured)):
            return found
        return replace(found, outputs=task.start, steps=(), after=found.before)

    def _inadmissible(self, states: Iterable[State]) -> dict[State, str]:
        """Find the states that cannot be searched. Return a mapping from these states to the reasons.

        An example of a reason is a shape that does not fit at some size of a dynamic dimension.
        """
        found: dict[State, str] = {}
        for state in states:
            try:
                if not math.isfinite(self._estimate(state)):
                    found[state] = "the cost of the segment cannot be estimated"
                self._weights(state)
            except Exception as error:  # noqa: BLE001
                found[state] = failure(error)
        return found

    def contrib_potential_seconds(self, parts: Sequence[Segment], seconds: float) -> float:
        """Return the seconds that ONNX Runtime's own operators would save in one run of the model.

        A fusion replaces a term by one of ONNX Runtime's own operators. The savings of fusions that are not examined within
        `seconds` are not counted. The first of the `sizings` gives the sizes of the dynamic dimensions. Results are stored in
        the time cache.
        """
        rules, total, deadline = RuleSet(contrib_fusions()), 0.0, active_time() + seconds
        for part in parts:
            try:
                state, gate = self._at(part.state), gate_of([part], self.mode, strict=self.strict)
            except ShapeError:
                continue
            key = ["forgone", part.island.dtype.name, *self.settings, record_terms_as_json(state)[0], gate.key]
            saved = functools.partial(self._fusion_gain, state, rules.gated(gate), part.island, deadline)
            total += json_number(self.clock.cache.kept(key, saved)) * part.runs
        return total

    def _fusion_gain(self, state: State, rules: RuleSet, island: Island, deadline: float) -> float:
        """Return the seconds that fusions (rules that replace a term by one operator) would save in one run of the state.

        The state has no dynamic dimensions.
        """
        if expired(deadline) or next(fusion_states(state, rules), None) is None:
            return 0.0
        measured = Measured(self.clock, self.opset, dtype=island.dtype.numpy())
        try:
            cost = measured.seconds(state, state)
            faster = self._fusion_faster(measured, (), lambda other: measured.seconds(other, state), deadline)
            return cost - with_fusions(SearchResult(state, (), cost, cost, 0, ""), rules, faster=faster).after
        except (InvalidModelError, ShapeError):
            return 0.0

    def _fusion_faster(
        self, measured: Measured, everywhere: Sequence[DimBinding], measure: Cost, deadline: float = math.inf
    ) -> Callable[[State, State], float]:
        """Return a function that computes the speedup of a second state over a first state.

        After the deadline, the function returns 0.

        The quotient of the two costs is the speedup according to the sums of the kernels' times. If the first state takes at
        least `COMPARISON.long_run_seconds`, the speedup is this quotient. A slow state is not timed as a whole, because the
        timing would take long. For a slow state, the sums are accurate enough, because the overhead between kernels is
        relatively small. If the first state takes at least `SEARCH.min_summed_seconds` and the quotient predicts no gain, the
        quotient is returned too. In all other cases, both states are timed as a whole.
        """

        def faster(before: State, after: State) -> float:
            if expired(deadline):
                return 0.0
            cost = measure(before)
            by_sums = cost / max(measure(after), SEARCH.min_seconds)
            hopeless = cost >= SEARCH.min_summed_seconds and by_sums < 1 + SEARCH.min_gain_share
            if hopeless or cost >= COMPARISON.long_run_seconds:
                return by_sums
            return self._faster(measured, everywhere, before, after)

        return faster

    def _faster(self, measured: Measured, everywhere: Sequence[DimBinding], before: State, after: State) -> float:
        """Return the smallest speedup of `after` over `before` among all `sizings`. If a state cannot be run, return 0.

        The `sizings` give sizes to the dynamic dimensions.
        """
        try:
            if len(everywhere) > 1:
                measured.require_expressible(after)
            pairs = dict.fromkeys((self._at(before, s), self._at(after, s)) for s in self.sizings)
            return min(itertools.starmap(measured.ratio, pairs))
        except (InvalidModelError, ShapeError):
            return 0.0

    def _saved(self, state: State, found: SearchResult, measure: Cost) -> list[float]:
        """Return the seconds that each step of the search result `found` saves.

        A small state is measured after each step. For a large state, the measured gain of all steps together is divided among
        the steps in proportion to the estimated gains of the steps.
        """
        if len(subterms(*state)) <= SEARCH.max_measured_terms:
            return gains(state, found.steps, measure)
        shares = gains(state, found.steps, self._estimate)
        return [share * (found.before - found.after) / (sum(shares) or 1.0) for share in shares]

    def _at(self, state: State, sizing: DimBinding | None = None) -> State:
        """Return the state with numbers in place of the dynamic dimensions."""
        return tuple(map((sizing or self.sizings[0]).at, state))

    def _weights(self, state: State) -> int:
        return weight_elements(self._at(state))

    def _estimate(self, state: State) -> float:
        return sum(roofline.estimate_seconds(self._at(state, s), self.machine) for s in self.sizings)

    def _stands(self, state: State, found: SearchResult, measured: Measured) -> bool:
        """Return whether a second measurement confirms the search result.

        The start must have a finite cost. The result must not be slower for any of the `sizings`, and `_holds` must confirm the
        gain.
        """
        known = math.isfinite(found.before)
        return known and self._pays(state, found.outputs, measured) and self._holds(state, found, measured)

    def _pays(self, before: State, after: State, measured: Measured) -> bool:
        """Return whether `after` takes at most as long as `before` for all `sizings` (sizes for the dynamic dimensions)."""
        if len(self.sizings) == 1:
            return True
        pairs = ((self._at(before, s), self._at(after, s)) for s in self.sizings)
        return all(measured.seconds(late, early) <= measured.seconds(early, early) for early, late in pairs)

    def _holds(self, before: State, found: SearchResult, measured: Measured) -> bool:
        """Return whether a second measurement confirms the gain for at least one of the `sizings`.

        The `sizings` give sizes to the dynamic dimensions. A second measurement is needed because the search measured each
        state separately. However, a result that computes nothing at run time is confirmed without a second measurement. If the
        run time of the start state is long, a large predicted speedup is accepted and a tiny predicted speedup is rejected
        without a second measurement.
        """
        if not run_time_terms(found.outputs):
            return True
        predicted = found.before / max(found.after, SEARCH.min_seconds)
        if (
            found.before >= COMPARISON.long_run_seconds
            and not 1 + SEARCH.min_gain_share < predicted < SEARCH.clear_speedup_factor
        ):
            return predicted >= SEARCH.clear_speedup_factor
        return any(
            measured.stands(self._at(before, s), self._at(found.outputs, s), predicted, SEARCH.min_gain_share)
            for s in self.sizings
        )

    def _measure(self, measured: Measured, everywhere: Sequence[DimBinding], start: State) -> Cost:
        """Return a cost function for states that are equivalent to `start`. The cost of a state is its run time in seconds.

        The state and `start` are timed alternately. The times for all `sizings` (sizes for the dynamic dimensions) are added.
        The cost is infinite if the state cannot be run.
        """

        def seconds(state: State) -> float:
            try:
                if len(everywhere) > 1:
                    measured.require_expressible(state)
                return sum(measured.seconds(self._at(state, s), self._at(start, s)) for s in self.sizings)
            except (InvalidModelError, ShapeError):
                return math.inf

        return seconds


def machine(clock: Clock) -> roofline.Machine:
    """Return the speeds of the clock's device: operations per second, bytes per second, and seconds per kernel launch.

    The speeds are used for estimates. A device without measured speeds gets the default speeds of its provider.
    """
    measured = clock.roofline
    if measured is None:
        return MACHINES[clock.device.provider]
    operations, traffic = measured.peaks
    return roofline.Machine(operations, traffic, measured.call + measured.node)
