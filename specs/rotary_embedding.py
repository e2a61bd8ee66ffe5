"""Rotary position embedding (ONNX Runtime's contrib RotaryEmbedding): pairs of numbers, rotated by an angle for each position.

x is [b, s, h d] or [b, h, s, d]. Each row of the tables c[n, r] and s[n, r] contains the cosines and sines of a position. i[b,
s] is the index of the row for each element. In each head, the first 2r numbers are rotated. The two numbers of a pair are r
apart, or adjacent if `interleaved` is 1. Nodes that give only the first of several positions, that pack sequences of several
lengths together, or that have a scale other than 1 are not supported.
"""

from __future__ import annotations

from functools import partial

from superopt.algebra.index import Tensor, require, same
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term
from superopt.speclib.composite import written_out

ONNX = "com.microsoft.RotaryEmbedding"
EXACT = "order"


def rotary_embedding(x: Tensor, i: Tensor, c: Tensor, s: Tensor, *, heads: Extent, interleaved: Extent = 0) -> Tensor:
    require(x.rank in (3, 4), "rotary_embedding takes batches of sequences")
    require([t.rank for t in (i, c, s)] == [2, 2, 2], "rotary_embedding: i[2], c[2] and s[2]")
    require(heads >= 1, "rotary_embedding: there is a head")
    require(interleaved >= 0, "rotary_embedding: pairs are interleaved or not")
    require(interleaved <= 1, "rotary_embedding: pairs are interleaved or not")
    for here, there in zip(c.shape, s.shape, strict=True):
        require(same(here, there), "rotary_embedding: a sine for every cosine")
    require(same(x.shape[0], i.shape[0]), "rotary_embedding: positions for every sequence")
    require(same(x.shape[-2], i.shape[1]), "rotary_embedding: a position for every element")
    if x.rank == 3:
        require(same(x.shape[2] % heads, 0), "rotary_embedding: the heads divide x")
        require(x.shape[2] // heads >= 2 * c.shape[1], "rotary_embedding: a head is no smaller than what is turned")
    else:
        require(same(x.shape[1], heads), "rotary_embedding: an axis of heads")
        require(x.shape[3] >= 2 * c.shape[1], "rotary_embedding: a head is no smaller than what is turned")
    return written_out(partial(body, heads=heads, interleaved=interleaved), x.shape, x=x, i=i, c=c, s=s)


def body(x: Term, i: Term, c: Term, s: Term, *, heads: Extent, interleaved: Extent = 0) -> Term:
    if x.rank == 4:
        return _turned(x, i, c, s, interleaved)
    b, length, width = x.shape
    apart = apply("transpose", apply("reshape", x, shape=(b, length, heads, width // heads)), perm=(0, 2, 1, 3))
    return apply("reshape", apply("transpose", _turned(apart, i, c, s, interleaved), perm=(0, 2, 1, 3)), shape=x.shape)


def _turned(x: Term, i: Term, c: Term, s: Term, interleaved: Extent) -> Term:
    """Return x[b, h, s, d] with its pairs rotated."""
    half, width = c.sizes[1], x.sizes[3]
    one, other = _pairs(x, half, interleaved)
    cosines, sines = (apply("expand", apply("lookup", t, i), shape=one.shape, axes=(-4, -2, -1)) for t in (c, s))
    along = apply("sub", apply("mul", one, cosines), apply("mul", other, sines))
    across = apply("add", apply("mul", one, sines), apply("mul", other, cosines))
    if interleaved:
        column = (*x.shape[:2], x.sizes[2] * half, 1)
        beside = apply("concat", apply("reshape", along, shape=column), apply("reshape", across, shape=column), axis=-1)
        found = apply("reshape", beside, shape=(*x.shape[:3], 2 * half))
    else:
        found = apply("concat", along, across, axis=-1)
    return (
        found if width == 2 * half else apply("concat", found, apply("slice", x, axis=-1, start=2 * half, stop=width), axis=-1)
    )


def _pairs(x: Term, half: int, interleaved: Extent) -> list[Term]:
    """Return the first numbers and the second numbers of all pairs."""
    if not interleaved:
        return [apply("slice", x, axis=-1, start=n * half, stop=(n + 1) * half) for n in (0, 1)]
    cut = (apply("slice", x, axis=-1, start=n, stop=2 * half - 1 + n) for n in (0, 1))
    return [apply("stride", part, axis=-1, step=2) for part in cut]


def lift(node: Node) -> Term | None:
    if node.attribute("is_packed_batching", 0) or node.attribute("scale", 1.0) != 1:
        return None
    x, c, s = node.operand(0), node.operand(2), node.operand(3)
    i = node.constant(1) if node.inputs[1] is None else node.operand(1)
    if i.sizes == (1,) and x.sizes[0] == x.sizes[-2] == 1:
        i = apply("reshape", i, shape=(1, 1))
    heads = x.sizes[1] if x.rank == 4 else node.attribute("num_heads", 0) or x.sizes[-1] // (2 * c.sizes[1])
    return apply("rotary_embedding", x, i, c, s, heads=heads, interleaved=node.attribute("interleaved", 0))


def lower(term: Term, emit: Emit) -> str:
    x, i, c, s = term.args
    heads, turned = term.integer("heads"), 2 * c.sizes[1]
    width = x.sizes[-1] if x.rank == 4 else x.sizes[-1] // heads
    numbers = {"num_heads": heads, "interleaved": term.integer("interleaved")}
    partly = {"rotary_embedding_dim": turned} if turned < width else {}
    tables = (_with_rows(t, x.sizes[-2]) for t in (c, s))
    return emit(ONNX, x, emit.integers(i, c.sizes[0]), *tables, **numbers, **partly)


def _with_rows(table: Term, least: int) -> Term:
    """Return the table, padded to at least `least` rows. No position refers to the added rows.

    ONNX Runtime requires at least as many rows as a sequence has elements.
    """
    missing = least - table.sizes[0]
    return apply("pad", table, before=(0, 0), after=(missing, 0)) if missing > 0 else table
