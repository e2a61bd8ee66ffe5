"""The conclusions of the numerical check and of `verify` on special inputs.

These inputs are values near or at the constants of a model, and values with tiny sigmoids. A model subtracts its constants
from inputs, or compares inputs with its constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from superopt.errors import CheckFailedError
from superopt.protobuf.normalization import SHIFTED, boundary_values, conditioning, denormalized, normalizations
from superopt.runtime.check import check_candidate
from superopt.runtime.input_source import InputSource
from superopt.runtime.session import Array, Device
from superopt.verification.inputs import BOUNDARY, perturb_feeds
from superopt.verification.models import ModelSource
from superopt.verification.runs import compare_runs
from tests.models import model

ROWS, COLUMNS = 16, 64
RNG = np.random.default_rng(0)
WEIGHT = (RNG.standard_normal((COLUMNS, 4)) / 8).astype(np.float32)


def stored(**arrays: Array) -> list[TensorProto]:
    return [numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in arrays.items()]


def scaler(mean: Array, std: float) -> onnx.ModelProto:
    """Return a linear layer of standardized inputs: `(x - mean) / std @ w`."""
    nodes = [
        helper.make_node("Sub", ["x", "mean"], ["d"]),
        helper.make_node("Div", ["d", "std"], ["e"]),
        helper.make_node("MatMul", ["e", "w"], ["y"]),
    ]
    return model(nodes, {"x": [ROWS, COLUMNS]}, {"y": [ROWS, 4]}, stored(mean=mean, std=np.asarray(std), w=WEIGHT))


def distributed(mean: Array, std: float) -> onnx.ModelProto:
    """Return the same function as `x @ w / std - mean @ w / std`, which cancels if `mean` is large and `std` is small."""
    nodes = [helper.make_node("MatMul", ["x", "v"], ["d"]), helper.make_node("Sub", ["d", "c"], ["y"])]
    v = WEIGHT.astype(np.float64) / std
    return model(nodes, {"x": [ROWS, COLUMNS]}, {"y": [ROWS, 4]}, stored(v=v, c=mean.astype(np.float64) @ v))


def found(nodes: Sequence[NodeProto], shape: Sequence[int], **arrays: Array) -> tuple[Array, Array] | None:
    """Return the scale and the offset that are found for the input `x`, broadcast to its shape."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        stored(**arrays),
    )
    one = normalizations(helper.make_model(graph)).get("x")
    return None if one is None else (np.broadcast_to(one.scale, shape), np.broadcast_to(one.offset, shape))


def node(op: str, *inputs: str, to: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs, [to], **attributes)


MEAN, STD = np.arange(1.0, 4.0), np.array([2.0, 4.0, 8.0])


@pytest.mark.parametrize(
    ("nodes", "scale", "offset"),
    [
        ([node("Sub", "x", "m")], np.ones(3), -MEAN),
        ([node("Sub", "m", "x")], -np.ones(3), MEAN),
        ([node("Add", "m", "x")], np.ones(3), MEAN),
        ([node("Sub", "x", "m", to="d"), node("Div", "d", "s")], 1 / STD, -MEAN / STD),
        ([node("Mul", "x", "s", to="d"), node("Sub", "d", "m")], STD, -MEAN),
        ([node("Identity", "x", to="i"), node("Cast", "i", to="c"), node("Sub", "c", "m")], np.ones(3), -MEAN),
        ([node("Sub", "x", "m", to="d"), node("Div", "d", "s", to="e"), node("Add", "e", "s")], 1 / STD, -MEAN / STD),
        ([node("Sub", "x", "m", to="d"), node("MatMul", "d", "w")], np.ones(3), -MEAN),
    ],
)
def test_the_first_subtracted_constant_and_the_factors_around_it_are_found(
    nodes: list[NodeProto], scale: Array, offset: Array
) -> None:
    for one in nodes:
        if one.op_type == "Cast":
            one.attribute.append(helper.make_attribute("to", TensorProto.FLOAT))
    maps = found(nodes, [2, 3], m=MEAN, s=STD, w=np.ones((3, 2)))
    assert maps is not None
    np.testing.assert_allclose(maps[0][0], scale)
    np.testing.assert_allclose(maps[1][1], offset)


