"""The Optimum example reports that Optimum is missing, or optimizes a small model with Optimum."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OPTIMUM = importlib.util.find_spec("optimum") is not None


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "examples" / "hugging_face.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.skipif(OPTIMUM, reason="Optimum is installed")
def test_without_optimum_the_example_says_so(tmp_path: Path) -> None:
    finished = run("model", "folder", folder=tmp_path)
    assert finished.returncode == 1
    assert finished.stderr.startswith("hugging_face: Optimum is not installed")


@pytest.mark.slow
@pytest.mark.skipif(not OPTIMUM, reason="Optimum is not installed")
def test_with_optimum_the_example_writes_a_model(tmp_path: Path) -> None:
    import transformers

    config = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "model")
    finished = run("model", "folder", "--budget", "1s", folder=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert (tmp_path / "folder" / "faster.onnx").is_file()
