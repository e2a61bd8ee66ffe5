"""The hidden states of a long short-term memory after each element of x[t, n, i] (output Y of ONNX LSTM).

The weights w[i, 4k] and r[k, 4k] and the biases b[4k] contain the parts of the four gates side by side, in ONNX's order: input,
output, forget, cell. h[n, k] and c[n, k] are the states before the first step. The operator `lstm_cell` returns the cell state
after the last step. Nodes with other activations, peepholes, a clip, or sequences of several lengths are not supported.
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

ONNX = "LSTM"
EXACT = "field, exponential"

RECURRENCE = Recurrence(
    step="""
        (sigmoid(x @ wo + h @ ro + bo)
         * tanh(d := sigmoid(x @ wf + h @ rf + bf) * c + sigmoid(x @ wi + h @ ri + bi) * tanh(x @ wc + h @ rc + bc)),
         d)
    """,
    states=("h", "c"),
    weights={"w": ("wi", "wo", "wf", "wc"), "r": ("ri", "ro", "rf", "rc")},
    biases={"b": ("bi", "bo", "bf", "bc")},
    every="lstm",
    last=("lstm_cell",),
)
ACTIVATIONS = ("sigmoid", "tanh", "tanh")


def lstm(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, c: Tensor) -> Tensor:
    return written_out(unrolled, shape_of(4, 4, x, w, r, b, h, c), x=x, w=w, r=r, b=b, h=h, c=c)


def unrolled(*operands: Term) -> Term:
    return stacked([states[0] for states in RECURRENCE.unrolled(*operands)])


def lift(node: Node) -> tuple[Term, ...] | None:
    if not is_plain(node, ACTIVATIONS):
        return None
    operands = *operands_of(node), apply("add", *biases_of(node)), first_state(node, 5), first_state(node, 6)
    return recurrence_outputs(node, apply("lstm", *operands), apply("lstm_cell", *operands))


def lower(term: Term, emit: Emit) -> str:
    return emit("Reshape", outputs(term, emit)[0], shape=term.sizes)


def outputs(term: Term, emit: Emit) -> tuple[str, ...]:
    """Write an LSTM node, and return the names of its outputs Y [t, 1, n, k], Y_h [1, n, k] and Y_c [1, n, k]."""
    bias = term.args[3]
    return written("LSTM", term, (bias, apply("zeros", shape=bias.shape)), emit)
