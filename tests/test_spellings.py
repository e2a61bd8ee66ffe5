"""Each spelling of the corpus computes the same function as its operator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.spellings.corpus import FOLDER, is_operator, operator_for, opset, read, spellings
from benchmarks.spellings.equality import require_equal
from benchmarks.spellings.figures import Figures
from superopt.runtime.compare import Comparison
from tests.test_house import script

FUNCTIONS = sorted(path.name for path in FOLDER.iterdir() if (path / "operator.onnxtxt").exists())
EXPORTERS = ("flax", "hand", "keras", "mxnet", "paddle", "pytorch_dynamo", "pytorch_torchscript", "tensorflow")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_spelling_computes_the_same_as_its_operator(function: str) -> None:
    for spelling in spellings([function]):
        require_equal(spelling)


def test_there_are_many_spellings() -> None:
    found = spellings()
    assert len(found) >= 60
    assert len({spelling.function for spelling in found}) >= 20
    assert {spelling.function for spelling in found} == set(FUNCTIONS)
    assert len({spelling.path.read_text(encoding="utf-8") for spelling in found}) == len(found)


def test_a_file_says_where_its_form_comes_from() -> None:
    for path in FOLDER.glob("*/*.onnxtxt"):
        assert path.read_text(encoding="utf-8").startswith("# "), path.name
        assert is_operator(path) or path.name.startswith(EXPORTERS), path.name


def test_the_name_of_an_operator_has_its_opset() -> None:
    for path in FOLDER.glob("*/operator.opset*.onnxtxt"):
        assert path.name == f"operator.opset{opset(read(path))}.onnxtxt"


def test_an_operator_is_no_newer_than_the_spelling() -> None:
    chosen = {path.stem: operator_for(path).name for path in (FOLDER / "gelu").glob("*.onnxtxt")}
    assert chosen["tensorflow_erf"] == "operator.opset11.onnxtxt"
    assert chosen["paddle_gelu"] == "operator.onnxtxt"


def test_weights_of_the_same_name_have_the_same_numbers() -> None:
    for spelling in spellings(["prelu/pytorch_*"]):
        (one,), (other,) = spelling.model.graph.initializer, spelling.operator.graph.initializer
        assert one.raw_data == other.raw_data


@pytest.fixture
def program() -> Any:
    return script("spellings")


def test_names_choose_spellings(program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(FOLDER / "tanh" / "pytorch_dynamo_exp.onnxtxt")
    assert program.main(["--check", "softsign", "gelu/tensorflow_*", file]) == 0
    assert capsys.readouterr().out == "5 of 5 spellings compute the same as their operators\n"


def test_an_unknown_name_is_told(program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--check", "sofsign"]) == 2
    assert capsys.readouterr().err == "spellings: no spelling is called sofsign\n"


def test_a_spelling_that_differs_is_told(
    program: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (spelling,) = spellings(["tanh/pytorch_dynamo_exp"])
    wrong = replace(spelling, operator_path=FOLDER / "sigmoid" / "operator.onnxtxt")
    monkeypatch.setattr(program, "spellings", lambda _: [wrong])
    assert program.main(["--check"]) == 1
    assert "tanh/pytorch_dynamo_exp: ValueError: an output differs by" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("operator", "result", "reached"),
    [(2.0, 1.95, True), (2.0, 1.8, False), (2.0, None, False), (1.02, None, True), (0.5, None, True)],
)
def test_a_spelling_reaches_an_operator_that_is_not_much_faster(operator: float, result: float | None, reached: bool) -> None:
    def timed(ratio: float) -> Comparison:
        return Comparison(ratio, 1.0, ratio, ratio, ratio, 1.0, 0.0, 10)

    figures = Figures("f/hand", 13, 2, 1, ["Relu"], timed(operator), None if result is None else timed(result), "")
    assert figures.reached == reached


def test_figures_are_written(program: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["tanh/*", "--operators", "--measure", "0.1s", "--json", str(tmp_path / "figures.json")]) == 0
    assert "tanh/pytorch_dynamo_exp: operator " in capsys.readouterr().out
    assert '"spelling": "tanh/pytorch_torchscript_sigmoid"' in (tmp_path / "figures.json").read_text(encoding="utf-8")
