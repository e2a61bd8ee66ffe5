"""Whether two models compute the same: each one's rounding error against a float64 run, on random and on edge inputs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto
from onnx.helper import tensor_dtype_to_np_dtype

from superopt.errors import CheckFailedError, InvalidModelError, ModelNotFoundError
from superopt.model.load import first_line
from superopt.model.reference import NoReferenceError, Reference
from superopt.model.session import Array, Device, Loadable, Port, Session, is_floating, random_inputs

FACTOR = 4.0
_FLOOR_ULPS = 16
_DIRECT_ULPS = 1024
_LEAST_INPUTS = 2
_LARGEST_REFERENCE = 1 << 30


@dataclass(frozen=True)
class Check:
    """A check that passed. Errors are the largest met, relative to the largest finite magnitude of the output they are in.

    `reference` is `float64`, or says why no float64 run was possible; then the candidate was compared with the original
    directly and `original_error` is 0. `inputs` names the inputs that were run, `left_out` those the time did not suffice for.
    """

    original_error: float
    candidate_error: float
    reference: str
    inputs: tuple[str, ...]
    left_out: tuple[str, ...]


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
    """Both models run on the same inputs; the candidate's error is at most `factor` times the original's, and finite alike.

    Errors below 16 units in the last place of the output's largest magnitude count as that much. Without a float64 run the two
    may differ by 1024 such units. After `seconds` no further input is begun, but at least two are run.

    Raises:
        CheckFailedError: another interface, an error too large, or NaN or infinity where the original has none or the reverse.
        InvalidModelError: ONNX Runtime cannot load or run one of the models.
    """
    deadline = time.monotonic() + seconds
    first = Session(original, device, exact=True)
    second = Session(candidate, device, exact=True)
    _same_interface(first, second)
    hollow = parsed(original, external=False)
    reference, why = _reference(original, hollow)
    cases = _cases(first.inputs, seed, sizes, index_bounds(hollow))
    worst = (0.0, 0.0)
    done: list[str] = []
    for name, make in cases:
        if len(done) >= _LEAST_INPUTS and time.monotonic() > deadline:
            break
        feeds = make()
        values, others = first.run(feeds), second.run(feeds)
        exact: Sequence[Array] | None = None
        if reference is not None:
            try:
                exact = reference.run(feeds)
            except NoReferenceError as error:
                reference, why = None, str(error)
        for output, *arrays in _tensors(first.outputs, values, others, exact or values):
            errors = _agree(f"output {output!r} on {name} inputs", arrays, factor, direct=exact is None)
            worst = max(worst[0], errors[0]), max(worst[1], errors[1])
        done.append(name)
    left_out = tuple(name for name, _ in cases[len(done) :])
    return Check(*worst, "float64" if reference is not None else f"original ({why})", tuple(done), left_out)


def _tensors(names: Sequence[str], *runs: Sequence[Any]) -> Iterator[tuple[str, Any, Any, Any]]:
    """Each output's name, and its values in the runs; of a sequence each element's, of an optional output what is there.

    Raises:
        CheckFailedError: sequences of different lengths, or an output that is there in one run alone.
    """
    for name, *found in zip(names, *runs, strict=True):
        lists = [len(value) if isinstance(value, list) else value is None for value in found]
        if len(set(lists)) > 1:
            raise CheckFailedError(f"output {name!r} has not as many elements as the original's")
        if isinstance(found[0], list):
            yield from _tensors([f"{name}[{n}]" for n in range(len(found[0]))], *found)
        elif found[0] is not None:
            yield name, *map(np.asarray, found)


def parsed(model: Loadable, *, external: bool = True) -> ModelProto:
    """The model with all its tensors, those in other files included unless `external` is false."""
    if isinstance(model, ModelProto):
        return model
    try:
        return onnx.load_model_from_string(model) if isinstance(model, bytes) else onnx.load(model, load_external_data=external)
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"{error.filename or model!r}: no such file") from error
    except Exception as error:
        raise InvalidModelError(f"not an ONNX model ({first_line(error)})") from error


def _reference(model: Loadable, hollow: ModelProto) -> tuple[Reference | None, str]:
    """The model in float64, or why there is none; it takes six times the memory of the weights, which `hollow` may lack."""
    weights = sum(math.prod(t.dims) * tensor_dtype_to_np_dtype(t.data_type).itemsize for t in hollow.graph.initializer)
    if weights > _LARGEST_REFERENCE:
        return None, f"{weights / 2**30:.1f} GiB of weights are too many for a float64 run"
    try:
        return Reference(parsed(model)), ""
    except NoReferenceError as error:
        return None, str(error)


def _same_interface(first: Session, second: Session) -> None:
    if first.inputs != second.inputs:
        raise CheckFailedError(f"the inputs differ: {_listed(first.inputs)} became {_listed(second.inputs)}")
    if first.outputs != second.outputs:
        raise CheckFailedError(f"the outputs differ: {', '.join(first.outputs)} became {', '.join(second.outputs)}")


def _listed(ports: Sequence[Port]) -> str:
    return ", ".join(f"{p.name} {p.dtype}{list(p.shape)}" for p in ports)


def _cases(
    ports: Sequence[Port], seed: int, sizes: Mapping[str, int] | None, high: Mapping[str, int]
) -> list[tuple[str, Callable[[], dict[str, Array]]]]:
    """The inputs to run, most telling first. Integers stay random in all of them: they are indices, masks and sizes."""

    def floats(change: Callable[[Array], Array], offset: int) -> Callable[[], dict[str, Array]]:
        def make() -> dict[str, Array]:
            feeds = random_inputs(ports, seed + offset, sizes=sizes, high=high)
            return {n: change(v).astype(v.dtype) if is_floating(v.dtype) else v for n, v in feeds.items()}

        return make

    random = ("random", floats(lambda v: v, 0))
    again = ("random again", floats(lambda v: v, 1))
    if not any(is_floating(p.dtype) for p in ports):
        return [random, again]
    return [
        random,
        ("zero", floats(np.zeros_like, 2)),
        ("large", floats(_enlarged, 3)),
        ("negative", floats(lambda v: -np.abs(v), 4)),
        ("tiny", floats(lambda v: v * np.asarray(1e-6, v.dtype), 5)),
        ("one", floats(np.ones_like, 6)),
        again,
    ]


def _enlarged(values: Array) -> Array:
    """The values times 1000, or less where the type's range is narrow: products of two must not overflow."""
    most = float(np.finfo(values.dtype).max) if values.dtype.kind == "f" else 1e38
    enlarged: Array = values * np.asarray(min(1000.0, most**0.25), values.dtype)
    return enlarged


