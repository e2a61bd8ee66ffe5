"""Devices: the providers of a session, the provider that compares values, and errors in place of silent fallbacks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from superopt.errors import CheckFailedError, ProviderError
from superopt.runtime import check as checking
from superopt.runtime import device as devices
from superopt.runtime.check import check_candidate
from superopt.runtime.device import PROVIDERS, Device, first_provider, providers
from superopt.runtime.session import Session

CPU = Device()
EVERY = tuple(PROVIDERS.values())


def model(factor: float = 1.0) -> onnx.ModelProto:
    weights = numpy_helper.from_array(factor * np.eye(8, dtype=np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])],
        [weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def installed(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let ONNX Runtime report these providers."""
    runtime = SimpleNamespace(get_available_providers=lambda: list(names), __version__="1.0")
    monkeypatch.setattr(devices, "runtime", lambda: runtime)


def used(found: Sequence[Any]) -> list[str]:
    return [entry if isinstance(entry, str) else entry[0] for entry in found]


def options(found: Sequence[Any]) -> dict[str, str]:
    """Return the options of the CUDA provider."""
    return next(dict(entry[1]) for entry in found if not isinstance(entry, str))


def test_cuda_takes_what_tensorrt_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, *EVERY)
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    device = Device("tensorrt")
    assert used(providers(device)) == [PROVIDERS[name] for name in ("tensorrt", "cuda", "cpu")]
    assert used(providers(Device("cuda"))) == [PROVIDERS[name] for name in ("cuda", "cpu")]
    assert used(providers(CPU)) == [PROVIDERS["cpu"]]
    assert device.memory == Device("cuda").memory == "cuda"


def test_values_are_compared_without_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, *EVERY)
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    device = Device("tensorrt")
    plain = device.identity
    assert first_provider(device, exact=True) == "cuda"
    assert options(providers(device, exact=True))["use_tf32"] == "0"
    assert options(providers(device))["use_tf32"] == "1"
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert first_provider(device, exact=True) == "tensorrt"
    assert device.identity != plain


def test_no_graph_is_replayed_where_values_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, *EVERY)
    device = Device("cuda", cuda_graph=True)
    assert options(providers(device))["enable_cuda_graph"] == "1"
    assert options(providers(device, exact=True))["enable_cuda_graph"] == "0"
    with pytest.raises(ProviderError, match="CUDA graphs require the provider cuda"):
        Device("tensorrt", cuda_graph=True)


def test_a_provider_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, PROVIDERS["cpu"])
    with pytest.raises(ProviderError, match="has no provider tensorrt; its providers are CPUExecutionProvider") as raised:
        Device("tensorrt")
    assert raised.value.exit_code == 23


def test_tensorrt_is_never_replaced_silently(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        placed = Session(model(), Device("tensorrt")).placement.get("tensorrt", 0)
    except ProviderError:
        placed = -1
    assert placed
    assert not capsys.readouterr().out


def test_the_graph_that_tensorrt_is_given_can_be_written(tmp_path: Path) -> None:
    try:
        device = Device("tensorrt")
    except ProviderError:
        pytest.skip("this ONNX Runtime has no TensorRT")
    Session(model(), device, saved=tmp_path / "given.onnx")
    Session(model(), device, traced=tmp_path / "trace").trace()
    assert [node.op_type for node in onnx.load(tmp_path / "given.onnx").graph.node] == ["MatMul", "Relu"]


def test_both_are_run_where_they_will_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """If another provider computes the exact values, both models also run on their own provider, with its rounding."""
    made: list[bool] = []

    def session(model: onnx.ModelProto, device: Device, *, optimize: bool, exact: bool, pooled: bool) -> Session:
        made.append(exact)
        return Session(model, device, optimize=optimize, exact=exact, pooled=pooled)

    monkeypatch.setattr(checking, "Session", session)
    check_candidate(model(), model(), CPU)
    assert made == [True, True]
    monkeypatch.setattr(checking, "first_provider", lambda device, *, exact: "another")
    check_candidate(model(), model(), CPU)
    assert made == [True, True, True, True, False, False]
    with pytest.raises(CheckFailedError):
        check_candidate(model(), model(1.5), CPU)
