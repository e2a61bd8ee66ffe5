"""One network: optimized or compiled by every contender, checked, and timed in the same rounds."""

from __future__ import annotations

import functools
import importlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.league.contenders import COMPILED, CONTENDERS, FILES, TENSORRT, Written, written
from benchmarks.peers.case import Case, measured
from benchmarks.peers.contenders import Row
from benchmarks.zoo.recipes import Exported, seed
from superopt.errors import SuperoptError, first_line
from superopt.flows.compare import output_difference
from superopt.runtime.compare import compare_in_turns
from superopt.runtime.device import PROVIDERS, runtime
from superopt.runtime.session import Array, Device, Session
from superopt.runtime.timed import Timed

if TYPE_CHECKING:
    from benchmarks.league.compiled import CompiledNetwork

LAUNCHED, GRAPH = "launched", "CUDA graph"
"""The two ways to run a network on a GPU: each kernel is launched, or all kernels are replayed as a CUDA graph."""
LARGEST_ERROR = 2e-2
"""The largest difference between outputs, as a share of the largest element of an output. TF32 stays well below."""
LOADS = 2
NETWORKS = (
    "resnet50",
    "mobilenet_v2",
    "convnext_small",
    "enc4_d256_s32",
    "bert_lora_2l_s64",
    "gpt2_2l_s64",
    "llama_blk2_s1",
    "llama_blk2_s64",
    "mmoe_b1",
    "moe16_small_s1",
)
"""The networks that the league measures by default, by their names in the zoo."""
Make = Callable[[], Timed]


def play(case: Case, recipe: Exported, peers: Path | None) -> Row:
    """Measure all contenders on the network of the recipe, and return the figures.

    The model file of the case and the network have the same weights. The measuring time is shared by the two ways to run.

    Raises:
        SuperoptError: ONNX Runtime cannot run the original.
    """
    (feeds, *_) = case.feeds
    session = Session(case.path, case.device)
    expected = session.run(feeds)
    compiled, failed = compile_all(case, recipe, [feeds[port.name] for port in session.inputs])
    with tempfile.TemporaryDirectory(prefix="superopt-league-") as folder:
        files: dict[str, Written] = {}
        for name in FILES:
            (place := Path(folder) / name).mkdir()
            files[name] = written(name, case, place, peers)
        failed |= {name: file.failed for name, file in files.items() if file.failed}
        ways = [LAUNCHED] if case.device.provider == "cpu" else [LAUNCHED, GRAPH]
        speeds: dict[str, Row] = {}
        errors: dict[str, float] = {}
        for way in ways:
            makes = contestants(
                case.device, way, case.path, {n: f.path for n, f in files.items() if not f.failed}, compiled, feeds
            )
            for name, why in dict(checked(makes, expected, errors)).items():
                failed.setdefault(name, why)
                del makes[name]
            speeds[way] = timed(session_of(case.path, case.device, way, feeds), makes, case.settings.measure / len(ways))
    if TENSORRT not in speeds[LAUNCHED]:
        failed.setdefault(TENSORRT, "not measured: only on a GPU, with ONNX Runtime's TensorRT provider")
    return {
        "model": case.path.stem,
        "ways": speeds,
        "errors": errors,
        "failed": {name: failed[name] for name in CONTENDERS if name in failed},
        "seconds": {name: file.seconds for name, file in files.items() if not file.failed},
    }


def compile_all(case: Case, recipe: Exported, arguments: Sequence[Array]) -> tuple[dict[str, CompiledNetwork], dict[str, str]]:
    """Return the compiled network for each mode of `torch.compile`, and the reason for each mode that failed."""
    found: dict[str, CompiledNetwork] = {}
    failed: dict[str, str] = {}
    for name, mode in COMPILED.items():
        try:
            package = importlib.import_module("benchmarks.league.compiled")
            found[name] = package.CompiledNetwork(recipe, seed(case.path.stem), arguments, case.device, mode)
        except Exception as error:  # noqa: BLE001
            failed[name] = f"{type(error).__name__}: {first_line(error)}"
    return found, failed


def session_of(path: Path, device: Device, way: str, feeds: Mapping[str, Array]) -> Make:
    """Return a function that loads the file, ready for timing in wall-clock time."""
    place = replace(device, cuda_graph=way == GRAPH and device.provider == "cuda")
    return lambda: Session(path, place).ready(feeds, wall=True)


def contestants(
    device: Device,
    way: str,
    original: Path,
    files: Mapping[str, Path],
    compiled: Mapping[str, CompiledNetwork],
    feeds: Mapping[str, Array],
) -> dict[str, Make]:
    """Return, for each contender that takes part in this way to run, a function that makes the contender ready for timing.

    On a GPU, a network that `torch.compile` runs as a CUDA graph is compared with CUDA graphs only.
    """
    makes = {name: session_of(path, device, way, feeds) for name, path in files.items()}
    for name, network in compiled.items():
        if device.provider == "cpu" or (COMPILED[name] is not None) == (way == GRAPH):
            makes[name] = functools.partial(_itself, network)
    if way == LAUNCHED and device.provider == "cuda" and PROVIDERS["tensorrt"] in runtime().get_available_providers():
        makes[TENSORRT] = session_of(original, Device("tensorrt", device.threads), way, feeds)
    return makes


def _itself(network: CompiledNetwork) -> Timed:
    """Return the network, which is compiled only once."""
    return network


def checked(makes: Mapping[str, Make], expected: Sequence[Array], errors: dict[str, float]) -> Iterator[tuple[str, str]]:
    """Run each contender once, and yield the name and the reason for each contender that fails or computes something else.

    The relative errors are stored in `errors`.
    """
    for name, make in makes.items():
        try:
            ready = make()
            error = difference(expected, ready.outputs() if hasattr(ready, "outputs") else [])
        except SuperoptError as problem:
            yield name, str(problem)
            continue
        errors[name] = max(error, errors.get(name, 0.0))
        if not error <= LARGEST_ERROR:
            yield name, f"the outputs differ by {error:.1e} of the largest element"


def difference(expected: Sequence[Array], found: Sequence[Array]) -> float:
    """Return the largest difference between two lists of outputs, as a share of the largest element of an output.

    Raises:
        CheckFailedError: Two outputs have different types.
    """
    if len(expected) != len(found) or any(a.shape != b.shape for a, b in zip(expected, found, strict=True)):
        return float("inf")
    compared = [output_difference(f"{place}", a, b) for place, (a, b) in enumerate(zip(expected, found, strict=True))]
    return max((float("inf") if one.different else one.relative for one in compared), default=0.0)


def timed(original: Make, makes: Mapping[str, Make], seconds: float) -> Row:
    """Time all contenders and the original in the same rounds, and return the comparison of each with the original."""

    @contextmanager
    def opened(_: int) -> Iterator[list[list[Timed]]]:
        yield [[original(), *(make() for make in makes.values()), original()]]

    if not makes:
        return {}
    (found,) = compare_in_turns(opened, seconds=seconds, loads=LOADS)
    return {name: measured(comparison) for name, comparison in zip(makes, found, strict=True)}
