"""Arithmetic in several prime fields at once, as a domain of `superopt.evaluate`: the last axis of an array has one residue a field."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from superopt.errors import Undecidable

Array = npt.NDArray[Any]

BITS = 31


def primes(count: int) -> tuple[int, ...]:
    """That many primes below 2 ** 31, the largest first."""
    found: list[int] = []
    candidate = 2**BITS - 1
    while len(found) < count:
        if _is_prime(candidate):
            found.append(candidate)
        candidate -= 2
    return tuple(found)


def _is_prime(odd: int) -> bool:
    """Miller and Rabin's test, which is certain below 3,215,031,751 with the bases 2, 3, 5 and 7."""
    twos = ((odd - 1) & -(odd - 1)).bit_length() - 1
    for base in (2, 3, 5, 7):
        power = pow(base, (odd - 1) >> twos, odd)
        if power not in (1, odd - 1) and all((power := power * power % odd) != odd - 1 for _ in range(twos - 1)):
            return False
    return True


class Residues:
    """Values of shape (..., fields): each from 0 to its field's modulus."""

    __slots__ = ("array", "moduli")

    def __init__(self, array: Array, moduli: Array) -> None:
        self.array = array
        self.moduli = moduli

    def __add__(self, other: Residues) -> Residues:
        return Residues((self.array + other.array) % self.moduli, self.moduli)

    def __sub__(self, other: Residues) -> Residues:
        return Residues((self.array - other.array) % self.moduli, self.moduli)

    def __mul__(self, other: Residues) -> Residues:
        return Residues(self.array * other.array % self.moduli, self.moduli)


class PrimeFields:
    """The domain whose values are residues modulo these primes, which are below 2 ** 31, so that int64 holds products."""

    tail = 1

    def __init__(self, moduli: Sequence[int]) -> None:
        self.primes = tuple(moduli)
        self.moduli = np.array(moduli, dtype=np.int64)

    def read(self, array: Array) -> Residues:
        return Residues(array, self.moduli)

    def array(self, value: Residues) -> Array:
        return value.array

    def ndim(self, value: Residues) -> int:
        return value.array.ndim

    def sum(self, value: Residues) -> Residues:
        return self.read(value.array.sum(axis=0) % self.moduli)

    def max(self, value: Residues) -> Residues:
        raise Undecidable("a maximum is no polynomial")

    def select(self, condition: Any, then: Residues, other: Residues) -> Residues:
        return self.read(np.where(np.asarray(condition)[..., None], then.array, other.array))

    def number(self, value: Any) -> Residues:
        """A number's residues; an index's where it is an array of integers.

        Raises:
            Undecidable: it is not finite, or its denominator has one of the primes as a factor.
        """
        if isinstance(value, np.ndarray):
            return self.read(value[..., None] % self.moduli)
        return self.read(np.array(residues(value, self.primes), dtype=np.int64))

    def lowest(self) -> Residues:
        raise Undecidable("minus infinity is in no field")

    def call(self, function: str, *values: Residues) -> Residues:
        if function != "reciprocal":
            raise Undecidable(f"{function} of values is no polynomial")
        known, places = np.unique(values[0].array.reshape(-1, len(self.primes)), axis=0, return_inverse=True)
        inverses = [[pow(int(v), -1, p) if v else 0 for v, p in zip(row, self.primes, strict=True)] for row in known]
        return self.read(np.array(inverses, dtype=np.int64)[places.reshape(-1)].reshape(values[0].array.shape))


def residues(number: Any, moduli: Sequence[int]) -> tuple[int, ...]:
    """The residues of a rational number; a float is the binary fraction that it is.

    Raises:
        Undecidable: it is not finite, or its denominator has one of the primes as a factor.
    """
    if isinstance(number, float) and not math.isfinite(number):
        raise Undecidable(f"{number} is in no field")
    fraction = Fraction(number)
    if any(fraction.denominator % p == 0 for p in moduli):
        raise Undecidable(f"{number} is not in the field of {max(moduli)} elements")
    return tuple(fraction.numerator * pow(fraction.denominator, -1, p) % p for p in moduli)


def rational(residue: int, modulus: int) -> Fraction | None:
    """The fraction of smallest terms (both below the root of half the modulus) with this residue; None where there is none."""
    bound = math.isqrt(modulus // 2)
    (r0, s0), (r1, s1) = (modulus, 0), (residue % modulus, 1)
    while r1 > bound:
        quotient = r0 // r1
        (r0, s0), (r1, s1) = (r1, s1), (r0 - quotient * r1, s0 - quotient * s1)
    return Fraction(r1, s1) if s1 and abs(s1) <= bound and math.gcd(r1, s1) == 1 else None


def drawn(name: str, positions: Array, seed: int, moduli: Array) -> Array:
    """Residues of shape (positions, fields) that a variable holds at flat positions: uniform, and the same for the same name,
    position and seed wherever they are asked for.
    """
    key = np.uint64(int.from_bytes(_digest(f"{seed}:{name}"), "little"))
    fields = np.arange(1, len(moduli) + 1, dtype=np.uint64) * np.uint64(0xD1B54A32D192ED03)
    state = positions.astype(np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15) + fields + key
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    state ^= state >> np.uint64(31)
    return np.asarray((state % moduli.astype(np.uint64)).astype(np.int64))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
