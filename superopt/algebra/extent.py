"""Symbolic extents, and conditions on symbolic extents.

A static extent is an `int`. A symbolic extent is a `Size`: a polynomial over atoms such as dimensions and quotients.
Polynomials are in canonical form, so equal polynomials compare equal. A condition is a `bool` if constant folding decides it,
and a `Condition` otherwise.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, NoReturn, TypeAlias, cast

from superopt.errors import ShapeError
from superopt.policy import ALGEBRA

Number: TypeAlias = "int | float | Fraction"


@dataclass(frozen=True, order=True)
class Dim:
    """The extent of the variable named `tensor` along `axis`, which is counted from the end (-1 is the last axis)."""

    tensor: str
    axis: int

    def __str__(self) -> str:
        return f"{self.tensor}.shape[{self.axis}]"


@dataclass(frozen=True, order=True)
class Sym:
    """A scalar variable, such as an attribute variable of a rule. The value is an integer unless `real` is True."""

    name: str
    real: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Floor:
    """The quotient `numerator // denominator`, rounded down."""

    numerator: Extent
    denominator: Extent

    def __str__(self) -> str:
        return f"({self.numerator}) // ({self.denominator})"


@dataclass(frozen=True)
class Inverse:
    """The reciprocal `1 / of`."""

    of: Extent

    def __str__(self) -> str:
        return f"1 / ({self.of})"


@dataclass(frozen=True)
class Entry:
    """An index that is read at run time: the element of the integer tensor `tensor` at `indices`, modulo `extent`.

    The modulus makes every element a valid index along an axis of size `extent`.
    """

    tensor: str
    indices: tuple[Extent, ...]
    extent: Extent

    def __str__(self) -> str:
        return f"{self.tensor}[{', '.join(map(str, self.indices))}] % ({self.extent})"


@dataclass(frozen=True)
class Indicator:
    """An Iverson bracket: 1 where the condition holds, and 0 elsewhere.

    Minima, maxima and choices are polynomials over Iverson brackets. For example, `max(a, b)` is `b + [a >= b] * (a - b)`.
    """

    condition: Cond

    def __str__(self) -> str:
        return f"[{self.condition}]"


Atom: TypeAlias = Dim | Sym | Floor | Inverse | Entry | Indicator
Monomial: TypeAlias = tuple[Atom, ...]
Term: TypeAlias = tuple[Monomial, Number]


def _atom_key(atom: Atom) -> tuple[str, str]:
    return type(atom).__name__, str(atom)


class Size:
    """A symbolic extent: a polynomial in canonical form over atoms such as dimensions and quotients.

    A constant extent is a number, not a `Size`.
    """

    __slots__ = ("_hash", "_text", "terms")
    terms: tuple[Term, ...]

    def __init__(self, terms: tuple[Term, ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)
        self._text: str | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self._hash == other._hash and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the cached hash, because string hashes differ between processes."""
        return Size, (self.terms,)

    def __repr__(self) -> str:
        return f"Size({self})"

    def __str__(self) -> str:
        if self._text is None:
            self._text = _show(self.terms)
        return self._text

    def __add__(self, other: Extent) -> Extent:
        return collect([*self.terms, *other.terms]) if isinstance(other, Size) else self._plus(other)

    __radd__ = __add__

    def __neg__(self) -> Extent:
        return Size(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Extent) -> Extent:
        return collect([*self.terms, *((m, -c) for m, c in other.terms)]) if isinstance(other, Size) else self._plus(-other)

    def __rsub__(self, other: Extent) -> Extent:
        return -self + other

    def __mul__(self, other: Extent) -> Extent:
        if isinstance(other, Size):
            return collect([(_monomial((*m, *n)), c * d) for m, c in self.terms for n, d in other.terms])
        scaled = tuple((m, integral(n)) for m, c in self.terms if (n := c * other))
        return Size(scaled) if scaled else 0

    def _plus(self, number: Number) -> Extent:
        """Return the sum of the polynomial and `number`. In canonical form, the constant term is the first term."""
        constant, others = (self.terms[0][1], self.terms[1:]) if not self.terms[0][0] else (0, self.terms)
        total = integral(constant + number)
        return Size((((), total), *others) if total else others)

    __rmul__ = __mul__

    if not TYPE_CHECKING:  # hidden, so that the type checker rejects a `Size` where an integer is required

        def __index__(self) -> NoReturn:
            """Raise `ShapeError`, because a symbolic extent has no integer value."""
            raise ShapeError(f"{self} depends on the dynamic dimensions")

    def __truediv__(self, other: Extent) -> Extent:
        """Return the quotient of an exact division.

        Raises:
            ShapeError: `other` does not divide the polynomial.
        """
        return _exact(self, other)

    def __rtruediv__(self, other: Extent) -> Extent:
        return _exact(other, self)

    def __floordiv__(self, other: Extent) -> Extent:
        return floor_divide(self, other)

    def __rfloordiv__(self, other: Extent) -> Extent:
        return floor_divide(other, self)

    def __mod__(self, other: Extent) -> Extent:
        return self - other * floor_divide(self, other)

    def __rmod__(self, other: Extent) -> Extent:
        return other - self * floor_divide(other, self)

    def __lt__(self, other: Extent) -> Cond:
        return at_least(other, self + 1)

    def __le__(self, other: Extent) -> Cond:
        return at_least(other, self)

    def __gt__(self, other: Extent) -> Cond:
        return at_least(self, other + 1)

    def __ge__(self, other: Extent) -> Cond:
        return at_least(self, other)

    def atoms(self) -> Iterator[Atom]:
        """Yield every atom, including the atoms inside quotients, reciprocals, run-time indices and indicators."""
        for monomial, _ in self.terms:
            for atom in monomial:
                yield atom
                if isinstance(atom, Indicator):
                    for side in sides(atom.condition):
                        yield from side.atoms()
                    continue
                for part in () if isinstance(atom, Dim | Sym) else vars(atom).values():
                    for extent in part if isinstance(part, tuple) else (part,):
                        yield from atoms(extent)


