"""The command line: exit codes, one line for each failure, targets untouched, reports, and Ctrl-C."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest
from onnx import helper, numpy_helper

from superopt import errors
from superopt.cli import main as cli
from superopt.cli.arguments import all_actions, parse_arguments
from superopt.cli.types import time_span
from superopt.discovery.candidates import UniverseCounts
from superopt.flows.generate import Generation
from superopt.proof.ledger import LedgerRow
from superopt.report.progress import Progress
from superopt.rules.rule import parse_rule, parse_rules
from superopt.rules.store import load
from superopt.rules.verdict import Proved, Unknown
from superopt.runtime.session import runtime
from tests.models import model, weight

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
FLOW = importlib.import_module("superopt.flows.optimize")
PREPARE = importlib.import_module("superopt.flows.prepare")
BEFORE = b"what was there before"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return the path of a model with nothing to gain."""
    path = tmp_path / "in.onnx"
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    onnx.save(model(nodes, {"x": [2, 4]}, {"y": [2, 4]}, [weight("w", 4, 4)]), path)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "out.onnx"
    path.write_bytes(BEFORE)
    return path


def command(*arguments: str | Path, setup: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `superopt` with these arguments in its own process, after the Python code `setup`."""
    script = f"{setup}\nimport sys\nfrom superopt.cli.main import main\nsys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def fails(capsys: pytest.CaptureFixture[str], error: type[errors.SuperoptError], *arguments: str | Path) -> str:
    """Require that the command fails with the error's exit code, and return the one line that it prints."""
    assert cli.main([str(a) for a in arguments]) == error.exit_code
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("superopt: ")]
    assert len(lines) == 1
    return lines[0]


# ---------------------------------------------------------------- bad input


def test_a_missing_model(capsys: pytest.CaptureFixture[str], target: Path) -> None:
    line = fails(capsys, errors.ModelNotFoundError, "optimize", "absent.onnx", target)
    assert line == "superopt: absent.onnx: no such file"
    assert target.read_bytes() == BEFORE


@pytest.mark.parametrize("content", [b"", b"\x00\xffgarbage" * 50, b"<html></html>"])
def test_a_file_that_is_no_model(capsys: pytest.CaptureFixture[str], source: Path, target: Path, content: bytes) -> None:
    source.write_bytes(content)
    assert str(source) in fails(capsys, errors.InvalidModelError, "optimize", source, target)
    assert target.read_bytes() == BEFORE


@pytest.mark.parametrize("error", [OSError(36, "File name too long", "x" * 999), MemoryError("Unable to allocate 2 TiB")])
def test_what_the_system_refuses_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refused(_: argparse.Namespace) -> int:
        raise error

    monkeypatch.setitem(cli.COMMANDS, "inspect", refused)
    assert cli.main(["inspect", "x.onnx"]) == errors.ResourceError.exit_code
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) < 400


def test_a_model_in_a_text_format_is_no_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    onnx.save(model([helper.make_node("Relu", ["x"], ["y"])], {"x": [4]}, {"y": [4]}), tmp_path / "m.textproto")
    assert cli.main(["optimize", str(tmp_path / "m.textproto"), str(tmp_path / "out.onnx")]) == 21
    assert "not an ONNX model" in capsys.readouterr().err
    assert not (tmp_path / "out.onnx").exists()


def test_a_model_that_the_runtime_cannot_load(capsys: pytest.CaptureFixture[str], source: Path, target: Path) -> None:
    proto = onnx.load(source)
    proto.graph.node[0].op_type = "NoSuchOperator"
    source.write_bytes(proto.SerializeToString())
    line = fails(capsys, errors.InvalidModelError, "optimize", source, target)
    assert f"{source}: ONNX Runtime cannot load the model" in line
    assert target.read_bytes() == BEFORE


