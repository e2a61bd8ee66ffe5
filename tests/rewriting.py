"""Helpers that rewrite models without measured times, and compare the outputs of the models."""

from __future__ import annotations

import importlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from superopt.algebra.dim_binding import DimBinding
from superopt.algebra.terms import subterms
from superopt.errors import InvalidModelError, ShapeError
from superopt.model.islands import Charts
from superopt.model.load import Model, ModelProto, as_model, as_proto
from superopt.model.splice import Replacement, require_valid, splice
from superopt.rules.rule import Rule
from superopt.runtime.session import Device, Session
from superopt.search.apply import State, successors
from superopt.search.ruleset import RuleSet
from superopt.search.segments import Segment, relower, segments, whole_islands
from tests.walks import walk

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]
TOLERANCE = 2e-3
"""The largest change of an element by rounding, as a share of the largest element of its output."""
STEPS = 4
LARGEST = 1e6
"""The largest number of elements of a segment during a random walk."""
PRODUCTS = frozenset({"matmul", "conv"})


@dataclass
class Rewriter:
    """A rewriter of models that ignores times.

    `applied` lists the rules that were used. `refused` counts the replacements that cannot be lowered.
    """

    rules: Sequence[Rule]
    rule_set: RuleSet
    charts: Charts = field(default_factory=Charts)
    applied: list[str] = field(default_factory=list)
    refused: int = 0

    def walked(self, model: Model, rng: random.Random) -> Model:
        """Return the model after random rewrites of every segment, with every island lowered again."""

        def chosen(part: Segment, sizing: DimBinding) -> State:
            state, steps = walk(part.state, self.rule_set, rng, steps=STEPS, largest=LARGEST, sizing=sizing)
            self.applied += steps
            return state

        return self.lowered(self.replaced(model, chosen))

    def cheapest(self, model: Model) -> Model:
        """Return the model with as few products and elements as greedy rewrites reach, and with every island lowered again."""

        def chosen(part: Segment, sizing: DimBinding) -> State:
            return self.descended(part.state, sizing)

        return self.lowered(self.replaced(model, chosen))

    def descended(self, state: State, sizing: DimBinding) -> State:
        """Apply the rewrite that lowers the cost most until no rewrite lowers the cost, and return the final state."""
        while True:
            options = [
                (cost(after, sizing), number, after, step)
                for number, (after, step) in enumerate(successors(state, self.rule_set))
            ]
            if not options or min(options)[0] >= cost(state, sizing):
                return state
            _, _, state, step = min(options)
            self.applied.append(step.rule)

    def replaced(self, model: Model, chosen: Callable[[Segment, DimBinding], State]) -> Model:
        """Return the model with every segment replaced by the state that `chosen` returns."""
        replacements: list[Replacement] = []
        for part in segments(self.charts.of(model), {}):
            island = part.island
            sizing = next((one for one in island.sizings if is_defined(part.state, one)), None)
            if sizing is None:
                continue
            outputs = dict(zip(island.outputs, part.form.restored(chosen(part, sizing)), strict=True))
            replacements.append(Replacement(outputs, island.dtype, island.conditions, island.sizings, island.scope))
        return self.placed(model, replacements)

    def lowered(self, model: Model) -> Model:
        """Return the model with every island lowered again."""
        gains = relower(whole_islands(self.charts.of(model), {}), list(self.rules))
        return self.placed(model, [replacement for gain in gains for replacement in gain.replacements()])

    def placed(self, model: Model, replacements: Sequence[Replacement]) -> Model:
        """Return the model with all replacements that can be lowered."""
        try:
            return splice(model, replacements)
        except ShapeError:
            lowered = [one for one in replacements if self._is_lowered(model, one)]
            return splice(model, lowered)

    def _is_lowered(self, model: Model, replacement: Replacement) -> bool:
        """Return whether the replacement can be lowered, and count the replacement if not."""
        try:
            splice(model, [replacement])
        except ShapeError:
            self.refused += 1
            return False
        return True

    def result(self, proto: ModelProto, rewritten: Callable[[Model], Model]) -> ModelProto:
        """Return the model after the preparation of `optimize` and the given rewrite, and check that it is valid."""
        model = as_model(proto)
        found = rewritten(self.charts.begun(model))
        require_valid(found, model)
        return as_proto(found)


def always_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every correct candidate count as faster."""
    monkeypatch.setattr("superopt.search.segment_search.SegmentSearch._faster", lambda *_: 1.5)
    monkeypatch.setattr("superopt.search.segment_search.SegmentSearch._stands", lambda *_: True)
    monkeypatch.setattr("superopt.runtime.multi_shape.SizeComparisons.faster", property(lambda _: True))
    monkeypatch.setattr(importlib.import_module("superopt.flows.optimize"), "ratio_in_context", lambda *_: None)


def cost(state: State, sizing: DimBinding) -> tuple[int, int]:
    """Return the number of products in a state, and a measure of its number of elements."""
    live = [t for t in subterms(*map(sizing.at, state), constants=False) if not t.is_variable]
    return sum(t.op in PRODUCTS for t in live), sum(1 + math.prod(t.sizes) for t in live)


def is_defined(state: State, sizing: DimBinding) -> bool:
    """Return whether the terms are defined at these sizes."""
    try:
        return all(map(sizing.at, state))
    except ShapeError:
        return False


def plain_session(proto: ModelProto) -> Session:
    """Return a session without ONNX Runtime's graph optimizations."""
    return Session(proto, Device(), optimize=False)


def outputs_of(session: Session, feeds: Feeds) -> list[Array] | None:
    """Return the outputs, or None if the model does not run on these inputs."""
    try:
        return session.run(feeds)
    except InvalidModelError:
        return None


def difference(expected: Sequence[Array], session: Session, feeds: Feeds) -> str:
    """Describe how the session's outputs differ from the expected outputs, or return an empty text if they agree."""
    try:
        found = session.run(feeds)
    except InvalidModelError as error:
        return f"it does not run ({str(error)[-120:]})"
    for one, other in zip(expected, found, strict=True):
        if one.shape != other.shape:
            return f"shape {other.shape} instead of {one.shape}"
        allowed = 1e-6 + TOLERANCE * np.abs(one).max(initial=0) if one.dtype.kind == "f" else 0
        if not (np.abs(one - other) <= allowed).all():
            return f"values differ by {np.abs(one - other).max():.3g}, the largest is {np.abs(one).max():.3g}"
    return ""
