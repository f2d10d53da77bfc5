"""Supervised worker processes, so that no instance can hang or end the batch.

joblib and Dask alone do not suffice: a task that hangs in compiled code (a network simplex, a read from a dead disk)
cannot be stopped without breaking their executors, and a worker killed for its memory ends every running task. Here
each thread has one process in its own process group, which runs one task at a time. An instance is stopped by killing
that group, and the thread starts another process. Processes are reused, since importing numpy and the solvers takes
half a second. On a Dask cluster (`flowlex.cli.dask_batch`) each thread of a Dask worker has one process.

The first processes are forks of the command itself, before it has threads: starting another interpreter would take
longer than solving a tiny instance.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any

from flowlex.cli.console_output import note
from flowlex.cli.memory_limits import out_of_memory
from flowlex.cli.result_record import blank, cut_off

_START_S = 120.0
#: Seconds that compiling loops may take before a process counts as hung.
_COMPILE_S = 600.0
#: Most consecutive processes that may end before they begin a task.
_PATIENCE = 3
#: Seconds between checks whether a task is still wanted.
_POLL_S = 0.5


class PoolError(RuntimeError):
    """No process can be started, or no cluster answers."""


class Cancelled(Exception):
    """The task was stopped because its result is no longer wanted."""


@dataclass(frozen=True)
class Finished:
    """The result of one task: its record, tables to display, and whether the options were wrong.

    ``files`` has the content of files that the task wrote on another machine, by name.
    """

    task: dict[str, Any]
    record: dict[str, Any]
    display: dict[str, Any] = field(default_factory=dict)
    usage: bool = False
    files: dict[str, bytes] = field(default_factory=dict, repr=False)


def failed(task: dict[str, Any], status: str, message: str) -> Finished:
    """Return the result of a task of which only the end is known."""
    return Finished(task, blank(task["instance"], task["engine"]) | {"status": status, "message": message})


#: Called with a task and an event of its worker (see `flowlex.cli.worker_process`).
Listener = Callable[[dict[str, Any], dict[str, Any]], None]
#: Serves the process with this id until standard input ends.
Serve = Callable[[int], None]


def grace_s(time_limit_s: float) -> float:
    """Seconds after the time limit at which a process that has not answered is killed."""
    return 2.0 + time_limit_s / 10


def solve_all(
    tasks: Iterable[dict[str, Any]], jobs: int, listener: Listener | None = None, serve: Serve | None = None
) -> Iterator[Finished]:
    """Run tasks (see `flowlex.cli.worker_process.run_task`) on ``jobs`` processes, which start at once.

    With ``serve`` (the worker's main function), they are forks of this process where that is safe.

    Yield each as it finishes, also after failures; raise `PoolError` if workers end before they begin to work.
    """
    waiting, results = SimpleQueue[dict[str, Any]](), SimpleQueue[Finished | Exception]()
    stop, announced = threading.Event(), threading.Event()
    tasks = list(tasks)
    for task in tasks:
        waiting.put(task)
    many = len(tasks)

    def notify(task: dict[str, Any], event: dict[str, Any]) -> None:
        if event["event"] == "compiling" and not announced.is_set():
            announced.set()
            note("compiling numerical loops, once for this machine; `flowlex warm-up` does it ahead")
        if listener is not None:
            listener(task, event)

    def work(worker: SingleWorker) -> None:
        with contextlib.closing(worker):
            try:
                while not stop.is_set():
                    results.put(worker.perform(waiting.get_nowait(), lambda: not stop.is_set(), notify))
            except (Empty, Cancelled):
                pass
            except Exception as error:
                results.put(error)

    workers = [SingleWorker(serve) for _ in range(min(jobs, many))]
    for worker, task in zip(workers, tasks, strict=False):
        with contextlib.suppress(PoolError):  # the thread tries again
            worker.start(task)
    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:  # processes import for half a second, during which the caller can continue
        thread.start()

    def finishing() -> Iterator[Finished]:
        try:
            for _ in range(many):
                found = results.get()
                if isinstance(found, Exception):
                    raise found
                yield found
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    return finishing()


class SingleWorker:
    """One supervised process that runs tasks one at a time and stays alive between them."""

    def __init__(self, serve: Serve | None = None) -> None:
        self._serve = serve
        self._process: _Process | None = None

    def start(self, task: dict[str, Any]) -> _Process:
        """Start the process for a task, if there is none."""
        try:
            self._process = self._process or _Process(self._serve, show_log=task["log"])
        except OSError as error:
            raise PoolError(f"no worker process can be started: {error.strerror or error}") from error
        return self._process

    def perform(self, task: dict[str, Any], wanted: Callable[[], bool], listener: Listener | None = None) -> Finished:
        """Run one task; raise `Cancelled` once ``wanted``, called every half second, returns False."""
        words = ""
        for _ in range(_PATIENCE):
            process = self.start(task)
            process.assign(task)
            try:
                while wanted():
                    for event in process.read(_POLL_S):
                        if event["event"] == "done":
                            process.task = None
                            return Finished(task, event["record"], event["display"], event["usage"])
                        process.take_in(event)
                        if listener is not None:
                            listener(task, event)
            except EOFError:
                log = process.log_tail()
                limit_mb = task.get("memory_limit_mb")
                said, cause = log.strip().rpartition("\n")[2].strip(), _cause(self.close(), limit_mb)
                if message := process.stage and out_of_memory(limit_mb, log):
                    return process.cut_off("error", message, "memory limit")
                if process.stage:
                    message = f"the process that was {process.stage} it ended: {cause} {said}".strip()
                    return process.cut_off("error", message)
                words = said or cause
            except TimeoutError as late:
                self.close()
                return process.cut_off("time_limit", str(late))
            else:
                self.close()
                raise Cancelled
        raise PoolError(f"worker processes end before they begin: {words}")

    def close(self) -> int:
        """End the process, if there is one; return its exit code."""
        process, self._process = self._process, None
        return 0 if process is None else process.kill()


class _Process:
    """One process and its current task."""

    def __init__(self, serve: Serve | None, *, show_log: bool) -> None:
        self.log: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115  (closed by kill)
        (given, inbox), (outbox, told) = os.pipe(), os.pipe()
        self.inbox, self.outbox = os.fdopen(inbox, "wb"), os.fdopen(outbox, "rb")
        stderr = 2 if show_log else self.log.fileno()
        self.process: subprocess.Popen[bytes] | _Fork
        if serve is not None and _may_fork() and min(given, told) > 2:
            self.process = _Fork(serve, given, told, stderr)
        else:
            command = [sys.executable, "-P", "-m", "flowlex.cli.worker_process", str(os.getpid())]
            self.process = subprocess.Popen(command, stdin=given, stdout=told, stderr=stderr, start_new_session=True)
        os.close(given)
        os.close(told)
        self.task: dict[str, Any] | None = None
        self.unread = b""

    def assign(self, task: dict[str, Any]) -> None:
        self.task = task
        self.given, self.stage = task, ""
        self.reply: dict[str, Any] = {}
        self.answer: dict[str, Any] | None = None
        self.deadline = time.monotonic() + _START_S  # for imports; the first stage restarts the clock
        self.log.truncate(0)
        with contextlib.suppress(BrokenPipeError):  # it has ended; the next read reports that
            self.inbox.write(json.dumps(task).encode() + b"\n")
            self.inbox.flush()

    def take_in(self, event: dict[str, Any]) -> None:
        """Record a new stage with its partial result, or an answer; the deadline is suspended while loops compile."""
        now, limit = time.monotonic(), self.given["time_limit_s"]
        if event["event"] == "answer":
            self.answer = event["record"]
        elif event["event"] == "stage":
            if not self.stage or event["stage"] == "comparing":
                self.deadline = float("inf") if limit is None else now + limit + grace_s(limit)
            self.stage = event["stage"]
            self.reply = {key: event[key] for key in ("record", "display", "usage") if key in event}
        elif event["event"] == "compiling" and event["on"]:
            self.left, self.deadline = self.deadline - now, now + _COMPILE_S
        elif event["event"] == "compiling":
            self.deadline = now + self.left

    def read(self, most_s: float) -> Iterator[dict[str, Any]]:
        """Yield the messages that arrive within some seconds.

        Raises `EOFError` if the process has ended, and `TimeoutError` with the stage after the deadline.
        """
        left = self.deadline - time.monotonic()
        if select.select([self.outbox], [], [], max(0.0, min(most_s, left)))[0]:
            data = os.read(self.outbox.fileno(), 1 << 20)
            if not data:
                raise EOFError
            *lines, self.unread = (self.unread + data).split(b"\n")
            yield from map(json.loads, lines)
        if self.deadline <= time.monotonic():
            limit = self.given["time_limit_s"]
            stage = f"while {self.stage} it: limit {limit:g} s" if limit is not None and self.stage else ""
            raise TimeoutError(f"stopped {stage}" if stage else "stopped: it did not begin")

    def cut_off(self, status: str, message: str, by: str = "killed") -> Finished:
        """Return the result of a task that was cut off."""
        record = self.reply.get("record") or blank(self.given["instance"], self.given["engine"])
        if self.stage == "comparing":  # the instance is solved already
            record["comparison"] = {"message": message}
        elif self.answer is not None:
            record = cut_off(self.answer, "time limit" if status == "time_limit" else by, message)
        else:
            record |= {"status": status, "message": message}
        return Finished(self.given, record, self.reply.get("display", {}))

    def log_tail(self) -> str:
        """Return the end of the process's standard error."""
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - 8_000))
        return self.log.read().decode("utf-8", "replace")

    def kill(self) -> int:
        """End the process and all it started; return its exit code."""
        if self.task is None:  # idle: lets coverage and profilers write their files
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


