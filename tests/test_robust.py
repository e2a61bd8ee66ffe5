"""Failures that do not end a run: windows stay unchanged, and malformed models are refused. Wide and deep models are
searched.
"""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import superopt
from superopt.algebra.dim_binding import DimBinding
from superopt.budget import expired, limit_memory_growth
from superopt.child.process import Child, reuse_child
from superopt.cost.first_run import first_run
from superopt.errors import (
    CertificateError,
    DimensionError,
    InvalidModelError,
    ProviderError,
    RuntimeDiedError,
    ShapeError,
    failure,
)
from superopt.flows.report_fields import unsearched_segment_counts
from superopt.model.bodies import TOP
from superopt.model.islands import Chart
from superopt.model.load import as_model, as_proto, load
from superopt.policy import COST, OPTIMIZATION
from superopt.protobuf.validate import require_well_formed
from superopt.runtime.bounds import IndexRange, index_bounds
from superopt.runtime.feasible import Feasible, find_feasible
from superopt.runtime.input_source import DRAWN
from superopt.runtime.multi_shape import ComparisonSettings, compare_at_all_sizes
from superopt.runtime.session import Device, Port, Session, random_inputs
from superopt.runtime.trial_runs import TrialSession, require_loads
from superopt.search import roofline
from superopt.search.backtracking import SearchResult
from superopt.search.segments import Gain, relower, segments, whole_islands
from superopt.search.selection import splice_fitting
from superopt.verification.certificates import parse_certificate

pytestmark = pytest.mark.slow


def weight(name: str, *shape: int) -> TensorProto:
    rng = np.random.default_rng(sum(map(ord, name)))
    return numpy_helper.from_array((rng.standard_normal(shape) / 8).astype(np.float32), name)


def port(name: str, shape: Sequence[int | str | None], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[TensorProto] = (),
    opset: int = 17,
) -> ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def linear(width: int = 8) -> ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    return model(nodes, [port("x", ["N", width])], [port("y", ["N", width])], [weight("w", width, width)])


# ---------------------------------------------------------------- windows


def test_a_failure_of_one_window_is_one_line_and_one_of_the_device_is_raised() -> None:
    assert failure(ShapeError("no\n such shape")) == "no such shape"
    assert failure(KeyError("x")) == "KeyError: 'x'"
    assert len(failure(ValueError("long " * 100))) <= 160
    with pytest.raises(ProviderError):
        failure(ProviderError("the device is gone"))


def test_gains_that_cannot_be_lowered_are_dropped_and_the_others_taken() -> None:
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"p{i}"]) for i in range(4)]
    nodes += [helper.make_node("Sin", [f"p{i}"], [f"s{i}"]) for i in range(4)]
    nodes += [helper.make_node("Relu", [f"s{i}"], [f"y{i}"]) for i in range(4)]
    shapes = [port(f"y{i}", [2, 8]) for i in range(4)]
    given = as_model(model(nodes, [port("x", [2, 8])], shapes, [weight(f"w{i}", 8, 8) for i in range(4)]))
    parts = segments(Chart(given), {TOP: 1.0})
    gains = [Gain((part,), SearchResult(part.state, (), 0.0, 0.0, 0, ""), ()) for part in parts]
    made, taken, dropped = splice_fitting(given, gains)
    assert taken == gains
    assert not dropped

    class Broken(Gain):
        def replacements(self):  # type: ignore[no-untyped-def]
            raise ShapeError("it cannot be lowered")

    broken = Broken(gains[1].copies, gains[1].found, ())
    made, taken, dropped = splice_fitting(given, [gains[0], broken, *gains[2:]])
    assert taken == [gains[0], *gains[2:]]
    assert unsearched_segment_counts(dropped) == {"it cannot be lowered": 1}
    feeds = {"x": np.ones((2, 8), np.float32)}
    for one, other in zip(*(Session(m, Device()).run(feeds) for m in (as_proto(given), as_proto(made))), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_window_that_is_not_defined_at_the_sizes_that_are_tried_is_left() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"]),
        helper.make_node("Min", ["n", "four"], ["k"]),
        helper.make_node("Slice", ["x", "zero", "k", "zero"], ["rows"]),
        helper.make_node("MatMul", ["rows", "a"], ["p"]),
        helper.make_node("MatMul", ["rows", "b"], ["q"]),
        helper.make_node("Add", ["p", "q"], ["y"]),
    ]
    stored = [weight("a", 8, 8), weight("b", 8, 8)]
    stored += [numpy_helper.from_array(np.array([n], np.int64), name) for n, name in ((0, "zero"), (4, "four"))]
    given = model(nodes, [port("x", ["N", 8])], [port("y", ["M", 8])], stored)
    report = superopt.optimize(given, budget=0.5).report
    assert "windows_left" in json.loads(report.json())
    assert not report.failed


