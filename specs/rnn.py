"""The states of a simple recurrent network after each element of x[t, n, i] (output Y of ONNX RNN).

w[i, k] and r[k, k] are the weights, b[k] is the bias, and h[n, k] is the state before the first step. Nodes with an activation
other than tanh, a clip, or sequences of several lengths are not supported.
"""

from __future__ import annotations

from superopt.algebra.index import Tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.composite import written_out
from superopt.speclib.recurrence import (
    Recurrence,
    biases_of,
    first_state,
    is_plain,
    operands_of,
    recurrence_outputs,
    shape_of,
    stacked,
    written,
)

ONNX = "RNN"
EXACT = "field, exponential"

RECURRENCE = Recurrence(
    step="tanh(x @ wh + h @ rh + bh)",
    states=("h",),
    weights={"w": ("wh",), "r": ("rh",)},
    biases={"b": ("bh",)},
    every="rnn",
)


def rnn(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor) -> Tensor:
    return written_out(unrolled, shape_of(1, 1, x, w, r, b, h), x=x, w=w, r=r, b=b, h=h)


def unrolled(*operands: Term) -> Term:
    return stacked([states[0] for states in RECURRENCE.unrolled(*operands)])


def lift(node: Node) -> tuple[Term, ...] | None:
    if not is_plain(node, ("tanh",)):
        return None
    return recurrence_outputs(node, apply("rnn", *operands_of(node), apply("add", *biases_of(node)), first_state(node, 5)))


def lower(term: Term, emit: Emit) -> str:
    bias = term.args[3]
    y, _ = written("RNN", term, (bias, apply("zeros", shape=bias.shape)), emit)
    return emit("Reshape", y, shape=term.sizes)