def test_missing_external_data(capsys: pytest.CaptureFixture[str], source: Path, target: Path) -> None:
    onnx.save(onnx.load(source), source, save_as_external_data=True, location="w.bin", size_threshold=0)
    (source.parent / "w.bin").unlink()
    assert "w.bin is missing" in fails(capsys, errors.ModelNotFoundError, "optimize", source, target)
    assert target.read_bytes() == BEFORE


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ({}, "has no location"),
        ({"location": "w.bin", "length": "many"}, "the length 'many' of its external data is not a number of bytes"),
        ({"location": "w.bin", "offset": "-5"}, "the offset '-5' of its external data is not a number of bytes"),
    ],
)
def test_external_data_that_cannot_be_found(
    capsys: pytest.CaptureFixture[str], source: Path, target: Path, entries: dict[str, str], fault: str
) -> None:
    proto = onnx.load(source)
    tensor = proto.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    source.write_bytes(proto.SerializeToString())
    assert fault in fails(capsys, errors.InvalidModelError, "optimize", source, target)
    assert target.read_bytes() == BEFORE


def test_external_data_whose_location_is_not_utf8(capsys: pytest.CaptureFixture[str], source: Path, target: Path) -> None:
    proto = onnx.load(source)
    for position, tensor in enumerate(proto.graph.initializer):
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=f"{position}-weights")
    source.write_bytes(proto.SerializeToString().replace(b"0-weights", b"0-weight\xff"))
    assert "text that is not UTF-8" in fails(capsys, errors.InvalidModelError, "optimize", source, target)
    assert target.read_bytes() == BEFORE


def test_external_data_of_a_tensor_that_is_not_external_is_ignored(source: Path, target: Path) -> None:
    proto = onnx.load(source)
    proto.graph.initializer[0].external_data.add(key="unknown", value="1")
    source.write_bytes(proto.SerializeToString())
    assert cli.main(["optimize", str(source), str(target), "--budget", "0.1"]) == 0


def test_targets_that_cannot_be_written(capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path) -> None:
    assert "no folder" in fails(capsys, errors.TargetError, "optimize", source, tmp_path / "absent" / "out.onnx")
    assert "is a folder" in fails(capsys, errors.TargetError, "optimize", source, tmp_path)
    report = tmp_path / "absent" / "report.json"
    assert "no folder" in fails(capsys, errors.TargetError, "optimize", source, tmp_path / "out.onnx", "--json", report)
    assert not (tmp_path / "out.onnx").exists()


def test_an_unknown_provider(capsys: pytest.CaptureFixture[str], source: Path, target: Path) -> None:
    line = fails(capsys, errors.ProviderError, "optimize", source, target, "--provider", "abacus")
    assert "unknown provider 'abacus'" in line
    assert target.read_bytes() == BEFORE


def test_what_tuning_finds_is_written_only_where_there_is_tuning(source: Path, target: Path) -> None:
    finished = command("optimize", source, target, "--ort-config")
    assert finished.returncode == 2
    assert finished.stderr.splitlines()[-1].endswith("argument --ort-config: requires --tune")
    assert target.read_bytes() == BEFORE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("b --provider cuda", "requires --provider cpu"),
        ("b --device-profile gpu.json", "not allowed with argument --device-profile"),
        ("--dry-run --fp precise", "requires --fp relaxed or --fp fast"),
    ],
)
def test_kernels_cannot_be_used_with_every_option(capsys: pytest.CaptureFixture[str], arguments: str, message: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["optimize", "a", *arguments.split(), "--kernels"])
    assert capsys.readouterr().err.endswith(f"error: argument --kernels: {message}\n")


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_an_absent_provider(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, source: Path, target: Path, provider: str
) -> None:
    monkeypatch.setattr(runtime(), "get_available_providers", lambda: ["CPUExecutionProvider"])
    for arguments in (("optimize", source, target), ("profile", source)):
        line = fails(capsys, errors.ProviderError, *arguments, "--provider", provider)
        assert f"has no provider {provider}" in line
    assert target.read_bytes() == BEFORE


