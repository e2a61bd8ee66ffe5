"""The report of `superopt inspect`: the parts of a model that superopt can rewrite, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

from superopt.model.coverage import UncoveredNodes
from superopt.report.number_texts import duration


@dataclass(frozen=True)
class IslandContent:
    """The content of an island (a region of a model that a search can rewrite).

    Attributes:
        nodes: The number of nodes.
        dtype: The floating-point type of the values.
        operators: The number of nodes by operator.
        graph: The path to the control flow body that contains the island. The text is empty if the top graph contains the
            island.
        outputs: The names of the values that are used outside the island.
    """

    nodes: int
    dtype: str
    operators: Mapping[str, int]
    graph: str
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Inspection:
    """The content of a model, with the parts that superopt can rewrite (islands) and the remaining nodes.

    Attributes:
        model: The name of the model.
        digest: The content digest, as in certificates.
        opset: The version of the standard operators.
        domains: A mapping from each domain of nonstandard operators to the version of the domain.
        nodes: The number of nodes in the file, including bodies of control flow.
        operators: The number of nodes in the file by operator.
        analyzed: The number of nodes after function calls were inlined and constants were folded. The islands consist of these
            nodes.
        helpers: The number of helper nodes among the analyzed nodes. A helper node computes constants, shapes or positions, and
            needs no island.
        islands: The islands, in the order of the model.
        uncovered: The analyzed nodes that no search can rewrite, by operator and reason.
        sizes: The default size of each dynamic dimension for measurements of the model.
        assumptions: The statements about dynamic dimensions on which rewrites rely.
        weights: The bytes of the weights by element type.
        types: The number of node results of each floating-point type.
        provenance: The entries that superopt wrote to the model's metadata, if superopt rewrote the model.
        seconds: The time of all nodes in a run on one thread, in seconds. The value is 0 if no run succeeded, and None if the
            time was not measured.
        problem: The reason why the model cannot be analyzed. In this case, `islands` is empty. If the model can be analyzed,
            the text is empty.
    """

    model: str
    digest: str
    opset: int
    domains: Mapping[str, int]
    nodes: int
    operators: Mapping[str, int]
    analyzed: int
    helpers: int
    islands: tuple[IslandContent, ...]
    uncovered: tuple[UncoveredNodes, ...]
    sizes: Mapping[str, int]
    assumptions: tuple[str, ...]
    weights: Mapping[str, int]
    types: Mapping[str, int]
    provenance: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None
    problem: str = ""

    @property
    def nodes_in_islands(self) -> int:
        """The number of analyzed nodes in islands."""
        return sum(island.nodes for island in self.islands)

    def json(self) -> str:
        """Return the inspection as a JSON object with a final newline."""
        record = {**asdict(self), "nodes_in_islands": self.nodes_in_islands}
        return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def inspection_lines(found: Inspection) -> Iterator[str]:
    """Yield the inspection as lines of text."""
    others = "".join(f", {domain} {version}" for domain, version in found.domains.items())
    yield f"{found.model}: {_plural(found.nodes, 'node')}, opset {found.opset}{others}"
    yield f"digest: {found.digest}"
    megabytes = ", ".join(f"{size / 1e6:.2f} MB {name}" for name, size in found.weights.items())
    yield f"weights: {sum(found.weights.values()) / 1e6:.2f} MB{f' ({megabytes})' if len(found.weights) > 1 else ''}"
    yield f"floating-point types of results: {', '.join(f'{name} ({n})' for name, n in found.types.items()) or 'none'}"
    sizes = ", ".join(f"{name} ({size})" for name, size in found.sizes.items())
    yield f"dynamic dimensions (and the sizes at which the model is measured): {sizes}" if sizes else "dynamic dimensions: none"
    yield from (f"{key}: {value}" for key, value in found.provenance.items())
    yield f"operators: {_counts(found.operators)}"
    if found.problem:
        yield f"islands: none, because {found.problem}"
        return
    inside, outside = found.nodes_in_islands, sum(row.nodes for row in found.uncovered)
    yield (
        f"after functions are inlined and constants folded: {_plural(found.analyzed, 'node')}, {inside} in islands, "
        f"{outside} not understood, {found.helpers} only constants, shapes or positions"
    )
    yield f"islands (regions that a search can rewrite): {len(found.islands)}"
    for island in found.islands:
        where = f" in {island.graph}" if island.graph else ""
        yield f"    {_plural(island.nodes, 'node')}, {island.dtype}{where}: {_counts(island.operators)}"
    if found.seconds is not None:
        known = f"{duration(found.seconds)}, without ONNX Runtime's own optimizations"
        yield f"time of all nodes on one thread: {known if found.seconds else 'the model could not be run'}"
    yield f"not understood: {outside or 'none'}"
    for row in found.uncovered:
        share = f", {row.share:.1%} of the time" if found.seconds else ""
        yield f"    {row.nodes} {row.operator}{share}: {row.reason}"


def _counts(operators: Mapping[str, int]) -> str:
    ordered = sorted(operators.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {name}" for name, count in ordered) or "none"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
