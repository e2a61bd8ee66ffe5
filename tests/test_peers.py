"""superopt and other optimizers: comparisons in the same rounds, reports of the optimizers' processes, and tables."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.peers import contenders, elsewhere, optimize
from benchmarks.peers.case import Case, Settings, peer, prediction, speeds, superoptimized
from benchmarks.peers.contenders import PEERS, optimized, row
from benchmarks.peers.summary import CONTENDERS, entries, mean, of
from benchmarks.peers.tables import measurements, ratios
from superopt.errors import InvalidModelError, SuperoptError
from superopt.policy import COMPARISON
from superopt.runtime.compare import DECIDED, TOLD, StoppingRule, compare_all, compare_in_turns, loading
from superopt.runtime.session import Device
from superopt.runtime.timed import Timed
from tests.test_house import script
from tests.test_measure import product

pytestmark = pytest.mark.slow

CPU = Device()
PYTHON = Path(sys.executable)


# ---------------------------------------------------------------- in turns


class Steady:
    """A model that takes the same time in every run, and records its runs."""

    def __init__(self, name: str, time: float, visited: list[str]) -> None:
        self.name, self.time, self.visited = name, time, visited

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()

    def run(self) -> None:
        self.visited.append(self.name)

    def seconds(self, runs: int) -> float:
        return self.time


def test_every_round_visits_everyone_and_begins_with_another_one() -> None:
    visited: list[str] = []
    loads: list[int] = []

    @contextmanager
    def opened(load: int) -> Iterator[Sequence[Sequence[Timed]]]:
        loads.append(load)
        visited.clear()
        yield [[Steady(name, time, visited) for name, time in zip("abcd", (4e-3, 2e-3, 8e-3, 4e-3), strict=True)]]

    ((faster, slower),) = compare_in_turns(opened, seconds=5.0)
    assert loads == [0, 1]
    assert "".join(visited).startswith("abcd" + "abcd" + "bcda" + "cdab" + "dabc")
    assert (faster.ratio, slower.ratio) == (2.0, 0.5)
    assert faster.control == slower.control == 1.0
    assert faster.faster()
    assert slower.slower()


def test_rounds_go_on_until_every_verdict_is_clear() -> None:
    assert _rounds(2e-3) == _rounds(2e-3, 8e-3) == 48
    assert _rounds(2e-3, 4e-3) > 48


def test_what_is_obvious_takes_few_rounds() -> None:
    assert _rounds(2e-3, until=DECIDED) == _rounds(2e-3, 8e-3, until=DECIDED) == 6
    assert _rounds(3.8e-3, until=DECIDED) == 24


def _rounds(*times: float, until: StoppingRule = TOLD) -> int:
    """Return the number of rounds in which models with these times are compared with a model of 4 ms."""

    @contextmanager
    def opened(_: int) -> Iterator[Sequence[Sequence[Timed]]]:
        yield [[Steady("", time, []) for time in (4e-3, *times, 4e-3)]]

    return compare_in_turns(opened, seconds=1.0, until=until)[0][0].rounds


def test_models_are_loaded_anew_while_a_verdict_is_not_clear() -> None:
    loads: list[int] = []

    @contextmanager
    def opened(load: int) -> Iterator[Sequence[Sequence[Timed]]]:
        loads.append(load)
        yield [[Steady("", 4e-3, []) for _ in range(3)]]

    compare_in_turns(opened, seconds=3.0)
    assert loads == [*range(len(loads))]
    assert len(loads) > 2


@pytest.mark.parametrize(("until", "takes", "least", "most"), [(TOLD, 0.0, 12, 24), (TOLD, 0.1, 3, 6), (DECIDED, 0.0, 2, 2)])
def test_models_that_load_fast_are_loaded_more_often(until: StoppingRule, takes: float, least: int, most: int) -> None:
    loads: list[int] = []

    @contextmanager
    def opened(load: int) -> Iterator[Sequence[Sequence[Timed]]]:
        loads.append(load)
        time.sleep(takes)
        yield [[Steady("", 4e-3, []) for _ in range(3)]]

    compare_in_turns(opened, seconds=1.0, loads=6, until=until)
    assert least <= len(loads) <= most


def test_models_that_take_long_to_load_are_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superopt.runtime.compare.COMPARISON", replace(COMPARISON, max_loading_seconds=0.05))
    loads: list[int] = []

    @contextmanager
    def opened(load: int) -> Iterator[Sequence[Sequence[Timed]]]:
        loads.append(load)
        time.sleep(0.1)
        yield [[Steady("", 4e-3, []) for _ in range(3)]]

    compare_in_turns(opened, seconds=0.05)
    assert loads == [0]


def test_every_model_is_loaded_at_every_place() -> None:
    orders = [loading(3, load) for load in range(6)]
    assert sorted(orders) == [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
    assert all({order[place] for order in orders[:3]} == {0, 1, 2} for place in range(3))


def test_candidates_are_compared_with_the_same_original() -> None:
    found = compare_all(product(8), [product(2), product(8), product(24)], CPU, seconds=1.0)
    assert len({one.original for one in found}) == len({one.rounds for one in found}) == 1
    assert found[0].faster()
    assert found[2].slower()
    assert found[0].ratio > found[1].ratio > found[2].ratio


# ---------------------------------------------------------------- processes


@pytest.fixture
def case(tmp_path: Path) -> Case:
    path = tmp_path / "product.onnx"
    onnx.save(product(4), path)
    return Case(path, CPU, Settings(budget=1.0, measure=0.3, timeout=60.0, seed=0, shapes={"batch": (1, 8)}, cache=None))


def test_the_last_line_of_a_process_is_its_row() -> None:
    assert row('noise\n{"seconds": 1.5}\n', "a warning", 0) == {"seconds": 1.5}
    assert row('{"failed": "ValueError: no"}\n', "", 1) == {"failed": "ValueError: no"}
    assert row("", "", -11) == {"failed": "killed by SIGSEGV"}
    assert row("", "Traceback\nMemoryError\n", 1) == {"failed": "exit code 1: MemoryError"}
    assert row("[1]\n", "", 0) == {"failed": "exit code 0"}


def test_what_cannot_be_run_is_a_row(case: Case, tmp_path: Path) -> None:
    target = tmp_path / "out.onnx"
    assert "could not be started" in optimized(tmp_path / "python", "onnxsim", case.path, target)["failed"]
    assert "'nothing'" in optimized(PYTHON, "nothing", case.path, target)["failed"]
    assert optimized(PYTHON, "onnxsim", case.path, target, timeout=0.01) == {"failed": "not done after 0.01 s"}
    assert not target.exists()


def installed(folder: Path, name: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes import a module with this name and code."""
    (folder / f"{name}.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_an_optimizer_says_what_it_took(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out.onnx"
    code = "import shutil\ndef slim(source, target):\n    print('a banner')\n    shutil.copy(source, target)\n"
    installed(tmp_path, "onnxslim", code, monkeypatch)
    found = optimized(PYTHON, "onnxslim", case.path, target)
    assert set(found) == {"version", "seconds", "peak_mib", "nodes"}
    assert found["nodes"] == [4, 4]
    assert 0 <= found["seconds"] < 5
    assert 10 < found["peak_mib"] < 1000
    assert target.read_bytes() == case.path.read_bytes()


def test_what_is_missing_is_told_by_its_process(tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "onnxslim", "raise ImportError('not in this environment')", monkeypatch)
    found = optimized(PYTHON, "onnxslim", case.path, tmp_path / "out.onnx")
    assert found == {"version": found["version"], "failed": "ImportError: not in this environment"}


def test_the_most_memory_is_that_of_the_process_alone(tmp_path: Path) -> None:
    held = bytearray(300 << 20)
    command = [sys.executable, "-c", "from benchmarks.peers.optimize import peak; print(peak())"]
    small = int(subprocess.run(command, cwd=contenders.ROOT, stdout=subprocess.PIPE, check=True).stdout)
    assert small < len(held) < optimize.peak()


def test_a_peer_whose_model_does_not_run_has_failed(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = product(2)
    other.graph.input[0].name = other.graph.node[0].input[0] = "renamed"
    target = tmp_path / "out.onnx"
    onnx.save(other, target)
    monkeypatch.setattr("benchmarks.peers.case.optimized", lambda *_, **__: {"version": "1", "seconds": 0.1})
    assert "renamed" in peer(case, PYTHON, "onnxsim", target)["failed"]
    onnx.save(product(2), target)
    assert peer(case, PYTHON, "onnxsim", target) == {"version": "1", "seconds": 0.1}


def test_a_second_run_has_the_times_of_the_first(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caches: list[str] = []

    def process(_: str, name: str, __: Path, target: Path, *, options: dict[str, Any]) -> dict[str, Any]:
        assert name == "superopt"
        caches.append(options["cache"])
        report = {"model": len(caches), "seconds": {"search": 1.0 / len(caches)}, "budget": 15.0}
        target.with_suffix(".json").write_text(json.dumps(report))
        return {"version": "1", "seconds": 2.0 / len(caches), "peak_mib": 100.0, "nodes": [4, 1]}

    monkeypatch.setattr("benchmarks.peers.case.optimized", process)
    ours, report = superoptimized(case, tmp_path / "optimized.onnx", again=True)
    assert report["model"] == 1
    assert ours["budget"] == 15.0
    assert (ours["seconds"], ours["warm_seconds"], ours["warm_phases"]) == (2.0, 1.0, {"search": 0.5})
    assert len(set(caches)) == 1
    assert "warm_seconds" not in superoptimized(case, tmp_path / "optimized.onnx", again=False)[0]
    monkeypatch.setattr("benchmarks.peers.case.optimized", lambda *_, **__: {"failed": "no"})
    with pytest.raises(SuperoptError, match="no"):
        superoptimized(case, tmp_path / "optimized.onnx", again=False)


def test_all_files_are_measured_together(case: Case, tmp_path: Path) -> None:
    target = tmp_path / "out.onnx"
    onnx.save(product(1), target)
    found = speeds(case, {"superopt": target, "onnxsim": case.path}, case.device, case.settings.measure)
    assert list(found) == ["superopt", "onnxsim"]
    assert found["superopt"].least.ratio > found["onnxsim"].least.ratio
    assert case.shapes == [{}]


SERVER = """
import sys
if "broken" in sys.argv[-1]:
    print('{"failed": "RuntimeError: broken"}', flush=True)
    sys.exit(1)
print('{"version": "9"}', flush=True)
for line in sys.stdin:
    which, runs = line.split()
    if "mortal" in sys.argv[-1]:
        sys.exit(3)
    print(1e-3 if "slow" in sys.argv[-3:][int(which)] else 5e-4, flush=True)
"""


def test_another_runtime_is_asked_in_turns(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\n{SERVER}")
    python.chmod(0o755)
    slow, fast = tmp_path / "slow.onnx", tmp_path / "fast.onnx"
    feeds = {"x": np.zeros((1,), np.float32)}
    version, found = elsewhere.compared(python, slow, fast, feeds, seconds=0.2)
    assert (version, found.ratio, found.control) == ("9", 2.0, 1.0)
    with pytest.raises(elsewhere.ElsewhereError, match="RuntimeError: broken"):
        elsewhere.compared(python, tmp_path / "broken", tmp_path / "broken", feeds, seconds=0.2)
    with pytest.raises(elsewhere.ElsewhereError, match="exit code 3"):
        elsewhere.compared(python, tmp_path / "mortal", fast, feeds, seconds=0.2)
    with pytest.raises(elsewhere.ElsewhereError, match="could not be started"):
        elsewhere.compared(tmp_path / "nowhere", slow, fast, feeds, seconds=0.2)


OPENVINO = """
import time
from types import SimpleNamespace

__version__ = "9.1-a-build"
Tensor = lambda array: array


class Request:
    def __init__(self, path):
        self.seconds = 2e-3 if "slow" in path else 1e-3

    def set_tensor(self, port, array):
        assert array.shape == ()

    def infer(self):
        end = time.process_time() + self.seconds
        while time.process_time() < end:
            pass


class Core:
    def read_model(self, path):
        return path

    def compile_model(self, path, device, settings):
        assert settings["INFERENCE_NUM_THREADS"] == 1
        return SimpleNamespace(inputs=[SimpleNamespace(names={"also x", "x"})], create_infer_request=lambda: Request(path))
"""


def test_openvino_runs_in_its_own_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "openvino", OPENVINO, monkeypatch)
    slow, fast = tmp_path / "slow.onnx", tmp_path / "fast.onnx"
    version, found = elsewhere.compared(PYTHON, slow, fast, {"x": np.zeros((), np.float32)}, seconds=0.2)
    assert version == "9.1"
    assert 1.5 < found.ratio < 2.5
    with pytest.raises(elsewhere.ElsewhereError, match="no value is there for the input also x, x"):
        elsewhere.compared(PYTHON, slow, fast, {"y": np.zeros((), np.float32)}, seconds=0.2)


def test_pins_are_exact() -> None:
    pinned = dict(line.split("==") for line in contenders.REQUIREMENTS.read_text(encoding="utf-8").split())
    assert {*PEERS, "openvino"} <= set(pinned)


# ---------------------------------------------------------------- tables


def speed(ratio: float, noise: float = 0.01) -> dict[str, Any]:
    times = {"original_ms": 2.0, "optimized_ms": 2.0 / ratio, "ratio": ratio, "interval": [ratio - 0.01, ratio + 0.01]}
    return {**times, "control": 1.0, "noise": noise, "rounds": 9}


def result(model: str, ratio: float, **others: Any) -> dict[str, Any]:
    """Return a result file with a row for each of the other optimizers."""
    return {
        "model": model,
        "device": {"name": "A processor", "provider": "cpu", "threads": 1, "cuda_graph": False},
        "versions": {"superopt": "0.1", "onnxruntime": "1.2"},
        "optimization": {"seconds": 10.0, "warm_seconds": 2.0, "peak_mib": 300.0},
        "prediction": {"saved_ms": 1.0, "ratio": 1.25, "measured": 1.2},
        "speed": speed(ratio),
        "rounding": {"original": 1e-6, "optimized": 2e-6},
        "checks": {"opset": True},
        **({"peers": {k: v for k, v in others.items() if k in PEERS}} if others else {}),
        **{k: v for k, v in others.items() if k not in PEERS},
    }


ROUNDED = {"original": 1e-6, "optimized": 1e-6}
ROWS = [
    result(
        "one",
        2.0,
        onnxsim={"version": "3", "seconds": 0.5, "speed": speed(1.21), "rounding": ROUNDED},
        onnxslim={"failed": "no"},
    ),
    result("two", 0.5, onnxsim={"speed": speed(4.0), "rounding": {"failed": "off by 1"}}, openvino={"speed": speed(1.0)}),
]


def test_what_fails_or_differs_leaves_the_original() -> None:
    assert [e.cell for e in entries(ROWS[0])] == ["2.00", "1.21", "failed", "failed", "failed", "failed"]
    assert [e.cell for e in entries(ROWS[1])] == ["0.50", "differs", "failed", "failed", "failed", "1.00"]
    assert mean(of("superopt", ROWS)) == pytest.approx(1.0)
    assert mean(of("onnxsim", ROWS)) == pytest.approx(1.1)
    assert mean(of("onnxslim", ROWS)) == 1.0
    assert mean(of("openvino", ROWS)) == 1.0
    assert mean(of("openvino", ROWS[:1])) is None
    assert [e.verdict for e in of("superopt", ROWS)] == [1, -1]
    assert [e.verdict for e in of("onnxsim", ROWS)] == [1, 0]
    assert [e.contender for e in entries(ROWS[0])] == list(CONTENDERS)
    assert [e.contender for e in entries(result("alone", 1.0))] == ["superopt"]


def test_an_original_that_was_kept_counts_as_itself() -> None:
    (kept,) = entries({**result("kept", 0.97), "report": {"accepted": False}})
    assert (kept.cell, kept.ratio, kept.verdict) == ("kept", 1.0, 0)
    (taken,) = entries({**result("taken", 1.5), "report": {"accepted": True}})
    assert (taken.cell, taken.verdict) == ("1.50", 1)


def test_a_terminal_has_a_line_for_each_contender() -> None:
    assert measurements(ROWS, "").row_count == 2 * len(CONTENDERS)
    assert measurements([result("alone", 1.0)], "").row_count == 1
    assert ratios(ROWS, "").row_count == 3


def test_the_page_has_contenders_beside_one_another(tmp_path: Path) -> None:
    tables = script("readme_tables")
    text = tables.beside(ROWS)
    assert text.startswith("## Comparison with other optimizers\n\nA processor, 1 thread, ONNX Runtime 1.2, 2 models:\n")
    assert "| onnxsim | 3 | **1.100** | 1 | 0 | 1 | 1 times | 0.5 s |  |" in text
    assert "| one | **2.00** | 1.25 → 1.20 | 1.21 | failed | failed | failed | failed | 10 s | 2 s | 300 MiB |" in text
    assert "| geometric mean | **1.000** |  | **1.100** |" in text
    page = "".join(f"<!-- {part}:begin -->\nold\n<!-- {part}:end -->\n" for part in ("results", "peers"))
    (tmp_path / "alone.json").write_text(json.dumps(result("alone", 1.0)))
    assert "Comparison with" not in tables.rendered(page, tmp_path, tmp_path)
    (tmp_path / "one.json").write_text(json.dumps(ROWS[0]))
    assert "Comparison with" in tables.rendered(page, tmp_path, tmp_path)
    with pytest.raises(SystemExit):
        tables.rendered("a page", tmp_path, tmp_path)


def test_the_summary_has_what_gains_most() -> None:
    tables = script("readme_tables")
    text = tables.summary([*ROWS, {**result("three", 3.0), "options": ["--allow-contrib"]}])
    assert text.startswith(
        "A processor, 1 thread, ONNX Runtime 1.2: the geometric mean speedup is **1.000** for 2 models. "
        "No improvement was found for 0 of the 2 models."
    )
    assert "| one | 2.00 | 1.21 | 10 s |\n| two | 0.50 |  | 10 s |" in text
    assert "three" not in text
    assert tables.summary([]) == ""


def test_each_device_has_its_means() -> None:
    contrib = {**result("one", 9.0), "options": ["--allow-contrib"]}
    elsewhere = {**result("one", 3.0), "device": {**ROWS[0]["device"], "name": "Another"}}
    assert script("readme_tables").device_means([*ROWS, contrib, elsewhere]) == (
        "- A processor, 1 thread, ONNX Runtime 1.2: the geometric mean speedup is **1.000** for 2 models. "
        "No improvement was found for 0 of the 2 models.\n"
        "- Another, 1 thread, ONNX Runtime 1.2: the geometric mean speedup is **3.000** for 1 model. "
        "No improvement was found for 0 of the 1 model.\n"
    )


def test_the_means_of_the_present_version_count_kept_models_as_1(tmp_path: Path) -> None:
    environment = {"device": "A processor", "threads": 1, "versions": {"onnxruntime": "1.2"}}
    kept, faster = ({"ratio": 4.0, "accepted": accepted} for accepted in (False, True))
    models = [{"model": "one", "relaxed": faster}, {"model": "two", "relaxed": kept}]
    (tmp_path / "modes.json").write_text(json.dumps({"environment": environment, "models": models}), encoding="utf-8")
    assert script("readme_tables").present(tmp_path / "modes.json") == (
        "A processor, 1 thread, ONNX Runtime 1.2: the geometric mean speedup is **2.000** for 2 models. "
        "No improvement was found for 1 of the 2 models.\n"
    )


def test_the_page_says_what_sessions_should_do_without() -> None:
    tables = script("readme_tables")
    tuned = {"entries": {"setting": "OneFusion"}, "alone": {"ratio": 1.125}, "speed": {"ratio": 1.25}, "tried": {}}
    plain: dict[str, object] = {"entries": {}, "speed": None, "tried": {}}
    assert tables.sessions([{"model": "one", "tuning": plain}, {"model": "other"}]) == ""
    assert "| one | OneFusion | 1.12 | 1.25 |" in tables.sessions([{"model": "one", "tuning": tuned}])


def test_what_was_predicted_stands_beside_what_was_measured() -> None:
    timing = {"original": 4e-3, "optimized": 2e-3}
    rules = [{"gain": 1e-3}, {"gain": 5e-4}]
    assert prediction({"timing": None, "rules": [], "shapes": {}}) is None
    assert prediction({"timing": timing, "rules": rules, "shapes": {}}) == {"saved_ms": 1.5, "ratio": 1.6, "measured": 2.0}
    both = {"small": timing, "large": {"original": 8e-3, "optimized": 6e-3}}
    assert prediction({"timing": timing, "rules": rules, "shapes": both}) == {"saved_ms": 1.5, "ratio": 1.1429, "measured": 1.5}
    assert prediction({"timing": timing, "rules": [{"gain": 1.0}], "shapes": {}}) == {
        "saved_ms": 1000.0,
        "ratio": None,
        "measured": 2.0,
    }


# ---------------------------------------------------------------- the script


def test_what_was_measured_is_not_measured_again(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = script("bench")

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["bench", str(case.path), "--results", str(tmp_path), *arguments])
        code = bench.main()
        assert isinstance(code, int)
        return code

    done: list[Path | None] = []

    def everything(_: Case, __: Path, peers: Path | None) -> dict[str, Any]:
        done.append(peers)
        return result("product", 2.0)

    monkeypatch.setattr(bench, "everything", everything)
    monkeypatch.setattr(bench, "environment", lambda: PYTHON)
    for arguments, times in (([], 1), (["--resume"], 1), ([], 2), (["--peers", "--resume"], 3), (["--resume"], 3)):
        assert run(*arguments) == 0
        assert len(done) == times
    assert done[-1] == PYTHON
    assert run("--resume", "--budget", "5s") == 0
    assert len(done) == 4
    (tmp_path / "product.json").write_text("{")
    assert run("--resume") == 0
    assert len(done) == 5


def test_a_model_that_fails_does_not_stop_the_others(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = script("bench")

    def everything(case: Case, _: Path, __: Path | None) -> dict[str, Any]:
        if case.path.stem == "broken":
            raise InvalidModelError("it does not load")
        return result("product", 2.0)

    monkeypatch.setattr(bench, "everything", everything)
    broken = tmp_path / "broken.onnx"
    broken.touch()
    monkeypatch.setattr(sys, "argv", ["bench", str(broken), str(case.path), "--results", str(tmp_path)])
    assert bench.main() == 1
    assert "bench: broken: it does not load" in capsys.readouterr().err
    assert (tmp_path / "product.json").exists()
    assert not (tmp_path / "broken.json").exists()
