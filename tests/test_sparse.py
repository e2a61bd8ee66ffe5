"""Models with sparse initializers and sparse constants: they are loaded as dense tensors, optimized, verified and compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, helper, numpy_helper

import superopt
from superopt.cli import main as cli
from superopt.errors import InvalidModelError
from superopt.flows.verify import verify
from superopt.model.load import as_proto, load
from superopt.protobuf.sparse import dense_bytes, dense_tensor, sparse_tensors, without_sparse
from superopt.protobuf.stored import parse_model
from tests.rewriting import always_taken

Array = npt.NDArray[Any]
FLOAT = TensorProto.FLOAT
node, info = helper.make_node, helper.make_tensor_value_info


def sparse(
    name: str, array: Array, *, coordinates: bool = False, kind: type[np.signedinteger[Any]] = np.int64
) -> SparseTensorProto:
    """Return the nonzero elements of the array as a sparse tensor."""
    flat = np.flatnonzero(array)
    places = np.argwhere(array) if coordinates else flat
    values = numpy_helper.from_array(array.reshape(-1)[flat], name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(places.astype(kind), f"{name}.at"), array.shape)


def weight(*shape: int, seed: int = 0) -> Array:
    """Return an array in which about three of four elements are 0."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * (rng.random(shape) < 0.25)).astype(np.float32)


def model(nodes: Sequence[NodeProto], width: int = 8, stored: Sequence[SparseTensorProto] = ()) -> ModelProto:
    graph = helper.make_graph(
        nodes, "g", [info("x", FLOAT, ["N", width])], [info("y", FLOAT, ["N", width])], sparse_initializer=stored
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def linear(width: int = 8, **form: Any) -> ModelProto:
    """Return a chain of two products by sparse weights. Each of the products can be moved into the other."""
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("MatMul", ["p", "v"], ["q"]), node("Relu", ["q"], ["y"])]
    stored = [sparse(name, weight(width, width, seed=seed), **form) for seed, name in enumerate("wv")]
    return model(nodes, width, stored)


def in_constants(**form: Any) -> ModelProto:
    """Return a chain of two products by sparse weights of Constant nodes."""
    nodes = [node("Constant", [], [n], sparse_value=sparse("", weight(8, 8, seed=s), **form)) for s, n in enumerate("wv")]
    return model([*nodes, node("MatMul", ["x", "w"], ["p"]), node("MatMul", ["p", "v"], ["y"])])


def in_branches(*, constants: bool = False) -> ModelProto:
    """Return a model with two branches. The branches store different sparse weights of one name, as initializers or Constant
    nodes.
    """

    def branch(seed: int) -> GraphProto:
        one = sparse("w", weight(8, 8, seed=seed))
        nodes = [node("Constant", [], ["w"], sparse_value=one)] if constants else []
        product = node("MatMul", ["x", "w"], ["r"])
        return helper.make_graph(
            [*nodes, product], "b", [], [info("r", FLOAT, None)], sparse_initializer=[] if constants else [one]
        )

    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Cast", ["sum"], ["c"], to=TensorProto.BOOL),
        node("If", ["c"], ["y"], then_branch=branch(0), else_branch=branch(1)),
    ]
    return model(nodes)


def in_function() -> ModelProto:
    nodes = [node("Constant", [], ["w"], sparse_value=sparse("", weight(8, 8))), node("MatMul", ["x", "w"], ["y"])]
    made = model([node("F", ["x"], ["y"], domain="local")])
    made.functions.append(helper.make_function("local", "F", ["x"], ["y"], nodes, [helper.make_opsetid("", 17)]))
    made.opset_import.append(helper.make_opsetid("local", 1))
    return made


def outputs(stored: ModelProto | Path, width: int = 8) -> list[Array]:
    """Return the outputs that ONNX Runtime computes on ones and on zeros, which select the two branches of a model."""
    content = stored.SerializeToString() if isinstance(stored, ModelProto) else str(stored)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return [np.asarray(session.run(None, {"x": np.full((3, width), n, np.float32)})[0]) for n in (1, 0)]


