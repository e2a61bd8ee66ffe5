"""The first run of a model.

The first run shows whether the model runs on random inputs, and whether the nodes have short run times.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from superopt.algebra.dim_binding import DimBinding
from superopt.budget import active_time
from superopt.child.process import child
from superopt.errors import DimensionError, InvalidModelError, RuntimeDiedError
from superopt.model.load import Loaded
from superopt.policy import COST
from superopt.protobuf.stored import Loadable, parse_model
from superopt.runtime.cache import Cache, Json, json_number
from superopt.runtime.feasible import Feasible, find_feasible
from superopt.runtime.hardware import cpu_name
from superopt.runtime.input_source import DRAWN, InputSource
from superopt.runtime.ort_values import BFLOAT16
from superopt.runtime.result_cache import cached_result, from_fields
from superopt.runtime.session import Bound, Device, Session, Unbound
from superopt.runtime.trial_runs import TrialSession


@dataclass(frozen=True)
class FirstRun:
    """The result of the first run of a model.

    Attributes:
        refused: the reason why the model cannot be run on random inputs. The text is empty if the model can be run. A model
            that cannot be run is not optimized.
        seconds: the sum of the seconds of one run at each of `sizes`.
        short: whether the average time of the model's nodes is below `COST.short_node_seconds`.
        opening: the seconds from the loading of a session to the end of its first run.
        sizes: the choices of sizes at which the model ran.
        run_bytes: the memory in bytes that a run needs beyond the loaded model, or 0 if this memory is not known.
    """

    refused: str = ""
    seconds: float = 0.0
    short: bool = False
    opening: float = 0.0
    sizes: Sequence[Mapping[str, int]] = ()
    run_bytes: int = 0


def cached_first_run(
    original: Loadable,
    loaded: Loaded,
    device: Device,
    sizings: Sequence[DimBinding],
    cache: Path,
    source: InputSource,
    *,
    chosen: bool,
) -> FirstRun:
    """Return the result of `first_run`, from the cache if possible (see `cached_result`).

    The time budget of a search may depend on this result. With the cache, a repeated search gets the same time budget.

    Raises:
        DimensionError, InvalidModelError, RuntimeDiedError: See `first_run`.
    """
    about: list[Json] = ["first run", device.identity, [sizing.numbers for sizing in sizings], source.digest, chosen]
    record, _ = cached_result(
        cache, about, [original], lambda: asdict(first_run(original, loaded, device, sizings, source, chosen=chosen))
    )
    return from_fields(FirstRun, record)


def first_run(
    original: Loadable,
    loaded: Loaded,
    device: Device,
    sizings: Sequence[DimBinding],
    source: InputSource = DRAWN,
    *,
    chosen: bool = False,
) -> FirstRun:
    """Run the model for the first time, in a child process, before the model is loaded in this process.

    Args:
        original: The model.
        loaded: The model that was read. Messages state the name of the model.
        device: The device to run on.
        sizings: Sizes of the model's dynamic dimensions.
        source: The source of the inputs. The source also gets the bounds that the model implies for its inputs. By default,
            inputs are random.
        chosen: Whether the user chose the sizes. If `chosen` is False and the model does not run at `sizings`, other sizes are
            tried. If `chosen` is False and a run needs much memory, smaller sizes are tried.

    Raises:
        InvalidModelError: ONNX Runtime cannot load the model. The message names the model.
        RuntimeDiedError: ONNX Runtime dies while loading or running the model.
        DimensionError: The model does not run at the chosen sizes.
    """
    sizes = [sizing.numbers for sizing in sizings]

    @functools.cache
    def given() -> InputSource:
        return source.bounded(parse_model(original, external=False))

    try:
        found, peak = _in_child(original, device, sizes, given, chosen=chosen)
        while found is not None and not chosen and peak > COST.max_default_run_bytes and (smaller := _smaller(found.sizes)):
            tried, lower = _in_child(original, device, smaller, given, chosen=True)
            if tried is None or tried.error:
                break
            found, peak = tried, lower
        began = active_time()
        session = Session(original, device)
        found = found or find_feasible(session, sizes, given(), chosen=chosen)
    except RuntimeDiedError as error:
        raise RuntimeDiedError(f"{loaded.label}: {error}") from error
    except TimeoutError as error:
        return FirstRun(str(error))
    except InvalidModelError as error:
        raise InvalidModelError(f"{loaded.label}: {error}") from error
    if found.error and chosen and sizings[0].numbers:
        at = "; ".join(map(str, sizings))
        raise DimensionError(f"{loaded.label}: the model does not run at {at}, so other sizes are needed ({found.error})")
    if found.error:
        return FirstRun(f"the model runs on none of the random inputs that were tried ({found.error})")
    runs = [] if found.seconds > COST.repeated_run_seconds * len(found.sizes) else found.sizes
    seconds = opening = 0.0
    for numbers in runs:
        run = session.ready(found.source.values(session.inputs, sizes=numbers))
        opening = opening or active_time() - began
        seconds += _fastest(run)
    seconds = seconds or found.seconds
    opening = opening or active_time() - began + seconds
    short = seconds < COST.short_node_seconds * len(found.sizes) * len(loaded.model.graph)
    return FirstRun("", seconds, short, opening, tuple(map(dict, found.sizes)), peak)


def _fastest(run: Bound | Unbound) -> float:
    """Time three runs, and return the shortest time in seconds. A long run is timed only once."""
    first = run.seconds(1)
    return first if first > COST.repeated_run_seconds else min(first, run.seconds(1), run.seconds(1))


def _in_child(
    original: Loadable, device: Device, sizes: Sequence[Mapping[str, int]], source: Callable[[], InputSource], *, chosen: bool
) -> tuple[Feasible | None, int]:
    """Run `find_feasible` in a child process.

    The model is analysed by `source` only after ONNX Runtime has loaded the model, because analyses assume valid models.
    Returns None if the result would not be valid for this process, for example because the device is not the CPU.

    Raises:
        InvalidModelError, RuntimeDiedError, TimeoutError: See `Child.load`.
    """
    try:
        with child() as process, closing(TrialSession(process, original, device)) as session:
            makeable = all(port.kind in ("", "tensor(string)") and port.dtype != BFLOAT16 for port in session.inputs)
            found = find_feasible(session, sizes, source(), chosen=chosen) if makeable else None
            return found, session.peak_bytes
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise
        return None, 0
    except InvalidModelError:
        if device.provider == "cpu":
            raise
        return None, 0


def _smaller(sizes: Sequence[Mapping[str, int]]) -> list[Mapping[str, int]]:
    """Return the sizes, limited to the largest power of 2 below the largest size.

    If all sizes are small, return an empty list.
    """
    largest = max((n for numbers in sizes for n in numbers.values()), default=0)
    if largest <= COST.min_default_size:
        return []
    less = 1 << (largest - 1).bit_length() - 1
    return [{name: min(n, less) for name, n in numbers.items()} for numbers in sizes]


def cached_search_pace(cache: Path) -> float:
    """Return the ratio of a search's time on this processor to its time on the reference processor, from the cache if possible.

    See `measure_search_pace`.
    """
    with closing(Cache(cache)) as known:
        return json_number(known.kept(["pace", cpu_name()], measure_search_pace))


def measure_search_pace() -> float:
    """Estimate the ratio of a search's time on this processor to its time on the reference processor.

    Budgets were chosen for the reference processor. A simple loop is timed instead of a search. The ratio is rounded to tenths,
    and limited to the range from 1 to `COST.max_pace_factor`.
    """

    def worked() -> float:
        start, seen = time.perf_counter(), dict[tuple[int, int], int]()
        for n in range(COST.pace_step_count):
            seen[n % 997, n & 7] = n
        return time.perf_counter() - start

    return min(
        max(round(statistics.median(worked() for _ in range(5)) / COST.pace_reference_seconds, 1), 1.0), COST.max_pace_factor
    )
