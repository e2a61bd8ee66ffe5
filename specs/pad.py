"""x with zeros before and after it along each axis (ONNX Pad, constant mode). `pad_with` pads with a nonzero number."""

from __future__ import annotations

from math import isfinite

from superopt.algebra.index import Extents, Tensor, inside, number, require, select, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term

ONNX = "Pad"

AXIOMS = """
    none:               pad(x, before=(0,), after=(0,)) == x  for x[1]
    none-2:             pad(x, before=(0, 0), after=(0, 0)) == x  for x[2]
    none-3:             pad(x, before=(0, 0, 0), after=(0, 0, 0)) == x  for x[3]
    none-4:             pad(x, before=(0, 0, 0, 0), after=(0, 0, 0, 0)) == x  for x[4]
    twice:              pad(pad(x, before=p, after=q), before=r, after=s)
                        == pad(x, before=(p0 + r0, p1 + r1), after=(q0 + s0, q1 + s1))
                        for x[2], p[2], q[2], r[2], s[2]
    twice-4:            pad(pad(x, before=p, after=q), before=r, after=s)
                        == pad(x, before=(p0 + r0, p1 + r1, p2 + r2, p3 + r3), after=(q0 + s0, q1 + s1, q2 + s2, q3 + s3))
                        for x[4], p[4], q[4], r[4], s[4]
    zeros:              pad(zeros(shape=s), before=p, after=q) == zeros(shape=(s0 + p0 + q0, s1 + p1 + q1))
                        for s[2], p[2], q[2]
    undo-columns:       slice(pad(x, before=(0, a), after=(0, b)), axis=-1, start=a, stop=a + x.shape[-1]) == x  for x[2]
    undo-rows:          slice(pad(x, before=(a, 0), after=(b, 0)), axis=-2, start=a, stop=a + x.shape[-2]) == x  for x[2]
    undo-channels:      slice(pad(x, before=(0, a, 0, 0), after=(0, b, 0, 0)), axis=-3, start=a, stop=a + x.shape[-3])
                        == x  for x[4]
    as-concat-columns:  pad(x, before=(0, 0), after=(0, n)) == concat(x, zeros(shape=(x.shape[-2], n)), axis=-1)
                        for x[2] where n >= 1
    as-concat-rows:     pad(x, before=(0, 0), after=(n, 0)) == concat(x, zeros(shape=(n, x.shape[-1])), axis=-2)
                        for x[2] where n >= 1
    as-concat-channels: pad(x, before=(0, 0, 0, 0), after=(0, n, 0, 0))
                        == concat(x, zeros(shape=(x.shape[-4], n, x.shape[-2], x.shape[-1])), axis=-3)
                        for x[4] where n >= 1
    as-concat-outputs:  pad(x, before=(0, 0, 0, 0), after=(n, 0, 0, 0))
                        == concat(x, zeros(shape=(n, x.shape[-3], x.shape[-2], x.shape[-1])), axis=-4)
                        for x[4] where n >= 1
    concat-outputs:     pad(concat(x, y, axis=-4), before=(0, p1, p2, p3), after=(0, q1, q2, q3))
                        == concat(pad(x, before=(0, p1, p2, p3), after=(0, q1, q2, q3)),
                                  pad(y, before=(0, p1, p2, p3), after=(0, q1, q2, q3)), axis=-4)
                        for x[4], y[4]
    concat-channels:    pad(concat(x, y, axis=-3), before=(p0, 0, p2, p3), after=(q0, 0, q2, q3))
                        == concat(pad(x, before=(p0, 0, p2, p3), after=(q0, 0, q2, q3)),
                                  pad(y, before=(p0, 0, p2, p3), after=(q0, 0, q2, q3)), axis=-3)
                        for x[4], y[4]
    matmul-columns:     x @ pad(y, before=(0, a), after=(0, b)) == pad(x @ y, before=(0, a), after=(0, b))  for x[2], y[2]
    matmul-rows:        pad(x, before=(a, 0), after=(b, 0)) @ y == pad(x @ y, before=(a, 0), after=(b, 0))  for x[2], y[2]
    matmul-inner:       pad(x, before=(0, a), after=(0, b)) @ pad(y, before=(a, 0), after=(b, 0)) == x @ y  for x[2], y[2]
    transpose:          pad(transpose(x, perm=(-1, -2)), before=(a, b), after=(c, d))
                        == transpose(pad(x, before=(b, a), after=(d, c)), perm=(-1, -2))
                        for x[2]
"""


def pad(x: Tensor, *, before: Extents, after: Extents) -> Tensor:
    require(len(before) == x.rank and len(after) == x.rank, "pad: an amount for every axis")
    for amount in (*before, *after):
        require(amount >= 0, "pad: amounts are not negative")
    shape = tuple(n + p + q for n, p, q in zip(x.shape, before, after, strict=True))

    def at(*i):
        source = tuple(v - p for v, p in zip(i, before, strict=True))
        seen = True
        for v, n in zip(source, x.shape, strict=True):
            seen = inside(v, n) & seen
        return select(seen, x[source], number(0))

    return tensor(shape, at)


def lift(node: Node) -> Term | None:
    x, pads = node.operand(0), node.attribute("pads")
    value = node.attribute("value", 0.0) if node.absent(2) else node.scalar(2)
    if node.attribute("mode", "constant") != "constant" or value is None or not isfinite(value):
        return None
    axes = node.attribute("axes", tuple(range(x.rank)))
    before, after = [0] * x.rank, [0] * x.rank
    for position, axis in enumerate(axes):
        before[axis], after[axis] = pads[position], pads[position + len(axes)]
    if not any(pads):
        return x
    around = {"before": tuple(before), "after": tuple(after)}
    return apply("pad", x, **around) if value == 0 else apply("pad_with", x, value=value, **around)


def lower(term: Term, emit: Emit) -> str:
    return emit("Pad", *term.args, mode="constant", pads=(*term.integers("before"), *term.integers("after")))
