"""1 / sqrt(x), elementwise (ONNX Reciprocal of Sqrt); it occurs in the weights of batch normalization."""

from __future__ import annotations

from superopt.graph import Term
from superopt.index import Tensor, call, tensor
from superopt.op import Emit

EXACT = "uninterpreted"

AXIOMS = """
    concat:       rsqrt(concat(x, y, axis=k)) == concat(rsqrt(x), rsqrt(y), axis=k)
                  for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4]
    slice:        rsqrt(slice(x, axis=k, start=a, stop=b)) == slice(rsqrt(x), axis=k, start=a, stop=b)
                  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    expand:       rsqrt(expand(x, shape=s, axes=(k,))) == expand(rsqrt(x), shape=s, axes=(k,))
                  for x[1], s[2, 3, 4], k[-1, -2, -3, -4]
"""


def rsqrt(x: Tensor) -> Tensor:
    return tensor(x.shape, lambda *i: call("rsqrt", x[i]))


def lower(term: Term, emit: Emit) -> str:
    return emit("Reciprocal", emit("Sqrt", *term.args))
