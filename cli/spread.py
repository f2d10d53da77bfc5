"""A batch on a Dask cluster: Dask says who does what next, our own processes do it.

The client reads the files of an instance and sends them along (`flowlex.cli.shipping`); results come back in the order
in which they finish. A few more tasks than there are threads are under way at any time, so neither client nor scheduler
holds the whole batch. What takes milliseconds is sent several at a time, as each message between client, scheduler and
worker takes some too. Dask runs the tasks of a worker that died elsewhere; how often, we count on the scheduler.
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
from dataclasses import replace
from pathlib import Path
from typing import Any

from flowlex.cli.output import note
from flowlex.cli.pool import Finished, PoolError, grace_s
from flowlex.cli.record import blank
from flowlex.cli.shipping import TRIES, Parcel, counted_as, lost, pack, perform_all
from flowlex.cli.versions import different, versions
from flowlex.instances.base import InstanceError

__all__ = ["Cluster", "entered"]

_LOCAL = re.compile(r"local:([1-9]\d{0,3})")
_ADDRESS = re.compile(r"[a-z]+://\S+:\d+")
#: Seconds to reach a scheduler, and then for a first worker to be there.
_REACH_S, _WORKER_S = 10.0, 60.0
#: Tasks under way beyond two per thread.
_AHEAD = 32
#: Tasks sent together: as many as take so many seconds, and no more than so many.
_TOGETHER_S, _TOGETHER = 0.1, 16
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
        self.ready: list[Parcel] = []
        self.away: dict[Any, tuple[tuple[Parcel, ...], int]] = {}
        self.bytes = 0
        self.each_s = float("inf")
        self.news: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def finished(self, threads: Callable[[], int]) -> Iterator[Finished]:
        looked, count = 0.0, 1
        while self.waiting or self.reading or self.ready or self.away:
            if time.monotonic() - looked > 1.0:
                looked, count = time.monotonic(), threads()
                yield from self._late()
            together = self._together(count)
            most = count if self.divided else 2 * count * together + _AHEAD
            under_way = len(self.reading) + len(self.ready) + sum(len(parcels) for parcels, _ in self.away.values())
            for _ in range(min(most - under_way, len(self.waiting))):
                if self.bytes < _MOST_BYTES:
                    self._read(*self.waiting.popleft())
            yield from self._hear(self._news())
            self._send_ready(together, count)
        with contextlib.suppress(OSError):  # the scheduler need not remember who tried what
            self.client.set_metadata(["flowlex", self.run], None)

    def _together(self, threads: int) -> int:
        """How many tasks to send in one: few where they take long, or where they are too few for all threads."""
        if self.divided:
            return 1
        left = len(self.waiting) + len(self.reading) + len(self.ready)
        return max(1, min(int(_TOGETHER_S / max(self.each_s, 1e-3)), _TOGETHER, left // (2 * threads)))

    def _send_ready(self, together: int, threads: int) -> None:
        """Send what was read, in full bundles; less where nothing more is being read, or threads have nothing to do."""
        bundles: list[tuple[Parcel, ...]] = []
        while self.ready and (
            len(self.ready) >= together or not self.reading or len(self.away) + len(bundles) < threads
        ):
            bundles.append(tuple(self.ready[:together]))
            del self.ready[:together]
        if bundles:
            self._send(bundles, 0)

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
        done = []
        for item in news:
            if not isinstance(item, tuple):
                done.append(item)
                continue
            key, found = item
            if key not in self.reading:
                continue  # too late
            task, _ = self.reading.pop(key)
            if isinstance(found, Parcel):
                self.ready.append(found)
                self.bytes += found.size
            else:
                known = isinstance(found, InstanceError)
                yield Finished(task, _record(task, "error", str(found) if known else f"cannot be read: {found!r}"))
        results = self._results([future for future in done if future.status == "finished"])
        for future in done:
            yield from self._arrived(future, results)

    def _results(self, futures: list[Any]) -> dict[Any, list[Finished] | None]:
        """Fetch results, many at once; one whose worker died meanwhile has none."""
        from distributed import KilledWorker

        try:
            return dict(zip(futures, self.client.gather(futures), strict=True)) if futures else {}
        except KilledWorker:
            return {future: self.client.gather(future) for future in futures if future.status == "finished"}

    def _send(self, bundles: Sequence[tuple[Parcel, ...]], before: int) -> None:
        """Give the scheduler some tasks, in one message."""
        names = [f"flowlex-{self.run}-{parcels[0].key}-{len(parcels)}-{before}" for parcels in bundles]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that they are large: this is how a worker gets them
            futures = self.client.map(perform_all, bundles, key=names, pure=False, fifo_timeout="0 ms")
        for future, parcels in zip(futures, bundles, strict=True):
            self.away[future] = (parcels, before)
            future.add_done_callback(self.news.put)

    def _arrived(self, future: Any, results: dict[Any, list[Finished] | None]) -> Iterator[Finished]:
        """Report the results of one message, or see what to do with its tasks without."""
        from distributed import KilledWorker

        parcels, before = self.away[future]
        if future not in results and future.status in ("pending", "lost", "finished"):  # its worker died at the end
            future.add_done_callback(self.news.put)
            return
        del self.away[future]
        done = results.get(future)
        if done is not None:
            self.bytes -= sum(parcel.size for parcel in parcels)
            for item in done:
                told = [s for s in item.record.get("seconds", {}).values() if s is not None]
                self.each_s = sum(told) if self.each_s == float("inf") else max(sum(told), 0.9 * self.each_s)
            yield from done
            return
        if future not in results:
            if future.status != "error":
                raise PoolError(f"the scheduler is lost (tasks are {future.status}); start it and go on with --resume")
            error = future.exception()
            if not isinstance(error, KilledWorker):
                self.bytes -= sum(parcel.size for parcel in parcels)
                for parcel in parcels:
                    yield Finished(parcel.task, _record(parcel.task, "error", f"the cluster failed: {error!r}"))
                return
        yield from self._killed(parcels, before)

    def _killed(self, parcels: tuple[Parcel, ...], before: int) -> Iterator[Finished]:
        """Workers died that had these tasks, or kept them waiting: send each alone, unless it has had its tries."""
        tried = tuple(self.client.get_metadata(counted_as(parcels), default=()))
        for parcel in parcels:
            had = (*parcel.tried, *tried)
            if len(had) >= TRIES or before >= _INNOCENT:
                self.bytes -= parcel.size
                yield Finished(parcel.task, _record(parcel.task, "error", lost(had)))
            elif len(parcels) == 1:
                self._send([parcels], before + 1)
            else:
                self._send([(replace(parcel, tried=had),)], before + 1)


def _record(task: dict[str, Any], status: str, message: str) -> dict[str, Any]:
    return blank(task["instance"], task["engine"]) | {"status": status, "message": message}


def _versions() -> dict[str, str]:
    """What a worker tells (a function that it can import only if it has flowlex)."""
    return dict(versions())
