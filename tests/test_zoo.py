"""The script scripts/zoo, as far as it can be tested without the libraries that define its networks."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from benchmarks.zoo import standard, synthetic
from benchmarks.zoo.catalogue import CONVOLUTIONAL, MODELS, QUANTIZED
from benchmarks.zoo.recipes import Exported, Recipe, Synthetic, seed
from tests.test_house import ROOT, script

pytestmark = pytest.mark.slow

ZOO = ROOT / "benchmarks" / "zoo"
SMALL = Synthetic(width=32, layers=3, batch=2)


def zoo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script without any third-party package."""
    run = [sys.executable, "-S", "-E", str(ROOT / "scripts" / "zoo"), *arguments]
    return subprocess.run(run, capture_output=True, text=True, check=False)


def session(path: Path) -> ort.InferenceSession:
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


def test_the_list_names_each_model_once() -> None:
    listed = [line.split()[0] for line in zoo("--list").stdout.splitlines()]
    assert listed == list(MODELS)
    assert len(set(listed)) == len(listed)


def test_the_list_says_what_must_be_named_in_full() -> None:
    lines = zoo("--list").stdout.splitlines()
    by_name = [line.split()[0] for line in lines if "only when named in full" in line]
    assert by_name == [name for name, recipe in MODELS.items() if recipe.only_by_name] == ["synthetic_3gb"]
    assert zoo("--list", "synthetic*").returncode == 2


def test_a_pattern_chooses() -> None:
    listed = [line.split()[0] for line in zoo("--list", "resnet18*").stdout.splitlines()]
    assert listed == ["resnet18", "resnet18_64px", "resnet18_legacy", "resnet18_qdq"]


def test_an_unknown_name_is_told() -> None:
    finished = zoo("resnet18", "resnet19")
    assert finished.returncode == 2
    assert finished.stderr == "zoo: no model is called resnet19; --list shows them all\n"


def defined(module: str) -> dict[str, set[str]]:
    """Return the parameters of every function and class of a module of the zoo."""
    found: dict[str, set[str]] = {}
    for node in ast.parse((ZOO / f"{module}.py").read_text(encoding="utf-8")).body:
        makers = [f for f in node.body if isinstance(f, ast.FunctionDef)] if isinstance(node, ast.ClassDef) else [node]
        for maker in makers:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and isinstance(maker, ast.FunctionDef):
                found.setdefault(node.name, {p.arg for p in [*maker.args.args, *maker.args.kwonlyargs]})
    return found


@pytest.mark.parametrize("name", [name for name, recipe in MODELS.items() if isinstance(recipe, Exported)])
def test_a_builder_is_defined(name: str) -> None:
    recipe = MODELS[name]
    assert isinstance(recipe, Exported)
    module, _, attribute = recipe.builder.partition(".")
    assert set(recipe.options) <= defined(module)[attribute]


def test_a_quantized_model_is_named_after_its_original() -> None:
    for name, recipe in QUANTIZED.items():
        assert name == f"{recipe.name}_qdq"
        assert recipe.original == CONVOLUTIONAL[recipe.name]


def test_seeds_differ() -> None:
    assert len({seed(name) for name in MODELS}) == len(MODELS)


def test_the_files_are_short_enough_to_read() -> None:
    for path in ZOO.glob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert source.count("\n") <= 400, path
        assert ast.get_docstring(ast.parse(source)), path


@dataclass(frozen=True)
class Broken(Recipe):
    packages: ClassVar[tuple[str, ...]] = ()

    def write(self, name: str, target: Path) -> None:
        target.write_bytes(b"half a model")
        raise ValueError("the weights\nare missing")


@dataclass(frozen=True)
class Whole(Recipe):
    packages: ClassVar[tuple[str, ...]] = ()

    def write(self, name: str, target: Path) -> None:
        target.with_name(f"{target.name}.data").write_bytes(b"weights")
        target.write_bytes(name.encode())


