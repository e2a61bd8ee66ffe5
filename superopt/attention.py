"""ONNX's Attention as specs bind it: which nodes, and its one mask as the two of the algebra.

A mask of numbers is added to the scores. Where it is float32's least number or less, the operator takes the key for one that is
not allowed, and gives a query that no key is allowed to the weight 0 for each; a softmax of such scores would not.
"""

from __future__ import annotations

from math import sqrt

from superopt.graph import Attribute, Extent, Shape, Term, variables
from superopt.op import Node, apply, fraction_of
from superopt.value_facts import UNBOUNDED, facts_of

LEAST, ABOVE = -(2**128 - 2**104), -(2**128 - 2**105)
"""The least number of float32 and the next one."""
MASK, PAST = 3, (4, 5, 6)
"""Where the operator's mask stands, and what comes before the keys or says how many there are."""
FLOAT = 1
"""ONNX's number for float32."""
WINDOWS = ("left_window_size", "right_window_size")
"""How far from its query a key may be, -1 however far."""


def bound(node: Node) -> bool:
    """Whether the node has nothing that the specs do not say: no past, no cap, no window, one output."""
    plain = not node.attribute("softcap", 0.0) and node.attribute("softmax_precision", FLOAT) == FLOAT
    whole = all(node.attribute(name, -1) == -1 for name in WINDOWS)
    return plain and whole and node.outputs == 1 and all(map(node.absent, PAST))


def scale_of(node: Node, size: int) -> Attribute:
    """By what the node multiplies scores of keys of this size."""
    return fraction_of(node.attribute("scale", 1 / sqrt(size)))


def masks(node: Node, shape: tuple[int, ...]) -> tuple[Term, Term]:
    """What the node adds to scores of this shape, and where that is not 0 a key is allowed."""
    nothing, everything = apply("zeros", shape=shape), apply("ones", shape=shape)
    if node.absent(MASK):
        return nothing, everything
    given = node.expanded(node.operand(MASK), shape)
    if node.boolean(MASK):
        return nothing, given
    return given, everything if _is_above(given) else apply("less", _all(LEAST, shape), given)


def mask(m: Term, c: Term) -> Term | None:
    """The one mask that says both, as narrow as the operator takes it; None where neither says anything."""
    if c.op == "ones":
        return _raised(narrow(m)) if m.op != "zeros" else None
    if c.op == "less" and c.args == (_all(LEAST, m.shape), m):
        return narrow(m)
    allowed, added = (narrow(c), None) if m.op == "zeros" else (c, _raised(m))
    return apply("where", allowed, added or apply("zeros", shape=allowed.shape), _all(LEAST, allowed.shape))


def _is_above(m: Term) -> bool:
    """Whether the mask surely has no number that means that a key is not allowed."""
    return facts_of(m, {x.name: UNBOUNDED for x in variables(m)}).low > LEAST


def _raised(m: Term) -> Term:
    """The mask with the next number in place of the least one: to a softmax they are the same."""
    return m if _is_above(m) else apply("maximum", m, _all(ABOVE, m.shape))


def weighted(scores: Term, m: Term, c: Term) -> Term:
    """The weights of keys by their scores, with m added, where c allows them."""
    scores = apply("add", scores, m) if m.op != "zeros" else scores
    if c.op == "ones":
        return apply("softmax", scores, axis=-1)
    weights = apply("softmax", apply("where", c, scores, _all(LEAST, c.shape)), axis=-1)
    return apply("where", c, weights, apply("zeros", shape=c.shape))


def with_causal(c: Term) -> Term:
    """What c allows, but no key that comes after the query."""
    ones = apply("ones", shape=c.shape[-2:])
    before = apply("expand", apply("lower_triangle", ones, offset=0), shape=c.shape, axes=(-2, -1))
    return before if c.op == "ones" else apply("logical_and", c, before)


def apart(x: Term, count: Extent) -> Term:
    """The heads that lie side by side in the last axis along an axis of their own, [b, h, s, d]."""
    b, s, width = x.shape
    return apply("transpose", apply("reshape", x, shape=(b, s, count, width // count)), perm=(0, 2, 1, 3))


def _all(number: int, shape: Shape) -> Term:
    """The number at every position."""
    return apply("scale", apply("ones", shape=shape), factor=number)


def narrow(m: Term) -> Term:
    """The mask with an extent of 1 for sequences or heads that share it."""
    if m.op != "expand":
        return m
    axes = m.integers("axes")
    shape = (*(m.shape[a] if a in axes else 1 for a in (-4, -3)), *m.shape[-2:])
    inner = m.args[0]
    return apply("reshape", inner, shape=shape) if {-2, -1} <= {*axes} else apply("expand", inner, shape=shape, axes=axes)
