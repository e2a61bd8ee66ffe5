"""Models whose inputs have dynamic dimensions: rules apply only if they hold at every size, and the dimensions stay dynamic."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import superopt
from superopt.algebra.dim_binding import DimBinding, dimension
from superopt.algebra.extent import Dim, Extent, at_least, floor_divide, same, size
from superopt.algebra.operators import apply
from superopt.algebra.substitution import negation
from superopt.algebra.tautology import is_tautology
from superopt.algebra.terms import Term, subterms, variable
from superopt.cli.main import main
from superopt.errors import DimensionError, ShapeError
from superopt.model.dimensions import dynamic_dimension_names, representative_sizings, sample_sizings, size_combinations
from superopt.model.dynamic_lowering import LAST, numeric
from superopt.model.islands import Chart
from superopt.model.lower import lower
from superopt.model.views import Views
from superopt.policy import MODEL
from superopt.protobuf.nodes import NodeText, materialize_initializer
from superopt.rules.match import Pattern
from superopt.rules.rule import parse_rule, parse_rules
from superopt.runtime.session import Device, Session
from superopt.search.apply import State
from superopt.search.backtracking import SearchResult
from superopt.search.island import search_island
from superopt.search.ruleset import RuleSet

pytestmark = pytest.mark.slow

N, K = dimension("n"), dimension("k")
RNG = np.random.default_rng(7)


def weight(name: str, *shape: int) -> TensorProto:
    return numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32) * np.float32(0.1), name)


def whole(name: str, *numbers: int) -> TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


def model(
    nodes: list[NodeProto],
    shape: list[int | str | None],
    initializers: list[TensorProto],
    outputs: tuple[str, ...] = ("y",),
    opset: int = 17,
) -> onnx.ModelProto:
    """Return a model of one input x, with outputs of unknown shape."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def attention(width: int = 64, heads: int = 4) -> onnx.ModelProto:
    """Return attention over a dynamic batch and sequence, with shapes computed as exporters write them.

    The query weight is split into two parts, whose products are added.
    """
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "wq"], ["q0"]),
        node("MatMul", ["x", "wq2"], ["q1"]),
        node("Add", ["q0", "q1"], ["q"]),
        node("MatMul", ["x", "wk"], ["k"]),
        node("MatMul", ["x", "wv"], ["v"]),
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"], axis=0),
        node("Gather", ["shape", "one"], ["length"], axis=0),
        node("Concat", ["batch", "length", "heads", "depth"], ["split"], axis=0),
        node("Concat", ["batch", "length", "width"], ["joined"], axis=0),
    ]
    for name in "qkv":
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes += [
            node("Reshape", [name, "split"], [f"{name}.split"]),
            node("Transpose", [f"{name}.split"], [f"{name}.turned"], perm=perm),
        ]
    nodes += [
        node("MatMul", ["q.turned", "k.turned"], ["scores"]),
        node("Div", ["scores", "root"], ["scaled"]),
        node("Softmax", ["scaled"], ["weights"], axis=-1),
        node("MatMul", ["weights", "v.turned"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "joined"], ["flat"]),
        node("MatMul", ["flat", "wo"], ["y0"]),
        node("Add", ["y0", "bo"], ["y1"]),
        node("Add", ["y1", "x"], ["y"]),
    ]
    weights = [weight(name, width, width) for name in ("wq", "wq2", "wk", "wv", "wo")]
    numbers = [whole("zero", 0), whole("one", 1), whole("heads", heads), whole("depth", width // heads), whole("width", width)]
    root = numpy_helper.from_array(np.array(np.sqrt(width / heads), np.float32), "root")
    return model(nodes, ["batch", "length", width], [*weights, weight("bo", width), *numbers, root])


def lifted(proto: onnx.ModelProto) -> dict[str, Term]:
    """Return the terms of all outputs of islands."""
    return {name: term for island in Chart(ir.from_proto(proto)).islands() for name, term in island.outputs.items()}


# ---------------------------------------------------------------- conditions and matching


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (at_least(N, 1), True),
        (at_least(N * K, 1), True),
        (at_least(2 * N - 1, 1), True),
        (at_least(floor_divide(N - 1, 2) + 1, 1), True),
        (at_least(N, 2), False),
        (at_least(N, K), False),
        (at_least(floor_divide(N - 3, 2), 0), False),
        (same(N, K), False),
        (negation(same(N, 0)), True),
        (negation(same(N, 3)), False),
        (at_least(N, 1) & at_least(K, 0), True),
    ],
)
def test_what_is_certain_of_extents(condition: object, holds: bool) -> None:
    assert is_tautology(condition) is holds  # type: ignore[arg-type]


def results(rule: str, term: Term) -> list[Term]:
    (equation,) = parse_rule(f"r: {rule}").equations
    return [match.replacements[0] for match in Pattern.of(equation).matches(term, lambda _: ())]


