"""Turns on a GPU: one process at a time has a turn, and can ask for its turn again. A short node's time is the time that a
second copy adds.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from onnx import helper

import superopt.runtime.gpu_lock as turning
from superopt.budget import active_time
from superopt.protobuf.stored import Loadable
from superopt.runtime.gpu_lock import GpuLock, hold_gpu
from superopt.runtime.kernel import Kernel, Operand
from superopt.runtime.session import Bound, Device, Session

pytestmark = pytest.mark.slow

OTHER = """
import sys
from pathlib import Path
from superopt.runtime.gpu_lock import GpuLock
with GpuLock(Path(sys.argv[1])):
    print("begins", flush=True)
    sys.stdin.readline()
"""


def other(path: Path) -> subprocess.Popen[str]:
    """Start a process that takes its turn, and keeps the turn until it reads a line."""
    return subprocess.Popen([sys.executable, "-c", OTHER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_process_waits_until_another_is_done_and_that_is_not_its_time(tmp_path: Path) -> None:
    path, done = tmp_path / "cache" / "gpu.lock", threading.Event()

    def waits() -> None:
        with GpuLock(path):
            done.set()

    began = time.monotonic() - active_time()
    with other(path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        waiting = threading.Thread(target=waits)
        waiting.start()
        assert not done.wait(0.3)
        process.communicate("go\n", timeout=60)
        assert done.wait(60)
        waiting.join()
    assert time.monotonic() - active_time() > began + 0.2


def test_who_has_the_turn_may_ask_for_it_again(tmp_path: Path) -> None:
    path = tmp_path / "gpu.lock"
    turn = GpuLock(path)
    with turn, turn, other(path) as process:
        with turn:
            pass
        assert process.stdin is not None
        process.stdin.write("go\n")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)
        process.kill()


def test_where_no_file_can_be_written_nobody_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with GpuLock(tmp_path / "file" / "gpu.lock"), GpuLock(tmp_path / "file" / "gpu.lock"):
        pass


def test_each_gpu_has_a_turn_and_a_cpu_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Device, "__post_init__", lambda _: None)
    turning._turn.cache_clear()
    for visible in ("1,0", "GPU-3d93/bd90", ""):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with hold_gpu(Device("cpu")), hold_gpu(Device("cuda")):
            pass
    turning._turn.cache_clear()
    assert sorted(file.name for file in tmp_path.rglob("*.lock")) == ["gpu-0.lock", "gpu-1.lock", "gpu-GPU-3d93bd90.lock"]


def test_a_short_node_takes_what_a_second_one_adds_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    node = helper.make_node("Split", ["x"], ["y", "z"], axis=0, num_outputs=2)
    kernel = Kernel(node, {"x": Operand(1, (4, 6))}, (("", 18),), 8)
    loaded: list[int] = []

    def session(source: Loadable, _: Any, **__: Any) -> Session:
        assert isinstance(source, bytes | onnx.ModelProto)
        loaded.append(len((source if isinstance(source, onnx.ModelProto) else onnx.load_from_string(source)).graph.node))
        return Session(source, Device(), optimize=False)

    monkeypatch.setattr("superopt.runtime.kernel.Session", session)

    def seconds(bound: Bound, _: int) -> float:
        return 4e-5 + 6e-6 * len(bound.outputs()) / 2

    monkeypatch.setattr(Bound, "seconds", seconds)
    gpu: Any = SimpleNamespace(provider="cuda")
    short = kernel.timed(gpu, call=3e-5)
    assert short.seconds == pytest.approx(3.6e-5)
    assert short.outputs == (Operand(1, (2, 6)), Operand(1, (2, 6)))
    assert loaded == [1, 2]
    monkeypatch.setattr(Bound, "seconds", lambda *_: 0.25)
    assert kernel.timed(gpu, call=3e-5).seconds == 0.25
