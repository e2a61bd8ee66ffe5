"""Mutants in the search: operators of an island exchanged for cheaper programs that are right nearly everywhere, corrected.

Each operator application that is a polynomial in its operands is a program, looked at once however often it occurs, and once
on a device. The stored partial rules are matched first; mutants are enumerated where none of these helps. What a mutant costs
does not depend on its weights' values, so mutants are timed with variables in their place: first what calculates in them, at a
glance, then all of them. Weights are solved for where that is cheaper than the best so far; what is not proved is judged,
corrected, and measured again with the correction. What is left is tried in the program's place. Program and mutants are priced
with what algorithms make of their operators: a mutant may pay only as what an algorithm takes.
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

from superopt.active import active_time, expired
from superopt.errors import Undecidable
from superopt.graph import Term
from superopt.partial.correct import corrections
from superopt.partial.judge import Judgement, judge
from superopt.partial.library import Partial, Recalled, recalled
from superopt.partial.mutate import Mutant, Program, Sketch, sketches
from superopt.repair import Json, Memory, Repair, exchanged, program_of, recorded, restored
from superopt.rewrite.algorithm import places, with_algorithms
from superopt.rewrite.apply import PARTLY, State, Step, computed
from superopt.rewrite.record import nodes_of
from superopt.rewrite.ruleset import RuleSet
from superopt.rewrite.schedule import weight_elements
from superopt.rewrite.search import NOISE, OUT_OF_TIME, Cost, Found, Limits

SHARE = 0.01
"""The part of an island's estimated time below which an operator is not looked at."""
MOST_MUTANTS = 24
"""Mutants of one operator that are measured, those of the lowest estimate first."""
MOST_DEARER = 3.0
"""How many times what the operator costs by estimate a mutant may, for it to be measured."""
MOST_CORRECTIONS = 3
ROUGH = 0.05
"""The relative error of a glance."""
WORTH = 0.03
"""The part of a program's time that a mutant must save for its weights to be solved for, by a glance and by measurement."""
ENUMERATING = 2 / 3
"""The share of the time after which no mutants are enumerated: what rules make of programs is surer to gain."""
SURE = 1.25
"""How many times as fast as the program a mutant has to be for that to be believed of times that were not taken in turns."""
MOST_REPAIRS = 8
"""Corrected mutants of one operator that are tried in its place, those first that take the least time by themselves."""


