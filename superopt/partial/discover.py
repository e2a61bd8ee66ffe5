"""Partial rules found: mutants of a family's programs at several sizes, generalised, corrected, and tried at other sizes.

What is kept is equal to its program at every size tried where its condition holds, and nowhere else; each of those is judged
as a mutant is in the search. So is each of its instances there: what is found here saves looking, and is not trusted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from superopt.errors import InstantiationError
from superopt.graph import Term, conjunction, negation, subterms
from superopt.op import Parameter, operator
from superopt.partial.closed import scaled
from superopt.partial.conditions import Stated, together, weakest
from superopt.partial.generalise import Form, forms, generalised
from superopt.partial.mutate import mutants
from superopt.partial.sizes import Draw, Family, Range, draws, neighbours
from superopt.partial.trial import Trial, tried
from superopt.work import work

Kind: TypeAlias = "tuple[tuple[object, ...], ...]"

DRAWN = 24
"""Sizes at which mutants are looked for."""
SUPPORT = 3
"""The part of these sizes at which a form must be met: one in so many."""
TRIED = 12
"""Sizes of each kind at which a rule is tried."""
BORDER = 6
"""Sizes at which a condition holds, or one part of it alone does not, in each trial of a condition: of any attributes, of
attributes that are neither 0 nor 1, which everything divides, and the smallest, at which parts are empty.
"""
NEAR = 2
"""Sizes of each trial around which a rule is tried, one number changed at a time."""
ROUNDS = 5
"""How often a condition is stated anew, but for one."""
SIZES, LARGER, SMALLEST = Range((1, 12), (0, 4)), Range((1, 12), (2, 4)), Range((1, 2), (0, 2))


@dataclass(frozen=True)
class Generalised:
    """A term over a family's open sizes that equals its program where the conditions hold, at all draws tried: the `trials`.

    At the draws `refused`, where the conditions do not hold, it does not, or is not well typed. `counted` are the operators
    that it computes with.
    """

    family: Family
    term: Term
    counted: frozenset[str]
    where: tuple[Stated, ...]
    trials: tuple[Trial, ...]
    refused: tuple[Draw, ...]

    @property
    def everywhere(self) -> bool:
        """Whether it needs no condition."""
        return not self.where


def discovered(family: Family, seed: int, *, drawn: int = DRAWN) -> list[Generalised]:
    """The mutants of the family that generalise, those of the fewest operators first; the same for the same seed.

    They are looked for at so many sizes. Of those that compute with operators of one `kind`, one that holds everywhere is kept,
    and one of fewer operators that holds under a condition; none of the program's own kind.
    """
    bench = _Bench(family, np.random.default_rng(seed))
    met: dict[Form, dict[Draw, Term]] = {}
    every = bench.typical(drawn)
    for draw in every:
        for mutant in mutants(draw.program):
            for form in forms(draw, mutant):
                if isinstance(mutant.term, Term):
                    met.setdefault(form, {}).setdefault(draw, mutant.term)
    often = [held for held in met.values() if SUPPORT * len(held) >= drawn]
    often.sort(key=lambda held: (operators(next(iter(held.values()))), -len(held)))
    found: list[Generalised] = []
    kinds: dict[Kind, list[bool]] = {kind(family.program, adding(every[0].program)): [True]}
    for held in often:
        terms = list(generalised(list(held), list(held.values())))
        known = kinds.setdefault(kind(terms[0], adding(next(iter(held.values())))), []) if terms else [True]
        rule = None if True in known else bench.first(terms, next(iter(held)), conditional=not known)
        if rule is not None:
            known.append(rule.everywhere)
            found.append(replace(rule, counted=adding(next(iter(held.values())))))
    return found


def operators(term: Term) -> int:
    """How many operators are computed at run time."""
    return sum(not t.is_variable and not t.constant for t in subterms(term))


def adding(term: Term) -> frozenset[str]:
    """The operators of a term at given sizes that add up products, or other numbers."""
    live = (t for t in subterms(term) if not t.is_variable and not t.constant)
    return frozenset(t.op for t in live if work(t).flops > math.prod(t.sizes))


def kind(term: Term, counted: frozenset[str]) -> Kind:
    """The term's operators that are counted, and which of their numbers are what they are by default."""
    held = [t for t in subterms(term) if t.op in counted and not t.constant]
    return tuple(sorted((t.op, *itertools.chain.from_iterable(map(_plain(t), operator(t.op).parameters))) for t in held))


