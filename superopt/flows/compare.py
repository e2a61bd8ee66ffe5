"""Compare two models: `superopt.compare` and `superopt compare`.

The two models are timed alternately. Their outputs are compared on the same inputs. The models need not come from superopt.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from superopt.budget import duration_seconds
from superopt.child.process import reuse_child
from superopt.errors import CheckFailedError, InvalidModelError
from superopt.flows.options import Shapes
from superopt.flows.report_fields import run_environment, timing
from superopt.model.dimensions import representative_sizings, size_combinations
from superopt.model.examples import Given, example_sizes, read_examples
from superopt.model.external_data import temporary_scratch
from superopt.model.load import Loaded, Source, all_nodes, load, weight_bytes
from superopt.model.save import loadable
from superopt.policy import COMPARISON, OPTIMIZATION
from superopt.protobuf.stored import parse_model
from superopt.report.comparison import ModelComparison, ModelContent, OutputDifference
from superopt.report.progress import Listener, Progress, ignore_progress
from superopt.runtime.compare import compare_settings
from superopt.runtime.feasible import find_feasible
from superopt.runtime.hardware import core_count
from superopt.runtime.input_source import InputSource
from superopt.runtime.session import Array, Device, Session, is_floating


def compare(
    first: Source,
    second: Source,
    *,
    provider: str = "cpu",
    threads: int | None = None,
    cuda_graph: bool = False,
    libraries: Sequence[str | os.PathLike[str]] = (),
    shapes: Shapes = (),
    inputs: Sequence[Given] = (),
    seconds: float | str = OPTIMIZATION.full_comparison_seconds,
    seed: int = 0,
    progress: Listener | None = None,
) -> ModelComparison:
    """Compare the speed, the outputs, the operators and the weights of two models with the same inputs and outputs.

    Args:
        first: The first model, usually an original, in any form that `superopt.optimize` accepts.
        second: The second model, usually an optimized model.
        provider: "cpu", "cuda" or "tensorrt".
        threads: The number of CPU threads of a session. By default, a session uses all cores, as in ONNX Runtime.
        cuda_graph: Run both models by replaying a CUDA graph.
        libraries: Paths of libraries of kernels, such as "out.kernels.so". Both models run with these libraries. Only use
            libraries that you trust, because the libraries are loaded into this process.
        shapes: Sizes of the dynamic dimensions, as in `superopt.optimize`.
        inputs: Examples of the models' inputs, as in `superopt.optimize`. Outputs are compared on each example too.
        seconds: The time limit of the timing, in seconds or as a text such as "10s".
        seed: The seed of random inputs.
        progress: Receives progress reports.

    Raises:
        ModelNotFoundError, InvalidModelError: A model cannot be loaded, or cannot be run on random inputs.
        CheckFailedError: The models have different inputs or outputs, or outputs of different types or shapes.
        ProviderError, RuntimeMissingError: The provider, or ONNX Runtime, is not installed.
        DimensionError, ExampleError: `shapes` or `inputs` do not fit the first model.
    """
    told = progress or ignore_progress
    device = Device(provider, threads or core_count(), cuda_graph, libraries=tuple(map(os.path.abspath, libraries)))
    with temporary_scratch() as scratch, reuse_child():
        told(Progress("load"))
        loaded = load(first), load(second)
        models = [loadable(one.model, scratch, one.path) for one in loaded]
        examples = read_examples(inputs, loaded[0].model)
        chosen = [*(size_combinations(shapes) if isinstance(shapes, Mapping) else shapes)]
        asked = [*filter(None, chosen), *example_sizes(examples, loaded[0].model)]
        sizings = representative_sizings(loaded[0].model, asked)
        source = InputSource(examples=examples).bounded(parse_model(models[0], external=False))
        sessions = [Session(model, device) for model in models]
        _require_same_interface(*sessions)
        feasible = find_feasible(sessions[0], [sizing.numbers for sizing in sizings], source, chosen=bool(asked))
        if feasible.error:
            raise InvalidModelError(f"{loaded[0].label}: {feasible.error}")
        told(Progress("run"))
        runs = [*_differences(sessions, feasible.sizes, feasible.source, seed)]
        del sessions
        told(Progress("measure"))
        compared = compare_settings(
            (models[0], device),
            [(models[1], device)],
            at=feasible.sizes,
            seconds=duration_seconds(seconds),
            seed=seed,
            source=feasible.source,
            progress=lambda share: told(Progress("measure", round(100 * share), 100)),
        )
    names = [", ".join(f"{name}={size}" for name, size in sizes.items()) for sizes in feasible.sizes]
    timings = {name: timing(one) for name, (one,) in zip(names, compared, strict=True)}
    outputs = tuple(worst_differences([run[place] for run in runs]) for place in range(len(runs[0])))
    contents = [_content(one) for one in loaded]
    return ModelComparison(contents[0], contents[1], timings, outputs, len(runs), run_environment(device), device.libraries)


def _content(loaded: Loaded) -> ModelContent:
    operators = Counter(
        node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}" for node in all_nodes(loaded.model)
    )
    return ModelContent(loaded.label, dict(sorted(operators.items())), weight_bytes(loaded.model))


def _require_same_interface(first: Session, second: Session) -> None:
    """Check that two models have the same inputs and the same outputs.

    Raises:
        CheckFailedError: The names of the inputs or outputs differ, or the types of the inputs differ.
    """
    described = [{port.name: f"{port.name} ({port.dtype})" for port in session.inputs} for session in (first, second)]
    if described[0] != described[1]:
        texts = [", ".join(one.values()) or "none" for one in described]
        raise CheckFailedError(
            f"the models have different inputs: {texts[0]} in the first model, {texts[1]} in the second model"
        )
    if sorted(first.outputs) != sorted(second.outputs):
        texts = [", ".join(session.outputs) for session in (first, second)]
        raise CheckFailedError(
            f"the models have different outputs: {texts[0]} in the first model, {texts[1]} in the second model"
        )


def _differences(
    sessions: Sequence[Session], sizes: Sequence[Mapping[str, int]], source: InputSource, seed: int
) -> Iterator[list[OutputDifference]]:
    """Run both models on a few sets of input values at each of the sizes, and yield the differences between their outputs.

    Each yielded list contains the differences for one set of input values.

    Raises:
        CheckFailedError: The second model does not run, or an output has a different type or shape in the second model.
    """
    for at in sizes:
        ports = sessions[0].inputs
        turns = max(COMPARISON.min_compared_inputs, len(source.fitting(ports, at)))
        for turn in range(turns):
            feeds = source.values(ports, seed + turn, at)
            wanted = dict(zip(sessions[0].outputs, sessions[0].run(feeds), strict=True))
            try:
                found = dict(zip(sessions[1].outputs, sessions[1].run(feeds), strict=True))
            except InvalidModelError as error:
                raise CheckFailedError(f"the second model does not run on inputs of the first model: {error}") from error
            yield [output_difference(name, wanted[name], found[name]) for name in wanted]


def output_difference(name: str, wanted: object, found: object) -> OutputDifference:
    """Return the difference between two values of an output. Outputs that are not arrays are compared as a whole.

    Raises:
        CheckFailedError: The values have different types or shapes.
    """
    if not (isinstance(wanted, np.ndarray) and isinstance(found, np.ndarray)):
        return OutputDifference(name, 0.0, 0.0, float(repr(wanted) != repr(found)))
    if wanted.shape != found.shape or wanted.dtype != found.dtype:
        texts = [f"{one.dtype}{list(one.shape)}" for one in (wanted, found)]
        raise CheckFailedError(f"output {name!r} is {texts[0]} in the first model and {texts[1]} in the second model")
    if not is_floating(wanted.dtype):
        return OutputDifference(name, 0.0, 0.0, float(np.mean(wanted != found)) if wanted.size else 0.0)
    return _floating_difference(name, wanted.astype(np.float64), found.astype(np.float64))


def _floating_difference(name: str, wanted: Array, found: Array) -> OutputDifference:
    finite = np.isfinite(wanted) & np.isfinite(found)
    with np.errstate(invalid="ignore"):
        distance = np.where(finite, np.abs(wanted - found), 0.0)
        same = finite | (wanted == found) | (np.isnan(wanted) & np.isnan(found))
    largest = float(np.max(distance, initial=0.0))
    magnitude = float(np.max(np.abs(wanted), where=np.isfinite(wanted), initial=0.0))
    return OutputDifference(
        name, largest, largest / magnitude if magnitude else largest, float(np.mean(~same)) if same.size else 0.0
    )


def worst_differences(differences: Sequence[OutputDifference]) -> OutputDifference:
    """Combine the differences of one output on several sets of input values into one difference.

    Each number of the result (`largest`, `relative` and `different`) is the maximum over `differences`.
    """
    figures = (max(getattr(one, name) for one in differences) for name in ("largest", "relative", "different"))
    return OutputDifference(differences[0].name, *figures)
