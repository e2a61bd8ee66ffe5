"""Universes: typed vocabularies of variables, constants and operator templates.

A template is an operator with attributes. The variables of a universe share symbols as extents, so that operators can be
applied to several variables together. Generalisation later gives each variable its own extents. The variables in one row of
`variables` are interchangeable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from superopt.algebra.terms import Attribute, Extent, Size, Sym, Term, size
from superopt.policy import DISCOVERY

Ranges: TypeAlias = "Mapping[str, tuple[Extent, ...]]"
WEIGHTS = frozenset({"w", "v", "u", "b", "c", "t", "r"})


@dataclass(frozen=True)
class Template:
    """An operator with its attributes, as it is applied during the enumeration of terms.

    Attributes:
        op: the operator.
        operands: the number of operands.
        attributes: the attributes.
        cut: if not 0, an axis. The template is then a slice that cuts its operand into two parts along this axis. Every
            possible boundary between the two parts is used.
        first: if not 0, the required first extent of the first operand. It distinguishes activations from weights.
        beside: if not empty, an operator. One of the operands must be a result of this operator.
        weighted: whether the second operand must consist of weights only and the first operand must not.
        takes: for each operand, the operators and the names of variables that are allowed. An empty or missing entry allows all
            operands.
    """

    op: str
    operands: int
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    cut: int = 0
    first: Extent = 0
    beside: str = ""
    weighted: bool = False
    takes: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Constant:
    """A constant, and the operators that may take the constant as a direct operand."""

    term: Term
    under: tuple[str, ...]


@dataclass(frozen=True)
class Universe:
    """A vocabulary of variables, constants and operators, from which terms are enumerated.

    Attributes:
        family: the family of the universe's rules. The rules of a family are stored in one file.
        name: the name of the universe.
        variables: the variables, in rows of interchangeable variables.
        constants: the constants, which do not count as operators.
        templates: the operators.
        ranges: for each symbol, the numbers that may replace the symbol when terms are evaluated.
        limit: the most operators of a term.
        repeats: whether an operator may have the same operand twice, and whether scale and relu may be applied to themselves.
        instances: values for symbols. If the left side of a rule does not determine the symbols, the rule is stated for these
            values.
        small: symbols of extents, such as low ranks, that are small compared with all other extents when costs are compared.
        conditions: the names of variables that are 0 or 1.
        positive: the names of variables that are greater than 0.
        weighing: the number of operators on weights alone that do not count towards `limit`.
    """

    family: str
    name: str
    variables: tuple[tuple[Term, ...], ...]
    constants: tuple[Constant, ...]
    templates: tuple[Template, ...]
    ranges: Ranges
    limit: int = DISCOVERY.max_universe_operators
    repeats: bool = False
    instances: tuple[Mapping[str, Extent], ...] = ()
    small: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    weighing: int = 0


FACTOR, OTHER_FACTOR = size(Sym("a", real=True)), size(Sym("e", real=True))
FACTORS: tuple[Extent, ...] = (2, 3, 5, 7)


def symbols(names: str) -> list[Size]:
    """Return a symbolic extent or attribute variable for each name in the space-separated list `names`."""
    return [size(Sym(name)) for name in names.split()]


def unary(op: str, *, first: Extent = 0, **attributes: Attribute) -> Template:
    """Return a template for an operator with one operand."""
    return Template(op, 1, attributes, first=first)


def binary(op: str, *, first: Extent = 0, beside: str = "", **attributes: Attribute) -> Template:
    """Return a template for an operator with two operands.

    If `beside` is an operator, one of the operands must be a result of `beside`.
    """
    return Template(op, 2, attributes, first=first, beside=beside)


def convolution(pads: tuple[Extent, ...], *, group: Extent, **attributes: Attribute) -> Template:
    """Return a template for the convolution of an image with a kernel of weights."""
    return Template("conv", 2, {"pads": pads, "group": group, **attributes}, weighted=True)


def split_parts(axis: int) -> Template:
    """Return a template that cuts an operand along an axis into two parts, at each possible boundary."""
    return Template("slice", 1, cut=axis)
