"""Session tuning: optimizers that act on a model are found, and those that make it slower are left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt.model import tuning
from superopt.model.compare import Comparison, Setting
from superopt.model.session import WITHOUT, Device, Session
from superopt.model.tuning import acting, tune

CPU = Device()


def model() -> onnx.ModelProto:
    """A product, a bias and an activation, then the sum with what came before, normalized."""
    rng = np.random.default_rng(0)
    weights = {"w": (32, 32), "b": (32,), "scale": (32,), "shift": (32,)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Add", ["r", "x"], ["s"]),
        helper.make_node("LayerNormalization", ["s", "scale", "shift"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "block",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 32])],
        [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def ratios(monkeypatch: pytest.MonkeyPatch, *rounds: Sequence[float]) -> None:
    """Comparisons give these ratios, those of one call after those of the other."""
    left = iter(rounds)

    def compare_settings(original: Setting, candidates: Sequence[Setting], **_: object) -> list[list[Comparison]]:
        found = next(left)
        assert all(Session(*setting) for setting in (original, *candidates))
        assert len(candidates) == len(found)
        return [[Comparison(1.0, 1 / r, r, r, r, 1.0, 0.001, 10) for r in found]]

    monkeypatch.setattr(tuning, "compare_settings", compare_settings)


def test_optimizers_that_act_are_read_off_the_graph() -> None:
    assert acting(model(), CPU) == ["MatMulAddFusion", "SkipLayerNormFusion"]


def test_a_session_does_without_an_optimizer() -> None:
    without = Device(without=("SkipLayerNormFusion",))
    assert "SkipLayerNormFusion" not in acting(model(), without)
    feeds = {"x": np.ones((1, 8, 32), np.float32)}
    plain, other = (Session(model(), device).run(feeds)[0] for device in (CPU, without))
    np.testing.assert_allclose(other, plain, rtol=1e-4, atol=1e-5)
    assert without.identity != CPU.identity


def test_what_makes_it_slower_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios(monkeypatch, [0.9, 1.2], [1.15])
    found = tune(model(), CPU)
    assert found.entries == {WITHOUT: "SkipLayerNormFusion"}
    assert found.comparison is not None
    assert found.comparison.ratio == 1.15


def test_two_are_left_out_only_where_that_is_better_still(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios(monkeypatch, [1.1, 1.2], [1.2, 1.3])
    assert tune(model(), CPU).entries == {WITHOUT: "SkipLayerNormFusion;MatMulAddFusion"}
    ratios(monkeypatch, [1.1, 1.2], [1.2, 1.1])
    assert tune(model(), CPU).disabled == ("SkipLayerNormFusion",)


def test_what_is_not_there_again_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios(monkeypatch, [0.9, 1.2], [1.0])
    assert tune(model(), CPU).entries == {}


def test_the_library_gives_the_session_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios(monkeypatch, [0.9, 1.2], [1.15])
    optimized = superopt.optimize(model(), budget=0.1, tune=True)
    assert optimized.session_entries == {WITHOUT: "SkipLayerNormFusion"}
    assert '"SkipLayerNormFusion"' in optimized.report.json()
    assert superopt.optimize(model(), budget=0.1).session_entries == {}