def test_a_rule_is_applied_where_it_holds_at_every_size() -> None:
    x, y = variable("x", (N, 8)), variable("y", (K, 8))
    both = apply("concat", x, y, axis=-2)
    rule = "slice(concat(x, y, axis=-2), axis=-2, start=x.shape[-2], stop=x.shape[-2] + y.shape[-2]) => y  for x[2], y[2]"
    assert results(rule, apply("slice", both, axis=-2, start=N, stop=N + K)) == [y]
    assert results(rule, apply("slice", both, axis=-2, start=N, stop=N + K - 1)) == []
    assert results(rule, apply("slice", both, axis=-2, start=5, stop=N + K)) == []


def test_a_rule_is_not_applied_where_its_condition_is_open() -> None:
    x = variable("x", (N, 8))
    rule = "relu(x) => relu(relu(x))  for x[2] where x.shape[-2] >= {least}"
    assert len(results(rule.format(least=1), apply("relu", x))) == 1
    assert results(rule.format(least=2), apply("relu", x)) == []


def test_a_rule_is_not_applied_where_its_right_side_asks_for_more_than_its_left() -> None:
    x = variable("x", (N, 8))
    parts = "slice(relu(x), axis=-2, start=0, stop={at}), slice(relu(x), axis=-2, start={at}, stop=x.shape[-2])"
    rule = f"relu(x) => concat({parts}, axis=-2)  for x[2]"
    assert results(rule.format(at=1), apply("relu", x)) == []
    assert len(results(rule.format(at=1), apply("relu", variable("x", (N + 1, 8))))) == 1


# ---------------------------------------------------------------- lifting


def test_open_dimensions_have_names_and_usual_sizes() -> None:
    picture = ir.from_proto(model([helper.make_node("Relu", ["x"], ["y"])], [None, 3, "height", "width"], []))
    assert dynamic_dimension_names(picture) == {"x[0]": False, "height": True, "width": True}
    assert [s.numbers for s in representative_sizings(picture, [])] == [{"x[0]": 1, "height": 224, "width": 224}]
    given = size_combinations({"x.0": [1, 8], "width": [96]})
    assert [s.numbers["x[0]"] for s in representative_sizings(picture, given)] == [1, 8]
    with pytest.raises(DimensionError, match=r"no dynamic dimension 'batch': its dynamic dimensions are x\[0\], height, width"):
        representative_sizings(picture, [{"batch": 1}])
    assert all(len({*s.numbers.values()}) == 3 for s in sample_sizings(picture))


def test_two_sizes_of_one_dimension_are_refused() -> None:
    picture = ir.from_proto(model([helper.make_node("Relu", ["x"], ["y"])], [None, 3, "height", "width"], []))
    assert representative_sizings(picture, [{"height": 8, "x[2]": 8}])
    with pytest.raises(DimensionError, match=r"dimension 'height' is given two sizes, 8 and 9"):
        representative_sizings(picture, [{"height": 8, "x[2]": 9}])


def test_sample_sizes_of_many_dimensions_are_positive_and_different() -> None:
    names: list[int | str | None] = ["a", "b", "c", "d", "e"]
    many = ir.from_proto(model([helper.make_node("Relu", ["x"], ["y"])], names, []))
    for sizing in sample_sizings(many):
        assert len({*sizing.numbers.values()}) == len(names)
        assert min(sizing.numbers.values()) >= MODEL.first_size


def test_what_is_computed_of_shapes_is_known() -> None:
    proto = attention()
    terms = lifted(proto)
    assert list(terms) == ["y"], "the whole model is one island"
    batch, length = dimension("batch"), dimension("length")
    assert terms["y"].shape == (batch, length, 64)
    assert any(t.shape == (batch, 4, length, length) for t in subterms(terms["y"]))


def test_a_bound_that_some_sizes_reach_and_others_do_not_is_a_minimum() -> None:
    node = helper.make_node("Slice", ["x", "first", "last", "axis"], ["y"])
    proto = model([node], ["n", 8], [whole("first", 0), whole("last", 512), whole("axis", 0)])
    (term,) = lifted(proto).values()
    assert [DimBinding({"n": n}).at(term).shape for n in (1, 511, 512, 513, 20000)] == [(n, 8) for n in (1, 511, 512, 512, 512)]
    assert constants(y=term) == [[0], [512]]


def test_broadcasting_that_depends_on_a_size_is_not_lifted() -> None:
    proto = model([helper.make_node("Add", ["x", "b"], ["y"])], ["n", 8], [weight("b", 5, 8)])
    assert lifted(proto) == {}


