"""x minus its mean along the last axis, divided by its standard deviation along this axis (ONNX LayerNormalization).

The ONNX operator also has a factor and a bias. The factor and the bias are lifted to a product and a sum, and lowering puts
both back into the node. If a node normalizes over several last axes, a reshape merges these axes into one. Before opset 17, the
operator is lowered as an InstanceNormalization. The channels of this node are the positions along the other axes.
"""

from __future__ import annotations

from math import prod

from superopt.algebra.index import Real, Tensor, require
from superopt.algebra.operators import Emit, Node, apply, fraction_of
from superopt.algebra.terms import Term
from superopt.speclib.affine import affine, applied, normalization_bias_axis, positive, rows, split_factor
from superopt.speclib.composite import composed

ONNX = "LayerNormalization"
DEPTH = 2

COMPOSITE = """
    (c := x - expand(reduce_mean(x, axes=(-1,)), shape=x.shape, axes=others(x, -1)))
    * expand(reciprocal(sqrt((v := reduce_mean(power(c, exponent=2), axes=(-1,)))
                             + scale(ones(shape=v.shape), factor=epsilon))),
             shape=x.shape, axes=others(x, -1))
    for x[1, 2, 3, 4]
"""


def layer_norm(x: Tensor, *, epsilon: Real) -> Tensor:
    require(positive(epsilon), "layer_norm: epsilon is positive")
    return composed(COMPOSITE, {"x": x}, epsilon=epsilon)


def lift(node: Node) -> Term | None:
    x = node.operand(0)
    axis = node.attribute("axis", -1) % x.rank
    count = prod(x.sizes[axis:])
    flat = apply("reshape", x, shape=(*x.sizes[:axis], count)) if axis != x.rank - 1 else x
    normalized = apply("layer_norm", flat, epsilon=fraction_of(node.attribute("epsilon", 1e-5)))
    factor, bias = (_in_shape(row, (count,)) if row is not None else None for row in rows(node))
    return _in_shape(affine(normalized, factor, bias, -1), x.sizes)


def _in_shape(x: Term, shape: tuple[int, ...]) -> Term:
    return apply("reshape", x, shape=shape) if x.shape != shape else x


def lower(term: Term, emit: Emit) -> str:
    if emit.opset >= 17:
        return _in_one_node(term, apply("ones", shape=term.shape[-1:]), None, emit)
    x = term.args[0]
    height = prod(x.sizes[:-1])
    image = x if x.rank == 3 else apply("reshape", x, shape=(1, height, x.sizes[-1]))
    one, zero = (apply(name, shape=(image.sizes[1],)) for name in ("ones", "zeros"))
    normalized = emit("InstanceNormalization", image, one, zero, epsilon=term.real("epsilon"))
    return normalized if x.rank == 3 else emit("Reshape", normalized, shape=x.sizes)


def bias_axis(host: Term) -> int | None:
    return normalization_bias_axis(host, "layer_norm", -1)


def factor_axis(host: Term) -> int | None:
    return -1 if host.op == "layer_norm" else None


def lower_scaled(host: Term, factor: Term, emit: Emit) -> str:
    return _in_one_node(host, factor, None, emit) if emit.opset >= 17 else applied(host, factor, None, -1, emit)


def lower_biased(host: Term, bias: Term, emit: Emit) -> str:
    x, factor = split_factor(host, "layer_norm", -1) or (host, apply("ones", shape=host.shape[-1:]))
    if emit.opset < 17:
        return applied(x, factor if x is not host else None, bias, -1, emit)
    return _in_one_node(x, factor, bias, emit)


def _in_one_node(term: Term, factor: Term, bias: Term | None, emit: Emit) -> str:
    operands = [term.args[0], factor, *([] if bias is None else [bias])]
    return emit("LayerNormalization", *operands, axis=-1, epsilon=term.real("epsilon"))
