"""Convert a row lookup with flattened indices to a lookup with an index tensor of any shape. The result is one Gather node."""

from __future__ import annotations

from collections.abc import Callable

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term


def unflattened(term: Term, alone: Callable[[Term], bool]) -> Term | None:
    """Convert `reshape(lookup(table, reshape(positions)))` to `lookup(table, positions)`.

    Return None for any other term. Also return None if `positions` has rank 0, or if the inner lookup has other users.
    `alone(t)` must return whether term t has only one user.
    """
    found = term.args[0] if term.op == "reshape" else term
    if found.op != "lookup" or found.args[0].rank != 2 or found.args[1].op != "reshape" or not alone(found):
        return None
    table, positions = found.args[0], found.args[1].args[0]
    whole = positions.rank > 0 and term.shape == (*positions.shape, table.shape[-1])
    return apply("lookup", table, positions) if whole else None