def test_a_model_that_fails_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not script("zoo").is_made("broken", Broken(), tmp_path)
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().err == "zoo: broken: ValueError: the weights are missing\n"


def test_a_model_is_written_once(tmp_path: Path) -> None:
    is_made = script("zoo").is_made
    assert is_made("whole", Whole(), tmp_path)
    assert is_made("whole", Broken(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["whole.onnx", "whole.onnx.data"]
    assert (tmp_path / "whole.onnx").read_bytes() == b"whole"


def test_the_rest_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("zoo")
    monkeypatch.setattr(module, "MODELS", {"broken": Broken(), "whole": Whole()})
    assert module.main(["--out", str(tmp_path)]) == 1
    assert module.main(["--out", str(tmp_path), "whole"]) == 0
    assert (tmp_path / "whole.onnx").exists()


def test_an_environment_is_made_where_something_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("zoo")
    done: list[str] = []

    def install() -> None:
        done.append("install")
        module.RECORD.write_text(module.made_from(), encoding="utf-8")

    monkeypatch.setattr(module, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(module, "RECORD", tmp_path / "made-from")
    monkeypatch.setattr(module, "install", install)
    monkeypatch.setattr(module.os, "execv", lambda path, _: done.append(f"run {path.relative_to(ROOT)}"))
    module.require(["onnx", "numpy"])
    assert done == []
    module.require(["no_such_package"])
    module.require(["no_such_package"])
    assert done == ["install", "run .venv-zoo/bin/python", "run .venv-zoo/bin/python"]


def test_a_synthetic_model_has_its_weights_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    synthetic.write(SMALL, 1, path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["small.onnx", "small.onnx.data"]
    tensors = onnx.load(path, load_external_data=False).graph.initializer
    places = [{entry.key: entry.value for entry in tensor.external_data} for tensor in tensors]
    assert {place["location"] for place in places} == {"small.onnx.data"}
    assert sum(int(place["length"]) for place in places) >= 4 * SMALL.layers * SMALL.width**2
    last = places[-1]
    assert (tmp_path / "small.onnx.data").stat().st_size == int(last["offset"]) + int(last["length"])


def test_a_synthetic_model_computes_what_its_weights_say(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    synthetic.write(SMALL, 1, path)
    drawn = dict(synthetic.weights(SMALL, 1))
    x = np.random.default_rng(0).standard_normal((2, 32)).astype(np.float32)
    (y,) = session(path).run(None, {"x": x})
    for layer in range(SMALL.layers):
        x = np.maximum(x @ drawn[f"weight_{layer}"] + drawn[f"bias_{layer}"], 0)
    np.testing.assert_allclose(y, x @ (drawn["weight_left"] + drawn["weight_right"]), rtol=1e-4, atol=1e-4)


def test_the_large_model_is_as_large_as_its_name() -> None:
    recipe = MODELS["synthetic_3gb"]
    assert isinstance(recipe, Synthetic)
    assert 2.9e9 < 4 * recipe.layers * recipe.width**2 < 3.1e9


def test_a_light_model_has_random_weights(tmp_path: Path) -> None:
    model = standard.weighted("shufflenet", 1)
    onnx.checker.check_model(model)
    assert "ConstantOfShape" not in {node.op_type for node in model.graph.node}
    assert model.opset_import[0].version == standard.OPSET
    (image,) = model.graph.input
    weights = [numpy_helper.to_array(t) for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    assert sum(weight.size for weight in weights) > 1e6
    assert all(np.unique(weight).size > 1 for weight in weights)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    x = np.random.default_rng(0).standard_normal([d.dim_value for d in image.type.tensor_type.shape.dim]).astype(np.float32)
    (y,) = session(path).run(None, {image.name: x})
    assert np.isfinite(y).all()
    assert np.unique(y).size > 1


def test_weights_are_those_of_the_seed() -> None:
    first, again, other = (standard.weighted("squeezenet", n).SerializeToString(deterministic=True) for n in (1, 1, 2))
    assert first == again != other
