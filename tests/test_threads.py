"""The number of threads: the default, and the gain of a result in sessions of several threads and of one thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import superopt
from superopt.cost.measure import Clock
from superopt.protobuf.stored import Loadable
from superopt.runtime.compare import Comparison, Setting
from superopt.runtime.hardware import core_count
from superopt.runtime.session import Device
from tests.test_optimize import FACTOR, branches, measured, use

pytestmark = pytest.mark.slow


def compare_by_threads(monkeypatch: pytest.MonkeyPatch, ratios: dict[int, float]) -> None:
    """Let each comparison return the ratio for the session's number of threads."""

    def compare_settings(
        _: Setting, candidates: Sequence[tuple[Loadable, Device]], *, at: Sequence[object], **__: object
    ) -> list[list[Comparison]]:
        return [[measured(ratios[device.threads]) for _, device in candidates] for _ in at]

    monkeypatch.setattr("superopt.runtime.multi_shape.compare_settings", compare_settings)


def test_cores_are_those_that_the_process_may_use() -> None:
    assert 1 <= core_count() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("several", "one", "accepted", "said"),
    [
        (2.0, 1.5, True, "2.00 times as fast as the original"),
        (2.0, 0.8, True, "2.00 times as fast as the original at 3 threads, but 0.80 times at one thread"),
        (1.0, 1.5, False, "the original is kept; at one thread (--threads 1), 1.50 times as fast"),
        (1.0, 1.0, False, "which is within the noise or the margin; the original is kept"),
    ],
)
def test_a_report_states_what_one_thread_gains(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, several: float, one: float, accepted: bool, said: str
) -> None:
    use(monkeypatch, FACTOR)
    monkeypatch.setattr("superopt.flows.settings.core_count", lambda: 3)
    compare_by_threads(monkeypatch, {3: several, 1: one})
    devices: list[Device] = []

    class Recorded(Clock):
        def __init__(self, device: Device, *others: Any, **options: Any) -> None:
            super().__init__(device, *others, **options)
            devices.append(device)

    monkeypatch.setattr("superopt.flows.optimize.Clock", Recorded)
    report = superopt.optimize(branches(), budget=60.0, moves=("rules",), cache=tmp_path / "cache").report
    assert report.environment.threads == 3
    assert {device.threads for device in devices} == {1}
    assert report.accepted == accepted
    assert report.reason.endswith(said)
    assert report.one_thread is not None
    assert report.one_thread.speedup == one


@pytest.mark.parametrize("threads", [True, 3.5, "2", 0, -1])
def test_a_number_of_threads_is_a_whole_number(threads: Any) -> None:
    with pytest.raises(ValueError, match="threads must be a"):
        superopt.optimize(branches(), threads=threads)


def test_one_thread_is_not_compared_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, FACTOR)
    compare_by_threads(monkeypatch, {1: 2.0})
    report = superopt.optimize(branches(), budget=60.0, threads=1, moves=("rules",), cache=tmp_path / "cache").report
    assert report.accepted
    assert report.one_thread is None


def test_a_stored_report_has_it_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, FACTOR)
    compare_by_threads(monkeypatch, {2: 1.0, 1: 1.5})
    first, again = (
        superopt.optimize(branches(), budget=60.0, threads=2, moves=("rules",), cache=tmp_path / "cache").report
        for _ in range(2)
    )
    assert list(again.seconds) == ["load"]
    assert again.one_thread == first.one_thread
