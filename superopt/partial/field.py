"""Arithmetic in several prime fields at once, as a number domain for `superopt.algebra.evaluate`.

The last axis of an array has one entry per field.
"""

# ruff: noqa: ARG002 (the methods are those of every domain)

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from superopt.algebra.terms import Number
from superopt.errors import Undecidable
from superopt.policy import MUTANT

Array = npt.NDArray[Any]

BITS = 31
HALF = 16
MOST_TERMS = 1 << 20
"""The largest number of summands for which float64 sums products of two 16-bit integers without rounding."""


class TooLarge(Exception):  # noqa: N818 (no error: the caller evaluates fewer positions at a time)
    """Raised if an evaluation would need too much memory. The caller then evaluates fewer positions at a time."""


@functools.cache
def program_field_primes(count: int) -> tuple[int, ...]:
    """Return the `count` largest primes below 2 ** 31, the largest first."""
    found: list[int] = []
    candidate = 2**BITS - 1
    while len(found) < count:
        if _is_prime(candidate):
            found.append(candidate)
        candidate -= 2
    return tuple(found)


def _is_prime(odd: int) -> bool:
    """Return whether an odd number below 3,215,031,751 is prime.

    The Miller-Rabin test with the bases 2, 3, 5 and 7 is exact below this bound.
    """
    twos = ((odd - 1) & -(odd - 1)).bit_length() - 1
    for base in (2, 3, 5, 7):
        power = pow(base, (odd - 1) >> twos, odd)
        if power not in (1, odd - 1) and all((power := power * power % odd) != odd - 1 for _ in range(twos - 1)):
            return False
    return True


class FieldResidues:
    """Residues in several prime fields, stored as an unevaluated sum of products. The value is the product of the arrays in
    `factors`, summed over the first `summed` axes.

    The last axis has one entry per field. The residues are computed when they are first read.
    """

    __slots__ = ("factors", "moduli", "summed", "value")

    def __init__(self, moduli: Array, *factors: Array, summed: int = 0) -> None:
        self.moduli = moduli
        self.factors = factors
        self.summed = summed
        self.value = factors[0] if len(factors) == 1 and not summed else None

    @property
    def ndim(self) -> int:
        return max(f.ndim for f in self.factors) - self.summed

    @property
    def array(self) -> Array:
        """The residues as an array.

        Raises:
            TooLarge: The array would need too much memory.
        """
        if self.value is None:
            self.value = contract_residues(self.factors, self.summed, self.moduli)
        return self.value

    def __add__(self, other: FieldResidues) -> FieldResidues:
        return FieldResidues(self.moduli, (self.array + other.array) % self.moduli)

    def __sub__(self, other: FieldResidues) -> FieldResidues:
        return FieldResidues(self.moduli, (self.array - other.array) % self.moduli)

    def __mul__(self, other: FieldResidues) -> FieldResidues:
        return FieldResidues(self.moduli, self.array, other.array)

    def sum(self) -> FieldResidues:
        """Return the sum over the first axis."""
        return FieldResidues(self.moduli, *self.factors, summed=self.summed + 1)


def contract_residues(factors: Sequence[Array], summed: int, moduli: Array) -> Array:
    """Multiply one or two arrays of residues, and return the sum over the first `summed` axes of the broadcast shape. The last
    axis has one entry for each modulus in `moduli`.
    """
    rank = max(f.ndim for f in factors)
    wide = [f.reshape((1,) * (rank - f.ndim) + f.shape) for f in factors]
    if len(wide) == 1:
        return np.asarray(wide[0].sum(axis=tuple(range(summed))) % moduli)
    a, b = wide
    shape = np.broadcast_shapes(a.shape, b.shape)
    if not summed or math.prod(shape) <= MUTANT.max_plain_products:
        if math.prod(shape) > MUTANT.max_residues:
            raise TooLarge
        product = a * b % moduli
        return np.asarray(product.sum(axis=tuple(range(summed))) % moduli) if summed else product
    found = [_matrix_product(a[..., f], b[..., f], summed, int(p)) for f, p in enumerate(moduli)]
    return np.stack(found, axis=-1)


def _matrix_product(a: Array, b: Array, summed: int, modulus: int) -> Array:
    """Multiply two arrays of residues in one field, and return the sum of the product over the first `summed` axes.

    The sum is computed as a matrix product. Axes along which only one factor varies become rows or columns. Axes along which
    both factors vary become a batch.
    """
    shape = np.broadcast_shapes(a.shape, b.shape)
    kept = range(summed, len(shape))
    rows = [d for d in kept if b.shape[d] == 1 < shape[d]]
    columns = [d for d in kept if a.shape[d] == 1 < shape[d]]
    batch = [d for d in kept if d not in rows and d not in columns]
    inner = list(range(summed))

    def matrix(factor: Array, own: Sequence[int], *, inner_first: bool) -> Array:
        wide = np.broadcast_to(
            factor, [n if d in batch or d in inner else m for d, (n, m) in enumerate(zip(shape, factor.shape, strict=True))]
        )
        other = [d for d in kept if d not in batch and d not in own]
        order = [*batch, *((*inner, *own) if inner_first else (*own, *inner)), *other]
        sizes = [math.prod(wide.shape[d] for d in group) for group in (batch, inner, own)]
        turned = np.transpose(wide, order)
        return turned.reshape(sizes[0], *((sizes[1], sizes[2]) if inner_first else (sizes[2], sizes[1])))

    found = _modular(matrix(a, rows, inner_first=False), matrix(b, columns, inner_first=True), modulus)
    groups = [*batch, *rows, *columns]
    found = found.reshape([shape[d] for d in groups])
    return np.transpose(found, np.argsort(groups))


