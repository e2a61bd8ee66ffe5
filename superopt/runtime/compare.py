"""End-to-end timing of candidate models against an original model.

The models are timed alternately on the same machine. A second copy of the original is timed as a control.
"""

from __future__ import annotations

import contextlib
import functools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypedDict, Unpack

from onnx import ModelProto

from superopt.budget import active_time, is_stop_requested
from superopt.child.program import release_memory, resident_bytes
from superopt.policy import COMPARISON
from superopt.protobuf.stored import Loadable, stored_bytes
from superopt.runtime.feasible import feasible_source
from superopt.runtime.input_source import DRAWN, InputSource
from superopt.runtime.session import Device, Session
from superopt.runtime.timed import ColdTimedModel, Timed

_CONFIDENCE = 1.96
"""The distance from the mean, in standard deviations, within which 95 % of a normal distribution lies."""
_DEVIATION = 1.4826
"""The standard deviation of a normal distribution, divided by its median absolute deviation."""


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison: how much faster a candidate is than the original, measured end to end in one process.

    Times are CPU times if one thread does all the work. In all other cases, times are wall-clock times (see `Bound.seconds`).

    Attributes:
        original: the median time of a run of the original, in seconds.
        candidate: the median time of a run of the candidate, in seconds.
        ratio: the median, over rounds, of the original's time divided by the candidate's time. The original's time is the mean
            over its two sessions. A ratio above 1 means that the candidate is faster.
        low: the lower end of the 95 % confidence interval of the median ratio.
        high: the upper end of the 95 % confidence interval of the median ratio.
        control: the median, over rounds, of the ratio between the times of the original's two sessions.
        noise: the distance between 1 and the control, plus the control's margin of error at 95 % confidence. Outlying rounds
            hardly affect the noise.
        rounds: the number of rounds. A round times each model once.
    """

    original: float
    candidate: float
    ratio: float
    low: float
    high: float
    control: float
    noise: float
    rounds: int

    def faster(self, margin: float = COMPARISON.min_gain_margin_share) -> bool:
        """Return whether the candidate is faster by at least `margin`, and by more than `noise` with 95 % confidence."""
        return self.ratio >= 1 + margin and self.low > 1 + self.noise

    def slower(self, margin: float = COMPARISON.min_gain_margin_share) -> bool:
        """Return whether the candidate is slower by at least `margin`, and by more than `noise` with 95 % confidence."""
        return self.ratio <= 1 - margin and self.high < 1 - self.noise


@dataclass(frozen=True)
class StoppingRule:
    """The conditions under which a comparison needs no further rounds.

    Attributes:
        rounds: the least number of rounds after which the function `clear` decides. After fewer rounds, the function `obvious`
            decides. A round times each model once.
        clear: a function that returns whether the result of a comparison is certain enough to stop.
        obvious: a stricter function than `clear`. After fewer than 3 rounds, neither function decides, and the comparison
            continues.
        loads: the number of times that models may be loaded if loading is fast. A number below the comparison's own limit has
            no effect.
    """

    rounds: int
    clear: Callable[[Comparison], bool]
    obvious: Callable[[Comparison], bool] = lambda _: False
    loads: int = 0

    def reached(self, rounds: Sequence[Times]) -> bool:
        """Return whether the results after these rounds are certain enough for all candidates."""
        enough = self.clear if len(rounds) >= self.rounds else self.obvious
        return len(rounds) >= COMPARISON.min_obvious_rounds and all(map(enough, _summaries(rounds)))


def _is_told(found: Comparison) -> bool:
    narrow = found.high - found.low <= COMPARISON.reported_interval_share * found.ratio
    return narrow and (found.low > 1 + found.noise + COMPARISON.reported_interval_share or found.high < 1)


def _is_decided(found: Comparison) -> bool:
    gains = (
        found.ratio >= 1 + COMPARISON.min_gain_margin_share + COMPARISON.sure_margin_share
        and found.low > 1 + found.noise + COMPARISON.sure_margin_share
    )
    return gains or found.high < 1 + COMPARISON.min_gain_margin_share


def _is_obvious(found: Comparison) -> bool:
    return found.low > 1 + found.noise + COMPARISON.obvious_margin_share or found.high < 1 - COMPARISON.obvious_margin_share


TOLD = StoppingRule(COMPARISON.min_report_rounds, _is_told, loads=COMPARISON.max_report_loads)
"""Stop timing when the ratio of the models' times is precise enough to be reported."""
DECIDED = StoppingRule(COMPARISON.min_verdict_rounds, _is_decided, _is_obvious)
"""Stop timing when further rounds are unlikely to change whether the candidate counts as faster."""


