"""Example inputs from the user: reading, sizes, and their use in runs and checks."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import superopt
from superopt.cli import main as cli
from superopt.errors import CheckFailedError, ExampleError, TargetError
from superopt.model.examples import example_sizes, read_examples
from superopt.model.load import as_model
from superopt.runtime.check import check_candidate
from superopt.runtime.input_source import InputSource
from superopt.runtime.session import Device, Session

CPU = Device()
FLOAT, INTEGER = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node


def model(
    nodes: list[NodeProto], inputs: Mapping[str, tuple[int, list[Any]]], weights: Mapping[str, np.ndarray] | None = None
) -> ModelProto:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "graph",
        [info(name, *kind) for name, kind in inputs.items()],
        [info("y", FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def shaped() -> ModelProto:
    """Return a model whose second input is a shape for twelve elements, so that the model runs on few values of this input."""
    nodes = [node("Reshape", ["x", "s"], ["r"]), node("Relu", ["r"], ["a"]), node("Relu", ["a"], ["y"])]
    return model(nodes, {"x": (FLOAT, [12]), "s": (INTEGER, [2])})


def rows() -> ModelProto:
    return model([node("Add", ["x", "z"], ["y"])], {"x": (FLOAT, ["n", None]), "z": (FLOAT, ["n", 1])})


EXAMPLE: dict[str, Any] = {"x": np.zeros((3, 5), np.float32), "z": np.ones((3, 1), np.float32)}


def test_examples_are_read_from_mappings_archives_and_folders(tmp_path: Path) -> None:
    np.savez(tmp_path / "example.npz", **EXAMPLE)
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    for number, (name, value) in enumerate(EXAMPLE.items()):
        tensor = numpy_helper.from_array(value, name if number else "unnamed")
        (folder / f"input_{number}.pb").write_bytes(tensor.SerializeToString())
    for found in read_examples([EXAMPLE, tmp_path / "example.npz", str(folder)], as_model(rows())):
        assert {name: value.tolist() for name, value in found.items()} == {n: v.tolist() for n, v in EXAMPLE.items()}


def test_numbers_of_one_kind_are_cast_and_others_are_refused() -> None:
    given = as_model(shaped())
    (found,) = read_examples([{"x": np.zeros(12), "s": np.array([3, 4], np.int32)}], given)
    assert [found[name].dtype.name for name in "xs"] == ["float32", "int64"]
    with pytest.raises(ExampleError, match="'s' has elements of type float64"):
        read_examples([{"s": [3.0, 4.0]}], given)


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ({"w": [0.0]}, "the model has no input 'w'; its inputs are x, z"),
        ({"x": [0.0]}, r"'x' has the shape \[1\]"),
        ({"z": np.zeros((2, 2))}, r"'z' has the shape \[2, 2\]"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(example: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ExampleError, match=message):
        read_examples([example], as_model(rows()))


def test_the_sizes_of_dynamic_dimensions_are_read_from_the_arrays() -> None:
    given = as_model(rows())
    examples = read_examples([EXAMPLE, EXAMPLE, {"x": np.zeros((2, 5))}], given)
    assert example_sizes(examples, given) == [{"n": 3, "x[1]": 5}, {"n": 2, "x[1]": 5}]
    with pytest.raises(ExampleError, match="dimension 'n' two different sizes, 3 and 2"):
        example_sizes(read_examples([{**EXAMPLE, "z": np.zeros((2, 1))}], given), given)


def test_a_source_gives_examples_where_they_fit_and_random_values_elsewhere() -> None:
    proto = shaped()
    examples = read_examples([{"s": [3, 4]}, {"x": np.ones(12), "s": [2, 6]}], as_model(proto))
    source = InputSource(examples=examples).bounded(proto)
    ports = Session(proto, CPU).inputs
    first, second = (source.values(ports, seed) for seed in (0, 1))
    assert first["s"].tolist() == [3, 4]
    assert len({*first["x"].tolist()}) > 1
    assert second["x"].tolist() == [1] * 12
    assert source.drawn(ports, 1)["s"].tolist() == [2, 6]
    assert len({*source.drawn(ports, 1)["x"].tolist()}) > 1
    assert source.digest != InputSource(examples=source.examples[:1]).digest
    assert InputSource().bounded(proto).digest == ""


@pytest.mark.slow
def test_a_model_that_runs_on_few_inputs_is_optimized_on_an_example(tmp_path: Path) -> None:
    how: Any = {"budget": 0.3, "cache": tmp_path / "cache"}
    assert "runs on none of the random inputs" in superopt.optimize(shaped(), **how).report.reason
    report = superopt.optimize(shaped(), inputs=[{"s": [3, 4]}], **how).report
    assert "random inputs" not in report.reason


def test_a_candidate_that_is_wrong_on_an_example_alone_fails_the_check() -> None:
    def lookup(last: float) -> ModelProto:
        table = np.arange(64, dtype=np.float32).reshape(64, 1)
        table[63] = last
        nodes = [node("Gather", ["table", "i"], ["y"])]
        return model(nodes, {"i": (INTEGER, [1])}, {"table": table})

    example = read_examples([{"i": [63]}], as_model(lookup(0)))
    check_candidate(lookup(0), lookup(0), CPU, given=InputSource(examples=tuple(example)))
    with pytest.raises(CheckFailedError, match="example 0"):
        check_candidate(lookup(0), lookup(1), CPU, given=InputSource(examples=tuple(example)))


def test_an_example_is_not_overwritten(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source, example = tmp_path / "in.onnx", tmp_path / "example.npz"
    onnx.save(rows(), source)
    np.savez(example, **EXAMPLE)
    before = example.read_bytes()
    target = str(tmp_path / "out.onnx")
    assert cli.main(["optimize", str(source), target, "--input", str(example), "--json", str(example)]) == TargetError.exit_code
    assert example.read_bytes() == before
    assert "--input" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"not an archive"])
def test_a_file_that_cannot_be_read_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes | None
) -> None:
    source, example = tmp_path / "in.onnx", tmp_path / "example.npz"
    onnx.save(rows(), source)
    if content is not None:
        example.write_bytes(content)
    code = cli.main(["optimize", str(source), str(tmp_path / "out.onnx"), "--input", str(example)])
    assert code == ExampleError.exit_code
    (line,) = (text for text in capsys.readouterr().err.splitlines() if text.startswith("superopt:"))
    assert "example inputs cannot be read" in line


def damaged(kind: str) -> bytes:
    """Return an .npz file with one member `x.npy` that cannot be read."""
    stored = io.BytesIO()
    if kind in ("no array", "huge"):
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**30,)})
        with zipfile.ZipFile(stored, "w") as archive:
            archive.writestr(*(("x", b"text") if kind == "no array" else ("x.npy", header.getvalue())))
        return stored.getvalue()
    np.savez_compressed(stored, x=np.arange(64.0))
    data = bytearray(stored.getvalue())
    central = data.rfind(b"PK\x01\x02")
    if kind == "encrypted":
        data[6] |= 1
        data[central + 8] |= 1
    elif kind == "compressed otherwise":
        data[8] = data[central + 10] = 99
    else:
        data[60:90] = b"\xff" * 30
    return bytes(data)


@pytest.mark.parametrize("kind", ["no array", "huge", "encrypted", "compressed otherwise", "changed"])
def test_a_damaged_archive_is_an_error_of_the_example(tmp_path: Path, kind: str) -> None:
    (tmp_path / "x.npz").write_bytes(damaged(kind))
    with pytest.raises(ExampleError, match=r"x\.npz"):
        read_examples([tmp_path / "x.npz"], as_model(rows()))


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_a_file_of_one_array_without_a_name_is_refused(tmp_path: Path, name: str) -> None:
    with (tmp_path / name).open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(ExampleError, match="the array has no input name"):
        read_examples([tmp_path / name], as_model(rows()))