# ---------------------------------------------------------------- wide and deep models


def wide(op: str, count: int) -> ModelProto:
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"m{i}"]) for i in range(count)]
    attributes: dict[str, Any] = {"axis": 1} if op == "Concat" else {}
    nodes.append(helper.make_node(op, [f"m{i}" for i in range(count)], ["y"], **attributes))
    width = 4 * count if op == "Concat" else 4
    return model(nodes, [port("x", [2, 8])], [port("y", [2, width])], [weight(f"w{i}", 8, 4) for i in range(count)])


def deep(count: int, ops: Sequence[str]) -> ModelProto:
    operands = {"MatMul": ["a"], "Add": ["b"], "Mul": ["b"]}
    nodes = [
        helper.make_node(ops[i % len(ops)], ["x" if not i else f"t{i}", *operands.get(ops[i % len(ops)], [])], [f"t{i + 1}"])
        for i in range(count)
    ]
    return model(nodes, [port("x", [2, 8])], [port(f"t{count}", [2, 8])], [weight("a", 8, 8), weight("b", 8)])


def relowered(given: ModelProto) -> None:
    """Lift the model, estimate and canonicalize each island as a search does, and lower the islands again."""
    loaded = load(given).model
    parts = whole_islands(Chart(loaded), {TOP: 1.0})
    assert parts
    assert all(np.isfinite(roofline.estimate_seconds(part.state, roofline.CPU)) for part in parts)
    made, taken, dropped = splice_fitting(loaded, relower(parts, []))
    assert len(taken) == len(parts)
    assert not dropped
    feeds = {"x": np.ones((2, 8), np.float32)}
    one, other = (Session(m, Device(), optimize=False).run(feeds)[0] for m in (given, as_proto(made)))
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("op", ["Concat", "Sum", "Max"])
def test_wide_nodes_do_not_recurse(op: str) -> None:
    relowered(wide(op, 1000 if op == "Sum" else 600))


@pytest.mark.parametrize("ops", [("MatMul", "Add", "Relu"), ("Add",)])
def test_deep_chains_do_not_recurse(ops: Sequence[str]) -> None:
    relowered(deep(1500, ops))


def test_a_long_chain_of_sums_is_cut_and_a_short_one_is_one_term() -> None:
    assert len(Chart(as_model(deep(200, ("Add",)))).islands()) == 1
    long = Chart(as_model(deep(1000, ("Add",)))).islands()
    assert len(long) == 4
    assert sum(len(island.nodes) for island in long) == 1000


# ---------------------------------------------------------------- malformed models


def initializer(change: Callable[[TensorProto], object]) -> Callable[[ModelProto], object]:
    return lambda m: change(m.graph.initializer[0])


def dims(*extents: int) -> Callable[[ModelProto], object]:
    return initializer(lambda t: (t.ClearField("dims"), t.dims.extend(extents)))


