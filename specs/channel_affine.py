"""x times a factor for each channel, plus a bias for each channel (ONNX BatchNormalization without mean and variance).

Models contain equivalent terms in other forms. If measurements show that the model becomes faster, the search replaces an
equivalent term by this operator. The operator is one node, and ONNX Runtime computes it in the layout of convolutions.
BatchNormalization nodes themselves are lifted to a product and a sum.
"""

from __future__ import annotations

from superopt.algebra.index import Tensor, require, same
from superopt.algebra.operators import Emit, apply
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed

ONNX = "BatchNormalization"

COMPOSITE = """
    x * expand(s, shape=x.shape, axes=(-3,)) + expand(b, shape=x.shape, axes=(-3,))
    for x[4], s[1], b[1]
"""

FUSIONS = """
    numbers: scale(x, factor=f) + scale(ones(shape=x.shape), factor=g)
             => channel_affine(x, scale(ones(shape=(x.shape[-3],)), factor=f), scale(ones(shape=(x.shape[-3],)), factor=g))
             for x[4]
    factor:  scale(x, factor=f)
             => channel_affine(x, scale(ones(shape=(x.shape[-3],)), factor=f), zeros(shape=(x.shape[-3],)))
             for x[4]
    bias:    x + scale(ones(shape=x.shape), factor=g)
             => channel_affine(x, ones(shape=(x.shape[-3],)), scale(ones(shape=(x.shape[-3],)), factor=g))
             for x[4]
"""


def channel_affine(x: Tensor, s: Tensor, b: Tensor) -> Tensor:
    require(x.rank == 4 and s.rank == 1 and b.rank == 1, "channel_affine takes a batch of images and two vectors")
    require(same(x.shape[1], s.shape[0]), "channel_affine: a factor for every channel")
    require(same(x.shape[1], b.shape[0]), "channel_affine: a bias for every channel")
    return composed(COMPOSITE, {"x": x, "s": s, "b": b})


def lower(term: Term, emit: Emit) -> str:
    x, s, b = term.args
    return emit("BatchNormalization", x, s, b, apply("zeros", shape=s.shape), apply("ones", shape=s.shape), epsilon=0.0)
