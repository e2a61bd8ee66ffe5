"""Where programs may be mutated: an operator of it, or several of a kind that do not feed each other, cut from the rest."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from superopt.errors import Undecidable
from superopt.graph import Term, subterms, variable
from superopt.linearity import NONE, degrees
from superopt.op import apply, rebuild
from superopt.partial.access import reads
from superopt.partial.source import Source, alone, copies, stacked
from superopt.work import work

MOST_TOGETHER = 16
"""Operators that are taken as one at most."""
TIMES = (2, 4, 8)
"""How many copies of its data an operator is given, and into how many parts one is split."""


@dataclass(frozen=True)
class Place:
    """Operators of a program, each applied to variables in `cuts`; `of` says what those variables stand for."""

    group: tuple[Term, ...]
    cuts: tuple[Term, ...]
    of: Mapping[Term, Term]

    @property
    def flops(self) -> int:
        """The arithmetic of the operators."""
        return sum(work(t).flops for t in self.group)

    @property
    def factors(self) -> frozenset[int]:
        """Sizes that folds may have: the numbers in the operators' attributes, and small ones."""
        values = [v for t in self.group for _, v in t.attributes]
        numbers = itertools.chain.from_iterable(v if isinstance(v, tuple) else (v,) for v in values)
        return frozenset({2, 4}.union(n for n in numbers if isinstance(n, int) and n > 1))

    def singles(self) -> Iterator[Source]:
        """The one operator with each of its operands that are not constant as data."""
        (cut,) = self.cuts
        for data in dict.fromkeys(a for a in cut.args if not a.constant):
            yield alone(cut, data, tuple(a for a in cut.args if a is not data))

    def copied(self, source: Source) -> Iterator[Source]:
        """The source with copies of its channels, for parts of the output's channels."""
        if source.x.rank == len(source.shape) == 4:
            several = [copies(source, times, 1, 1) for times in TIMES]
            yield from (s for s in several if s is not None)

    def stacked(self) -> Iterator[Source]:
        """The operators side by side along each axis, or along a new one."""
        ones = [alone(c, _data(c), tuple(a for a in c.args if a is not _data(c))) for c in self.cuts]
        rank_x, rank_y = ones[0].x.rank, len(ones[0].shape)
        alike = len({s.x for s in ones}) == 1
        level = len({(s.x.shape, s.shape) for s in ones}) > 1
        for axis in range(1, min(rank_x, rank_y) + 2):
            if alike and axis <= rank_y:
                yield stacked(ones, -axis, -axis, shared=True, level=False)
            yield stacked(ones, -axis, -axis, shared=False, level=False)
            if level:
                yield stacked(ones, -axis, -axis, shared=False, level=True)

    def uncut(self) -> Place:
        """The same operators for replacements that are written over the program's own terms."""
        return Place(self.group, self.group, {})

    def put(self, outputs: Sequence[Term], replacements: Sequence[Term]) -> tuple[Term, ...]:
        """The program with other terms for the operators, whose variables are replaced by what they stand for."""
        inner: dict[Term, Term] = {}
        new = {old: rebuild(r, self.of, inner) for old, r in zip(self.group, replacements, strict=True)}
        outer: dict[Term, Term] = {}
        return tuple(rebuild(root, new, outer) for root in outputs)


def _data(cut: Term) -> Term:
    return next(a for a in cut.args if not a.constant)


def places(outputs: Sequence[Term]) -> Iterator[Place]:
    """Every operator that sums over products of its operands, by itself; then those of one kind together."""
    live = [t for t in subterms(*outputs) if not t.constant and _sums(t)]
    for term in live:
        yield place((term,))
    for group in _kinds(live):
        yield place(group)


def _kinds(live: Sequence[Term]) -> Iterator[tuple[Term, ...]]:
    """Operators of one kind, of which none feeds another: all of a level of the program."""
    levels: dict[Term, int] = {}
    for term in subterms(*live):
        levels[term] = max((levels[a] for a in term.args), default=0) + (term in live)
    kinds: dict[tuple[int, str, int], list[Term]] = {}
    for term in live:
        kinds.setdefault((levels[term], term.op, term.rank), []).append(term)
    for group in kinds.values():
        if 1 < len(group) <= MOST_TOGETHER and len({a.rank for t in group for a in t.args if not a.constant}) == 1:
            yield tuple(group)


def _sums(term: Term) -> bool:
    """Whether the term is a polynomial of its operands that sums over several products, and has axes."""
    if term.is_variable or not term.rank or any(NONE in monomial for monomial in degrees(term)):
        return False
    (cut,) = place((term,)).cuts
    middle = tuple(np.array([n // 2]) for n in term.sizes)
    try:
        return sum(len(r.seen) for r in reads(cut, middle)) > 1
    except Undecidable:
        return False


def place(group: tuple[Term, ...]) -> Place:
    """These operators, each applied to variables: an operand that is a variable is itself."""
    of: dict[Term, Term] = {}
    cuts: list[Term] = []
    for term in group:
        args = [_stand_in(a) for a in term.args]
        of.update((s, a) for s, a in zip(args, term.args, strict=True) if s is not a)
        cuts.append(apply(term.op, *args, **dict(term.attributes)))
    return Place(group, tuple(cuts), of)


def _stand_in(term: Term) -> Term:
    return term if term.is_variable else variable(f"at_{term.key}", term.shape, constant=term.constant)
