"""Bodies of control-flow operators: their islands, rewrites inside bodies, and values that bodies read from outside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from superopt.model.bodies import TOP, Scope, control_flow_graphs, count_body_runs
from superopt.model.islands import Chart, Island
from superopt.model.load import load
from superopt.model.splice import Replacement, require_valid, splice
from superopt.runtime.check import check_candidate
from superopt.runtime.session import Device, Session
from superopt.search.segments import searchable_islands, segments
from tests.models import weight

CPU = Device()
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info = helper.make_tensor_value_info
node = helper.make_node


def model(
    nodes: Sequence[NodeProto],
    weights: Sequence[TensorProto] = (),
    *,
    shape: Sequence[int | str] = (4, 8),
    functions: Sequence[onnx.FunctionProto] = (),
    opset: int = 17,
    ir_version: int = 9,
) -> onnx.ModelProto:
    """Return a model with the input x and the output y.

    The model has the condition `yes` as a second input if a node reads it.
    """
    asked = any("yes" in n.input for n in nodes)
    inputs = [info("x", FLOAT, shape), *([info("yes", BOOL, [])] if asked else [])]
    graph = helper.make_graph(nodes, "test", inputs, [info("y", FLOAT, shape)], list(weights))
    domains = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in {f.domain for f in functions})]
    proto = helper.make_model(graph, opset_imports=domains, ir_version=ir_version, functions=functions)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def number(name: str, value: int) -> TensorProto:
    return numpy_helper.from_array(np.array(value), name)


def branch(*nodes: NodeProto, output: str, weights: Sequence[TensorProto] = ()) -> GraphProto:
    return helper.make_graph(nodes, output, [], [info(output, FLOAT, [4, 8])], list(weights))


def loop_body(*nodes: NodeProto, carried: str, result: str, weights: Sequence[TensorProto] = ()) -> GraphProto:
    """Return a Loop body that passes its condition on unchanged."""
    given = [info("i", INT64, []), info("going", BOOL, []), info(carried, FLOAT, [4, 8])]
    made = [info("goes", BOOL, []), info(result, FLOAT, [4, 8])]
    return helper.make_graph([node("Identity", ["going"], ["goes"]), *nodes], "body", given, made, list(weights))


def layer(x: str, w: str, y: str) -> list[NodeProto]:
    return [node("MatMul", [x, w], [f"{y}.product"]), node("Relu", [f"{y}.product"], [y])]


def islands(proto: onnx.ModelProto) -> dict[Scope, list[Island]]:
    found: dict[Scope, list[Island]] = {}
    for island in Chart(load(proto).model).islands():
        found.setdefault(island.scope, []).append(island)
    return found


def respliced(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with every island of every graph replaced by its own terms."""
    before = load(proto).model
    parts = segments(Chart(before), {})
    after = splice(
        before, [Replacement(p.island.outputs, p.island.dtype, p.island.conditions, scope=p.island.scope) for p in parts]
    )
    require_valid(after, before)
    return ir.to_proto(after)


