"""Toom-Cook's bilinear algorithms for correlation, exactly: fewer products than the definition has, for more sums.

After Toom (1963), Cook (1966) and Winograd, Arithmetic Complexity of Computations (1980), chapter V. Two polynomials are
multiplied by multiplying their values at points; transposed, that is a correlation.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from superopt.errors import ShapeError
from superopt.graph import Extent

Matrix: TypeAlias = "tuple[tuple[Fraction, ...], ...]"


@dataclass(frozen=True)
class ToomCook:
    """`tile` neighbouring values of a correlation with `taps` weights by tile + taps - 1 products, F(tile, taps).

    With g[taps] and d[tile + taps - 1], entry by entry,

        back @ ((kernel @ g) * (data @ d))  ==  [total(taps, lambda k: g[k] * d[i + k]) for i in range(tile)]
    """

    tile: Extent
    taps: Extent

    @property
    def products(self) -> Extent:
        """How many there are."""
        return self.tile + self.taps - 1

    def kernel(self) -> Matrix:
        """What the weights are multiplied by, products x taps."""
        return self._matrices[0]

    def data(self) -> Matrix:
        """What the neighbouring elements are multiplied by, products x products."""
        return self._matrices[1]

    def back(self) -> Matrix:
        """What the products are multiplied by, tile x products."""
        return self._matrices[2]

    @property
    def _matrices(self) -> tuple[Matrix, Matrix, Matrix]:
        if not isinstance(self.tile, int) or not isinstance(self.taps, int):
            raise ShapeError(f"F({self.tile}, {self.taps}) has matrices where both are numbers")
        return _matrices(self.tile, self.taps)

    @property
    def growth(self) -> float:
        """By how much its rounding error exceeds that of the definition, typically.

        The error is taken to grow as the root of the sum of the squares of what is added up, for weights and elements that are
        independent, of one size: in the definition that is the root of `taps`.
        """
        sizes = [_squares(g) * _squares(d) for g, d in zip(self.kernel(), self.data(), strict=True)]
        worst = max(sum(a * a * size for a, size in zip(row, sizes, strict=True)) for row in self.back())
        return math.sqrt(worst / len(self.kernel()[0]))


def points() -> Iterator[Fraction]:
    """Where polynomials are evaluated, from the first on: 0, 1, -1, 1/2, -2, -1/2, 2, 1/3, -3, ...

    After a comes -1 / a, which keeps rounding errors small (Barabasz, Anderson, Soodhalter and Gregg, Error analysis and
    improving the accuracy of Winograd convolution for deep neural networks, 2020).
    """
    yield from (Fraction(0), Fraction(1), Fraction(-1))
    for number in itertools.count(2):
        yield from (Fraction(1, number), Fraction(-number), Fraction(-1, number), Fraction(number))


@functools.cache
def _matrices(tile: int, taps: int) -> tuple[Matrix, Matrix, Matrix]:
    """Those of the weights, of the data and back. The last point is the one at infinity."""
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
    """The coefficients of the monic polynomial with these roots, from that of 1 on."""
    found = [Fraction(1)]
    for root in roots:
        found = [low - root * high for low, high in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return found


def _frozen(rows: Sequence[Sequence[Fraction]]) -> Matrix:
    return tuple(map(tuple, rows))


def _squares(row: Sequence[Fraction]) -> float:
    return float(sum(number * number for number in row))
