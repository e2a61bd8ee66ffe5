"""The kernel of a grouped convolution with every `count` groups merged (merge_gconv of TASO, Jia et al., SOSP 2019).

w is (F, D, KH, KW), the kernel of a convolution with `group` groups. The result is (F, count * D, KH, KW), the kernel of a
convolution with group / count groups. The result is 0 where an output channel and an input channel belonged to different
groups. The convolution then needs more products, but kernels can compute these products in whole vectors.
"""

from __future__ import annotations

import numpy as np

from superopt.algebra.index import Tensor, inside, number, require, same, select, tensor
from superopt.algebra.operators import Emit
from superopt.algebra.terms import Extent, Term

AXIOMS = """
    algorithm-two:  conv(x, merge_groups(w, group=2 * g, count=2), strides=s, pads=p, dilations=d, group=g)
                    == conv(x, w, strides=s, pads=p, dilations=d, group=2 * g)
                    for x[4], w[4], s[2], p[4], d[2]
    algorithm-four: conv(x, merge_groups(w, group=4 * g, count=4), strides=s, pads=p, dilations=d, group=g)
                    == conv(x, w, strides=s, pads=p, dilations=d, group=4 * g)
                    for x[4], w[4], s[2], p[4], d[2]
"""


def merge_groups(w: Tensor, *, group: Extent, count: Extent) -> Tensor:
    require(w.rank == 4, "merge_groups takes a kernel of rank 4")
    for amount in (group, count):
        require(amount >= 1, "merge_groups: there are groups, and some are made one")
    f, depth, rows, columns = w.shape
    require(same(group % count, 0), "merge_groups: as many of the groups are made one everywhere")
    require(same(f % group, 0), "merge_groups: the groups divide the output channels")
    outputs = f // group

    def at(o, k, u, v):
        before = (o // outputs - o // (outputs * count) * count) * depth
        return select(inside(k - before, depth), w[o, k - before, u, v], number(0))

    return tensor((f, count * depth, rows, columns), at)


def rounding(**_: object) -> float:
    """Return 1: the rounding error equals the rounding error of `conv`, because only zeros are added."""
    return 1.0


def lower(term: Term, emit: Emit) -> str:
    (w,), group, count = term.args, term.integer("group"), term.integer("count")
    f, depth, *_ = w.sizes
    place = np.arange(f) // (f // group) % count
    own = np.repeat(place[:, None] == np.arange(count), depth, axis=1).reshape(f, count * depth, 1, 1)
    return emit("Where", own, emit("Concat", *[w] * count, axis=1), 0.0)
