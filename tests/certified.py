"""Models for tests, rewritten without measured times, and their certificates."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from superopt.flows.certificate import Evidence
from superopt.flows.verify import verify
from superopt.model.constant_folding import fold_known_values
from superopt.model.islands import Chart
from superopt.model.load import load
from superopt.model.save import save
from superopt.report.optimization import Arithmetic
from superopt.report.verification import Verification
from superopt.rules.fp_flags import ALL_FLAGS
from superopt.rules.rule import Rule
from superopt.search.apply import State, Step, successors
from superopt.search.backtracking import SearchResult
from superopt.search.ruleset import RuleSet
from superopt.search.segments import Gain, Segment, whole_islands
from superopt.search.selection import splice_passes
from tests.models import model, weight

Find = Callable[[State], SearchResult | None]


class Certified:
    """An original model, its rewritten version and the certificate, each in a file of `folder`.

    Each search of `passes` runs once on the islands of the model.
    """

    def __init__(self, proto: onnx.ModelProto, passes: Sequence[Find], rules: Sequence[Rule], folder: Path) -> None:
        self.original, self.optimized, self.file = (folder / name for name in ("in.onnx", "out.onnx", "certificate.json"))
        onnx.save(proto, self.original)
        given = load(self.original).model
        here = fold_known_values(given)
        taken: list[tuple[Gain, ...]] = []
        for find in passes:
            copies: dict[State, list[Segment]] = {}
            for segment in whole_islands(Chart(here), {}):
                copies.setdefault(segment.state, []).append(segment)
            found = {state: find(state) for state in copies}
            gains = tuple(Gain(tuple(copies[s]), f, ()) for s, f in found.items() if f is not None and f.steps)
            if gains:
                taken.append(gains)
                here = splice_passes(here, (gains,))
        self.steps = sum(len(gain.found.steps) for gains in taken for gain in gains)
        save(here, self.optimized)
        flags = {flag.value for flag in ALL_FLAGS} if taken else set()
        evidence = Evidence(given, bool(taken), tuple(taken), rules, arithmetic=Arithmetic(flags=tuple(sorted(flags))))
        self.file.write_text(evidence.certificate(here), encoding="utf-8")

    @property
    def record(self) -> Any:
        """Return the certificate as parsed JSON."""
        return json.loads(self.file.read_text(encoding="utf-8"))

    def verified(self, record: Any = None) -> Verification:
        """Run `verify` on both models with the certificate, or with `record` in place of the certificate."""
        text = self.file.read_text(encoding="utf-8") if record is None else json.dumps(record)
        return verify(self.original, self.optimized, text)


def at_random(rules: RuleSet, seed: int, steps: int = 4) -> Find:
    """Return a search that applies up to `steps` random rewrites."""

    def find(state: State) -> SearchResult | None:
        rng, here, taken = random.Random(seed), state, list[Step]()
        for _ in range(steps):
            ways = [way for way, _ in zip(successors(here, rules), range(200), strict=False)]
            if not ways:
                break
            name = rng.choice(sorted({step.rule for _, step in ways}))
            here, step = rng.choice([way for way in ways if way[1].rule == name])
            taken.append(step)
        return SearchResult(here, tuple(taken), 1.0, 0.0, 0, "") if taken else None

    return find


# ---------------------------------------------------------------- models


def branches(batch: int | str = 4) -> onnx.ModelProto:
    """Return a model that adds two products of one input, and ends in a linear layer and a softmax."""
    nodes = [helper.make_node("MatMul", ["x", name], [f"{name}x"]) for name in "wv"]
    nodes += [helper.make_node("Add", ["wx", "vx"], ["s"]), helper.make_node("Relu", ["s"], ["r"])]
    nodes += [helper.make_node("MatMul", ["r", "u"], ["t"]), helper.make_node("Add", ["t", "b"], ["z"])]
    nodes += [helper.make_node("Softmax", ["z"], ["y"], axis=-1)]
    weights = [weight("w", 16, 16), weight("v", 16, 16), weight("u", 16, 8), weight("b", 8)]
    return model(nodes, {"x": [batch, 16]}, {"y": [batch, 8]}, weights)


def images() -> onnx.ModelProto:
    """Return a model with two convolutions of one tensor and a max pool."""
    one: dict[str, Any] = {"kernel_shape": [1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
    ]
    nodes += [helper.make_node("Conv", ["r", "a"], ["p"], **one), helper.make_node("Conv", ["r", "d"], ["q"], **one)]
    nodes += [
        helper.make_node("Add", ["p", "q"], ["s"]),
        helper.make_node("MaxPool", ["s"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    nodes += [helper.make_node("Concat", ["m", "m"], ["y"], axis=1)]
    weights = [weight("k", 6, 3, 3, 3), weight("a", 4, 6, 1, 1), weight("d", 4, 6, 1, 1)]
    return model(nodes, {"x": [1, 3, 8, 8]}, {"y": [1, 8, 4, 4]}, weights)


def reshaped(batch: int | str = "batch") -> onnx.ModelProto:
    """Return a model of attention scores with two heads over a dynamic batch."""
    nodes = [helper.make_node("MatMul", ["x", name], [f"{name}x"]) for name in "qk"]
    nodes += [helper.make_node("Reshape", [f"{name}x", "shape"], [f"{name}h"]) for name in "qk"]
    nodes += [helper.make_node("Transpose", [f"{name}h"], [f"{name}t"], perm=[0, 2, 1, 3]) for name in "qk"]
    nodes += [
        helper.make_node("Transpose", ["kt"], ["kT"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["qt", "kT"], ["scores"]),
    ]
    nodes += [helper.make_node("Mul", ["scores", "half"], ["scaled"]), helper.make_node("Softmax", ["scaled"], ["y"], axis=-1)]
    stored = [
        numpy_helper.from_array(np.array([0, 4, 2, 3]), "shape"),
        numpy_helper.from_array(np.array(0.5, np.float32), "half"),
    ]
    return model(nodes, {"x": [batch, 4, 6]}, {"y": [batch, 2, 4, 4]}, [weight("q", 6, 6), weight("k", 6, 6), *stored])


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "branches": branches,
    "dynamic branches": lambda: branches("batch"),
    "images": images,
    "heads": lambda: reshaped(3),
    "dynamic heads": reshaped,
}