Extent: TypeAlias = "int | float | Fraction | Size"


def terms_of(extent: Extent) -> tuple[Term, ...]:
    """Return the terms of the polynomial `extent`. A term is a monomial with its coefficient. 0 has no terms."""
    if isinstance(extent, Size):
        return extent.terms
    return (((), extent),) if extent else ()


@functools.lru_cache(maxsize=ALGEBRA.extent_cache_count)
def _monomial(atoms_: tuple[Atom, ...]) -> Monomial:
    """Return the product of the atoms as a monomial in canonical form.

    Atoms are sorted. `a * (1 / a)` is cancelled. A power of an indicator is replaced by the indicator.
    """
    left = list(atoms_)
    if any(isinstance(atom, Indicator) for atom in left):
        left = [atom for at, atom in enumerate(left) if not isinstance(atom, Indicator) or atom not in left[:at]]
    for atom in atoms_:
        if isinstance(atom, Inverse):
            of = terms_of(atom.of)
            if len(of) == 1 and of[0][1] == 1 and Counter(of[0][0]) <= Counter(left):
                left.remove(atom)
                for factor in of[0][0]:
                    left.remove(factor)
    return tuple(sorted(left, key=_atom_key))


@functools.lru_cache(maxsize=ALGEBRA.extent_cache_count)
def _order(monomial: Monomial) -> tuple[int, list[tuple[str, str]]]:
    return len(monomial), [_atom_key(a) for a in monomial]


def collect(terms: Iterable[Term]) -> Extent:
    """Return the sum of the terms. A term is a monomial in canonical form with its coefficient."""
    total: dict[Monomial, Number] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    kept = [(m, integral(c)) for m, c in total.items() if c]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    if len(kept) > 1:
        kept.sort(key=lambda term: _order(term[0]))
    return Size(tuple(kept))


