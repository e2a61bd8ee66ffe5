"""The search for mutants: cheaper terms that equal an operator at some output positions. The remaining positions are corrected.

A program is an operator application that is a polynomial in its operands. A mutant is a term that has the program's inputs and
output shape, and equals the program at some output positions. Each program is examined only once per device. Stored rules that
generalise mutants are matched first. If no rule helps, mutants are enumerated.

The cost of a mutant does not depend on the values of its weights, so mutants are timed with variables as weights. First, a
quick measurement times only the nodes that do arithmetic. Then all nodes are timed. If the mutant is cheaper than the best
mutant so far, the values of its weights are computed.

If the mutant is not proved equal to the program, the wrong positions are determined and corrected, and the mutant is measured
again with the correction. The corrected mutants are then tried in the program's place. The costs of programs and mutants
include alternative algorithms for their operators, because a mutant may save time only with an alternative algorithm.
"""

from __future__ import annotations

import functools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol, TypeAlias

from superopt.algebra.terms import Term
from superopt.budget import active_time, expired
from superopt.errors import Undecidable
from superopt.partial.correct import corrections
from superopt.partial.judge import Judgement, judge
from superopt.partial.mutate import Mutant, Program, Sketch, sketches
from superopt.policy import MUTANT, SEARCH
from superopt.runtime.cache import Json
from superopt.search.algorithm import algorithm_sites, with_algorithms
from superopt.search.apply import PARTLY, State, Step, run_time_terms
from superopt.search.backtracking import OUT_OF_TIME, Cost, SearchLimits, SearchResult
from superopt.search.corrected_mutant import (
    CorrectedMutant,
    Memory,
    exchange_program,
    mutant_search_program,
    mutants_from_json,
    mutants_to_json,
)
from superopt.search.record import record_terms_as_json
from superopt.search.ruleset import RuleSet
from superopt.search.schedule import weight_elements


