"""Each channel of an image minus its mean, divided by its standard deviation (ONNX InstanceNormalization).

The ONNX operator also has a factor and a bias for each channel. The factor and the bias are lifted to a product and a sum, and
lowering puts both back into the node. For images with only one axis, a node is lifted to `layer_norm`.
"""

from __future__ import annotations

from superopt.algebra.index import Real, Tensor, require
from superopt.algebra.operators import Emit, Node, apply, fraction_of
from superopt.algebra.terms import Term
from superopt.speclib.affine import affine, normalization_bias_axis, positive, rows, split_factor
from superopt.speclib.composite import composed

ONNX = "InstanceNormalization"
DEPTH = 2

COMPOSITE = """
    reshape(layer_norm(reshape(x, shape=(x.shape[-4], x.shape[-3], x.shape[-2] * x.shape[-1])), epsilon=epsilon), shape=x.shape)
    for x[4]
"""


def instance_norm(x: Tensor, *, epsilon: Real) -> Tensor:
    require(x.rank == 4, "instance_norm takes an image batch of rank 4")
    require(positive(epsilon), "instance_norm: epsilon is positive")
    return composed(COMPOSITE, {"x": x}, epsilon=epsilon)


def lift(node: Node) -> Term | None:
    x = node.operand(0)
    name = {3: "layer_norm", 4: "instance_norm"}.get(x.rank)
    if name is None:
        return None
    return affine(apply(name, x, epsilon=fraction_of(node.attribute("epsilon", 1e-5))), *rows(node), 1 - x.rank)


def lower(term: Term, emit: Emit) -> str:
    return _in_one_node(term, None, None, emit)


def bias_axis(host: Term) -> int | None:
    return normalization_bias_axis(host, "instance_norm", -3)


def factor_axis(host: Term) -> int | None:
    return -3 if host.op == "instance_norm" else None


def lower_scaled(host: Term, factor: Term, emit: Emit) -> str:
    return _in_one_node(host, factor, None, emit)


def lower_biased(host: Term, bias: Term, emit: Emit) -> str:
    x, factor = split_factor(host, "instance_norm", -3) or (host, None)
    return _in_one_node(x, factor, bias, emit)


def _in_one_node(term: Term, factor: Term | None, bias: Term | None, emit: Emit) -> str:
    channels = term.shape[-3:-2]
    one, zero = apply("ones", shape=channels), apply("zeros", shape=channels)
    return emit("InstanceNormalization", term.args[0], factor or one, bias or zero, epsilon=term.real("epsilon"))