MALFORMED: Mapping[str, tuple[Callable[[ModelProto], object], str]] = {
    "more elements than bytes": (dims(2**31 - 1, 8), "ask for"),
    "2^31 rows": (dims(2**31, 8), "more than"),
    "a negative dimension": (dims(-8, 8), "negative"),
    "fewer elements than bytes": (dims(8, 7), "ask for"),
    "undefined element type": (initializer(lambda t: setattr(t, "data_type", 0)), "element type 0"),
    "unknown element type": (initializer(lambda t: setattr(t, "data_type", 77)), "element type 77"),
    "no data": (initializer(lambda t: t.ClearField("raw_data")), "the tensor has 0"),
    "segments": (initializer(lambda t: setattr(t.segment, "begin", 1)), "segments"),
    "2^31 rows of an input": (
        lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", 2**31),
        "a dimension of",
    ),
    "an input of an undefined type": (lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 0), "element type 0"),
    "a value nobody computes": (lambda m: m.graph.node[1].input.__setitem__(0, "q"), "which nothing computes"),
    "an output nobody computes": (lambda m: setattr(m.graph.output[0], "name", "q"), "no node computes"),
    "a value computed twice": (lambda m: m.graph.node[0].output.__setitem__(0, "y"), "computed twice"),
    "a computed input": (lambda m: m.graph.node[0].output.__setitem__(0, "x"), "which nothing|is computed, and"),
    "an input listed twice": (lambda m: m.graph.input.add().CopyFrom(m.graph.input[0]), "listed twice"),
    "a node without operator": (lambda m: m.graph.node[0].ClearField("op_type"), "no operator"),
    "a node without output": (lambda m: m.graph.node[1].ClearField("output"), "no output"),
    "an attribute without type": (lambda m: m.graph.node[0].attribute.add(name="a"), "no type"),
    "an attribute twice": (
        lambda m: m.graph.node[0].attribute.extend([helper.make_attribute("a", 1), helper.make_attribute("a", 2)]),
        "twice",
    ),
    "a cycle": (lambda m: m.graph.node[0].input.__setitem__(0, "y"), "cycle"),
    "opset -1": (lambda m: setattr(m.opset_import[0], "version", -1), "opset version -1"),
    "two opsets": (lambda m: m.opset_import.add(domain="ai.onnx", version=11), "two versions"),
    "an initializer twice": (lambda m: m.graph.initializer.add().CopyFrom(m.graph.initializer[0]), "stored twice"),
    "sparse initializers": (lambda m: m.graph.sparse_initializer.add(), "sparse"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_model_is_refused_in_one_line(name: str) -> None:
    change, message = MALFORMED[name]
    proto = linear()
    change(proto)
    with pytest.raises(InvalidModelError, match=message) as refused:
        load(proto)
    assert "\n" not in str(refused.value)


def test_a_model_that_is_read_but_cannot_be_written_is_refused_in_one_line() -> None:
    proto = linear()
    proto.ir_version = 11
    proto.graph.node[0].device_configurations.add()
    with pytest.raises(InvalidModelError, match="the model cannot be written"):
        superopt.optimize(proto, budget=0.1, moves=())


@pytest.mark.parametrize("field", ["name", "op_type", "domain", "input", "metadata"])
def test_text_that_is_not_utf8_is_refused(field: str, tmp_path: Path) -> None:
    proto = linear()
    node = proto.graph.node[0]
    if field == "input":
        node.input[1] = proto.graph.initializer[0].name = "marked"
    elif field == "metadata":
        proto.metadata_props.add(key="marked", value="1")
    else:
        setattr(node, field, "marked")
    path = tmp_path / "in.onnx"
    path.write_bytes(proto.SerializeToString().replace(b"marked", b"\x9darked"))
    with pytest.raises(InvalidModelError, match="UTF-8"):
        load(path)


def test_names_beyond_ascii_are_taken() -> None:
    proto = linear()
    proto.graph.node[0].name = "größe"
    load(proto)


@pytest.mark.parametrize(
    "kind", [TensorProto.FLOAT16, TensorProto.INT8, TensorProto.BOOL, TensorProto.DOUBLE, TensorProto.INT4]
)
def test_tensors_of_every_kind_of_storage_are_taken(kind: int) -> None:
    for raw in (False, True):
        proto = linear()
        values = np.ones(6)
        if raw:
            array = values.astype(helper.tensor_dtype_to_np_dtype(kind))
            tensor = numpy_helper.from_array(array, "spare")
        else:
            tensor = helper.make_tensor("spare", kind, [2, 3], values)
        proto.graph.initializer.append(tensor)
        require_well_formed(proto, "m")


def test_json_that_nests_too_deep_is_no_certificate() -> None:
    for text in ("[" * 100_000, '{"form": 1, "a": ' * 50_000):
        with pytest.raises(CertificateError):
            parse_certificate(text)


# ---------------------------------------------------------------- outputs


def test_an_output_of_another_shape_than_declared_is_bound_anew_for_each_run() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["y"])]
    given = model(nodes, [port("x", [4])], [port("y", [1, 2], TensorProto.INT64)])
    bound = Session(given, Device()).bind({"x": np.array([1, 0, 2, 3], np.float32)})
    assert bound.seconds(3) > 0
    np.testing.assert_array_equal(bound.outputs()[0], [[0, 2, 3]])
    plain = Session(linear(), Device()).bind({"x": np.ones((2, 8), np.float32)})
    assert plain.seconds(3) > 0
    assert plain.outputs()[0].shape == (2, 8)


