"""Which values of lowered nodes are booleans: the algebra's conditions are numbers, 0 and 1, ONNX's are a type of their own.

An ONNX operator's schema says what it takes and yields. Operators that only move elements carry booleans along; whatever
computes with numbers takes numbers, and what asks for a condition takes a boolean, so that a value is cast where they differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx.defs import OpSchema

from superopt.errors import ShapeError

BOOLEAN, NUMBER = "tensor(bool)", "tensor(float)"
MOVERS = frozenset(
    {"Concat", "Expand", "Flatten", "Gather", "GatherND", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile"}
    | {"Transpose", "Unsqueeze"}
)
"""Operators that only move elements, of whatever type."""
CARRIERS = MOVERS | {"And", "Or", "Not"}
"""Operators that ONNX Runtime runs on booleans as on numbers, or on booleans alone."""


def resolved(schema: OpSchema, given: Sequence[bool | None], outputs: int) -> tuple[list[bool | None], list[bool]]:
    """For each input whether it is to be boolean, and for each output whether it is.

    `given` says of each input whether it is boolean now; None stands for one that is left out or is neither boolean nor a
    floating-point number, and stays as it is.

    Raises:
        ShapeError: the operator takes no numbers where it is given some.
    """
    allowed = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}
    kinds = [_formal(schema.inputs, position) for position in range(len(given))]
    chosen: dict[str, bool] = {}
    for kind in dict.fromkeys(kinds):
        here = [g for g, k in zip(given, kinds, strict=True) if k == kind and g is not None]
        types = allowed.get(kind, frozenset({kind}))
        if here:
            chosen[kind] = _boolean(schema, types, here)
    wanted = [None if g is None else chosen[k] for g, k in zip(given, kinds, strict=True)]
    yielded = [_formal(schema.outputs, position) for position in range(outputs)]
    return wanted, [chosen.get(k, allowed.get(k, frozenset({k})) == {BOOLEAN}) for k in yielded]


def _boolean(schema: OpSchema, types: frozenset[str], given: Sequence[bool]) -> bool:
    """Whether inputs that share a type are to be boolean."""
    if types == {BOOLEAN}:
        return True
    if all(given) and BOOLEAN in types and schema.name in CARRIERS:
        return True
    if NUMBER not in types:
        raise ShapeError(f"{schema.name} takes no floating-point numbers at this opset")
    return False


def _formal(parameters: Sequence[OpSchema.FormalParameter], position: int) -> str:
    """The type that the schema gives the parameter at this position; a variadic one stands for all that follow."""
    return str(parameters[min(position, len(parameters) - 1)].type_str)
