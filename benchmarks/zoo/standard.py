"""The `light` models of the onnx package. They are real networks in which ConstantOfShape nodes create the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, numpy_helper, version_converter

OPSET = 13
IR_VERSION = 8
FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
SCALE, VARIANCE = 1, 4
"""The positions of the scale and of the variance among the inputs of BatchNormalization."""


def weighted(light: str, seed: int) -> onnx.ModelProto:
    """Return the model with random weights instead of constant weights, at opset 13 or later."""
    model = onnx.load(FOLDER / f"light_{light}.onnx")
    if model.opset_import[0].version < OPSET:
        model = version_converter.convert_version(model, OPSET)
    model.ir_version = max(model.ir_version, IR_VERSION)
    graph = model.graph
    constants, uses = known(graph), first_uses(graph)
    random = np.random.default_rng(seed)
    kept: list[NodeProto] = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in constants:
            user, position = uses[node.output[0]]
            weight = drawn(random, [int(size) for size in constants[node.input[0]]], user, position)
            graph.initializer.append(numpy_helper.from_array(weight, node.output[0]))
        else:
            kept.append(node)
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [each for each in graph.input if each.name not in weights]
    del graph.node[:], graph.input[:]
    graph.node.extend(kept)
    graph.input.extend(inputs)
    return model


def known(graph: onnx.GraphProto) -> Mapping[str, npt.NDArray[np.generic]]:
    """Return the initializers and the Constant nodes' tensors of the graph, by name."""
    stated = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    constants = (node for node in graph.node if node.op_type == "Constant")
    return stated | {node.output[0]: numpy_helper.to_array(node.attribute[0].t) for node in constants}


def first_uses(graph: onnx.GraphProto) -> Mapping[str, tuple[NodeProto, int]]:
    """Return, for each tensor, the first node that reads the tensor, and the tensor's position among the inputs of the node."""
    uses: dict[str, tuple[NodeProto, int]] = {}
    for node in graph.node:
        for position, name in enumerate(node.input):
            uses.setdefault(name, (node, position))
    return uses


def drawn(random: np.random.Generator, shape: Sequence[int], user: NodeProto, position: int) -> npt.NDArray[np.float32]:
    """Return a random weight, scaled so that the output of the node is about as large as the node's input."""
    if user.op_type == "BatchNormalization" and position in (SCALE, VARIANCE):
        return random.uniform(0.5, 1.5, shape).astype(np.float32)
    spread = math.sqrt(2 / math.prod(shape[1:])) if len(shape) > 1 else 0.1
    return (spread * random.standard_normal(shape)).astype(np.float32)