Sizes: TypeAlias = "Mapping[str, int] | None"
"""Sizes of dynamic dimensions, by name."""
Opened: TypeAlias = Callable[[int], AbstractContextManager[Sequence[Sequence[Timed]]]]
"""A function that takes the number of times that the models were loaded before, and returns a context in which the models are
loaded.

For each choice of sizes, the context provides a list of the loaded models, with inputs of these sizes. The list contains the
original, the candidates and a second copy of the original, in this order.
"""
Setting: TypeAlias = tuple[Loadable, Device]
"""A model, and the device of its session."""
Times: TypeAlias = tuple[float, ...]
"""The time in seconds of one run of each model in one round, in the order of the models."""


class ComparisonOptions(TypedDict, total=False):
    """The optional arguments of a comparison; see `compare_settings`."""

    seconds: float
    seed: int
    source: InputSource
    cold: bool
    loads: int
    run_bytes: int
    progress: Callable[[float], None] | None


def compare(
    original: Loadable, candidate: Loadable, device: Device, *, sizes: Sizes = None, **how: Unpack[ComparisonOptions]
) -> Comparison:
    """Time two models on one device until it is clear whether the candidate is faster.

    `sizes` contains the sizes of the models' dynamic dimensions.

    Raises:
        InvalidModelError, ProviderError: see `compare_settings`.
    """
    ((found,),) = compare_settings((original, device), [(candidate, device)], at=[sizes], until=DECIDED, **how)
    return found


def compare_all(
    original: Loadable, candidates: Sequence[Loadable], device: Device, *, sizes: Sizes = None, **how: Unpack[ComparisonOptions]
) -> list[Comparison]:
    """Time candidates against the original on one device; see `compare_settings`.

    `sizes` contains the sizes of the models' dynamic dimensions.

    Raises:
        InvalidModelError, ProviderError: see `compare_settings`.
    """
    (found,) = compare_settings((original, device), [(candidate, device) for candidate in candidates], at=[sizes], **how)
    return found


def compare_settings(
    original: Setting,
    candidates: Sequence[Setting],
    *,
    at: Sequence[Sizes] = (None,),
    seconds: float = COMPARISON.comparison_seconds,
    seed: int = 0,
    source: InputSource = DRAWN,
    cold: bool = False,
    loads: int = COMPARISON.max_loads,
    run_bytes: int = 0,
    until: StoppingRule = TOLD,
    progress: Callable[[float], None] | None = None,
) -> list[list[Comparison]]:
    """Time all models on the same random inputs, each in a session on its device.

    The models are timed alternately (see `compare_in_turns`). Models that do not fit into memory together are loaded one at a
    time (see `compare_in_blocks`). On the CPU, the memory that the runs need is measured after the first load. If the models
    run with different numbers of threads, wall-clock time is measured for all models.

    Args:
        original: the original and its device.
        candidates: the candidates and their devices.
        at: choices of sizes for the dynamic dimensions.
        seconds: the time limit of the comparison, in seconds.
        seed: the seed of the inputs.
        source: the source of the inputs.
        cold: whether the processor's caches are filled with other data before each timed run.
        loads: the largest number of times that the models are loaded, as in `compare_in_turns`.
        run_bytes: the memory in bytes that a run of one model needs beyond the loaded model, or 0 if this memory is not known.
        until: the condition under which the timing stops early, as in `compare_in_turns`.
        progress: a function that is called with the elapsed share of the time limit.

    Returns:
        For each choice of sizes, one comparison for each candidate. All candidates are timed in the same rounds.

    Raises:
        InvalidModelError: ONNX Runtime cannot load or run one of the models.
        ProviderError: a session fell back to another provider.
    """
    first, *others = [(_message(model), device) for model, device in (original, *candidates)]
    settings = [first, *others, first]
    wall = len({device.threads for _, device in settings}) > 1
    stored = sum(stored_bytes(model) for model, _ in settings)

    def in_blocks() -> list[list[Comparison]]:
        def ready(setting: Setting, sizes: Sizes) -> Timed:
            session = Session(*setting)
            return session.ready(_feasible(session, setting, sizes, source).values(session.inputs, seed, sizes), wall=wall)

        def told(place: int, done: float) -> None:
            if progress is not None:
                progress((place + done) / len(at))

        each = seconds / len(at)
        loaded = [[functools.partial(ready, setting, sizes) for setting in settings[:-1]] for sizes in at]
        return [compare_in_blocks(m, seconds=each, progress=functools.partial(told, place)) for place, m in enumerate(loaded)]

    @contextmanager
    def opened(load: int) -> Iterator[list[list[Timed]]]:
        sessions = {which: Session(*settings[which]) for which in loading(len(settings), load)}
        ports = sessions[0].inputs
        feeds = [_feasible(sessions[0], first, sizes, source).values(ports, seed, sizes) for sizes in at]
        start = resident_bytes("VmRSS") if not load and first[1].provider == "cpu" else 0
        ready: list[list[Timed]] = [[] for _ in feeds]
        for models, fed in zip(ready, feeds, strict=True):
            for which in range(len(settings)):
                models.append(sessions[which].ready(fed, wall=wall))
                if start and models is ready[0] and len(models) < len(settings):
                    _require_little_memory(models, start, len(settings))
        yield [[*map(ColdTimedModel, models)] for models in ready] if cold else ready

    if stored > COMPARISON.max_resident_bytes or run_bytes * len(settings) > COMPARISON.max_run_bytes:
        return in_blocks()
    with contextlib.suppress(_TooMuchMemoryError):
        return compare_in_turns(opened, seconds=seconds, loads=loads, until=until, progress=progress)
    release_memory()
    return in_blocks()


