"""Axes of extent 1 that a reduction keeps: lifting moves them outwards, and lowering moves them back to the reduction.

For example, sqrt(reshape(reduce_mean(x))) lifts as reshape(sqrt(reduce_mean(x))). So models that keep the axis of a mean and
models that drop it lift to the same term, and a broadcast is an `expand` of that term. When the term is lowered, the reduction
keeps the axis again, so that no node is needed for the reshape.
"""

from __future__ import annotations

from collections.abc import Callable

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, intern_term
from superopt.algebra.traits import is_elementwise


def hoist_unit_axes(term: Term) -> Term:
    """Move a reshape from an operand of an elementwise term to the result of the term.

    The reshape must only add axes of extent 1, and its operand must be an elementwise function of reductions. A term without
    such an operand is returned unchanged.
    """
    under = next((a.args[0] for a in term.args if _adds_units(a)), None)
    if under is None or not is_elementwise(term):
        return term
    operands = [_without_units(a, under) for a in term.args]
    if None in operands:
        return term
    return apply("reshape", apply(term.op, *(o for o in operands if o), **dict(term.attributes)), shape=term.shape)


def sink_unit_axes(term: Term, alone: Callable[[Term], bool]) -> Term | None:
    """Move a reshape inwards to the reductions, if it only adds axes of extent 1.

    The terms in between must have no other users: `alone` returns whether a term has one user. The result is None if some path
    does not end at a reduction that can keep the axes.
    """
    x = term.args[0]
    if term.op != "reshape" or x.op.startswith("reduce_") or not _adds_units(term):
        return None
    return _kept(x, term.sizes, alone)


def _kept(x: Term, shape: tuple[int, ...], alone: Callable[[Term], bool]) -> Term | None:
    """Return x in this shape, with reductions that keep their axes. The order of operands does not change.

    The result is None if a reduction cannot keep its axes, or if x has other users.
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
    """Return a constant in another shape. A constant whose elements are all equal stays in its short form."""
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
    """Return the operand in the shape of `like` if that takes no node, else None."""
    if x.op == "reshape" and x.args[0].shape == like.shape:
        return x.args[0]
    return _constant(x, like.sizes) if x.constant else None
