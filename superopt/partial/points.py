"""Values of programs over prime fields at chosen positions only: each operator is asked for no position that is not needed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from superopt import index
from superopt.evaluate import Grid, evaluate
from superopt.graph import Extent, Term, variables
from superopt.op import interpret
from superopt.partial.field import Array, PrimeFields, drawn
from superopt.partial.reading import written_out

WORK = 1 << 22
DENSE = 1 << 22
"""Elements beyond which no table of all of them is made."""
MANY = 64
"""How many times the positions asked for a table may hold: a larger one takes longer to fill than the positions to sort."""


class _Positions(Grid):
    """The interpretation at a list of positions of one term: an index has an axis for these, and sums add theirs in front."""

    def __init__(self, domain: PrimeFields) -> None:
        super().__init__(domain)
        self.depth = 1

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., Any]) -> index.Tensor:
        return index.Tensor(shape, at)


class Points:
    """Random inputs over prime fields, and what programs make of them at positions that are asked for, worked out once."""

    def __init__(self, domain: PrimeFields, seed: int) -> None:
        self.domain = domain
        self.seed = seed
        self._known: dict[Term, tuple[Array, Array]] = {}

    def values(self, program: Term, positions: Array) -> Array:
        """Residues of shape (n, fields) of the program at n positions, int64 of shape (n, rank).

        Raises:
            Undecidable: the program is no polynomial in its variables.
        """
        flat = np.ravel_multi_index(tuple(positions.T), program.sizes) if program.rank else np.zeros(len(positions), np.int64)
        return self._at(written_out(program), np.asarray(flat))

    def forget(self, kept: Collection[Term]) -> None:
        """Lets go of the values of all terms but these."""
        self._known = {term: known for term, known in self._known.items() if term in kept}

    def _at(self, term: Term, flat: Array) -> Array:
        """Values of shape (*flat.shape, fields) at flat positions, repeated ones worked out once."""
        wanted, places = _distinct(flat.reshape(-1), int(np.prod(term.sizes, dtype=np.int64)))
        known, values = self._known.get(term, (np.zeros(0, np.int64), np.zeros((0, len(self.domain.primes)), np.int64)))
        missing = np.setdiff1d(wanted, known, assume_unique=True) if len(known) else wanted
        if len(missing):
            found = self._drawn(term, missing) if term.is_variable else self._computed(term, missing)
            known, values = np.concatenate([known, missing]), np.concatenate([values, found])
            order = np.argsort(known)
            known, values = known[order], values[order]
            self._known[term] = known, values
        chosen = values if len(wanted) == len(known) else values[np.searchsorted(known, wanted)]
        return np.asarray(chosen[places].reshape(*flat.shape, -1))

    def _drawn(self, term: Term, flat: Array) -> Array:
        return drawn(f"{term.name}{term.sizes}", flat, self.seed, self.domain.moduli)

    def _computed(self, term: Term, flat: Array) -> Array:
        """As `_at` for distinct positions, in pieces whose sums fit into memory."""
        interpretation = _Positions(self.domain)
        operands = [self._operand(a) for a in term.args]
        piece = max(1, WORK // _terms(term))
        found = []
        with index.interpreted(interpretation):
            result = interpret(term, operands)
            for start in range(0, len(flat), piece):
                part = flat[start : start + piece]
                position = np.unravel_index(part, term.sizes) if term.rank else ()
                value = self.domain.array(result.at(*position))
                found.append(np.broadcast_to(value, (len(part), len(self.domain.primes))))
        return np.concatenate(found)

    def _operand(self, term: Term) -> index.Tensor:
        """An operand, worked out where it is read; what is read out of bounds is some element, for `select` to discard."""
        sizes = term.sizes

        def at(*position: Any) -> Any:
            flat: Any = np.zeros(1, np.int64)
            for i, n in zip(position, sizes, strict=True):
                flat = flat * n + np.clip(i, 0, n - 1)
            return self.domain.read(self._at(term, flat))

        return index.Tensor(sizes, at)


def _terms(term: Term) -> int:
    """How many products an element of the term sums at most, as its operands' sizes bound it."""
    largest = max((int(np.prod(a.sizes, dtype=np.int64)) for a in term.args), default=1)
    own = int(np.prod(term.sizes, dtype=np.int64))
    match term.op:
        case "matmul":
            return term.args[0].sizes[-1]
        case "conv" | "conv_transpose":
            weight = term.args[1].sizes
            return int(np.prod(weight[1:] if term.op == "conv" else (weight[0], *weight[2:])))
        case _:
            return max(1, min(largest, -(-largest // own) * 16))


def _distinct(flat: Array, size: int) -> tuple[Array, Array]:
    """The distinct positions in order, and where each position is among them."""
    if size > min(DENSE, MANY * len(flat)):
        wanted, places = np.unique(flat, return_inverse=True)
        return wanted, places.reshape(-1)
    table = np.zeros(size, np.int64)
    table[flat] = 1
    wanted = np.flatnonzero(table)
    table[wanted] = np.arange(len(wanted))
    return wanted, table[flat]


def everywhere(programs: tuple[Term, ...], domain: PrimeFields, seed: int) -> tuple[Array, ...]:
    """Residues of shape (*sizes, fields) of the programs at every position, by evaluation of whole tensors on the inputs that
    `Points` has.

    Raises:
        Undecidable: a program is no polynomial in its variables.
    """
    arrays = {
        v.name: drawn(f"{v.name}{v.sizes}", np.arange(int(np.prod(v.sizes))), seed, domain.moduli).reshape(*v.sizes, -1)
        for v in variables(*programs)
    }
    return evaluate(tuple(map(written_out, programs)), arrays, lambda _: None, domain)
