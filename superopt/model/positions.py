"""Which terms are integers in a model: positions of an axis that are known at run time alone, and what only moves them.

The algebra's positions are numbers like all others, but no arithmetic of floating-point numbers is done on integers: of what a
model computes with them, what moves them is lifted, and what picks rows by them.
"""

from __future__ import annotations

from collections.abc import Sequence

from superopt.graph import Term
from superopt.model.booleans import MOVERS

PICKERS = {"Gather": 1, "GatherND": 1, "RotaryEmbedding": 3}
"""Where operators that pick rows by positions have these."""
MOVES = frozenset({"concat", "expand", "gather", "lookup", "reshape", "slice", "transpose"})


def is_position(term: Term) -> bool:
    """Whether ONNX keeps the term as integers."""
    while term.op in MOVES:
        term = term.args[0]
    return term.position > 0


def admitted(op_type: str, inputs: Sequence[Term | None]) -> list[Term | None]:
    """The inputs of a node without the integers that it does more with than move them, or pick by them (None)."""
    first = next(iter(inputs), None)
    moves = op_type in MOVERS and first is not None and is_position(first)
    taken = [moves or PICKERS.get(op_type) == place for place in range(len(inputs))]
    return [x if x is None or good or not is_position(x) else None for x, good in zip(inputs, taken, strict=True)]
