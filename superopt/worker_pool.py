"""Run the tasks of a long job. A job can be resumed after an interruption, and continues if worker processes die.

A task is a call of a function that always returns the same result for the same arguments. A key identifies the arguments. A
task runs in this process, in processes of this machine, or on a Dask cluster. If the worker process of a task dies, the task
runs again. If an earlier run stored the result of a task on disk, the task does not run. The results of the job are the same in
both cases.
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
from typing import Self, TypeVar, TypeVarTuple

from superopt.errors import SchedulerError, TargetError
from superopt.files import cache_folder, cause, write_bytes_atomically
from superopt.policy import PROCESS

CHECKSUM = 32

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True)
class TaskCall:
    """A task: its name, the key under which its result is stored, a function, and the function's arguments."""

    name: str
    key: str
    function: Callable[..., object]
    arguments: tuple[object, ...]


def task_key(*parts: object) -> str:
    """Return the hash of `parts` as the key of a task. The task's result must depend on nothing but `parts`."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:32]


class Finished:
    """The results of finished tasks, stored in a folder by key. If no folder is given, nothing is stored."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.found = 0

    def get(self, key: str) -> tuple[object] | None:
        """Return the result for this key as a tuple with one element. If no complete result is stored, return None."""
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
        """Store the result under the key, in a file that is written atomically.

        Raises:
            SchedulerError: The result cannot be written.
        """
        if self.folder is None:
            return
        body = pickle.dumps(result, protocol=5)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_bytes_atomically(hashlib.sha256(body).digest() + body, self._path(key))
        except (OSError, TargetError) as error:
            raise SchedulerError(f"{self.folder} cannot be written ({cause(error)})") from None

    def drop_old(self) -> None:
        """Remove results that no job has read for `PROCESS.stored_result_days` days."""
        oldest = time.time() - PROCESS.stored_result_days * 86400
        for path in self.folder.glob("*.task") if self.folder is not None else ():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{key}.task"


