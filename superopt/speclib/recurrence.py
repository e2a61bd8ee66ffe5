"""Recurrences: operators such as LSTM that are defined by a step, which is applied once for each element of a sequence."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from superopt.algebra.index import Tensor, require, same
from superopt.algebra.operators import Emit, Node, apply, registry
from superopt.algebra.terms import Extent, Term
from superopt.notation.parsing import parse


@dataclass(frozen=True, eq=False)
class Recurrence:
    """A recurrence, such as an LSTM, defined by a step that is applied to the elements of a sequence one by one.

    The step computes the new states from the old states, an element `x` of the sequence, and weights. The operands of the
    recurrence's operators are the sequence, the weights, the biases and the states before the first step, in this order.

    Attributes:
        step: The step in the rule notation, with one output for each of the `states`.
        states: The names of the states in the step.
        weights: For each weight matrix, the names of its parts in the step. The parts have equal sizes and are concatenated
            along the last axis.
        biases: For each bias vector, the names of its parts in the step. In the step, each part is expanded to the shape of a
            state, because a bias is added to every row.
        every: The name of an operator. Its result is a sequence that contains, for each step, the value of `states[0]` after
            this step.
        last: For each of the other states, the name of the operator whose result is the value of this state after the last
            step.
        equals: Alternative texts of the step, which occur in models. Rules prove that these texts are equal to the step.
    """

    step: str
    states: tuple[str, ...]
    weights: Mapping[str, tuple[str, ...]]
    biases: Mapping[str, tuple[str, ...]]
    every: str
    last: tuple[str, ...] = ()
    equals: tuple[str, ...] = ()

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """A mapping from each weight and each bias to the names of its parts in the step."""
        return {**self.weights, **self.biases}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parts of weights and biases in the step."""
        return tuple(name for names in self.parts.values() for name in names)

    @property
    def name(self) -> str:
        """The name that reports show for a rewrite that uses the recurrence's definition."""
        return f"{self.every}.definition"

    @property
    def text(self) -> str:
        """The recurrence's definition as one line in the rule notation."""
        operands = ", ".join(["x", *self.parts, *self.states])
        return f"{self.every}({operands}): ({', '.join(self.states)}) => {' '.join(self.step.split())}"

    def after(self, operands: Mapping[str, Term], text: str = "") -> tuple[Term, ...]:
        """Return the states after one step.

        Args:
            operands: The element `x`, the states before the step, and the parts of the weights and biases, by name.
            text: The text of an alternative definition of the step. The default, an empty text, means `step`.
        """
        return parse(" ".join((text or self.step).split()), operands)

    def unrolled(self, x: Term, *operands: Term) -> list[tuple[Term, ...]]:
        """Return the states after each step over the sequence x[t, n, i], as one tuple of terms per step.

        `operands` are the weights, the biases and the states [n, k] before the first step.
        """
        weights, states = operands[: len(self.parts)], operands[len(self.parts) :]
        shape = states[0].sizes
        known: dict[str, Term] = {}
        for names, weight in zip(self.parts.values(), weights, strict=True):
            for position, name in enumerate(names):
                part = apply("slice", weight, axis=-1, start=position * shape[-1], stop=(position + 1) * shape[-1])
                known[name] = part if part.rank > 1 else apply("expand", part, shape=shape, axes=(-1,))
        found: list[tuple[Term, ...]] = []
        for position in range(x.sizes[0]):
            one = apply("reshape", apply("slice", x, axis=-3, start=position, stop=position + 1), shape=x.shape[1:])
            states = self.after({"x": one, **dict(zip(self.states, states, strict=True)), **known})
            found.append(states)
        return found


@functools.cache
def recurrences() -> tuple[Recurrence, ...]:
    """Return every recurrence that defines operators in specs/, in alphabetical order of the operators."""
    return tuple(spec.module.RECURRENCE for spec in registry().values() if hasattr(spec.module, "RECURRENCE"))


def stacked(elements: Sequence[Term]) -> Term:
    """Concatenate the states after each step of a recurrence to one sequence [t, n, k]. Each state has the shape [n, k]."""
    rows = [apply("reshape", e, shape=(1, *e.shape)) for e in elements]
    result = rows.pop()
    while rows:
        result = apply("concat", rows.pop(), result, axis=-3)
    return result


DIRECTIONS = {"forward": 1, "reverse": -1}


def is_plain(node: Node, activations: Sequence[str]) -> bool:
    """Return whether the operator definitions in specs/ support the node of a recurrence, such as LSTM.

    The node must process whole sequences in one direction, with these activations, constant weights and no further options.
    """
    options = any(node.attribute(name, 0) for name in ("clip", "input_forget", "layout"))
    given = [a.lower() for a in node.attribute("activations", ())] or [*activations]
    shape = node.operand(0).rank == 3 and all(node.operand(p).constant and node.operand(p).sizes[0] == 1 for p in (1, 2))
    whole = node.absent(4) and node.absent(7)
    return not options and given == [*activations] and shape and whole and node.attribute("direction", "forward") in DIRECTIONS


