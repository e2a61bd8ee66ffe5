"""Generated kernels equal the definitions over a prime field, and models run with and without their kernel library."""

from __future__ import annotations

import ast
import io
import math
import operator
import os
import random
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from rich.console import Console

import superopt
from superopt.algebra.terms import Term, variable
from superopt.cli.main import main
from superopt.errors import CertificateError, CompilerError, InvalidModelError, ModelNotFoundError, TargetError
from superopt.flows import kernel_library
from superopt.flows.kernel_library import check_library, library_lines
from superopt.flows.optimized import KernelLibrary
from superopt.flows.options import Options
from superopt.kernels import library
from superopt.kernels.affine import IndexCondition, IndexExpression, LoopIndex, index
from superopt.kernels.emit import Target
from superopt.kernels.groups import kernel_groups
from superopt.kernels.install import with_kernels
from superopt.kernels.library import VECTORS, ZIG, build, compiler_version, flags_of, native_target
from superopt.kernels.loops import UnsupportedError, made
from superopt.kernels.schedule import KernelProgram, program_of
from superopt.model.islands import Chart
from superopt.model.load import as_model, as_proto
from superopt.notation.parsing import parse
from superopt.protobuf.kernels import library_files, model_of_library, without_kernels
from superopt.report.comparison import comparison_summary
from superopt.report.optimization import KernelUse
from superopt.report.statements import library_step
from superopt.runtime.session import Device, Session
from superopt.verification.certificates import parse_certificate
from tests.kernel_cases import FIELD, SMALL, compiled, defined, ran, random_arrays, sanitized
from tests.models import model, weight
from tests.operator_cases import DEFINED, concrete, forms
from tests.random_models import grown

WIDE = Target(8, 32)
OPERATIONS: dict[str, Any] = {"+": operator.add, "*": operator.mul, "/": operator.floordiv, "%": operator.mod}


def programs_of(terms: Sequence[Term], target: Target) -> list[tuple[Term, KernelProgram]]:
    """Return the terms for which the generator writes kernels, with the kernels' programs."""
    found = []
    for term in terms:
        try:
            found.append((term, program_of({"y": term}, target.panel)))
        except UnsupportedError:
            continue
    return found


def differences(cases: Sequence[tuple[Term, KernelProgram]], target: Target, folder: Path) -> list[Term]:
    """Return the terms whose kernels differ from the definitions over the prime field."""
    lib = compiled([program for _, program in cases], target, folder, FIELD)
    found = []
    for number, (term, program) in enumerate(cases):
        arrays = random_arrays([term], number, field=True)
        (wanted,) = defined([term], arrays, field=True)
        (got,) = ran(lib, number, program, arrays, field=True)
        if not np.array_equal(np.broadcast_to(wanted, got.shape), got):
            found.append(term)
    return found


def terms_of(*texts: str, **shapes: tuple[int, ...]) -> list[Term]:
    names = {name: variable(name, shape, constant=name.startswith("w")) for name, shape in shapes.items()}
    return [term for text in texts for term in parse(text, names)]


# ---------------------------------------------------------------- exactness


@pytest.mark.slow
def test_random_islands_equal_their_definitions_over_a_field(tmp_path: Path) -> None:
    rng = random.Random(0)
    cases = programs_of([grown(rng) for _ in range(120)], SMALL)
    assert len(cases) > 48
    assert differences(cases, SMALL, tmp_path) == []


