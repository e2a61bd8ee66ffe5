"""Faults that were found in superopt, each as a small case that says what is right; `test_faults.py` runs them.

A case builds its model in a temporary folder, runs `superopt.optimize` (or the command line, where that is what failed), and
runs the original and the result in ONNX Runtime with its optimizations off. Its outcome is one of these:

RIGHT    as the case's docstring says; "kept" in the figures means that the original came back, so nothing was shown
WRONG    the result does not compute what the original does, or something was accepted that must not be
CRASH    a traceback, an internal error, or no end within the time limit
REFUSED  a clean error where a result is due

`superopt verify` is asked about every rewritten model. The search depends on measured times, so a fault does not show in every
run: FAULTS_SEEDS=3 runs each case with three seeds. FAULTS_BUDGET is the seconds of a search, FAULTS_LIMIT those of a case.
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
"""Nodes, and the weights that go with them."""
Finished: TypeAlias = "subprocess.CompletedProcess[str]"

BUDGET = float(os.environ.get("FAULTS_BUDGET", "6"))  # seconds of search for a case
LIMIT = int(os.environ.get("FAULTS_LIMIT", "240"))  # seconds after which a case counts as one that does not end
SEEDS = int(os.environ.get("FAULTS_SEEDS", "1"))  # searches for a case, of other seeds
TOLERANCE = 1e-3  # of the largest finite value of an output
RIGHT, WRONG, CRASH, REFUSED = "RIGHT", "WRONG", "CRASH", "REFUSED"
ort.set_default_logger_severity(4)
node = helper.make_node


# What the cases are written with


@dataclass
class Outcome:
    verdict: str
    figures: str
    verify: str = "-"


Case: TypeAlias = "Callable[[Path], Outcome]"
CASES: dict[str, Case] = {}  # by name; another file of cases may add its own, and call `main`


def case(function: Case) -> Case:
    """Registers a case under its function's name."""
    CASES[function.__name__] = function
    return function


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def normal(*shape: int, scale: float = 1.0, seed: int = 1) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def weight(name: str, *shape: int, scale: float = 1.0) -> TensorProto:
    """An initializer of normal numbers, other ones for every name."""
    return numpy_helper.from_array(normal(*shape, scale=scale, seed=sum(map(ord, name)) + 7 * len(shape)), name)


def const(name: str, value: object, dtype: DTypeLike | None = None) -> TensorProto:
    """An initializer; whole numbers are int64, others float32, unless said otherwise."""
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
    """Two products of one tensor, added: what a search gains on. Weights `left` and `right` go with it."""
    nodes = [node("MatMul", [source, "left"], ["product_1"]), node("MatMul", [source, "right"], ["product_2"])]
    nodes += [node("Add", ["product_1", "product_2"], ["total"]), node("Relu", ["total"], [target])]
    return nodes, [weight("left", size, size), weight("right", size, size)]


def sum_of_products(source: str, target: str, weights: Sequence[str], prefix: str = "") -> list[NodeProto]:
    """The sum of `source` times each of the weights."""
    nodes = [node("MatMul", [source, w], [f"{prefix}m{i}"]) for i, w in enumerate(weights)]
    last = f"{prefix}m0"
    for i in range(1, len(weights)):
        name = target if i == len(weights) - 1 else f"{prefix}a{i}"
        nodes.append(node("Add", [last, f"{prefix}m{i}"], [name]))
        last = name
    return nodes


