"""What a universe is: one typed vocabulary of variables, constants and operator templates.

Extents are symbols shared by the variables of a universe, so that terms compose; rules found here are generalised to
independent extents afterwards. Variables of one row of `variables` are interchangeable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from superopt.graph import Attribute, Extent, Size, Sym, Term, size

Ranges: TypeAlias = "Mapping[str, tuple[Extent, ...]]"
WEIGHTS = frozenset({"w", "v", "u", "b", "c", "t", "r"})


@dataclass(frozen=True)
class Template:
    """An operator with its attributes.

    `cut` names an axis: the operand's two parts there, at every boundary, are meant. `first` is what the first operand's first
    extent must be, where it is given: activations are told from weights by it. `beside` names an operator that one of the
    operands must be made by. `weighted`: the second operand is made of weights alone, the first is not. `takes` lists for each
    operand the operators, and the variables by name, that may stand there; an empty entry, or none, lets all stand.
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
    """A constant and the operators it may stand under directly; constants count as no operator."""

    term: Term
    under: tuple[str, ...]


@dataclass(frozen=True)
class Universe:
    """A vocabulary. `ranges` are the numbers a symbol may stand for in an environment.

    Constants count as no operator. With `repeats`, an operator may have one operand twice, and scale and relu may stand on
    themselves. `instances` are values for symbols at which a rule is stated too where its left side leaves them open. `small`
    are symbols of extents that are small beside all others where costs are compared, as low ranks are. Variables named in
    `conditions` are 0 or 1, those in `positive` are greater than 0. `limit` bounds the operators of a term; `weighing` of
    those that weights alone reach are not counted.
    """

    family: str
    name: str
    variables: tuple[tuple[Term, ...], ...]
    constants: tuple[Constant, ...]
    templates: tuple[Template, ...]
    ranges: Ranges
    limit: int = 4
    repeats: bool = False
    instances: tuple[Mapping[str, Extent], ...] = ()
    small: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    weighing: int = 0


FACTOR, OTHER_FACTOR = size(Sym("a", real=True)), size(Sym("e", real=True))
FACTORS: tuple[Extent, ...] = (2, 3, 5, 7)


def symbols(names: str) -> list[Size]:
    """Extents and attribute variables by their names."""
    return [size(Sym(name)) for name in names.split()]


def unary(op: str, *, first: Extent = 0, **attributes: Attribute) -> Template:
    """An operator of one operand."""
    return Template(op, 1, attributes, first=first)


def binary(op: str, *, first: Extent = 0, beside: str = "", **attributes: Attribute) -> Template:
    """An operator of two operands."""
    return Template(op, 2, attributes, first=first, beside=beside)


def convolution(pads: tuple[Extent, ...], *, group: Extent, **attributes: Attribute) -> Template:
    """A convolution of an image by a kernel of weights."""
    return Template("conv", 2, {"pads": pads, "group": group, **attributes}, weighted=True)


def parts(axis: int) -> Template:
    """The two parts of an operand along an axis."""
    return Template("slice", 1, cut=axis)
