"""Small ONNX models for tests, made with `onnx.helper`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = npt.NDArray[Any]


def weight(name: str, *shape: int, seed: int = 0) -> TensorProto:
    """Return a float32 initializer of normal random numbers."""
    random = np.random.default_rng([seed, *name.encode()])
    return numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[int | str]],
    outputs: dict[str, Sequence[int | str]],
    weights: Sequence[TensorProto] = (),
    *,
    opset: int = 17,
    ir_version: int = 9,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """Return a checked float32 model.

    Before IR version 4, every initializer must also be an input, so the weights are inputs too.
    """
    info = helper.make_tensor_value_info
    given = [info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    if ir_version < 4:
        given += [info(w.name, w.data_type, w.dims) for w in weights]
    graph = helper.make_graph(
        nodes, "test", given, [info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()], list(weights)
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(f.domain, 1) for f in functions)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, functions=functions)
    onnx.checker.check_model(made, full_check=True)
    return made


def run(proto: onnx.ModelProto, seed: int = 0) -> list[Array]:
    """Return the outputs of ONNX's reference evaluator on random inputs."""
    random = np.random.default_rng(seed)
    weights = {w.name for w in proto.graph.initializer}
    feeds = {
        port.name: random.standard_normal([d.dim_value or 1 for d in port.type.tensor_type.shape.dim]).astype(np.float32)
        for port in proto.graph.input
        if port.name not in weights
    }
    return [np.asarray(v) for v in ReferenceEvaluator(proto).run(None, feeds)]
