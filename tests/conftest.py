"""Settings for all tests: markers of slow tests, Hypothesis profiles, one thread per session, short comparisons, few mutants,
and one child process.

The profile `check` draws the same examples on every run. The profile `search` draws many new examples, to find bugs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from superopt.child.process import reuse_child
from superopt.policy import COST, MUTANT, OPTIMIZATION

settings.register_profile("check", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", deadline=None, max_examples=3000, suppress_health_check=list(HealthCheck))
settings.load_profile("check")
os.environ["SUPEROPT_IGNORE_LOAD"] = "1"  # the processes of pytest keep the machine busy
os.environ.pop("COLUMNS", None)  # pytest-xdist sets COLUMNS, which would limit the width of tables


@pytest.fixture(autouse=True)
def _one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sessions have one thread by default, because the processes of pytest share the cores."""
    monkeypatch.setattr("superopt.flows.settings.core_count", lambda: 1)


@pytest.fixture(autouse=True)
def _short_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let timing comparisons of models and of segments end early, because the models of tests are small."""
    short = replace(OPTIMIZATION, full_comparison_seconds=1.0, hurried_comparison_seconds=0.5, glance_seconds=0.2)
    for module in ("superopt.flows.optimize", "superopt.search.judging"):
        monkeypatch.setattr(f"{module}.OPTIMIZATION", short)
    monkeypatch.setattr("superopt.cost.measure.COST", replace(COST, segment_comparison_seconds=0.2))


@pytest.fixture(autouse=True)
def _few_mutants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the search correct only a few mutants of each operator. Corrections take most of the time of a search for mutants."""
    monkeypatch.setattr("superopt.search.mutants.MUTANT", replace(MUTANT, max_mutants_per_operator=4))


@pytest.fixture(autouse=True, scope="session")
def _one_child() -> Iterator[None]:
    """Let all tests share one child process, because the start of a child process takes longer than most trial runs."""
    with reuse_child():
        yield


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With -m "not slow", skip the import of files in which all tests are slow."""
    if config.option.markexpr != "not slow" or not collection_path.name.startswith("test_"):
        return None
    return "\npytestmark = pytest.mark.slow\n" in collection_path.read_text(encoding="utf-8") or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark `long` tests as slow too, so that -m "not slow" leaves both out."""
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.slow)
