"""Attention with the heads along an axis of their own: x[b, h, s, d], y[b, k, t, d] and z[b, k, t, e] (ONNX Attention).

For each head, the result is softmax(scale x y^T + m) z over the allowed keys. Key t is allowed for query s if the mask c[b, h,
s, t] is not 0. If `causal` is 1, keys that come after the query are not allowed. If a query has no allowed keys, each key gets
the weight 0. If there are fewer heads of keys (k) than heads of queries (h), every h / k neighbouring heads of queries share
one head of keys. Nodes with past keys and values, a cap on scores, a window, valid lengths, or several outputs are not
supported.

The ONNX operator has only one mask, which is added to the scores or selects the allowed keys (see
`superopt.speclib.attention`).
"""

from __future__ import annotations

from functools import partial

from superopt.algebra.index import Real, Tensor, require, same
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term
from superopt.speclib.affine import positive
from superopt.speclib.attention import bound, mask, masks, scale_of, weighted, with_causal
from superopt.speclib.composite import written_out

ONNX = "Attention"
EXACT = "order, quotient, field, exponential"

FUSIONS = """
    scaled: softmax(scale(x @ y, factor=a), axis=-1) @ z
            => scaled_dot_product_attention(x, transpose(y, perm=(-4, -3, -1, -2)), z, zeros(shape=(x @ y).shape),
                                            ones(shape=(x @ y).shape), scale=a, causal=0)
            for x[4], y[4], z[4]
    each:   softmax(scale(x, factor=a) @ scale(y, factor=b), axis=-1) @ z
            => scaled_dot_product_attention(x, transpose(y, perm=(-4, -3, -1, -2)), z, zeros(shape=(x @ y).shape),
                                            ones(shape=(x @ y).shape), scale=a * b, causal=0)
            for x[4], y[4], z[4]
    plain:  softmax(x @ y, axis=-1) @ z
            => scaled_dot_product_attention(x, transpose(y, perm=(-4, -3, -1, -2)), z, zeros(shape=(x @ y).shape),
                                            ones(shape=(x @ y).shape), scale=1, causal=0)
            for x[4], y[4], z[4]
    masked-scaled: softmax(scale(x @ y, factor=a) + m, axis=-1) @ z
            => scaled_dot_product_attention(x, transpose(y, perm=(-4, -3, -1, -2)), z, m, ones(shape=m.shape), scale=a,
                                            causal=0)
            for x[4], y[4], z[4], m[4]
    masked-each: softmax(scale(x, factor=a) @ scale(y, factor=b) + m, axis=-1) @ z
            => scaled_dot_product_attention(x, transpose(y, perm=(-4, -3, -1, -2)), z, m, ones(shape=m.shape), scale=a * b,
                                            causal=0)
            for x[4], y[4], z[4], m[4]
    masked: softmax(x @ y + m, axis=-1) @ z
            => scaled_dot_product_attention(x, transpose(y, perm=(-4, -3, -1, -2)), z, m, ones(shape=m.shape), scale=1,
                                            causal=0)
            for x[4], y[4], z[4], m[4]
"""


def scaled_dot_product_attention(
    x: Tensor, y: Tensor, z: Tensor, m: Tensor, c: Tensor, *, scale: Real, causal: Extent
) -> Tensor:
    require([t.rank for t in (x, y, z, m, c)] == [4] * 5, "scaled_dot_product_attention takes heads and masks of scores")
    require(positive(scale), "scaled_dot_product_attention: the scale is positive")
    require(causal >= 0, "scaled_dot_product_attention: it is causal or not")
    require(causal <= 1, "scaled_dot_product_attention: it is causal or not")
    for tensor in (y, z, m, c):
        require(same(x.shape[0], tensor.shape[0]), "scaled_dot_product_attention: keys, values and masks for every sequence")
    require(same(y.shape[1], z.shape[1]), "scaled_dot_product_attention: as many heads of values as of keys")
    require(same(x.shape[1] % y.shape[1], 0), "scaled_dot_product_attention: as many heads share each one of keys")
    require(same(y.shape[2], z.shape[2]), "scaled_dot_product_attention: a value for every key")
    require(same(x.shape[3], y.shape[3]), "scaled_dot_product_attention: keys have the size of queries")
    for tensor in (m, c):
        for here, there in zip(tensor.shape[1:], (*x.shape[1:3], y.shape[2]), strict=True):
            require(same(here, there), "scaled_dot_product_attention: masks have the shape of the scores")
    shape = *x.shape[:3], z.shape[3]
    return written_out(partial(body, scale=scale, causal=causal), shape, x=x, y=y, z=z, m=m, c=c)


def body(x: Term, y: Term, z: Term, m: Term, c: Term, *, scale: Real, causal: Extent) -> Term:
    batch, heads, queries, size = x.shape
    groups, keys = y.shape[1:3]
    beside = apply("reshape", x, shape=(batch, groups, heads // groups * queries, size)) if heads != groups else x
    scores = apply("scale", apply("matmul", beside, apply("transpose", y, perm=(0, 1, 3, 2))), factor=scale)
    scores = apply("reshape", scores, shape=m.shape) if heads != groups else scores
    weights = weighted(scores, m, with_causal(c) if causal else c)
    weights = apply("reshape", weights, shape=(*beside.shape[:3], keys)) if heads != groups else weights
    found = apply("matmul", weights, z)
    return apply("reshape", found, shape=(*x.shape[:3], z.shape[3])) if heads != groups else found


def lift(node: Node) -> Term | None:
    x, y, z = (node.operand(position) for position in range(3))
    if x.rank != 4 or not bound(node):
        return None
    causal = node.attribute("is_causal", 0)
    found = masks(node, (*x.sizes[:3], y.sizes[2]))
    return apply("scaled_dot_product_attention", x, y, z, *found, scale=scale_of(node, x.sizes[3]), causal=causal)


def lower(term: Term, emit: Emit) -> str:
    x, y, z, m, c = term.args
    return emit(ONNX, x, y, z, mask(m, c), scale=term.real("scale"), is_causal=term.integer("causal"))
