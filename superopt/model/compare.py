"""End-to-end comparison of models with an original: interleaved runs, with a second copy of the original as control."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypedDict, Unpack

from superopt.active import active_time, stopping
from superopt.model.feasible import feasible_bounds
from superopt.model.load import ModelProto
from superopt.model.session import Device, Session, random_inputs
from superopt.model.stored import Loadable, stored_bytes
from superopt.model.timed import Cold, Timed

RESIDENT = 1 << 30
"""Bytes that the models of a comparison may hold altogether to be loaded at the same time."""
MARGIN = 0.02
LOADS, _LEAST_LOADS = 6, 2
"""How often the models of a comparison are loaded, at most unless that is quick, and at least."""
_LOADING, _SLOW = 0.2, 10.0
"""The share of the time that loading may take where it is done more often; seconds that it takes where it is done once."""
_HURRIED = 3.0
"""Seconds after which no model is loaded again where the search was asked to stop."""
_VISIT = 0.008
LONG = 0.05
"""Seconds from which one run makes a visit: what it finds in the caches matters little to it."""
_MOST_ROUNDS = 400
_BLOCKS = 4
"""How many rounds there are at least where one model is loaded at a time."""
_BLOCK = 0.5
"""Seconds that a model runs for each time it is loaded there, at least."""
_CLEAR, _SURE, _OBVIOUS = 0.03, 0.01, 0.1
"""How narrow the bounds of a ratio are that is told, how far it is beyond what makes a verdict when that is sure, and how far
all of few rounds are when it is obvious.
"""
_CONFIDENCE = 1.96
"""Standard deviations on either side that hold 95 % of what is normal."""
_DEVIATION = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
_FEW, _LEAST, _LEAST_LONG = 3, 3, 4
"""Rounds that make something obvious, and how many there are of each load at least: of short runs, and of those that make a
visit.
"""


@dataclass(frozen=True)
class Comparison:
    """How much faster a candidate is than the original, measured end to end in one process.

    `original` and `candidate` are median seconds a run (processor time where one thread does all the work, see
    `Bound.seconds`). `ratio` is the median over rounds of original / candidate (above 1 is faster), the original's two sessions
    averaged; `low` and `high` bound that median with 95 % confidence. `control` is the ratio of the original's two sessions,
    `noise` how far from 1 it may be with that confidence, by the spread of all its rounds but the outliers.
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


@dataclass(frozen=True)
class Until:
    """When no further round is needed: after so many of a load of the models, if the comparison that they make is `clear`; or
    after `_FEW`, if it is `obvious`. Models that load fast are loaded up to `loads` times.
    """

    rounds: int
    clear: Callable[[Comparison], bool]
    obvious: Callable[[Comparison], bool] = lambda _: False
    loads: int = 0

    def reached(self, rounds: Sequence[Times]) -> bool:
        """Whether these rounds are enough, for every candidate."""
        enough = self.clear if len(rounds) >= self.rounds else self.obvious
        return len(rounds) >= _FEW and all(map(enough, _summaries(rounds)))


def _is_told(found: Comparison) -> bool:
    narrow = found.high - found.low <= _CLEAR * found.ratio
    return narrow and (found.low > 1 + found.noise + _CLEAR or found.high < 1)


def _is_decided(found: Comparison) -> bool:
    gains = found.ratio >= 1 + MARGIN + _SURE and found.low > 1 + found.noise + _SURE
    return gains or found.high < 1 + MARGIN


def _is_obvious(found: Comparison) -> bool:
    return found.low > 1 + found.noise + _OBVIOUS or found.high < 1 - _OBVIOUS


TOLD = Until(24, _is_told, loads=4 * LOADS)
"""The ratio is told well."""
DECIDED = Until(12, _is_decided, _is_obvious)
"""Whether the candidate is faster is as good as decided."""


