"""Values that are quantized later: no rewrite changes their bits, except in the fast mode."""

from __future__ import annotations

import random

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from superopt.model.islands import Chart, Charts
from superopt.model.load import as_model, as_proto, load
from superopt.model.quantized import nodes_before_rounding, nodes_in_integers
from superopt.rules.fp_flags import FpMode
from superopt.rules.store import load_rules
from superopt.runtime.session import Device, Session
from superopt.search.ruleset import RuleSet
from tests.random_models import rewritten_model

QUANTIZE = {
    "QuantizeLinear": "q = QuantizeLinear(s, scale, zero) y = DequantizeLinear(q, scale, zero)",
    "DynamicQuantizeLinear": "q, size, at = DynamicQuantizeLinear(s) y = DequantizeLinear(q, size, at)",
    "Round": "t = Div(s, scale) r = Round(t) y = Mul(r, scale)",
    "Cast": "t = Div(s, scale) r = Cast<to = 3>(t) f = Cast<to = 1>(r) y = Mul(f, scale)",
    "If": """t = Identity(s) c = Less(z, zz)
             y = If(c) <then_branch = a () => (float[8, 16] d) { tq = QuantizeLinear(t, scale, zero)
                                                                  d = DequantizeLinear(tq, scale, zero) },
                        else_branch = b () => (float[8, 16] e) { e = Identity(x) }>""",
}
"""Nodes that round the sum `s` to a grid."""
TAIL = "r = Relu(d) e = Exp(r) l = Sigmoid(e) y = Neg(l)"
SWITCH = {"z": np.zeros((), np.float32), "zz": np.ones((), np.float32)}


def model(body: str, opset: int = 20) -> ModelProto:
    """Return a model of two matrix products of one operand, their sum `s`, and the nodes of `body`."""
    proto = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : {opset}, "com.microsoft" : 1]>
        agraph (float[8, 16] x, float z, float zz) => (float[8, 16] y)
        <float scale = {{0.05}}, int8 zero = {{3}}>
        {{ a = MatMul(x, v) b = MatMul(x, w) s = Add(a, b) {body} }}
    """)
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((16, 16)).astype(np.float32) for name in ("v", "w")}
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return proto


def chart(proto: ModelProto, mode: FpMode = FpMode.RELAXED) -> Chart:
    return Charts(mode).of(as_model(proto))


def inside(proto: ModelProto, mode: FpMode = FpMode.RELAXED) -> set[str]:
    """Return the names of the values that the nodes of the islands compute."""
    return {name for island in chart(proto, mode).islands() for name in island.values}


@pytest.mark.parametrize("body", QUANTIZE.values(), ids=QUANTIZE)
def test_no_island_contains_nodes_before_an_operator_that_rounds(body: str) -> None:
    assert not {"a", "b", "s"} & inside(model(body))
    assert inside(model(body), FpMode.FAST) >= {"a", "b", "s"}
    assert inside(model(body), FpMode.PRECISE) >= {"a", "b", "s"}


def test_islands_contain_nodes_after_the_last_rounding() -> None:
    assert inside(model(f"q = QuantizeLinear(s, scale, zero) d = DequantizeLinear(q, scale, zero) {TAIL}")) == {"e", "l", "y"}


def test_sizes_do_not_depend_on_elements() -> None:
    body = "n = Shape(s) f = Cast<to = 1>(n) g = Round(f) i = Cast<to = 7>(g) y = Reshape(s, i)"
    proto = model(body)
    assert {n.op_type for n in nodes_before_rounding(chart(proto).model.graph)} == {"Cast"}


@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.STRING])
def test_casts_to_positions_and_strings_do_not_quantize(kind: int) -> None:
    proto = model(f"i = Cast<to = {kind}>(s) f = Cast<to = 1>(i) y = Neg(f)")
    assert not nodes_before_rounding(chart(proto).model.graph)


@pytest.mark.parametrize("mode", [FpMode.PRECISE, FpMode.RELAXED])
def test_no_island_contains_nodes_that_may_run_in_integers(mode: FpMode) -> None:
    """ONNX Runtime quantizes the weights of a Conv between a DequantizeLinear and a QuantizeLinear, even across a Relu."""
    body = """
        q = QuantizeLinear(s, scale, zero) d = DequantizeLinear(q, scale, zero) m = MatMul(d, v) r = Relu(m) o = Relu(x)
        f = Add(r, o) g = QuantizeLinear(f, scale, zero) y = DequantizeLinear(g, scale, zero)
    """
    proto = model(body)
    assert {v.name for n in nodes_in_integers(as_model(proto).graph) for v in n.outputs} >= {"m", "r", "f"}
    assert inside(proto, mode) == ({"a", "b", "s", "o"} if mode is FpMode.PRECISE else set())


@pytest.mark.parametrize(("product", "rounds"), [("MatMul", True), ("Gemm", True), ("Add", False)])
def test_no_island_contains_operands_of_products_with_dequantized_weights(product: str, rounds: bool) -> None:
    """ONNX Runtime computes such a product by MatMulNBits, which quantizes the other operand too."""
    proto = model(f"w8 = DequantizeLinear(stored, scale, zero) t = Transpose(w8) p = {product}(s, t) y = Neg(p)", 21)
    stored = np.arange(256).reshape(16, 16).astype(np.int8) if product != "Add" else np.ones((16, 8), np.int8)
    proto.graph.initializer.append(numpy_helper.from_array(stored, "stored"))
    assert ("s" not in inside(proto)) is rounds


@pytest.mark.parametrize(("accuracy", "rounds"), [(None, False), (1, False), (4, True)])
def test_a_product_of_few_bits_may_quantize_its_operand(accuracy: int | None, rounds: bool) -> None:
    proto = model("y = Neg(m)")
    proto.graph.node.insert(
        3,
        helper.make_node(
            "MatMulNBits", ["s", "bits", "scales"], ["m"], domain="com.microsoft", K=16, N=16, bits=4, block_size=16,
            accuracy_level=accuracy,
        ),
    )  # fmt: skip
    proto.graph.value_info.append(helper.make_tensor_value_info("m", TensorProto.FLOAT, [8, 16]))
    proto.graph.initializer.extend(
        [
            numpy_helper.from_array(np.full((16, 1, 8), 0x91, np.uint8), "bits"),
            numpy_helper.from_array(np.ones(16, np.float32), "scales"),
        ]
    )
    assert ("s" not in inside(proto)) is rounds


def test_random_rewrites_give_the_same_quantized_bits() -> None:
    """The grid is fine, so different bits before the quantizer would nearly always give a different output."""
    proto = model("h = Mul(s, scale) g = Tanh(h) k = Add(h, g) l = Sub(k, x) t = Div(l, fine) r = Round(t) y = Relu(r)")
    proto.graph.initializer.append(numpy_helper.from_array(np.array(1e-6, np.float32), "fine"))
    given, rules, count = load(proto).model, RuleSet(load_rules()), 0
    feeds = [{"x": np.random.default_rng(n).standard_normal((8, 16)).astype(np.float32), **SWITCH} for n in range(20)]
    before = [Session(proto, Device()).run(one)[0] for one in feeds]
    for seed in range(8):
        after, used = rewritten_model(given, rules, random.Random(seed), steps=4, mode=FpMode.RELAXED, strict=False)
        count += len(used)
        session = Session(as_proto(after), Device())
        for one, outputs in zip(feeds, before, strict=True):
            np.testing.assert_array_equal(session.run(one)[0], outputs)
    assert count > 0
