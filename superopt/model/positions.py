"""Integer terms of a model: axis positions that are known only at run time, and operators that only move them.

In the algebra, positions are numbers like all others. But integers take no floating-point arithmetic. So only operators that
move integers, or pick rows by them, are lifted.
"""

from __future__ import annotations

from collections.abc import Sequence

from superopt.algebra.terms import Term
from superopt.model.booleans import MOVERS

PICKERS = {"Gather": 1, "GatherND": 1, "RotaryEmbedding": 3}
"""The input that holds positions, for operators that pick rows by positions."""
MOVES = frozenset({"concat", "expand", "gather", "lookup", "reshape", "slice", "transpose"})


def is_position(term: Term) -> bool:
    """Return whether ONNX keeps the term as integers."""
    while term.op in MOVES:
        term = term.args[0]
    return term.position > 0


def admitted(op_type: str, inputs: Sequence[Term | None]) -> list[Term | None]:
    """Return the inputs of a node, with None for integers that the node neither only moves nor picks by."""
    first = next(iter(inputs), None)
    moves = op_type in MOVERS and first is not None and is_position(first)
    taken = [moves or PICKERS.get(op_type) == place for place in range(len(inputs))]
    return [x if x is None or good or not is_position(x) else None for x, good in zip(inputs, taken, strict=True)]
