"""Tiers of tests, Hypothesis profiles, and sessions of one thread.

The profile `check` draws the same examples on every run; `search` draws new ones, and many (for finding bugs).
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("check", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", deadline=None, max_examples=3000, suppress_health_check=list(HealthCheck))
settings.load_profile("check")
os.environ["SUPEROPT_IGNORE_LOAD"] = "1"  # the processes of pytest keep the machine busy
os.environ.pop("COLUMNS", None)  # pytest-xdist sets it, and tables would be as narrow as its terminal


@pytest.fixture(autouse=True)
def _one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sessions have one thread by default, because the processes of pytest share the cores."""
    monkeypatch.setattr("superopt.flows.settings.core_count", lambda: 1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark `long` tests as slow too, so that -m "not slow" leaves both out."""
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.slow)
