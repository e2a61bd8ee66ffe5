"""Dynamic dimensions as extents of the algebra, and bindings of sizes to dynamic dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from superopt.algebra.operators import apply
from superopt.algebra.terms import Atom, Dim, Extent, Size, Term, size, substitute, substitute_attribute, variable

Numbers = Mapping[str, int]
"""The sizes of dynamic dimensions, by name."""


def dimension(name: str) -> Size:
    """Return the extent of a model's dynamic dimension. No variable of a rule has such a name."""
    return size(Dim(f"%{name}", 0))


class DimBinding:
    """Sizes for all dynamic dimensions. Its methods substitute the sizes."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = dict(numbers)
        self._values: dict[Atom, Extent] = {next(dimension(n).atoms()): value for n, value in numbers.items()}
        self._known: dict[Term, Term] = {}

    def __repr__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.numbers.items())

    def extent(self, extent: Extent) -> Extent:
        """Return the extent as a number, with the sizes substituted."""
        return substitute(extent, self._values.get)

    def at(self, term: Term) -> Term:
        """Return the term with numbers as extents."""
        return _over(term, self._known, self._numeric) if self.numbers else term

    def _numeric(self, term: Term) -> Term:
        if term.is_variable:
            shape = tuple(self.extent(n) for n in term.shape)
            return variable(term.name, shape, constant=term.constant, condition=term.condition, position=term.position)
        attributes = {name: substitute_attribute(value, self._values.get) for name, value in term.attributes}
        return apply(term.op, *(self._known[a] for a in term.args), **attributes)


FIXED = (DimBinding({}),)
"""The only sizing of a model without dynamic dimensions."""


def _over(root: Term, known: dict[Term, Term], made: Callable[[Term], Term]) -> Term:
    """Return the result of `made` for the term, after its operands. Terms in `known` are not traversed."""
    stack = [root]
    while root not in known:
        term = stack[-1]
        missing = [a for a in term.args if a not in known]
        if missing:
            stack.extend(missing)
        else:
            if term not in known:
                known[term] = made(term)
            stack.pop()
    return known[root]
