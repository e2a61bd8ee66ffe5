"""Make an equality as general as possible: put variables in place of parts that both sides share.

A universe (the vocabulary from which terms are enumerated) has few variables. Enumeration therefore often finds special cases.
For example, enumeration finds an equality for `concat(x, concat(relu(x), x))`, but no equality for the concatenation of any
three tensors. This module puts variables in place of parts that occur on both sides. If a variable occurs several times, the
module also replaces one occurrence on each side by a new variable. A replacement is kept if the equality still holds on random
inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from superopt.algebra.operators import apply, replace_subterms
from superopt.algebra.terms import Term, operator_count, subterms, variable, variables
from superopt.discovery.universe import WEIGHTS
from superopt.errors import ShapeError

Sides = tuple[tuple[Term, ...], tuple[Term, ...]]

ACTIVATION_NAMES = "xyzqhgfij"
WEIGHT_NAMES = "wvubctr"


def abstract_sides(sides: Sides, holds: Callable[[Sides], bool]) -> Sides:
    """Put new variables in place of parts that occur on both sides of an equality, and return the new equality.

    Large parts are tried first. If a variable occurs several times, a new variable also replaces one occurrence on each side. A
    replacement is made only if `holds` returns True for the new equality. Sides with several outputs are returned unchanged.
    """
    if len(sides[0]) > 1:
        return sides
    asked = False
    for tried in _wider(sides):
        if not asked and not holds(sides):
            return sides
        asked = True
        if holds(tried):
            return abstract_sides(tried, holds)
    return sides


def _wider(sides: Sides) -> Iterator[Sides]:
    (left,), (right,) = sides
    shared = [t for t in subterms(left) if t.args and variables(t) and t is not left and t is not right]
    for part in sorted((t for t in shared if t in subterms(right)), key=operator_count, reverse=True):
        fresh = _fresh(part, variables(left, right))
        if fresh is not None:
            try:
                yield (replace_subterms(left, {part: fresh}),), (replace_subterms(right, {part: fresh}),)
            except ShapeError:
                continue
    for tensor in variables(left):
        places = _places(left, tensor)
        if places > 1 and _places(right, tensor) == places:
            fresh = _fresh(tensor, variables(left, right))
            if fresh is None:
                continue
            for place in range(1, places):
                try:
                    yield (_replaced(left, tensor, fresh, place),), (_replaced(right, tensor, fresh, place),)
                except ShapeError:
                    continue


def _fresh(part: Term, taken: Sequence[Term]) -> Term | None:
    """Return a variable that has the shape of `part` and a name that no variable in `taken` has.

    Return None if all names are used. If `part` depends only on weights, the name is one of the names for weights.
    """
    names = {v.name for v in taken}
    weights = all(v.name in WEIGHTS for v in variables(part))
    name = next((n for n in (WEIGHT_NAMES if weights else ACTIVATION_NAMES) if n not in names), None)
    return variable(name, part.shape) if name is not None else None


def _places(root: Term, tensor: Term) -> int:
    """Return how often the variable `tensor` occurs in the term `root`.

    If a part that contains `tensor` occurs several times, each occurrence of the part counts.
    """
    return int(root is tensor) + sum(_places(a, tensor) for a in root.args)


def _replaced(root: Term, tensor: Term, fresh: Term, place: int) -> Term:
    """Return the term `root` with one occurrence of the variable `tensor` replaced by `fresh`.

    `place` is the index of this occurrence, counted from the left, starting at 0.
    """
    if root is tensor:
        return fresh if place == 0 else root
    args: list[Term] = []
    for arg in root.args:
        count = _places(arg, tensor)
        args.append(_replaced(arg, tensor, fresh, place) if 0 <= place < count else arg)
        place -= count
    return root if tuple(args) == root.args else apply(root.op, *args, **dict(root.attributes))
