"""Toom-Cook's bilinear algorithms for correlation, in exact arithmetic.

The algorithms compute fewer products than the definition of correlation, but more sums.

The algorithms are those of Toom (1963), Cook (1966) and Winograd (Arithmetic Complexity of Computations, 1980, chapter V). The
original algorithm computes the product of two polynomials from the polynomials' values at points. The transposed algorithm
computes a correlation.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from superopt.algebra.terms import Extent
from superopt.errors import ShapeError

Matrix: TypeAlias = "tuple[tuple[Fraction, ...], ...]"


@dataclass(frozen=True)
class ToomCook:
    """An algorithm that computes `tile` neighbouring values of a correlation with `taps` weights.

    The algorithm needs `tile + taps - 1` products and is called F(tile, taps). The algorithm computes the left side of the
    following equation. The right side is the correlation of weights g[taps] and data d[tile + taps - 1]:

        back @ ((kernel @ g) * (data @ d))  ==  [total(taps, lambda k: g[k] * d[i + k]) for i in range(tile)]
    """

    tile: Extent
    taps: Extent

    @property
    def products(self) -> Extent:
        """The number of products that the algorithm computes."""
        return self.tile + self.taps - 1

    def kernel(self) -> Matrix:
        """Return the matrix of shape (products, taps) by which the vector of weights is multiplied."""
        return self._matrices[0]

    def data(self) -> Matrix:
        """Return the matrix of shape (products, products) by which the vector of data is multiplied."""
        return self._matrices[1]

    def back(self) -> Matrix:
        """Return the matrix of shape (tile, products) that turns the vector of products into values of the correlation."""
        return self._matrices[2]

    @property
    def _matrices(self) -> tuple[Matrix, Matrix, Matrix]:
        if not isinstance(self.tile, int) or not isinstance(self.taps, int):
            raise ShapeError(f"F({self.tile}, {self.taps}) has matrices where both are numbers")
        return _matrices(self.tile, self.taps)

    @property
    def growth(self) -> float:
        """The typical rounding error of the algorithm, divided by the typical rounding error of the definition.

        The rounding error of a sum is assumed to be proportional to the Euclidean norm of the summands. Weights and data are
        assumed to be independent and of the same magnitude. Under these assumptions, the error of the definition is
        proportional to the square root of `taps`.
        """
        sizes = [_squares(g) * _squares(d) for g, d in zip(self.kernel(), self.data(), strict=True)]
        worst = max(sum(a * a * size for a, size in zip(row, sizes, strict=True)) for row in self.back())
        return math.sqrt(worst / len(self.kernel()[0]))


def points() -> Iterator[Fraction]:
    """Yield the points at which polynomials are evaluated: 0, 1, -1, 1/2, -2, -1/2, 2, 1/3, -3, ...

    After 0, the points form pairs of a number a and -1 / a. This order keeps rounding errors small (Barabasz, Anderson,
    Soodhalter and Gregg, Error analysis and improving the accuracy of Winograd convolution for deep neural networks, 2020).
    """
    yield from (Fraction(0), Fraction(1), Fraction(-1))
    for number in itertools.count(2):
        yield from (Fraction(1, number), Fraction(-number), Fraction(-1, number), Fraction(number))


@functools.cache
def _matrices(tile: int, taps: int) -> tuple[Matrix, Matrix, Matrix]:
    """Return the matrices by which a `ToomCook` algorithm multiplies the weights, the data and the products.

    Each product belongs to a point at which polynomials are evaluated. The last point is infinity.
    """
    finite = list(itertools.islice(points(), tile + taps - 2))
    others = [[b for b in finite if b != a] for a in finite]
    scales = [math.prod((a - b for b in rest), start=Fraction(1)) for a, rest in zip(finite, others, strict=True)]
    kernel = [[a**k / scale for k in range(taps)] for a, scale in zip(finite, scales, strict=True)]
    data = [[*_with_roots(rest), Fraction(0)] for rest in others]
    back = [[a**i for a in finite] + [Fraction(i == tile - 1)] for i in range(tile)]
    kernel.append([Fraction(k == taps - 1) for k in range(taps)])
    data.append(_with_roots(finite))
    return _frozen(kernel), _frozen(data), _frozen(back)


def _with_roots(roots: Sequence[Fraction]) -> list[Fraction]:
    """Return the coefficients of the monic polynomial with these roots, constant term first."""
    found = [Fraction(1)]
    for root in roots:
        found = [low - root * high for low, high in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return found


def _frozen(rows: Sequence[Sequence[Fraction]]) -> Matrix:
    return tuple(map(tuple, rows))


def _squares(row: Sequence[Fraction]) -> float:
    return float(sum(number * number for number in row))