@pytest.mark.slow
def test_each_operator_equals_its_definition_over_a_field(tmp_path: Path) -> None:
    cases = programs_of([concrete(forms(name)[seed % len(forms(name))], seed) for name in DEFINED for seed in (0, 1)], SMALL)
    assert len({term.op for term, _ in cases}) > 80
    assert differences(cases, SMALL, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", [SMALL, WIDE])
def test_tiles_rests_and_panels_of_products_are_exact(target: Target, tmp_path: Path) -> None:
    terms = []
    for rows, inner, columns in [(1, 5, 7), (3, 4, 8), (7, 9, 33), (5, 2, 128), (13, 17, 192), (6, 3, 67)]:
        terms += terms_of("x @ w", "relu(x @ w) + y", x=(rows, inner), w=(inner, columns), y=(rows, columns))
    terms += terms_of("x @ transpose(y, perm=(-1, -2))", "softmax(x, axis=-1) @ w", x=(9, 70), y=(5, 70), w=(70, 130))
    terms += terms_of("transpose(x, perm=(-2, -3, -1)) @ w", "layer_norm(x, epsilon=1/1000)", x=(3, 5, 36), w=(36, 32))
    terms += terms_of("reshape(transpose(x @ y, perm=(-3, -1, -2)), shape=(2, 6, 12))", x=(2, 8, 5), y=(2, 5, 9))
    for rows, columns in [(8, 8), (33, 70), (9, 200), (70, 16), (8, 5), (4, 4)]:
        shapes = {"x": (3, rows, columns), "y": (3, columns, rows), "z": (rows,)}
        terms += terms_of("relu(transpose(x, perm=(-3, -1, -2)))", "transpose(x, perm=(-3, -1, -2)) * y", **shapes)
        terms += terms_of(
            "transpose(x, perm=(-1, -2, -3))", "layer_norm(transpose(x, perm=(-3, -1, -2)), epsilon=1/1000)", **shapes
        )
    assert differences(programs_of(terms, target), target, tmp_path) == []


def test_a_wrong_kernel_is_found(tmp_path: Path) -> None:
    ((term, program),) = programs_of(terms_of("x - y", x=(3, 5), y=(3, 5)), SMALL)
    (nest,) = program.nests
    turned = made(nest.value.table, nest.value.kind, nest.value.data, *reversed(nest.value.args))
    wrong = replace(program, parts=(replace(nest, value=turned),))
    assert differences([(term, wrong)], SMALL, tmp_path) == [term]


@pytest.mark.slow
def test_transposed_tiles_read_no_branch_that_is_not_chosen(tmp_path: Path) -> None:
    terms = terms_of("transpose(concat(x, y, axis=-1), perm=(-1, -2))", x=(16, 16), y=(16, 100))
    terms += terms_of("relu(transpose(pad(x, before=(0, 16), after=(0, 9)), perm=(-1, -2)))", x=(16, 32))
    terms += terms_of("transpose(gather(x, i, axis=-3), perm=(-3, -1, -2))", x=(3, 16, 16), i=(2,))
    cases = programs_of(terms, SMALL)
    assert len(cases) == len(terms)
    assert differences(cases, SMALL, tmp_path) == []
    assert sanitized([program for _, program in cases], SMALL, tmp_path) == ""


@pytest.mark.slow
def test_kernels_stay_within_their_memory(tmp_path: Path) -> None:
    rng = random.Random(1)
    programs = [program for _, program in programs_of([grown(rng) for _ in range(40)], SMALL)]
    programs += [p for _, p in programs_of(terms_of("relu(x @ w) + y", x=(7, 9), w=(9, 33), y=(7, 33)), SMALL)]
    assert sanitized(programs, SMALL, tmp_path) == ""


@pytest.mark.parametrize(
    ("name", "function", "ulps"),
    [
        ("exp", np.exp, 3),
        ("tanh", np.tanh, 6),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), 6),
        ("erf", np.vectorize(math.erf, otypes=[np.float64]), 6),
    ],
)
def test_functions_are_accurate_everywhere(name: str, function: Any, ulps: int, tmp_path: Path) -> None:
    special = [0.0, -0.0, 1e-30, -1e-40, np.inf, -np.inf, np.nan, 89.0, -104.0, 1e30]
    values = np.concatenate([np.linspace(-95, 88, 4000), np.linspace(-2, 2, 4000), special]).astype(np.float32)
    ((term, program),) = programs_of(terms_of(f"{name}(x)", x=values.shape), native_target())
    (got,) = ran(compiled([program], native_target(), tmp_path, ()), 0, program, {"x": values}, field=False)
    with np.errstate(over="ignore"):
        wanted = function(values.astype(np.float64))
        rounded = wanted.astype(np.float32)
    assert np.array_equal(np.isnan(got), np.isnan(rounded))
    assert np.array_equal(np.isinf(got), np.isinf(rounded))
    finite = np.isfinite(rounded)
    errors = np.abs(got[finite] - wanted[finite]) / np.maximum(np.spacing(np.abs(rounded[finite])), 1e-44)
    assert errors.max() <= ulps
    assert term.op == name


def test_tiny_divisors_have_no_infinite_reciprocals(tmp_path: Path) -> None:
    values = np.array([1e-40, -1e-40, 1e-45, 3e38, 0.0, np.inf, np.nan, 2.0, -3.0], np.float32)
    ((_, program),) = programs_of(terms_of("x * reciprocal(y)", x=values.shape, y=values.shape), native_target())
    for divisor in (values, np.roll(values, 1)):
        (got,) = ran(compiled([program], native_target(), tmp_path, ()), 0, program, {"x": values, "y": divisor}, field=False)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, values / divisor)


def test_an_attribute_can_be_nan(tmp_path: Path) -> None:
    proto = model(
        [helper.make_node("LeakyRelu", ["x"], ["a"], alpha=math.nan), helper.make_node("Tanh", ["a"], ["y"])],
        {"x": (9,)},
        {"y": (9,)},
    )
    changed, device = with_library(proto, tmp_path)
    (got,) = Session(changed.SerializeToString(), device).run({"x": -np.ones(9, np.float32)})
    assert np.isnan(got).all()


def test_comparisons_keep_nan(tmp_path: Path) -> None:
    values = {"x": np.array([np.nan, 1, -np.inf], np.float32), "y": np.array([2, np.nan, np.nan], np.float32)}
    terms = terms_of("maximum(x, y)", "minimum(x, y)", "relu(x)", x=(3,), y=(3,))
    cases = programs_of(terms, SMALL)
    lib = compiled([program for _, program in cases], SMALL, tmp_path, ())
    results = [ran(lib, i, program, values, field=False)[0] for i, (_, program) in enumerate(cases)]
    assert [np.isnan(r).tolist() for r in results] == [[True, True, True], [True, True, True], [True, False, False]]


@pytest.mark.parametrize("axes", ["(-1,)", "(-2,)", "(-2, -1)"])
def test_logarithms_of_sums_of_large_exponentials_are_finite(axes: str, tmp_path: Path) -> None:
    rows = [[1e3, 999, -1e30], [-1e3, -1e3, -1e4], [-np.inf, -np.inf, -np.inf], [3e38, 1, 2]]
    values = np.array(rows, np.float32)
    ((_, program),) = programs_of(terms_of(f"reduce_log_sum_exp(x, axes={axes})", x=values.shape), SMALL)
    (got,) = ran(compiled([program], SMALL, tmp_path, ()), 0, program, {"x": values}, field=False)
    kept = ast.literal_eval(axes)
    np.testing.assert_allclose(got, np.logaddexp.reduce(values.astype(np.float64), axis=kept), rtol=1e-6)


# ---------------------------------------------------------------- index expressions


