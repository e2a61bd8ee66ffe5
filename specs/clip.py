"""x limited to the range from `low` to `high`, elementwise (ONNX Clip).

If a Clip node omits a bound, the bound is the lowest or the largest finite number, so that infinities become finite. If a bound
is given and infinite, the node is lifted to a maximum or a minimum.
"""

from __future__ import annotations

from math import inf

from superopt.algebra.index import Real, Tensor, require
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term, at_least
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import increasing, pointwise

ONNX = "Clip"
LARGEST = 3.4028234663852886e38
"""The largest float32, which stands for the largest number of every type."""

FROM = "maximum(x, expand(scale(ones(shape=()), factor=low), shape=x.shape, axes=()))"
UP_TO = "minimum(x, expand(scale(ones(shape=()), factor=high), shape=x.shape, axes=()))"

COMPOSITE = """
    minimum(maximum(x, scale(ones(shape=x.shape), factor=low)), scale(ones(shape=x.shape), factor=high))
    for x[1, 2, 3, 4]
"""

AXIOMS = (
    pointwise("clip", "low", "high")
    + increasing("clip", "low", "high")
    + """
    inner:         clip(clip(x, low=a, high=b), low=c, high=d) == clip(x, low=a, high=b)
                   for x[1, 2, 3, 4] where a >= c, d >= b
    outer:         clip(clip(x, low=a, high=b), low=c, high=d) == clip(x, low=c, high=d)
                   for x[1, 2, 3, 4] where c >= a, b >= d
    scale:         clip(scale(x, factor=a), low=a * b, high=a * c) == scale(clip(x, low=b, high=c), factor=a)
                   for x[1, 2, 3, 4] where a >= 0
    negate:        clip(scale(x, factor=-1), low=-b, high=-a) == scale(clip(x, low=a, high=b), factor=-1)
                   for x[1, 2, 3, 4]
    relu:          relu(clip(x, low=a, high=b)) == clip(x, low=0, high=b)  for x[1, 2, 3, 4] where 0 >= a, b >= 0
    positive:      relu(clip(x, low=a, high=b)) == clip(x, low=a, high=b)  for x[1, 2, 3, 4] where a >= 0
    of-relu:       clip(relu(x), low=a, high=b) == clip(x, low=0, high=b)  for x[1, 2, 3, 4] where 0 >= a, b >= 0
    shift:         clip(x + scale(ones(shape=x.shape), factor=a), low=b, high=c)
                   == clip(x, low=b - a, high=c - a) + scale(ones(shape=x.shape), factor=a)
                   for x[1, 2, 3, 4]
"""
)


def clip(x: Tensor, *, low: Real, high: Real) -> Tensor:
    require(at_least(high, low), "clip: low is no larger than high")
    return composed(COMPOSITE, {"x": x}, low=low, high=high)


def lift(node: Node) -> Term | None:
    x, low, high = node.operand(0), _bound(node, 1, "min"), _bound(node, 2, "max")
    if low is None or high is None:
        return None
    unbounded = low == -inf, high == inf
    if unbounded == (False, False):
        return apply("clip", x, low=low, high=high)
    if unbounded == (False, True):
        return apply("relu", x) if low == 0 else node.written(FROM, {"x": x}, low=low)
    return node.written(UP_TO, {"x": x}, high=high) if unbounded == (True, False) else x


def _bound(node: Node, position: int, name: str) -> float | None:
    """Return the bound of the node, or None if the bound is not constant."""
    absent = -LARGEST if name == "min" else LARGEST
    if node.opset < 11:
        return float(node.attribute(name, absent))
    return absent if node.absent(position) else node.scalar(position)


def lower(term: Term, emit: Emit) -> str:
    x = term.args[0]
    low = low if (low := term.real("low")) > -LARGEST else None
    high = high if (high := term.real("high")) < LARGEST else None
    if emit.opset >= 11:
        return emit("Clip", x, low, high)
    bounds = {"min": low, "max": high}
    return emit("Clip", x, **{name: bound for name, bound in bounds.items() if bound is not None})