def require_same(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    check_candidate(before, after, CPU)


def names(graph: GraphProto) -> list[str]:
    return [n.op_type for n in graph.node]


def branches() -> onnx.ModelProto:
    """Return a model with an If whose branches read the outer values h and w.

    Only the branches read h. One branch also has a weight of its own.
    """
    then = branch(*layer("h", "w", "t"), output="t")
    other = branch(*layer("h", "v", "o"), node("Add", ["o", "h"], ["p"]), output="p", weights=[weight("v", 8, 8)])
    nodes = [*layer("x", "w", "h"), node("If", ["yes"], ["y"], then_branch=then, else_branch=other)]
    return model(nodes, [weight("w", 8, 8)])


THEN, ELSE = (("y", "then_branch"),), (("y", "else_branch"),)


def test_branches_have_islands_of_their_own() -> None:
    found = islands(branches())
    assert {scope: [len(i.nodes) for i in each] for scope, each in found.items()} == {TOP: [2], THEN: [2], ELSE: [3]}
    assert set(found[TOP][0].outputs) == {"h"}


def test_a_value_read_in_a_body_alone_is_not_removed() -> None:
    before = branches()
    after = respliced(before)
    assert names(after.graph)[-1] == "If"
    require_same(before, after)
    assert [set(i.outputs) for i in islands(after)[TOP]] == [{"h"}]


def rounds(
    body: GraphProto, nodes: Sequence[NodeProto] = (), weights: Sequence[TensorProto] = (), *, times: int = 5
) -> onnx.ModelProto:
    loop = node("Loop", ["times", "", "x"], ["y"], body=body)
    return model([*nodes, loop], [number("times", times), *weights])


def test_the_body_of_a_loop_is_rewritten_and_its_weights_fold() -> None:
    body = loop_body(
        node("Add", ["w", "v"], ["sum"]), node("MatMul", ["h", "sum"], ["next"]), carried="h", result="next",
        weights=[weight("v", 8, 8)],
    )  # fmt: skip
    before = rounds(body, weights=[weight("w", 8, 8)])
    after = respliced(before)
    inside = after.graph.node[0].attribute[0].g
    assert names(inside) == ["Identity", "MatMul"]
    assert not inside.initializer
    assert "w" not in {t.name for t in after.graph.initializer}
    require_same(before, after)


def test_scan_bodies_are_rewritten() -> None:
    body = helper.make_graph(
        [*layer("row", "w", "z"), node("Add", ["z", "h"], ["sum"]), node("Identity", ["sum"], ["kept"])],
        "body",
        [info("h", FLOAT, [8]), info("row", FLOAT, [8])],
        [info("sum", FLOAT, [8]), info("kept", FLOAT, [8])],
    )
    scan = node("Scan", ["first", "x"], ["last", "y"], body=body, num_scan_inputs=1)
    before = model([scan], [weight("w", 8, 8), weight("first", 8)])
    assert len(islands(before)[("last", "body"),]) == 1
    require_same(before, respliced(before))
    assert count_body_runs(before, CPU) == {(("last", "body"),): 4.0}


def nested() -> onnx.ModelProto:
    """Return a model with a Loop whose body contains an If on the iteration. Both branches call their result t."""
    then = branch(*layer("n", "w", "t"), output="t")
    other = branch(node("Neg", ["n"], ["m"]), node("Neg", ["m"], ["t"]), output="t")
    inner = node("If", ["first"], ["next"], then_branch=then, else_branch=other)
    body = loop_body(node("Equal", ["i", "zero"], ["first"]), *layer("h", "w", "n"), inner, carried="h", result="next")
    return rounds(body, weights=[weight("w", 8, 8), number("zero", 0)], times=3)


def test_bodies_in_bodies_and_names_that_branches_share() -> None:
    before = nested()
    outer = (("y", "body"),)
    scopes = {outer, (*outer, ("next", "then_branch")), (*outer, ("next", "else_branch"))}
    assert set(control_flow_graphs(load(before).model)) == {TOP, *scopes}
    assert set(islands(before)) == scopes
    require_same(before, respliced(before))


def test_how_often_bodies_run_is_counted() -> None:
    outer = (("y", "body"),)
    assert count_body_runs(nested(), CPU) == {
        outer: 3.0,
        (*outer, ("next", "then_branch")): 1.0,
        (*outer, ("next", "else_branch")): 2.0,
    }
    chosen = count_body_runs(branches(), CPU)
    assert chosen.keys() == {THEN, ELSE}
    assert sum(chosen.values()) == pytest.approx(1.0)
    assert 0 < chosen[THEN] < 1
    assert count_body_runs(model(layer("x", "w", "y"), [weight("w", 8, 8)]), CPU) == {}


def test_a_segment_counts_as_often_as_its_body_runs_and_one_that_never_runs_is_left() -> None:
    proto = nested()
    counted = count_body_runs(proto, CPU)
    chart = Chart(load(proto).model)
    assert {p.island.scope: p.runs for p in segments(chart, counted)} == counted
    never = dict.fromkeys(counted, 0.0)
    assert searchable_islands(chart, never) == []


def test_new_names_are_unlike_those_in_bodies() -> None:
    then = branch(node("MatMul", ["x", "w"], ["superopt.0.t"]), node("Relu", ["superopt.0.t"], ["t"]), output="t")
    other = branch(node("Relu", ["x"], ["t"]), output="t")
    before = model([node("If", ["yes"], ["y"], then_branch=then, else_branch=other)], [weight("w", 8, 8)])
    after = respliced(respliced(before))
    require_same(before, after)


def test_equally_named_weights_of_two_branches_stay_apart() -> None:
    def side(name: str, value: float) -> GraphProto:
        own = numpy_helper.from_array(np.full((8, 8), value, np.float32), "v")
        nodes = [node("Add", ["v", "v"], ["twice"]), node("MatMul", ["x", "twice"], [name])]
        return branch(*nodes, output=name, weights=[own])

    before = model([node("If", ["yes"], ["y"], then_branch=side("t", 1.0), else_branch=side("o", 3.0))])
    after = respliced(before)
    for yes, expected in ((True, 16.0), (False, 48.0)):
        feeds = {"x": np.ones((4, 8), np.float32), "yes": np.array(yes)}
        for proto in (before, after):
            np.testing.assert_array_equal(Session(proto, CPU).run(feeds)[0], np.full((4, 8), expected, np.float32))


def test_a_body_that_calls_a_function_keeps_it() -> None:
    function = helper.make_function(
        "own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    body = loop_body(*layer("h", "w", "n"), node("Twice", ["n"], ["next"], domain="own"), carried="h", result="next")
    loop = node("Loop", ["times", "", "x"], ["y"], body=body)
    before = model([loop], [number("times", 2), weight("w", 8, 8)], functions=[function])
    after = respliced(before)
    assert [f.name for f in after.functions] == ["Twice"]
    assert "Twice" in names(after.graph.node[0].attribute[0].g)
    feeds = {"x": np.ones((4, 8), np.float32)}
    one, other = (Session(m, CPU).run(feeds)[0] for m in (before, after))
    np.testing.assert_allclose(one, other, rtol=1e-5)


def test_bodies_of_models_with_open_dimensions_read_known_values() -> None:
    then = branch(*layer("h", "w", "t"), output="t")
    other = branch(node("Neg", ["h"], ["t"]), output="t")
    for graph in (then, other):
        graph.output[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    nodes = [*layer("x", "w", "h"), node("If", ["yes"], ["y"], then_branch=then, else_branch=other)]
    before = model(nodes, [weight("w", 8, 8)], shape=("rows", 8))
    found = islands(before)
    assert {len(found[scope]) for scope in (TOP, THEN, ELSE)} == {1}
    model_before = load(before).model
    parts = [i for each in found.values() for i in each]
    after = ir.to_proto(
        splice(model_before, [Replacement(i.outputs, i.dtype, i.conditions, i.sizings, i.scope) for i in parts])
    )
    for rows in (1, 6):
        check_candidate(before, after, CPU, sizes={"rows": rows})


def test_new_names_are_not_those_of_unused_inputs_and_weights() -> None:
    before = model(layer("x", "w", "y"), [weight("w", 8, 8), weight("superopt.7.w", 2)])
    before.graph.input.append(info("superopt.9.x", FLOAT, [1]))
    after = respliced(before)
    outer = {value.name for value in (*before.graph.input, *before.graph.initializer)}
    new = {name for n in after.graph.node for name in (*n.input, *n.output)} - outer
    made = [int(name.split(".")[1]) for name in new if name.startswith("superopt.")]
    assert made
    assert min(made) > 9


# ---------------------------------------------------------------- random islands in bodies


def random_layers(rng: np.random.Generator, x: str, around: Sequence[str], prefix: str) -> tuple[list[NodeProto], str]:
    """Return random nodes that compute a 4 x 8 matrix from `x`, weights and the values `around`, and the matrix's name."""
    nodes: list[NodeProto] = []
    for position in range(int(rng.integers(1, 5))):
        y = f"{prefix}{position}"
        kind = int(rng.integers(5))
        if kind == 0:
            nodes.append(node("MatMul", [x, str(rng.choice(["w", "v"]))], [y]))
        elif kind == 1:
            nodes.append(node(str(rng.choice(["Add", "Mul", "Sub"])), [x, str(rng.choice([*around, "row"]))], [y]))
        elif kind == 2:
            nodes.append(node(str(rng.choice(["Relu", "Neg", "Tanh", "Sigmoid"])), [x], [y]))
        elif kind == 3:
            nodes += [node("Transpose", [x], [f"{y}.t"], perm=[1, 0]), node("Transpose", [f"{y}.t"], [y], perm=[1, 0])]
        else:
            nodes += [node("Add", ["w", "v"], [f"{y}.w"]), node("MatMul", [x, f"{y}.w"], [y])]
        x = y
    return nodes, x


def random_body(
    rng: np.random.Generator, x: str, around: Sequence[str], prefix: str, depth: int
) -> tuple[list[NodeProto], str]:
    """Return random layers, a control-flow node with a random body, and further random layers, with the result's name."""
    nodes, h = random_layers(rng, x, around, f"{prefix}a")
    if depth:
        y, known = f"{prefix}y", [*around, h]
        if rng.integers(2):
            graphs_ = []
            for part in ("t", "e"):
                inner, result = random_body(rng, h, known, f"{prefix}{part}", depth - 1)
                graphs_.append(branch(*inner, output=result))
            nodes.append(node("If", ["yes"], [y], then_branch=graphs_[0], else_branch=graphs_[1]))
        else:
            state = f"{prefix}h"
            inner, result = random_body(rng, state, known, f"{prefix}l", depth - 1)
            nodes.append(node("Loop", ["times", "", h], [y], body=renamed_loop(inner, state, result, prefix)))
        more, h = random_layers(rng, y, known, f"{prefix}z")
        nodes += more
    return nodes, h


def renamed_loop(nodes: Sequence[NodeProto], carried: str, result: str, prefix: str) -> GraphProto:
    given = [info(f"{prefix}i", INT64, []), info(f"{prefix}going", BOOL, []), info(carried, FLOAT, [4, 8])]
    made = [info(f"{prefix}goes", BOOL, []), info(result, FLOAT, [4, 8])]
    go = node("Identity", [f"{prefix}going"], [f"{prefix}goes"])
    return helper.make_graph([go, *nodes], "body", given, made)


@pytest.mark.parametrize("seed", range(24))
def test_random_islands_in_bodies_compute_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes, h = random_body(rng, "x", ["x"], "n", depth=2)
    nodes += [node("Tanh", [h], ["y"])]
    weights = [number("times", 2), weight("w", 8, 8), weight("v", 8, 8), weight("row", 8)]
    graph = helper.make_graph(
        nodes, "g", [info("x", FLOAT, [4, 8]), info("yes", BOOL, [])], [info("y", FLOAT, [4, 8])], weights
    )
    before = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(before, full_check=True)
    assert any(island.scope for island in Chart(load(before).model).islands())
    after = respliced(before)
    for yes in (True, False):
        feeds = {"x": rng.standard_normal((4, 8)).astype(np.float32), "yes": np.array(yes)}
        one, other = (Session(m, CPU).run(feeds)[0] for m in (before, after))
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
