"""From an equality between terms of a universe to rules: independent extents, attributes as expressions, every rank that fits.

A universe's variables share extents. Here every variable gets extents of its own (what typing demands, it implies), and each
attribute is written over them, the most general way first: an attribute variable, then the extents it may be read from. Which
of these forms hold is for sampling and proof to say.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from superopt.errors import NotationError, ShapeError
from superopt.extent import floor_divide
from superopt.graph import (
    Attribute,
    Compare,
    Cond,
    Dim,
    Extent,
    Floor,
    Shape,
    Size,
    Sym,
    Term,
    atoms,
    attribute_atoms,
    size,
    substitute,
    subterms,
    variable,
    variables,
)
from superopt.op import apply
from superopt.rule import Rule
from superopt.text import Equation, Statement, equations, show, show_condition

Holds = Callable[[Sequence[Equation]], bool]
Sides = tuple[tuple[Term, ...], tuple[Term, ...]]
CONSTANTS = frozenset({"eye", "zeros", "ones", "identity_kernel", "mean_kernel"})
CHOICES = 12
WIDER_RANKS = (3, 4)


@dataclass(frozen=True)
class Reading:
    """How the extents of a universe are written over a rule's own variables; what is missing stays an attribute variable."""

    extents: Mapping[Extent, Extent]

    def extent(self, value: Extent) -> Extent:
        """The general expression for an extent of the universe."""
        if not isinstance(value, Size):
            return value
        known = self.extents.get(value)
        return known if known is not None else substitute(value, lambda atom: self.extents.get(size(atom)))


def general_rule(name: str, sides: Sides, holds: Holds, *, ranks: bool) -> Rule | None:
    """The most general rule found for an equality of a universe: `holds` is asked which forms are true.

    With `ranks`, the rule covers every rank of its variables at which it stays well typed and true.
    None where no form holds, or none can be written so that the right side is determined by the left.
    """
    equation = _most_general(sides, holds)
    if equation is None:
        return None
    return widened(name, equation, holds) if ranks else _rule(name, equation, {})


def _most_general(sides: Sides, holds: Holds) -> Equation | None:
    for reading in _readings(sides):
        equation = _read(sides, reading)
        if equation is not None and holds([equation]):
            return _abstracted(sides, reading, equation, holds)
    conditions = tuple(_shared_extents(sides))
    for reading in itertools.islice(_readings(sides), 1):
        equation = _read(sides, reading, conditions)
        if equation is not None and conditions and holds([equation]):
            return equation
    return None


def _abstracted(sides: Sides, reading: Reading, equation: Equation, holds: Holds) -> Equation:
    """The equation with as many attribute expressions as possible replaced by attribute variables."""
    for number, expression in enumerate(_expressions(sides[0])):
        wider = Reading({**reading.extents, expression: size(Sym(f"q{number}"))})
        tried = _read(sides, wider)
        if tried is not None and tried != equation and holds([tried]):
            reading, equation = wider, tried
    return equation


def _expressions(roots: tuple[Term, ...]) -> list[Extent]:
    """Attribute expressions of the left side that are not attribute variables already; results' shapes excepted."""
    found: dict[Extent, None] = {}
    for term in subterms(*roots):
        if term.is_variable or term.op in CONSTANTS:
            continue
        for name, value in term.attributes:
            if name != "shape":
                for extent in value if isinstance(value, tuple) else (value,):
                    if isinstance(extent, Size) and not _stays(extent, term):
                        found[extent] = None
    return list(found)


def _stays(extent: Size, term: Term) -> bool:
    """Whether an attribute is a bare attribute variable of its own, as strides and pads are."""
    monomial, coefficient = extent.terms[0]
    bare = len(extent.terms) == 1 and coefficient == 1 and len(monomial) == 1
    return bare and term.op in {"conv", "avg_pool", "max_pool", "scale", "pad"}


def _readings(sides: Sides) -> Iterator[Reading]:
    """Ways to write each extent of the universe as an extent of a variable; where several variables have it, each in turn."""
    left = variables(*sides[0])
    options: dict[Extent, list[Extent]] = {}
    for tensor in left:
        for axis in range(-tensor.rank, 0):
            if isinstance(tensor.shape[axis], Size):
                options.setdefault(tensor.shape[axis], []).append(size(Dim(tensor.name, axis)))
    for known in list(options):
        for symbol in sorted(a.name for a in attribute_atoms(*sides[0]) if isinstance(a, Sym)):
            divided = floor_divide(known, size(Sym(symbol)))
            if isinstance(divided, Size) and not any(isinstance(a, Floor) for a in atoms(divided)):
                options.setdefault(divided, []).append(floor_divide(options[known][0], size(Sym(symbol))))
    used = attribute_atoms(*sides[0], *sides[1])
    bare = {size(a) for a in used}
    names = [e for e in options if e in bare or isinstance(e, Size) and set(e.atoms()) <= used]
    fixed = {e: written[0] for e, written in options.items() if e not in names}
    for choice in itertools.islice(itertools.product(*(options[e] for e in names)), CHOICES):
        yield Reading({**fixed, **dict(zip(names, choice, strict=True))})


