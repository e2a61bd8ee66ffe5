"""Blocks of channels, rearranged into an image (ONNX DepthToSpace, mode DCR).

The position within a block is the slowest-varying part of a channel's index.
"""

from __future__ import annotations

from superopt.algebra.index import Tensor, require, same
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term
from superopt.speclib.composite import composed

ONNX = "DepthToSpace"

COMPOSITE = """
    reshape(transpose(reshape(transpose(
                reshape(x, shape=(x.shape[-4], block * block, x.shape[-3] // (block * block) * x.shape[-2], x.shape[-1])),
                perm=(-4, -2, -3, -1)),
            shape=(x.shape[-4] * (x.shape[-3] // (block * block)) * x.shape[-2] * block, block, x.shape[-1])),
        perm=(-3, -1, -2)),
        shape=(x.shape[-4], x.shape[-3] // (block * block), x.shape[-2] * block, x.shape[-1] * block))
    for x[4]
"""


def depth_to_space(x: Tensor, *, block: Extent) -> Tensor:
    require(x.rank == 4, "depth_to_space takes an image batch of rank 4")
    require(block >= 1, "depth_to_space: the block is not empty")
    require(same(x.shape[-3] % (block * block), 0), "depth_to_space: the channels are whole blocks")
    return composed(COMPOSITE, {"x": x}, block=block)


def lift(node: Node) -> Term | None:
    name = "pixel_shuffle" if node.attribute("mode", "DCR") == "CRD" else "depth_to_space"
    return apply(name, node.operand(0), block=node.attribute("blocksize"))


def lower(term: Term, emit: Emit) -> str:
    mode = {"mode": "DCR"} if emit.opset >= 11 else {}
    return emit("DepthToSpace", *term.args, blocksize=term.integer("block"), **mode)
