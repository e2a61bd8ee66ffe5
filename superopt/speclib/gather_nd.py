"""Lookups of rows at positions of any shape, as one Gather. In terms, positions are flattened and the result is reshaped."""

from __future__ import annotations

from collections.abc import Callable

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term


def unflattened(term: Term, alone: Callable[[Term], bool]) -> Term | None:
    """Convert a lookup at flattened positions, with a reshaped result, to one lookup at the positions themselves.

    Return None for any other term, and for a single position, which is a vector in terms. `alone(t)` must return whether no
    other term uses t. The lookup at flattened positions must have no other users.
    """
    found = term.args[0] if term.op == "reshape" else term
    if found.op != "lookup" or found.args[0].rank != 2 or found.args[1].op != "reshape" or not alone(found):
        return None
    table, positions = found.args[0], found.args[1].args[0]
    whole = positions.rank > 0 and term.shape == (*positions.shape, table.shape[-1])
    return apply("lookup", table, positions) if whole else None
