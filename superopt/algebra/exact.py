"""Exact arithmetic for testing equations: a value is a real number with residues in a chain of prime fields.

A value consists of a real part and one residue in each of the fields Z/P, Z/Q and Z/R, where P = 2Q + 1 and Q = 2R + 1. Values
are ordered by their real parts. Sums, products and quotients are exact in every field. The exponential maps a residue v in Z/Q
to the residue g**v in Z/P, and a residue v in Z/R to the residue g**v in Z/Q. Therefore, exp(x + y) = exp(x) * exp(y) holds.
The logarithm is the inverse of the exponential. If an operation cannot compute a residue, the residue is NaN. Every residue
that depends on a NaN residue is also NaN. Two values count as equal if their residues in one chosen field are equal.

If all prime factors of a positive number are at most 11, the number is a square in each field, and the negative of the number
is a non-square. In each field, a random input is also a square if it is positive, and a non-square if it is negative. The root
is a multiplicative function s on residues with s(v)**2 = v for each square v. The sum of two squares may be a non-square. If v
is a non-square, then s(v)**2 differs from v. If `strict` is True, the root of a non-square is NaN.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from superopt.algebra.operators import operator, registry

Array = npt.NDArray[Any]

CHAIN = (1014719, 507359, 253679)
LARGEST = 2.0**52
NEAR = 1e-11
BASE = 104729**2
MODULI = np.array(CHAIN, dtype=np.float64).reshape(-1, 1)


class Residues:
    """Values as an array of shape (*positions, 1 + fields, batch).

    Along the axis before the batch axis, the real part comes first, then one residue for each field.
    The magnitudes of residues are below `bound`. Residues are reduced only when the next operation requires it.
    """

    __slots__ = ("array", "bound")

    def __init__(self, array: Array, bound: float = float(CHAIN[0])) -> None:
        self.array = array
        self.bound = bound

    def reduced(self) -> Residues:
        """Reduce each residue modulo its prime, and return the result."""
        array = self.array.copy()
        residues = array[..., 1:, :]
        residues -= np.floor(residues / MODULI[: residues.shape[-2]]) * MODULI[: residues.shape[-2]]
        return Residues(array)

    def _small(self, bound: float) -> Residues:
        return self if self.bound <= bound else self.reduced()

    def __add__(self, other: Residues) -> Residues:
        a, b = self._small(LARGEST / 2), other._small(LARGEST / 2)
        return Residues(a.array + b.array, a.bound + b.bound)

    def __sub__(self, other: Residues) -> Residues:
        a, b = self._small(LARGEST / 2), other._small(LARGEST / 2)
        return Residues(a.array - b.array, a.bound + b.bound)

    def __mul__(self, other: Residues) -> Residues:
        a, b = (self, other) if self.bound * other.bound <= LARGEST else (self.reduced(), other.reduced())
        return Residues(a.array * b.array, a.bound * b.bound)

    def sum(self) -> Residues:
        """Return the sum over the first axis."""
        few = self._small(LARGEST / len(self.array))
        return Residues(np.asarray(few.array.sum(axis=0)), few.bound * len(self.array))


# ---------------------------------------------------------------- functions of residues, as tables


def _powers(modulus: int, base: Array, exponent: int) -> Array:
    result, square = np.ones_like(base), base % modulus
    while exponent:
        if exponent & 1:
            result = result * square % modulus
        square = square * square % modulus
        exponent >>= 1
    return result


@functools.cache
def squares(field: int) -> Array:
    """Return a table with 1 for each residue that is a nonzero square, -1 for each non-square, and 0 for 0.

    `field` is the index of the field's prime in `CHAIN`.
    """
    modulus = CHAIN[field]
    found = _powers(modulus, np.arange(modulus), (modulus - 1) // 2)
    return np.where(found == modulus - 1, -1, found).astype(np.int32)


@functools.cache
def inverses(field: int) -> Array:
    """Return a table with the multiplicative inverse of each residue of a prime field. The entry for 0 has no meaning.

    `field` is the index of the field's prime in `CHAIN`.
    """
    return _powers(CHAIN[field], np.arange(CHAIN[field]), CHAIN[field] - 2).astype(np.int32)


@functools.cache
def roots(field: int) -> Array:
    """Return a table of square roots in a prime field. The entry for a residue r is a square root of r or of -r.

    `field` is the index of the field's prime in `CHAIN`. If r is not 0, exactly one of r and -r has square roots. The entry for
    r is the square root that is itself a square. The table is a function s with s(r * t) = s(r) * s(t) for all residues r and
    t, and s(r)**2 = r for each square r.
    """
    modulus = CHAIN[field]
    found = _powers(modulus, np.arange(modulus), (modulus + 1) // 4)
    return np.where(squares(field)[found] < 0, modulus - found, found).astype(np.int32)


@functools.cache
def exponentials(field: int) -> Array:
    """Return a table of the powers `g ** e` modulo the prime `CHAIN[field]`. The exponent e ranges over the residues modulo the
    prime `CHAIN[field + 1]`.

    The number g is `BASE`, whose powers are the nonzero squares modulo `CHAIN[field]`.
    """
    modulus, order = CHAIN[field], CHAIN[field + 1]
    powers = np.ones(1, dtype=np.int64)
    while len(powers) < order:
        step = pow(BASE, len(powers), modulus)
        powers = np.concatenate([powers, powers * step % modulus])
    return powers[:order].astype(np.int32)


@functools.cache
def logarithms(field: int) -> Array:
    """Return a table with discrete logarithms in field number `field` of `CHAIN`. The entry for a residue r is the exponent e
    such that `g ** e` is r or -r.

    The entry for 0 has no meaning.
    """
    found = np.zeros(CHAIN[field], dtype=np.int32)
    powers = exponentials(field)
    found[powers] = np.arange(len(powers), dtype=np.int32)
    found[CHAIN[field] - powers] = found[powers]
    return found


@functools.cache
def keyed(function: str, field: int) -> Array:
    """Return a random function f on the residues of a prime field, as a table. The function is odd: f(-r) = -f(r).

    `field` is the index of the field's prime in `CHAIN`. The table replaces the function named `function`, which is also odd.
    The two functions have no other property in common.
    """
    modulus = CHAIN[field]
    rng = np.random.default_rng([field, *function.encode()])
    half = rng.integers(1, modulus, (modulus - 1) // 2)
    return np.concatenate([[0], half, modulus - half[::-1]]).astype(np.int32)


def _looked_up(table: Array, residues: Array) -> Array:
    lost = np.isnan(residues)
    if not lost.any():
        return table[residues.astype(np.int64)].astype(np.float64)
    found = table[np.where(lost, 0, residues).astype(np.int64)].astype(np.float64)
    return np.where(lost, np.nan, found)


# ---------------------------------------------------------------- the domain


class Fields:
    """The arithmetic of values with a real part and with residues in the first `length` prime fields of `CHAIN`.

    Values count as equal if their residues in field number `identity` are equal. If `strict` is True, the residue of the root,
    logarithm or fractional power of a non-square is NaN.
    """

    tail = 2

    def __init__(self, length: int, identity: int = 0, *, strict: bool = False) -> None:
        self.length = length
        self.identity = identity
        self.strict = strict
        self.functions: dict[str, Callable[..., Array]] = {
            "relu": lambda v: self._larger(v, np.zeros_like(v)),
            "larger": self._larger,
            "positive": self._positive,
            "zero": self._zero,
            "choose": self._choose,
            "position": self._position,
            "reciprocal": self._reciprocal,
            "sqrt": self._sqrt,
            "rsqrt": lambda v: self._reciprocal(self._sqrt(v)),
            "exp": self._exp,
            "log": self._log,
            "power": self._power,
            "erf": lambda v: self._keyed("erf", v, np.vectorize(math.erf, otypes=[np.float64])),
        }

    def read(self, array: Array) -> Residues:
        return Residues(array)

    def array(self, value: Residues) -> Array:
        return value.array if value.bound <= CHAIN[0] and self._canonical(value) else value.reduced().array

    def _canonical(self, value: Residues) -> bool:
        return value.bound == CHAIN[0]

    def ndim(self, value: Residues) -> int:
        return value.array.ndim

    def sum(self, value: Residues) -> Residues:
        return value.sum()

    def max(self, value: Residues) -> Residues:
        """Return the maximum over the first axis.

        The residues of the result are NaN if real parts are too close to be ordered and the residues differ.
        """
        array = self.array(value)
        real = array[..., 0, :]
        best = np.argmax(real, axis=0)
        chosen = np.take_along_axis(array, best[None, ..., None, :], axis=0)[0]
        with np.errstate(invalid="ignore"):
            close = ~(real < chosen[..., 0, :] - NEAR * (1 + np.abs(chosen[..., 0, :])))
        doubtful = (close & ~_alike(array, chosen)).any(axis=0)
        return Residues(_lost(chosen, doubtful))

    def select(self, condition: Any, then: Residues, other: Residues) -> Residues:
        chosen = np.where(np.asarray(condition)[..., None, None], then.array, other.array)
        return Residues(chosen, max(then.bound, other.bound))

    def number(self, value: Any) -> Residues:
        """Convert a number or an array of integers to a value with a real part and all residues."""
        if isinstance(value, np.ndarray):
            parts = [value.astype(np.float64), *((value % CHAIN[k]).astype(np.float64) for k in range(self.length))]
            return Residues(np.stack(parts, axis=-1)[..., None])
        fraction = Fraction(value)
        residues = [
            np.nan if fraction.denominator % m == 0 else fraction.numerator * pow(fraction.denominator, -1, m) % m
            for m in CHAIN[: self.length]
        ]
        return Residues(np.array([float(fraction), *residues], dtype=np.float64)[:, None])

    def lowest(self) -> Residues:
        return Residues(np.array([-np.inf, *([np.nan] * self.length)])[:, None])

    def call(self, function: str, *values: Residues) -> Residues:
        with np.errstate(all="ignore"):
            return Residues(self.functions[function](*np.broadcast_arrays(*map(self.array, values))))

    def identities(self, array: Array) -> Array:
        """Return the residues in field number `identity`. Values are compared by these residues.

        A residue is NaN if an operation could not compute it.
        """
        return np.asarray(array[..., 1 + self.identity, :])

    # ------------------------------------------------------------ order

    def _larger(self, a: Array, b: Array) -> Array:
        left, right = a[..., 0, :], b[..., 0, :]
        close = NEAR * (1 + np.abs(left) + np.abs(right))
        first, second = left - right > close, right - left > close
        chosen = np.where(second[..., None, :], b, a)
        return _lost(chosen, ~first & ~second & ~_alike(a, b))

    def _position(self, v: Array, extent: Array) -> Array:
        whole = np.mod(np.floor(v[..., 0, :]), extent[..., 0, :])
        return np.repeat(whole[..., None, :], v.shape[-2], axis=-2)

    def _positive(self, v: Array) -> Array:
        real = v[..., 0, :]
        near = ~(np.abs(real) > NEAR)
        return _lost(_everywhere(np.where(~near & (real > 0), 1.0, 0.0), v), near & ~_alike(v, np.zeros_like(v)))

    def _zero(self, v: Array) -> Array:
        own = self.identities(v)
        return _lost(_everywhere(np.where(own == 0, 1.0, 0.0), v), np.isnan(own))

    def _choose(self, condition: Array, v: Array, w: Array) -> Array:
        own = self.identities(condition)
        return _lost(np.where((own != 0)[..., None, :], v, w), np.isnan(own))

    # ------------------------------------------------------------ functions

    def _of_each(self, real: Array, residues: Sequence[Array], outside: Array | None = None) -> Array:
        found = np.stack([real, *residues], axis=-2)
        return found if outside is None else _lost(found, outside)

    def _keyed(self, name: str, v: Array, real: Callable[[Array], Array]) -> Array:
        return self._of_each(real(v[..., 0, :]), [_looked_up(keyed(name, k), v[..., 1 + k, :]) for k in range(self.length)])

    def _reciprocal(self, v: Array) -> Array:
        found = self._of_each(
            1.0 / v[..., 0, :], [_looked_up(inverses(k), v[..., 1 + k, :]) for k in range(self.length)], v[..., 0, :] == 0
        )
        found[..., 1:, :][v[..., 1:, :] == 0] = np.nan
        return found

    def _sqrt(self, v: Array) -> Array:
        residues = [_looked_up(roots(k), v[..., 1 + k, :]) for k in range(self.length)]
        return self._unless_doubtful(v, self._of_each(np.sqrt(v[..., 0, :]), residues, v[..., 0, :] < -NEAR))

    def _exp(self, v: Array) -> Array:
        above = [_looked_up(exponentials(k), v[..., 2 + k, :]) for k in range(self.length - 1)]
        return self._of_each(np.exp(v[..., 0, :]), [*above, np.full_like(v[..., 0, :], np.nan)])

    def _log(self, v: Array) -> Array:
        below = [_looked_up(logarithms(k), v[..., 1 + k, :]) for k in range(self.length - 1)]
        found = self._of_each(np.log(v[..., 0, :]), [np.full_like(v[..., 0, :], np.nan), *below], ~(v[..., 0, :] > 0))
        found[..., 2:, :][v[..., 1:-1, :] == 0] = np.nan
        return self._unless_doubtful(v, found, shift=1)

    def _unless_doubtful(self, v: Array, found: Array, shift: int = 0) -> Array:
        """In a strict domain, set residues of the result `found` to NaN where the argument `v` has a non-square residue.

        A residue of the argument modulo `CHAIN[k]` determines the residue of the result modulo `CHAIN[k + shift]`.
        """
        if self.strict:
            for k in range(self.length - shift):
                no_square = _looked_up(squares(k), v[..., 1 + k, :]) < 0
                found[..., 1 + k + shift, :][no_square] = np.nan
        return found

    def _power(self, v: Array, exponent: Array) -> Array:
        """Raise values to a power.

        An integer power is a repeated product. Any other power is `exp(exponent * log(v))`, for positive v.
        """
        wanted = float(exponent[..., 0, :].flat[0])
        if wanted == round(wanted):
            return self._integral_power(v, int(wanted))
        residues = [
            _looked_up(
                exponentials(k), np.mod(_looked_up(logarithms(k), v[..., 1 + k, :]) * exponent[..., 2 + k, :], CHAIN[k + 1])
            )
            for k in range(self.length - 1)
        ]
        last = np.full_like(v[..., 0, :], np.nan)
        if wanted * 2 == round(wanted * 2):
            last = self._integral_power(self._sqrt(v), round(wanted * 2))[..., -1, :]
        real = np.power(v[..., 0, :], wanted)
        return self._unless_doubtful(v, self._of_each(real, [*residues, last], ~(v[..., 0, :] > 0)))

    def _integral_power(self, v: Array, exponent: int) -> Array:
        base = Residues(v if exponent >= 0 else self._reciprocal(v))
        result = self.number(1)
        for _ in range(abs(exponent)):
            result = (result * base).reduced()
        return np.broadcast_to(result.array, v.shape).copy()


def _lost(array: Array, where: Array) -> Array:
    """Replace all residues by NaN where `where` is True, and return the result. The real parts do not change."""
    if not where.any():
        return array
    found = np.array(np.broadcast_to(array, np.broadcast_shapes(array.shape, (*where.shape[:-1], 1, where.shape[-1]))))
    found[..., 1:, :] = np.where(where[..., None, :], np.nan, found[..., 1:, :])
    return found


def _alike(a: Array, b: Array) -> Array:
    """Return whether two values have at least one equal residue and no different residues. NaN residues are ignored."""
    equal = a[..., 1:, :] == b[..., 1:, :]
    unknown = np.isnan(a[..., 1:, :]) | np.isnan(b[..., 1:, :])
    return np.asarray((equal | unknown).all(axis=-2) & equal.any(axis=-2))


def _everywhere(flags: Array, like: Array) -> Array:
    return np.repeat(flags[..., None, :], like.shape[-2], axis=-2)


RECURRING = (Fraction(0), *(Fraction(sign * n, 2) for n in (1, 2, 4) for sign in (1, -1)))


def drawn(
    domain: Fields, shape: tuple[int, ...], rng: np.random.Generator, *, recurring: float = 0.0, positive: bool = False
) -> Array:
    """Return random values of shape (*shape, 1 + fields): a real part and one residue per field.

    Real parts have random signs. If `positive` is True, all real parts are positive. A residue is a square if the real part is
    positive, and a non-square otherwise. Each value is replaced, with probability `recurring`, by one of a few small numbers,
    so that equal values occur.
    """
    real = 4.0 - 4.0 * rng.random(shape)
    real = real if positive else np.where(rng.random(shape) < 0.5, -real, real)
    parts = [real]
    for k in range(domain.length):
        residue = rng.integers(1, CHAIN[k], shape)
        parts.append(np.where((squares(k)[residue] > 0) == (real > 0), residue, CHAIN[k] - residue).astype(np.float64))
    values = np.stack(parts, axis=-1)
    if recurring:
        numbers = np.stack([domain.number(n).array[:, 0] for n in RECURRING if not positive or n > 0])
        chosen = numbers[rng.integers(len(numbers), size=shape)]
        values = np.where((rng.random(shape) < recurring)[..., None], chosen, values)
    return values


# ---------------------------------------------------------------- the kinds of arithmetic that an operator requires

MEANS = {
    "ring": "sums, differences and products, exact",
    "quotient": "division by sizes and other numbers, exact in the fields",
    "order": "comparisons and choices, by the real part",
    "field": "division by values, exact in the fields",
    "root": "roots and powers, multiplicative; inverse to squaring on squares",
    "exponential": "exp, from each field to the one above",
    "logarithm": "log, from each field to the one below",
    "uninterpreted": "an odd function without other laws",
}
_NAMED, _DIVIDED = re.compile(r"\b([a-z]\w*)\("), re.compile(r"[^/]/[^/]")


@functools.cache
def required_arithmetic(name: str) -> frozenset[str]:
    """Return the kinds of arithmetic (keys of `MEANS`) that are required to evaluate the operator in prime fields.

    The constant EXACT in the operator's file lists these kinds. A composite requires the kinds of all operators in its
    definition.
    """
    spec = operator(name)
    if spec.composite:
        parts = {part for part in _NAMED.findall(spec.composite) if part in registry()}
        numbers = {"quotient"} if _DIVIDED.search(spec.composite) else set[str]()
        return frozenset({"ring"}).union(numbers, *map(required_arithmetic, parts))
    return frozenset(part.strip() for part in spec.exact.split(",")) | {"ring"}


def fields_for(known: Collection[str], *, strict: bool = False) -> Fields:
    """Return a `Fields` for the kinds of arithmetic in `known` (keys of `MEANS`), with as few prime fields as possible."""
    if "logarithm" in known:
        return Fields(3, 1, strict=strict)
    return Fields(2 if {"exponential", "root"} & set(known) else 1, strict=strict)