def _plain(term: Term) -> Callable[[Parameter], Iterator[bool]]:
    """For an attribute of the term whether each of its numbers is the default; pads, which are none by default, aside."""

    def plain(parameter: Parameter) -> Iterator[bool]:
        value, usual = term[parameter.name], parameter.default
        if isinstance(value, tuple) and isinstance(usual, tuple):
            yield from (v == u for v, u in zip(value, usual, strict=True) if u != 0)
        else:
            yield value == usual

    return plain


class _Bench:
    """Where terms of one family are tried: at draws that all of them share, as many as are asked for."""

    def __init__(self, family: Family, rng: np.random.Generator) -> None:
        self.family = family
        self.rng = rng
        self._typical = draws(family, SIZES, rng, where=family.conditions)
        self._free = draws(family, SIZES, rng)
        self._rounds: list[list[Draw]] = []
        self._known: dict[tuple[Term, Draw], Trial] = {}
        self._seen: dict[tuple[Term, bool], Generalised | None] = {}

    def typical(self, count: int) -> list[Draw]:
        """So many draws at which mutants are looked for, none of them drawn before."""
        return list(itertools.islice(self._typical, count))

    def first(self, terms: Sequence[Term], draw: Draw, *, conditional: bool) -> Generalised | None:
        """Of these terms, met at the draw, one that holds where as simple a condition as of any does, corrected by a factor or
        not; unless `conditional`, one that needs no condition.
        """
        for term in terms:
            if (term, conditional) not in self._seen:
                self._seen[term, conditional] = self._corrected(term, draw, conditional)
        found = [rule for term in terms if (rule := self._seen[term, conditional]) is not None]
        return min(found, key=lambda rule: len(rule.where), default=None)

    def _corrected(self, term: Term, draw: Draw, conditional: bool) -> Generalised | None:
        """The term as it is, or times a factor where it is right at some positions of the draw alone."""
        trial = self._tried(term, draw)
        if trial.holds:
            return self._established(term, conditional)
        if trial.judgement is None or not trial.judgement.equal:
            return None
        right = (s for s in scaled(self.family.program, term) if self._tried(s, draw).holds)
        return next(filter(None, (self._established(s, conditional) for s in right)), None)

    def _tried(self, term: Term, draw: Draw) -> Trial:
        if (term, draw) not in self._known:
            self._known[term, draw] = tried(self.family, term, draw)
        return self._known[term, draw]

    def _round(self, number: int) -> list[Draw]:
        """The draws of a round of trials: half of them where mutants are looked for, half anywhere."""
        while len(self._rounds) <= number:
            self._rounds.append([*self.typical(TRIED), *itertools.islice(self._free, TRIED)])
        return self._rounds[number]

    def _established(self, term: Term, conditional: bool) -> Generalised | None:
        """The term with the condition that says where it holds, in a round of trials that had no part in finding it."""
        trials: list[Trial] = []
        where: tuple[Stated, ...] | None = None
        if not self._general(term):
            return None
        for number in range(ROUNDS):
            nearby = itertools.chain.from_iterable(map(neighbours, self._round(number)[:NEAR]))
            fresh = [self._tried(term, draw) for draw in dict.fromkeys([*self._round(number), *nearby])]
            if where is not None:
                fresh += [self._tried(term, draw) for draw in self._border(where)]
                if all(t.draw.holds(together(where)) == t.holds for t in fresh):
                    return self._told(term, where, [*trials, *fresh])
            trials += fresh
            good, bad = ([t.draw for t in trials if t.holds == held] for held in (True, False))
            where = weakest(self.family, good, bad) if conditional or not bad else None
            if where is None:
                return None
        return None

    def _general(self, term: Term) -> bool:
        """Whether the term holds at more than half of the first sizes at which mutants are looked for."""
        left = TRIED // 2
        for draw in self._round(0)[:TRIED]:
            left -= not self._tried(term, draw).holds
            if left <= 0:
                return False
        return True

    def _border(self, where: Sequence[Stated]) -> Iterator[Draw]:
        """Draws at which the conditions hold, and for each of them draws at which it alone does not."""
        without = [[negation(c.condition), together([o for o in where if o is not c])] for c in where]
        for condition in (together(where), *itertools.starmap(conjunction, without)):
            for sizes in (SIZES, LARGER, SMALLEST):
                with suppress(InstantiationError):
                    yield from itertools.islice(draws(self.family, sizes, self.rng, where=condition), BORDER)

    def _told(self, term: Term, where: tuple[Stated, ...], trials: Sequence[Trial]) -> Generalised:
        held = tuple(t for t in trials if t.holds)
        return Generalised(self.family, term, frozenset(), where, held, tuple(t.draw for t in trials if not t.holds))
