"""Session settings in a model's metadata: the settings that ONNX Runtime applies, and other metadata."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
from onnx import helper

import superopt
from superopt.child.process import LOAD_CONFIG
from superopt.errors import InvalidModelError
from superopt.flows.verify import verify
from superopt.model.load import as_model, as_proto
from superopt.model.session_metadata import CONFIG, ENTRIES, PROVIDER_OPTIONS, with_settings
from superopt.runtime.session import WITHOUT, Device, Session
from superopt.runtime.settings import LEVEL, THREADS, Settings
from tests.test_tuning import model, ratios

pytestmark = pytest.mark.slow

ASKED = """
import sys, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 7
found = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"]).get_session_options()
print(found.intra_op_num_threads, int(found.graph_optimization_level))
"""


def honoured(path: Path, *, loading: bool) -> list[int]:
    """Return the number of threads and the optimization level of a session of the file.

    With `loading`, ONNX Runtime reads the settings from the file.
    """
    variables = {**os.environ, LOAD_CONFIG: "1" if loading else "0"}
    command = [sys.executable, "-c", ASKED, str(path)]
    finished = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return [int(number) for number in finished.stdout.split()]


def metadata(path: Path) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load(path).metadata_props}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.onnx"
    onnx.save(model(), path)
    return path


def with_metadata(path: Path, values: Mapping[str, str]) -> None:
    proto = onnx.load(path)
    helper.set_model_props(proto, dict(values))
    onnx.save(proto, path)


def test_a_session_has_the_options_that_stand_in_the_model(tmp_path: Path) -> None:
    path = tmp_path / "settled.onnx"
    onnx.save(as_proto(with_settings(as_model(model()), Settings(options={LEVEL: 2}), threads=3)), path)
    assert honoured(path, loading=True) == [3, 2]
    assert honoured(path, loading=False)[0] == 7


def test_what_tuning_finds_is_written(monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path) -> None:
    ratios(monkeypatch, [0.9, 1.2, 1.1], [1.2, 1.3])
    optimized = superopt.optimize(source, budget=0.1, threads=2, moves=(), tune=True, ort_config=True)
    optimized.save(tmp_path / "out.onnx")
    assert optimized.session_options == {THREADS: 1}
    assert optimized.session_entries == {WITHOUT: "SkipLayerNormFusion"}
    assert json.loads(metadata(tmp_path / "out.onnx")[CONFIG]) == {"session_options": {THREADS: 1}}
    assert json.loads(metadata(tmp_path / "out.onnx")[ENTRIES]) == optimized.session_entries
    assert honoured(tmp_path / "out.onnx", loading=True)[0] == 1
    assert not optimized.report.accepted
    assert not metadata(source)
    verify(source, tmp_path / "out.onnx", optimized.certificate)


def test_entries_alone_leave_the_programs_options_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios(monkeypatch, [0.9, 1.2], [1.2])
    given = model()
    optimized = superopt.optimize(given, budget=0.1, moves=(), tune=True, ort_config=True)
    assert [entry.key for entry in optimized.model.metadata_props] == [ENTRIES]
    assert not given.metadata_props


def test_nothing_found_leaves_every_byte(monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path) -> None:
    ratios(monkeypatch, [0.9, 0.9])
    superopt.optimize(source, budget=0.1, moves=(), tune=True, ort_config=True).save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == source.read_bytes()


def test_without_being_asked_nothing_is_written(monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path) -> None:
    ratios(monkeypatch, [0.9, 1.2], [1.2])
    superopt.optimize(source, budget=0.1, moves=(), tune=True).save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == source.read_bytes()


def test_what_stood_there_stays() -> None:
    given = as_model(model())
    own = {"session_options": {"execution_mode": 0, THREADS: 8}, "more": [1]}
    given.metadata_props.update({CONFIG: json.dumps(own), "author": "somebody", ENTRIES: "{}"})
    told = Settings(options={LEVEL: 2}, provider_options={"prefer_nhwc": "1"})
    settled = with_settings(given, told, threads=2).metadata_props
    assert json.loads(settled[CONFIG]) == {"session_options": {"execution_mode": 0, THREADS: 2, LEVEL: 2}, "more": [1]}
    assert settled["author"] == "somebody"
    assert json.loads(settled[PROVIDER_OPTIONS]) == {"prefer_nhwc": "1"}
    assert ENTRIES not in settled
    assert json.loads(given.metadata_props[CONFIG]) == own


@pytest.mark.parametrize("text", ["not JSON", "3", '{"session_options": 3}'])
def test_what_onnx_runtime_does_not_read_is_refused(source: Path, text: str) -> None:
    with_metadata(source, {CONFIG: text})
    with pytest.raises(InvalidModelError, match="the model's own metadata 'ort_config' is no"):
        superopt.optimize(source, tune=True, ort_config=True)


def test_there_must_be_something_to_write(source: Path) -> None:
    with pytest.raises(ValueError, match="requires tune=True"):
        superopt.optimize(source, ort_config=True)


def test_our_own_sessions_have_the_options_that_they_are_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(LOAD_CONFIG, "1")
    session = Session(model(), Device(threads=2), saved=tmp_path / "optimized.onnx")
    assert session._session.get_session_options().intra_op_num_threads == 2
    assert (tmp_path / "optimized.onnx").exists()
    assert os.environ[LOAD_CONFIG] == "1"
