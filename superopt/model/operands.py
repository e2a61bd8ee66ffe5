"""In which order and groups the operands of a commutative operator are combined by ONNX nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from superopt.algebra.operators import apply, operator
from superopt.algebra.terms import Term, subterms
from superopt.algebra.traits import is_elementwise
from superopt.errors import ShapeError
from superopt.protobuf.nodes import Deferred, materialize


def operands_to_combine(term: Term, live: Sequence[Term]) -> tuple[Term, ...]:
    """Return the operands of a commutative term, in groups and in the order in which nodes combine them.

    An operand and an elementwise function of that operand come first, if the term has such a pair. Then come groups of operands
    whose sum or product is computed anyway, the largest group first, and then the remaining operands. Constants that are equal
    along axes are written as an `expand`, so that they are stored once.
    """
    if not operator(term.op).commutative:
        return term.args
    operands = tuple(narrow_constant(a) if a.constant else a for a in term.args)
    if len(operands) == 2:
        return operands
    together = _with_function(operands)
    left = Counter(operands) - Counter(together)
    chosen: list[Term] = []
    for part in sorted((p for p in live if p.op == term.op and p is not term), key=lambda p: -len(p.args)):
        if not Counter(part.args) - left:
            left -= Counter(part.args)
            chosen.append(part)
    return (*together, *chosen, *left.elements())


def _with_function(operands: Sequence[Term]) -> tuple[Term, ...]:
    """Return an operand and another operand that is an elementwise function of it, or an empty tuple if there is no such pair.

    If x and sigmoid(x) are next to each other in a longer product, runtimes can fuse them.
    """
    for image in (x for x in operands if not x.constant):
        below, stack = set[Term](), [a for a in image.args if is_elementwise(image)]
        while stack:
            term = stack.pop()
            if term in operands or not (term.constant or is_elementwise(term)):
                below.add(term)
            else:
                stack += term.args
        if len(below) == 1 and (argument := below.pop()) in operands:
            return argument, image
    return ()


def merge_constants(op: str, operands: Iterable[Term]) -> list[Term]:
    """Combine all constants into one last operand, unless all operands are constant."""
    given = list(operands)
    others, constants = [x for x in given if not x.constant], [x for x in given if x.constant]
    return [*others, narrow_constant(apply(op, *constants))] if others and len(constants) > 1 else [*others, *constants]


def narrow_constant(constant: Term) -> Term:
    """Return the constant as an `expand` of a smaller constant, if its elements are computed from expanded constants."""
    done: dict[Term, Term] = {}
    for term in subterms(constant):
        done[term] = term
        if term.args and term.op != "expand" and is_elementwise(term):
            first, *others = below = [done[a] for a in term.args]
            if first.op == "expand" and all(x.op == "expand" and x.attributes == first.attributes for x in others):
                inner = apply(term.op, *(x.args[0] for x in below), **dict(term.attributes))
                done[term] = apply("expand", inner, **dict(first.attributes))
    return done[constant]


def uniform_value(x: Term) -> Term | None:
    """Return the rank 0 term for a term that its operators make uniform, such as numbers times `ones`, or None."""
    scales: list[Term] = []
    while x.op == "scale":
        scales.append(x)
        (x,) = x.args
    if x.op not in ("ones", "zeros"):
        return None
    inner = apply(x.op, shape=())
    for scale in reversed(scales):
        inner = apply(scale.op, inner, **dict(scale.attributes))
    return inner


def tilings(live: Iterable[Term]) -> dict[Term, tuple[Term, ...]]:
    """Map each slice to the set of slices that together cover an axis of their operand without overlap, in order.

    Slices without such a set are left out.
    """
    groups: dict[tuple[Term, int], list[Term]] = {}
    for term in live:
        if term.op == "slice":
            groups.setdefault((term.args[0], term.integer("axis")), []).append(term)
    tiled: dict[Term, tuple[Term, ...]] = {}
    for (x, axis), slices in groups.items():
        slices.sort(key=lambda s: s.integer("start"))
        stops = [s.integer("stop") for s in slices]
        if [0, *stops[:-1]] == [s.integer("start") for s in slices] and stops[-1] == x.sizes[axis]:
            tiled.update(dict.fromkeys(slices, tuple(slices)))
    return tiled


def positions(given: npt.NDArray[Any] | Deferred, extent: int) -> npt.NDArray[np.int64]:
    """Return the positions in the array as integers that count from the start of an axis of this extent.

    Raises:
        ShapeError: a number in the array is not a position, or its type cannot hold every position.
    """
    array = materialize(given)
    exact = array.dtype.kind == "i" or extent * np.finfo(array.dtype).eps <= 1
    whole = np.trunc(array)
    if not exact or (whole < -extent).any() or (whole >= extent).any():
        raise ShapeError(f"not positions of an axis of extent {extent}")
    return np.asarray(whole % extent, dtype=np.int64)