def test_quotients_disappear_where_the_range_decides_them() -> None:
    i, j = index(LoopIndex("i", 6)), index(LoopIndex("j", 8))
    flat = i * 8 + j
    assert (flat // 8, flat % 8) == (i, j)
    assert (flat // 4 * 4 + flat % 4) == flat
    assert (i < 6) is True
    assert (i - 6 >= 0) is False
    assert isinstance(i < 3, IndexCondition)
    assert (index(LoopIndex("one", 1))) == IndexExpression()
    assert ((-i) // 2).text({}) == "floor_div(i * -1, 2)"


@pytest.mark.parametrize("seed", range(30))
def test_index_expressions_have_the_values_of_their_arithmetic(seed: int) -> None:
    rng = random.Random(seed)
    loops = [LoopIndex("i", 5), LoopIndex("j", 7)]
    expression: Any = index(loops[0])
    steps: list[tuple[str, int]] = [(rng.choice("+*/%j"), rng.randint(1, 9)) for _ in range(5)]

    def applied(value: Any, other: Any) -> Any:
        for step, n in steps:
            value = value - other if step == "j" else OPERATIONS[step](value, n)
        return value

    expression = applied(expression, index(loops[1]))
    low, high = expression.bounds
    for i in range(5):
        for j in range(7):
            value = expression.substituted({loops[0]: IndexExpression((), i), loops[1]: IndexExpression((), j)})
            assert value == IndexExpression((), applied(i, j))
            assert low <= applied(i, j) <= high


@pytest.mark.slow
@pytest.mark.parametrize("target", [SMALL, pytest.param(WIDE, marks=pytest.mark.long)])
def test_recurrences_are_exact(target: Target, tmp_path: Path) -> None:
    terms = []
    for t, n, i, k in [(1, 1, 3, 8), (2, 1, 4, 64), (5, 3, 7, 6), (4, 2, 9, 128)]:
        shapes = {"x": (t, n, i), "w": (i, 4 * k), "wr": (k, 4 * k), "wb": (4 * k,), "h": (n, k), "c": (n, k)}
        terms += terms_of("lstm(x, w, wr, wb, h, c)", "lstm_cell(relu(x), w, wr, wb, h, c) + c", **shapes)
        terms += terms_of("lstm(x * x, w, wr, wb, h, h) * lstm(x * x, w, wr, wb, h, h)", **shapes)
        terms += terms_of("lstm(x, w, wr, wb, tanh(h), c)", **shapes)
        shapes = {"x": (t, n, i), "w": (i, k), "wr": (k, k), "wb": (k,), "h": (n, k)}
        terms += terms_of("rnn(x, w, wr, wb, h)", **shapes)
        shapes = {"x": (t, n, i), "w": (i, 3 * k), "wr": (k, 3 * k), "wb": (4 * k,), "h": (n, k)}
        terms += terms_of("gru(x, w, wr, wb, h)", "reverse(gru(reverse(x, axis=-3), w, wr, wb, h), axis=-3)", **shapes)
    cases = programs_of(terms, target)
    assert len(cases) == len(terms)
    assert differences(cases, target, tmp_path) == []


def test_scratch_memory_is_shared_by_buffers_that_do_not_live_together() -> None:
    (term,) = terms_of("softmax(softmax(softmax(x, axis=-1), axis=-2), axis=-1)", x=(40, 40))
    program = program_of({"y": term}, SMALL.panel)
    offsets, size = program.scratch_offsets, program.scratch_size
    assert size < sum(buffer.size for buffer in program.scratch)
    last = {b: i for i, part in enumerate(program.parts) for nest in part.nests for b in (*nest.reads, nest.target)}
    first = {nest.target: i for i, part in enumerate(program.parts) for nest in part.nests}
    for a in program.scratch:
        for b in program.scratch:
            together = first[a] < first[b] <= last[a]
            apart = offsets[a] + a.size <= offsets[b] or offsets[b] + b.size <= offsets[a]
            assert apart or not together


# ---------------------------------------------------------------- models


def small_model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["a"]),
        helper.make_node("Tanh", ["a"], ["t"]),
        helper.make_node("MatMul", ["t", "v"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=-1),
    ]
    weights = [weight("w", 24, 40), weight("b", 40), weight("v", 40, 8)]
    return model(nodes, {"x": (3, 24)}, {"y": (3, 8)}, weights)


@pytest.fixture(params=["gcc", "clang", shlex.join(ZIG)], ids=["gcc", "clang", "ziglang"])
def any_compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Select a C compiler, or skip the test if this compiler is not installed. The extra `kernels` installs ziglang."""
    command: str = request.param
    if subprocess.run(f"{command} --version", shell=True, check=False, capture_output=True).returncode:
        pytest.skip(f"{command} is not installed")
    monkeypatch.setenv("CC", command)
    cached = (library.compiler, library.compiler_version, library.native_target)
    for function in cached:
        function.cache_clear()
    yield command
    for function in cached:
        function.cache_clear()


@pytest.mark.usefixtures("any_compiler")
@pytest.mark.slow
def test_each_compiler_makes_libraries_that_run(tmp_path: Path) -> None:
    proto = small_model()
    changed, device = with_library(proto, tmp_path)
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 24)).astype(np.float32)}
    (plain,) = Session(proto.SerializeToString(), Device()).run(feeds)
    (fast,) = Session(changed.SerializeToString(), device).run(feeds)
    np.testing.assert_allclose(fast, plain, rtol=1e-5, atol=1e-7)
    assert compiler_version() in (tmp_path / "k.c").read_text(encoding="utf-8")
    assert differences(programs_of([grown(random.Random(seed)) for seed in range(20)], SMALL), SMALL, tmp_path) == []


def test_a_model_with_kernels_runs_with_and_without_its_library(tmp_path: Path) -> None:
    proto = small_model()
    original = as_model(proto)
    groups = list(kernel_groups(Chart(original), native_target(), 1 << 40))
    replaced = with_kernels(original, groups, native_target())
    build(replaced.source, tmp_path / "k.so", native_target())
    changed = as_proto(replaced.model)
    onnx.checker.check_model(changed)
    assert [n.domain for n in changed.graph.node] == [replaced.domain]
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 24)).astype(np.float32)}
    (plain,), (inlined,) = (Session(p.SerializeToString(), Device()).run(feeds) for p in (proto, changed))
    assert np.array_equal(plain, inlined)
    (fast,) = Session(changed.SerializeToString(), Device(libraries=(str(tmp_path / "k.so"),))).run(feeds)
    np.testing.assert_allclose(fast, plain, rtol=1e-5, atol=1e-7)
    restored = without_kernels(changed)
    assert restored.graph.node == proto.graph.node
    assert {t.name for t in restored.graph.initializer} == {t.name for t in proto.graph.initializer}
    assert (restored.opset_import, len(restored.functions)) == (proto.opset_import, 0)
    assert without_kernels(proto) is proto
    with_other = Session(proto.SerializeToString(), Device(libraries=(str(tmp_path / "k.so"),)))
    assert np.array_equal(with_other.run(feeds)[0], plain)


def with_library(proto: onnx.ModelProto, folder: Path) -> tuple[onnx.ModelProto, Device]:
    """Return the model with kernels for all groups of its nodes, and a device with the kernels' library."""
    original = as_model(proto)
    replaced = with_kernels(original, list(kernel_groups(Chart(original), native_target(), 1 << 40)), native_target())
    build(replaced.source, folder / "k.so", native_target())
    return as_proto(replaced.model), Device(libraries=(str(folder / "k.so"),))


def test_models_are_compared_with_a_library_of_kernels(tmp_path: Path) -> None:
    proto = small_model()
    changed, device = with_library(proto, tmp_path)
    plain, fast = (
        superopt.compare(proto, changed, threads=1, seconds=0.2, libraries=libraries) for libraries in ((), device.libraries)
    )
    assert plain.outputs[0].largest == 0
    assert 0 <= fast.outputs[0].relative < 1e-5
    assert fast.libraries == device.libraries
    texts = []
    for compared in (plain, fast):
        console = Console(width=300, file=io.StringIO())
        with console.capture() as shown:
            console.print(comparison_summary(compared))
        texts.append(shown.get())
    assert "--library" in texts[0]
    assert device.libraries[0] in texts[1]
    with pytest.raises(InvalidModelError, match=r"cannot load the library .*none\.so"):
        superopt.compare(proto, changed, threads=1, seconds=0.2, libraries=[tmp_path / "none.so"])


def test_omitted_outputs_do_not_join_a_group(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("LayerNormalization", ["x", "s"], ["n", ""]),
        helper.make_node("Mul", ["n", "n"], ["y"]),
        helper.make_node("Dropout", ["x"], ["d", ""]),
        helper.make_node("Sin", ["d"], ["z"]),
    ]
    proto = model(nodes, {"x": (3, 24)}, {"y": (3, 24), "z": (3, 24)}, [weight("s", 24)])
    changed, device = with_library(proto, tmp_path)
    assert {n.op_type for n in changed.graph.node} == {"island_0", "Dropout", "Sin"}
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 24)).astype(np.float32)}
    wanted = Session(proto.SerializeToString(), Device()).run(feeds)
    for some, other in zip(Session(changed.SerializeToString(), device).run(feeds), wanted, strict=True):
        np.testing.assert_allclose(some, other, rtol=1e-5, atol=1e-6)


