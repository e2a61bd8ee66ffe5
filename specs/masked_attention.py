"""`multi_head_attention` with a mask or other bias m[b, h, s, t] that is added to the scores (contrib MultiHeadAttention).

For each head, the result is softmax(scale x' y'^T + m') z', where x', y', z' and m' are the head's parts of the operands. The
node's mask may have extent 1 along the axes of sequences and heads. Lowering therefore omits an `expand` of the mask along
these axes.
"""

from __future__ import annotations

from functools import partial
from math import sqrt

from superopt.algebra.index import Real, Tensor, require, same
from superopt.algebra.operators import Emit, Node, apply, fraction_of
from superopt.algebra.terms import Extent, Term
from superopt.speclib.affine import positive
from superopt.speclib.attention import apart, narrow
from superopt.speclib.composite import written_out

ONNX = "com.microsoft.MultiHeadAttention"
EXACT = "quotient, field, exponential"
MASK = 5

FUSIONS = """
    scaled: softmax(scale(x @ y, factor=a) + m, axis=-1) @ z
            => transpose(reshape(masked_attention(
                   reshape(transpose(x, perm=(-4, -2, -3, -1)), shape=(x.shape[-4], x.shape[-2], x.shape[-3] * x.shape[-1])),
                   reshape(transpose(y, perm=(-4, -1, -3, -2)), shape=(y.shape[-4], y.shape[-1], y.shape[-3] * y.shape[-2])),
                   reshape(transpose(z, perm=(-4, -2, -3, -1)), shape=(z.shape[-4], z.shape[-2], z.shape[-3] * z.shape[-1])),
                   m, heads=x.shape[-3], scale=a),
               shape=(x.shape[-4], x.shape[-2], x.shape[-3], z.shape[-1])), perm=(-4, -2, -3, -1))
            for x[4], y[4], z[4], m[4]
    each:   softmax(scale(x, factor=a) @ scale(y, factor=b) + m, axis=-1) @ z
            => transpose(reshape(masked_attention(
                   reshape(transpose(x, perm=(-4, -2, -3, -1)), shape=(x.shape[-4], x.shape[-2], x.shape[-3] * x.shape[-1])),
                   reshape(transpose(y, perm=(-4, -1, -3, -2)), shape=(y.shape[-4], y.shape[-1], y.shape[-3] * y.shape[-2])),
                   reshape(transpose(z, perm=(-4, -2, -3, -1)), shape=(z.shape[-4], z.shape[-2], z.shape[-3] * z.shape[-1])),
                   m, heads=x.shape[-3], scale=a * b),
               shape=(x.shape[-4], x.shape[-2], x.shape[-3], z.shape[-1])), perm=(-4, -2, -3, -1))
            for x[4], y[4], z[4], m[4]
    plain:  softmax(x @ y + m, axis=-1) @ z
            => transpose(reshape(masked_attention(
                   reshape(transpose(x, perm=(-4, -2, -3, -1)), shape=(x.shape[-4], x.shape[-2], x.shape[-3] * x.shape[-1])),
                   reshape(transpose(y, perm=(-4, -1, -3, -2)), shape=(y.shape[-4], y.shape[-1], y.shape[-3] * y.shape[-2])),
                   reshape(transpose(z, perm=(-4, -2, -3, -1)), shape=(z.shape[-4], z.shape[-2], z.shape[-3] * z.shape[-1])),
                   m, heads=x.shape[-3], scale=1),
               shape=(x.shape[-4], x.shape[-2], x.shape[-3], z.shape[-1])), perm=(-4, -2, -3, -1))
            for x[4], y[4], z[4], m[4]
"""


def masked_attention(x: Tensor, y: Tensor, z: Tensor, m: Tensor, *, heads: Extent, scale: Real) -> Tensor:
    require([t.rank for t in (x, y, z, m)] == [3, 3, 3, 4], "masked_attention takes batches of sequences and of scores")
    require(heads >= 1, "masked_attention: there is a head")
    require(positive(scale), "masked_attention: the scale is positive")
    for tensor in (y, z, m):
        require(same(x.shape[0], tensor.shape[0]), "masked_attention: keys, values and a mask for every sequence")
    require(same(y.shape[1], z.shape[1]), "masked_attention: a value for every key")
    require(same(x.shape[2], y.shape[2]), "masked_attention: keys have the size of queries")
    require(same(x.shape[2] % heads, 0), "masked_attention: the heads divide the keys")
    require(same(z.shape[2] % heads, 0), "masked_attention: the heads divide the values")
    for here, there in zip(m.shape[1:], (heads, x.shape[1], y.shape[1]), strict=True):
        require(same(here, there), "masked_attention: the mask has the shape of the scores")
    shape = x.shape[0], x.shape[1], z.shape[2]
    return written_out(partial(body, heads=heads, scale=scale), shape, x=x, y=y, z=z, m=m)


def body(x: Term, y: Term, z: Term, m: Term, *, heads: Extent, scale: Real) -> Term:
    queries, keys, values = (apart(t, heads) for t in (x, y, z))
    scores = apply("scale", apply("matmul", queries, apply("transpose", keys, perm=(0, 1, 3, 2))), factor=scale)
    weights = apply("softmax", apply("add", scores, m), axis=-1)
    found = apply("transpose", apply("matmul", weights, values), perm=(0, 2, 1, 3))
    return apply("reshape", found, shape=(*x.shape[:2], z.shape[2]))


def lift(node: Node) -> Term | None:
    others = (position for position in range(3, 10) if position != MASK)
    if node.absent(MASK) or not all(map(node.absent, others)) or node.outputs != 1 or node.attribute("unidirectional", 0):
        return None
    x, y, z, m = (node.operand(position) for position in (0, 1, 2, MASK))
    heads = node.attribute("num_heads")
    scale = node.attribute("scale", 0.0) or 1 / sqrt(x.sizes[-1] // heads)
    m = node.expanded(m, (x.sizes[0], heads, x.sizes[1], y.sizes[1]))
    return apply("masked_attention", x, y, z, m, heads=heads, scale=fraction_of(scale))


def lower(term: Term, emit: Emit) -> str:
    x, y, z, m = term.args
    return emit(ONNX, x, y, z, None, None, narrow(m), num_heads=term.integer("heads"), scale=term.real("scale"))
