"""Rules that a user writes: which rules are added or refused, and how `optimize` and `verify` use them."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import helper

import superopt
from superopt.cli import main as cli
from superopt.errors import (
    CertificateError,
    NotationError,
    StoreError,
    SuperoptError,
    TargetError,
    UnprovedError,
)
from superopt.flows.add_rules import add_rules
from superopt.flows.verify import verify
from superopt.rules.rule import Rule
from superopt.rules.user_rules import load_user_rules
from superopt.search.ruleset import RuleSet
from tests.certified import Certified, at_random
from tests.models import model, weight
from tests.test_optimize import compare_as, measured

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
TRIPLE = "triple-relu: relu(relu(relu(x))) => relu(x) for x[1, 2, 3, 4]\n"
SPLIT = "split-product: (x + y) @ w => x @ w + y @ w for x[2, 3], y[2, 3], w[2]\n"


def written(folder: Path, text: str, name: str = "my.rules") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a file of two rules and its ledger. No test changes the folder."""
    folder = tmp_path_factory.mktemp("added")
    add_rules(written(folder, f"# My rules.\n{TRIPLE}{SPLIT}"))
    return folder


@pytest.fixture
def store(added: Path, tmp_path: Path) -> Path:
    """Return a file of two rules, next to its ledger."""
    shutil.copytree(added, tmp_path, dirs_exist_ok=True)
    return tmp_path / "my.rules"


def relus() -> onnx.ModelProto:
    """Return a model of a product and three activations. One rule removes two of the activations."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"])]
    nodes += [helper.make_node("Relu", [a], [b]) for a, b in (("h", "a"), ("a", "b"), ("b", "y"))]
    return model(nodes, {"x": [2, 4]}, {"y": [2, 4]}, [weight("w", 4, 4)])


def fails(capsys: pytest.CaptureFixture[str], error: type[SuperoptError], *arguments: str | Path) -> str:
    """Require that the command fails with the error's exit code, and return the one line that it prints."""
    assert cli.main([str(a) for a in arguments]) == error.exit_code
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("superopt: ")]
    assert len(lines) == 1
    return lines[0]


def test_rules_are_proved_and_stored_beside_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, f"# My rules.\n{TRIPLE}{SPLIT}")
    assert cli.main(["rules", "add", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "triple-relu: proved for all sizes from relu.twice, 24 samples agree; floating-point flags: none"
    )
    assert "reassoc" in lines[1]
    assert str(path) in lines[-1]
    assert path.read_text(encoding="utf-8") == f"# My rules.\n{TRIPLE}{SPLIT}"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["my.proofs.jsonl", "my.rules", "my.witnesses.jsonl"]
    first, second = load_user_rules([path])
    assert (first.name, first.family, first.flags) == ("triple-relu", "my", frozenset())
    assert second.flags


def test_rules_are_copied_to_another_folder(store: Path, tmp_path: Path) -> None:
    add_rules(store, tmp_path / "store")
    for file in ("my.rules", "my.proofs.jsonl", "my.witnesses.jsonl"):
        assert (tmp_path / "store" / file).read_bytes() == (tmp_path / file).read_bytes()
    add_rules(written(tmp_path, TRIPLE.replace("triple", "three"), "more.rules"), tmp_path / "store")
    assert [rule.name for rule in load_user_rules([tmp_path / "store"])] == ["three-relu", "triple-relu", "split-product"]


def test_a_refuted_rule_is_refused_with_its_counterexample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, f"{TRIPLE}wrong: relu(x) - x => x for x[1, 2]\n")
    line = fails(capsys, UnprovedError, "rules", "add", path, "--out", tmp_path / "store")
    assert "1 of 2 rules are refused: wrong is refuted: x[" in line
    assert "on the left and" in line
    assert [p.name for p in tmp_path.iterdir()] == ["my.rules"]


def test_a_rule_without_a_proof_is_refused_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "grown: conv(x, v) => conv(x, v + w - w) for x[4], v[4], w[4]\n")
    assert "grown is not proved: " in fails(capsys, UnprovedError, "rules", "add", path)
    assert [p.name for p in tmp_path.iterdir()] == ["my.rules"]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", NotationError, "has no rules"),
        ("a: relu(\n", NotationError, "my.rules: "),
        ("a: nothing(x) => x for x[1]\n", SuperoptError, "nothing"),
        ("a: relu(x) == relu(relu(x)) for x[1]\n", NotationError, "write the rule as `left => right`"),
        (TRIPLE + TRIPLE, NotationError, "two rules are called triple-relu"),
        (TRIPLE.replace("triple-relu", "abs-relu-to-relu"), StoreError, "superopt itself has a rewrite"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, text: str, error: type[SuperoptError], message: str) -> None:
    with pytest.raises(error, match=message):
        add_rules(written(tmp_path, text))
    assert [p.name for p in tmp_path.iterdir()] == ["my.rules"]


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        add_rules(tmp_path / "absent.rules")
    with pytest.raises(StoreError, match=r"must end in \.rules"):
        add_rules(written(tmp_path, TRIPLE, "my.txt"))
    with pytest.raises(StoreError, match="superopt's own rules already use this file name"):
        add_rules(written(tmp_path, TRIPLE, "matrix.rules"))


