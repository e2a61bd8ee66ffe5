"""Signals to commands in separate processes: the files that the commands write, and their exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import superopt
from superopt import budget as active
from superopt.cli import main as cli
from superopt.flows.optimize import STOPPED
from superopt.runtime.cache import Cache
from tests.models import model, run, weight

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
BEFORE = b"what was there before"
START = """
import importlib, signal, sys, time
from pathlib import Path
from superopt.cli import main as cli

signal.signal(signal.SIGINT, signal.default_int_handler)
flow = importlib.import_module("superopt.flows.optimize")

def wait(text):
    print(text, file=sys.stderr, flush=True)
    for _ in range(600):
        time.sleep(0.1)
"""
"""The first lines of a process. `wait` stands for work that takes a minute."""
LOADING = "importlib.import_module('superopt.flows.prepare').load_rules = lambda: wait('here')"
SEARCHING = """
find = flow.SegmentSearch.gains
def gains(self, *arguments, **how):
    for gain in find(self, *arguments, **how):
        yield gain
        while gain.found.steps and not flow.is_stop_requested():
            print("here", file=sys.stderr, flush=True)
            time.sleep(0.1)
flow.SegmentSearch.gains = gains
"""
NOTHING_FOUND = """
def gains(self, *arguments, **how):
    print("here", file=sys.stderr, flush=True)
    while not flow.is_stop_requested():
        time.sleep(0.1)
    return iter(())
flow.SegmentSearch.gains = gains
"""
CHECKING = (
    """
importlib.import_module("superopt.search.judging").cached_check = lambda *_, **__: wait("checking")
"""
    + SEARCHING
)
STAGING = """
import shutil
shutil.copyfile = lambda *_: [wait("here"), wait("here")]
def wait(text):
    for _ in range(600):
        print(text, file=sys.stderr, flush=True)
        time.sleep(0.1)
"""
PLACING = """
replace = Path.replace
def placed(self, target):
    for _ in range(10):
        print("here", file=sys.stderr, flush=True)
        time.sleep(0.1)
    return replace(self, target)
Path.replace = placed
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return the path of a model that every search makes faster: a sum of many products of one tensor."""
    names = [f"w{i}" for i in range(8)]
    nodes = [helper.make_node("MatMul", ["x", name], [f"p{name}"]) for name in names]
    total = "pw0"
    for name in names[1:]:
        nodes.append(helper.make_node("Add", [total, f"p{name}"], ["y" if name == names[-1] else f"s{name}"]))
        total = f"s{name}"
    path = tmp_path / "in.onnx"
    onnx.save(model(nodes, {"x": [96, 192]}, {"y": [96, 192]}, [weight(name, 192, 192) for name in names]), path)
    (tmp_path / "out.onnx").write_bytes(BEFORE)
    return path


def started(source: Path, setup: str, *more: str) -> subprocess.Popen[str]:
    """Start `superopt optimize` with a budget of a minute, after the Python code `setup`."""
    command = [sys.executable, "-c", f"{START}{setup}\nsys.exit(cli.main())", "optimize", str(source)]
    (source.parent / "temporary").mkdir()
    places = {"XDG_CACHE_HOME": str(source.parent / "cache"), "TMPDIR": str(source.parent / "temporary")}
    command += [str(source.parent / "out.onnx"), "--moves", "rules", "--budget", "60", *more]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **places}, stderr=-1, stdout=-1, text=True)


def signalled(running: subprocess.Popen[str], *numbers: int, at: Sequence[str] = ("here",)) -> tuple[int, str]:
    """Send each signal after the process has printed the next line of `at`.

    Return the exit code of the process and the rest of its output.
    """
    assert running.stderr is not None
    lines: list[str] = []
    for number, line in zip(numbers, at, strict=True):
        while (read := running.stderr.readline()) and read.strip() != line:
            lines.append(read)
        assert read, "".join(lines)
        running.send_signal(number)
    _, rest = running.communicate(timeout=120)
    return running.returncode, rest.replace("here\n", "")


def left(source: Path) -> set[str]:
    """Return the names of the files beside the model and of superopt's temporary files."""
    beside = {path.name for path in source.parent.iterdir()} - {"cache", "temporary"}
    return beside | {path.name for path in (source.parent / "temporary").glob("superopt*")}


