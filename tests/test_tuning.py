"""Session tuning finds the optimizers that act on a model, and leaves out those that make the model slower."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt.errors import InvalidModelError
from superopt.runtime import device as devices
from superopt.runtime import tuning
from superopt.runtime.compare import Comparison, Setting, compare_settings
from superopt.runtime.device import PROVIDERS, providers
from superopt.runtime.input_source import InputSource
from superopt.runtime.session import WITHOUT, Bound, Device, Session
from superopt.runtime.settings import settings, with_choices
from superopt.runtime.tuning import acting_optimizers, tune, tuning_choices

pytestmark = pytest.mark.slow

CPU = Device()


def model() -> onnx.ModelProto:
    """Return a model of a product, a bias and an activation, whose sum with the input is normalized."""
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
    """Let each call of the comparison return the next list of ratios."""
    left = iter(rounds)

    def compare_settings(original: Setting, candidates: Sequence[Setting], **_: object) -> list[list[Comparison]]:
        found = next(left)
        assert all(Session(*setting) for setting in (original, *candidates))
        assert len(candidates) == len(found)
        return [[Comparison(1.0, 1 / r, r, r, r, 1.0, 0.001, 10) for r in found]]

    monkeypatch.setattr(tuning, "compare_settings", compare_settings)


def test_optimizers_that_act_are_read_off_the_graph() -> None:
    assert acting_optimizers(model(), CPU) == ["MatMulAddFusion", "SkipLayerNormFusion"]


def test_a_session_does_without_an_optimizer() -> None:
    without = Device(without=("SkipLayerNormFusion",))
    assert "SkipLayerNormFusion" not in acting_optimizers(model(), without)
    feeds = {"x": np.ones((1, 8, 32), np.float32)}
    plain, other = (Session(model(), device).run(feeds)[0] for device in (CPU, without))
    np.testing.assert_allclose(other, plain, rtol=1e-4, atol=1e-5)
    assert without.identity != CPU.identity


def test_what_makes_it_slower_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios(monkeypatch, [0.9, 1.2], [1.15])
    found = tune(model(), CPU)
    assert found.settings.entries == {WITHOUT: "SkipLayerNormFusion"}
    assert found.comparison is not None
    assert found.comparison.ratio == 1.15


def test_two_are_left_out_only_where_that_is_better_still(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios(monkeypatch, [1.1, 1.2], [1.2, 1.3])
    assert tune(model(), CPU).settings.entries == {WITHOUT: "SkipLayerNormFusion;MatMulAddFusion"}
    ratios(monkeypatch, [1.1, 1.2], [1.2, 1.1])
    assert tune(model(), CPU).choices == ("SkipLayerNormFusion",)


def test_what_is_not_there_again_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios(monkeypatch, [0.9, 1.2], [1.0])
    assert not tune(model(), CPU).settings


def test_the_library_gives_the_session_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios(monkeypatch, [0.9, 1.2], [1.15])
    optimized = superopt.optimize(model(), budget=0.1, tune=True)
    assert optimized.session_entries == {WITHOUT: "SkipLayerNormFusion"}
    assert '"SkipLayerNormFusion"' in optimized.report.json()
    assert superopt.optimize(model(), budget=0.1).session_entries == {}


def test_fewer_threads_are_tried_where_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tuning_choices((), Device(threads=6)) == ["intra_op_num_threads=3", "intra_op_num_threads=1"]
    assert tuning_choices(("GeluFusionL2",), CPU) == ["GeluFusionL2"]
    ratios(monkeypatch, [0.9, 0.9, 1.1, 1.3], [1.3])
    found = tune(model(), Device(threads=4))
    assert list(found.tried) == ["MatMulAddFusion", "SkipLayerNormFusion", "intra_op_num_threads=2", "intra_op_num_threads=1"]
    assert found.settings.options == {"intra_op_num_threads": 1}
    assert with_choices(Device(threads=4), found.choices) == CPU


def test_numbers_of_threads_are_compared_by_the_time_that_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []

    class Timed(Bound):
        def __init__(self, *given: Any, wall: bool = False, pooled: bool = False) -> None:
            made.append(wall)
            super().__init__(*given, wall=wall, pooled=pooled)

    monkeypatch.setattr("superopt.runtime.session.Bound", Timed)
    compare_settings((model(), CPU), [(model(), CPU)], seconds=0.1, loads=1)
    assert not any(made)
    compare_settings((model(), CPU), [(model(), Device(threads=2))], seconds=0.1, loads=1)
    assert made[-3:] == [True, True, True]


def test_a_session_without_the_last_level_needs_no_optimizer_of_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "acting_optimizers", lambda *_: ["NchwcTransformer"])
    ratios(monkeypatch, [1.3, 1.2], [1.2])
    found = tune(model(), CPU)
    assert found.choices == ("graph_optimization_level=2",)
    assert with_choices(CPU, found.choices).identity != CPU.identity
    portable = Session(model(), with_choices(CPU, found.choices))._session.get_session_options()
    assert int(portable.graph_optimization_level) == 2


def on_cuda(monkeypatch: pytest.MonkeyPatch) -> Device:
    """Return a device of a machine with CUDA. Tests only read the devices of its sessions."""
    runtime = SimpleNamespace(get_available_providers=lambda: [*PROVIDERS.values()], __version__="1.0")
    monkeypatch.setattr(devices, "runtime", lambda: runtime)
    monkeypatch.setattr(tuning, "acting_optimizers", lambda *_: ["GeluFusionL2"])
    return Device("cuda")


def test_the_layout_and_a_graph_are_tried_with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    device = on_cuda(monkeypatch)
    asked: list[list[Device]] = []
    gains = iter(([0.9, 1.1, 1.5], [1.5, 1.6]))

    def compare_settings(original: Setting, others: Sequence[Setting], **_: object) -> list[list[Comparison]]:
        asked.append([device for _, device in others])
        return [[Comparison(1.0, 1 / r, r, r, r, 1.0, 0.001, 10) for r in next(gains)]]

    monkeypatch.setattr(tuning, "compare_settings", compare_settings)
    monkeypatch.setattr(tuning, "_is_possible", lambda *_, **__: True)
    found = tune(model(), device)
    alone, together = asked
    assert [(d.without, d.nhwc, d.cuda_graph) for d in alone] == [
        (("GeluFusionL2",), False, False),
        ((), True, False),
        ((), False, True),
    ]
    assert [(d.nhwc, d.cuda_graph) for d in together] == [(False, True), (True, True)]
    assert found.settings.provider_options == {"enable_cuda_graph": "1", "prefer_nhwc": "1"}
    assert str(found.settings) == "enable_cuda_graph=1, prefer_nhwc=1"
    first = providers(with_choices(device, found.choices))[0]
    assert isinstance(first, tuple)
    told = first[1]
    assert (told["prefer_nhwc"], told["enable_cuda_graph"], told["use_tf32"]) == ("1", "1", "1")


def test_the_best_way_to_choose_algorithms_of_convolutions_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    device = on_cuda(monkeypatch)
    searches = ["cudnn_conv_algo_search=HEURISTIC", "cudnn_conv_algo_search=DEFAULT"]
    assert not {*searches} & {*tuning.tuning_choices([], device)}
    choices = tuning.tuning_choices([], device, convolves=True)
    assert choices == ["prefer_nhwc=1", "enable_cuda_graph=1", *searches]
    assert tuning._joined(choices) == choices[:-1]
    chosen = with_choices(device, [searches[1]])
    assert chosen.identity != device.identity
    assert isinstance(first := providers(chosen)[0], tuple)
    assert first[1]["cudnn_conv_algo_search"] == "DEFAULT"
    assert settings([searches[1]]).provider_options == {"cudnn_conv_algo_search": "DEFAULT"}


@pytest.mark.parametrize(("extents", "graph"), [([1, 8, 32], True), (["batch", 8, 32], False)])
def test_what_cannot_be_run_is_not_tried(monkeypatch: pytest.MonkeyPatch, extents: list[int | str], graph: bool) -> None:
    device = on_cuda(monkeypatch)
    tried: list[list[Device]] = []

    def session(given: onnx.ModelProto, device: Device) -> Any:
        if device.nhwc:
            raise InvalidModelError("no such layout")
        return SimpleNamespace(inputs=[SimpleNamespace(shape=extents)], ready=lambda _: Bound.__new__(Bound))

    def compare_settings(original: Setting, others: Sequence[Setting], **_: object) -> list[list[Comparison]]:
        tried.append([device for _, device in others])
        return [[Comparison(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.001, 10) for _ in others]]

    monkeypatch.setattr(tuning, "compare_settings", compare_settings)
    monkeypatch.setattr(tuning, "Session", session)
    monkeypatch.setattr(InputSource, "values", lambda *_, **__: {})
    assert not tune(model(), device).choices
    assert [device.cuda_graph for device in tried[0]] == ([False, True] if graph else [False])
