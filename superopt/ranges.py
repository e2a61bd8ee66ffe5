"""Between which numbers a term's values lie, read off its definition: here a value is an interval.

A square is not negative, so the root of a mean of squares and a positive number is one, and so is what it divides: of what a
term computes of numbers it shows that it is a number, without evaluating anything. What rounding or overflow make of it is
outside, as everywhere in the algebra.
"""

# ruff: noqa: ARG002 (the methods are those of every interpretation)

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from superopt import index
from superopt.certain import certain
from superopt.graph import Cond, Extent, Term, at_least, subterms
from superopt.op import interpret


@dataclass(frozen=True)
class Range:
    """Real numbers from `low` to `high`, 0 among them if `zero`; if not `number`, there may be no number at all."""

    low: float = -math.inf
    high: float = math.inf
    zero: bool = True
    number: bool = True

    def __add__(self, other: Range) -> Range:
        low, high = self.low + other.low, self.high + other.high
        one_sided = max(self.high, other.high) <= 0 or min(self.low, other.low) >= 0
        never = one_sided and not (self.zero and other.zero)
        return _range(low, high, zero=not never, number=self.number and other.number)

    def __neg__(self) -> Range:
        return Range(-self.high, -self.low, self.zero, self.number)

    def __sub__(self, other: Range) -> Range:
        return self + -other

    def __mul__(self, other: Range) -> Range:
        ends = [_product(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return _range(min(ends), max(ends), zero=self.zero or other.zero, number=self.number and other.number)

    def __or__(self, other: Range) -> Range:
        """What is in either."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Range(low, high, self.zero or other.zero, self.number and other.number)

    def through(self, function: Callable[[float], float]) -> Range:
        """What a rising function makes of them that is defined everywhere."""
        return _range(function(self.low), function(self.high), zero=True, number=self.number)


ANY = Range()
NONE = Range(number=False)
"""Nothing is known."""
ONE_OR_ZERO = Range(0.0, 1.0)


def _range(low: float, high: float, *, zero: bool, number: bool) -> Range:
    low, high = (-math.inf if math.isnan(low) else low), (math.inf if math.isnan(high) else high)
    return Range(low, high, zero and low <= 0 <= high, number)


def _product(a: float, b: float) -> float:
    return a * b if a and b else 0.0


class _Ranges:
    """The interpretation of index notation: indices are 0, conditions are left open, values are intervals."""

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., Any]) -> index.Tensor:
        return index.Tensor(shape, at)

    def require(self, condition: Cond, message: str) -> None:
        """Terms are well typed already."""

    def total(self, extent: Extent, body: Callable[[Any], Any]) -> Any:
        one: Range = body(0)
        low, high = (one.low if one.low >= 0 else -math.inf), (one.high if one.high <= 0 else math.inf)
        return Range(low, high, one.zero or low < 0 < high, one.number)

    def maximum(self, extent: Extent, body: Callable[[Any], Any]) -> Any:
        return body(0)

    def select(self, condition: Any, then: Any, other: Any) -> Any:
        return then | other

    def picked(self, value: Any, extent: Extent, body: Callable[[Any], Any]) -> Any:
        return body(0) if value.number else NONE

    def call(self, function: str, *arguments: Any) -> Any:
        known = FUNCTIONS.get(function)
        return known(*arguments) if known is not None and all(a.number for a in arguments) else NONE

    def number(self, value: Extent) -> Any:
        if isinstance(value, int | float | Fraction):
            return _range(float(value), float(value), zero=True, number=True)
        low = 1.0 if certain(at_least(value, 1)) else 0.0 if certain(at_least(value, 0)) else -math.inf
        return _range(low, math.inf, zero=True, number=True)

    def entry(self, matrix: object, row: Any, column: Any) -> Any:
        return ANY

    def lowest(self) -> Any:
        return ANY


def _power(base: Range, exponent: Range) -> Range:
    if exponent.low != exponent.high:
        return Range(0.0, math.inf, zero=False) if base.low >= 0 and not base.zero else NONE
    e = exponent.low
    if (e < 0 and base.zero) or (e != int(e) and base.low < 0):
        return NONE
    return Range(0.0, math.inf, base.zero) if e % 2 == 0 or base.low >= 0 else Range(zero=base.zero)


def _reciprocal(base: Range) -> Range:
    if base.zero:
        return NONE
    return Range(0.0, math.inf, zero=False) if base.low >= 0 else Range(zero=False)


def _root(base: Range) -> Range:
    return Range(math.sqrt(base.low), math.sqrt(base.high), base.zero) if base.low >= 0 else NONE


FUNCTIONS: Mapping[str, Callable[..., Range]] = {
    "relu": lambda a: a.through(lambda x: max(x, 0.0)),
    "larger": lambda a, b: _range(max(a.low, b.low), max(a.high, b.high), zero=True, number=True),
    "rsqrt": lambda a: _reciprocal(_root(a)) if a.low >= 0 else NONE,
    "reciprocal": _reciprocal,
    "exp": lambda _: Range(0.0, math.inf, zero=False),
    "log": lambda a: ANY if a.low >= 0 and not a.zero else NONE,
    "sqrt": _root,
    "erf": lambda a: a.through(math.erf),
    "power": _power,
    "positive": lambda _: ONE_OR_ZERO,
    "zero": lambda _: ONE_OR_ZERO,
    "position": lambda *_: Range(0.0, math.inf),
    "choose": lambda _, then, other: then | other,
}
"""What the functions of definitions make of numbers (see `evaluate.FUNCTIONS`)."""


def range_of(root: Term, variables: Mapping[str, Range], weights: Callable[[Term], Range] = lambda _: NONE) -> Range:
    """Where the term's values lie, if those of its variables lie where it is said, by name; others are unknown. Of a term of
    weights alone of which nothing is shown, `weights` says it.
    """
    known: dict[Term, Range] = {}
    for term in subterms(root):
        if term.is_variable:
            known[term] = variables.get(term.name, NONE)
        else:
            known[term] = _of_operator(term, tuple(known[arg] for arg in term.args))
            if term.constant and not known[term].number:
                known[term] = weights(term)
    return known[root]


@functools.lru_cache(maxsize=4096)
def _of_operator(term: Term, operands: tuple[Range, ...]) -> Range:
    if not all(operand.number for operand in operands):
        return NONE
    if term.op == "mul" and term.args[0] is term.args[1]:
        return _power(operands[0], Range(2.0, 2.0, zero=False))
    tensors = [index.Tensor(arg.shape, _everywhere(operand)) for arg, operand in zip(term.args, operands, strict=True)]
    with index.interpreted(_Ranges()):
        result = interpret(term, tensors)
        found: Range = result.at(*(0,) * result.rank)
    return found


def _everywhere(value: Range) -> Callable[..., Range]:
    return lambda *_: value
