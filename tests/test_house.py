"""The house rules that a program can check, such as printing, imports of third-party packages, and claims on pages."""

from __future__ import annotations

import ast
import functools
import importlib.machinery
import importlib.util
import re
import subprocess
import sys
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from superopt import errors
from superopt.cli import main as cli

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted([*(ROOT / "superopt").rglob("*.py"), *(ROOT / "specs").glob("*.py")])
ONNX = tuple(f"superopt/{package}/" for package in ("child", "protobuf", "runtime", "model", "kernels", "cost", "verification"))
HOMES = {
    "z3": ("superopt/proof/", "superopt/floating_point/"),
    "onnx": ONNX,
    "onnx_ir": (*ONNX, "superopt/ir_pass.py"),
    "onnxruntime": ("superopt/child/", "superopt/runtime/", "superopt/verification/"),
    "rich": ("superopt/report/", "superopt/cli/main.py", "superopt/cli/display.py"),
}
OPEN_TO_SPECS = ("superopt.algebra.", "superopt.speclib.")


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    """Yield every module that the file imports, also inside of functions."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_a_module_says_what_it_is() -> None:
    assert not [place(s) for s in SOURCES if s.read_text(encoding="utf-8").strip() and not ast.get_docstring(tree(s))]


def test_only_the_command_line_prints_and_exits() -> None:
    written = {"print", "sys.exit", "exit", "sys.stdout.write"}
    for source in SOURCES:
        calls = (n for n in ast.walk(tree(source)) if isinstance(n, ast.Call))
        if any(ast.unparse(n.func) in written for n in calls):
            assert place(source) in {"superopt/cli/main.py", "superopt/__main__.py"}


def test_third_parties_stay_at_home() -> None:
    for source in SOURCES:
        for module in imports(source):
            homes = HOMES.get(module.split(".")[0])
            assert homes is None or place(source).startswith(homes), (place(source), module)


def test_specs_see_the_algebra_alone() -> None:
    for source in SOURCES:
        if place(source).startswith("specs/"):
            ours = {m for m in imports(source) if m.split(".")[0] in {"superopt", "specs"}}
            assert all(module.startswith(OPEN_TO_SPECS) for module in ours), place(source)


def test_names_say_something() -> None:
    assert not {s.stem for s in SOURCES} & {"utils", "util", "helpers", "helper", "common", "misc", "manager"}


@pytest.mark.parametrize("package", sorted(path.parent for path in SOURCES if path.name == "__init__.py"), ids=place)
def test_a_map_names_every_module(package: Path) -> None:
    described = re.findall(r"^    `(\w+/?)`: \S", ast.get_docstring(tree(package / "__init__.py")) or "", re.MULTILINE)
    modules = [path.stem for path in package.glob("*.py") if path.name != "__init__.py"]
    packages = [f"{path.parent.name}/" for path in package.glob("*/__init__.py")]
    assert sorted(described) == sorted([*modules, *packages])


def test_no_two_classes_share_a_name() -> None:
    classes = Counter(
        n.name for s in SOURCES for n in tree(s).body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")
    )
    assert not [name for name, count in classes.items() if count > 1]


def test_nothing_is_left_to_do() -> None:
    assert not [place(s) for s in SOURCES if re.search(r"\b(TODO|FIXME|XXX)\b", s.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("module", ["superopt", "superopt.flows.optimize"])
def test_optimizing_needs_no_z3(module: str) -> None:
    hidden = f"import sys; sys.modules['z3'] = None; import {module}"
    finished = subprocess.run([sys.executable, "-c", hidden], cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


def script(name: str) -> types.ModuleType:
    """Import the Python script scripts/<name> as a module, with the folder scripts/ on the import path."""
    path = str(ROOT / "scripts" / name)
    if str(ROOT / "scripts") not in sys.path:
        sys.path.insert(0, str(ROOT / "scripts"))
    loader = importlib.machinery.SourceFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_the_example_is_what_its_script_writes() -> None:
    written = script("make_example").example().SerializeToString(deterministic=True)
    assert written == (ROOT / "examples" / "branches.onnx").read_bytes()
    assert len(written) < 3_000_000


def raised_on_purpose() -> list[type[errors.SuperoptError]]:
    return [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.SuperoptError)]


def test_exit_codes_are_distinct() -> None:
    codes = [error.exit_code for error in raised_on_purpose()]
    assert len(codes) == len(set(codes))
    assert all(0 < code < 64 for code in codes)


def test_exit_codes_are_documented() -> None:
    page = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    documented = {int(code): text for code, text in re.findall(r"^\| (\d+) \| `\w+` \| (.+) \|$", page, re.MULTILINE)}
    assert documented == {e.exit_code: " ".join(str(e.__doc__).split()) for e in raised_on_purpose()}


def test_codes_without_an_error_are_documented() -> None:
    page = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \| \|", page, re.MULTILINE)}
    assert documented == {0, 2, cli.INTERRUPTED, cli.TERMINATED, cli.INTERNAL, cli.CLOSED}


def test_scripts_can_be_run() -> None:
    run = [
        "superopt",
        "test",
        "check",
        "regenerate",
        "make_example",
        "readme_tables",
        "bench",
        "spellings",
        "wild",
        "zoo",
        "docs",
        "check_wheel",
    ]
    for path in [*(ROOT / "scripts" / name for name in run), ROOT / ".ci" / "run"]:
        assert path.stat().st_mode & 0o111, path
