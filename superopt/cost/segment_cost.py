"""The measured cost of segments (parts of a model), which the search minimizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from onnx import ModelProto, helper

from superopt.algebra.terms import Term, variables
from superopt.cost.measure import Clock
from superopt.errors import ShapeError
from superopt.model.lower import is_boolean, lower
from superopt.model.operands import fold_literal_term
from superopt.policy import COST
from superopt.protobuf.nodes import Hollow, lowered_model_proto
from superopt.runtime.kernel import random_values
from superopt.runtime.session import Array


class Measured:
    """The measured cost of segments (parts of a model), which the search minimizes.

    Weights become initializers with the correct shapes. Terms that depend only on weights become initializers too. An
    initializer has its true values only if its term is small and contains no variables. Other small initializers have random
    values, and large initializers have no values.
    """

    def __init__(self, clock: Clock, opset: int, *, dtype: DTypeLike = np.float32) -> None:
        self.clock = clock
        self.opset = opset
        self.dtype = np.dtype(dtype)
        self._known: dict[tuple[frozenset[Term], frozenset[Term]], float] = {}
        self._ratios: dict[tuple[tuple[Term, ...], tuple[Term, ...]], float] = {}
        self._expressible: dict[tuple[Term, ...], str] = {}
        self._reference: tuple[tuple[Term, ...], ModelProto] | None = None

    def seconds(self, outputs: tuple[Term, ...], beside: tuple[Term, ...] | None = None) -> float:
        """Return the seconds of one run of the segment (a part of a model) that computes the terms in `outputs`.

        If `beside` contains the output terms of another segment, the two segments are timed alternately (see `Clock.beside`).

        Raises:
            InvalidModelError: ONNX Runtime cannot run the segment.
            ShapeError: the opset cannot express the segment.
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
        """Time two segments, and return whether the second segment is faster.

        `before` contains the outputs of the first segment (a part of a model), and `after` contains the outputs of the second
        segment. The two segments are timed alternately (see `Clock.stands`).
        """
        return self.clock.stands(self.model(before), self.model(after), predicted, least)

    def ratio(self, before: tuple[Term, ...], after: tuple[Term, ...]) -> float:
        """Return the speed of the second segment as a multiple of the first segment's speed.

        `before` contains the outputs of the first segment (a part of a model), and `after` contains the outputs of the second
        segment. `Clock.ratio` times each pair of segments once.
        """
        if (before, after) not in self._ratios:
            self._ratios[before, after] = self.clock.ratio(self.model(before), self.model(after))
        return self._ratios[before, after]

    def require_expressible(self, outputs: tuple[Term, ...]) -> None:
        """Check that ONNX nodes can compute the terms in `outputs` at all sizes of the dynamic dimensions.

        Raises:
            ShapeError: ONNX nodes cannot compute the terms at all sizes.
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
        """Return a model of the segment (a part of a model) with these outputs, and cache the last result.

        Many segments are timed alternately with one reference segment, so the model of the reference segment is requested again
        and again.
        """
        if self._reference is None or self._reference[0] != outputs:
            self._reference = outputs, self.model(outputs)
        return self._reference[1]

    def _hollow(self, term: Term) -> Array:
        """Return an array with arbitrary elements and with the type and shape of the weight `term`."""
        return Hollow.of(self._dtype_of(term), term.sizes)

    def _dtype_of(self, term: Term) -> np.dtype[Any]:
        return np.dtype(np.bool_) if is_boolean(term) else self.dtype

    def model(self, outputs: tuple[Term, ...]) -> ModelProto:
        """Return a model that computes the terms in `outputs`. Outputs that are constants or variables are left out."""
        terms = dict.fromkeys(t for t in outputs if not t.constant and not t.is_variable)
        wanted = {f"output.{position}": term for position, term in enumerate(terms)}
        salts = itertools.count()

        def constant(term: Term) -> Array:
            dtype = self._dtype_of(term)
            if not variables(term) and math.prod(term.sizes) <= COST.max_literal_elements:
                return fold_literal_term(term, dtype)
            if math.prod(term.sizes) * dtype.itemsize >= COST.min_valueless_weight_bytes:
                return self._hollow(term)
            return random_values(helper.np_dtype_to_tensor_dtype(dtype), term.sizes, next(salts))

        lowered = lower(wanted, self.opset, constant=constant, dtype=self.dtype)
        read = {name for node in lowered.nodes for name in node.inputs}
        leaves = [v for v in variables(*terms) if v.name in read]
        weights = {v.name: constant(v) for v in leaves if v.constant}
        whole = replace(lowered, initializers=weights | dict(lowered.initializers))
        return lowered_model_proto(whole, [v for v in leaves if not v.constant], wanted, self.opset, self.dtype)


def _computed(outputs: Sequence[Term]) -> frozenset[Term]:
    """Return the outputs that nodes must compute: the outputs that are neither constants nor variables."""
    return frozenset(t for t in outputs if not t.constant and not t.is_variable)