def test_a_group_does_not_read_what_depends_on_its_shapes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Mul", ["r", "x"], ["a"]),
        helper.make_node("Shape", ["a"], ["shape"]),
        helper.make_node("Expand", ["w", "shape"], ["e"]),
        helper.make_node("Mul", ["a", "e"], ["m"]),
        helper.make_node("Tanh", ["m"], ["y"]),
    ]
    proto = model(nodes, {"x": (3, 24)}, {"y": (3, 24)}, [weight("w", 24)])
    changed, device = with_library(proto, tmp_path)
    assert [n.op_type for n in changed.graph.node] == ["island_0", "Shape", "Expand", "island_1"]
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 24)).astype(np.float32)}
    (wanted,) = Session(proto.SerializeToString(), Device()).run(feeds)
    for one in (Device(), device):
        np.testing.assert_allclose(Session(changed.SerializeToString(), one).run(feeds)[0], wanted, rtol=1e-5, atol=1e-6)


def test_operators_that_no_function_may_contain_have_no_kernel(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("SimplifiedLayerNormalization", ["b", "s"], ["n"]),
        helper.make_node("Mul", ["n", "n"], ["c"]),
        helper.make_node("Tanh", ["c"], ["y"]),
    ]
    port = helper.make_tensor_value_info
    inputs, outputs = ([port(name, onnx.TensorProto.FLOAT, [3, 24])] for name in ("x", "y"))
    graph = helper.make_graph(nodes, "norm", inputs, outputs, [weight("s", 24)])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    changed, _ = with_library(proto, tmp_path)
    assert [n.op_type for n in changed.graph.node] == ["island_0", "SimplifiedLayerNormalization", "island_1"]
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 24)).astype(np.float32)}
    (wanted,), (got,) = (Session(one.SerializeToString(), Device()).run(feeds) for one in (proto, changed))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_threads_share_nests(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["m"]),
        helper.make_node("Tanh", ["m"], ["h"]),
        helper.make_node("Softmax", ["h"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    ports = [info("i", onnx.TensorProto.INT64, [300])], [info("y", onnx.TensorProto.FLOAT, [300, 200])]
    graph = helper.make_graph(nodes, "rows", *ports, [weight("table", 500, 128), weight("w", 128, 200)])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    changed, device = with_library(proto, tmp_path)
    assert "workers->share(workers" in (tmp_path / "k.c").read_text()
    feeds = {"i": np.random.default_rng(1).integers(-500, 500, 300)}
    (wanted,) = Session(proto.SerializeToString(), Device()).run(feeds)
    results = []
    for threads in (1, 2, 3):
        session = Session(changed.SerializeToString(), replace(device, threads=threads))
        results += session.run(feeds)
        with pytest.raises(InvalidModelError, match="while running island_0"):
            session.run({"i": np.full(300, 500)})
        results += session.run(feeds)
    np.testing.assert_allclose(results[0], wanted, rtol=1e-4, atol=1e-6)
    assert all(np.array_equal(one, results[0]) for one in results)


def test_stored_weights_get_names_that_the_model_does_not_use(tmp_path: Path) -> None:
    taken = [f"superopt.island_0.{i}" for i in range(3)]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], [taken[0]]),
        helper.make_node("Add", [taken[0], taken[1]], ["y"]),
        helper.make_node("Sin", ["y"], [taken[2]]),
    ]
    proto = model(nodes, {"x": (3, 24)}, {taken[2]: (3, 128)}, [weight("w", 24, 128), weight(taken[1], 128)])
    changed, device = with_library(proto, tmp_path)
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 24)).astype(np.float32)}
    (wanted,) = Session(proto.SerializeToString(), Device()).run(feeds)
    for one in (Device(), device):
        np.testing.assert_allclose(Session(changed.SerializeToString(), one).run(feeds)[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of the process is read from /proc")
def test_threads_that_end_free_their_scratch_memory(tmp_path: Path) -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["s"], axis=0), helper.make_node("Softmax", ["s"], ["y"], axis=1)]
    changed, device = with_library(model(nodes, {"x": (512, 512)}, {"y": (512, 512)}), tmp_path)
    session = Session(changed.SerializeToString(), device)
    feeds = {"x": np.ones((512, 512), np.float32)}

    def size_after(count: int) -> int:
        for _ in range(count):
            thread = threading.Thread(target=session.run, args=(feeds,))
            thread.start()
            thread.join()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = size_after(5)
    assert size_after(60) - before < 30 * 512 * 512 * 4


