"""ONNX's Attention: the nodes that specs support, and conversion between the node's one mask and the algebra's two masks.

A mask of numbers is added to the scores. If an element of the mask is float32's least number or less, the operator treats the
key as not allowed. If a query has no allowed keys, the operator gives each key the weight 0. The softmax of the masked scores
would give other weights.
"""

from __future__ import annotations

from math import sqrt

from superopt.algebra.operators import Node, apply, fraction_of
from superopt.algebra.terms import Attribute, Extent, Shape, Term, variables
from superopt.algebra.value_analysis import UNBOUNDED, facts_of

LEAST, ABOVE = -(2**128 - 2**104), -(2**128 - 2**105)
"""The least finite number of float32, and the next larger number."""
MASK, PAST = 3, (4, 5, 6)
"""The input positions of the operator's mask, and of past keys, past values and numbers of keys."""
FLOAT = 1
"""ONNX's type number of float32."""
WINDOWS = ("left_window_size", "right_window_size")
"""The attributes that limit the distance between a query and a key. -1 means no limit."""


def bound(node: Node) -> bool:
    """Return whether the specs support the node: it has no past keys, no cap on scores, no window and only one output."""
    plain = not node.attribute("softcap", 0.0) and node.attribute("softmax_precision", FLOAT) == FLOAT
    whole = all(node.attribute(name, -1) == -1 for name in WINDOWS)
    return plain and whole and node.outputs == 1 and all(map(node.absent, PAST))


def scale_of(node: Node, size: int) -> Attribute:
    """Return the factor by which the node multiplies scores. `size` is the length of a key."""
    return fraction_of(node.attribute("scale", 1 / sqrt(size)))


def masks(node: Node, shape: tuple[int, ...]) -> tuple[Term, Term]:
    """Return two masks for scores of this shape: the mask that the node adds, and the mask of allowed keys.

    The mask of allowed keys is nonzero where a key is allowed.
    """
    nothing, everything = apply("zeros", shape=shape), apply("ones", shape=shape)
    if node.absent(MASK):
        return nothing, everything
    given = node.expanded(node.operand(MASK), shape)
    if node.boolean(MASK):
        return nothing, given
    return given, everything if _is_above(given) else apply("less", _all(LEAST, shape), given)


def mask(m: Term, c: Term) -> Term | None:
    """Return one mask with the effect of both masks, or None if neither mask has an effect.

    `m` is added to scores, and `c` is nonzero where a key is allowed. The result has the smallest shape that the operator
    accepts.
    """
    if c.op == "ones":
        return _raised(narrow(m)) if m.op != "zeros" else None
    if c.op == "less" and c.args == (_all(LEAST, m.shape), m):
        return narrow(m)
    allowed, added = (narrow(c), None) if m.op == "zeros" else (c, _raised(m))
    return apply("where", allowed, added or apply("zeros", shape=allowed.shape), _all(LEAST, allowed.shape))


def _is_above(m: Term) -> bool:
    """Return whether it is certain that no number in the mask marks a key as not allowed."""
    return facts_of(m, {x.name: UNBOUNDED for x in variables(m)}).low > LEAST


def _raised(m: Term) -> Term:
    """Return the mask with float32's least number replaced by the next larger number. The softmax is the same for both."""
    return m if _is_above(m) else apply("maximum", m, _all(ABOVE, m.shape))


def weighted(scores: Term, m: Term, c: Term) -> Term:
    """Return the weights of keys: the softmax of the scores plus m. Keys that c does not allow get the weight 0."""
    scores = apply("add", scores, m) if m.op != "zeros" else scores
    if c.op == "ones":
        return apply("softmax", scores, axis=-1)
    weights = apply("softmax", apply("where", c, scores, _all(LEAST, c.shape)), axis=-1)
    return apply("where", c, weights, apply("zeros", shape=c.shape))


def with_causal(c: Term) -> Term:
    """Return the mask of the keys that c allows and that do not come after the query."""
    ones = apply("ones", shape=c.shape[-2:])
    before = apply("expand", apply("lower_triangle", ones, offset=0), shape=c.shape, axes=(-2, -1))
    return before if c.op == "ones" else apply("logical_and", c, before)


def apart(x: Term, count: Extent) -> Term:
    """Move the heads from the last axis of x, where they are side by side, to an axis of their own: [b, h, s, d]."""
    b, s, width = x.shape
    return apply("transpose", apply("reshape", x, shape=(b, s, count, width // count)), perm=(0, 2, 1, 3))


def _all(number: int, shape: Shape) -> Term:
    """Return a term with the number at every position."""
    return apply("scale", apply("ones", shape=shape), factor=number)


def narrow(m: Term) -> Term:
    """Return the mask with an extent of 1 along the axes of sequences or heads along which the mask is constant."""
    if m.op != "expand":
        return m
    axes = m.integers("axes")
    shape = (*(m.shape[a] if a in axes else 1 for a in (-4, -3)), *m.shape[-2:])
    inner = m.args[0]
    return apply("reshape", inner, shape=shape) if {-2, -1} <= {*axes} else apply("expand", inner, shape=shape, axes=axes)