def _read(sides: Sides, reading: Reading, conditions: Sequence[Cond] = ()) -> Equation | None:
    """The equality over independent extents, or None where it is ill typed or the left side does not determine the right."""
    writer = _Writer(sides, reading)
    try:
        left = tuple(writer.written(t) for t in sides[0])
        right = tuple(writer.written(t) for t in sides[1])
    except (ShapeError, RecursionError):
        return None
    bound = {a for a in attribute_atoms(*left) if isinstance(a, Sym)}
    free = {a for a in attribute_atoms(*right) if isinstance(a, Sym)} - bound
    allowed = {a for a in attribute_atoms(*sides[1]) - attribute_atoms(*sides[0]) if isinstance(a, Sym)}
    if not free <= allowed or any(a.rank != b.rank for a, b in zip(left, right, strict=True)):
        return None
    where: Cond = True
    for condition in conditions:
        where = condition & where
    return Equation(left, right, where, tuple((v.name, v.rank) for v in _ordered(variables(*left, *right))))


class _Writer:
    """Rebuilds terms of a universe over variables with extents of their own."""

    def __init__(self, sides: Sides, reading: Reading) -> None:
        self.reading = reading
        self.order = [t for side in sides for t in subterms(*side)]
        self.done: dict[Term, Term] = {}

    def written(self, term: Term) -> Term:
        """The term over the rule's own variables."""
        if term not in self.done:
            if term.is_variable:
                self.done[term] = variable(term.name, term.rank)
            else:
                attributes = {name: self._attribute(term, name, value) for name, value in term.attributes}
                self.done[term] = apply(term.op, *(self.written(a) for a in term.args), **attributes)
        return self.done[term]

    def _attribute(self, term: Term, name: str, value: Attribute) -> Attribute:
        if name == "shape" and isinstance(value, tuple):
            like = self._like(term, value)
            return self.written(like).shape if like is not None else tuple(self.reading.extent(e) for e in value)
        if isinstance(value, tuple):
            return tuple(self.reading.extent(e) for e in value)
        return self.reading.extent(value) if isinstance(value, Size) else value

    def _like(self, term: Term, shape: Shape) -> Term | None:
        """A term of the rule that has this shape by itself: a variable if there is one."""
        fits = [t for t in self.order if t.shape == shape and t.op not in CONSTANTS and t.op != "expand" and term not in subterms(t)]
        return min(fits, key=lambda t: not t.is_variable, default=None)


def _shared_extents(sides: Sides) -> Iterator[Cond]:
    """Equalities between extents of different variables that are one extent in the universe."""
    first: dict[Extent, Size] = {}
    for tensor in variables(*sides[0], *sides[1]):
        for axis in range(-tensor.rank, 0):
            own = size(Dim(tensor.name, axis))
            other = first.setdefault(tensor.shape[axis], own)
            if other != own:
                difference = own - other
                assert isinstance(difference, Size)
                yield Compare("==", difference)


def _ordered(found: Sequence[Term]) -> list[Term]:
    order = "xyzwvutsrbc"
    return sorted(dict.fromkeys(found), key=lambda t: (order.find(t.name), t.name))


# ---------------------------------------------------------------- ranks


def widened(name: str, equation: Equation, holds: Holds) -> Rule | None:
    """The rule at every rank of its matrices at which it is well typed and true, or None if it cannot be written down."""
    narrow = _rule(name, equation, {})
    if narrow is None:
        return None
    matrices = [v for v, rank in equation.ranks if rank == 2]
    for count in range(len(matrices), 0, -1):
        for chosen in itertools.combinations(matrices, count):
            wide = _rule(name, equation, {v: (2, *WIDER_RANKS) for v in chosen})
            if wide is not None and _reaches(wide, chosen) and holds(wide.equations):
                return wide
    return narrow


def _reaches(rule: Rule, chosen: Sequence[str]) -> bool:
    """Whether each variable of `chosen` occurs at every wider rank in some well-typed reading."""
    reached = {(v, rank) for e in rule.equations for v, rank in e.ranks}
    return all((v, rank) in reached for v in chosen for rank in WIDER_RANKS)


def _rule(name: str, equation: Equation, ranks: Mapping[str, tuple[int, ...]]) -> Rule | None:
    statement = statement_of(name, equation, ranks)
    try:
        return Rule(name, statement, tuple(equations(statement)))
    except (NotationError, ShapeError):
        return None


def statement_of(name: str, equation: Equation, ranks: Mapping[str, tuple[int, ...]]) -> Statement:
    """The equation written in the notation."""
    where = () if equation.where is True else tuple(show_condition(c) for c in _parts(equation.where))
    allowed = tuple((v, ranks.get(v, (rank,))) for v, rank in equation.ranks)
    return Statement(name, show(*equation.left), "=>", show(*equation.right), allowed, where)


def _parts(condition: Cond) -> tuple[Cond, ...]:
    return getattr(condition, "parts", (condition,))


def reversed_rule(rule: Rule, name: str) -> Rule:
    """The rule from right to left."""
    old = rule.statement
    turned = tuple(Equation(e.right, e.left, e.where, e.ranks) for e in rule.equations)
    return Rule(name, Statement(name, old.right, old.arrow, old.left, old.ranks, old.where), turned)