def test_a_constant_after_a_transpose_belongs_to_the_axis_that_was_moved() -> None:
    nodes = [node("Transpose", "x", to="t", perm=[0, 2, 1]), node("Sub", "t", "m")]
    maps = found(nodes, [2, 3, 4], m=MEAN)
    assert maps is not None
    np.testing.assert_allclose(maps[1][1, :, 2], -MEAN)


def test_single_constants_are_found_after_moved_elements() -> None:
    nodes = [node("Reshape", "x", "n", to="r"), node("Sub", "r", "m"), node("Div", "y", "m", to="z")]
    maps = found(nodes, [2, 3], m=np.array([4.0]), n=np.array([6.0]))
    assert maps is not None
    np.testing.assert_allclose(maps[0], 0.25)
    np.testing.assert_allclose(maps[1], -1)
    assert found(nodes, [2, 3], m=np.arange(1.0, 7.0), n=np.array([6.0])) is None


def test_batch_normalization_of_an_input_is_found() -> None:
    nodes = [node("BatchNormalization", "x", "one", "zero", "m", "s", epsilon=0.0)]
    maps = found(nodes, [2, 3, 4, 4], one=np.ones(3), zero=np.zeros(3), m=MEAN, s=STD)
    assert maps is not None
    np.testing.assert_allclose(maps[0][0, :, 1, 1], 1 / np.sqrt(STD))
    np.testing.assert_allclose(maps[1][0, :, 1, 1], -MEAN / np.sqrt(STD))


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Relu", "x")],
        [node("Mul", "x", "s")],
        [node("Sub", "x", "z")],
        [node("Add", "x", "x")],
        [node("Relu", "x", to="r"), node("Sub", "r", "m")],
        [node("Div", "s", "x", to="d"), node("Sub", "d", "m")],
    ],
)
def test_inputs_without_a_subtracted_constant_are_left_out(nodes: list[NodeProto]) -> None:
    assert found(nodes, [2, 3], m=MEAN, s=STD, z=np.zeros(3)) is None


def test_inputs_are_the_values_that_the_model_normalizes() -> None:
    maps = normalizations(scaler(np.full(COLUMNS, 500.0), 0.25))
    assert conditioning(maps) == 2000
    assert conditioning({}) == 1
    normal = np.linspace(-1, 1, ROWS * COLUMNS).reshape(ROWS, COLUMNS)
    values = maps["x"].inputs(normal)
    assert values is not None
    np.testing.assert_allclose((values - 500) / 0.25, normal)
    assert maps["x"].inputs(np.ones((ROWS, COLUMNS + 1))) is None
    assert normalizations(scaler(np.ones(COLUMNS), 0.0))["x"].inputs(normal) is None
    small = denormalized(maps, "x", np.ones((ROWS, COLUMNS), np.int16))
    assert small.dtype == np.int16
    assert {*small.ravel()} == {500}
    assert {*denormalized(maps, "x", np.ones((ROWS, COLUMNS), np.uint8)).ravel()} == {255}
    source = InputSource(normalized=maps)
    feeds = source.denormalized({"x": normal.astype(np.float32), "n": np.arange(3)})
    np.testing.assert_allclose(feeds["x"], values, rtol=1e-6)
    np.testing.assert_array_equal(feeds["n"], np.arange(3))


