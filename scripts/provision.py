"""What a Python script of this folder needs of the machine: superopt from this checkout, and all that it is installed with."""

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
"""What optimization needs: it may be done where there is no Z3."""
EXTRAS = {"": "", "egglog": "generate", "hypothesis": "dev"}
"""The extra of superopt that brings a module which not every script needs."""
INSTALL = 'set -euo pipefail; source "$1"; environment "$2"'


def checkout(module: str = "") -> Path:
    """The folder of the checkout, first where modules are looked for; all that superopt needs is there, and the `module`.

    Where the interpreter at hand lacks some of it, it is installed into .venv, as scripts/superopt does, and the script begins
    anew there. Ends with 1 where that fails, after what scripts/environment says of it.
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
