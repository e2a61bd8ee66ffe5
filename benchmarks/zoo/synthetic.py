"""A model of linear layers, of any size. The weights are written one by one, so that only one weight is in memory at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, TensorProto, helper

from benchmarks.zoo.recipes import Synthetic

OPSET = 18
IR_VERSION = 9
ALIGNMENT = 4096
"""The weights begin at multiples of this many bytes, so that a runtime can map them."""
CLASSES = 64


def write(recipe: Synthetic, seed: int, target: Path) -> None:
    """Write the model to the target, and the weights to a file with the name of the target and the suffix `.data`.

    Each layer computes relu(x @ w + b). The last layer computes x @ w + x @ v, which one product with w + v can replace.
    """
    data = target.with_name(f"{target.name}.data")
    tensors: list[TensorProto] = []
    with data.open("wb") as file:
        for name, weight in weights(recipe, seed):
            file.write(bytes(-file.tell() % ALIGNMENT))
            tensors.append(external(name, weight.shape, data.name, file.tell(), weight.nbytes))
            file.write(weight.data)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [recipe.batch, recipe.width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [recipe.batch, CLASSES])
    graph = helper.make_graph(list(nodes(recipe)), target.stem, [x], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    model.producer_name = "superopt scripts/zoo"
    target.write_bytes(model.SerializeToString(deterministic=True))
    onnx.checker.check_model(target)


def weights(recipe: Synthetic, seed: int) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    """Yield each weight with its name."""
    random = np.random.default_rng(seed)
    for layer in range(recipe.layers):
        yield f"weight_{layer}", uniform(random, recipe.width, recipe.width)
        yield f"bias_{layer}", uniform(random, recipe.width)
    yield "weight_left", uniform(random, recipe.width, CLASSES)
    yield "weight_right", uniform(random, recipe.width, CLASSES)


def uniform(random: np.random.Generator, rows: int, *columns: int) -> npt.NDArray[np.float32]:
    """Return uniform random numbers with mean 0, scaled so that relu(x @ w) is about as large as x."""
    values = random.random((rows, *columns), np.float32)
    values -= np.float32(0.5)
    values *= np.float32(2 * math.sqrt(6 / rows))
    return values


def external(name: str, shape: tuple[int, ...], location: str, offset: int, length: int) -> TensorProto:
    """Return a tensor whose bytes are in the file `location`, from the offset on."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def nodes(recipe: Synthetic) -> Iterator[NodeProto]:
    x = "x"
    for layer in range(recipe.layers):
        yield helper.make_node("MatMul", [x, f"weight_{layer}"], [f"product_{layer}"])
        yield helper.make_node("Add", [f"product_{layer}", f"bias_{layer}"], [f"sum_{layer}"])
        yield helper.make_node("Relu", [f"sum_{layer}"], [f"layer_{layer}"])
        x = f"layer_{layer}"
    yield helper.make_node("MatMul", [x, "weight_left"], ["left"])
    yield helper.make_node("MatMul", [x, "weight_right"], ["right"])
    yield helper.make_node("Add", ["left", "right"], ["y"])