def _may_fork() -> bool:
    """Whether a fork of this process works: it has one thread, those of compiled libraries counted."""
    try:
        return len(list(Path("/proc/self/task").iterdir())) == 1
    except OSError:  # not Linux
        return False


class _Fork:
    """A worker process that is a fork of this one, used like `subprocess.Popen`."""

    def __init__(self, serve: Serve, stdin: int, stdout: int, stderr: int) -> None:
        parent = os.getpid()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        ready, begun = os.pipe()
        self._code: int | None = None
        self.pid: int = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.setsid()
                for place, descriptor in enumerate((stdin, stdout, stderr)):
                    os.dup2(descriptor, place)
                for entry in list(Path("/proc/self/fd").iterdir()):  # locks, and pipes of other workers
                    if int(entry.name) > 2:
                        with contextlib.suppress(OSError):  # that of the list itself
                            os.close(int(entry.name))
                serve(parent)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.close(begun)
        os.read(ready, 1)  # until the fork has closed its end, so that it leads its group
        os.close(ready)

    def terminate(self) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGTERM)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return the exit code, or the negative number of the signal that ended it."""
        end = None if timeout is None else time.monotonic() + timeout
        while self._code is None:
            pid, status = os.waitpid(self.pid, 0 if end is None else os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
            elif end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            else:
                time.sleep(0.002)
        return self._code


def _cause(code: int, limit_mb: int | None) -> str:
    if code >= 0:
        return f"exit code {code}."
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if name == "SIGKILL":
        return f"{name} (out of memory?)."
    if limit_mb is not None and name in ("SIGSEGV", "SIGBUS", "SIGABRT"):  # used memory it failed to allocate
        return f"{name} (perhaps for lack of memory: the limit is {limit_mb} MB)."
    return f"{name}."