def run(path: Path, feeds: Feeds) -> list[Array]:
    """The outputs in ONNX Runtime, without its optimizations, on one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(None, feeds)
    return found


def first_line(text: object) -> str:
    """The first line of a message, without folders."""
    lines = [re.sub(r"/\S*/", "", line.strip()) for line in str(text).splitlines() if line.strip()]
    return lines[0][:150] if lines else ""


def fault_line(text: str) -> str:
    """The last line of what the command line printed about a failure, progress left out, paths shortened."""
    lines = [line for line in text.replace("\r", "\n").splitlines() if "superopt" in line or "Error" in line]
    return first_line(lines[-1] if lines else text)


def superopt_cli(
    *arguments: object,
    limit: float | None = None,
    env: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
    cwd: Path | None = None,
) -> Finished:
    """The command line in a process of its own; `before` stands before it."""
    command = [*before, sys.executable, "-m", "superopt", *map(str, arguments)]
    env = env or {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=limit or LIMIT, env=env, cwd=cwd, check=False)


def clean(process: Finished) -> bool:
    """Whether a process ended without a traceback and without an internal error (70)."""
    return "Traceback" not in process.stderr and process.returncode != 70 and process.returncode >= 0


def difference(expected: Array, got: Array) -> str:
    """What is different about one output, in words; empty if nothing is. NaN and infinities must be where they were."""
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
    """What `superopt verify` answers."""
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
    """Optimizes a model, and compares both on each of `feeds`, which are inputs by a label for each; with several seeds where
    that was asked for, or where what was found gains too little to tell. The first outcome that is not right is the case's.
    """
    source = save_model(model_proto, folder)
    try:
        wanted = {label: run(source, inputs) for label, inputs in feeds.items()}
    except Exception as error:  # whatever ONNX Runtime raises
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
    """The same of one search, where the original's outputs are known."""
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
        except Exception as error:  # noqa: BLE001 (whatever is raised is an outcome)
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
    """Pairs of 1 x 1 convolutions over one tensor: what a search gains on behind the node in question."""
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
    """Nodes that give the size of an axis of `x` as the scalar `n`."""
    return [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "axis"], ["n"])], [const("axis", axis)]


def rows(sizes: Sequence[int], width: int = 64) -> dict[str, Feeds]:
    """Inputs `x` with these numbers of rows."""
    return {f"N={n}": {"x": normal(n, width, seed=n)} for n in sizes}


# Open dimensions: the result must be right at every size, not only at sizes that are prime or below 10000


def same_pads(folder: Path, first: NodeProto, channels: int, weights: Sequence[TensorProto]) -> Outcome:
    nodes, others = merging_convolutions("first", channels)
    graph = model([first, *nodes], [tensor("x", [1, 16, "H", "W"])], [tensor("y", [1, 64, "H2", "W2"])], [*weights, *others])
    feeds = {f"H=W={n}": {"x": normal(1, 16, n, n, seed=n)} for n in (32, 33, 65)}
    return compared(folder, graph, feeds, shapes=[{"H": 64, "W": 64}])


@case
def same_pads_conv(folder: Path) -> Outcome:
    """A convolution with auto_pad=SAME_UPPER and stride 2 over an open image pads by 1 or by 2: what depends on the parity
    of the size must stay in the model (auto_pad, or pads that are computed)."""
    first = node("Conv", ["x", "k"], ["first"], auto_pad="SAME_UPPER", strides=[2, 2], kernel_shape=[3, 3])
    return same_pads(folder, first, 8, [weight("k", 8, 16, 3, 3)])


@case
def same_pads_pool(folder: Path) -> Outcome:
    """The same of a max pool."""
    first = node("MaxPool", ["x"], ["first"], auto_pad="SAME_UPPER", strides=[2, 2], kernel_shape=[3, 3])
    return same_pads(folder, first, 16, [])


@case
def pad_to_8(folder: Path) -> Outcome:
    """An image is padded to a height that is a multiple of 8, by (8 - H % 8) % 8: right at every H, multiples of 8 too."""
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
    """A length is padded to an even one, by N % 2: right at even lengths too."""
    nodes, weights = length_of_x()
    nodes += [node("Mod", ["n", "two"], ["rest"]), node("Unsqueeze", ["rest", "zero"], ["rest_1"])]
    nodes += [node("Concat", ["zeros", "rest_1", "zero"], ["pads"], axis=0), node("Pad", ["x", "pads"], ["padded"])]
    tail, more = two_branches("padded")
    weights += [const("two", 2), const("zero", [0]), const("zeros", [0, 0]), *more]
    graph = model(nodes + tail, [tensor("x", ["N", 64])], [tensor("y", ["M", 64])], weights)
    return compared(folder, graph, rows((5, 7, 4, 6)))


