"""Printing of terms and conditions in the rule notation. `superopt.notation.parsing` is the inverse."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction

from superopt.algebra.operators import operator
from superopt.algebra.terms import (
    AllOf,
    AnyOf,
    Attribute,
    Compare,
    Cond,
    Extent,
    Shape,
    Size,
    Sym,
    Term,
    attribute_atoms,
    magnitude_of,
    show_extent,
    subterms,
)

SYMBOLS = {"matmul": "@", "add": "+", "sub": "-", "mul": "*"}
PRECEDENCE = {"add": 1, "sub": 1, "mul": 2, "matmul": 2}


def render_terms(*roots: Term) -> str:
    """Return the terms in the rule notation, such as `x @ y + relu(z)`.

    A subterm that is used more than once is named at its first occurrence, as in `concat(t1 := relu(x), t1, axis=-1)`.
    """
    uses: dict[Term, int] = {}
    for term in subterms(*roots):
        for arg in term.args:
            uses[arg] = uses.get(arg, 0) + 1
    for root in roots:
        uses[root] = uses.get(root, 0) + 1
    taken = {t.name for t in subterms(*roots) if t.is_variable} | _symbol_names(roots)
    fresh = (n for n in (f"t{i}" for i in itertools.count(1)) if n not in taken)
    printer = _Printer({t: next(fresh) for t in subterms(*roots) if uses.get(t, 0) > 1 and t.args}, roots)
    shown = [printer.show(r, 0) for r in roots]
    return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"


def _symbol_names(roots: Sequence[Term]) -> set[str]:
    return {a.name for a in attribute_atoms(*roots) if isinstance(a, Sym)}


class _Printer:
    def __init__(self, names: Mapping[Term, str], roots: Sequence[Term]) -> None:
        self.names = names
        self.done: set[Term] = set()
        self.shapes: dict[Shape, Term] = {}
        given: set[Term] = set()
        for term in subterms(*roots):
            shaped = not term.is_variable and any(name == "shape" for name, _ in term.attributes)
            if shaped or not given.isdisjoint(term.args):
                given.add(term)
            else:
                self.shapes.setdefault(term.shape, term)

    def show(self, term: Term, precedence: int) -> str:
        if term.is_variable:
            return term.name
        name = self.names.get(term)
        if name is None:
            return self.body(term, precedence)
        if term in self.done:
            return name
        body = self.body(term, 0)
        self.done.add(term)
        return f"({name} := {body})"

    def body(self, term: Term, precedence: int) -> str:
        symbol = SYMBOLS.get(term.op)
        if symbol is not None:
            own = PRECEDENCE[term.op]
            first, *rest = sorted(term.args, key=repr) if operator(term.op).commutative else term.args
            text = self.show(first, own)
            for arg in rest:
                text += f" {symbol} {self.show(arg, own + 1)}"
            return f"({text})" if own < precedence else text
        shown = [self.show(a, 0) for a in term.args]
        for parameter in operator(term.op).parameters:
            value = term[parameter.name]
            if parameter.default is None or value != parameter.default:
                shown.append(f"{parameter.name}={self.attribute(term, value)}")
        return f"{term.op}({', '.join(shown)})"

    def attribute(self, term: Term, value: Attribute) -> str:
        if not isinstance(value, tuple):
            return show_extent(value) if isinstance(value, int | float | Fraction | Size) else repr(value)
        like = self.shapes.get(value)
        if like is not None and len(value) > 1 and any(isinstance(v, Size) for v in value) and term not in subterms(like):
            if like.is_variable or like in self.done:
                return f"{self.show(like, 9)}.shape"
            return f"({_Printer({}, [like]).show(like, 0)}).shape"
        return "(" + ", ".join(map(show_extent, value)) + ("," if len(value) == 1 else "") + ")"


def render_condition(condition: Cond) -> str:
    """Return the condition in the rule notation, such as `x.shape[-1] == y.shape[-2]`, without superfluous parentheses.

    The parser removes superfluous parentheses from conditions too. Thus, a rule that is printed and parsed again has the same
    digest.
    """
    match condition:
        case bool():
            return str(condition)
        case Compare(relation, left):
            sides: list[Extent] = [0, 0]
            for monomial, coefficient in left.terms:
                sides[coefficient < 0] += magnitude_of(coefficient) * (Size(((monomial, 1),)) if monomial else 1)
            text = f"{show_extent(sides[0])} {relation} {show_extent(sides[1])}"
            return ast.unparse(ast.parse(text, mode="eval").body)
        case AllOf(parts):
            return " and ".join(f"({render_condition(p)})" if isinstance(p, AnyOf) else render_condition(p) for p in parts)
        case AnyOf(parts):
            return " or ".join(f"({render_condition(p)})" for p in parts)
