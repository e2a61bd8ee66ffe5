"""Join tensors that a model reads one by one, such as time steps, into one tensor.

If the tensors are consecutive slices of a term, rules for data-movement operators turn the concatenation of the slices into
this term.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from superopt.algebra.operators import apply
from superopt.algebra.terms import Shape, Term
from superopt.errors import ShapeError
from superopt.search.apply import MOVES
from superopt.search.ruleset import RuleSet


@dataclass(frozen=True)
class Joined:
    """A sequence: tensors of one shape (the elements), joined along an axis on which each element has extent 1.

    Attributes:
        term: the joined tensor.
        axis: the axis, counted from the front.
        rule: the name of the last rule that joined elements.
    """

    term: Term
    axis: int
    rule: str

    def moved(self, shape: tuple[int, ...], axis: int) -> Term:
        """Return the sequence reshaped to `shape`, with the elements along the given axis of `shape`."""
        count = shape[axis]
        before, after = (math.prod(s[:a]) for s, a in ((self.term.sizes, self.axis), (shape, axis)))
        term = self.term
        for rows in [] if before == after else [n for n in (before, after) if n != 1]:
            inner = math.prod(shape) // count // rows
            split = (rows, count, inner) if rows == before else (count, rows, inner)
            term = apply("transpose", reshape_rewritten_term(term, split), perm=(1, 0, 2))
        return reshape_rewritten_term(term, shape)


class Sequences:
    """Joins tensors into sequences, by the rules for operators that only move elements."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules.within(MOVES)

    def of(self, elements: Sequence[Term], shape: tuple[int, ...]) -> Term:
        """Join elements of one shape. Return a term of the given shape, with the elements along the first axis."""
        whole = self.whole(elements)
        rows = [reshape_rewritten_term(e, (1, *shape[1:])) for e in elements]
        return whole.moved(shape, 0) if whole is not None else self._joined(rows, -len(shape))[0]

    def whole(self, elements: Sequence[Term]) -> Joined | None:
        """Join the elements into one term. Return None if the elements are not consecutive slices of one term.

        The slices may be in the order of the term or in reverse order.
        """
        for parts in _under_reshapes(elements):
            for axis, extent in enumerate(parts[0].sizes):
                if extent != 1:
                    continue
                for ordered in (parts, parts[::-1]):
                    term, rule = self._joined(ordered, axis - parts[0].rank)
                    if term.op != "concat":
                        back = apply("reverse", term, axis=axis - term.rank)
                        return Joined(term if ordered is parts else back, axis, rule)
        return None

    def _joined(self, parts: Sequence[Term], axis: int) -> tuple[Term, str]:
        """Return the concatenation of the parts, and the name of the last rule that joined two parts.

        Parts that are neighbouring slices of one term become one slice.
        """
        result, rule = parts[-1], ""
        for part in reversed(parts[:-1]):
            result = apply("concat", part, result, axis=axis)
            shorter: list[tuple[bool, Term, str]] = []
            for name, match in self._rules.matches(result):
                (made,), known = match.replacements, set(match.binding.tensors.values())
                if made in known or known.issuperset(made.args):
                    shorter.append((made not in known, made, name))
            if shorter:
                _, result, rule = min(shorter, key=lambda one: one[0])
        return result, rule


def _under_reshapes(elements: Sequence[Term]) -> Iterator[Sequence[Term]]:
    """Follow the chains of reshapes down from the elements. At each depth, yield the terms if all terms have equal shapes.

    The elements are yielded first, and then their operands. The iteration ends when a term is not a reshape, or when the shapes
    differ.
    """
    while len({e.shape for e in elements}) == 1:
        yield elements
        if any(e.op != "reshape" for e in elements):
            return
        elements = [e.args[0] for e in elements]


def reshape_rewritten_term(term: Term, shape: Shape) -> Term:
    """Return the term reshaped to `shape`, which must have equally many elements."""
    try:
        return term if term.shape == shape else apply("reshape", term, shape=shape)
    except ShapeError:
        raise AssertionError(f"the shapes {term.shape} and {shape} have different numbers of elements") from None
