"""Rotary position embedding (ONNX RotaryEmbedding): pairs of numbers, rotated by an angle for each position.

x is [b, s, h d] or [b, h, s, d]. c[b, s, r] and s[b, s, r] contain the cosines and sines of each position. In each head, the
first 2r numbers are rotated. The two numbers of a pair are r apart, or adjacent if `interleaved` is 1. If the node has tables
and positions that select rows of the tables, c and s are applications of `lookup` to the tables.
"""

from __future__ import annotations

from functools import partial

from superopt.algebra.index import Tensor, require, same
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term
from superopt.speclib.composite import written_out

ONNX = "RotaryEmbedding"


def rope(x: Tensor, c: Tensor, s: Tensor, *, heads: Extent, interleaved: Extent = 0) -> Tensor:
    require(x.rank in (3, 4), "rope takes batches of sequences")
    require([t.rank for t in (c, s)] == [3, 3], "rope: c[3] and s[3]")
    require(heads >= 1, "rope: there is a head")
    require(interleaved >= 0, "rope: pairs are interleaved or not")
    require(interleaved <= 1, "rope: pairs are interleaved or not")
    for here, there in zip(c.shape, s.shape, strict=True):
        require(same(here, there), "rope: a sine for every cosine")
    require(same(x.shape[0], c.shape[0]), "rope: angles for every sequence")
    require(same(x.shape[-2], c.shape[1]), "rope: angles for every element")
    if x.rank == 3:
        require(same(x.shape[2] % heads, 0), "rope: the heads divide x")
        require(x.shape[2] // heads >= 2 * c.shape[2], "rope: a head is no smaller than what is turned")
    else:
        require(same(x.shape[1], heads), "rope: an axis of heads")
        require(x.shape[3] >= 2 * c.shape[2], "rope: a head is no smaller than what is turned")
    return written_out(partial(body, heads=heads, interleaved=interleaved), x.shape, x=x, c=c, s=s)


def body(x: Term, c: Term, s: Term, *, heads: Extent, interleaved: Extent = 0) -> Term:
    if x.rank == 4:
        return _turned(x, c, s, interleaved)
    b, length, width = x.shape
    apart = apply("transpose", apply("reshape", x, shape=(b, length, heads, width // heads)), perm=(0, 2, 1, 3))
    return apply("reshape", apply("transpose", _turned(apart, c, s, interleaved), perm=(0, 2, 1, 3)), shape=x.shape)


def _turned(x: Term, c: Term, s: Term, interleaved: Extent) -> Term:
    """Return x[b, h, s, d] with its pairs rotated."""
    half, width = c.sizes[2], x.sizes[3]
    one, other = _pairs(x, half, interleaved)
    cosines, sines = (apply("expand", t, shape=one.shape, axes=(-4, -2, -1)) for t in (c, s))
    along = apply("sub", apply("mul", one, cosines), apply("mul", other, sines))
    across = apply("add", apply("mul", one, sines), apply("mul", other, cosines))
    if interleaved:
        column = (*x.shape[:2], x.shape[2] * half, 1)
        beside = apply("concat", apply("reshape", along, shape=column), apply("reshape", across, shape=column), axis=-1)
        found = apply("reshape", beside, shape=(*x.shape[:3], 2 * half))
    else:
        found = apply("concat", along, across, axis=-1)
    rest = apply("slice", x, axis=-1, start=2 * half, stop=width) if width != 2 * half else None
    return apply("concat", found, rest, axis=-1) if rest is not None else found


def _pairs(x: Term, half: int, interleaved: Extent) -> list[Term]:
    """Return the first numbers and the second numbers of all pairs."""
    if not interleaved:
        return [apply("slice", x, axis=-1, start=n * half, stop=(n + 1) * half) for n in (0, 1)]
    cut = (apply("slice", x, axis=-1, start=n, stop=2 * half - 1 + n) for n in (0, 1))
    return [apply("stride", part, axis=-1, step=2) for part in cut]


def lift(node: Node) -> Term | None:
    x, c, s = (node.operand(position) for position in range(3))
    if not node.absent(3):
        i = node.constant(3) if node.inputs[3] is None else node.operand(3)
        c, s = (apply("lookup", table, i) for table in (c, s))
    heads = x.sizes[1] if x.rank == 4 else node.attribute("num_heads", 0)
    return apply("rope", x, c, s, heads=heads, interleaved=node.attribute("interleaved", 0))


def lower(term: Term, emit: Emit) -> str:
    x, c, s = term.args
    heads, turned = term.integer("heads"), 2 * c.sizes[2]
    width = x.sizes[-1] if x.rank == 4 else x.sizes[-1] // heads
    numbers = {"num_heads": heads, "interleaved": term.integer("interleaved")}
    partly = {"rotary_embedding_dim": turned} if turned < width else {}
    return emit(ONNX, x, *_tables(c, s, x.sizes[-2], emit), **numbers, **partly)


def _tables(c: Term, s: Term, length: int, emit: Emit) -> tuple[object, ...]:
    """Return the node's inputs for cosines and sines: two tables with positions if possible, and otherwise c and s.

    Tables can be used if c and s are lookups at the same positions, and if the tables have at least `length` rows. ONNX Runtime
    requires this number of rows.
    """
    if {c.op, s.op} == {"lookup"} and c.args[1] == s.args[1] and min(c.args[0].sizes[0], s.args[0].sizes[0]) >= length:
        return c.args[0], s.args[0], emit.integers(c.args[1], c.args[0].sizes[0])
    return c, s