def test_a_graph_of_what_runs_on_the_cpu(capsys: pytest.CaptureFixture[str], source: Path, target: Path) -> None:
    line = fails(capsys, errors.ProviderError, "optimize", source, target, "--cuda-graph")
    assert line == "superopt: CUDA graphs require the provider cuda"
    assert target.read_bytes() == BEFORE


def test_no_runtime_installed(source: Path, target: Path) -> None:
    finished = command("optimize", source, target, setup="import sys; sys.modules['onnxruntime'] = None")
    assert finished.returncode == errors.RuntimeMissingError.exit_code
    assert finished.stderr.splitlines()[-1].startswith("superopt: ONNX Runtime is not installed: run `pip install")
    assert "Traceback" not in finished.stderr
    assert target.read_bytes() == BEFORE


def test_a_segment_that_vanishes_is_reported(
    capsys: pytest.CaptureFixture[str], source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("superopt.flows.optimize.relower", lambda *_: ())
    types = [("Floor", "x", "a"), ("Neg", "a", "b"), ("Neg", "b", "c"), ("Floor", "c", "y")]
    nodes = [helper.make_node(op_type, [read], [written]) for op_type, read, written in types]
    onnx.save(model(nodes, {"x": [512, 512]}, {"y": [512, 512]}), source)
    assert cli.main(["optimize", str(source), str(target), "--budget", "5s", "--verbose"]) == 0
    assert "all gone" in capsys.readouterr().out
    assert [node.op_type for node in onnx.load(target).graph.node] == ["Floor", "Floor"]


def test_of_what_fails_the_check_nothing_is_saved(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, source: Path, target: Path
) -> None:
    monkeypatch.setattr(PREPARE, "load_rules", lambda: [replace(parse_rule("wrong: relu(x) => x for x[2]"), flags=frozenset())])
    nodes = [
        helper.make_node("Floor", ["x"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("Floor", ["r"], ["y"]),
    ]
    onnx.save(model(nodes, {"x": [512, 512]}, {"y": [512, 512]}), source)
    assert cli.main(["optimize", str(source), str(target), "--budget", "5s"]) == 0
    assert "the rewritten model fails the check (output 'y'" in " ".join(capsys.readouterr().out.split())
    assert target.read_bytes() == source.read_bytes()


PAIRS = {
    "the JSON and the model": ("--json", "in.onnx"),
    "the JSON and the result": ("--json", "out.onnx"),
    "the JSON and the certificate": ("--json", "x", "--certificate", "x"),
    "the certificate and a link to the model": ("--certificate", "soft"),
    "the cache and another name of the model": ("--cache", "hard"),
    "the cache and the JSON": ("--cache", "x", "--json", "../folder/x"),
    "the JSON and the profile": ("--json", "p.json", "--device-profile", "p.json"),
    "the JSON and the model's data file": ("--json", "in.bin"),
    "the JSON and the data file of the target": ("--json", "out.bin"),
    "the JSON and a data file that the target may have": ("--json", "out-0123456789abcdef.data"),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_two_outputs_or_an_input_that_are_one_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, source: Path, pair: str
) -> None:
    folder = source.parent / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("superopt.optimize", None)
    for name in ("in", "out"):
        onnx.save(onnx.load(source), f"{name}.onnx", save_as_external_data=True, location=f"{name}.bin", size_threshold=0)
    Path("p.json").write_text("{}")
    Path("soft").symlink_to("in.onnx")
    Path("hard").hardlink_to("in.onnx")
    was = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert "cannot write" in fails(capsys, errors.TargetError, "optimize", "in.onnx", "out.onnx", *PAIRS[pair])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == was


@pytest.mark.parametrize("target", ["in.bin", "link"])
def test_a_target_that_is_a_data_file_of_the_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path, target: str
) -> None:
    monkeypatch.setattr("superopt.optimize", None)
    onnx.save(onnx.load(source), source, save_as_external_data=True, location="in.bin", size_threshold=0)
    (tmp_path / "link").symlink_to("in.bin")
    assert "keeps tensors" in fails(capsys, errors.TargetError, "optimize", source, tmp_path / target)


def test_a_model_can_be_optimized_in_place(monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path) -> None:
    monkeypatch.setattr(PREPARE, "load_rules", list)
    (tmp_path / "link").symlink_to(source)
    for target in (source, tmp_path / "link"):
        assert cli.main(["optimize", str(source), str(target), "--budget", "0.1"]) == 0
    assert len(onnx.load(source).graph.node) == 2
    onnx.save(onnx.load(source), source, save_as_external_data=True, location="in.bin", size_threshold=0)
    assert cli.main(["optimize", str(source), str(source), "--budget", "0.1"]) == 0
    assert len(onnx.load(source).graph.node) == 2


def test_outputs_of_other_commands_that_are_one_file_with_an_input(
    capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    rules = next(iter(cli.command_rule_files().values()))
    for arguments in (
        ("profile", source, "--export", source),
        ("profile", "--import", source, "--export", source),
        ("profile", source, "--export", tmp_path / "x", "--cache", tmp_path / "x"),
        ("rules", "derive", source, "--json", source),
        ("rules", "derive", tmp_path / "x", "--from", source, "--json", source),
        ("rules", "export", "--format", "onnxscript", "--output", rules),
        ("rules", "show", load()[0].rule.name, "--svg", rules),
        ("generate", "--json", rules),
        ("generate", "--output", source),
        ("generate", "--resume", source / "below"),
    ):
        assert "cannot write" in fails(capsys, errors.TargetError, *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        *(["optimize", "a", "b", "--seed", text] for text in ("-1", "0.5", "nan", "", "1" * 5000)),
        *(["optimize", "a", "b", "--threads", text] for text in ("-1", "1000000000", "1e3", "9" * 5000)),
        *(["optimize", "a", "b", "--budget", text] for text in ("nan", "inf", "-1", "1e18", "9" * 400)),
        *(["optimize", "a", "b", "--tolerance", text] for text in ("nan", "0", "-1", "9" * 400)),
        *(["optimize", "a", "b", "--growth", text] for text in ("nan", "-1", "9" * 400)),
        *(["optimize", "a", "b", "--shape", text] for text in ("N", "N=", "N=-1", "N=1e18", "N=" + "9" * 40, "=3")),
        ["optimize", "a", "b", "--shape", "N=1", "--shape", "N=2"],
        ["optimize", "a", "b", *(f"--shape={name}=1,2,3,4,5,6,7,8" for name in "ABC")],
        ["verify", "a", "b", "--certificate", "c", "--seed", "-1"],
        ["profile", "a", "--threads", "1000000000"],
        ["prove", "--seed", "-1"],
        ["prove", "--workers", "1000000000"],
        ["generate", "--seed", "-1"],
        ["rules", "derive", "a", "--seed", "-1"],
        ["optimise"],
        ["optimize", "in.onnx"],
        ["optimize", "a", "b", "--budget", "soon"],
        ["optimize", "a", "b", "--budget", "-3"],
        ["optimize", "a", "b", "--threads", "0"],
        ["prove", "--axioms", "--fresh"],
    ],
)
def test_arguments_that_are_not_understood(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert "usage: superopt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("optimise a b", "optimize"),
        ("optimize a b --bugdet 3", "--budget"),
        ("optimize a b --treads=3", "--threads"),
        ("optimize a b --fp presice", "precise"),
        ("optimize --bugdet=3", "--budget"),
        ("--vresion", "--version"),
        ("rules shwo x", "show"),
        ("rules list --famly x", "--family"),
    ],
)
def test_misspelled_words_are_recognized(capsys: pytest.CaptureFixture[str], arguments: str, meant: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments.split())
    assert stopped.value.code == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


def test_misspelled_names_are_recognized(capsys: pytest.CaptureFixture[str]) -> None:
    name = load()[0].rule.name
    assert name in fails(capsys, errors.StoreError, "rules", "show", f"{name}x")
    assert "matrix" in fails(capsys, errors.StoreError, "rules", "list", "--family", "matrx")
    assert "matrix" in fails(capsys, errors.StoreError, "generate", "--family", "matrx")
    for command_name in ("rules list", "generate", "prove --axioms"):
        assert "matmul" in fails(capsys, errors.SpecError, *command_name.split(), "--operator", "matmull")


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit):
        cli.main([*words, "--help"])
    return capsys.readouterr().out


