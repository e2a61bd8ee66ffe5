"""Find the operands in which an operator is linear, by an analysis of the operator's definition.

The definition is interpreted over sets of monomials. A monomial is represented by the tuple of its degrees in the operands. A
matrix product has the single monomial (1, 1). The product is therefore linear in each operand while the other operand is fixed.
A sum has the monomials (1, 0) and (0, 1). The sum is therefore linear in both operands together. The result of relu is not a
polynomial in the operand.
"""

# ruff: noqa: ARG002 (the methods are those of every interpretation)

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from operator import add as operator_add
from typing import Any

from superopt.algebra import index
from superopt.algebra.operators import interpret
from superopt.algebra.terms import Cond, Extent, Term, subterms

NONE = math.inf


@dataclass(frozen=True)
class Monomials:
    """The monomials of a value that is a polynomial in an operator's operands.

    A monomial is represented by the tuple of its degrees in the operands. The degree is `NONE` if the value is not a polynomial
    in the operand.
    """

    degrees: frozenset[tuple[float, ...]]

    def __add__(self, other: Monomials) -> Monomials:
        return Monomials(self.degrees | other.degrees)

    __sub__ = __add__

    def __mul__(self, other: Monomials) -> Monomials:
        pairs = ((a, b) for a in self.degrees for b in other.degrees)
        return Monomials(frozenset(tuple(i + j for i, j in zip(a, b, strict=True)) for a, b in pairs))

    def through_function(self) -> Monomials:
        """Return the monomials of a nonlinear function of the value. Every nonzero degree becomes `NONE`."""
        return Monomials(frozenset(tuple(NONE if d else 0 for d in degrees) for degrees in self.degrees))


class _Degrees:
    """The interpretation of index notation in which values are `Monomials`, indices are 0, and conditions are ignored."""

    def __init__(self, operands: int) -> None:
        self.constant = Monomials(frozenset({(0,) * operands}))

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., Any]) -> index.Tensor:
        return index.Tensor(shape, at)

    def require(self, condition: Cond, message: str) -> None:
        """Do nothing, because terms are well typed."""

    def total(self, extent: Extent, body: Callable[[Any], Any]) -> Any:
        return body(0)

    def maximum(self, extent: Extent, body: Callable[[Any], Any]) -> Any:
        return body(0).through_function()

    def select(self, condition: Any, then: Any, other: Any) -> Any:
        return then + other

    def picked(self, value: Any, extent: Extent, body: Callable[[Any], Any]) -> Any:
        return value.through_function() * body(0)

    def call(self, function: str, *arguments: Any) -> Any:
        if function == "choose":
            condition, then, other = arguments
            return condition.through_function() * (then + other)
        return functools.reduce(operator_add, (a.through_function() for a in arguments))

    def number(self, value: Extent) -> Any:
        return Monomials(frozenset()) if value == 0 else self.constant

    def entry(self, matrix: object, row: Any, column: Any) -> Any:
        return self.constant

    def lowest(self) -> Any:
        return Monomials(frozenset())


@functools.lru_cache(maxsize=1024)
def degrees(term: Term) -> frozenset[tuple[float, ...]]:
    """Return the monomials of the term as a polynomial in its operands.

    A monomial is represented by the tuple of its degrees in the operands. A term that is always zero has no monomials.
    """
    interpretation = _Degrees(len(term.args))
    operands = [index.Tensor(arg.shape, _alone(position, len(term.args))) for position, arg in enumerate(term.args)]
    with index.interpreted(interpretation):
        result = interpret(term, operands)
        value: Monomials = result.at(*(0,) * result.rank)
    return value.degrees


def _alone(position: int, operands: int) -> Callable[..., Monomials]:
    value = Monomials(frozenset({tuple(float(other == position) for other in range(operands))}))
    return lambda *_: value


def is_product(term: Term) -> bool:
    """Return whether the term is linear in each operand while the other operands are fixed."""
    return all(set(monomial) == {1} for monomial in degrees(term))


def linear_in(term: Term, operands: Collection[int]) -> bool:
    """Return whether the term is linear in these operands together while the other operands are fixed."""
    return all(sum(monomial[position] for position in operands) == 1 for monomial in degrees(term))


def degree(root: Term, variable: Term) -> float:
    """Return the number d such that scaling `variable` by any number a scales the term by `a ** d`.

    The result is `NONE` if the operators' definitions do not prove that such a number exists. A term of degree 0 does not
    depend on the variable. A term of degree 1 is linear in the variable.
    """
    known: dict[Term, float] = {}
    for term in subterms(root):
        if term.is_variable:
            known[term] = float(term is variable)
        elif not any(known[arg] for arg in term.args):
            known[term] = 0
        else:
            powers = {_power(monomial, [known[arg] for arg in term.args]) for monomial in degrees(term)}
            known[term] = powers.pop() if len(powers) == 1 else NONE
    return known[root]


def _power(monomial: tuple[float, ...], inner: list[float]) -> float:
    return sum(outer * d for outer, d in zip(monomial, inner, strict=True) if outer and d)
