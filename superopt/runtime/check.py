"""The numerical check: compare two models with each other, and with a float64 run of the original, on many inputs."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from onnx import ModelProto, helper

from superopt.budget import active_time
from superopt.child.process import reuse_child
from superopt.errors import CheckFailedError, InvalidModelError
from superopt.policy import CHECK
from superopt.protobuf.graphs import all_graphs
from superopt.protobuf.normalization import SHIFTED, conditioning
from superopt.protobuf.stored import Loadable, StoredModel, folder_of, parse_model
from superopt.runtime.adversarial import InputValues, adversarial_values, image_inputs
from superopt.runtime.bounds import integer_constants, number_inputs
from superopt.runtime.device import first_provider
from superopt.runtime.feasible import feasible_source
from superopt.runtime.input_source import DRAWN, InputSource
from superopt.runtime.reference import NoReferenceError, Reference
from superopt.runtime.rounding import OutputErrors, OutputPair, largest_of, ulp_of
from superopt.runtime.session import Array, Device, Port, Session, is_floating
from superopt.runtime.sizes import dynamic_dimension_keys, sizes_to_check
from superopt.runtime.trial_runs import TrialRuns


@dataclass(frozen=True)
class Check:
    """The result of a numerical check that passed.

    The error of a model is the largest error of its outputs. The error of a floating-point output is relative to the largest
    finite magnitude of the output. An input set is a set of values for all inputs of the model.

    Attributes:
        original_error: the error of the original, or 0 if no float64 run was possible.
        candidate_error: the error of the candidate.
        reference: `float64`, or the reason why no float64 run was possible. Without a float64 run, the error of the candidate
            is its difference from the original.
        inputs: the names of the input sets on which the models were compared, such as `zero`.
        left_out: the names of the input sets on which the original fails or for which there was no time. If the original does
            not run at some sizes, one more entry states the number of these sizes. Further entries state the number of sizes at
            which a run needs too much memory, and the number of sizes at which the original's outputs depend on uninitialized
            memory.
        outputs: for each output, its name, the error of the original and the error of the candidate.
    """

    original_error: float
    candidate_error: float
    reference: str
    inputs: tuple[str, ...]
    left_out: tuple[str, ...]
    outputs: tuple[tuple[str, float, float], ...] = ()


@dataclass(frozen=True)
class CheckSettings:
    """The settings of a numerical check.

    Attributes:
        tolerance: The largest allowed ratio of the candidate's largest error to the original's largest error.
        seed: The seed of the inputs.
        adversarial: Whether the models are also run on adversarial inputs.
        identical: Whether the candidate's outputs must have the same bits as the original's outputs, except for signs of zeros.
    """

    tolerance: float = CHECK.max_error_factor
    seed: int = 0
    adversarial: bool = True
    identical: bool = False


DEFAULT_SETTINGS = CheckSettings()


@dataclass(frozen=True)
class CheckSizes:
    """A choice of sizes for the dynamic dimensions. Two models are checked at these sizes.

    Attributes:
        name: a text that identifies these sizes in messages, or an empty text.
        sizes: the sizes, by the name of the dimension.
        seconds: the number of seconds after which no further run starts.
    """

    name: str
    sizes: Mapping[str, int]
    seconds: float


def check_candidate(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    settings: CheckSettings = DEFAULT_SETTINGS,
    *,
    seconds: float = CHECK.check_seconds,
    sizes: Mapping[str, int] | None = None,
    given: InputSource = DRAWN,
) -> Check:
    """Check a candidate numerically: run the original and the candidate on the same inputs, and compare the outputs.

    The models run at the dimension sizes `sizes` and at additional sizes. See `check_all`.

    Raises:
        CheckFailedError, InvalidModelError: see `check_all`.
    """
    trials = [CheckSizes("", sizes or {}, seconds)]
    return check_all(original, candidate, device, trials, settings, given)


def check_all(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    trials: Sequence[CheckSizes],
    settings: CheckSettings = DEFAULT_SETTINGS,
    given: InputSource = DRAWN,
) -> Check:
    """Check a candidate numerically at several sizes: run both models on the same inputs, and compare all outputs.

    The models run at the sizes in `trials` and at additional sizes. All output elements are compared. `tolerance`,
    `adversarial` and `identical` are fields of `settings`.

    A trial is one choice of sizes, with a time limit. Ordinary inputs are random numbers, edge cases such as zeros, and the
    examples in `given` that fit the sizes. If `adversarial` is True, there are also adversarial inputs: masks, infinities, NaN,
    and huge, tiny and mixed magnitudes. Besides the sizes in `trials`, the check uses small, odd, even and large sizes, and
    sizes just below and above the constants in the model.

    An element of the candidate's output must be finite if the original's element is finite. Rounding must explain the
    difference between the two elements, or the difference between the candidate's element and a float64 run of the original
    (see `OutputPair`). On all ordinary inputs together, the candidate's largest error must be at most `tolerance` times the
    original's largest error. In this comparison, the original's error counts as at least 4 units in the last place of the
    output's largest magnitude. The original may round on purpose. So where the original is far from the float64 run, the
    candidate must be far from the float64 run too. If `identical` is True, differences caused by rounding are not allowed.
    Instead, the outputs must have the same bits, except for signs of zeros and bits of NaN. This condition must hold both with
    and without ONNX Runtime's graph optimizations.

    If a candidate's error seems too large, further runs measure how far rounding can change the original's outputs. The further
    runs are float64 runs in which every value is rounded at random. If no float64 run is possible, the further runs are runs of
    the original on inputs that are changed in their last bits.

    A trial starts no further run once its time is over, or once inputs and outputs take more than 256 MiB. However, the models
    always run on two ordinary and two adversarial inputs. The original is unloaded before the candidate is loaded. With
    TensorRT, another provider may compute the compared values (see `first_provider`). In that case, both models also run on
    TensorRT at the sizes of the first trial.

    Raises:
        CheckFailedError: the interfaces differ, an error is too large, or the candidate has NaN or infinity where the original
            has none. This error is also raised if ONNX Runtime cannot load the candidate, or cannot run the candidate on inputs
            on which the original runs.
        InvalidModelError: ONNX Runtime cannot load the original, or cannot run the original on random inputs.
    """
    with reuse_child():
        found = _checked(original, candidate, device, trials, settings, given)
        if settings.identical:
            _checked(original, candidate, device, trials, settings, given, optimized=False)
    if first_provider(device, exact=True) != device.provider:
        loose = replace(settings, adversarial=False, identical=False)
        _checked(original, candidate, device, trials[:1], loose, given, exact=False)
    return found


def _checked(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    trials: Sequence[CheckSizes],
    settings: CheckSettings,
    given: InputSource,
    *,
    exact: bool = True,
    optimized: bool = True,
) -> Check:
    """Run the check of `check_all` on one execution provider.

    If `exact` is True, sessions do not use TF32, and the models also run at sizes that are not in the trials. If `optimized` is
    False, ONNX Runtime does not optimize the graphs.

    Raises:
        CheckFailedError, InvalidModelError: see `check_all`.
    """
    factor, adversarial, identical = settings.tolerance, settings.adversarial, settings.identical
    bench = _Bench(original, device, settings.seed, given, exact=exact, optimized=optimized)
    for trial in trials:
        bench.run(trial, adversarial=adversarial)
    if exact:
        bench.run_sizes(trials[0].sizes, adversarial=adversarial)
    bench.trials.close()
    runs, left_out, why, interface, evaluated = bench.runs, bench.left_out, bench.why, bench.interface, bench.evaluated
    empty = bench.empty
    del bench
    possible, unwritten = _plain_runs(original, device, empty)
    if unwritten:
        runs = [run for run in runs if _shapes(run.feeds) not in unwritten]
        left_out.append(f"{len(unwritten)} sizes at which the original reads memory that it does not write")
    errors, doubtful = _compared(
        runs, interface, candidate, device, factor, direct=bool(why), exact=exact, optimized=optimized, identical=identical
    )
    _require_plain_runs(candidate, device, possible)
    undecided: set[str] = set()
    if doubtful:
        bench = _Bench(original, device, settings.seed, given, exact=exact, optimized=optimized)
        bench.evaluated = evaluated
        more, undecided = _looked_closer(bench, doubtful, factor)
        errors += more
    before, after, outputs = _together(errors, factor)
    names = tuple(run.name for run in runs if run.name not in undecided)
    return Check(before, after, f"original ({why})" if why else "float64", names, (*left_out, *sorted(undecided)), outputs)


@dataclass(frozen=True)
class _Run:
    """The original's outputs on one set of input values.

    Attributes:
        name: the name of the set of input values, such as `random`.
        feeds: the values of the model's inputs.
        values: the outputs.
        nudged: outputs that differ from `values` by rounding, such as outputs on inputs that are changed in their last bits.
        exact: the outputs of a float64 run, or None if there are none.
        ordinary: whether the input values are not adversarial.
        peak: the largest magnitude of an intermediate value in float64, or 0 if the magnitude is not known.
        spread: for each output, the elements that may become infinite or NaN because convolutions compute whole tiles of
            pixels. None if these elements are not known.
        resized: whether the dimensions have unusual sizes, at which ONNX Runtime may crash on the candidate.
        pointless: whether intermediate values exceed the range of their type. If so, the outputs are not compared.
        conditioning: a relative change of an input may become larger by this factor when the model normalizes the input.
    """

    name: str
    feeds: Mapping[str, Array]
    values: Sequence[object]
    nudged: Sequence[Sequence[object]]
    exact: Sequence[object] | None
    ordinary: bool
    peak: float = 0.0
    spread: Sequence[object] | None = None
    resized: bool = False
    pointless: bool = False
    conditioning: float = 1.0

    @property
    def bytes(self) -> int:
        """The size in bytes of the inputs and of all outputs that this object holds. Outputs that are lists are not counted."""
        held = itertools.chain(self.feeds.values(), self.values, *self.nudged, self.exact or ())
        return sum(value.nbytes for value in held if isinstance(value, np.ndarray))

    @property
    def input_bytes(self) -> int:
        """The size of the inputs in bytes."""
        return sum(value.nbytes for value in self.feeds.values())

    def beside(self, noise: float) -> _Run:
        """Return a copy of this object with one more entry in `nudged`, the field for outputs that differ by rounding.

        The copy is used if there is no time to measure the rounding noise. In the new entry, each element of a floating-point
        output is increased by the same amount: `noise` times the largest finite magnitude of the output.
        """
        moved = [_moved(value, noise) if isinstance(value, np.ndarray) else value for value in self.values]
        return replace(self, nudged=[*self.nudged, moved])

    def outputs(self, names: Sequence[str], candidate: Sequence[object], *, direct: bool) -> Iterator[tuple[str, OutputPair]]:
        """Yield the name of each output, and an `OutputPair` of the original's and the candidate's values.

        `names` are the names of the outputs. `candidate` contains the candidate's outputs. `direct` is True if no float64 run
        of the original is possible.

        Raises:
            CheckFailedError: the length of a sequence differs between the runs, or an output is present in only some of the
                runs.
        """
        others = (self.exact or self.values, self.spread or self.values, *self.nudged)
        for name, (mine, found, exact, spread, *nudged) in _tensors(names, self.values, candidate, *others):
            yield (
                name,
                OutputPair(
                    mine,
                    found,
                    nudged,
                    None if self.exact is None else exact,
                    self.ordinary,
                    direct and self.exact is None,
                    None if self.spread is None else spread,
                ),
            )


class _Bench:
    """The original model during a check: the session, the float64 evaluator, the runs so far, and the skipped inputs.

    If no float64 run of the original is possible, `why` is the reason. Otherwise, `why` is an empty text. `evaluated` is True
    after the first successful float64 run. From then on, a failure on some inputs does not prevent float64 runs on other
    inputs. `empty` lists the tried sets of input values in which an input has no elements. Each set has a name. For each run in
    the child process, `needed` contains the number of input elements and the memory in bytes.
    """

    def __init__(
        self, original: Loadable, device: Device, seed: int, given: InputSource, *, exact: bool, optimized: bool = True
    ) -> None:
        self._hollow, self._folder = parse_model(original, external=False), folder_of(original)
        self.reference, self.why = _reference(self._hollow, self._folder)
        self.evaluated = False
        self.source = given.bounded(self._hollow)
        self.windowed, self.numbers = image_inputs(self._hollow), number_inputs(self._hollow)
        self.constants = integer_constants(self._hollow) if self.numbers else ()
        self.session = Session(original, device, optimize=optimized, exact=exact, pooled=False)
        self.seed = seed
        self.interface = given.fixed_ports(self.session.inputs), self.session.outputs
        self._now = time.thread_time if device.provider == "cpu" else time.perf_counter
        self.trials = TrialRuns(original, device)
        self.runs: list[_Run] = []
        self.left_out: list[str] = []
        self.empty: list[tuple[str, Mapping[str, Array]]] = []
        self.needed: list[tuple[int, int]] = []

    @property
    def _full(self) -> bool:
        return sum(run.bytes for run in self.runs) > CHECK.max_result_bytes

    def run(self, trial: CheckSizes, *, adversarial: bool) -> None:
        """Run the original on the inputs of a trial (one choice of sizes), within the limits of time and memory.

        Two ordinary inputs come first, then the adversarial inputs, then the remaining ordinary inputs.
        """
        self.source = feasible_source(self.session, trial.sizes, self.source)
        ordinary = ordinary_inputs(self.session.inputs, self.seed, trial.sizes, self.source)
        hard = self._adversarial(trial.sizes) if adversarial else []
        inputs = [(name, make, True) for name, make in ordinary]
        inputs[CHECK.min_inputs : CHECK.min_inputs] = [(values.name, values.make, False) for values in hard]
        deadline, done = active_time() + trial.seconds, dict.fromkeys((True, False), 0)
        for name, make, usual in inputs:
            called = f"{name} ({trial.name})" if trial.name else name
            if done[usual] >= CHECK.min_inputs and (active_time() > deadline or self._full):
                self.left_out.append(called)
                continue
            try:
                self.runs.append(self._ran(called, make(), ordinary=usual, normalized=name == SHIFTED))
                done[usual] += 1
            except InvalidModelError:
                if not done[True]:
                    raise
                self.left_out.append(called)

    def run_sizes(self, start: Mapping[str, int], *, adversarial: bool) -> None:
        """Run the original on random inputs at the sizes from `sizes_to_check`.

        `start` gives sizes at which the original runs. If a choice of sizes leaves out a dimension, the size of this dimension
        is the size in the run with the fewest input elements so far. Before the first run, the size in `start` is used. The
        original is run at large sizes last, and only if the times at smaller sizes predict a short run. Sizes at which a run
        would need too much memory are left out.
        """
        names = dynamic_dimension_keys(self._hollow)
        start = {name: _known(start, name) for name in names}
        anchor, past, failed, large = dict(start), list[tuple[float, float]](), 0, 0
        own, passed = self._now() + CHECK.sizing_seconds, active_time() + 4 * CHECK.sizing_seconds
        waiting: list[tuple[float, int, dict[str, int]]] = []
        drawn = sizes_to_check(self._hollow, start, self.source.fixed_sizes)

        def run(sizes: dict[str, int], amount: float, turn: int) -> None:
            nonlocal anchor, failed
            try:
                past.append((amount, self._run_at(sizes, turn, adversarial=adversarial)))
            except InvalidModelError:
                failed += 1
            else:
                anchor = sizes if 0 < amount == min(some for some, _ in past if some) else anchor

        def is_over() -> bool:
            return self._now() > own or active_time() > passed or self._full

        if names:
            with contextlib.suppress(InvalidModelError):
                self._run_in_child(self.source.drawn(self.session.inputs, self.seed, start))
        for turn, changed in enumerate(itertools.islice(drawn, CHECK.max_sizes_tried)):
            sizes = {**anchor, **changed}
            amount = float(sum(np.prod(port.concrete(sizes), dtype=float) for port in self.session.inputs))
            if is_over():
                break
            if self._expected_bytes(amount) > CHECK.max_sized_run_bytes:
                large += 1
            elif _expected(past, amount) > CHECK.max_sized_run_seconds:
                waiting.append((amount, turn, sizes))
            else:
                run(sizes, amount, turn)
        for amount, turn, sizes in sorted(waiting, key=lambda entry: entry[:2]):
            if (
                not is_over()
                and 8 * amount <= CHECK.max_sized_input_bytes
                and _expected(past, amount) <= CHECK.max_sized_run_seconds
            ):
                run(sizes, amount, turn)
        if failed:
            self.left_out.append(f"{failed} sizes at which the original does not run")
        if large:
            self.left_out.append(f"{large} sizes at which the original needs too much memory")

    def _run_in_child(self, feeds: Mapping[str, Array]) -> None:
        """Run the original in a child process, and store the memory that the run has needed, if this memory is known.

        Raises:
            InvalidModelError: the original does not run.
        """
        needed = self.trials.require_runs(feeds)
        if needed:
            self.needed.append((sum(value.size for value in feeds.values()), needed))

    def _expected_bytes(self, amount: float) -> float:
        """Return the expected memory in bytes of a run on inputs with `amount` elements.

        The memory is extrapolated from the largest earlier run with at most `amount` elements. If there is no such run, the
        result is 0. `CHECK.fixed_run_bytes` of the memory are assumed not to depend on the number of elements.
        """
        count, needed = max((known for known in self.needed if 0 < known[0] <= amount), default=(1, 0))
        return max(needed - CHECK.fixed_run_bytes, 0) * amount / count

    def _run_at(self, sizes: Mapping[str, int], turn: int, *, adversarial: bool) -> float:
        """Run the original on random inputs at these sizes, and return the time of one run in seconds.

        If the run is short, the original is also run on one adversarial input, which the number `turn` selects.

        Raises:
            InvalidModelError: the original does not run at these sizes, or two runs have different results.
        """
        called = ", ".join(f"{name}={size}" for name, size in sizes.items())
        feeds = self.source.drawn(self.session.inputs, self.seed + turn, sizes)
        if any(value.size == 0 for value in feeds.values()):
            self.empty.append((f"random ({called})", feeds))
        self._run_in_child(feeds)
        began = self._now()
        run = self._ran(f"random ({called})", feeds, ordinary=True, exactly=False)
        seconds = (self._now() - began) / 2
        if not all(map(_is_same, run.values, self.session.run(feeds))):
            raise InvalidModelError(f"at {called}, the results of a second run differ from the results of the first run")
        self.runs.append(replace(run, resized=True))
        if adversarial and seconds < CHECK.max_adversarial_run_seconds:
            hard = self._adversarial(sizes)
            if hard:
                values = hard[turn % len(hard)]
                self.runs.append(self._ran(f"{values.name} ({called})", values.make(), ordinary=False))
        return seconds

    def _adversarial(self, sizes: Mapping[str, int]) -> list[InputValues]:
        ports, source = self.session.inputs, self.source
        return adversarial_values(ports, self.seed, sizes, source, self.windowed, self.numbers, self.constants)

    def _ran(
        self, name: str, feeds: Mapping[str, Array], *, ordinary: bool, exactly: bool = True, normalized: bool = False
    ) -> _Run:
        """Run the original on these inputs, and on inputs that differ from these inputs only in the last bits.

        If `ordinary` and `exactly` are True, the original is also evaluated in float64. `normalized` is True if the inputs lie
        near constants that the model subtracts.

        Raises:
            InvalidModelError: the original does not run.
        """
        values = self.session.run(feeds)
        exact, peak = self._exact(feeds, values, ordinary=ordinary) if ordinary and exactly else (None, 0.0)
        conditioned = conditioning(self.source.normalized) if normalized else 1.0
        nudged = [_beside(self.session, values, _nudged(feeds, self.seed), conditioned)]
        return _Run(name, feeds, values, nudged, exact, ordinary, peak=peak, conditioning=conditioned)

    def _exact(
        self, feeds: Mapping[str, Array], values: Sequence[object], *, ordinary: bool
    ) -> tuple[Sequence[object] | None, float]:
        """Evaluate the original in float64, and return the outputs and the largest magnitude of an intermediate value.

        The outputs are None if the evaluation is not possible. On adversarial inputs, partial sums count as intermediate
        values. `values` are the outputs of the original in ONNX Runtime.
        """
        if self.reference is None:
            return None, 0.0
        try:
            exact = self.reference.run(feeds, partial=not ordinary)
            if not _alike(values, exact):
                raise NoReferenceError("the float64 evaluator and ONNX Runtime give results of different shapes")
        except NoReferenceError as error:
            if not self.evaluated:
                self.reference, self.why = None, str(error)
            return None, 0.0
        self.evaluated = True
        return exact, self.reference.peak

    def look_closer(self, run: _Run) -> _Run:
        """Return a copy of `run` with more data. The data are used to judge a candidate whose error seems too large.

        The copy has the float64 outputs and more samples of rounding noise. If all inputs are finite, the copy's field
        `pointless` states whether intermediate values overflow. If some input is not finite and the model has an image as input
        (see `image_inputs`), the copy's field `spread` is set.
        """
        if run.exact is None:
            exact, peak = self._exact(run.feeds, run.values, ordinary=run.ordinary)
            run = replace(run, exact=exact, peak=peak)
        run = replace(run, nudged=[*run.nudged, *self.samples(run)])
        if all(np.isfinite(v.astype(np.float64)).all() for v in run.feeds.values() if is_floating(v.dtype)):
            return replace(run, pointless=self._overflows(run))
        return replace(run, spread=self._spread(run)) if self.windowed else run

    def samples(self, run: _Run, look: int = 0) -> list[Sequence[object]]:
        """Return samples of the original's rounding noise: outputs that differ from the run's outputs by rounding.

        `look` is the number of earlier calls for this run. Each call gives different samples. Later calls add outputs on
        slightly changed inputs. Only outputs on changed inputs show where functions within a kernel jump. For example, the
        sigmoids of an LSTM jump near -17.
        """
        first = sum(CHECK.noise_sample_counts[:look])
        numbers = range(first, first + CHECK.noise_sample_counts[look])
        rounded = self._rounded(run, numbers)
        return rounded if rounded and not look else [*rounded, *self._beside(run, numbers)]

    def _beside(self, run: _Run, numbers: Iterable[int]) -> list[Sequence[object]]:
        """Return the original's outputs on slightly changed inputs, for each seed in `numbers`.

        The changed inputs differ from the run's inputs in the last bits.
        """
        nudged = (_nudged(run.feeds, self.seed + 1 + number) for number in numbers)
        return [_beside(self.session, run.values, feeds, run.conditioning) for feeds in nudged]

    def _rounded(self, run: _Run, numbers: Iterable[int]) -> list[Sequence[object]]:
        """Return outputs of float64 runs in which every intermediate value is rounded at random.

        Inputs and weights are rounded too, unless the inputs lie near constants that the model subtracts. The list is empty if
        no float64 run is possible. A run is left out if its outputs have different shapes than the original's outputs. Rounding
        may change a shape, for example through the scales of a Resize.
        """
        if self.reference is None or run.exact is None:
            return []
        stored = run.conditioning == 1
        try:
            found = [self.reference.run_rounded(run.feeds, self.seed + number, stored=stored) for number in numbers]
        except NoReferenceError:
            return []
        return [one for one in found if _alike(run.values, one)]

    def _overflows(self, run: _Run) -> bool:
        """Return whether intermediate values exceed the range of their type.

        On ordinary inputs, the result is False, because each output must be close to the original's output or to the float64
        output. Otherwise, the result is computed from the magnitudes in the float64 run. The result is True if a magnitude
        exceeds the range of every floating-point type of the model. If a magnitude exceeds the range of only some types, some
        value of the graph must also be infinite or NaN in ONNX Runtime. If there is no float64 run, or if the model computes in
        float64, the original is run in ONNX Runtime instead. In this case, the result is True if some value of the graph is
        infinite or NaN on these inputs but not on random inputs.
        """
        if run.ordinary:
            return False
        kinds = {np.asarray(value).dtype for value in (*run.feeds.values(), *run.values)}
        if run.exact is not None:
            largest = [largest_of(kind) for kind in (*filter(is_floating, kinds), *_cast_types(self._hollow))]
            if run.peak > max(largest, default=math.inf):
                return True
            if run.peak > min(largest, default=math.inf):
                return bool(self._infinite(run.feeds))
            if np.dtype(np.float64) not in kinds:
                return False
        sizes = {f"{name}[{axis}]": size for name, value in run.feeds.items() for axis, size in enumerate(value.shape)}
        usual = self.source.drawn(self.session.inputs, self.seed, sizes)
        return bool(self._infinite(run.feeds) - self._infinite(usual))

    def _infinite(self, feeds: Mapping[str, Array]) -> set[str]:
        """Return the names of the values in the graph that have an infinite element or a NaN."""
        try:
            values = self._revealed.run(feeds)
        except InvalidModelError:
            return set()
        floats = ((n, v) for n, v in zip(self._revealed.outputs, map(np.asarray, values), strict=True) if is_floating(v.dtype))
        return {name for name, value in floats if not np.isfinite(value.astype(np.float64)).all()}

    @functools.cached_property
    def _revealed(self) -> Session:
        """A session of the original in which all values of the graph are outputs."""
        model = ModelProto()
        model.CopyFrom(self._hollow)
        own = {port.name for port in model.graph.output}
        names = (name for node in model.graph.node for name in node.output if name and name not in own)
        model.graph.output.extend(map(helper.make_empty_tensor_value_info, names))
        stored = StoredModel(model.SerializeToString(), self._folder.resolve())
        return Session(stored, self.session.device, optimize=False, pooled=False)

    def _spread(self, run: _Run) -> Sequence[object] | None:
        try:
            tiles = Reference(self._hollow, self._folder, tiles=True).run(run.feeds)
        except NoReferenceError:
            return None
        return [~np.isfinite(value) if isinstance(value, np.ndarray) else value for value in tiles]


def _cast_types(model: ModelProto) -> set[np.dtype[Any]]:
    """Return the floating-point types to which nodes of the model's graphs convert values."""
    casts = (node for graph in all_graphs(model) for node in graph.node if node.op_type == "Cast")
    types = {attribute.i for node in casts for attribute in node.attribute if attribute.name == "to"}
    return {kind for kind in map(helper.tensor_dtype_to_np_dtype, types) if is_floating(kind)}


