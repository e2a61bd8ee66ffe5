"""Axes of extent 1 that a reduction keeps: lifting moves them outside, and lowering moves them back to the reduction.

sqrt(reshape(reduce_mean(x))) lifts as reshape(sqrt(reduce_mean(x))). So a model that keeps the axis of a mean computes the same
term as a model that does not, and a broadcast is an `expand` of that term. On lowering, the reduction keeps the axis again,
which takes no node.
"""

# ruff: noqa: ARG002 (the methods are those of every interpretation)

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from superopt.algebra import index
from superopt.algebra.operators import apply, defined, operator
from superopt.algebra.terms import Attribute, Cond, Extent, Term, intern_term
from superopt.errors import ShapeError


def hoisted(term: Term) -> Term:
    """Move a reshape that only adds axes of extent 1 to reductions outside of the term, if one is among the term's operands."""
    under = next((a.args[0] for a in term.args if _adds_units(a)), None)
    if under is None or not is_elementwise(term):
        return term
    operands = [_without_units(a, under) for a in term.args]
    if None in operands:
        return term
    return apply("reshape", apply(term.op, *(o for o in operands if o), **dict(term.attributes)), shape=term.shape)


def sunk(term: Term, alone: Callable[[Term], bool]) -> Term | None:
    """Move a reshape that only adds axes of extent 1 inside to the reductions, through terms that nothing else needs.

    Return None if the reshape does not end at a reduction that can keep the axes.
    """
    x = term.args[0]
    if term.op != "reshape" or x.op.startswith("reduce_") or not _adds_units(term):
        return None
    return _kept(x, term.sizes, alone)


def _kept(x: Term, shape: tuple[int, ...], alone: Callable[[Term], bool]) -> Term | None:
    """Return x in this shape, with reductions that keep their axes, and operands in their order.

    Return None if a reduction cannot keep its axes, or if something else needs x as it is.
    """
    if x.constant:
        return _constant(x, shape)
    if not alone(x):
        return None
    if x.op.startswith("reduce_"):
        axes, source = x.integers("axes"), x.args[0]
        kept = tuple(1 if a in axes else source.sizes[a] for a in range(-source.rank, 0))
        return apply("reshape", x, shape=shape) if kept == shape else None
    if not is_elementwise(x):
        return None
    operands = tuple(o for o in (_kept(a, shape, alone) for a in x.args) if o is not None)
    if len(operands) < len(x.args):
        return None
    moved = apply(x.op, *operands, **dict(x.attributes))
    return moved if moved.args == operands else intern_term(moved.op, operands, moved.attributes, moved.shape)


def _constant(x: Term, shape: tuple[int, ...]) -> Term:
    """Return a constant in another shape. A number that is the same everywhere stays so."""
    match x.op:
        case "ones" | "zeros":
            return apply(x.op, shape=shape)
        case "scale":
            return apply("scale", _constant(x.args[0], shape), factor=x["factor"])
        case _:
            return apply("reshape", x, shape=shape)


def _adds_units(term: Term) -> bool:
    """Return whether the term is a reshape that adds axes of extent 1 to an elementwise function of reductions."""
    if term.op != "reshape" or term.constant:
        return False
    x = term.args[0]
    return term.rank > x.rank and [n for n in term.sizes if n != 1] == [n for n in x.sizes if n != 1] and _reduces(x)


def _reduces(x: Term) -> bool:
    """Return whether the term is an elementwise function of operands that include a reduction."""
    waiting, seen = [x], {x}
    while waiting:
        term = waiting.pop()
        if term.op.startswith("reduce_"):
            return True
        if not term.is_variable and not term.constant and is_elementwise(term):
            new = [a for a in dict.fromkeys(term.args) if a not in seen]
            seen.update(new)
            waiting += new
    return False


def _without_units(x: Term, like: Term) -> Term | None:
    """Return the operand in the shape of `like`, if that takes no node, and None otherwise."""
    if x.op == "reshape" and x.args[0].shape == like.shape:
        return x.args[0]
    return _constant(x, like.sizes) if x.constant else None


# ---------------------------------------------------------------- elementwise terms


class _Elsewhere(Exception):  # noqa: N818
    """An operand is read at another position than the result's."""


class _Anything:
    """A value whose elements do not matter."""

    def _with(self, other: object) -> _Anything:
        return self

    __add__ = __sub__ = __mul__ = _with


ANYTHING = _Anything()


class _Positions:
    """The interpretation of index notation that tracks only positions."""

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., Any]) -> index.Tensor:
        return index.Tensor(shape, at)

    def require(self, condition: Cond, message: str) -> None:
        """Terms are well typed already."""

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
    """Return whether each element of the term depends only on its operands at the same position, at every rank.

    The operator's definition decides. An operator with axes, or with a number for each axis, is not elementwise.
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
            defined(operator(name), operands, dict(attributes)).at(*here)
    except (_Elsewhere, ShapeError, TypeError):
        return False
    return True
