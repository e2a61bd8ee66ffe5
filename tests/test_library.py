"""The library interface: forms of models, texts for durations, mappings of sizes, and deferred imports."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import superopt
from superopt.errors import DimensionError, InvalidModelError, ModelNotFoundError
from superopt.model.dimensions import size_combinations
from superopt.model.load import load
from tests.models import model, run, weight

HEAVY = ("onnx", "onnx_ir", "onnxruntime", "numpy", "sympy", "z3", "networkx")


class Program:
    """A stand-in for `torch.onnx.ONNXProgram`: the same constructor and the same attributes."""

    def __init__(self, model: ir.Model, exported_program: object) -> None:
        self.model, self.exported_program = model, exported_program


def branches(dimension: int | str = 96) -> onnx.ModelProto:
    """Return the sum of two products with the same left factor, which one product can compute."""
    weights = [weight("v", 192, 192), weight("w", 192, 192, seed=1)]
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"]),
        helper.make_node("MatMul", ["x", "w"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    return model(nodes, {"x": [dimension, 192]}, {"y": [dimension, 192]}, weights)


def loaded_modules(code: str) -> set[str]:
    """Run Python code in its own process, and return the modules of `HEAVY` that the code imports."""
    script = f"import sys\ntry:\n    {code}\nfinally:\n    print([*{{*{HEAVY!r}}} & {{*sys.modules}}], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return {*json.loads(done.stderr.splitlines()[-1].replace("'", '"'))}


@pytest.mark.slow
def test_importing_superopt_imports_no_large_library() -> None:
    assert loaded_modules("import superopt") == set()
    assert {"onnx", "numpy"} <= loaded_modules("import superopt; superopt.optimize")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--version"], ["optimize", "absent.onnx", "out.onnx"], ["optimize", "--help"]])
def test_a_command_that_reads_no_model_imports_no_large_library(arguments: list[str]) -> None:
    assert loaded_modules(f"from superopt.cli.main import main; main({arguments!r})") == set()


@pytest.mark.slow
def test_optimizing_does_not_import_the_prover() -> None:
    assert "z3" not in loaded_modules("import superopt; superopt.optimize")


def test_public_names_are_listed_and_unknown_names_are_not_found() -> None:
    assert {*superopt.__all__} <= {*dir(superopt)}
    with pytest.raises(AttributeError, match="has no attribute 'optimise'"):
        _ = superopt.optimise


def test_every_form_of_a_model_is_loaded_alike(tmp_path: Path) -> None:
    proto = branches()
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    program = Program(ir.from_proto(proto), "exported")
    for source in (str(path), path, path.read_bytes(), io.BytesIO(path.read_bytes()), proto, ir.from_proto(proto), program):
        assert [node.op_type for node in load(source).model.graph] == ["MatMul", "MatMul", "Add"]
    with path.open("rb") as file:
        assert len([*load(file).model.graph]) == 3


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "the model is empty"), (b"not a model", "the given bytes are not an ONNX model")]
)
def test_bytes_that_are_no_model_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(InvalidModelError, match=message):
        load(content)
    with pytest.raises(InvalidModelError, match=message):
        load(io.BytesIO(content))


@pytest.mark.parametrize("source", [5, None, [b"x"], io.StringIO("text")])
def test_other_objects_are_refused_with_their_type(source: object) -> None:
    with pytest.raises(TypeError, match=f"not {type(source).__name__}"):
        load(source)  # type: ignore[arg-type]


def test_a_missing_file_is_reported_before_anything_is_imported_or_run(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no such file"):
        superopt.optimize(tmp_path / "absent.onnx")


def test_sizes_are_given_by_one_mapping() -> None:
    assert size_combinations({"a": 2, "b": (3, 4)}) == [{"a": 2, "b": 3}, {"a": 2, "b": 4}]
    assert size_combinations({}) == [{}]


@pytest.mark.slow
def test_the_result_has_the_type_of_the_given_model(tmp_path: Path) -> None:
    proto = branches()
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    cache = tmp_path / "cache.sqlite"
    expected = run(proto)[0]

    def same(found: onnx.ModelProto) -> bool:
        assert len(found.graph.node) < 3
        return bool(np.allclose(run(found)[0], expected, rtol=1e-4, atol=1e-3))

    first = superopt.optimize(proto, budget="60s", cache=cache)
    assert first.report.accepted, first.report.reason
    assert first.report.budget == 60
    assert same(first.model)
    assert same(onnx.load_model_from_string(superopt.optimize(path.read_bytes(), budget="1m", cache=cache).model))
    assert same(ir.to_proto(superopt.optimize(path, budget=60, cache=cache).model))
    given = Program(ir.from_proto(proto), "exported")
    program = superopt.optimize(given, budget=60, cache=cache).model
    assert isinstance(program, Program)
    assert program is not given
    assert program.exported_program == "exported"
    assert same(ir.to_proto(program.model))
    assert len([*given.model.graph]) == 3


def test_a_result_without_a_faster_model_is_the_given_object(tmp_path: Path) -> None:
    proto = branches()
    content, program = proto.SerializeToString(), Program(ir.from_proto(proto), None)
    for given in (proto, content, program):
        optimized = superopt.optimize(given, moves=(), budget=0, cache=tmp_path / "cache.sqlite")
        assert optimized.model is given
        optimized.save(tmp_path / "out.onnx")
        assert len(onnx.load(tmp_path / "out.onnx").graph.node) == 3
        assert json.loads(optimized.certificate)


def test_the_representation_of_a_result_is_one_short_line(tmp_path: Path) -> None:
    optimized = superopt.optimize(branches(), moves=(), budget=0, cache=tmp_path / "cache.sqlite")
    assert repr(optimized) == f"<Optimized {optimized.report.model}: {optimized.report.reason}>"
    assert len(repr(optimized)) < 300


def test_a_mapping_of_sizes_chooses_where_the_model_is_measured(tmp_path: Path) -> None:
    cache = tmp_path / "cache.sqlite"
    with pytest.raises(DimensionError):
        superopt.optimize(branches("rows"), shapes={"columns": 3}, cache=cache)
    with pytest.raises(ValueError, match="'soon' is not a duration"):
        superopt.optimize(branches(), budget="soon", cache=cache)


@pytest.mark.long
def test_the_python_example_of_the_readme_runs(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parent.parent
    code, *_ = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "examples").symlink_to(root / "examples")
    environment = {**os.environ, "PYTHONPATH": str(root), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2, done.stdout
    first, second = done.stdout.splitlines()
    assert first
    assert second.startswith("faster.onnx: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fix", "batch=1"),
        ("stop", 3),
        ("moves", "rules"),
        ("opset", "17"),
        ("tolerance", None),
        ("growth", "a"),
        ("seed", 1.5),
        ("seed", None),
        ("budget", True),
        ("shapes", None),
        ("shapes", {"n": -1}),
        ("shapes", {"n": "a"}),
        ("shapes", {"n": True}),
    ],
)
def test_an_error_names_the_argument_of_a_wrong_kind(name: str, value: object) -> None:
    given = model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n"]}, {"y": ["n"]})
    with pytest.raises(ValueError, match="dimension 'n'" if isinstance(value, dict) else name):
        superopt.optimize(given, **{name: value})  # type: ignore[call-overload]


def test_numbers_of_numpy_and_a_single_example_are_taken() -> None:
    given = model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n"]}, {"y": ["n"]})
    numbers = {"seed": np.int64(3), "budget": np.float32(0), "shapes": {"n": np.int64(4)}}
    found = superopt.optimize(given, inputs={"x": np.ones(4, np.float32)}, no_cache=True, **numbers)  # type: ignore[call-overload]
    assert not found.report.accepted
