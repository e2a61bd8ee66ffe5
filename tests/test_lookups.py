"""Lookups of table rows at positions known only at run time: definition, proofs, lifting, lowering, and rules."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from superopt.algebra.evaluate import Floats, evaluate_terms
from superopt.algebra.linearity import linear_in
from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, subterms, variable
from superopt.model.islands import Chart
from superopt.model.lower import lower
from superopt.model.positions import is_position
from superopt.model.splice import Replacement, require_valid, splice
from superopt.proof.definitions.index import prove_axiom
from superopt.protobuf.nodes import lowered_model_proto
from superopt.rules.rule import parse_rule
from superopt.rules.store import load_rules
from superopt.rules.verdict import Proved, Refuted
from superopt.rules.work import Work, work
from superopt.runtime.session import Device, Session
from superopt.search.roofline import CPU, estimate_seconds
from superopt.search.ruleset import RuleSet
from superopt.search.sweeper import Sweeper, Swept
from tests.models import weight

node = helper.make_node


def embedding(
    nodes: list[onnx.NodeProto],
    positions: dict[str, tuple[int, list[int]]],
    outputs: dict[str, list[int]],
    *weights: TensorProto,
) -> onnx.ModelProto:
    """Return a checked model of integer inputs, which are given by type and shape."""
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in positions.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
    graph = helper.make_graph(nodes, "embedding", inputs, results, list(weights))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(made, full_check=True)
    return made


def output_terms(proto: onnx.ModelProto) -> list[Term]:
    return [term for island in Chart(ir.from_proto(proto)).islands() for term in island.outputs.values()]


def respliced(proto: onnx.ModelProto) -> onnx.ModelProto:
    before = ir.from_proto(proto)
    islands = Chart(before).islands()
    assert islands
    after = splice(before, [Replacement(i.outputs, i.dtype, i.conditions) for i in islands])
    require_valid(after, before)
    return ir.to_proto(after)


def same_rows(one: onnx.ModelProto, other: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    first, second = (Session(m, Device(), optimize=False).run(feeds) for m in (one, other))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- definition and proof


def test_a_position_counts_from_the_end_where_it_is_negative() -> None:
    table = np.arange(12.0).reshape(4, 3)
    term = apply("lookup", variable("x", (4, 3)), variable("i", (5,)))
    (found,) = evaluate_terms((term,), {"x": table, "i": np.array([0.0, 3.0, -1.0, -4.0, 2.0])}, lambda _: None, Floats())
    np.testing.assert_array_equal(found, table[[0, 3, 3, 0, 2]])


def test_each_table_of_a_stack_has_positions_of_its_own() -> None:
    tables = np.arange(24.0).reshape(2, 4, 3)
    term = apply("lookup", variable("x", (2, 4, 3)), variable("i", (2, 2)))
    (found,) = evaluate_terms((term,), {"x": tables, "i": np.array([[1.0, -1.0], [0.0, 2.0]])}, lambda _: None, Floats())
    np.testing.assert_array_equal(found, np.stack([tables[0, [1, 3]], tables[1, [0, 2]]]))


def test_a_single_position_is_lowered_as_a_vector_of_one() -> None:
    position = variable("i", (), position=4)
    rows = apply("lookup", variable("x", (4, 3)), apply("reshape", position, shape=(1,)))
    lowered = lower({"y": apply("reshape", rows, shape=(3,))}, 18)
    assert [node.op_type for node in lowered.nodes].count("Gather") == 1


@pytest.mark.parametrize(
    "law",
    [
        "lookup(x, i) @ w == lookup(x @ w, i)  for x[2], w[2], i[1, 2]",
        "sigmoid(lookup(x, i)) == lookup(sigmoid(x), i)  for x[2, 3], i[1, 2]",
        "lookup(x, concat(i, j, axis=-1)) == concat(lookup(x, i), lookup(x, j), axis=-2)  for x[2], i[1], j[1]",
        "concat(lookup(x, i), lookup(y, i), axis=-1) == lookup(concat(x, y, axis=-1), i)  for x[2, 3], y[2, 3], i[1, 2]",
    ],
)
def test_what_is_true_of_all_tables_is_proved_for_all_sizes(law: str) -> None:
    verdict = prove_axiom(parse_rule(f"law: {law}"))
    assert isinstance(verdict, Proved)
    assert not verdict.bounded


@pytest.mark.parametrize(
    "law",
    [
        "lookup(x, i) == x  for x[2], i[1] where x.shape[-2] == i.shape[-1]",
        "lookup(x, i) == lookup(x, j)  for x[2], i[1], j[1] where i.shape[-1] == j.shape[-1]",
        "lookup(concat(x, y, axis=-2), i) == lookup(x, i)  for x[2], y[2], i[1]",
        "lookup(softmax(x, axis=-2), i) == softmax(lookup(x, i), axis=-2)  for x[2], i[1]",
    ],
)
def test_what_is_false_of_some_tables_is_refuted(law: str) -> None:
    assert isinstance(prove_axiom(parse_rule(f"law: {law}")), Refuted)


def test_a_lookup_reads_the_rows_it_picks_and_is_linear_in_the_table_alone() -> None:
    term = apply("lookup", variable("x", (100, 8)), variable("i", (3,)))
    assert work(term) == Work(0, 4 * (24 + 3 + 24))
    assert linear_in(term, [0])
    assert not linear_in(term, [1])


# ---------------------------------------------------------------- models


@pytest.mark.parametrize(("kind", "dtype"), [(TensorProto.INT64, np.int64), (TensorProto.INT32, np.int32)])
@pytest.mark.parametrize("shape", [[3], [2, 3], [2, 1, 3]])
def test_rows_at_positions_of_any_shape_become_one_gather_again(kind: int, dtype: type, shape: list[int]) -> None:
    nodes = [node("Gather", ["e", "i"], ["r"]), node("Relu", ["r"], ["y"])]
    before = embedding(nodes, {"i": (kind, shape)}, {"y": [*shape, 4]}, weight("e", 5, 4))
    (term,) = output_terms(before)
    assert any(t.op == "lookup" for t in subterms(term))
    after = respliced(before)
    assert sorted(n.op_type for n in after.graph.node) == ["Gather", "Relu"]
    same_rows(before, after, {"i": np.arange(-3, -3 + int(np.prod(shape)), dtype=dtype).reshape(shape) % 5 - 2})


def test_positions_are_moved_as_integers_and_islands_have_no_integer_outputs() -> None:
    nodes = [
        node("Split", ["i"], ["a", "b"], axis=1),
        node("Cast", ["a"], ["n"], to=TensorProto.FLOAT),
        node("Gather", ["e", "a"], ["r"]),
        node("Gather", ["e", "b"], ["s"]),
        node("Add", ["r", "s"], ["y"]),
    ]
    before = embedding(nodes, {"i": (TensorProto.INT64, [3, 2])}, {"y": [3, 1, 4], "n": [3, 1]}, weight("e", 5, 4))
    assert [set(island.outputs) for island in Chart(ir.from_proto(before)).islands()] == [{"y"}]
    same_rows(before, respliced(before), {"i": np.array([[0, 4], [-1, 2], [3, -5]])})


def test_arithmetic_on_integers_is_not_lifted() -> None:
    nodes = [node("Add", ["i", "i"], ["j"]), node("Gather", ["e", "j"], ["y"])]
    before = embedding(nodes, {"i": (TensorProto.INT64, [3])}, {"y": [3, 4]}, weight("e", 9, 4))
    (term,) = output_terms(before)
    assert term.op == "lookup"
    assert is_position(term.args[1])
    assert term.args[1].name == "j"


def test_positions_of_two_integer_types_are_joined_as_the_larger() -> None:
    i, j = variable("i", (2,), position=32), variable("j", (3,), position=64)
    term = apply("lookup", variable("x", (5, 4)), apply("concat", i, j, axis=-1))
    proto = lowered_model_proto(lower({"y": term}, 17), [variable("x", (5, 4)), i, j], {"y": term}, 17)
    table = np.arange(20, dtype=np.float32).reshape(5, 4)
    feeds = {"x": table, "i": np.array([0, 4], np.int32), "j": np.array([-1, 2, 1])}
    (found,) = Session(proto, Device(), optimize=False).run(feeds)
    np.testing.assert_array_equal(found, table[[0, 4, 4, 2, 1]])


# ---------------------------------------------------------------- rules


def test_stored_rules_put_a_layer_into_every_table() -> None:
    """Each lookup is followed by its own layer. The search rules apply all layers to the tables in advance."""
    rows = []
    for number in range(3):
        table, w = variable(f"e{number}", (50, 8), constant=True), variable(f"w{number}", (8, 8), constant=True)
        bias = variable(f"b{number}", (8,), constant=True)
        found = apply("lookup", table, variable(f"i{number}", (4,), position=64))
        wide = apply("expand", bias, shape=(4, 8), axes=(-1,))
        rows.append(apply("relu", apply("add", apply("matmul", found, w), wide)))
    state = tuple(rows)
    rules = RuleSet([rule for rule in load_rules() if "lookup" in rule.text])
    sweeper = Sweeper(rules, lambda s: estimate_seconds(s, CPU), 1.0, float("inf"))
    best = min((Swept(state, (), estimate_seconds(state, CPU)), *sweeper.cheaper(state)), key=lambda swept: swept.estimate)
    live = [t for t in subterms(*best.state) if not t.constant and not t.is_variable]
    assert {t.op for t in live} <= {"lookup", "slice", "reshape", "concat"}
    assert best.estimate < estimate_seconds(state, CPU)


def test_a_lookup_and_the_shape_of_its_positions_are_started_once() -> None:
    i = variable("i", (2, 3), position=64)
    flat = apply("lookup", variable("e", (50, 8), constant=True), apply("reshape", i, shape=(6,)))
    shaped = apply("reshape", flat, shape=(2, 3, 8))
    assert estimate_seconds((shaped,), CPU) == pytest.approx(estimate_seconds((apply("lookup", flat.args[0], i),), CPU))