def test_the_help_of_every_command_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for name in (*cli.COMMANDS, "rules explain", "rules", "cache"):
        examples = help_of(capsys, *name.split()).partition("examples:")[2].splitlines()[1:]
        assert len(examples) > 1
        for example in examples:
            words = example.split()
            assert words[0] == "superopt"
            assert parse_arguments(words[1:]).run in cli.COMMANDS


def test_a_completion_script_is_printed_with_shtab(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def complete(parser: argparse.ArgumentParser, shell: str) -> str:
        paths = [action.dest for action in all_actions(parser) if getattr(action, "complete", None) == "files"]
        return f"{shell}: {' '.join(paths)}"

    monkeypatch.setitem(sys.modules, "shtab", SimpleNamespace(FILE="files", complete=complete))
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--print-completion", "zsh"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("zsh: ")
    assert {"source", "target", "certificate"} <= set(shown.split())
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--print-completion", "bash"])
    assert stopped.value.code == 2
    assert "pip install" in capsys.readouterr().err


def test_an_internal_error_is_one_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, source: Path, target: Path
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("superopt.optimize", broken)
    assert cli.main(["optimize", str(source), str(target)]) == cli.INTERNAL
    assert "internal error: ZeroDivisionError: two lines" in capsys.readouterr().err
    assert cli.main(["--debug", "optimize", str(source), str(target)]) == cli.INTERNAL
    assert "Traceback" in capsys.readouterr().err
    assert target.read_bytes() == BEFORE


def test_an_interrupt_ends_cleanly(source: Path, target: Path) -> None:
    script = """
import importlib, signal, sys, time
from superopt.cli.main import main

signal.signal(signal.SIGINT, signal.default_int_handler)

def load_rules():
    print("reading rules", file=sys.stderr, flush=True)
    time.sleep(60)

importlib.import_module("superopt.flows.prepare").load_rules = load_rules
sys.exit(main())
"""
    running = subprocess.Popen(
        [sys.executable, "-c", script, "optimize", source, target], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    assert "load" in running.stderr.readline()
    assert running.stderr.readline() == "reading rules\n"
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=30) == cli.INTERRUPTED
    with running.stderr:
        assert running.stderr.read() == "superopt: interrupted; nothing was written\n"
    assert target.read_bytes() == BEFORE


# ---------------------------------------------------------------- results


def test_where_nothing_is_faster_the_original_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, source: Path, target: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(PREPARE, "load_rules", list)
    report = tmp_path / "report.json"
    assert cli.main(["optimize", str(source), str(target), "--budget", "2s", "--json", str(report)]) == 0
    assert target.read_bytes() == source.read_bytes()
    assert "nothing faster was found" in capsys.readouterr().out
    read = json.loads(report.read_text())
    assert read["accepted"] is False
    assert read["budget"] == 2.0


def test_a_faster_model_is_written_with_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, source: Path, target: Path
) -> None:
    monkeypatch.setattr(PREPARE, "load_rules", lambda: parse_rules("factor: x @ y + x @ z => x @ (y + z) for x[2], y[2], z[2]"))
    names = [f"w[bold]{i}" for i in range(8)]
    nodes = [helper.make_node("MatMul", ["x", name], [f"p{name}"]) for name in names]
    total = "p" + names[0]
    for name in names[1:]:
        nodes.append(helper.make_node("Add", [total, f"p{name}"], ["y" if name == names[-1] else f"s{name}"]))
        total = f"s{name}"
    onnx.save(model(nodes, {"x": [96, 192]}, {"y": [96, 192]}, [weight(name, 192, 192) for name in names]), source)
    assert cli.main(["optimize", str(source), str(target), "--budget", "10s", "--verbose"]) == 0
    shown = capsys.readouterr()
    assert "Rules applied" in shown.out
    assert "factor" in shown.out
    assert "times as fast as the original" in shown.out.splitlines()[0]
    assert {"load", "check", "measure"} <= set(shown.err.split())
    written = onnx.load(target)
    onnx.checker.check_model(written, full_check=True)
    assert [n.op_type for n in written.graph.node] == ["MatMul"]
    assert numpy_helper.to_array(written.graph.initializer[0]).shape == (192, 192)


