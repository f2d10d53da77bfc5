"""A batch on a Dask cluster: Dask assigns tasks to workers; our supervised processes run them.

The client reads the files of an instance and sends them with the task (`flowlex.cli.dask_transport`). Results come back
in the order in which they finish. Only a few more tasks than there are threads are submitted at any time, so neither
client nor scheduler holds the whole batch. When a worker dies, Dask gives its tasks to other workers; the scheduler's
metadata count how often each task was started.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import re
import threading
import time
import uuid
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

from flowlex.cli.console_output import note
from flowlex.cli.dask_transport import TRIES, PackedTask, pack, perform, workers_died
from flowlex.cli.versions import different, versions
from flowlex.cli.worker_pool import Finished, PoolError, failed, grace_s
from flowlex.instances.instance_base import InstanceError

#: Exceptions that Dask raises if the scheduler is gone.
_LOST = (OSError, CancelledError, asyncio.CancelledError)
_LOCAL = re.compile(r"local:([1-9]\d{0,3})")
_ADDRESS = re.compile(r"[a-z]+://\S+:\d+")
#: Seconds to connect to a scheduler, to wait for a first worker, and to wait for another once all are gone.
_REACH_S, _WORKER_S, _NO_WORKER_S = 10.0, 60.0, 600.0
#: Tasks in progress beyond two per thread.
_AHEAD = 32
#: Most bytes of the files of tasks in progress; beyond this, no more files are read.
_MOST_BYTES = 256 << 20
#: How often Dask may give up a task because workers died before they started it.
_INNOCENT = 20


class Cluster:
    """A Dask scheduler and its workers; a context manager.

    ``scheduler`` is ``tcp://HOST:PORT`` (or ``tls://``), or ``local:N`` for N worker processes of this machine, ended
    afterwards. ``wait_s``: seconds to wait for a first worker, and for another once all are gone.
    """

    def __init__(self, scheduler: str, *, quiet: bool = False, wait_s: float | None = None) -> None:
        self.quiet: bool
        self.scheduler, self.quiet, self.wait_s = scheduler, quiet, wait_s
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Cluster:
        try:
            from distributed import Client
        except ImportError as error:
            remedy = "install it with: pip install 'flowlex[distributed]'"
            raise PoolError(f"--scheduler needs {error.name}; {remedy}") from error
        with contextlib.ExitStack() as stack:
            address = self._address(stack)
            try:
                client: Any = Client(address, timeout=_REACH_S, set_as_default=False)  # type: ignore[no-untyped-call]
                self._client: Any = stack.enter_context(client)
            except (OSError, ValueError) as error:
                remedy = "is `dask scheduler` running there, and does a firewall let you through?"
                raise PoolError(f"the scheduler {self.scheduler} does not answer ({error}); {remedy}") from error
            for name in ("distributed", "distributed.client", "asyncio"):
                logging.getLogger(name).setLevel(logging.CRITICAL)  # `perform` reports a lost scheduler once
            try:
                self._check_workers()
            except _LOST as error:
                raise self._lost() from error
            self._stack = stack.pop_all()
        if not self.quiet:
            threads = self._client.nthreads()
            dashboard = self._client.dashboard_link
            note(f"{sum(threads.values())} threads of {len(threads)} workers; dashboard: {dashboard}")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _address(self, stack: contextlib.ExitStack) -> str:
        here = _LOCAL.fullmatch(self.scheduler)
        if here is None:
            if not _ADDRESS.fullmatch(self.scheduler):
                expected = "tcp://HOST:PORT, tls://HOST:PORT or local:N"
                raise PoolError(f"--scheduler {self.scheduler!r} is no address of a scheduler; give {expected}")
            return self.scheduler
        from distributed import LocalCluster

        options: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
        cluster: Any = LocalCluster(n_workers=int(here[1]), **options)  # type: ignore[no-untyped-call]
        return str(stack.enter_context(cluster).scheduler_address)

    def _check_workers(self) -> None:
        """Wait for a worker, and compare the versions of all workers."""
        wait_s = _WORKER_S if self.wait_s is None else self.wait_s
        try:
            self._client.wait_for_workers(1, timeout=wait_s)
        except TimeoutError as error:
            remedy = f"start one: dask worker {self.scheduler}"
            raise PoolError(f"the scheduler {self.scheduler} has no workers after {wait_s:g} s; {remedy}") from error
        ours, wrong = versions(), []
        for worker, theirs in self._client.run(_worker_versions, on_error="return").items():
            if isinstance(theirs, BaseException):
                wrong.append(f"{worker} cannot run flowlex ({type(theirs).__name__}: {theirs})")
            elif different(ours, theirs):
                wrong.append(f"{worker} has {different(ours, theirs)}")
        if wrong:
            more = f" (and {len(wrong) - 3} more workers)" if len(wrong) > 3 else ""
            raise PoolError(f"workers have other versions than this client: {'; '.join(wrong[:3])}{more}")

    def perform(self, tasks: Sequence[dict[str, Any]]) -> Iterator[Finished]:
        """Yield the result of each task, as they finish; waits for workers while there are none."""
        workers = Workers(self._client, self.scheduler, _NO_WORKER_S if self.wait_s is None else self.wait_s)
        try:
            yield from _Run(self._client, tasks).results(workers)
        except _LOST as error:
            raise self._lost() from error

    def _lost(self) -> PoolError:
        return PoolError(f"the scheduler {self.scheduler} is lost; start it and go on with --resume")


class Workers:
    """Counts the cluster's threads once a second; reports when there are none and when workers are back."""

    def __init__(self, client: Any, scheduler: str, wait_s: float) -> None:
        self._client, self._scheduler, self._wait_s = client, scheduler, wait_s
        self._asked, self._threads = float("-inf"), 1
        self._none_since: float | None = None

    def threads(self) -> int:
        """Return the threads of all workers; raise `PoolError` if there were none for ``wait_s`` seconds."""
        now = time.monotonic()
        if now - self._asked < 1.0:
            return self._threads
        self._asked, self._threads = now, sum(self._client.nthreads().values())
        if self._threads:
            if self._none_since is not None:
                note(f"workers are back: {self._threads} threads")
            self._none_since = None
        elif self._none_since is None:
            self._none_since = now
            note(f"no workers at {self._scheduler}; waiting for one (at most {self._wait_s:g} s)")
        elif now - self._none_since > self._wait_s:
            message = f"the scheduler {self._scheduler} had no workers for {self._wait_s:g} s"
            raise PoolError(f"{message}; start one (dask worker {self._scheduler}) and go on with --resume")
        return self._threads


