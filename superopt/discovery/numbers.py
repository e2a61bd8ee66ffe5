"""Choose numbers for the symbols in enumerated terms, so that terms can be matched and their costs compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from superopt.algebra.extent import sides
from superopt.algebra.operators import apply
from superopt.algebra.terms import (
    Atom,
    Attribute,
    Compare,
    Cond,
    Extent,
    Sym,
    Term,
    at_least,
    atoms,
    substitute,
    substitute_attribute,
    substitute_cond,
    variable,
    variables,
)
from superopt.discovery.universe import WEIGHTS, Universe
from superopt.errors import ShapeError

LARGE, LARGEST = 101, 3232
STRIDE = 13
ATTRIBUTE, WINDOW, LOW = 2, 5, 8


class Numbered:
    """Replaces the symbols in terms by the numbers in `symbols`."""

    def __init__(self, symbols: Mapping[str, Extent]) -> None:
        self.symbols = symbols
        self.done: dict[Term, Term | None] = {}

    def of(self, term: Term) -> Term | None:
        """Return the term with numeric extents and attributes. If this term is not well typed, return None."""
        if term not in self.done:
            self.done[term] = self._built(term)
        return self.done[term]

    def _built(self, term: Term) -> Term | None:
        if term.is_variable:
            return variable(term.name, tuple(substitute(n, self.value) for n in term.shape))
        args = [self.of(a) for a in term.args]
        attributes: dict[str, Attribute] = {k: substitute_attribute(v, self.value) for k, v in term.attributes}
        try:
            return None if None in args else apply(term.op, *(a for a in args if a is not None), **attributes)
        except ShapeError:
            return None

    def value(self, atom: Atom) -> Extent | None:
        """Return the number of a symbol, or None for any other atom."""
        return self.symbols.get(atom.name) if isinstance(atom, Sym) else None


def distinct_numbers(universe: Universe, *, turned: bool = False) -> dict[str, Extent]:
    """Return a mapping from every symbol in `universe.ranges` to a number, so that terms over these symbols get numeric sizes.

    Where possible, the numbers make every operator of `universe` well typed on the variables and constants. Most extents are
    large and differ from each other. The extents increase in the order of `universe.ranges`, or decrease if `turned` is True.
    Small numbers are used for symbols in attributes and for symbols in `universe.small`. Small numbers are also used where an
    operator requires small numbers. For example, the window of a pool has to fit into the image. A real symbol gets the last
    number of the symbol's range.
    """
    conditions = list(dict.fromkeys(_conditions(universe)))
    symbols = {a for v in _attributes(universe) for a in atoms(v) if isinstance(a, Sym)}
    small = dict.fromkeys(sorted(a.name for a in symbols), ATTRIBUTE) | dict.fromkeys(universe.small, LOW)
    real = {a.name for a in symbols if a.real}
    large = LARGE
    while True:
        numbers = _numbers(universe, real, small, large, turned)
        value = Numbered(numbers).value
        broken = next((c for c in conditions if substitute_cond(c, value) is not True), None)
        if broken is None:
            return numbers
        named = [n for n in universe.ranges if n in _names(broken) and n not in real and small.get(n) not in (WINDOW, LOW)]
        margins = {name: _margin(broken, _numbers(universe, real, small | {name: WINDOW}, large, turned)) for name in named}
        best = max(named, key=margins.__getitem__, default="")
        if best and margins[best] > _margin(broken, numbers):
            small[best] = WINDOW
        elif large < LARGEST:
            large *= 2
        else:
            conditions.remove(broken)
            large = LARGE


def _numbers(universe: Universe, real: set[str], small: Mapping[str, int], large: int, turned: bool) -> dict[str, Extent]:
    last = len(universe.ranges) - 1 if turned else 0
    return {
        name: values[-1]
        if name in real
        else small[name] + position % 3
        if name in small
        else large + STRIDE * (last - position if turned else position)
        for position, (name, values) in enumerate(universe.ranges.items())
    }


def _attributes(universe: Universe) -> Iterator[Extent]:
    """Yield the extents in the attributes of the operators in `universe`, except extents in the attribute `shape`."""
    for template in universe.templates:
        for name, value in template.attributes.items():
            if name != "shape":
                yield from (e for e in (value if isinstance(value, tuple) else (value,)) if not isinstance(e, str | bool))


def _conditions(universe: Universe) -> Iterator[Cond]:
    """Yield the conditions under which the operators of `universe` are well typed on its variables and constants."""
    leaves = [v for row in universe.variables for v in row] + [c.term for c in universe.constants]
    for constant in universe.constants:
        yield from constant.term.requires
    for template in universe.templates:
        if not template.cut:
            for operands in itertools.product(leaves, repeat=template.operands):
                if template.first and operands[0].shape[:1] != (template.first,):
                    continue
                if template.weighted and not (is_universe_weight(operands[1]) and not is_universe_weight(operands[0])):
                    continue
                try:
                    term = apply(template.op, *operands, **template.attributes)
                except ShapeError:
                    continue
                if all(isinstance(c, Compare) and c.relation == ">=" for c in term.requires):
                    yield from (*term.requires, *(at_least(n, 1) for n in term.shape))


def is_universe_weight(term: Term) -> bool:
    """Return whether the term depends only on weights."""
    return all(v.name in WEIGHTS for v in variables(term))


def _names(condition: Cond) -> set[str]:
    return {a.name for side in sides(condition) for a in side.atoms() if isinstance(a, Sym)}


def _margin(condition: Cond, numbers: Mapping[str, Extent]) -> float:
    value = Numbered(numbers).value
    return min((float(n) for n in (substitute(s, value) for s in sides(condition)) if isinstance(n, int | float)), default=0.0)