def _agree(what: str, arrays: Sequence[Array], factor: float, *, direct: bool) -> tuple[float, float]:
    """The errors of original and candidate, relative to the exact output's magnitude; `arrays` holds those three outputs.

    Raises:
        CheckFailedError: the candidate's is too large.
    """
    original, candidate, exact = arrays
    if original.shape != candidate.shape or original.dtype != candidate.dtype:
        raise CheckFailedError(
            f"{what}: {original.dtype}{list(original.shape)} became {candidate.dtype}{list(candidate.shape)}"
        )
    if not original.size:
        return 0.0, 0.0
    if not is_floating(original.dtype):
        return _agree_exactly(what, original, candidate, exact, factor)
    ulp = float(np.finfo(original.dtype).eps) if original.dtype.kind == "f" else 2.0**-7
    original, candidate, exact = (a.astype(np.float64) for a in arrays)
    finite = np.isfinite(original)
    if not _same_infinities(original, candidate):
        raise CheckFailedError(f"{what}: NaN or infinity does not stand where the original has it")
    if not np.any(finite):
        return 0.0, 0.0
    finite &= np.isfinite(exact)
    scale = float(np.max(np.abs(np.where(finite, exact, 0)))) or 1.0
    before = float(np.max(np.abs(np.where(finite, original - exact, 0)))) / scale
    after = float(np.max(np.abs(np.where(finite, candidate - exact, 0)))) / scale
    allowed = _DIRECT_ULPS * ulp if direct else factor * max(before, _FLOOR_ULPS * ulp)
    if after > allowed:
        than = "the original" if direct else f"float64, where the original is off by {before:.2g}"
        raise CheckFailedError(f"{what}: off by {after:.2g} of the output's magnitude from {than} (allowed {allowed:.2g})")
    return before, after


def _same_infinities(original: Array, candidate: Array) -> bool:
    before, after = (np.where(np.isfinite(a), 0, a) for a in (original, candidate))
    return bool(np.array_equal(before, after, equal_nan=True))


def _agree_exactly(what: str, original: Array, candidate: Array, exact: Array, factor: float) -> tuple[float, float]:
    """Integers, booleans and text: the share of elements that are off, which rounding may change in a tie alone."""
    before, after = float(np.mean(original != exact)), float(np.mean(candidate != exact))
    if after > factor * max(before, 1e-3):
        raise CheckFailedError(f"{what}: {after:.2%} of the elements are wrong, {before:.2%} of the original's")
    return before, after


_CARRIES_INDICES = {"Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten", "Concat", "Slice", "Transpose", "Expand"}


def index_bounds(model: ModelProto) -> dict[str, int]:
    """For each input whose values pick rows of a stored table, the least number of rows met: ids below it are in range."""
    bounds: dict[str, int] = {}
    tables = {t.name: tuple(t.dims) for t in model.graph.initializer}
    origin = {port.name: port.name for port in model.graph.input}
    for node in _nodes(model.graph):
        source = origin.get(node.input[0]) if node.input else None
        if source is not None and node.op_type in _CARRIES_INDICES:
            origin.update(dict.fromkeys(node.output, source))
        if node.op_type in ("Gather", "GatherElements") and node.input[0] in tables and node.input[1] in origin:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            name = origin[node.input[1]]
            bounds[name] = min(bounds.get(name, 1 << 31), tables[node.input[0]][axis])
    return bounds


def _nodes(graph: GraphProto) -> list[onnx.NodeProto]:
    """The nodes of a graph and of the graphs inside it."""
    found: list[onnx.NodeProto] = []
    for node in graph.node:
        found.append(node)
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                found.extend(_nodes(attribute.g))
    return found
