"""Handle the axes of extent 1 that an ONNX reduction with `keepdims=1` keeps.

When nodes are read as terms, `keepdims=1` becomes a reshape that adds these axes. The reshape moves outwards:
`sqrt(reshape(reduce_mean(x)))` becomes `reshape(sqrt(reduce_mean(x)))`. So the term inside the outer reshape does not depend on
`keepdims`. When terms are written as nodes, the reshape moves back to the reduction. The reduction then keeps the axes, and no
node is needed for the reshape.
"""

from __future__ import annotations

from collections.abc import Callable

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, intern_term
from superopt.algebra.traits import is_elementwise


def hoist_unit_axes(term: Term) -> Term:
    """Move a reshape from an operand of an elementwise term to the result of the term.

    For example, `sqrt(reshape(reduce_mean(x)))` becomes `reshape(sqrt(reduce_mean(x)))`. The reshape must only add axes of
    extent 1, and its operand must be an elementwise function of reductions. Otherwise, the term is returned unchanged.
    """
    under = next((a.args[0] for a in term.args if _adds_units(a)), None)
    if under is None or not is_elementwise(term):
        return term
    operands = [_without_units(a, under) for a in term.args]
    if None in operands:
        return term
    return apply("reshape", apply(term.op, *(o for o in operands if o), **dict(term.attributes)), shape=term.shape)


def sink_unit_axes(term: Term, alone: Callable[[Term], bool]) -> Term | None:
    """Move a reshape inwards to the reductions, if the reshape only adds axes of extent 1.

    For example, `reshape(sqrt(reduce_mean(x)))` becomes `sqrt(reshape(reduce_mean(x)))`. Each term between the reshape and the
    reductions must have only one user (`alone` returns whether a term has only one user). With `keepdims=1`, each reduction
    must have the shape of the reshape. If one of these conditions is not met, the result is None.
    """
    x = term.args[0]
    if term.op != "reshape" or x.op.startswith("reduce_") or not _adds_units(term):
        return None
    return _kept(x, term.sizes, alone)


def _kept(x: Term, shape: tuple[int, ...], alone: Callable[[Term], bool]) -> Term | None:
    """Return `x` reshaped to `shape`, with the reshape moved inwards to the reductions. Operands keep their order.

    The result is None if a reduction with `keepdims=1` would have a different shape, or if a term that must change has several
    users.
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
    """Return the constant `x` in the shape `shape`. Ones, zeros and multiples of ones are written without a reshape."""
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
    """Return the elements of `x` as a term with the same shape as the term `like`. If `x` is neither a constant nor a reshape
    of a term with the shape of `like`, the result is None.
    """
    if x.op == "reshape" and x.args[0].shape == like.shape:
        return x.args[0]
    return _constant(x, like.sizes) if x.constant else None
