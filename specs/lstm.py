"""The hidden states of a long short-term memory, one after every element of x[t, n, i] (ONNX LSTM, its output Y).

The weights w[i, 4k] and r[k, 4k] and the biases b[4k] hold the parts of the four gates side by side, in ONNX's order: input,
output, forget, cell. h[n, k] and c[n, k] are the states before the first step; `lstm_cell` is the last c. Of ONNX's operator,
what has other activations, peepholes, a clip or sequences of several lengths is outside the binding.
"""

from __future__ import annotations

from superopt.composite import written_out
from superopt.graph import Term
from superopt.index import Extents, Tensor, require, same
from superopt.op import Emit, Node, apply
from superopt.recurrence import Recurrence, stacked

ONNX = "LSTM"

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
DIRECTIONS = {"forward": 1, "reverse": -1}


def lstm(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, c: Tensor) -> Tensor:
    return written_out(unrolled, shape_of(x, w, r, b, h, c), x=x, w=w, r=r, b=b, h=h, c=c)


def unrolled(*operands: Term) -> Term:
    return stacked([states[0] for states in RECURRENCE.unrolled(*operands)])


def shape_of(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, c: Tensor) -> Extents:
    """[t, n, k]."""
    require([t.rank for t in (x, w, r, b, h, c)] == [3, 2, 2, 1, 2, 2], "lstm: ranks")
    n, k = h.shape
    require(same(x.shape[1], n), "lstm: a state for every row")
    require(same(c.shape[0], n), "lstm: a cell state for every row")
    require(same(c.shape[1], k), "lstm: states are of one size")
    require(same(w.shape[0], x.shape[2]), "lstm: a weight for every input")
    require(same(r.shape[0], k), "lstm: a weight for every state")
    for weight in (w, r, b):
        require(same(weight.shape[-1], 4 * k), "lstm: weights for four gates")
    return x.shape[0], n, k


def lift(node: Node) -> tuple[Term, ...] | None:
    x, w, r = (node.operand(position) for position in range(3))
    k = r.sizes[-1]
    rows = w.sizes[0] == 1 and x.rank == 3
    plain = (
        not any(node.attribute(name, 0) for name in ("clip", "input_forget", "layout")) and node.absent(4) and node.absent(7)
    )
    usual = [a.lower() for a in node.attribute("activations", ())] in ([], ["sigmoid", "tanh", "tanh"])
    direction = DIRECTIONS.get(node.attribute("direction", "forward"))
    if not (rows and plain and usual and direction and w.constant and r.constant):
        return None
    t, n = x.sizes[:2]
    w, r = (apply("transpose", apply("reshape", a, shape=a.shape[1:]), perm=(1, 0)) for a in (w, r))
    h, c = (_first(node, position, n, k) for position in (5, 6))
    x = x if direction == 1 else apply("reverse", x, axis=0)
    operands = x, w, r, _biases(node, k), h, c
    hidden, last = apply("lstm", *operands), apply("lstm_cell", *operands)
    final = apply("slice", hidden, axis=0, start=t - 1, stop=t) if t > 1 else hidden
    hidden = hidden if direction == 1 else apply("reverse", hidden, axis=0)
    outputs = apply("reshape", hidden, shape=(t, 1, n, k)), final, apply("reshape", last, shape=(1, n, k))
    return tuple(term for position, term in enumerate(outputs) if node.wanted(position))


def _biases(node: Node, k: int) -> Term:
    """The biases of input and of state, added up."""
    if node.absent(3):
        return apply("zeros", shape=(4 * k,))
    both = apply("reshape", node.operand(3), shape=(8 * k,))
    return apply("add", *(apply("slice", both, axis=0, start=s, stop=s + 4 * k) for s in (0, 4 * k)))


def _first(node: Node, position: int, n: int, k: int) -> Term:
    """A state before the first step."""
    return apply("zeros", shape=(n, k)) if node.absent(position) else apply("reshape", node.operand(position), shape=(n, k))


def lower(term: Term, emit: Emit) -> str:
    return emit("Reshape", outputs(term, emit)[0], shape=term.sizes)


def outputs(term: Term, emit: Emit) -> tuple[str, ...]:
    """The names of Y [t, 1, n, k], Y_h [1, n, k] and Y_c [1, n, k]."""
    x, w, r, b, *states = term.args
    weights = [apply("reshape", transposed := apply("transpose", a, perm=(1, 0)), shape=(1, *transposed.shape)) for a in (w, r)]
    both = apply("concat", b, apply("zeros", shape=b.shape), axis=0)
    first = [apply("reshape", s, shape=(1, *s.shape)) for s in states]
    biases = apply("reshape", both, shape=(1, *both.shape))
    return emit.several("LSTM", x, *weights, biases, None, *first, outputs=3, hidden_size=states[0].sizes[-1])
