"""Turns on a GPU: one process at a time, the same one as often as it asks."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import superopt.model.turns as turning
from superopt.active import active_time
from superopt.model.session import Device
from superopt.model.turns import Turn, alone

OTHER = """
import sys
from pathlib import Path
from superopt.model.turns import Turn
with Turn(Path(sys.argv[1])):
    print("begins", flush=True)
    sys.stdin.readline()
"""


def other(path: Path) -> subprocess.Popen[str]:
    """A process that takes its turn, and keeps it until it is told a line."""
    return subprocess.Popen([sys.executable, "-c", OTHER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_process_waits_until_another_is_done_and_that_is_not_its_time(tmp_path: Path) -> None:
    path, done = tmp_path / "cache" / "gpu.lock", threading.Event()

    def waits() -> None:
        with Turn(path):
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
    turn = Turn(path)
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
    with Turn(tmp_path / "file" / "gpu.lock"), Turn(tmp_path / "file" / "gpu.lock"):
        pass


def test_each_gpu_has_a_turn_and_a_cpu_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Device, "__post_init__", lambda _: None)
    turning._turn.cache_clear()
    for visible in ("1,0", "GPU-3d93/bd90", ""):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with alone(Device("cpu")), alone(Device("cuda")):
            pass
    turning._turn.cache_clear()
    assert sorted(file.name for file in tmp_path.rglob("*.lock")) == ["gpu-0.lock", "gpu-1.lock", "gpu-GPU-3d93bd90.lock"]
