"""Generalise an equality between enumerated terms to rules with independent extents, at every suitable rank.

The variables of enumerated terms share extents. In a rule, every variable has its own extents, and the typing of the operators
implies which extents are equal. Each attribute is expressed by these extents. If random tests find no counterexample, an
attribute is replaced by an attribute variable. An attribute variable matches any value. Proofs decide whether the rules are
true.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from superopt.algebra.extent import floor_divide
from superopt.algebra.operators import apply, operator
from superopt.algebra.terms import (
    Atom,
    Attribute,
    Compare,
    Cond,
    Dim,
    Extent,
    Floor,
    Monomial,
    Shape,
    Size,
    Sym,
    Term,
    atoms,
    attribute_atoms,
    size,
    substitute,
    substitute_attribute,
    subterms,
    variable,
    variables,
)
from superopt.discovery.abstraction import abstract_sides
from superopt.discovery.phrase import generalise_ranks, phrase_equation_as_rule
from superopt.discovery.rule_conditions import ConditionJudge
from superopt.discovery.weakest import weakest_conditions
from superopt.errors import ShapeError
from superopt.notation.parsing import Equation
from superopt.policy import DISCOVERY
from superopt.rules.rule import Rule

Sides = tuple[tuple[Term, ...], tuple[Term, ...]]
BEGINS, ENDS = ("begin", "first"), ("end", "last")


@dataclass(frozen=True)
class ExtentReading:
    """A way to express the extents of enumerated terms in a rule, such as `x.shape[-1]` for the symbol `n`.

    A symbol without an expression becomes an attribute variable.

    Attributes:
        extents: maps an extent of the enumerated terms to its expression in the rule.
        anywhere: 0, 1 or 2. If `anywhere` is 0, the starts and stops of slices are not generalised. If `anywhere` is 1, one
            attribute variable replaces every start that is 0, and a second attribute variable replaces every stop at the end of
            an axis. If `anywhere` is 2, slices along two different axes have separate variables.
    """

    extents: Mapping[Extent, Extent]
    anywhere: int = 0

    def extent(self, value: Extent) -> Extent:
        """Return the rule's expression for an extent of the enumerated terms.

        The mapping `extents` contains rule expressions. If the mapping does not contain `value` itself, each product of symbols
        in `value` is replaced separately.
        """
        if not isinstance(value, Size):
            return value
        known = self.extents.get(value)
        if known is not None:
            return known
        total: Extent = 0
        for monomial, coefficient in value.terms:
            total = total + coefficient * self._product(monomial)
        return total

    def _product(self, monomial: Monomial) -> Extent:
        """Return the rule's expression for a product of symbols.

        If a factor of the product has an entry in `extents`, the entry replaces the factor. Larger factors are replaced first.
        All other symbols become attribute variables.
        """
        for count in range(len(monomial), 0, -1):
            for chosen in itertools.combinations(monomial, count):
                known = self.extents.get(Size(((chosen, 1),)))
                if known is not None:
                    rest = list(monomial)
                    for atom in chosen:
                        rest.remove(atom)
                    return known * self._product(tuple(rest))
        product: Extent = 1
        for atom in monomial:
            product = product * size(atom)
        return product


def general_rules(sides: Sides, judge: ConditionJudge, *, widen: bool, rows: Sequence[Sequence[Term]] = ()) -> Iterator[Rule]:
    """Yield unnamed rules that state the equality `sides` from left to right. The rule that covers the most cases comes first.

    Only rules for which random tests find no counterexample are yielded. If `widen` is True, a rule covers all ranks of its
    variables and all axes at which the rule is well typed and passes the tests. Variables in the same row of `rows` have the
    same rank. No rule is yielded if matching the left side would not determine the right side.
    """
    kinds = tuple(tuple(v.name for v in row) for row in rows)
    sides = abstract_sides(sides, lambda tried: is_plausible(tried, judge))
    seen: set[str] = set()
    for equation in _forms(sides, judge):
        for rule in generalise_ranks(equation, judge, kinds) if widen else filter(None, [phrase_equation_as_rule(equation)]):
            if rule.text not in seen:
                seen.add(rule.text)
                yield rule


def is_plausible(sides: Sides, judge: ConditionJudge) -> bool:
    """Return whether the sides agree on random inputs after every variable gets its own extents.

    If the typing of the operators requires that two extents are equal, the two extents stay equal.
    """
    readings = itertools.islice(_readings(sides), DISCOVERY.plausible_reading_count)
    return any(equation is not None and judge.plausible([equation]) for equation in (_read(sides, r) for r in readings))


def specialise_sides(sides: Sides, values: Mapping[str, Extent]) -> Sides:
    """Return the equality with some symbols replaced by the numbers or extents in `values`.

    Raises:
        ShapeError: the equality is not well typed at these values.
    """

    def value(atom: Atom) -> Extent | None:
        return values.get(atom.name) if isinstance(atom, Sym) else None

    done: dict[Term, Term] = {}
    for term in subterms(*sides[0], *sides[1]):
        if term.is_variable:
            done[term] = variable(term.name, tuple(substitute(n, value) for n in term.shape))
        else:
            attributes = {k: substitute_attribute(v, value) for k, v in term.attributes}
            done[term] = apply(term.op, *(done[a] for a in term.args), **attributes)
    return tuple(done[t] for t in sides[0]), tuple(done[t] for t in sides[1])


def _forms(sides: Sides, judge: ConditionJudge) -> Iterator[Equation]:
    """Try several equations that state the equality `sides`, and yield the first equation that passes random tests.

    Every variable of an equation has its own extents. Equations without a condition are tried first. Equations with conditions
    on real attributes are tried next. The last equation has a condition for each equality between extents in `sides`.
    """
    for reading in _readings(sides):
        equation = _read(sides, reading)
        if equation is not None and judge.plausible([equation]):
            yield _abstracted(sides, reading, equation, judge)
            return
    reading = next(_readings(sides))
    plain = _read(sides, reading)
    choices = [] if plain is None else [*weakest_conditions(plain, judge), tuple(_shared_extents(sides))]
    for conditions in filter(None, choices):
        equation = _read(sides, reading, conditions)
        if equation is not None and judge.plausible([equation]):
            yield _unconditional(sides, reading, conditions, equation, judge)
            return


def _unconditional(
    sides: Sides, reading: ExtentReading, conditions: Sequence[Cond], equation: Equation, judge: ConditionJudge
) -> Equation:
    """Remove each condition that is unnecessary according to random tests, and return the equation."""
    for condition in conditions:
        fewer = [c for c in conditions if c != condition]
        tried = _read(sides, reading, fewer)
        if tried is not None and judge.plausible([tried]):
            conditions, equation = fewer, tried
    return equation


def _abstracted(sides: Sides, reading: ExtentReading, equation: Equation, judge: ConditionJudge) -> Equation:
    """Replace values of attributes by attribute variables, and return the new equation.

    An attribute variable matches any value. A value is replaced if random tests find no counterexample to the new equation.
    """
    for number, expression in enumerate(_expressions(sides[0])):
        wider = replace(reading, extents={**reading.extents, expression: size(Sym(f"o{number}"))})
        tried = _read(sides, wider)
        if tried is not None and tried != equation and judge.plausible([tried]):
            reading, equation = wider, tried
    for count in range(len(BEGINS), 0, -1):
        tried = _read(sides, replace(reading, anywhere=count))
        if tried is not None and tried != equation and judge.plausible([tried]):
            return tried
    return equation


def _expressions(roots: tuple[Term, ...]) -> list[Extent]:
    """Return the symbolic values of attributes in `roots`. The result contains neither single attribute variables nor values of
    the attribute `shape`.
    """
    own = _extents(roots)
    found: dict[Extent, None] = {}
    for term in subterms(*roots):
        for name, value in term.attributes if term.args else ():
            if name != "shape":
                for extent in value if isinstance(value, tuple) else (value,):
                    if isinstance(extent, Size) and (_symbol(extent) is None or extent in own):
                        found[extent] = None
    return list(found)


def _bare_attributes(roots: tuple[Term, ...]) -> set[str]:
    """Return the name of each attribute variable that is the whole value of an attribute. `roots` is the left side of a rule.

    Matching the left side determines the values of these variables.
    """
    own = _extents(roots)
    values = [v for t in subterms(*roots) for name, v in (t.attributes if t.args else ()) if name != "shape"]
    listed = [e for v in values for e in (v if isinstance(v, tuple) else (v,)) if isinstance(e, Size) and e not in own]
    return {symbol.name for e in listed if (symbol := _symbol(e)) is not None}


def _extents(roots: tuple[Term, ...]) -> set[Extent]:
    """Return the extents of the tensor variables in `roots`. If a symbol in an attribute is not one of these extents, the
    symbol is an attribute variable.
    """
    return {extent for v in variables(*roots) for extent in v.shape}


def _symbol(extent: Size) -> Sym | None:
    """Return the symbol if the extent is a single symbol, and None otherwise."""
    atom = next(extent.atoms())
    return atom if isinstance(atom, Sym) and extent == size(atom) else None


def _readings(sides: Sides) -> Iterator[ExtentReading]:
    """Yield ways to express the extents of the enumerated terms in a rule, such as `x.shape[-1]` for the symbol `n`.

    If several variables have the same extent, a separate way is yielded for each of these variables.
    """
    left = variables(*sides[0])
    options: dict[Extent, list[Extent]] = {}
    for tensor in left:
        for axis in range(-tensor.rank, 0):
            if isinstance(tensor.shape[axis], Size):
                options.setdefault(tensor.shape[axis], []).append(size(Dim(tensor.name, axis)))
    for known in list(options):
        for symbol in sorted(_bare_attributes(sides[0])):
            divided = floor_divide(known, size(Sym(symbol)))
            if isinstance(divided, Size) and not any(isinstance(a, Floor) for a in atoms(divided)):
                options.setdefault(divided, []).append(floor_divide(options[known][0], size(Sym(symbol))))
    used = attribute_atoms(*sides[0], *sides[1])
    bare = {size(a) for a in used}
    names = [e for e in options if e in bare or (isinstance(e, Size) and set(e.atoms()) <= used)]
    fixed = {e: written[0] for e, written in options.items() if e not in names}
    for choice in itertools.islice(itertools.product(*(options[e] for e in names)), DISCOVERY.max_reading_choices):
        yield ExtentReading({**fixed, **dict(zip(names, choice, strict=True))})


def _read(sides: Sides, reading: ExtentReading, conditions: Sequence[Cond] = ()) -> Equation | None:
    """Return the equality as an equation in which every variable has its own extents. The equation has the conditions
    `conditions`.

    Returns None if the equation is ill typed or if matching the left side does not determine the right side.
    """
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
    """Rebuilds enumerated terms. The variables of an enumerated term share extents. In a rebuilt term, each variable has its
    own extents.
    """

    def __init__(self, sides: Sides, reading: ExtentReading) -> None:
        self.reading = reading
        self.order = [t for side in sides for t in subterms(*side)]
        self.done: dict[Term, Term] = {}
        self.named: dict[object, str] = {}
        unshaped = [v for t in self.order if not t.is_variable for k, v in t.attributes if k != "shape"]
        listed = [e for v in unshaped for e in (v if isinstance(v, tuple) else (v,)) if isinstance(e, Size)]
        self.anchors = {a for e in listed for a in atoms(e) if isinstance(a, Sym)}

    def written(self, term: Term) -> Term:
        """Return the enumerated term `term`, rebuilt so that each variable has its own extents."""
        if term not in self.done:
            if term.is_variable:
                self.done[term] = variable(term.name, term.rank)
            else:
                args = [self.written(a) for a in term.args]
                attributes = {name: self._attribute(term, name, value) for name, value in term.attributes}
                self.done[term] = apply(term.op, *args, **attributes)
        return self.done[term]

    def _attribute(self, term: Term, name: str, value: Attribute) -> Attribute:
        if name == "shape" and isinstance(value, tuple):
            like = self._like(term, value)
            return self.written(like).shape if like is not None else self._shape(value, whole=term.op == "expand")
        if isinstance(value, tuple):
            return tuple(self.reading.extent(e) for e in value)
        if name == "start" and value == 0:
            return self._somewhere(term, BEGINS) if self.reading.anywhere else 0
        if name == "stop" and value == term.args[0].shape[_axis(term)]:
            return self._somewhere(term, ENDS) if self.reading.anywhere else self.written(term.args[0]).shape[_axis(term)]
        return self.reading.extent(value) if isinstance(value, Size) else value

    def _somewhere(self, term: Term, names: Sequence[str]) -> Extent:
        """Return an attribute variable for the start or stop of the slice `term`. `names` contains one name for each axis."""
        axes = dict.fromkeys(_axis(t) for t in self.order if t.op == term.op)
        return size(Sym(names[list(axes).index(_axis(term)) % self.reading.anywhere]))

    def _shape(self, value: Shape, *, whole: bool) -> Shape:
        """Return the rule's expression for a shape that is the value of a `shape` attribute. The method handles a shape if no
        further term of the rule has this shape.

        An extent becomes a new attribute variable if no other attribute determines the extent. If `whole` is True and at least
        one extent is undetermined, every extent of the shape becomes a new variable. Later shapes use these variables for the
        same extents.
        """
        stem = self.named.get(value)
        if stem is not None:
            return self._whole(value, stem)
        shape = tuple(self.reading.extent(e) for e in value)
        free = [e for e, general in zip(value, shape, strict=True) if not self._determined(general)]
        if not free:
            return shape
        if whole and len(value) > 1:
            stem = self.named[value] = "n" if not self.named else f"n_{len(self.named)}_"
            shape = self._whole(value, stem)
            names: dict[Extent, Extent] = {e: n for e, n in zip(value, shape, strict=True) if isinstance(e, Size)}
            self.reading = replace(self.reading, extents={**names, **self.reading.extents})
            self.anchors |= {a for n in shape for a in atoms(n) if isinstance(a, Sym)}
            return shape
        return tuple(
            size(Sym(self.named.setdefault(e, f"m{len(self.named)}"))) if e in free else general
            for e, general in zip(value, shape, strict=True)
        )

    @staticmethod
    def _whole(value: Shape, stem: str) -> Shape:
        return tuple(size(Sym(f"{stem}{position}")) for position in range(len(value)))

    def _determined(self, extent: Extent) -> bool:
        """Return whether each symbol in the extent occurs in an attribute other than `shape`.

        In this case, matching determines the extent.
        """
        symbols = {a for a in atoms(extent) if isinstance(a, Sym)}
        return symbols <= self.anchors

    def _like(self, term: Term, shape: Shape) -> Term | None:
        """Return a term of the rule with this shape, preferably a variable. Return None if there is no such term.

        Terms whose shape is an attribute, and terms that contain `term`, are excluded.
        """
        fits = [
            t
            for t in self.order
            if t.shape == shape and (t.is_variable or not operator(t.op).told_shape) and term not in subterms(t)
        ]
        return min(fits, key=lambda t: not t.is_variable, default=None)


def _axis(term: Term) -> int:
    axis = term["axis"]
    assert isinstance(axis, int)
    return axis


def _shared_extents(sides: Sides) -> Iterator[Cond]:
    """Yield conditions on the extents of variables. If two extents are equal in the enumerated terms, a condition requires that
    the extents are equal.

    An extent that is a number in the enumerated terms must equal this number.
    """
    first: dict[Extent, Size] = {}
    for tensor in variables(*sides[0], *sides[1]):
        for axis in range(-tensor.rank, 0):
            own, meant = size(Dim(tensor.name, axis)), tensor.shape[axis]
            other = meant if isinstance(meant, int) else first.setdefault(meant, own)
            if other != own:
                difference = own - other
                assert isinstance(difference, Size)
                yield Compare("==", difference)


def _ordered(found: Sequence[Term]) -> list[Term]:
    order = "xyzqwvubctr"
    return sorted(dict.fromkeys(found), key=lambda t: (order.find(t.name), t.name))
