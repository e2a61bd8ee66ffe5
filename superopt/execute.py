"""Where the tasks of a long job run, and what becomes of them when a worker dies or the job is stopped.

A task is a call of a function that always returns the same for the same arguments, under a key that says what those are. It
runs in this process, in processes of this machine, or on a Dask cluster. A task whose worker died is run again, and one that is
on disk from an earlier run is not run at all, so neither changes what a job finds.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import heapq
import itertools
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, Self

from superopt.errors import SchedulerError, TargetError
from superopt.files import cache_folder, cause, save_bytes

ATTEMPTS = 6
CHECKSUM = 32
DAYS = 30
CHUNK = 8
PATIENCE = 5.0
"""Seconds after which a pool of processes that has said nothing is asked whether it is broken."""
COLLECTION = 100_000, 20, 100
"""How seldom cycles are looked for, as `gc.set_threshold` takes it: terms and sizes are many, live long, and have none."""


@dataclass(frozen=True)
class Call:
    """A task: its name, the key of its result, and what computes it."""

    name: str
    key: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def digest_of(*parts: object) -> str:
    """A key: the hash of what a task's result rests on."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:32]


class Finished:
    """The results of finished tasks in a folder, by key; without a folder, none."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.found = 0

    def get(self, key: str) -> tuple[Any] | None:
        """The result that is stored under the key, in a tuple of its own; None where there is none, or half of one."""
        if self.folder is None:
            return None
        try:
            stored = self._path(key).read_bytes()
            self._path(key).touch()
        except OSError:
            return None
        if hashlib.sha256(stored[CHECKSUM:]).digest() != stored[:CHECKSUM]:
            return None
        self.found += 1
        return (pickle.loads(stored[CHECKSUM:]),)

    def put(self, key: str, result: object) -> None:
        """The result is on disk, whole.

        Raises:
            SchedulerError: it cannot be written.
        """
        if self.folder is None:
            return
        body = pickle.dumps(result, protocol=5)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            save_bytes(hashlib.sha256(body).digest() + body, self._path(key))
        except (OSError, TargetError) as error:
            raise SchedulerError(f"{self.folder} cannot be written ({cause(error)})") from None

    def drop_old(self) -> None:
        """Results that no job has asked for in `DAYS` days are gone."""
        oldest = time.time() - DAYS * 86400
        for path in self.folder.glob("*.task") if self.folder is not None else ():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{key}.task"


def default_folder() -> Path:
    """Where finished tasks are kept unless said otherwise: the user's cache folder, as the XDG base directories name it."""
    return cache_folder() / "generate"


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def collecting_rarely() -> Iterator[None]:
    """Garbage in cycles is looked for rarely meanwhile, which takes a sixth off the time of work on terms."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECTION)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def in_order(
    function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]], *, workers: int = 1, chunk: int = CHUNK
) -> Iterator[Any]:
    """What a function that other processes can import makes of each tuple of arguments, in their order.

    `workers` processes of this machine work on them, `chunk` at a time; this process does it where that is 1, or there is no
    more than one chunk.

    Raises:
        SchedulerError: as `Tasks.results`.
    """
    left = iter(arguments)
    chunks = iter(lambda: list(itertools.islice(left, chunk)), [])
    first = next(chunks, [])
    if workers == 1 or len(first) < chunk:
        yield from itertools.starmap(function, itertools.chain(first, left))
        return
    with Tasks(workers=workers) as tasks:
        for number, some in enumerate(itertools.chain([first], chunks)):
            tasks.start(str(number), str(number), _each, function, some)
        found: dict[int, list[Any]] = {}
        awaited = 0
        for name, results in tasks.results():
            found[int(name)] = results
            while awaited in found:
                yield from found.pop(awaited)
                awaited += 1


def _each(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    return list(itertools.starmap(function, arguments))


class Tasks:
    """The tasks of a job: those that wait, and results as they are ready, in any order.

    `workers` processes of this machine run them, or this process where it is 1; or, where `scheduler` is given, a Dask cluster
    at that address, or one of N processes for `local:N`.

    Raises:
        SchedulerError: there is no such cluster, or Dask is not installed.
    """

    def __init__(self, *, workers: int = 1, scheduler: str = "", finished: Finished | None = None) -> None:
        self.finished = finished or Finished(None)
        self._waiting: list[tuple[bool, int, Call]] = []
        self._order = itertools.count()
        self._ready: deque[tuple[Call, Any]] = deque()
        self._running: dict[Future[Any], Call] = {}
        self._attempts: dict[str, int] = {}
        self._workers = workers
        self._opened = contextlib.ExitStack()
        self._executor = self._cluster(scheduler) if scheduler else _pool(workers) if workers > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing runs any more."""
        if isinstance(self._executor, ProcessPoolExecutor):
            _end(self._executor, at_once=bool(self._running))
        elif self._executor is not None:
            self._executor.shutdown(wait=False)
        self._opened.close()

    @property
    def processes(self) -> int:
        """How many processes besides this one run tasks."""
        return 0 if self._executor is None else self._workers

    def start(self, name: str, key: str, function: Callable[..., Any], *arguments: Any, urgent: bool = False) -> None:
        """The task will be among the results; `function` is one that other processes can import.

        Urgent tasks, which others wait for, run before those that are not.
        """
        call = Call(name, key, function, arguments)
        known = self.finished.get(key)
        if known is not None:
            self._ready.append((call, known[0]))
        else:
            heapq.heappush(self._waiting, (not urgent, next(self._order), call))

    def results(self) -> Iterator[tuple[str, Any]]:
        """Name and result of each task, until none is left; more tasks may be started meanwhile.

        Raises:
            SchedulerError: the worker of one task died `ATTEMPTS` times. Whatever a task raises.
        """
        while self._ready or self._waiting or self._running:
            if not self._ready:
                self._advance()
            while self._ready:
                call, result = self._ready.popleft()
                yield call.name, result

    def _advance(self) -> None:
        """At least one task more is done, or those whose process died wait again, or nothing happened for `PATIENCE`."""
        if self._executor is None:
            call = heapq.heappop(self._waiting)[-1]
            self._done(call, call.function(*call.arguments))
            return
        self._submit(self._executor)
        lost: list[Call] = []
        done = wait(self._running, timeout=PATIENCE, return_when=FIRST_COMPLETED).done
        for future in done:
            call = self._running.pop(future)
            try:
                self._done(call, future.result())
            except BrokenExecutor:
                lost.append(call)
        if lost or not (self._running or self._ready) or (not done and _broken(self._executor)):
            self._again(lost)

    def _submit(self, executor: Executor) -> None:
        """Every process has a task, and one task more waits there."""
        while self._waiting and len(self._running) <= self._workers:
            call = self._waiting[0][-1]
            try:
                self._running[executor.submit(call.function, *call.arguments)] = call
            except BrokenExecutor:
                break
            heapq.heappop(self._waiting)

    def _done(self, call: Call, result: Any) -> None:
        self.finished.put(call.key, result)
        self._ready.append((call, result))

    def _again(self, lost: list[Call]) -> None:
        """Tasks that were running when a process died wait for new processes."""
        assert isinstance(self._executor, ProcessPoolExecutor)
        _end(self._executor, at_once=True)
        for future, call in self._running.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                self._done(call, future.result())
            else:
                lost.append(call)
        self._running.clear()
        self._executor = _pool(self._workers)
        for call in lost:
            self._attempts[call.key] = self._attempts.get(call.key, 1) + 1
            if self._attempts[call.key] > ATTEMPTS:
                raise SchedulerError(f"the process that worked on {call.name} died, {ATTEMPTS} times")
            heapq.heappush(self._waiting, (False, next(self._order), call))

    def _cluster(self, scheduler: str) -> Executor:
        try:
            from distributed import Client, LocalCluster
        except ImportError:
            raise SchedulerError("Dask is not installed: pip install 'superopt[cluster]'") from None
        kind, _, count = scheduler.partition(":")
        try:
            if kind == "local":
                cluster = LocalCluster(n_workers=int(count), threads_per_worker=1, dashboard_address=None)
                client = Client(self._opened.enter_context(cluster))
            else:
                client = Client(scheduler)
        except (OSError, ValueError) as error:
            raise SchedulerError(f"no Dask cluster at {scheduler} ({' '.join(str(error).split())})") from None
        executor: Executor = self._opened.enter_context(client).get_executor()
        self._workers = len(client.scheduler_info(n_workers=-1)["workers"])
        return executor


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_follow)


def _broken(executor: Executor) -> bool:
    """Whether one of its processes died: it then forgets a task that was submitted at that very moment, and never says so."""
    return isinstance(executor, ProcessPoolExecutor) and bool(executor._broken)


def _end(pool: ProcessPoolExecutor, *, at_once: bool) -> None:
    """No process of the pool is left; at once, what they were doing is lost.

    They are killed before the pool is shut down because one that was started while it broke is none that it would stop.
    """
    for process in list(pool._processes.values()) if at_once else ():
        process.kill()
    pool.shutdown(wait=True, cancel_futures=True)


def _follow() -> None:
    """A process of the pool leaves an interrupt from the keyboard to its parent, and ends when that does, however it ends."""
    gc.set_threshold(*COLLECTION)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
