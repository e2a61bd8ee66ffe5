"""The parts of sweeps: find the matches of a rule, apply the rule at all matches at once, and tidy the result.

The module `sweep` decides which sweeps to make.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, variable
from superopt.budget import expired
from superopt.errors import ShapeError
from superopt.policy import SEARCH
from superopt.rules.match import Match, Pattern
from superopt.search.apply import MOVES, State, Step, replaced_terms, run_time_terms, siblings
from superopt.search.backtracking import Cost
from superopt.search.meeting import (
    added_term_count,
    covered_first,
    meeting_sort_key,
    mixed_concat_count,
    mixture,
    operator_count_change_key,
    rejoins_slices,
)
from superopt.search.ruleset import RuleSet
from superopt.search.vanish import remove_vanishing


@dataclass(frozen=True)
class Reach:
    """The limits of consecutive sweeps. A sweep applies one rule at all of its matches at once.

    Attributes:
        depth: the largest number of consecutive sweeps.
        beam: the largest number of states that are followed from one sweep to the next.
        again: the largest number of consecutive sweeps with the same rule.
    """

    depth: int = SEARCH.max_sweeps_in_row
    beam: int = SEARCH.max_sweep_beam
    again: int = SEARCH.max_sweep_repetitions


@dataclass(frozen=True)
class Swept:
    """A state (a tuple of output terms), the steps that lead to the state, and the estimated seconds of one run."""

    state: State
    steps: tuple[Step, ...]
    estimate: float


@dataclass(frozen=True)
class Sweeper:
    """Makes sweeps. A sweep applies one rule at all of its matches at once.

    A sweep is not made if the new state's estimated seconds exceed `ceiling`. No sweep starts after `deadline`.
    """

    rules: RuleSet
    estimate: Cost
    ceiling: float
    deadline: float
    reach: Reach = Reach()
    _known: dict[tuple[State, bool], Mapping[str, list[Match]]] = field(default_factory=dict, compare=False, repr=False)

    def cheaper(self, start: State) -> Iterator[Swept]:
        """Yield states with a lower estimated time than `start`, first from a greedy descent, then from a beam search."""
        yield from self.descent(start, lambda _: True)
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
                        if end.estimate < here * (1 - SEARCH.min_estimated_gain_share):
                            yield end
            frontier = list(itertools.islice(_unlike(ahead), self.reach.beam))

    def descent(self, start: State, taken: Callable[[Swept], bool], *, joins: bool = True) -> Iterator[Swept]:
        """Sweep with the rule that saves the most estimated time, until no rule saves time, and yield each accepted state.

        The rule with the largest known gain is tried next. The known gain of a rule is at first the gain of one sweep. After
        repeated sweeps of a rule have been tried, the known gain of the rule is the gain of these sweeps. The method is the
        lazy greedy algorithm (Minoux, Accelerated greedy algorithms for maximizing submodular set functions, 1978). If the
        function `taken` rejects the state that a rule produces, the rule is tried again after a different state was accepted.
        If a rule saves no time by itself, its gain includes the sweeps of other rules that the rule makes possible.

        Args:
            start: the initial state.
            taken: a function that decides whether a state is accepted. The descent continues from accepted states.
            joins: if False, only rules with one output are used.
        """
        swept = Swept(start, (), self.estimate(start))
        found = True
        while found:
            found = False
            gains = self._gains(swept, joins=joins)
            while gains:
                rule = max(gains, key=lambda name: gains[name])
                del gains[rule]
                best = self._best(swept, rule)
                if swept.estimate - best.estimate <= SEARCH.min_estimated_gain_share * swept.estimate:
                    best = self._followed(swept, rule, joins=joins)
                gain = swept.estimate - best.estimate
                if gain <= SEARCH.min_estimated_gain_share * swept.estimate:
                    continue
                if gain < max(gains.values(), default=0.0):
                    gains[rule] = gain
                elif taken(best):
                    swept, found = best, True
                    yield swept

    def _gains(self, start: Swept, *, joins: bool) -> dict[str, float]:
        """Return the estimated seconds that one sweep of each rule saves, by the name of the rule.

        Rules that cost a little time are included, because several sweeps of such a rule may save time.
        """
        rules = self._sweeping(start.state, joins=joins)
        gains = {rule: start.estimate - first.estimate for rule in rules for first in self._first(start, rule)}
        return {rule: gain for rule, gain in gains.items() if gain > -SEARCH.max_sweep_rise_share * start.estimate}

    def _best(self, start: Swept, rule: str) -> Swept:
        """Return the fastest state by estimate after repeated sweeps of the rule, or `start` if no state is faster."""
        return min((start, *self._repeated(start, rule)), key=lambda swept: swept.estimate)

    def _followed(self, start: Swept, rule: str, *, joins: bool) -> Swept:
        """Make one sweep of the rule, and then sweeps of the rules that match only after this sweep. Return the last state.

        Each of the later sweeps must lower the estimated time. If the last state's estimated time is not lower than the time of
        `start`, `start` is returned.
        """
        before = self._places(start.state, joins=joins)
        best = here = next(self._first(start, rule), start)
        while best is not start:
            news = [name for name in self._sweeping(here.state, joins=joins) if name not in before]
            best = min((self._best(here, name) for name in news), key=lambda swept: swept.estimate, default=here)
            if best.estimate >= here.estimate:
                break
            here = best
        return min(start, here, key=lambda swept: swept.estimate)

    def _first(self, start: Swept, rule: str) -> Iterator[Swept]:
        """Yield the state after the rule's first sweep, if there is one."""
        return itertools.islice(self._repeated(start, rule), 1)

    def _ends(self, start: Swept) -> Iterator[Swept]:
        """Yield, for each rule, the states after one sweep, after two sweeps, and so on."""
        for rule in self._places(start.state):
            yield from self._repeated(start, rule)

    def _repeated(self, swept: Swept, rule: str) -> Iterator[Swept]:
        """Yield the states after one sweep of the rule, after two sweeps, and so on. Operators that cancel are removed."""
        for _ in range(self.reach.again):
            if expired(self.deadline):
                return
            after = self.swept(swept, rule, self._places_of(rule, swept.state))
            if after is None or after.state == swept.state:
                return
            swept = self.tidied(after)
            yield swept

    def _places(self, state: State, *, joins: bool = True) -> Mapping[str, list[Match]]:
        """Return a mapping from names of rules to the matches that a sweep applies at once.

        Matches at operands come before matches at the users of the operands. Rules with one output are included if they have
        more than one match. Rules with several outputs are included if `joins` is True. The matches are cached, because every
        rule that is tried from a state needs these matches.
        """
        known = self._known.get((state, joins))
        if known is None:
            live = run_time_terms(state)
            found: dict[str, list[Match]] = {}
            for term in live:
                for name, match in self.rules.matches(term):
                    found.setdefault(name, []).append(match)
            alone = {name: matches for name, matches in found.items() if len(matches) > 1}
            known = self._known[state, joins] = {**alone, **self._merges(live)} if joins else alone
        return known

    def _sweeping(self, state: State, *, joins: bool) -> list[str]:
        """Return the names of rules that a sweep can apply. If `joins` is False, rules with several outputs are left out."""
        return [*self._places(state, joins=joins)]

    def _places_of(self, rule: str, state: State) -> list[Match]:
        """Return the matches of one rule that a sweep applies at once."""
        live = run_time_terms(state)
        return [match for term in live for match in self.rules.alone(term, rule)] or self._merges(live, rule).get(rule, [])

    def _merges(self, live: Sequence[Term], only: str = "") -> Mapping[str, list[Match]]:
        """Find matches of rules with several outputs, and return the matches by the name of the rule.

        No term is a root (a replaced term) of two matches. All roots of a match are at the same distance from the inputs.
        Possible roots are tried in the order of `meeting_sort_key`, and the first roots that fit are used. If `only` is not
        empty, only the rule with this name is used.
        """
        return self.joins([sorted(same, key=meeting_sort_key) for same in siblings(live)], live, only)

    def joins(self, layers: Iterable[Sequence[Term]], live: Sequence[Term], only: str = "") -> Mapping[str, list[Match]]:
        """Find matches of rules with several outputs, and return the matches by the name of the rule.

        No term is a root (a replaced term) of two matches. The roots of a match are in one layer of `layers`. Matches are in
        the order of the terms in each layer. If several matches have equal roots, the match with the fewest new operators is
        chosen. If several matches have equally few new operators, the match with the fewest mixed concatenations (see
        `mixed_concat_count`) is chosen. If a rule can join along several axes, the axis with the fewest mixed concatenations is
        chosen. If `only` is not empty, only the rule with this name is used.
        """
        known = set(live)
        found: dict[str, dict[Pattern, list[Match]]] = {}
        for ordered in layers:
            taken: dict[Pattern, set[Term]] = {}
            for term in ordered:
                for rule, pattern in self.rules.several(term):
                    used = taken.setdefault(pattern, set())
                    if term in used or only not in ("", rule.name):
                        continue
                    free = tuple(tuple(t for t in ordered if t.op == op and t not in used) for op in pattern.roots)
                    alike = self.rules.beside(rule, pattern, term, free)
                    if alike:
                        best = min(alike, key=lambda match: (added_term_count(match, known), mixed_concat_count(match)))
                        used.update(best.roots)
                        found.setdefault(rule.name, {}).setdefault(pattern, []).append(best)
        return {name: min(along.values(), key=mixture) for name, along in found.items()}

    def tidied(self, swept: Swept) -> Swept:
        """Remove terms that compute nothing, and data-movement operators that cancel. Return the new state.

        Rules are applied one after the other. A rule's result is kept if the estimated time falls, or if the state has more
        concatenations of neighbouring slices (see `_meets`).
        """
        better = True
        while better and not expired(self.deadline):
            swept, better = self._vanished(swept), False
            found = self._cancelling(swept.state)
            for rule in sorted(found, key=lambda name: -len(found[name])):
                tidier = self.swept(swept, rule, found[rule])
                if tidier is not None and (tidier.estimate < swept.estimate or _meets(swept, tidier)):
                    swept, better = tidier, True
        return swept

    def _vanished(self, swept: Swept) -> Swept:
        """Remove terms that compute nothing, such as `x + zeros`, and return the new state."""
        state, steps = remove_vanishing(swept.state, self.rules)
        return Swept(state, (*swept.steps, *steps), self.estimate(state)) if steps else swept

    def _cancelling(self, state: State) -> Mapping[str, list[Match]]:
        """Return the matches that reduce the number of operators, by the name of the rule.

        A term is matched only if its operator and the operator of one operand only move elements, as in a slice of a transpose.
        """
        live = dict.fromkeys(run_time_terms(state))
        found: dict[str, list[Match]] = {}
        for term in live:
            if term.op in MOVES and any(a.op in MOVES for a in term.args):
                matches = ((operator_count_change_key(match, live), name, match) for name, match in self.rules.matches(term))
                least, name, match = min(matches, key=lambda one: one[0], default=((0, 0), "", None))
                if match is not None and least < (0, 0):
                    found.setdefault(name, []).append(match)
        return found

    def hoisted(self, swept: Swept) -> Swept:
        """Hoist data-movement operators (such as slices) past other operators towards the outputs. Return the new state.

        Data-movement operators that cancel during hoisting are removed. A sweep is accepted only if the estimated time does not
        rise. In addition, the operator count must fall. Alternatively, the operator count must stay equal, and data-movement
        operators must come closer to the outputs.
        """
        while not expired(self.deadline):
            found = self._hoisting(swept.state)
            ordered = sorted(found, key=lambda name: -len(found[name]))
            hoisted = (self.swept(swept, rule, found[rule]) for rule in ordered)
            tidied = (self.tidied(after) for after in hoisted if after is not None)
            further = next((after for after in tidied if _is_hoisted(swept, after)), None)
            if further is None:
                break
            swept = further
        return swept

    def _hoisting(self, state: State) -> Mapping[str, list[Match]]:
        """Find matches that swap an operator with a data-movement operand. Return a mapping from names of rules to matches."""
        found: dict[str, list[Match]] = {}
        for term in run_time_terms(state):
            if term.op not in MOVES and any(a.op in MOVES and not a.constant for a in term.args):
                for name, match in self.rules.matches(term):
                    (new, *others) = match.replacements
                    if not others and new.op in MOVES and new.args and new.args[0].op == term.op:
                        found.setdefault(name, []).append(match)
        return found

    def detours(self, start: State) -> Iterator[Swept]:
        """Yield, for each rule, the state after one sweep followed by hoisting (see `hoisted`).

        The rule that replaces the terms with the largest estimated time comes first. The estimate of the new state may be too
        high, because the estimate ignores the speed of single kernels and the memory layouts that kernels keep.
        """
        begun, work = Swept(start, (), self.estimate(start)), dict[str, float]()
        for rule, matches in self._places(start, joins=False).items():
            work[rule] = sum(map(self._alone, dict.fromkeys(match.roots[0] for match in matches)))
        for rule in sorted(work, key=lambda name: -work[name]):
            yield from map(self.hoisted, self._first(begun, rule))

    def _alone(self, term: Term) -> float:
        """Return the estimated seconds of the term's operator in isolation."""
        operands = [variable(f"x{n}", a.shape, constant=a.constant) for n, a in enumerate(term.args)]
        return self.estimate((apply(term.op, *operands, **dict(term.attributes)),))

    def swept(self, start: Swept, rule: str, matches: Sequence[Match]) -> Swept | None:
        """Apply all matches of one rule, and return the new state.

        Returns None if the new state's estimated time exceeds `ceiling`, or if the matches cannot be applied together. A root
        is a term that a match replaces. If two matches share a root, the first match is applied, and the second match is tried
        afterwards at the rewritten root. The second match is applied only if the rewritten root is a commutative operator that
        still has the matched operands.
        """
        here = {root: root for match in matches for root in match.roots}
        state, steps, waiting = start.state, [*start.steps], sorted(matches, key=covered_first)
        while waiting:
            wanted: dict[Term, Term] = {}
            later: list[Match] = []
            for match in waiting:
                if len(match.roots) == 1 and here[match.roots[0]] in wanted:
                    later.append(match)
                    continue
                for root, new in zip(match.roots, _replacements(match, here), strict=True):
                    if here[root] is not new:
                        wanted.setdefault(here[root], new)
            waiting = later
            done = replaced_terms(state, wanted)
            if done is None:
                return None
            state = tuple(done[root] for root in state)
            roots = tuple(root for root in wanted if root in done)
            if roots:
                steps.append(Step(rule, roots, tuple(done[root] for root in roots)))
            here = {root: done.get(now, now) for root, now in here.items()}
        estimate = self.estimate(state)
        return None if estimate > self.ceiling else Swept(state, tuple(steps), estimate)


