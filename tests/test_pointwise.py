"""Elementwise operators: lifting and lowering of their nodes, large inputs, and patterns that ONNX Runtime fuses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper, numpy_helper, parser

from superopt.algebra.evaluate import Floats, evaluate_operator
from superopt.algebra.operators import apply, fraction_of
from superopt.algebra.terms import Term, variable
from superopt.errors import ShapeError
from superopt.model.fold import fold
from superopt.model.lower import lower
from superopt.protobuf.nodes import lowered_model_proto
from superopt.runtime.session import Device, Session
from tests.operator_cases import Array, arrays_for, evaluated, lifted, ran

NEWEST = 26
RNG = np.random.default_rng(0)
X, ROW, COLUMN = (RNG.standard_normal(shape).astype(np.float32) for shape in [(2, 3, 4), (4,), (3, 1)])
POSITIVE = np.asarray(np.abs(X) + 0.5, dtype=np.float32)


def number(value: float) -> Array:
    return np.array(value, np.float32)


def node_model(op_type: str, operands: list[Array | None], constants: list[int], opset: int, **attributes: Any) -> ModelProto:
    """Return a model of one node. Operands at the positions `constants` are initializers, and other operands are inputs."""
    given = {f"v{position}": a for position, a in enumerate(operands) if a is not None}
    names = [f"v{position}" if a is not None else "" for position, a in enumerate(operands)]
    weights = {f"v{position}" for position in constants}
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["out"], **attributes)],
        "one",
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, a.shape) for n, a in given.items() if n not in weights],
        [helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in given.items() if n in weights],
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=max(4, helper.find_min_ir_version_for(imports)))


def term_of(model: ModelProto) -> Term:
    """Return the term that the value `out` lifts to."""
    graph = ir.from_proto(model).graph
    return {v.name: term for v, term in lifted(graph, model.opset_import[0].version).items()}["out"]


# op type, operands, positions of constant operands, attributes, opsets, root of the term
NODES: list[tuple[str, list[Array | None], list[int], dict[str, Any], list[int], str]] = [
    ("Exp", [X], [], {}, [7, 13, 24], "exp"),
    ("Log", [POSITIVE], [], {}, [7, 13, 24], "log"),
    ("Sqrt", [POSITIVE], [], {}, [7, 13, 24], "sqrt"),
    ("Reciprocal", [POSITIVE], [], {}, [7, 13, 24], "reciprocal"),
    ("Pow", [POSITIVE, number(-1.5)], [1], {}, [7, 12, 13, 15, 24], "power"),
    ("Pow", [X, number(3)], [1], {}, [7, 12, 13, 15, 24], "power"),
    ("Abs", [X], [], {}, [7, 13, 24], "abs"),
    ("Neg", [X], [], {}, [7, 13, 24], "scale"),
    ("Erf", [X], [], {}, [9, 13, 24], "erf"),
    ("Div", [X, POSITIVE], [], {}, [7, 13, 14, 24], "mul"),
    ("Div", [X, np.abs(ROW) + 1], [], {}, [7, 13, 14, 24], "mul"),
    ("Div", [ROW, POSITIVE], [], {}, [7, 13, 14, 24], "mul"),
    ("Div", [number(3), POSITIVE], [0], {}, [7, 13, 14, 24], "scale"),
    ("Div", [X, number(3)], [1], {}, [7, 13, 14, 24], "scale"),
    ("Div", [X, number(math.sqrt(2))], [1], {}, [7, 13, 14, 24], "scale"),
    ("Mul", [X, number(0.1)], [1], {}, [7, 13, 14, 24], "scale"),
    ("Max", [X, X[::-1].copy()], [], {}, [7, 8, 12, 13, 24], "maximum"),
    ("Max", [X, ROW, COLUMN], [], {}, [8, 12, 13, 24], "maximum"),
    ("Max", [X, number(0.25)], [1], {}, [8, 12, 13, 24], "maximum"),
    ("Min", [X, X[::-1].copy()], [], {}, [7, 8, 12, 13, 24], "minimum"),
    ("Min", [COLUMN, ROW, X], [], {}, [8, 12, 13, 24], "minimum"),
    ("Sigmoid", [X], [], {}, [7, 13, 24], "sigmoid"),
    ("Tanh", [X], [], {}, [7, 13, 24], "tanh"),
    ("Softplus", [X], [], {}, [7, 22, 24], "softplus"),
    ("Softsign", [X], [], {}, [7, 22, 24], "softsign"),
    ("Gelu", [X], [], {}, [20, 24], "gelu"),
    ("Gelu", [X], [], {"approximate": "tanh"}, [20, 24], "gelu_tanh"),
    ("Swish", [X], [], {}, [24], "silu"),
    ("Swish", [X], [], {"alpha": 1.75}, [24], "silu"),
    ("Mish", [X], [], {}, [18, 22, 24], "mish"),
    ("LeakyRelu", [X], [], {}, [7, 16, 24], "leaky_relu"),
    ("LeakyRelu", [X], [], {"alpha": -1.5}, [7, 16, 24], "leaky_relu"),
    ("PRelu", [X, ROW], [1], {}, [7, 9, 16, 24], "prelu"),
    ("PRelu", [X, COLUMN], [], {}, [7, 9, 16, 24], "prelu"),
    ("PRelu", [X, X[::-1].copy()], [], {}, [7, 9, 16, 24], "prelu"),
    ("Clip", [X], [], {"min": -0.5, "max": 0.75}, [7, 10], "clip"),
    ("Clip", [X, number(-0.5), number(0.75)], [1, 2], {}, [11, 12, 13, 24], "clip"),
    ("HardSigmoid", [X], [], {}, [7, 22, 24], "hard_sigmoid"),
    ("HardSigmoid", [X], [], {"alpha": 0.75, "beta": -0.25}, [7, 22, 24], "hard_sigmoid"),
    ("HardSwish", [X], [], {}, [14, 22, 24], "hard_swish"),
    ("Elu", [X], [], {"alpha": 1.5}, [7, 22, 24], "elu"),
    ("Selu", [X], [], {}, [7, 22, 24], "selu"),
    ("Celu", [X], [], {"alpha": 0.5}, [12, 24], "celu"),
    ("ThresholdedRelu", [X], [], {}, [10, 22, 24], "thresholded_relu"),
    ("ThresholdedRelu", [X], [], {"alpha": -0.25}, [10, 22, 24], "thresholded_relu"),
]


@pytest.mark.parametrize("case", NODES, ids=lambda case: f"{case[0]}-{case[-1]}")
def test_a_node_comes_back_as_it_was(case: tuple[str, list[Array | None], list[int], dict[str, Any], list[int], str]) -> None:
    op_type, operands, constants, attributes, opsets, root = case
    given = {f"v{position}": a for position, a in enumerate(operands) if a is not None}
    for opset in opsets:
        model = node_model(op_type, operands, constants, opset, **attributes)
        term = term_of(model)
        assert term.op == root
        (expected,) = Session(model, Device(), optimize=False).run(
            {n: a for p, (n, a) in enumerate(given.items()) if p not in constants}
        )
        np.testing.assert_allclose(evaluated(given, term)[0], expected, rtol=2e-5, atol=1e-6)
        lowered = lower({"out": term}, opset)
        assert [node.op_type for node in lowered.nodes] == [op_type]
        np.testing.assert_allclose(ran(lowered, {"out": term}, given, opset)[0], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("bounds", "root"),
    [
        *(((low, high), "clip") for low in (None, 0.0, -0.5) for high in (None, 0.5, 6.0)),
        ((-np.inf, np.inf), "var"),
        ((0.0, np.inf), "relu"),
        ((0.5, np.inf), "maximum"),
        ((-np.inf, 0.5), "minimum"),
    ],
)
def test_a_clip_is_a_maximum_or_minimum_only_if_a_bound_is_infinite(
    bounds: tuple[float | None, float | None], root: str
) -> None:
    kept = {name: b for name, b in zip(("min", "max"), bounds, strict=True) if b is not None}
    arrays = [None if b is None else number(b) for b in bounds]
    inputs = node_model("Clip", [X, *arrays], [p for p in (1, 2) if bounds[p - 1] is not None], 13)
    for model, opset in ((node_model("Clip", [X], [], 10, **kept), 10), (inputs, 13)):
        term = term_of(model)
        assert term.op == root
        infinite = X.copy()
        infinite.flat[:2] = np.inf, -np.inf
        (expected,) = Session(model, Device(), optimize=False).run({"v0": infinite})
        lowered = lower({"out": term}, opset)
        assert len(lowered.nodes) == 1
        np.testing.assert_array_equal(ran(lowered, {"out": term}, {"v0": infinite}, opset)[0], expected)


@pytest.mark.parametrize("by", [3.0, 49.0, 107.0, 1.1, -7.0, 0.1, 3e30])
def test_a_division_by_a_number_stays_a_division(by: float) -> None:
    divisor = np.array(by, np.float32)
    x = np.arange(1, 65, dtype=np.float32)[None] * divisor
    model = node_model("Div", [x, divisor], [1], 13)
    term = term_of(model)
    lowered = lower({"out": term}, 13)
    assert [node.op_type for node in lowered.nodes] == ["Div"]
    (expected,) = Session(model, Device(), optimize=False).run({"v0": x})
    np.testing.assert_array_equal(ran(lowered, {"out": term}, {"v0": x}, 13)[0], expected)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize(("factor", "op_type"), [(0.1, "Mul"), (1 / 3, "Mul"), (0.125, "Mul"), (Fraction(1, 3), "Div")])
def test_only_a_fraction_that_no_float_equals_is_a_division(factor: float | Fraction, op_type: str, kind: str) -> None:
    term = apply("scale", variable("x", (2, 3)), factor=factor)
    assert [node.op_type for node in lower({"out": term}, 13, dtype=np.dtype(kind)).nodes] == [op_type]


@pytest.mark.parametrize(
    ("factor", "kind"),
    [(1e-8, "float16"), (1e6, "float16"), (1e-50, "float32"), (1e60, "float32"), (Fraction(10) ** 400, "float64")],
)
def test_a_number_that_the_type_does_not_have_is_not_written(factor: float | Fraction, kind: str) -> None:
    with pytest.raises(ShapeError, match=f"the type {kind} cannot represent"):
        lower({"out": apply("scale", variable("x", (2, 3)), factor=factor)}, 13, dtype=np.dtype(kind))


OPAQUE: list[tuple[str, list[Array | None], list[int], dict[str, Any], int]] = [
    ("Pow", [POSITIVE, POSITIVE], [], {}, 13),
    ("Pow", [number(2), X], [0], {}, 13),
    ("Clip", [X, number(-1), number(1)], [], {}, 13),
    ("Clip", [X, number(2), number(1)], [1, 2], {}, 13),
    ("Celu", [X], [], {"alpha": -0.5}, 12),
    ("Div", [X, number(0)], [1], {}, 13),
]


@pytest.mark.parametrize("case", OPAQUE, ids=lambda case: case[0])
def test_a_node_outside_the_bindings_stays_opaque(case: tuple[str, list[Array | None], list[int], dict[str, Any], int]) -> None:
    op_type, operands, constants, attributes, opset = case
    with pytest.raises(KeyError):
        term_of(node_model(op_type, operands, constants, opset, **attributes))


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@settings(max_examples=20)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4), count=st.integers(2, 5), opset=st.sampled_from([7, 8, 13, 22])
)
def test_the_largest_of_many_is_one_node(name: str, shape: list[int], count: int, opset: int) -> None:
    term = apply(name, *(variable(f"x{position}", tuple(shape)) for position in range(count)))
    arrays = arrays_for(term)
    lowered = lower({"out": term}, opset)
    assert len(lowered.nodes) == 1
    np.testing.assert_array_equal(ran(lowered, {"out": term}, arrays, opset)[0], evaluated(arrays, term)[0])


# ---------------------------------------------------------------- attributes and numbers


def test_an_attribute_says_the_fraction_that_float32_rounds() -> None:
    for fraction in (Fraction(1, 6), Fraction(1, 5), Fraction(1, 100), Fraction(-7, 3), Fraction(1, 2)):
        assert fraction_of(float(np.float32(fraction))) == fraction
    for exact in (math.sqrt(0.5), 1.6732631921768188, 1e-5, math.inf):
        assert fraction_of(exact) == exact
    term = term_of(node_model("HardSigmoid", [X], [], 13, alpha=1 / 6, beta=0.5))
    assert term["alpha"] == Fraction(1, 6)
    alpha = dict(lower({"out": term}, 13).nodes[0].attributes)["alpha"]
    assert isinstance(alpha, float)
    assert np.float32(alpha) == np.float32(1 / 6)


LARGE = np.array([-1e4, -800.0, -40.0, -1e-9, 0.0, 1e-9, 40.0, 800.0, 1e4])
LIMITS: Mapping[str, tuple[list[float], list[float]]] = {
    "sigmoid": ([0, 0, math.exp(-40)], [1, 1, 1]),
    "tanh": ([-1, -1, -1], [1, 1, 1]),
    "softplus": ([0, 0, math.exp(-40)], [40, 800, 1e4]),
    "silu": ([0, 0, -40 * math.exp(-40)], [40, 800, 1e4]),
    "mish": ([0, 0, -40 * math.exp(-40)], [40, 800, 1e4]),
    "gelu": ([0, 0, 0], [40, 800, 1e4]),
    "gelu_tanh": ([0, 0, 0], [40, 800, 1e4]),
    "elu": ([-1, -1, -1], [40, 800, 1e4]),
}


@pytest.mark.parametrize("name", LIMITS)
def test_float64_is_right_far_from_zero(name: str) -> None:
    with np.errstate(over="ignore"):
        found = evaluate_operator(name, (LARGE,), dict(apply(name, variable("x", (9,))).attributes), Floats())
    below, above = LIMITS[name]
    np.testing.assert_allclose(found[[0, 1, 2, 6, 7, 8]], [*below, *above], rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose((found[5] - found[3]) / 2e-9, _slope(name), rtol=1e-6)


def _slope(name: str) -> float:
    """Return the derivative at zero."""
    return {"sigmoid": 0.25, "tanh": 1.0, "softplus": 0.5, "mish": 0.6, "elu": 1.0}.get(name, 0.5)


# ---------------------------------------------------------------- several nodes together


def rewritten(text: str) -> tuple[ModelProto, ModelProto]:
    """Parse a model in ONNX's text form, and return it with the model that its terms lower to."""
    model = parser.parse_model(text)
    onnx.checker.check_model(model, full_check=True)
    opset = model.opset_import[0].version
    graph = onnx.shape_inference.infer_shapes(model).graph
    source = ir.from_proto(helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version))
    terms = {v.name: term for v, term in lifted(source.graph, opset).items()}
    wanted = {v.name: terms[v.name] for v in model.graph.output}
    values = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    lowered = lower(wanted, opset, constant=lambda term: fold([term], values)[term])
    inputs = [variable(v.name, tuple(d.dim_value for d in v.type.tensor_type.shape.dim)) for v in model.graph.input]
    made = lowered_model_proto(lowered, inputs, wanted, opset)
    read = {name for node in made.graph.node for name in node.input}
    made.graph.initializer.extend(i for i in model.graph.initializer if i.name in read)
    return model, made


