"""Models that are converted to a newer opset on request: their outputs, names and weights, and their certificates."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import superopt
from superopt.cli import main as cli
from superopt.errors import OpsetError
from superopt.flows.verify import verify
from superopt.model.convert_opset import convert_opset
from superopt.model.load import as_proto, load, opset_of
from superopt.policy import MODEL
from superopt.rules.rule import parse_rules
from tests.models import model, run, weight

pytestmark = pytest.mark.slow

FLOW = importlib.import_module("superopt.flows.optimize")
FACTOR = "factor: x @ y + x @ z => x @ (y + z) for x[2], y[2], z[2]"


def old() -> onnx.ModelProto:
    """Return a model of opset 11 that adds two products, followed by operators that changed in opset 13.

    In opset 11, the axes of these operators are attributes.
    """
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["p"]),
        helper.make_node("MatMul", ["x", "w"], ["q"]),
        helper.make_node("Add", ["p", "q"], ["s"]),
        helper.make_node("Unsqueeze", ["s"], ["u"], axes=[0]),
        helper.make_node("ReduceSum", ["u"], ["r"], axes=[0], keepdims=0),
        helper.make_node("Softmax", ["r"], ["y"], axis=1),
    ]
    weights = [weight("v", 64, 64), weight("w", 64, 64, seed=1)]
    proto = model(nodes, {"x": [8, 64]}, {"y": [8, 64]}, weights, opset=11)
    helper.set_model_props(proto, {"author": "a test"})
    return proto


@pytest.mark.parametrize("opset", [13, 18, 23])
def test_a_raised_model_computes_the_same(opset: int) -> None:
    proto = old()
    before = load(proto).model
    after = convert_opset(before, opset)
    assert (opset_of(before), opset_of(after)) == (11, opset)
    assert after.metadata_props == before.metadata_props == {"author": "a test"}
    assert [v.name for v in after.graph.inputs] == ["x"]
    assert after.graph.initializers["v"].const_value is before.graph.initializers["v"].const_value
    np.testing.assert_array_equal(run(as_proto(after))[0], run(proto)[0])


def test_a_model_that_has_the_opset_is_itself() -> None:
    given = load(old()).model
    assert convert_opset(given, 11) is given


def test_operators_of_other_domains_stay() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": [2, 4]}, {"y": [2, 4]})
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    node = helper.make_node("Gelu", ["y"], ["z"], name="own", domain="com.microsoft", doc_string="why")
    proto.graph.node.append(node)
    proto.graph.output[0].name = "z"
    after = convert_opset(load(proto).model, 20)
    assert [(node.domain, node.op_type) for node in after.graph] == [("", "Relu"), ("com.microsoft", "Gelu")]
    assert as_proto(after).graph.node[1] == node
    assert after.opset_imports["com.microsoft"] == 1


def test_weights_that_the_converter_needs_not_see_may_be_small_or_large() -> None:
    shape = numpy_helper.from_array(np.array([64, 8]), "shape")
    nodes = [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Reshape", ["s", "shape"], ["y"])]
    large = weight("w", 8, 64)
    assert numpy_helper.to_array(large).nbytes <= MODEL.max_converted_weight_bytes < 4 * numpy_helper.to_array(large).nbytes
    proto = model(nodes, {"x": [8, 64]}, {"y": [64, 8]}, [large, shape])
    np.testing.assert_array_equal(run(as_proto(convert_opset(load(proto).model, 21)))[0], run(proto)[0])


@pytest.mark.parametrize(("opset", "why"), [(9, "opset 11 already"), (999, "newest known opset")])
def test_opsets_that_cannot_be_had(opset: int, why: str) -> None:
    with pytest.raises(OpsetError, match=why):
        convert_opset(load(old()).model, opset)


def test_local_functions_are_not_brought_along() -> None:
    proto = old()
    body = [helper.make_node("Relu", ["a"], ["b"])]
    proto.functions.append(helper.make_function("local", "f", ["a"], ["b"], body, [helper.make_opsetid("", 11)]))
    with pytest.raises(OpsetError, match="local functions"):
        convert_opset(load(proto).model, 13)


def test_what_is_found_has_the_opset_and_can_be_verified(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rules = parse_rules(FACTOR)
    monkeypatch.setattr("superopt.flows.prepare.load_rules", lambda: rules)
    monkeypatch.setattr("superopt.flows.verify.load_rules", lambda: rules)
    before, after = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(old(), before)
    optimized = superopt.optimize(before, opset=18, budget=60.0, cache=tmp_path / "times.sqlite")
    if not optimized.report.accepted:
        pytest.skip("one product was not measured faster than two")
    optimized.save(after)
    assert opset_of(load(after).model) == 18
    assert [node.op_type for node in load(after).model.graph].count("MatMul") == 1
    assert verify(before, after, optimized.certificate).kinds


def test_what_stays_as_it_is_keeps_its_opset(tmp_path: Path) -> None:
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(old(), path)
    superopt.optimize(path, opset=18, moves=(), cache=tmp_path / "times.sqlite").save(out)
    assert out.read_bytes() == path.read_bytes()


def test_an_opset_that_cannot_be_had_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(old(), path)
    out.write_bytes(b"before")
    assert cli.main(["optimize", str(path), str(out), "--opset", "9"]) == OpsetError.exit_code
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("superopt: ")]
    assert lines == ["superopt: a model of opset 9 was requested, but the model has opset 11 already"]
    assert out.read_bytes() == b"before"