def test_extents_of_strided_convolutions_are_known_at_every_size() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1])
    terms = lifted(model([node], ["n", 3, "h", "w"], [weight("w", 4, 3, 3, 3)]))
    n, channels, rows, _ = terms["y"].shape
    assert (n, channels) == (dimension("n"), 4)
    assert rows == floor_divide(dimension("h") - 1, 2) + 1


def test_extents_that_are_equal_at_every_size_are_one_expression() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["every_other"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "axis"], ["height"]),
        helper.make_node("Add", ["height", "one"], ["more"]),
        helper.make_node("Div", ["more", "two"], ["half"]),
        helper.make_node("Slice", ["x", "zero", "half", "axis"], ["upper"]),
    ]
    numbers = [whole("zero", 0), whole("one", 1), whole("two", 2), whole("axis", 2)]
    proto = model(nodes, ["n", 3, "height", "width"], [weight("w", 3, 3, 3, 3), *numbers], ("every_other", "upper"))
    views = Views(ir.from_proto(proto))
    conv, halved = views.model.graph.node(0), views.model.graph.outputs[1]
    lifted_conv = views.lift(conv, [views.leaf(value) for value in conv.inputs if value is not None])
    found, cut = views.values.shape(halved), views.leaf(halved)
    assert lifted_conv is not None
    assert found is not None
    assert cut is not None
    assert cut.shape[2] == lifted_conv[0].shape[2] != found[2]


@pytest.mark.parametrize(("position", "start"), [(0, 0), (-1, N - 1)])
def test_a_gather_of_one_position_of_a_dynamic_axis_is_a_slice(position: int, start: Extent) -> None:
    """The default axis of a Gather is the first axis."""
    proto = model([helper.make_node("Gather", ["x", "position"], ["y"])], ["n", 8], [whole("position", position)])
    assert lifted(proto) == {"y": apply("slice", variable("x", (N, 8)), axis=-2, start=start, stop=start + 1)}


def test_a_gather_of_a_scalar_position_removes_the_axis() -> None:
    position = numpy_helper.from_array(np.array(0, np.int64), "position")
    picked = apply("slice", variable("x", (N, 8)), axis=-2, start=0, stop=1)
    terms = lifted(model([helper.make_node("Gather", ["x", "position"], ["y"])], ["n", 8], [position]))
    assert terms == {"y": apply("reshape", picked, shape=(8,))}


@pytest.mark.parametrize(
    ("positions", "operators"),
    [((0, 1), {"y": "slice"}), ((1, 0), {"y": "gather"}), ((-1, -2), {"y": "gather"}), ((1, 3), {"long": "concat"})],
)
def test_a_gather_of_positions_of_a_dynamic_axis_is_lifted_where_they_exist_at_all_sizes(
    positions: tuple[int, ...], operators: dict[str, str]
) -> None:
    nodes = [
        helper.make_node("Concat", ["x", "two_rows"], ["long"], axis=0),
        helper.make_node("Gather", ["long", "positions"], ["y"]),
    ]
    terms = lifted(model(nodes, ["n", 8], [weight("two_rows", 2, 8), whole("positions", *positions)]))
    assert {name: term.op for name, term in terms.items()} == operators


def test_sums_are_told_apart_in_whatever_order_they_stand() -> None:
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"m{i}"]) for i in range(4)] + [
        helper.make_node("Sum", [f"m{i}" for i in range(4)], ["y"])
    ]
    terms = lifted(model(nodes, ["n", 8], [weight(f"w{i}", 8, 8) for i in range(4)]))
    assert [t.op for t in terms.values()] == ["add"]
    assert len(terms["y"].args) == 4


def test_views_of_a_model_without_open_dimensions_are_one() -> None:
    fixed = Views(ir.from_proto(model([helper.make_node("Relu", ["x"], ["y"])], [2, 3], [])))
    assert not fixed.dynamic
    assert len(fixed.small) == 1


# ---------------------------------------------------------------- lowering


def constants(**outputs: Term) -> list[list[int]]:
    found = lower(outputs, 17)
    return [materialize_initializer(array).tolist() for array in found.initializers.values()]


def test_shapes_and_bounds_are_written_as_onnx_finds_them_out() -> None:
    x = variable("x", (N, K, 6))
    assert constants(y=apply("reshape", x, shape=(N, K, 2, 3))) == [[0, 0, 2, 3]]
    assert constants(y=apply("reshape", x, shape=(N * K, 6))) == [[-1, 6]]
    assert constants(y=apply("slice", x, axis=-2, start=1, stop=K)) == [[1], [LAST]]
    assert constants(y=apply("slice", x, axis=-3, start=0, stop=N - 2)) == [[0], [-2]]