Sizes: TypeAlias = "Mapping[str, int] | None"
"""Numbers for open dimensions, by name."""
Opened: TypeAlias = Callable[[int], AbstractContextManager[Sequence[Sequence[Timed]]]]
"""Loads the original, the candidates, and the original again, which stand in this order, and gives them inputs of each of some
sizes; told how often they were before.
"""
Setting: TypeAlias = tuple[Loadable, Device]
"""A model, and the device that its session is made for."""
Times: TypeAlias = tuple[float, ...]
"""Seconds of one run of each model in one round, in that order."""


class How(TypedDict, total=False):
    """What may be said of how models are compared, see `compare_settings`."""

    seconds: float
    seed: int
    high: Mapping[str, int] | None
    cold: bool
    loads: int
    progress: Callable[[float], None] | None


def compare(original: Loadable, candidate: Loadable, device: Device, *, sizes: Sizes = None, **how: Unpack[How]) -> Comparison:
    """`compare_settings` of two models on one device, at one of the sizes, until it is decided whether the second is faster.

    Raises:
        InvalidModelError, ProviderError: as `compare_settings`.
    """
    ((found,),) = compare_settings((original, device), [(candidate, device)], at=[sizes], until=DECIDED, **how)
    return found


def compare_all(
    original: Loadable, candidates: Sequence[Loadable], device: Device, *, sizes: Sizes = None, **how: Unpack[How]
) -> list[Comparison]:
    """`compare_settings` of models on one device, at one of the sizes.

    Raises:
        InvalidModelError, ProviderError: as `compare_settings`.
    """
    (found,) = compare_settings((original, device), [(candidate, device) for candidate in candidates], at=[sizes], **how)
    return found


def compare_settings(
    original: Setting,
    candidates: Sequence[Setting],
    *,
    at: Sequence[Sizes] = (None,),
    seconds: float = 10.0,
    seed: int = 0,
    high: Mapping[str, int] | None = None,
    cold: bool = False,
    loads: int = LOADS,
    until: Until = TOLD,
    progress: Callable[[float], None] | None = None,
) -> list[list[Comparison]]:
    """All models timed, each in a session on its device, on the same random inputs, for `seconds` at most.

    `at` each of the sizes there is one comparison for each candidate, all from the same rounds, see `in_turns`. Models that are
    too large to be in memory at the same time are loaded by turns, see `in_blocks`. `high` is as in `random_inputs`; with
    `cold`, nothing of a model is in the processor's caches when a run begins that counts. `loads` and `until` are as in
    `in_turns`; `progress` is told the share of the time that has passed. Where numbers of threads differ, all of them are timed
    by the time that passes.

    Raises:
        InvalidModelError: ONNX Runtime cannot load or run one of the models.
        ProviderError: a session fell back to another provider.
    """
    first, *others = [(_message(model), device) for model, device in (original, *candidates)]
    settings = [first, *others, first]
    wall = len({device.threads for _, device in settings}) > 1
    if sum(stored_bytes(model) for model, _ in settings) > RESIDENT:

        def ready(setting: Setting, sizes: Sizes) -> Timed:
            session = Session(*setting)
            bounds = feasible_bounds(session, sizes, high)
            return session.ready(random_inputs(session.inputs, seed, sizes=sizes, high=bounds), wall=wall)

        def told(place: int, done: float) -> None:
            if progress is not None:
                progress((place + done) / len(at))

        each = seconds / len(at)
        loaded = [[functools.partial(ready, setting, sizes) for setting in settings[:-1]] for sizes in at]
        return [in_blocks(m, seconds=each, progress=functools.partial(told, place)) for place, m in enumerate(loaded)]

    @contextmanager
    def opened(load: int) -> Iterator[list[list[Timed]]]:
        sessions = {which: Session(*settings[which]) for which in loading(len(settings), load)}
        bounds = [feasible_bounds(sessions[0], sizes, high) for sizes in at]
        given = zip(at, bounds, strict=True)
        feeds = [random_inputs(sessions[0].inputs, seed, sizes=sizes, high=ends) for sizes, ends in given]
        ready: list[list[Timed]] = [[sessions[which].ready(fed, wall=wall) for which in range(len(settings))] for fed in feeds]
        yield [[*map(Cold, models)] for models in ready] if cold else ready

    return in_turns(opened, seconds=seconds, loads=loads, until=until, progress=progress)


