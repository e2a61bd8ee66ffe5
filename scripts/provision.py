"""Make superopt from this checkout importable in a Python script of this folder, and install missing dependencies."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
NEEDED = ("networkx", "numpy", "onnx", "onnx_ir", "onnxruntime", "rich")
"""The modules that optimization needs. Optimization does not need Z3."""
EXTRAS = {"": "", "PIL": "dev", "hypothesis": "dev", "twine": "release"}
"""For each module that only some scripts need, the extra of superopt (as in `superopt[dev]`) that installs the module."""
INSTALL = 'set -euo pipefail; source "$1"; environment "$2"'


def checkout(module: str = "") -> Path:
    """Put this checkout first on the import path, install missing dependencies and `module`, and return the checkout's folder.

    If the interpreter lacks a dependency, the dependency is installed into .venv, and the script restarts in .venv. Exits with
    1 if the installation fails. scripts/environment prints the reason.
    """
    sys.path.insert(0, str(ROOT))
    if any(find_spec(name) is None for name in (*NEEDED, *filter(None, [module]))):
        command = ["bash", "-c", INSTALL, Path(sys.argv[0]).name, str(ROOT / "scripts" / "environment"), EXTRAS[module]]
        if subprocess.run(command, check=False).returncode:
            sys.exit(1)
        if Path(sys.prefix).resolve() != VENV.resolve():
            python = str(VENV / "bin" / "python")
            os.execv(python, [python, *sys.argv])
        importlib.invalidate_caches()
    return ROOT
