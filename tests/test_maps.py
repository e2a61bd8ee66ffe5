"""Classifiers with maps of probabilities as outputs, as exporters write them, are optimized with unchanged types."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import superopt
from superopt.errors import CheckFailedError
from superopt.model.load import as_proto, load
from superopt.model.save import save
from superopt.model.splice import require_valid
from superopt.protobuf.map_types import has_maps
from superopt.runtime.check import check_candidate
from superopt.runtime.session import Device

pytestmark = pytest.mark.slow

CPU = Device()


def classifier(*, labels: tuple[int, ...] = (3, 5, 8), scale: float = 1.0, inside: bool = False) -> ModelProto:
    """Return a model of two products that ends in a map from each label to its probability.

    With `inside`, the map is computed in the branches of an If.
    """
    rng = np.random.default_rng(0)
    weights = [("w", rng.standard_normal((512, 1024)) / 512), ("v", scale * rng.standard_normal((1024, len(labels))))]
    stored = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights]
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(1, [])))
    kind.sequence_type.elem_type.map_type.value_type.tensor_type.ClearField("shape")
    zipped = helper.make_node("ZipMap", ["p"], ["y"], domain="ai.onnx.ml", classlabels_int64s=labels)
    last = [zipped]
    if inside:
        stored.append(numpy_helper.from_array(np.array(True), "c"))
        body = helper.make_graph([zipped], "body", [], [helper.make_value_info("y", kind)])
        last = [helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body)]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("MatMul", ["h", "v"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        *last,
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 512])
    graph = helper.make_graph(nodes, "classifier", [x], [helper.make_value_info("z" if inside else "y", kind)], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("inside", [False, True])
def test_what_is_read_is_written(tmp_path: Path, inside: bool) -> None:
    original = classifier(inside=inside)
    read = load(original).model
    assert has_maps(read)
    assert as_proto(read).graph.output == original.graph.output
    for external in (False, True):
        save(read, tmp_path / "model.onnx", external=external)
        written = onnx.load(tmp_path / "model.onnx")
        assert written.graph.output == original.graph.output
        assert written.opset_import == original.opset_import
        assert [node.domain for node in written.graph.node] == [node.domain for node in original.graph.node]
        onnx.checker.check_model(written, full_check=not inside)


def test_a_model_without_maps_has_none() -> None:
    assert not has_maps(load(Path(__file__).parent.parent / "examples" / "branches.onnx").model)


def test_a_classifier_with_an_unknown_operator_is_not_valid() -> None:
    original, broken = load(classifier()).model, load(classifier()).model
    broken.graph[0].op_type = "Unheard"
    with pytest.raises(CheckFailedError, match="Unheard"):
        require_valid(broken, original)


def test_a_classifier_is_optimized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superopt.runtime.multi_shape.SizeComparisons.faster", property(lambda _: True))
    original = classifier()
    onnx.save(original, tmp_path / "in.onnx")
    optimized = superopt.optimize(tmp_path / "in.onnx", budget=60.0, cache=tmp_path / "cache")
    optimized.save(tmp_path / "out.onnx")
    assert not optimized.report.failed
    written = onnx.load(tmp_path / "out.onnx")
    products = [[n.op_type for n in model.graph.node].count("MatMul") for model in (original, written)]
    assert products == [2, 1]  # measured times decide how the softmax after the product is lowered
    assert written.graph.output == original.graph.output
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 512)).astype(np.float32)}
    paths = [tmp_path / "in.onnx", tmp_path / "out.onnx"]
    sessions = [onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]) for path in paths]
    ((before,), (after,)) = (session.run(None, feeds) for session in sessions)
    for one, other in zip(before, after, strict=True):
        assert [*one] == [*other] == [3, 5, 8]
        assert [*other.values()] == pytest.approx([*one.values()], rel=1e-4)


def test_other_labels_and_other_probabilities_are_told() -> None:
    same = check_candidate(classifier(), classifier(), CPU)
    assert same.reference == "float64"
    assert same.candidate_error < 1e-5
    for other in (classifier(labels=(3, 5, 9)), classifier(scale=1.1)):
        with pytest.raises(CheckFailedError, match="output 'y"):
            check_candidate(classifier(), other, CPU)
