"""Properties of operators, such as being elementwise, computed from the operators' definitions."""

# ruff: noqa: ARG002 (the methods are those of every interpretation)

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from superopt.algebra import index
from superopt.algebra.operators import interpret_operator, operator
from superopt.algebra.terms import Attribute, Cond, Extent, Term
from superopt.errors import ShapeError


class _Elsewhere(Exception):  # noqa: N818
    """Raised when an operator's definition may read an operand at a position other than the result's position."""


class _Anything:
    """A placeholder for a value. Arithmetic on placeholders gives a placeholder."""

    def _with(self, other: object) -> _Anything:
        return self

    __add__ = __sub__ = __mul__ = _with


ANYTHING = _Anything()


class _Positions:
    """The interpretation of index notation in which values are placeholders, and reductions raise `_Elsewhere`."""

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., Any]) -> index.Tensor:
        return index.Tensor(shape, at)

    def require(self, condition: Cond, message: str) -> None:
        """Do nothing, because terms are well typed."""

    def total(self, extent: Extent, body: Callable[[Any], Any]) -> Any:
        raise _Elsewhere

    maximum = total

    def select(self, condition: Any, then: Any, other: Any) -> Any:
        raise _Elsewhere

    picked = select

    def call(self, function: str, *arguments: Any) -> Any:
        return ANYTHING

    def number(self, value: Any) -> Any:
        return ANYTHING

    def entry(self, matrix: object, row: Any, column: Any) -> Any:
        raise _Elsewhere

    def lowest(self) -> Any:
        return ANYTHING


def is_elementwise(term: Term) -> bool:
    """Return whether each element of the term depends only on the operands' elements at the same position.

    The answer follows from the definition of the term's root operator. If an attribute of an operator names axes or is a tuple,
    the definition depends on the rank, and the operator does not count as elementwise.
    """
    if not term.args or any(a.shape != term.shape for a in term.args):
        return False
    if any(p.kind in ("axis", "axes") for p in operator(term.op).parameters) or any(
        isinstance(v, tuple) for _, v in term.attributes
    ):
        return False
    return _is_elementwise(term.op, len(term.args), term.attributes, term.rank)


@functools.lru_cache(maxsize=4096)
def _is_elementwise(name: str, arity: int, attributes: tuple[tuple[str, Attribute], ...], rank: int) -> bool:
    here = tuple(object() for _ in range(rank))

    def at(*position: object) -> _Anything:
        if position != here:
            raise _Elsewhere
        return ANYTHING

    operands = [index.Tensor((2,) * rank, at) for _ in range(arity)]
    try:
        with index.interpreted(_Positions()):
            interpret_operator(operator(name), operands, dict(attributes)).at(*here)
    except (_Elsewhere, ShapeError, TypeError):
        return False
    return True
