"""The first run of a model: whether it can be run at all on inputs that are drawn, and how long its nodes take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from superopt.active import active_time
from superopt.errors import InvalidModelError
from superopt.model.bounds import index_bounds
from superopt.model.cache import Cache
from superopt.model.dimensions import Sizing
from superopt.model.hardware import cpu_name
from superopt.model.load import Loaded
from superopt.model.measure import SHORT
from superopt.model.once import once
from superopt.model.save import parsed
from superopt.model.session import Device, Loadable, Session, random_inputs

_WORK, _WORKED = 200_000, 0.028
"""A piece of work in Python, and about the seconds that it takes where budgets were set, on an AMD EPYC with AVX-512."""
_SLOWEST = 3.0


@dataclass(frozen=True)
class FirstRun:
    """Why the model cannot be run on inputs that are drawn, where it cannot (then nothing could be checked); the seconds that
    it takes, at all sizes that matter, whether its nodes are short, and the seconds until a session of it has run once.
    """

    refused: str = ""
    seconds: float = 0.0
    short: bool = False
    opening: float = 0.0


def first_once(original: Loadable, loaded: Loaded, device: Device, sizings: Sequence[Sizing], cache: Path) -> FirstRun:
    """`first_run`, or what came of it before: a search that is given time by it is then given the same; see `once`.

    Raises:
        InvalidModelError: as `first_run`.
    """
    about = ["first run", device.identity, [sizing.numbers for sizing in sizings]]
    record, _ = once(cache, about, [original], lambda: asdict(first_run(original, loaded, device, sizings)))
    return FirstRun(**record)


def first_run(original: Loadable, loaded: Loaded, device: Device, sizings: Sequence[Sizing]) -> FirstRun:
    """What a first run tells.

    Raises:
        InvalidModelError: ONNX Runtime cannot load it, or run it at sizes that can be chosen; with the model's name.
    """
    bounds, began, opening = index_bounds(parsed(original, external=False)), active_time(), 0.0
    try:
        session = Session(original, device)
    except InvalidModelError as error:
        raise InvalidModelError(f"{loaded.label}: {error}") from error
    seconds = 0.0
    for sizing in sizings:
        try:
            feeds = random_inputs(session.inputs, sizes=sizing.numbers, high=bounds)
        except InvalidModelError as error:
            return FirstRun(str(error))
        try:
            run = session.ready(feeds)
            opening = opening or active_time() - began
            seconds += min(run.seconds(1) for _ in range(3))
        except InvalidModelError as error:
            if not sizing.numbers:
                return FirstRun(str(error))
            why = f"it does not run at {sizing}, so other sizes are needed ({error})"
            raise InvalidModelError(f"{loaded.label}: {why}") from error
    return FirstRun("", seconds, seconds < SHORT * len(sizings) * len(loaded.model.graph), opening)


def pace_once(cache: Path) -> float:
    """`measured_pace`, or what came of it before on this processor."""
    with closing(Cache(cache)) as known:
        return float(known.kept(["pace", cpu_name()], measured_pace))


def measured_pace() -> float:
    """How many times as long a search takes here as where its seconds were set: at least 1, and at most 3, in tenths."""

    def worked() -> float:
        start, seen = time.perf_counter(), dict[tuple[int, int], int]()
        for n in range(_WORK):
            seen[n % 997, n & 7] = n
        return time.perf_counter() - start

    return min(max(round(statistics.median(worked() for _ in range(5)) / _WORKED, 1), 1.0), _SLOWEST)
