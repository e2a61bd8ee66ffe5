"""Selection of the search results to use, the model with these results, and their description in the report.

A gain is the search result for one segment (a part of a model) and all of its copies.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from superopt.algebra.value_analysis import ASSUMPTIONS
from superopt.errors import failure
from superopt.model.load import Model
from superopt.model.splice import splice
from superopt.policy import OPTIMIZATION
from superopt.report.optimization import AppliedRule, Arithmetic, SegmentGain
from superopt.rules.fp_flags import ALL_FLAGS, FpFlag, FpMode
from superopt.rules.fusion import FLAGS, RECOGNIZED, fusions, recognition_text
from superopt.rules.rule import Rule
from superopt.search.apply import PARTLY
from superopt.search.segments import Gain, Passes, unsearched
from superopt.speclib.recurrence import recurrences

REGROUPED = frozenset({FpFlag.REASSOC, FpFlag.CONTRACT})
"""The floating-point flags (freedoms to change rounding) of a step that adds in a different order."""


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
    """Return the gains (search results for parts of a model) to use, so that the weights grow by at most `growth` bytes.

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
    """Yield sets of gains to try in turn. Smaller sets are fallbacks if a larger set turns out not to be faster.

    A gain is the search result for one part of the model. A pass is one search over the whole model. The first choice contains
    all gains of `passes`, and each item of `others` is a further choice. The next choices contain no gains except `relowered`,
    and then all gains of the first pass. Each later choice leaves out the half of the remaining gains that saves less. A pass
    depends on the passes before it. The gains of one pass are independent of each other. All choices contain the gains in
    `relowered`.

    Args:
        passes: The gains of each pass. `relowered` is the first pass if it is not empty.
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
    measured speedup, all savings are multiplied by the same number. The predicted speedup is then at the nearer end of the
    interval.

    Args:
        gains: The search results for parts of the model. At least one of them saves time.
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
    model's dimensions, or if the new nodes would form a cycle. The gains that do not fit are found by bisection. They are
    returned without steps, and with the reason (see `unsearched`).
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


def unsearched_segment_counts(searched: Iterable[Gain]) -> dict[str, int]:
    """Return, by reason, the counts of segments that could not be searched or written as nodes.

    A segment is a part of a model.
    """
    found: Counter[str] = Counter()
    for gain in searched:
        if gain.left:
            found[gain.left] += len(gain.copies)
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def splice_passes(model: Model, passes: Passes) -> Model:
    """Return the model with the search results of the passes applied in order, or `model` if there are no results.

    A pass is one search of the whole model.
    """
    for taken in filter(None, passes):
        model = splice(model, [replacement for gain in taken for replacement in gain.replacements()])
    return model


def rules_applied_by_gains(taken: Iterable[Gain], rules: Iterable[Rule]) -> tuple[AppliedRule, ...]:
    """Return the rules, definitions and corrected mutants that the steps of the gains use, with the largest saving first.

    A gain is the search result for one part of the model. A corrected mutant is a term that equals an operator at some output
    positions, with its wrong elements replaced.
    """
    times: dict[str, int] = defaultdict(int)
    saved: dict[str, float] = defaultdict(float)
    taken, rules = list(taken), list(rules)
    for gain in taken:
        for step, seconds in zip(gain.found.steps, gain.steps, strict=True):
            times[step.rule] += len(gain.copies)
            saved[step.rule] += seconds * gain.runs * gain.share_in_context
    stored = {rule.name for rule in rules}
    text = {**{r.name: r.text for r in recurrences()}, **{rule.name: rule.text for rule in (*fusions().values(), *rules)}}
    text |= {step.rule: step.text for gain in taken for step in gain.found.steps if step.rule.startswith(PARTLY)}
    text |= {name: recognition_text(name) for name in times if name.endswith(RECOGNIZED)}
    return tuple(
        AppliedRule(name, text[name], times[name], saved[name], name in stored)
        for name in sorted(times, key=lambda n: (-saved[n], n))
    )


def arithmetic_of_passes(passes: Passes, rules: Iterable[Rule], mode: FpMode) -> Arithmetic:
    """Return the floating-point flags that the passes need, and the assumptions under which the mode admits their steps.

    A flag is an assumption about floating-point values, or a freedom to change results. A step to a corrected mutant (a cheaper
    term that replaces an operator) is assumed to need all flags. A step to a recurrence operator is assumed to need the flags
    for sums in a different order.
    """
    known = {rule.name: rule.flags for rule in (*fusions().values(), *rules)}
    flags: set[FpFlag] = set()
    for step in (step for taken in passes for gain in taken for step in gain.found.steps):
        recognized = FLAGS if step.rule.endswith(RECOGNIZED) else REGROUPED
        flags |= ALL_FLAGS if step.rule.startswith(PARTLY) else known.get(step.rule, recognized)
    assumed = mode is FpMode.RELAXED and not flags <= {*REGROUPED, FpFlag.ARCP, FpFlag.NSZ}
    return Arithmetic(str(mode), tuple(str(flag) for flag in FpFlag if flag in flags), ASSUMPTIONS if assumed else ())


def searched_segment_entries(searched: Iterable[Gain]) -> tuple[SegmentGain, ...]:
    """Return the report's entry for each segment (part of the model) that was searched."""
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
