"""A supervised pool of worker processes: no instance can hang or end the batch.

joblib and Dask alone do not suffice: a task that hangs in compiled code (a network simplex, a read from a dead disk)
cannot be stopped without breaking their executors, and a worker that is killed for its memory ends every task in
flight. Here each worker is one process in its own process group and does one task at a time: an instance is stopped by
killing that group, and the pool starts another worker. Workers are reused, since importing numpy and the solvers takes
half a second. On a Dask cluster (`flowlex.cli.dask_batch`) each thread of a Dask worker has a `SingleWorker`.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from flowlex.cli.output import note
from flowlex.cli.record import blank, cut_off

__all__ = ["Cancelled", "Finished", "Listener", "PoolError", "SingleWorker", "grace_s", "solve_all"]

_START_S = 120.0
#: Seconds that compiling loops may take before a worker counts as hung.
_COMPILE_S = 600.0
#: Consecutive workers that may end before they begin an instance.
_PATIENCE = 3
#: Seconds between checks whether a task is still wanted.
_POLL_S = 0.5


class PoolError(RuntimeError):
    """No process can be started, or no cluster answers."""


class Cancelled(Exception):
    """The task was stopped because its result is not wanted any more."""


@dataclass(frozen=True)
class Finished:
    """The result of one task: its record, tables to display, and whether the options were wrong.

    ``files`` are those that the task wrote on another machine, by name.
    """

    task: dict[str, Any]
    record: dict[str, Any]
    display: dict[str, Any] = field(default_factory=dict)
    usage: bool = False
    files: dict[str, bytes] = field(default_factory=dict, repr=False)


#: Called with a task and an event of its worker (see `flowlex.cli.worker`).
Listener = Callable[[dict[str, Any], dict[str, Any]], None]


def grace_s(time_limit_s: float) -> float:
    """Seconds after the time limit at which a process that has not answered is killed."""
    return 2.0 + time_limit_s / 10


class _Worker:
    """One process and its current task."""

    def __init__(self, *, show_log: bool) -> None:
        self.log: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115  (closed by kill)
        command = [sys.executable, "-P", "-m", "flowlex.cli.worker", str(os.getpid())]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if show_log else self.log,
            start_new_session=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None  # pipes, as requested above
        self.inbox, self.outbox = self.process.stdin, self.process.stdout
        self.unread = b""
        self.left: float | None = None
        self.compiling_since = 0.0
        self.ready = False
        self.task: dict[str, Any] | None = None
        self.stage = ""
        self.reply: dict[str, Any] = {}
        self.answer: dict[str, Any] | None = None
        self.deadline = time.monotonic() + _START_S

    def assign(self, task: dict[str, Any]) -> None:
        self.task, self.stage, self.reply, self.answer = task, "", {}, None
        self.deadline = time.monotonic() + _START_S  # for imports; the first stage restarts the clock
        self.log.truncate(0)
        with contextlib.suppress(BrokenPipeError):  # it has ended; the next read reports that
            self.inbox.write(json.dumps(task).encode() + b"\n")
            self.inbox.flush()

    def pause_clock(self, compiling: bool) -> float:
        """Stop the clock of the time limit while loops are compiled, once per machine; the seconds that this took."""
        now = time.monotonic()
        if compiling:
            self.left, self.deadline, self.compiling_since = self.deadline - now, now + _COMPILE_S, now
            return 0.0
        if self.left is not None:
            self.deadline, self.left = now + self.left, None
        return now - self.compiling_since

    def begin(self, event: dict[str, Any]) -> None:
        """Record the stage that began, and the partial result."""
        if not self.stage or event["stage"] == "comparing":
            self._restart_clock()
        self.stage = event["stage"]
        self.reply = {key: event[key] for key in ("record", "display", "usage") if key in event}

    def _restart_clock(self) -> None:
        limit = None if self.task is None else self.task["time_limit_s"]
        self.deadline = float("inf") if limit is None else time.monotonic() + limit + grace_s(limit)

    def read(self) -> Iterator[dict[str, Any]]:
        """Messages that have arrived; raises EOFError when the process has ended."""
        data = os.read(self.outbox.fileno(), 1 << 20)
        if not data:
            raise EOFError
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            yield json.loads(line)

    def last_log_line(self) -> str:
        """The last line on its standard error."""
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - 2000))
        lines = self.log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def kill(self) -> int:
        """End the process and all it started; return its exit code."""
        if self.ready and self.task is None:  # idle: lets coverage and profilers write their files
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                self.process.terminate()
                self.process.wait(timeout=5)
        with contextlib.suppress(ProcessLookupError):  # ended before
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        for stream in (self.inbox, self.outbox, self.log):
            with contextlib.suppress(BrokenPipeError):  # unsent input
                stream.close()
        return code


def solve_all(tasks: Iterable[dict[str, Any]], jobs: int, listener: Listener | None = None) -> Iterator[Finished]:
    """Solve tasks on ``jobs`` processes, started at once; yields each as it finishes, whatever happened to it.

    Parameters
    ----------
    tasks
        See `flowlex.cli.worker.solve_task`.
    jobs
        Worker processes.
    listener
        Called with a task and each event of its worker: a stage begins, a better answer is found.

    Raises
    ------
    PoolError
        Workers end before they begin to work.
    """
    pool = _Pool(deque(tasks), jobs, listener=listener)
    pool.assign_tasks()  # workers import for half a second; the caller can do other things meanwhile
    return _finishing(pool)


def _finishing(pool: _Pool) -> Iterator[Finished]:
    try:
        while pool.waiting or pool.workers:
            yield from pool.step()
    finally:
        pool.close()


class SingleWorker:
    """One supervised process that does tasks one at a time and stays alive between them."""

    def __init__(self) -> None:
        self._pool = _Pool(deque(), 1, stays=True)

    def perform(self, task: dict[str, Any], wanted: Callable[[], bool]) -> Finished:
        """Do one task; calls ``wanted`` every half second.

        Raises
        ------
        PoolError
            Processes end before they begin to work.
        Cancelled
            ``wanted`` returned false and the task was stopped.
        """
        self._pool.waiting.append(task)
        try:
            while wanted():
                for item in self._pool.step(_POLL_S):
                    return item
        except PoolError:
            self._pool.waiting.clear()
            raise
        self._pool.waiting.clear()
        self._pool.stop_workers()
        raise Cancelled


class _Pool:
    def __init__(
        self, waiting: deque[dict[str, Any]], jobs: int, *, stays: bool = False, listener: Listener | None = None
    ) -> None:
        self.waiting, self.jobs, self.stays, self.listener = waiting, jobs, stays, listener
        self.workers: list[_Worker] = []
        self.selector = selectors.DefaultSelector()
        self.failed_starts = 0
        self.compiled_s = 0.0

    def compiling(self, worker: _Worker, on: bool) -> None:
        """A worker begins or ends to compile what no cache holds: its clock waits, and a person is told once."""
        if on and not self.compiled_s:
            note("compiling numerical loops, once for this machine; `flowlex warm-up` does it ahead")
        self.compiled_s += worker.pause_clock(on)

    def step(self, most_s: float = float("inf")) -> Iterator[Finished]:
        """Assign tasks, wait for events (at most ``most_s`` seconds), and yield what finished."""
        self.assign_tasks()
        if not self.workers:
            return
        wait = min(most_s, min(worker.deadline for worker in self.workers) - time.monotonic())
        timeout = None if wait == float("inf") else max(0.0, wait)
        for key, _ in self.selector.select(timeout):
            yield from self._receive(key.data)
        now = time.monotonic()
        for worker in [w for w in self.workers if w.deadline <= now]:
            yield from self._timed_out(worker)

    def close(self) -> None:
        """End all workers; say what compiling took, which no later run needs."""
        if self.compiled_s:
            note(f"compiled numerical loops in {self.compiled_s:.1f} s; the next run finds them compiled")
        self.stop_workers()
        self.selector.close()

    def stop_workers(self) -> None:
        """End all workers; the pool may start others."""
        for worker in list(self.workers):
            self._stop_worker(worker)

    def assign_tasks(self) -> None:
        """Give waiting tasks to idle workers; stop surplus workers, start missing ones."""
        idle = [worker for worker in self.workers if worker.ready and worker.task is None]
        for worker in idle:
            if self.waiting:
                worker.assign(self.waiting.popleft())
            elif not self.stays:
                self._stop_worker(worker)
        starting = sum(not worker.ready for worker in self.workers)
        while len(self.workers) < self.jobs and starting < len(self.waiting):
            try:
                worker = _Worker(show_log=self.waiting[0]["log"])
            except OSError as error:
                raise PoolError(f"no worker process can be started: {error.strerror or error}") from error
            self.workers.append(worker)
            self.selector.register(worker.outbox, selectors.EVENT_READ, worker)
            starting += 1

    def _stop_worker(self, worker: _Worker) -> int:
        self.selector.unregister(worker.outbox)
        self.workers.remove(worker)
        return worker.kill()

    def _receive(self, worker: _Worker) -> Iterator[Finished]:
        try:
            for event in worker.read():
                if event["event"] == "done":
                    task, worker.task, worker.deadline = worker.task, None, float("inf")
                    assert task is not None  # a worker is done only with a task
                    yield Finished(task, event["record"], event["display"], event["usage"])
                    continue
                if event["event"] == "answer":
                    worker.answer = event["record"]
                elif event["event"] == "compiling":
                    self.compiling(worker, event["on"])
                elif event["event"] == "stage":
                    self.failed_starts = 0
                    worker.begin(event)
                else:
                    worker.ready, worker.deadline = True, float("inf")
                if worker.task is not None and self.listener is not None:
                    self.listener(worker.task, event)
        except EOFError:
            yield from self._worker_ended(worker)

    def _worker_ended(self, worker: _Worker) -> Iterator[Finished]:
        words = worker.last_log_line()
        code = self._stop_worker(worker)
        if not worker.stage:  # it ended before it began the task: try another worker
            if worker.task is not None:
                self.waiting.appendleft(worker.task)
            self.failed_starts += 1
            if self.failed_starts >= _PATIENCE:
                raise PoolError(f"worker processes end before they begin: {words or _cause(code)}")
            return
        if worker.task is not None:
            message = f"the process that was {worker.stage} it ended: {_cause(code)}"
            yield self._cut_off(worker, "error", f"{message} {words}".strip())

    def _timed_out(self, worker: _Worker) -> Iterator[Finished]:
        self._stop_worker(worker)
        if worker.task is None:
            raise PoolError(f"a worker process was not ready after {_START_S:g} s: {worker.last_log_line()}")
        limit = worker.task["time_limit_s"]
        words = f"stopped while {worker.stage} it: limit {limit:g} s" if worker.stage else "stopped: it did not begin"
        yield self._cut_off(worker, "time_limit", words)

    def _cut_off(self, worker: _Worker, status: str, message: str) -> Finished:
        task = worker.task
        assert task is not None  # only called for a worker with a task
        record = worker.reply.get("record") or blank(task["instance"], task["engine"])
        if worker.stage == "comparing":  # the instance is solved already
            record["comparison"] = {"message": message}
        elif worker.answer is not None:
            record = cut_off(worker.answer, "time limit" if status == "time_limit" else "killed", message)
        else:
            record |= {"status": status, "message": message}
        return Finished(task, record, worker.reply.get("display", {}))


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}."
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"{name} (out of memory?)." if name == "SIGKILL" else f"{name}."
