"""Symbolic extents for a model's dynamic dimensions, and the substitution of numbers for these extents."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from superopt.algebra.operators import apply
from superopt.algebra.terms import Atom, Dim, Extent, Size, Term, size, substitute, substitute_attribute, variable

Numbers = Mapping[str, int]
"""The sizes of dynamic dimensions, by name."""


def dimension(name: str) -> Size:
    """Return the symbolic extent of the model's dynamic dimension `name`.

    The prefix `%` in the extent's name distinguishes the extent from the extents of a rule's variables.
    """
    return size(Dim(f"%{name}", 0))


class DimBinding:
    """A number for each dynamic dimension of a model. The methods substitute the numbers."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = dict(numbers)
        self._values: dict[Atom, Extent] = {next(dimension(n).atoms()): value for n, value in numbers.items()}
        self._known: dict[Term, Term] = {}

    def __repr__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.numbers.items())

    def extent(self, extent: Extent) -> Extent:
        """Return the extent with the numbers substituted for dynamic dimensions."""
        return substitute(extent, self._values.get)

    def at(self, term: Term) -> Term:
        """Return the term with the numbers substituted for dynamic dimensions in all shapes and attributes."""
        return _over(term, self._known, self._numeric) if self.numbers else term

    def _numeric(self, term: Term) -> Term:
        if term.is_variable:
            shape = tuple(self.extent(n) for n in term.shape)
            return variable(term.name, shape, constant=term.constant, condition=term.condition, position=term.position)
        attributes = {name: substitute_attribute(value, self._values.get) for name, value in term.attributes}
        return apply(term.op, *(self._known[a] for a in term.args), **attributes)


FIXED = (DimBinding({}),)
"""The bindings for a model without dynamic dimensions: a single, empty binding."""


def _over(root: Term, known: dict[Term, Term], made: Callable[[Term], Term]) -> Term:
    """Apply the function `made` to the term `root`, and return the result.

    `made` is first applied to the subterms of `root`, from the innermost subterms outwards. The results are stored in `known`.
    Terms that are already in `known` are not visited again.
    """
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
