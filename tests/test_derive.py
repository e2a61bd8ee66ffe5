"""Derivations: the rules that follow from given rules, their steps, rules that do not follow, and rule sets of other tools."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from superopt.algebra.operators import substitutions_folder
from superopt.cli import main as cli
from superopt.flows.compare_rules import (
    ASKED,
    CONSTANT,
    NOTATION,
    OPEN,
    UNREADABLE,
    WRONG,
    compare_rules,
    comparison_text,
    definition_axioms_for_derivation,
    examine_line,
    read_rules_to_derive,
    rearrangement_axioms,
)
from superopt.proof.derivation.derive import Laws, derive_equation, derive_rule, restrict_to_typed, with_typing_conditions
from superopt.proof.sample import refute_rule
from superopt.rules.rule import Rule, parse_rule, parse_rules, stated_rules

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
FOREIGN = ROOT / "tests" / "foreign"

PIECES = """
slice-first:    slice(concat(x, y, axis=k), axis=k, stop=x.shape[k]) => x
                for x[2, 3, 4], y[2, 3, 4], k[-1, -2, -3, -4]
concat-columns: concat(x @ v, x @ w, axis=-1) => x @ concat(v, w, axis=-1) for x[2, 3, 4], v[2, 3, 4], w[2, 3, 4]
"""
TAKEN = "taken: slice(x @ concat(v, w, axis=-1), axis=-1, stop=v.shape[-1]) => x @ v for x[2, 3], v[2, 3], w[2, 3]"

SCALES = """
twice:     scale(scale(x, factor=a), factor=b) => scale(x, factor=a * b) for x[1, 2]
negative:  scale(x, factor=-1) + y => y - x for x[1, 2], y[1, 2]
sum:       scale(x, factor=a) + scale(y, factor=a) => scale(x + y, factor=a) for x[1, 2], y[1, 2]
back:      scale(x, factor=a * b) => scale(scale(x, factor=a), factor=b) for x[1, 2]
lesser:    scale(x, factor=a) - scale(y, factor=a) => scale(x - y, factor=a) for x[1, 2], y[1, 2]
maximum:   relu(scale(x, factor=a)) => scale(relu(x), factor=a) for x[1, 2] where a >= 0
"""

WRONG_IN_TASO = {98, 99, 100, 105, 125, 126, 127, 128, 129, 130, 131}


def test_a_chain_names_rules_instances_and_terms() -> None:
    chains = derive_rule(parse_rule(TAKEN), parse_rules(PIECES))
    assert chains is not None
    assert len(chains) == len(parse_rule(TAKEN).equations)
    ((start, steps),) = chains[0].outputs
    assert start == "slice(x @ concat(v, w, axis=-1), axis=-1, stop=v.shape[-1])"
    assert [(s.rule, s.forwards) for s in steps] == [("concat-columns", False), ("slice-first", True)]
    assert steps[0].term == "slice(concat(x @ v, x @ w, axis=-1), axis=-1, stop=v.shape[-1])"
    assert steps[0].instance == "concat-columns(x=x, v=v, w=w)"
    assert steps[1].term == "x @ v"
    assert chains[0].rules == ("concat-columns", "slice-first")
    assert len(list(chains[0].lines())) == 3


def test_nothing_follows_without_the_rules_it_needs() -> None:
    laws = Laws(parse_rules(PIECES))
    assert derive_rule(parse_rule(TAKEN), laws, without={0}) is None
    assert derive_rule(parse_rule(TAKEN), laws, without={1}) is None
    assert derive_rule(parse_rule("a: x + y => x * y for x[2], y[2]"), laws) is None


def test_sums_are_followed_operand_by_operand() -> None:
    chains = derive_rule(
        parse_rule("a: z + scale(x - y, factor=a) => scale(x, factor=a) - scale(y, factor=a) + z for x[1], y[1], z[1]"),
        parse_rules(SCALES),
    )
    assert chains is not None
    ((start, steps),) = chains[0].outputs
    assert start.startswith(("z + ", "scale(x - y"))
    assert all("z" in step.term for step in steps)


def test_conditions_are_asked_of_every_instance() -> None:
    laws = parse_rules(SCALES)
    assert derive_rule(parse_rule("a: relu(scale(x, factor=2)) => scale(relu(x), factor=2) for x[2]"), laws) is not None
    assert derive_rule(parse_rule("b: relu(scale(x, factor=a)) => scale(relu(x), factor=a) for x[2]"), laws) is None
    narrow = parse_rule("c: relu(scale(x, factor=a * b)) => scale(relu(x), factor=a * b) for x[2] where a >= 1, b >= 0")
    assert derive_rule(narrow, laws) is not None


def test_no_step_goes_through_what_is_not_defined() -> None:
    roots = parse_rules("""
        a: sqrt(x * x) => abs(x) for x[2]
        b: sqrt(x) * sqrt(x) => x for x[2]
        c: sqrt(x * y) => sqrt(x) * sqrt(y) for x[2], y[2]
    """)
    assert derive_rule(parse_rule("bad: abs(x) => x for x[2]"), roots) is None
    assert derive_rule(parse_rule("good: sqrt(x) * sqrt(x) * y => x * y for x[2], y[2]"), roots) is not None


def test_all_outputs_of_a_rule_are_derived_and_derive() -> None:
    both = """(relu(x), relu(y)) => (slice(relu(concat(x, y, axis=-1)), axis=-1, stop=x.shape[-1]),
        slice(relu(concat(x, y, axis=-1)), axis=-1, start=x.shape[-1], stop=x.shape[-1] + y.shape[-1]))
        for x[2], y[2] where x.shape[-2] == y.shape[-2]"""
    laws = parse_rules("""
        first:  slice(relu(concat(x, y, axis=-1)), axis=-1, stop=x.shape[-1]) => relu(x) for x[2], y[2]
        second: slice(relu(concat(x, y, axis=-1)), axis=-1, start=x.shape[-1], stop=x.shape[-1] + y.shape[-1]) => relu(y)
                for x[2], y[2]
    """)
    chains = derive_rule(parse_rule(f"both: {both}"), laws)
    assert chains is not None
    assert [len(steps) for _, steps in chains[0].outputs] == [1, 1]
    assert derive_rule(parse_rule(f"both: {both}"), laws[:1]) is None
    assert all(derive_rule(law, [parse_rule(f"both: {both}")]) for law in laws)


def test_a_rule_counts_where_both_sides_are_well_typed() -> None:
    (equation,) = parse_rule(
        "a: (relu(x), relu(y)) => (relu(x), slice(concat(x, y, axis=-1), axis=-1, stop=1)) for x[2], y[2]"
    ).equations
    assert derive_equation(equation, Laws([])) is None
    whole, added = with_typing_conditions(equation)
    assert added
    assert with_typing_conditions(whole) == (whole, ())


def test_a_search_has_the_same_scope_where_laws_that_it_cannot_meet_are_left_out() -> None:
    rules = list(parse_rules(PIECES + SCALES))
    without = {name: Laws([rule for rule in rules if rule.name != name]) for name in ("concat-columns", "sum", "back")}
    scope = Laws(rules).scope(rules.index(next(rule for rule in rules if rule.name == "twice")))
    again = {name: laws.scope(laws.labels.index("twice")) for name, laws in without.items()}
    assert again["concat-columns"] == again["sum"] == scope
    assert again["back"] != scope


def test_an_equality_is_an_instance_of_itself_whatever_quotients_and_products_say_of_sizes() -> None:
    group, scalar = parse_rules("""
