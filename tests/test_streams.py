"""Standard streams that are closed, full or no longer read, names that are not UTF-8, and caches that cannot be used."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import helper

from superopt import errors
from superopt.cli import main as cli
from superopt.policy import PROCESS
from superopt.runtime import cache
from superopt.runtime.cache import Cache, default_path
from superopt.worker_pool import finished_tasks_folder
from tests.models import model, weight

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent


def shell(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in which `"$@"` is superopt with these arguments."""
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "superopt", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


ABSENT = ("optimize", "absent.onnx", "out.onnx")
STREAMS: Mapping[str, tuple[str, Sequence[str], str, int]] = {
    "all closed": ('"$@" >&- 2>&- <&-', ABSENT, "", errors.ModelNotFoundError.exit_code),
    "the errors are full": ('"$@" 2>/dev/full', ABSENT, "1", errors.ModelNotFoundError.exit_code),
    "the output is full": ('"$@" >/dev/full', ["--help"], "", errors.OutputError.exit_code),
    "the output is full and has no buffer": ('"$@" >/dev/full', ["--help"], "1", errors.OutputError.exit_code),
}


@pytest.mark.parametrize("streams", STREAMS)
def test_streams_that_do_not_work(streams: str) -> None:
    script, arguments, unbuffered, code = STREAMS[streams]
    finished = shell(script, *arguments, PYTHONUNBUFFERED=unbuffered)
    assert finished.returncode == code, finished.stderr
    assert len(finished.stderr.splitlines()) == (code == errors.OutputError.exit_code)


def test_where_progress_is_read_no_more_the_work_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w", encoding="utf-8") as broken:  # noqa: PTH123
        monkeypatch.setattr(sys, "stderr", broken)
        for _ in range(3):
            cli.print_error_line("a line")


def test_a_file_that_is_opened_takes_the_place_of_no_stream() -> None:
    script = "import os; from superopt.cli import main as cli; cli.open_streams(); os._exit(os.open('/dev/null', os.O_RDONLY))"
    closed = subprocess.run(["sh", "-c", '"$@" >&- <&- 2>&-', "sh", sys.executable, "-c", script], cwd=ROOT, check=False)
    assert closed.returncode > 2


def test_names_that_are_not_utf8(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("superopt.flows.prepare.load_rules", list)
    source, target, report = (tmp_path / f"\udcff{name}" for name in ("in.onnx", "out.onnx", "report.json"))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    onnx.save(model(nodes, {"x": [2, 4]}, {"y": [2, 4]}, [weight("w", 4, 4)]), source)
    options = ["--budget", "0.1", "--cache", str(tmp_path / "\udcfetimes"), "--json", str(report)]
    assert cli.main(["optimize", str(source), str(target), *options, "--certificate", str(tmp_path / "\udcfd")]) == 0
    assert target.read_bytes() == source.read_bytes()
    assert json.loads(report.read_text())["model"] == str(source)
    assert cli.main(["optimize", str(tmp_path / "\udcfcabsent"), str(target)]) == errors.ModelNotFoundError.exit_code
    assert cli.main(["rules", "show", "\udcff"]) == errors.StoreError.exit_code
    assert "\\udcff" in capsys.readouterr().err


def test_a_cache_that_is_locked_is_waited_for_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, waited = tmp_path / "times", list[Path]()
    opened = cache._opened

    def counted(path: Path) -> sqlite3.Connection:
        waited.append(path)
        return opened(path)

    monkeypatch.setattr(cache, "_opened", counted)
    monkeypatch.setattr(cache, "PROCESS", replace(PROCESS, cache_lock_seconds=0.1))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for _ in range(3):
            times = Cache(path)
            times.put(["key"], 1)
            assert times.get(["key"]) == 1
            assert "locked" in times.error
        assert len(waited) == 1
    monkeypatch.setattr(cache, "PROCESS", replace(PROCESS, cache_retry_seconds=0.0))
    assert not Cache(path).error


def test_a_cache_that_is_no_database_is_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"no database")
    for path in (tmp_path / "folder", tmp_path / "file", tmp_path / "file" / "below"):
        times = Cache(path)
        times.put(["key"], 1)
        assert times.get(["key"]) == 1
        assert times.error


def test_a_value_that_is_damaged_is_found_out_anew(tmp_path: Path) -> None:
    Cache(tmp_path / "times").put(["key"], 1)
    with closing(sqlite3.connect(tmp_path / "times", isolation_level=None)) as other:
        other.execute("UPDATE measured SET value = '{'")
    assert Cache(tmp_path / "times").kept(["key"], lambda: 2) == 2


def test_a_user_may_have_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert Cache(default_path()).error
    assert not finished_tasks_folder().exists()
