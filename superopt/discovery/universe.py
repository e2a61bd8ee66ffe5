"""Universes: typed vocabularies of variables, constants and operator templates.

A template is an operator with attributes. The extents of variables are symbols. The variables of a universe share these
symbols, so that an operator can be applied to several variables. Generalisation later gives each variable its own extents. The
variables in one row of `variables` are interchangeable.
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
    """An operator with its attributes, which the enumeration of terms applies to operands.

    Attributes:
        op: the operator.
        operands: the number of operands.
        attributes: the attributes.
        cut: 0 or an axis. If `cut` is an axis, the template is a slice that cuts its operand into two parts along this axis.
            Every possible boundary between the two parts is used.
        first: 0, or the required first extent of the first operand. The first extent distinguishes activations from weights.
        beside: the empty string or the name of an operator. If `beside` names an operator, one of the operands must be a result
            of this operator.
        weighted: if True, the second operand must depend only on weights, and the first operand must also depend on other
            variables.
        takes: for each operand, the names of the variables and operators that are allowed. The operand must be one of these
            variables or a result of one of these operators. An empty or missing entry allows all operands.
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
    """A constant (a term without variables), and the names of the operators that may have the constant as an operand."""

    term: Term
    under: tuple[str, ...]


@dataclass(frozen=True)
class Universe:
    """A vocabulary of variables, constants and operators, from which terms are enumerated.

    Attributes:
        family: the family of the universe's rules. The rules of a family are stored in one file.
        name: the name of the universe.
        variables: the variables, in rows of interchangeable variables.
        constants: the constants. Their operators do not count towards `limit`.
        templates: the operators with their attributes.
        ranges: for each symbol, the numbers that may replace the symbol when terms are evaluated.
        limit: the largest allowed count of operators in an enumerated term.
        repeats: whether an operator may have the same operand twice, and whether `scale` and `relu` may be applied to their own
            results.
        instances: choices of values for symbols. A rule is stated for each choice if no general rule is usable, for example
            because the left side of a general rule does not determine the symbols.
        small: symbols for extents, such as a low rank, that are assumed to be small when costs are compared.
        conditions: the names of the variables whose elements are 0 or 1.
        positive: the names of the variables whose elements are greater than 0.
        weighing: the count of operators that a term may have in addition to `limit`. These additional operators must depend
            only on weights.
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


def universe_symbols(names: str) -> list[Size]:
    """Return a symbol for each name in the space-separated list `names`. A symbol is used as an extent or as an attribute."""
    return [size(Sym(name)) for name in names.split()]


def unary(op: str, *, first: Extent = 0, **attributes: Attribute) -> Template:
    """Return a template for enumeration: the operator `op` with one operand and these attributes.

    If `first` is not 0, the first extent of the operand must equal `first`.
    """
    return Template(op, 1, attributes, first=first)


def binary(op: str, *, first: Extent = 0, beside: str = "", **attributes: Attribute) -> Template:
    """Return a template for enumeration: the operator `op` with two operands and these attributes.

    If `first` is not 0, the first extent of the first operand must equal `first`. If `beside` names an operator, one of the
    operands must be a result of this operator.
    """
    return Template(op, 2, attributes, first=first, beside=beside)


def convolution(pads: tuple[Extent, ...], *, group: Extent, **attributes: Attribute) -> Template:
    """Return a template for enumeration: the convolution of an image with a kernel that depends only on weights."""
    return Template("conv", 2, {"pads": pads, "group": group, **attributes}, weighted=True)


def split_parts(axis: int) -> Template:
    """Return a template for enumeration: slices that cut an operand into two parts along the axis `axis`.

    Every possible boundary between the two parts is used.
    """
    return Template("slice", 1, cut=axis)
