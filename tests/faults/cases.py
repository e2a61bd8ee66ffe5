"""Small cases of faults that were found in superopt. `test_faults.py` runs the cases.

A case builds a model in a temporary folder, runs `superopt.optimize` or the command line, and runs the original and the
result in ONNX Runtime without graph optimizations. A case has one of these outcomes:

RIGHT    superopt does what the docstring of the case requires; "kept" in the figures means that superopt kept the original
WRONG    the result differs from the original, or superopt accepted something that it must refuse
CRASH    a traceback, an internal error, or no end within the time limit
REFUSED  an error message without a traceback, although superopt must give a result

`superopt verify` checks every rewritten model. The search depends on measured times, so a fault does not show in every
run: FAULTS_SEEDS=3 runs each case with three seeds. FAULTS_BUDGET is the time of a search in seconds, and FAULTS_LIMIT is
the time limit of a case in seconds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import DTypeLike
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

import superopt
from superopt.flows.options import Options

ROOT = Path(__file__).resolve().parent.parent.parent
Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Feeds: TypeAlias = Mapping[str, Array]
Part: TypeAlias = tuple[list[NodeProto], list[TensorProto]]
"""Nodes and their weights."""
Finished: TypeAlias = "subprocess.CompletedProcess[str]"

BUDGET = float(os.environ.get("FAULTS_BUDGET", "6"))  # seconds of each search
LIMIT = int(os.environ.get("FAULTS_LIMIT", "240"))  # time limit of a case in seconds
SEEDS = int(os.environ.get("FAULTS_SEEDS", "1"))  # searches of each case, each with its own seed
TOLERANCE = 1e-3  # relative to the largest finite value of an output
RIGHT, WRONG, CRASH, REFUSED = "RIGHT", "WRONG", "CRASH", "REFUSED"
ort.set_default_logger_severity(4)
node = helper.make_node


# Helpers for cases


@dataclass
class Outcome:
    verdict: str
    figures: str
    verify: str = "-"


Case: TypeAlias = "Callable[[Path], Outcome]"
CASES: dict[str, Case] = {}  # cases by name; another file can add cases and call `main`


def case(function: Case) -> Case:
    """Register a case under its function's name."""
    CASES[function.__name__] = function
    return function


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def normal(*shape: int, scale: float = 1.0, seed: int = 1) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def weight(name: str, *shape: int, scale: float = 1.0) -> TensorProto:
    """Return an initializer of normal random numbers, with a seed that depends on the name."""
    return numpy_helper.from_array(normal(*shape, scale=scale, seed=sum(map(ord, name)) + 7 * len(shape)), name)


def const(name: str, value: object, dtype: DTypeLike | None = None) -> TensorProto:
    """Return an initializer. By default, integers have the type int64, and floats have the type float32."""
    array = np.asarray(value)
    if dtype is None:
        whole = array.dtype.kind == "i" or array.size == 0
        dtype = np.int64 if whole else np.float32 if array.dtype.kind == "f" else array.dtype
    return numpy_helper.from_array(array.astype(dtype), name)


def tensor(name: str, shape: Sequence[int | str | None], dtype: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    weights: Sequence[TensorProto] = (),
    opset: int = 17,
    functions: Sequence[FunctionProto] = (),
) -> ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    domains = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in {f.domain for f in functions}]
    return helper.make_model(graph, opset_imports=domains, ir_version=8, functions=list(functions))


def two_branches(source: str, target: str = "y", size: int = 64) -> Part:
    """Return nodes that add two products of one tensor, which a search can merge, and the weights of the products."""
    nodes = [node("MatMul", [source, "left"], ["product_1"]), node("MatMul", [source, "right"], ["product_2"])]
    nodes += [node("Add", ["product_1", "product_2"], ["total"]), node("Relu", ["total"], [target])]
    return nodes, [weight("left", size, size), weight("right", size, size)]


def sum_of_products(source: str, target: str, weights: Sequence[str], prefix: str = "") -> list[NodeProto]:
    """Return nodes that compute the sum of `source` times each of the weights."""
    nodes = [node("MatMul", [source, w], [f"{prefix}m{i}"]) for i, w in enumerate(weights)]
    last = f"{prefix}m0"
    for i in range(1, len(weights)):
        name = target if i == len(weights) - 1 else f"{prefix}a{i}"
        nodes.append(node("Add", [last, f"{prefix}m{i}"], [name]))
        last = name
    return nodes


