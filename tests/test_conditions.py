"""Conditions, which are 0 or 1 in the algebra and booleans in ONNX: masks of models, and minus infinity in masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, variable, variables
from superopt.cost.segment_cost import Measured
from superopt.errors import ShapeError
from superopt.model.fold import fold
from superopt.model.islands import Chart, Island
from superopt.model.lower import is_boolean, lower
from superopt.model.splice import Replacement, require_valid, splice
from superopt.protobuf.nodes import Lowered, lowered_model_proto
from superopt.runtime.session import Device, Session
from superopt.search.canonical import canonical
from tests.operator_cases import evaluated

node = helper.make_node
Array = np.ndarray[Any, np.dtype[Any]]
FLOAT, BOOL = TensorProto.FLOAT, TensorProto.BOOL
X, Y = variable("x", (2, 3)), variable("y", (2, 3))
C = variable("c", (2, 3), condition=True)
SIDES = np.array([[1, -2, 3], [0, 5, -6]], np.float32), np.array([[1, 2, -3], [0.5, -5, 6]], np.float32)
MASK = np.array([[True, False, True], [False, False, True]])


def computed(outputs: dict[str, Term], opset: int = 17, **more: Any) -> dict[str, Array]:
    lowered = lower(outputs, opset, **more)
    proto = lowered_model_proto(lowered, variables(*outputs.values()), outputs, opset)
    onnx.checker.check_model(proto, full_check=True)
    feeds = {"x": SIDES[0], "y": SIDES[1], "c": MASK}
    values = Session(proto, Device(), optimize=False).run({port.name: feeds[port.name] for port in proto.graph.input})
    return dict(zip(outputs, values, strict=True))


def types(lowered: Lowered) -> list[str]:
    return [n.op_type for n in lowered.nodes]


def model(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, list[int]]],
    outputs: Mapping[str, tuple[int, list[int]]],
    weights: Mapping[str, Array] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "conditions",
        [info(name, *kind) for name, kind in inputs.items()],
        [info(name, *kind) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def islands(proto: onnx.ModelProto) -> list[Island]:
    return Chart(ir.from_proto(proto)).islands()


def respliced(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with every island replaced by its own terms, and require that both models give the same bits."""
    before = ir.from_proto(proto)
    after = splice(before, [Replacement(i.outputs, i.dtype, i.conditions) for i in islands(proto)])
    require_valid(after, before)
    rewritten: onnx.ModelProto = ir.to_proto(after)
    rng = np.random.default_rng(0)
    feeds = {}
    for port in proto.graph.input:
        kind = helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
        shape = [d.dim_value for d in port.type.tensor_type.shape.dim]
        feeds[port.name] = rng.integers(0, 2, shape).astype(kind) if kind != np.float32 else rng.normal(size=shape).astype(kind)
    results = [Session(p, Device(), optimize=False).run(feeds) for p in (proto, rewritten)]
    for one, other in zip(*results, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    return rewritten


# ---------------------------------------------------------------- lowering


def test_comparisons_are_booleans_and_cast_where_numbers_are_asked_for() -> None:
    less = apply("less", X, Y)
    outputs = {"less": less, "counted": apply("reduce_sum", less, axes=(1,)), "masked": apply("mul", less, X)}
    lowered = lower(outputs, 17)
    assert lowered.booleans == {"less"}
    assert types(lowered).count("Cast") == 1
    found = computed(outputs)
    assert found["less"].dtype == np.bool_
    np.testing.assert_array_equal(found["less"], SIDES[0] < SIDES[1])
    np.testing.assert_array_equal(found["counted"], (SIDES[0] < SIDES[1]).sum(axis=1))
    np.testing.assert_array_equal(found["masked"], (SIDES[0] < SIDES[1]) * SIDES[0])


def test_a_number_is_cast_where_a_condition_is_asked_for() -> None:
    outputs = {"chosen": apply("where", apply("mul", X, Y), X, Y)}
    assert types(lower(outputs, 17)) == ["Mul", "Cast", "Where"]
    np.testing.assert_array_equal(computed(outputs)["chosen"], np.where(SIDES[0] * SIDES[1] != 0, *SIDES))


def test_what_moves_conditions_yields_conditions() -> None:
    turned = apply("transpose", apply("slice", C, axis=1, start=1, stop=3), perm=(1, 0))
    joined = apply("concat", turned, apply("less", turned, turned), axis=0)
    outputs = {"joined": joined, "mixed": apply("concat", C, X, axis=0), "either": apply("where", C, C, apply("equal", X, Y))}
    assert lower(outputs, 17).booleans == {"joined"}
    found = computed(outputs)
    np.testing.assert_array_equal(found["joined"][:2], MASK[:, 1:].T)
    np.testing.assert_array_equal(found["mixed"], np.concatenate([MASK, SIDES[0]]))
    np.testing.assert_array_equal(found["either"], MASK | (SIDES[0] == SIDES[1]))


MOVED = [
    apply("concat", C, C, axis=1),
    apply("slice", C, axis=1, start=0, stop=2),
    apply("transpose", C, perm=(1, 0)),
    apply("reshape", C, shape=(3, 2)),
    apply("expand", C, shape=(4, 2, 3), axes=(1, 2)),
]


@pytest.mark.parametrize("term", MOVED, ids=lambda term: term.op)
def test_onnx_runtime_moves_booleans(term: Term) -> None:
    assert lower({"out": term}, 13).booleans == {"out"}
    (expected,) = evaluated({"c": MASK.astype(np.float32)}, term)
    np.testing.assert_array_equal(computed({"out": term}, 13)["out"], expected)


def test_outputs_are_of_the_type_that_the_model_gives_them() -> None:
    both = apply("logical_and", C, apply("less", X, Y))
    product = apply("mul", C, apply("less", X, Y))
    wanted = {"a": both, "b": both, "c0": C, "d": product, "e": product}
    found = computed(wanted, conditions={"a", "c0", "d"})
    assert {name: value.dtype.kind for name, value in found.items()} == {"a": "b", "b": "f", "c0": "b", "d": "b", "e": "f"}
    for name in "abde":
        np.testing.assert_array_equal(found[name].astype(bool), MASK & (SIDES[0] < SIDES[1]))


def test_logic_and_orders() -> None:
    less, equal = apply("less", X, Y), apply("equal", X, Y)
    outputs = {
        "not": apply("logical_not", less),
        "or": apply("logical_or", less, equal),
        "at most": apply("less_equal", X, Y),
    }
    found = computed(outputs)
    np.testing.assert_array_equal(found["not"], SIDES[0] >= SIDES[1])
    np.testing.assert_array_equal(found["or"], SIDES[0] <= SIDES[1])
    np.testing.assert_array_equal(found["at most"], SIDES[0] <= SIDES[1])


def test_a_condition_is_folded_as_booleans() -> None:
    w, mask = variable("w", (2, 3), constant=True), variable("m", (2, 3), constant=True, condition=True)
    terms = [apply("transpose", mask, perm=(1, 0)), apply("where", mask, w, apply("zeros", shape=(2, 3))), apply("less", w, w)]
    assert [is_boolean(t) for t in terms] == [True, False, True]
    folded = fold(terms, {"w": SIDES[0], "m": MASK})
    assert [folded[t].dtype.kind for t in terms] == ["b", "f", "b"]
    np.testing.assert_array_equal(folded[terms[0]], MASK.T)
    np.testing.assert_array_equal(folded[terms[1]], np.where(MASK, SIDES[0], 0))


def test_a_segment_with_masks_is_measured_with_booleans() -> None:
    mask, scores = variable("m", (1, 4, 4), constant=True, condition=True), variable("s", (2, 4, 4))
    masked = apply("where", apply("concat", mask, mask, axis=0), scores, apply("scale", scores, factor=2))
    proto = Measured(None, 17).model((masked, apply("less", scores, scores)))  # type: ignore[arg-type]
    onnx.checker.check_model(proto, full_check=True)
    assert [o.type.tensor_type.elem_type for o in proto.graph.output] == [FLOAT, BOOL]
    assert "Cast" not in [n.op_type for n in proto.graph.node]


# ---------------------------------------------------------------- models


def test_a_causal_mask_with_minus_infinity_survives() -> None:
    causal = np.tril(np.ones((1, 4, 4), np.bool_))
    nodes = [
        node("MatMul", ["q", "k"], ["scores"]),
        node("Mul", ["scores", "half"], ["scaled"]),
        node("Where", ["causal", "scaled", "never"], ["masked"]),
        node("Softmax", ["masked"], ["attention"], axis=-1),
        node("MatMul", ["attention", "v"], ["y"]),
    ]
    weights = {"causal": causal, "half": np.array(0.5, np.float32), "never": np.array(-np.inf, np.float32)}
    inputs = {"q": (FLOAT, [2, 4, 3]), "k": (FLOAT, [2, 3, 4]), "v": (FLOAT, [2, 4, 3])}
    proto = model(nodes, inputs, {"y": (FLOAT, [2, 4, 3])}, weights)
    (island,) = islands(proto)
    assert len(island.nodes) == 5
    assert {v.name: v.condition for v in variables(*island.outputs.values()) if v.constant} == {"causal": True, "never": False}
    after = respliced(proto)
    assert [n.op_type for n in after.graph.node] == [n.op_type for n in nodes]
    stored = [numpy_helper.to_array(w) for w in after.graph.initializer]
    assert [w.size for w in stored if w.dtype == np.bool_] == [16]
    assert [w.size for w in stored if np.isinf(w).any()] == [1]


def test_boolean_inputs_results_and_outputs_keep_their_type() -> None:
    nodes = [
        node("Less", ["x", "y"], ["small"]),
        node("And", ["small", "keep"], ["both"]),
        node("Not", ["both"], ["none"]),
        node("Where", ["none", "x", "y"], ["z"]),
        node("Cast", ["both"], ["number"], to=FLOAT),
        node("Add", ["number", "z"], ["sum"]),
        node("Xor", ["both", "keep"], ["odd"]),
        node("Where", ["odd", "sum", "x"], ["last"]),
    ]
    inputs = {"x": (FLOAT, [2, 3]), "y": (FLOAT, [2, 3]), "keep": (BOOL, [2, 3])}
    proto = model(nodes, inputs, {"both": (BOOL, [2, 3]), "last": (FLOAT, [2, 3]), "number": (FLOAT, [2, 3])})
    found = islands(proto)
    assert [len(i.nodes) for i in found] == [6, 1]
    assert [i.conditions for i in found] == [{"both"}, frozenset()]
    after = respliced(proto)
    assert len(after.graph.node) <= len(nodes) + 1
    assert [o.type.tensor_type.elem_type for o in after.graph.output] == [BOOL, FLOAT, FLOAT]


def test_nodes_with_boolean_results_stay_outside_where_a_model_has_two_types() -> None:
    nodes = [
        node("Less", ["x", "x"], ["small"]),
        node("Where", ["small", "h", "h"], ["half"]),
        node("Where", ["small", "x", "x"], ["single"]),
    ]
    kinds = {"x": (FLOAT, [2]), "h": (TensorProto.FLOAT16, [2])}
    proto = model(nodes, kinds, {"half": (TensorProto.FLOAT16, [2]), "single": (FLOAT, [2])})
    found = islands(proto)
    assert [[n.op_type for n in i.nodes] for i in found] == [["Where"], ["Where"]]
    assert len({i.dtype for i in found}) == 2


@pytest.mark.parametrize("opset", [7, 8])
def test_what_an_opset_cannot_say_of_conditions_is_refused(opset: int) -> None:
    with pytest.raises(ShapeError):
        lower({"y": apply("where", C, X, Y)}, opset)
    with pytest.raises(ShapeError):
        lower({"y": apply("equal", X, Y)}, opset)


def test_a_condition_is_told_from_a_number_of_its_name() -> None:
    number, condition = variable("m", (2,)), variable("m", (2,), condition=True)
    assert number is not condition
    assert canonical((apply("relu", number),)).outputs != canonical((apply("relu", condition),)).outputs
    (root,) = canonical((apply("where", C, X, Y),)).outputs
    assert [v.condition for v in root.args] == [True, False, False]


def test_inputs_and_weights_are_numbered_from_zero() -> None:
    weight = variable("kernel", (2,), constant=True)
    (root,) = canonical((apply("mul", variable("image", (2,)), weight),)).outputs
    assert {v.name for v in root.args} == {"x0", "w0"}
