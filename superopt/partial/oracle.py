"""Test whether programs with any operators are equal, on whole tensors over prime fields, with oracles for nonlinear functions.

An oracle maps each combination of residues to residues that look random, and always maps equal combinations to equal residues
(Bellare and Rogaway, Random oracles are practical, 1993). The maximum of some values is the sum of an oracle's residues for the
values. Programs with the same residues are therefore equal for any functions in place of the oracles. The exception is that two
different polynomials may have the same value by chance (Schwartz and Zippel). Programs that are equal only by a law of some
function may be found to differ. Unequal programs are not found equal. See docs/certificates.md.
"""

# ruff: noqa: ARG002 (the methods are those of every interpretation)

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from superopt.algebra.evaluate import evaluate_terms
from superopt.algebra.terms import Extent, Term, subterms, variables
from superopt.errors import ShapeError, Undecidable
from superopt.partial.degree import Bounds, Extremes, bounds
from superopt.partial.field import BITS, Array, FieldResidues, PrimeFields, TooLarge, draw_residues, program_field_primes
from superopt.partial.reading import expand_program_composites
from superopt.policy import MUTANT
from superopt.rules.work import total_work

STATE = 128
"""The number of bits of an oracle's internal state. Different combinations of residues must have different states."""

Words = npt.NDArray[np.uint64]
_FIRST, _SECOND, _STEP = (np.uint64(n) for n in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15))


@dataclass(frozen=True)
class Agreement:
    """The result of a test whether programs have the same values at every position.

    Attributes:
        equal: Whether the programs have the same residues. If True, the probability that the programs differ is at most 2 **
            `log2_error`. If False, the programs differ for some choice of the nonlinear functions.
        fields: The number of prime fields in which the programs were evaluated.
        log2_error: The base-2 logarithm of the error probability.
    """

    equal: bool
    fields: int
    log2_error: float


def agreement(programs: Sequence[Term], others: Sequence[Term], *, seed: int = 0) -> Agreement:
    """Test on one random input whether each program equals its counterpart in `others` at all positions.

    Values are residues in prime fields. Nonlinear functions are replaced by pseudorandom functions.

    Raises:
        Undecidable: The shapes differ, an extent is not an integer, a number cannot be represented in a prime field, or the
            programs are too large.
    """
    both = (*programs, *others)
    if not all(isinstance(n, int) for term in subterms(*both) for n in term.shape):
        raise Undecidable("an extent of a program is not an integer")
    if [t.shape for t in programs] != [t.shape for t in others]:
        raise Undecidable("the outputs of the programs to compare have different shapes")
    if total_work(both).flops > MUTANT.max_oracle_operations:
        raise Undecidable(f"the evaluation in prime fields takes more than {MUTANT.max_oracle_operations} operations")
    roots = tuple(map(expand_program_composites, both))
    worst = _worst(roots)
    lost = int(max(2 * worst.numerators + 2 * worst.denominator, 0.0) / (BITS - 0.01))
    per_field = BITS - 0.01 - math.log2(max(worst.degree, 1))
    if per_field <= 0:
        raise Undecidable(f"the polynomials have degree {worst.degree}, which is too high for prime fields of {BITS} bits")
    count = math.ceil((2 * MUTANT.max_log2_oracle_queries - MUTANT.log2_error) / per_field) + lost
    domain = Oracles(program_field_primes(count), seed)
    arrays = {v.name: _inputs(v, domain, seed) for v in variables(*roots)}
    try:
        values = evaluate_terms(roots, arrays, lambda _: None, domain)
    except (TooLarge, MemoryError) as error:
        raise Undecidable("the tensors are too large to be evaluated in prime fields") from error
    except (ShapeError, NotImplementedError) as error:
        raise Undecidable(f"an operator has no values in prime fields ({error})") from error
    half = len(programs)
    equal = all(np.array_equal(a, b) for a, b in zip(values[:half], values[half:], strict=True))
    asked = math.log2(domain.asked + sum(math.prod(t.sizes) for t in programs) + 1)
    log2_error = max(2 * asked - (count - lost) * per_field, 2 * asked - STATE)
    if log2_error > MUTANT.log2_error:
        raise Undecidable(
            f"the random oracles would be queried 2 ** {asked:.0f} times, too often for the allowed probability of error"
        )
    return Agreement(equal, count, log2_error)