def ends_without_a_result(source: Path, code: int, found: tuple[int, str]) -> None:
    """Require that the process ended with the code and one line, and changed no file."""
    assert (found[0], found[1].splitlines()[-1]) == (code, "superopt: interrupted; nothing was written")
    assert "Traceback" not in found[1]
    assert (source.parent / "out.onnx").read_bytes() == BEFORE
    assert left(source) == {"in.onnx", "out.onnx"}


def test_before_the_search_a_signal_ends_it_at_once(source: Path) -> None:
    ends_without_a_result(source, cli.TERMINATED, signalled(started(source, LOADING), signal.SIGTERM))


def test_before_anything_is_found_nothing_is_written(source: Path) -> None:
    ends_without_a_result(source, cli.INTERRUPTED, signalled(started(source, NOTHING_FOUND), signal.SIGINT))


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
def test_what_was_found_is_checked_and_written(source: Path, number: int) -> None:
    code, text = signalled(started(source, SEARCHING), number)
    assert code == 0, text
    assert "the best model so far passed the check" in text.splitlines()[-1]
    assert len(onnx.load(source.parent / "out.onnx").graph.node) < 15
    for expected, found in zip(run(onnx.load(source)), run(onnx.load(source.parent / "out.onnx")), strict=True):
        np.testing.assert_allclose(expected, found, rtol=1e-3, atol=1e-4)
    assert left(source) == {"in.onnx", "out.onnx"}


def test_a_second_signal_ends_at_once(source: Path) -> None:
    found = signalled(started(source, CHECKING), signal.SIGTERM, signal.SIGINT, at=("here", "checking"))
    ends_without_a_result(source, cli.TERMINATED, found)


@pytest.mark.long
def test_a_check_that_takes_too_long_is_given_up(source: Path) -> None:
    setup = f"sys.modules['superopt.cli.signals'].GRACE = 1.0\n{CHECKING}"
    ends_without_a_result(source, cli.INTERRUPTED, signalled(started(source, setup), signal.SIGINT))


@pytest.mark.long
def test_a_second_signal_ends_a_save_that_has_put_nothing_in_place(source: Path) -> None:
    found = signalled(started(source, STAGING, "--budget", "0.1"), signal.SIGINT, signal.SIGINT, at=("here", "here"))
    ends_without_a_result(source, cli.INTERRUPTED, found)


@pytest.mark.long
def test_a_signal_while_the_result_is_put_in_place_comes_too_late(source: Path) -> None:
    code, text = signalled(started(source, PLACING, "--budget", "0.1"), signal.SIGINT, signal.SIGINT, at=("here", "here"))
    assert code == 0, text
    onnx.checker.check_model(str(source.parent / "out.onnx"))


def test_a_signal_that_is_ignored_stays_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with cli.signals.handled():
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_library_call_ends_early_where_it_was_asked_to(source: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    found = superopt.optimize(source, budget=60.0, stop=stop, cache=tmp_path / "times")
    assert found.report.stopped == STOPPED
    assert not found.report.accepted
    assert not active.is_stop_requested()


def test_what_was_cut_short_is_not_kept_on_disk(tmp_path: Path) -> None:
    stop = threading.Event()
    with active.allow_early_stop(stop):
        Cache(tmp_path / "times").put(["whole"], 1)
        stop.set()
        assert active.expired(active.active_time() + 60)
        cut = Cache(tmp_path / "times")
        cut.put(["cut"], 2)
        assert cut.get(["cut"]) == 2
    later = Cache(tmp_path / "times")
    assert (later.get(["whole"]), later.get(["cut"])) == (1, None)
