"""Find a simple condition on sizes that separates the sizes at which a rule holds from the sizes at which the rule fails.

A condition compares an extent or attribute with 0, with 1, or with another extent or attribute. A condition can also state that
one number divides another. The result is a conjunction of a few conditions. The result is true at all given sizes at which the
rule holds, and false at all given sizes at which the rule fails. The caller must confirm the result at other sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from superopt.algebra.terms import Cond, Dim, Size, conjunction, size
from superopt.notation.parsing import parse_condition
from superopt.partial.sizes import FamilyDraw, ProgramFamily
from superopt.policy import MUTANT

NUMBERS = (1, 0)


@dataclass(frozen=True)
class StatedCondition:
    """A condition on sizes, as text and in parsed form."""

    text: str
    condition: Cond


def conjoin_separating_conditions(stated: Sequence[StatedCondition]) -> Cond:
    """Return the conjunction of the conditions."""
    return conjunction(*(one.condition for one in stated))


def candidate_conditions(family: ProgramFamily) -> Iterator[StatedCondition]:
    """Yield conditions on the symbolic sizes of the family's program, such as `s0 == 1` and `p0 >= p1`. Simple conditions come
    first.
    """
    tensors = {t.name: t for t in family.tensors}
    for text in _texts(family):
        yield StatedCondition(text, parse_condition(text, tensors, ()))


def _texts(family: ProgramFamily) -> Iterator[str]:
    own = [str(size(a)) for a in family.atoms]
    symbols = [str(size(a)) for a in family.atoms if not isinstance(a, Dim)]
    outputs = [f"({n})" for n in family.program.shape if isinstance(n, Size) and str(n) not in own]
    yield from (f"{n} == {number}" for n, number in itertools.product(own, NUMBERS))
    yield from (f"{n} % {by} == 0" for n, by in itertools.product([*own, *outputs], [*symbols, "2"]) if n != by)
    yield from (f"{one} == {other}" for one, other in itertools.combinations(own, 2))
    yield from (f"{one} >= {other}" for one, other in itertools.permutations(own, 2))


def separating_conditions(
    family: ProgramFamily, good: Sequence[FamilyDraw], bad: Sequence[FamilyDraw]
) -> tuple[StatedCondition, ...] | None:
    """Return a few conditions that separate the sizes in `good` from the sizes in `bad`.

    At every choice of sizes in `good`, all conditions hold. At every choice of sizes in `bad`, at least one condition fails.
    Return None if no such conditions are found.
    """
    if not bad:
        return ()
    usable = [c for c in candidate_conditions(family) if all(d.holds(c.condition) for d in good)]
    excludes = np.array([[not d.holds(c.condition) for d in bad] for c in usable], dtype=np.bool_)
    excludes = excludes.reshape(len(usable), len(bad))
    chosen: list[int] = []
    left = np.ones(len(bad), np.bool_)
    while left.any() and len(chosen) < MUTANT.max_conditions and excludes[:, left].any():
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
