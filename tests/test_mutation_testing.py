"""The script scripts/mutants: the code that it mutates, the code that it leaves alone, and the tests that it runs."""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import importlib.util
import json
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def load_script() -> types.ModuleType:
    """Import the script as a module, with the folder of `provision`, which the script imports, on the import path."""
    loader = importlib.machinery.SourceFileLoader("mutants", str(ROOT / "scripts" / "mutants"))
    spec = importlib.util.spec_from_loader("mutants", loader)
    assert spec is not None
    sys.modules["mutants"] = module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(ROOT / "scripts"))
    loader.exec_module(module)
    return module


MUTANTS = load_script()
TRACED = {"a": [9.0, ["m.py:f"]], "b": [1.0, ["m.py:f", "m.py:C.g"]], "c": [2.0, ["m.py:f"]], "d": [90.0, ["m.py:f"]]}
SOURCE = '''
"""Text of a module: 1."""

LIMIT = 3


@cache(maxsize=4)
def f(x: int = 1) -> int | None:
    """Text of a function: 2."""
    assert x > 0
    if not x or x in (LIMIT, 5):
        raise ValueError(f"{x + 6}", x + 7)
    for k in range(x):
        g(k, strict=True)
    return min(x - 100, 20) if x >= LIMIT else None


class C:
    def __repr__(self) -> str:
        return "C" * 8
'''


def functions(code: types.CodeType) -> list[bytes]:
    return [constant.co_code for constant in code.co_consts if isinstance(constant, types.CodeType)]


def after(source: str) -> list[str]:
    return [
        f"{operator}: {ast.unparse(old)} -> {ast.unparse(new)}" for old, new, operator, *_ in MUTANTS.changes(ast.parse(source))
    ]


def test_code_is_mutated_and_texts_constants_and_checks_are_not() -> None:
    assert after(SOURCE) == [
        "integer: 1 -> 0",
        "and-or: not x or x in (LIMIT, 5) -> not x and x in (LIMIT, 5)",
        "condition: not x or x in (LIMIT, 5) -> not (not x or x in (LIMIT, 5))",
        "not: not x -> x",
        "comparison: x in (LIMIT, 5) -> x not in (LIMIT, 5)",
        "integer: 5 -> 4",
        "statement: g(k, strict=True) -> pass",
        "return: return min(x - 100, 20) if x >= LIMIT else None -> return None",
        "comparison: x >= LIMIT -> x > LIMIT",
        "min-max: min(x - 100, 20) -> max(x - 100, 20)",
        "arithmetic: x - 100 -> x + 100",
    ]


def test_a_mutant_is_the_module_with_one_change() -> None:
    file = ROOT / "superopt" / "search" / "selection.py"
    (mutant,) = (m for m in MUTANTS.mutants_of(file) if m.before == "gain.bytes <= left")
    assert (mutant.operator, mutant.after) == ("comparison", "gain.bytes < left")
    changed = compile(file.read_text().replace(mutant.before, mutant.after), str(file), "exec", dont_inherit=True)
    assert functions(MUTANTS.mutated(mutant)) == functions(changed)


@pytest.mark.long
def test_packages_get_mutants_by_their_lines() -> None:
    mutants = MUTANTS.drawn(40, 0)
    assert mutants == MUTANTS.drawn(40, 0) != MUTANTS.drawn(40, 1)
    assert {m.file.split("/")[1] for m in mutants} == set(MUTANTS.PACKAGES)


def test_a_function_has_the_tests_that_call_it_the_fastest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = "tests/test_match.py"
    rows = {file: {"digest": "", "tests": {f"{file}::{t}": row for t, row in TRACED.items()}}}
    monkeypatch.setattr(MUTANTS, "TRACE", tmp_path / "trace.json")
    monkeypatch.setattr(MUTANTS, "FIRST_TESTS", 2)
    MUTANTS.TRACE.write_text(json.dumps(rows))
    MUTANTS.tests_of.cache_clear()
    places = [MUTANTS.Mutant("m.py", 1, function, "integer", "1", "0", 0) for function in ("f", "C.g", "C", "")]
    found = [[[test[-1] for test in part] for part in MUTANTS.chosen(mutant)] for mutant in places]
    assert found == [[["b", "c"], ["a"]], [["b"]], [["b", "c"], ["a"]], [["b", "c"], ["a"]]]
    MUTANTS.tests_of.cache_clear()


