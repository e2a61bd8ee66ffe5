"""Specialize a model to fixed inputs and sizes, and inline the branches of Ifs whose conditions become known.

Exporters write an If where an operator's effect depends on a size, or where an input selects a part of the model. For example,
the effect of a Squeeze depends on whether the extent of an axis is 1. A condition is known if it has the same value at all
sizes at which the model runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from superopt.errors import FixedInputError
from superopt.model.dimensions import dimension_spellings, dynamic_dimension_names
from superopt.model.lift import constant_tensor
from superopt.model.load import Model
from superopt.model.views import Views
from superopt.policy import MODEL, PROCESS
from superopt.protobuf.specialize import Specialization, fix_inputs, if_nodes, inline_branches
from superopt.runtime.input_source import Example

Fixable: TypeAlias = "str | npt.ArrayLike"
"""The size of a dimension, or the value of a fixed input: a number, an array, or a string such as "16000" or "true"."""


def read_fixed(given: Mapping[str, Fixable], model: Model) -> Specialization:
    """Return a `Specialization`: the input values and the dimension sizes that the user fixed.

    The values are converted to the types of the inputs.

    A single number fixes all elements of an input. A dimension is given by its name or as `input[axis]`, as in the option
    `--shape`.

    Raises:
        FixedInputError: A name is neither an input nor a dynamic dimension, a value does not fit the input, or a dimension is
            fixed to two sizes.
    """
    inputs = {value.name: value for value in model.graph.inputs if not value.is_initializer()}
    spellings = dimension_spellings(model)
    values = dict[str, npt.NDArray[np.generic]]()
    sizes = dict[str, int]()
    for name, value in given.items():
        if name in inputs:
            values[name] = _value(inputs[name], value)
        elif name in spellings:
            size = _size(name, value)
            for own in spellings[name]:
                if sizes.setdefault(own, size) != size:
                    raise FixedInputError(
                        f"dimension {own!r} is fixed to {sizes[own]}, but {name!r} fixes this dimension to {size}"
                    )
        else:
            known = ", ".join([*filter(None, inputs), *dynamic_dimension_names(model)])
            raise FixedInputError(f"the model has no input or dynamic dimension {name!r}: the possible names are {known}")
    return Specialization(values, sizes)


def _value(value: ir.Value, given: Fixable) -> npt.NDArray[np.generic]:
    shape = None if value.shape is None else [*value.shape]
    if value.dtype is None or shape is None or not all(isinstance(n, int) and n > 0 for n in shape):
        raise FixedInputError(
            f"input {value.name!r} cannot be given a value, because a dimension of the input has no known size: "
            "fix the sizes of the input's dimensions first"
        )
    wanted = np.dtype(object) if value.dtype == ir.DataType.STRING else value.dtype.numpy()
    array = _parsed(given, wanted, value.name or "")
    if array.size != 1 and array.shape != tuple(shape):
        raise FixedInputError(f"input {value.name!r} has the shape {shape}, but the fixed value has the shape {[*array.shape]}")
    return np.array(np.broadcast_to(array.reshape(()) if array.size == 1 else array, [int(str(n)) for n in shape]))


def _parsed(given: Fixable, wanted: np.dtype[np.generic], name: str) -> npt.NDArray[np.generic]:
    """Return the value as an array of the input's type.

    Raises:
        FixedInputError: This type cannot represent the value.
    """
    try:
        read = np.asarray(_number(given) if isinstance(given, str) and wanted.kind != "O" else given)
        with np.errstate(all="ignore"):
            array = read.astype(wanted)
        exact = wanted.kind not in "biu" or bool(np.all(array == read))
        if exact and not (wanted.kind == "f" and np.isnan(array.astype(np.float64)).any()):
            return array
    except (ValueError, TypeError, OverflowError):
        pass
    raise FixedInputError(f"{given!r} is not a value of input {name!r}, which has elements of type {wanted}")


def _number(text: str) -> bool | int | float:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text)
    except ValueError:
        return float(text)


def _size(name: str, given: Fixable) -> int:
    text = str(given)
    if not text.isdecimal() or len(text) > len(str(PROCESS.max_integer)) or not 1 <= int(text) <= PROCESS.max_integer:
        raise FixedInputError(f"{text[:40]!r} is not a size of dimension {name!r}: a size is an integer of at least 1")
    return int(text)


def at_fixed_sizes(given: Sequence[Mapping[str, int]], fixed: Specialization) -> list[dict[str, int]]:
    """Add the fixed sizes to each mapping in `given`, and return the mappings. A mapping assigns sizes to dimensions.

    If `given` is empty, one mapping with only the fixed sizes is returned. Empty mappings are left out.

    Raises:
        FixedInputError: A given size differs from the fixed size of the dimension.
    """
    for sizes in given:
        for name, size in fixed.sizes.items():
            if sizes.get(name, size) != size:
                raise FixedInputError(f"dimension {name!r} is fixed to {size}, but is also given the size {sizes[name]}")
    return [{**sizes, **fixed.sizes} for sizes in given or [{}] if sizes or fixed.sizes]


def agreeing_examples(examples: Sequence[Example], fixed: Specialization) -> tuple[Example, ...]:
    """Return the examples if they agree with the fixed inputs.

    Raises:
        FixedInputError: An example has a different value for a fixed input.
    """
    for example in examples:
        for name, value in fixed.values.items():
            if name in example and not np.array_equal(example[name], value):
                raise FixedInputError(
                    f"input {name!r} is fixed to {value.tolist()}, but an example has the value {example[name].tolist()}"
                )
    return (*examples,)


def specialize(model: Model, fixed: Specialization) -> tuple[Model, Specialization]:
    """Fix inputs and sizes, inline branches whose conditions become known, and return the new model and a record of the
    changes.

    At the fixed inputs and sizes, the new model is equivalent to the given model.

    Inputs and outputs do not change, except that fixed dimensions are no longer dynamic. The given model itself is returned if
    nothing is fixed and no condition is known.

    Raises:
        FixedInputError: The value of an input is fixed, but no output of the model has a declared rank of at least 1.
    """
    try:
        special = fix_inputs(model, fixed.values, fixed.sizes)
    except ValueError as error:
        raise FixedInputError(str(error)) from error
    rounds: list[Sequence[bool | None]] = []
    while if_nodes(special) and len(rounds) < MODEL.max_branch_rounds:
        taken = [_condition(node) for node in if_nodes(Views(special).model)]
        if all(condition is None for condition in taken):
            break
        rounds.append(taken)
        special = inline_branches(special, taken)
    return special, replace(fixed, branches=rounds)


def _condition(node: ir.Node) -> bool | None:
    """Return the value of the condition of an If, or None if the value is not known."""
    tensor = None if node.inputs[0] is None else constant_tensor(node.inputs[0])
    return None if tensor is None or tensor.size != 1 else bool(tensor.numpy().reshape(()))