@dataclass
class MutantTally:
    """Counters that a search for mutants updates.

    A program is an operator application that the search tries to replace. A mutant is a term that equals the program at some
    output positions. A corrected mutant is a mutant whose wrong elements are replaced by correct elements.

    Attributes:
        programs: Programs that were examined.
        remembered: Programs for which an earlier search stored complete results.
        recalled: Mutants that stored rules give.
        enumerated: Mutants from enumeration.
        measured: Mutants that were timed.
        solved: Mutants whose constant operands (weights) were computed.
        judged: Mutants that were compared with their programs.
        corrected: Corrected mutants.
        positions: Output positions at which mutants were compared with their programs.
        total: All output positions of the judged mutants.
        seconds: CPU seconds of each stage.
    """

    programs: int = 0
    remembered: int = 0
    recalled: int = 0
    enumerated: int = 0
    measured: int = 0
    solved: int = 0
    judged: int = 0
    corrected: int = 0
    positions: int = 0
    total: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the CPU time inside the context, and add the time to the stage `name`."""
        start = time.process_time()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start


Faster: TypeAlias = "Callable[[State, State], float]"
"""A function that returns the time of the first state divided by the time of the second state."""


class MutantDraft(Protocol):
    """A mutant (a cheaper term in place of an operator) whose weights are not computed yet.

    `term` contains variables in place of weights. The cost of `term` can be measured with these variables. `solved` computes
    the weights.
    """

    @property
    def term(self) -> Program: ...

    def solved(self) -> Mutant | None: ...


@dataclass(frozen=True)
class StoredMutant:
    """A mutant (a cheaper term in place of an operator) that a stored rule gives.

    The rule also gives the weights of the mutant as terms, so the values of the weights need not be computed.
    """

    term: Term
    rule: str

    def solved(self) -> Mutant:
        """Return the mutant. The mutant is marked as proved equal to the operator. The recorded origin of the mutant is the
        name of the stored rule.
        """
        return Mutant(self.term, (self.rule,), proved=True)


class _OutOfTimeError(Exception):
    """Raised if the deadline passes while mutants are examined."""


def search_mutants(
    start: State,
    rules: RuleSet,
    *,
    estimate: Cost,
    measure: Cost,
    limits: SearchLimits | None = None,
    glance: Cost | None = None,
    faster: Faster | None = None,
    memory: Memory | None = None,
    tally: MutantTally | None = None,
) -> SearchResult:
    """Replace operators by corrected mutants that make the state faster, and return the new state.

    A program is an operator application that is a polynomial in its operands. A mutant is a term that equals the program at
    some output positions, and a correction replaces the wrong elements. Returns `start` if no corrected mutant makes the state
    faster.

    All programs are first looked up in the store `memory`. Mutants of a program are enumerated only in one case: the store has
    no results for the program, and no stored rule gives a cheaper mutant. Programs with matching rules are examined in the
    order of their time, longest first.

    For enumeration, the programs with the largest ratio of measured to estimated time come first. The estimate counts
    arithmetic and memory traffic. If a program's measured time is near the estimated time, no mutant saves much time.
    Enumeration ends after the share `MUTANT.enumeration_time_share` of the total time. Half of the time for enumeration is
    divided among the programs in proportion to the ratios. The second half of this time is divided equally.

    Args:
        start: The state to improve.
        rules: The rule set. Only its algorithms and the rules from mutants are used.
        estimate: The estimated seconds of a state.
        measure: The measured seconds of a state.
        limits: The deadline, and the number of elements by which the weights may grow.
        glance: A quicker and less accurate `measure`.
        faster: A function that times two states alternately. The function is called if a mutant is only a little faster than
            the program.
        memory: The store of complete results for programs on this device. The search reads and writes this store.
        tally: The counters that the search increases.
    """
    within, began = limits or SearchLimits(), active_time()
    deadline, most = within.deadline, weight_elements(start) + within.growth
    bench = _Bench(rules.gated(None), estimate, measure, glance or measure, memory, tally or MutantTally())
    state, steps, looked = start, list[Step](), set[Term]()
    before = cost = measure(start)
    ratios = _programs(start, estimate, measure)
    programs = sorted(ratios, key=lambda p: -ratios[p])
    kept = {p: repairs for p in programs if (repairs := bench.remembered(p)) is not None}
    recalled = {p: drafts for p in programs if p not in kept and (drafts := bench.recalled(p, deadline))}
    others = [p for p in programs if p not in kept and p not in recalled]
    longest = sorted(recalled, key=lambda p: -ratios[p] * estimate((p,)))

    def by_rules(program: Term, deadline: float) -> list[CorrectedMutant]:
        found = bench.by_rules(program, recalled[program], deadline)
        others.extend(() if found else (program,))
        return found

    for asked, repairs_of in (([*kept], lambda p, _: kept[p]), (longest, by_rules), (others, bench.enumerated)):
        deadline = began + MUTANT.enumeration_time_share * (within.deadline - began) if asked is others else within.deadline
        while asked and not expired(deadline):
            now = active_time()
            share = (ratios[asked[0]] / sum(ratios[p] for p in asked) + 1 / len(asked)) / 2 if asked is others else 1.0
            program = asked.pop(0)
            looked.add(program)
            repairs = repairs_of(program, now + share * (deadline - now))
            ways = {r: exchange_program(state, program, r, rules.gate) for r in repairs[: MUTANT.max_substituted_mutants]}
            placed = {r: measure(after) for r, (after, _) in ways.items() if weight_elements(after) <= most}
            best = min(placed, key=placed.__getitem__, default=None)
            if (
                best is not None
                and placed[best] < cost * (1 - SEARCH.min_gain_share)
                and _is_believed(program, best, measure, faster)
            ):
                cost = placed[best]
                state, more = ways[best]
                steps += more
    stopped = (
        OUT_OF_TIME if len(looked) < len(programs) or others or bench.cut_short else "every operator was searched for mutants"
    )
    return SearchResult(state, tuple(steps), before, cost, len(looked), stopped)


def _is_believed(program: Term, repair: CorrectedMutant, measure: Cost, faster: Faster | None) -> bool:
    """Return whether the corrected mutant `repair` is faster than the operator `program` that it replaces.

    The mutant must be much faster according to `measure`, or the function `faster` must confirm that the mutant is faster. The
    function `faster` runs the operator and the mutant alternately and compares their times. If `faster` is None, the result is
    True.
    """
    own, other = (program,), (repair.term,)
    return (
        faster is None
        or measure(own) >= MUTANT.believed_speedup_factor * measure(other)
        or faster(own, other) > 1 + SEARCH.min_gain_share
    )


def _programs(state: State, estimate: Cost, measure: Cost) -> dict[Term, float]:
    """Measure the operators that mutants may replace. Return the quotient of measured time and estimated time for each
    operator.

    Operators that take only a small share of the state's time are left out. A mutant is a cheaper term that equals the operator
    at some output positions.
    """
    places = Counter(program for term in run_time_terms(state) if (program := mutant_search_program(term)) is not None)
    least = MUTANT.min_program_time_share * estimate(state)
    ratios = {p: measure((p,)) / estimate((p,)) for p, count in places.items() if estimate((p,)) * count >= least}
    return {p: ratio for p, ratio in ratios.items() if ratio < math.inf}


class _Bench:
    """Makes corrected mutants of programs. A program is an operator application.

    A mutant is a term that equals a program at some output positions. A mutant is first drafted: the draft has variables in
    place of weights, and the cost of the draft is measured. Then the weights are computed, the mutant is compared with the
    program and corrected, and the corrected mutant is measured. `cut_short` is True if a deadline has ended the work on a
    program.
    """

    def __init__(
        self,
        rules: RuleSet,
        estimate: Cost,
        measure: Cost,
        glance: Cost,
        memory: Memory | None,
        tally: MutantTally,
    ) -> None:
        self.rules = rules
        self.estimate, self.measure, self.glance, self.memory, self.tally = estimate, measure, glance, memory, tally
        self.cut_short = False

    def remembered(self, program: Term) -> list[CorrectedMutant] | None:
        """Return the corrected mutants (cheaper replacements) that an earlier search stored for the program.

        Return None if nothing is stored for the program.
        """
        self.tally.programs += 1
        key = self._key(program)
        record = self.memory.get(key) if self.memory is not None and key is not None else None
        self.tally.remembered += record is not None
        return None if record is None else mutants_from_json(record)

    def recalled(self, program: Term, deadline: float) -> dict[StoredMutant, float]:
        """Find mutants of the program by the stored rules. Return a mapping from mutants to estimated seconds, fastest first.

        A mutant is a term that equals the program at some output positions. Mutants that are too expensive or contain the
        program are left out. The result is empty if the deadline is reached.
        """
        with self.tally.stage("recall"), suppress(_OutOfTimeError):
            made = (StoredMutant(match.replacements[0], rule) for rule, match in self.rules.mutants.matches(program))
            found = [one for one in made if program not in map(mutant_search_program, run_time_terms(_state(one.term)))]
            self.tally.recalled += len(found)
            priced = {one: self._price(one.term, deadline) for one in found}
            most = MUTANT.max_mutant_cost_factor * self._price(program, deadline) if found else 0.0
            return {one: priced[one] for one in sorted(found, key=priced.__getitem__) if priced[one] <= most}
        return {}

    def by_rules(self, program: Term, drafts: Mapping[StoredMutant, float], deadline: float) -> list[CorrectedMutant]:
        """Correct the `drafts`, and return the corrected mutants that are cheaper than the program, cheapest first.

        A draft is a mutant (a term that equals the program at some output positions) that is not yet corrected. After a
        corrected mutant is found, drafts with clearly higher estimated seconds are skipped.
        """
        found: list[CorrectedMutant] = []

        def cheapest() -> Iterator[MutantDraft]:
            most = math.inf
            for draft, price in drafts.items():
                if price > most:
                    return
                yield draft
                most = min(most, price * (1 + MUTANT.quick_timing_error)) if found else most

        if self._looked(program, cheapest(), deadline, found) and found:
            self._keep(program, found)
        return found

    def enumerated(self, program: Term, deadline: float) -> list[CorrectedMutant]:
        """Enumerate mutants of the program. Return corrected mutants that are cheaper than the program, cheapest first.

        A mutant is a term that equals the program at some output positions. A corrected mutant is returned only if the mutant
        is cheaper than all earlier corrected mutants.
        """
        found: list[CorrectedMutant] = []
        try:
            drafts = self._sketches(program, deadline)
        except _OutOfTimeError:
            self.cut_short = True
            return found
        if self._looked(program, drafts, deadline, found):
            self._keep(program, found)
        return found

    def _looked(self, program: Term, drafts: Iterable[MutantDraft], deadline: float, found: list[CorrectedMutant]) -> bool:
        """Correct the drafts, and add the results that are cheap enough to `found`. Then sort `found` by time.

        A result must take clearly less time than the program (see `MUTANT.min_mutant_gain_share`), and less time than all
        earlier results.

        A draft is a term that equals the program (an operator application) at some output positions. Return whether there was
        time for all drafts.
        """
        try:
            bound = self._seconds(program, deadline).after * (1 - MUTANT.min_mutant_gain_share)
            for repair in self._repairs(program, drafts, bound, deadline):
                found.append(repair)  # noqa: PERF402 (what was found before a deadline stays)
        except _OutOfTimeError:
            self.cut_short = True
            return False
        finally:
            found.sort(key=lambda r: r.seconds)
        return True

    def _keep(self, program: Term, found: Sequence[CorrectedMutant]) -> None:
        key = self._key(program)
        if self.memory is not None and key is not None:
            self.memory.put(key, mutants_to_json(found))

    def _key(self, program: Term) -> list[Json] | None:
        """Return the key under which `memory` stores results for the program, or None if an extent is dynamic.

        The key contains the names of the available rules.
        """
        try:
            rules = [*self.rules.algorithms.names], [*self.rules.mutants.names]
            return ["mutants", record_terms_as_json((program,))[0], *rules]
        except ValueError:
            return None

    def _repairs(
        self, program: Term, drafts: Iterable[MutantDraft], bound: float, deadline: float
    ) -> Iterator[CorrectedMutant]:
        """Correct the drafts, and yield corrected mutants of the program (an operator applied to variables).

        A draft is a term that equals the program at some output positions, and a correction replaces the wrong elements. Each
        corrected mutant takes less time than `bound` seconds, and less time than every previous corrected mutant.
        """
        done: set[Program] = set()
        for draft in drafts:
            if expired(deadline):
                raise _OutOfTimeError
            if draft.term in done or not self._promises(program, draft.term, deadline):
                continue
            if self._seconds(draft.term, deadline).after >= bound:
                continue
            mutant = self._solved(draft)
            if mutant is None or not isinstance(mutant.term, Term):
                continue
            done |= {draft.term, mutant.term}
            made = ", ".join(mutant.made)
            corrected = ((term, f"{PARTLY} {made}; {kind}") for term, kind in self._corrected(program, mutant.term))
            for term, name in [(mutant.term, made)] if mutant.proved else corrected:
                form = self._seconds(term, deadline)
                if form.after < bound:
                    bound = form.after * (1 - SEARCH.min_gain_share)
                    yield CorrectedMutant(form.outputs[0], name, form.after, term, form.steps)

    def _price(self, term: Program, deadline: float) -> float:
        """Return the estimated seconds of the term if each operator is computed by the algorithm with the lowest estimate.

        Raises:
            _OutOfTimeError: The deadline is reached.
        """
        if expired(deadline):
            raise _OutOfTimeError
        state = _state(term)
        return self.estimate(state) - sum(place.gain for place in algorithm_sites(state, self.rules, self.estimate))

    def _sketches(self, program: Term, deadline: float) -> list[Sketch]:
        """Enumerate mutants with variables as weights (sketches). Return the distinct sketches with the lowest estimated times.

        A mutant is a term that equals the program (an operator application) at some output positions. `_price` gives the
        estimated times. The list is empty if mutants of the program cannot be enumerated.

        Raises:
            _OutOfTimeError: The deadline is reached.
        """
        price = functools.partial(self._price, deadline=deadline)
        with self.tally.stage("enumerate"):
            try:
                found = sketches(program, cost=price)
            except Undecidable:
                return []
            self.tally.enumerated += len(found)
            most = MUTANT.max_mutant_cost_factor * price(program)
            return list(islice((s for s in found if s.cost <= most), MUTANT.max_mutants_per_operator))

    def _promises(self, program: Term, sketch: Program, deadline: float) -> bool:
        """Return whether the sketch is faster than the program (an operator application) in quick measurements.

        A sketch is a term that may replace the program, with variables in place of weights. The operators of the sketch that do
        most of the arithmetic are measured first. The whole sketch is measured only if these operators together take less time
        than the program.
        """

        def glanced(state: State) -> float:
            return self._with_algorithms(state, self.glance, deadline).after

        self.tally.measured += 1
        with self.tally.stage("glance"):
            whole = glanced((program,))
            left = whole * (1 + MUTANT.quick_timing_error)
            for cut in filter(None, map(mutant_search_program, run_time_terms(_state(sketch)))):
                left -= glanced((cut,))
                if left <= 0:
                    return False
            return glanced(_state(sketch)) < whole * (1 - MUTANT.min_mutant_gain_share)

    def _seconds(self, term: Program, deadline: float) -> SearchResult:
        with self.tally.stage("measure"):
            return self._with_algorithms(_state(term), self.measure, deadline)

    def _with_algorithms(self, state: State, measure: Cost, deadline: float) -> SearchResult:
        """Use alternative algorithms for operators if measurements show a gain, and return the new state as a search result."""
        cost = measure(state)
        plain = SearchResult(state, (), cost, cost, 0, "")
        return with_algorithms(
            plain, self.rules, estimate=self.estimate, measure=measure, limits=SearchLimits(deadline=deadline)
        )

    def _solved(self, draft: MutantDraft) -> Mutant | None:
        with self.tally.stage("solve"):
            try:
                mutant = draft.solved()
            except Undecidable:
                return None
        self.tally.solved += mutant is not None
        return mutant

    def _corrected(self, program: Term, mutant: Term) -> list[tuple[Term, str]]:
        """Correct the mutant in several ways. Return pairs of a corrected form of the mutant and the kind of the correction.

        A mutant is a term that equals the program at some output positions. In a corrected form, the mutant's wrong elements
        are replaced. The forms with the lowest estimated times are returned.
        """
        try:
            with self.tally.stage("judge"):
                judgement = judge(program, mutant)
            self._count(judgement)
            with self.tally.stage("correct"):
                every = corrections(program, mutant, judgement, cost=lambda t: self.estimate((t,)))
                found = list(islice(every, MUTANT.max_corrections))
        except Undecidable:
            return []
        self.tally.corrected += len(found)
        return [(corrected.term, corrected.kind) for corrected in found]

    def _count(self, judgement: Judgement) -> None:
        self.tally.judged += 1
        self.tally.positions += judgement.positions
        self.tally.total += judgement.total


def _state(program: Program) -> State:
    return program if isinstance(program, tuple) else (program,)