def _modular(a: Array, b: Array, modulus: int) -> Array:
    """Return the matrix product of residues modulo `modulus`.

    The residues are split into 16-bit halves. In float64 arithmetic, a sum of at most 2 ** 20 products of two halves is exact.
    """
    total: Array | int = 0
    for start in range(0, a.shape[-1], MOST_TERMS):
        left = _halves(a[..., start : start + MOST_TERMS])
        right = _halves(b[..., start : start + MOST_TERMS, :])
        for i, one in enumerate(left):
            for j, other in enumerate(right):
                part = (one @ other).astype(np.int64) % modulus
                total = (total + part * pow(2, HALF * (i + j), modulus)) % modulus
    return np.asarray(total)


def _halves(a: Array) -> tuple[Array, Array]:
    return (a & ((1 << HALF) - 1)).astype(np.float64), (a >> HALF).astype(np.float64)


class PrimeFields:
    """The number domain of residues modulo primes below 2 ** 31. An int64 number can hold the product of two residues."""

    tail = 1

    def __init__(self, moduli: Sequence[int]) -> None:
        self.primes = tuple(moduli)
        self.moduli = np.array(moduli, dtype=np.int64)

    def read(self, array: Array) -> FieldResidues:
        return FieldResidues(self.moduli, array)

    def array(self, value: FieldResidues) -> Array:
        return value.array

    def ndim(self, value: FieldResidues) -> int:
        return value.ndim

    def sum(self, value: FieldResidues) -> FieldResidues:
        return value.sum()

    def max(self, value: FieldResidues) -> FieldResidues:
        raise Undecidable("a maximum of elements is not a polynomial in the inputs")

    def select(self, condition: Array | bool, then: FieldResidues, other: FieldResidues) -> FieldResidues:
        return self.read(np.where(np.asarray(condition)[..., None], then.array, other.array))

    def number(self, value: Array | Number) -> FieldResidues:
        """Return the residues of a number, or of an array of integers.

        Raises:
            Undecidable: The number is not finite, or one of the primes divides the number's denominator.
        """
        if isinstance(value, np.ndarray):
            return self.read(value[..., None] % self.moduli)
        return self.read(np.array(residues(value, self.primes), dtype=np.int64))

    def lowest(self) -> FieldResidues:
        raise Undecidable("minus infinity has no value in a prime field")

    def call(self, function: str, *values: FieldResidues) -> FieldResidues:
        if function != "reciprocal":
            raise Undecidable(f"the function {function} of input elements is not a polynomial in the inputs")
        array = values[0].array
        known, places = np.unique(array.reshape(-1, len(self.primes)), axis=0, return_inverse=True)
        inverses = [[pow(int(v), -1, p) if v else 0 for v, p in zip(row, self.primes, strict=True)] for row in known]
        return self.read(np.array(inverses, dtype=np.int64)[places.reshape(-1)].reshape(array.shape))


def residues(number: Number, moduli: Sequence[int]) -> tuple[int, ...]:
    """Return the residue of a rational number for each modulus. A float is treated as an exact binary fraction.

    Raises:
        Undecidable: The number is not finite, or one of the moduli divides the number's denominator.
    """
    if isinstance(number, float) and not math.isfinite(number):
        raise Undecidable(f"the number {number} has no value in a prime field")
    fraction = Fraction(number)
    if any(fraction.denominator % p == 0 for p in moduli):
        raise Undecidable(f"the number {number} has no value in a prime field whose prime divides the number's denominator")
    return tuple(fraction.numerator * pow(fraction.denominator, -1, p) % p for p in moduli)


def reconstruct_rational(residue: int, modulus: int) -> Fraction | None:
    """Return the small fraction whose residue modulo `modulus` is `residue`, or None if there is no such fraction.

    A fraction is small if its numerator and denominator are at most the square root of half the modulus.
    """
    bound = math.isqrt(modulus // 2)
    (r0, s0), (r1, s1) = (modulus, 0), (residue % modulus, 1)
    while r1 > bound:
        quotient = r0 // r1
        (r0, s0), (r1, s1) = (r1, s1), (r0 - quotient * r1, s0 - quotient * s1)
    return Fraction(r1, s1) if s1 and abs(s1) <= bound and math.gcd(r1, s1) == 1 else None


def draw_residues(name: str, positions: Array, seed: int, moduli: Array) -> Array:
    """Return pseudorandom residues, of shape (positions, fields), for the elements of a variable at row-major positions.

    Each residue depends only on the name, the position, the field and the seed.
    """
    key = np.uint64(int.from_bytes(hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest(), "little"))
    fields = np.arange(1, len(moduli) + 1, dtype=np.uint64) * np.uint64(0xD1B54A32D192ED03)
    state = positions.astype(np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15) + fields + key
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    state ^= state >> np.uint64(31)
    return np.asarray((state % moduli.astype(np.uint64)).astype(np.int64))
