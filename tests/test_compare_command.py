"""`superopt compare`: its output for two models, and the pairs of models that it refuses."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import superopt
from superopt.cli import main as cli
from superopt.errors import CheckFailedError, DimensionError, InvalidModelError, ModelNotFoundError
from superopt.report.comparison import ModelComparison, ModelContent, OutputDifference
from superopt.report.optimization import RunEnvironment, Timing
from tests.models import model, weight


def layers(count: int, name: str = "y", rows: int | str = 64) -> onnx.ModelProto:
    """Return a chain of `count` products with the same weight and with one output."""
    values = ["x", *(f"v{n}" for n in range(1, count)), name]
    nodes = [helper.make_node("MatMul", [a, "w"], [b]) for a, b in itertools.pairwise(values)]
    return model(nodes, {"x": [rows, 256]}, {name: [rows, 256]}, [weight("w", 256, 256)])


def scaled(factor: float, to: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Return the model `x * factor`, with an output of the type `to`."""
    number = helper.make_tensor("c", TensorProto.FLOAT, [], [factor])
    nodes = [helper.make_node("Mul", ["x", "c"], ["m"]), helper.make_node("Cast", ["m"], ["y"], to=to)]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])],
        [helper.make_tensor_value_info("y", to, [8])],
        [number],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.slow
def test_a_model_of_fewer_products_is_faster() -> None:
    compared = superopt.compare(layers(6), layers(2), threads=1, seconds="3s")
    assert compared.speedup > 1.5
    assert (compared.first.operators, compared.second.operators) == ({"MatMul": 6}, {"MatMul": 2})
    assert compared.first.weight_bytes == 4 * 256 * 256
    (output,) = compared.outputs
    assert output.name == "y"
    assert output.relative > 0.1
    assert f"{compared.speedup:.2f} times as fast" in compared.verdict


def test_a_difference_of_the_outputs_is_measured() -> None:
    compared = superopt.compare(scaled(2.0), scaled(2.5), threads=1, seconds=0.2)
    (output,) = compared.outputs
    assert output.relative == pytest.approx(0.25, rel=1e-5)
    assert output.different == 0
    assert compared.inputs == 3
    same = superopt.compare(scaled(2.0), scaled(2.0), threads=1, seconds=0.2)
    assert same.outputs == (OutputDifference("y", 0.0, 0.0, 0.0),)


def test_elements_that_only_one_model_has_finite_are_counted() -> None:
    (output,) = superopt.compare(scaled(1.0), scaled(float("inf")), threads=1, seconds=0.2).outputs
    assert output.different == 1
    assert output.largest == 0


def test_integers_are_compared_by_the_share_of_different_elements() -> None:
    (output,) = superopt.compare(
        scaled(0.0, TensorProto.INT64), scaled(100.0, TensorProto.INT64), threads=1, seconds=0.2
    ).outputs
    assert (output.largest, output.relative) == (0, 0)
    assert output.different > 0.5


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (layers(2, name="z"), "different outputs: y in the first model, z in the second model"),
        (model([helper.make_node("Relu", ["u"], ["y"])], {"u": [64, 256]}, {"y": [64, 256]}, []), "different inputs: x"),
    ],
)
def test_models_with_other_inputs_or_outputs_are_refused(other: onnx.ModelProto, said: str) -> None:
    with pytest.raises(CheckFailedError, match=said):
        superopt.compare(layers(2), other, seconds=0.2)


def test_models_whose_outputs_have_other_types_are_refused() -> None:
    with pytest.raises(CheckFailedError, match=r"float32\[8\] in the first model and float64\[8\] in the second"):
        superopt.compare(scaled(1.0), scaled(1.0, TensorProto.DOUBLE), seconds=0.2)


def test_dynamic_models_are_compared_at_each_of_the_given_sizes() -> None:
    one = layers(1, rows="n")
    compared = superopt.compare(one, one, shapes={"n": (2, 3)}, threads=1, seconds=0.4)
    assert [*compared.timings] == ["n=2", "n=3"]
    assert compared.inputs == 6
    with pytest.raises(DimensionError):
        superopt.compare(one, one, shapes={"m": 2}, seconds=0.2)


def test_a_model_that_cannot_be_run_is_refused() -> None:
    fails = model(
        [helper.make_node("Reshape", ["x", "s"], ["y"])],
        {"x": ["n", 2]},
        {"y": [5, 7]},
        [helper.make_tensor("s", TensorProto.INT64, [2], [5, 7])],
    )
    with pytest.raises(InvalidModelError, match="cannot run the model"):
        superopt.compare(fails, fails, shapes={"n": 2}, seconds=0.2)


def timing(speedup: float, noise: float) -> Timing:
    return Timing(1.0, 1 / speedup, speedup, speedup - 0.01, speedup + 0.01, 1.0, noise, 40)


@pytest.mark.parametrize(
    ("timings", "different", "said"),
    [
        ({"": timing(1.5, 0.01)}, 0.0, "b: 1.50 times as fast as a; outputs differ by at most 1.0e-06 of their magnitude"),
        ({"": timing(1.005, 0.01)}, 0.0, "b: 1.00 times as fast as a, which is within the noise; outputs"),
        ({"n=1": timing(2.0, 0.01), "n=2": timing(1.2, 0.01)}, 0.0, "b: 1.20 to 2.00 times as fast as a; outputs"),
        ({"": timing(0.5, 0.01)}, 0.25, "; up to 25.00% of the elements of an output are different"),
    ],
)
def test_the_verdict_is_one_sentence(timings: dict[str, Timing], different: float, said: str) -> None:
    contents = [ModelContent(name, {"Relu": 1}, 4) for name in "ab"]
    outputs = (OutputDifference("y", 1e-6, 1e-6, different),)
    compared = ModelComparison(contents[0], contents[1], timings, outputs, 3, RunEnvironment("cpu", "cpu", 1, {}))
    assert said in compared.verdict
    assert json.loads(compared.json())["speedup"] == compared.speedup


def test_the_command_prints_the_verdict_first_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, report = tmp_path / "a.onnx", tmp_path / "b.onnx", tmp_path / "c.json"
    onnx.save(layers(2), first)
    onnx.save(layers(1), second)
    np.savez(tmp_path / "x.npz", x=np.ones((64, 256), np.float32))
    given = ["compare", str(first), str(second), "--seconds", "0.5s", "--threads", "1", "--input", str(tmp_path / "x.npz")]
    assert cli.main([*given, "--json", str(report)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{second}: ")
    assert "MatMul" in printed
    assert json.loads(report.read_text())["outputs"][0]["name"] == "y"
    assert cli.main([*given, "--json", str(first)]) == 22
    assert cli.main(["compare", str(first), str(tmp_path / "absent.onnx")]) == ModelNotFoundError.exit_code
    assert onnx.load(first).graph.node[0].op_type == "MatMul"
