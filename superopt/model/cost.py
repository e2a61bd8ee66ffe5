"""The measured cost of segments of a model, which is what the search minimizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from onnx import ModelProto, helper

from superopt.errors import ShapeError
from superopt.graph import Term, variables
from superopt.model.kernel import random_values
from superopt.model.lower import is_boolean, literal, lower
from superopt.model.measure import Clock
from superopt.model.nodes import Hollow, model_of
from superopt.model.session import Array

_LARGE = 1024
"""Bytes from which a weight is left without values, for ONNX Runtime's optimizations do not look at them."""
_LITERAL = 1 << 16
"""Elements up to which numbers that are known are there: of zeros that are added, ONNX Runtime makes no node."""


class Measured:
    """The measured cost of segments of a model with this opset; what the search minimizes.

    Weights, and what is made of weights alone, are initializers of the right shapes: small ones with random values, large ones
    with none, unless their numbers are known. No weight is computed.
    """

    def __init__(self, clock: Clock, opset: int, *, dtype: DTypeLike = np.float32) -> None:
        self.clock = clock
        self.opset = opset
        self.dtype = np.dtype(dtype)
        self._known: dict[tuple[frozenset[Term], frozenset[Term]], float] = {}
        self._expressible: dict[tuple[Term, ...], str] = {}
        self._reference: tuple[tuple[Term, ...], ModelProto] | None = None

    def seconds(self, outputs: tuple[Term, ...], beside: tuple[Term, ...] | None = None) -> float:
        """The time of one run of the segment with these outputs, measured `beside` that with others if they are given.

        Raises:
            InvalidModelError: ONNX Runtime cannot run the segment.
            ShapeError: the opset cannot express it.
        """
        wanted = _computed(outputs)
        if not wanted:
            return 0.0
        others = _computed(beside or ())
        if (wanted, others) not in self._known:
            model = self.model(outputs)
            seconds = self.clock.beside(model, self._known_model(beside)) if beside and others else self.clock.seconds(model)
            self._known[wanted, others] = seconds
        return self._known[wanted, others]

    def stands(self, before: tuple[Term, ...], after: tuple[Term, ...], predicted: float, least: float) -> bool:
        """Whether the second segment is believed to be faster than the first after a second look, see `Clock.stands`."""
        return self.clock.stands(self.model(before), self.model(after), predicted, least)

    def ratio(self, before: tuple[Term, ...], after: tuple[Term, ...]) -> float:
        """How many times as fast the second segment is, see `Clock.ratio`."""
        return self.clock.ratio(self.model(before), self.model(after))

    def require_expressible(self, outputs: tuple[Term, ...]) -> None:
        """Nothing happens if nodes can compute the outputs at all sizes.

        Raises:
            ShapeError: they cannot.
        """
        if outputs not in self._expressible:
            wanted = {f"output.{n}": t for n, t in enumerate(outputs) if not t.constant and not t.is_variable}
            try:
                lower(wanted, self.opset, constant=self._hollow, dtype=self.dtype)
                self._expressible[outputs] = ""
            except ShapeError as error:
                self._expressible[outputs] = str(error)
        if self._expressible[outputs]:
            raise ShapeError(self._expressible[outputs])

    def _known_model(self, outputs: tuple[Term, ...]) -> ModelProto:
        """As `model`; what many are measured beside is made once."""
        if self._reference is None or self._reference[0] != outputs:
            self._reference = outputs, self.model(outputs)
        return self._reference[1]

    def _hollow(self, term: Term) -> Array:
        """A weight of which type and shape alone matter."""
        return Hollow.of(self._dtype_of(term), term.sizes)

    def _dtype_of(self, term: Term) -> np.dtype[Any]:
        return np.dtype(np.bool_) if is_boolean(term) else self.dtype

    def model(self, outputs: tuple[Term, ...]) -> ModelProto:
        """The segment as a model by itself. Outputs that no node computes are left out."""
        terms = dict.fromkeys(t for t in outputs if not t.constant and not t.is_variable)
        wanted = {f"output.{position}": term for position, term in enumerate(terms)}
        salts = itertools.count()

        def constant(term: Term) -> Array:
            dtype = self._dtype_of(term)
            if not variables(term) and math.prod(term.sizes) <= _LITERAL:
                return literal(term, dtype)
            if math.prod(term.sizes) * dtype.itemsize >= _LARGE:
                return self._hollow(term)
            return random_values(helper.np_dtype_to_tensor_dtype(dtype), term.sizes, next(salts))

        lowered = lower(wanted, self.opset, constant=constant, dtype=self.dtype)
        read = {name for node in lowered.nodes for name in node.inputs}
        leaves = [v for v in variables(*terms) if v.name in read]
        weights = {v.name: constant(v) for v in leaves if v.constant}
        whole = replace(lowered, initializers=weights | dict(lowered.initializers))
        return model_of(whole, [v for v in leaves if not v.constant], wanted, self.opset, self.dtype)


def _computed(outputs: Sequence[Term]) -> frozenset[Term]:
    """The outputs that take work."""
    return frozenset(t for t in outputs if not t.constant and not t.is_variable)