def _message(model: Loadable) -> Loadable:
    """The model in a form that nothing need be made of for each load."""
    return model.SerializeToString() if isinstance(model, ModelProto) else model


def loading(count: int, load: int) -> list[int]:
    """In which order so many models are loaded this time: in as many loads as there are models each is once at every place, and
    after that in the reverse order of these loads.
    """
    order = [(load + place) % count for place in range(count)]
    return order[::-1] if load // count % 2 else order


def in_turns(
    opened: Opened,
    *,
    seconds: float = 10.0,
    loads: int = LOADS,
    until: Until = TOLD,
    progress: Callable[[float], None] | None = None,
) -> list[list[Comparison]]:
    """Each candidate compared with the original at each of the sizes, all of them visited in turns, for `seconds` at most.

    Models are loaded up to `loads` times, in another order each time (see `loading`), for what a session is lucky with in
    memory stays with it, and those that come last are less so. A round visits the original, each candidate and the original's
    second copy, beginning with another one each time; a visit is one unmeasured run, which brings the model into the caches,
    and the least of those that follow; where a run takes long, it is one run. Rounds end early `until` that is reached for
    every candidate, and loads where it was twice, or is by all rounds of three, or of half of them where there may be more.
    Two loads are made in any case if there may be so many, unless the first took all of the time, or longer than that and
    `_SLOW` until models were there: a GPU's libraries may compile kernels for each session.
    """
    rounds: list[list[Times]] = []
    began, spent, clear, load = active_time(), 0.0, 0, 0
    while load < loads:
        least = max(_LEAST_LOADS, loads // 2) if until.loads else _LEAST_LOADS
        together = load > least and all(map(until.reached, rounds))
        passed = spent if load < _LEAST_LOADS else active_time() - began
        if passed > (min(seconds, _HURRIED) if stopping() else seconds) or together or clear >= _LEAST_LOADS:
            break
        asked = active_time()
        with opened(load) as ready:
            start = active_time()
            if not load:
                opening = max(start - asked, 1e-9)
                loads = 1 if opening > max(_SLOW, seconds) else max(loads, min(until.loads, int(_LOADING * seconds // opening)))
            report = functools.partial(_report, progress, start - spent, seconds)
            each = seconds / loads / len(ready)
            found = [_rounds(timed, active_time() + each, until, report) for timed in ready]
            spent += active_time() - start
            del ready
        rounds = [before + more for before, more in zip(rounds or [[] for _ in found], found, strict=True)]
        clear += all(map(until.reached, found))
        load += 1
    return [_summaries(made) for made in rounds]


def in_blocks(
    loaded: Sequence[Callable[[], Timed]], *, seconds: float = 10.0, progress: Callable[[float], None] | None = None
) -> list[Comparison]:
    """Each candidate compared with the original, which stands first in `loaded`, with one of them in memory at a time.

    A model that is loaded is visited for half a second at least, and gone before the next one is loaded. The original is loaded
    again after the last candidate: what it takes before and after the candidates makes a round. There are four rounds, more if
    these take less than `seconds`, and two where no candidate gained in either, or all are far from the original in both, or
    none can come out as faster in four.
    """
    rounds: list[Times] = []
    start = active_time()
    before = _block(loaded[0])
    while not _is_settled(rounds, active_time() - start, seconds) and (
        len(rounds) < _BLOCKS or active_time() < start + seconds
    ):
        others = [_block(load) for load in loaded[1:]]
        after = _block(loaded[0])
        rounds.append((before, *others, after))
        before = after
        if progress is not None:
            progress(min(1.0, len(rounds) / _BLOCKS))
    return _summaries(rounds)


def _is_settled(rounds: Sequence[Times], spent: float, seconds: float) -> bool:
    """Whether no candidate gained in any round, of which there are two, or it is obvious from them how each compares; or each
    lost one, and four take all of the time: of so few, the bounds of the ratio hold every round.
    """
    found = _summaries(rounds) if len(rounds) >= _BLOCKS // 2 else []
    lost = spent * _BLOCKS >= seconds * len(rounds) and all(one.low <= 1 for one in found)
    return bool(found) and (lost or all(one.high < 1 + MARGIN for one in found) or all(map(_is_obvious, found)))


def _block(load: Callable[[], Timed]) -> float:
    """The least time of a run of the model, from runs that take half a second together, and three of them at least."""
    timed = load()
    times: list[float] = []
    with timed.alone():
        timed.run()
        while len(times) < 3 or sum(times) < _BLOCK:
            times.append(timed.seconds(1))
    return min(times)


def _report(progress: Callable[[float], None] | None, start: float, seconds: float) -> None:
    if progress is not None:
        progress(min(1.0, (active_time() - start) / seconds))


def _rounds(timed: Sequence[Timed], deadline: float, until: Until, report: Callable[[], None]) -> list[Times]:
    """Rounds until what is to be reached is, or the deadline, but for the least number of them."""
    with timed[0].alone():
        runs = [_runs_for_visit(t) for t in timed]
    least = _LEAST_LONG if all(samples == 1 for samples, _ in runs) else _LEAST
    done: list[Times] = []
    while not until.reached(done) and (len(done) < least or (active_time() < deadline and len(done) < _MOST_ROUNDS)):
        times = [0.0] * len(timed)
        with timed[0].alone():
            for turn in range(len(timed)):
                which = (turn + len(done)) % len(timed)
                times[which] = _visit(timed[which], *runs[which])
        done.append(tuple(times))
        report()
    return done


def _runs_for_visit(timed: Timed) -> tuple[int, int]:
    """How many samples a visit takes, and how many runs make a sample, so that a visit lasts about 8 ms or one run."""
    start = active_time()
    timed.run()
    if active_time() - start > LONG:
        return 1, 1
    start = active_time()
    once = min(timed.seconds(1) for _ in range(3))
    passed = (active_time() - start) / 3
    batch = max(1, round(2e-4 / once))
    return min(25, max(2, round(_VISIT / (passed * batch)))), batch


def _visit(timed: Timed, samples: int, batch: int) -> float:
    if samples > 1:
        timed.run()
    return min(timed.seconds(batch) for _ in range(samples))


def _summaries(rounds: Sequence[Times]) -> list[Comparison]:
    """What the rounds say of each candidate, which are all but the first and the last."""
    return [_summary([(times[0], times[which], times[-1]) for times in rounds]) for which in range(1, len(rounds[0]) - 1)]


def _summary(rounds: Sequence[tuple[float, float, float]]) -> Comparison:
    ratio, low, high = _median_interval([(a + c) / 2 / b for a, b, c in rounds])
    controls = [a / c for a, _, c in rounds]
    control = statistics.median(controls)
    return Comparison(
        original=statistics.median([a for a, _, _ in rounds] + [c for _, _, c in rounds]),
        candidate=statistics.median(b for _, b, _ in rounds),
        ratio=ratio,
        low=low,
        high=high,
        control=control,
        noise=abs(control - 1) + _CONFIDENCE * _median_error(controls),
        rounds=len(rounds),
    )


def _median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The median and its 95 % interval from order statistics, which needs no assumption on the noise's distribution."""
    ordered = sorted(values)
    count = len(ordered)
    below = max(0, int((count - _CONFIDENCE * count**0.5) / 2))
    return statistics.median(ordered), ordered[below], ordered[count - 1 - below]


def _median_error(values: Sequence[float]) -> float:
    """The standard error of the median of what is normal but for some outliers, from the median absolute deviation, which they
    do not change (Rousseeuw and Croux, Alternatives to the median absolute deviation, 1993).
    """
    median = statistics.median(values)
    deviation = _DEVIATION * statistics.median(abs(value - median) for value in values)
    return deviation * math.sqrt(math.pi / 2 / len(values))
