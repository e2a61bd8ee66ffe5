"""Coverage and hints: the report's statements about a model for which no faster model was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from superopt.flows.hints import BY_CHECK, BY_MEMORY, BY_NOISE, RunFacts, hints, reasons
from superopt.model.coverage import (
    CONTROL,
    INTEGRAL,
    UNDEFINED,
    UNSIZED,
    UNSUPPORTED,
    OperatorShare,
    UncoveredNodes,
    node_seconds,
    uncovered_nodes,
)
from superopt.model.external_data import temporary_scratch
from superopt.model.islands import Chart
from superopt.model.load import as_model, opset_of
from superopt.runtime.input_source import DRAWN
from superopt.runtime.session import Device
from superopt.search.segments import whole_islands

FLOAT, INTEGER = TensorProto.FLOAT, TensorProto.INT64
node, info = helper.make_node, helper.make_tensor_value_info


def model(nodes: list[NodeProto], inputs: Mapping[str, list[Any]], weights: Mapping[str, Any], opset: int = 17) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [info(name, FLOAT, shape) for name, shape in inputs.items()],
        [info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def mixed() -> ModelProto:
    """Return a model with one operator for each reason why a node is outside of the islands."""
    branches = {
        f"{name}_branch": helper.make_graph([node(op, ["x"], [op])], "body", [], [info(op, FLOAT, None)])
        for name, op in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["i"], **branches),
        node("Det", ["i"], ["d"]),
        node("NonZero", ["x"], ["nz"]),
        node("Cast", ["nz"], ["f"], to=FLOAT),
        node("Exp", ["f"], ["e"]),
        node("ReduceMax", ["e"], ["m"], keepdims=0),
        node("Resize", ["p", "", "scales"], ["r"], mode="cubic"),
        node("ReduceSum", ["r"], ["rs"], keepdims=0),
        node("Add", ["d", "m"], ["a"]),
        node("Add", ["a", "rs"], ["y"]),
    ]
    weights = {"zero": np.float32(0), "scales": np.array([1, 1, 1.5, 1.5], np.float32)}
    return model(nodes, {"x": [8, 8], "p": [1, 2, 9, 9]}, weights)


def rows(proto: ModelProto, sizes: Mapping[str, int] | None = None) -> dict[str, UncoveredNodes]:
    loaded = as_model(proto)
    with temporary_scratch() as scratch:
        found = uncovered_nodes(Chart(loaded), node_seconds(loaded, Device(), sizes or {}, DRAWN, scratch))
    return {row.operator: row for row in found}


def test_each_node_outside_of_the_islands_has_a_reason_and_a_share_of_the_time() -> None:
    found = rows(mixed())
    reasons = {name: row.reason for name, row in found.items()}
    expected = {"If": CONTROL, "Det": UNDEFINED, "NonZero": INTEGRAL, "Exp": UNSIZED, "Resize": UNSUPPORTED}
    assert {name: reasons.get(name) for name in expected} == expected
    assert "Add" not in found
    assert 0 < sum(row.share for row in found.values()) < 1
    assert found["If"].share == 0
    assert all(row.nodes == 1 for name, row in found.items() if name in expected)


def test_a_node_with_a_floating_point_output_is_not_called_integral() -> None:
    nodes = [node("TopK", ["x", "k"], ["y", "places"])]
    assert rows(model(nodes, {"x": [4, 8]}, {"k": np.array([3])}))["TopK"].reason != INTEGRAL


def test_the_share_of_a_slow_operator_is_large() -> None:
    nodes = [node("Det", ["x"], ["d"]), node("Add", ["d", "d"], ["y"])]
    assert rows(model(nodes, {"x": ["n", 64, 64]}, {}), {"n": 64})["Det"].share > 0.5


def test_hints_name_the_options_that_may_help() -> None:
    loaded = as_model(mixed())
    islands = whole_islands(Chart(loaded), {})
    unsized = [UncoveredNodes("Exp", 3, 0.5, UNSIZED)]
    found = hints(unsized, islands, opset_of(loaded), ["n", "m"], RunFacts(10, cut_short=True))
    assert found[0] == "--budget 20s or more may find a gain: the search was not finished"
    assert found[1].startswith("--fix NAME=SIZE for dimensions that never change (n, m), or --fix NAME=VALUE")
    assert found[1].endswith("may open 3 nodes whose sizes or conditions are not known (50% of the time)")
    (fixed,) = hints([], (), 17, ["n"], RunFacts(10, lacks_kernels=True))
    assert fixed == "--fix NAME=SIZE for dimensions that never change (n) may allow kernels"
    assert hints([], (), 17, [], RunFacts(10, lacks_kernels=True)) == ()
    (defined,) = hints([UncoveredNodes("Det", 3, 0.5, UNDEFINED)], islands, 17, ["n"], RunFacts(10))
    assert "Det" in defined


def test_a_newer_opset_is_named_if_it_has_an_operator_for_a_term() -> None:
    nodes = [node("Add", ["x", "three"], ["a"]), node("Clip", ["a", "zero", "six"], ["c"])]
    nodes += [node("Mul", ["x", "c"], ["m"]), node("Div", ["m", "six"], ["y"])]
    weights = {"zero": np.float32(0), "three": np.float32(3), "six": np.float32(6)}
    for opset, expected in ((13, True), (14, False)):
        loaded = as_model(model(nodes, {"x": [4, 8]}, weights, opset))
        found = hints([], whole_islands(Chart(loaded), {}), opset, [], RunFacts(10))
        assert any(hint.startswith("--opset ") and "HardSwish" in hint for hint in found) is expected


def test_a_node_that_onnx_runtime_duplicates_is_timed() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("Relu", ["d"], ["a"]),
        helper.make_node("QuantizeLinear", ["a", "scale", "zero"], ["aq"]),
        helper.make_node("DequantizeLinear", ["aq", "scale", "zero"], ["y"]),
        helper.make_node("Sigmoid", ["d"], ["b"]),
        helper.make_node("QuantizeLinear", ["b", "scale", "zero"], ["bq"]),
        helper.make_node("DequantizeLinear", ["bq", "scale", "zero"], ["z"]),
    ]
    stored = {"scale": np.float32(0.1), "zero": np.uint8(128)}
    proto = model(nodes, {"x": [64, 64]}, stored)
    found = rows(proto)
    assert found
    assert sum(row.share for row in found.values()) > 0.1


def test_the_explanation_says_where_the_time_goes_and_what_was_refused() -> None:
    operators = [OperatorShare("MatMul", 3, 0.62), OperatorShare("Det", 1, 0.12), OperatorShare("Add", 1, 0.001)]
    outside = [UncoveredNodes("Det", 1, 0.12, UNDEFINED)]
    facts = RunFacts(10, refused={BY_CHECK: 1, BY_NOISE: 2, BY_MEMORY: 3}, noise=0.05)
    text = "\n".join(reasons(operators, outside, facts))
    for part in ("MatMul (62%)", "12%", "Det", "1 rewritten model ", "2 rewritten models", "(5%)", "3 improvements"):
        assert part in text
    assert "Add" not in text
    options = "\n".join(hints([], (), 17, [], facts))
    assert all(part in options for part in ("--tolerance", "--growth", "noisy"))


def test_a_search_that_still_improves_at_the_end_needs_more_time() -> None:
    facts = RunFacts(10, accepted=True, cut_short=True, seconds=10, improvements=[(1.0, 5e-6), (9.5, 7e-6)], measured=3)
    assert facts.is_still_improving
    assert not replace(facts, measured=0).is_still_improving
    first, *_ = hints([], (), 17, [], facts)
    assert all(part in first for part in ("still improving", "5 us", "7 us", "--budget 20s"))
    for done in (replace(facts, cut_short=False), replace(facts, improvements=[(1.0, 5e-6), (6.0, 7e-6)])):
        assert not done.is_still_improving
    assert "after 9.5 s of search" in "\n".join(reasons([], [], facts))
    withdrawn = replace(facts, improvements=[(1.0, 9e-6), (2.0, 0.0), (3.0, 5e-6), (4.0, 6e-6), (5.0, 5e-6)])
    assert "after 3 s of search" in "\n".join(reasons([], [], withdrawn))
    assert "5 us" in "\n".join(reasons([], [], replace(withdrawn, accepted=False)))


def test_where_nothing_else_helps_unused_options_are_named() -> None:
    facts = RunFacts(10, unused={"--tune": "finds settings"})
    assert hints([], (), 17, [], facts) == ("--tune finds settings",)
    assert "--tune" not in "".join(hints([], (), 17, [], replace(facts, cut_short=True)))
