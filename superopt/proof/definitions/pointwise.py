"""Tests of whether a sum without bound indices is zero. Sums without bound indices arise from equations between elementwise
functions.

Each tensor element is replaced with an unknown number. One cached result can therefore be used for all ranks and axes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from superopt.algebra.substitution import condition_atoms
from superopt.algebra.terms import Atom, atoms
from superopt.policy import PROOF
from superopt.proof.definitions.alpha import collect_summands
from superopt.proof.definitions.arithmetic import skip_questions
from superopt.proof.definitions.cancel import Cancellation
from superopt.proof.definitions.normal import Normal
from superopt.proof.definitions.sums import (
    Call,
    Factor,
    Guard,
    GuardedValue,
    Largest,
    Power,
    Read,
    Sum,
    Summand,
    TableElement,
    bound_in,
)
from superopt.proof.domains import implied_signs


def pointwise_zero(facts: Guard, value: Sum) -> bool:
    """Return whether the sum is zero wherever it is defined, for all values of the tensor elements in it.

    False can also mean undecided. The result is False if the sum contains a bound index. Summands are grouped by their guards,
    and each group is tested separately.
    """
    if not value:
        return True
    if any(True for s in value for _ in bound_in(s)):
        return False
    groups: dict[frozenset[object], list[Summand]] = {}
    for summand in value:
        groups.setdefault(frozenset(summand.guard), []).append(replace(summand, guard=()))
    return all(_zero(*_abstract(facts, tuple(group))) for group in groups.values())


@functools.lru_cache(maxsize=PROOF.pointwise_cache_count)
@skip_questions()
def _zero(facts: Guard, value: Sum) -> bool:
    notation = Normal()
    signs = implied_signs(facts, value, notation)
    return Cancellation(notation.telling(notation.signs.telling(signs)), told=signs).zero(facts, value)


def _abstract(facts: Guard, value: Sum) -> tuple[Guard, Sum]:
    """Replace each tensor element in the sum with an unknown number. Return the relevant facts and the new sum.

    A fact is relevant if the fact shares a size or attribute variable with the new sum or with another relevant fact.
    """
    elements = _Elements()
    plain = collect_summands(elements.sum(value))
    spoken = elements.spoken
    grown = True
    about = [(fact, set(condition_atoms(fact))) for fact in facts]
    kept: dict[int, None] = {}
    while grown:
        grown = False
        for place, (_, named) in enumerate(about):
            if place not in kept and named & spoken:
                kept[place] = None
                spoken |= named
                grown = True
    return tuple(about[place][0] for place in sorted(kept)), plain


class _Elements:
    def __init__(self) -> None:
        self.known: dict[Read, Read] = {}
        self.spoken: set[Atom] = set()

    def sum(self, value: Sum) -> Sum:
        return tuple(self.summand(s) for s in value)

    def summand(self, summand: Summand) -> Summand:
        self.spoken.update(atoms(summand.coefficient))
        self.spoken.update(a for c in summand.guard for a in condition_atoms(c))
        return replace(summand, factors=tuple(map(self.factor, summand.factors)))

    def factor(self, factor: Factor) -> Factor:
        match factor:
            case Read():
                return self.known.setdefault(factor, Read(f"e{len(self.known)}", ()))
            case TableElement(_, _, indices):
                self.spoken.update(a for i in indices for a in atoms(i))
                return factor
            case Call(function, arguments):
                return Call(function, tuple(map(self.sum, arguments)))
            case Power(base, exponent):
                self.spoken.update(atoms(exponent))
                return Power(self.sum(base), exponent)
            case Largest(candidates):
                return Largest(tuple(self.candidates(candidates)))

    def candidates(self, candidates: tuple[GuardedValue, ...]) -> Iterator[GuardedValue]:
        for candidate in candidates:
            self.spoken.update(a for c in candidate.guard for a in condition_atoms(c))
            yield replace(candidate, value=self.sum(candidate.value))
