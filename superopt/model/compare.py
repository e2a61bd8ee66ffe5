"""End-to-end comparison of two models in ONNX Runtime: interleaved runs, with a second copy of the original as control."""

from __future__ import annotations

import functools
import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from superopt.model.session import Bound, Device, Loadable, Session, Unbound, random_inputs

MARGIN = 0.02
_VISIT = 0.008
_MOST_ROUNDS = 400
_ENOUGH_ROUNDS = 24
_CLEAR = 0.03
"""How narrow the bounds of a ratio are, and how far from 1, when no further round is needed."""


@dataclass(frozen=True)
class Comparison:
    """How much faster a candidate is than the original, measured end to end in one process.

    `original` and `candidate` are median seconds a run (processor time where one thread does all the work, see
    `Bound.seconds`). `ratio` is the median over rounds of original / candidate (above 1 is faster), the original's two sessions
    averaged; `low` and `high` bound that median with 95 % confidence. `control` is the ratio of the original's two sessions,
    `noise` how far from 1 the control's own bounds reach.
    """

    original: float
    candidate: float
    ratio: float
    low: float
    high: float
    control: float
    noise: float
    rounds: int

    def faster(self, margin: float = MARGIN) -> bool:
        """Whether the candidate is faster by at least `margin`, and by more than the noise."""
        return self.ratio >= 1 + margin and self.low > 1 + self.noise

    def slower(self, margin: float = MARGIN) -> bool:
        """Whether the candidate is slower by at least `margin`, and by more than the noise."""
        return self.ratio <= 1 - margin and self.high < 1 - self.noise


def compare(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    *,
    seconds: float = 10.0,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    high: Mapping[str, int] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Comparison:
    """Both models timed under all of ONNX Runtime's optimizations, on the same random inputs, for `seconds` at most.

    Two halves: in one the original's session is created first, in the other the candidate's. A round visits the original, the
    candidate and the original's second session, beginning with another one each time; a visit is one unmeasured run, which
    brings the model into the caches, and the least of those that follow. A half ends early where the verdict is clear. `sizes`
    and `high` are as in `random_inputs`; `progress` is told the share of the time that has passed.

    Raises:
        InvalidModelError: ONNX Runtime cannot load or run one of the models.
        ProviderError: a session fell back to another provider.
    """
    rounds: list[tuple[float, float, float]] = []
    spent = 0.0
    for order in (("a", "b", "c"), ("b", "a", "c")):
        models = {"a": original, "b": candidate, "c": original}
        sessions = {name: Session(models[name], device) for name in order}
        feeds = random_inputs(sessions["a"].inputs, seed, sizes=sizes, high=high)
        bound = [sessions[name].ready(feeds) for name in "abc"]
        start = time.monotonic()
        rounds += _rounds(bound, start + seconds / 2, functools.partial(_report, progress, start - spent, seconds))
        spent += time.monotonic() - start
        del sessions, bound
        gc.collect()
    return _summary(rounds)


def _report(progress: Callable[[float], None] | None, start: float, seconds: float) -> None:
    if progress is not None:
        progress(min(1.0, (time.monotonic() - start) / seconds))


def _rounds(bound: Sequence[Bound | Unbound], deadline: float, report: Callable[[], None]) -> list[tuple[float, float, float]]:
    """At least three rounds, until the deadline or a clear verdict; each gives the seconds of one run of each session."""
    runs = [_runs_for_visit(b) for b in bound]
    done: list[tuple[float, float, float]] = []
    while len(done) < 3 or (time.monotonic() < deadline and len(done) < _MOST_ROUNDS and not _clear(done)):
        times = [0.0] * len(bound)
        for turn in range(len(bound)):
            which = (turn + len(done)) % len(bound)
            times[which] = _visit(bound[which], *runs[which])
        done.append((times[0], times[1], times[2]))
        report()
    return done


def _clear(rounds: Sequence[tuple[float, float, float]]) -> bool:
    """Whether further rounds would neither turn the verdict nor tell the ratio much better."""
    if len(rounds) < _ENOUGH_ROUNDS:
        return False
    found = _summary(rounds)
    narrow = found.high - found.low <= _CLEAR * found.ratio
    return narrow and (found.low > 1 + found.noise + _CLEAR or found.high < 1 - found.noise - _CLEAR)


def _runs_for_visit(bound: Bound | Unbound) -> tuple[int, int]:
    """How many samples a visit takes, and how many runs make a sample, so that a visit lasts about 8 ms."""
    bound.run()
    once = min(bound.seconds(1) for _ in range(3))
    batch = max(1, round(2e-4 / once))
    return min(25, max(2, round(_VISIT / (once * batch)))), batch


def _visit(bound: Bound | Unbound, samples: int, batch: int) -> float:
    bound.run()
    return min(bound.seconds(batch) for _ in range(samples))


def _summary(rounds: Sequence[tuple[float, float, float]]) -> Comparison:
    ratio, low, high = _median_interval([(a + c) / 2 / b for a, b, c in rounds])
    control, least, most = _median_interval([a / c for a, _, c in rounds])
    return Comparison(
        original=statistics.median([a for a, _, _ in rounds] + [c for _, _, c in rounds]),
        candidate=statistics.median(b for _, b, _ in rounds),
        ratio=ratio,
        low=low,
        high=high,
        control=control,
        noise=max(abs(most - 1), abs(least - 1)),
        rounds=len(rounds),
    )


def _median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The median and its 95 % interval from order statistics, which needs no assumption on the noise's distribution."""
    ordered = sorted(values)
    count = len(ordered)
    below = max(0, int((count - 1.96 * count**0.5) / 2))
    return statistics.median(ordered), ordered[below], ordered[count - 1 - below]
