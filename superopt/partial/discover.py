"""Discovery of rules from mutants, which are terms that equal a program at some output positions.

Mutants of one program at several sizes are generalised to a term over symbolic sizes. If this term is wrong at some positions,
the term is multiplied by a correction factor. The term is then compared with the program at other sizes, by
`superopt.partial.judge`. If the term is wrong at some of these sizes, superopt searches for a condition on sizes. The term is
accepted if two sets of tested sizes agree: the sizes at which the term equals the program, and the sizes at which the condition
holds. An accepted term becomes a stored rule only if the rule is proved for all sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from superopt.algebra.operators import Parameter, operator
from superopt.algebra.terms import Term, conjunction, negation, subterms
from superopt.errors import InstantiationError
from superopt.partial.closed import rescale_mutant
from superopt.partial.conditions import StatedCondition, conjoin_separating_conditions, separating_conditions
from superopt.partial.generalise import Form, forms, generalise_terms
from superopt.partial.mutate import mutants
from superopt.partial.sizes import FamilyDraw, ProgramFamily, Range, draws, neighbours
from superopt.partial.trial import Trial, judge_draw
from superopt.policy import MUTANT
from superopt.rules.work import work

Kind: TypeAlias = "tuple[tuple[object, ...], ...]"

SIZES, LARGER, SMALLEST = Range((1, 12), (0, 4)), Range((1, 12), (2, 4)), Range((1, 2), (0, 2))


@dataclass(frozen=True)
class GeneralisedMutant:
    """A term over symbolic sizes that equals a family's program at all tested sizes where the conditions hold.

    Attributes:
        family: A program with symbolic sizes.
        term: The term.
        where: The conditions on the sizes.
    """

    family: ProgramFamily
    term: Term
    where: tuple[StatedCondition, ...]

    @property
    def everywhere(self) -> bool:
        """Whether the term equals the program at all tested sizes, so that no condition is needed."""
        return not self.where


def discover_mutants(family: ProgramFamily, seed: int, *, drawn: int = MUTANT.discovery_size_count) -> list[GeneralisedMutant]:
    """Return terms over symbolic sizes that equal the family's program. Some terms have conditions on the sizes. Terms that
    were generalised from small mutants come first.

    Mutants (terms that equal the program at some output positions) are enumerated at `drawn` random choices of sizes, and then
    generalised. For each kind of term (see `mutant_kind`), the first correct term is returned. If the first correct term needs
    a condition on the sizes, the next term without a condition is returned too. Terms of the same kind as the program are
    dropped. The same seed gives the same result.
    """
    bench = _Bench(family, np.random.default_rng(seed))
    met: dict[Form, dict[FamilyDraw, Term]] = {}
    every = bench.typical(drawn)
    for draw in every:
        for mutant in mutants(draw.program):
            for form in forms(draw, mutant):
                if isinstance(mutant.term, Term):
                    met.setdefault(form, {}).setdefault(draw, mutant.term)
    often = [held for held in met.values() if MUTANT.support_divisor * len(held) >= drawn]
    often.sort(key=lambda held: (mutant_operator_count(next(iter(held.values()))), -len(held)))
    found: list[GeneralisedMutant] = []
    kinds: dict[Kind, list[bool]] = {mutant_kind(family.program, program_summing_operators(every[0].program)): [True]}
    for held in often:
        terms = list(generalise_terms(list(held), list(held.values())))
        known = (
            kinds.setdefault(mutant_kind(terms[0], program_summing_operators(next(iter(held.values())))), [])
            if terms
            else [True]
        )
        rule = None if True in known else bench.first(terms, next(iter(held)), conditional=not known)
        if rule is not None:
            known.append(rule.everywhere)
            found.append(rule)
    return found


def mutant_operator_count(term: Term) -> int:
    """Return the number of operators that are executed at run time to compute the term. Variables and constants are not
    counted.
    """
    return sum(not t.is_variable and not t.constant for t in subterms(term))


def program_summing_operators(term: Term) -> frozenset[str]:
    """Return the names of the term's operators that need more than one arithmetic operation per output element, such as
    `matmul`. All extents must be integers.
    """
    live = (t for t in subterms(term) if not t.is_variable and not t.constant)
    return frozenset(t.op for t in live if work(t).flops > math.prod(t.sizes))


def mutant_kind(term: Term, counted: frozenset[str]) -> Kind:
    """Return a key that groups similar mutants before they become rules. For each of the term's operators with a name in
    `counted`, the key contains the name, and flags that tell which attributes have default values.
    """
    held = [t for t in subterms(term) if t.op in counted and not t.constant]
    return tuple(sorted((t.op, *itertools.chain.from_iterable(map(_plain(t), operator(t.op).parameters))) for t in held))


def _plain(term: Term) -> Callable[[Parameter], Iterator[bool]]:
    """Return a function that yields flags for an attribute of the term. The value of an attribute is one number or a tuple of
    numbers. Each flag says whether one of these numbers equals its default.

    For a tuple, there is no flag for numbers whose default is 0, such as pads.
    """

    def plain(parameter: Parameter) -> Iterator[bool]:
        value, usual = term[parameter.name], parameter.default
        if isinstance(value, tuple) and isinstance(usual, tuple):
            yield from (v == u for v, u in zip(value, usual, strict=True) if u != 0)
        else:
            yield value == usual

    return plain


class _Bench:
    """Tests whether terms equal a program with symbolic sizes. All terms are tested at the same random sizes."""

    def __init__(self, family: ProgramFamily, rng: np.random.Generator) -> None:
        self.family = family
        self.rng = rng
        self._typical = draws(family, SIZES, rng, where=family.conditions)
        self._free = draws(family, SIZES, rng)
        self._rounds: list[list[FamilyDraw]] = []
        self._known: dict[tuple[Term, FamilyDraw], Trial] = {}
        self._seen: dict[tuple[Term, bool], GeneralisedMutant | None] = {}

    def typical(self, count: int) -> list[FamilyDraw]:
        """Return `count` instances of the program at new random sizes that satisfy the conditions in the family's attribute
        `typical`.
        """
        return list(itertools.islice(self._typical, count))

    def first(self, terms: Sequence[Term], draw: FamilyDraw, *, conditional: bool) -> GeneralisedMutant | None:
        """Find the term in `terms` that equals the program under the fewest conditions on sizes. If no term equals the program,
        return None.

        `draw` assigns a number to each symbolic size. If a term differs from the program at some positions at these sizes, the
        term is first multiplied by a correction factor. If `conditional` is False, only terms that need no condition are
        returned.
        """
        for term in terms:
            if (term, conditional) not in self._seen:
                self._seen[term, conditional] = self._corrected(term, draw, conditional)
        found = [rule for term in terms if (rule := self._seen[term, conditional]) is not None]
        return min(found, key=lambda rule: len(rule.where), default=None)

    def _corrected(self, term: Term, draw: FamilyDraw, conditional: bool) -> GeneralisedMutant | None:
        """Return a term, and the conditions under which this term equals the program.

        The returned term is `term`, or `term` times a correction factor. The factor is used if `term` differs from the program
        at the sizes `draw` (see `superopt.partial.closed.rescale_mutant`). Return None if no conditions are confirmed, or if
        the term is wrong at every position.
        """
        trial = self._tried(term, draw)
        if trial.holds:
            return self._established(term, conditional)
        if trial.judgement is None or not trial.judgement.equal:
            return None
        right = (s for s in rescale_mutant(self.family.program, term) if self._tried(s, draw).holds)
        return next(filter(None, (self._established(s, conditional) for s in right)), None)

    def _tried(self, term: Term, draw: FamilyDraw) -> Trial:
        if (term, draw) not in self._known:
            self._known[term, draw] = judge_draw(self.family, term, draw)
        return self._known[term, draw]

    def _round(self, number: int) -> list[FamilyDraw]:
        """Return the choices of sizes for a round of tests. Half of the choices satisfy the conditions in the attribute
        `typical` of the program family.
        """
        while len(self._rounds) <= number:
            self._rounds.append(
                [*self.typical(MUTANT.trial_size_count), *itertools.islice(self._free, MUTANT.trial_size_count)]
            )
        return self._rounds[number]

    def _established(self, term: Term, conditional: bool) -> GeneralisedMutant | None:
        """Return the term, and the conditions under which the term equals the program. Return None if no conditions are
        confirmed.

        Conditions are confirmed by a round of tests at sizes that were not used to find the conditions.
        """
        trials: list[Trial] = []
        where: tuple[StatedCondition, ...] | None = None
        if not self._general(term):
            return None
        for number in range(MUTANT.max_trial_rounds):
            nearby = itertools.chain.from_iterable(map(neighbours, self._round(number)[: MUTANT.neighboured_size_count]))
            fresh = [self._tried(term, draw) for draw in dict.fromkeys([*self._round(number), *nearby])]
            if where is not None:
                fresh += [self._tried(term, draw) for draw in self._border(where)]
                if all(t.draw.holds(conjoin_separating_conditions(where)) == t.holds for t in fresh):
                    return GeneralisedMutant(self.family, term, where)
            trials += fresh
            good, bad = ([t.draw for t in trials if t.holds == held] for held in (True, False))
            where = separating_conditions(self.family, good, bad) if conditional or not bad else None
            if where is None:
                return None
        return None

    def _general(self, term: Term) -> bool:
        """Return whether the term equals the program at more than half of the typical sizes in round 0 of the tests.

        The typical sizes are drawn so that they satisfy the conditions in the family's attribute `typical`.
        """
        left = MUTANT.trial_size_count // 2
        for draw in self._round(0)[: MUTANT.trial_size_count]:
            left -= not self._tried(term, draw).holds
            if left <= 0:
                return False
        return True

    def _border(self, where: Sequence[StatedCondition]) -> Iterator[FamilyDraw]:
        """Yield choices of sizes at which all conditions hold, and choices at which exactly one of the conditions fails."""
        without = [[negation(c.condition), conjoin_separating_conditions([o for o in where if o is not c])] for c in where]
        for condition in (conjoin_separating_conditions(where), *itertools.starmap(conjunction, without)):
            for sizes in (SIZES, LARGER, SMALLEST):
                with suppress(InstantiationError):
                    yield from itertools.islice(draws(self.family, sizes, self.rng, where=condition), MUTANT.border_draw_count)
