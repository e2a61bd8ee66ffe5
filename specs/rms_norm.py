"""x divided by the root of its mean square along the last axis (ONNX RMSNormalization).

The ONNX operator also has a factor. The factor is lifted to a product, and lowering puts it back into the node. If a node
normalizes over several last axes, a reshape merges these axes into one.
"""

from __future__ import annotations

from math import prod

from superopt.algebra.index import Real, Tensor, require
from superopt.algebra.operators import Emit, Node, apply, fraction_of
from superopt.algebra.terms import Term
from superopt.speclib.affine import affine, applied, positive, rows
from superopt.speclib.composite import composed

ONNX = "RMSNormalization"

COMPOSITE = """
    x * expand(reciprocal(sqrt((v := reduce_mean(power(x, exponent=2), axes=(-1,)))
                               + scale(ones(shape=v.shape), factor=epsilon))),
               shape=x.shape, axes=others(x, -1))
    for x[1, 2, 3, 4]
"""


def rms_norm(x: Tensor, *, epsilon: Real) -> Tensor:
    require(positive(epsilon), "rms_norm: epsilon is positive")
    return composed(COMPOSITE, {"x": x}, epsilon=epsilon)


def lift(node: Node) -> Term | None:
    x, (factor, _) = node.operand(0), rows(node)
    axis = node.attribute("axis", -1) % x.rank
    count = prod(x.sizes[axis:])
    flat = apply("reshape", x, shape=(*x.sizes[:axis], count)) if axis != x.rank - 1 else x
    normalized = apply("rms_norm", flat, epsilon=fraction_of(node.attribute("epsilon", 1e-5)))
    scaled = affine(normalized, _in_shape(factor, (count,)) if factor is not None else None, None, -1)
    return _in_shape(scaled, x.sizes)


def _in_shape(x: Term, shape: tuple[int, ...]) -> Term:
    return apply("reshape", x, shape=shape) if x.shape != shape else x


def lower(term: Term, emit: Emit) -> str:
    return _in_one_node(term, apply("ones", shape=term.shape[-1:]), emit)


def factor_axis(host: Term) -> int | None:
    return -1 if host.op == "rms_norm" else None


def lower_scaled(host: Term, factor: Term, emit: Emit) -> str:
    return _in_one_node(host, factor, emit) if emit.opset >= 23 else applied(host, factor, None, -1, emit)


def _in_one_node(term: Term, factor: Term, emit: Emit) -> str:
    return emit("RMSNormalization", term.args[0], factor, axis=-1, epsilon=term.real("epsilon"))