def test_test_files_that_are_traced_do_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = (ROOT / "tests").glob("test_*.py")
    rows = {f"tests/{path.name}": {"digest": hashlib.sha256(path.read_bytes()).hexdigest(), "tests": {}} for path in paths}
    monkeypatch.setattr(MUTANTS, "TRACE", tmp_path / "trace.json")
    MUTANTS.TRACE.write_text(json.dumps(rows))
    MUTANTS.trace_tests(1)
    assert json.loads(MUTANTS.TRACE.read_text()) == rows


def test_code_belongs_to_the_function_around_it() -> None:
    file = str(ROOT / "superopt" / "search" / "selection.py")
    code = compile("class C:\n def f(self):\n  def g(): return [x for x in y]\n", file, "exec", dont_inherit=True)
    (c,) = (k for k in code.co_consts if isinstance(k, types.CodeType))
    (f,) = (k for k in c.co_consts if isinstance(k, types.CodeType))
    (g,) = (k for k in f.co_consts if isinstance(k, types.CodeType))
    (x,) = (k for k in g.co_consts if isinstance(k, types.CodeType))
    names = [MUTANTS.function_of(one).partition(":")[2] for one in (c, f, g, x)]
    assert names == ["C", "C.f", "C.f.g", "C.f.g"]
    assert MUTANTS.function_of(compile("", "elsewhere.py", "exec")) == ""


def test_a_listed_survivor_is_equivalent_and_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "listed.json"
    listed.write_text(
        '[{"file": "superopt/model/a.py", "function": "f", "before": "1", "after": "0", "occurrence": 0, "reason": "not read"}]'
    )
    monkeypatch.setattr(MUTANTS, "EQUIVALENT", listed)
    survivor = MUTANTS.Mutant("superopt/model/a.py", 3, "f", "integer", "1", "0", 7, "survived")
    killed, other = replace(survivor, verdict="killed"), replace(survivor, occurrence=1)
    results = [MUTANTS.judged(mutant) for mutant in (survivor, killed, other)]
    assert [result.verdict for result in results] == ["equivalent", "killed", "survived"]
    counts = MUTANTS.totals(results)
    assert counts["model"] == {"killed": 1, "timeout": 0, "survived": 1, "equivalent": 1, "gone": 0, "killed_share": 0.5}
    assert counts["all"] == counts["model"]
    assert not any(counts["rules"].values())


def test_survivors_are_looked_up_in_the_present_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MUTANTS, "ROOT", tmp_path)
    path = tmp_path / "superopt" / "model" / "a.py"
    path.parent.mkdir(parents=True)
    path.write_text("def f():\n    return g(1, 1) + h\n\n\ndef e():\n    return not c\n")
    results = [replace(mutant, verdict="survived") for mutant in MUTANTS.mutants_of(path)]
    assert [m.occurrence for m in results if m.before == "1"] == [0, 1]
    path.write_text("def d():\n    return 1\n\n\ndef f():\n    x = 3\n    return g(1, 1) - h\n")
    located = MUTANTS.located(results)
    present = [m for m in located if m.verdict == "survived"]
    assert [(m.before, m.line, m.occurrence) for m in present] == [("1", 7, 0), ("1", 7, 1)]
    assert all(replace(m, verdict="") == list(MUTANTS.mutants_of(path))[m.number] for m in present)
    assert {m.before for m in located if m.verdict == "gone"} == {"return g(1, 1) + h", "g(1, 1) + h", "return not c", "not c"}
    assert MUTANTS.totals(located)["model"] == {
        "killed": 0, "timeout": 0, "survived": 2, "equivalent": 0, "gone": 4, "killed_share": 0.0
    }  # fmt: skip


def test_survivors_run_again_and_gone_mutants_are_replaced_on_request() -> None:
    a, b, c, d = (MUTANTS.Mutant("superopt/model/a.py", 1, name, "integer", "1", "0", 0) for name in "abcd")
    results = {a: replace(a, verdict="killed"), b: replace(b, verdict="survived"), c: replace(c, verdict="gone")}
    runs = [
        [m.function for m in MUTANTS.to_run(found, [d, a, b], survivors=survivors, replacements=replacements)]
        for found in (results, {a: a})
        for survivors in (False, True)
        for replacements in (False, True)
    ]
    assert runs == [[], ["d"], ["b"], ["b", "d"], ["d", "b"], ["d", "b"], ["d", "b"], ["d", "b"]]
