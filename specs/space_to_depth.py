"""Blocks of an image, rearranged into channels (ONNX SpaceToDepth).

The position within a block is the slowest-varying part of a channel's index.
"""

from __future__ import annotations

from superopt.algebra.index import Tensor, require, same
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term
from superopt.speclib.composite import composed

ONNX = "SpaceToDepth"

COMPOSITE = """
    reshape(transpose(reshape(transpose(
                reshape(x, shape=(x.shape[-4] * x.shape[-3] * x.shape[-2], x.shape[-1] // block, block)),
                perm=(-3, -1, -2)),
            shape=(x.shape[-4], x.shape[-3] * (x.shape[-2] // block), block * block, x.shape[-1] // block)),
        perm=(-4, -2, -3, -1)),
        shape=(x.shape[-4], x.shape[-3] * block * block, x.shape[-2] // block, x.shape[-1] // block))
    for x[4]
"""


def space_to_depth(x: Tensor, *, block: Extent) -> Tensor:
    require(x.rank == 4, "space_to_depth takes an image batch of rank 4")
    require(block >= 1, "space_to_depth: the block is not empty")
    for extent in x.shape[-2:]:
        require(same(extent % block, 0), "space_to_depth: the image is whole blocks")
    return composed(COMPOSITE, {"x": x}, block=block)


def lift(node: Node) -> Term | None:
    if node.attribute("mode", "DCR") != "DCR":
        return None
    return apply("space_to_depth", node.operand(0), block=node.attribute("blocksize"))


def lower(term: Term, emit: Emit) -> str:
    return emit("SpaceToDepth", *term.args, blocksize=term.integer("block"))