def finished_tasks_folder() -> Path:
    """Return the default folder for the results of tasks, in the user's cache folder (XDG base directory specification)."""
    return cache_folder() / "generate"


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def defer_garbage_collection() -> Iterator[None]:
    """Collect cyclic garbage only rarely inside the context.

    As a result, rewriting and comparing terms (expressions) takes a sixth less time.
    """
    before = gc.get_threshold()
    gc.set_threshold(*PROCESS.garbage_threshold_counts)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def map_in_order(
    function: Callable[[*Ts], R],
    arguments: Iterable[tuple[*Ts]],
    *,
    workers: int = 1,
    chunk: int = PROCESS.chunk_task_count,
) -> Iterator[R]:
    """Yield `function(*arguments)` for each tuple of arguments, in the order of the tuples.

    The calls run in `workers` processes of this machine. A process gets `chunk` tuples at a time. The function must be
    importable. With one worker, or fewer tuples than `chunk`, the calls run in this process.

    Raises:
        SchedulerError: Worker processes died `PROCESS.max_task_attempts` times while running the same task.
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
        found: dict[int, list[R]] = {}
        awaited = 0
        for name, results in tasks.results(list):
            found[int(name)] = results
            while awaited in found:
                yield from found.pop(awaited)
                awaited += 1


def _each(function: Callable[[*Ts], R], arguments: Sequence[tuple[*Ts]]) -> list[R]:
    return list(itertools.starmap(function, arguments))


class Tasks:
    """A pool for the tasks of a job. Results are yielded in the order in which tasks finish.

    Tasks run in `workers` processes of this machine, or in this process if `workers` is 1. If `scheduler` is the address of a
    Dask cluster, tasks run on this cluster. If `scheduler` is `local:N`, tasks run on a new cluster of N processes.

    Raises:
        SchedulerError: There is no Dask cluster at the address, or Dask is not installed.
    """

    def __init__(self, *, workers: int = 1, scheduler: str = "", finished: Finished | None = None) -> None:
        self.finished = finished or Finished(None)
        self._waiting: list[tuple[bool, int, TaskCall]] = []
        self._order = itertools.count()
        self._ready: deque[tuple[TaskCall, object]] = deque()
        self._running: dict[Future[object], TaskCall] = {}
        self._attempts: dict[str, int] = {}
        self._workers = workers
        self._opened = contextlib.ExitStack()
        self._executor = self._cluster(scheduler) if scheduler else _pool(workers) if workers > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all processes."""
        if isinstance(self._executor, ProcessPoolExecutor):
            _end(self._executor, at_once=bool(self._running))
        elif self._executor is not None:
            self._executor.shutdown(wait=False)
        self._opened.close()

    @property
    def processes(self) -> int:
        """The number of processes, besides this process, that run tasks."""
        return 0 if self._executor is None else self._workers

    def start(self, name: str, key: str, function: Callable[[*Ts], object], *arguments: *Ts, urgent: bool = False) -> None:
        """Add the task `function(*arguments)`. If a result is stored under `key`, the task does not run.

        `function` must be importable in other processes. Urgent tasks run before all other tasks.
        """
        call = TaskCall(name, key, function, arguments)
        known = self.finished.get(key)
        if known is not None:
            self._ready.append((call, known[0]))
        else:
            heapq.heappush(self._waiting, (not urgent, next(self._order), call))

    def results(self, kind: type[R]) -> Iterator[tuple[str, R]]:
        """Yield the name and the result of each task when the task finishes, until no task is left.

        All results must be of the type `kind`. The caller may start more tasks between results. If a task raises an exception,
        this method raises the exception.

        Raises:
            SchedulerError: Worker processes died `PROCESS.max_task_attempts` times while running the same task.
        """
        while self._ready or self._waiting or self._running:
            if not self._ready:
                self._advance()
            while self._ready:
                call, result = self._ready.popleft()
                assert isinstance(result, kind)
                yield call.name, result

    def _advance(self) -> None:
        """Wait until at least one task finishes, or for at most `PROCESS.pool_patience_seconds`.

        Tasks whose process died are queued again. If the pool has no processes, one task runs in this process.
        """
        if self._executor is None:
            call = heapq.heappop(self._waiting)[-1]
            self._done(call, call.function(*call.arguments))
            return
        self._submit(self._executor)
        lost: list[TaskCall] = []
        done = wait(self._running, timeout=PROCESS.pool_patience_seconds, return_when=FIRST_COMPLETED).done
        for future in done:
            call = self._running.pop(future)
            try:
                self._done(call, future.result())
            except BrokenExecutor:
                lost.append(call)
        if lost or not (self._running or self._ready) or (not done and _broken(self._executor)):
            self._again(lost)

    def _submit(self, executor: Executor) -> None:
        """Submit waiting tasks until there is one task for every process and one task in reserve."""
        while self._waiting and len(self._running) <= self._workers:
            call = self._waiting[0][-1]
            try:
                self._running[executor.submit(call.function, *call.arguments)] = call
            except BrokenExecutor:
                break
            heapq.heappop(self._waiting)

    def _done(self, call: TaskCall, result: object) -> None:
        self.finished.put(call.key, result)
        self._ready.append((call, result))

    def _again(self, lost: list[TaskCall]) -> None:
        """Start a new pool after a process died, and queue again all tasks that had not finished.

        Raises:
            SchedulerError: Processes died `PROCESS.max_task_attempts` times while running the same task.
        """
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
            if self._attempts[call.key] > PROCESS.max_task_attempts:
                raise SchedulerError(f"the process that worked on {call.name} died {PROCESS.max_task_attempts} times")
            heapq.heappush(self._waiting, (False, next(self._order), call))

    def _cluster(self, scheduler: str) -> Executor:
        try:
            from distributed import Client, LocalCluster
        except ImportError:
            raise SchedulerError("Dask is not installed: run `pip install 'superopt[cluster]'`") from None
        kind, _, count = scheduler.partition(":")
        try:
            if kind == "local":
                cluster = LocalCluster(n_workers=int(count), threads_per_worker=1, dashboard_address=None)
                client = Client(self._opened.enter_context(cluster))
            else:
                client = Client(scheduler)
        except (OSError, ValueError) as error:
            raise SchedulerError(f"there is no Dask cluster at {scheduler} ({' '.join(str(error).split())})") from None
        executor: Executor = self._opened.enter_context(client).get_executor()
        self._workers = len(client.scheduler_info(n_workers=-1)["workers"])
        return executor


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_follow)


def _broken(executor: Executor) -> bool:
    """Return whether a process of the pool died. If so, the pool may have lost a task that was submitted at that moment."""
    return isinstance(executor, ProcessPoolExecutor) and bool(executor._broken)


def _end(pool: ProcessPoolExecutor, *, at_once: bool) -> None:
    """Stop all processes of the pool. If `at_once` is True, the processes are killed and unfinished tasks are lost.

    The processes are killed before the shutdown, because the shutdown would not stop a process that was started while the pool
    broke.
    """
    for process in list(pool._processes.values()) if at_once else ():
        process.kill()
    pool.shutdown(wait=True, cancel_futures=True)


def _follow() -> None:
    """Initialize a process of the pool: ignore keyboard interrupts, and exit when the parent process has ended."""
    gc.set_threshold(*PROCESS.garbage_threshold_counts)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