def saved_with_kernels(folder: Path, proto: onnx.ModelProto) -> Path:
    """Save a model with kernels for all groups of its nodes, next to the library and its source, and return the path."""
    original, path = as_model(proto), folder / "out.onnx"
    replaced = with_kernels(original, list(kernel_groups(Chart(original), native_target(), 1 << 40)), native_target())
    build(replaced.source, folder / "k.so", native_target())
    onnx.save(as_proto(replaced.model), path)
    use = KernelUse(1, 5, 0.1, 1.1, 1.2, 1.0)
    KernelLibrary(replaced.source, (folder / "k.so").read_bytes(), use).save(path)
    return path


def test_kernels_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved_with_kernels(tmp_path, small_model())
    size = (tmp_path / "out.kernels.so").stat().st_size
    shown = library_lines(path)
    domain = onnx.load(path).functions[0].domain
    assert shown == [
        "island_0: 5 nodes (MatMul 2, Add, Tanh, Softmax)",
        "    inputs: x (3, 24)",
        "    weights: b (40,), w (24, 40), v (40, 8)",
        "    outputs: y (3, 8)",
        shown[4],
        f"library: {tmp_path / 'out.kernels.so'} ({size / 1024:.0f} KiB)",
        f"source: {tmp_path / 'out.kernels.c'}, digest {domain.removeprefix('superopt.kernels.')}",
        f"compiler: {compiler_version()}",
        f"flags: {' '.join(flags_of(native_target()))}",
        f"vectors: {native_target().lanes} float32 numbers ({VECTORS[native_target().lanes]})",
    ]
    assert re.fullmatch(r"    scratch memory: \d+ bytes", shown[4])
    assert library_lines(tmp_path / "out.kernels.so") == library_lines(tmp_path / "out.kernels.c") == shown
    assert main(["kernels", "show", str(path), "--source", "island_0"]) == 0
    code = capsys.readouterr().out
    assert code.startswith("static void run_island_0")
    assert code in (tmp_path / "out.kernels.c").read_text()
    onnx.save(small_model(), tmp_path / "in.onnx")
    assert library_lines(tmp_path / "in.onnx") == [f"{tmp_path / 'in.onnx'} calls no kernels"]
    path.unlink()
    assert library_lines(tmp_path / "out.kernels.so")[1:4] == ["    inputs: (3, 24)", "    weights: 3", "    outputs: (3, 8)"]


def test_kernels_that_cannot_be_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved_with_kernels(tmp_path, small_model())
    for name, content in {"bad.onnx": "no model", "bad.kernels.c": "no source", "bad.so": "", "alone.kernels.so": ""}.items():
        (tmp_path / name).write_text(content)
        assert main(["kernels", "show", str(tmp_path / name)]) == InvalidModelError.exit_code
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["kernels", "show", str(tmp_path / "absent.onnx")]) == ModelNotFoundError.exit_code
    for arguments in ([str(path), "--source", "island_9"], [str(tmp_path / "absent.kernels.so")]):
        assert main(["kernels", "show", *arguments]) in (InvalidModelError.exit_code, ModelNotFoundError.exit_code)
        assert capsys.readouterr().err.count("\n") > 0
    (tmp_path / "out.kernels.c").unlink()
    assert main(["kernels", "show", str(path), "--source", "island_0"]) == InvalidModelError.exit_code
    assert library_lines(path)[-1] == f"source: {tmp_path / 'out.kernels.c'} (missing)"