def test_an_output_that_is_listed_twice_has_its_values_twice() -> None:
    proto = linear()
    proto.graph.output.add().CopyFrom(proto.graph.output[0])
    feeds = {"x": np.ones((2, 8), np.float32)}
    one, other = Session(proto, Device()).bind(feeds).outputs()
    np.testing.assert_array_equal(one, other)
    assert superopt.optimize(proto, budget=0.3).report.failed == ""


# ---------------------------------------------------------------- the first run


DYING = """
import os, signal, sys, time
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
while True:
    request, *_ = connection.recv()
    if request == "sleep":
        time.sleep(60)
    os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_a_model_at_which_onnx_runtime_dies_is_one_line_and_the_next_one_is_loaded(tmp_path: Path) -> None:
    program = tmp_path / "dying.py"
    program.write_text(DYING)
    with reuse_child(program):
        for _ in range(2):
            with pytest.raises(RuntimeDiedError, match=r"dies while loading the model \(SIGSEGV\)"):
                superopt.optimize(linear(), budget=0.1, cache=tmp_path / "cache")
    assert superopt.optimize(linear(), budget=0.1, moves=(), cache=tmp_path / "cache").report.reason


def test_a_candidate_at_which_onnx_runtime_dies_is_not_loaded_here(tmp_path: Path) -> None:
    program = tmp_path / "dying.py"
    program.write_text(DYING)
    with reuse_child(program), pytest.raises(InvalidModelError, match=r"dies while loading the model \(SIGSEGV\)"):
        compare_at_all_sizes(linear(), linear(), Device(), [DimBinding({})], ComparisonSettings(0.1))
    require_loads(linear(), Device())
    with pytest.raises(InvalidModelError, match="cannot load the model"):
        require_loads(b"no model", Device())


def test_a_model_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    program = tmp_path / "slow.py"
    program.write_text(DYING)
    process = Child(program)
    with pytest.raises(TimeoutError, match="did not sleep the model within 0 s"):
        process.ask("sleep", patience=0.1)
    assert not process.is_alive


def test_a_child_process_loads_what_this_one_does_and_refuses_what_it_refuses() -> None:
    with contextlib.closing(Child()) as process:
        session = TrialSession(process, linear(), Device())
        assert session.inputs == Session(linear(), Device()).inputs
        session.run({"x": np.ones((2, 8), np.float32)})
        with pytest.raises(InvalidModelError, match="cannot run the model"):
            session.run({"x": np.ones((2, 7), np.float32)})
        broken = linear()
        broken.graph.node[1].op_type = "NoSuchOperator"
        with pytest.raises(InvalidModelError, match="cannot load the model"):
            process.load(broken)
        process.load(linear())
    assert not process.is_alive


def integers(name: str, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    return port(name, shape, TensorProto.INT64)


def picking(op: str, table: Sequence[int | str], rows: Sequence[int | str], **attributes: Any) -> ModelProto:
    nodes = [
        helper.make_node("Relu", ["x"], ["t"]),
        helper.make_node(op, ["t", "i"], ["y", "where"] if op == "TopK" else ["y"], **attributes),
    ]
    return model(nodes, [port("x", table), integers("i", rows)], [port("y", [None] * len(table))])


@pytest.mark.parametrize(("domain", "operator"), [("com.microsoft", "QuickGelu"), ("", "Relu")])
def test_an_operator_whose_domain_is_not_imported_gives_no_traceback(domain: str, operator: str, tmp_path: Path) -> None:
    proto = model(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node(operator, ["h"], ["y"], domain=domain)],
        [port("x", (2, 4))],
        [port("y", (2, 4))],
        [weight("w", 4, 4)],
    )
    imports = [] if domain == "" else [helper.make_opsetid("", 17)]
    del proto.opset_import[:]
    proto.opset_import.extend([*imports, helper.make_opsetid("ai.onnx.ml", 3)])
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    command = [sys.executable, "-m", "superopt", "optimize", str(path), str(tmp_path / "out.onnx"), "--budget", "0.1"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in ran.stderr
    assert ran.returncode == 0, ran.stderr


def test_positions_that_are_made_up_fit_the_tensor_they_are_in() -> None:
    (bound,) = index_bounds(picking("GatherND", [1, 16, 64], ["k", 2])).values()
    assert isinstance(bound, IndexRange)
    assert (int(bound), bound.low, bound.columns) == (1, 0, (1, 16, 64))
    (drawn,) = (random_inputs([Port("i", np.dtype(np.int64), (400, 2))], high={"i": bound})["i"],)
    assert set(drawn[:, 0]) == {0}
    assert set(drawn[:, 1]) == set(range(16))
    assert index_bounds(picking("Gather", [5, 8], [3], axis=1)) == {"i": 8}
    assert index_bounds(picking("GatherElements", [5, 8], [3, 8], axis=0)) == {"i": 5}
    assert index_bounds(picking("Gather", ["N", 8], [3])) == {}
    top = index_bounds(picking("TopK", [5, 8], [1], axis=1))["i"]
    assert isinstance(top, IndexRange)
    assert (int(top), top.low) == (9, 1)


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        (picking("Gather", ["N", 8], [3]), False),
        (picking("Reshape", [4, 8], [1]), False),
        (picking("Expand", [1, 8], [2]), False),
        (picking("Tile", [4, 8], [2]), True),
        (picking("TopK", ["N", 8], [1], axis=0), True),
    ],
    ids=lambda given: given.graph.node[1].op_type if isinstance(given, ModelProto) else "",
)
def test_inputs_are_made_up_on_which_the_model_runs(given: ModelProto, chosen: bool) -> None:
    session = Session(given, Device())
    found = find_feasible(session, [dict.fromkeys({"N"}, 1)], DRAWN.bounded(given), chosen=chosen)
    assert not found.error
    session.run(found.source.values(session.inputs, sizes=found.sizes[0]))


def test_a_model_that_runs_at_other_sizes_than_the_usual_ones_is_run_there() -> None:
    shape = numpy_helper.from_array(np.array([-1, 7], np.int64), "s")
    nodes = [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("Relu", ["r"], ["y"])]
    given = model(nodes, [port("x", ["N"])], [port("y", ["M", 7])], [shape])
    first = first_run(given, load(given), Device(), [DimBinding({"N": 1})])
    assert not first.refused
    assert first.sizes == ({"N": 7},)
    with pytest.raises(DimensionError, match="other sizes are needed"):
        first_run(given, load(given), Device(), [DimBinding({"N": 1})], chosen=True)


def test_default_sizes_are_halved_until_a_run_needs_little_memory() -> None:
    nodes = [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("MatMul", ["x", "t"], ["y"])]
    given = model(nodes, [port("x", ["N", 1])], [port("y", ["N", "N"])])
    assert first_run(given, load(given), Device(), [DimBinding({"N": 9000})]).sizes == ({"N": 4096},)
    assert first_run(given, load(given), Device(), [DimBinding({"N": 9000})], chosen=True).sizes == ({"N": 9000},)


def test_a_slow_model_is_not_run_again_to_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = model([helper.make_node("Relu", ["x"], ["y"])], [port("x", [4])], [port("y", [4])])
    slow = Feasible(({},), DRAWN, seconds=COST.repeated_run_seconds + 1)
    monkeypatch.setattr("superopt.cost.first_run._in_child", lambda *_, **__: (slow, 0))
    monkeypatch.setattr(Session, "ready", lambda *_: pytest.fail("the model was run again"))
    assert first_run(given, load(given), Device(), [DimBinding({})]).seconds == slow.seconds


def test_a_model_that_runs_on_no_made_up_input_is_kept() -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    given = model(nodes, [port("x", [6]), integers("s", [3])], [port("y", [None, None, None])])
    optimized = superopt.optimize(given, budget=0.1)
    assert optimized.model is given
    assert "the model runs on none of the random inputs" in optimized.report.reason


def test_a_node_whose_attribute_refers_to_one_of_a_function_that_is_not_there_is_left() -> None:
    given = model(
        [helper.make_node("ReduceMean", ["x"], ["m"]), helper.make_node("Relu", ["m"], ["y"])],
        [port("x", [2, 8])],
        [port("y", [1, 1])],
    )
    given.graph.node[0].attribute.add(name="axes", ref_attr_name="nowhere", type=onnx.AttributeProto.INTS)
    assert [len(island.nodes) for island in Chart(as_model(given)).islands()] == [1]
    assert not superopt.optimize(given, budget=0.1).report.accepted


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Concat", ["x", "c"], ["y"]),
        helper.make_node("Cast", ["x"], ["y"]),
        helper.make_node("Transpose", ["x"], ["y"], perm=[5, 5, 5]),
        helper.make_node("Transpose", ["x"], ["y"], perm="ab"),
    ],
    ids=lambda node: f"{node.op_type} {len(node.attribute)}",
)
def test_a_node_with_wrong_attributes_is_refused_as_onnx_runtime_refuses_it(node: onnx.NodeProto) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["c"]), node]
    given = model(nodes, [port("x", ["N", 2, "T"])], [port("y", [None, None, None])])
    with pytest.raises(InvalidModelError, match="ONNX Runtime cannot load") as refused:
        superopt.optimize(given, budget=0.1)
    assert "\n" not in str(refused.value)


# ---------------------------------------------------------------- memory


def test_a_search_ends_once_it_takes_more_memory_than_it_may_and_the_report_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with limit_memory_growth(2**40):
        assert not expired(math.inf)
        held = np.ones(2**22)
        with limit_memory_growth(-held.nbytes):
            assert expired(math.inf)
        assert not expired(math.inf)
    monkeypatch.setattr("superopt.flows.optimize.OPTIMIZATION", replace(OPTIMIZATION, memory_bytes=-(2**40)))
    assert superopt.optimize(linear(), budget=60.0).report.stopped == "the memory limit was reached"