def _known(sizes: Mapping[str, int], key: str) -> int:
    """Return the size of a dynamic dimension from `sizes`. If `sizes` has no entry for the dimension, return 1.

    `key` is the dimension's name or, for an unnamed dimension, a text such as `x[0]`. The key of the entry may also be `x.0`,
    or `?` for all dimensions.
    """
    name, _, axis = key.removesuffix("]").partition("[")
    return sizes.get(key, sizes.get(f"{name}.{axis}", sizes.get("?", 1)))


def _expected(past: Sequence[tuple[float, float]], amount: float) -> float:
    """Return the expected time in seconds of a run on inputs with `amount` elements.

    `past` contains the number of elements and the time in seconds of each earlier run. The time is extrapolated from the
    largest earlier run that has at most `amount` elements. The extrapolated time grows with the square of the number of
    elements. If no earlier run has at most `amount` elements, the result is 0 for a small `amount`, and infinite for a large
    `amount`.
    """
    below = max((known for known in past if 0 < known[0] <= amount), default=None)
    if below is None:
        return math.inf if 8 * amount > CHECK.max_sized_input_bytes else 0.0
    return below[1] * (amount / below[0]) ** 2


def _compared(
    runs: Sequence[_Run],
    interface: tuple[Sequence[Port], Sequence[str]],
    candidate: Loadable,
    device: Device,
    factor: float,
    *,
    direct: bool,
    exact: bool,
    optimized: bool,
    identical: bool,
) -> tuple[list[tuple[str, OutputErrors]], list[tuple[_Run, Sequence[object]]]]:
    """Run the candidate on the inputs of all runs, and compare the candidate's outputs with the original's outputs.

    Returns:
        Two lists. The first list contains the errors on ordinary inputs, each with the name of the output. The second list
        contains the runs in which the candidate's error seems too large, each with the candidate's outputs.

    Raises:
        CheckFailedError: the inputs or outputs of the two models differ in name, type or shape. This error is also raised if
            the candidate cannot be loaded or run, or if outputs have different bits although `identical` is True.
    """
    errors: list[tuple[str, OutputErrors]] = []
    doubtful: list[tuple[_Run, Sequence[object]]] = []
    where = ""
    try:
        session = Session(candidate, device, optimize=optimized, exact=exact, pooled=False)
        _same_interface(*interface, session)
        trials = TrialRuns(candidate, device)
        for run in runs:
            where = f"on {run.name} inputs: "
            if run.resized:
                trials.require_runs(run.feeds)
            others = session.run(run.feeds)
            outputs = list(run.outputs(session.outputs, others, direct=direct))
            faults = ((name, output.difference() if identical else output.fault(factor)) for name, output in outputs)
            name, fault = next((found for found in faults if found[1]), ("", ""))
            if fault and identical:
                raise CheckFailedError(f"output {name!r} on {run.name} inputs: {fault}")
            if fault:
                doubtful.append((run, others))
            elif run.exact is not None or (direct and run.ordinary):
                errors += [(name, output.errors(factor)) for name, output in outputs]
        trials.close()
    except InvalidModelError as error:
        raise CheckFailedError(f"{where}{error}") from error
    return errors, doubtful