def op_types(model: ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


HEADER = '<ir_version: 8, opset_import: ["": {opset}]> agraph (float[2, 3, 8] x) => (float[2, 3, 8] y) '
LAYER_NORM = (
    HEADER.format(opset=17)
    + """
    <float two = {2.0}, float eps = {0.00001}, float[8] gamma = {1, 2, 3, 4, 5, 6, 7, 8},
     float[8] beta = {8, 7, 6, 5, 4, 3, 2, 1}> {
    m = ReduceMean <axes = [-1], keepdims = 1> (x)
    d = Sub (x, m)
    p = Pow (d, two)
    v = ReduceMean <axes = [-1], keepdims = 1> (p)
    e = Add (v, eps)
    s = Sqrt (e)
    q = Div (d, s)
    g = Mul (q, gamma)
    y = Add (g, beta)
}"""
)
GELU = (
    HEADER.format(opset=17)
    + """
    <float root = {1.4142135381698608}, float one = {1.0}, float half = {0.5}> {
    d = Div (x, root)
    e = Erf (d)
    s = Add (e, one)
    p = Mul (x, s)
    y = Mul (p, half)
}"""
)
SWISH = (
    HEADER.format(opset=17)
    + """{
    s = Sigmoid (x)
    y = Mul (x, s)
}"""
)
SOFTMAX = (
    HEADER.format(opset=17)
    + """{
    e = Exp (x)
    s = ReduceSum <keepdims = 1> (e)
    y = Div (e, s)
}"""
)


@pytest.mark.parametrize("text", [LAYER_NORM, GELU, SWISH, SOFTMAX], ids=["layer norm", "gelu", "swish", "softmax"])
def test_a_model_that_nothing_rewrote_keeps_its_nodes_and_what_onnx_runtime_fuses(text: str, tmp_path: Any) -> None:
    before, after = rewritten(text)
    assert op_types(after) == op_types(before)
    fused = []
    for position, model in enumerate((before, after)):
        path = tmp_path / f"{position}.onnx"
        session = Session(model, Device(), saved=path)
        fused.append((op_types(onnx.load(path)), session.run({"x": X.repeat(2, axis=2)})[0]))
    assert fused[0][0] == fused[1][0]
    np.testing.assert_allclose(fused[0][1], fused[1][1], rtol=1e-5, atol=1e-6)


def test_a_quotient_is_one_division_where_its_reciprocal_has_no_other_use() -> None:
    x, y, z = (variable(name, (2, 3)) for name in "xyz")
    w = variable("w", (2, 3), constant=True)
    inverse = apply("reciprocal", y)

    def written(*terms: Term) -> list[str]:
        return [node.op_type for node in lower({f"o{p}": t for p, t in enumerate(terms)}, 17).nodes]

    assert written(apply("mul", x, inverse)) == ["Div"]
    assert written(apply("mul", x, z, inverse)) in (["Div", "Mul"], ["Mul", "Div"])
    assert written(apply("mul", inverse, apply("reciprocal", z))) == ["Reciprocal", "Div"]
    assert sorted(written(apply("mul", x, inverse), apply("add", z, inverse))) == ["Add", "Mul", "Reciprocal"]
    assert sorted(written(apply("mul", x, inverse), inverse)) == ["Mul", "Reciprocal"]
    assert written(apply("scale", inverse, factor=3)) == ["Div"]
    assert written(apply("add", x, apply("scale", y, factor=-1))) == ["Sub"]
    assert written(apply("mul", x, apply("reciprocal", w))) in (["Reciprocal", "Mul"], ["Div"])


def test_numbers_are_broadcast_and_not_stored_at_every_position() -> None:
    x = variable("x", (64, 64))
    lowered = lower({"out": apply("add", x, apply("scale", apply("ones", shape=(64, 64)), factor=3))}, 17)
    assert [a.size for a in lowered.initializers.values()] == [1]
    assert [node.op_type for node in lowered.nodes] == ["Add"]
