"""Values of programs over prime fields at chosen output positions. Each operator is evaluated only at the needed positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from superopt.algebra import index
from superopt.algebra.evaluate import Grid, evaluate_terms
from superopt.algebra.operators import interpret
from superopt.algebra.terms import Extent, Term, subterms, variables
from superopt.errors import Undecidable
from superopt.partial.field import Array, FieldResidues, PrimeFields, TooLarge, draw_residues
from superopt.partial.reading import expand_program_composites
from superopt.policy import MUTANT


class _Positions(Grid):
    """The interpretation of index notation at positions given by arrays. Every sum adds an axis in front of the arrays'
    axes.
    """

    def __init__(self, domain: PrimeFields, rank: int) -> None:
        super().__init__(domain)
        self.depth = rank

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., FieldResidues]) -> index.Tensor:
        return index.Tensor(shape, at)


class Points:
    """Random inputs over prime fields, and cached values of programs at chosen positions."""

    def __init__(self, program: Term, domain: PrimeFields, seed: int) -> None:
        self.program = program
        self.domain = domain
        self.seed = seed
        self._known: dict[Term, tuple[Array, Array]] = {}

    def values(self, program: Term, positions: Array) -> Array:
        """Return the residues of the program at n output positions, as an array of shape (n, number of prime fields).

        `positions` is int64 of shape (n, rank).

        Raises:
            Undecidable: The program is not a polynomial in its variables.
        """
        flat = np.ravel_multi_index(tuple(positions.T), program.sizes) if program.rank else np.zeros(len(positions), np.int64)
        return self._at(expand_program_composites(program), np.asarray(flat))

    def forget(self) -> None:
        """Drop the cached values of all terms except the terms of the program that was passed to the constructor."""
        kept = set(subterms(expand_program_composites(self.program)))
        self._known = {term: known for term, known in self._known.items() if term in kept}

    def _at(self, term: Term, flat: Array) -> Array:
        """Return the residues of the term at the row-major positions `flat`. Each distinct position is computed once.

        The result has one more axis than `flat`. The last axis has one residue for each prime field.
        """
        wanted, places = _distinct(flat.reshape(-1), math.prod(term.sizes))
        known, values = self._known.get(term, (np.zeros(0, np.int64), np.zeros((0, len(self.domain.primes)), np.int64)))
        missing = np.setdiff1d(wanted, known, assume_unique=True) if len(known) else wanted
        if len(missing):
            found = [(missing, self._drawn(term, missing))] if term.is_variable else list(self._computed(term, missing))
            together = np.concatenate([known, *(at for at, _ in found)])
            known, order = np.unique(together, return_index=True)
            values = np.concatenate([values, *(v for _, v in found)])[order]
            self._known[term] = known, values
        chosen = values if len(wanted) == len(known) else values[np.searchsorted(known, wanted)]
        return np.asarray(chosen[places].reshape(*flat.shape, -1))

    def _drawn(self, term: Term, flat: Array) -> Array:
        return draw_residues(f"{term.name}{term.sizes}", flat, self.seed, self.domain.moduli)

    def _computed(self, term: Term, flat: Array) -> Iterator[tuple[Array, Array]]:
        """Yield pairs: an array of row-major positions, and the term's values at these positions. All positions in `flat` are
        included.
        """
        yield from self._in_pieces(term, _product(flat, term.sizes) if term.rank else ())

    def _in_pieces(self, term: Term, grids: tuple[Array, ...]) -> Iterator[tuple[Array, Array]]:
        """Yield pairs: an array of row-major positions, and the term's values at these positions. `grids` has one index array
        per axis, and the arrays are broadcast.

        If the values need too much memory, the positions are divided in halves.
        """
        shape = np.broadcast_shapes(*(g.shape for g in grids)) if grids else (1,)
        grids = tuple(g.reshape((1,) * (len(shape) - g.ndim) + g.shape) for g in grids)
        try:
            yield np.asarray(_flat(grids, term.sizes)).reshape(-1), self._on(term, grids, shape)
        except TooLarge:
            axis = max(range(len(shape)), key=shape.__getitem__)
            if shape[axis] == 1:
                raise Undecidable(f"a single value of {term.op} needs more memory than the limit allows") from None
            for half in (slice(None, shape[axis] // 2), slice(shape[axis] // 2, None)):
                part = (slice(None),) * axis + (half,)
                yield from self._in_pieces(term, tuple(g[part] if g.shape[axis] > 1 else g for g in grids))

    def _on(self, term: Term, grids: tuple[Array, ...], shape: tuple[int, ...]) -> Array:
        """Return the term's values at the positions `grids`, which broadcast to `shape`.

        The result has one row for each position, and one column for each prime field.
        """
        with index.interpreted(_Positions(self.domain, len(shape))):
            result = interpret(term, [self._operand(a) for a in term.args])
            value = self.domain.array(result.at(*grids))
        return np.broadcast_to(value, (*shape, len(self.domain.primes))).reshape(-1, len(self.domain.primes))

    def _operand(self, term: Term) -> index.Tensor:
        """Return the term as an operand whose values are computed only at the positions that are read.

        A read out of bounds returns an arbitrary element, which `select` discards.
        """

        def at(*position: Array | int) -> FieldResidues:
            if math.prod(np.broadcast_shapes(*map(np.shape, position))) * len(self.domain.primes) > MUTANT.max_residues:
                raise TooLarge
            return self.domain.read(self._at(term, _flat(position, term.sizes)))

        return index.Tensor(term.sizes, at)


def _product(flat: Array, sizes: Sequence[int]) -> tuple[Array, ...]:
    """Convert the row-major positions `flat` in a tensor to one index array per axis of the tensor.

    Together, the arrays broadcast to the positions in `flat` and perhaps a few other positions. The positions in `flat` must be
    distinct. If the positions are a product of a set of indices along one tensor axis and a set of positions along the
    remaining tensor axes, each of the two sets gets its own array axis. As a result, sums of products become matrix products.
    """
    position = [np.asarray(i) for i in np.unravel_index(flat, sizes)]
    together = list(range(len(sizes)))
    apart: dict[int, Array] = {}
    for axis in range(len(sizes)):
        rest = [a for a in together if a != axis]
        alone = _held(position[axis], sizes[axis])
        if rest and len(alone) > 1:
            extents = [sizes[a] for a in rest]
            combined = np.ravel_multi_index([position[a] for a in rest], extents)
            others = _distinct(combined, math.prod(extents))[0]
            if len(alone) * len(others) <= MUTANT.max_spare_position_factor * len(combined):
                apart[axis], together = alone, rest
                for a, along in zip(rest, np.unravel_index(others, extents), strict=True):
                    position[a] = np.asarray(along)
    rank = len(apart) + 1
    for n, (axis, alone) in enumerate(apart.items()):
        position[axis] = alone.reshape((1,) * n + (-1,) + (1,) * (rank - 1 - n))
    return tuple(position)


def _held(numbers: Array, extent: int) -> Array:
    """Return the distinct numbers in `numbers` in order. All numbers are below `extent`."""
    return np.flatnonzero(np.bincount(numbers, minlength=extent))


def _flat(position: Sequence[Array | int], sizes: Sequence[int]) -> Array:
    """Return the row-major positions in a tensor of these sizes, clipped to the tensor's bounds. For a scalar, the result has
    shape (1,).
    """
    flat: Array = np.zeros(1, np.int64)
    for i, n in zip(position, sizes, strict=True):
        flat = flat * n + np.clip(i, 0, n - 1)
    return np.asarray(flat)


def _distinct(flat: Array, size: int) -> tuple[Array, Array]:
    """Return the distinct positions in order, and for each position its index among the distinct positions."""
    if size > min(MUTANT.max_table_elements, MUTANT.max_table_factor * len(flat)):
        wanted, places = np.unique(flat, return_inverse=True)
        return wanted, places.reshape(-1)
    table = np.zeros(size, np.int64)
    table[flat] = 1
    wanted = np.flatnonzero(table)
    table[wanted] = np.arange(len(wanted))
    return wanted, table[flat]


def evaluate_residues(programs: tuple[Term, ...], domain: PrimeFields, seed: int) -> tuple[Array, ...]:
    """Return the residues of each program at every output position, as an array of shape (*sizes, fields). Whole tensors are
    evaluated.

    The random inputs are equal to the random inputs of `Points` with this seed.

    Raises:
        Undecidable: A program is not a polynomial in its variables.
    """
    arrays = {
        v.name: draw_residues(f"{v.name}{v.sizes}", np.arange(math.prod(v.sizes)), seed, domain.moduli).reshape(*v.sizes, -1)
        for v in variables(*programs)
    }
    return evaluate_terms(tuple(map(expand_program_composites, programs)), arrays, lambda _: None, domain)