def test_verify_makes_the_library_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved_with_kernels(tmp_path, small_model())
    source, file = tmp_path / "out.kernels.c", tmp_path / "out.kernels.so"
    text, content = source.read_text(), file.read_bytes()
    certified = KernelLibrary(text, content, KernelUse(1, 5, 0.1, 1.1, 1.2, 1.0)).described
    assert {"compiler": compiler_version(), "flags": " ".join(flags_of(native_target()))}.items() <= certified.items()
    for known in (certified, {}):
        assert check_library(path, known).endswith("out.kernels.so is compiled from it")

    def refused(message: str, known: dict[str, str]) -> None:
        with pytest.raises(CertificateError, match=message):
            check_library(path, known)

    file.write_bytes(content + b"0")
    refused("not the library that the certificate names", certified)
    refused("not the library that the compiler builds", {})
    with monkeypatch.context() as patch:
        patch.setattr(kernel_library, "build", lambda source, path, target: path.write_text(path.name))
        assert check_library(path, {}).endswith("the compiler makes other bytes each time")
    file.write_bytes(content)
    domain = onnx.load(path).functions[0].domain
    for changed, message in {
        text.replace("1.44269504f", "1.4426950f"): "not the source that this superopt generates",
        text.replace("-O3", "-O2"): "not the source that this superopt generates",
        text.replace(domain, "superopt.kernels.0"): "not the source of the kernels that",
        text.replace(" */", " */ int x; /* a, -O3 */", 1): "not the source of a library",
        "nothing": "not the source of a library",
    }.items():
        source.write_text(changed)
        refused(message, {})
        refused("not the source", certified)
    source.write_text(text)
    refused("not the source that the certificate names", {**certified, "flags": "-O2"})

    def absent(_: Target) -> str:
        raise CompilerError("no compiler")

    for here, why in {lambda _: "clang 1, -O3": f"by {compiler_version()}, and here is clang 1", absent: "no compiler"}.items():
        monkeypatch.setattr(kernel_library, "compilation", here)
        assert check_library(path, certified).endswith(why)
    file.unlink()
    assert check_library(path, certified).endswith("out.kernels.so is missing")
    source.unlink()
    assert check_library(path, certified).endswith("the kernels were not checked")


@pytest.mark.parametrize("change", ["order", "outputs", "weight"])
def test_verify_compares_what_a_call_passes_to_its_kernel(change: str, tmp_path: Path) -> None:
    nodes = [helper.make_node("Sub", ["a", "b"], ["s"]), helper.make_node("Tanh", ["s"], ["t"])]
    nodes += [helper.make_node("Neg", ["t"], ["n"]), helper.make_node("MatMul", ["n", "w"], ["y"])]
    path = saved_with_kernels(
        tmp_path, model(nodes, {"a": (3, 24), "b": (3, 24)}, {"y": (3, 128), "t": (3, 24)}, [weight("w", 24, 128)])
    )
    assert check_library(path, {}).endswith("out.kernels.so is compiled from it")
    proto = onnx.load(path)
    (call,), (function,) = proto.graph.node, proto.functions
    if change == "weight":
        (panels,) = (tensor for tensor in proto.graph.initializer if tensor.name.startswith("superopt."))
        panels.CopyFrom(numpy_helper.from_array(-3 * numpy_helper.to_array(panels), panels.name))
    else:
        names = (call.input, function.input) if change == "order" else (call.output, function.output)
        for one in names:
            one[:] = [*reversed(one)]
    onnx.save(proto, path)
    with pytest.raises(CertificateError, match="passes other values"):
        check_library(path, {})


def test_verify_reports_a_folder_in_place_of_a_library(tmp_path: Path) -> None:
    path = saved_with_kernels(tmp_path, small_model())
    for end in ("so", "c"):
        file = tmp_path / f"out.kernels.{end}"
        content = file.read_bytes()
        file.unlink()
        file.mkdir()
        with pytest.raises(CertificateError, match="is a directory"):
            check_library(path, {})
        file.rmdir()
        file.write_bytes(content)


@pytest.mark.parametrize("change", ["inputs", "opset"])
def test_verify_refuses_a_call_that_gives_other_values_to_its_function(change: str, tmp_path: Path) -> None:
    nodes = [helper.make_node("Sub", ["a", "b"], ["s"]), helper.make_node("Tanh", ["s"], ["y"])]
    proto = onnx.load(saved_with_kernels(tmp_path, model(nodes, {"a": (64,), "b": (64,)}, {"y": (64,)})))
    (call,), (function,) = proto.graph.node, proto.functions
    if change == "inputs":
        call.input[:] = reversed(call.input)
    else:
        function.opset_import[0].version -= 1
    with pytest.raises(CertificateError, match="not the one that superopt wrote"):
        without_kernels(proto)