def operands_of(node: Node) -> tuple[Term, Term, Term]:
    """Return three terms: the sequence, and the weights [i, g k] and [k, g k] that multiply the input and the state.

    The sequence is in the order of the steps, so it is reversed if the node runs backwards. The number i is the size of an
    input element, k is the size of a state, and g is the number of gates.
    """
    x, w, r = (node.operand(position) for position in range(3))
    x = x if _is_forward(node) else apply("reverse", x, axis=0)
    w, r = (apply("transpose", apply("reshape", a, shape=a.shape[1:]), perm=(1, 0)) for a in (w, r))
    return x, w, r


def biases_of(node: Node) -> tuple[Term, Term]:
    """Return two biases of shape [g k] for g gates and states of size k.

    The node adds the first bias to the products with the input, and the second bias to the products with the state.
    """
    size = node.operand(2).sizes[1]
    if node.absent(3):
        return apply("zeros", shape=(size,)), apply("zeros", shape=(size,))
    both = apply("reshape", node.operand(3), shape=(2 * size,))
    return apply("slice", both, axis=0, start=0, stop=size), apply("slice", both, axis=0, start=size, stop=2 * size)


def first_state(node: Node, position: int) -> Term:
    """Return the state [n, k] before the first step: the input at this position, or zeros if the input is omitted."""
    shape = (node.operand(0).sizes[1], node.operand(2).sizes[2])
    return apply("zeros", shape=shape) if node.absent(position) else apply("reshape", node.operand(position), shape=shape)


def recurrence_outputs(node: Node, every: Term, *last: Term) -> tuple[Term, ...]:
    """Return one term for each output of a recurrence's ONNX node, such as LSTM. Files of specs/ use this function to lift the
    node.

    The term `every` is the sequence of one state, such as the hidden state of an LSTM, after each step. The terms `last` are
    the other states, such as the cell state, after the last step.
    """
    t, n, k = every.sizes
    final = apply("slice", every, axis=0, start=t - 1, stop=t) if t > 1 else every
    ordered = every if _is_forward(node) else apply("reverse", every, axis=0)
    rows = [apply("reshape", ordered, shape=(t, 1, n, k)), final, *(apply("reshape", s, shape=(1, n, k)) for s in last)]
    return tuple(term for position, term in enumerate(rows) if node.wanted(position))


def _is_forward(node: Node) -> bool:
    return DIRECTIONS[node.attribute("direction", "forward")] == 1


def written(op_type: str, term: Term, biases: Sequence[Term], emit: Emit, **attributes: int) -> tuple[str, ...]:
    """Write the recurrence `term` as an ONNX node, and return the names of the node's outputs.

    The first output is Y [t, 1, n, k].

    `biases` contains the bias of the products with the input, and then the bias of the products with the state.
    """
    x, w, r, _, *states = term.args
    turned = [apply("transpose", weight, perm=(1, 0)) for weight in (w, r)]
    parts = [*turned, apply("concat", *biases, axis=0)]
    weights = [apply("reshape", part, shape=(1, *part.shape)) for part in parts]
    first = [apply("reshape", state, shape=(1, *state.shape)) for state in states]
    count, size = 1 + len(states), states[0].sizes[-1]
    return emit.several(op_type, x, *weights, None, *first, outputs=count, hidden_size=size, **attributes)


def shape_of(
    gates: int, biases: int, x: Tensor, w: Tensor, r: Tensor, b: Tensor, *states: Tensor
) -> tuple[Extent, Extent, Extent]:
    """Require that the shapes of a recurrence's operands fit together, and return the extents t, n and k.

    t is the number of steps, n is the batch size, and k is the size of a state. `gates` is the number of gates, and `biases` is
    the number of bias vectors of size k.
    """
    ranks = [t.rank for t in (x, w, r, b, *states)]
    require(ranks == [3, 2, 2, 1] + [2] * len(states), "a recurrence: x[3], w[2], r[2], b[1] and states[2]")
    n, k = states[0].shape
    for state in states:
        require(same(state.shape[0], x.shape[1]), "a recurrence: a state for every row")
        require(same(state.shape[1], k), "a recurrence: states are of one size")
    require(same(w.shape[0], x.shape[2]), "a recurrence: a weight for every input")
    require(same(r.shape[0], k), "a recurrence: a weight for every state")
    require(same(w.shape[1], gates * k), "a recurrence: weights of the input for every gate")
    require(same(r.shape[1], gates * k), "a recurrence: weights of the state for every gate")
    require(same(b.shape[0], biases * k), "a recurrence: the biases of every gate")
    return x.shape[0], n, k
