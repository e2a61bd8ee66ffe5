"""Rules of single operators: the rules that an operator's traits and axioms suggest, and the stored ones among them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from onnx import helper

from superopt.algebra.operators import substitutions_folder
from superopt.cli import arguments
from superopt.cli import main as command_line
from superopt.discovery.candidates import DiscoveryInput
from superopt.discovery.explore import explore_operator
from superopt.discovery.universes.elementwise import universes_of
from superopt.flows.generate import generate_operators
from superopt.rules.store import load, load_rules
from superopt.search.ruleset import RuleSet
from tests.models import model
from tests.rewriting import Rewriter

pytestmark = pytest.mark.slow

MERGES = (
    "concat({f}(x), {f}(y), axis=k) => {f}(concat(x, y, axis=k))",
    "slice({f}(x), axis=k, start=a, stop=b) => {f}(slice(x, axis=k, start=a, stop=b))",
    "transpose({f}(x), perm=(-1, -2)) => {f}(transpose(x, perm=(-1, -2)))",
    "expand({f}(",
    "reshape({f}(x), shape=(x.shape[-1] * x.shape[-2],)) => {f}(reshape(x, shape=(x.shape[-1] * x.shape[-2],)))",
    "({f}(x), {f}(y)) => (slice((t1 := {f}(concat(x, y, axis=k)))",
)


@pytest.mark.parametrize(("name", "count"), [("softsign", 1), ("selu", 1), ("less_equal", 1), ("matmul", 0), ("reduce_sum", 0)])
def test_elementwise_operators_have_a_universe(name: str, count: int) -> None:
    assert len(universes_of(name)) == count


def test_conditions_are_zero_or_one_in_a_universe_of_conditions() -> None:
    (of_conditions,), (of_numbers,) = universes_of("logical_and"), universes_of("less_equal")
    assert of_conditions.conditions
    assert not of_numbers.conditions


@pytest.mark.parametrize("name", ["softsign", "thresholded_relu"])
def test_an_operator_that_no_hand_written_universe_mentions_has_its_merges_in_the_store(name: str) -> None:
    texts = [stored.rule.text for stored in load() if name in stored.rule.operators]
    stated = [re.sub(r", alpha=\w+", "", text) for text in texts]
    for merge in MERGES:
        assert any(text.startswith(merge.format(f=name)) for text in stated), merge


@pytest.mark.parametrize("op_type", ["Softsign", "ThresholdedRelu"])
def test_two_parallel_nodes_become_one(op_type: str) -> None:
    nodes = [helper.make_node(op_type, [name], [f"{name}1"]) for name in "ab"]
    joined = helper.make_node("Concat", ["a1", "b1"], ["y"], axis=1)
    before = model([*nodes, joined], {"a": (4, 8), "b": (4, 8)}, {"y": (4, 16)})
    rules = load_rules()
    rewriter = Rewriter(rules, RuleSet(rules))
    after = rewriter.result(before, rewriter.cheapest)
    assert [node.op_type for node in after.graph.node] == ["Concat", op_type]


@pytest.mark.long
def test_what_stored_rules_imply_is_not_found_again() -> None:
    known = tuple(stored.rule for stored in load())
    findings = explore_operator("less_equal", [DiscoveryInput(known)], 0)
    assert findings.counts.candidates
    assert not findings.equalities


@pytest.mark.long
def test_the_rules_of_an_operator_are_found_again_byte_for_byte(tmp_path: Path) -> None:
    folder = tmp_path / "substitutions"
    shutil.copytree(substitutions_folder(), folder)
    generate_operators(["less_equal"], folder=folder)
    for path in sorted(substitutions_folder().rglob("*.*")):
        assert (folder / path.relative_to(substitutions_folder())).read_bytes() == path.read_bytes(), path.name


def test_an_unknown_operator_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["generate", "--operator", "nonsense"]) == 12
    assert capsys.readouterr().err == "superopt: no operator is called 'nonsense'\n"


def test_only_axioms_are_proved_by_operator(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments.parse_arguments(["prove", "--operator", "relu"])
    assert "requires --axioms" in capsys.readouterr().err
