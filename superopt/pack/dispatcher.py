"""Dispatch requests to the variants of a plan, so that one run answers requests of several tenants within their deadlines."""

from __future__ import annotations

import asyncio
import bisect
import functools
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np

from superopt.model.external_data import temporary_scratch
from superopt.model.save import loadable
from superopt.pack.plan import ServePlan, Variant, least_cover
from superopt.policy import PACK
from superopt.runtime.session import Array, Session

Values: TypeAlias = "Mapping[str, Array]"
Runner: TypeAlias = "Callable[[Variant, Values], Awaitable[Values]]"
"""A function that runs a variant and returns the outputs. Inputs and outputs have their names in the packed model."""


@dataclass(eq=False, slots=True)
class PendingRequest:
    """A request that waits for a run.

    Attributes:
        tenant: The name of the tenant.
        feeds: The inputs, under the tenant's own names.
        patience_end: The time until which the request may wait for other tenants, on the clock of the event loop.
        deadline: The time by which the request should be answered, on the clock of the event loop.
        answer: The future of the outputs, under the tenant's own names.
    """

    tenant: str
    feeds: Values
    patience_end: float
    deadline: float
    answer: asyncio.Future[dict[str, Array]]


class Dispatcher:
    """Answers requests for several models in one process with the variants of a plan.

    A run of a variant computes one request of each of its tenants. When a worker is free, the dispatcher chooses the variants
    that together answer the waiting requests in the least measured time. A variant may also contain tenants without a request.
    If a larger variant exists, a run may wait for requests of further tenants. The wait is at most the share
    `PackPolicy.max_wait_share` of the request's time limit, and of the plan's. The run also begins early enough to end before
    the earliest deadline. Requests of one tenant are answered in the order of their deadlines.

    Example:
        >>> async with Dispatcher(plan) as dispatcher:  # doctest: +SKIP
        ...     outputs = await dispatcher.run("a", {"x": x})

    Args:
        plan: The plan, which `superopt.serve_plan` makes.
        runner: Runs variants. By default, the variants run in sessions of ONNX Runtime in `plan.workers` threads.
    """

    def __init__(self, plan: ServePlan, *, runner: Runner | None = None) -> None:
        self.plan = plan
        self._own = SessionRunner(plan) if runner is None else None
        self._runner: Runner | None = runner or self._own
        self._alone = {variant.tenants[0]: variant for variant in plan.variants if len(variant.tenants) == 1}
        self._ports = {name: {port.name: port for port in ports} for name, ports in plan.inputs.items()}
        self._queues: dict[str, list[PendingRequest]] = {name: [] for name in plan.inputs}
        """The waiting requests of each tenant, in the order of their deadlines."""
        self._covers: dict[frozenset[str], tuple[Variant, ...]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._planned: asyncio.Handle | None = None
        """The next call of `_dispatch`: soon after an event, or at the time at which a waiting request must be started."""
        self._closing = False
        self._most_runs = plan.workers * (1 + PACK.queued_runs_per_worker_count)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, tenant: str, feeds: Values, *, within: float | None = None) -> dict[str, Array]:
        """Return the outputs of a tenant's model for the given inputs, both under the tenant's own names.

        The request should be answered within `within` seconds, by default within `ServePlan.slo` seconds. A late request is
        answered too. A request without a deadline has the limit `math.inf`.

        Raises:
            ValueError: There is no such tenant, the inputs do not fit its model, `within` is NaN, or the dispatcher is closed.
            InvalidModelError: ONNX Runtime cannot run the model on these inputs.
        """
        self._require_valid(tenant, feeds)
        loop = asyncio.get_running_loop()
        now = loop.time()
        limit = self.plan.slo if within is None else within
        if math.isnan(limit):
            raise ValueError("the time limit of a request must be a number, not NaN")
        patience_end = now + PACK.max_wait_share * min(limit, self.plan.slo)
        request = PendingRequest(tenant, feeds, patience_end, now + limit, loop.create_future())
        bisect.insort(self._queues[tenant], request, key=lambda one: one.deadline)
        self._dispatch_soon()
        return await request.answer

    async def close(self) -> None:
        """Refuse further requests, answer all waiting requests, and free the sessions."""
        self._closing = True
        self._dispatch()
        while self._running:
            await asyncio.wait(self._running)
            self._dispatch()
        if self._own is not None:
            self._own.close()

    def _require_valid(self, tenant: str, feeds: Mapping[str, object]) -> None:
        """Check that a request is valid.

        Raises:
            ValueError: There is no such tenant, the inputs do not fit its model, or the dispatcher is closed.
        """
        if self._closing:
            raise ValueError("the dispatcher is closed")
        if (ports := self._ports.get(tenant)) is None:
            raise ValueError(f"no model has the name {tenant!r}; the names are {', '.join(self._ports)}")
        if feeds.keys() != ports.keys():
            raise ValueError(f"the inputs of {tenant!r} are {', '.join(ports)}, not {', '.join(feeds)}")
        for name, value in feeds.items():
            port = ports[name]
            if port.kind and not port.kind.startswith("tensor("):
                continue
            if not isinstance(value, np.ndarray):
                raise ValueError(f"the input {name!r} of {tenant!r} must be an array, not {type(value).__name__}")
            fits = len(value.shape) == len(port.shape) and all(
                isinstance(extent, str) or extent == size for extent, size in zip(port.shape, value.shape, strict=True)
            )
            if not fits or not (port.kind or value.dtype == port.dtype):
                shapes = f"{port.kind or port.dtype}{[*port.shape]}, not {value.dtype}{[*value.shape]}"
                raise ValueError(f"the input {name!r} of {tenant!r} must be {shapes}")

    def _dispatch_soon(self) -> None:
        """Call `_dispatch` once, at the end of this iteration of the event loop.

        If no run can be started, `_dispatch` is not called.
        """
        if len(self._running) < self._most_runs:
            if self._planned is not None:
                self._planned.cancel()
            self._planned = asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        """Start runs, as `_start_runs` does. If this fails, all waiting requests get the error."""
        if self._planned is not None:
            self._planned.cancel()
            self._planned = None
        try:
            self._start_runs()
        except Exception as error:  # noqa: BLE001
            for queue in self._queues.values():
                while queue:
                    _refuse(queue.pop(), error)

    def _start_runs(self) -> None:
        """Start runs while workers are free and requests need not wait, and set a timer for the requests that wait."""
        loop = asyncio.get_running_loop()
        while (free := self._most_runs - len(self._running)) > 0:
            busy = len(self._running) >= self.plan.workers
            chosen, due = self._next_runs(loop.time(), busy=busy)
            for variant, requests in chosen[:free]:
                for request in requests:
                    self._queues[request.tenant].remove(request)
                task = loop.create_task(self._answer(variant, requests))
                self._running.add(task)
                task.add_done_callback(functools.partial(self._finished, requests))
            if not chosen:
                if due is not None:
                    self._planned = loop.call_at(due, self._dispatch)
                break

    def _finished(self, requests: Sequence[PendingRequest], task: asyncio.Task[None]) -> None:
        """Note the end of a run. Requests that the run has left without an answer get its error."""
        self._running.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            for request in requests:
                _refuse(request, error)
        self._dispatch_soon()

    def _next_runs(self, now: float, *, busy: bool) -> tuple[list[tuple[Variant, list[PendingRequest]]], float | None]:
        """Return the variants to run next, each with its requests, or the time at which a waiting request must be started.

        The request with the earliest deadline is considered first. The variants answer this request and all waiting requests
        that can be computed in the same run. If all workers are `busy`, a run is returned only if no further tenant could join
        the run. Such a run waits in a queue for a worker.
        """
        for queue in self._queues.values():
            while queue and queue[0].answer.done():
                queue.pop(0)
        firsts = sorted((queue[0] for queue in self._queues.values() if queue), key=lambda request: request.deadline)
        due = math.inf
        for request in firsts:
            partners = self._partners(request)
            own = (variant for variant in self.plan.variants if request.tenant in variant.tenants)
            joinable = [variant for variant in own if not partners.keys() >= {*variant.tenants}]
            if busy and joinable:
                continue
            until = self._wait_until(request, partners, joinable)
            if self._closing or until <= now:
                cover = sorted(self._cover(frozenset(partners)), key=lambda variant: request.tenant not in variant.tenants)
                return [(one, [partners[name] for name in one.tenants if name in partners]) for one in cover], None
            due = min(due, until)
        return [], due if due < math.inf else None

    def _partners(self, request: PendingRequest) -> dict[str, PendingRequest]:
        """Return the request and, for each other tenant, its most urgent live request for the same run."""
        found = {request.tenant: request}
        for name, queue in self._queues.items():
            if name != request.tenant:
                partner = next((one for one in queue if not one.answer.done() and self._agrees(one, found.values())), None)
                if partner is not None:
                    found[name] = partner
        return found

    def _agrees(self, request: PendingRequest, others: Iterable[PendingRequest]) -> bool:
        """Return whether the shared inputs of the request have the same values in the other requests."""
        return all(
            _is_same(request.feeds[name], other.feeds[name])
            for other in others
            for name in self.plan.shared_inputs
            if name in request.feeds and name in other.feeds
        )

    def _cover(self, live: frozenset[str]) -> tuple[Variant, ...]:
        if live not in self._covers:
            self._covers[live] = least_cover(live, self.plan.variants)
        return self._covers[live]

    def _wait_until(
        self, request: PendingRequest, partners: Mapping[str, PendingRequest], joinable: Sequence[Variant]
    ) -> float:
        """Return the time until which the tenant's requests may wait for further tenants of the `joinable` variants.

        No request of the tenant waits longer than it may. After the wait, the slowest of the variants can still end before the
        earliest deadline.
        """
        if not joinable:
            return -math.inf
        slowest = max(variant.seconds for variant in joinable)
        earliest = min(one.deadline for one in partners.values())
        patience_end = min(one.patience_end for one in self._queues[request.tenant] if not one.answer.done())
        return min(patience_end, earliest - PACK.deadline_factor * slowest)

    async def _answer(self, variant: Variant, requests: Sequence[PendingRequest]) -> None:
        """Run the variant, and answer the requests. If a run of several tenants fails, each request runs alone."""
        assert self._runner is not None, "a dispatcher has a runner"
        try:
            outputs = await self._runner(variant, self._feeds(variant, requests))
            answers = [_own_outputs(request.tenant, outputs) for request in requests]
        except Exception as error:  # noqa: BLE001
            if len(requests) > 1 or len(variant.tenants) > 1:
                for request in requests:
                    await self._answer(self._alone[request.tenant], [request])
            else:
                _refuse(requests[0], error)
            return
        for request, answer in zip(requests, answers, strict=True):
            if not request.answer.done():
                request.answer.set_result(answer)

    def _feeds(self, variant: Variant, requests: Sequence[PendingRequest]) -> dict[str, Array]:
        """Return the inputs of a variant. Tenants without a request get their fillers."""
        given = {name: self.plan.fillers[name] for name in variant.tenants} | {one.tenant: one.feeds for one in requests}
        shared = self.plan.shared_inputs
        asked = {request.tenant for request in requests}
        feeds: dict[str, Array] = {}
        for name in sorted(given, key=asked.__contains__):
            feeds |= {key if key in shared else f"{name}/{key}": value for key, value in given[name].items()}
        return feeds


