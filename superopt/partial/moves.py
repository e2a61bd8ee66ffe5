"""Enumerate layouts to try for an operator. Some layout steps change only the data, and some change the data and the output."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

from superopt.partial.layout import Exchange, Fold, Grow, Layout, Step
from superopt.policy import MUTANT


def layouts(
    x: Sequence[int], y: Sequence[int], factors: Collection[int], steps: int
) -> Iterator[tuple[Layout, Layout, tuple[Step, ...]]]:
    """Yield triples to try: a layout of the data, a layout of the output, and the steps of the data's layout. Triples with
    fewer steps come first.

    The output's layout has all, some or none of these steps. A step is not applied to the output if the output lacks one of the
    step's axes. A fold moves a whole axis, or a factor of an axis, into a different axis. If the factor does not divide the
    axis, the axis is padded first.

    Args:
        x: The shape of the data.
        y: The shape of the output.
        factors: The factors that folds may move.
        steps: The largest number of steps in a layout. Numbers above 2 are treated like 2.
    """
    x, y = tuple(x), tuple(y)
    yield Layout(x, ()), Layout(y, ()), ()
    ones = [*_exchanges(x), *_folds(x, factors), *_growths(x)] if steps else []
    for chosen in itertools.chain(((s,) for s in ones), _pairs(ones) if steps > 1 else ()):
        before = _layout(x, chosen)
        for mirrored in itertools.product(*((True, False) if max(_axes(s)) < len(y) else (False,) for s in chosen)):
            steps_y = tuple(s for s, on in zip(chosen, mirrored, strict=True) if on)
            yield before, _layout(y, steps_y), chosen


def _axes(step: Step) -> tuple[int, ...]:
    """Return the axes that a layout step affects, counted from the front."""
    match step:
        case Fold():
            return step.source, step.target
        case Exchange():
            return step.one, step.other
        case Grow():
            return (step.axis,)


def _exchanges(x: Sequence[int]) -> Iterator[Step]:
    for one, other in itertools.combinations(range(len(x)), 2):
        if x[one] > 1 and x[other] > 1:
            yield Exchange(one, other)


def _folds(x: Sequence[int], factors: Collection[int]) -> Iterator[Step]:
    for source, target in itertools.permutations(range(len(x)), 2):
        for size in sorted(
            {f for f in factors if 1 < f < x[source]} | ({x[source]} if 1 < x[source] <= MUTANT.max_folded_positions else set())
        ):
            whole = size == x[source]
            for from_inner in (False,) if whole else (False, True):
                for to_inner in (False,) if x[target] == 1 else (False, True):
                    yield Fold(source, target, size, from_inner, to_inner)


def _growths(x: Sequence[int]) -> Iterator[Step]:
    for axis, n in enumerate(x):
        for multiple in MUTANT.padding_multiple_counts:
            if multiple < n and n % multiple:
                yield Grow(axis, multiple)


def _pairs(ones: Sequence[Step]) -> Iterator[tuple[Step, Step]]:
    """Yield pairs of similar layout steps. In some pairs, the steps move factors of two different axes into one axis. In the
    other pairs, the steps pad two axes to multiples of one number.
    """
    for first, second in itertools.combinations(ones, 2):
        if isinstance(first, Fold) and isinstance(second, Fold):
            alike = (first.from_inner, first.to_inner, first.target) == (second.from_inner, second.to_inner, second.target)
            if alike and first.size == second.size and first.source != second.source:
                yield first, second
        elif isinstance(first, Grow) and isinstance(second, Grow) and first.multiple == second.multiple:
            yield first, second


def _layout(shape: tuple[int, ...], steps: Sequence[Step]) -> Layout:
    """Return the layout with the given steps.

    A fold moves a factor of one axis into a different axis. If the factor does not divide the axis, the axis is padded first.
    """
    taken: list[Step] = []
    current = shape
    for step in steps:
        if isinstance(step, Fold) and current[step.source] % step.size:
            taken.append(Grow(step.source, step.size))
            current = taken[-1].shape(current)
        current = step.shape(current)
        taken.append(step)
    return Layout(shape, tuple(taken))