@pytest.mark.slow
def test_optimize_writes_a_library_and_its_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = superopt.optimize(small_model(), kernels=True, budget=1, threads=1, cache=tmp_path / "cache")
    assert result.report.kernels is not None
    assert result.report.accepted
    assert result.report.kernels.low > 1
    onnx.save(small_model(), tmp_path / "in.onnx")
    result.save(tmp_path / "out.onnx")
    (tmp_path / "steps.json").write_text(result.certificate)
    arguments = [str(tmp_path / name) for name in ("in.onnx", "out.onnx", "steps.json")]
    assert main(["verify", *arguments[:2], "--certificate", arguments[2]]) == 0
    assert "out.kernels.so is compiled from it" in capsys.readouterr().out
    certified = parse_certificate(result.certificate).kernels
    assert certified == result.library.described  # type: ignore[union-attr]
    assert (tmp_path / "out.kernels.c").read_text() == result.library.source  # type: ignore[union-attr]
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 24)).astype(np.float32)}
    for device in (Device(), Device(libraries=(str(tmp_path / "out.kernels.so"),))):
        (got,) = Session(tmp_path / "out.onnx", device).run(feeds)
        (wanted,) = Session(small_model().SerializeToString(), Device()).run(feeds)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-7)


def test_the_report_names_the_library_with_its_folder() -> None:
    assert library_step("out.kernels.so").endswith("('./out.kernels.so')")
    assert library_step("a folder/out.kernels.so").endswith("('a folder/out.kernels.so')")
    assert ast.literal_eval(library_step("it's/k.so").partition("library")[2]) == "it's/k.so"


def test_nothing_is_written_if_the_library_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed, _ = with_library(small_model(), tmp_path)
    result = superopt.optimize(small_model(), budget=0.1, threads=1, cache=tmp_path / "cache")
    use = KernelUse(1, 5, 0.1, 1.1, 1.2, 1.0)
    made = replace(result, model=changed, library=KernelLibrary("source", b"library", use))
    made.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.kernels.so").read_bytes() == b"library"
    for name in ("out.kernels.so", "out.kernels.c"):
        (tmp_path / name).unlink()
        (tmp_path / name).mkdir()
        (tmp_path / "out.onnx").write_bytes(b"old")
        with pytest.raises(TargetError, match="folder"):
            made.save(tmp_path / "out.onnx")
        assert (tmp_path / "out.onnx").read_bytes() == b"old"
        onnx.save(small_model(), tmp_path / "in.onnx")
        assert main(["optimize", str(tmp_path / "in.onnx"), str(tmp_path / "out.onnx"), "--kernels"]) == TargetError.exit_code
        assert "the path is a folder" in capsys.readouterr().err
        (tmp_path / name).rmdir()
        (tmp_path / name).write_bytes(b"old")


def test_a_missing_compiler_is_an_error_before_the_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library.compiler.cache_clear()
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(library, "find_spec", lambda _: None)
    try:
        with pytest.raises(CompilerError, match="install gcc, clang or"):
            superopt.optimize(small_model(), kernels=True)
    finally:
        library.compiler.cache_clear()


def test_a_compiler_that_fails_is_an_error_before_the_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "gcc").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "gcc").chmod(0o755)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    library.compiler.cache_clear()
    library.native_target.cache_clear()
    with pytest.raises(CompilerError, match="a C compiler that works"):
        superopt.optimize(small_model(), kernels=True)


def run_with_library(proto: onnx.ModelProto, feeds: dict[str, Any], folder: Path) -> list[Any]:
    """Run the model with kernels for all groups of its nodes, and return the outputs."""
    changed, device = with_library(proto, folder)
    assert any(node.op_type.startswith("island") for node in changed.graph.node)
    return Session(changed.SerializeToString(), device).run(feeds)


def test_nodes_that_read_more_values_have_another_domain(tmp_path: Path) -> None:
    axes = onnx.numpy_helper.from_array(np.array([0]), "axes")
    domains = set()
    for opset in (11, 13):
        old = opset < 13
        nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Tanh", ["e"], ["t"])]
        given: dict[str, Any] = {"axes": [0]} if old else {}
        unsqueezed = helper.make_node("Unsqueeze", ["t"] if old else ["t", "axes"], ["y"], **given)
        proto = model([*nodes, unsqueezed], {"x": (64,)}, {"y": (1, 64)}, [] if old else [axes], opset=opset)
        folder = tmp_path / str(opset)
        folder.mkdir()
        changed, device = with_library(proto, folder)
        (call,) = changed.graph.node
        domains.add(call.domain)
        Session(changed.SerializeToString(), device).run({"x": np.zeros(64, np.float32)})
    assert len(domains) == 2


