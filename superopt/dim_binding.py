"""Dynamic dimensions as extents of the algebra, and sizes bound to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from superopt.graph import Atom, Dim, Extent, Size, Term, size, substitute, substitute_attribute, variable
from superopt.op import apply

Numbers = Mapping[str, int]
"""What open dimensions are, by their names."""


def dimension(name: str) -> Size:
    """The extent that is an open dimension of the model; no variable of a rule is called so."""
    return size(Dim(f"%{name}", 0))


class DimBinding:
    """Numbers for all open dimensions, and terms with these numbers put in."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = dict(numbers)
        self._values: dict[Atom, Extent] = {next(dimension(n).atoms()): value for n, value in numbers.items()}
        self._known: dict[Term, Term] = {}

    def __repr__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.numbers.items())

    def extent(self, extent: Extent) -> Extent:
        """The extent as a number."""
        return substitute(extent, self._values.get)

    def at(self, term: Term) -> Term:
        """The term with numbers for its extents."""
        return _over(term, self._known, self._numeric) if self.numbers else term

    def _numeric(self, term: Term) -> Term:
        if term.is_variable:
            shape = tuple(self.extent(n) for n in term.shape)
            return variable(term.name, shape, constant=term.constant, condition=term.condition, position=term.position)
        attributes = {name: substitute_attribute(value, self._values.get) for name, value in term.attributes}
        return apply(term.op, *(self._known[a] for a in term.args), **attributes)


FIXED = (DimBinding({}),)
"""The one sizing of what has no open dimensions."""


def _over(root: Term, known: dict[Term, Term], made: Callable[[Term], Term]) -> Term:
    """What is made of the term, its operands first; what is known is not looked into."""
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
