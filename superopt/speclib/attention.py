"""The ONNX operator Attention: a test for supported nodes, and the conversion of masks.

A node has one mask: a tensor of numbers that is added to the scores. If an element of the mask is at most the least finite
float32 number, the operator treats the key of this element as not allowed. If a query has no allowed keys, the operator gives
each key the weight 0. The softmax of the masked scores would give different weights. The algebra's operator therefore has two
masks. One mask contains the numbers that are added to the scores. The other mask says which keys are allowed.
"""

from __future__ import annotations

from math import sqrt

from superopt.algebra.operators import Node, apply, fraction_of
from superopt.algebra.terms import Attribute, Extent, Shape, Term, variables
from superopt.algebra.value_analysis import UNBOUNDED, facts_of

LEAST, ABOVE = -(2**128 - 2**104), -(2**128 - 2**105)
"""The least finite float32 number, and the next larger float32 number."""
MASK, PAST = 3, (4, 5, 6)
"""The positions of the mask input, and of the inputs for past keys, past values and numbers of keys."""
FLOAT = 1
"""ONNX's type number of float32."""
WINDOWS = ("left_window_size", "right_window_size")
"""The attributes that limit the distance between a query and a key. -1 means no limit."""


def bound(node: Node) -> bool:
    """Return whether the operator definitions in specs/ support the Attention node.

    The node must have no past keys, no cap on scores, no limit on the distance between query and key, and only one output.
    """
    plain = not node.attribute("softcap", 0.0) and node.attribute("softmax_precision", FLOAT) == FLOAT
    whole = all(node.attribute(name, -1) == -1 for name in WINDOWS)
    return plain and whole and node.outputs == 1 and all(map(node.absent, PAST))


def scale_of(node: Node, size: int) -> Attribute:
    """Return the factor by which the node multiplies scores. `size` is the length of a key."""
    return fraction_of(node.attribute("scale", 1 / sqrt(size)))


def masks(node: Node, shape: tuple[int, ...]) -> tuple[Term, Term]:
    """Return two masks for scores of this shape: the mask that is added to the scores, and the mask of allowed keys.

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
    """Combine the masks `m` and `c` into a single mask for an ONNX node. Return None if neither mask has an effect.

    `m` is added to the scores, and `c` is nonzero where a key is allowed. The result has the smallest shape that the operator
    accepts.
    """
    if c.op == "ones":
        return _raised(narrow(m)) if m.op != "zeros" else None
    if c.op == "less" and c.args == (_all(LEAST, m.shape), m):
        return narrow(m)
    allowed, added = (narrow(c), None) if m.op == "zeros" else (c, _raised(m))
    return apply("where", allowed, added or apply("zeros", shape=allowed.shape), _all(LEAST, allowed.shape))


def _is_above(m: Term) -> bool:
    """Return whether every element of the mask is proved to be larger than `LEAST`, so that every key is allowed."""
    return facts_of(m, {x.name: UNBOUNDED for x in variables(m)}).low > LEAST


def _raised(m: Term) -> Term:
    """Replace the least float32 number in the mask by the next larger number, so that every key is allowed.

    The softmax is the same for both numbers.
    """
    return m if _is_above(m) else apply("maximum", m, _all(ABOVE, m.shape))


def weighted(scores: Term, m: Term, c: Term) -> Term:
    """Return the attention weights: the softmax of `scores + m`. A key gets the weight 0 where the mask `c` is 0."""
    scores = apply("add", scores, m) if m.op != "zeros" else scores
    if c.op == "ones":
        return apply("softmax", scores, axis=-1)
    weights = apply("softmax", apply("where", c, scores, _all(LEAST, c.shape)), axis=-1)
    return apply("where", c, weights, apply("zeros", shape=c.shape))


def with_causal(c: Term) -> Term:
    """Restrict the mask of allowed keys `c` to keys that do not come after the query."""
    ones = apply("ones", shape=c.shape[-2:])
    before = apply("expand", apply("lower_triangle", ones, offset=0), shape=c.shape, axes=(-2, -1))
    return before if c.op == "ones" else apply("logical_and", c, before)


def apart(x: Term, count: Extent) -> Term:
    """Split the last axis of x[b, s, h * d] into `count` heads, and return the term of shape [b, h, s, d]."""
    b, s, width = x.shape
    return apply("transpose", apply("reshape", x, shape=(b, s, count, width // count)), perm=(0, 2, 1, 3))


def _all(number: int, shape: Shape) -> Term:
    """Return a term of this shape in which every element is `number`."""
    return apply("scale", apply("ones", shape=shape), factor=number)


def narrow(m: Term) -> Term:
    """Narrow the mask, and return it. If the mask is constant along the batch axis or the head axis, this axis gets the extent
    1.
    """
    if m.op != "expand":
        return m
    axes = m.integers("axes")
    shape = (*(m.shape[a] if a in axes else 1 for a in (-4, -3)), *m.shape[-2:])
    inner = m.args[0]
    return apply("reshape", inner, shape=shape) if {-2, -1} <= {*axes} else apply("expand", inner, shape=shape, axes=axes)