class _TooMuchMemoryError(Exception):
    """If all models were loaded together, their runs would need too much memory."""


def _require_little_memory(ready: Sequence[Timed], start: int, count: int) -> None:
    """Run the last model, and check the memory that this process needs for the runs of `count` models.

    The first run of a session does not show this memory, because the session frees its memory afterwards (see `Bound`). The
    models in `ready` have run. The remaining models are expected to need as much memory as these models. This process had
    `start` bytes of memory before the runs.

    Raises:
        _TooMuchMemoryError: the models need more than `COMPARISON.max_run_bytes`.
    """
    ready[-1].run()
    if (resident_bytes("VmRSS") - start) * count > COMPARISON.max_run_bytes * len(ready):
        raise _TooMuchMemoryError


def _feasible(session: Session, setting: Setting, sizes: Sizes, source: InputSource) -> InputSource:
    """Add bounds to a copy of the source so that the model runs at these sizes, and return the copy (see `feasible_source`).

    The bounds apply to integer inputs. `setting` contains the model and the device from which `session` was created. The model
    is run on one thread, because ONNX Runtime may end the process if a run on several threads fails.
    """
    model, device = setting
    if device.threads > 1 and any(port.dtype.kind in "iu" for port in session.inputs):
        session = Session(model, device.one_thread)
    return feasible_source(session, sizes, source)


def _message(model: Loadable) -> Loadable:
    """Return a ModelProto as bytes, so that the model is serialized only once. Other models are returned unchanged."""
    return model.SerializeToString() if isinstance(model, ModelProto) else model


def loading(count: int, load: int) -> list[int]:
    """Return the order in which `count` models are loaded, as indices of the models. `load` is the number of times that the
    models were loaded before.

    Successive loads form groups of `count` loads. Within a group, each model has each place in the order exactly once. Every
    second group uses the reversed orders.
    """
    order = [(load + place) % count for place in range(count)]
    return order[::-1] if load // count % 2 else order


