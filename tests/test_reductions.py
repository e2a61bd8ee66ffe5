"""Matrix products of every form, reductions, normalizations, gathers and sums along an axis, as models write them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from superopt.algebra.operators import apply, fraction_of
from superopt.algebra.terms import Term, subterms, variable
from superopt.errors import ShapeError
from superopt.model.fold import fold
from superopt.model.islands import Chart
from superopt.model.load import as_proto
from superopt.model.lower import lower
from superopt.model.splice import Replacement, splice
from superopt.proof.verify import prove_rule
from superopt.protobuf.nodes import Lowered
from superopt.rules.rule import Rule, parse_rules
from superopt.rules.verdict import Proved
from superopt.rules.work import Work, work
from superopt.runtime.session import Device, Session
from superopt.speclib.composite import unfolded
from tests.operator_cases import Array, arrays_for, evaluated, lifted, ran
from tests.test_lowering import OneNode

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
EPSILON = fraction_of(float(np.float32(1e-5)))


def _floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def _integers(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


X, IMAGE, VECTOR = _floats(2, 3, 4), _floats(2, 6, 3, 5), _floats(4)
SIX = [_floats(6), _floats(6)]

# op type, operands, positions of constant operands, attributes, opsets
BOUND: list[tuple[str, list[Array], list[int], dict[str, Any], list[int]]] = [
    ("MatMul", [VECTOR, VECTOR], [], {}, [7, 13]),
    ("MatMul", [X, VECTOR], [], {}, [7, 13]),
    ("MatMul", [VECTOR, _floats(4, 5)], [], {}, [7, 13]),
    ("MatMul", [VECTOR, _floats(2, 4, 5)], [], {}, [7, 13]),
    ("MatMul", [_floats(3, 4), _floats(2, 4, 5)], [], {}, [7, 13]),
    ("MatMul", [_floats(3, 4), _floats(5, 2, 4, 3)], [], {}, [7, 13]),
    ("MatMul", [X, _floats(1, 4, 5)], [], {}, [7, 13]),
    ("MatMul", [_floats(1, 3, 4), _floats(2, 4, 5)], [], {}, [7, 13]),
    ("MatMul", [X, _floats(5, 1, 4, 3)], [], {}, [7, 13]),
    ("MatMul", [_floats(2, 1, 3, 4), _floats(1, 5, 4, 3)], [], {}, [7, 13]),
    ("MatMul", [_floats(3, 4), _floats(1, 1, 4, 3)], [], {}, [7, 13]),
    ("ReduceMax", [X], [], {}, [7, 11, 13]),
    ("ReduceMax", [X], [], {"axes": [-1, 0], "keepdims": 0}, [7, 11, 13]),
    ("ReduceMax", [X, _integers(1)], [1], {}, [18, 21]),
    ("ReduceMax", [X], [], {"noop_with_empty_axes": 1}, [18]),
    ("ReduceMin", [X], [], {"axes": [1]}, [7, 11, 13]),
    ("ReduceMin", [X, _integers(-1, 0)], [1], {"keepdims": 0}, [18, 21]),
    ("ReduceSumSquare", [X], [], {"axes": [0, 2]}, [7, 13]),
    ("ReduceSumSquare", [X, _integers(2)], [1], {"keepdims": 0}, [18]),
    ("ReduceL1", [X], [], {"axes": [2]}, [7, 13]),
    ("ReduceL2", [X], [], {"axes": [2], "keepdims": 0}, [7, 13]),
    ("ReduceL2", [X, _integers(1, 2)], [1], {}, [18]),
    ("ReduceLogSum", [np.abs(X)], [], {"axes": [1]}, [7, 13]),
    ("ReduceLogSumExp", [X], [], {"axes": [1]}, [7, 13]),
    *(
        (op, [operand], [], attributes, [18])
        for op in ("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare", "ReduceSum", "ReduceMean")
        for operand, attributes in ((X, {"noop_with_empty_axes": 1}), (np.array(-3.0, np.float32), {}))
    ),
    ("ReduceLogSum", [np.abs(X)], [], {"noop_with_empty_axes": 1}, [18]),
    ("ReduceLogSum", [np.array(3.0, np.float32)], [], {}, [18]),
    ("GlobalMaxPool", [IMAGE], [], {}, [7, 13]),
    ("Softmax", [X], [], {}, [7, 11, 12, 13, 21]),
    ("Softmax", [X], [], {"axis": 0}, [7, 12, 13]),
    ("Softmax", [X], [], {"axis": 2}, [7, 12, 13]),
    ("Softmax", [X], [], {"axis": -2}, [11, 13]),
    ("LogSoftmax", [X], [], {"axis": 1}, [7, 12, 13]),
    ("LogSoftmax", [X], [], {}, [7, 12, 13]),
    ("LayerNormalization", [X, _floats(4), _floats(4)], [1, 2], {}, [17, 21]),
    ("LayerNormalization", [X, _floats(4)], [1], {"epsilon": 0.25}, [17, 21]),
    ("LayerNormalization", [X, _floats(4), _floats(4)], [], {}, [17]),
    ("LayerNormalization", [X, np.ones(4, np.float32), np.zeros(4, np.float32)], [1, 2], {}, [17]),
    ("LayerNormalization", [X, _floats(3, 4), _floats(3, 4)], [1, 2], {"axis": 1}, [17, 21]),
    ("InstanceNormalization", [IMAGE, *SIX], [1, 2], {}, [7, 13]),
    ("InstanceNormalization", [X, _floats(3), _floats(3)], [1, 2], {"epsilon": 0.5}, [7, 13]),
    ("GroupNormalization", [IMAGE, *SIX], [1, 2], {"num_groups": 3}, [21]),
    ("GroupNormalization", [_floats(2, 6, 5), *SIX], [1, 2], {"num_groups": 2, "epsilon": 0.5}, [21]),
    ("RMSNormalization", [X, _floats(4)], [1], {"axis": -1, "epsilon": 0.5}, [23]),
    ("CumSum", [X, np.array(1)], [1], {}, [11, 14]),
    ("CumSum", [X, np.array(-1)], [1], {"exclusive": 1, "reverse": 1}, [11, 14]),
    ("Trilu", [X], [], {}, [14]),
    ("Trilu", [X, np.array(-1)], [1], {"upper": 0}, [14]),
    ("Trilu", [_floats(3, 5), np.array(2)], [1], {}, [14]),
    ("Gather", [X, _integers(3, 0, 3)], [1], {"axis": 2}, [7, 11, 13]),
    ("Gather", [X, _integers(-1, 0, -3)], [1], {"axis": 1}, [11, 13]),
    ("Gather", [X, _integers(1, 2)], [1], {"axis": -1}, [7, 13]),
    ("Gather", [X, np.array(-1)], [1], {"axis": 1}, [11, 13]),
    ("Gather", [X, np.array([[2, 0], [1, 1]], np.int32)], [1], {"axis": 1}, [7, 13]),
    ("Einsum", [X, _floats(4, 5)], [], {"equation": "bsd,de->bse"}, [12, 13]),
    ("Einsum", [IMAGE, _floats(2, 4, 3, 5)], [], {"equation": "bqhd,bkhd->bhqk"}, [12, 13]),
    ("Einsum", [X, _floats(4, 5, 6)], [], {"equation": "bsd,dhe->bhse"}, [12]),
    ("Einsum", [X, X], [], {"equation": "...a,...a->..."}, [12]),
    ("Einsum", [X, VECTOR], [], {"equation": "abc, c -> abc"}, [12]),
    ("Einsum", [X, _floats(4, 5), _floats(5, 6)], [], {"equation": "abc,cd,de->ab"}, [12]),
    ("Einsum", [X], [], {"equation": "abc->ca"}, [12]),
    ("Einsum", [VECTOR, _floats(3)], [], {"equation": "i,j"}, [12]),
]


@pytest.mark.parametrize("case", BOUND, ids=lambda case: f"{case[0]}-{len(case[1])}")
def test_a_node_lifts_to_what_it_computes_and_back(case: Any) -> None:
    op_type, operands, constants, attributes, opsets = case
    for opset in opsets:
        node = OneNode(op_type, operands, opset=opset, constants=constants, outputs=1, **attributes)
        terms, expected = node.lifted(), node.computed()
        assert terms is not None, opset
        np.testing.assert_allclose(evaluated(node.arrays, *terms)[0], expected[0], rtol=1e-4, atol=1e-5)
        if op_type in ("Gather", "OneHot"):
            continue
        (found,) = ran(lower({"w": terms[0]}, opset), {"w": terms[0]}, node.arrays, opset)
        np.testing.assert_allclose(found, expected[0], rtol=1e-4, atol=1e-5)


OPAQUE: list[tuple[str, list[Array], list[int], int, dict[str, Any]]] = [
    ("Gather", [X, _integers(0, 1)], [], 1, {"axis": 1}),
    ("Gather", [X, _integers(0, 7)], [1], 1, {}),
    ("LayerNormalization", [X, VECTOR], [1], 3, {}),
    ("ReduceMax", [X, _integers(1)], [], 1, {}),
    ("Einsum", [_floats(3, 3)], [], 1, {"equation": "ii->i"}),
    ("Einsum", [_floats(1, 3), _floats(2, 3)], [], 1, {"equation": "ab,ab->ab"}),
    ("Trilu", [X, np.array(1)], [], 1, {}),
]


@pytest.mark.parametrize("case", OPAQUE, ids=lambda case: case[0])
def test_a_node_outside_the_bindings_stays_opaque(case: Any) -> None:
    op_type, operands, constants, outputs, attributes = case
    assert OneNode(op_type, operands, opset=18, constants=constants, outputs=outputs, **attributes).lifted() is None


# ---------------------------------------------------------------- lowered forms of terms


def _op_types(lowered: Lowered) -> list[str]:
    return [node.op_type for node in lowered.nodes]


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3, 4), (5, 1, 4, 3)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 1, 3, 4), (1, 5, 4, 3)),
        ((3, 4), (2, 4, 5)),
    ],
)
def test_a_matrix_product_is_one_node_again(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    node = OneNode("MatMul", [_floats(*s) for s in shapes], opset=13, constants=[], outputs=1)
    terms = node.lifted()
    assert terms is not None
    assert _op_types(lower({"y": terms[0]}, 13)) == ["MatMul"]


def _row(name: str, like: Term, axis: int = -1) -> Term:
    return apply("expand", variable(name, (like.sizes[axis],), constant=True), shape=like.shape, axes=(axis,))


def _normalized(name: str, x: Term) -> Term:
    if name != "group_norm":
        return apply(name, x, epsilon=Fraction(1, 4))
    rows = apply("reshape", x, shape=(x.sizes[0], 3, x.sizes[1] // 3 * x.sizes[2] * x.sizes[3]))
    return apply("reshape", apply("layer_norm", rows, epsilon=Fraction(1, 4)), shape=x.shape)


@pytest.mark.parametrize(
    ("name", "axis", "opset", "nodes"),
    [
        ("layer_norm", -1, 17, ["LayerNormalization"]),
        ("layer_norm", -1, 13, ["Reshape", "InstanceNormalization", "Reshape", "Mul", "Add"]),
        ("instance_norm", -3, 7, ["InstanceNormalization"]),
        ("group_norm", -3, 21, ["GroupNormalization"]),
        ("group_norm", -3, 17, ["Reshape", "LayerNormalization", "Reshape", "BatchNormalization"]),
        ("group_norm", -3, 13, ["Reshape", "InstanceNormalization", "Reshape", "BatchNormalization"]),
        ("rms_norm", -1, 23, ["RMSNormalization", "Add"]),
        ("rms_norm", -1, 13, ["Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add"]),
    ],
)
def test_factor_and_bias_go_into_the_normalization(name: str, axis: int, opset: int, nodes: list[str]) -> None:
    x = variable("x", (2, 6, 3, 5))
    normalized = _normalized(name, x)
    scaled = apply("mul", normalized, _row("s", x, axis))
    outputs = {"y": apply("add", scaled, _row("b", x, axis))}
    arrays = arrays_for(*outputs.values())
    lowered = lower(outputs, opset, constant=lambda term: fold([term], arrays)[term])
    assert _op_types(lowered) == nodes
    if opset < 23:
        found = ran(lowered, outputs, arrays, opset)[0]
        np.testing.assert_allclose(found, evaluated(arrays, *outputs.values())[0], rtol=1e-4, atol=1e-5)
    for part, count in ((scaled, 1), (apply("add", normalized, _row("b", x, axis)), 1), (normalized, 1)):
        if name == "layer_norm" and opset == 17:
            assert len(lower({"y": part}, opset, constant=lambda term: fold([term], arrays)[term]).nodes) == count


def test_a_reshape_without_a_normalization_takes_no_factor() -> None:
    x = variable("x", (2, 3, 4))
    scaled = apply("mul", apply("reshape", x, shape=x.shape), _row("s", x, -2))
    outputs = {"y": apply("add", scaled, _row("b", x, -2))}
    arrays = arrays_for(*outputs.values())
    lowered = lower(outputs, 21, constant=lambda term: fold([term], arrays)[term])
    assert "GroupNormalization" not in _op_types(lowered)
    np.testing.assert_allclose(ran(lowered, outputs, arrays, 21)[0], evaluated(arrays, *outputs.values())[0], rtol=1e-6)


def test_a_factor_that_is_not_constant_stays_a_product() -> None:
    x = variable("x", (2, 3, 4))
    scale = apply("expand", variable("s", (4,)), shape=x.shape, axes=(-1,))
    term = apply("mul", apply("layer_norm", x, epsilon=Fraction(1, 4)), scale)
    assert _op_types(lower({"y": term}, 17)) == ["LayerNormalization", "Mul"]


# ---------------------------------------------------------------- composites that models write out


def _model(body: str, shape: tuple[int, ...], opset: int = 13) -> onnx.ModelProto:
    typed = f"float[{','.join(map(str, shape))}]"
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g ({typed} x) => (float[{",".join("abc"[: len(shape)])}] y) {body}'
    return onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))


LAYER_NORM = """<float two = {2}, float eps = {0.00001}> {
    mean = ReduceMean <axes = [-1]> (x)
    centred = Sub (x, mean)
    square = Pow (centred, two)
    variance = ReduceMean <axes = [-1]> (square)
    positive = Add (variance, eps)
    deviation = Sqrt (positive)
    y = Div (centred, deviation)
}"""
RMS_NORM = """<float two = {2}, float eps = {0.00001}> {
    square = Pow (x, two)
    variance = ReduceMean <axes = [-1]> (square)
    positive = Add (eps, variance)
    deviation = Sqrt (positive)
    inverse = Reciprocal (deviation)
    y = Mul (x, inverse)
}"""
SOFTMAX = """<int64[1] axes = {-1}> {
    exponential = Exp (x)
    sum = ReduceSum (exponential, axes)
    y = Div (exponential, sum)
}"""
WRITTEN = {"layer_norm": LAYER_NORM, "rms_norm": RMS_NORM, "softmax": SOFTMAX}


@pytest.mark.parametrize("shape", [(2, 5, 8), (1, 5, 8), (5, 8), (1, 8), (1, 1, 8)])
@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_model_writes_out_is_the_definition(name: str, shape: tuple[int, ...]) -> None:
    terms = {v.name: t for v, t in lifted(ir.from_proto(_model(WRITTEN[name], shape)).graph, 13).items()}
    x = variable("x", shape)
    composite = apply(name, x, **({"axis": -1} if name == "softmax" else {"epsilon": EPSILON}))
    assert terms["y"] is unfolded(composite)


@pytest.mark.parametrize("name", WRITTEN)
def test_reductions_keep_their_axes_on_lowering(name: str) -> None:
    model = _model(WRITTEN[name], (1, 5, 8))
    terms = {v.name: t for v, t in lifted(ir.from_proto(model).graph, 13).items()}
    written = [n.op_type for n in model.graph.node]
    expected = [t for t in written if t != "Reciprocal"]
    lowered = lower({"y": terms["y"]}, 13)
    assert sorted(_op_types(lowered)) == sorted("Div" if name == "rms_norm" and t == "Mul" else t for t in expected)
    assert {dict(n.attributes).get("keepdims") for n in lowered.nodes if n.op_type.startswith("Reduce")} == {1}


def test_what_an_opset_has_not_is_written_out_in_weights_too() -> None:
    w = variable("w", (3, 4), constant=True)
    values = {"w": _floats(3, 4)}
    term = apply("rms_norm", apply("rms_norm", w, epsilon=Fraction(1, 4)), epsilon=Fraction(1, 8))
    np.testing.assert_allclose(fold([term], values)[term], evaluated(values, term)[0], rtol=1e-6)


def test_a_mean_that_something_else_needs_without_its_axis_is_reshaped() -> None:
    x = variable("x", (2, 5, 8))
    mean = apply("sqrt", apply("reduce_mean", x, axes=(-1,)))
    kept = apply("reshape", mean, shape=(2, 5, 1))
    assert _op_types(lower({"y": kept}, 13)) == ["ReduceMean", "Sqrt"]
    assert sorted(_op_types(lower({"y": kept, "z": mean}, 13))) == ["ReduceMean", "Reshape", "Sqrt"]


# ---------------------------------------------------------------- indices


GATHER = """<float[6, 4] table = {TABLE}, int64[3] rows = {5, -6, 2}, float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
    part = Gather <axis = 1> (x, rows)
    fixed = Gather (table, rows)
    together = Add (part, fixed)
    y = MatMul (together, w)
}"""


def _gathering(opset: int) -> onnx.ModelProto:
    numbers = ", ".join(str(n) for n in range(24))
    return _model(GATHER.replace("TABLE", numbers), (2, 6, 4), opset)


def _spliced(model: onnx.ModelProto, change: Any = None) -> tuple[bytes, list[Array], list[Array]]:
    """Replace the one island of the model by `change` of its terms.

    Return the new model and the outputs of both models.
    """
    loaded = ir.from_proto(model)
    (island,) = Chart(loaded).islands()
    outputs = {name: change(t) if change else t for name, t in island.outputs.items()}
    data = as_proto(splice(loaded, [Replacement(outputs, island.dtype)])).SerializeToString()
    feeds = {"x": _floats(2, 6, 4)}
    before, after = (Session(m, Device(), optimize=False).run(feeds) for m in (model.SerializeToString(), data))
    return data, before, after


@pytest.mark.parametrize("opset", [9, 13, 18])
def test_gathers_are_part_of_an_island_and_of_what_is_folded(opset: int) -> None:
    data, before, after = _spliced(_gathering(opset))
    np.testing.assert_allclose(after[0], before[0], rtol=1e-6)
    graph = onnx.load_from_string(data).graph
    assert [n.op_type for n in graph.node] == ["Gather", "Add", "MatMul"]
    (indices,) = (t for t in graph.initializer if t.data_type == onnx.TensorProto.INT64)
    assert onnx.numpy_helper.to_array(indices).tolist() == [5, 0, 2]


def test_indices_that_a_rule_joined_are_whole_numbers_again() -> None:
    def twice(term: Term) -> Term:
        gather = next(t for t in subterms(term) if t.op == "gather" and not t.constant)
        x, indices = gather.args
        both = apply("gather", x, apply("concat", indices, indices, axis=-1), axis=gather.integer("axis"))
        done = {gather: apply("slice", both, axis=gather.integer("axis"), start=3, stop=6)}
        for t in subterms(term):
            done.setdefault(t, t if t.is_variable else apply(t.op, *(done[a] for a in t.args), **dict(t.attributes)))
        return done[term]

    data, before, after = _spliced(_gathering(13), twice)
    np.testing.assert_allclose(after[0], before[0], rtol=1e-6)
    arrays = [onnx.numpy_helper.to_array(t) for t in onnx.load_from_string(data).graph.initializer]
    assert [a.tolist() for a in arrays if a.dtype == np.int64 and a.size == 6] == [[5, 0, 2, 5, 0, 2]]


def test_indices_outside_the_axis_are_refused() -> None:
    x, i = variable("x", (3, 4)), variable("i", (2,), constant=True)
    term = apply("gather", x, i, axis=0)
    for wrong in ([0, 3], [-4, 0]):
        with pytest.raises(ShapeError):
            lower({"y": term}, 13, constant=lambda _, array=wrong: np.array(array))  # type: ignore[misc]
    assert _op_types(lower({"y": term}, 13, constant=lambda _: np.array([2, -3]))) == ["Gather"]


def test_a_gather_costs_what_it_moves() -> None:
    x, i = variable("x", (100, 4)), variable("i", (3,))
    assert work(apply("gather", x, i, axis=0)) == Work(0, 4 * (12 + 3 + 12))


# ---------------------------------------------------------------- laws


LAWS = parse_rules((Path(__file__).parent / "laws" / "reductions.rules").read_text())


@pytest.mark.parametrize("rule", LAWS, ids=lambda r: r.name)
def test_law_is_proved_for_all_sizes(rule: Rule) -> None:
    verdict = prove_rule(rule)
    assert isinstance(verdict, Proved), str(verdict)
    assert verdict.bounded == ()
