"""The files of the corpus, and the models in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper, parser

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

FOLDER = Path(__file__).resolve().parent
SUFFIX = ".onnxtxt"
OPERATOR = "operator"
"""The first part of the names of files with a function's operator."""
LOW, HIGH = 0.5, 1.5
"""The range of a weight that is declared without a value and has no expression."""


@dataclass(frozen=True)
class Spelling:
    """A spelling of a function, and the file with the operator for the opset of the spelling."""

    path: Path
    operator_path: Path

    @property
    def function(self) -> str:
        return self.path.parent.name

    @property
    def name(self) -> str:
        return f"{self.function}/{self.path.stem}"

    @cached_property
    def model(self) -> ModelProto:
        return read(self.path)

    @cached_property
    def operator(self) -> ModelProto:
        return read(self.operator_path)


def spellings(patterns: Sequence[str] = ()) -> list[Spelling]:
    """Return the spellings that a pattern names, or all spellings if there is no pattern. They are sorted by name.

    A pattern is a function, a file, or the name of a spelling such as `gelu/tensorflow_erf`. It may have wildcards.

    Raises:
        ValueError: a pattern names no spelling, or a spelling has no operator.
    """
    paths = [path for path in sorted(FOLDER.glob(f"*/*{SUFFIX}")) if not is_operator(path)]
    for pattern in patterns:
        if not any(is_named(path, pattern) for path in paths):
            raise ValueError(f"no spelling is called {pattern}")
    chosen = [path for path in paths if not patterns or any(is_named(path, pattern) for pattern in patterns)]
    return [Spelling(path, operator_for(path)) for path in chosen]


def is_named(path: Path, pattern: str) -> bool:
    names = (path.parent.name, f"{path.parent.name}/{path.stem}")
    return any(fnmatchcase(name, pattern) for name in names) or path == Path(pattern).resolve()


def is_operator(path: Path) -> bool:
    return path.name.split(".")[0] == OPERATOR


def operator_for(path: Path) -> Path:
    """Return the file with the operator for the spelling at `path`: the file with the highest opset that the spelling has.

    Raises:
        ValueError: each file with the operator has a higher opset than the spelling.
    """
    least = {opset(read(one)): one for one in path.parent.glob(f"{OPERATOR}*{SUFFIX}")}
    known = [number for number in least if number <= opset(read(path))]
    if not known:
        raise ValueError(f"{path.parent.name} has no operator for the opset of {path.name}")
    return least[max(known)]


def opset(model: ModelProto) -> int:
    """Return the version of the standard operators that the model uses."""
    (version,) = (entry.version for entry in model.opset_import if not entry.domain)
    return int(version)


def read(path: Path) -> ModelProto:
    """Return the model in a file, with a value for each weight.

    A weight that is declared without a value is filled with random numbers, which depend on the name of the weight and on the
    number of its elements. If the metadata of the model have an entry with the name of the weight, the entry is a numpy
    expression for the value. The expression may also use earlier entries, `random`, a generator of numbers that depend on the
    name, and `drawn(name, *shape)`, the random numbers of another weight.
    """
    model = parser.parse_model(path.read_text(encoding="utf-8"))
    values = evaluated({entry.key: entry.value for entry in model.metadata_props})
    for port in undefined(model):
        model.graph.initializer.append(weight(port, values.get(port.name)))
        model.graph.value_info.remove(port)
    del model.metadata_props[:]
    return model


def undefined(model: ModelProto) -> list[ValueInfoProto]:
    """Return the declarations of values that no node computes."""
    computed = {name for node in model.graph.node for name in node.output}
    return [port for port in model.graph.value_info if port.name not in computed]


def evaluated(expressions: Mapping[str, str]) -> dict[str, Array]:
    """Return the values of named numpy expressions. Each may use those before it."""
    values: dict[str, Array] = {}
    for name, expression in expressions.items():
        known = {**vars(np), **values, "drawn": drawn, "random": generator(name)}
        values[name] = np.asarray(eval(expression, {"__builtins__": {}}, known))
    return values


def weight(port: ValueInfoProto, value: Array | None) -> TensorProto:
    """Return the tensor of a declared weight. If `value` is None, the numbers are random. A single number is repeated."""
    shape = tuple(int(extent.dim_value) for extent in port.type.tensor_type.shape.dim)
    found = drawn(port.name, *shape) if value is None else value
    filled = found.reshape(shape) if found.size == math.prod(shape) else np.broadcast_to(found, shape)
    dtype = helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
    return numpy_helper.from_array(np.ascontiguousarray(filled, dtype), port.name)


def drawn(name: str, *shape: int) -> Array:
    """Return the numbers of a weight that is declared without a value and has no expression."""
    return generator(name).uniform(LOW, HIGH, shape)


def generator(name: str) -> np.random.Generator:
    return np.random.default_rng(list(name.encode()))


def checked(model: ModelProto) -> ModelProto:
    """Return the model if the checker of ONNX accepts it.

    Raises:
        onnx.checker.ValidationError, onnx.shape_inference.InferenceError: the model is not valid.
    """
    onnx.checker.check_model(model, full_check=True)
    return model
