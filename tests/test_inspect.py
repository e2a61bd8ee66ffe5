"""`superopt inspect` and `superopt diff`: their output for models, and the files that they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from superopt.cli import main as cli
from superopt.errors import DimensionError, InvalidModelError, ModelNotFoundError, SuperoptError, TargetError
from superopt.flows.diff_models import diff_models
from superopt.flows.inspect_model import inspect_model
from superopt.model.coverage import INTEGRAL, UNDEFINED, UNTYPED, UncoveredNodes
from superopt.model.load import as_model
from superopt.model.provenance import Provenance, with_provenance
from superopt.report.difference import difference_lines
from superopt.report.inspection import inspection_lines
from superopt.verification.contents import content_digest
from tests.models import model, weight


def mixed(rows: int | str = "batch") -> ModelProto:
    """Return a model with two islands, and nodes between the islands that superopt does not understand."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["a"]),
        helper.make_node("ArgMax", ["a"], ["i"], axis=-1),
        helper.make_node("Own", ["a"], ["o"], domain="example"),
        helper.make_node("Relu", ["o"], ["p"]),
        helper.make_node("Tanh", ["a"], ["y"]),
    ]
    own = nodes.pop(3)
    made = model(nodes, {"x": [rows, 8], "o": [rows, 4]}, {"y": [rows, 4]}, [weight("w", 8, 4)])
    del made.graph.input[1]
    made.graph.node.insert(3, own)
    made.opset_import.append(helper.make_opsetid("example", 3))
    return made


def strings() -> ModelProto:
    """Return a model with a weight of strings."""
    made = model([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, {"y": [2]})
    made.graph.initializer.append(TensorProto(name="s", data_type=TensorProto.STRING, dims=[2], string_data=[b"a", b"bc"]))
    made.graph.node.append(helper.make_node("Identity", ["s"], ["t"]))
    made.graph.output.append(helper.make_tensor_value_info("t", TensorProto.STRING, [2]))
    return made


def branching(operator: str) -> ModelProto:
    """Return a model with an If, whose two bodies have outputs of the same names."""
    info = helper.make_tensor_value_info
    bodies = {
        f"{name}_branch": helper.make_graph([helper.make_node(op, ["x"], ["b"])], name, [], [info("b", TensorProto.FLOAT, [2])])
        for name, op in (("then", "Relu"), ("else", operator))
    }
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], **bodies)],
        "graph",
        [info("c", TensorProto.BOOL, []), info("x", TensorProto.FLOAT, [2])],
        [info("y", TensorProto.FLOAT, [2])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def saved(proto: ModelProto, path: Path) -> str:
    onnx.save(proto, path)
    return str(path)


def fails(capsys: pytest.CaptureFixture[str], error: type[SuperoptError], *arguments: str | Path) -> str:
    """Require that the command fails with the error's exit code, and return the one line that it prints."""
    assert cli.main([str(a) for a in arguments]) == error.exit_code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0]


# ---------------------------------------------------------------- inspect


def test_islands_and_the_nodes_outside_them_are_listed() -> None:
    found = inspect_model(mixed())
    assert (found.nodes, found.opset, dict(found.domains)) == (6, 17, {"example": 3})
    assert dict(found.operators) == {"ArgMax": 1, "MatMul": 1, "Relu": 2, "Tanh": 1, "example.Own": 1}
    (island,) = found.islands
    assert (island.nodes, island.dtype, dict(island.operators)) == (3, "float", {"MatMul": 1, "Relu": 1, "Tanh": 1})
    assert set(found.uncovered) == {
        UncoveredNodes("ArgMax", 1, 0.0, INTEGRAL),
        UncoveredNodes("example.Own", 1, 0.0, UNDEFINED),
        UncoveredNodes("Relu", 1, 0.0, UNTYPED),
    }
    assert found.nodes_in_islands + found.helpers + 3 == found.analyzed == 6
    assert dict(found.sizes) == {"batch": 1}
    assert dict(found.weights) == {"float": 128}
    assert found.assumptions
    assert found.seconds is None


def test_the_command_prints_and_writes_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, report = saved(mixed(), tmp_path / "m.onnx"), tmp_path / "m.json"
    assert cli.main(["inspect", source, "--shape", "batch=5", "--json", str(report)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{source}: 6 nodes, opset 17, example 3"
    assert "    3 nodes, float: 1 MatMul, 1 Relu, 1 Tanh" in lines
    assert f"    1 example.Own: {UNDEFINED}" in lines
    assert "dynamic dimensions (and the sizes at which the model is measured): batch (5)" in lines
    record = json.loads(report.read_text(encoding="utf-8"))
    assert record["digest"] == content_digest(as_model(onnx.load(source)))
    assert record["nodes_in_islands"] == 3
    assert record["sizes"] == {"batch": 5}


def test_shares_of_the_time_are_measured_if_requested() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("ArgMax", ["a"], ["i"], axis=-1)]
    nodes.append(helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT))
    found = inspect_model(model(nodes, {"x": [64, 64]}, {"y": [64, 1]}), time=True)
    assert found.seconds
    assert 0 < sum(row.share for row in found.uncovered) < 1
    assert any("of the time" in line for line in inspection_lines(found))