def compare_in_turns(
    opened: Opened,
    *,
    seconds: float = COMPARISON.comparison_seconds,
    loads: int = COMPARISON.max_loads,
    until: StoppingRule = TOLD,
    progress: Callable[[float], None] | None = None,
) -> list[list[Comparison]]:
    """Time the original and all candidates alternately at each choice of sizes, and compare each candidate with the original.

    The comparison takes at most `seconds`. Models are loaded up to `loads` times. The speed of a session depends on the
    placement of its memory, which is fixed when the model is loaded. Sessions that are loaded last tend to be slower. So the
    order of loading changes each time (see `loading`).

    A round times the original, each candidate and the original's second copy once. Each round starts with a different model. A
    model's turn starts with one run that is not timed, which brings the model into the caches. Several timed runs follow, and
    the time of the fastest run is used. If a run is long, the turn consists of a single timed run.

    A series of rounds follows each load. A series ends early when its results satisfy the stopping rule `until` for every
    candidate. Loading ends when two series have satisfied the rule. Loading also ends after three or more loads if the results
    of all series together satisfy the rule. If `until.loads` is not 0, this second condition applies only after more than half
    of the loads.

    If `loads` is at least 2, models are loaded at least twice, with two exceptions. The first exception is that the rounds of
    the first load took all of the time. The second exception is that the first load took longer than 10 s and longer than the
    time limit `seconds`. On a GPU, loading may take long, because libraries may compile kernels for each session.
    """
    rounds: list[list[Times]] = []
    began, spent, clear, load = active_time(), 0.0, 0, 0
    while load < loads:
        least = max(COMPARISON.min_loads, loads // 2) if until.loads else COMPARISON.min_loads
        together = load > least and all(map(until.reached, rounds))
        passed = spent if load < COMPARISON.min_loads else active_time() - began
        if (
            passed > (min(seconds, COMPARISON.hurried_loading_seconds) if is_stop_requested() else seconds)
            or together
            or clear >= COMPARISON.min_loads
        ):
            break
        asked = active_time()
        with opened(load) as ready:
            start = active_time()
            if not load:
                opening = max(start - asked, 1e-9)
                loads = (
                    1
                    if opening > max(COMPARISON.max_loading_seconds, seconds)
                    else max(loads, min(until.loads, int(COMPARISON.loading_time_share * seconds // opening)))
                )
            report = functools.partial(_report, progress, start - spent, seconds)
            each = seconds / loads / len(ready)
            found = [_rounds(timed, active_time() + each, until, report) for timed in ready]
            spent += active_time() - start
            del ready
        rounds = [before + more for before, more in zip(rounds or [[] for _ in found], found, strict=True)]
        clear += all(map(until.reached, found))
        load += 1
    return [_summaries(made) for made in rounds]


def compare_in_blocks(
    loaded: Sequence[Callable[[], Timed]],
    *,
    seconds: float = COMPARISON.comparison_seconds,
    progress: Callable[[float], None] | None = None,
) -> list[Comparison]:
    """Time all models with only one model in memory at a time, and compare each candidate with the original.

    `loaded` contains one function for each model, and calling the function loads the model. The first function loads the
    original. A model runs for at least half a second, and is unloaded before the next model is loaded. A round consists of
    three parts: a measurement of the original, then of each candidate, then of the original again. The last measurement of a
    round is also the first measurement of the next round. There are four rounds, or more if four rounds take less than
    `seconds`. If noise still hides the gain of a candidate, there are up to eight rounds.

    The comparison may end earlier. It ends if no candidate gained in any round, or if every candidate is obviously faster or
    slower than the original. It also ends if a fourth round could not make any candidate count as faster. If the user asked the
    search to stop, the comparison ends as soon as possible.
    """
    rounds: list[Times] = []
    start = active_time()
    before = _block(loaded[0])
    while not _is_settled(rounds, active_time() - start, seconds) and (
        len(rounds) < COMPARISON.min_block_rounds or active_time() < start + seconds or _is_hidden(rounds)
    ):
        if rounds and is_stop_requested() and active_time() > start + COMPARISON.hurried_loading_seconds:
            break
        others = [_block(load) for load in loaded[1:]]
        after = _block(loaded[0])
        rounds.append((before, *others, after))
        before = after
        if progress is not None:
            progress(min(1.0, len(rounds) / COMPARISON.min_block_rounds))
    return _summaries(rounds)


def _is_settled(rounds: Sequence[Times], spent: float, seconds: float) -> bool:
    """Return whether the comparison of `compare_in_blocks` may end after these rounds. At least two rounds are necessary.

    The comparison may end if no candidate gained in any round, or if the result for every candidate is obvious. The comparison
    may also end if each candidate was slower in some round, four rounds would take all of the time, and the median ratios show
    no gain. The confidence interval of a ratio after four rounds contains the ratios of all rounds, so no candidate could count
    as faster in time.

    Args:
        rounds: the times of all models in each round.
        spent: the seconds that these rounds took.
        seconds: the time limit of the comparison.
    """
    if len(rounds) < COMPARISON.min_block_rounds // 2:
        return False
    found = _summaries(rounds)
    slow = spent * COMPARISON.min_block_rounds >= seconds * len(rounds)
    lost = slow and all(one.low <= 1 for one in found) and not _is_hidden(rounds)
    return lost or all(one.high < 1 + COMPARISON.min_gain_margin_share for one in found) or all(map(_is_obvious, found))


def _is_hidden(rounds: Sequence[Times]) -> bool:
    """Return whether noise hides the gain of a candidate, and more rounds of `compare_in_blocks` may reveal the gain.

    Noise hides a gain if the median ratio is large enough to accept the candidate, but the confidence interval is too wide.
    """
    return len(rounds) < COMPARISON.max_hidden_block_rounds and any(
        one.ratio >= 1 + COMPARISON.min_gain_margin_share and not one.faster() for one in _summaries(rounds)
    )


def _block(load: Callable[[], Timed]) -> float:
    """Load the model, and return the time of its fastest run in seconds.

    There are at least three runs, which take at least half a second in total.
    """
    timed = load()
    times: list[float] = []
    with timed.alone():
        timed.run()
        while len(times) < 3 or sum(times) < COMPARISON.min_block_seconds:
            times.append(timed.seconds(1))
    return min(times)


def _report(progress: Callable[[float], None] | None, start: float, seconds: float) -> None:
    if progress is not None:
        progress(min(1.0, (active_time() - start) / seconds) if seconds > 0 else 1.0)


def _rounds(timed: Sequence[Timed], deadline: float, until: StoppingRule, report: Callable[[], None]) -> list[Times]:
    """Time all models in rounds until the stopping rule `until` is met or the deadline has passed.

    In each round, each model is timed once. The deadline has an effect only after 3 rounds, or after 4 rounds if all runs are
    long. `report` is called after each round.
    """
    with timed[0].alone():
        runs = [_runs_for_visit(t) for t in timed]
    least = COMPARISON.min_long_rounds_per_load if all(samples == 1 for samples, _ in runs) else COMPARISON.min_rounds_per_load
    done: list[Times] = []
    while not until.reached(done) and (len(done) < least or (active_time() < deadline and len(done) < COMPARISON.max_rounds)):
        times = [0.0] * len(timed)
        with timed[0].alone():
            for turn in range(len(timed)):
                which = (turn + len(done)) % len(timed)
                times[which] = _visit(timed[which], *runs[which])
        done.append(tuple(times))
        report()
    return done


def _runs_for_visit(timed: Timed) -> tuple[int, int]:
    """Return the number of samples that are timed in one turn of the model, and the number of runs in each sample.

    A round gives each model one turn. All samples of a turn should take about 8 ms. If one run takes more than 50 ms, the turn
    has one sample of one run.
    """
    start = active_time()
    timed.run()
    if active_time() - start > COMPARISON.long_run_seconds:
        return 1, 1
    start = active_time()
    once = min(timed.seconds(1) for _ in range(3))
    passed = (active_time() - start) / 3
    batch = max(1, round(2e-4 / once))
    return min(25, max(2, round(COMPARISON.visit_seconds / (passed * batch)))), batch


def _visit(timed: Timed, samples: int, batch: int) -> float:
    if samples > 1:
        timed.run()
    return min(timed.seconds(batch) for _ in range(samples))


def _summaries(rounds: Sequence[Times]) -> list[Comparison]:
    """Return the comparison of each candidate with the original.

    Each element of `rounds` contains the times of all models in one round. The first and the last time in an element are times
    of the original.
    """
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
    """Return the median of the values, and the lower and upper end of the 95 % confidence interval of the median.

    The interval is computed from order statistics, without assumptions about the distribution.
    """
    ordered = sorted(values)
    count = len(ordered)
    below = max(0, int((count - _CONFIDENCE * count**0.5) / 2))
    return statistics.median(ordered), ordered[below], ordered[count - 1 - below]


def _median_error(values: Sequence[float]) -> float:
    """Return the standard error of the median of normally distributed values with some outliers.

    The error is estimated from the median absolute deviation, which outliers do not change (Rousseeuw and Croux, Alternatives
    to the median absolute deviation, 1993).
    """
    median = statistics.median(values)
    deviation = _DEVIATION * statistics.median(abs(value - median) for value in values)
    return deviation * math.sqrt(math.pi / 2 / len(values))