@pytest.mark.parametrize(("mean", "std", "right"), [(0.485, 0.229, True), (120.0, 58.0, True), (7000.0, 0.1, False)])
def test_the_check_and_verify_refuse_what_loses_digits_of_normalized_inputs(
    tmp_path: Path, mean: float, std: float, right: bool
) -> None:
    means = mean * (1 + RNG.random(COLUMNS) / 8).astype(np.float32)
    before, after = scaler(means, std), distributed(means, std)
    for name, proto in (("before", before), ("after", after)):
        onnx.save(proto, tmp_path / f"{name}.onnx")
    sources = [ModelSource.read(tmp_path / f"{name}.onnx") for name in ("before", "after")]
    if right:
        assert SHIFTED in check_candidate(before, after, Device()).inputs
        assert f"{SHIFTED} inputs" in compare_runs(*sources).names
    else:
        with pytest.raises(CheckFailedError, match=SHIFTED):
            check_candidate(before, after, Device())
        with pytest.raises(CheckFailedError, match=SHIFTED):
            compare_runs(*sources)


# ---------------------------------------------------------------- values at the constants


def pair(tmp_path: Path, nodes: Sequence[Sequence[NodeProto]], shape: Sequence[int]) -> list[ModelSource]:
    """Save two models of the inputs `x` and `y`, and read them from their files."""
    found = []
    weights = stored(five=np.full(1, 5.0), third=np.full(1, 1 / 3))
    for number, some in enumerate(nodes):
        path = tmp_path / f"{number}.onnx"
        onnx.save(model(some, {"x": shape, "y": shape}, {"o": shape}, weights), path)
        found.append(ModelSource.read(path))
    return found


NEGATED = [node("Sub", "x", "five", to="s"), node("Neg", "s", to="d")]
EXCHANGED = [node("Sub", "five", "x", to="d")]
ANGLE = [node("Mul", "d", "third", to="e"), node("Div", "y", "e", to="q"), node("Atan", "q", to="o")]


@pytest.mark.parametrize("shape", [(4, 8), (1, 1)])
@pytest.mark.parametrize("after", [ANGLE, [node("Reciprocal", "d", to="o")]])
def test_verify_refuses_another_sign_of_a_zero_divisor(tmp_path: Path, after: list[NodeProto], shape: tuple[int, int]) -> None:
    sources = pair(tmp_path, [[*NEGATED, *after], [*EXCHANGED, *after]], shape)
    assert [value.item() for value in sources[0].boundaries["x"]] == [5]
    with pytest.raises(CheckFailedError, match=BOUNDARY):
        compare_runs(*sources)
    compare_runs(*sources, special=False)
    assert f"{BOUNDARY} inputs" in compare_runs(sources[0], sources[0]).names


def test_verify_accepts_another_sign_of_a_zero_that_is_no_divisor(tmp_path: Path) -> None:
    after = [node("Mul", "d", "y", to="m"), node("Exp", "m", to="o")]
    sources = pair(tmp_path, [[*NEGATED, *after], [*EXCHANGED, *after]], (4, 8))
    assert not sources[0].boundaries
    compare_runs(*sources)


@pytest.mark.parametrize(("other", "right"), [(("Less", "five", "x"), True), (("GreaterOrEqual", "x", "five"), False)])
def test_verify_compares_at_constants_of_comparisons(tmp_path: Path, other: tuple[str, ...], right: bool) -> None:
    after = node("Where", "c", "x", "y", to="o")
    sources = pair(tmp_path, [[node("Greater", "x", "five", to="c"), after], [node(*other, to="c"), after]], (4, 8))
    if right:
        assert f"{BOUNDARY} inputs" in compare_runs(*sources).names
    else:
        with pytest.raises(CheckFailedError, match=BOUNDARY):
            compare_runs(*sources)


