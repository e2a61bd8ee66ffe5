"""Which of the gains that a search found a model takes, the model that has them, and what the report says of them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from superopt.errors import failure
from superopt.fp_flags import ALL_FLAGS, FpFlag, FpMode
from superopt.fusion import fusions
from superopt.model.load import Model
from superopt.model.splice import splice
from superopt.recurrence import recurrences
from superopt.report.optimization import AppliedRule, Arithmetic, SegmentGain
from superopt.rewrite.apply import PARTLY
from superopt.rule import Rule
from superopt.segments import Gain, Passes, left
from superopt.value_facts import ASSUMPTIONS

GROWTH, GROWTH_OF_SMALL, SMALL = 0.5, 3.0, 2**28
"""How much larger the weights may become, as a share of those of the original; as long as they grow by no more than the last
figure, in bytes, the second share.
"""
REGROUPED = frozenset({FpFlag.REASSOC, FpFlag.CONTRACT})
"""The flags of a step that sums what it is made of in another order."""
GROWTH_AT_LEAST = 2**20
"""Bytes that the weights may grow by in any case."""


def room(weights: int, growth: float | None) -> float:
    """Bytes by which weights may grow that are so many now: by that share of them, where one is given."""
    share = max(GROWTH * weights, min(GROWTH_OF_SMALL * weights, SMALL)) if growth is None else growth * weights
    return GROWTH_AT_LEAST + share


def affordable(found: Iterable[Gain], growth: float) -> list[Gain]:
    """The gains to take so that weights grow by `growth` bytes at most: those that shrink them, then the best by the byte."""
    taken: list[Gain] = []
    left = growth
    useful = [g for g in found if g.found.steps and g.seconds > 0]
    for gain in sorted(useful, key=lambda g: -math.inf if g.bytes <= 0 else -g.seconds / g.bytes):
        if gain.bytes <= left:
            taken.append(gain)
            left -= gain.bytes
    return taken


def selections(passes: Passes, forms: tuple[Gain, ...] = (), others: Sequence[Passes] = ()) -> Iterator[Passes]:
    """Which gains to take, should a larger choice not measure faster: all, then the `others`, then the `forms` alone if there
    are any, then the first pass alone, then the half of that which promises most, the half of the half, and so on.

    A pass rests on those before it; within one, gains are independent of each other.
    """
    kept = [taken for taken in passes if taken]
    if not kept:
        return
    yield tuple(kept)
    yield from (other for other in others if any(other))
    first = sorted(kept[0], key=lambda gain: -gain.seconds)
    if len(kept) > 1:
        if forms:
            yield (forms,)
        yield (tuple(first),)
    while first := first[: len(first) // 2]:
        yield (tuple(first),)


def has_steps_of(rules: AbstractSet[str], *found: Passes) -> bool:
    """Whether what was found has steps of these rules."""
    return any(step.rule in rules for passes in found for taken in passes for gain in taken for step in gain.found.steps)


def fitting(model: Model, taken: Sequence[Gain]) -> tuple[Model, list[Gain], list[Gain]]:
    """The model with those of the gains taken that it can have together, these gains, and the others as they are `left`.

    A gain that cannot be lowered over the model's dimensions, or would close a cycle, is found by halving what is tried.
    """
    try:
        return spliced(model, (tuple(taken),)), [*taken], []
    except Exception as error:  # noqa: BLE001
        why = failure(error)
        if len(taken) == 1:
            return model, [], [left(taken[0].copies, why)]
    half = len(taken) // 2
    model, first, dropped = fitting(model, taken[:half])
    model, second, more = fitting(model, taken[half:])
    return model, first + second, dropped + more


def windows_left(searched: Iterable[Gain]) -> dict[str, int]:
    """How many segments were left as they are because they could not be searched or lowered, by the reason."""
    found: Counter[str] = Counter()
    for gain in searched:
        if gain.left:
            found[gain.left] += len(gain.copies)
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def spliced(model: Model, passes: Passes) -> Model:
    """The model with these gains taken, one pass after the other; itself where there are none."""
    for taken in filter(None, passes):
        model = splice(model, [replacement for gain in taken for replacement in gain.replacements()])
    return model


def applied_rules(taken: Iterable[Gain], rules: Iterable[Rule]) -> tuple[AppliedRule, ...]:
    """The rules, definitions and corrected mutants of all steps taken, those that gain most first."""
    times: dict[str, int] = defaultdict(int)
    saved: dict[str, float] = defaultdict(float)
    for gain in taken:
        for step, seconds in zip(gain.found.steps, gain.steps, strict=True):
            times[step.rule] += len(gain.copies)
            saved[step.rule] += seconds * gain.runs
    taken = list(taken)
    text = {**{r.name: r.text for r in recurrences()}, **{rule.name: rule.text for rule in (*fusions().values(), *rules)}}
    text |= {step.rule: step.text for gain in taken for step in gain.found.steps if step.rule.startswith(PARTLY)}
    return tuple(
        AppliedRule(name, text[name], times[name], saved[name]) for name in sorted(times, key=lambda n: (-saved[n], n))
    )


def arithmetic(passes: Passes, rules: Iterable[Rule], mode: FpMode) -> Arithmetic:
    """The floating-point flags that the steps need, and what the mode assumed of values to admit them.

    A mutant may need every flag. A recurrence is computed by its own definition, summed in another order.
    """
    known = {rule.name: rule.flags for rule in (*fusions().values(), *rules)}
    flags: set[FpFlag] = set()
    for step in (step for taken in passes for gain in taken for step in gain.found.steps):
        flags |= ALL_FLAGS if step.rule.startswith(PARTLY) else known.get(step.rule, REGROUPED)
    assumed = mode is FpMode.RELAXED and not flags <= {*REGROUPED, FpFlag.ARCP, FpFlag.NSZ}
    return Arithmetic(str(mode), tuple(str(flag) for flag in FpFlag if flag in flags), ASSUMPTIONS if assumed else ())


def segment_rows(searched: Iterable[Gain]) -> tuple[SegmentGain, ...]:
    """What the report says about each segment that was searched."""
    return tuple(
        SegmentGain(
            outputs=tuple(gain.copies[0].island.outputs),
            nodes=len(gain.copies[0].island.nodes),
            copies=len(gain.copies),
            before=gain.found.before,
            after=gain.found.after,
            rules=tuple(step.rule for step in gain.found.steps),
            states=gain.found.expanded,
            stopped=gain.found.stopped,
        )
        for gain in searched
    )
