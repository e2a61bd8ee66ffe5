"""Choose faster algorithms for the operators of an island.

A different algorithm for one operator does not change the terms around the operator. The search therefore chooses the algorithm
of each operator separately, and does not try combinations of algorithms. Operators are first measured in isolation, with
variables as operands. Equal operators on operands of equal shapes are measured once. The operators with the largest estimated
gain are measured first. For each operator, only the algorithm with the lowest estimated time is measured.

All algorithms that are faster in these measurements are then applied together, within the limit on the size of the weights. If
the whole island does not become faster, the algorithms are tried one by one. An algorithm is first tried for all operators for
which the algorithm was chosen. If the island does not become faster, the algorithm is tried for one operator at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from superopt.algebra.operators import replace_subterms
from superopt.algebra.terms import Term, subterms, variable
from superopt.budget import expired
from superopt.policy import SEARCH
from superopt.search.apply import State, Step, replaced_terms, run_time_terms
from superopt.search.backtracking import OUT_OF_TIME, Cost, SearchLimits, SearchResult
from superopt.search.ruleset import RuleSet
from superopt.search.schedule import weight_elements


@dataclass(frozen=True)
class AlgorithmSite:
    """A term, and an alternative algorithm that computes the term's operator.

    Attributes:
        term: the term.
        rule: the name of the rule that gives the alternative algorithm.
        other: a term that computes `term` by the alternative algorithm.
        alone: the states that are timed: `term` and `other`, with variables in place of their common operands.
        gain: the estimated or measured seconds that the alternative algorithm saves.
    """

    term: Term
    rule: str
    other: Term
    alone: tuple[State, State]
    gain: float

    @property
    def kind(self) -> Hashable:
        """The name of the rule, and the two states that are timed. Sites of equal kind are timed once."""
        return self.rule, self.alone

    @property
    def weights(self) -> float:
        """The number of elements that the alternative algorithm adds to the weights."""
        return weight_elements((self.other,)) - weight_elements((self.term,))


def with_algorithms(
    found: SearchResult, rules: RuleSet, *, estimate: Cost, measure: Cost, limits: SearchLimits
) -> SearchResult:
    """Use alternative algorithms for some operators of a search result, and return the new search result.

    If no algorithm makes the result faster, return `found`. The algorithms come from `rules.algorithms`. An algorithm is used
    only if it is faster in a measurement. `limits` contains the deadline and the number of elements by which the weights may
    grow.
    """
    alike: dict[Hashable, list[AlgorithmSite]] = {}
    for place in algorithm_sites(found.outputs, rules, estimate):
        alike.setdefault(place.kind, []).append(place)
    kinds, paying = sorted(alike.values(), key=lambda kind: -sum(place.gain for place in kind)), list[list[AlgorithmSite]]()
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
    """Replaces operators in the state of a search result by alternative algorithms, if the state becomes faster.

    The weights of the new state must not have more than `most` elements in total.
    """

    def __init__(self, found: SearchResult, measure: Cost, most: float) -> None:
        self.start, self.measure, self.most = found, measure, most
        self.state, self.cost = found.outputs, found.after
        self.wanted: dict[Term, Term] = {}
        self.steps: list[Step] = []
        self.tried = 0

    def together(self, kinds: Sequence[Sequence[AlgorithmSite]]) -> None:
        """Apply alternative algorithms at many sites (operators) together, if the whole state becomes faster.

        Sites are chosen in the order of their gain per added weight element. A site that exceeds the limit on weights is
        skipped.
        """
        places = [place for kind in kinds for place in kind]
        room, chosen = self.most - weight_elements(self.state), list[AlgorithmSite]()
        for place in sorted(places, key=lambda place: -place.gain / max(place.weights, 1.0)):
            if place.weights <= room:
                room -= place.weights
                chosen.append(place)
        self._take(chosen)

    def one_by_one(self, kinds: Sequence[Sequence[AlgorithmSite]], deadline: float) -> None:
        """Apply each kind of algorithm at all of its sites (operators) if the whole state becomes faster.

        If a kind does not make the state faster, or exceeds the limit on weights, the kind is tried at its sites one by one.
        """
        waiting = [*kinds]
        while waiting and not expired(deadline):
            kind = waiting.pop(0)
            if not self._take(kind) and len(kind) > 1:
                waiting += [[place] for place in kind]
        if waiting:
            self.start = replace(self.start, stopped=OUT_OF_TIME)

    def _take(self, places: Sequence[AlgorithmSite]) -> bool:
        done = replaced_terms(self.start.outputs, {**self.wanted, **{place.term: place.other for place in places}})
        trial = None if done is None else tuple(done[root] for root in self.start.outputs)
        if not places or trial is None or weight_elements(trial) > self.most:
            return False
        self.tried += 1
        after = self.measure(trial)
        if after >= self.cost:
            return False
        before = replaced_terms(self.start.outputs, self.wanted) or {}
        for place in places:
            self.wanted[place.term] = place.other
            then = replaced_terms(self.start.outputs, self.wanted) or {}
            self.steps.append(Step(place.rule, (before.get(place.term, place.term),), (then[place.term],)))
            before = then
        self.state, self.cost = trial, after
        return True

    def found(self) -> SearchResult:
        """Return the search result, with the applied algorithms if their total gain is large enough."""
        expanded = self.start.expanded + self.tried
        if self.cost >= self.start.after * (1 - SEARCH.min_gain_share):
            return replace(self.start, expanded=expanded)
        steps = (*self.start.steps, *self.steps)
        return replace(self.start, outputs=self.state, steps=steps, after=self.cost, expanded=expanded)


def algorithm_sites(state: State, rules: RuleSet, estimate: Cost) -> Iterator[AlgorithmSite]:
    """Yield a site for each term that has an alternative algorithm with a lower estimated time.

    If a term has several alternative algorithms, the site contains the algorithm with the lowest estimated time.
    """
    for term in run_time_terms(state):
        ways = [_place(term, name, match.replacements[0], estimate) for name, match in rules.algorithms.matches(term)]
        best = max(ways, key=lambda place: place.gain, default=None)
        if best is not None and best.gain > 0:
            yield best


def _place(term: Term, rule: str, other: Term, estimate: Cost) -> AlgorithmSite:
    """Return the `AlgorithmSite` for a replacement of `term` by the equal term `other`. The gain is estimated."""
    both = dict.fromkeys(_outermost(term.args, frozenset(subterms(other))))
    names = ((taken, f"{'w' if taken.constant else 'x'}{i}") for i, taken in enumerate(both))
    operands = {taken: variable(name, taken.shape, constant=taken.constant) for taken, name in names}
    own, way = (replace_subterms(term, operands),), (replace_subterms(other, operands),)
    return AlgorithmSite(term, rule, other, (own, way), estimate(own) - estimate(way))


def _outermost(terms: Sequence[Term], among: frozenset[Term]) -> Iterator[Term]:
    """Yield the outermost subterms that are in the set `among`.

    A subterm is outermost if no term above it is in the set. A term that is itself in the set is its own outermost subterm.
    """
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
