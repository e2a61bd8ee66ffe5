"""The weakest condition on sizes that tells draws at which a rule holds from draws at which it does not.

Conditions compare extents and attributes with small numbers and with each other, and say what divides what. A conjunction of
the fewest of them is taken that holds wherever the rule does and nowhere else among the draws; whether it is the right one,
other draws have to say.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from superopt.graph import Cond, Dim, Size, conjunction, size
from superopt.partial.sizes import Draw, Family
from superopt.text import parse_condition

NUMBERS = (1, 0)
MOST_TOGETHER = 8
"""Conditions of one conjunction at most."""


@dataclass(frozen=True)
class Stated:
    """A condition as the notation has it, and read."""

    text: str
    condition: Cond


def together(stated: Sequence[Stated]) -> Cond:
    """All of the conditions at once."""
    return conjunction(*(one.condition for one in stated))


def candidates(family: Family) -> Iterator[Stated]:
    """Conditions on the sizes of a family, the simple ones first."""
    tensors = {t.name: t for t in family.tensors}
    for text in _texts(family):
        yield Stated(text, parse_condition(text, tensors, ()))


def _texts(family: Family) -> Iterator[str]:
    own = [str(size(a)) for a in family.atoms]
    symbols = [str(size(a)) for a in family.atoms if not isinstance(a, Dim)]
    outputs = [f"({n})" for n in family.program.shape if isinstance(n, Size) and str(n) not in own]
    yield from (f"{n} == {number}" for n, number in itertools.product(own, NUMBERS))
    yield from (f"{n} % {by} == 0" for n, by in itertools.product([*own, *outputs], [*symbols, "2"]) if n != by)
    yield from (f"{one} == {other}" for one, other in itertools.combinations(own, 2))
    yield from (f"{one} >= {other}" for one, other in itertools.permutations(own, 2))


def weakest(family: Family, good: Sequence[Draw], bad: Sequence[Draw]) -> tuple[Stated, ...] | None:
    """The fewest conditions that hold at all good draws and not together at any bad one, each the simplest that will do beside
    the others; None where there are none.
    """
    if not bad:
        return ()
    usable = [c for c in candidates(family) if all(d.holds(c.condition) for d in good)]
    excludes = np.array([[not d.holds(c.condition) for d in bad] for c in usable], dtype=np.bool_)
    excludes = excludes.reshape(len(usable), len(bad))
    chosen: list[int] = []
    left = np.ones(len(bad), np.bool_)
    while left.any() and len(chosen) < MOST_TOGETHER and excludes[:, left].any():
        chosen.append(int(excludes[:, left].sum(axis=1).argmax()))
        left &= ~excludes[chosen[-1]]
    if left.any():
        return None
    for one in list(chosen):
        rest = [c for c in chosen if c != one]
        if rest and excludes[rest].any(axis=0).all():
            chosen = rest
    for at in range(len(chosen)):
        others = excludes[chosen[:at] + chosen[at + 1 :]].any(axis=0)
        chosen[at] = int((excludes | others).all(axis=1).argmax())
    return tuple(usable[c] for c in sorted(chosen))
