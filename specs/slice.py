"""The part of a tensor between two positions of an axis (ONNX Slice). An ONNX Split is lifted to several slices.

The operator `stride` represents the step of an ONNX Slice, and the operator `reverse` represents the sign of a negative step.
The axioms of `slice` therefore concern only two bounds. Nested slices, strides and reversals are lowered to one node again.
"""

from __future__ import annotations

from itertools import accumulate

from superopt.algebra.index import Axis, Tensor, require, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term
from superopt.speclib.slice_bounds import require_end

ONNX = ("Slice", "Split")

AXIOMS = """
    whole:            slice(x, axis=k, start=0, stop=x.shape[k]) == x  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    twice:            slice(slice(x, axis=k, start=a, stop=b), axis=k, start=c, stop=d)
                      == slice(x, axis=k, start=a + c, stop=a + d)
                      for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    exchange:         slice(slice(x, axis=k, start=a, stop=b), axis=j, start=c, stop=d)
                      == slice(slice(x, axis=j, start=c, stop=d), axis=k, start=a, stop=b)
                      for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j < k
    transpose:        slice(transpose(x, perm=(-1, -2)), axis=-1, start=a, stop=b)
                      == transpose(slice(x, axis=-2, start=a, stop=b), perm=(-1, -2))  for x[2]
    transpose-rows:   slice(transpose(x, perm=(-1, -2)), axis=-2, start=a, stop=b)
                      == transpose(slice(x, axis=-1, start=a, stop=b), perm=(-1, -2))  for x[2]
    transpose-3-top:  slice(transpose(x, perm=(i, j, k)), axis=-3, start=a, stop=b)
                      == transpose(slice(x, axis=i, start=a, stop=b), perm=(i, j, k))
                      for x[3], i[-1, -2, -3], j[-1, -2, -3], k[-1, -2, -3]
    transpose-3-mid:  slice(transpose(x, perm=(i, j, k)), axis=-2, start=a, stop=b)
                      == transpose(slice(x, axis=j, start=a, stop=b), perm=(i, j, k))
                      for x[3], i[-1, -2, -3], j[-1, -2, -3], k[-1, -2, -3]
    transpose-3-last: slice(transpose(x, perm=(i, j, k)), axis=-1, start=a, stop=b)
                      == transpose(slice(x, axis=k, start=a, stop=b), perm=(i, j, k))
                      for x[3], i[-1, -2, -3], j[-1, -2, -3], k[-1, -2, -3]
    expand-new:       slice(expand(x, shape=(m, n), axes=(-1,)), axis=-2, start=a, stop=b)
                      == expand(x, shape=(b - a, n), axes=(-1,))
                      for x[1]
    expand-kept:      slice(expand(x, shape=(m, n), axes=(-1,)), axis=-1, start=a, stop=b)
                      == expand(slice(x, axis=-1, start=a, stop=b), shape=(m, b - a), axes=(-1,))
                      for x[1]
    expand-new-3:     slice(expand(x, shape=s, axes=(-1,)), axis=-2, start=a, stop=b)
                      == expand(x, shape=(s0, b - a, s2), axes=(-1,))
                      for x[1], s[3]
    expand-kept-3:    slice(expand(x, shape=s, axes=(-1,)), axis=-1, start=a, stop=b)
                      == expand(slice(x, axis=-1, start=a, stop=b), shape=(s0, s1, b - a), axes=(-1,))
                      for x[1], s[3]
    expand-channel:   slice(expand(x, shape=(n, c, h, w), axes=(-3,)), axis=-3, start=a, stop=b)
                      == expand(slice(x, axis=-1, start=a, stop=b), shape=(n, b - a, h, w), axes=(-3,))
                      for x[1]
    expand-kernel:    slice(expand(x, shape=(n, c, h, w), axes=(-4,)), axis=-4, start=a, stop=b)
                      == expand(slice(x, axis=-1, start=a, stop=b), shape=(b - a, c, h, w), axes=(-4,))
                      for x[1]
    zeros:            slice(zeros(shape=s), axis=-1, start=a, stop=b) == zeros(shape=(s0, b - a))  for s[2]
    zeros-rows:       slice(zeros(shape=s), axis=-2, start=a, stop=b) == zeros(shape=(b - a, s1))  for s[2]
"""


