"""Lifting of ONNX nodes to terms, lowering of terms to ONNX nodes, and round trips, each compared with ONNX Runtime."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from superopt.algebra.operators import apply, operator
from superopt.algebra.terms import Term, subterms, variable
from superopt.algebra.traits import is_elementwise
from superopt.errors import ShapeError
from superopt.model.fold import fold
from superopt.model.lower import lower
from superopt.model.operands import merge_constants
from superopt.protobuf.nodes import Lowered, lowered_model_proto
from superopt.runtime.session import Device, Session
from tests.operator_cases import WITH_OPERANDS, Array, applications, arrays_for, evaluated, lifted, ran

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
OPSETS = [7, 9, 10, 11, 13, 15, 18, 21]
NEWEST = 26


def _floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def _integers(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


class OneNode:
    """A model of one node. The arrays in `constants` are initializers, and the other operands are inputs."""

    def __init__(
        self,
        op_type: str,
        operands: Sequence[Array | None],
        *,
        opset: int,
        constants: Sequence[int],
        outputs: int,
        **attributes: Any,
    ) -> None:
        names = [f"v{position}" if a is not None else "" for position, a in enumerate(operands)]
        given_arrays = {name: a for name, a in zip(names, operands, strict=True) if a is not None}
        weights = {names[position] for position in constants}
        self.feeds = {name: a for name, a in given_arrays.items() if name not in weights}
        self.results = [f"r{position}" for position in range(outputs)]
        graph = helper.make_graph(
            [helper.make_node(op_type, names, self.results, **attributes)],
            "one",
            [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                for n, a in self.feeds.items()
            ],
            [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in self.results],
            [numpy_helper.from_array(given_arrays[name], name) for name in sorted(weights)],
        )
        imports = [helper.make_opsetid("", opset)]
        self.proto = helper.make_model(graph, opset_imports=imports, ir_version=max(4, helper.find_min_ir_version_for(imports)))
        self.arrays, self.opset = given_arrays, opset

    def lifted(self) -> list[Term] | None:
        model = ir.from_proto(self.proto)
        terms = lifted(model.graph, self.opset)
        found = [terms[v] for v in model.graph.outputs if v in terms]
        return found or None

    def computed(self) -> list[Array]:
        return Session(self.proto, Device(), optimize=False).run(self.feeds)


X, IMAGE, KERNEL, BIAS = _floats(2, 3, 4), _floats(2, 4, 7, 6), _floats(6, 2, 3, 2), _floats(6)
CHANNELS = [_floats(4) for _ in range(3)] + [np.abs(_floats(4)) + np.float32(0.5)]

# op type, operands, positions of constant operands, number of outputs, attributes, opsets
BOUND: list[tuple[str, list[Array | None], list[int], int, dict[str, Any], list[int]]] = [
    ("Add", [X, _floats(4)], [], 1, {}, OPSETS),
    ("Add", [_floats(3, 1), X], [0], 1, {}, OPSETS),
    ("Add", [_floats(3, 1), _floats(1, 4)], [], 1, {}, OPSETS),
    ("Add", [X, _floats(1)], [1], 1, {}, OPSETS),
    ("Add", [X, np.array(2, np.float32)], [1], 1, {}, OPSETS),
    ("Sum", [X, _floats(3, 4), _floats(4)], [], 1, {}, [8, 13]),
    ("Sum", [X], [], 1, {}, [8, 13]),
    ("Sub", [_floats(4), X], [], 1, {}, OPSETS),
    ("Sub", [_floats(4), _floats(3, 1)], [], 1, {}, OPSETS),
    ("Mul", [X, _floats(3, 4)], [], 1, {}, OPSETS),
    ("Mul", [X, _floats(1)], [1], 1, {}, OPSETS),
    ("Mul", [_floats(), X], [0], 1, {}, OPSETS),
    ("Div", [X, np.array([-4], np.float32)], [1], 1, {}, OPSETS),
    ("Neg", [X], [], 1, {}, OPSETS),
    ("Relu", [X], [], 1, {}, OPSETS),
    ("Identity", [X], [], 1, {}, OPSETS),
    ("Dropout", [X], [], 1, {}, OPSETS),
    ("MatMul", [X, _floats(4, 5)], [], 1, {}, OPSETS),
    ("MatMul", [X, _floats(2, 4, 5)], [], 1, {}, OPSETS),
    ("Gemm", [_floats(2, 3), _floats(3, 4), _floats(4)], [], 1, {}, OPSETS),
    (
        "Gemm",
        [_floats(3, 2), _floats(4, 3), _floats(1, 4)],
        [],
        1,
        {"alpha": 0.5, "beta": -2.0, "transA": 1, "transB": 1},
        OPSETS,
    ),
    ("Gemm", [_floats(2, 3), _floats(3, 4), _floats()], [], 1, {"beta": 0.25}, OPSETS),
    ("Gemm", [_floats(2, 3), _floats(3, 4)], [], 1, {"alpha": 3.0}, [11, 13]),
    ("Concat", [X, _floats(2, 5, 4), _floats(2, 1, 4)], [], 1, {"axis": 1}, OPSETS),
    ("Concat", [X, X], [], 1, {"axis": -1}, [11, 13]),
    ("Slice", [_floats(5, 6)], [], 1, {"starts": [1, -2], "ends": [-1, 100]}, [7, 9]),
    ("Slice", [_floats(5, 6), _integers(1, -2), _integers(-1, 2**40)], [1, 2], 1, {}, [10, 13]),
    ("Slice", [_floats(5, 6), _integers(2), _integers(4), _integers(-1), _integers(1)], [1, 2, 3, 4], 1, {}, [10, 13]),
    ("Slice", [_floats(5, 6), _integers(0), _integers(6), _integers(1)], [1, 2, 3], 1, {}, [10, 13]),
    ("Split", [_floats(5, 6)], [], 3, {"axis": 1}, [7, 11, 13]),
    ("Split", [_floats(5, 6)], [], 2, {"axis": 0, "split": [2, 3]}, [7, 11]),
    ("Split", [_floats(5, 6), _integers(1, 4)], [1], 2, {"axis": -2}, [13, 18]),
    ("Split", [_floats(5, 6)], [], 2, {"num_outputs": 2}, [18, 21]),
    ("Transpose", [X], [], 1, {}, OPSETS),
    ("Transpose", [X], [], 1, {"perm": [1, 2, 0]}, OPSETS),
    ("Expand", [_floats(3, 1), _integers(2, 1, 4)], [1], 1, {}, [8, 13]),
    ("Reshape", [X, _integers(0, -1)], [1], 1, {}, OPSETS),
    ("Reshape", [X, _integers(4, 3, 2)], [1], 1, {"allowzero": 1}, [14, 21]),
    ("Flatten", [X], [], 1, {}, OPSETS),
    ("Flatten", [X], [], 1, {"axis": 2}, OPSETS),
    ("Flatten", [X], [], 1, {"axis": 0}, OPSETS),
    ("Squeeze", [_floats(1, 3, 1)], [], 1, {}, OPSETS),
    ("Squeeze", [_floats(1, 3, 1)], [], 1, {"axes": [0]}, [7, 11]),
    ("Squeeze", [_floats(1, 3, 1), _integers(-1)], [1], 1, {}, [13, 21]),
    ("Unsqueeze", [X], [], 1, {"axes": [0, 3]}, [7, 11]),
    ("Unsqueeze", [X, _integers(-1, 0)], [1], 1, {}, [13, 21]),
    ("Pad", [X], [], 1, {"pads": [0, 1, 2, 1, 0, 0], "mode": "constant"}, [7, 9]),
    ("Pad", [X, _integers(0, 1, 2, 1, 0, 0)], [1], 1, {}, [11, 18]),
    ("Pad", [X, _integers(1, 2), np.zeros((), np.float32), _integers(-1)], [1, 2, 3], 1, {}, [18, 21]),
    ("Pad", [X], [], 1, {"pads": [0, 1, 2, 1, 0, 0], "mode": "reflect"}, [7, 9]),
    ("Pad", [X, _integers(0, 0, 2, 0, 2, 3)], [1], 1, {"mode": "reflect"}, [11, 18]),
    ("Conv", [IMAGE, KERNEL], [], 1, {"group": 2}, OPSETS),
    (
        "Conv",
        [IMAGE, KERNEL, BIAS],
        [1, 2],
        1,
        {"group": 2, "strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2]},
        OPSETS,
    ),
    ("Conv", [IMAGE, KERNEL, BIAS], [2], 1, {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 3]}, OPSETS),
    ("Conv", [IMAGE, KERNEL, BIAS], [2], 1, {"group": 2, "auto_pad": "SAME_LOWER", "strides": [3, 1]}, OPSETS),
    ("Conv", [IMAGE, KERNEL, BIAS], [2], 1, {"group": 2, "auto_pad": "VALID"}, OPSETS),
    ("BatchNormalization", [IMAGE, *CHANNELS], [1, 2, 3, 4], 1, {"epsilon": 0.25}, OPSETS),
    ("BatchNormalization", [IMAGE, *CHANNELS], [1, 2, 3, 4], 1, {}, OPSETS),
    ("BatchNormalization", [_floats(5, 4), *CHANNELS], [1, 2, 3, 4], 1, {"epsilon": 0.5}, [9, 15]),
    ("AveragePool", [IMAGE], [], 1, {"kernel_shape": [3, 2], "pads": [1, 1, 0, 1], "strides": [2, 1]}, OPSETS),
    ("AveragePool", [IMAGE], [], 1, {"kernel_shape": [3, 2], "pads": [1, 1, 0, 1], "count_include_pad": 1}, OPSETS),
    ("AveragePool", [IMAGE], [], 1, {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}, OPSETS),
    ("AveragePool", [IMAGE], [], 1, {"kernel_shape": [3, 2], "ceil_mode": 1, "strides": [2, 2]}, [10, 18]),
    ("MaxPool", [IMAGE], [], 1, {"kernel_shape": [3, 2], "pads": [1, 0, 2, 1], "strides": [2, 2]}, OPSETS),
    ("MaxPool", [IMAGE], [], 1, {"kernel_shape": [3, 2], "dilations": [2, 3]}, [10, 12]),
    ("MaxPool", [IMAGE], [], 1, {"kernel_shape": [3, 2], "ceil_mode": 1, "strides": [2, 2]}, [10, 12]),
    ("GlobalAveragePool", [IMAGE], [], 1, {}, OPSETS),
    ("ReduceSum", [X], [], 1, {}, OPSETS),
    ("ReduceSum", [X], [], 1, {"axes": [-1, 0], "keepdims": 0}, [7, 11]),
    ("ReduceSum", [X, _integers(1)], [1], 1, {"keepdims": 1}, [13, 18]),
    ("ReduceSum", [X], [], 1, {"noop_with_empty_axes": 1}, [13, 18]),
    ("ReduceMean", [IMAGE], [], 1, {"axes": [3, 2]}, [7, 13]),
    ("ReduceMean", [IMAGE, _integers(-1, -2)], [1], 1, {"keepdims": 0}, [18, 21]),
]


@pytest.mark.parametrize("case", BOUND, ids=lambda case: f"{case[0]}-{len(case[1])}")
def test_a_node_lifts_to_what_it_computes_and_back(case: Any) -> None:
    op_type, operands, constants, outputs, attributes, opsets = case
    for opset in opsets:
        node = OneNode(op_type, operands, opset=opset, constants=constants, outputs=outputs, **attributes)
        terms, expected = node.lifted(), node.computed()
        assert terms is not None, opset
        assert len(terms) == outputs
        for term, value, array in zip(terms, evaluated(node.arrays, *terms), expected, strict=True):
            assert term.sizes == array.shape
            np.testing.assert_allclose(value, array, rtol=1e-4, atol=1e-5)
        wanted = {f"w{position}": term for position, term in enumerate(terms)}
        for found, array in zip(ran(lower(wanted, opset), wanted, node.arrays, opset), expected, strict=True):
            np.testing.assert_allclose(found, array, rtol=1e-4, atol=1e-5)


OPAQUE: list[tuple[str, list[Array | None], list[int], int, dict[str, Any], int]] = [
    ("Add", [X, _floats(4)], [], 1, {}, 6),
    ("Add", [_integers(1, 2), _integers(3, 4)], [], 1, {}, 13),
    ("Mul", [_floats(4), _floats(1, 1)], [1], 1, {}, 13),
    ("Div", [X, np.zeros((), np.float32)], [1], 1, {}, 13),
    ("Slice", [_floats(5, 6), _integers(0), _integers(6)], [], 1, {}, 13),
    ("Slice", [_floats(5, 6), _integers(3), _integers(3)], [1, 2], 1, {}, 13),
    ("Reshape", [X, _integers(6, 4)], [], 1, {}, 13),
    ("Pad", [X], [], 1, {"pads": [0, 1, 2, 1, 0, 0], "mode": "edge"}, 9),
    ("Pad", [X, _integers(0, 1, 2, 1, 0, 0), np.array(np.inf, np.float32)], [1, 2], 1, {}, 13),
    ("Pad", [X, _integers(0, -1, 0, 0, 0, 0)], [1], 1, {}, 13),
    ("Conv", [_floats(1, 2, 4, 4, 4), _floats(3, 2, 2, 2, 2)], [], 1, {}, 13),
    ("AveragePool", [IMAGE], [], 1, {"kernel_shape": [2, 2], "dilations": [2, 1]}, 19),
    ("AveragePool", [IMAGE], [], 1, {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": 1}, 13),
    ("MaxPool", [IMAGE], [], 2, {"kernel_shape": [2, 2]}, 13),
    ("MaxPool", [IMAGE], [], 1, {"kernel_shape": [3, 3], "dilations": [2, 1], "auto_pad": "SAME_UPPER"}, 13),
    ("BatchNormalization", [IMAGE, *CHANNELS], [], 1, {}, 13),
    ("BatchNormalization", [IMAGE, *CHANNELS], [1, 2, 3, 4], 1, {"training_mode": 1}, 15),
    ("Dropout", [X], [], 2, {}, 13),
]


@pytest.mark.parametrize("case", OPAQUE, ids=lambda case: f"{case[0]}-{case[5]}")
def test_a_node_outside_the_bindings_stays_opaque(case: Any) -> None:
    op_type, operands, constants, outputs, attributes, opset = case
    assert OneNode(op_type, operands, opset=opset, constants=constants, outputs=outputs, **attributes).lifted() is None


def test_values_of_unknown_shape_and_other_domains_stay_opaque() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Relu", ["k"], ["z"], domain="com.example")],
        "open",
        [helper.make_tensor_value_info("x", 1, ["n", 3]), helper.make_tensor_value_info("k", 1, [2, 3])],
        [helper.make_tensor_value_info("y", 1, ["n", 3]), helper.make_tensor_value_info("z", 1, [2, 3])],
    )
    model = ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)])
    )
    assert lifted(model.graph, 17) == {}


def test_an_initializer_that_an_input_overrides_is_no_constant() -> None:
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "s"], ["y"])],
        "overridable",
        [helper.make_tensor_value_info("x", 1, [2, 3]), helper.make_tensor_value_info("s", 1, [1])],
        [helper.make_tensor_value_info("y", 1, [2, 3])],
        [numpy_helper.from_array(np.ones(1, np.float32), "s")],
    )
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    (term,) = lifted(model.graph, 17).values()
    assert term.op == "mul"
    assert not any(t.constant for t in subterms(term))


@pytest.mark.parametrize(("bias", "known"), [(np.zeros(3), True), (np.ones(3), False), (np.array([0.0, 1.0, 0.0]), False)])
def test_a_weight_of_zeros_is_known_to_be(bias: Array, known: bool) -> None:
    operands = (_floats(2, 3), bias.astype(np.float32))
    term = OneNode("Add", operands, opset=17, constants=(1,), outputs=1).lifted()
    assert term is not None
    assert any(t.op == "zeros" for t in subterms(*term)) == known


# ---------------------------------------------------------------- round trips


OF_CONSTANTS = (
    "channel_affine",
    "gather",
    "one_hot",
    "gru",
    "lstm",
    "rnn",
)  # ONNX needs constants of a model here, but an operand of a single term is no constant
WITH_MASKS = ("grouped_query_attention", "scaled_dot_product_attention")  # ONNX has one mask, these have two
ROUND_TRIPS = [name for name in WITH_OPERANDS if operator(name).onnx and name not in (*OF_CONSTANTS, *WITH_MASKS)]


def _comes_back(term: Term) -> bool:
    """Return whether the lowered term lifts to the same term.

    For example, lifting leaves out axes of extent 1 under an `expand`.
    """
    if term.op == "upsample" and 1 in (term["rows"], term["columns"]):
        return False
    if term.op in ("expand", "slice", "reshape", "pad", "reflect", "stride", "tile", "repeat"):
        return term.shape != term.args[0].shape and all(n > 1 for x in (term, *term.args) for n in x.sizes)
    if term.op == "rotary_embedding":
        return term.args[2].sizes[0] >= term.sizes[-2]
    return term.op != "lookup" or term.args[1].rank == term.args[0].rank - 1


def _as_stored(term: Term) -> Term:
    """Return the term with conditions for the variables that lower to booleans, and positions for those that lower to
    integers.
    """
    if term.op in ("lookup", "rotary_embedding"):
        operands = [x if x.name != "y" else variable("y", x.shape, position=64) for x in term.args]
        return apply(term.op, *operands, **dict(term.attributes))
    cast = {node.inputs[0] for node in lower({"out": term}, NEWEST).nodes if node.op_type == "Cast"}
    operands = [variable(x.name, x.shape, condition=x.name in cast) for x in term.args]
    return apply(term.op, *operands, **dict(term.attributes))


@pytest.mark.parametrize("name", ROUND_TRIPS)
@settings(max_examples=25)
@given(data=st.data())
def test_lifting_what_was_lowered_gives_the_term(name: str, data: st.DataObject) -> None:
    term = _as_stored(data.draw(applications(name).filter(_comes_back)))
    model = ir.from_proto(lowered_model_proto(lower({"out": term}, NEWEST), set(term.args), {"out": term}, NEWEST))
    terms = lifted(model.graph, NEWEST)
    assert {v.name: t for v, t in terms.items()}["out"] is term


@settings(max_examples=60)
@given(seed=st.integers(0, 2**20), opset=st.sampled_from(OPSETS))
def test_terms_of_several_operators_lower_to_what_they_mean(seed: int, opset: int) -> None:
    outputs = _network(np.random.default_rng(seed))
    arrays = arrays_for(*outputs.values(), seed=seed)
    values = {name: a for name, a in arrays.items() if name.startswith("w")}
    lowered = lower(outputs, opset, constant=lambda term: fold([term], values)[term])
    for found, expected in zip(ran(lowered, outputs, arrays, opset), evaluated(arrays, *outputs.values()), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def _network(rng: np.random.Generator) -> dict[str, Term]:
    """Return a few random layers over one image, each on the result of a random earlier layer.

    Layers share results, and there may be two outputs.
    """
    made = [variable("x", (1, 4, 6, 6))]
    for layer in range(6):
        x = made[rng.integers(len(made))]
        made.append(LAYERS[rng.integers(len(LAYERS))](x, str(layer)))
    return {f"out{position}": made[i] for position, i in enumerate(sorted({len(made) - 1, int(rng.integers(1, len(made)))}))}


def _bias(x: Term, layer: str) -> Term:
    return apply("expand", variable(f"wb{layer}", (x.sizes[1],), constant=True), shape=x.shape, axes=(-3,))


def _conv(x: Term, layer: str) -> Term:
    kernel = variable(f"wk{layer}", (4, 4, 3, 3), constant=True)
    return apply("conv", x, apply("scale", apply("add", kernel, kernel), factor=0.25), pads=(1, 1, 1, 1))


LAYERS: list[Callable[[Term, str], Term]] = [
    _conv,
    lambda x, layer: apply("add", _conv(x, layer), _bias(x, layer)),
    lambda x, layer: apply("add", _conv(x, layer), _bias(x, layer), _bias(x, layer + "b"), x),
    lambda x, layer: apply("mul", x, _bias(x, layer)),
    lambda x, layer: apply("add", apply("mul", x, _bias(x, layer)), _bias(x, layer + "b")),
    lambda x, layer: apply("relu", x),
    lambda x, layer: apply("add", x, apply("relu", x), apply("scale", x, factor=0.5)),
    lambda x, layer: apply("sub", x, _bias(x, layer)),
    lambda x, layer: apply(
        "concat",
        apply("slice", x, axis=1, start=1, stop=4),
        apply("relu", apply("slice", x, axis=1, start=0, stop=1)),
        axis=1,
    ),
    lambda x, layer: apply("avg_pool", x, kernel=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1)),
]


# ---------------------------------------------------------------- lowered forms of terms


def _op_types(lowered: Lowered) -> list[str]:
    return [node.op_type for node in lowered.nodes]


def _zeros(term: Term) -> Array:
    array: Array = np.zeros(term.sizes, np.float32)
    return array


def test_a_bias_goes_into_its_convolution_unless_the_bare_result_is_wanted_too() -> None:
    x, w = variable("x", (1, 4, 6, 6)), variable("w", (4, 4, 3, 3), constant=True)
    conv = apply("conv", x, w)
    biased = apply("add", conv, _bias(conv, "0"))
    shared = apply("add", biased, apply("relu", conv))
    assert _op_types(lower({"y": biased}, 17, constant=_zeros)) == ["Conv"]
    assert _op_types(lower({"y": biased, "z": conv}, 17, constant=_zeros)) == ["Conv", "Add"]
    assert _op_types(lower({"y": shared}, 17, constant=_zeros)) == ["Conv", "Relu", "Add", "Add"]


def test_scale_and_shift_per_channel_are_one_node() -> None:
    x = variable("x", (1, 4, 6, 6))
    normalized = apply("add", apply("mul", x, _bias(x, "s")), _bias(x, "t"))
    lowered = lower({"y": normalized}, 17, constant=_zeros)
    assert _op_types(lowered) == ["BatchNormalization"]
    assert dict(lowered.nodes[0].attributes)["epsilon"] == 0


def test_several_scales_and_a_computed_shift_per_channel_are_one_node_with_rows_for_weights() -> None:
    x = variable("x", (1, 4, 6, 6))
    s, r, t = (_bias(x, name) for name in "srt")
    normalized = apply("add", apply("mul", s, x, r), apply("mul", r, apply("sub", t, s)))
    lowered = lower({"y": normalized}, 17, constant=_zeros)
    assert _op_types(lowered) == ["BatchNormalization"]
    assert {a.shape for a in lowered.initializers.values()} == {(4,)}


def test_a_product_with_what_is_no_constant_of_a_channel_is_no_normalization() -> None:
    x = variable("x", (1, 4, 6, 6))
    whole = variable("w", x.shape, constant=True)
    for factors in ((x, whole), (x, x, _bias(x, "s")), (_bias(x, "s"), _bias(x, "r"), whole)):
        shifted = apply("add", apply("mul", *factors), _bias(x, "t"), x)
        assert "BatchNormalization" not in _op_types(lower({"y": shifted}, 17, constant=_zeros))


def test_a_row_goes_into_gemm_at_rank_2_only() -> None:
    b = variable("b", (5,), constant=True)
    for shape, expected in (((3, 4), ["Gemm"]), ((2, 3, 4), ["MatMul", "Add"])):
        product = apply("matmul", variable("x", shape), variable("w", (4, 5), constant=True))
        assert (
            _op_types(lower({"y": apply("add", product, apply("expand", b, shape=product.shape, axes=(-1,)))}, 17)) == expected
        )


def test_parts_of_a_sum_that_are_wanted_anyway_are_not_computed_again() -> None:
    x, y, z = (variable(name, (2, 2)) for name in "xyz")
    part = apply("add", x, z)
    lowered = lower({"all": apply("add", x, y, z), "part": part}, 17)
    assert len(lowered.nodes) == 2
    assert [set(node.inputs) for node in lowered.nodes] == [{"x", "z"}, {"part", "y"}]


def test_constants_of_a_sum_are_combined_first() -> None:
    x = variable("x", (1, 4, 6, 6))
    total = apply("add", _bias(x, "0"), x, _bias(x, "1"))
    lowered = lower({"y": total}, 17, constant=_zeros)
    assert _op_types(lowered) == ["Add"]
    assert [a.shape for a in lowered.initializers.values()] == [(4, 1, 1)]


def test_a_sum_of_constants_alone_is_left_as_it_is() -> None:
    """The shape of such a sum may be dynamic. The operands are then nodes, and no weight can hold the sum."""
    c, d = variable("c", (3,), constant=True), variable("d", (3,), constant=True)
    assert merge_constants("add", [c, d]) == [c, d]
    assert merge_constants("add", [c, d, variable("x", (3,))]) == [variable("x", (3,)), apply("add", c, d)]


def test_a_constant_spread_along_axes_stays_small_under_reshapes_by_unit_axes() -> None:
    c = variable("c", (4,), constant=True)
    spread = apply("reshape", apply("expand", c, shape=(4, 6, 5), axes=(-3,)), shape=(1, 4, 1, 6, 5))
    assert merge_constants("add", [spread, variable("x", spread.shape)])[-1] is apply(
        "expand", apply("reshape", c, shape=(4,)), shape=spread.shape, axes=(-4,)
    )


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_an_operand_and_its_function_are_multiplied_first(order: tuple[int, ...]) -> None:
    x, y = variable("x", (2, 2)), variable("y", (2, 2))
    operands = x, apply("sigmoid", x), y
    product = apply("mul", *(operands[i] for i in order), variable("w", (2, 2), constant=True))
    first, *others = (node for node in lower({"product": product}, 17).nodes if node.op_type == "Mul")
    assert len(others) == 2
    assert "x" in first.inputs
    assert not {"y", "w"} & {*first.inputs}


def test_slices_that_tile_an_axis_are_one_split() -> None:
    x = variable("x", (2, 6))
    parts = [apply("slice", x, axis=1, start=a, stop=b) for a, b in ((2, 5), (0, 2), (5, 6))]
    names = {f"p{position}": part for position, part in enumerate(parts)}
    lowered = lower(names, 17)
    assert [(n.op_type, n.outputs) for n in lowered.nodes] == [("Split", ("p1", "p0", "p2"))]
    del names["p2"]
    assert _op_types(lower(names, 17)) == ["Slice", "Slice"]


def test_concatenations_are_one_node_where_the_inner_one_is_not_wanted() -> None:
    x, y, z = (variable(name, (2, 2)) for name in "xyz")
    inner = apply("concat", y, z, axis=1)
    outer = apply("concat", x, inner, axis=1)
    assert [n.inputs for n in lower({"out": outer}, 17).nodes] == [("x", "y", "z")]
    assert len(lower({"out": outer, "inner": inner}, 17).nodes) == 2


def test_reductions_that_keep_their_axes_are_one_node() -> None:
    x = variable("x", (2, 3, 4, 4))
    pooled = apply("reshape", apply("reduce_mean", x, axes=(2, 3)), shape=(2, 3, 1, 1))
    summed = apply("reshape", apply("reduce_sum", x, axes=(1,)), shape=(2, 1, 4, 4))
    assert _op_types(lower({"y": pooled}, 17)) == ["GlobalAveragePool"]
    assert _op_types(lower({"y": summed}, 17)) == ["ReduceSum"]


def test_outputs_that_need_no_node_or_share_one() -> None:
    x, w = variable("x", (2, 2)), variable("w", (2, 2), constant=True)
    negative = apply("scale", x, factor=-1)
    outputs = {"same": x, "a": negative, "b": negative, "weight": apply("relu", w), "one": apply("ones", shape=(2, 2))}
    lowered = lower(outputs, 17, constant=lambda term: np.ones(term.sizes, np.float32))
    assert sorted(_op_types(lowered)) == ["Identity"] * 4 + ["Neg"]
    (first, *_) = ran(lowered, outputs, {"x": np.eye(2, dtype=np.float32), "w": np.eye(2, dtype=np.float32)}, 17)
    np.testing.assert_array_equal(first, np.eye(2))


def test_constants_of_equal_bytes_and_different_shapes_stay_apart() -> None:
    columns, row = apply("ones", shape=(4, 1)), apply("ones", shape=(1, 4))
    outputs = {
        "a": apply("matmul", variable("x", (3, 4)), columns),
        "b": apply("matmul", variable("y", (3, 1)), row),
    }
    arrays = arrays_for(*outputs.values())
    lowered = lower(outputs, NEWEST)
    assert sorted(array.shape for array in lowered.initializers.values()) == [(1, 4), (4, 1)]
    for found, expected in zip(ran(lowered, outputs, arrays, NEWEST), evaluated(arrays, *outputs.values()), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_new_names_carry_the_prefix() -> None:
    x = variable("x", (2, 2))
    lowered = lower({"y": apply("relu", apply("scale", apply("relu", x), factor=2))}, 17, prefix="new/")
    names = {name for node in lowered.nodes for name in (*node.inputs, *node.outputs)} - {"x", "y"}
    assert names
    assert all(name.startswith("new/") for name in names)


def test_what_an_opset_cannot_say_is_refused() -> None:
    x = variable("x", (1, 1, 9, 9))
    dilated = apply("max_pool", x, kernel=(2, 2), strides=(1, 1), pads=(0, 0, 0, 0), dilations=(2, 2))
    with pytest.raises(ShapeError):
        lower({"y": dilated}, 8)
    with pytest.raises(ShapeError):
        lower({"y": apply("relu", apply("expand", variable("b", (3,)), shape=(2, 3), axes=(1,)))}, 7)


# ---------------------------------------------------------------- folding


def test_folding_rounds_once() -> None:
    w = variable("w", (400,), constant=True)
    values = {"w": _floats(400)}
    term = apply("reduce_sum", apply("mul", w, w), axes=(0,))
    exact = float((values["w"].astype(np.float64) ** 2).sum())
    assert fold([term], values)[term].dtype == np.float32
    assert fold([term], values)[term] == np.float32(exact)


def test_what_is_made_of_no_weights_is_folded_in_the_type_asked_for() -> None:
    third = apply("scale", apply("ones", shape=(2,)), factor=Fraction(1, 3))
    assert fold([third], {})[third].dtype == np.float32
    np.testing.assert_array_equal(fold([third], {}, np.float64)[third], np.full(2, 1 / 3))


def test_folding_convolutions_and_constants() -> None:
    w, k = variable("w", (1, 2, 5, 5), constant=True), variable("k", (3, 2, 3, 3), constant=True)
    values = {"w": _floats(1, 2, 5, 5), "k": _floats(3, 2, 3, 3)}
    terms = [apply("conv", w, k), apply("eye", n=3), apply("add", k, apply("ones", shape=k.shape)), w]
    folded = fold(terms, values)
    for term, expected in zip(terms, evaluated(values, *terms), strict=True):
        np.testing.assert_allclose(folded[term], expected, rtol=1e-5, atol=1e-5)
    assert fold([], values) == {}


def test_half_precision_is_folded_in_double() -> None:
    w = variable("w", (64,), constant=True)
    values = {"w": _floats(64).astype(np.float16)}
    term = apply("scale", apply("add", w, w, w), factor=1 / 3)
    assert fold([term], values)[term].dtype == np.float16
    np.testing.assert_array_equal(fold([term], values)[term], values["w"])


def test_half_precision_terms_keep_their_type() -> None:
    x = variable("x", (2, 3))
    outputs = {"y": apply("add", apply("scale", x, factor=0.5), apply("ones", shape=(2, 3)))}
    arrays = {"x": _floats(2, 3).astype(np.float16)}
    (found,) = ran(lower(outputs, 17, dtype=np.float16), outputs, arrays, 17)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, evaluated(arrays, *outputs.values())[0], rtol=1e-2)


def test_every_operator_named_by_a_spec_exists_in_onnx() -> None:
    for name in ROUND_TRIPS:
        for op_type in (known for known in operator(name).onnx if "." not in known):
            onnx.defs.get_schema(op_type, NEWEST)


@pytest.mark.parametrize("name", ["superopt.constant.0", "folded.0", "folded.by.constant.0"])
def test_folding_keeps_apart_what_a_weight_is_called(name: str) -> None:
    weight = variable(name, (2, 3), constant=True)
    term = apply("reshape", apply("scale", weight, factor=2.0), shape=(6,))
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(fold([term], {name: value})[term], 2 * value.reshape(6))


def test_concatenations_inside_each_other_become_one_however_they_nest() -> None:
    a, b, c, d = (variable(name, (2, 3)) for name in "abcd")
    left, right = apply("concat", a, b, axis=-1), apply("concat", c, d, axis=-1)
    lowered = lower({"out": apply("concat", left, right, axis=-1)}, NEWEST)
    assert [(n.op_type, n.inputs) for n in lowered.nodes] == [("Concat", ("a", "b", "c", "d"))]


def test_an_operator_of_operands_of_one_shape_may_be_none_that_is_elementwise() -> None:
    x = [variable(name, (1, 2, 6)) for name in "xyz"]
    attention = apply("multi_head_attention", *x, heads=3, scale=1)
    assert not is_elementwise(attention)
    assert is_elementwise(apply("add", x[0], x[1]))
    assert not is_elementwise(apply("transpose", x[0], perm=(-3, -2, -1)))


def test_reshapes_that_cancel_are_left_out() -> None:
    x = variable("x", (3, 4))
    there = apply("reshape", apply("relu", x), shape=(12,))
    back = apply("reshape", there, shape=(3, 4))
    outputs = {"y": apply("tanh", back)}
    assert [node.op_type for node in lower(outputs, 17).nodes] == ["Relu", "Tanh"]
    assert [node.op_type for node in lower({"y": back}, 17).nodes] == ["Relu", "Reshape"]
    both = {"flat": there, **outputs}
    assert sorted(node.op_type for node in lower(both, 17).nodes) == ["Relu", "Reshape", "Tanh"]


def test_parts_of_a_long_concatenation_are_not_lowered() -> None:
    operands = [variable(f"x{i}", (2, 3)) for i in range(40)]
    joined = reduce(lambda rest, x: apply("concat", x, rest, axis=-1), reversed(operands))
    lowered = lower({"y": joined}, OPSETS[-1])
    assert [node.inputs for node in lowered.nodes] == [tuple(x.name for x in operands)]
    assert len(lowered.shapes) == len(operands) + 1
