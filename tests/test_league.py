"""The league: its contenders on one network, the check of their outputs, and its table."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx
import pytest
from rich.console import Console

from benchmarks.league.contenders import COMPILED, CONTRIB, TENSORRT, TRANSFORMERS
from benchmarks.league.match import GRAPH, LAUNCHED, NETWORKS, checked, contestants, difference, play
from benchmarks.league.table import cells, league_table, mean
from benchmarks.peers.case import Case, Settings
from benchmarks.zoo.catalogue import MODELS
from benchmarks.zoo.recipes import Exported, normal
from superopt.errors import InvalidModelError
from superopt.runtime.session import Array, Device
from superopt.runtime.timed import Timed
from tests.test_measure import product

CPU = Device()


def test_the_networks_of_the_league_are_exported_by_the_zoo() -> None:
    assert len(set(NETWORKS)) == len(NETWORKS) >= 8
    assert all(isinstance(MODELS[name], Exported) for name in NETWORKS)


@pytest.mark.long
def test_all_contenders_are_measured_or_the_reason_is_given(tmp_path: Path) -> None:
    """Without PyTorch, the compiled networks have a reason. superopt runs in a process of its own, as in every benchmark."""
    path = tmp_path / "product.onnx"
    onnx.save(product(4), path)
    settings = Settings(budget=0.5, measure=0.3, timeout=60.0, seed=0, shapes={}, cache=None)
    row = play(Case(path, CPU, settings), Exported("absent.Network", (normal(96, 96),)), None)
    assert {"superopt", CONTRIB, TRANSFORMERS} <= row["ways"][LAUNCHED].keys()
    assert {*COMPILED, TENSORRT} <= row["failed"].keys()
    assert not row["failed"].keys() & row["ways"][LAUNCHED].keys()
    assert max(row["errors"].values()) < 1e-5
    assert row["seconds"]["superopt"] > 0


class Fixed:
    """A contender whose outputs are given."""

    def __init__(self, *outputs: float) -> None:
        self._outputs = [np.array([value], np.float32) for value in outputs]

    def outputs(self) -> list[Array]:
        return self._outputs


def test_a_contender_with_other_outputs_is_not_timed() -> None:
    def broken() -> Timed:
        raise InvalidModelError("no kernel")

    makes = {"equal": lambda: Fixed(1.0, 2.0), "other": lambda: Fixed(1.0, 2.5), "broken": broken}
    errors: dict[str, float] = {}
    reasons = dict(checked(makes, [np.ones(1, np.float32), np.full(1, 2, np.float32)], errors))  # type: ignore[arg-type]
    assert reasons == {"other": "the outputs differ by 2.5e-01 of the largest element", "broken": "no kernel"}
    assert errors == {"equal": 0.0, "other": 0.25}
    assert difference([np.zeros(2)], [np.zeros(3)]) == difference([np.zeros(2)], []) == np.inf
    assert not difference([np.full(1, np.nan)], [np.ones(1)]) <= 1


def test_networks_that_replay_a_graph_are_compared_with_graphs_only() -> None:
    device = Device()
    gpu = object.__new__(Device)
    for name, value in {**vars(device), "provider": "cuda"}.items():
        object.__setattr__(gpu, name, value)
    compiled = dict.fromkeys(COMPILED)
    default, tuned = COMPILED
    for where, way, expected in ((device, LAUNCHED, {default, tuned}), (gpu, LAUNCHED, {default}), (gpu, GRAPH, {tuned})):
        assert contestants(where, way, Path("x"), {}, compiled, {}).keys() == expected  # type: ignore[arg-type]


def test_the_table_has_a_dash_for_a_contender_that_was_not_measured() -> None:
    speed = {"original_ms": 2.0, "ratio": 2.0}
    rows = [
        {"model": "a", "ways": {LAUNCHED: {"superopt": speed}}},
        {"model": "b", "ways": {LAUNCHED: {"superopt": {**speed, "ratio": 0.5}, "onnxsim": speed}}},
    ]
    assert cells(rows[0], LAUNCHED)[:4] == ["a", "2.000", "2.00", "-"]
    assert mean(rows, LAUNCHED, "superopt") == 1.0
    assert mean(rows, LAUNCHED, TENSORRT) is None
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(league_table(rows, LAUNCHED, "a processor"))
    assert "0.50" in console.export_text()
