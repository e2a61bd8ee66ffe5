"""The example with PyTorch in docs/export.md. PyTorch is not among the requirements of the tests."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.snippets import snippets


@pytest.mark.long
def test_the_example_with_pytorch_optimizes_an_exported_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    (example,) = (s for s in snippets("docs/export.md") if s.language == "python" and "torch.onnx.export" in s.text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    exec(compile(example.text, "docs/export.md", "exec"), {"__name__": "example"})
    assert onnx.load(tmp_path / "faster.onnx").graph.output[0].name == "y"