@dataclass
class Tally:
    """What a search for mutants did: how many of what, and processor seconds by stage.

    Judgements of mutants compared `positions` of the `total` positions of programs. `remembered` counts programs of which
    everything was known, `recalled` what stored rules made of the others.
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
        """Adds the time taken inside to that of the stage."""
        start = time.process_time()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start


Faster: TypeAlias = "Callable[[State, State], float]"
"""How many times as fast as the first state the second is."""


class Draft(Protocol):
    """What may become a mutant: `term` is for its cost."""

    @property
    def term(self) -> Program: ...

    def solved(self) -> Mutant | None: ...


class _OutOfTimeError(Exception):
    """The deadline is reached while mutants are being looked at."""


def search_mutants(
    start: State,
    rules: RuleSet,
    *,
    estimate: Cost,
    measure: Cost,
    limits: Limits | None = None,
    glance: Cost | None = None,
    faster: Faster | None = None,
    memory: Memory | None = None,
    tally: Tally | None = None,
    partial: Sequence[Partial] = (),
) -> Found:
    """The state with each program exchanged for the cheapest corrected mutant met, where that is cheaper; `start` if none is.

    All programs are looked up before mutants of any are enumerated: of one for which the `memory` or one of the `partial` rules
    has a repair, none are. By rules, programs come first that take long. By enumeration, those do that take the most times what
    arithmetic and traffic alone would take: where a kernel is near that, no other form gains much; each may take a share of
    what is left of two thirds of the time, half of it by that ratio, half equally. `rules` are left to other passes, but for
    their algorithms. Weights grow by no more than the limits allow. `glance` measures roughly, and faster; `faster` times two
    states in turns, a program and a mutant that is not much faster. All that there is to find of a program is kept in `memory`,
    which has nothing of other devices in it, and taken from there. `tally` counts.
    """
    within, began = limits or Limits(), active_time()
    deadline, most = within.deadline, weight_elements(start) + within.growth
    bench = _Bench(rules.gated(None), partial, estimate, measure, glance or measure, memory, tally or Tally())
    state, steps, looked = start, list[Step](), set[Term]()
    before = cost = measure(start)
    ratios = _programs(start, estimate, measure)
    programs = sorted(ratios, key=lambda p: -ratios[p])
    kept = {p: repairs for p in programs if (repairs := bench.remembered(p)) is not None}
    recalled = {p: drafts for p in programs if p not in kept and (drafts := bench.recalled(p, deadline))}
    others = [p for p in programs if p not in kept and p not in recalled]
    longest = sorted(recalled, key=lambda p: -ratios[p] * estimate((p,)))

    def by_rules(program: Term, deadline: float) -> list[Repair]:
        found = bench.by_rules(program, recalled[program], deadline)
        others.extend(() if found else (program,))
        return found

    for asked, repairs_of in (([*kept], lambda p, _: kept[p]), (longest, by_rules), (others, bench.enumerated)):
        deadline = began + ENUMERATING * (within.deadline - began) if asked is others else within.deadline
        while asked and not expired(deadline):
            now = active_time()
            share = (ratios[asked[0]] / sum(ratios[p] for p in asked) + 1 / len(asked)) / 2 if asked is others else 1.0
            program = asked.pop(0)
            looked.add(program)
            repairs = repairs_of(program, now + share * (deadline - now))
            ways = {r: exchanged(state, program, r, rules.gate) for r in repairs[:MOST_REPAIRS]}
            placed = {r: measure(after) for r, (after, _) in ways.items() if weight_elements(after) <= most}
            best = min(placed, key=placed.__getitem__, default=None)
            if best is not None and placed[best] < cost * (1 - NOISE) and _is_believed(program, best, measure, faster):
                cost = placed[best]
                state, more = ways[best]
                steps += more
    stopped = OUT_OF_TIME if len(looked) < len(programs) or others or bench.cut_short else "every operator was looked at"
    return Found(state, tuple(steps), before, cost, len(looked), stopped)


def _is_believed(program: Term, repair: Repair, measure: Cost, faster: Faster | None) -> bool:
    """Whether the repair is much faster than the program, or is faster when they are timed in turns."""
    own, other = (program,), (repair.term,)
    return faster is None or measure(own) >= SURE * measure(other) or faster(own, other) > 1 + NOISE


def _programs(state: State, estimate: Cost, measure: Cost) -> dict[Term, float]:
    """The distinct programs of the state that take some of its time, and how many times as long they take as by estimate."""
    places = Counter(program for term in computed(state) if (program := program_of(term)) is not None)
    least = SHARE * estimate(state)
    ratios = {p: measure((p,)) / estimate((p,)) for p, count in places.items() if estimate((p,)) * count >= least}
    return {p: ratio for p, ratio in ratios.items() if ratio < math.inf}


class _Bench:
    """Where programs get their mutants: each is sketched, measured, solved for, judged, corrected, and measured again.

    `cut_short` says whether a deadline ended that for any of them.
    """

    def __init__(
        self,
        rules: RuleSet,
        partial: Sequence[Partial],
        estimate: Cost,
        measure: Cost,
        glance: Cost,
        memory: Memory | None,
        tally: Tally,
    ) -> None:
        self.rules, self.partial = rules, partial
        self.estimate, self.measure, self.glance, self.memory, self.tally = estimate, measure, glance, memory, tally
        self.cut_short = False

    def remembered(self, program: Term) -> list[Repair] | None:
        """All that there is to find of the program, as `enumerated` has it, where the memory has that."""
        self.tally.programs += 1
        key = self._key(program)
        record = self.memory.get(key) if self.memory is not None and key is not None else None
        self.tally.remembered += record is not None
        return None if record is None else restored(record)

    def recalled(self, program: Term, deadline: float) -> dict[Recalled, float]:
        """What the partial rules make of the program, of the lowest estimates first, with these; without what is too dear, or
        has the program in it. Nothing once the deadline is reached.
        """
        with self.tally.stage("recall"), suppress(_OutOfTimeError):
            made = recalled(program, self.partial)
            found = [one for one in made if program not in map(program_of, computed(_state(one.term)))]
            self.tally.recalled += len(found)
            priced = {one: self._price(one.term, deadline) for one in found}
            most = MOST_DEARER * self._price(program, deadline) if found else 0.0
            return {one: priced[one] for one in sorted(found, key=priced.__getitem__) if priced[one] <= most}
        return {}

    def by_rules(self, program: Term, drafts: Mapping[Recalled, float], deadline: float) -> list[Repair]:
        """What comes of these drafts, as `enumerated` has it; once one helps, what is estimated dearer is not looked at."""
        found: list[Repair] = []

        def cheapest() -> Iterator[Draft]:
            most = math.inf
            for draft, price in drafts.items():
                if price > most:
                    return
                yield draft
                most = min(most, price * (1 + ROUGH)) if found else most

        if self._looked(program, cheapest(), deadline, found) and found:
            self._keep(program, found)
        return found

    def enumerated(self, program: Term, deadline: float) -> list[Repair]:
        """Corrected mutants that are cheaper than the program by themselves, the cheapest first, each cheaper than any of those
        that were met before it.
        """
        found: list[Repair] = []
        try:
            drafts = self._sketches(program, deadline)
        except _OutOfTimeError:
            self.cut_short = True
            return found
        if self._looked(program, drafts, deadline, found):
            self._keep(program, found)
        return found

    def _looked(self, program: Term, drafts: Iterable[Draft], deadline: float, found: list[Repair]) -> bool:
        """Adds what comes of the drafts, in the end the cheapest first; whether there was time for all of them."""
        try:
            bound = self._seconds(program, deadline).after * (1 - WORTH)
            for repair in self._repairs(program, drafts, bound, deadline):
                found.append(repair)  # noqa: PERF402 (what was found before a deadline stays)
        except _OutOfTimeError:
            self.cut_short = True
            return False
        finally:
            found.sort(key=lambda r: r.seconds)
        return True

    def _keep(self, program: Term, found: Sequence[Repair]) -> None:
        key = self._key(program)
        if self.memory is not None and key is not None:
            self.memory.put(key, recorded(found))

    def _key(self, program: Term) -> list[Json] | None:
        """What a program is kept under, beside what algorithms and partial rules there are; None where an extent is open."""
        try:
            rules = [[*self.rules.algorithms.names], [p.certificate.key for p in self.partial]]
            return ["mutants", nodes_of((program,))[0], *rules]
        except ValueError:
            return None

    def _repairs(self, program: Term, drafts: Iterable[Draft], bound: float, deadline: float) -> Iterator[Repair]:
        """What comes of the drafts that takes less time than the bound, and than what came before."""
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
            for term, kind in [(mutant.term, "proved")] if mutant.proved else self._corrected(program, mutant.term):
                form = self._seconds(term, deadline)
                if form.after < bound:
                    bound = form.after * (1 - NOISE)
                    name = f"{PARTLY} {', '.join(mutant.made)}; {kind}"
                    yield Repair(form.outputs[0], name, form.after, term, form.steps)

    def _price(self, term: Program, deadline: float) -> float:
        """The estimate, with algorithms in the places for which it prefers them.

        Raises:
            _OutOfTimeError: the deadline is reached.
        """
        if expired(deadline):
            raise _OutOfTimeError
        state = _state(term)
        return self.estimate(state) - sum(place.gain for place in places(state, self.rules, self.estimate))

    def _sketches(self, program: Term, deadline: float) -> list[Sketch]:
        """The distinct sketches of the lowest estimates, with algorithms in the places for which the estimate prefers them;
        none of a program that cannot be sketched.

        Raises:
            _OutOfTimeError: the deadline is reached.
        """
        price = functools.partial(self._price, deadline=deadline)
        with self.tally.stage("enumerate"):
            try:
                found = sketches(program, cost=price)
            except Undecidable:
                return []
            self.tally.enumerated += len(found)
            most = MOST_DEARER * price(program)
            return list(islice((s for s in found if s.cost <= most), MOST_MUTANTS))

    def _promises(self, program: Term, sketch: Program, deadline: float) -> bool:
        """Whether the sketch takes less time than the program at a glance: what calculates in it first, then all of it."""

        def glanced(state: State) -> float:
            return self._with_algorithms(state, self.glance, deadline).after

        self.tally.measured += 1
        with self.tally.stage("glance"):
            whole = glanced((program,))
            left = whole * (1 + ROUGH)
            for cut in filter(None, map(program_of, computed(_state(sketch)))):
                left -= glanced((cut,))
                if left <= 0:
                    return False
            return glanced(_state(sketch)) < whole * (1 - WORTH)

    def _seconds(self, term: Program, deadline: float) -> Found:
        with self.tally.stage("measure"):
            return self._with_algorithms(_state(term), self.measure, deadline)

    def _with_algorithms(self, state: State, measure: Cost, deadline: float) -> Found:
        """The state with its operators computed by the algorithms that measure faster in their places."""
        cost = measure(state)
        plain = Found(state, (), cost, cost, 0, "")
        return with_algorithms(plain, self.rules, estimate=self.estimate, measure=measure, limits=Limits(deadline=deadline))

    def _solved(self, draft: Draft) -> Mutant | None:
        with self.tally.stage("solve"):
            try:
                mutant = draft.solved()
            except Undecidable:
                return None
        self.tally.solved += mutant is not None
        return mutant

    def _corrected(self, program: Term, mutant: Term) -> list[tuple[Term, str]]:
        """The cheapest corrections by estimate, and what kind they are of."""
        try:
            with self.tally.stage("judge"):
                judgement = judge(program, mutant)
            self._count(judgement)
            with self.tally.stage("correct"):
                every = corrections(program, mutant, judgement, cost=lambda t: self.estimate((t,)))
                found = list(islice(every, MOST_CORRECTIONS))
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
