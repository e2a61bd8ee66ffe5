"""The report of `superopt pack`, as text and as JSON: the shared parts of packed models, and the differences of the outputs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from superopt.report.comparison import OutputDifference
from superopt.report.number_texts import counted
from superopt.report.optimization import Report
from superopt.report.optimization_summary import verdict


@dataclass(frozen=True)
class PackedTenant:
    """One of the models in a packed model.

    Attributes:
        name: The name of the tenant. The names of the tenant's outputs begin with this name.
        model: The label of the model.
        nodes: The number of nodes.
        weight_bytes: The bytes of all tensors.
        outputs: The largest difference of each output from the output of the original, over all compared inputs. The tuple is
            empty if the original gives different outputs for the same inputs.
    """

    name: str
    model: str
    nodes: int
    weight_bytes: int
    outputs: tuple[OutputDifference, ...]


@dataclass(frozen=True)
class PackReport:
    """The report of a packed model.

    Attributes:
        tenants: The models in the packed model.
        shared_inputs: The inputs that several tenants read.
        nodes: The number of nodes of the packed model before the search.
        weight_bytes: The bytes of all tensors of the packed model before the search.
        inputs: The number of sets of random inputs on which outputs were compared.
        optimization: The report of the search, or None if there was no search.
    """

    tenants: tuple[PackedTenant, ...]
    shared_inputs: tuple[str, ...]
    nodes: int
    weight_bytes: int
    inputs: int
    optimization: Report | None = None

    def json(self) -> str:
        """Return the report as a JSON object with a final newline."""
        search = None if self.optimization is None else json.loads(self.optimization.json())
        return json.dumps(asdict(self) | {"optimization": search}, indent=2, ensure_ascii=False) + "\n"


def pack_lines(report: PackReport) -> Iterator[str]:
    """Yield the report as lines of text."""
    nodes, weights = (sum(getattr(tenant, name) for tenant in report.tenants) for name in ("nodes", "weight_bytes"))
    yield (
        f"packed {counted(len(report.tenants), 'model')}: {counted(report.nodes, 'node')} in place of {nodes:,}, "
        f"{report.weight_bytes / 1e6:.2f} MB of weights in place of {weights / 1e6:.2f} MB"
    )
    for tenant in report.tenants:
        largest = max((output.relative for output in tenant.outputs), default=0.0)
        equal = all(output.largest == 0 and output.different == 0 for output in tenant.outputs)
        told = "outputs equal the original's" if equal else f"outputs differ by at most {largest:.1e} of their magnitude"
        yield f"    {tenant.name}/ ({tenant.model}): {told if tenant.outputs else 'random outputs, not compared'}"
    if report.shared_inputs:
        yield f"    shared inputs: {', '.join(report.shared_inputs)}"
    if report.optimization is not None:
        yield verdict(report.optimization).plain
