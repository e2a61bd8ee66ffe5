"""The kernel of a convolution that leaves an image unchanged, with group = shape[0] // shape[1] and padding that fits `at`.

Element (o, k, u, v) is 1 if k == o % shape[1] (the position of channel o in its group) and (u, v) == at. All other elements are
0.
"""

from __future__ import annotations

from superopt.algebra.index import Extents, Tensor, number, require, same, select, tensor

AXIOMS = """
    pad:          pad(identity_kernel(shape=s, at=t), before=(0, 0, a, b), after=(0, 0, c, d))
                  == identity_kernel(shape=(s0, s1, s2 + a + c, s3 + b + d), at=(t0 + a, t1 + b))
                  for s[4], t[2]
    depthwise:    identity_kernel(shape=(c, 1, 1, 1), at=(0, 0)) == ones(shape=(c, 1, 1, 1))
    pointwise:    identity_kernel(shape=(c, c, 1, 1), at=(0, 0)) == reshape(eye(n=c), shape=(c, c, 1, 1))
"""


def identity_kernel(*, shape: Extents, at: Extents) -> Tensor:
    require(len(shape) == 4 and len(at) == 2, "identity_kernel: rank 4 and a position in the window")
    depth = shape[1]
    for extent in shape:
        require(extent >= 1, "identity_kernel: not empty")
    require(same(shape[0] % depth, 0), "identity_kernel: channels come in whole groups")
    for position, extent in zip(at, shape[2:], strict=True):
        require(position >= 0, "identity_kernel: the position is inside")
        require(position < extent, "identity_kernel: the position is inside")

    def value(o, k, u, v):
        return select(same(k, o % depth) & same(u, at[0]) & same(v, at[1]), number(1), number(0))

    return tensor(shape, value)