@case
def float_of_parity(folder: Path) -> Outcome:
    """x times the float that N % 2 is: all zero at even lengths."""
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
    """x where N > 4, and -x elsewhere, optimized for N=8: right at N <= 4 too."""
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
    """The first min(N, 4) rows: right at N < 4 too; optimized (or kept) also where no size is given, and not an error
    because the sizes that are tried first are below 4."""
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
    """The first 16384 rows of an open length: a length of 20000 is cut."""
    tail, weights = two_branches("cut")
    nodes = [node("Slice", ["x", "zero", "end", "zero"], ["cut"]), *tail]
    graph = model(
        nodes, [tensor("x", ["N", 64])], [tensor("y", ["M", 64])], [const("zero", [0]), const("end", [16384]), *weights]
    )
    return compared(folder, graph, rows((100, 16384, 20000)))


@case
def question_mark_dims(folder: Path) -> Outcome:
    """Some exporters call every open dimension "?", which is no name: height and width need not be equal. ONNX Runtime runs
    this model at H=12, W=20, and so must it run the result.
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
    """Four inputs with two open dimensions each: gains as three such do (several times as fast), or the report says that
    there are too many open dimensions."""
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
    """x - x, x / x and x * 0 over an open length are constants of a shape that is open: right, or left as they are, at any
    budget; not an error."""
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


# Numbers: a rewriting of real numbers must not lose what floating point keeps, nor make NaN of what was a number


@case
def guarded_division(folder: Path) -> Outcome:
    """A masked mean, sum(where(mask, x / count, 0)): a row without any element is 0, and not 0 / 0."""
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
    """relu(x - y) + z beside min(x, y), where half of x is -1e9 (a masked score): z there, without the digits that x -
    min(x, y) + z loses."""
    return relu_of_a_difference(folder, -1e9)


@case
def relu_sub_add_inf(folder: Path) -> Outcome:
    """The same where it is -inf: z there, and not inf - inf."""
    return relu_of_a_difference(folder, -np.inf)


@case
def magic_round(folder: Path) -> Outcome:
    """(x + 1.5 * 2^23) - 1.5 * 2^23 rounds to whole numbers; it is not x."""
    nodes = [node("Add", ["x", "magic"], ["t"]), node("Sub", ["t", "magic"], ["r"]), node("Mul", ["r", "half"], ["y"])]
    graph = model(nodes, [tensor("x", [64, 256])], [tensor("y", [64, 256])], [const("magic", 12582912.0), const("half", 0.5)])
    return compared(folder, graph, {"x normal, times 5": {"x": normal(64, 256, scale=5)}})


@case
def log_sum_relu(folder: Path) -> Outcome:
    """log(|x| + e) + log(|y| + e) at 1e25: 115, and not the logarithm of a product that overflows."""
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
    """(z / x) / y at z=1e38, x=y=1e25: 1e-12, and not z / inf."""
    nodes = [node("Div", ["z", "x"], ["a"]), node("Div", ["a", "y"], ["o"])]
    graph = model(nodes, [tensor(name, [64, 256]) for name in "xyz"], [tensor("o", [64, 256])])
    x, z = np.full((64, 256), 1e25, np.float32), np.full((64, 256), 1e38, np.float32)
    return compared(folder, graph, {"x, y, z are 1e25, 1e25, 1e38": {"x": x, "y": x, "z": z}})


@case
def nan_spreads(folder: Path) -> Outcome:
    """One infinite element of an input: what was finite in the original stays finite (a product by a vector is no matrix
    product by a diagonal matrix there, for 0 * inf is NaN)."""
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


# Models that run, and are refused or end in an error


@case
def gather_window_crash(folder: Path) -> Outcome:
    """A Gather along an axis of one element, whose indices are computed (always 0): optimized. A part of the model that
    cannot be timed with made-up indices is no reason to give up."""
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
    """An output that is declared with two dimensions, and has three when it runs (ONNX Runtime warns, and runs it):
    optimized, or kept for a reason that is true; it is not true that ONNX Runtime cannot run it."""
    names = [f"w{i}" for i in range(4)]
    nodes = [*sum_of_products("x", "sum", names), node("NonZero", ["target"], ["nz"]), node("Squeeze", ["nz"], ["pick"])]
    nodes += [node("Gather", ["target", "pick"], ["shape"]), node("Reshape", ["sum", "shape"], ["y"])]
    weights = [weight(w, 64, 64, scale=1 / 8) for w in names] + [const("target", [3, 1, 64])]
    graph = model(nodes, [tensor("x", [3, 64])], [tensor("y", [1, "length"])], weights, opset=13)
    return runs_after_all(compared(folder, graph, {"3 rows": {"x": normal(3, 64)}}))


def runs_after_all(outcome: Outcome) -> Outcome:
    """WRONG if the report says of a model that ran here that it does not run."""
    untrue = outcome.verdict == RIGHT and "cannot run" in outcome.figures
    return (
        Outcome(WRONG, f"it runs, and the report says that it does not: {outcome.figures}", outcome.verify)
        if untrue
        else outcome
    )


@case
def index_inputs(folder: Path) -> Outcome:
    """An input holds positions: those that are made up must fit the tensor they index, here [1, 16, 64] (or the user can
    say which): optimized, or kept with exit 0."""
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
    """A Concat of 600 tensors: optimized, or kept; not a RecursionError."""
    count = 600
    nodes = [node("MatMul", ["x", f"w{i}"], [f"m{i}"]) for i in range(count)]
    nodes += [node("Concat", [f"m{i}" for i in range(count)], ["y"], axis=1)]
    weights = [weight(f"w{i}", 64, 8, scale=1 / 8) for i in range(count)]
    graph = model(nodes, [tensor("x", ["n", 64])], [tensor("y", ["n", 8 * count])], weights)
    return compared(folder, graph, {"n=3": {"x": normal(3, 64)}})


@case
def same_tensor_two_outputs(folder: Path) -> Outcome:
    """One tensor is listed twice among the outputs. ONNX Runtime runs that: optimized with both, or kept, or refused in one
    line; not an internal error."""
    nodes = [node("MatMul", ["x", "a"], ["p"]), node("MatMul", ["x", "b"], ["q"]), node("Add", ["p", "q"], ["y"])]
    output = tensor("y", [4, 8])
    graph = model(nodes, [tensor("x", [4, 8])], [output, output], [weight("a", 8, 8), weight("b", 8, 8)])
    return compared(folder, graph, {"normal": {"x": normal(4, 8)}})


def small() -> ModelProto:
    """A model with little to gain, for what is not about the search."""
    tail, weights = two_branches("x", size=8)
    return model(tail, [tensor("x", ["N", 8])], [tensor("y", ["N", 8])], weights)


def refused(process: Finished, what: str) -> Outcome:
    """RIGHT if the process ended with a clean error."""
    if not clean(process):
        return Outcome(CRASH, f"exit {process.returncode}: {fault_line(process.stderr)}")
    if process.returncode == 0:
        return Outcome(WRONG, f"exit 0: {what}")
    return Outcome(RIGHT, f"exit {process.returncode}: {fault_line(process.stderr)}")


@case
def huge_dims(folder: Path) -> Outcome:
    """An initializer that claims 2^31 rows and has 8 KiB, with another large one behind it: refused within 10 s of the
    command's own start, and without a file of the size that is claimed."""
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
    """An initializer of the undefined element type 0: refused in one line."""
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
    """The domain of a node is no UTF-8: refused in one line."""
    source = save_model(model_with_function(), folder)
    source.write_bytes(source.read_bytes().replace(b"local", b"\x9docal", 1))
    return refused(
        superopt_cli("optimize", source, folder / "out.onnx", "--budget", "1", "--cache", folder / "cache"),
        "accepted",
    )


