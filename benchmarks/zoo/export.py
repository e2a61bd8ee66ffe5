"""The export of torch modules to ONNX files, with random weights of the scale of trained weights."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.zoo.recipes import Exported, Input

EXAMPLE_SIZES = {"batch": 2, "seq": 48}
"""The sizes of dynamic dimensions in the example inputs of an export."""
EXAMPLE_TOKENS = 99


def export(recipe: Exported, seed: int, target: Path) -> None:
    """Export the recipe's module to the file, with random weights from the seed."""
    module = module_of(recipe, seed)
    arguments = tuple(example(each) for each in recipe.inputs)
    names = {"input_names": input_names(recipe.inputs), "output_names": list(recipe.outputs) or None}
    with torch.no_grad():
        torch.onnx.export(module, arguments, target, opset_version=recipe.opset, **names, **EXPORTERS[recipe.exporter](recipe))


def module_of(recipe: Exported, seed: int) -> nn.Module:
    """Return the recipe's module for inference, with weights from the seed."""
    torch.manual_seed(seed)
    module: nn.Module = builder(recipe.builder)(**recipe.options)
    if recipe.calibrated:
        calibrate(module, [size for size in recipe.inputs[0].shape if isinstance(size, int)])
    return module.eval()


def builder(name: str) -> Any:
    """Return the class or function of this package that `name` (`module.attribute`) names."""
    module, _, attribute = name.partition(".")
    return getattr(importlib.import_module(f"benchmarks.zoo.{module}"), attribute)


def calibrate(module: nn.Module, shape: Sequence[int]) -> None:
    """Give convolutions weights that keep the scale of values, and batch normalization the statistics of random images."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, 0, 0.1)
            layer.momentum = 1.0
    batch, *image = shape
    module.train()
    with torch.no_grad():
        module(torch.randn(max(2, batch), *image))


def example(of: Input) -> Tensor:
    sizes = [EXAMPLE_SIZES[size] if isinstance(size, str) else size for size in of.shape]
    if of.fill == "normal":
        return torch.randn(sizes)
    return torch.ones(sizes, dtype=torch.int64) if of.fill == "ones" else torch.randint(0, EXAMPLE_TOKENS, sizes)


def input_names(inputs: Sequence[Input]) -> list[str] | None:
    """Return the names of the inputs, or None if an input has no name. The exporter then chooses the names."""
    return [each.name for each in inputs] if all(each.name for each in inputs) else None


def dynamo_options(recipe: Exported) -> dict[str, Any]:
    open_dimensions = tuple(each.open_dimensions for each in recipe.inputs)
    return {
        "dynamo": True,
        "dynamic_shapes": open_dimensions if any(open_dimensions) else None,
        "external_data": False,
        "optimize": True,
        "verbose": False,
    }


def legacy_options(recipe: Exported) -> dict[str, Any]:
    """Return the options of the legacy exporter. The outputs get the dynamic dimensions of the first input."""
    named = {each.name: each.open_dimensions for each in recipe.inputs if each.open_dimensions}
    outputs = dict.fromkeys(recipe.outputs, recipe.inputs[0].open_dimensions)
    return {"dynamo": False, "do_constant_folding": True, "dynamic_axes": {**named, **outputs} if named else None}


EXPORTERS = {"dynamo": dynamo_options, "legacy": legacy_options}
