"""Example inputs that the user gives. The examples are read from files and checked against the model's inputs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from superopt.errors import ExampleError, first_line
from superopt.model.dimensions import dimension_name
from superopt.model.load import Model
from superopt.runtime.input_source import Example
from superopt.runtime.session import Array

Given: TypeAlias = "str | os.PathLike[str] | Mapping[str, npt.ArrayLike]"
"""Example inputs: a mapping from names to arrays, an .npz file of such a mapping, or a folder of tensors in protobuf files."""


def read_examples(given: Iterable[Given], model: Model) -> tuple[Example, ...]:
    """Read the examples, convert each array to the type of its input, and return them.

    If an example is a folder, each tensor of the example is in a file of this folder, such as `input_0.pb`, as in the test data
    of ONNX. A tensor belongs to the input that has the tensor's name. If no input has this name, the tensor in the n-th file
    belongs to the n-th input.

    Raises:
        ExampleError: A file cannot be read, or an array does not fit its input.
    """
    inputs = {value.name or "": value for value in model.graph.inputs if not value.is_initializer()}
    return tuple(_fitted(label, arrays, inputs) for label, arrays in (_read(one, [*inputs]) for one in given))


def example_sizes(examples: Sequence[Example], model: Model) -> list[dict[str, int]]:
    """Return, for each example, a mapping from names of dynamic dimensions to their sizes in the example's arrays.

    Equal mappings are returned once, and empty mappings are left out.

    Raises:
        ExampleError: Two arrays of an example give one dimension different sizes.
    """
    found: list[dict[str, int]] = []
    for example in examples:
        sizes: dict[str, int] = {}
        for value in model.graph.inputs:
            array = example.get(value.name or "")
            if array is None:
                continue
            for axis, (extent, own) in enumerate(zip(value.shape or (), array.shape, strict=False)):
                if isinstance(extent, int) and extent >= 0:
                    continue
                name = dimension_name(value, axis, extent)
                if sizes.setdefault(name, own) != own:
                    raise ExampleError(f"the example gives dimension {name!r} two different sizes, {sizes[name]} and {own}")
        if sizes not in found:
            found.append(sizes)
    return [sizes for sizes in found if sizes]


def _read(given: Given, names: Sequence[str]) -> tuple[str, dict[str, Array]]:
    """Return a label for error messages, and a mapping from names to the arrays of the example."""
    if isinstance(given, Mapping):
        return "the example", {name: np.asarray(value) for name, value in given.items()}
    path = Path(given)
    try:
        if path.is_dir():
            return str(path), _tensors(path, names)
        opened = np.load(path, allow_pickle=False)
        if not isinstance(opened, np.lib.npyio.NpzFile):
            raise ExampleError(f"{path}: the array has no input name; use numpy.savez to write an .npz file with input names")
        with opened as stored:
            arrays: dict[str, object] = {name: stored[name] for name in stored.files}
    except ExampleError:
        raise
    except Exception as error:  # damaged archives raise errors of many types, from zlib.error to MemoryError
        raise ExampleError(f"{path}: example inputs cannot be read: {first_line(error)}") from error
    read = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
    if strange := arrays.keys() - read.keys():
        raise ExampleError(f"{path}: {min(strange)!r} is not an array in NumPy's format")
    return str(path), read


def _tensors(folder: Path, names: Sequence[str]) -> dict[str, Array]:
    files = sorted(folder.glob("input_*.pb"), key=lambda file: (len(file.name), file.name))
    if not files:
        raise ExampleError(f"{folder}: the folder has no example inputs, which must be called input_0.pb, input_1.pb and so on")
    found: dict[str, Array] = {}
    for file, position in zip(files, names, strict=False):
        try:
            tensor = onnx.load_tensor(file)
            found[tensor.name if tensor.name in names else position] = numpy_helper.to_array(tensor)
        except Exception as error:
            raise ExampleError(f"{file}: not a tensor ({first_line(error)})") from error
    return found


def _fitted(label: str, arrays: Mapping[str, Array], inputs: Mapping[str, ir.Value]) -> Example:
    """Return the arrays, each converted to the type of the model's input with the same name.

    Raises:
        ExampleError: The model has no such input, or an array does not fit its input.
    """
    fitted: dict[str, Array] = {}
    for name, array in arrays.items():
        if name not in inputs:
            raise ExampleError(f"{label}: the model has no input {name!r}; its inputs are {', '.join(inputs)}")
        value = inputs[name]
        shape = tuple(value.shape) if value.shape is not None else array.shape
        fixed = [extent if isinstance(extent, int) and extent >= 0 else None for extent in shape]
        if len(fixed) != array.ndim or any(n not in (None, size) for n, size in zip(fixed, array.shape, strict=True)):
            raise ExampleError(
                f"{label}: {name!r} has the shape {list(array.shape)}, but the model's input has the shape {value.shape}"
            )
        fitted[name] = _cast(label, name, array, value)
    return fitted


def _cast(label: str, name: str, array: Array, value: ir.Value) -> Array:
    """Return the array converted to the type of the input.

    Raises:
        ExampleError: The array contains numbers of a different kind, such as floats for an input of integers.
    """
    if value.dtype is None or value.dtype == ir.DataType.STRING:
        return array.astype(object) if value.dtype is not None else array
    wanted = value.dtype.numpy()
    if wanted == array.dtype:
        return array
    if not np.can_cast(array.dtype, wanted, "same_kind"):
        raise ExampleError(
            f"{label}: {name!r} has elements of type {array.dtype}, but the model's input has elements of type {wanted}"
        )
    return array.astype(wanted)
