"""Integer terms: axis positions that are known only at run time, and the operators that move such integers.

In the algebra, positions are numbers like all others. In ONNX, they are integers, which most floating-point operators do not
accept. So a node with integers is lifted only if the node moves the integers, or selects rows by them.
"""

from __future__ import annotations

from collections.abc import Sequence

from superopt.algebra.terms import Term
from superopt.model.booleans import MOVERS

PICKERS = {"Gather": 1, "GatherND": 1, "RotaryEmbedding": 3}
"""Operators that select rows by positions, each with the input that contains the positions."""
MOVES = frozenset({"concat", "expand", "gather", "lookup", "reshape", "slice", "transpose"})


def is_position(term: Term) -> bool:
    """Return whether the term is an integer in ONNX."""
    while term.op in MOVES:
        term = term.args[0]
    return term.position > 0


def drop_unusable_integers(op_type: str, inputs: Sequence[Term | None]) -> list[Term | None]:
    """Return the inputs of a node, with None for each integer input that the node neither moves nor selects by."""
    first = next(iter(inputs), None)
    moves = op_type in MOVERS and first is not None and is_position(first)
    taken = [moves or PICKERS.get(op_type) == place for place in range(len(inputs))]
    return [x if x is None or good or not is_position(x) else None for x, good in zip(inputs, taken, strict=True)]