def test_a_division_by_a_constant_is_a_division(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Div", ["r", "c"], ["d"])]
    nodes += [helper.make_node("Floor", ["d"], ["y"])]
    divisor = onnx.numpy_helper.from_array(np.array(41, np.float32), "c")
    proto = model(nodes, {"x": (64,)}, {"y": (64,)}, [divisor])
    (y,) = run_with_library(proto, {"x": np.arange(64, dtype=np.float32) * 41}, tmp_path)
    np.testing.assert_array_equal(y, np.arange(64))


def test_equal_products_cancel_exactly(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", [x, x], [x + "2"]) for x in "ab"]
    nodes += [helper.make_node("Sub", ["a2", "b2"], ["s"]), helper.make_node("Sqrt", ["s"], ["y"])]
    proto = model(nodes, {"a": (64,), "b": (64,)}, {"y": (64,)})
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    (y,) = run_with_library(proto, {"a": x, "b": x}, tmp_path)
    np.testing.assert_array_equal(y, np.zeros(64))


def test_large_values_pass_through_rectifiers(tmp_path: Path) -> None:
    x = np.array([3e38, 2.0, -2.0, -3e38, 0.0, np.nan, np.inf, -np.inf], np.float32)
    nodes = [helper.make_node("PRelu", ["x", "w"], ["p"]), helper.make_node("LeakyRelu", ["p"], ["y"], alpha=2.0)]
    proto = model(nodes, {"x": (8,)}, {"y": (8,)}, [weight("w", 8)])
    (wanted,) = Session(proto.SerializeToString(), Device()).run({"x": x})
    (y,) = run_with_library(proto, {"x": x}, tmp_path)
    np.testing.assert_allclose(y, wanted, rtol=1e-6)


def test_equal_outputs_are_copies(tmp_path: Path) -> None:
    nodes = [helper.make_node("Tanh", ["x"], [name]) for name in "ab"]
    nodes += [helper.make_node("MatMul", ["x", "w"], [name]) for name in "cd"]
    proto = model(nodes, {"x": (4, 8)}, {"a": (4, 8), "b": (4, 8), "c": (4, 8), "d": (4, 8)}, [weight("w", 8, 8)])
    feeds = {"x": np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)}
    wanted = Session(proto.SerializeToString(), Device()).run(feeds)
    for one, other in zip(run_with_library(proto, feeds, tmp_path), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_models_of_one_folder_have_libraries_of_their_own(tmp_path: Path) -> None:
    assert library_files(tmp_path / "m.onnx") == (tmp_path / "m.kernels.so", tmp_path / "m.kernels.c")
    models = [tmp_path / name for name in ("m.onnx", "m.pb", "m.pb.onnx", "m", "m.kernels", "m.kernels.onnx", "m-kernels.onnx")]
    files = [file for one in models for file in library_files(one)]
    assert len({*files, *models}) == len(files) + len(models)
    assert all(model_of_library(file) == one for one in models for file in library_files(one))
    assert model_of_library(tmp_path / "m.so") is None


def test_kernels_need_a_mode_that_permits_rounding() -> None:
    with pytest.raises(ValueError, match="kernels=True requires the mode relaxed or fast"):
        superopt.optimize(small_model(), kernels=True, fp="precise")


def test_kernels_need_a_cpu_and_measured_times(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="kernels=True requires the provider cpu"):
        superopt.optimize(small_model(), kernels=True, device_profile=tmp_path / "profile.json")


def test_an_output_that_is_an_input_has_no_kernel() -> None:
    with pytest.raises(UnsupportedError):
        program_of({"y": parse("x", {"x": variable("x", (3,))})[0]}, 8)


@pytest.mark.slow
def test_a_model_with_kernels_is_optimized_like_its_nodes(tmp_path: Path) -> None:
    options: Options = {"kernels": True, "budget": 1, "threads": 1, "cache": tmp_path / "cache"}
    first = superopt.optimize(small_model(), **options)
    second = superopt.optimize(first.model, **options)
    assert second.report.kernels is not None
    assert second.report.kernels.low > 1


@pytest.mark.slow
def test_weights_that_are_inputs_stay_so(tmp_path: Path) -> None:
    proto = small_model()
    proto.ir_version = 3
    info = helper.make_tensor_value_info
    proto.graph.input.extend(info(w.name, w.data_type, w.dims) for w in proto.graph.initializer)
    result = superopt.optimize(proto, kernels=True, budget=1, threads=1, cache=tmp_path / "cache")
    assert result.report.kernels is None
    assert result.model.ir_version == 3


def test_a_table_with_one_row_has_no_second_row(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gather", ["table", "i"], ["rows"]), helper.make_node("Relu", ["rows"], ["y"])]
    info = helper.make_tensor_value_info
    ports = [info("i", onnx.TensorProto.INT64, [2])], [info("y", onnx.TensorProto.FLOAT, [2, 32])]
    graph = helper.make_graph(nodes, "row", *ports, [weight("table", 1, 32)])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    changed, device = with_library(proto, tmp_path)
    session = Session(changed.SerializeToString(), device)
    (got,) = session.run({"i": np.array([0, -1])})
    assert np.array_equal(got, Session(proto.SerializeToString(), Device()).run({"i": np.array([0, -1])})[0])
    with pytest.raises(InvalidModelError, match="while running island_0"):
        session.run({"i": np.array([0, 1])})


@pytest.mark.parametrize("kind", [onnx.TensorProto.INT32, onnx.TensorProto.INT64])
def test_rows_at_positions_of_run_time_are_looked_up(kind: int, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    ports = [info("i", kind, [5])], [info("y", onnx.TensorProto.FLOAT, [5, 33])]
    graph = helper.make_graph(nodes, "rows", *ports, [weight("table", 50, 20), weight("w", 20, 33)])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    original = as_model(proto)
    groups = list(kernel_groups(Chart(original), native_target(), 1 << 40))
    assert [len(group.island.nodes) for group in groups] == [3]
    replaced = with_kernels(original, groups, native_target())
    build(replaced.source, tmp_path / "k.so", native_target())
    feeds = {"i": np.array([0, 49, -1, -50, 7], onnx.helper.tensor_dtype_to_np_dtype(kind))}
    device = Device(libraries=(str(tmp_path / "k.so"),))
    (fast,) = Session(as_proto(replaced.model).SerializeToString(), device).run(feeds)
    (plain,) = Session(proto.SerializeToString(), Device()).run(feeds)
    np.testing.assert_allclose(fast, plain, rtol=1e-5, atol=1e-5)
    with pytest.raises(InvalidModelError, match="while running island_0"):
        Session(as_proto(replaced.model).SerializeToString(), device).run({"i": feeds["i"] + 1})


def test_a_reduction_is_not_computed_at_a_position_that_is_looked_up(tmp_path: Path) -> None:
    terms = terms_of("lookup(x @ y, i)", x=(5, 6), y=(6, 8), i=(5,))
    assert differences(programs_of(terms, SMALL), SMALL, tmp_path) == []