group:  scale(x, factor=2) => x + x
        for x[3] where x.shape[-3] * (x.shape[-1] // x.shape[-3]) == x.shape[-3], x.shape[-1] == 1
scalar: reshape(reshape(x, shape=()), shape=x.shape) => x for x[2]
""")
    assert derive_rule(group, Laws([group])) is not None
    ones = parse_rule("ones: reshape(reshape(x, shape=()), shape=(1, 1)) => x for x[2]")
    assert derive_rule(scalar, Laws([ones])) is not None
    assert derive_rule(ones, Laws([scalar])) is not None


# ---------------------------------------------------------------- files

ODD = """# a set that somebody wrote
Matmul_Assoc.1:  (a @ b) @ c == a @ (b @ c)   for a[2, 3], b[2], c[2]
swap: x + y => y + x for x[2], y[2]
x * (y + z) => x * y + x * z
    for x[2], y[2], z[2]
wrong: relu(x) + relu(y) => relu(x + y) for x[2], y[2]
undeclared: x + y => y + x
unknown-operator: frobnicate(x) => x for x[2]
syntax: x + => y for x[2]
arrow: x ~> y for x[2], y[2]
rank: x => x for x[n]
swap: x * y => y * x for x[2], y[2]
open: relu(transpose(x, perm=(-1, -2))) => transpose(relu(x), perm=(-1, -2)) for x[2]
"""

GIVEN = """
associativity: x @ (y @ z) => x @ y @ z for x[2, 3], y[2], z[2]
distribution:  x * y + x * z => x * (y + z) for x[1, 2], y[1, 2], z[1, 2]
"""


def test_every_line_of_a_file_gets_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "odd.rules"
    path.write_text(ODD)
    found = compare_rules(read_rules_to_derive(path), parse_rules(GIVEN), backwards=parse_rules(GIVEN))
    words = {f.name: f.word for f in found.theirs}
    assert words == {
        "matmul-assoc-1": "follows",
        "swap": NOTATION,
        "rule-3": "follows",
        "wrong": WRONG,
        "undeclared": UNREADABLE,
        "unknown-operator": UNREADABLE,
        "syntax": UNREADABLE,
        "arrow": UNREADABLE,
        "rank": UNREADABLE,
        "swap-2": NOTATION,
        "open": OPEN,
    }
    assert [(f.name, f.word) for f in found.ours] == [("associativity", "follows"), ("distribution", "follows in part")]
    (open_,) = (f for f in found.theirs if f.word == OPEN)
    assert open_.proof.startswith("true, proved from relu.transpose")
    text = list(comparison_text(found))
    assert any(line.startswith("    == x * ") and " by distribution(" in line and line.endswith(", backwards") for line in text)
    assert (
        "11 equalities of the file: 4 follow (2 of them are one term by notation), 1 not derived, 1 wrong, 5 unreadable" in text
    )
    assert json.loads(json.dumps(found.record()))["totals"]["wrong"] == 1


def test_the_command_compares_and_says_what_it_could_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd, given, out = tmp_path / "odd.rules", tmp_path / "given.rules", tmp_path / "out.json"
    odd.write_text(ODD)
    given.write_text(GIVEN)
    assert cli.main(["rules", "derive", str(odd), "--from", str(given), "--brief", "--json", str(out)]) == 18
    printed = capsys.readouterr()
    assert "wrong: wrong: x[" in printed.out
    assert "unknown-operator: unreadable: no operator is called 'frobnicate'" in printed.out
    assert "superopt: 5 of 11 rules cannot be read: undeclared, unknown-operator, syntax, arrow, rank" in printed.err
    assert json.loads(out.read_text())["totals"]["follows"] == 2
    assert cli.main(["rules", "derive", str(given), "--from", str(given), "--brief", "--one-way"]) == 0
    assert cli.main(["rules", "derive", str(tmp_path / "none"), "--from", str(given)]) == 11
    assert cli.main(["rules", "derive", str(given), "--from", str(odd)]) == 11


# ---------------------------------------------------------------- TASO and Tensat


@functools.cache
def ours() -> Laws:
    rules: list[Rule] = []
    for path in sorted(substitutions_folder().glob("*.rules")):
        rules += stated_rules(path.read_text(encoding="utf-8"))
    return Laws([*rules, *definition_axioms_for_derivation(), *rearrangement_axioms()])


@pytest.mark.parametrize(
    ("name", "count", "wrong", "constant"),
    [
        ("taso", 133, {f"taso-{n:03}" for n in WRONG_IN_TASO}, set()),
        (
            "tensat",
            50,
            {
                "concatenation-and-conv-1",
                "concatenation-and-conv-1-relu",
                "concatenation-and-conv-2",
                "enlarged-shared-input",
                "enlarged-shared-input-relu",
            },
            {"const-iconv-and-const-pool"},
        ),
    ],
)
def test_sound_rules_of_others_follow_from_ours(name: str, count: int, wrong: set[str], constant: set[str]) -> None:
    lines = read_rules_to_derive(FOREIGN / f"{name}.rules")
    assert len(lines) == count
    assert not [line.name for line in lines if line.rule is None]
    for line in lines:
        assert line.rule is not None
        if line.name in wrong:
            assert refute_rule(line.rule, 0, 60) is not None, line.name
        elif line.name in constant:
            assert examine_line(line, ours(), 0)[0].word == CONSTANT, line.name
        else:
            assert derive_rule(restrict_to_typed(line.rule)[0], ours(), ASKED) is not None, line.name


def test_what_a_grouped_convolution_refutes_is_not_derived() -> None:
    (line,) = (line for line in read_rules_to_derive(FOREIGN / "taso.rules") if line.name == "taso-126")
    finding, rule = examine_line(line, ours(), 0)
    assert (finding.word, rule) == (WRONG, None)
    assert finding.counterexample is not None


def test_s_expressions_are_translated(tmp_path: Path) -> None:
    single, pairs = tmp_path / "single", tmp_path / "pairs"
    single.write_text("(matmul 0 (concat 1 2 ?input_1 ?input_2) ?a)=>(ewadd ?a (smul ?b ?w))\n(relu ?x)=>(merge ?x 2)\n")
    pairs.write_text(
        "(relu ?x)=>(split_0 (split 1 (relu (concat 1 2 ?x ?y))))\n(relu ?y)=>(split_1 (split 1 (relu (concat 1 2 ?x ?y))))\n"
    )
    command = [sys.executable, str(ROOT / "scripts" / "translate_taso"), str(single), "--pairs", str(pairs), "--places", "1"]
    written = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert "t" not in written.split(":")[0].replace("taso", "")
    assert "concat(x1, x2, axis=-1) @ a" in written
    assert "a + scale(b, factor=w)" in written.replace("scale(b, factor=w) + a", "a + scale(b, factor=w)")
    assert "taso-001:" in written
    assert "start=x.shape[-1], stop=x.shape[-1] + y.shape[-1]" in " ".join(written.split())
    assert "# taso-002: no operator of the notation is merge" in written
