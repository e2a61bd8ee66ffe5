"""Every group of channels of every image less its mean, divided by its standard deviation (ONNX GroupNormalization).

The factor and the bias of ONNX's operator, one for each channel (before opset 21, where it is deprecated: for each group), are
a product and a sum around it; they go back into it on lowering. Images of other ranks are given two axes by a reshape.
"""

from __future__ import annotations

from math import prod

from superopt.affine import affine, applied, axis_of, positive, rows, split
from superopt.composite import composed
from superopt.graph import Extent, Term
from superopt.index import Real, Tensor, require, same
from superopt.op import Emit, Node, apply, fraction_of

ONNX = "GroupNormalization"

COMPOSITE = """
    reshape(layer_norm(reshape(x, shape=(x.shape[-4], group, x.shape[-3] // group * x.shape[-2] * x.shape[-1])),
                       epsilon=epsilon), shape=x.shape)
    for x[4]
"""


def group_norm(x: Tensor, *, group: Extent, epsilon: Real) -> Tensor:
    require(x.rank == 4, "group_norm takes an image batch of rank 4")
    require(group >= 1, "group_norm: at least one group")
    require(same(x.shape[-3] % group, 0), "group_norm: groups are of one size")
    require(positive(epsilon), "group_norm: epsilon is positive")
    return composed(COMPOSITE, {"x": x}, group=group, epsilon=epsilon)


def lift(node: Node) -> Term | None:
    x = node.operand(0)
    group, channels = node.attribute("num_groups"), x.sizes[1]
    image = x if x.rank == 4 else apply("reshape", x, shape=(*x.sizes[:2], prod(x.sizes[2:]), 1))
    normalized = apply("group_norm", image, group=group, epsilon=fraction_of(node.attribute("epsilon", 1e-5)))
    factor, bias = (_by_channel(row, group, channels) if row is not None else None for row in rows(node))
    result = affine(normalized, factor, bias, -3)
    return apply("reshape", result, shape=x.shape) if x.rank != 4 else result


def _by_channel(row: Term, group: int, channels: int) -> Term:
    """A number for each group as one for each channel."""
    if row.sizes == (channels,):
        return row
    return apply("reshape", apply("expand", row, shape=(group, channels // group), axes=(-2,)), shape=(channels,))


def lower(term: Term, emit: Emit) -> str:
    channels = term.shape[1:2]
    return _in_one_node(term, apply("ones", shape=channels), apply("zeros", shape=channels), emit)


def bias_axis(host: Term) -> int | None:
    return axis_of(host, "group_norm", -3)


def factor_axis(host: Term) -> int | None:
    return -3 if host.op == "group_norm" else None


def lower_scaled(host: Term, factor: Term, emit: Emit) -> str:
    if emit.opset < 21:
        return applied(host, factor, None, -3, emit)
    return _in_one_node(host, factor, apply("zeros", shape=factor.shape), emit)


def lower_biased(host: Term, bias: Term, emit: Emit) -> str:
    x, factor = split(host, "group_norm", -3) or (host, None)
    if emit.opset < 21:
        return applied(x, factor, bias, -3, emit)
    return _in_one_node(x, apply("ones", shape=bias.shape) if factor is None else factor, bias, emit)


def _in_one_node(term: Term, factor: Term, bias: Term, emit: Emit) -> str:
    number = {"num_groups": term.integer("group"), "epsilon": term.real("epsilon")}
    return emit("GroupNormalization", term.args[0], factor, bias, **number)
