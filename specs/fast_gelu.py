"""`gelu_tanh` of x plus a bias b along the last axis (ONNX Runtime's contrib FastGelu). A node may omit the bias.

Before opset 20, ONNX Runtime recognizes few of the ways to write this function with several nodes. The algebra therefore
contains an operator that is lowered to one node.
"""

from __future__ import annotations

from superopt.algebra.index import Tensor, require, same
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.affine import affine
from superopt.speclib.composite import written_out

ONNX = "com.microsoft.FastGelu"
EXACT = "quotient, field, exponential"

FUSIONS = """
    biased: gelu_tanh(x + expand(b, shape=x.shape, axes=(-1,))) => fast_gelu(x, b)  for x[2, 3, 4], b[1]
    plain:  gelu_tanh(x) => fast_gelu(x, zeros(shape=(x.shape[-1],)))  for x[1, 2, 3, 4]
"""


def fast_gelu(x: Tensor, b: Tensor) -> Tensor:
    require(x.rank >= 1, "fast_gelu: there is a last axis")
    require(b.rank == 1, "fast_gelu: the bias is a vector")
    require(same(x.shape[-1], b.shape[0]), "fast_gelu: a bias for every position of the last axis")
    return written_out(body, x.shape, x=x, b=b)


def body(x: Term, b: Term) -> Term:
    return apply("gelu_tanh", affine(x, None, b, -1))


def lift(node: Node) -> Term:
    x = node.operand(0)
    return apply("fast_gelu", x, apply("zeros", shape=x.shape[-1:]) if node.absent(1) else node.operand(1))


def lower(term: Term, emit: Emit) -> str:
    x, b = term.args
    return emit(ONNX, x, *([] if b.op == "zeros" else [b]))