def test_a_model_that_cannot_be_run_is_inspected_without_times() -> None:
    found = inspect_model(mixed(), time=True)
    assert found.seconds == 0
    assert any("could not be run" in line for line in inspection_lines(found))


def test_provenance_is_shown() -> None:
    made = with_provenance(as_model(mixed()), Provenance("1.2", "abc", "fast", 2, 9))
    assert "superopt.original: abc" in list(inspection_lines(inspect_model(made)))


def test_models_that_cannot_be_inspected_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = saved(mixed(), tmp_path / "m.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    fails(capsys, ModelNotFoundError, "inspect", tmp_path / "absent.onnx")
    fails(capsys, InvalidModelError, "inspect", tmp_path / "bad.onnx", "--json", tmp_path / "m.json")
    fails(capsys, DimensionError, "inspect", source, "--shape", "rows=3")
    fails(capsys, TargetError, "inspect", source, "--json", source)
    fails(capsys, TargetError, "inspect", source, "--json", tmp_path / "no" / "m.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.onnx", "m.onnx"]


# ---------------------------------------------------------------- diff


def rewritten() -> ModelProto:
    """Return `mixed` with one activation replaced, one node added, one node removed, and other weights."""
    made = mixed()
    made.graph.node[5].op_type = "Sigmoid"
    made.graph.node[5].input[0] = "new"
    made.graph.node.insert(5, helper.make_node("Abs", ["a"], ["new"]))
    del made.graph.node[4]
    made.graph.initializer[0].CopyFrom(weight("w", 8, 4, seed=1))
    made.graph.initializer.append(weight("v", 3))
    return made


def test_nodes_are_kept_changed_removed_and_added() -> None:
    found = diff_models(mixed(), rewritten())
    assert found.kept == 4
    assert [(str(a), str(b)) for a, b in found.changed] == [("y = Tanh(a)", "y = Sigmoid(new)")]
    assert [*map(str, found.removed)] == ["p = Relu(o)"]
    assert [*map(str, found.added)] == ["new = Abs(a)"]
    assert found.operators["Relu"] == (2, 1)
    assert (found.weights_kept, found.weights_removed) == (0, ())
    assert [one.name for one in found.weights_changed] == ["w"]
    assert [str(one) for one in found.weights_added] == ["v float[3]"]
    assert found.weight_bytes == (128, 140)


def test_a_model_does_not_differ_from_itself() -> None:
    for proto in (mixed(), strings(), branching("Abs")):
        found = diff_models(proto, proto)
        assert found.kept == sum(a for a, _ in found.operators.values())
        assert not any((found.changed, found.removed, found.added, found.weights_changed))
        assert len(list(difference_lines(found))) == 4


def test_attributes_and_bodies_are_compared() -> None:
    first, second = mixed(), mixed()
    second.graph.node[2].attribute[0].i = 0
    assert [str(a) for a, _ in diff_models(first, second).changed] == ["i = ArgMax(a)"]
    found = diff_models(branching("Abs"), branching("Neg"))
    assert [str(b) for _, b in found.changed] == ["b = Neg(x) in y.else_branch"]
    assert found.kept == 2


def test_the_difference_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, report = saved(mixed(), tmp_path / "a.onnx"), saved(rewritten(), tmp_path / "b.onnx"), tmp_path / "d.json"
    assert cli.main(["diff", first, second, "--json", str(report)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [f"--- {first}", f"+++ {second}", "- y = Tanh(a)", "+ y = Sigmoid(new)"]
    assert "nodes: 6 to 6: 4 kept, 1 changed, 1 removed, 1 added" in lines
    assert "    Abs: 0 to 1" in lines
    record = json.loads(report.read_text(encoding="utf-8"))
    assert record["kept"] == 4
    assert record["added"] == [{"operator": "Abs", "inputs": ["a"], "outputs": ["new"], "graph": ""}]


def test_models_that_cannot_be_compared_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = saved(mixed(), tmp_path / "m.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    fails(capsys, ModelNotFoundError, "diff", source, tmp_path / "absent.onnx")
    fails(capsys, InvalidModelError, "diff", source, tmp_path / "bad.onnx")
    fails(capsys, TargetError, "diff", source, source, "--json", source)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.onnx", "m.onnx"]


def test_a_weight_of_strings_is_part_of_the_digest() -> None:
    first, second = strings(), strings()
    second.graph.initializer[0].string_data[:] = [b"ab", b"c"]
    assert content_digest(as_model(first)) != content_digest(as_model(second))
    assert [one.name for one in diff_models(first, second).weights_changed] == ["s"]
    assert inspect_model(first).weights["string"] == 3
