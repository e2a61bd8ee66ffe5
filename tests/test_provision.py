"""A script on a machine without packages installs the packages that it needs once, and starts again with these packages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.test_house import ROOT, script

pytestmark = pytest.mark.slow

ON_THEIR_OWN = {"draw_prose", "timed", "zoo"}
"""The scripts that need only Python itself. The zoo has a separate environment for the models that it writes."""
PYTHON_SCRIPTS = sorted(
    path
    for path in (ROOT / "scripts").iterdir()
    if path.is_file() and path.read_text(encoding="utf-8").startswith("#!/usr/bin/env python3")
)


class Begun(Exception):  # noqa: N818
    """An exception in place of the call that replaces the process."""


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module `provision` on a machine without packages.

    `ran` lists the commands that it ran. `begun` lists the commands that replaced its process.
    """
    provision: Any = script("provision.py")
    ran: list[Sequence[str]] = []
    begun: list[Sequence[str]] = []

    def run(command: Sequence[str], **_: object) -> SimpleNamespace:
        ran.append(command)
        return SimpleNamespace(returncode=provision.code)

    def execv(path: str, command: Sequence[str]) -> None:
        begun.append([path, *command])
        raise Begun

    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["scripts/made", "DIR"])
    monkeypatch.setattr(sys, "prefix", "/usr")
    monkeypatch.setattr(provision, "find_spec", lambda name: None)
    monkeypatch.setattr(provision.subprocess, "run", run)
    monkeypatch.setattr(provision.os, "execv", execv)
    provision.code, provision.ran, provision.begun = 0, ran, begun
    return provision


def test_what_is_there_is_not_installed(bare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bare, "find_spec", find_spec)
    assert bare.checkout() == ROOT
    assert sys.path[0] == str(ROOT)
    assert not bare.ran


def test_what_is_missing_is_installed_and_the_script_begins_anew(bare: Any) -> None:
    with pytest.raises(Begun):
        bare.checkout("hypothesis")
    assert bare.ran[0][-3:] == ["made", str(ROOT / "scripts" / "environment"), "dev"]
    python = str(ROOT / ".venv" / "bin" / "python")
    assert bare.begun == [[python, python, "scripts/made", "DIR"]]


def test_a_script_does_not_begin_anew_for_ever(bare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(ROOT / ".venv"))
    assert bare.checkout() == ROOT
    assert len(bare.ran) == 1
    assert not bare.begun


def test_an_installation_that_fails_ends_the_script(bare: Any) -> None:
    bare.code = 1
    with pytest.raises(SystemExit) as ended:
        bare.checkout()
    assert ended.value.code == 1
    assert not bare.begun


def test_every_python_script_says_what_it_needs() -> None:
    silent = {path.name for path in PYTHON_SCRIPTS if "\nimport provision\n" not in path.read_text(encoding="utf-8")}
    assert silent == ON_THEIR_OWN


def test_scripts_on_their_own_need_nothing(tmp_path: Path) -> None:
    for arguments in (["zoo", "--list"], ["timed", "true"]):
        command = [sys.executable, "-I", "-S", str(ROOT / "scripts" / arguments[0]), *arguments[1:]]
        finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize(
    ("devices", "failing", "present", "installed"),
    [
        ("", "", "", ["cpu"]),
        ("GPU 0: a device", "", "", ["gpu"]),
        ("", "cpu", "", ["cpu", "gpu"]),
        ("GPU 0: a device", "gpu", "", ["gpu", "cpu"]),
        ("", "", "onnxruntime_gpu", ["gpu"]),
        ("GPU 0: a device", "", "onnxruntime", ["cpu"]),
    ],
)
def test_the_runtime_is_chosen_by_the_devices(
    devices: str, failing: str, present: str, installed: list[str], tmp_path: Path
) -> None:
    """A machine without a GPU gets the smaller runtime. If this runtime cannot be installed, the script tries the other
    runtime.

    An environment keeps the runtime that it has.
    """
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/environment", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    programs = {
        "nvidia-smi": f'echo "{devices}"',
        "python3": f"""
            case "$*" in
                *venv*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
                *install*\\[{failing or "none"}*) echo "$*" >>"{tmp_path}/log"; echo "no such package" >&2; exit 1 ;;
                *install*) echo "$*" >>"{tmp_path}/log"; echo "  Downloading a wheel" ;;
            esac""",
    }
    if present:
        (tmp_path / ".venv" / "lib" / "python3.11" / "site-packages" / f"{present}-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for name, body in programs.items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/usr/bin/env bash\n{body}\n", encoding="utf-8")
        program.chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    command = ["bash", "-c", 'set -euo pipefail; source "$0"; environment ""', str(tmp_path / "scripts" / "environment")]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert [line.rpartition("[")[2].strip("]") for line in log] == installed
    assert ("no such package" in done.stderr) == bool(failing)
    assert "Downloading" in done.stderr
