"""Each group of channels of an image minus its mean, divided by its standard deviation (ONNX GroupNormalization).

The channels of a group become one row of `layer_norm`. The ONNX operator also has a factor and a bias for each channel. Before
opset 21, the operator is deprecated, and has a factor and a bias for each group instead. Factors and biases are lifted to a
product and a sum. Lowering writes the normalization, the product and the sum as one node.
"""

from __future__ import annotations

from math import prod

from superopt.algebra.operators import Emit, Node, apply, fraction_of
from superopt.algebra.terms import Term
from superopt.speclib.affine import affine, rows

ONNX = "GroupNormalization"
SINCE = 21
DEPTH = 4

COMPOSITE = """
    reshape(layer_norm(reshape(x, shape=(x.shape[-4], group, x.shape[-3] // group * x.shape[-2] * x.shape[-1])),
                       epsilon=epsilon), shape=x.shape)
    * expand(s, shape=x.shape, axes=(-3,)) + expand(b, shape=x.shape, axes=(-3,))
"""


def lift(node: Node) -> Term | None:
    x, group = node.operand(0), node.attribute("num_groups")
    flat = apply("reshape", x, shape=(x.sizes[0], group, prod(x.sizes[1:]) // group))
    normalized = apply("layer_norm", flat, epsilon=fraction_of(node.attribute("epsilon", 1e-5)))
    factor, bias = (_by_channel(row, group, x.sizes[1]) if row is not None else None for row in rows(node))
    return affine(apply("reshape", normalized, shape=x.shape), factor, bias, 1 - x.rank)


def _by_channel(row: Term, group: int, channels: int) -> Term:
    """Convert a vector with a number for each group to a vector with a number for each channel."""
    if row.sizes == (channels,):
        return row
    return apply("reshape", apply("expand", row, shape=(group, channels // group), axes=(-2,)), shape=(channels,))


def bias_axis(host: Term) -> int | None:
    return 1 - host.rank if _normalized(host) is not None else None


def lower_biased(host: Term, bias: Term, emit: Emit) -> str:
    """Write the normalized groups with their factors and biases as one GroupNormalization node.

    Before opset 21, write a BatchNormalization node that applies the factors and biases to the normalized groups.
    """
    found = _normalized(host)
    assert found is not None
    x, factor = found
    scale = apply("ones", shape=bias.shape) if factor is None else factor
    if emit.opset < SINCE:
        return emit("BatchNormalization", x, scale, bias, *_standard(bias), epsilon=0.0)
    normalization = x.args[0]
    numbers = {"num_groups": normalization.sizes[1], "epsilon": normalization.real("epsilon")}
    return emit("GroupNormalization", normalization.args[0].args[0], scale, bias, **numbers)


def _standard(like: Term) -> tuple[Term, Term]:
    """Return the means (zeros) and the variances (ones) of normalized channels."""
    return apply("zeros", shape=like.shape), apply("ones", shape=like.shape)


def _normalized(host: Term) -> tuple[Term, Term | None] | None:
    """Split `host` into normalized groups and a factor for each channel.

    The factor is None if `host` is not a product. Return None if `host` contains no normalized groups.
    """
    if host.op == "mul" and len(host.args) == 2:
        x, factor = sorted(host.args, key=lambda a: not _is_normalized(a))
        along = factor.op == "expand" and factor.constant and factor.integers("axes") == (1 - host.rank,)
        return (x, factor.args[0]) if along and _is_normalized(x) else None
    return (host, None) if _is_normalized(host) else None


def _is_normalized(x: Term) -> bool:
    """Return whether the term is a `layer_norm` of groups of channels, reshaped to the shape of the image."""
    inner = x.args[0] if x.op == "reshape" else x
    if x.rank < 3 or inner.op != "layer_norm":
        return False
    flat = inner.args[0]
    if flat.op != "reshape" or flat.rank != 3 or flat.args[0].shape != x.shape:
        return False
    return flat.sizes[0] == x.sizes[0] and x.sizes[1] % flat.sizes[1] == 0
