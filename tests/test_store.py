"""The rule store: written rules are read back, stale or unproved rules are refused, and no file is half written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from superopt.errors import StoreError
from superopt.rules import store
from superopt.rules.rule import Rule, parse_rule
from superopt.rules.verdict import Counterexample, Proved

pytestmark = pytest.mark.slow

LONG = (
    "share: (x @ y, x @ z) => (slice(m := x @ concat(y, z, axis=-1), axis=-1, stop=y.shape[-1]), "
    "slice(m, axis=-1, start=y.shape[-1], stop=y.shape[-1] + z.shape[-1])) for x[2, 3], y[2], z[2] "
    "where x.shape[-1] >= 2, y.shape[-1] >= 2"
)
RULES = [parse_rule("factor: x @ y + x @ z => x @ (y + z) for x[2, 3], y[2], z[2]"), parse_rule(LONG)]
PROOF = Proved(12.5, axioms=("matmul.distribute-right",), instances=("matmul.distribute-right(x=x, y=y, z=z)",), kind="axioms")


def entries(*, part: str = store.CORE) -> list[tuple[Rule, store.LedgerEntry]]:
    return [(rule, store.entry_of(rule, PROOF, solver="z3 4", origin="test", samples=200, part=part)) for rule in RULES]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store.write_family("matrix", "Rules over matrices.\n\nFound by a test.", entries(), tmp_path)
    return tmp_path


def change(path: Path, **values: object) -> None:
    """Set these values in every line of the ledger, and seal each changed line."""
    rows = [{**json.loads(line), **values} for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        del row["seal"]
    path.write_text("".join(map(store.sealed_line, rows)), encoding="utf-8")


def test_what_is_written_is_read_back(folder: Path) -> None:
    assert store.families(folder) == ("matrix",)
    loaded = store.load(folder)
    assert [s.rule for s in loaded] == RULES
    assert [s.entry for s in loaded] == [entry for _, entry in entries()]
    assert all(s.core and s.family == "matrix" for s in loaded)
    assert store.load_rules(folder) == RULES


def test_an_unchanged_store_is_read_once(folder: Path) -> None:
    (first, *_) = store.load(folder)
    (again, *_) = store.load(folder)
    assert again is first
    (path,) = folder.glob("*.rules")
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    (changed, *_) = store.load(folder)
    assert changed == first
    assert changed is not first


def test_the_text_is_for_people(folder: Path) -> None:
    text = (folder / "matrix.rules").read_text(encoding="utf-8")
    assert text.startswith("# Rules over matrices.\n#\n# Found by a test.\n")
    assert "\nfactor:  x @ y + x @ z  =>  x @ (y + z)  for x[2, 3], y[2], z[2]\n" in text
    assert max(map(len, text.splitlines())) <= store.WIDTH


def test_the_same_rules_make_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    slower = replace(PROOF, milliseconds=99.0)
    written = [(r, store.entry_of(r, slower, solver="z3 4", origin="test", samples=200)) for r in RULES]
    store.write_family("matrix", "Rules over matrices.\n\nFound by a test.", written, again)
    for name in ("matrix.rules", "matrix.proofs.jsonl"):
        assert (folder / name).read_bytes() == (again / name).read_bytes()


def test_the_core_comes_first(tmp_path: Path) -> None:
    (first, derived), (second, kept) = entries()
    store.write_family("matrix", "", [(first, replace(derived, part=store.SEARCH)), (second, kept)], tmp_path)
    loaded = store.load(tmp_path)
    assert [(s.rule, s.core) for s in loaded] == [(second, True), (first, False)]


def test_an_edited_rule_is_stale(folder: Path) -> None:
    path = folder / "matrix.rules"
    path.write_text(path.read_text(encoding="utf-8").replace("x @ (y + z)", "x @ (z + y)"), encoding="utf-8")
    with pytest.raises(StoreError, match=r"matrix\.rules: factor: the ledger has no proof for the present text of the rule"):
        store.load(folder)


def test_a_changed_spec_makes_rules_stale(folder: Path) -> None:
    assert set(entries()[0][1].specs) == {"add", "matmul"}
    change(folder / "matrix.proofs.jsonl", specs=dict.fromkeys(("add", "matmul"), "0" * 16))
    with pytest.raises(
        StoreError, match=r"factor: specs/add\.py, or code that it uses, has changed since the rule was proved; .*share"
    ):
        store.load_rules(folder)


def test_a_spec_of_an_axiom_counts_though_the_rule_does_not_mention_it() -> None:
    proof = replace(PROOF, axioms=("pad.as-concat-columns",))
    assert {"pad", "concat", "zeros"} <= set(store.entry_of(RULES[0], proof, solver="z3 4").specs)


def test_a_rule_that_is_gone_is_missed(folder: Path) -> None:
    path = folder / "matrix.rules"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("factor:")]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(StoreError, match="factor: the ledger has a proof of this rule, but the file does not contain the rule"):
        store.load(folder)


def test_an_unproved_rule_is_refused(folder: Path) -> None:
    change(folder / "matrix.proofs.jsonl", verdict="unknown")
    with pytest.raises(StoreError, match="factor: the ledger has the verdict 'unknown'"):
        store.load(folder)
    (folder / "matrix.proofs.jsonl").unlink()
    with pytest.raises(StoreError, match="factor: the ledger has no proof"):
        store.load(folder)


def test_an_axiom_that_is_gone_makes_rules_stale(folder: Path) -> None:
    change(folder / "matrix.proofs.jsonl", axioms=["matmul.wishful"])
    with pytest.raises(StoreError, match=r"uses the axiom matmul\.wishful, which no longer exists"):
        store.load(folder)


def test_an_entry_that_was_edited_is_refused(folder: Path) -> None:
    path = folder / "matrix.proofs.jsonl"
    whole = path.read_text(encoding="utf-8")
    row = json.loads(whole.splitlines()[0])
    for name in row:
        path.write_text(whole.replace(json.dumps(row[name]), json.dumps("other"), 1), encoding="utf-8")
        with pytest.raises(StoreError, match=r"matrix\.proofs\.jsonl, line 1: the entry of \w+ was edited"):
            store.load(folder)
    path.write_text(whole, encoding="utf-8")
    assert len(store.load(folder)) == len(RULES)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"specs": {}}, "is not among the definitions that the proof names"),
        ({"specs": []}, "the field 'specs' is unknown or has a value of the wrong type"),
        ({"specs": {"add": 1}}, "the field 'specs' is unknown or has a value of the wrong type"),
        ({"axioms": [], "instances": []}, "the axioms and the instances of the proof in the ledger do not match"),
        ({"instances": []}, "the axioms and the instances of the proof in the ledger do not match"),
        ({"kind": "index"}, "the axioms and the instances of the proof in the ledger do not match"),
        ({"status": "bounded"}, "has the status 'bounded', but lists 0 bounds"),
        ({"bounded": ["g in 1, 2"]}, "has the status 'all sizes', but lists 1 bounds"),
        ({"status": "bounded", "bounded": ["g in 1, 2"]}, "the rule is not proved for all sizes, but only for g in 1, 2"),
        ({"name": "other"}, "the proof of the rule is stored under the name other"),
        ({"flags": ["sometimes"]}, "'sometimes', which is not a floating-point flag"),
        ({"samples": "many"}, "the field 'samples' is unknown or has a value of the wrong type"),
        ({"ranks": None}, "the field 'ranks' is unknown or has a value of the wrong type"),
        ({"verdict": ["proved"]}, "the field 'verdict' is unknown or has a value of the wrong type"),
    ],
)
def test_an_entry_does_not_prove_what_it_does_not_claim(folder: Path, values: dict[str, object], message: str) -> None:
    change(folder / "matrix.proofs.jsonl", **values)
    with pytest.raises(StoreError, match=re.escape(message)):
        store.load(folder)


@pytest.mark.parametrize("line", ["{", "[1]", '{"key": "1"}', '{"key": "1", "surprise": 2}', "[" * 100_000])
def test_a_damaged_ledger_is_named(folder: Path, line: str) -> None:
    (folder / "matrix.proofs.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(StoreError, match=r"matrix\.proofs\.jsonl, line 1"):
        store.load(folder)


def test_a_damaged_rules_file_is_named(folder: Path) -> None:
    (folder / "matrix.rules").write_text("nonsense\n", encoding="utf-8")
    with pytest.raises(StoreError, match=r"matrix\.rules"):
        store.load(folder)


def test_a_missing_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the folder of the rule store"):
        store.load(tmp_path / "nowhere")


def test_what_is_not_proved_is_not_written(tmp_path: Path) -> None:
    (rule, entry), (other, _) = entries()
    for wrong in (replace(entry, verdict="unknown"), store.entry_of(other, PROOF, solver="z3 4")):
        with pytest.raises(StoreError, match="factor is not stored"):
            store.write_family("matrix", "", [(rule, wrong)], tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_what_was_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def refuse(self: Path, target: object) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(StoreError, match="cannot be written"):
        store.write_family("matrix", "", [], folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_bounded_proofs_say_so() -> None:
    entry = store.entry_of(RULES[0], replace(PROOF, bounded=("g in 1, 2",)), solver="z3 4")
    assert entry.status == store.BOUNDED
    assert store.entry_of(RULES[0], PROOF, solver="z3 4").status == store.ALL_SIZES


def test_axioms_have_a_ledger_of_their_own(tmp_path: Path) -> None:
    rule, _ = entries()[0]
    from superopt.rules.rule import axiom_laws

    known = [store.entry_of(axiom_laws()[name], Proved(1.0), solver="z3 4") for name in ("matmul.associativity", "add.regroup")]
    stale = replace(known[0], key="0" * 16, name="matmul.concat-rows")
    store.write_axioms([*known, stale, replace(known[0], name=rule.name)], tmp_path)
    assert store.load_axioms(tmp_path) == {entry.name: entry for entry in known}


def test_refuted_candidates_are_kept_once(tmp_path: Path) -> None:
    counterexample = Counterexample((("x", (2, 3)),), (("a", "1 / 2"),), 7, 0, (0, 1), "1.0", "2.0")
    one = store.Rejected("k1", "x => y for x[2], y[2]", counterexample)
    other = store.Rejected("k2", "relu(x) => x for x[2]", counterexample)
    store.write_refuted([one, other, one], tmp_path)
    assert store.load_refuted(tmp_path) == {"k1": one, "k2": other}
    assert store.load_refuted(tmp_path / "nowhere") == {}


def test_a_file_is_written_in_a_folder_that_does_not_exist_yet(tmp_path: Path) -> None:
    path = tmp_path / "outer" / "inner" / "refuted.jsonl"
    store.replace_store_file(path, "one line")
    assert path.read_text() == "one line"


def test_the_store_needs_no_z3() -> None:
    hidden = "import sys; sys.modules['z3'] = None; import superopt.rules.store"
    subprocess.run([sys.executable, "-c", hidden], check=True, cwd=Path(__file__).parent.parent)


def test_the_rules_of_this_package_load() -> None:
    assert all(s.entry.verdict == "proved" and s.entry.samples > 0 for s in store.load())
