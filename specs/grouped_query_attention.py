"""Attention with the heads side by side in the last axis: x[b, s, h d], y[b, t, k d] and z[b, t, k e] (ONNX Attention).

The operator splits the heads into an axis of their own and applies `scaled_dot_product_attention` with the masks m[b, h, s, t]
and c[b, h, s, t].
"""

from __future__ import annotations

from functools import partial

from superopt.algebra.index import Real, Tensor, require, same
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term
from superopt.speclib.affine import positive
from superopt.speclib.attention import apart, bound, mask, masks, scale_of
from superopt.speclib.composite import written_out

ONNX = "Attention"
EXACT = "order, quotient, field, exponential"

FUSIONS = """
    shared:   scaled_dot_product_attention(x, reshape(expand(y, shape=s, axes=(-5, -4, -2, -1)), shape=u),
                                           reshape(expand(z, shape=t, axes=(-5, -4, -2, -1)), shape=v), m, c,
                                           scale=a, causal=n)
              => scaled_dot_product_attention(x, y, z, m, c, scale=a, causal=n)
              for x[4], y[4], z[4], m[4], c[4], s[5], t[5], u[4], v[4]
              where u0 == s0, u1 == s1 * s2, u2 == s3, v0 == t0, v1 == t1 * t2, v2 == t3
    together: scaled_dot_product_attention(x, y, z, m, c, scale=a, causal=n)
              => transpose(reshape(grouped_query_attention(
                     reshape(transpose(x, perm=(-4, -2, -3, -1)), shape=(x.shape[-4], x.shape[-2], x.shape[-3] * x.shape[-1])),
                     reshape(transpose(y, perm=(-4, -2, -3, -1)), shape=(y.shape[-4], y.shape[-2], y.shape[-3] * y.shape[-1])),
                     reshape(transpose(z, perm=(-4, -2, -3, -1)), shape=(z.shape[-4], z.shape[-2], z.shape[-3] * z.shape[-1])),
                     m, c, heads=x.shape[-3], groups=y.shape[-3], scale=a, causal=n),
                 shape=(x.shape[-4], x.shape[-2], x.shape[-3], z.shape[-1])), perm=(-4, -2, -3, -1))
              for x[4], y[4], z[4], m[4], c[4]
"""


def grouped_query_attention(
    x: Tensor, y: Tensor, z: Tensor, m: Tensor, c: Tensor, *, heads: Extent, groups: Extent, scale: Real, causal: Extent
) -> Tensor:
    require([t.rank for t in (x, y, z, m, c)] == [3, 3, 3, 4, 4], "grouped_query_attention takes sequences and masks of scores")
    require(groups >= 1, "grouped_query_attention: there is a head of keys")
    require(same(heads % groups, 0), "grouped_query_attention: as many heads share each one of keys")
    require(positive(scale), "grouped_query_attention: the scale is positive")
    require(causal >= 0, "grouped_query_attention: it is causal or not")
    require(causal <= 1, "grouped_query_attention: it is causal or not")
    for tensor in (y, z, m, c):
        require(same(x.shape[0], tensor.shape[0]), "grouped_query_attention: keys, values and masks for every sequence")
    require(same(y.shape[1], z.shape[1]), "grouped_query_attention: a value for every key")
    for tensor, count in ((x, heads), (y, groups), (z, groups)):
        require(same(tensor.shape[2] % count, 0), "grouped_query_attention: the heads divide the last axis")
    require(same(x.shape[2] // heads, y.shape[2] // groups), "grouped_query_attention: keys have the size of queries")
    for tensor in (m, c):
        for here, there in zip(tensor.shape[1:], (heads, x.shape[1], y.shape[1]), strict=True):
            require(same(here, there), "grouped_query_attention: masks have the shape of the scores")
    shape = *x.shape[:2], z.shape[2] // groups * heads
    written = partial(body, heads=heads, groups=groups, scale=scale, causal=causal)
    return written_out(written, shape, x=x, y=y, z=z, m=m, c=c)


def body(x: Term, y: Term, z: Term, m: Term, c: Term, *, heads: Extent, groups: Extent, scale: Real, causal: Extent) -> Term:
    parts = apart(x, heads), apart(y, groups), apart(z, groups)
    found = apply("scaled_dot_product_attention", *parts, m, c, scale=scale, causal=causal)
    together = *x.shape[:2], z.shape[2] // groups * heads
    return apply("reshape", apply("transpose", found, perm=(0, 2, 1, 3)), shape=together)


def lift(node: Node) -> Term | None:
    x, y, z = (node.operand(position) for position in range(3))
    heads, groups = node.attribute("q_num_heads", 0), node.attribute("kv_num_heads", 0)
    if x.rank != 3 or heads < 1 or not bound(node):
        return None
    numbers = {"heads": heads, "groups": groups, "causal": node.attribute("is_causal", 0)}
    found = masks(node, (x.sizes[0], heads, x.sizes[1], y.sizes[1]))
    return apply("grouped_query_attention", x, y, z, *found, scale=scale_of(node, x.sizes[2] // heads), **numbers)


def lower(term: Term, emit: Emit) -> str:
    x, y, z, m, c = term.args
    heads = {"q_num_heads": term.integer("heads"), "kv_num_heads": term.integer("groups")}
    return emit(ONNX, x, y, z, mask(m, c), scale=term.real("scale"), is_causal=term.integer("causal"), **heads)