def slice(x: Tensor, *, axis: Axis, start: Extent = 0, stop: Extent) -> Tensor:
    require(start >= 0, "slice: starts inside")
    require(stop <= x.shape[axis], "slice: stops inside")
    require(start < stop, "slice: not empty")
    shape = tuple(stop - start if a == axis else x.shape[a] for a in range(-x.rank, 0))
    return tensor(shape, lambda *i: x[tuple(v + start if a == axis else v for a, v in zip(range(-x.rank, 0), i, strict=True))])


def lift(node: Node) -> Term | tuple[Term, ...]:
    return _sliced(node) if node.op_type == "Slice" else _split(node)


def _sliced(node: Node) -> Term:
    x = node.operand(0)
    starts, ends = node.attribute("starts"), node.attribute("ends")
    axes, steps = node.attribute("axes", tuple(range(len(starts)))), node.attribute("steps", (1,) * len(starts))
    for axis, first, last, step in zip(axes, starts, ends, steps, strict=True):
        require_end(last, step)
        n = x.sizes[axis]
        begin, end = (v + n if v < 0 else v for v in (first, last))
        start, stop = (min(max(v, 0), n) for v in ((begin, end) if step > 0 else (end + 1, begin + 1)))
        x = apply("slice", x, axis=axis, start=start, stop=stop) if (start, stop) != (0, n) else x
        x = apply("reverse", x, axis=axis) if step < 0 else x
        x = apply("stride", x, axis=axis, step=abs(step)) if abs(step) > 1 else x
    return x


def _split(node: Node) -> tuple[Term, ...]:
    x, axis = node.operand(0), node.attribute("axis", 0)
    n, parts = x.sizes[axis], node.outputs
    sizes = node.attribute("split", (-(-n // parts),) * parts)
    stops = [min(stop, n) for stop in accumulate(sizes)]
    return tuple(apply("slice", x, axis=axis, start=start, stop=stop) for start, stop in zip([0, *stops], stops, strict=False))


def lower(term: Term, emit: Emit) -> str:
    """Write nested `slice`, `stride` and `reverse` terms as one Slice node, and return the name of the output."""
    cuts: dict[int, tuple[int, int]] = {}
    x = term
    while x.op in ("slice", "stride", "reverse"):
        axis = x.integer("axis")
        start, step = cuts.get(axis, (0, 1))
        match x.op:
            case "slice":
                cuts[axis] = start + x.integer("start"), step
            case "stride":
                cuts[axis] = start * x.integer("step"), step * x.integer("step")
            case _:
                cuts[axis] = x.sizes[axis] - 1 - start, -step
        x = x.args[0]
    axes = sorted(cuts)
    starts, steps = ([cuts[a][part] for a in axes] for part in (0, 1))
    ends = [_end(start, step, term.sizes[a], x.sizes[a]) for a, start, step in zip(axes, starts, steps, strict=True)]
    stepped = {"steps": tuple(steps)} if any(step != 1 for step in steps) else {}
    return emit("Slice", x, starts=tuple(starts), ends=tuple(ends), axes=tuple(a + x.rank for a in axes), **stepped)


def _end(start: int, step: int, count: int, extent: int) -> int:
    """Return the value in the input `ends` of an ONNX Slice, for an axis along which `count` positions are selected.

    The end is at most the end of the axis. A slice that runs backwards to the first position ends at `-extent - 1`.
    """
    end = start + step * count
    if step > 0:
        return min(end, extent)
    return end if end >= 0 else -extent - 1
