"""The report of `superopt diff`: the equal and the different nodes and weights of two models, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class NodeSummary:
    """A node: its operator, the names of its inputs and outputs, and the path to the control flow body that contains the node.

    The path is an empty text for a node of the top graph.
    """

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    graph: str = ""

    def __str__(self) -> str:
        where = f" in {self.graph}" if self.graph else ""
        return f"{', '.join(self.outputs)} = {self.operator}({', '.join(self.inputs)}){where}"


@dataclass(frozen=True)
class WeightSummary:
    """An initializer: its name, element type, shape and bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class ModelDifference:
    """The difference of two models.

    Nodes are paired by the names of their first outputs. Initializers are paired by their names.

    Attributes:
        first: The name of the first model.
        second: The name of the second model.
        opsets: The opset of each model.
        kept: The number of nodes that have the same operator, attributes, inputs and outputs in both models.
        changed: Pairs of a node of the first model and a node of the second model. The nodes of a pair have the same first
            output, but their operators, attributes, inputs or outputs differ.
        removed: The nodes that only the first model has.
        added: The nodes that only the second model has.
        operators: The number of nodes in each model, by operator.
        weights_kept: The number of initializers with the same elements in both models.
        weights_changed: The initializers that both models have, with different elements or different shapes. The entries
            describe the initializers of the second model.
        weights_removed: The initializers that only the first model has.
        weights_added: The initializers that only the second model has.
        weight_bytes: The bytes of all tensors of each model.
    """

    first: str
    second: str
    opsets: tuple[int, int]
    kept: int
    changed: tuple[tuple[NodeSummary, NodeSummary], ...]
    removed: tuple[NodeSummary, ...]
    added: tuple[NodeSummary, ...]
    operators: Mapping[str, tuple[int, int]]
    weights_kept: int
    weights_changed: tuple[WeightSummary, ...]
    weights_removed: tuple[WeightSummary, ...]
    weights_added: tuple[WeightSummary, ...]
    weight_bytes: tuple[int, int]

    def json(self) -> str:
        """Return the difference as a JSON object with a final newline."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


def difference_lines(found: ModelDifference) -> Iterator[str]:
    """Yield the difference as lines of text, similar to the output of the program `diff`."""
    yield f"--- {found.first}"
    yield f"+++ {found.second}"
    for before, after in found.changed:
        yield f"- {before}"
        yield f"+ {after}"
    yield from (f"- {node}" for node in found.removed)
    yield from (f"+ {node}" for node in found.added)
    yield from (f"- weight {weight}" for weight in found.weights_removed)
    yield from (f"~ weight {weight}" for weight in found.weights_changed)
    yield from (f"+ weight {weight}" for weight in found.weights_added)
    totals = [sum(counts[place] for counts in found.operators.values()) for place in (0, 1)]
    yield (
        f"nodes: {totals[0]} to {totals[1]}: {found.kept} kept, {len(found.changed)} changed, {len(found.removed)} removed, "
        f"{len(found.added)} added"
    )
    yield from (f"    {name}: {a} to {b}" for name, (a, b) in found.operators.items() if a != b)
    megabytes = " to ".join(f"{size / 1e6:.2f} MB" for size in found.weight_bytes)
    yield (
        f"weights: {megabytes}: {found.weights_kept} kept, {len(found.weights_changed)} changed, "
        f"{len(found.weights_removed)} removed, {len(found.weights_added)} added"
    )
    if found.opsets[0] != found.opsets[1]:
        yield f"opset: {found.opsets[0]} to {found.opsets[1]}"