def _inputs(v: Term, domain: PrimeFields, seed: int) -> Array:
    flat = draw_residues(f"{v.name}{v.sizes}", np.arange(math.prod(v.sizes)), seed, domain.moduli)
    return flat.reshape(*v.sizes, -1)


class Oracles(PrimeFields):
    """Prime fields with a pseudorandom function, called an oracle, for each function that is not a polynomial.

    `asked` is an upper bound on the number of values for which oracles were evaluated.
    """

    def __init__(self, moduli: Sequence[int], seed: int) -> None:
        super().__init__(moduli)
        self.seed = seed
        self.asked = 0

    def lowest(self) -> FieldResidues:
        """Return residues that stand for minus infinity. The residues are pseudorandom, and a maximum ignores them."""
        return self.read(draw_residues("minus infinity", np.zeros(1, np.int64), self.seed, self.moduli)[0])

    def max(self, value: FieldResidues) -> FieldResidues:
        array = value.array
        left_out = (array == self.lowest().array).all(axis=-1, keepdims=True)
        found = np.where(left_out, 0, self._asked("maximum", [array]))
        return self.read(found.sum(axis=0) % self.moduli)

    def call(self, function: str, *values: FieldResidues) -> FieldResidues:
        arrays = [v.array for v in values]
        if function == "larger":
            return self.max(self.read(np.stack(np.broadcast_arrays(*arrays))))
        return self.read(self._asked(function, arrays))

    def _asked(self, function: str, arrays: Sequence[Array]) -> Array:
        """Return pseudorandom residues for each combination of argument residues. Residues in different fields are
        independent.
        """
        name = hashlib.blake2b(f"{self.seed}:{function}".encode(), digest_size=16).digest()
        keys = np.frombuffer(name, dtype=np.uint64)
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        one, other = (np.full(shape[:-1], key, np.uint64) for key in keys)
        for array in arrays:
            for field in range(shape[-1]):
                word = array[..., field].astype(np.uint64)
                one, other = _mixed(one * _STEP + word), _mixed((other ^ word) * _FIRST + _STEP)
        self.asked += math.prod(shape[:-1])
        fields = np.arange(1, shape[-1] + 1, dtype=np.uint64) * _SECOND
        state = _mixed(_mixed(one[..., None] + fields) ^ other[..., None])
        return np.asarray((state % self.moduli.astype(np.uint64)).astype(np.int64))


def _mixed(state: Words) -> Words:
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        state = (state ^ (state >> np.uint64(shift))) * factor
    return state ^ (state >> np.uint64(31))


# ---------------------------------------------------------------- degrees between oracles


FRESH = Extremes(1, 0.0)
"""The bounds on the degree and the coefficients of an oracle's result. An oracle is a pseudorandom function, and its result
counts as a new variable.
"""


class _Between(Bounds):
    """A version of `Bounds` (bounds on polynomials) in which the result of every pseudorandom function is a new variable.

    `met` collects the bounds of the arguments of these functions, which are called oracles.
    """

    def __init__(self) -> None:
        self.met: list[Extremes] = []

    def maximum(self, extent: Extent, body: Callable[[Any], Extremes]) -> Extremes:
        self.met.append(body(0))
        return Extremes(1, math.log2(max(int(extent), 1)))  # type: ignore[arg-type]

    def call(self, function: str, *arguments: Extremes) -> Extremes:
        self.met += arguments
        return FRESH

    def picked(self, value: Extremes, extent: Extent, body: Callable[[Any], Extremes]) -> Extremes:
        self.met += [value + Extremes(0, math.log2(max(int(extent), 1))), body(0)]  # type: ignore[arg-type]
        return FRESH

    def lowest(self) -> Extremes:
        return FRESH


def _worst(roots: Sequence[Term]) -> Extremes:
    """Return bounds that hold for every polynomial in the programs: the results, and the arguments of nonlinear functions."""
    known: dict[Term, Extremes] = {}
    meaning = _Between()
    for term in subterms(*roots):
        known[term] = FRESH if term.is_variable else bounds(term, known, meaning)
    every = [*meaning.met, *(known[root] for root in roots)]
    degree = max(e.degree for e in every)
    return Extremes(degree, max(e.numerators for e in every), max(e.denominator for e in every))
