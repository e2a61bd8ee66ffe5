"""Arithmetic and memory traffic of a term, computed by interpreting the operators' definitions with costs as values.

A multiplication and an addition count as one operation each, so a matrix product of (m, k) and (k, n) takes 2 * m * k * n
operations. Arithmetic on constants is free. A choice between two values costs as much as the more expensive of the two.
"""

# ruff: noqa: ARG002 (the methods are those of every interpretation)

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from superopt.algebra import index
from superopt.algebra.operators import apply, interpret, operator
from superopt.algebra.terms import Cond, Extent, Term, subterms, variable
from superopt.speclib.composite import unfolded


@dataclass(frozen=True)
class Work:
    """The floating-point operations of a computation, and its memory traffic in bytes, without any cache between operators."""

    flops: int
    bytes: int

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.bytes + other.bytes)


@dataclass(frozen=True)
class _Cost:
    """The cost of one element.

    Attributes:
        flops: The number of floating-point operations.
        reads: The number of elements read from each operand. A constant reads nothing.
        accumulated: Whether the element is a sum over an index. In a nested sum, only the additions of the innermost sum are
            counted, once for each combination of the other indices.
        picked: Whether the element is a product in which one factor is 1 for a single value of an index and 0 for all other
            values. The sum of these products over the index reads only one element.
    """

    flops: int
    reads: tuple[int, ...]
    accumulated: bool = False
    picked: bool = False

    @property
    def is_number(self) -> bool:
        return not any(self.reads)

    def _with(self, other: _Cost) -> _Cost:
        free = self.is_number and other.is_number
        reads = tuple(a + b for a, b in zip(self.reads, other.reads, strict=True))
        return _Cost(0 if free else self.flops + other.flops + 1, reads)

    __add__ = __sub__ = _with

    def __mul__(self, other: _Cost) -> _Cost:
        cost = self._with(other)
        if self.picked == other.picked:
            return cost
        return replace(cost, flops=other.flops if self.picked else self.flops, picked=True)


class _Costs:
    """The interpretation of index notation in which values are costs, indices are 0, and conditions are ignored."""

    def __init__(self, operands: int) -> None:
        self.free = _Cost(0, (0,) * operands)
        self.flops = 0

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., _Cost]) -> index.Tensor:
        """Return a tensor whose elements are computed once.

        The first access to the tensor adds the operations that compute all of its elements to `self.flops`. The returned cost
        of an access contains no operations. The cost contains only the reads for one element.
        """

        @functools.cache
        def element() -> _Cost:
            cost = at(*(0,) * len(shape))
            self.flops += math.prod(n for n in shape if isinstance(n, int)) * cost.flops
            return _Cost(0, cost.reads)

        return index.Tensor(shape, lambda *_: element())

    def require(self, condition: Cond, message: str) -> None:
        """Ignore a condition of an operator's definition, because costs are only computed for well-typed terms."""

    def total(self, extent: Extent, body: Callable[[int], _Cost]) -> _Cost:
        assert isinstance(extent, int)
        one = body(0)
        if one.is_number or one.picked:
            return one
        return _Cost(extent * (one.flops + (not one.accumulated)), tuple(extent * r for r in one.reads), accumulated=True)

    maximum = total

    def select(self, condition: object, then: _Cost, other: _Cost) -> _Cost:
        reads = tuple(max(a, b) for a, b in zip(then.reads, other.reads, strict=True))
        return _Cost(max(then.flops, other.flops), reads)

    def picked(self, value: _Cost, extent: Extent, body: Callable[[int], _Cost]) -> _Cost:
        one = body(0)
        return replace(one, reads=tuple(a + b for a, b in zip(one.reads, value.reads, strict=True)))

    def call(self, function: str, *arguments: _Cost) -> _Cost:
        one = functools.reduce(lambda a, b: a + b, arguments)
        picked = function == "zero"
        return one if one.is_number else _Cost(one.flops + (len(arguments) == 1), one.reads, picked=picked)

    def number(self, value: Extent) -> _Cost:
        return self.free

    def entry(self, matrix: object, row: object, column: object) -> _Cost:
        return self.free

    def lowest(self) -> _Cost:
        return self.free


def work(term: Term, itemsize: int = 4) -> Work:
    """Return the work of the term's root operator, without the work of its operands. All sizes must be constant.

    Each element of an operand is counted as read once. If the result needs only a part of an operand, only this part counts.
    """
    if term.is_variable:
        return Work(0, 0)
    operands = [variable(f"operand{position}", arg.shape) for position, arg in enumerate(term.args)]
    return _of_operands(apply(term.op, *operands, **dict(term.attributes)), itemsize)


@functools.lru_cache(maxsize=1 << 16)
def _of_operands(term: Term, itemsize: int) -> Work:
    """Return the work of an operator whose operands are variables."""
    if operator(term.op).unrolled is not None:
        x, *others = term.args
        step = unfolded(apply(term.op, variable("step", (1, *x.shape[1:])), *others))
        assert step is not None, "a recurrence has steps"
        return Work(x.sizes[0] * sum(work(t, itemsize).flops for t in subterms(step)), _moved(term) * itemsize)
    body = unfolded(term)
    if body is not None:
        return Work(sum(work(t, itemsize).flops for t in subterms(body)), _moved(term) * itemsize)
    operands = [index.Tensor(arg.shape, _read(position, len(term.args))) for position, arg in enumerate(term.args)]
    costs = _Costs(len(term.args))
    with index.interpreted(costs):
        result = interpret(term, operands)
        cost: _Cost = result.at(*(0,) * result.rank)
    elements = math.prod(term.sizes)
    read = sum(min(math.prod(arg.sizes), elements * r) for arg, r in zip(term.args, cost.reads, strict=True))
    return Work(costs.flops, (read + elements) * itemsize)


def _moved(term: Term) -> int:
    return sum(math.prod(t.sizes) for t in (term, *term.args))


def _read(position: int, operands: int) -> Callable[..., _Cost]:
    cost = _Cost(0, tuple(int(other == position) for other in range(operands)))
    return lambda *_: cost


def total_work(roots: Iterable[Term], itemsize: int = 4) -> Work:
    """Return the total work of all distinct subterms, except constant subterms, which are computed before the model runs."""
    return sum((work(term, itemsize) for term in subterms(*roots) if not term.constant), Work(0, 0))
