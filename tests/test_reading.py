"""Output about rules: the list, one rule with its proof and an example, and the drawing of both sides."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from superopt.algebra.terms import subterms
from superopt.cli.main import main
from superopt.errors import StoreError
from superopt.flows.explain_rules import explain_rule
from superopt.report.drawing import drawing
from superopt.rules.rule import parse_rule
from superopt.rules.store import StoredRule, load, rule_named, select_rules

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def stored() -> list[StoredRule]:
    return load()


def test_a_drawing_has_a_box_for_every_term_and_an_arrow_for_every_operand() -> None:
    (equation,) = parse_rule("twice: x @ y + x @ z => x @ (y + z) for x[2], y[2], z[2]").equations
    document = ET.fromstring(drawing(equation.left, equation.right))
    terms = [*subterms(*equation.left), *subterms(*equation.right)]
    assert len(document.findall(f"{SVG}rect")) == len(terms)
    edges = [path for path in document.findall(f"{SVG}path") if path.get("class") == "edge"]
    assert len(edges) == sum(len(t.args) for t in terms)
    assert sum("output" in (box.get("class") or "") for box in document.findall(f"{SVG}rect")) == 2


def test_boxes_of_a_row_do_not_overlap() -> None:
    text = (
        "many: concat(relu(x), concat(relu(y), relu(z), axis=-1), axis=-1) => relu(concat(x, concat(y, z, axis=-1), axis=-1))"
    )
    (equation,) = parse_rule(f"{text} for x[2], y[2], z[2]").equations
    document = ET.fromstring(drawing(equation.left, equation.right))
    boxes = [tuple(float(r.get(k, "nan")) for k in ("x", "y", "width", "height")) for r in document.findall(f"{SVG}rect")]
    for number, (x, y, width, height) in enumerate(boxes):
        for other_x, other_y, other_width, other_height in boxes[number + 1 :]:
            apart = x + width <= other_x or other_x + other_width <= x or y + height <= other_y or other_y + other_height <= y
            assert apart


def test_every_step_of_an_explanation_names_an_axiom_and_the_example_holds(stored: list[StoredRule]) -> None:
    rule = next(s for s in stored if s.entry.kind == "axioms" and len(s.entry.instances) > 2)
    told = explain_rule(rule)
    assert len(told.steps) == len(rule.entry.instances)
    assert {step.axiom for step in told.steps} <= set(rule.entry.axioms)
    assert all(step.statement and step.values for step in told.steps)
    assert told.example is not None
    assert told.example.difference < 1e-9


def test_rules_are_selected_by_what_they_mention(stored: list[StoredRule]) -> None:
    found = select_rules(stored, operators=["conv", "concat"], part="core")
    assert found
    assert all({"conv", "concat"} <= set(s.rule.operators) and s.core for s in found)
    assert len(select_rules(stored)) == len(stored)


def test_a_name_that_nothing_has_is_told_with_those_near_it(stored: list[StoredRule]) -> None:
    name = stored[0].rule.name
    assert rule_named(stored, name) is stored[0]
    with pytest.raises(StoreError, match=name):
        rule_named(stored, name + "x")


def test_the_commands(stored: list[StoredRule], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rule = stored[0].rule
    picture = tmp_path / "rule.svg"
    assert main(["rules", "explain", rule.name, "--svg", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert rule.statement.left in printed
    assert "example" in printed
    assert "found" in printed
    assert ET.fromstring(picture.read_text(encoding="utf-8")).tag == f"{SVG}svg"
    assert main(["rules", "list", "--family", stored[0].family, "--part", "core"]) == 0
    assert rule.name in capsys.readouterr().out
    assert main(["rules", "show", "no-such-rule"]) == 13
    assert "no rule is called" in capsys.readouterr().err