class _Run:
    """The tasks of one run: waiting, being read, read, and at the cluster.

    Files are read in separate threads, and Dask reports results from its own thread; both put events into one queue.
    """

    def __init__(self, client: Any, tasks: Sequence[dict[str, Any]]) -> None:
        self.client, self.run = client, uuid.uuid4().hex
        self.divided = any(task.get("divided") for task in tasks)
        self.waiting = deque((str(number), task) for number, task in enumerate(tasks))
        self.reading: dict[str, dict[str, Any]] = {}
        #: By future: the task, and how often Dask has given it up.
        self.submitted: dict[Any, tuple[PackedTask, int]] = {}
        self.bytes = 0
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def results(self, workers: Workers) -> Iterator[Finished]:
        while self.waiting or self.reading or self.submitted:
            threads = workers.threads()
            most = max(1, threads) if self.divided else 2 * threads + _AHEAD
            while self.waiting and len(self.reading) + len(self.submitted) < most and self.bytes < _MOST_BYTES:
                self._read(*self.waiting.popleft())
            with contextlib.suppress(queue.Empty):
                event = self.events.get(timeout=0.5)
                yield from self._was_read(*event) if isinstance(event, tuple) else self._completed(event)
        with contextlib.suppress(OSError):  # the scheduler no longer needs to know which workers started which task
            self.client.set_metadata(["flowlex", self.run], None)

    def _read(self, key: str, task: dict[str, Any]) -> None:
        """Read the files of a task in a daemon thread, so that a hanging read does not stop the batch."""
        limit = task["time_limit_s"]
        self.reading[key] = task
        late = threading.Timer(0.0 if limit is None else limit + grace_s(limit), self.events.put, [(key, None)])
        late.daemon = True

        def read() -> None:
            try:
                found: Any = pack(task, run=self.run, key=key, versions=versions())
            except Exception as error:
                found = error
            late.cancel()
            self.events.put((key, found))

        threading.Thread(target=read, daemon=True).start()
        if limit is not None:
            late.start()

    def _was_read(self, key: str, found: Any) -> Iterator[Finished]:
        """Send a task whose files were read, unless that took too long (None) or failed."""
        task = self.reading.pop(key, None)
        if task is None:
            return  # overdue
        if found is None:
            yield failed(task, "time_limit", f"stopped while reading it: limit {task['time_limit_s']:g} s")
        elif isinstance(found, PackedTask):
            self.bytes += found.size
            self._submit(found)
        else:
            known = isinstance(found, InstanceError)
            yield failed(task, "error", str(found) if known else f"cannot be read: {found!r}")

    def _submit(self, packed: PackedTask, given_up: int = 0) -> None:
        name = f"flowlex-{self.run}-{packed.key}-{given_up}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # Dask warns of large graphs; they contain files on purpose
            future = self.client.submit(perform, packed, key=name, pure=False)
        self.submitted[future] = (packed, given_up)
        future.add_done_callback(self.events.put)

    def _completed(self, future: Any) -> Iterator[Finished]:
        """Report a result, or decide what to do with a task that has none."""
        from distributed import KilledWorker

        try:
            result = future.result() if future.status == "finished" else None
        except KilledWorker:  # it held the result
            result = None
        if result is None and future.status in ("pending", "lost", "finished"):  # it is being recomputed elsewhere
            future.add_done_callback(self.events.put)
            return
        packed, given_up = self.submitted.pop(future)
        if result is None and future.status == "error" and isinstance(future.exception(), KilledWorker):
            yield from self._given_up(packed, given_up + 1)
            return
        self.bytes -= packed.size
        if result is not None:
            yield result
        elif future.status == "error":
            yield packed.failed(f"the cluster failed: {future.exception()!r}")
        else:
            raise ConnectionError(f"a task is {future.status}")

    def _given_up(self, packed: PackedTask, times: int) -> Iterator[Finished]:
        """Resubmit a task whose workers died, unless `TRIES` workers had started it."""
        started = tuple(self.client.get_metadata(packed.metadata_keys, default=()))
        if len(started) >= TRIES or times > _INNOCENT:
            self.bytes -= packed.size
            yield packed.failed(workers_died(started))
        else:
            self._submit(packed, times)


def _worker_versions() -> dict[str, str]:
    """Return the versions of a worker; it can import this function only if it has flowlex."""
    return dict(versions())
