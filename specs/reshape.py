"""The elements of x in a new shape and unchanged row-major order (ONNX Reshape, Flatten, Squeeze, Unsqueeze; static shapes)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import product
from math import prod
from operator import mul

from superopt.algebra.index import Extents, Index, Tensor, require, same, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term
from superopt.speclib.reduction import lowered

ONNX = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")

AXIOMS = """
    identity:       reshape(x, shape=x.shape) == x  for x[1, 2, 3, 4]
    twice:          reshape(reshape(x, shape=s), shape=t) == reshape(x, shape=t)
                    for x[1, 2, 3, 4], s[1, 2, 3, 4], t[1, 2, 3, 4]
    zeros:          reshape(zeros(shape=s), shape=t) == zeros(shape=t)  for s[1, 2, 3, 4], t[1, 2, 3, 4]
    ones:           reshape(ones(shape=s), shape=t) == ones(shape=t)  for s[1, 2, 3, 4], t[1, 2, 3, 4]
    row:            reshape(x, shape=(1, x.shape[-1])) == expand(x, shape=(1, x.shape[-1]), axes=(-1,))  for x[1]
    column:         reshape(x, shape=(x.shape[-1], 1)) == expand(x, shape=(x.shape[-1], 1), axes=(-2,))  for x[1]
    channel:        reshape(x, shape=(1, x.shape[-1], 1, 1)) == expand(x, shape=(1, x.shape[-1], 1, 1), axes=(-3,))  for x[1]
    kernel:         reshape(x, shape=(x.shape[-1], 1, 1, 1)) == expand(x, shape=(x.shape[-1], 1, 1, 1), axes=(-4,))  for x[1]
    pointwise:      reshape(reshape(x, shape=(x.shape[-2], x.shape[-1], 1, 1)), shape=x.shape) == x  for x[2]
    leading-unit:   reshape(reshape(x, shape=(1, x.shape[-2], x.shape[-1])), shape=x.shape) == x  for x[2]
    row-channel:    reshape(expand(t, shape=(m, c, n), axes=(-2,)), shape=(m, c, 1, n))
                    == expand(t, shape=(m, c, 1, n), axes=(-3,))
                    for t[1]
    row-dropped:    reshape(expand(t, shape=(m, c, 1, n), axes=(-3,)), shape=(m, c, n))
                    == expand(t, shape=(m, c, n), axes=(-2,))
                    for t[1]
    row-kernel:     reshape(expand(t, shape=(m, c, n), axes=(-3,)), shape=(m, c, 1, n))
                    == expand(t, shape=(m, c, 1, n), axes=(-4,))
                    for t[1]
    flatten-expand: reshape(expand(x, shape=(l, m, n), axes=(-1,)), shape=(l * m, n))
                    == expand(x, shape=(l * m, n), axes=(-1,))
                    for x[1]
"""


def reshape(x: Tensor, *, shape: Extents) -> Tensor:
    require(same(_count(x.shape, range(x.rank)), _count(shape, range(len(shape)))), "reshape: as many elements as before")
    for extent in shape:
        require(extent >= 1, "reshape: the result is not empty")

    def at(*position):
        source: list[Index] = [0] * x.rank
        for kept, given in _groups(x.shape, shape):
            flat: Index = 0
            for axis in given:
                flat = flat * shape[axis] + position[axis]
            for axis in reversed(kept[1:]):
                source[axis] = flat % x.shape[axis]
                flat = flat // x.shape[axis]
            if kept:
                source[kept[0]] = flat
        return x[tuple(source)]

    return tensor(shape, at)


def _groups(old: Extents, new: Extents) -> list[tuple[list[int], list[int]]]:
    """Divide the old and the new axes into the shortest runs of equal element count. Each run can be reshaped by itself.

    Axes of extent 1 are left out.
    """
    left = [a for a, n in enumerate(old) if n != 1]
    right = [a for a, n in enumerate(new) if n != 1]
    groups: list[tuple[list[int], list[int]]] = []
    while left or right:
        runs = sorted(product(range(1, len(left) + 1), range(1, len(right) + 1)), key=sum)
        whole = (len(left), len(right))
        i, j = next((run for run in runs if _count(old, left[: run[0]]) == _count(new, right[: run[1]])), whole)
        groups.append((left[:i], right[:j]))
        left, right = left[i:], right[j:]
    return groups


def _count(shape: Extents, axes: Iterable[int]) -> Extent:
    """Return the product of the extents of the given axes."""
    return reduce(mul, (shape[a] for a in axes), 1)


def lift(node: Node) -> Term | None:
    x = node.operand(0)
    asked = {"Reshape": _asked, "Flatten": _flattened, "Squeeze": _squeezed, "Unsqueeze": _unsqueezed}[node.op_type]
    shape = asked(node, x.sizes)
    return apply("reshape", x, shape=shape) if shape != x.shape else x


def _asked(node: Node, sizes: tuple[int, ...]) -> tuple[int, ...]:
    asked = node.attribute("shape")
    if not node.attribute("allowzero", 0):
        asked = tuple(sizes[a] if n == 0 else n for a, n in enumerate(asked))
    known = prod(n for n in asked if n != -1)
    return tuple(prod(sizes) // known if n == -1 else n for n in asked)


def _flattened(node: Node, sizes: tuple[int, ...]) -> tuple[int, ...]:
    axis = node.attribute("axis", 1)
    return prod(sizes[:axis]), prod(sizes[axis:])


def _squeezed(node: Node, sizes: tuple[int, ...]) -> tuple[int, ...]:
    axes = node.attribute("axes", tuple(a for a, n in enumerate(sizes) if n == 1))
    return tuple(n for a, n in enumerate(sizes) if a not in axes and a - len(sizes) not in axes)


def _unsqueezed(node: Node, sizes: tuple[int, ...]) -> tuple[int, ...]:
    axes = node.attribute("axes")
    rank = len(sizes) + len(axes)
    old = iter(sizes)
    return tuple(1 if a in axes or a - rank in axes else next(old) for a in range(rank))


def lower(term: Term, emit: Emit) -> str:
    inner = term.args[0]
    if inner.op.startswith("reduce_") and term.shape == _kept(inner):
        if inner.op == "reduce_mean" and term.rank == 4 and inner.integers("axes") == (-2, -1):
            return emit("GlobalAveragePool", inner.args[0])
        return lowered(inner, emit, keep=True)
    if inner.op == "matmul":
        x, y = map(_vector, inner.args)
        if (x, y) != inner.args and term.shape == (*x.shape[:-1], *y.shape[1:]) and x.rank <= 2 >= y.rank:
            return emit("MatMul", x, y)
    return emit("Reshape", inner, shape=term.sizes)


def _kept(reduction: Term) -> Extents:
    """Return the shape of the reduction's operand with extent 1 along the reduced axes."""
    x, axes = reduction.args[0], reduction.integers("axes")
    return tuple(1 if a in axes else x.shape[a] for a in range(-x.rank, 0))


def _vector(x: Term) -> Term:
    """If x is a vector that is reshaped to a matrix, return the vector. Otherwise, return x."""
    return x.args[0] if x.op == "reshape" and x.rank == 2 and x.args[0].rank == 1 else x
