"""Attention with queries, keys and values that are linear in one sequence x[b, s, i] (ONNX Runtime's contrib Attention).

The weights w[i, 3 h d] and the biases b[3 h d] contain the parts for queries, keys and values side by side. Nodes with a mask,
past keys and values, values of a different size, or several outputs are not supported.
"""

from __future__ import annotations

from functools import partial
from math import sqrt

from superopt.algebra.index import Real, Tensor, require, same
from superopt.algebra.operators import Emit, Node, apply, fraction_of
from superopt.algebra.terms import Extent, Term
from superopt.speclib.affine import positive
from superopt.speclib.composite import written_out

ONNX = "com.microsoft.Attention"
EXACT = "quotient, field, exponential"

FUSIONS = """
    biased: multi_head_attention(x @ y + expand(b, shape=(x @ y).shape, axes=(-1,)),
                                 x @ z + expand(c, shape=(x @ z).shape, axes=(-1,)),
                                 x @ u + expand(d, shape=(x @ u).shape, axes=(-1,)), heads=h, scale=a)
            => self_attention(x, concat(concat(y, z, axis=-1), u, axis=-1), concat(concat(b, c, axis=-1), d, axis=-1),
                              heads=h, scale=a)
            for x[3], y[2], z[2], u[2], b[1], c[1], d[1] where y.shape[-1] == z.shape[-1], z.shape[-1] == u.shape[-1]
    plain:  multi_head_attention(x @ y, x @ z, x @ u, heads=h, scale=a)
            => self_attention(x, concat(concat(y, z, axis=-1), u, axis=-1), zeros(shape=(3 * y.shape[-1],)), heads=h, scale=a)
            for x[3], y[2], z[2], u[2] where y.shape[-1] == z.shape[-1], z.shape[-1] == u.shape[-1]
    rows:   multi_head_attention(reshape(x @ y, shape=(m, n, k)) + expand(b, shape=(m, n, k), axes=(-1,)),
                                 reshape(x @ z, shape=(m, n, k)) + expand(c, shape=(m, n, k), axes=(-1,)),
                                 reshape(x @ u, shape=(m, n, k)) + expand(d, shape=(m, n, k), axes=(-1,)), heads=h, scale=a)
            => self_attention(reshape(x, shape=(m, n, x.shape[-1])), concat(concat(y, z, axis=-1), u, axis=-1),
                              concat(concat(b, c, axis=-1), d, axis=-1), heads=h, scale=a)
            for x[2], y[2], z[2], u[2], b[1], c[1], d[1]
            where y.shape[-1] == k, z.shape[-1] == k, u.shape[-1] == k, x.shape[-2] == m * n
    biased-rows: multi_head_attention(reshape(x @ y + expand(b, shape=(x @ y).shape, axes=(-1,)), shape=(m, n, k)),
                                      reshape(x @ z + expand(c, shape=(x @ z).shape, axes=(-1,)), shape=(m, n, k)),
                                      reshape(x @ u + expand(d, shape=(x @ u).shape, axes=(-1,)), shape=(m, n, k)),
                                      heads=h, scale=a)
            => self_attention(reshape(x, shape=(m, n, x.shape[-1])), concat(concat(y, z, axis=-1), u, axis=-1),
                              concat(concat(b, c, axis=-1), d, axis=-1), heads=h, scale=a)
            for x[2], y[2], z[2], u[2], b[1], c[1], d[1]
            where y.shape[-1] == k, z.shape[-1] == k, u.shape[-1] == k, x.shape[-2] == m * n
"""


def self_attention(x: Tensor, w: Tensor, b: Tensor, *, heads: Extent, scale: Real) -> Tensor:
    require([t.rank for t in (x, w, b)] == [3, 2, 1], "self_attention: x[3], w[2] and b[1]")
    require(heads >= 1, "self_attention: there is a head")
    require(positive(scale), "self_attention: the scale is positive")
    require(same(x.shape[2], w.shape[0]), "self_attention: a weight for every input")
    require(same(w.shape[1], b.shape[0]), "self_attention: a bias for every column of weights")
    require(same(w.shape[1] % (3 * heads), 0), "self_attention: queries, keys and values of every head")
    shape = x.shape[0], x.shape[1], w.shape[1] // 3
    return written_out(partial(body, heads=heads, scale=scale), shape, x=x, w=w, b=b)


def body(x: Term, w: Term, b: Term, *, heads: Extent, scale: Real) -> Term:
    linear = apply("matmul", x, w)
    whole = apply("add", linear, apply("expand", b, shape=linear.shape, axes=(-1,)))
    width = b.sizes[0] // 3
    parts = (apply("slice", whole, axis=-1, start=n * width, stop=(n + 1) * width) for n in range(3))
    return apply("multi_head_attention", *parts, heads=heads, scale=scale)


def lift(node: Node) -> Term | None:
    others = range(3, 8)
    if not all(map(node.absent, others)) or node.outputs != 1:
        return None
    sizes = node.attribute("qkv_hidden_sizes", ())
    if node.attribute("unidirectional", 0) or node.attribute("do_rotary", 0) or len({*sizes}) > 1:
        return None
    x, w = node.operand(0), node.operand(1)
    heads, width = node.attribute("num_heads"), w.sizes[1]
    b = apply("zeros", shape=(width,)) if node.absent(2) else node.operand(2)
    scale = node.attribute("scale", 0.0) or 1 / sqrt(width // 3 // heads)
    return apply("self_attention", x, w, b, heads=heads, scale=fraction_of(scale))


def lower(term: Term, emit: Emit) -> str:
    return emit(ONNX, *term.args, num_heads=term.integer("heads"), scale=term.real("scale"))
