"""Which operators of an island are computed by another algorithm: each where that measures faster.

An algorithm in an operator's place changes nothing around it, so places are decided by themselves; what all of them together
would do to a state need not be looked at. Operators are measured on variables first, equal ones on operands of equal shapes
once, those first for which the estimate promises most, and by the algorithm that it prefers. All that gain so are taken
together, as far as weights may grow; where the whole does not gain by that, they are tried in it one kind after the other, and
one by one where a kind does not pay.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from superopt.active import expired
from superopt.graph import Term, subterms, variable
from superopt.op import rebuild
from superopt.rewrite.apply import State, Step, computed, rebuilt
from superopt.rewrite.ruleset import RuleSet
from superopt.rewrite.schedule import weight_elements
from superopt.rewrite.search import NOISE, OUT_OF_TIME, Cost, Found, Limits


@dataclass(frozen=True)
class Place:
    """A term, the rule by which it is computed in another way, that way, both on variables for what they take (`alone`), and
    the seconds that it saves, as far as is known.
    """

    term: Term
    rule: str
    other: Term
    alone: tuple[State, State]
    gain: float

    @property
    def kind(self) -> Hashable:
        """What places have in common whose kernels are the same."""
        return self.rule, self.alone

    @property
    def weights(self) -> float:
        """By how many elements weights grow."""
        return weight_elements((self.other,)) - weight_elements((self.term,))


def with_algorithms(found: Found, rules: RuleSet, *, estimate: Cost, measure: Cost, limits: Limits) -> Found:
    """What was found, with operators computed by those of the rule set's algorithms that measure faster in their places, as
    long as weights grow by no more than the limits allow.
    """
    alike: dict[Hashable, list[Place]] = {}
    for place in places(found.outputs, rules, estimate):
        alike.setdefault(place.kind, []).append(place)
    kinds, paying = sorted(alike.values(), key=lambda kind: -sum(place.gain for place in kind)), list[list[Place]]()
    for kind in kinds:
        if expired(limits.deadline):
            found = replace(found, stopped=OUT_OF_TIME)
            break
        own, other = map(measure, kind[0].alone)
        if other < own:
            paying.append([replace(place, gain=own - other) for place in kind])
    if not paying:
        return found
    taking = _Taking(found, measure, weight_elements(found.outputs) + limits.growth)
    taking.together(paying)
    if not taking.steps:
        taking.one_by_one(paying, limits.deadline)
    return taking.found()


class _Taking:
    """The algorithms that are taken on the way from what was found; weights have no more elements than `most`."""

    def __init__(self, found: Found, measure: Cost, most: float) -> None:
        self.start, self.measure, self.most = found, measure, most
        self.state, self.cost = found.outputs, found.after
        self.wanted: dict[Term, Term] = {}
        self.steps: list[Step] = []
        self.tried = 0

    def together(self, kinds: Sequence[Sequence[Place]]) -> None:
        """As many places of these kinds as there is room for, those first that gain most for it, if the whole gains by them."""
        places = [place for kind in kinds for place in kind]
        room, chosen = self.most - weight_elements(self.state), list[Place]()
        for place in sorted(places, key=lambda place: -place.gain / max(place.weights, 1.0)):
            if place.weights <= room:
                room -= place.weights
                chosen.append(place)
        self._take(chosen)

    def one_by_one(self, kinds: Sequence[Sequence[Place]], deadline: float) -> None:
        """Kind after kind, where the whole gains by it, and place after place of those that do not pay or have no room."""
        waiting = [*kinds]
        while waiting and not expired(deadline):
            kind = waiting.pop(0)
            if not self._take(kind) and len(kind) > 1:
                waiting += [[place] for place in kind]
        if waiting:
            self.start = replace(self.start, stopped=OUT_OF_TIME)

    def _take(self, places: Sequence[Place]) -> bool:
        done = rebuilt(self.start.outputs, {**self.wanted, **{place.term: place.other for place in places}})
        trial = None if done is None else tuple(done[root] for root in self.start.outputs)
        if not places or trial is None or weight_elements(trial) > self.most:
            return False
        self.tried += 1
        after = self.measure(trial)
        if after >= self.cost:
            return False
        before = rebuilt(self.start.outputs, self.wanted) or {}
        for place in places:
            self.wanted[place.term] = place.other
            then = rebuilt(self.start.outputs, self.wanted) or {}
            self.steps.append(Step(place.rule, (before.get(place.term, place.term),), (then[place.term],)))
            before = then
        self.state, self.cost = trial, after
        return True

    def found(self) -> Found:
        """What was found with them, if it gains beyond the noise."""
        expanded = self.start.expanded + self.tried
        if self.cost >= self.start.after * (1 - NOISE):
            return replace(self.start, expanded=expanded)
        steps = (*self.start.steps, *self.steps)
        return replace(self.start, outputs=self.state, steps=steps, after=self.cost, expanded=expanded)


def places(state: State, rules: RuleSet, estimate: Cost) -> Iterator[Place]:
    """The terms for which the estimate prefers an algorithm, each with the one that it prefers most, on variables."""
    for term in computed(state):
        ways = [_place(term, name, match.replacements[0], estimate) for name, match in rules.algorithms.matches(term)]
        best = max(ways, key=lambda place: place.gain, default=None)
        if best is not None and best.gain > 0:
            yield best


def _place(term: Term, rule: str, other: Term, estimate: Cost) -> Place:
    """The place, its gain by estimate."""
    both = dict.fromkeys(_outermost(term.args, frozenset(subterms(other))))
    names = ((taken, f"{'w' if taken.constant else 'x'}{i}") for i, taken in enumerate(both))
    operands = {taken: variable(name, taken.shape, constant=taken.constant) for taken, name in names}
    own, way = (rebuild(term, operands),), (rebuild(other, operands),)
    return Place(term, rule, other, (own, way), estimate(own) - estimate(way))


def _outermost(terms: Sequence[Term], among: frozenset[Term]) -> Iterator[Term]:
    """Those of the terms that are among these, and what is outermost of the others' operands that is."""
    waiting, seen = [*reversed(terms)], set[Term]()
    while waiting:
        term = waiting.pop()
        if term in seen:
            continue
        seen.add(term)
        if term in among:
            yield term
        else:
            waiting.extend(reversed(term.args))
