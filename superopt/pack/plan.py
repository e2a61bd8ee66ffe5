"""Plan how several models, the tenants, are served together.

A plan contains packed models of some tenants, with their measured times.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from superopt.budget import duration_seconds
from superopt.child.process import reuse_child
from superopt.errors import PackError
from superopt.model.external_data import Scratch, temporary_scratch
from superopt.model.load import Model, Source, all_nodes, load
from superopt.model.save import loadable
from superopt.pack.pack_models import feasible_inputs, pack_models
from superopt.policy import PACK
from superopt.report.number_texts import duration
from superopt.report.progress import Listener, Progress, ignore_progress
from superopt.runtime.hardware import core_count
from superopt.runtime.session import Array, Device, Port, Session


@dataclass(frozen=True, eq=False)
class Variant:
    """A packed model of some tenants. One run of the model computes one request of each tenant.

    Attributes:
        tenants: The names of the tenants.
        model: The packed model.
        seconds: The measured seconds of one run.
    """

    tenants: tuple[str, ...]
    model: Model
    seconds: float


@dataclass(frozen=True, eq=False)
class ServePlan:
    """The variants with which a `Dispatcher` serves several models, and the facts about the models that the dispatcher needs.

    Attributes:
        variants: The variants. Each tenant has a variant of its own. A variant of several tenants is faster than smaller
            variants that together compute the requests of these tenants.
        slo: The seconds within which a request should be answered, from its arrival (service level objective).
        device: The device of the sessions.
        workers: The number of variants that run at the same time.
        inputs: The inputs of each tenant, under the tenant's own names.
        shared_inputs: The names of the inputs that are one input of the packed model for all tenants with an input of this
            name.
        fillers: For each tenant, valid values of its inputs, for runs of a variant without a request of this tenant.
    """

    variants: tuple[Variant, ...]
    slo: float
    device: Device
    workers: int
    inputs: Mapping[str, tuple[Port, ...]]
    shared_inputs: frozenset[str]
    fillers: Mapping[str, Mapping[str, Array]]

    def lines(self) -> Iterator[str]:
        """Yield a line for each variant: the tenants, the variant's seconds, and the total seconds of separate runs of the
        tenants.
        """
        alone = {variant.tenants[0]: variant.seconds for variant in self.variants if len(variant.tenants) == 1}
        for variant in self.variants:
            apart = sum(alone[name] for name in variant.tenants)
            more = f" in place of {duration(apart)}" if len(variant.tenants) > 1 else ""
            yield f"{', '.join(variant.tenants)}: {duration(variant.seconds)}{more}"


def serve_plan(
    models: Mapping[str, Source],
    *,
    slo: float | str,
    shared_inputs: Collection[str] = (),
    budget: float | str | None = None,
    provider: str = "cpu",
    threads: int = 1,
    workers: int | None = None,
    seed: int = 0,
    progress: Listener | None = None,
) -> ServePlan:
    """Make and measure variants for serving several models in one process, and return the plan for a `Dispatcher`.

    The plan has a variant for each tenant alone. A variant for all tenants is part of the plan if this variant is faster. If
    the variant for a set of tenants is faster, variants for the two halves of the set are tried too. Thus, few variants are
    made.

    Args:
        models: The models, in any form that `superopt.optimize` accepts, by the names of the tenants.
        slo: The seconds within which a request should be answered, or a text such as "20ms".
        shared_inputs: The names of shared inputs. A shared input is one input of the packed model for all tenants with an input
            of this name. Requests with different values of a shared input are not computed in one run.
        budget: The seconds for the searches in all packed models together. Half of the budget is for the variant of all
            tenants. By default, each search has the default budget of `superopt.optimize`. If the budget is 0, there is no
            search.
        provider: "cpu", "cuda" or "tensorrt".
        threads: The CPU threads of a session.
        workers: The number of sessions that run at the same time. By default, the number of cores divided by `threads`.
        seed: The seed of every random choice.
        progress: Receives progress reports.

    Raises:
        ValueError: `slo` is not positive and finite.
        SuperoptError: See `superopt.pack.pack_models.pack_models`.
    """
    told = progress or ignore_progress
    within, seconds = duration_seconds(slo), None if budget is None else duration_seconds(budget)
    if not 0 < within < math.inf:
        raise ValueError(f"slo must be more than 0 seconds and finite, not {slo!r}")
    if not models:
        raise PackError("there are no models to serve")
    given = {name: load(source).model for name, source in models.items()}
    how = _Packing(given, Device(provider, threads), shared_inputs, seed, told)
    with temporary_scratch() as scratch, reuse_child():
        alone = [how.packed([name], 0.0, scratch) for name in given]
        found = [one.variant for one in alone]
        waiting = [(order_by_kind(given), 0.5)] if len(given) > 1 else []
        while waiting:
            names, share = waiting.pop(0)
            variant = how.packed(names, None if seconds is None else share * seconds, scratch).variant
            apart = sum(one.seconds for one in least_cover(frozenset(names), found))
            if variant.seconds < (1 - PACK.min_variant_gain_share) * apart:
                found.append(variant)
                waiting += [(half, share / 4) for half in halves(names) if len(half) > 1]
    return ServePlan(
        variants=tuple(sorted(found, key=lambda variant: len(variant.tenants))),
        slo=within,
        device=how.device,
        workers=workers or max(1, core_count() // threads),
        inputs={name: one.own_inputs(name) for name, one in zip(given, alone, strict=True)},
        shared_inputs=frozenset(shared_inputs),
        fillers={name: one.own_values(name) for name, one in zip(given, alone, strict=True)},
    )


@dataclass(frozen=True, eq=False)
class _Measured:
    """A variant with the inputs of its packed model and the values on which it was measured."""

    variant: Variant
    inputs: tuple[Port, ...]
    values: Mapping[str, Array]

    def own_inputs(self, name: str) -> tuple[Port, ...]:
        """Return the inputs of a variant of one tenant, under the tenant's own names."""
        return tuple(replace(port, name=port.name.removeprefix(f"{name}/")) for port in self.inputs)

    def own_values(self, name: str) -> dict[str, Array]:
        """Return the input values of a variant of one tenant, under the tenant's own names."""
        return {key.removeprefix(f"{name}/"): value for key, value in self.values.items()}


