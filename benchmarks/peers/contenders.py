"""The environment of the optimizers that superopt is measured beside, and their runs in processes of their own."""

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
"""What is known of one optimizer on one model; `failed` has the reason where it failed."""


def environment() -> Path:
    """The interpreter of .venv-peers, which is made where it is missing and has what requirements.txt pins.

    What cannot be installed is told on the standard error stream and is missing there; it is tried again the next time.
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
    """Whether pip could install it."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
    return subprocess.run(command, stdout=sys.stderr, check=False).returncode == 0


def pins() -> str:
    """A digest of what requirements.txt pins."""
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
    """What came of one optimizer on one model, see `benchmarks.peers.optimize`; superopt shows its progress.

    Python keeps what it compiles of the optimizers, as it does of what is installed.
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
    """What a process said on its last line, or how it ended where it said nothing."""
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
