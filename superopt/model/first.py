"""The first run of a model: whether it can be run at all on inputs that are drawn, and how long its nodes take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from superopt.active import active_time
from superopt.dim_binding import DimBinding
from superopt.errors import DimensionError, InvalidModelError, RuntimeDiedError
from superopt.model.bounds import index_bounds
from superopt.model.cache import Cache
from superopt.model.child import child
from superopt.model.feasible import Feasible, feasible
from superopt.model.hardware import cpu_name
from superopt.model.load import Loaded
from superopt.model.measure import SHORT
from superopt.model.once import once
from superopt.model.session import Device, Session, random_inputs
from superopt.model.stored import Loadable, parsed
from superopt.model.values import BFLOAT16

_WORK, _WORKED = 200_000, 0.028
"""A piece of work in Python, and about the seconds that it takes where budgets were set, on an AMD EPYC with AVX-512."""
_SLOWEST = 3.0


@dataclass(frozen=True)
class FirstRun:
    """Why the model cannot be run on inputs that are drawn, where it cannot (then nothing could be checked); the seconds that
    it takes, at all sizes that matter, whether its nodes are short, and the seconds until a session of it has run once. `sizes`
    are numbers for its dynamic dimensions at which it ran.
    """

    refused: str = ""
    seconds: float = 0.0
    short: bool = False
    opening: float = 0.0
    sizes: Sequence[Mapping[str, int]] = ()


def first_once(
    original: Loadable, loaded: Loaded, device: Device, sizings: Sequence[DimBinding], cache: Path, *, chosen: bool
) -> FirstRun:
    """`first_run`, or what came of it before: a search that is given time by it is then given the same; see `once`.

    Raises:
        DimensionError, InvalidModelError, RuntimeDiedError: as `first_run`.
    """
    about = ["first run", device.identity, [sizing.numbers for sizing in sizings], chosen]
    record, _ = once(cache, about, [original], lambda: asdict(first_run(original, loaded, device, sizings, chosen=chosen)))
    return FirstRun(**record)


def first_run(
    original: Loadable, loaded: Loaded, device: Device, sizings: Sequence[DimBinding], *, chosen: bool = False
) -> FirstRun:
    """Run the model for the first time, in a child process before it is loaded in this one.

    Args:
        original: The model.
        loaded: The same as it was read, for messages.
        device: Where it is to run.
        sizings: Numbers for its dynamic dimensions.
        chosen: Whether the user chose these; otherwise, others are tried where it does not run at them.

    Raises:
        InvalidModelError: ONNX Runtime refuses to load it; with the model's name.
        RuntimeDiedError: ONNX Runtime dies of it.
        DimensionError: It does not run at the sizes that were chosen.
    """
    bounds, sizes = index_bounds(parsed(original, external=False)), [sizing.numbers for sizing in sizings]
    try:
        found = _in_child(original, device, sizes, bounds, chosen=chosen)
        began = active_time()
        session = Session(original, device)
        found = found or feasible(session, sizes, bounds, chosen=chosen)
    except RuntimeDiedError as error:
        raise RuntimeDiedError(f"{loaded.label}: {error}") from error
    except TimeoutError as error:
        return FirstRun(str(error))
    except InvalidModelError as error:
        raise InvalidModelError(f"{loaded.label}: {error}") from error
    if found.error and chosen and sizings[0].numbers:
        at = "; ".join(map(str, sizings))
        raise DimensionError(f"{loaded.label}: it does not run at {at}, so other sizes are needed ({found.error})")
    if found.error:
        return FirstRun(f"no made-up inputs were found on which the model runs ({found.error})")
    seconds = opening = 0.0
    for numbers in found.sizes:
        run = session.ready(random_inputs(session.inputs, sizes=numbers, high=found.high))
        opening = opening or active_time() - began
        seconds += min(run.seconds(1) for _ in range(3))
    short = seconds < SHORT * len(found.sizes) * len(loaded.model.graph)
    return FirstRun("", seconds, short, opening, tuple(map(dict, found.sizes)))


def _in_child(
    original: Loadable, device: Device, sizes: Sequence[Mapping[str, int]], bounds: Mapping[str, int], *, chosen: bool
) -> Feasible | None:
    """`feasible` in a child process; None where that says nothing of this one, for the device is not the CPU, say.

    Raises:
        InvalidModelError, RuntimeDiedError, TimeoutError: as `Child.load`.
    """
    try:
        with child() as process:
            session = process.load(original, device)
            makeable = all(port.kind in ("", "tensor(string)") and port.dtype != BFLOAT16 for port in session.inputs)
            return feasible(session, sizes, bounds, chosen=chosen) if makeable else None
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise
        return None
    except InvalidModelError:
        if device.provider == "cpu":
            raise
        return None


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