def test_what_no_node_computes_at_every_size_is_refused() -> None:
    x = variable("x", (N, K, 6))
    with pytest.raises(ShapeError, match="dynamic extents that differ from the operand"):
        lower({"y": apply("reshape", x, shape=(K, N, 6))}, 17)
    with pytest.raises(ShapeError, match="neither proved nor refuted for all sizes"):
        lower({"y": apply("slice", x, axis=-2, start=0, stop=N)}, 17)
    with pytest.raises(ShapeError, match="dynamic dimensions"):
        lower({"y": apply("repeat", x, axis=-1, times=N)}, 17)


def test_pads_and_bounds_of_tensors_of_unknown_shape_are_refused() -> None:
    conv = NodeText("Conv", ("x", "w"), ("y",), (("pads", (K, 0, K, 0)),))  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="shape of the image"):
        numeric(conv, {}, {"x": (N, 3, K, K)})
    cut = NodeText("Slice", ("x", "starts", "ends"), ("y",))
    with pytest.raises(ShapeError, match="operand of a Slice"):
        numeric(cut, {"starts": (0, 0), "ends": (N, K)}, {"x": (N, K)})


def test_bounds_of_a_slice_may_be_attributes() -> None:
    cut = NodeText("Slice", ("x",), ("y",), (("starts", (1, N - 2)), ("ends", (K, N)), ("axes", (1, 0))))  # type: ignore[arg-type]
    node, operands = numeric(cut, {}, {"x": (N, K)})
    assert dict(node.attributes) == {"starts": (1, -2), "ends": (LAST, LAST), "axes": (1, 0)}
    assert operands == {}


def test_the_names_of_dimensions_are_no_names_of_rules() -> None:
    assert dimension("x") != size(Dim("x", 0))


# ---------------------------------------------------------------- whole runs


def test_an_optimized_model_is_right_at_other_sizes_and_its_dimensions_are_open(tmp_path: Path) -> None:
    proto = attention(width=128)
    shapes = size_combinations({"batch": [1, 2]})
    optimized = superopt.optimize(proto, budget=60.0, shapes=shapes, moves=("rules",), cache=tmp_path / "cache")
    report = optimized.report
    assert report.nodes_in_islands == 20
    assert any(segment.rules for segment in report.segments), "the two parts of one weight are added"
    assert set(report.shapes) <= {"batch=1, length=128", "batch=2, length=128"}
    assert report.accepted, report.reason
    after = optimized.model
    assert [d.dim_param for d in after.graph.input[0].type.tensor_type.shape.dim][:2] == ["batch", "length"]
    first, second = (Session(m, Device("cpu", 1)) for m in (proto, after))
    for batch, length in ((1, 1), (1, 7), (3, 5), (2, 64), (4, 130)):
        x = RNG.standard_normal((batch, length, 128)).astype(np.float32)
        np.testing.assert_allclose(first.run({"x": x})[0], second.run({"x": x})[0], rtol=2e-4, atol=2e-5)


def test_what_was_found_at_the_same_sizes_is_not_searched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs use one model, because the key contains the ranges of the weights, which decide which rewrites are allowed."""
    searched: list[State] = []

    @functools.wraps(search_island)
    def noted(start: State, rules: RuleSet, **how: Any) -> SearchResult:
        searched.append(start)
        return search_island(start, rules, **how)

    for module in ("passes", "segment_search"):
        monkeypatch.setattr(f"superopt.search.{module}.search_island", noted)
    factor = parse_rules("factor: x @ y + x @ z => x @ (y + z) for x[3], y[2], z[2]")
    monkeypatch.setattr("superopt.flows.prepare.load_rules", lambda: factor)
    proto = attention()
    for shapes, expected in (([{"length": 16}], 1), ([{"length": 16}], 1), ([{"length": 24}], 2)):
        superopt.optimize(proto, budget=60.0, shapes=shapes, moves=("rules",), cache=tmp_path / "times.sqlite")
        assert len(searched) == expected


def test_a_dimension_that_is_not_there_is_one_line_and_a_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.onnx"
    onnx.save(attention(), source)
    target = str(tmp_path / "out.onnx")
    assert main(["optimize", str(source), target, "--shape", "seq=8"]) == DimensionError.exit_code
    assert "no dynamic dimension 'seq': its dynamic dimensions are batch, length" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["optimize", str(source), target, "--shape", "batch"])
    assert stopped.value.code == 2
    assert "is not of the form NAME=N,N" in capsys.readouterr().err


def test_sizes_at_which_the_model_does_not_run_are_named(tmp_path: Path) -> None:
    proto = model([helper.make_node("Add", ["x", "b"], ["y"])], ["n", 8], [weight("b", 5, 8)])
    with pytest.raises(DimensionError, match="does not run at n=7, so other sizes are needed"):
        superopt.optimize(proto, shapes=[{"n": 7}], cache=tmp_path / "cache")
    assert superopt.optimize(proto, shapes=[{"n": 5}], cache=tmp_path / "cache").model is proto
