"""Attention with several heads side by side in the last axis of x[b, s, h d], y[b, t, h d] and z[b, t, h e].

For each head, the result is softmax(scale x' y'^T) z', where x', y' and z' are the head's parts of the operands. x, y and z are
the query, key and value of ONNX Runtime's contrib operator MultiHeadAttention. A node with a mask, a bias, past keys and
values, or several outputs is not lifted to this operator.
"""

from __future__ import annotations

from functools import partial
from math import sqrt

from superopt.algebra.index import Real, Tensor, require, same
from superopt.algebra.operators import Emit, Node, apply, fraction_of
from superopt.algebra.terms import Extent, Term
from superopt.speclib.affine import positive
from superopt.speclib.attention import apart
from superopt.speclib.composite import written_out

ONNX = "com.microsoft.MultiHeadAttention"
EXACT = "quotient, field, exponential"

FUSIONS = """
    scaled: softmax(scale(x @ y, factor=a), axis=-1) @ z
            => transpose(reshape(multi_head_attention(
                   reshape(transpose(x, perm=(-4, -2, -3, -1)), shape=(x.shape[-4], x.shape[-2], x.shape[-3] * x.shape[-1])),
                   reshape(transpose(y, perm=(-4, -1, -3, -2)), shape=(y.shape[-4], y.shape[-1], y.shape[-3] * y.shape[-2])),
                   reshape(transpose(z, perm=(-4, -2, -3, -1)), shape=(z.shape[-4], z.shape[-2], z.shape[-3] * z.shape[-1])),
                   heads=x.shape[-3], scale=a),
               shape=(x.shape[-4], x.shape[-2], x.shape[-3], z.shape[-1])), perm=(-4, -2, -3, -1))
            for x[4], y[4], z[4]
    each:   softmax(scale(x, factor=a) @ scale(y, factor=b), axis=-1) @ z
            => transpose(reshape(multi_head_attention(
                   reshape(transpose(x, perm=(-4, -2, -3, -1)), shape=(x.shape[-4], x.shape[-2], x.shape[-3] * x.shape[-1])),
                   reshape(transpose(y, perm=(-4, -1, -3, -2)), shape=(y.shape[-4], y.shape[-1], y.shape[-3] * y.shape[-2])),
                   reshape(transpose(z, perm=(-4, -2, -3, -1)), shape=(z.shape[-4], z.shape[-2], z.shape[-3] * z.shape[-1])),
                   heads=x.shape[-3], scale=a * b),
               shape=(x.shape[-4], x.shape[-2], x.shape[-3], z.shape[-1])), perm=(-4, -2, -3, -1))
            for x[4], y[4], z[4]
    plain:  softmax(x @ y, axis=-1) @ z
            => transpose(reshape(multi_head_attention(
                   reshape(transpose(x, perm=(-4, -2, -3, -1)), shape=(x.shape[-4], x.shape[-2], x.shape[-3] * x.shape[-1])),
                   reshape(transpose(y, perm=(-4, -1, -3, -2)), shape=(y.shape[-4], y.shape[-1], y.shape[-3] * y.shape[-2])),
                   reshape(transpose(z, perm=(-4, -2, -3, -1)), shape=(z.shape[-4], z.shape[-2], z.shape[-3] * z.shape[-1])),
                   heads=x.shape[-3], scale=1),
               shape=(x.shape[-4], x.shape[-2], x.shape[-3], z.shape[-1])), perm=(-4, -2, -3, -1))
            for x[4], y[4], z[4]
"""


def multi_head_attention(x: Tensor, y: Tensor, z: Tensor, *, heads: Extent, scale: Real) -> Tensor:
    require([t.rank for t in (x, y, z)] == [3, 3, 3], "multi_head_attention takes batches of sequences")
    require(heads >= 1, "multi_head_attention: there is a head")
    require(positive(scale), "multi_head_attention: the scale is positive")
    require(same(x.shape[0], y.shape[0]), "multi_head_attention: a sequence of keys for every one of queries")
    require(same(y.shape[0], z.shape[0]), "multi_head_attention: a sequence of values for every one of keys")
    require(same(y.shape[1], z.shape[1]), "multi_head_attention: a value for every key")
    require(same(x.shape[2], y.shape[2]), "multi_head_attention: keys have the size of queries")
    require(same(x.shape[2] % heads, 0), "multi_head_attention: the heads divide the keys")
    require(same(z.shape[2] % heads, 0), "multi_head_attention: the heads divide the values")
    shape = x.shape[0], x.shape[1], z.shape[2]
    return written_out(partial(body, heads=heads, scale=scale), shape, x=x, y=y, z=z)


def body(x: Term, y: Term, z: Term, *, heads: Extent, scale: Real) -> Term:
    queries, keys, values = (apart(t, heads) for t in (x, y, z))
    scores = apply("matmul", queries, apply("transpose", keys, perm=(0, 1, 3, 2)))
    weights = apply("softmax", apply("scale", scores, factor=scale), axis=-1)
    found = apply("transpose", apply("matmul", weights, values), perm=(0, 2, 1, 3))
    return apply("reshape", found, shape=(*x.shape[:2], z.shape[2]))


def lift(node: Node) -> Term | None:
    others = range(3, 10)
    if not all(map(node.absent, others)) or node.outputs != 1 or node.attribute("unidirectional", 0):
        return None
    x, y, z = (node.operand(position) for position in range(3))
    heads = node.attribute("num_heads")
    scale = node.attribute("scale", 0.0) or 1 / sqrt(x.sizes[-1] // heads)
    return apply("multi_head_attention", x, y, z, heads=heads, scale=fraction_of(scale))


def lower(term: Term, emit: Emit) -> str:
    return emit(ONNX, *term.args, num_heads=term.integer("heads"), scale=term.real("scale"))
