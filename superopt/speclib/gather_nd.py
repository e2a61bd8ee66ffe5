"""Lookups of rows at positions of any shape, as one Gather; the algebra flattens the positions and reshapes the result."""

from __future__ import annotations

from collections.abc import Callable

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term


def unflattened(term: Term, alone: Callable[[Term], bool]) -> Term | None:
    """Return a lookup at flattened positions, reshaped to the positions' shape, as one lookup.

    Returns None for any other term, and for a single position, which the algebra turns into a vector. `alone` returns whether
    nothing else needs the flat rows.
    """
    found = term.args[0] if term.op == "reshape" else term
    if found.op != "lookup" or found.args[0].rank != 2 or found.args[1].op != "reshape" or not alone(found):
        return None
    table, positions = found.args[0], found.args[1].args[0]
    whole = positions.rank > 0 and term.shape == (*positions.shape, table.shape[-1])
    return apply("lookup", table, positions) if whole else None
