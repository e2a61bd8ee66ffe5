"""The environment of the other optimizers, and runs of optimizers in separate processes."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.peers.optimize import OPTIMIZERS

ROOT = Path(__file__).resolve().parent.parent.parent
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
VENV = ROOT / ".venv-peers"
SUPEROPT = "superopt"
PEERS = tuple(name for name in OPTIMIZERS if name not in (SUPEROPT, "transformers"))
Row: TypeAlias = dict[str, Any]
"""The figures of one optimizer on one model. If the optimizer failed, `failed` has the reason."""


def environment() -> Path:
    """Return the Python interpreter of .venv-peers, and create .venv-peers if it is missing or if requirements.txt has changed.

    If a package cannot be installed, pip prints the reason on stderr, and the other packages are installed. The next call then
    creates .venv-peers again.
    """
    python, stamp = VENV / "bin" / "python", VENV / "made"
    wanted = f"{ROOT}\n{REQUIREMENTS.read_text(encoding='utf-8')}"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    print("bench: installing other optimizers into .venv-peers (once, and again when their pins change)", file=sys.stderr)
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], stdout=sys.stderr, check=False)
    if made.returncode == 0 and installed(python, "--requirement", str(REQUIREMENTS)):
        stamp.write_text(wanted, encoding="utf-8")
    elif made.returncode == 0:
        for pin in REQUIREMENTS.read_text(encoding="utf-8").split():
            installed(python, pin)
    return python


def installed(python: Path, *what: str) -> bool:
    """Install packages with pip, and return whether pip succeeded. `what` are arguments of `pip install`."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
    return subprocess.run(command, stdout=sys.stderr, check=False).returncode == 0


def pins() -> str:
    """Return a digest of requirements.txt."""
    return hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]


def optimized(
    python: Path | str,
    name: str,
    source: Path,
    target: Path,
    *,
    options: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Row:
    """Run an optimizer on a model in a separate process (`benchmarks.peers.optimize`), and return the figures of the run.

    superopt shows its progress. The process may store compiled modules, even if PYTHONDONTWRITEBYTECODE is set.
    """
    command = [str(python), "-m", "benchmarks.peers.optimize", name]
    command += [str(source.resolve()), str(target.resolve()), json.dumps(options or {})]
    errors = None if name == SUPEROPT else subprocess.PIPE
    compiled = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env=compiled, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {timeout:g} s"}
    except OSError as error:
        return {"failed": f"it could not be started: {error.strerror}"}
    return row(ended.stdout, ended.stderr or "", ended.returncode)


def row(printed: str, complaint: str, code: int) -> Row:
    """Return the JSON object on the last line of a process's output, or a row with the reason of a failure as `failed`.

    `printed` is the standard output, `complaint` is the standard error, and `code` is the exit code.
    """
    try:
        said = json.loads(last_line(printed))
    except ValueError:
        said = None
    if isinstance(said, dict) and ("failed" in said or code == 0):
        return said
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return {"failed": ": ".join(filter(None, (how, last_line(complaint))))}


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