_EmptyInputs: TypeAlias = "tuple[str, Mapping[str, Array]]"
"""The name of a set of input values, and the values. At least one input has no elements."""


def _plain_runs(
    original: Loadable, device: Device, empty: Sequence[_EmptyInputs]
) -> tuple[list[_EmptyInputs], list[Mapping[str, tuple[int, ...]]]]:
    """Return two lists. The first list contains the elements of `empty` on which the original runs without graph optimizations.

    The second list contains the shapes of inputs on which the original's outputs depend on uninitialized memory. These inputs
    are not in the first list. The candidate may have any outputs on inputs of these shapes.
    """
    possible: list[_EmptyInputs] = []
    unwritten: list[Mapping[str, tuple[int, ...]]] = []
    with contextlib.closing(TrialRuns(original, device, optimized=False)) as plain:
        for name, feeds in empty:
            with contextlib.suppress(InvalidModelError):
                plain.require_runs(feeds)
                if plain.is_repeatable(feeds):
                    possible.append((name, feeds))
                elif _shapes(feeds) not in unwritten:
                    unwritten.append(_shapes(feeds))
    return possible, unwritten


def _shapes(feeds: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    return {name: value.shape for name, value in feeds.items()}


def _require_plain_runs(candidate: Loadable, device: Device, possible: Sequence[_EmptyInputs]) -> None:
    """Require that the candidate runs, without graph optimizations, on each input in `possible`.

    `possible` lists inputs without elements on which the original runs without graph optimizations. A Reshape of an empty
    tensor to `[0, -1]` fails. ONNX Runtime's optimizations can remove or add this Reshape. For this reason, some models run on
    an empty tensor only with optimizations, and other models run only without optimizations.

    Raises:
        CheckFailedError: the candidate does not run.
    """
    with contextlib.closing(TrialRuns(candidate, device, optimized=False)) as plain:
        for name, feeds in possible:
            try:
                plain.require_runs(feeds)
            except InvalidModelError as error:
                raise CheckFailedError(
                    f"on {name} inputs, the candidate does not run without graph optimizations: {error}"
                ) from error


def _looked_closer(
    bench: _Bench, doubtful: Sequence[tuple[_Run, Sequence[object]]], factor: float
) -> tuple[list[tuple[str, OutputErrors]], set[str]]:
    """Measure rounding noise for the runs in which the candidate's error seems too large, and judge these runs again.

    Runs with small inputs come first. Relative noise is the noise divided by the magnitude of the output. If no time is left to
    measure the noise of an ordinary run, the largest relative noise of the previous runs is used.

    Returns:
        The errors, each with the name of the output, and the names of the runs that were not judged: the adversarial runs for
        which there was no time, and the runs in which intermediate values overflow.

    Raises:
        CheckFailedError: the candidate's error is larger than rounding explains.
    """
    errors: list[tuple[str, OutputErrors]] = []
    undecided: set[str] = set()
    noise, start = 0.0, active_time()
    for number, (doubted, others) in enumerate(sorted(doubtful, key=lambda entry: entry[0].input_bytes)):
        late = number >= CHECK.min_inputs and active_time() > start + (
            CHECK.ordinary_look_seconds if doubted.ordinary else CHECK.adversarial_look_seconds
        )
        if late and not doubted.ordinary:
            undecided.add(doubted.name)
            continue
        run = doubted.beside(noise) if late else bench.look_closer(doubted)
        if run.pointless:
            undecided.add(run.name)
        outputs = [] if run.pointless else [*run.outputs(bench.session.outputs, others, direct=bool(bench.why))]
        until = active_time() + CHECK.adversarial_look_seconds
        for more in () if late else range(1, len(CHECK.noise_sample_counts)):
            if active_time() > until or not any(output.fault(factor) for _, output in outputs):
                break
            run = replace(run, nudged=[*run.nudged, *bench.samples(run, more)])
            outputs = [*run.outputs(bench.session.outputs, others, direct=bool(bench.why))]
        for name, output in outputs:
            if fault := output.fault(factor):
                raise CheckFailedError(f"output {name!r} on {run.name} inputs: {fault}")
            found = output.errors(factor)
            noise = max(noise, found.least) if run.ordinary and found.floating else noise
            if doubted.exact is not None or (bench.why and run.ordinary):
                errors.append((name, found))
    return errors, undecided


def _together(
    errors: Sequence[tuple[str, OutputErrors]], factor: float
) -> tuple[float, float, tuple[tuple[str, float, float], ...]]:
    """Return the largest error of the original, and the largest error of the candidate, over all outputs and inputs.

    The third item of the result contains the name and the two errors of each output.

    Floating-point outputs are judged separately from outputs of other types, because the error of an output of another type is
    the share of wrong elements. If some outputs do not vanish, outputs that vanish are not used.

    Raises:
        CheckFailedError: the candidate's error is too large.
    """
    judged = _by_output([one for one in errors if not one[1].vanishes] or errors)
    for name, found in judged.items():
        if how := found.does_not_round():
            raise CheckFailedError(f"output {name!r}: {how}")
    for floating in (True, False):
        kind = (found for found in judged.values() if found.floating is floating)
        if how := functools.reduce(OutputErrors.joined, kind, OutputErrors(floating=floating)).strayed(factor):
            raise CheckFailedError(f"in the worst case over all inputs: {how}")
    whole = functools.reduce(OutputErrors.joined, judged.values(), OutputErrors())
    outputs = tuple((name, found.original, found.candidate) for name, found in judged.items())
    return whole.original, whole.candidate, outputs


def _by_output(errors: Iterable[tuple[str, OutputErrors]]) -> dict[str, OutputErrors]:
    """Combine the errors of each output over all inputs. Return a mapping from the names of the outputs to the errors."""
    found: dict[str, OutputErrors] = {}
    for name, one in errors:
        found[name] = found.get(name, one).joined(one)
    return found


def _beside(session: Session, values: Sequence[object], nudged: Mapping[str, Array], conditioning: float) -> Sequence[object]:
    """Run the model on the slightly changed inputs `nudged`, and return the outputs.

    `values` are the outputs on the unchanged inputs. The difference of each output from its value in `values` is divided by the
    factor `conditioning`. If the run fails, or if an output's shape differs from the shape in `values`, the result is `values`.
    """
    try:
        moved = session.run(nudged)
    except InvalidModelError:
        return values
    if not _alike(values, moved):
        return values
    return moved if conditioning == 1 else [_nearer(v, m, conditioning) for v, m in zip(values, moved, strict=True)]


def _nearer(value: object, moved: object, times: float) -> object:
    """Return the array `value + (moved - value) / times`, computed in float64.

    If the arguments are not floating-point arrays, the result is `moved`.
    """
    if not (isinstance(value, np.ndarray) and isinstance(moved, np.ndarray) and is_floating(value.dtype)):
        return moved
    wide = value.astype(np.float64)
    with np.errstate(all="ignore"):
        near: Array = wide + (moved.astype(np.float64) - wide) / times
    return near


def _nudged(feeds: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """Move each float in the inputs up or down by one or two units in the last place, and return the result."""
    rng = np.random.default_rng(seed)
    nudged = dict(feeds)
    for name, value in feeds.items():
        if is_floating(value.dtype):
            wide = value.astype(np.float64)
            with np.errstate(all="ignore"):
                spacing = np.spacing(np.abs(value)) if value.dtype.kind == "f" else np.abs(wide) * ulp_of(value.dtype)
                moved = wide + spacing.astype(np.float64) * rng.choice((-2.0, -1.0, 1.0, 2.0), value.shape)
                moved = np.where(np.isfinite(moved.astype(value.dtype).astype(np.float64)), moved, wide)
            nudged[name] = moved.astype(value.dtype)
    return nudged


def _moved(value: Array, share: float) -> Array:
    """Add `share` times the largest finite magnitude of the array to every element, and return the result.

    An array of integers or booleans is returned unchanged.
    """
    if not is_floating(value.dtype):
        return value
    wide = value.astype(np.float64)
    moved: Array = wide + share * np.max(np.abs(wide), where=np.isfinite(wide), initial=0.0)
    return moved


def _alike(values: Sequence[object], exact: Sequence[object]) -> bool:
    """Return whether two lists of outputs agree in the lengths of sequences and in the shapes of arrays."""
    for value, other in zip(values, exact, strict=True):
        if isinstance(value, list) and isinstance(other, list):
            same = len(value) == len(other) and _alike(value, other)
        else:
            same = type(value) is type(other) and np.asarray(value).shape == np.asarray(other).shape
        if not same:
            return False
    return True


def _tensors(names: Sequence[str], *runs: Sequence[object]) -> Iterator[tuple[str, list[Array]]]:
    """Yield the name of each output and the output's values in all runs.

    The elements of a sequence are yielded one by one. The keys and the numbers of a map are yielded as two arrays. An
    absent optional output is left out.

    Raises:
        CheckFailedError: the length of a sequence differs between the runs, or an output is present in only some of the runs.
    """
    for name, *given in zip(names, *runs, strict=True):
        found = [_parts(value) if isinstance(value, dict) else value for value in given]
        lists = [len(value) if isinstance(value, list) else value is None for value in found]
        if len(set(lists)) > 1:
            raise CheckFailedError(f"output {name!r} does not have as many elements as in the original")
        if isinstance(found[0], list):
            yield from _tensors([f"{name}[{n}]" for n in range(len(found[0]))], *found)
        elif found[0] is not None:
            yield name, [np.asarray(value) for value in found]


def _parts(value: Mapping[object, object]) -> list[Array]:
    """Return two arrays for an output that is a map: the keys, and the numbers.

    If the numbers are Python floats, ONNX Runtime has converted the numbers from float32. In this case, the second array is
    float32.
    """
    numbers = np.array([*value.values()])
    own = all(isinstance(number, float) and not isinstance(number, np.floating) for number in value.values())
    return [np.array([*value]), numbers.astype(np.float32) if own else numbers]


def _reference(model: ModelProto, folder: Path) -> tuple[Reference | None, str]:
    """Return an evaluator of the model in float64 and an empty text. If there is no evaluator, return None and the reason.

    External tensors are in `folder`.
    """
    try:
        return Reference(model, folder), ""
    except NoReferenceError as error:
        return None, str(error)


def _same_interface(inputs: Sequence[Port], outputs: Sequence[str], candidate: Session) -> None:
    if inputs != candidate.inputs:
        raise CheckFailedError(f"the inputs differ: {_listed(inputs)} became {_listed(candidate.inputs)}")
    if outputs != candidate.outputs:
        raise CheckFailedError(f"the outputs differ: {', '.join(outputs)} became {', '.join(candidate.outputs)}")


def _listed(ports: Sequence[Port]) -> str:
    return ", ".join(f"{p.name} {p.dtype}{list(p.shape)}" for p in ports)


def ordinary_inputs(
    ports: Sequence[Port], seed: int, sizes: Mapping[str, int] | None, source: InputSource
) -> list[tuple[str, Callable[[], dict[str, Array]]]]:
    """Return named sets of ordinary input values, the most significant first.

    Each element of the list has the name of a set, and a function that computes the values. Examples come first, then random
    values, then edge cases such as zeros. If the model begins by subtracting constants from inputs, one set has values near
    these constants (see `Normalization`).

    Integers are random in all sets, because integers are indices, masks or sizes. An input with a single boolean usually
    selects a branch. So this boolean is true in about half of the sets.
    """

    def floats(change: Callable[[Array], Array], offset: int) -> Callable[[], dict[str, Array]]:
        def make() -> dict[str, Array]:
            feeds = source.drawn(ports, seed + offset, sizes)
            turned = {n: np.full_like(v, offset % 2 == 0) for n, v in feeds.items() if v.dtype == np.bool_ and v.size == 1}
            changed = {n: change(v).astype(v.dtype) if is_floating(v.dtype) else v for n, v in feeds.items()}
            return {**changed, **turned, **source.fixed}

        return make

    count = len(source.fitting(ports, sizes))
    examples = [(f"example {n}", functools.partial(source.values, ports, n, sizes)) for n in range(count)]
    random = ("random", floats(lambda v: v, 0))
    shifted = [(SHIFTED, lambda: source.denormalized(random[1]()))] if source.normalized else []
    again = ("random again", floats(lambda v: v, 1))
    if not any(is_floating(p.dtype) for p in ports):
        return [*examples, random, again]
    return [
        *examples,
        random,
        *shifted,
        ("zero", floats(np.zeros_like, 3)),
        ("large", floats(_enlarged, 2)),
        ("negative", floats(lambda v: -np.abs(v), 5)),
        ("tiny", floats(lambda v: v * np.asarray(1e-6, v.dtype), 4)),
        ("one", floats(np.ones_like, 6)),
        again,
    ]


def _is_same(first: object, second: object) -> bool:
    """Return whether two outputs are equal. Outputs that are not arrays of numbers count as equal."""
    if not (isinstance(first, np.ndarray) and isinstance(second, np.ndarray)) or first.dtype == object:
        return True
    return first.tobytes() == second.tobytes() or bool(np.array_equal(first, second, equal_nan=is_floating(first.dtype)))


def _enlarged(values: Array) -> Array:
    """Return the values times 1000. For a type with a narrow range, the factor is smaller, so that products stay finite."""
    most = float(np.finfo(values.dtype).max) if values.dtype.kind == "f" else 1e38
    enlarged: Array = values * np.asarray(min(1000.0, most**0.25), values.dtype)
    return enlarged
