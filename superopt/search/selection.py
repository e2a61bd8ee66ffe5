"""Selection of the search results that are used, and application of these results to the model.

A gain is the search result for one segment (a part of a model) and its copies (equal segments).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from superopt.errors import failure
from superopt.model.load import Model
from superopt.model.splice import splice
from superopt.policy import OPTIMIZATION
from superopt.search.segments import Gain, Passes, unsearched


def weight_budget(weights: int, growth: float | None) -> float:
    """Return the number of bytes by which a model's weights may grow.

    Args:
        weights: The bytes of the model's weights.
        growth: The share of `weights` by which the weights may grow, or None for the default growth.
    """
    share = (
        max(
            OPTIMIZATION.weight_growth_share * weights,
            min(OPTIMIZATION.small_weight_growth_share * weights, OPTIMIZATION.small_weight_bytes),
        )
        if growth is None
        else growth * weights
    )
    return OPTIMIZATION.min_weight_growth_bytes + share


def affordable_gains(found: Iterable[Gain], growth: float) -> list[Gain]:
    """Choose the gains (search results for parts of a model) to use. The weights may grow by at most `growth` bytes.

    Gains that do not increase the weights come first. Then the gains that save the most seconds per byte are chosen.
    """
    taken: list[Gain] = []
    left = growth
    useful = [g for g in found if g.found.steps and g.seconds > 0]
    for gain in sorted(useful, key=lambda g: -math.inf if g.bytes <= 0 else -g.seconds / g.bytes):
        if gain.bytes <= left:
            taken.append(gain)
            left -= gain.bytes
    return taken


def fallback_choices(passes: Passes, relowered: tuple[Gain, ...] = (), others: Sequence[Passes] = ()) -> Iterator[Passes]:
    """Yield sets of gains, which the caller tries one after another. A smaller set is a fallback in case a larger set is not
    faster.

    A gain is the search result for one part of the model. A pass is one search over the whole model. The first choice contains
    all gains of `passes`, and each item of `others` is a further choice. If `relowered` is not empty, the next choice contains
    only the gains in `relowered`. The following choice contains all gains of the first pass. Each later choice keeps the half
    of the previous choice's gains that saves most. A pass depends on the passes before it. The gains of one pass are
    independent of each other. All choices contain the gains in `relowered`.

    Args:
        passes: The gains of each pass. If `relowered` is not empty, the first element of `passes` is `relowered`.
        relowered: Search results that keep the terms of the model. Only the nodes are generated anew from these terms.
        others: The gains of each pass, for other orders of passes.
    """
    kept = [taken for taken in passes if taken]
    if not kept:
        return
    yield tuple(kept)
    yield from (other for other in others if any(other))
    base = (relowered,) if relowered else ()
    if len(kept) == len(base):
        return
    if base:
        yield base
    first = sorted(kept[len(base)], key=lambda gain: -gain.seconds)
    if len(kept) > 1 + len(base):
        yield (*base, tuple(first))
    while first := first[: len(first) // 2]:
        yield (*base, tuple(first))


def priced_in_context(gains: Sequence[Gain], seconds: float, low: float, high: float) -> list[Gain]:
    """Scale the savings of the gains so that their sum agrees with timings of the whole model, and return the new gains.

    The predicted speedup follows from the sum of the gains' savings. The measured speedup is the run time of the model without
    the gains divided by the run time with the gains. If the predicted speedup is outside of the confidence interval of the
    measured speedup, all savings are multiplied by one number, so that the predicted speedup moves to the nearer end of the
    interval.

    Args:
        gains: The search results for parts of the model. At least one gain saves time.
        seconds: The seconds of one run of the model without the gains.
        low: The lower end of the confidence interval of the measured speedup.
        high: The upper end of this interval, at least 1.
    """
    saved = sum(gain.seconds for gain in gains)
    factor = seconds / (seconds - saved) if saved < seconds else math.inf
    measured = min(max(factor, low), high)
    if measured == factor:
        return [*gains]
    share = seconds * (1 - 1 / measured) / saved
    return [replace(gain, share_in_context=gain.share_in_context * share) for gain in gains]


def has_steps_of(rules: AbstractSet[str], *found: Passes) -> bool:
    """Return whether a search result in any pass has a step that applies one of the rules named in `rules`."""
    return any(step.rule in rules for passes in found for taken in passes for gain in taken for step in gain.found.steps)


def splice_fitting(model: Model, taken: Sequence[Gain]) -> tuple[Model, list[Gain], list[Gain]]:
    """Apply all gains that fit, and return the new model, the applied gains, and the gains that do not fit.

    A gain is the search result for one part of the model. A gain does not fit if its terms cannot be written as nodes over the
    model's dimensions, or if the new nodes would form a cycle. The gains that do not fit are found by bisection. These gains
    are returned without steps, and with the reason (see `unsearched`).
    """
    try:
        return splice_passes(model, (tuple(taken),)), [*taken], []
    except Exception as error:  # noqa: BLE001
        why = failure(error)
        if len(taken) == 1:
            return model, [], [unsearched(taken[0].copies, why)]
    half = len(taken) // 2
    model, first, dropped = splice_fitting(model, taken[:half])
    model, second, more = splice_fitting(model, taken[half:])
    return model, first + second, dropped + more


def splice_passes(model: Model, passes: Passes) -> Model:
    """Apply the search results of the passes to the model in order, and return the new model.

    If there are no results, return `model`. A pass is one search of the whole model.
    """
    for taken in filter(None, passes):
        model = splice(model, [replacement for gain in taken for replacement in gain.replacements()])
    return model
