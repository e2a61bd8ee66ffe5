"""Sums of products over named axes (ONNX Einsum), as transposes, sums over axes of one operand, and matrix products.

More than two operands are combined from left to right. Diagonals (a letter that occurs twice in one operand) are not supported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from string import ascii_letters

from superopt.algebra.operators import Node, apply
from superopt.algebra.terms import Term

ONNX = "Einsum"

COMPOSITE = "transpose(reduce_sum(x, axes=a) @ reduce_sum(y, axes=b), perm=p)"


@dataclass(frozen=True)
class Named:
    """A term, and a letter for each of its axes."""

    term: Term
    letters: str

    def extents(self, letters: Iterable[str]) -> tuple[int, ...]:
        return tuple(self.term.sizes[self.letters.index(letter)] for letter in letters)

    def summed(self, needed: Iterable[str]) -> Named:
        """Return the term summed over the axes that are not needed."""
        kept = "".join(letter for letter in self.letters if letter in set(needed))
        axes = tuple(a for a, letter in enumerate(self.letters) if letter not in kept)
        return Named(apply("reduce_sum", self.term, axes=axes), kept) if axes else self

    def ordered(self, letters: str) -> Term:
        """Return the term with its axes in the order of `letters`."""
        perm = tuple(self.letters.index(letter) for letter in letters)
        return apply("transpose", self.term, perm=perm) if letters != self.letters else self.term

    def grouped(self, *groups: str) -> Term:
        """Return the term with the axes of each group merged into one axis, in the order of the groups."""
        return _shaped(self.ordered("".join(groups)), tuple(prod(self.extents(group)) for group in groups))

    def spread(self, letters: str, shape: tuple[int, ...]) -> Term:
        """Return the term with the axes `letters` and the extents `shape`. The term is repeated along new axes."""
        here = self.ordered("".join(letter for letter in letters if letter in self.letters))
        axes = tuple(a for a, letter in enumerate(letters) if letter in self.letters)
        return apply("expand", here, shape=shape, axes=axes) if shape != here.shape else here


def lift(node: Node) -> Term | None:
    operands = [node.operand(position) for position in range(len(node.inputs))]
    read = _read(node.attribute("equation").replace(" ", ""), operands)
    if read is None:
        return None
    (result, *rest), output = read
    for position, other in enumerate(rest):
        needed = {*output, *(letter for later in rest[position + 1 :] for letter in later.letters)}
        result = _product(result.summed({*needed, *other.letters}), other.summed({*needed, *result.letters}), needed)
    return result.summed(output).ordered(output)


def _read(equation: str, operands: list[Term]) -> tuple[list[Named], str] | None:
    """Return the operands with their letters, and the letters of the result.

    Return None if the equation is not supported. The axes of an ellipsis get letters that the equation does not use.
    """
    left, arrow, output = equation.partition("->")
    texts = left.split(",")
    missing = [x.rank - len(text.replace("...", "")) for x, text in zip(operands, texts, strict=True)]
    if any(count < 0 or (count > 0 and "..." not in text) for count, text in zip(missing, texts, strict=True)):
        return None
    free = "".join(letter for letter in ascii_letters if letter not in equation)
    longest = free[: max(missing)]
    named = [
        Named(x, text.replace("...", longest[len(longest) - count :]))
        for x, text, count in zip(operands, texts, missing, strict=True)
    ]
    together = "".join(x.letters for x in named)
    once = "".join(sorted(letter for letter in set(together) - set(longest) if together.count(letter) == 1))
    output = output.replace("...", longest) if arrow else longest + once
    extents = {pair for x in named for pair in zip(x.letters, x.term.sizes, strict=True)}
    whole = len(extents) == len(set(together)) and all(len(set(x.letters)) == len(x.letters) for x in named)
    return (named, output) if whole and set(output) <= set(together) else None


def _product(x: Named, y: Named, needed: Iterable[str]) -> Named:
    """Return the product of x and y, summed over their common axes that are not needed afterwards."""
    both = [letter for letter in x.letters if letter in y.letters]
    batch = "".join(letter for letter in both if letter in set(needed))
    inner = "".join(letter for letter in both if letter not in batch)
    rows = "".join(letter for letter in x.letters if letter not in both)
    columns = "".join(letter for letter in y.letters if letter not in both)
    if not inner:
        letters, shape = x.letters + columns, (*x.term.sizes, *y.extents(columns))
        return Named(apply("mul", x.spread(letters, shape), y.spread(letters, shape)), letters)
    lead = list(batch) if len(batch) <= 2 else [batch]
    apart = not batch and len(inner) == 1 <= len(rows)
    left = x.ordered(rows + inner) if apart else x.grouped(*lead, rows, inner)
    product = apply("matmul", left, y.grouped(*lead, inner, columns))
    return Named(_shaped(product, (*x.extents(batch + rows), *y.extents(columns))), batch + rows + columns)


def _shaped(x: Term, shape: tuple[int, ...]) -> Term:
    return apply("reshape", x, shape=shape) if x.shape != shape else x
