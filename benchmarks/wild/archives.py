"""Packages of PyPI and npm, which are downloaded by the registries' clients and read without being installed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_24_x86_64", "manylinux2014_x86_64")
WHEEL = ("--no-deps", "--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--abi=cp311")
"""These options of pip choose the same wheel on every machine."""
REASON = 300
"""The largest number of characters of a client's error message in an exception."""


@dataclass(frozen=True, repr=False)
class Package:
    """One version of a package of a registry."""

    registry: Literal["pypi", "npm"]
    name: str
    version: str

    def __repr__(self) -> str:
        return f"{self.name} {self.version}"

    def download_command(self, folder: Path) -> list[str]:
        """Return the command that downloads the archive of the package into the folder."""
        if self.registry == "npm":
            return ["npm", "pack", "--silent", f"--pack-destination={folder}", f"{self.name}@{self.version}"]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *WHEEL]
        return [*pip, *(f"--platform={each}" for each in PLATFORMS), f"--dest={folder}", f"{self.name}=={self.version}"]


def downloaded(package: Package, folder: Path) -> Path:
    """Return the archive of the package, and download the archive into the folder if it is not there.

    Raises:
        RuntimeError: The download failed.
    """
    home = folder / f"{package.registry}-{package.name.replace('/', '-').lstrip('@')}-{package.version}"
    if not home.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as temporary:
            target = Path(temporary) / "archive"
            target.mkdir()
            finished = subprocess.run(package.download_command(target), capture_output=True, text=True, check=False)
            if finished.returncode:
                raise RuntimeError(f"{package.name} {package.version}: {' '.join(finished.stderr.split())[-REASON:]}")
            target.rename(home)
    (archive,) = home.iterdir()
    return archive


class Archive:
    """The files of a wheel or of an npm package."""

    def __init__(self, path: Path) -> None:
        self._opened = zipfile.ZipFile(path) if zipfile.is_zipfile(path) else tarfile.open(path)  # noqa: SIM115

    def names(self) -> list[str]:
        """Return the paths of all files in the archive."""
        return self._opened.namelist() if isinstance(self._opened, zipfile.ZipFile) else self._opened.getnames()

    def read(self, name: str) -> bytes:
        """Return the contents of a file.

        Raises:
            KeyError: The archive has no such file.
        """
        if isinstance(self._opened, zipfile.ZipFile):
            return self._opened.read(name)
        file = self._opened.extractfile(name)
        if file is None:
            raise KeyError(name)
        return file.read()
