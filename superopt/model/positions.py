"""Recognize terms whose values are integers in ONNX: axis positions that are known only at run time.

In the algebra, positions are numbers like all other numbers. In ONNX, positions are integers, and most floating-point operators
do not accept integers. So a node that reads such integers is expressed as a term only if the node moves the integers, or uses
the integers to select rows, as a Gather does.
"""

from __future__ import annotations

from collections.abc import Sequence

from superopt.algebra.terms import Term
from superopt.model.booleans import MOVERS

PICKERS = {"Gather": 1, "GatherND": 1, "RotaryEmbedding": 3}
"""Operators that select rows by positions, each with the index of the input that contains the positions."""
MOVES = frozenset({"concat", "expand", "gather", "lookup", "reshape", "slice", "transpose"})


def is_position(term: Term) -> bool:
    """Return whether the term is an integer tensor in ONNX: axis positions, or a rearrangement of axis positions."""
    while term.op in MOVES:
        term = term.args[0]
    return term.position > 0


def drop_unusable_integers(op_type: str, inputs: Sequence[Term | None]) -> list[Term | None]:
    """Return the inputs of a node, with None in place of each integer term that is not permitted as an input.

    Integers are permitted if the node only moves them, as a Transpose does, or selects rows by them, as a Gather does.
    """
    first = next(iter(inputs), None)
    moves = op_type in MOVERS and first is not None and is_position(first)
    taken = [moves or PICKERS.get(op_type) == place for place in range(len(inputs))]
    return [x if x is None or good or not is_position(x) else None for x, good in zip(inputs, taken, strict=True)]
