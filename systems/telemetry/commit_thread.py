"""The commit thread: it combines all waiting requests in one transaction.

A write costs a flush to disk. Committing all waiting requests in one transaction bounds the number of flushes, keeps
waiting writers out of the threads that answer reads, and prevents writers of this process from waiting for each
other's lock. Heartbeats, introductions and retention use the same thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa

from flowlex.systems.telemetry.prometheus_metrics import Metrics
from flowlex.systems.telemetry.request_documents import WriteBatch
from flowlex.systems.telemetry.sample_writes import SequenceConflict
from flowlex.systems.telemetry.service_clock import Clock
from flowlex.systems.telemetry.store import Store

_LOG = logging.getLogger(__name__)
T = TypeVar("T")

#: Most waiting writes and bytes; more are refused, so that a slow disk does not fill the memory.
MAX_WAITING, MAX_WAITING_BYTES = 2_000, 64_000_000
#: Approximate number of samples in one transaction.
MAX_GROUP = 2_000
#: If ``CROWD`` batches came within ``CROWD_S`` seconds, a transaction waits ``LINGER_S`` for more: a flush costs more
#: processor time than storing a batch, and reads need that time.
CROWD, CROWD_S, LINGER_S = 16, 0.1, 0.05
#: Seconds for which a failed write makes the service not ready, unless samples are stored.
FAILING_S = 30.0
#: Errors of a locked, full or unreachable database: the written data are not at fault.
UNAVAILABLE = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError)


class BusyError(Exception):
    """Too many writes wait, or the database is locked, full or unreachable; the client should try again."""


@dataclass(frozen=True)
class _Item:
    """A write to commit: a batch of samples, or a call with its own transaction."""

    done: Future[Any]
    batch: WriteBatch | None = None
    call: Callable[[], Any] | None = None
    size: int = 0


class Writer:
    """Commits writes in order of arrival; each future completes when its write is on disk."""

    def __init__(self, store: Store, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._waiting: deque[_Item] = deque()
        self._bytes = 0
        self._came: deque[float] = deque(maxlen=CROWD)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._failed_at = float("-inf")

    def submit(self, batch: WriteBatch, size: int = 0) -> Future[int]:
        """Queue a batch of ``size`` bytes; the result is the number of its new samples.

        Raises `BusyError` if too much waits already.
        """
        done: Future[int] = Future()
        self._put(_Item(done, batch=batch, size=size))
        return done

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Queue a function that writes in a transaction of its own; `BusyError` as with `submit`."""
        done: Future[T] = Future()
        self._put(_Item(done, call=function))
        return done

    def close(self) -> None:
        """Commit the waiting writes, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    @property
    def waiting(self) -> int:
        """How many writes wait."""
        return len(self._waiting)

    @property
    def failing(self) -> bool:
        """Whether a write failed within `FAILING_S` and no samples were stored since: small writes may still work."""
        return time.monotonic() - self._failed_at < FAILING_S

    @property
    def full(self) -> bool:
        """Whether further writes are refused."""
        return len(self._waiting) >= MAX_WAITING or self._bytes >= MAX_WAITING_BYTES

    def _put(self, item: _Item) -> None:
        with self._changed:
            full = len(self._waiting) >= MAX_WAITING or self._bytes + item.size > MAX_WAITING_BYTES
            if full or self._closed:
                raise BusyError("too many writes wait" if full else "the service stops")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="telemetry-writer", daemon=True)
                self._thread.start()
            self._waiting.append(item)
            if item.batch is not None:
                self._came.append(time.monotonic())
            self._bytes += item.size
            self._changed.notify()

    def _work(self) -> None:
        while group := self._next_group():
            started = time.monotonic()
            if group[0].batch is None:
                self._run(group[0])
            else:
                self._commit(group)
            self._metrics.commit.observe(time.monotonic() - started)

    def _next_group(self) -> list[_Item]:
        """Wait for work: batches for one transaction, or one call; empty when the writer is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            crowded = len(self._came) == CROWD and time.monotonic() - self._came[0] < CROWD_S
        if crowded:
            time.sleep(LINGER_S)
        with self._changed:
            group: list[_Item] = []
            samples = 0
            while self._waiting and samples < MAX_GROUP:
                batch = self._waiting[0].batch
                if batch is None and group:
                    break
                group.append(self._take())
                if batch is None:
                    break
                samples += len(batch.samples)
            return group

    def _take(self) -> _Item:
        item = self._waiting.popleft()
        self._bytes -= item.size
        # From here on it cannot be cancelled: data of a disconnected client are still written.
        item.done.set_running_or_notify_cancel()
        return item

    def _run(self, item: _Item) -> None:
        assert item.call is not None
        try:
            _finish(item, item.call())
        except UNAVAILABLE as error:
            self._give_up([item], error)
        except Exception as error:
            _LOG.error("a write failed: %s", type(error).__name__)
            _fail(item, error)

    def _commit(self, group: list[_Item]) -> None:
        batches = [item.batch for item in group if item.batch is not None]
        try:
            counts = self._store.writer.write([(b.node, b.source, b.samples) for b in batches], self._clock.now())
        except UNAVAILABLE as error:
            self._give_up(group, error)
        except Exception as error:
            if len(group) > 1:  # one bad batch must not fail the others
                for item in group:
                    self._commit([item])
                return
            if not isinstance(error, SequenceConflict):
                _LOG.error("a write of node %s failed: %s", batches[0].node, type(error).__name__)
            _fail(group[0], error)
        else:
            self._failed_at = float("-inf")
            for item, batch, count in zip(group, batches, counts, strict=True):
                self._metrics.samples.labels("stored").inc(count)
                self._metrics.samples.labels("known").inc(len(batch.samples) - count)
                _finish(item, count)

    def _give_up(self, group: list[_Item], error: Exception) -> None:
        """Refuse all waiting writes: trying each in turn would delay the last for minutes."""
        self._failed_at = time.monotonic()
        with self._changed:
            group += [self._take() for _ in range(len(self._waiting))]
        _LOG.error("the database is not available (%s): %d writes are sent back", type(error).__name__, len(group))
        self._metrics.refused.labels("database").inc(len(group))
        for item in group:
            _fail(item, BusyError("the database is locked, full or away"))


def _finish(item: _Item, answer: Any) -> None:
    if not item.done.cancelled():
        item.done.set_result(answer)


def _fail(item: _Item, error: Exception) -> None:
    if not item.done.cancelled():
        item.done.set_exception(error)
