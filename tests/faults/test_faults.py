"""Tests that faults found in the past stay fixed. Most cases need a search, so most of these tests are slow."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.faults.cases import CASES, RIGHT, judged

pytestmark = pytest.mark.slow

QUICK = frozenset({"json_equals_source", "negative_seed", "stdout_closed", "target_is_device"})
"""The cases without a search."""


@pytest.mark.filterwarnings("default")  # many cases compute infinities and NaN
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in CASES])
def test_a_fault_does_not_come_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a killed process may leave files in this folder
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    outcome = judged(name)
    right = outcome.verdict == RIGHT and outcome.verify in ("holds", "-")
    assert right, f"{' '.join(str(CASES[name].__doc__).split())} | {outcome.figures} | {outcome.verify}"
