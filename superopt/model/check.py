"""Whether two models compute the same: each one's rounding error against a float64 run, on random and on edge inputs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto

from superopt.active import active_time
from superopt.errors import CheckFailedError, InvalidModelError
from superopt.model.bounds import index_bounds
from superopt.model.device import begins_with
from superopt.model.reference import NoReferenceError, Reference
from superopt.model.rounding import Errors, errors_of, strayed, ulp_of
from superopt.model.save import folder_of, parsed
from superopt.model.session import Array, Device, Loadable, Port, Session, is_floating, random_inputs

FACTOR = 4.0
LEAST_INPUTS = 2
NEIGHBOURS, LOOKING = 6, 5.0
"""How many inputs beside one are run where a candidate seems to stray there, and the seconds after which none is begun."""
_MOST_BYTES = 1 << 28
_NUDGE = 1


@dataclass(frozen=True)
class Check:
    """A check that passed. Errors are the largest met, relative to the largest finite magnitude of the output they are in.

    `reference` is `float64`, or says why no float64 run was possible; then the candidate was compared with the original
    directly and `original_error` is 0. `inputs` names the inputs that were run, `left_out` those that the original
    fails on or the time did not suffice for.
    """

    original_error: float
    candidate_error: float
    reference: str
    inputs: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Trial:
    """Sizes of open dimensions to check two models at, named if inputs are to say so, and seconds after which no further input
    is begun there.

    Where it is not `required`, it is left out if the original does not run there.
    """

    name: str
    sizes: Mapping[str, int]
    seconds: float
    required: bool = True


def check(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    *,
    factor: float = FACTOR,
    seed: int = 0,
    seconds: float = 5.0,
    sizes: Mapping[str, int] | None = None,
) -> Check:
    """`check_all` at one of the sizes.

    Raises:
        CheckFailedError, InvalidModelError: as `check_all`.
    """
    return check_all(original, candidate, device, [Trial("", sizes or {}, seconds)], factor=factor, seed=seed)


def check_all(
    original: Loadable, candidate: Loadable, device: Device, trials: Sequence[Trial], *, factor: float = FACTOR, seed: int = 0
) -> Check:
    """Both models run on the same inputs; the candidate's error is at most `factor` times the original's, and finite alike.

    Where the original's results change by more than its error once its inputs change in their last places, this change counts
    instead: of what is rounded to a few levels, or of a sine of large numbers, nobody can ask for more. Errors below 16 units
    in the last place of the output's largest magnitude count as that much. Without a float64 run the two may differ by 1024
    such units. Where it seems to be more, inputs that differ in their last places are run too, and the largest errors of both
    count: at a single one, chance may let the original be nearly exact. After its seconds a trial begins no further input, nor
    once outputs take 256 MiB, but at least two are run. The candidate is loaded when the original is gone. Where exact values
    are another provider's (see `begins_with`), both run on the device's own too, as it rounds, at the first of the trials.

    Raises:
        CheckFailedError: another interface, an error too large, NaN or infinity where the original has none or the reverse, or
            ONNX Runtime cannot load the candidate, or run it on what the original runs on.
        InvalidModelError: ONNX Runtime cannot load or run the original, on random inputs at least.
    """
    found = _checked(original, candidate, device, trials, factor, seed)
    if begins_with(device, exact=True) != device.provider:
        _checked(original, candidate, device, trials[:1], factor, seed, exact=False)
    return found


def _checked(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    trials: Sequence[Trial],
    factor: float,
    seed: int,
    *,
    exact: bool = True,
) -> Check:
    """`check_all` in sessions that are exact, or are not.

    Raises:
        CheckFailedError, InvalidModelError: as `check_all`.
    """
    bench = _Bench(original, device, seed, exact=exact)
    for trial in trials:
        bench.run(trial)
    runs, left_out, why, interface = bench.runs, bench.left_out, bench.why, (bench.session.inputs, bench.session.outputs)
    del bench
    found = _errors(runs, interface, candidate, device, exact=exact)
    doubtful = {name for (name, _), errors in found.items() if errors.strayed(factor)}
    if doubtful and not why:
        near = _Bench(original, device, seed, exact=exact).beside([run for run in runs if run.name in doubtful])
        for key, errors in _errors(near, interface, candidate, device, exact=exact).items():
            found[key] = found.get(key, errors).joined(errors)
    worst = _worst(found, factor)
    return Check(*worst, f"original ({why})" if why else "float64", tuple(run.name for run in runs), tuple(left_out))


class _Bench:
    """The original, loaded once, and in float64 where it can be; what it computed so far, and what was left out.

    `why` says why there is no float64 run.
    """

    def __init__(self, original: Loadable, device: Device, seed: int, *, exact: bool) -> None:
        hollow = parsed(original, external=False)
        self.reference, self.why = _reference(original, hollow)
        self.high = index_bounds(hollow)
        self.session = Session(original, device, exact=exact)
        self.seed = seed
        self.runs: list[_Run] = []
        self.left_out: list[str] = []

    def run(self, trial: Trial) -> None:
        """Runs the inputs that there is time and room for."""
        done: list[_Run] = []
        deadline = active_time() + trial.seconds
        for name, make in cases(self.session.inputs, self.seed, trial.sizes, self.high):
            enough = active_time() > deadline or sum(run.bytes for run in (*self.runs, *done)) > _MOST_BYTES
            called = f"{name} ({trial.name})" if trial.name else name
            if len(done) >= LEAST_INPUTS and enough:
                self.left_out.append(called)
                continue
            try:
                done.append(self._ran(called, make()))
            except InvalidModelError:
                if done:
                    self.left_out.append(called)
                elif trial.required:
                    raise
                else:
                    return
        self.runs += done

    def beside(self, runs: Sequence[_Run]) -> list[_Run]:
        """Runs of the same names on inputs that differ in their last places, as many as there is time for."""
        deadline, done = active_time() + LOOKING, list[_Run]()
        for number, run in itertools.product(range(1, NEIGHBOURS + 1), runs):
            if active_time() < deadline and any(is_floating(value.dtype) for value in run.feeds.values()):
                done.append(self._ran(run.name, _nudged(run.feeds, self.seed + number)))
        return [run for run in done if run.exact is not None]

    def _ran(self, name: str, feeds: Mapping[str, Array]) -> _Run:
        values, exact = self.session.run(feeds), None
        if self.reference is not None:
            try:
                exact = self.reference.run(feeds)
            except NoReferenceError as error:
                self.reference, self.why = None, str(error)
            if exact is not None and not _alike(values, exact):
                self.reference, exact, self.why = None, None, "the evaluator gives results of other shapes"
        return _Run(name, feeds, values, _beside(self.session, values, _nudged(feeds, self.seed)), exact)


@dataclass(frozen=True)
class _Run:
    """What the original computes on inputs of this name, on inputs a little different, and in float64, where that is known."""

    name: str
    feeds: Mapping[str, Array]
    values: Sequence[Any]
    nudged: Sequence[Any]
    exact: Sequence[Any] | None

    @property
    def bytes(self) -> int:
        """How much memory the outputs take, lists not counted."""
        return sum(value.nbytes for value in (*self.values, *self.nudged, *(self.exact or ())) if isinstance(value, np.ndarray))


def _errors(
    runs: Sequence[_Run], interface: tuple[Sequence[Port], Sequence[str]], candidate: Loadable, device: Device, *, exact: bool
) -> dict[tuple[str, str], Errors]:
    """The errors by the inputs' and the output's names, of a candidate that runs on the same inputs.

    Raises:
        CheckFailedError: the candidate has another interface, cannot be run, or see `errors_of`.
    """
    found: dict[tuple[str, str], Errors] = {}
    try:
        session = Session(candidate, device, exact=exact)
        _same_interface(*interface, session)
        for run in runs:
            others = session.run(run.feeds)
            for output, *arrays in _tensors(session.outputs, run.values, others, run.exact or run.values, run.nudged):
                here = errors_of(f"output {output!r} on {run.name} inputs", arrays, direct=run.exact is None)
                found[run.name, output] = found.get((run.name, output), here).joined(here)
    except InvalidModelError as error:
        raise CheckFailedError(str(error)) from error
    return found


def _worst(found: Mapping[tuple[str, str], Errors], factor: float) -> tuple[float, float]:
    """The largest errors of the original and of the candidate. Floats are held against floats: what is counted in elements that
    are off has a coarser least.

    Raises:
        CheckFailedError: one of the candidate's is too large.
    """
    for (name, output), errors in found.items():
        if how := errors.strayed(factor):
            raise CheckFailedError(f"output {output!r} on {name} inputs: {how}")
    for floating in (True, False):
        kind = [errors for errors in found.values() if errors.floating is floating]
        together = functools.reduce(Errors.joined, kind, Errors(floating=floating))
        allowed = factor * max(together.original, together.least)
        if together.candidate > allowed:
            raise CheckFailedError(f"on all inputs together: {strayed(together.candidate, together.original, allowed)}")
    whole = functools.reduce(Errors.joined, found.values(), Errors())
    return whole.original, whole.candidate


def _beside(session: Session, values: Sequence[Any], nudged: Mapping[str, Array]) -> Sequence[Any]:
    """The results on inputs a little different, or the `values` where it has no results of their shapes."""
    try:
        moved = session.run(nudged)
    except InvalidModelError:
        return values
    return moved if _alike(values, moved) else values


def _nudged(feeds: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """The inputs with each float changed by up to a unit in its last place."""
    rng = np.random.default_rng(seed)
    nudged = dict(feeds)
    for name, value in feeds.items():
        if is_floating(value.dtype):
            wide = value.astype(np.float64)
            step = (
                np.spacing(np.abs(value)).astype(np.float64) if value.dtype.kind == "f" else np.abs(wide) * ulp_of(value.dtype)
            )
            nudged[name] = np.asarray(wide + step * rng.uniform(-_NUDGE, _NUDGE, value.shape)).astype(value.dtype)
    return nudged


def _alike(values: Sequence[Any], exact: Sequence[Any]) -> bool:
    """Whether the results have the same number of elements and the same shapes."""
    for value, other in zip(values, exact, strict=True):
        if isinstance(value, list) and isinstance(other, list):
            same = len(value) == len(other) and _alike(value, other)
        else:
            same = type(value) is type(other) and np.shape(value) == np.shape(other)
        if not same:
            return False
    return True


def _tensors(names: Sequence[str], *runs: Sequence[Any]) -> Iterator[tuple[str, *tuple[Any, ...]]]:
    """Each output's name, and its values in the runs; of a sequence each element's, of a map its keys and its numbers, of an
    optional output what is there.

    Raises:
        CheckFailedError: sequences of different lengths, or an output that is there in one run alone.
    """
    for name, *given in zip(names, *runs, strict=True):
        found = [_parts(value) if isinstance(value, dict) else value for value in given]
        lists = [len(value) if isinstance(value, list) else value is None for value in found]
        if len(set(lists)) > 1:
            raise CheckFailedError(f"output {name!r} has not as many elements as the original's")
        if isinstance(found[0], list):
            yield from _tensors([f"{name}[{n}]" for n in range(len(found[0]))], *found)
        elif found[0] is not None:
            yield name, *map(np.asarray, found)


def _parts(value: Mapping[Any, Any]) -> list[Array]:
    """A map's keys, and its numbers, of which ONNX Runtime makes Python's own of more places than they have."""
    numbers = np.array([*value.values()])
    own = all(isinstance(number, float) and not isinstance(number, np.floating) for number in value.values())
    return [np.array([*value]), numbers.astype(np.float32) if own else numbers]


def _reference(model: Loadable, hollow: ModelProto) -> tuple[Reference | None, str]:
    """The model in float64, or why there is none; `hollow` may lack the tensors in other files."""
    try:
        return Reference(hollow, folder_of(model)), ""
    except NoReferenceError as error:
        return None, str(error)


def _same_interface(inputs: Sequence[Port], outputs: Sequence[str], candidate: Session) -> None:
    if inputs != candidate.inputs:
        raise CheckFailedError(f"the inputs differ: {_listed(inputs)} became {_listed(candidate.inputs)}")
    if outputs != candidate.outputs:
        raise CheckFailedError(f"the outputs differ: {', '.join(outputs)} became {', '.join(candidate.outputs)}")


def _listed(ports: Sequence[Port]) -> str:
    return ", ".join(f"{p.name} {p.dtype}{list(p.shape)}" for p in ports)


def cases(
    ports: Sequence[Port], seed: int, sizes: Mapping[str, int] | None, high: Mapping[str, int]
) -> list[tuple[str, Callable[[], dict[str, Array]]]]:
    """The inputs to run, most telling first. Integers stay random in all of them: they are indices, masks and sizes.

    A single boolean, which mostly chooses a branch, is true and false by turns.
    """

    def floats(change: Callable[[Array], Array], offset: int) -> Callable[[], dict[str, Array]]:
        def make() -> dict[str, Array]:
            feeds = random_inputs(ports, seed + offset, sizes=sizes, high=high)
            turned = {n: np.full_like(v, offset % 2 == 0) for n, v in feeds.items() if v.dtype == np.bool_ and v.size == 1}
            return {n: change(v).astype(v.dtype) if is_floating(v.dtype) else v for n, v in feeds.items()} | turned

        return make

    random = ("random", floats(lambda v: v, 0))
    again = ("random again", floats(lambda v: v, 1))
    if not any(is_floating(p.dtype) for p in ports):
        return [random, again]
    return [
        random,
        ("zero", floats(np.zeros_like, 3)),
        ("large", floats(_enlarged, 2)),
        ("negative", floats(lambda v: -np.abs(v), 5)),
        ("tiny", floats(lambda v: v * np.asarray(1e-6, v.dtype), 4)),
        ("one", floats(np.ones_like, 6)),
        again,
    ]


def _enlarged(values: Array) -> Array:
    """The values times 1000, or less where the type's range is narrow: products of two must not overflow."""
    most = float(np.finfo(values.dtype).max) if values.dtype.kind == "f" else 1e38
    enlarged: Array = values * np.asarray(min(1000.0, most**0.25), values.dtype)
    return enlarged