def integral(number: Number) -> Number:
    """Return a `Fraction` with denominator 1 as an `int`, and every other number unchanged."""
    return int(number) if type(number) is Fraction and number.denominator == 1 else number


def size(atom: Atom) -> Size:
    """Return `atom` as an extent."""
    return Size((((atom,), 1),))


def atoms(extent: Extent) -> Iterator[Atom]:
    """Yield every atom of the extent, such as a dimension or a quotient. A number has no atoms."""
    if isinstance(extent, Size):
        yield from extent.atoms()


def floor_divide(numerator: Extent, denominator: Extent) -> Extent:
    """Return `numerator // denominator`, simplified.

    Terms that the denominator divides are moved out of the quotient: `(2 * n + m) // 2` becomes `n + m // 2`.
    """
    if not isinstance(numerator, Size) and not isinstance(denominator, Size):
        return int(numerator // denominator)
    if denominator == 1 or numerator == 0:
        return numerator
    if isinstance(denominator, Size) and len(denominator.terms) > 1:
        exact = _divided(numerator, denominator)
        return size(Floor(numerator, denominator)) if exact is None else exact
    whole: Extent = 0
    rest: Extent = 0
    for monomial, coefficient in terms_of(numerator):
        quotient = _exact_quotient(monomial, coefficient, denominator)
        if quotient is None:
            rest = rest + collect([(monomial, coefficient)])
        else:
            whole = whole + quotient
    return whole if rest == 0 else whole + size(Floor(rest, denominator))


def _divided(numerator: Extent, denominator: Size) -> Extent | None:
    """Return the quotient of two polynomials by long division, or None if there is a remainder."""
    leading = Size((max(denominator.terms, key=lambda term: _order(term[0])),))
    whole: Extent = 0
    while numerator != 0:
        monomial, coefficient = max(terms_of(numerator), key=lambda term: _order(term[0]))
        quotient = _exact_quotient(monomial, coefficient, leading)
        if quotient is None:
            return None
        whole = whole + quotient
        numerator = numerator - quotient * denominator
    return whole


def _exact_quotient(monomial: Monomial, coefficient: Number, denominator: Extent) -> Extent | None:
    divisor = terms_of(denominator)
    if len(divisor) != 1 or not isinstance(coefficient, int):
        return None
    factors, by = divisor[0]
    left = list(monomial)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    if not isinstance(by, int) or coefficient % by:
        return None
    return collect([(tuple(left), coefficient // by)])


def _exact(numerator: Extent, denominator: Extent) -> Extent:
    quotient = floor_divide(numerator, denominator)
    if quotient * denominator != numerator:
        raise ShapeError(f"{numerator} is not always a multiple of {denominator}")
    return quotient


def inverse(extent: Extent) -> Extent:
    """Return `1 / extent`: an exact number for an `int` or `Fraction`, a float for a float, an expression for a `Size`."""
    if isinstance(extent, Size):
        return size(Inverse(extent))
    return integral(Fraction(1) / extent) if isinstance(extent, int | Fraction) else 1.0 / extent


def magnitude_of(number: Number) -> Number:
    """Return the absolute value of `number`, with the type of `number`."""
    return -number if number < 0 else number


def show_extent(extent: Extent) -> str:
    """Return the symbolic extent as text, such as `2 * n + 1`.

    The text is in the notation of the rule files.
    """
    return f"{extent.numerator} / {extent.denominator}" if isinstance(extent, Fraction) else str(extent)


def _show(terms: tuple[Term, ...]) -> str:
    text = ""
    for monomial, coefficient in sorted(terms, key=lambda item: (-len(item[0]), item[1] < 0)):
        magnitude = magnitude_of(coefficient)
        factors = [f"({a})" if not isinstance(a, Dim | Sym) else str(a) for a in monomial]
        body = " * ".join(([show_extent(magnitude)] if magnitude != 1 or not factors else []) + factors)
        sign = "-" if coefficient < 0 else "+"
        text = f"{text} {sign} {body}" if text else (f"-{body}" if sign == "-" else body)
    return text


# ---------------------------------------------------------------- conditions


class Condition:
    """A condition on symbolic extents. If constant folding decides a condition, the condition is a `bool` instead.

    `a & b` is the conjunction of two conditions.

    `bool(condition)` is True if `superopt.algebra.integers` proves the condition for all sizes, and False if the negation is
    proved for all sizes. An undecided condition `e >= 0` counts as true if `e >= -1` is proved. For example, `a > b` counts as
    true if `a >= b` is proved, and `n > 1` counts as true for every dimension `n`. This is safe in `max` and `min`: if the
    operands are equal, both are correct results. Any other undecided condition raises `ShapeError`.
    """

    decide: ClassVar[Callable[[Cond], bool | None]]

    def __bool__(self) -> bool:
        condition = cast("Cond", self)
        found = Condition.decide(condition)
        if found is None and isinstance(condition, Compare) and condition.relation == ">=":
            found = Condition.decide(at_least(condition.left, -1)) or None
        if found is None:
            raise ShapeError(f"the condition {self} is neither proved nor refuted for all sizes")
        return found

    def __and__(self, other: Cond) -> Cond:
        return conjunction(cast("Cond", self), other)

    __rand__ = __and__


@dataclass(frozen=True)
class Compare(Condition):
    """The condition `left >= 0`, `left == 0` or `left != 0`, depending on `relation`."""

    relation: str
    left: Size

    def __str__(self) -> str:
        return f"{self.left} {self.relation} 0"


@dataclass(frozen=True)
class AllOf(Condition):
    """The conjunction of `parts`: the condition that every part holds."""

    parts: tuple[Cond, ...]

    def __str__(self) -> str:
        return " and ".join(map(str, self.parts))


@dataclass(frozen=True)
class AnyOf(Condition):
    """The disjunction of `parts`: the condition that at least one part holds."""

    parts: tuple[Cond, ...]

    def __str__(self) -> str:
        return "(" + " or ".join(map(str, self.parts)) + ")"


Cond: TypeAlias = "bool | Compare | AllOf | AnyOf"


def at_least(left: Extent, right: Extent) -> Cond:
    """Return the condition `left >= right`."""
    difference = left - right
    return Compare(">=", difference) if isinstance(difference, Size) else difference >= 0


def same(left: Extent, right: Extent) -> Cond:
    """Return the condition `left == right`."""
    difference = left - right
    return Compare("==", difference) if isinstance(difference, Size) else difference == 0


def conjunction(*parts: Cond) -> Cond:
    """Return the conjunction of the conditions. Nested conjunctions are flattened, and constants are folded."""
    kept: dict[Cond, None] = {}
    for part in parts:
        if part is False:
            return False
        kept.update(dict.fromkeys(parts_of(part)))
    return True if not kept else next(iter(kept)) if len(kept) == 1 else AllOf(tuple(kept))


def disjunction(*parts: Cond) -> Cond:
    """Return the disjunction of the conditions, with constants folded."""
    kept: list[Cond] = []
    for part in parts:
        if part is True:
            return True
        if part is not False and part not in kept:
            kept.append(part)
    return False if not kept else kept[0] if len(kept) == 1 else AnyOf(tuple(kept))


def parts_of(condition: Cond) -> tuple[Cond, ...]:
    """Return the conditions whose conjunction is `condition`. For True, the tuple is empty. For a condition that is not a
    conjunction, the tuple contains only this condition.
    """
    return condition.parts if isinstance(condition, AllOf) else () if condition is True else (condition,)


def sides(condition: Cond) -> Iterator[Size]:
    """Yield the expressions that the condition compares with zero."""
    match condition:
        case Compare(_, left):
            yield left
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from sides(part)
        case _:
            pass