def test_a_folder_that_is_a_file_is_refused(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails(capsys, TargetError, "rules", "add", store, "--out", store)


def test_a_rule_that_is_never_applied_is_noted(tmp_path: Path) -> None:
    added = add_rules(written(tmp_path, "grown: x => x + zeros(shape=x.shape) for x[2]\n"))
    assert any("never applies this rule, because the left side is a variable" in line for line in added.lines())


@pytest.mark.parametrize(
    ("old", "new"),
    [("relu(relu(relu(x)))", "relu(relu(abs(x)))"), ("=> relu(x)", "=> x"), ("triple-relu", "other-name"), (TRIPLE, "")],
)
def test_an_altered_rule_is_refused(store: Path, old: str, new: str) -> None:
    store.write_text(store.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(StoreError, match="superopt rules add proves"):
        load_user_rules([store])
    with pytest.raises(StoreError, match="superopt rules add proves"):
        superopt.optimize(relus(), rules=[store])


def test_a_ledger_that_was_edited_or_is_missing_is_refused(store: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "my.proofs.jsonl"
    ledger.write_text(ledger.read_text(encoding="utf-8").replace('"reassoc", ', ""), encoding="utf-8")
    with pytest.raises(StoreError, match="was edited"):
        load_user_rules([store])
    ledger.unlink()
    with pytest.raises(StoreError, match="no proof"):
        load_user_rules([store])


def test_paths_without_rules_are_refused(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "absent", "neither a folder nor a file"),
        (tmp_path / "absent.rules", "no such file"),
        (tmp_path, "has no file of rules"),
    ):
        with pytest.raises(StoreError, match=message):
            load_user_rules([path])


def test_rules_of_one_name_are_refused(store: Path, tmp_path: Path) -> None:
    add_rules(written(tmp_path, TRIPLE, "more.rules"))
    with pytest.raises(StoreError, match="two rules are called 'triple-relu'"):
        load_user_rules([store, tmp_path / "more.rules"])


def test_a_single_path_is_no_sequence_of_paths(store: Path) -> None:
    with pytest.raises(ValueError, match="rules must be a sequence of paths"):
        superopt.optimize(relus(), rules=str(store))


# ---------------------------------------------------------------- verify


@pytest.fixture
def certified(store: Path, tmp_path: Path) -> Certified:
    """Return a model that was rewritten by a rule of the user, with its certificate."""
    rules: list[Rule] = load_user_rules([store])
    return Certified(relus(), [at_random(RuleSet(rules), 0, steps=1)], rules, tmp_path)


def test_a_step_by_a_rule_of_the_user_is_verified_with_the_rules(store: Path, certified: Certified) -> None:
    text = certified.file.read_text(encoding="utf-8")
    found = verify(certified.original, certified.optimized, text, user_rules=[store])
    assert [(kind.how, kind.rules) for kind in found.kinds] == [("proved", ("triple-relu",))]


def test_a_step_by_a_rule_of_the_user_is_refused_without_the_rules(
    store: Path, certified: Certified, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments: list[str | Path] = ["verify", certified.original, certified.optimized, "--certificate", certified.file]
    assert "no stored rule is called 'triple-relu'" in fails(capsys, CertificateError, *arguments)
    assert cli.main([*map(str, arguments), "--rules", str(store)]) == 0
    (tmp_path / "other").mkdir()
    other = written(tmp_path / "other", TRIPLE.replace("1, 2, 3, 4", "1, 2"))
    add_rules(other)
    assert "differs from the rule" in fails(capsys, CertificateError, *arguments, "--rules", other)


# ---------------------------------------------------------------- optimize


def test_optimizing_with_rules_of_the_user_imports_no_prover(store: Path, tmp_path: Path) -> None:
    onnx.save(relus(), tmp_path / "in.onnx")
    script = "import sys; sys.modules['z3'] = None; from superopt.cli.main import main; sys.exit(main())"
    files = [str(tmp_path / name) for name in ("in.onnx", "out.onnx")]
    arguments = ["optimize", *files, "--rules", str(store), "--budget", "1s"]
    done = subprocess.run([sys.executable, "-c", script, *arguments], cwd=ROOT, env={**os.environ}, check=False)
    assert done.returncode == 0
    assert (tmp_path / "out.onnx").exists()


def test_a_rule_of_the_user_is_applied_and_certified(monkeypatch: pytest.MonkeyPatch, store: Path, tmp_path: Path) -> None:
    flow = importlib.import_module("superopt.flows.optimize")
    monkeypatch.setattr("superopt.flows.prepare.load_rules", list)
    monkeypatch.setattr(flow, "relower", lambda *_: ())
    monkeypatch.setattr("superopt.search.segment_search.recognized_rules", lambda *_: ())
    compare_as(monkeypatch, lambda _: measured(2.0))
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in (("x", "a"), ("a", "b"), ("b", "y"))]
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model(nodes, {"x": [512, 512]}, {"y": [512, 512]}), source)
    optimized = superopt.optimize(source, rules=[store], moves=["rules"], budget=10.0)
    optimized.save(target)
    assert [rule.name for rule in optimized.report.rules] == ["triple-relu"]
    assert len(onnx.load(target).graph.node) == 1
    found = verify(source, target, optimized.certificate, user_rules=[store])
    assert [(kind.how, kind.rules) for kind in found.kinds] == [("proved", ("triple-relu",))]
    with pytest.raises(CertificateError, match="no stored rule is called 'triple-relu'"):
        verify(source, target, optimized.certificate)
