"""A batch on a Dask cluster: Dask says who does what next, our own processes do it.

The client reads the files of an instance and sends them along (`flowlex.cli.shipping`); results come back in the order
in which they finish. A few more tasks than there are threads are under way at any time, so neither client nor scheduler
holds the whole batch. Dask runs the tasks of a worker that died elsewhere; how often, we count on the scheduler.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from flowlex.cli.output import note
from flowlex.cli.pool import Finished, PoolError, grace_s
from flowlex.cli.record import blank
from flowlex.cli.shipping import TRIES, Parcel, lost, pack, perform
from flowlex.cli.versions import different, versions
from flowlex.instances.base import InstanceError

__all__ = ["Cluster", "entered"]

_LOCAL = re.compile(r"local:([1-9]\d{0,3})")
_ADDRESS = re.compile(r"[a-z]+://\S+:\d+")
#: Seconds to reach a scheduler, and then for a first worker to be there.
_REACH_S, _WORKER_S = 10.0, 60.0
#: Tasks under way beyond two per thread.
_AHEAD = 32
#: Bytes of files on their way at which no more are read.
_MOST_BYTES = 256 << 20
#: Times that Dask may give a task up for workers that died before they came to it.
_INNOCENT = 20


class Cluster:
    """A scheduler of Dask and its workers; a context manager.

    Parameters
    ----------
    scheduler
        ``tcp://HOST:PORT`` (or ``tls://``), or ``local:N``: N worker processes of this machine, ended afterwards.

    Raises
    ------
    PoolError
        No such address, nobody answers there, it has no workers, or workers have other versions.
    """

    def __init__(self, scheduler: str, *, quiet: bool = False) -> None:
        self.quiet: bool
        self.scheduler, self.quiet = scheduler, quiet
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
            self._check()
            self._stack = stack.pop_all()
        if not self.quiet:
            note(f"{self.threads} threads of {self.workers} workers; dashboard: {self._client.dashboard_link}")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _address(self, stack: contextlib.ExitStack) -> str:
        here = _LOCAL.fullmatch(self.scheduler)
        if here is None:
            if not _ADDRESS.fullmatch(self.scheduler):
                told = "tcp://HOST:PORT, tls://HOST:PORT or local:N"
                raise PoolError(f"--scheduler {self.scheduler!r} is no address of a scheduler; give {told}")
            return self.scheduler
        import logging

        from distributed import LocalCluster

        about: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
        cluster: Any = LocalCluster(n_workers=int(here[1]), **about)  # type: ignore[no-untyped-call]
        return str(stack.enter_context(cluster).scheduler_address)

    def _check(self) -> None:
        """Wait for a worker, and compare versions with all that are there."""
        try:
            self._client.wait_for_workers(1, timeout=_WORKER_S)
        except TimeoutError as error:
            remedy = f"start one: dask worker {self.scheduler}"
            raise PoolError(f"the scheduler {self.scheduler} has no workers after {_WORKER_S:g} s; {remedy}") from error
        ours, wrong = versions(), []
        for worker, theirs in self._client.run(_versions, on_error="return").items():
            if isinstance(theirs, BaseException):
                wrong.append(f"{worker} cannot run flowlex ({type(theirs).__name__}: {theirs})")
            elif different(ours, theirs):
                wrong.append(f"{worker} has {different(ours, theirs)}")
        if wrong:
            more = f" (and {len(wrong) - 3} more workers)" if len(wrong) > 3 else ""
            raise PoolError(f"workers have other versions than this client: {'; '.join(wrong[:3])}{more}")

    @property
    def threads(self) -> int:
        """Instances that can be worked on at once."""
        return sum(about["nthreads"] for about in self._client.scheduler_info()["workers"].values())

    @property
    def workers(self) -> int:
        """Worker processes."""
        return len(self._client.scheduler_info()["workers"])

    def perform(
        self, tasks: Sequence[dict[str, Any]], inputs: Callable[[dict[str, Any]], Sequence[Path]]
    ) -> Iterator[Finished]:
        """Yield what became of each task, as they finish.

        Parameters
        ----------
        inputs
            The files that a task reads.

        Raises
        ------
        PoolError
            The scheduler is lost.
        """
        return _Run(self._client, tasks, inputs).finished(lambda: self.threads)


def entered(stack: contextlib.ExitStack, scheduler: str | None) -> Cluster | None:
    """The cluster that an option names, entered; None without one."""
    return None if scheduler is None else stack.enter_context(Cluster(scheduler))


class _Run:
    """Tasks on their way: waiting, being read, at the cluster."""

    def __init__(
        self,
        client: Any,
        tasks: Sequence[dict[str, Any]],
        inputs: Callable[[dict[str, Any]], Sequence[Path]],
    ) -> None:
        self.client, self.inputs, self.run = client, inputs, uuid.uuid4().hex
        self.divided = any(task.get("divided") for task in tasks)
        self.waiting = deque((str(number), task) for number, task in enumerate(tasks))
        self.reading: dict[str, tuple[dict[str, Any], float]] = {}
        self.away: dict[Any, tuple[Parcel, int]] = {}
        self.bytes = 0
        self.news: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def finished(self, threads: Callable[[], int]) -> Iterator[Finished]:
        looked, most = 0.0, 1
        while self.waiting or self.reading or self.away:
            if time.monotonic() - looked > 1.0:
                looked, most = time.monotonic(), threads() if self.divided else 2 * threads() + _AHEAD
                yield from self._late()
            while self.waiting and len(self.reading) + len(self.away) < most and self.bytes < _MOST_BYTES:
                self._read(*self.waiting.popleft())
            yield from self._hear(self._news())
        with contextlib.suppress(OSError):  # the scheduler need not remember who tried what
            self.client.set_metadata(["flowlex", self.run], None)

    def _news(self) -> list[Any]:
        """What came, all of it; waits for a moment if there is nothing."""
        found = []
        with contextlib.suppress(queue.Empty):
            found.append(self.news.get(timeout=0.5))
            while True:
                found.append(self.news.get_nowait())
        return found

    def _read(self, key: str, task: dict[str, Any]) -> None:
        """Read the files of a task in a thread, which may hang for ever without harm."""
        limit = task["time_limit_s"]
        self.reading[key] = (task, float("inf") if limit is None else time.monotonic() + limit + grace_s(limit))

        def read() -> None:
            try:
                found: Any = pack(task, self.inputs(task), run=self.run, key=key, versions=versions())
            except Exception as error:
                found = error
            self.news.put((key, found))

        threading.Thread(target=read, daemon=True).start()

    def _late(self) -> Iterator[Finished]:
        for key, (task, deadline) in list(self.reading.items()):
            if deadline <= time.monotonic():
                del self.reading[key]
                message = f"stopped while reading it: limit {task['time_limit_s']:g} s"
                yield Finished(task, _record(task, "time_limit", message))

    def _hear(self, news: list[Any]) -> Iterator[Finished]:
        """Send what was read; report what is done."""
        done, ready = [], []
        for item in news:
            if not isinstance(item, tuple):
                done.append(item)
                continue
            key, found = item
            if key not in self.reading:
                continue  # too late
            task, _ = self.reading.pop(key)
            if isinstance(found, Parcel):
                ready.append(found)
            else:
                known = isinstance(found, InstanceError)
                yield Finished(task, _record(task, "error", str(found) if known else f"cannot be read: {found!r}"))
        if ready:
            self._send(ready, 0)
        results = self._results([future for future in done if future.status == "finished"])
        for future in done:
            yield from self._arrived(future, results.get(future))

    def _results(self, futures: list[Any]) -> dict[Any, Finished]:
        """Fetch results, many at once; one whose worker died meanwhile has none."""
        from distributed import KilledWorker

        try:
            return dict(zip(futures, self.client.gather(futures), strict=True)) if futures else {}
        except KilledWorker:
            return {future: self.client.gather(future) for future in futures if future.status == "finished"}

    def _send(self, parcels: list[Parcel], before: int) -> None:
        """Give the scheduler some tasks, in one message."""
        names = [f"flowlex-{self.run}-{parcel.key}-{before}" for parcel in parcels]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that they are large: this is how a worker gets them
            futures = self.client.map(perform, parcels, key=names, pure=False, fifo_timeout="0 ms")
        for future, parcel in zip(futures, parcels, strict=True):
            self.away[future] = (parcel, before)
            self.bytes += parcel.size
            future.add_done_callback(self.news.put)

    def _arrived(self, future: Any, result: Finished | None) -> Iterator[Finished]:
        from distributed import KilledWorker

        parcel, before = self.away[future]
        if result is None and future.status in ("pending", "lost", "finished"):  # its worker died after the end: again
            future.add_done_callback(self.news.put)
            return
        del self.away[future]
        self.bytes -= parcel.size
        if result is not None:
            yield result
            return
        if future.status != "error":
            raise PoolError(f"the scheduler is lost (tasks are {future.status}); start it and go on with --resume")
        error = future.exception()
        if not isinstance(error, KilledWorker):
            yield Finished(parcel.task, _record(parcel.task, "error", f"the cluster failed: {error!r}"))
            return
        tried = tuple(self.client.get_metadata(["flowlex", self.run, parcel.key], default=()))
        if len(tried) >= TRIES or before >= _INNOCENT:
            yield Finished(parcel.task, _record(parcel.task, "error", lost(tried)))
        else:  # it only waited where others killed
            self._send([parcel], before + 1)


def _record(task: dict[str, Any], status: str, message: str) -> dict[str, Any]:
    return blank(task["instance"], task["engine"]) | {"status": status, "message": message}


def _versions() -> dict[str, str]:
    """What a worker tells (a function that it can import only if it has flowlex)."""
    return dict(versions())