def run(path: Path, feeds: Feeds) -> list[Array]:
    """Run the model in ONNX Runtime on one thread without graph optimizations, and return the outputs."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(None, feeds)
    return found


def first_line(text: object) -> str:
    """Return the first line of a message that is not empty, without folders."""
    lines = [re.sub(r"/\S*/", "", line.strip()) for line in str(text).splitlines() if line.strip()]
    return lines[0][:150] if lines else ""


def fault_line(text: str) -> str:
    """Return the last line that contains "superopt" or "Error", without folders.

    Without such a line, return the first line of the text.
    """
    lines = [line for line in text.replace("\r", "\n").splitlines() if "superopt" in line or "Error" in line]
    return first_line(lines[-1] if lines else text)


def superopt_cli(
    *arguments: object,
    limit: float | None = None,
    env: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
    cwd: Path | None = None,
) -> Finished:
    """Run the command line in its own process, with the words `before` in front of the command."""
    command = [*before, sys.executable, "-m", "superopt", *map(str, arguments)]
    env = env or {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=limit or LIMIT, env=env, cwd=cwd, check=False)


def clean(process: Finished) -> bool:
    """Return whether the process ended without a traceback, an internal error (exit code 70) and a signal."""
    return "Traceback" not in process.stderr and process.returncode != 70 and process.returncode >= 0


def difference(expected: Array, got: Array) -> str:
    """Describe how one output differs from the expected output, or return an empty text if both agree.

    NaN and infinities must be at the same positions in both outputs.
    """
    if expected.dtype.kind not in "fiub":
        return "" if np.array_equal(expected, got) else "other values"
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return f"expected {expected.dtype}{list(expected.shape)}, got {got.dtype}{list(got.shape)}"
    if not expected.size:
        return ""
    a, b = expected.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    odd = ~finite & ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if odd.any():
        at = tuple(map(int, np.argwhere(odd)[0]))
        return f"expected {a[at]:g}, got {b[at]:g} at {list(at)} ({int(odd.sum())} such of {a.size})"
    scale = np.abs(a[finite]).max(initial=0)
    gap = np.where(finite, np.abs(np.where(finite, a, 0) - np.where(finite, b, 0)), 0)
    if gap.max() > TOLERANCE * scale + 1e-30:
        at = tuple(map(int, np.unravel_index(gap.argmax(), gap.shape)))
        return f"expected {a[at]:g}, got {b[at]:g} at {list(at)}"
    return ""


def save_model(model_proto: ModelProto, folder: Path, name: str = "in.onnx") -> Path:
    path = folder / name
    path.write_bytes(model_proto.SerializeToString())
    return path


def verified(source: Path, target: Path, certificate: str, folder: Path) -> str:
    """Run `superopt verify`, and return its answer in words."""
    file = folder / "certificate.json"
    file.write_text(certificate)
    process = superopt_cli("verify", source, target, "--certificate", file)
    if process.returncode == 0:
        return "holds"
    return f"refuses ({process.returncode})" if clean(process) else f"crashes ({process.returncode})"


def compared(
    folder: Path,
    model_proto: ModelProto,
    feeds: Mapping[str, Feeds],
    shapes: Sequence[Mapping[str, int]] = (),
    budget: float | None = None,
) -> Outcome:
    """Optimize a model, and compare the original with the result on each entry of `feeds`.

    The keys of `feeds` are labels of the inputs. The search runs with FAULTS_SEEDS seeds. Up to three seeds are used if the
    gain is within the noise. Return the first outcome that is not RIGHT, or the last outcome.
    """
    source = save_model(model_proto, folder)
    try:
        wanted = {label: run(source, inputs) for label, inputs in feeds.items()}
    except Exception as error:  # ONNX Runtime may raise any exception
        raise AssertionError(f"the case is wrong: the original does not run ({first_line(error)[-100:]})") from error
    outcome = Outcome(CRASH, "not run")
    for seed in range(max(SEEDS, 3)):
        options: Options = {"budget": budget or BUDGET, "shapes": shapes, "seed": seed, "cache": folder / f"cache{seed}"}
        outcome = compared_once(folder, source, feeds, wanted, options)
        if outcome.verdict != RIGHT or (seed + 1 >= SEEDS and "noise" not in outcome.figures):
            break
    return outcome


def compared_once(
    folder: Path, source: Path, feeds: Mapping[str, Feeds], wanted: Mapping[str, list[Array]], options: Options
) -> Outcome:
    """Run one search, and compare its result with `wanted`, the outputs of the original."""
    target = folder / "out.onnx"
    optimized = superopt.optimize(source, **options)
    optimized.save(target)
    report = optimized.report
    answer = verified(source, target, optimized.certificate, folder) if report.accepted else "-"
    names = [one.name for one in onnx.load(source, load_external_data=False).graph.output]
    wrong = []
    for label, inputs in feeds.items():
        try:
            got = run(target, inputs)
        except Exception as error:  # noqa: BLE001 (every exception is an outcome)
            wrong.append(f"{label}: the original runs, the result does not ({first_line(error)[-110:]})")
            continue
        found = [f"{name}: {text}" for name, a, b in zip(names, wanted[label], got, strict=True) if (text := difference(a, b))]
        if found:
            wrong.append(f"{label}: {found[0]}")
    gain = f"{report.speedup:.2f}x" if report.accepted else f"kept ({first_line(report.reason)[:70]})"
    if wrong:
        more = f" (and {len(wrong) - 1} more of {len(feeds)} inputs)" if len(wrong) > 1 else ""
        return Outcome(WRONG, f"{wrong[0]}{more}; {gain}", answer)
    return Outcome(RIGHT, f"{len(feeds)} of {len(feeds)} inputs alike; {gain}", answer)


def merging_convolutions(source: str, channels: int, width: int = 32) -> Part:
    """Return nodes for pairs of 1 x 1 convolutions of one tensor, which a search can merge, and the weights."""
    one: dict[str, Any] = {"kernel_shape": [1, 1]}
    nodes = [node("Relu", [source], ["r"]), node("Conv", ["r", "a"], ["p"], **one), node("Conv", ["r", "b"], ["q"], **one)]
    nodes += [node("Add", ["p", "q"], ["s"]), node("Relu", ["s"], ["t"])]
    nodes += [
        node("Conv", ["t", "c"], ["u"], **one),
        node("Conv", ["t", "d"], ["v"], **one),
        node("Concat", ["u", "v"], ["y"], axis=1),
    ]
    shapes = {"a": channels, "b": channels, "c": width, "d": width}
    return nodes, [weight(name, width, size, 1, 1) for name, size in shapes.items()]


def length_of_x(axis: int = 0) -> Part:
    """Return nodes that compute the size of an axis of `x` as the scalar `n`."""
    return [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "axis"], ["n"])], [const("axis", axis)]


def rows(sizes: Sequence[int], width: int = 64) -> dict[str, Feeds]:
    """Return inputs `x` with these numbers of rows."""
    return {f"N={n}": {"x": normal(n, width, seed=n)} for n in sizes}


# Dynamic dimensions: the result must be right at every size, not only at prime sizes or at sizes below 10000


def same_pads(folder: Path, first: NodeProto, channels: int, weights: Sequence[TensorProto]) -> Outcome:
    nodes, others = merging_convolutions("first", channels)
    graph = model([first, *nodes], [tensor("x", [1, 16, "H", "W"])], [tensor("y", [1, 64, "H2", "W2"])], [*weights, *others])
    feeds = {f"H=W={n}": {"x": normal(1, 16, n, n, seed=n)} for n in (32, 33, 65)}
    return compared(folder, graph, feeds, shapes=[{"H": 64, "W": 64}])


@case
def same_pads_conv(folder: Path) -> Outcome:
    """A convolution with auto_pad=SAME_UPPER and stride 2 over an image of dynamic size.

    The convolution pads by 1 or by 2, depending on the parity of the size. The result must still depend on the parity, by
    auto_pad or by computed pads.
    """
    first = node("Conv", ["x", "k"], ["first"], auto_pad="SAME_UPPER", strides=[2, 2], kernel_shape=[3, 3])
    return same_pads(folder, first, 8, [weight("k", 8, 16, 3, 3)])


@case
def same_pads_pool(folder: Path) -> Outcome:
    """A max pool with auto_pad=SAME_UPPER and stride 2 over an image of dynamic size."""
    first = node("MaxPool", ["x"], ["first"], auto_pad="SAME_UPPER", strides=[2, 2], kernel_shape=[3, 3])
    return same_pads(folder, first, 16, [])


@case
def pad_to_8(folder: Path) -> Outcome:
    """An image that the model pads by (8 - H % 8) % 8 rows. The result must be right at every H, also at multiples of 8."""
    nodes, weights = length_of_x(2)
    nodes += [
        node("Mod", ["n", "eight"], ["rest"]),
        node("Sub", ["eight", "rest"], ["less"]),
        node("Mod", ["less", "eight"], ["more"]),
    ]
    nodes += [node("Unsqueeze", ["more", "zero"], ["more_1"]), node("Concat", ["zeros", "more_1", "zero"], ["pads"], axis=0)]
    nodes += [node("Pad", ["x", "pads"], ["padded"])]
    nodes += [
        node("Conv", ["padded", "k1"], ["u"], kernel_shape=[1, 1]),
        node("Conv", ["padded", "k2"], ["v"], kernel_shape=[1, 1]),
    ]
    nodes += [node("Add", ["u", "v"], ["s"]), node("Relu", ["s"], ["y"])]
    weights += [
        const("eight", 8),
        const("zero", [0]),
        const("zeros", [0] * 6),
        weight("k1", 32, 32, 1, 1),
        weight("k2", 32, 32, 1, 1),
    ]
    graph = model(nodes, [tensor("x", [1, 32, "H", "W"])], [tensor("y", [1, 32, "H2", "W"])], weights)
    return compared(folder, graph, {f"H={n}": {"x": normal(1, 32, n, 16, seed=n)} for n in (32, 33, 40, 44)})


@case
def pad_to_even(folder: Path) -> Outcome:
    """A matrix that the model pads by N % 2 rows. The result must be right at even N too."""
    nodes, weights = length_of_x()
    nodes += [node("Mod", ["n", "two"], ["rest"]), node("Unsqueeze", ["rest", "zero"], ["rest_1"])]
    nodes += [node("Concat", ["zeros", "rest_1", "zero"], ["pads"], axis=0), node("Pad", ["x", "pads"], ["padded"])]
    tail, more = two_branches("padded")
    weights += [const("two", 2), const("zero", [0]), const("zeros", [0, 0]), *more]
    graph = model(nodes + tail, [tensor("x", ["N", 64])], [tensor("y", ["M", 64])], weights)
    return compared(folder, graph, rows((5, 7, 4, 6)))


@case
def float_of_parity(folder: Path) -> Outcome:
    """The product of x and N % 2 as a float. The product must be zero at even N."""
    nodes, weights = length_of_x()
    nodes += [
        node("Mod", ["n", "two"], ["rest"]),
        node("Cast", ["rest"], ["factor"], to=TensorProto.FLOAT),
        node("Mul", ["x", "factor"], ["scaled"]),
    ]
    tail, more = two_branches("scaled")
    graph = model(nodes + tail, [tensor("x", ["N", 64])], [tensor("y", ["N", 64])], [*weights, const("two", 2), *more])
    return compared(folder, graph, rows((5, 4, 6)))


@case
def where_n_gt_4(folder: Path) -> Outcome:
    """x where N > 4, and -x otherwise, optimized for N=8. The result must be right at N <= 4 too."""
    nodes, weights = length_of_x()
    nodes += [
        node("Greater", ["n", "four"], ["long"]),
        node("Neg", ["x"], ["negative"]),
        node("Where", ["long", "x", "negative"], ["chosen"]),
    ]
    tail, more = two_branches("chosen")
    graph = model(nodes + tail, [tensor("x", ["N", 64])], [tensor("y", ["N", 64])], [*weights, const("four", 4), *more])
    return compared(folder, graph, rows((5, 4, 3, 2, 1)), shapes=[{"N": 8}])


@case
def min_n_4(folder: Path) -> Outcome:
    """The first min(N, 4) rows of x.

    The result must be right at N < 4 too. Without given sizes, superopt must optimize or keep the model. The sizes that
    superopt tries first are below 4, and must not cause an error.
    """
    nodes, weights = length_of_x()
    nodes += [
        node("Min", ["n", "four"], ["k"]),
        node("Unsqueeze", ["k", "zero"], ["end"]),
        node("Slice", ["x", "zero", "end", "zero"], ["rows"]),
    ]
    tail, more = two_branches("rows")
    graph = model(
        nodes + tail,
        [tensor("x", ["N", 64])],
        [tensor("y", ["M", 64])],
        [*weights, const("four", 4), const("zero", [0]), *more],
    )
    outcome = compared(folder, graph, rows((5, 4, 3, 2, 1)), shapes=[{"N": 8}])
    return outcome if outcome.verdict != RIGHT else compared(folder, graph, rows((5, 4, 3, 2, 1)))


@case
def slice_16384(folder: Path) -> Outcome:
    """The first 16384 rows of x. The result must cut 20000 rows to 16384."""
    tail, weights = two_branches("cut")
    nodes = [node("Slice", ["x", "zero", "end", "zero"], ["cut"]), *tail]
    graph = model(
        nodes, [tensor("x", ["N", 64])], [tensor("y", ["M", 64])], [const("zero", [0]), const("end", [16384]), *weights]
    )
    return compared(folder, graph, rows((100, 16384, 20000)))


@case
def question_mark_dims(folder: Path) -> Outcome:
    """An image with the dimension name "?" for both the height and the width.

    Some exporters call every dynamic dimension "?", so sizes with this name may differ. ONNX Runtime runs this model at H=12,
    W=20, and must also run the result at these sizes.
    """
    columns = [f"w{i}" for i in range(6)]
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Slice", ["shape", "two", "three"], ["H"]),
        node("Slice", ["shape", "three", "four"], ["W"]),
    ]
    nodes += [
        node("Transpose", ["x"], ["t"], perm=[0, 3, 2, 1]),
        node("Concat", ["W", "H", "c"], ["flat"], axis=0),
        node("Reshape", ["t", "flat"], ["r"]),
    ]
    nodes += sum_of_products("r", "sum", columns)
    nodes += [node("Concat", ["one", "W", "H", "c"], ["whole"], axis=0), node("Reshape", ["sum", "whole"], ["back"])]
    nodes += [node("Transpose", ["back"], ["back_t"], perm=[0, 3, 2, 1]), node("Transpose", ["x"], ["x_t"], perm=[0, 1, 3, 2])]
    nodes += [node("Reshape", ["x_t", "shape"], ["shuffled"]), node("Add", ["back_t", "shuffled"], ["y"])]
    weights = [weight(w, 64, 64, scale=1 / 8) for w in columns]
    weights += [const("one", [1]), const("two", [2]), const("three", [3]), const("four", [4]), const("c", [64])]
    graph = model(nodes, [tensor("x", [1, 64, "?", "?"])], [tensor("y", [1, 64, "?", "?"])], weights, opset=13)
    feeds = {f"H={h}, W={w}": {"x": normal(1, 64, h, w, seed=h)} for h, w in ((16, 16), (12, 20), (48, 192))}
    return compared(folder, graph, feeds, shapes=[{"?": 16}])


@case
def many_open_dims(folder: Path) -> Outcome:
    """Four inputs with two dynamic dimensions each.

    The model must become faster, or the report must mention the dynamic dimensions.
    """
    names = [f"w{i}" for i in range(6)]
    nodes = [made for j in range(4) for made in sum_of_products(f"x{j}", f"y{j}", names, prefix=f"{j}_")]
    inputs, outputs = ([tensor(f"{name}{j}", [None, None, 64]) for j in range(4)] for name in "xy")
    graph = model(nodes, inputs, outputs, [weight(w, 64, 64, scale=1 / 8) for w in names])
    feeds = {
        "1 x 128": {f"x{j}": normal(1, 128, 64, seed=j) for j in range(4)},
        "3 x 5": {f"x{j}": normal(3, 5, 64, seed=j) for j in range(4)},
    }
    outcome = compared(folder, graph, feeds)
    if outcome.verdict == RIGHT and "kept" in outcome.figures:
        told = superopt.optimize(graph, budget=1, cache=folder / "cache").report
        said = json.dumps([told.reason, getattr(told, "failed", ""), getattr(told, "notes", "")])
        if "dimension" not in said:
            return Outcome(WRONG, f"no gain, and the report does not say why: {first_line(told.reason)}", outcome.verify)
    return outcome


@case
def shape_error(folder: Path) -> Outcome:
    """x - x, x / x and x * 0 over a dynamic length, which are constants of a dynamic shape.

    The result must be right at any budget. superopt may keep these nodes, and must not fail.
    """
    eight = [f"w{i}" for i in range(8)]
    nodes = [node("Mul", ["x", "nought"], ["x0"]), node("Sub", ["x", "x"], ["y1"]), node("Div", ["x", "x"], ["y2"])]
    nodes += [
        *sum_of_products("x", "s", eight[:4], "s_"),
        node("Add", ["s", "x0"], ["y3"]),
        node("Mul", ["x", "zeros"], ["xz"]),
    ]
    nodes += [
        *sum_of_products("xz", "z", eight[4:], "z_"),
        node("MatMul", ["s", "thin"], ["y5"]),
        node("Identity", ["z"], ["y4"]),
    ]
    weights = [weight(w, 64, 64, scale=1 / 8) for w in eight]
    weights += [const("nought", 0.0), const("zeros", np.zeros(64)), const("thin", np.zeros((64, 8)))]
    widths = {"x0": 64, "y1": 64, "y2": 64, "y3": 64, "y4": 64, "y5": 8}
    graph = model(nodes, [tensor("x", ["n", 64])], [tensor(k, ["n", w]) for k, w in widths.items()], weights)
    outcome, budget = Outcome(CRASH, "not run"), 0
    for budget in (1, 2, 3, 5):
        own = folder / str(budget)
        own.mkdir()
        outcome = compared(own, graph, {f"n={n}": {"x": normal(n, 64, seed=n)} for n in (1, 9)}, budget=budget)
        if outcome.verdict != RIGHT:
            break
    return Outcome(outcome.verdict, f"at a budget of {budget} s: {outcome.figures}", outcome.verify)


# Numbers: rewrites over the real numbers must not lose the precision of floating point, and must not turn numbers into NaN


@case
def guarded_division(folder: Path) -> Outcome:
    """A masked mean, sum(where(mask, x / count, 0)). A row without elements must give 0, not NaN (0 / 0)."""
    nodes = [node("Cast", ["mask"], ["ones"], to=TensorProto.FLOAT), node("ReduceSum", ["ones", "one"], ["count"], keepdims=1)]
    nodes += [
        node("Div", ["x", "count"], ["share"]),
        node("Where", ["mask", "share", "zero"], ["kept"]),
        node("ReduceSum", ["kept", "one"], ["y"], keepdims=0),
    ]
    inputs = [tensor("x", [8, 32, 64]), tensor("mask", [8, 32, 1], TensorProto.BOOL)]
    graph = model(nodes, inputs, [tensor("y", [8, 64])], [const("one", [1]), const("zero", 0.0)])
    mask = rng().random((8, 32, 1)) < 0.5
    mask[3] = False
    return compared(folder, graph, {"row 3 is empty": {"x": normal(8, 32, 64), "mask": mask}})


def relu_of_a_difference(folder: Path, low: float) -> Outcome:
    nodes = [
        node("Min", ["y", "x"], ["m"]),
        node("Sub", ["x", "y"], ["d"]),
        node("Relu", ["d"], ["r"]),
        node("Add", ["r", "z"], ["o"]),
    ]
    graph = model(nodes, [tensor(name, [64, 256]) for name in "xyz"], [tensor(name, [64, 256]) for name in "mo"])
    masked = np.where(rng().random((64, 256)) < 0.5, np.float32(low), normal(64, 256)).astype(np.float32)
    return compared(
        folder, graph, {f"half of x is {low:g}": {"x": masked, "y": normal(64, 256, seed=2), "z": normal(64, 256, seed=3)}}
    )


@case
def relu_sub_add(folder: Path) -> Outcome:
    """relu(x - y) + z and min(x, y), where half of x is -1e9, as in masked scores.

    At these elements, the sum must be z with all its digits. x - min(x, y) + z would lose digits of z.
    """
    return relu_of_a_difference(folder, -1e9)


@case
def relu_sub_add_inf(folder: Path) -> Outcome:
    """relu(x - y) + z and min(x, y), where half of x is -inf.

    At these elements, the sum must be z. x - min(x, y) + z would be NaN (inf - inf).
    """
    return relu_of_a_difference(folder, -np.inf)


@case
def magic_round(folder: Path) -> Outcome:
    """(x + 1.5 * 2^23) - 1.5 * 2^23, which rounds x to whole numbers. The result must not be x."""
    nodes = [node("Add", ["x", "magic"], ["t"]), node("Sub", ["t", "magic"], ["r"]), node("Mul", ["r", "half"], ["y"])]
    graph = model(nodes, [tensor("x", [64, 256])], [tensor("y", [64, 256])], [const("magic", 12582912.0), const("half", 0.5)])
    return compared(folder, graph, {"x normal, times 5": {"x": normal(64, 256, scale=5)}})


@case
def log_sum_relu(folder: Path) -> Outcome:
    """log(|x| + e) + log(|y| + e) at x = y = 1e25.

    The result must be 115. A logarithm of the product would be infinite, because the product overflows.
    """
    nodes = [
        node("Abs", ["x"], ["xa"]),
        node("Add", ["xa", "e"], ["xb"]),
        node("Abs", ["y"], ["ya"]),
        node("Add", ["ya", "e"], ["yb"]),
    ]
    nodes += [node("Log", ["xb"], ["a"]), node("Log", ["yb"], ["b"]), node("Add", ["a", "b"], ["o"])]
    graph = model(nodes, [tensor("x", [64, 256]), tensor("y", [64, 256])], [tensor("o", [64, 256])], [const("e", 1e-3)])
    large = np.full((64, 256), 1e25, np.float32)
    return compared(
        folder,
        graph,
        {"x and y are 1e25": {"x": large, "y": large}, "normal": {"x": normal(64, 256), "y": normal(64, 256, seed=2)}},
    )


@case
def recip_product(folder: Path) -> Outcome:
    """(z / x) / y at z=1e38, x=y=1e25. The result must be 1e-12. z / (x * y) would be 0, because x * y overflows."""
    nodes = [node("Div", ["z", "x"], ["a"]), node("Div", ["a", "y"], ["o"])]
    graph = model(nodes, [tensor(name, [64, 256]) for name in "xyz"], [tensor("o", [64, 256])])
    x, z = np.full((64, 256), 1e25, np.float32), np.full((64, 256), 1e38, np.float32)
    return compared(folder, graph, {"x, y, z are 1e25, 1e25, 1e38": {"x": x, "y": x, "z": z}})


@case
def nan_spreads(folder: Path) -> Outcome:
    """One infinite element of an input.

    Outputs that are finite in the original must stay finite. A product by a vector must not become a matrix product by a
    diagonal matrix, because 0 * inf is NaN.
    """
    nodes = [
        node("Conv", ["x", "c0", "b0"], ["h0"], group=4),
        node("Add", ["h0", "map"], ["h1"]),
        node("Mul", ["h1", "v"], ["h2"]),
    ]
    nodes += [
        node("Conv", ["h2", "c1"], ["p"], group=4),
        node("Conv", ["h2", "c2"], ["q"], group=4),
        node("Add", ["p", "q"], ["s"]),
        node("Add", ["s", "b1"], ["y"]),
    ]
    shapes = {
        "c0": (64, 16, 1, 1),
        "b0": (64,),
        "map": (1, 64, 28, 28),
        "v": (28,),
        "c1": (64, 16, 1, 1),
        "c2": (64, 16, 1, 1),
        "b1": (64, 1, 1),
    }
    weights = [weight(name, *shape, scale=1 / 4) for name, shape in shapes.items()]
    graph = model(nodes, [tensor("x", [1, 64, 28, 28])], [tensor("y", [1, 64, 28, 28])], weights)
    x = normal(1, 64, 28, 28)
    x[0, 0, 3, 5] = np.inf
    return compared(folder, graph, {"one element is inf": {"x": x}, "finite": {"x": normal(1, 64, 28, 28)}})


# Models that ONNX Runtime runs, but that superopt refused or failed on


@case
def gather_window_crash(folder: Path) -> Outcome:
    """A Gather with computed indices along an axis of one element.

    The indices are always 0. superopt must optimize the model, although superopt cannot time the Gather with made-up indices.
    """
    names = [f"w{i}" for i in range(6)]
    nodes = [node("Gather", ["table", "ids"], ["e"]), node("Tanh", ["speaker"], ["t"]), node("Mod", ["ids", "one"], ["which"])]
    nodes += [
        node("Gather", ["t", "which"], ["g"], axis=0),
        node("Add", ["g", "e"], ["s"]),
        *sum_of_products("s", "sum", names),
        node("Relu", ["sum"], ["y"]),
    ]
    weights = [weight(w, 64, 64, scale=1 / 8) for w in names] + [weight("table", 50, 64), const("one", 1)]
    graph = model(nodes, [tensor("speaker", [1, 64]), tensor("ids", [8], TensorProto.INT64)], [tensor("y", [8, 64])], weights)
    return compared(folder, graph, {"ids 0 to 7": {"speaker": normal(1, 64), "ids": np.arange(8)}})


@case
def declared_output_rank(folder: Path) -> Outcome:
    """An output that is declared with two dimensions, and has three at run time.

    ONNX Runtime warns, and runs the model. superopt must optimize the model or keep it for a true reason. The report must not
    say that ONNX Runtime cannot run the model.
    """
    names = [f"w{i}" for i in range(4)]
    nodes = [*sum_of_products("x", "sum", names), node("NonZero", ["target"], ["nz"]), node("Squeeze", ["nz"], ["pick"])]
    nodes += [node("Gather", ["target", "pick"], ["shape"]), node("Reshape", ["sum", "shape"], ["y"])]
    weights = [weight(w, 64, 64, scale=1 / 8) for w in names] + [const("target", [3, 1, 64])]
    graph = model(nodes, [tensor("x", [3, 64])], [tensor("y", [1, "length"])], weights, opset=13)
    return runs_after_all(compared(folder, graph, {"3 rows": {"x": normal(3, 64)}}))


def runs_after_all(outcome: Outcome) -> Outcome:
    """Return WRONG if the report says that ONNX Runtime cannot run the model, and the given outcome otherwise."""
    untrue = outcome.verdict == RIGHT and "cannot run" in outcome.figures
    return (
        Outcome(WRONG, f"it runs, and the report says that it does not: {outcome.figures}", outcome.verify)
        if untrue
        else outcome
    )


@case
def index_inputs(folder: Path) -> Outcome:
    """An input of positions in a tensor of shape [1, 16, 64].

    Made-up positions must fit the tensor, or the user must be able to give positions. superopt must optimize or keep the
    model, with exit code 0.
    """
    names = [f"w{i}" for i in range(6)]
    nodes = [
        *sum_of_products("x", "sum", names),
        node("Relu", ["sum"], ["hidden"]),
        node("GatherND", ["hidden", "where"], ["y"]),
    ]
    inputs = [tensor("x", [1, 16, 64]), tensor("where", ["k", 2], TensorProto.INT64)]
    graph = model(nodes, inputs, [tensor("y", ["k", 64])], [weight(w, 64, 64, scale=1 / 8) for w in names])
    return compared(folder, graph, {"positions 3 and 15": {"x": normal(1, 16, 64), "where": np.array([[0, 3], [0, 15]])}})


@case
def wide_concat(folder: Path) -> Outcome:
    """A Concat of 600 tensors. superopt must optimize or keep the model, without a RecursionError."""
    count = 600
    nodes = [node("MatMul", ["x", f"w{i}"], [f"m{i}"]) for i in range(count)]
    nodes += [node("Concat", [f"m{i}" for i in range(count)], ["y"], axis=1)]
    weights = [weight(f"w{i}", 64, 8, scale=1 / 8) for i in range(count)]
    graph = model(nodes, [tensor("x", ["n", 64])], [tensor("y", ["n", 8 * count])], weights)
    return compared(folder, graph, {"n=3": {"x": normal(3, 64)}})


@case
def same_tensor_two_outputs(folder: Path) -> Outcome:
    """One tensor that is listed twice among the outputs.

    ONNX Runtime runs the model. superopt must optimize the model with both outputs, keep it, or refuse it with one line,
    without an internal error.
    """
    nodes = [node("MatMul", ["x", "a"], ["p"]), node("MatMul", ["x", "b"], ["q"]), node("Add", ["p", "q"], ["y"])]
    output = tensor("y", [4, 8])
    graph = model(nodes, [tensor("x", [4, 8])], [output, output], [weight("a", 8, 8), weight("b", 8, 8)])
    return compared(folder, graph, {"normal": {"x": normal(4, 8)}})


def small() -> ModelProto:
    """Return a model with little to gain, for cases that are not about the search."""
    tail, weights = two_branches("x", size=8)
    return model(tail, [tensor("x", ["N", 8])], [tensor("y", ["N", 8])], weights)


def refused(process: Finished, what: str) -> Outcome:
    """Return RIGHT if the process failed with a clean error, WRONG if it succeeded, and CRASH otherwise."""
    if not clean(process):
        return Outcome(CRASH, f"exit {process.returncode}: {fault_line(process.stderr)}")
    if process.returncode == 0:
        return Outcome(WRONG, f"exit 0: {what}")
    return Outcome(RIGHT, f"exit {process.returncode}: {fault_line(process.stderr)}")


@case
def huge_dims(folder: Path) -> Outcome:
    """An initializer of 8 KiB that declares 2^31 rows, followed by another large initializer.

    superopt must refuse the model within 10 s after the start of the command, and must not write a file of the declared size.
    """
    nodes = [node("MatMul", ["x", "k"], ["p"]), node("MatMul", ["p", "m"], ["y"])]
    graph = model(nodes, [tensor("x", [4, 8])], [tensor("y", [4, 128])], [weight("k", 8, 256), weight("m", 256, 128)])
    graph.graph.initializer[0].dims[0] = 2**31
    source = save_model(graph, folder)
    began = time.monotonic()
    superopt_cli("--version")
    start = time.monotonic() - began
    began = time.monotonic()
    try:
        process = superopt_cli("optimize", source, folder / "out.onnx", "--budget", "1", "--cache", folder / "cache", limit=60)
    except subprocess.TimeoutExpired:
        return Outcome(CRASH, "no end within 60 s")
    took = time.monotonic() - began - start
    outcome = refused(process, "the model was accepted")
    if outcome.verdict == RIGHT and took > 10:
        return Outcome(WRONG, f"refused after {took:.0f} s")
    return Outcome(outcome.verdict, f"{outcome.figures} ({took:.1f} s)")


@case
def undefined_dtype(folder: Path) -> Outcome:
    """An initializer of the undefined element type 0. superopt must refuse the model with one line."""
    graph = small()
    graph.graph.initializer.add().CopyFrom(const("unused", [1]))
    graph.graph.initializer[-1].data_type = 0
    graph.graph.node.insert(0, node("Identity", ["unused"], ["also"]))
    return refused(
        superopt_cli("optimize", save_model(graph, folder), folder / "out.onnx", "--budget", "1", "--cache", folder / "cache"),
        "accepted",
    )


@case
def name_not_utf8(folder: Path) -> Outcome:
    """A node whose domain is not UTF-8. superopt must refuse the model with one line."""
    source = save_model(model_with_function(), folder)
    source.write_bytes(source.read_bytes().replace(b"local", b"\x9docal", 1))
    return refused(
        superopt_cli("optimize", source, folder / "out.onnx", "--budget", "1", "--cache", folder / "cache"),
        "accepted",
    )


def model_with_function() -> ModelProto:
    """Return a model that calls a local function."""
    twice = helper.make_function(
        "local", "Twice", ["u"], ["v"], [node("Add", ["u", "u"], ["v"])], [helper.make_opsetid("", 17)]
    )
    tail, weights = two_branches("doubled")
    call = node("Twice", ["x"], ["doubled"], domain="local")
    return model([call, *tail], [tensor("x", [4, 64])], [tensor("y", [4, 64])], weights, functions=[twice])


# Files and arguments


KILLED = """
import os, sys, signal
from pathlib import Path
import superopt
source, target, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
result = superopt.optimize(source, moves=(), budget=1, cache=sys.argv[4])
folder, count = os.path.realpath(os.path.dirname(target)), 0
def counted(function):
    def renamed(one, other, **options):
        global count
        done = function(one, other, **options)
        if os.path.realpath(os.path.dirname(os.fspath(other))) == folder:
            count += 1
            if count == last:
                os.kill(os.getpid(), signal.SIGKILL)
        return done
    return renamed
