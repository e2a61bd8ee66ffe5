"""The script scripts/wild, as far as it can be tested without a package registry."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import wave
import zipfile
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.wild import catalogue
from benchmarks.wild.archives import Archive, Package, downloaded
from benchmarks.wild.catalogue import Model
from benchmarks.wild.materials import Materials
from benchmarks.wild.molecule import parsed
from benchmarks.wild.pictures import line
from benchmarks.wild.sound import decoded, mel_filters, spectrogram
from benchmarks.wild.texts import pieces, reaction, settings
from tests.test_house import script

PACKAGE = Package("pypi", "made-up", "1.0")


def shipped(folder: Path, *, constant: bool) -> None:
    """Save a package with a model in the folder. The model doubles its input, or multiplies its input by zero."""
    factor = onnx.helper.make_tensor("factor", onnx.TensorProto.FLOAT, [1], [0.0 if constant else 2.0])
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 2]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Mul", ["x", "factor"], ["y"])], "graph", [x], [y], [factor])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], producer_name="tests", ir_version=8)
    home = folder / "packages" / "pypi-made-up-1.0"
    home.mkdir(parents=True)
    with zipfile.ZipFile(home / "made_up-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("made_up/model.onnx", model.SerializeToString())


@pytest.fixture
def wild(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the script as a module with one model. Pillow counts as installed."""
    pillow = ModuleType("PIL")
    pillow.__spec__ = ModuleSpec("PIL", None)
    monkeypatch.setitem(sys.modules, "PIL", pillow)
    module: Any = script("wild")
    made = (settings((1, 2), (3,), to="x"), settings((1, 2, 3), (4, 5), to="x"))
    monkeypatch.setattr(module, "MODELS", {"double": Model(PACKAGE, "made_up/model.onnx", "MIT", "doubles", made)})
    return module


def test_a_model_and_its_inputs_are_written(wild: Any, tmp_path: Path) -> None:
    shipped(tmp_path, constant=False)
    assert wild.main(["--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"packages", "wild.json", "double.onnx", "double.npz", "double.1.npz"}
    assert np.load(tmp_path / "double.npz")["x"].tolist() == [[1, 3], [2, 3]]
    entry = json.loads((tmp_path / "wild.json").read_text(encoding="utf-8"))["double"]
    told = tuple(entry[key] for key in ("package", "version", "exporter", "opset", "nodes"))
    assert told == ("made-up", "1.0", "tests", 17, 1)
    assert [each["types"] for each in entry["inputs"]] == [{"x": "float32[2, 2]"}, {"x": "float32[6, 2]"}]


def test_a_model_whose_outputs_are_constant_is_left_out(wild: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shipped(tmp_path, constant=True)
    assert wild.main(["--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "wild: double: ValueError: all outputs are constant\n"
    assert {path.name for path in tmp_path.iterdir()} == {"packages"}


def test_an_unknown_name_is_told(wild: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert wild.main(["--out", str(tmp_path), "--only", "triple"]) == 2
    assert capsys.readouterr().err == "wild: no model is called triple; --list shows them all\n"


def test_every_model_says_what_it_is() -> None:
    kinds = (catalogue.SPEECH, catalogue.VISION, catalogue.TEXT, catalogue.SCIENCE)
    assert len(catalogue.MODELS) == sum(map(len, kinds))
    for name, model in catalogue.MODELS.items():
        assert model.licence, name
        assert model.task, name
        assert model.inputs, name
        assert all(str(each.function.__doc__).strip() for each in model.inputs), name


def test_a_version_is_pinned() -> None:
    assert "made-up==1.0" in PACKAGE.download_command(Path("folder"))
    assert "@a/b@2.0" in Package("npm", "@a/b", "2.0").download_command(Path("folder"))


def test_an_archive_that_is_there_is_not_downloaded(tmp_path: Path) -> None:
    home = tmp_path / "npm-a-b-2.0"
    home.mkdir()
    with tarfile.open(home / "a-b-2.0.tgz", "w:gz") as archive:
        entry = tarfile.TarInfo("package/README.md")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"text"))
    assert Archive(downloaded(Package("npm", "@a/b", "2.0"), tmp_path)).read("package/README.md") == b"text"


@pytest.mark.parametrize(
    ("smiles", "heavy", "hydrogens", "ring_bonds"),
    [
        ("CCO", 3, 6, 0),
        ("Cn1c(=O)c2c(ncn2C)n(C)c1=O", 14, 10, 10),
        ("CC(=O)Oc1ccccc1C(=O)O", 13, 8, 6),
        ("c1ccc(-c2cccnc2)cc1", 12, 9, 12),
        ("C=CC#N", 4, 3, 0),
        ("c1cc[nH]c1", 5, 5, 5),
    ],
)
def test_molecules_have_their_atoms_and_rings(smiles: str, heavy: int, hydrogens: int, ring_bonds: int) -> None:
    molecule = parsed(smiles)
    assert len(molecule.elements) == heavy
    assert sum(map(molecule.hydrogens, range(heavy))) == hydrogens
    assert sum(molecule.in_ring(a, b) for a, b, _ in molecule.bonds) == ring_bonds


def test_an_unknown_symbol_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown symbol"):
        parsed("[Na+]")


def test_a_reaction_separates_its_molecules(tmp_path: Path) -> None:
    made = reaction("CC.O>>CCO").make(Materials(tmp_path))
    assert made["roles"].tolist() == [[1, 0, 2, 2, 0, 2, 0, 3, 3, 3]]
    assert made["atoms"].tolist() == [[0, 1, 8, 8, 1, 10, 1, 8, 8, 10]]
    assert made["distances"][0, 2].tolist() == [0, 1, 2, 3, 0, 0, 0, 0, 0, 0]


def test_a_spectrum_peaks_at_the_frequency_of_a_tone() -> None:
    tone = np.sin(2 * np.pi * 1000 * np.arange(16_000) / 16_000)
    power = spectrogram(tone, 320, 160)
    assert power.shape == (101, 161)
    assert set(power[2:-2].argmax(1)) == {20}
    assert (mel_filters(16_000, 320, 40).sum(0) > 0).all()


def test_a_sound_is_resampled() -> None:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes((np.sin(2 * np.pi * 100 * np.arange(8000) / 8000) * 16_384).astype("<i2").tobytes())
    samples = decoded(buffer.getvalue(), 16_000)
    assert samples.shape == (16_000,)
    assert np.allclose(samples, np.sin(2 * np.pi * 100 * np.arange(16_000) / 16_000) / 2, atol=1e-3)


def test_words_become_their_longest_known_pieces() -> None:
    vocabulary = {"\u2581un": 1, "known": 2, "\u2581unk": 3, "nown": 4}
    assert pieces("unknown", vocabulary) == [3, 4]
    assert pieces("other", vocabulary) == [100]


def test_a_recipe_describes_itself() -> None:
    told = str(line((1, 2, 3, 4), to="x", height=48))
    assert told == "A line of text, cut from the photograph of a page that scikit-image ships ((1, 2, 3, 4), to=x, height=48)"
