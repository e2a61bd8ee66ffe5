"""Decide which values are booleans when terms are written as ONNX nodes.

In the algebra, a condition is the number 0 or 1. In ONNX, a condition is a boolean. The schema of an ONNX operator gives the
types of its inputs and outputs. An operator that only moves elements returns booleans if its input contains booleans. Operators
that compute with numbers take numbers, and operators that require a condition take a boolean. If an operand does not have the
type that the operator takes, a Cast is added.
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
"""Operators that move elements of any type without arithmetic."""
CARRIERS = MOVERS | {"And", "Or", "Not"}
"""Operators that ONNX Runtime runs on both booleans and numbers, or only on booleans."""


def resolve_booleans(schema: OpSchema, given: Sequence[bool | None], outputs: int) -> tuple[list[bool | None], list[bool]]:
    """Return two lists: whether each input must be boolean, and whether each output is boolean.

    Args:
        schema: the schema of the operator.
        given: whether the value of each input is a boolean before any cast. None stands for a missing input, and for an input
            that is neither a boolean nor a floating-point number. These inputs are not cast.
        outputs: the number of outputs.

    Raises:
        ShapeError: an input contains numbers, but the operator does not take floating-point numbers for this input.
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
    """Return whether the inputs that share one type parameter of the schema must be boolean.

    The schema allows the types in `types` for these inputs. For each of these inputs, `given` states whether the input is
    boolean before any cast.
    """
    if types == {BOOLEAN}:
        return True
    if all(given) and BOOLEAN in types and schema.name in CARRIERS:
        return True
    if NUMBER not in types:
        raise ShapeError(f"{schema.name} takes no floating-point numbers at this opset")
    return False


def _formal(parameters: Sequence[OpSchema.FormalParameter], position: int) -> str:
    """Return the schema type of the parameter at this position.

    The last parameter of a variadic schema also covers all later positions.
    """
    return str(parameters[min(position, len(parameters) - 1)].type_str)
