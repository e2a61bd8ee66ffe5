"""Values that are computed from known shapes become weights, after any number of nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from superopt.model.constant_folding import fold_known_values
from superopt.model.islands import Chart
from superopt.model.load import as_proto, load
from tests.models import model, run, weight

ROUNDS = 12


def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [output], **attributes)


def halves(size: int | str = 4) -> onnx.ModelProto:
    """Return a chain of products, each sliced to the first half of its columns. The half is computed from the shape."""
    nodes, last = [], "x"
    for n in range(ROUNDS):
        nodes += [
            node("MatMul", [last, "w"], f"m{n}"),
            node("Shape", [f"m{n}"], f"shape{n}"),
            node("Gather", [f"shape{n}", "one"], f"whole{n}", axis=0),
            node("Div", [f"whole{n}", "two"], f"half{n}"),
            node("Slice", [f"m{n}", "zero", f"half{n}", "one"], f"s{n}" if n < ROUNDS - 1 else "y"),
        ]
        last = f"s{n}"
    numbers = [numpy_helper.from_array(np.array([v], np.int64), name) for name, v in (("zero", 0), ("one", 1), ("two", 2))]
    return model(nodes, {"x": [size, 3]}, {"y": [size, 3]}, [weight("w", 3, 6), *numbers])


def test_what_follows_from_shapes_is_stored() -> None:
    proto = halves()
    stored = fold_known_values(load(proto).model)
    assert {n.op_type for n in stored.graph} == {"MatMul", "Slice"}
    assert all(weight.uses() for weight in stored.graph.initializers.values())
    assert len(Chart(stored).islands()) == 1
    np.testing.assert_array_equal(run(as_proto(stored))[0], run(proto)[0])


def test_what_is_wanted_of_the_model_is_computed_still() -> None:
    proto = halves()
    proto.graph.output.append(helper.make_tensor_value_info("half0", onnx.TensorProto.INT64, [1]))
    stored = fold_known_values(load(proto).model)
    assert [v.name for v in stored.graph.outputs] == ["y", "half0"]
    assert [n.op_type for n in stored.graph].count("Div") == 1


def test_a_model_without_such_values_or_with_open_dimensions_is_returned_itself() -> None:
    plain = load(model([node("Relu", ["x"], "y")], {"x": [2]}, {"y": [2]})).model
    open_ = load(halves("n")).model
    assert fold_known_values(plain) is plain
    assert fold_known_values(open_) is open_
    assert isinstance(plain, ir.Model)


def test_a_string_that_is_computed_from_weights_is_not_stored() -> None:
    words = numpy_helper.from_array(np.array(["b", "d"], object), "words")
    nodes = [node("Gather", ["words", "place"], "word"), node("Identity", ["word"], "same"), node("Relu", ["x"], "y")]
    proto = model(nodes, {"x": [2]}, {"y": [2]}, [words, numpy_helper.from_array(np.array([1]), "place")])
    proto.graph.output.append(helper.make_tensor_value_info("same", onnx.TensorProto.STRING, [1]))
    given = load(proto).model
    assert fold_known_values(given) is given


def test_a_branch_may_give_and_use_what_a_shape_decides() -> None:
    ints = onnx.TensorProto.INT64
    inside = [node("Shape", ["x"], "shape"), node("Neg", ["shape"], "negative")]
    given = [helper.make_tensor_value_info(name, ints, [2]) for name in ("shape", "negative")]
    branch = helper.make_graph(inside, "branch", [], given)
    chosen = helper.make_node("If", ["c"], ["s", "n"], then_branch=branch, else_branch=branch)
    nodes = [node("Cast", ["k"], "c", to=onnx.TensorProto.BOOL), chosen, node("Reshape", ["x", "s"], "y")]
    proto = model(nodes, {"x": [2, 3], "k": []}, {"y": ["a", "b"]})
    proto.graph.output.append(helper.make_tensor_value_info("n", ints, [2]))
    assert [v.name for v in fold_known_values(load(proto).model).graph.outputs] == ["y", "n"]
