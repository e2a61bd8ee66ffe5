"""Elements that a model takes one by one as one sequence again, by the rules for what only moves elements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from superopt.errors import ShapeError
from superopt.graph import Shape, Term
from superopt.op import apply
from superopt.rewrite.apply import MOVES
from superopt.rewrite.ruleset import RuleSet


@dataclass(frozen=True)
class Joined:
    """Elements of one shape joined along an axis, counted from the front, where each has extent 1; and by what rule."""

    term: Term
    axis: int
    rule: str

    def moved(self, shape: tuple[int, ...], axis: int) -> Term:
        """The sequence in this shape, with the elements along this axis of it."""
        count = shape[axis]
        before, after = (math.prod(s[:a]) for s, a in ((self.term.sizes, self.axis), (shape, axis)))
        term = self.term
        for rows in [] if before == after else [n for n in (before, after) if n != 1]:
            inner = math.prod(shape) // count // rows
            split = (rows, count, inner) if rows == before else (count, rows, inner)
            term = apply("transpose", shaped(term, split), perm=(1, 0, 2))
        return shaped(term, shape)


class Sequences:
    """What elements are when they stand side by side."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules.within(MOVES)

    def of(self, elements: Sequence[Term], shape: tuple[int, ...]) -> Term:
        """The elements, whatever their shape, along the first axis of a term of this shape."""
        whole = self.whole(elements)
        rows = [shaped(e, (1, *shape[1:])) for e in elements]
        return whole.moved(shape, 0) if whole is not None else self._joined(rows, -len(shape))[0]

    def whole(self, elements: Sequence[Term]) -> Joined | None:
        """The elements joined, where they are consecutive parts of one term, in its order or the opposite one."""
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
        """The parts side by side, those that follow each other in one term as one part; and the rule that says so last."""
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
    """The elements; then what they are reshaped from, while they all are and have one shape."""
    while len({e.shape for e in elements}) == 1:
        yield elements
        if any(e.op != "reshape" for e in elements):
            return
        elements = [e.args[0] for e in elements]


def shaped(term: Term, shape: Shape) -> Term:
    """The term in this shape."""
    try:
        return term if term.shape == shape else apply("reshape", term, shape=shape)
    except ShapeError:
        raise AssertionError(f"{term.shape} has not as many elements as {shape}") from None
