"""superopt as a pass of Olive, in a workflow after another pass. Olive is not among the requirements of the tests."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

BRANCHES = Path(__file__).parent.parent / "examples" / "branches.onnx"


@pytest.mark.long
def test_a_workflow_of_olive_gives_a_smaller_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLIVE_DISABLE_TELEMETRY", "1")
    workflows = pytest.importorskip("olive.workflows")
    from superopt.olive_pass import package_config

    system = {"type": "LocalSystem", "accelerators": [{"device": "cpu", "execution_providers": ["CPUExecutionProvider"]}]}
    config = {
        "input_model": {"type": "OnnxModel", "model_path": str(BRANCHES)},
        "systems": {"local": system},
        "host": "local",
        "target": "local",
        "passes": {
            "peephole": {"type": "OnnxPeepholeOptimizer"},
            "superopt": {"type": "Superopt", "budget": "5s", "threads": 1},
        },
        "evaluate_input_model": False,
        "cache_dir": str(tmp_path / "cache"),
        "output_dir": str(tmp_path / "out"),
    }
    workflows.run(config, package_config=package_config())
    (found,) = (tmp_path / "out").rglob("*.onnx")
    assert len(onnx.load(found).graph.node) < len(onnx.load(BRANCHES).graph.node)
