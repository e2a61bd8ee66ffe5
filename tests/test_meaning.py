"""Digests of the meanings of operators: edits of a definition change them, edits of comments and lowering do not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from superopt.algebra.digests import DEFINING, digests, digests_of
from superopt.algebra.operators import registry, specs_folder
from superopt.errors import SpecError

pytestmark = pytest.mark.slow

CODE = Path(__file__).parent.parent / "superopt"
FOLDERS = {"specs": specs_folder(), **{f"superopt.{part}": CODE / part for part in DEFINING}}
CONTENTS = {f"{name}.{path.stem}": path.read_bytes() for name, folder in FOLDERS.items() for path in folder.glob("*.py")}


def changed(module: str, old: str, new: str) -> set[str]:
    """Return the operators whose digest changes if the first `old` in a module's file becomes `new`."""
    text = CONTENTS[module].decode()
    assert old in text, f"{module} has no {old!r}: adapt the test"
    after = digests_of({**CONTENTS, module: text.replace(old, new, 1).encode()})
    return {name for name, spec in registry().items() if spec.digest != after[name]}


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("superopt.algebra.index", "def larger(", "# the larger one\ndef larger("),
        ("superopt.algebra.index", '"""Return the larger of two values."""', '"""Return the value that is not smaller."""'),
        (
            "superopt.algebra.index",
            "def larger(a: Value, b: Value) -> Value:",
            "def larger(\n    a: Value,\n    b: Value,\n) -> Value:",
        ),
        ("superopt.speclib.elementwise", "AXIOMS text", "Text of axioms"),
        ("specs.softmax", "def lift(node: Node) -> Term | None:", "def lift(node: Node) -> Term | None:\n    assert node"),
        ("superopt.speclib.softmax_legacy", "ONE_AXIS = 13", "ONE_AXIS = 12"),
    ],
)
def test_comments_docstrings_layout_and_lowering_do_not_count(module: str, old: str, new: str) -> None:
    assert not changed(module, old, new)


@pytest.mark.parametrize(
    ("module", "old", "new", "some", "others"),
    [
        ("specs.exp", 'call("exp", ', 'call("exp", 2 * ', {"exp", "softmax", "sigmoid", "lstm", "elu"}, {"relu", "matmul"}),
        (
            "superopt.algebra.index",
            "\ndef inside(",
            "\ndef larger(a, b):\n    return a\n\n\ndef inside(",
            {"maximum"},
            {"matmul", "exp"},
        ),
        ("superopt.algebra.index", "\ndef inside(", "\nglobals()['larger'] = max\n\n\ndef inside(", {"relu", "matmul"}, set()),
        ("superopt.speclib.elementwise", "== concat(", "== expand(", {"relu", "exp"}, {"matmul"}),
        ("superopt.algebra.bilinear", "\n@dataclass", "\nglobals().update(Matrix=None)\n@dataclass", {"winograd"}, set()),
        ("superopt.speclib.reduction", "return element(", "return 2 * element(", {"reduce_sum", "softmax"}, {"matmul"}),
        ("superopt.speclib.affine", "at_least(number, 0)", "at_least(number, -1)", {"layer_norm"}, {"matmul"}),
        ("specs.matmul", "AXIOMS = ", "AXIOMS = '' + ", {"matmul"}, {"add", "lstm"}),
        ("specs.sqrt", "from superopt.speclib.elementwise import", "from math import", {"sqrt"}, {"matmul"}),
    ],
)
def test_what_changes_a_meaning_counts_for_the_operators_that_use_it(
    module: str, old: str, new: str, some: set[str], others: set[str]
) -> None:
    found = changed(module, old, new)
    assert some <= found
    assert not others & found


def test_digests_are_kept_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    shutil.copytree(specs_folder(), tmp_path / "specs")
    for part in DEFINING:
        shutil.copytree(CODE / part, tmp_path / "superopt" / part)

    def now() -> Mapping[str, str]:
        return digests(tmp_path / "specs", tmp_path / "superopt")

    known = now()
    assert known == {name: spec.digest for name, spec in registry().items()}
    (kept,) = (tmp_path / "superopt" / "__pycache__").iterdir()
    assert json.loads(kept.read_text(encoding="utf-8")) == known
    kept.write_text(json.dumps({"relu": "kept"}), encoding="utf-8")
    assert now() == {"relu": "kept"}
    kept.write_text("[", encoding="utf-8")
    assert now() == known
    with (tmp_path / "superopt" / "algebra" / "index.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef larger(a, b):\n    return a\n")
    assert now()["maximum"] != known["maximum"]
    assert [path.name for path in (tmp_path / "superopt" / "__pycache__").iterdir()] != [kept.name]


def test_a_file_that_is_no_python_is_named() -> None:
    with pytest.raises(SpecError, match=r"superopt/algebra/index\.py cannot be read"):
        changed("superopt.algebra.index", "def ", "def def ")


def test_a_definition_may_move_to_another_module() -> None:
    moved = {name.replace("superopt.speclib.", "superopt.algebra."): content for name, content in CONTENTS.items()}
    after = digests_of({name: content.replace(b"superopt.speclib.", b"superopt.algebra.") for name, content in moved.items()})
    assert after == {name: spec.digest for name, spec in registry().items()}