def test_a_dry_run_searches_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, source: Path, target: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(FLOW, "search_for_candidates", None)
    plan = tmp_path / "plan.json"
    assert cli.main(["optimize", str(source), str(target), "--dry-run", "--threads", "3", "--json", str(plan)]) == 0
    assert "MatMul" in capsys.readouterr().out
    assert target.read_bytes() == BEFORE
    read = json.loads(plan.read_text())
    assert [(island["nodes"], island["operators"]) for island in read["islands"]] == [(2, {"MatMul": 1, "Relu": 1})]
    assert read["environment"]["threads"] == 3
    assert cli.main(["optimize", str(source), "--dry-run", "--quiet"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1
    assert not shown.err
    assert "cannot write" in fails(capsys, errors.TargetError, "optimize", source, "--dry-run", "--json", source)


def test_a_dry_run_names_sizes_and_assumptions(capsys: pytest.CaptureFixture[str], source: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("NonZero", ["h"], ["n"])]
    nodes.append(helper.make_node("Cast", ["n"], ["y"], to=onnx.TensorProto.FLOAT))
    onnx.save(model(nodes, {"x": ["batch", 4]}, {"y": [2, "n"]}), source)
    assert cli.main(["optimize", str(source), "--dry-run", "--shape", "batch=1,7"]) == 0
    shown = capsys.readouterr().out
    assert all(part in shown for part in ("batch=1", "batch=7", "at least 1", "NonZero"))


def test_quiet_prints_the_verdict_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, source: Path, target: Path
) -> None:
    monkeypatch.setattr(PREPARE, "load_rules", list)
    assert cli.main(["optimize", str(source), str(target), "--budget", "0.1", "-q"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith(f"{source}: ")
    assert "the original is kept" in " ".join(shown.out.split())


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--version"], ["--help"], ["optimize", "--help"], ["rules", "list", "--help"]):
        with pytest.raises(SystemExit) as stopped:
            cli.main(arguments)
        assert stopped.value.code == 0
        assert "superopt" in capsys.readouterr().out


def test_the_rules_are_listed_one_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rules = load()[:3]
    monkeypatch.setattr(cli, "load", lambda: rules)
    assert cli.main(["rules", "list"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(stored.rule) for stored in rules]


def test_generation_is_counted_universe_by_universe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    counts = (
        UniverseCounts("matrix", "first", 1000, 9000, 80, 20, 0, 4, 9, 3, 2, 8, 1.5),
        UniverseCounts("matrix", "second", 234, 1, 1, 1, 0, 1, 1),
    )
    asked: list[object] = []

    def generated(**options: object) -> Generation:
        asked.append(options["folder"])
        return Generation(3, counts, (), (), {"verify": 2.5}, 1.5, 2**30, 3 * 2**30, 2, 7)

    monkeypatch.setattr("superopt.flows.generate.generate", generated)
    given = ["generate", "--seed", "3", "--family", "matrix", "--output", str(tmp_path), "--json", str(tmp_path / "g.json")]
    assert cli.main(given) == 0
    assert asked == [tmp_path]
    read = json.loads((tmp_path / "g.json").read_text())
    assert [(f["family"], f["built"], f["kept"]) for f in read["families"]] == [("matrix", 1234, 8)]
    assert read["templates"] > 3
    shown = capsys.readouterr().out
    assert "1,234" in shown
    assert "processor seconds: verify 2.5" in shown
    assert "1.5 s on the clock, in 2 processes and this one; 7 tasks' results were there already" in shown
    assert "1.00 GiB in one process, 3.00 GiB in all together" in shown
    assert "unknown family 'poetry'" in fails(capsys, errors.StoreError, "generate", "--family", "poetry")


def test_what_is_not_proved_has_an_exit_code(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (rule,) = parse_rules("twice: relu(relu(x)) => relu(x) for x[2]")
    proved = LedgerRow("twice", "matrix", rule, Proved(12.5, ("g in 1, 2",)), "axioms")
    monkeypatch.setattr("superopt.proof.ledger.prove_store", lambda **_: iter([proved]))
    assert cli.main(["prove"]) == 0
    shown = capsys.readouterr().out
    assert "g in 1, 2" in shown
    assert "12.5" in shown
    assert "1 proved (1 of them for stated values of some attributes)" in shown
    unknown = LedgerRow("once", "matrix", rule, Unknown("no way"), "index")
    monkeypatch.setattr("superopt.proof.ledger.prove_store", lambda **_: iter([proved, unknown]))
    assert "1 of 2 stored rules are not proved: once" in fails(capsys, errors.UnprovedError, "prove", "--fresh")


@pytest.mark.parametrize(
    ("text", "expected"), [("60s", 60.0), ("90", 90.0), ("2m", 120.0), ("1.5h", 5400.0), ("500ms", 0.5), (" 1 min", 60.0)]
)
def test_spans_of_time(text: str, expected: float) -> None:
    assert time_span(text) == expected


def test_progress_without_a_terminal_is_a_line_for_each_phase(capsys: pytest.CaptureFixture[str]) -> None:
    with cli.progress_listener() as listener:
        for progress in (Progress("load"), Progress("search", 0, 9), Progress("search", 1, 9, "x"), Progress("check")):
            listener(progress)
    assert capsys.readouterr().err.splitlines() == ["load", "search 0/9", "check"]


def test_a_reader_that_goes_away_is_no_error() -> None:
    script = (
        "import sys; from superopt.cli import main as cli; "
        "many = cli.load() * 200; cli.load = lambda: many; sys.exit(cli.main())"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", script, "rules", "list"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert running.stderr is not None
    assert "=>" in running.stdout.readline()
    running.stdout.close()
    assert running.wait(timeout=60) == cli.CLOSED
    with running.stderr:
        assert running.stderr.read() == ""


def test_a_signal_inside_a_callback_of_a_weak_reference_ends_the_imports() -> None:
    """Python ignores exceptions in such a callback, and Python's import system has such callbacks."""
    script = """
import os, signal, sys, time, weakref
from importlib.abc import MetaPathFinder
from superopt.__main__ import run

class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "superopt.cli.main":
            watched = type("Watched", (), {})()
            watching = weakref.ref(watched, lambda _: (os.kill(os.getpid(), signal.SIGINT), time.sleep(1)))
            del watched

sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores SIGINT
sys.argv = ["superopt", "--version"]
sys.exit(run())
"""
    ended = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, cwd=ROOT)
    assert (ended.returncode, ended.stderr) == (cli.INTERRUPTED, "superopt: interrupted; nothing was written\n")
