"""The judge of candidate models: its checks before the timing, and the gains of a quick comparison that it accepts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import helper

from superopt.algebra.dim_binding import DimBinding
from superopt.cost.measure import Clock
from superopt.errors import InvalidModelError
from superopt.model.load import load
from superopt.policy import COMPARISON
from superopt.runtime.cache import Cache
from superopt.runtime.check import CheckSettings
from superopt.runtime.compare import Comparison, Setting
from superopt.runtime.input_source import DRAWN
from superopt.runtime.session import Device
from superopt.search.judging import CandidateJudge, JudgingSeconds, ModelCandidate
from superopt.search.passes import ImprovedModel, SearchedModel
from tests.models import model
from tests.test_optimize import compare_as, measured

CPU = Device("cpu", 1)


def squares(count: int) -> onnx.ModelProto:
    names = ["x", *(f"h{n}" for n in range(count - 1)), "y"]
    nodes = [helper.make_node("Mul", [a, a], [b]) for a, b in itertools.pairwise(names)]
    return model(nodes, {"x": ["n"]}, {"y": ["n"]})


def judge_of(original: onnx.ModelProto, cache: Path, phases: list[str]) -> CandidateJudge:
    @contextmanager
    def phase(name: str) -> Iterator[None]:
        phases.append(name)
        yield

    sizings = [DimBinding({"n": 4})]
    return CandidateJudge(original, CPU, sizings, cache, CheckSettings(), None, DRAWN, phase, lambda _: None)


@pytest.mark.parametrize(("ratio", "phases"), [(0.5, ["measure"]), (2.0, ["measure", "check"])])
def test_a_candidate_is_checked_only_if_it_is_faster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ratio: float, phases: list[str]
) -> None:
    compare_as(monkeypatch, lambda _: measured(ratio))
    original, seen = squares(1), list[str]()
    candidate = ModelCandidate(SearchedModel(ImprovedModel(load(original).model)))
    outcome = judge_of(original, tmp_path / "cache", seen).judge(candidate, squares(1), 1.0, JudgingSeconds())
    assert seen == phases
    assert (outcome.checked is not None) == (ratio > 1)


def test_candidate_stays_accepted_if_the_comparison_on_one_thread_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def compare_settings(
        original: Setting, candidates: Sequence[Setting], *, at: Sequence[object], **_: object
    ) -> list[list[Comparison]]:
        if original[1].threads == 1:
            raise InvalidModelError("no memory")
        return [[measured(2.0) for _ in candidates] for _ in at]

    monkeypatch.setattr("superopt.runtime.multi_shape.compare_settings", compare_settings)
    candidate = ModelCandidate(SearchedModel(ImprovedModel(load(squares(1)).model)))
    judge = replace(judge_of(squares(1), tmp_path / "cache", []), device=Device("cpu", 2))
    outcome = judge.judge(candidate, squares(1), 1.0, JudgingSeconds())
    assert outcome.accepted
    assert outcome.compared_alone is None


@pytest.mark.parametrize(("gain", "promising"), [(0.0, False), (0.25, False), (0.75, True)])
def test_half_of_the_required_gain_is_promising(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gain: float, promising: bool
) -> None:
    compare_as(monkeypatch, lambda _: measured(1 + gain * COMPARISON.min_gain_margin_share))
    with closing(Cache(tmp_path / "times")) as times:
        clock = Clock(CPU, times, together=True)
        assert judge_of(squares(2), tmp_path / "cache", []).is_promising(squares(1), clock) == promising
