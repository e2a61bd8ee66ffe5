"""Sets of models that are served together: equal MLPs, an encoder with adapters, a backbone with heads, unlike CNNs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

LAYERS, WIDTH, HEADS, LENGTH, WORDS, RANK = 2, 256, 4, 16, 1000, 8
"""The sizes of the encoder: layers, width, attention heads, words of a text, words of the vocabulary, rank of an adapter."""


@dataclass(frozen=True)
class Served:
    """Models that are served together.

    Attributes:
        name: The name of the set.
        models: The models by the names of the tenants.
        shared_inputs: The inputs that all models read. If there are any, every request asks all models.
        mean: Whether the set counts in the geometric mean.
    """

    name: str
    models: Mapping[str, ModelProto]
    shared_inputs: tuple[str, ...] = ()
    mean: bool = True


class Builder:
    """Collects the nodes and the weights of a model. Weights with equal names and seeds are equal in all models."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, TensorProto] = {}

    def weight(self, name: str, *shape: int, seed: int = 0, scale: float | None = None) -> str:
        """Add a weight of normal random numbers, and return its name."""
        rng = np.random.default_rng([seed, *name.encode()])
        values = rng.standard_normal(shape) * (np.prod(shape[:-1]) ** -0.5 if scale is None else scale)
        return self.stored(name, values.astype(np.float32))

    def stored(self, name: str, values: NDArray[np.generic]) -> str:
        """Add a weight with the given elements, and return its name."""
        self.weights[name] = numpy_helper.from_array(values, name)
        return name

    def __call__(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node, and return the name of its result."""
        result = name or f"{op.lower()}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [result], **attributes))
        return result

    def model(self, inputs: Sequence[ValueInfoProto], shape: Sequence[int]) -> ModelProto:
        """Return the model. Its output is the value `y`."""
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "model", inputs, [y], list(self.weights.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def mlp(seed: int, width: int = 256, hidden: int = 512) -> ModelProto:
    """Return a model of two layers for one row."""
    add = Builder()
    h = add("MatMul", "x", add.weight("w", width, hidden, seed=seed))
    h = add("Relu", add("Add", h, add.weight("b", hidden, seed=seed)))
    h = add("MatMul", h, add.weight("v", hidden, width, seed=seed))
    add("Add", h, add.weight("c", width, seed=seed), name="y")
    return add.model([helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, width])], [1, width])


def adapted_encoder(adapter: int) -> ModelProto:
    """Return an encoder of texts with the weights of all adapted encoders, and a low-rank adapter of its own.

    The adapter changes the queries and the values of each layer, as in LoRA.
    """
    add = Builder()
    h = add("Gather", add.weight("words", WORDS, WIDTH, scale=1.0), "ids")
    heads = add.stored("heads", np.array([0, 0, HEADS, WIDTH // HEADS], np.int64))
    joined = add.stored("joined", np.array([0, 0, WIDTH], np.int64))
    root = add.stored("root", np.array((WIDTH / HEADS) ** -0.5, np.float32))
    for layer in range(LAYERS):

        def linear(x: str, name: str, out: int, *, adapted: bool = False, layer: int = layer) -> str:
            full, width = f"{name}{layer}", WIDTH * (4 if name == "down" else 1)
            y = add("MatMul", x, add.weight(full, width, out))
            if adapted:
                low = add("MatMul", x, add.weight(f"{full}_a", width, RANK, seed=1 + adapter))
                y = add("Add", y, add("MatMul", low, add.weight(f"{full}_b", RANK, out, seed=1 + adapter, scale=0.1)))
            return add("Add", y, add.weight(f"{full}_bias", out, scale=0.1))

        def normed(x: str, name: str, layer: int = layer) -> str:
            scale, bias = (
                add.weight(f"{name}{layer}_scale", WIDTH, scale=1.0),
                add.weight(f"{name}{layer}_shift", WIDTH, scale=1.0),
            )
            return add("LayerNormalization", x, scale, bias, axis=-1)

        q, k, v = (add("Reshape", linear(h, name, WIDTH, adapted=name != "k"), heads) for name in ("q", "k", "v"))
        q, v = (add("Transpose", one, perm=[0, 2, 1, 3]) for one in (q, v))
        scores = add("Mul", add("MatMul", q, add("Transpose", k, perm=[0, 2, 3, 1])), root)
        mixed = add("Transpose", add("MatMul", add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        h = normed(add("Add", h, linear(add("Reshape", mixed, joined), "o", WIDTH)), "first")
        h = normed(add("Add", h, linear(add("Relu", linear(h, "up", 4 * WIDTH)), "down", WIDTH)), "second")
    add("Identity", h, name="y")
    return add.model([helper.make_tensor_value_info("ids", TensorProto.INT64, [1, LENGTH])], [1, LENGTH, WIDTH])


def headed(head: int, size: int = 64) -> ModelProto:
    """Return a convolutional backbone, which is the same for all heads, with a linear head of its own."""
    add, h, before = Builder(), "image", 3
    for layer, channels in enumerate((16, 32, 64, 64)):
        weight = add.weight(f"conv{layer}", channels, before, 3, 3, scale=(9 * before) ** -0.5)
        h = add("Relu", add("Conv", h, weight, strides=[2, 2] if layer < 3 else [1, 1], pads=[1, 1, 1, 1]))
        before = channels
    h = add("Flatten", add("GlobalAveragePool", h))
    h = add("Relu", add("MatMul", h, add.weight("head", before, 64, seed=1 + head)))
    add("MatMul", h, add.weight("classes", 64, 10, seed=1 + head), name="y")
    return add.model([helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])], [1, 10])


def cnn(number: int, size: int = 32) -> ModelProto:
    """Return a convolutional model whose depth, widths and kernels depend on the number."""
    add, h, before = Builder(), "x", 3
    for layer in range(2 + number % 3):
        channels, kernel = 12 + 8 * number + 4 * layer, 3 + 2 * ((number + layer) % 2)
        weight = add.weight(f"conv{layer}", channels, before, kernel, kernel, seed=number, scale=(kernel**2 * before) ** -0.5)
        pads = [kernel // 2] * 4
        h = add("Relu", add("Conv", h, weight, strides=[1 + layer % 2] * 2, pads=pads))
        before = channels
    h = add("Flatten", add("GlobalAveragePool", h))
    add("MatMul", h, add.weight("classes", before, 10, seed=number), name="y")
    return add.model([helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, size, size])], [1, 10])


def sets() -> list[Served]:
    """Return all sets of models."""
    return [
        Served("4 equal MLPs", {f"m{n}": mlp(n) for n in range(4)}),
        Served("8 equal MLPs", {f"m{n}": mlp(n) for n in range(8)}),
        Served("encoder with 8 adapters", {f"a{n}": adapted_encoder(n) for n in range(8)}),
        Served("backbone with 5 heads", {f"h{n}": headed(n) for n in range(5)}, ("image",)),
        Served("4 unlike CNNs", {f"c{n}": cnn(n) for n in range(4)}, mean=False),
    ]
