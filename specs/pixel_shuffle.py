"""Blocks of channels, rearranged into an image (ONNX DepthToSpace, mode CRD).

The position within a block is the fastest-varying part of a channel's index.
"""

from __future__ import annotations

from superopt.algebra.index import Tensor, require, same
from superopt.algebra.operators import Emit
from superopt.algebra.terms import Extent, Term
from superopt.speclib.composite import composed

COMPOSITE = """
    reshape(transpose(reshape(transpose(
                reshape(x, shape=(x.shape[-4] * (x.shape[-3] // (block * block)), block * block, x.shape[-2], x.shape[-1])),
                perm=(-4, -2, -3, -1)),
            shape=(x.shape[-4] * (x.shape[-3] // (block * block)) * x.shape[-2] * block, block, x.shape[-1])),
        perm=(-3, -1, -2)),
        shape=(x.shape[-4], x.shape[-3] // (block * block), x.shape[-2] * block, x.shape[-1] * block))
    for x[4]
"""


def pixel_shuffle(x: Tensor, *, block: Extent) -> Tensor:
    require(x.rank == 4, "pixel_shuffle takes an image batch of rank 4")
    require(block >= 1, "pixel_shuffle: the block is not empty")
    require(same(x.shape[-3] % (block * block), 0), "pixel_shuffle: the channels are whole blocks")
    return composed(COMPOSITE, {"x": x}, block=block)


def lower(term: Term, emit: Emit) -> str:
    return emit("DepthToSpace", *term.args, blocksize=term.integer("block"), mode="CRD")
