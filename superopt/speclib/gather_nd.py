"""Replace a row lookup with flattened indices by a lookup, in one Gather node, with an index tensor of any shape."""

from __future__ import annotations

from collections.abc import Callable

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term


def unflattened(term: Term, alone: Callable[[Term], bool]) -> Term | None:
    """Convert a lookup at flattened positions with a reshaped result to one lookup at the original positions.

    Return None for any other term, for a single position, and if the lookup at flattened positions has other users. `alone(t)`
    must return whether term t has only one user.
    """
    found = term.args[0] if term.op == "reshape" else term
    if found.op != "lookup" or found.args[0].rank != 2 or found.args[1].op != "reshape" or not alone(found):
        return None
    table, positions = found.args[0], found.args[1].args[0]
    whole = positions.rank > 0 and term.shape == (*positions.shape, table.shape[-1])
    return apply("lookup", table, positions) if whole else None