def model_with_function() -> ModelProto:
    """A model that calls a function of its own."""
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
    """A model whose weights lie in a file beside it: `count` products one after another."""
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
    """A model of two files is saved over another one, and the process is killed after each of its renames in turn: what is
    there afterwards is the old model or the new one, whole; never the old graph with the new weights."""
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
        except Exception as error:  # noqa: BLE001 (whatever is raised is an outcome)
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
    """The target is a FIFO (as /dev/stdout or a device could be): refused, or written into; it is a FIFO afterwards."""
    target = folder / "pipe"
    os.mkfifo(target)
    reader = os.open(target, os.O_RDONLY | os.O_NONBLOCK)  # so that writing does not wait
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
    """`--json` names the model itself: refused (2 or 22), and the model is as it was."""
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
    """Standard output is closed: the model is written, exit 0, without a traceback."""
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
    """`--seed -1`: it works, or exit 2; not an internal error."""
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


# The rules: a ledger or a definition that was edited must be noticed


def package_copy(folder: Path) -> tuple[Path, dict[str, str]]:
    """A copy of the package with all that it reads, and the environment in which it is the one that runs."""
    package = Path(superopt.__file__).parent
    copy = folder / "copy"
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(package, copy / "superopt", ignore=without)
    for beside in ("specs", "substitutions"):  # where the package is a checkout
        if (package.parent / beside).is_dir() and not (package / beside).is_dir():
            shutil.copytree(package.parent / beside, copy / beside, ignore=without)
    return copy, {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}


