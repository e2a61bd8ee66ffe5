"""Runs of two models on the same inputs, compared element by element.

An element that is finite in the original's output must be finite in the optimized model's output, and close to the original's
element. The tolerance depends on the original's own rounding errors. One part of the tolerance is the measured change of the
element when the inputs of the original change in their last bits. The other part is proportional to the largest magnitude in
the element's row, and allows for the rounding errors of sums. Some inputs make sigmoids tiny. On these inputs, the larger of
two magnitudes counts: the largest magnitude in the row, and the output's largest magnitude on ordinary inputs. The reason is
that the error of ONNX Runtime's Sigmoid does not shrink with the result.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto

from superopt.child.process import Child, ChildSession
from superopt.errors import CheckFailedError, InvalidModelError, ProviderError, RuntimeDiedError, RuntimeMissingError
from superopt.policy import COMPARISON, VERIFY
from superopt.protobuf.normalization import SHIFTED, conditioning
from superopt.protobuf.specialize import Specialization
from superopt.protobuf.stored import stored_bytes
from superopt.verification.inputs import (
    BOUNDARY,
    SATURATING,
    Array,
    Feeds,
    adversarial_feeds,
    ordinary_feeds,
    perturb_feeds,
    verification_sizes,
)
from superopt.verification.models import ModelSource

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
FOLDER = "session.model_external_initializers_file_folder_path"
"""ONNX Runtime's configuration entry for the folder of the external tensors of a model that is given as bytes."""


@dataclass
class Runner:
    """A model loaded in ONNX Runtime without graph optimizations.

    Attributes:
        source: The model file.
        provider: The execution provider.
        threads: The number of intra-op threads.
        proto: A ModelProto to run instead of the model file. This ModelProto may refer to the external data of the model file.
        names: The outputs to compute. If `names` is empty, the outputs of `source` are computed.
    """

    source: ModelSource
    provider: str = "cpu"
    threads: int = 1
    proto: ModelProto | None = None
    names: Sequence[str] = ()
    session: Any = field(init=False)

    def __post_init__(self) -> None:
        if self.provider not in PROVIDERS:
            raise ProviderError(f"unknown provider {self.provider!r}: expected one of {', '.join(PROVIDERS)}")
        try:
            import onnxruntime as ort
        except ImportError:
            raise RuntimeMissingError("`superopt verify` needs onnxruntime or onnxruntime-gpu") from None
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 4
        wanted = [PROVIDERS[self.provider], PROVIDERS["cpu"]]
        if wanted[0] not in ort.get_available_providers():
            raise ProviderError(f"this onnxruntime has no provider {self.provider}")
        options.add_session_config_entry(FOLDER, str(self.source.path.resolve().parent))
        model = str(self.source.path) if self.proto is None else self.proto.SerializeToString()
        try:
            self.session = ort.InferenceSession(model, options, providers=list(dict.fromkeys(wanted)))
        except Exception as error:
            raise InvalidModelError(f"{self.source.path}: ONNX Runtime cannot load the model ({_line(error)})") from error
        if (taken := self.session.get_providers()[0]) != wanted[0]:
            raise ProviderError(f"the provider {self.provider} cannot be used: ONNX Runtime runs {self.source.path} on {taken}")

    def run(self, feeds: Feeds) -> list[object] | str:
        """Run the model, and return the outputs. If the run fails, return a one-line error message."""
        try:
            found: list[object] = self.session.run(list(self.names or self.source.outputs), dict(feeds))
        except Exception as error:  # noqa: BLE001
            return _line(error)
        return found