@pytest.mark.parametrize(
    ("nodes", "values"),
    [
        ([node("Add", "x", "m")], [-MEAN]),
        ([node("Sub", "m", "x")], [MEAN]),
        ([node("Mul", "x", "p", to="d"), node("Sub", "d", "m")], [MEAN / [2, -4, 8]]),
        ([node("Transpose", "x", to="t", perm=[1, 0]), node("Sub", "t", "r")], [np.array([[1.0, 2.0]]).T]),
        ([node("Clip", "x", "zero", "m"), node("Max", "x", "m", to="b")], [np.zeros(1), MEAN, MEAN]),
        ([node("Sub", "x", "m", to="d"), node("Sub", "d", "p")], []),
        ([node("Div", "x", "third", to="d"), node("Sub", "d", "m")], []),
        ([node("Mul", "x", "m")], []),
    ],
)
def test_boundary_values_are_those_at_which_inputs_equal_constants(nodes: list[NodeProto], values: list[Array]) -> None:
    arrays = stored(m=MEAN, p=np.array([2, -4, 8]), r=np.array([[1.0, 2.0]]), third=np.full(1, 3.0), zero=np.zeros(1))
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])], [], arrays)
    boundaries = boundary_values(helper.make_model(graph), {"y"}).get("x", ())
    for value, expected in zip(boundaries, values, strict=True):
        np.testing.assert_array_equal(np.broadcast_to(value, [2, 3]), np.broadcast_to(expected, [2, 3]))


def test_values_at_constants_are_not_perturbed() -> None:
    values = np.where(np.arange(600) % 2, 5, RNG.standard_normal(600)).astype(np.float32)
    near = perturb_feeds({"x": values}, 0, {"x": [np.full(1, 5.0)]})["x"]
    assert (near == values)[1::2].all()
    assert not (near == values)[::2].all()


# ---------------------------------------------------------------- tiny sigmoids

LOGISTIC = [
    node("Neg", "x", to="n"),
    node("Exp", "n", to="e"),
    node("Add", "e", "one", to="a"),
    node("Div", "one", "a", to="p"),
]
SIGMOID = [node("Sigmoid", "x", to="p")]
TINY_RESULTS: dict[str, list[NodeProto]] = {
    "log": [node("Log", "p", to="o")],
    "share": [node("ReduceSum", "p", "last", to="t"), node("Div", "p", "t", to="o")],
    "order": [node("ArgMax", "p", to="i", axis=-1), helper.make_node("Cast", ["i"], ["o"], to=TensorProto.FLOAT)],
    "itself": [node("Identity", "p", to="o")],
    "product": [node("Mul", "p", "x", to="o")],
}


@pytest.mark.parametrize("shape", [(4, 16), (1, 64), (1, 1)])
@pytest.mark.parametrize("kind", TINY_RESULTS)
def test_verify_refuses_a_sigmoid_where_tiny_results_matter(tmp_path: Path, kind: str, shape: tuple[int, int]) -> None:
    sources = []
    for number, nodes in enumerate((LOGISTIC, SIGMOID)):
        path = tmp_path / f"{number}.onnx"
        weights = [*stored(one=np.ones(1)), numpy_helper.from_array(np.array([-1]), "last")]
        result = (shape[0], 1) if kind == "order" else shape
        onnx.save(model([*nodes, *TINY_RESULTS[kind]], {"x": shape}, {"o": result}, weights), path)
        sources.append(ModelSource.read(path))
    compare_runs(sources[0], sources[0])
    if kind in ("itself", "product") or (kind, shape) == ("order", (1, 1)):
        compare_runs(*sources)
    else:
        with pytest.raises(CheckFailedError):
            compare_runs(*sources)


def test_a_weight_of_zeros_that_divides_an_input_is_no_map() -> None:
    """The map is not finite, and its computation gives no warning."""
    divided = [helper.make_node("Div", ["x", "w"], ["d"]), helper.make_node("Sub", ["d", "c"], ["y"])]
    map_of_input = found(divided, (2, 3), w=np.array([1.0, 0.0, 2.0]), c=np.ones(3))
    assert map_of_input is None or not np.isfinite(map_of_input[0]).all()
