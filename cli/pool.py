"""Processes that solve instances side by side, and a supervisor that no instance can take down.

Why not joblib or dask alone: both hand tasks to a pool whose unit of failure is the pool. A task that hangs in compiled
code (a network simplex, a read from a dead disk) cannot be stopped without breaking the executor, and a worker
killed for its memory takes down every task in flight. Here each worker is a process of its own in a process group
of its own, with one instance at a time and a pipe: stopping an instance is killing its group, and the pool starts
another worker. Workers are reused, since importing numpy and the solvers takes half a second. On a Dask cluster
(`flowlex.cli.spread`) every thread of its workers has such a supervisor, a `Crew`.
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

from flowlex.cli.record import blank, cut_off

__all__ = ["Crew", "Finished", "Heard", "PoolError", "Unwanted", "grace_s", "solve_all"]

_START_S = 120.0
#: Seconds that compiling loops may take before a worker counts as hanging.
_COMPILE_S = 600.0
#: Workers that may end one after the other without having begun an instance.
_PATIENCE = 3
#: How often a crew looks whether its task is still wanted.
_LOOK_S = 0.5


class PoolError(RuntimeError):
    """Nothing can be worked on: no process can be started, no cluster answers."""


class Unwanted(Exception):
    """Nobody waits for the task any more; it was stopped."""


@dataclass(frozen=True)
class Finished:
    """What became of one task: its record, tables for a person, and whether the options were wrong.

    ``files`` are those that it left on another machine, by name.
    """

    task: dict[str, Any]
    record: dict[str, Any]
    display: dict[str, Any] = field(default_factory=dict)
    usage: bool = False
    files: dict[str, bytes] = field(default_factory=dict, repr=False)


#: Who listens to what workers say on the way: the task and the event (see `flowlex.cli.worker`).
Heard = Callable[[dict[str, Any], dict[str, Any]], None]


def grace_s(time_limit_s: float) -> float:
    """Seconds after the time limit at which a process that has not answered is killed."""
    return 2.0 + time_limit_s / 10


class _Worker:
    """One process and what it is doing."""

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
        assert self.process.stdin is not None and self.process.stdout is not None  # we asked for pipes
        self.inbox, self.outbox = self.process.stdin, self.process.stdout
        self.unread = b""
        self.left: float | None = None
        self.ready = False
        self.task: dict[str, Any] | None = None
        self.stage = ""
        self.reply: dict[str, Any] = {}
        self.answer: dict[str, Any] | None = None
        self.deadline = time.monotonic() + _START_S

    def give(self, task: dict[str, Any]) -> None:
        self.task, self.stage, self.reply, self.answer = task, "", {}, None
        self.deadline = time.monotonic() + _START_S  # it imports what the instance needs; then its clock starts
        self.log.truncate(0)
        with contextlib.suppress(BrokenPipeError):  # it ended just now, which reading from it will tell
            self.inbox.write(json.dumps(task).encode() + b"\n")
            self.inbox.flush()

    def hold(self, compiling: bool) -> None:
        """Let the clock stand still while loops are compiled, once for a machine: that is no work on the instance."""
        now = time.monotonic()
        if compiling:
            self.left, self.deadline = self.deadline - now, now + _COMPILE_S
        elif self.left is not None:
            self.deadline, self.left = now + self.left, None

    def begin(self, event: dict[str, Any]) -> None:
        """Note the stage that began and what is known so far."""
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

    def last_words(self) -> str:
        """The last line on its standard error."""
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - 2000))
        lines = self.log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def kill(self) -> int:
        """End the process and all it started; return its exit code."""
        if self.ready and self.task is None:  # idle: asked first, so that what measures it can write its figures
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                self.process.terminate()
                self.process.wait(timeout=5)
        with contextlib.suppress(ProcessLookupError):  # ended before
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        for stream in (self.inbox, self.outbox, self.log):
            with contextlib.suppress(BrokenPipeError):  # what was left to say to it
                stream.close()
        return code


def solve_all(tasks: Iterable[dict[str, Any]], jobs: int, heard: Heard | None = None) -> Iterator[Finished]:
    """Solve tasks on ``jobs`` processes, started at once; yields each as it finishes, whatever happened to it.

    Parameters
    ----------
    tasks
        See `flowlex.cli.worker.solve_task`.
    jobs
        Worker processes.
    heard
        Told of a task and what its worker says on the way: the stage that begins, the best answer so far.

    Raises
    ------
    PoolError
        Workers end before they begin to work.
    """
    pool = _Pool(deque(tasks), jobs, heard=heard)
    pool.staff()  # what they import takes a while, in which the caller may do other things
    return _finishing(pool)


def _finishing(pool: _Pool) -> Iterator[Finished]:
    try:
        while pool.waiting or pool.workers:
            yield from pool.step()
    finally:
        pool.close()


class Crew:
    """One process that stays between tasks, for whoever hands out tasks himself."""

    def __init__(self) -> None:
        self._pool = _Pool(deque(), 1, stays=True)

    def perform(self, task: dict[str, Any], wanted: Callable[[], bool]) -> Finished:
        """Do one task; asks now and then whether it is still wanted.

        Raises
        ------
        PoolError
            Processes end before they begin to work.
        Unwanted
            The task was stopped, since it is not wanted any more.
        """
        self._pool.waiting.append(task)
        try:
            while wanted():
                for item in self._pool.step(_LOOK_S):
                    return item
        except PoolError:
            self._pool.waiting.clear()
            raise
        self._pool.waiting.clear()
        self._pool.dismiss_all()
        raise Unwanted


class _Pool:
    def __init__(
        self, waiting: deque[dict[str, Any]], jobs: int, *, stays: bool = False, heard: Heard | None = None
    ) -> None:
        self.waiting, self.jobs, self.stays, self.heard = waiting, jobs, stays, heard
        self.workers: list[_Worker] = []
        self.selector = selectors.DefaultSelector()
        self.stillborn = 0

    def step(self, most_s: float = float("inf")) -> Iterator[Finished]:
        """Hand out work, wait for news (so long at most), and report what finished."""
        self.staff()
        if not self.workers:
            return
        wait = min(most_s, min(worker.deadline for worker in self.workers) - time.monotonic())
        timeout = None if wait == float("inf") else max(0.0, wait)
        for key, _ in self.selector.select(timeout):
            yield from self._hear(key.data)
        now = time.monotonic()
        for worker in [w for w in self.workers if w.deadline <= now]:
            yield from self._stop(worker)

    def close(self) -> None:
        """End all workers."""
        self.dismiss_all()
        self.selector.close()

    def dismiss_all(self) -> None:
        """End all workers; others may be started."""
        for worker in list(self.workers):
            self._dismiss(worker)

    def staff(self) -> None:
        """Give work to those who have none, dismiss or hire."""
        idle = [worker for worker in self.workers if worker.ready and worker.task is None]
        for worker in idle:
            if self.waiting:
                worker.give(self.waiting.popleft())
            elif not self.stays:
                self._dismiss(worker)
        starting = sum(not worker.ready for worker in self.workers)
        while len(self.workers) < self.jobs and starting < len(self.waiting):
            try:
                worker = _Worker(show_log=self.waiting[0]["log"])
            except OSError as error:
                raise PoolError(f"no worker process can be started: {error.strerror or error}") from error
            self.workers.append(worker)
            self.selector.register(worker.outbox, selectors.EVENT_READ, worker)
            starting += 1

    def _dismiss(self, worker: _Worker) -> int:
        self.selector.unregister(worker.outbox)
        self.workers.remove(worker)
        return worker.kill()

    def _hear(self, worker: _Worker) -> Iterator[Finished]:
        try:
            for event in worker.read():
                if event["event"] == "done":
                    task, worker.task, worker.deadline = worker.task, None, float("inf")
                    assert task is not None  # it answers only when asked
                    yield Finished(task, event["record"], event["display"], event["usage"])
                    continue
                if event["event"] == "answer":
                    worker.answer = event["record"]
                elif event["event"] == "compiling":
                    worker.hold(event["on"])
                elif event["event"] == "stage":
                    self.stillborn = 0
                    worker.begin(event)
                else:
                    worker.ready, worker.deadline = True, float("inf")
                if worker.task is not None and self.heard is not None:
                    self.heard(worker.task, event)
        except EOFError:
            yield from self._bury(worker)

    def _bury(self, worker: _Worker) -> Iterator[Finished]:
        words = worker.last_words()
        code = self._dismiss(worker)
        if not worker.stage:  # it never began: nobody's fault, try another
            if worker.task is not None:
                self.waiting.appendleft(worker.task)
            self.stillborn += 1
            if self.stillborn >= _PATIENCE:
                raise PoolError(f"worker processes end before they begin: {words or _cause(code)}")
            return
        if worker.task is not None:
            message = f"the process that was {worker.stage} it ended: {_cause(code)}"
            yield self._cut_off(worker, "error", f"{message} {words}".strip())

    def _stop(self, worker: _Worker) -> Iterator[Finished]:
        self._dismiss(worker)
        if worker.task is None:
            raise PoolError(f"a worker process was not ready after {_START_S:g} s: {worker.last_words()}")
        limit = worker.task["time_limit_s"]
        words = f"stopped while {worker.stage} it: limit {limit:g} s" if worker.stage else "stopped: it did not begin"
        yield self._cut_off(worker, "time_limit", words)

    def _cut_off(self, worker: _Worker, status: str, message: str) -> Finished:
        task = worker.task
        assert task is not None  # only called for a worker with a task
        record = worker.reply.get("record") or blank(task["instance"], task["engine"])
        if worker.stage == "comparing":  # the instance itself is solved
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
