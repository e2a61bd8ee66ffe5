"""Rows looked up at positions of any shape: one Gather, where the algebra flattens the positions and shapes the result."""

from __future__ import annotations

from collections.abc import Callable

from superopt.graph import Term
from superopt.op import apply


def unflattened(term: Term, alone: Callable[[Term], bool]) -> Term | None:
    """Rows looked up at flattened positions and then put in the positions' own shape, as one lookup; None for another term, and
    for a single position, of which the algebra makes a vector.

    `alone` says of the flat rows whether nothing else needs them.
    """
    found = term.args[0] if term.op == "reshape" else term
    if found.op != "lookup" or found.args[0].rank != 2 or found.args[1].op != "reshape" or not alone(found):
        return None
    table, positions = found.args[0], found.args[1].args[0]
    whole = positions.rank > 0 and term.shape == (*positions.shape, table.shape[-1])
    return apply("lookup", table, positions) if whole else None
