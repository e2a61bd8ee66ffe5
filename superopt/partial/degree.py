"""Bounds on the degree and the coefficients of a program as a polynomial in its variables.

The error bound of random tests in prime fields depends on these bounds.
"""

# ruff: noqa: ARG002 (the methods are those of every interpretation)

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from superopt.algebra import index
from superopt.algebra.operators import interpret
from superopt.algebra.terms import Cond, Extent, Size, Term, subterms
from superopt.errors import Undecidable
from superopt.partial.reading import expand_program_composites


@dataclass(frozen=True)
class Extremes:
    """Upper bounds on the degree and the coefficients of a polynomial.

    Attributes:
        degree: The bound on the degree.
        numerators: The base-2 logarithm of a bound on D * S. D is the common denominator of the coefficients, and S is the sum
            of the coefficients' magnitudes.
        denominator: The base-2 logarithm of D.
        counts: The extents of the sums in a count. A count is the number of summation indices at which conditions hold, written
            as a sum of ones. For example, an average pooling divides by the number of window positions that are inside the
            image. Each condition depends on the index of only one sum. A count over several sums is therefore a product with
            one factor per sum. The attribute has no meaning if the polynomial is not a count.
    """

    degree: int = 0
    numerators: float = -math.inf
    denominator: float = 0.0
    counts: tuple[int, ...] = ()

    def __add__(self, other: Extremes) -> Extremes:
        raised = (self.numerators + other.denominator, other.numerators + self.denominator)
        return Extremes(max(self.degree, other.degree), _sum(*raised), self.denominator + other.denominator)

    __sub__ = __add__

    def __mul__(self, other: Extremes) -> Extremes:
        numerators = self.numerators + other.numerators
        return Extremes(self.degree + other.degree, numerators, self.denominator + other.denominator)


def _sum(a: float, b: float) -> float:
    """Return log2(2 ** a + 2 ** b)."""
    low, high = sorted((a, b))
    return high if low == -math.inf else high + math.log2(1 + 2 ** (low - high))


class Bounds:
    """The interpretation of index notation in which a value is `Extremes`: bounds on a polynomial's degree and coefficients.
    Indices are ignored.
    """

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., Extremes]) -> index.Tensor:
        return index.Tensor(shape, at)

    def require(self, condition: Cond, message: str) -> None:
        """Do nothing: terms are already well typed."""

    def total(self, extent: Extent, body: Callable[[int], Extremes]) -> Extremes:
        count = int(extent)  # type: ignore[arg-type]
        value = body(count - 1)
        return Extremes(value.degree, value.numerators + math.log2(count), value.denominator, (*value.counts, count))

    def select(self, condition: object, then: Extremes, other: Extremes) -> Extremes:
        larger = max(then.numerators + other.denominator, other.numerators + then.denominator)
        return Extremes(max(then.degree, other.degree), larger, then.denominator + other.denominator, then.counts)

    def number(self, value: Extent) -> Extremes:
        assert not isinstance(value, Size)
        if isinstance(value, float) and not math.isfinite(value):
            raise Undecidable(f"the number {value} has no value in a prime field")
        fraction = Fraction(value)
        numerators = math.log2(abs(fraction.numerator)) if fraction else -math.inf
        return Extremes(0, numerators, math.log2(fraction.denominator))

    def call(self, function: str, *arguments: Extremes) -> Extremes:
        """Return bounds for the reciprocal of a count. A count is the number of summation indices at which conditions hold.

        See `Extremes.counts`.
        """
        value = arguments[0]
        if function != "reciprocal" or value.degree or value.denominator or not value.counts:
            raise Undecidable(f"the function {function} of input elements is not a polynomial in the inputs")
        multiple = sum(math.log2(math.lcm(*range(1, count + 1))) for count in value.counts)
        return Extremes(0, multiple, multiple)

    def maximum(self, extent: Extent, body: Callable[[int], Extremes]) -> Extremes:
        raise Undecidable("a maximum of elements is not a polynomial in the inputs")

    def picked(self, value: Extremes, extent: Extent, body: Callable[[int], Extremes]) -> Extremes:
        raise Undecidable("an element whose position is read at run time is not a polynomial in the inputs")

    def entry(self, matrix: object, row: object, column: object) -> Extremes:
        raise Undecidable("an entry of a constant table is read at a position that depends on the output position")

    def lowest(self) -> Extremes:
        raise Undecidable("minus infinity has no value in a prime field")


@functools.lru_cache(maxsize=4096)
def extremes(program: Term) -> Extremes:
    """Return bounds on the degree and the coefficients of the program as a polynomial in its variables.

    The bounds hold at every output position.

    Raises:
        Undecidable: The program is not a polynomial.
    """
    root = expand_program_composites(program)
    known: dict[Term, Extremes] = {}
    for term in subterms(root):
        known[term] = Extremes(1, 0.0) if term.is_variable else bounds(term, known, Bounds())
    return known[root]


def bounds(term: Term, known: Mapping[Term, Extremes], meaning: Bounds) -> Extremes:
    """Return bounds on the degree and the coefficients of a term as a polynomial. `known` gives the bounds of the term's
    operands.

    `meaning` interprets the operators' definitions in index notation. Every value of the interpretation is an `Extremes`.

    Raises:
        Undecidable: The term is not a polynomial in its operands, or a number in the term cannot be represented in a prime
            field.
    """
    operands = [index.Tensor(a.shape, functools.partial(_constant, known[a])) for a in term.args]
    try:
        with index.interpreted(meaning):
            result = interpret(term, operands)
            value: Extremes = result.at(*(n - 1 for n in term.sizes))
    except Undecidable as error:
        raise Undecidable(f"{term.op}: {error}") from error
    return value


def _constant(value: Extremes, *_: object) -> Extremes:
    return value
