"""The cache of models for which a whole search found nothing: its key is the model's bytes, and its value includes the
report.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

import superopt
from superopt.report.optimization import Report
from superopt.runtime.compare import Comparison
from tests.models import model, weight
from tests.test_optimize import FACTOR, FLOW, compare_as, measured, use

pytestmark = pytest.mark.slow


def branches(seed: int = 0) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", name], [f"{name}x"]) for name in ("v", "w")]
    nodes.append(helper.make_node("Add", ["vx", "wx"], ["y"]))
    return model(nodes, {"x": [96, 192]}, {"y": [96, 192]}, [weight("v", 192, 192, seed=seed), weight("w", 192, 192)])


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the list of models that a search starts on. Every candidate measures slower than the original."""
    use(monkeypatch, FACTOR)
    monkeypatch.setattr(FLOW, "relower", lambda *_: ())
    monkeypatch.setattr(FLOW, "ratio_in_context", lambda *_: None)
    compare_as(monkeypatch, lambda _: measured(0.9))
    searched: list[object] = []
    known = FLOW.improvements

    def improvements(given: object, *args: Any, **how: Any) -> object:
        searched.append(given)
        return known(given, *args, **how)

    monkeypatch.setattr(FLOW, "improvements", improvements)
    return searched


def kept(cache: Path, given: object = None, **options: Any) -> Report:
    how = {"budget": 20.0, "cache": cache / "times.sqlite", **options}
    report: Report = superopt.optimize(given or branches(), **how).report  # type: ignore[call-overload]
    assert not report.accepted
    return report


def test_what_is_kept_is_not_searched_again(searches: list[object], tmp_path: Path) -> None:
    first, again = (kept(tmp_path) for _ in range(2))
    assert len(searches) == 1
    assert list(again.seconds) == ["load"]
    assert dataclasses.replace(again, seconds=first.seconds, reason=first.reason, searched="") == first
    assert first.timing is not None
    assert first.rules
    assert first.segments


def test_nor_is_the_file_of_it_which_is_copied(searches: list[object], tmp_path: Path) -> None:
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(branches(), source)
    kept(tmp_path)
    again = superopt.optimize(source, budget=20.0, cache=tmp_path / "times.sqlite")
    again.save(target)
    assert len(searches) == 1
    assert again.report.model == str(source)
    assert target.read_bytes() == source.read_bytes()


@pytest.mark.parametrize(
    "options",
    [{"seed": 1}, {"threads": 2}, {"tolerance": 9.0}, {"growth": 1.0}, {"moves": ["rules"]}, {"allow_contrib": True}],
)
def test_asked_otherwise_it_is(searches: list[object], tmp_path: Path, options: dict[str, Any]) -> None:
    kept(tmp_path)
    kept(tmp_path, **options)
    assert len(searches) == 2


def test_another_model_of_the_same_form_is(searches: list[object], tmp_path: Path) -> None:
    kept(tmp_path)
    kept(tmp_path, branches(seed=7))
    assert len(searches) == 2


def test_so_it_is_by_other_code(searches: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path)
    monkeypatch.setattr("superopt.search.unimproved_cache.cache_code_digest", lambda _: "other")
    kept(tmp_path)
    assert len(searches) == 2


def test_a_search_that_the_budget_ended_goes_on(searches: list[object], tmp_path: Path) -> None:
    ended = [kept(tmp_path, budget=1e-6).stopped for _ in range(2)]
    assert ended == ["the budget is spent"] * 2
    assert len(searches) == 2


def test_what_was_accepted_is_made_again(searches: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def better(_: onnx.ModelProto) -> Comparison:
        return measured(2.0)

    compare_as(monkeypatch, better)
    for _ in range(2):
        made = superopt.optimize(branches(), budget=20.0, cache=tmp_path / "times.sqlite")
        assert made.report.accepted
        assert len(made.model.graph.node) == 1
    assert len(searches) == 2


def test_a_result_from_the_cache_states_the_date_of_its_search(searches: list[object], tmp_path: Path) -> None:
    first, again = kept(tmp_path), kept(tmp_path)
    assert len(searches) == 1
    assert first.searched == ""
    assert again.searched
    assert again.reason == f"{first.reason} (found by a search on {again.searched}; --fresh searches again)"


def test_a_fresh_search_replaces_the_stored_result_and_a_search_without_cache_stores_none(
    searches: list[object], tmp_path: Path
) -> None:
    kept(tmp_path, no_cache=True)
    assert not (tmp_path / "times.sqlite").exists()
    kept(tmp_path)
    kept(tmp_path, fresh=True)
    assert len(searches) == 3
    assert kept(tmp_path).searched
    assert len(searches) == 3
    with pytest.raises(ValueError, match="nothing is stored without a cache"):
        kept(tmp_path, fresh=True, no_cache=True)


def test_a_result_of_a_noisy_machine_is_not_kept(
    searches: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare_as(monkeypatch, lambda _: dataclasses.replace(measured(1.0), noise=0.05))
    for _ in range(2):
        kept(tmp_path)
    assert len(searches) == 2
