"""The commands and the Python examples of the README and of docs/ work.

Each page has one test, which runs the page's snippets in their order, in a folder with the files that the pages name. Searches
have a budget of a fraction of a second.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt.cli.arguments import parse_arguments
from superopt.cli.main import main
from tests.models import weight
from tests.snippets import CONTRIBUTING, PAGES, PRINTED, ROOT, SCRIPTS, Snippet, all_snippets, reason_not_run, snippets, summary

BUDGET, COMPARISON = "0.3s", "0.3s"
FOLDERS = ("benchmarks", "docs", "examples", "scripts", "specs", "substitutions", "superopt", "tests")
SEARCHING = re.compile(r"\b(optimize|verify|export|pack|prove|derive|serve_plan)\b")
"""The commands and functions that take seconds."""
RUN_PAGES = [page for page in PAGES if page != CONTRIBUTING and any(not s.not_run for s in snippets(page) if s.language != "")]


LONG_PAGES = {
    f"docs/{page}.md"
    for page in ("accuracy", "certificates", "ci", "commands", "derive", "dimensions", "kernels", "page", "rules", "sessions")
}
"""The pages whose snippets take 11 s or more of one core, except docs/start.md and the README."""


def tier(page: str) -> list[pytest.MarkDecorator]:
    if page in LONG_PAGES:
        return [pytest.mark.long]
    run = [s for s in snippets(page) if s.language in ("console", "python") and not s.not_run]
    return [pytest.mark.slow] if any(SEARCHING.search(s.text) is not None for s in run) else []


def example_model() -> onnx.ModelProto:
    """Return a model with the inputs and the dimensions that the pages name."""
    info, node = helper.make_tensor_value_info, helper.make_node
    nodes = [
        node("MatMul", ["x", "v"], ["a"]),
        node("MatMul", ["x", "w"], ["b"]),
        node("Add", ["a", "b"], ["c"]),
        node("Relu", ["c"], ["y"]),
        node("Relu", ["mask"], ["z"]),
        node("Cast", ["sr"], ["rate"], to=TensorProto.FLOAT),
        node("Sqrt", ["rate"], ["root"]),
    ]
    inputs = [
        info("x", TensorProto.FLOAT, ["batch", "seq", 64]),
        info("mask", TensorProto.FLOAT, [None, None, None]),
        info("sr", TensorProto.INT64, []),
    ]
    outputs = [
        info("y", TensorProto.FLOAT, ["batch", "seq", 64]),
        info("z", TensorProto.FLOAT, [None, None, None]),
        info("root", TensorProto.FLOAT, []),
    ]
    graph = helper.make_graph(nodes, "example", inputs, outputs, [weight("v", 64, 64), weight("w", 64, 64, seed=1)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def tenant_model(seed: int) -> onnx.ModelProto:
    """Return a model with one input `x`, for the page about packed models."""
    info, node = helper.make_tensor_value_info, helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["y"])]
    ends = [info(name, TensorProto.FLOAT, [1, 64]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "tenant", ends[:1], ends[1:], [weight("w", 64, 64, seed=seed)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with the files that the pages name and with its own cache, and make it the current folder."""
    for name in FOLDERS:
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("in.onnx", "out.onnx", "model.onnx", "faster.onnx"):
        onnx.save(example_model(), tmp_path / name)
    for seed, name in enumerate(("a.onnx", "b.onnx")):
        onnx.save(tenant_model(seed), tmp_path / name)
    values: dict[str, Any] = {
        "x": np.ones((2, 8, 64), np.float32),
        "mask": np.ones((1, 2, 3), np.float32),
        "sr": np.array(16000),
    }
    np.savez(tmp_path / "example.npz", **values)
    (tmp_path / "test_data_set_0").mkdir()
    for number, (name, value) in enumerate(values.items()):
        tensor = numpy_helper.from_array(value, name)
        (tmp_path / "test_data_set_0" / f"input_{number}.pb").write_bytes(tensor.SerializeToString())
    for name in ("FILE", "OTHER"):
        (tmp_path / name).write_text("relu(relu(x)) => relu(x) for x[2]\n", encoding="utf-8")
    own = "triple-relu: relu(relu(relu(x))) => relu(x) for x[1, 2]\n"
    (tmp_path / "my.rules").write_text(own, encoding="utf-8")
    shutil.copy(ROOT / "benchmarks" / "h200" / "profile.json", tmp_path / "gpu.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def shortened(arguments: list[str]) -> list[str]:
    """Return the arguments with a short time limit in place of the page's."""
    limits = {"optimize": ("--budget", BUDGET), "pack": ("--budget", BUDGET), "compare": ("--seconds", COMPARISON)}
    if arguments[0] not in limits:
        return arguments
    option, limit = limits[arguments[0]]
    at = arguments.index(option) if option in arguments else len(arguments)
    return [*arguments[:at], option, limit, *arguments[at + 2 :]]


def run_command(snippet: Snippet) -> None:
    program, *arguments = snippet.words
    if program == "superopt":
        assert main(shortened(arguments)) == 0, snippet
    else:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, ROOT / program, *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (snippet, done.stderr)


@pytest.mark.parametrize("page", [pytest.param(p, marks=tier(p)) for p in RUN_PAGES])
def test_the_snippets_of_a_page_work(page: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    modules = {"ir": ir, "np": np, "onnx": onnx, "onnxruntime": onnxruntime, "signal": signal, "superopt": superopt}
    names: dict[str, Any] = {**modules, "threading": threading}
    handler = signal.getsignal(signal.SIGINT)
    try:
        for snippet in snippets(page):
            if snippet.not_run or snippet.language in PRINTED:
                continue
            if snippet.language == "console":
                run_command(snippet)
            else:
                assert snippet.language == "python", snippet
                code = re.sub(r'budget="[^"]*"', f'budget="{BUDGET}"', snippet.text)
                exec(compile(code, f"{page}:{snippet.line}", "exec"), names)
    finally:
        signal.signal(signal.SIGINT, handler)
        sys.modules.pop("found_rules", None)


def test_every_command_of_superopt_is_understood(folder: Path) -> None:
    commands = [s for s in all_snippets() if s.language == "console" and not s.reason and s.words[0] == "superopt"]
    for snippet in commands:
        assert parse_arguments(snippet.words[1:]).run, snippet


@functools.cache
def usage(name: str) -> str:
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / name, "--help"], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.slow
def test_every_command_of_a_script_has_options_that_the_script_knows() -> None:
    for snippet in all_snippets():
        if snippet.language == "console" and not snippet.reason and snippet.words[0].startswith("scripts/"):
            program, *arguments = snippet.words
            script = ROOT / program
            assert os.access(script, os.X_OK), snippet
            if "python" in script.read_text(encoding="utf-8").partition("\n")[0]:
                options = [a.partition("=")[0] for a in arguments[: (*arguments, "--").index("--")] if a.startswith("--")]
                assert not [option for option in options if option not in usage(script.name)], snippet


def test_a_snippet_is_run_or_has_a_reason() -> None:
    for snippet in all_snippets():
        if snippet.page != CONTRIBUTING and not snippet.reason:
            assert snippet.language in ("console", "python"), snippet
            assert snippet.language == "python" or snippet.words[0] == "superopt" or snippet.words[0].startswith("scripts/"), (
                snippet
            )


def test_output_and_notation_look_like_no_command() -> None:
    for page in PAGES:
        for snippet in snippets(page):
            if snippet.language in PRINTED:
                assert not re.search(r"^ *(\$ |superopt [a-z]|pip |scripts/\w+ -)", snippet.text, re.MULTILINE), snippet


def test_every_reason_belongs_to_a_script_of_a_page() -> None:
    named = {s.words[0].removeprefix("scripts/") for s in all_snippets() if s.language == "console" and not s.reason}
    assert {*SCRIPTS} <= named


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("superopt optimize a b --provider cuda", "needs a GPU"),
        ("superopt prove", "takes minutes"),
        ("superopt prove --axioms --operator relu", ""),
        ("superopt optimize a b", ""),
        ("scripts/test", "runs these tests"),
    ],
)
def test_reasons(command: str, reason: str) -> None:
    assert reason_not_run(command.split()) == reason


def test_every_snippet_is_counted() -> None:
    first, *rows = (int(line.split()[0]) for line in summary().splitlines())
    assert first == sum(rows) == len(all_snippets())