def _is_hoisted(before: Swept, after: Swept) -> bool:
    """Compare the states before and after hoisting, and return whether the later state is better.

    Hoisting moves data-movement operators, such as slices, towards the outputs. The later state is better if it has fewer
    operators. If the operator counts are equal, the later state is better if the sum of the distances between the data-movement
    operators and the outputs is smaller. In both cases, the estimated time must not rise.
    """
    if after.estimate > before.estimate * (1 + SEARCH.min_estimated_gain_share):
        return False
    return _distance_of_moves(after.state) < _distance_of_moves(before.state)


def _distance_of_moves(state: State) -> tuple[int, int]:
    """Return the operator count, and the sum of the distances between the data-movement operators and the outputs."""
    live = run_time_terms(state)
    distance: dict[Term, int] = {}
    for term in reversed(live):
        for arg in term.args:
            distance[arg] = max(distance.get(arg, 0), distance.get(term, 0) + 1)
    return len(live), sum(distance.get(term, 0) for term in live if term.op in MOVES)


def _replacements(match: Match, here: Mapping[Term, Term]) -> Sequence[Term]:
    """Return the new term for each root of the match. The roots are the terms that the match replaces.

    Earlier matches may have rewritten the roots. The mapping `here` gives the rewritten term of each root. If a root was
    rewritten, the match is repeated at the rewritten root. If the match cannot be repeated, the rewritten roots are returned
    unchanged.
    """
    if all(here[root] is root for root in match.roots):
        return match.replacements
    try:
        new = match.at(here[match.roots[0]]) if len(match.roots) == 1 else None
    except ShapeError:
        new = None
    return [here[root] for root in match.roots] if new is None else [new]


def _unlike(states: Sequence[Swept]) -> Iterator[Swept]:
    """Yield the states in order of rising estimated time. Of several states with about equal times, only the first state is
    yielded.

    States with about equal times usually differ only in the arrangement of their operators.
    """
    last = 0.0
    for swept in sorted(states, key=lambda s: s.estimate):
        if swept.estimate > last * (1 + SEARCH.equal_estimate_share):
            last = swept.estimate
            yield swept


def _meets(before: Swept, after: Swept) -> bool:
    """Return whether the second state has more concatenations of neighbouring slices than the first state.

    The result is False if the estimated time rises by more than the share `SEARCH.min_estimated_gain_share`. These
    concatenations are useful because a later step can replace neighbouring slices and their concatenation by one slice.
    """
    if after.estimate > before.estimate * (1 + SEARCH.min_estimated_gain_share):
        return False
    here, there = (sum(map(rejoins_slices, run_time_terms(swept.state))) for swept in (before, after))
    return there > here