class _Trial:
    """Runs of a `Runner`'s model in a child process, on inputs on which ONNX Runtime may crash."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._child: Child | None = None
        self._session: ChildSession | None = None
        self._possible = runner.provider == "cpu" and 2 * stored_bytes(runner.source.path) <= COMPARISON.max_resident_bytes

    def run(self, feeds: Feeds) -> str:
        """Run the model. If the run fails, return a one-line error message. Otherwise, return an empty string.

        The model is not run if the provider is not the CPU, if the model is large, or if no child process can be started. The
        result is then an empty string.
        """
        if not self._possible:
            return ""
        try:
            if self._child is None or not self._child.is_alive:
                self._child = Child()
                self._session = self._child.load(self._runner.source.path, threads=self._runner.threads, optimized=False)
            if self._session is not None:
                self._session.run(feeds)
        except (InvalidModelError, RuntimeDiedError, TimeoutError) as error:
            return _line(error)
        except OSError:
            self._possible = False
        return ""

    def close(self) -> None:
        """End the child process."""
        if self._child is not None:
            self._child.close()


@dataclass(frozen=True)
class ComparedRuns:
    """The result of a comparison in which all outputs of the two models agreed.

    Attributes:
        sizes: The number of choices of sizes at which both models ran.
        inputs: The number of sets of input values on which both models ran.
        values: The number of output elements that were compared.
        names: The names of the kinds of input values.
    """

    sizes: int
    inputs: int
    values: int
    names: tuple[str, ...]


def compare_runs(
    original: ModelSource,
    optimized: ModelSource,
    *,
    given: Sequence[Mapping[str, int]] = (),
    special: bool = True,
    masks: bool = False,
    identical: bool = False,
    provider: str = "cpu",
    threads: int = 1,
    seed: int = 0,
    inside: Callable[[Feeds], None] = lambda _: None,
    fixed: Specialization | None = None,
    examples: Sequence[Feeds] = (),
) -> ComparedRuns:
    """Run both models on random inputs and compare their outputs.

    Args:
        original: The original model.
        optimized: The optimized model.
        given: Sizes of dynamic dimensions to try first.
        special: Whether both models also run on special values, such as masks and infinities.
        masks: Whether extreme values are limited to inputs that may be masks. This limit is needed if the optimized model
            assumes ordinary values in all other inputs.
        identical: Whether outputs must have the same bits, except for signs of zeros and bits of NaN.
        provider: The execution provider.
        threads: The number of intra-op threads.
        seed: The seed of the random inputs.
        inside: A function that is called with each example, and with one set of input values at each of the first few choices
            of sizes without a 0.
        fixed: The fixed inputs and sizes. The optimized model must not run with other values or sizes.
        examples: Values of inputs, by name, on which the models are run first. Inputs that an example leaves out are random.

    Raises:
        CheckFailedError: The interfaces differ, or an output differs. If an output differs, the message names the sizes, the
            input and the element.
        InvalidModelError: ONNX Runtime cannot load the original, or cannot run the original on an example. Or there are no
            examples, and the original runs at none of the sizes.
        ProviderError: The provider is unknown or not available.
    """
    _require_interface(original, optimized)
    before = Runner(original, provider, threads)
    try:
        after = Runner(optimized, provider, threads)
    except InvalidModelError as error:
        raise CheckFailedError(str(error)) from error
    pair = _Pair(before, after, seed, fixed or Specialization(), identical)
    completed = [_completed(original, example, seed) for example in examples]
    for number, feeds in enumerate(completed, 1):
        if not pair.compare(f"example {number}", feeds):
            raise InvalidModelError(f"{original.path}: the original does not run on example {number} ({pair.reason})")
        inside({**feeds, **pair.fixed.values})
    with contextlib.closing(_Trial(before)) as first, contextlib.closing(_Trial(after)) as second:
        done = _at_sizes(pair, (first, second), [{**numbers, **pair.fixed.sizes} for numbers in given or [{}]], inside)
    if not done and not examples:
        raise InvalidModelError(f"{original.path}: the original does not run at any of the tried sizes ({pair.reason})")
    pair.require_refusal(completed[0] if completed else next(ordinary_feeds(original, *done[0], seed))[1])
    if special and done:
        deadline = time.monotonic() + VERIFY.value_run_seconds
        for at, bound in (done[0], done[len(done) // 2]) if len(done) > 1 else done:
            usual = pair.largest(next(ordinary_feeds(original, at, bound, seed))[1])
            for name, feeds in adversarial_feeds(original, at, bound, seed, masks=masks):
                if time.monotonic() < deadline:
                    tiny = name.partition(" in ")[0] in SATURATING
                    pair.compare(_named(name, at), feeds, usual=usual if tiny else (), signs=name == BOUNDARY)
    return ComparedRuns(len(done) + len(examples), pair.inputs, pair.values, tuple(dict.fromkeys(pair.names)))


def _completed(source: ModelSource, example: Feeds, seed: int) -> Feeds:
    """Return a copy of the example in which each missing input has random values.

    The sizes of dynamic dimensions are the sizes in the example's arrays.
    """
    at = dict.fromkeys(source.dimensions, 1)
    for port in source.inputs:
        for axis, size in zip(port.axes, np.shape(example.get(port.name, ())), strict=False):
            if isinstance(axis, str):
                at[axis] = size
    _, drawn = next(ordinary_feeds(source, at, 1, seed))
    return {**drawn, **example}


def _at_sizes(
    pair: _Pair, trials: tuple[_Trial, _Trial], given: Sequence[Mapping[str, int]], inside: Callable[[Feeds], None]
) -> list[tuple[dict[str, int], int]]:
    """Compare both models on ordinary inputs at many sizes, and return the sizes at which both models ran.

    Each element of the list is a pair: a choice of sizes, and the upper bound on the integers in the inputs at these sizes. At
    each choice of sizes, both models are first run in the child processes of `trials`.
    """
    done: list[tuple[dict[str, int], int]] = []
    inspected = 0
    integral = any(np.dtype(port.dtype).kind in "iu" for port in pair.before.source.inputs)
    started, bound = time.monotonic(), 0 if integral else 1
    drawn = ({**at, **pair.fixed.sizes} for at in verification_sizes(pair.before.source, given, pair.seed))
    for tries, at in enumerate(drawn):
        spent = time.monotonic() - started
        enough = len(done) >= VERIFY.max_sizes or (spent > VERIFY.size_run_seconds and len(done) >= VERIFY.min_sizes)
        if enough or tries >= VERIFY.max_size_tries_per_model or spent > 3 * VERIFY.size_run_seconds:
            break
        for limit in (bound,) if bound else VERIFY.integer_bound_counts:
            inputs = list(ordinary_feeds(pair.before.source, at, limit, pair.seed))
            first = _named(inputs[0][0], at), inputs[0][1]
            if (not at or pair.run_safely(*first, trials)) and pair.compare(*first):
                for name, feeds in inputs[1:] if len(done) < VERIFY.min_sizes else inputs[1:2]:
                    times = conditioning(pair.before.source.normalized) if name == SHIFTED else 1.0
                    pair.compare(_named(name, at), feeds, times)
                if inspected < VERIFY.inspected_size_count and all(at.values()):
                    inside({**inputs[0][1], **pair.fixed.values})
                    inspected += 1
                done.append((at, limit))
                bound = limit
                break
    return done


def _named(name: str, at: Mapping[str, int]) -> str:
    return f"{name} inputs" + (f" at {', '.join(f'{key}={n}' for key, n in at.items())}" if at else "")


@dataclass
class _Pair:
    """The original and the optimized model, and the progress of their comparison.

    Attributes:
        before: The original.
        after: The optimized model.
        seed: The seed of the changes to inputs.
        fixed: The fixed inputs and sizes.
        identical: Whether outputs must have the same bits, except for signs of zeros and bits of NaN.
        inputs: The number of sets of input values that were compared.
        values: The number of output elements that were compared.
        reason: The error of the last run in which the original failed, or an empty string.
        names: The kind of each set of input values.
    """

    before: Runner
    after: Runner
    seed: int
    fixed: Specialization
    identical: bool = False
    inputs: int = 0
    values: int = 0
    reason: str = ""
    names: list[str] = field(default_factory=list)

    def largest(self, feeds: Feeds) -> list[float]:
        """Return the largest finite magnitude in each output of the original, or 0 for an output without numbers."""
        outputs = self.before.run({**feeds, **self.fixed.values})
        return [] if isinstance(outputs, str) else [_largest(output) for output in outputs]

    def run_safely(self, name: str, feeds: Feeds, trials: tuple[_Trial, _Trial]) -> bool:
        """Run both models in child processes. Return False if the original does not run on the inputs.

        Raises:
            CheckFailedError: The original runs, but the optimized model does not run.
        """
        before, after = trials
        feeds = {**feeds, **self.fixed.values}
        if reason := before.run(feeds):
            self.reason = reason
            return False
        if reason := after.run(feeds):
            raise CheckFailedError(f"on {name}, the original runs, but the optimized model does not run ({reason})")
        return True

    def compare(
        self, name: str, feeds: Feeds, conditioning: float = 1.0, *, usual: Sequence[float] = (), signs: bool = False
    ) -> bool:
        """Run both models on the inputs, and compare the outputs. Return False if the original does not run on the inputs.

        When inputs change in their last bits, the original's outputs change. This change is part of the allowed difference.
        The change is first divided by the factor `conditioning`. `usual` contains a magnitude for each output. If the output
        has smaller magnitudes, the tolerance is proportional to this magnitude. If `signs` is True, infinities must have the
        same signs.

        Raises:
            CheckFailedError: The original runs, but the optimized model does not run or has different outputs.
        """
        feeds = {**feeds, **self.fixed.values}
        wanted = self.before.run(feeds)
        if isinstance(wanted, str):
            self.reason = wanted
            return False
        found = self.after.run(feeds)
        if isinstance(found, str):
            raise CheckFailedError(f"on {name}, the original runs, but the optimized model does not run ({found})")
        turns = range(1, 1 if self.identical else VERIFY.nudged_run_count + 1)
        boundaries = self.before.source.boundaries
        nudged = (perturb_feeds(feeds, self.seed + turn, boundaries) for turn in turns)
        near = [self.before.run({**changed, **self.fixed.values}) for changed in nudged]
        others = [run for run in near if not isinstance(run, str)]
        for place, output in enumerate(self.before.source.outputs):
            ordinary = usual[place] if usual else 0.0
            near_here = [run[place] for run in others]
            what = describe_difference(wanted[place], found[place], near_here, conditioning, usual=ordinary, signs=signs)
            if self.identical and not what:
                what = "" if _same_bits(wanted[place], found[place]) else "the bits are not the same"
            if what:
                raise CheckFailedError(f"output {output!r} differs on {name}: {what}")
            value = wanted[place]
            self.values += value.size if isinstance(value, np.ndarray) else 1
        self.inputs += 1
        self.names.append(name.partition(" at ")[0])
        return True

    def require_refusal(self, feeds: Feeds) -> None:
        """Check that the optimized model runs only with the fixed values of inputs and the fixed sizes.

        The original runs on `feeds`.

        Raises:
            CheckFailedError: The optimized model runs with a different value of a fixed input, or at sizes that differ
                from the fixed sizes.
        """
        for name, value in self.fixed.values.items():
            other = (
                ~value if value.dtype.kind == "b" else value + np.ones_like(value) if value.dtype.kind != "O" else value + "?"
            )
            if not isinstance(self.after.run({**feeds, **self.fixed.values, name: np.asarray(other)}), str):
                raise CheckFailedError(f"the optimized model also runs with a different value of the fixed input {name!r}")
        for before, after in zip(self.before.source.inputs, self.after.source.inputs, strict=True):
            for axis, own in zip(before.axes, after.axes, strict=True):
                if own != self.fixed.sizes.get(str(axis), own):
                    raise CheckFailedError(f"the optimized model also runs at other sizes of the fixed dimension {axis!r}")


def describe_difference(
    wanted: object,
    found: object,
    near: Iterable[object] = (),
    conditioning: float = 1.0,
    *,
    usual: float = 0.0,
    signs: bool = False,
) -> str:
    """Return a description of the difference between two outputs. If only rounding differs, return an empty string.

    Args:
        wanted: The output of the original.
        found: The output of the optimized model.
        near: Outputs of the original on inputs that are changed in their last bits.
        conditioning: A factor by which the rounding noise is divided. The noise of a floating-point element is the difference
            between its values in `near` and in `wanted`.
        usual: A lower bound on the magnitude of a row. The tolerance of an element is proportional to the largest magnitude in
            its row, or to `usual` if `usual` is larger.
        signs: Whether infinities must have the same signs.
    """
    if not isinstance(wanted, np.ndarray) or not isinstance(found, np.ndarray):
        return "" if _alike(wanted, found, list(near)) else "the values differ"
    if wanted.shape != found.shape or wanted.dtype != found.dtype:
        return f"the original gives {_type(wanted)}, the optimized model {_type(found)}"
    if not wanted.size:
        return ""
    others = [other for other in near if isinstance(other, np.ndarray) and other.shape == wanted.shape]
    if wanted.dtype.kind in "biu":
        return _counted(wanted, found, others)
    if wanted.dtype.kind != "f":
        return "" if np.array_equal(wanted, found) else "the values differ"
    a, b = wanted.astype(np.float64), found.astype(np.float64)
    finite = np.isfinite(a)
    lost = finite & ~np.isfinite(b) & (np.abs(a) < VERIFY.overflow_share * float(np.finfo(wanted.dtype).max))
    for other in others:  # an element may be infinite or NaN if slightly changed inputs make the original's element so
        lost &= np.isfinite(other)
    if signs:
        lost |= np.isinf(a) & (b == -a)
    if lost.any():
        return _at(lost, a, b)
    far = np.abs(np.where(finite, a, 0) - np.where(finite & np.isfinite(b), b, 0)) > _allowed(
        a, finite, others, wanted.dtype, conditioning, usual
    )
    far &= finite & np.isfinite(b)
    return _at(far, a, b) if far.any() else ""


def _allowed(
    a: Array, finite: Array, others: Sequence[Array], dtype: np.dtype[Any], conditioning: float, usual: float
) -> Array:
    """For each element of `a`, return the largest allowed difference from the optimized model's element.

    Args:
        a: The output of the original, in float64.
        finite: The positions where `a` is finite.
        others: Outputs of the original on inputs that are changed in their last bits.
        dtype: The type of the output.
        conditioning: A factor by which the differences between `others` and `a` are divided.
        usual: A lower bound on the magnitude of a row. This bound is used if the largest magnitude in the row is smaller.
    """
    magnitude = np.abs(np.where(finite, a, 0))
    changes = [np.abs(np.where(np.isfinite(o) & finite, o.astype(np.float64) - np.where(finite, a, 0), 0)) for o in others]
    change = np.max(changes, axis=0) / conditioning if changes else np.zeros_like(magnitude)
    share = VERIFY.row_tolerance_share * max(1.0, float(np.finfo(dtype).eps) / float(np.finfo(np.float32).eps) / 8)
    axis = -1 if a.ndim and a.shape[-1] > VERIFY.max_short_row_elements else None
    with np.errstate(over="ignore"):
        local = share * np.maximum(np.max(magnitude, axis=axis, keepdims=True), usual)
        common = VERIFY.common_change_factor * np.quantile(change, 0.6, axis=axis, keepdims=True)
        return np.asarray(VERIFY.own_change_factor * change + local + common + float(np.finfo(dtype).tiny))


def _largest(output: object) -> float:
    if not isinstance(output, np.ndarray) or output.dtype.kind != "f":
        return 0.0
    return float(np.max(np.abs(output), initial=0.0, where=np.isfinite(output)))


def _counted(wanted: Array, found: Array, others: Sequence[Array]) -> str:
    """Return the result of `describe_difference` for two outputs of integers or booleans.

    The arrays in `others` are the original's outputs on slightly changed inputs. An element of `found` may differ from `wanted`
    if an array in `others` also differs from `wanted` at the element's position.
    """
    off = wanted != found
    for other in others:
        off &= other == wanted
    return _at(off, wanted, found) if off.any() else ""


def _at(off: Array, wanted: Array, found: Array) -> str:
    place = tuple(int(n) for n in np.argwhere(off)[0]) if off.ndim else ()
    return f"{wanted[place]:g} became {found[place]:g} at {list(place)} ({int(off.sum())} such of {off.size})"


def _alike(wanted: object, found: object, near: Sequence[object]) -> bool:
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(_alike(one, other, []) for one, other in zip(wanted, found, strict=True))
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(_alike(wanted[key], found[key], []) for key in wanted)
    if isinstance(wanted, np.ndarray) and isinstance(found, np.ndarray):
        return not describe_difference(wanted, found, [other for other in near if isinstance(other, np.ndarray)])
    if isinstance(wanted, float) and isinstance(found, float):
        return bool(np.isclose(wanted, found, rtol=1e-3, atol=1e-6, equal_nan=True))
    return bool(wanted == found)


def _same_bits(wanted: object, found: object) -> bool:
    """Return whether two outputs have the same bits, except for signs of zeros and bits of NaN."""
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(_same_bits, wanted, found))
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(_same_bits(wanted[key], found[key]) for key in wanted)
    a, b = np.asarray(wanted), np.asarray(found)
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _type(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _require_interface(original: ModelSource, optimized: ModelSource) -> None:
    def interface(source: ModelSource) -> Iterator[object]:
        yield from ((port.name, np.dtype(port.dtype), len(port.axes)) for port in source.inputs)
        yield source.outputs
        yield [value.type.tensor_type.elem_type for value in source.proto.graph.output]

    if list(interface(original)) != list(interface(optimized)):
        raise CheckFailedError("the two models have different inputs or outputs")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