def edited(folder: Path, pattern: str, holds: Callable[[str], object], change: Callable[[str], str], what: str) -> Outcome:
    """`superopt rules list` on a copy of the package in which the first file that `holds` something is changed."""
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
    """A proof in the ledger that no longer says which definitions it rests on: its rule is refused (exit 13)."""
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
    """A proof in the ledger without axioms and instances, though it was made from axioms: its rule is refused (exit 13)."""
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
    """A proof for all sizes that is made one for bounded sizes, which names no bounds: its rule is refused (exit 13)."""
    one, other = '"status": "all sizes", "bounded": []', '"status": "bounded", "bounded": []'
    return edited(
        folder, "*.proofs.jsonl", lambda t: one in t, lambda t: t.replace(one, other, 1), "a bounded proof without bounds"
    )


@case
def ledger_malformed(folder: Path) -> Outcome:
    """A ledger entry whose specs are a list: refused (exit 13), not an internal error."""
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
    """A file that the definitions of many operators share is edited (the larger of two values is the first): the proofs
    made with the old one are refused (exit 13)."""
    change = "\n\ndef larger(a, b):\n    return a\n"
    return edited(folder, "*.py", lambda t: "\ndef larger(" in t, lambda t: t + change, "another meaning of `larger`")


# Running them


class TooLongError(Exception):
    """A case does not end."""


def _too_long(*_: object) -> None:
    raise TooLongError


def judged(name: str) -> Outcome:
    """The outcome of a case, whatever happens in it."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            return CASES[name](Path(folder))
        except (TooLongError, subprocess.TimeoutExpired):
            return Outcome(CRASH, f"no end within {LIMIT} s")
        except superopt.SuperoptError as error:
            return Outcome(REFUSED, f"exit {error.exit_code}: {first_line(error)}")
        except Exception as error:  # noqa: BLE001 (whatever is raised is an outcome)
            return Outcome(CRASH, f"{type(error).__name__}: {first_line(error)}")
        finally:
            signal.alarm(0)