os.replace, os.rename = counted(os.replace), counted(os.rename)
Path.replace = lambda self, other: os.replace(self, other)
Path.rename = lambda self, other: os.rename(self, other)
result.save(target)
"""


def external_model(folder: Path, name: str, count: int) -> Path:
    """Save a chain of `count` products with the weights in a separate file, and return the path."""
    names = [f"w{i}" for i in range(count)]
    nodes = [
        node("MatMul", [f"t{i}" if i else "x", name], ["y" if i == count - 1 else f"t{i + 1}"]) for i, name in enumerate(names)
    ]
    weights = [numpy_helper.from_array(normal(64, 64, seed=10 * count + i), name) for i, name in enumerate(names)]
    graph = model(nodes, [tensor("x", [4, 64])], [tensor("y", [4, 64])], weights)
    path = folder / name
    onnx.save(graph, path, save_as_external_data=True, location=f"{name}.bin", size_threshold=0)
    return path


@case
def mixed_files(folder: Path) -> Outcome:
    """A model of two files that is saved over an older model, while the process is killed after each rename in turn.

    Afterwards, the files must hold the old model or the new model, and never the old graph with the new weights.
    """
    old, new = external_model(folder, "old.onnx", 1), external_model(folder, "new.onnx", 2)
    target = folder / "target" / "model.onnx"
    x = {"x": np.ones((4, 64), np.float32)}
    values = {"old": run(old, x)[0], "new": run(new, x)[0]}
    seen = []
    for last in range(1, 9):
        shutil.rmtree(target.parent, ignore_errors=True)
        target.parent.mkdir()
        superopt.optimize(old, moves=(), budget=1, cache=folder / "cache").save(target)
        command = [sys.executable, "-c", KILLED, str(new), str(target), str(last), str(folder / "cache")]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=env, check=False)
        try:
            got = run(target, x)[0]
            state = next((name for name, value in values.items() if np.array_equal(value, got)), "MIXED")
        except Exception as error:  # noqa: BLE001 (every exception is an outcome)
            state = f"UNREADABLE ({first_line(error)[:60]})"
        seen.append(state)
        if process.returncode == 0:
            break
        if process.returncode != -signal.SIGKILL:
            return Outcome(CRASH, f"exit {process.returncode}: {fault_line(process.stderr)}")
    whole = all(state in values for state in seen) and seen[-1] == "new"
    return Outcome(RIGHT if whole else WRONG, f"after renames 1 to {len(seen)}: {', '.join(seen)}")


@case
def target_is_device(folder: Path) -> Outcome:
    """A target that is a FIFO, as /dev/stdout may be.

    superopt must refuse the FIFO or write into it. The FIFO must stay a FIFO.
    """
    target = folder / "pipe"
    os.mkfifo(target)
    reader = os.open(target, os.O_RDONLY | os.O_NONBLOCK)  # without a reader, writing would block
    try:
        process = superopt_cli("optimize", save_model(small(), folder), target, "--budget", "0.1", "--cache", folder / "cache")
    finally:
        os.close(reader)
    if not clean(process):
        return Outcome(CRASH, f"exit {process.returncode}: {fault_line(process.stderr)}")
    still = target.is_fifo()
    return Outcome(
        RIGHT if still else WRONG,
        f"exit {process.returncode}; the target is {'still a FIFO' if still else 'a regular file now'}",
    )


@case
def json_equals_source(folder: Path) -> Outcome:
    """`--json` with the path of the model itself. superopt must fail with exit code 2 or 22, and must not change the model."""
    source = save_model(small(), folder)
    content = source.read_bytes()
    process = superopt_cli(
        "optimize", source, folder / "out.onnx", "--budget", "0.1", "--cache", folder / "cache", "--json", source
    )
    if not clean(process):
        return Outcome(CRASH, f"exit {process.returncode}: {fault_line(process.stderr)}")
    intact = source.read_bytes() == content
    right = intact and process.returncode != 0
    return Outcome(
        RIGHT if right else WRONG,
        f"exit {process.returncode}; the model is {'as it was' if intact else 'overwritten by the report'}",
    )


@case
def stdout_closed(folder: Path) -> Outcome:
    """A closed standard output. superopt must write the model and exit with code 0, without a traceback."""
    target = folder / "out.onnx"
    arguments = ("optimize", save_model(small(), folder), target, "--budget", "0.1", "--cache", folder / "cache")
    process = superopt_cli(*arguments, before=("sh", "-c", 'exec "$@" >&-', "sh"))
    if not clean(process):
        return Outcome(CRASH, f"exit {process.returncode}: {fault_line(process.stderr)}")
    right = process.returncode == 0 and target.exists()
    return Outcome(
        RIGHT if right else WRONG, f"exit {process.returncode}; the target is {'there' if target.exists() else 'not there'}"
    )


@case
def negative_seed(folder: Path) -> Outcome:
    """`--seed -1`. superopt must succeed or exit with code 2, without an internal error."""
    arguments = (
        "optimize",
        save_model(small(), folder),
        folder / "out.onnx",
        "--budget",
        "0.1",
        "--cache",
        folder / "cache",
    )
    process = superopt_cli(*arguments, "--seed", "-1")
    if not clean(process):
        return Outcome(CRASH, f"exit {process.returncode}: {fault_line(process.stderr)}")
    return Outcome(RIGHT if process.returncode in (0, 2) else WRONG, f"exit {process.returncode}")


# The rules: superopt must notice an edited ledger or definition


def package_copy(folder: Path) -> tuple[Path, dict[str, str]]:
    """Copy the package with all files that it reads, and return the copy and an environment that runs the copy."""
    package = Path(superopt.__file__).parent
    copy = folder / "copy"
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(package, copy / "superopt", ignore=without)
    for beside in ("specs", "substitutions"):  # in a checkout, these folders are beside the package
        if (package.parent / beside).is_dir() and not (package / beside).is_dir():
            shutil.copytree(package.parent / beside, copy / beside, ignore=without)
    return copy, {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}


def edited(folder: Path, pattern: str, holds: Callable[[str], object], change: Callable[[str], str], what: str) -> Outcome:
    """Run `superopt rules list` on a copy of the package with one edited file.

    `change` edits the first file whose text `holds` accepts. The command must fail with exit code 13.
    """
    copy, env = package_copy(folder)
    plain = superopt_cli("rules", "list", env=env, cwd=folder)
    if plain.returncode != 0:
        return Outcome(CRASH, f"the copy does not run unchanged: {fault_line(plain.stderr)}")
    for file in sorted(copy.rglob(pattern)):
        content = file.read_text()
        if holds(content):
            break
    else:
        return Outcome(CRASH, f"no file of {pattern} has what the case edits: adapt the case")
    changed = change(content)
    assert changed != content
    file.write_text(changed)
    process = superopt_cli("rules", "list", env=env, cwd=folder)
    outcome = refused(process, f"the rules load with {what} ({file.relative_to(copy)})")
    if outcome.verdict == RIGHT and process.returncode != 13:
        return Outcome(WRONG, f"{outcome.figures}, and not as what it is (13)")
    return outcome


@case
def ledger_specs_emptied(folder: Path) -> Outcome:
    """A proof in the ledger that names no definitions. superopt must refuse the rule of the proof (exit code 13)."""
    pattern = r'"specs": \{[^}]+\}'
    return edited(
        folder,
        "*.proofs.jsonl",
        lambda t: re.search(pattern, t),
        lambda t: re.sub(pattern, '"specs": {}', t, count=1),
        "the definitions of a proof emptied",
    )


@case
def ledger_axioms_emptied(folder: Path) -> Outcome:
    """A proof from axioms that lists no axioms and no instances. superopt must refuse the rule of the proof (exit code 13)."""
    pattern = r'"axioms": \[[^\]]+\], "instances": \[[^\]]*\]'
    return edited(
        folder,
        "*.proofs.jsonl",
        lambda t: re.search(pattern, t),
        lambda t: re.sub(pattern, '"axioms": [], "instances": []', t, count=1),
        "the axioms of a proof emptied",
    )


@case
def ledger_status_bounded(folder: Path) -> Outcome:
    """A proof for all sizes with the status changed to bounded, but without bounds.

    superopt must refuse the rule of the proof (exit code 13).
    """
    one, other = '"status": "all sizes", "bounded": []', '"status": "bounded", "bounded": []'
    return edited(
        folder, "*.proofs.jsonl", lambda t: one in t, lambda t: t.replace(one, other, 1), "a bounded proof without bounds"
    )


@case
def ledger_malformed(folder: Path) -> Outcome:
    """A ledger entry whose specs are a list. superopt must refuse the entry (exit code 13), without an internal error."""
    pattern = r'"specs": \{[^}]+\}'
    return edited(
        folder,
        "*.proofs.jsonl",
        lambda t: re.search(pattern, t),
        lambda t: re.sub(pattern, '"specs": []', t, count=1),
        "a list for a mapping",
    )


@case
def definitions_edited(folder: Path) -> Outcome:
    """An edit of a file that the definitions of many operators share.

    After the edit, the larger of two values is always the first. superopt must refuse the proofs that use the old definitions
    (exit code 13).
    """
    change = "\n\ndef larger(a, b):\n    return a\n"
    return edited(folder, "*.py", lambda t: "\ndef larger(" in t, lambda t: t + change, "another meaning of `larger`")


# Running the cases


class TooLongError(Exception):
    """A case did not end within the time limit."""


def _too_long(*_: object) -> None:
    raise TooLongError


def judged(name: str) -> Outcome:
    """Run a case and return its outcome, also if the case raises an exception."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            return CASES[name](Path(folder))
        except (TooLongError, subprocess.TimeoutExpired):
            return Outcome(CRASH, f"no end within {LIMIT} s")
        except superopt.SuperoptError as error:
            return Outcome(REFUSED, f"exit {error.exit_code}: {first_line(error)}")
        except Exception as error:  # noqa: BLE001 (every exception is an outcome)
            return Outcome(CRASH, f"{type(error).__name__}: {first_line(error)}")
        finally:
            signal.alarm(0)
