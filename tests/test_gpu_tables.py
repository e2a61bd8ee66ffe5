"""GPU tables on the documentation pages: one row for each model, and one column for each set of options and way to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import case, gpu
from benchmarks.peers.case import Case, Settings
from benchmarks.zoo.catalogue import MODELS, batched
from superopt.errors import InvalidModelError
from superopt.runtime.session import Device
from tests.test_house import script

GPU = {"name": "A GPU", "provider": "cuda", "threads": 1, "cuda_graph": False}


def speed(ratio: float, original: float = 2.0) -> dict[str, Any]:
    times = {"original_ms": original, "optimized_ms": original / ratio, "ratio": ratio, "interval": [ratio, ratio]}
    return {**times, "control": 1.0, "noise": 0.0, "rounds": 9}


def row(model: str, ratio: float, replayed: float | None, *, options: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """Return a result file.

    `replayed` is the ratio of replayed CUDA graphs, or None if no CUDA graph could be made.
    """
    return {
        "model": model,
        "options": list(options),
        "device": GPU,
        "versions": {"superopt": "0.1", "onnxruntime": "1.2"},
        "optimization": {"seconds": 10.0, "peak_mib": 300.0},
        "speed": speed(ratio),
        "cuda graph": {"failed": "no"} if replayed is None else {"speed": speed(replayed, 0.5)},
        "rounding": {"original": 1e-6, "optimized": 1e-6},
        "report": {"accepted": True},
        "checks": {},
        **more,
    }


ROWS = [
    row("resnet18", 1.01, 1.0, report={"accepted": False}),
    row("dlrm_b1", 4.0, 2.0),
    row("dlrm_b1", 5.0, 2.5, options=("--allow-contrib",)),
    row("dlrm_b1", 3.0, None, device={**GPU, "cuda_graph": True}),
    row("dlrm_b1_b16", 2.0, None),
]


def test_a_model_has_a_line_of_all_that_was_measured() -> None:
    assert [gpu.line(model) for model in gpu.models(ROWS)] == [
        ["dlrm_b1", "2.00", "**4.00**", "5.00", "0.50", "2.00", "2.50", "3.00"],
        ["dlrm_b1_b16", "2.00", "**2.00**", "", "", "", "", ""],
        ["resnet18", "2.00", "**kept**", "", "0.50", "kept", "", ""],
    ]


def test_the_page_tells_batches_from_single_items(tmp_path: Path) -> None:
    for number, each in enumerate(ROWS):
        (tmp_path / f"{number}.json").write_text(json.dumps(each), encoding="utf-8")
    parts = ("gpu", "gpus", "results")
    page = "".join(f"<!-- {part}:begin -->\nold\n<!-- {part}:end -->\n" for part in parts)
    text = script("readme_tables").rendered(page, tmp_path, tmp_path)
    told = "**2.000** (2 models), **1.414** in CUDA graphs (2 models) and **5.000** with contrib operators (1 model)"
    where = "A GPU, provider cuda, ONNX Runtime 1.2, models of the zoo"
    kept = "In the runs without CUDA graphs, no improvement was found for"
    mean = f"{where}: the geometric mean speedup is {told}. {kept} 1 of the 2 models.\n"
    assert text.count(f"{mean}\n| model") == 1
    assert text.count(f"- {mean}- A GPU") == 1
    batches = "models of the zoo with larger batches: the geometric mean speedup is **2.000** (1 model)"
    assert f"{batches}. {kept} 0 of the 1 model.\n" in text
    assert text.endswith("<!-- results:begin -->\n<!-- results:end -->\n")


def test_models_of_one_item_become_models_of_a_batch() -> None:
    found = batched(MODELS, 16)
    assert [each.shape for each in found["gpt2_decode_step_b16"].inputs] == [(16, 1), *[(16, 12, 127, 64)] * 4]
    assert {"resnet50_b16", "nasrnn_t5_h512_b16", "llama_hf_2l_s64_b16"} < set(found)
    assert not any(name.startswith(("dyn_", "dlrm_b128", "rf20", "onnx_", "resnet18_qdq", "csrnet_b4")) for name in found)


def test_runs_are_replayed_where_a_graph_can_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Device, "__post_init__", lambda _: None)
    settings = Settings(None, 2.0, 1.0, 0, {}, None)
    model = Case(Path("examples/branches.onnx"), Device("cuda"), settings)

    def compared(_: Path, __: list[Path], device: Device, **how: Any) -> Any:
        assert device == Device("cuda", cuda_graph=True)
        assert how["seconds"] == 1.0
        raise InvalidModelError("a node is on the CPU")

    monkeypatch.setattr(case, "compare_all", compared)
    assert case.in_graph(model, tmp_path / "none.onnx") == {"failed": "a node is on the CPU"}
