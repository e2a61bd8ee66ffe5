"""Default sizes of models that decode with a cache: one token, and a cache of the default length."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from superopt.model.dimensions import representative_sizings
from superopt.runtime.session import Device, Session

node = helper.make_node


def decoder(*, grouped: bool = False) -> onnx.ModelProto:
    """Return a model of attention over a cache of `past` keys and `tokens` new keys, with a mask over both."""
    info = helper.make_tensor_value_info
    total = "past + tokens"
    if grouped:
        nodes = [
            node("Gather", ["table", "ids"], ["q"]),
            node("GroupQueryAttention", ["q", "q", "q", "past_k", "past_v", "lens", "all"], ["y", "k", "v"], num_heads=1,
                 kv_num_heads=1, domain="com.microsoft"),
        ]  # fmt: skip
        lens = [
            numpy_helper.from_array(np.array([[4]], np.int32), "lens"),
            numpy_helper.from_array(np.array(5, np.int32), "all"),
        ]
    else:
        nodes = [
            node("Gather", ["table", "ids"], ["e"]),
            node("Unsqueeze", ["e", "one"], ["q"]),
            node("Concat", ["past_k", "q"], ["k"], axis=-2),
            node("Concat", ["past_v", "q"], ["v"], axis=2),
            node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
            node("MatMul", ["q", "kt"], ["scores"]),
            node("Cast", ["mask"], ["weights"], to=TensorProto.FLOAT),
            node("Unsqueeze", ["weights", "ones"], ["wide"]),
            node("Mul", ["scores", "wide"], ["masked"]),
            node("MatMul", ["masked", "v"], ["y"]),
        ]
        lens = []
    caches = [info(name, TensorProto.FLOAT, ["batch", 1, "past", 8]) for name in ("past_k", "past_v")]
    ids = info("ids", TensorProto.INT64, ["batch", "tokens"])
    mask = info("mask", TensorProto.INT64, ["batch", total])
    grown = [info(name, TensorProto.FLOAT, ["batch", 1, total, 8]) for name in ("k", "v")]
    result = info("y", TensorProto.FLOAT, None)
    units = [numpy_helper.from_array(np.array(axes, np.int64), name) for name, axes in (("one", [1]), ("ones", [1, 2]))]
    weights = [numpy_helper.from_array(np.ones((16, 8), np.float32), "table"), *units, *lens]
    graph = helper.make_graph(nodes, "decoder", [ids, *([] if grouped else [mask]), *caches], [result, *grown], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"batch": 1, "tokens": 1, "past": 128, "past + tokens": 129}),
        ({"past": 16, "tokens": 3}, {"batch": 1, "tokens": 3, "past": 16, "past + tokens": 19}),
        ({"past + tokens": 40}, {"batch": 1, "tokens": 1, "past": 128, "past + tokens": 40}),
    ],
)
def test_a_model_with_a_cache_decodes_one_token_by_default(given: dict[str, int], expected: dict[str, int]) -> None:
    (sizing,) = representative_sizings(ir.from_proto(decoder()), [given])
    assert sizing.numbers == expected
    if "past + tokens" not in given:
        session = Session(decoder(), Device("cpu", 1))
        n = sizing.numbers
        caches = {name: np.zeros((1, 1, n["past"], 8), np.float32) for name in ("past_k", "past_v")}
        ids, mask = (np.zeros((1, n[name]), np.int64) for name in ("tokens", "past + tokens"))
        y, k, _ = session.run({"ids": ids, "mask": mask, **caches})
        assert (y.shape, k.shape) == ((1, 1, n["tokens"], 8), (1, 1, n["past + tokens"], 8))


def test_the_cache_of_an_attention_operator_is_recognized() -> None:
    (sizing,) = representative_sizings(ir.from_proto(decoder(grouped=True)), [{}])
    assert sizing.numbers == {"batch": 1, "tokens": 1, "past": 128}


def test_an_image_that_is_joined_with_others_is_no_cache() -> None:
    nodes = [node("Neg", ["x"], ["n"]), node("Concat", ["x", "n"], ["c"], axis=2), node("Relu", ["c"], ["y"])]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("c", "y")]
    graph = helper.make_graph(nodes, "image", [image], results)
    (sizing,) = representative_sizings(ir.from_proto(helper.make_model(graph)), [{}])
    assert sizing.numbers == {"n": 1, "h": 224, "w": 224}