@dataclass(frozen=True, eq=False)
class _Packing:
    """The models of a plan, and the settings with which variants are packed and measured."""

    models: Mapping[str, Model]
    device: Device
    shared_inputs: Collection[str]
    seed: int
    progress: Listener

    def packed(self, names: Sequence[str], budget: float | None, scratch: Scratch) -> _Measured:
        """Pack the named models, search for `budget` seconds, and measure the packed model."""
        self.progress(Progress(f"pack {', '.join(names)}"))
        own: dict[str, Source] = {name: self.models[name] for name in names}
        known = {value.name for name in names for value in self.models[name].graph.inputs}
        made = pack_models(
            own,
            shared_inputs=[key for key in self.shared_inputs if key in known],
            budget=budget,
            provider=self.device.provider,
            threads=self.device.threads,
            seed=self.seed,
            progress=self.progress,
        ).model
        stored = loadable(made, scratch)
        session = Session(stored, self.device)
        feasible = feasible_inputs(made, stored, session)
        values = feasible.source.values(session.inputs, self.seed, feasible.sizes[0])
        return _Measured(Variant(tuple(names), made, run_seconds(session, values)), session.inputs, values)


def least_cover(live: frozenset[str], variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """Return the variants that together contain the tenants in `live` and take the least time.

    A variant may contain further tenants. Each tenant in `live` has a variant of its own.
    """
    known: dict[frozenset[str], tuple[float, tuple[Variant, ...]]] = {frozenset(): (0.0, ())}

    def best(left: frozenset[str]) -> tuple[float, tuple[Variant, ...]]:
        if left not in known:
            first = min(left)
            choices = [(one, best(left.difference(one.tenants))) for one in variants if first in one.tenants]
            known[left] = min(
                ((one.seconds + seconds, (one, *rest)) for one, (seconds, rest) in choices), key=lambda choice: choice[0]
            )
        return known[left]

    return best(live)[1]


def order_by_kind(models: Mapping[str, Model]) -> list[str]:
    """Return the names of the models in an order in which models with equal sequences of operators are neighbours."""
    kinds = {name: tuple(node.op_type for node in all_nodes(model)) for name, model in models.items()}
    first = {kind: place for place, kind in reversed([*enumerate(kinds.values())])}
    return sorted(models, key=lambda name: first[kinds[name]])


def halves(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the first and the second half of the names."""
    middle = (len(names) + 1) // 2
    return [*names[:middle]], [*names[middle:]]


def run_seconds(session: Session, feeds: Mapping[str, Array]) -> float:
    """Return the median seconds of one run of the session in another thread, as in a dispatcher."""
    times: list[float] = []
    with ThreadPoolExecutor(1) as threads:
        threads.submit(session.run, feeds).result()
        end = time.perf_counter() + PACK.measured_seconds
        while len(times) < PACK.min_measured_runs or time.perf_counter() < end:
            start = time.perf_counter()
            threads.submit(session.run, feeds).result()
            times.append(time.perf_counter() - start)
    return statistics.median(times)