MODELS: Mapping[str, Callable[[], ModelProto]] = {
    "positions": linear,
    "coordinates": lambda: linear(coordinates=True),
    "positions as int32": lambda: linear(kind=np.int32),
    "coordinates as int8": lambda: linear(coordinates=True, kind=np.int8),
    "constants": in_constants,
    "constants with coordinates": lambda: in_constants(coordinates=True),
    "branches": in_branches,
    "constants in branches": lambda: in_branches(constants=True),
    "a function": in_function,
}


@pytest.mark.parametrize("name", MODELS)
def test_a_sparse_model_is_loaded_as_a_dense_model(name: str, tmp_path: Path) -> None:
    original = MODELS[name]()
    content = original.SerializeToString(deterministic=True)
    dense = as_proto(load(original).model)
    assert original.SerializeToString(deterministic=True) == content
    onnx.save(original, tmp_path / "in.onnx")
    assert next(sparse_tensors(original), None) is not None
    for read in (
        dense,
        without_sparse(original),
        as_proto(load(tmp_path / "in.onnx").model),
        parse_model(tmp_path / "in.onnx"),
    ):
        assert next(sparse_tensors(read), None) is None
        for found, wanted in zip(outputs(read), outputs(original), strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT64", "INT32", "INT16", "INT8", "UINT8", "BOOL"])
@pytest.mark.parametrize("shape", [(3, 4), (4,), (2, 3, 2)])
@pytest.mark.parametrize("coordinates", [False, True])
def test_elements_of_every_type_and_rank_keep_their_places(kind: str, shape: tuple[int, ...], coordinates: bool) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind))
    array = (np.arange(np.prod(shape)).reshape(shape) % 3).astype(dtype)
    dense = dense_tensor(sparse("w", array, coordinates=coordinates))
    assert (dense.name, dense.data_type) == ("w", getattr(TensorProto, kind))
    np.testing.assert_array_equal(numpy_helper.to_array(dense), array)


def test_tensors_without_values_and_without_axes() -> None:
    for coordinates in (False, True):
        empty = dense_tensor(sparse("w", np.zeros((2, 3), np.float32), coordinates=coordinates))
        np.testing.assert_array_equal(numpy_helper.to_array(empty), np.zeros((2, 3)))
        none = sparse("w", np.zeros((0, 1, 1, 1), np.float32), coordinates=coordinates)
        extents(0, 2**20, 2**20, 2**30)(none)
        assert [*dense_tensor(none).dims] == [0, 2**20, 2**20, 2**30]
    scalar = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([7.0], np.float32), "w"), numpy_helper.from_array(np.array([0]), "at"), []
    )
    assert numpy_helper.to_array(dense_tensor(scalar)) == 7


# ---------------------------------------------------------------- malformed sparse tensors


def places(*indices: int | Sequence[int]) -> Callable[[SparseTensorProto], object]:
    return lambda s: s.indices.CopyFrom(numpy_helper.from_array(np.array(indices, np.int64), "at"))


def extents(*dims: int) -> Callable[[SparseTensorProto], object]:
    return lambda s: (s.ClearField("dims"), s.dims.extend(dims))


def values(array: Array) -> Callable[[SparseTensorProto], object]:
    return lambda s: s.values.CopyFrom(numpy_helper.from_array(array, "w"))


def external(s: SparseTensorProto) -> None:
    s.values.data_location = TensorProto.EXTERNAL
    s.values.external_data.add(key="location", value="weights")


