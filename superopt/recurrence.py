"""Recurrences: a step in notation, applied once for every element of a sequence; what operators such as LSTM are defined by."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from superopt.graph import Term
from superopt.op import apply, registry
from superopt.text import parse


@dataclass(frozen=True, eq=False)
class Recurrence:
    """How the states after a step follow from those before it, from an element `x` of the sequence and from weights.

    `step` is notation text with one output for each of the `states`. `weights` says, for each operand that is a matrix, by what
    names the step knows its equal parts, which lie side by side along its last axis; `biases`, for each that is a vector, which
    is added to every row, so the step sees its parts expanded to the shape of a state. `every` is the operator whose result has
    the first state after every step; `last` are those whose results are the other states after the last one. All take the
    sequence, the weights, the biases and the states before the first step, in this order.
    """

    step: str
    states: tuple[str, ...]
    weights: Mapping[str, tuple[str, ...]]
    biases: Mapping[str, tuple[str, ...]]
    every: str
    last: tuple[str, ...] = ()

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """The parts of weights, then those of biases."""
        return {**self.weights, **self.biases}

    @property
    def names(self) -> tuple[str, ...]:
        """By what names the step knows the parts of weights and biases."""
        return tuple(name for names in self.parts.values() for name in names)

    @property
    def name(self) -> str:
        """By what name a rewrite by this definition is told."""
        return f"{self.every}.definition"

    @property
    def text(self) -> str:
        """The definition as one line."""
        operands = ", ".join(["x", *self.parts, *self.states])
        return f"{self.every}({operands}): ({', '.join(self.states)}) => {' '.join(self.step.split())}"

    def after(self, operands: Mapping[str, Term]) -> tuple[Term, ...]:
        """The states after one step, given `x`, the states before it and the parts of the weights, each by its name."""
        return parse(" ".join(self.step.split()), operands)

    def unrolled(self, x: Term, *operands: Term) -> list[tuple[Term, ...]]:
        """The states after every step over x[t, n, i], given weights, biases and the first states [n, k]."""
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
    """Every recurrence that specs/ defines operators by, in alphabetical order of these."""
    return tuple(spec.module.RECURRENCE for spec in registry().values() if hasattr(spec.module, "RECURRENCE"))


def stacked(elements: Sequence[Term]) -> Term:
    """The elements, each of shape [n, k], as one sequence [t, n, k]."""
    rows = [apply("reshape", e, shape=(1, *e.shape)) for e in elements]
    result = rows.pop()
    while rows:
        result = apply("concat", rows.pop(), result, axis=-3)
    return result
