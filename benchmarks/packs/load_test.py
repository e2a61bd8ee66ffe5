"""Load tests: requests at random times, the rate at which a server keeps a bound on the p99 latency, and full load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np

from superopt.runtime.session import Array, Session

Feeds: TypeAlias = "Mapping[str, Array]"
Ask: TypeAlias = "Callable[[str, Feeds], Awaitable[dict[str, Array]]]"
Call: TypeAlias = "Sequence[tuple[str, Feeds]]"
"""Requests that arrive together: one request, or one for each model that reads a shared input."""

PERCENTILE = 99
STEPS, TRIES = 7, 2
"""The number of rates that the bisection tries, and the number of tests at a rate, of which one must keep the bound."""


class SideBySide:
    """Sessions side by side: one session of one thread for each model, and as many worker threads as cores."""

    def __init__(self, sessions: Mapping[str, Session], workers: int) -> None:
        self._sessions, self._threads = sessions, ThreadPoolExecutor(workers)

    async def ask(self, tenant: str, feeds: Feeds) -> dict[str, Array]:
        """Return the outputs of a model."""
        session = self._sessions[tenant]
        values = await asyncio.get_running_loop().run_in_executor(self._threads, session.run, feeds)
        return dict(zip(session.outputs, values, strict=True))

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


async def full_load(ask: Ask, calls: Sequence[Call], clients: int, seconds: float) -> float:
    """Return the answered requests per second if `clients` clients repeat each call without a pause."""
    end, answered = time.perf_counter() + seconds, 0

    async def repeated(call: Call) -> None:
        nonlocal answered
        while time.perf_counter() < end:
            if len(call) == 1:
                await ask(*call[0])
            else:
                await asyncio.gather(*(ask(tenant, feeds) for tenant, feeds in call))
            answered += len(call)

    start = time.perf_counter()
    await asyncio.gather(*(repeated(call) for call in calls for _ in range(clients)))
    return answered / (time.perf_counter() - start)


async def p99_latency(ask: Ask, calls: Sequence[Call], rate: float, seconds: float, bound: float, seed: int) -> float:
    """Return the p99 latency in seconds of calls that arrive at random times, `rate` requests per second on average.

    The calls arrive as in a Poisson process. A latency counts from the planned arrival. If the calls pile up far beyond the
    bound, the result is infinite.
    """
    rng = np.random.default_rng(seed)
    per_call = float(np.mean([len(call) for call in calls]))
    count = max(1, int(rate * seconds / per_call))
    arrivals = np.cumsum(rng.exponential(per_call / rate, count))
    chosen = rng.integers(0, len(calls), count)
    latencies: list[float] = []
    tasks: set[asyncio.Task[Any]] = set()
    start = time.perf_counter()

    async def one(at: float, tenant: str, feeds: Feeds) -> None:
        await ask(tenant, feeds)
        latencies.append(time.perf_counter() - start - at)

    for at, which in zip(arrivals.tolist(), chosen.tolist(), strict=True):
        ahead = at - (time.perf_counter() - start)
        if ahead > 0:
            await asyncio.sleep(ahead)
        if -ahead > 10 * bound or len(tasks) > max(100.0, 10 * bound * rate):
            await asyncio.gather(*tasks)
            return float("inf")
        for tenant, feeds in calls[which]:
            task = asyncio.ensure_future(one(at, tenant, feeds))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    return float(np.percentile(latencies, PERCENTILE))


async def sustained_rates(
    asks: Mapping[str, Ask], calls: Sequence[Call], capacity: Mapping[str, float], bound: float, seconds: float, seed: int
) -> dict[str, float]:
    """Return for each server the largest rate in requests per second at which its p99 latency stays within the bound.

    The rates are found by bisection between 0 and the server's capacity at full load. The servers are tested in turns.
    """
    low, high = dict.fromkeys(asks, 0.0), {name: 1.2 * rate for name, rate in capacity.items()}
    for step in range(STEPS):
        for name, ask in asks.items():
            rate = (low[name] + high[name]) / 2
            for again in range(TRIES):
                if await p99_latency(ask, calls, rate, seconds, bound, seed + TRIES * step + again) <= bound:
                    low[name] = rate
                    break
            else:
                high[name] = rate
    return low