MALFORMED: Mapping[str, tuple[Callable[[SparseTensorProto], object], str]] = {
    "a position beyond the end": (places(0, 1, 64), "outside"),
    "a negative position": (places(-1, 1, 2), "outside"),
    "a coordinate beyond the end": (places([0, 1], [0, 8], [7, 7]), "outside"),
    "a negative coordinate": (places([0, 1], [1, -1], [7, 7]), "outside"),
    "positions that are not sorted": (places(2, 1, 3), "ascending"),
    "coordinates that are not sorted": (places([1, 0], [0, 1], [7, 7]), "ascending"),
    "a repeated position": (places(1, 1, 3), "repeated"),
    "repeated coordinates": (places([0, 1], [0, 1], [7, 7]), "repeated"),
    "fewer indices than values": (places(1, 2), r"\[n\]"),
    "coordinates of another rank": (places([1], [2], [3]), r"\[n\]"),
    "no indices": (lambda s: s.ClearField("indices"), "indices"),
    "indices of another type": (
        lambda s: s.indices.CopyFrom(numpy_helper.from_array(np.array([1, 2, 3], np.float32))),
        "FLOAT",
    ),
    "more indices than bytes": (lambda s: setattr(s.indices, "raw_data", s.indices.raw_data[:-1]), "ask for"),
    "more values than bytes": (lambda s: setattr(s.values, "raw_data", s.values.raw_data[:-1]), "ask for"),
    "values with two axes": (values(np.ones((1, 3), np.float32)), r"\[n\]"),
    "text": (values(np.array(["a", "b", "c"], object)), "STRING"),
    "a dimension of 2^31": (extents(2**31, 8), "more than"),
    "a negative dimension": (extents(-8, -8), "negative"),
    "2^62 elements": (extents(2**31 - 1, 2**31 - 1), "bytes"),
    "more bytes than a message": (extents(2**29, 1), "bytes"),
    "no elements": (extents(0, 8), "outside"),
    "external data": (external, "external"),
    "a name that is stored twice": (lambda s: setattr(s.values, "name", "v"), "twice"),
}


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("inside", [False, True])
def test_a_malformed_sparse_tensor_is_refused_in_one_line(name: str, inside: bool) -> None:
    change, message = MALFORMED[name]
    proto = in_branches() if inside else linear()
    graph = proto.graph.node[-1].attribute[0].g if inside else proto.graph
    stored = graph.sparse_initializer[0]
    if inside:
        graph.initializer.append(numpy_helper.from_array(np.ones((8, 8), np.float32), "v"))
    values(np.ones(3, np.float32))(stored)
    places(1, 2, 3)(stored)
    load(proto)
    change(stored)
    with pytest.raises(InvalidModelError, match=message) as refused:
        load(proto)
    assert "\n" not in str(refused.value)


def test_a_malformed_sparse_constant_is_refused_in_one_line() -> None:
    proto = in_constants()
    places(1, 2)(proto.graph.node[0].attribute[0].sparse_tensor)
    with pytest.raises(InvalidModelError, match="sparse_value") as refused:
        load(proto)
    assert "\n" not in str(refused.value)


def test_many_small_files_of_large_tensors_are_refused() -> None:
    proto = linear()
    for number in range(8):
        large = proto.graph.sparse_initializer.add()
        large.CopyFrom(sparse(f"large.{number}", weight(8, 8)))
        extents(2**14, 2**13)(large)
    with pytest.raises(InvalidModelError, match="together"):
        load(proto)


# ---------------------------------------------------------------- whole runs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["positions", "coordinates", "constants", "branches", "constants in branches"])
def test_a_sparse_model_is_optimized_verified_and_compared(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = MODELS[name]()
    before, after, certificate = (tmp_path / file for file in ("in.onnx", "out.onnx", "certificate.json"))
    onnx.save(original, before)
    always_taken(monkeypatch)
    options = ["--budget", "5s", "--threads", "1", "--cache", str(tmp_path / "cache"), "--certificate", str(certificate)]
    assert cli.main(["optimize", str(before), str(after), *options]) == 0
    for found, wanted in zip(outputs(after), outputs(original), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    verified = verify(before, after, certificate.read_text(encoding="utf-8"))
    assert verified.segments or name != "positions"
    compared = superopt.compare(before, after, threads=1, seconds=0.5)
    assert compared.first.weight_bytes >= sum(map(dense_bytes, sparse_tensors(original)))


@pytest.mark.slow
def test_a_sparse_model_without_a_faster_one_is_written_as_it_is(tmp_path: Path) -> None:
    original = in_branches()
    kept = superopt.optimize(original, budget=0.1, moves=(), cache=tmp_path / "cache")
    assert kept.model is original
    kept.save(tmp_path / "out.onnx")
    for found, wanted in zip(outputs(tmp_path / "out.onnx"), outputs(original), strict=True):
        np.testing.assert_array_equal(found, wanted)
    onnx.save(original, tmp_path / "in.onnx")
    assert not verify(tmp_path / "in.onnx", tmp_path / "out.onnx", kept.certificate).segments
