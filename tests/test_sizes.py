"""The ranges from which sizes for the comparison of mutants are drawn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from superopt.algebra.terms import Dim, Sym, at_least, conjunction, size
from superopt.partial.sizes import ProgramFamily, Range, _bounds


def test_conditions_on_one_size_alone_narrow_its_range() -> None:
    n, m, k = Dim("x", -1), Dim("x", -2), Sym("k")
    family = cast("ProgramFamily", SimpleNamespace(atoms=(n, m, k)))
    needed = conjunction(
        at_least(size(n), 3),
        at_least(5, size(k)),
        at_least(size(k), -2),
        at_least(size(n), size(m)),
        at_least(size(m) * size(n), 7),
    )
    assert _bounds(family, Range((1, 9), (0, 7)), needed) == {n: (3, 10), m: (1, 10), k: (0, 6)}
    assert _bounds(family, Range((1, 2), (0, 7)), needed)[n] == (3, 4)
