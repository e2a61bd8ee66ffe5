"""Definition of reductions over whole axes, such as reduce_sum, and their translation from and to ONNX at every opset."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from superopt.algebra.index import Axes, Index, Tensor, Value, require, tensor
from superopt.algebra.operators import Emit, Node, apply, operator
from superopt.algebra.terms import Extent, Term

Reduce = Callable[[Extent, Callable[[Index], Value]], Value]


def reduced(
    x: Tensor,
    axes: Axes,
    reduce: Reduce,
    element: Callable[[Value], Value] = lambda value: value,
    result: Callable[[Value], Value] = lambda value: value,
) -> Tensor:
    """Apply `element` to each element of `x`, reduce the results over `axes`, and apply `result` to each reduced value.

    The returned tensor does not have the reduced axes.
    """
    require(len(axes) > 0 and all(a < b for a, b in pairwise(axes)), "a reduction's axes are in order, and at least one")
    kept = [a for a in range(-x.rank, 0) if a not in axes]

    def over(rest: Axes, index: dict[int, Index]) -> Value:
        if not rest:
            return element(x[tuple(index[a] for a in range(-x.rank, 0))])
        return reduce(x.shape[rest[0]], lambda k: over(rest[1:], {**index, rest[0]: k}))

    return tensor(tuple(x.shape[a] for a in kept), lambda *i: result(over(axes, dict(zip(kept, i, strict=True)))))


def lifted(node: Node, name: str, alone: Callable[[Term], Term] = lambda x: x) -> Term:
    """Return the term of a reduction node: the operator `name` applied over the node's axes, or over all axes by default.

    `keepdims=1` becomes a reshape. Nothing is reduced if the operand has rank 0, or if the node has `noop_with_empty_axes` and
    no axes. In these two cases, ONNX Runtime applies only the elementwise part of the reduction. `alone(x)` returns this part,
    applied to x.
    """
    x = node.operand(0)
    axes = node.attribute("axes", ())
    if x.rank == 0 or (not axes and node.attribute("noop_with_empty_axes", 0)):
        return alone(x)
    return over_axes(x, name, tuple(axes), keep=bool(node.attribute("keepdims", 1)))


def over_axes(x: Term, name: str, axes: tuple[int, ...], *, keep: bool) -> Term:
    """Return the operator `name` applied over these axes of x, or over all axes if `axes` is empty.

    Axes may be counted from the beginning or from the end. If `keep` is True, the reduced axes have extent 1 in the result.
    Otherwise, the reduced axes are removed.
    """
    chosen = sorted({a % x.rank for a in axes}) if axes else list(range(x.rank))
    found = apply(name, x, axes=tuple(chosen)) if chosen else x
    return apply("reshape", found, shape=tuple(1 if a in chosen else n for a, n in enumerate(x.shape))) if keep else found


def lowered(term: Term, emit: Emit, *, keep: bool = False) -> str:
    """Write the reduction as an ONNX node, and return the name of the output.

    The type of the node is the first entry of the constant `ONNX` in the file of specs/ that defines the reduction.
    """
    x = term.args[0]
    axes = tuple(a + x.rank for a in term.integers("axes"))
    return emit(operator(term.op).onnx[0], x, axes=axes, keepdims=int(keep))
