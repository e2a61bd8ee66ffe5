"""Choose the operators that a mutant replaces in a program: one operator, or several independent operators with equal names.

A mutant is a term that equals a program at some output positions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from superopt.algebra.linearity import NONE, degrees
from superopt.algebra.operators import apply, replace_subterms
from superopt.algebra.terms import Term, subterms, variable
from superopt.errors import Undecidable
from superopt.partial.access import product_reads
from superopt.partial.source import StackedSource, copies, single_source, stack_sources
from superopt.policy import MUTANT
from superopt.rules.work import work


@dataclass(frozen=True)
class Place:
    """Operators within a program, to be replaced by a mutant.

    A mutant is a term that equals a program at some output positions.

    Attributes:
        group: The operators, as terms of the program.
        cuts: Each operator with its operands replaced by variables.
        of: A mapping from each of these variables to the term that the variable replaces.
    """

    group: tuple[Term, ...]
    cuts: tuple[Term, ...]
    of: Mapping[Term, Term]

    @property
    def flops(self) -> int:
        """The number of arithmetic operations of the operators."""
        return sum(work(t).flops for t in self.group)

    @property
    def factors(self) -> frozenset[int]:
        """The factors that may be moved from one axis to another axis: 2, 4, and the numbers in the operators' attributes."""
        values = [v for t in self.group for _, v in t.attributes]
        numbers = itertools.chain.from_iterable(v if isinstance(v, tuple) else (v,) for v in values)
        return frozenset({2, 4}.union(n for n in numbers if isinstance(n, int) and n > 1))

    def singles(self) -> Iterator[StackedSource]:
        """Yield one source for each non-constant operand of the place's only operator. In this source, the operand is the data,
        and all further operands are the weights.
        """
        (cut,) = self.cuts
        for data in dict.fromkeys(a for a in cut.args if not a.constant):
            yield single_source(cut, data, tuple(a for a in cut.args if a is not data))

    def copied(self, source: StackedSource) -> Iterator[StackedSource]:
        """Yield versions of the program `source` that read several copies of its data. The copies are concatenated along the
        channel axis. Each copy is used for a part of the output's channels.
        """
        if source.x.rank == len(source.shape) == 4:
            several = [copies(source, times, 1, 1) for times in MUTANT.copy_counts]
            yield from (s for s in several if s is not None)

    def stacked(self) -> Iterator[StackedSource]:
        """Yield the operators as one program whose data and output are concatenations along an existing axis or a new axis."""
        ones = [single_source(c, _data(c), tuple(a for a in c.args if a is not _data(c))) for c in self.cuts]
        rank_x, rank_y = ones[0].x.rank, len(ones[0].shape)
        alike = len({s.x for s in ones}) == 1
        level = len({(s.x.shape, s.shape) for s in ones}) > 1
        for axis in range(1, min(rank_x, rank_y) + 2):
            if alike and axis <= rank_y:
                yield stack_sources(ones, -axis, -axis, shared=True, level=False)
            yield stack_sources(ones, -axis, -axis, shared=False, level=False)
            if level:
                yield stack_sources(ones, -axis, -axis, shared=False, level=True)

    def uncut(self) -> Place:
        """Return a place with these operators, in which the operands are the program's own terms instead of variables."""
        return Place(self.group, self.group, {})

    def put(self, outputs: Sequence[Term], replacements: Sequence[Term]) -> tuple[Term, ...]:
        """Return the program's outputs with the operators of this place replaced by `replacements`.

        In the replacements, the variables that stand for operands are replaced by the program's terms.
        """
        inner: dict[Term, Term] = {}
        new = {old: replace_subterms(r, self.of, inner) for old, r in zip(self.group, replacements, strict=True)}
        outer: dict[Term, Term] = {}
        return tuple(replace_subterms(root, new, outer) for root in outputs)


def _data(cut: Term) -> Term:
    return next(a for a in cut.args if not a.constant)


def operator_places(outputs: Sequence[Term]) -> Iterator[Place]:
    """Yield every operator that sums products of its operands: first each operator individually, then groups of operators with
    equal names.
    """
    live = [t for t in subterms(*outputs) if not t.constant and _sums(t)]
    for term in live:
        yield place((term,))
    for group in _kinds(live):
        yield place(group)


def _kinds(live: Sequence[Term]) -> Iterator[tuple[Term, ...]]:
    """Yield groups of operators. The operators of a group have one name, one rank and one depth in the program. No operator of
    a group depends on an operator of the group.
    """
    levels: dict[Term, int] = {}
    for term in subterms(*live):
        levels[term] = max((levels[a] for a in term.args), default=0) + (term in live)
    kinds: dict[tuple[int, str, int], list[Term]] = {}
    for term in live:
        kinds.setdefault((levels[term], term.op, term.rank), []).append(term)
    for group in kinds.values():
        if (
            1 < len(group) <= MUTANT.max_joined_operators
            and len({a.rank for t in group for a in t.args if not a.constant}) == 1
        ):
            yield tuple(group)


def _sums(term: Term) -> bool:
    """Return whether the root operator sums several products and is a polynomial in its operands. Return False if the result is
    a scalar.
    """
    if term.is_variable or not term.rank or any(NONE in monomial for monomial in degrees(term)):
        return False
    (cut,) = place((term,)).cuts
    middle = tuple(np.array([n // 2]) for n in term.sizes)
    try:
        return sum(len(r.seen) for r in product_reads(cut, middle)) > 1
    except Undecidable:
        return False


def place(group: tuple[Term, ...]) -> Place:
    """Return these operators as a `Place`. In `Place.cuts`, a variable replaces each operand that is not a variable."""
    of: dict[Term, Term] = {}
    cuts: list[Term] = []
    for term in group:
        args = [_stand_in(a) for a in term.args]
        of.update((s, a) for s, a in zip(args, term.args, strict=True) if s is not a)
        cuts.append(apply(term.op, *args, **dict(term.attributes)))
    return Place(group, tuple(cuts), of)


def _stand_in(term: Term) -> Term:
    return term if term.is_variable else variable(f"at_{term.key}", term.shape, constant=term.constant)