class SessionRunner:
    """Runs the variants of a plan in sessions of ONNX Runtime, in threads, so that the event loop stays free."""

    def __init__(self, plan: ServePlan) -> None:
        with temporary_scratch() as scratch:
            self._sessions = {variant: Session(loadable(variant.model, scratch), plan.device) for variant in plan.variants}
        self._threads = ThreadPoolExecutor(plan.workers, "superopt-pack")

    async def __call__(self, variant: Variant, feeds: Values) -> Values:
        """Run the variant in a thread, and return its outputs.

        Raises:
            InvalidModelError: ONNX Runtime cannot run the variant.
        """
        session = self._sessions[variant]
        values = await asyncio.get_running_loop().run_in_executor(self._threads, session.run, feeds)
        return dict(zip(session.outputs, values, strict=True))

    def close(self) -> None:
        """End the threads and free the sessions."""
        self._threads.shutdown()
        self._sessions.clear()


def _own_outputs(tenant: str, outputs: Values) -> dict[str, Array]:
    """Return the outputs of a tenant, under the tenant's own names."""
    prefix = f"{tenant}/"
    return {name.removeprefix(prefix): value for name, value in outputs.items() if name.startswith(prefix)}


def _refuse(request: PendingRequest, error: BaseException) -> None:
    """Answer the request with an error, unless it has an answer."""
    if not request.answer.done():
        request.answer.set_exception(error)


def _is_same(first: object, second: object) -> bool:
    """Return whether two values are one object, or arrays with the same bits or strings. A few elements are compared first."""
    if first is second:
        return True
    if not isinstance(first, np.ndarray) or not isinstance(second, np.ndarray):
        return False
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.dtype == object:
        return all(isinstance(one, str) for one in (*first.flat, *second.flat)) and np.array_equal(first, second)
    step = max(1, first.size // PACK.sampled_element_count)
    return first.flat[::step].tobytes() == second.flat[::step].tobytes() and first.tobytes() == second.tobytes()
