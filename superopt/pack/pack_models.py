"""Pack models: merge models into one model, check the outputs of the merged model, and optimize the merged model."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from superopt.budget import duration_seconds
from superopt.child.process import reuse_child
from superopt.errors import CheckFailedError, InvalidModelError
from superopt.flows.compare import output_difference, worst_differences
from superopt.flows.optimize import optimize
from superopt.model.dimensions import representative_sizings
from superopt.model.external_data import Scratch, temporary_scratch
from superopt.model.load import Loaded, Model, Source, count, load, weight_bytes
from superopt.model.merge_models import merge_models
from superopt.model.save import loadable, save
from superopt.policy import COMPARISON, PACK
from superopt.protobuf.stored import Loadable, parse_model
from superopt.report.comparison import OutputDifference
from superopt.report.packing import PackedTenant, PackReport
from superopt.report.progress import Listener, Progress, ignore_progress
from superopt.runtime.feasible import Feasible, find_feasible
from superopt.runtime.hardware import core_count
from superopt.runtime.input_source import InputSource
from superopt.runtime.session import Array, Device, Session


@dataclass(frozen=True, eq=False)
class Packed:
    """A packed model and the report about it.

    The packed model has the outputs of all tenants. `NAME/` precedes the names of the inputs and outputs of the tenant NAME,
    apart from shared inputs.
    """

    model: Model
    report: PackReport

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to `path`. Tensors go into a data file if some tensors were external (see `superopt.model.save`).

        Raises:
            TargetError: A file cannot be written.
        """
        save(self.model, path)


def pack_models(
    models: Mapping[str, Source],
    *,
    shared_inputs: Collection[str] = (),
    budget: float | str | None = None,
    provider: str = "cpu",
    threads: int | None = None,
    seed: int = 0,
    stop: threading.Event | None = None,
    progress: Listener | None = None,
) -> Packed:
    """Return a packed model: several models that are served together, merged into one model and optimized.

    The merged model contains equal weights and equal nodes only once (see `merge_models`). On random inputs, the outputs of the
    merged model are compared with the outputs of the given models.

    Args:
        models: The models, in any form that `superopt.optimize` accepts, by the names of the tenants.
        shared_inputs: The names of shared inputs. A shared input is one input of the packed model for all tenants with an input
            of this name.
        budget: The seconds for the search in the merged model, as in `superopt.optimize`. If the budget is 0, there is no
            search.
        provider: "cpu", "cuda" or "tensorrt".
        threads: The number of CPU threads of a session. By default, a session uses all cores.
        seed: The seed of every random choice.
        stop: An event that ends the search, as in `superopt.optimize`.
        progress: Receives progress reports.

    Raises:
        PackError: The models do not fit together.
        ModelNotFoundError, InvalidModelError: A model cannot be loaded, or cannot be run on random inputs.
        OpsetError: A model cannot be converted to the newest opset among the models.
        CheckFailedError: An output of the merged model differs too much from the output of a given model.
    """
    told = progress or ignore_progress
    seconds = None if budget is None else duration_seconds(budget)
    told(Progress("load"))
    loaded = {name: load(source) for name, source in models.items()}
    merged = merge_models({name: one.model for name, one in loaded.items()}, shared_inputs)
    device = Device(provider, threads or core_count())
    told(Progress("check"))
    outputs, inputs = compare_tenants(loaded, merged, device, seed)
    tenants = tuple(
        PackedTenant(name, one.label, count(one.model), weight_bytes(one.model), outputs[name]) for name, one in loaded.items()
    )
    report = PackReport(tenants, tuple(shared_inputs), count(merged), weight_bytes(merged), inputs)
    if seconds == 0:
        return Packed(merged, report)
    optimized = optimize(
        merged, provider=provider, budget=seconds, threads=threads, seed=seed, stop=stop, progress=progress, metadata=False
    )
    return Packed(optimized.model, replace(report, optimization=optimized.report))


def compare_tenants(
    loaded: Mapping[str, Loaded], merged: Model, device: Device, seed: int = 0
) -> tuple[dict[str, tuple[OutputDifference, ...]], int]:
    """Compare the outputs of the merged model with the outputs of the originals on the same random inputs.

    Return a mapping from tenants to the largest differences of their outputs, and the number of sets of inputs. If two runs of
    a tenant on equal inputs give different outputs, the outputs are not compared, and the tenant has no differences.

    Raises:
        InvalidModelError: A model cannot be run on random inputs.
        CheckFailedError: An output of the merged model differs too much from the output of an original.
    """
    with temporary_scratch() as scratch, reuse_child():
        packed = loadable(merged, scratch)
        session = Session(packed, device)
        feasible = feasible_inputs(merged, packed, session)
        ports = session.inputs
        feeds = [
            feasible.source.values(ports, seed + turn, at)
            for at in feasible.sizes
            for turn in range(COMPARISON.min_compared_inputs)
        ]
        made = [dict(zip(session.outputs, session.run(values), strict=True)) for values in feeds]
        del session
        found = {name: _tenant_differences(name, one, feeds, made, device, scratch) for name, one in loaded.items()}
    return found, len(feeds)


def feasible_inputs(model: Model, stored: Loadable, session: Session) -> Feasible:
    """Return sizes of the dynamic dimensions, and a source of random inputs of these sizes, with which the model runs.

    Raises:
        InvalidModelError: The model cannot be run on random inputs.
    """
    sizes = [sizing.numbers for sizing in representative_sizings(model, ())]
    source = InputSource().bounded(parse_model(stored, external=False))
    feasible = find_feasible(session, sizes, source, chosen=False)
    if feasible.error:
        raise InvalidModelError(f"the merged model cannot be run on random inputs: {feasible.error}")
    return feasible


def tenant_inputs(name: str, own: Collection[str], packed: Collection[str]) -> dict[str, str]:
    """Return a mapping from the names of a tenant's own inputs to the names of these inputs in the packed model.

    `own` contains the names of the inputs of the tenant `name`, and `packed` contains the names of the packed model's inputs.
    """
    return {key: full if (full := f"{name}/{key}") in packed else key for key in own}


def _tenant_differences(
    name: str,
    loaded: Loaded,
    feeds: list[dict[str, Array]],
    made: list[dict[str, Array]],
    device: Device,
    scratch: Scratch,
) -> tuple[OutputDifference, ...]:
    """Return the largest difference of each output of a tenant over all inputs.

    Raises:
        CheckFailedError: A difference is too large.
    """
    session = Session(loadable(loaded.model, scratch, loaded.path), device)
    runs: list[list[OutputDifference]] = []
    for values, results in zip(feeds, made, strict=True):
        names = tenant_inputs(name, [port.name for port in session.inputs], values)
        own = {key: values[full] for key, full in names.items()}
        wanted, again = session.run(own), session.run(own)
        if not all(map(_is_equal, session.outputs, wanted, again)):
            return ()
        runs.append(
            [
                output_difference(f"{name}/{key}", value, results[f"{name}/{key}"])
                for key, value in zip(session.outputs, wanted, strict=True)
            ]
        )
    found = tuple(worst_differences([run[place] for run in runs]) for place in range(len(session.outputs)))
    for one in found:
        if one.different or one.relative > PACK.max_relative_difference:
            raise CheckFailedError(f"the output {one.name!r} of the merged model differs from the output of {loaded.label}")
    return found


def _is_equal(name: str, first: object, second: object) -> bool:
    """Return whether two values of the output `name` are equal."""
    found = output_difference(name, first, second)
    return found.largest == 0 and found.different == 0
