"""The states of a gated recurrent unit after each element of x[t, n, i] (output Y of ONNX GRU with linear_before_reset).

The weights w[i, 3k] and r[k, 3k] contain the parts of the three gates side by side, in ONNX's order: update, reset, hidden. The
biases b[4k] contain the biases of the three gates and an additional bias. The additional bias is added to the state's part of
the hidden gate before the reset gate multiplies this part. h[n, k] is the state before the first step. Nodes with other
activations, a clip, sequences of several lengths, or linear_before_reset=0 are not supported.
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

ONNX = "GRU"
EXACT = "field, exponential"

HIDDEN = "tanh(x @ wh + bh + sigmoid(x @ wr + h @ rr + br) * (h @ rh + ah))"
UPDATE = "sigmoid(x @ wz + h @ rz + bz)"
RECURRENCE = Recurrence(
    step=f"(ones(shape=h.shape) - (z := {UPDATE})) * {HIDDEN} + z * h",
    equals=(f"(n := {HIDDEN}) + {UPDATE} * (h - n)",),
    states=("h",),
    weights={"w": ("wz", "wr", "wh"), "r": ("rz", "rr", "rh")},
    biases={"b": ("bz", "br", "bh", "ah")},
    every="gru",
)


def gru(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor) -> Tensor:
    return written_out(unrolled, shape_of(3, 4, x, w, r, b, h), x=x, w=w, r=r, b=b, h=h)


def unrolled(*operands: Term) -> Term:
    return stacked([states[0] for states in RECURRENCE.unrolled(*operands)])


def lift(node: Node) -> tuple[Term, ...] | None:
    if not is_plain(node, ("sigmoid", "tanh")) or not node.attribute("linear_before_reset", 0):
        return None
    of_input, of_state = biases_of(node)
    gates = of_input.sizes[0] // 3 * 2
    both = apply("add", *(apply("slice", part, axis=0, start=0, stop=gates) for part in (of_input, of_state)))
    rest = [apply("slice", part, axis=0, start=gates, stop=part.sizes[0]) for part in (of_input, of_state)]
    biases = apply("concat", both, apply("concat", *rest, axis=0), axis=0)
    return recurrence_outputs(node, apply("gru", *operands_of(node), biases, first_state(node, 5)))


def lower(term: Term, emit: Emit) -> str:
    bias, k = term.args[3], term.sizes[-1]
    of_input = apply("slice", bias, axis=0, start=0, stop=3 * k)
    of_state = apply("concat", apply("zeros", shape=(2 * k,)), apply("slice", bias, axis=0, start=3 * k, stop=4 * k), axis=0)
    y, _ = written("GRU", term, (of_input, of_state), emit, linear_before_reset=1)
    return emit("Reshape", y, shape=term.sizes)
