"""The one thread that commits data: many waiting requests become one transaction.

A write costs a flush to disk. Committing all requests that wait in one transaction bounds the number of
flushes, and keeps the threads that answer reads free of waiting writers.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from concurrent.futures import Future

from flowlex.telemetry.schemas import WriteBatch
from flowlex.telemetry.store import Store

__all__ = ["BusyError", "Writer"]

_LOG = logging.getLogger(__name__)

#: Batches that may wait; more are refused, so that a slow disk does not fill the memory.
MAX_WAITING = 2_000
#: Batches in one transaction.
MAX_GROUP = 200

_Item = tuple[WriteBatch, "Future[int]"]


class BusyError(Exception):
    """Too many writes wait; the client should come again."""


class Writer:
    """Commits batches in the order they arrive.

    `submit` returns a future of the number of new samples, done when they are on disk.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: queue.Queue[_Item | None] = queue.Queue(MAX_WAITING)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, batch: WriteBatch) -> Future[int]:
        """Queue a batch, or raise `BusyError`; the thread starts with the first."""
        done: Future[int] = Future()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="telemetry-writer", daemon=True)
                self._thread.start()
            try:
                self._waiting.put_nowait((batch, done))
            except queue.Full as error:
                raise BusyError from error
        return done

    def close(self) -> None:
        """Commit what waits, then stop."""
        with self._lock:
            if self._thread is not None:
                self._waiting.put(None)
                self._thread.join()
                self._thread = None

    def _work(self) -> None:
        open_ = True
        while open_:
            item = self._waiting.get()
            group: list[_Item] = []
            while item is not None:
                # From here on the future cannot be cancelled; a client that went away is written all the same.
                item[1].set_running_or_notify_cancel()
                group.append(item)
                if len(group) == MAX_GROUP:
                    break
                try:
                    item = self._waiting.get_nowait()
                except queue.Empty:
                    break
            else:
                open_ = False
            if group:
                self._commit(group)

    def _commit(self, group: list[_Item]) -> None:
        try:
            counts = self._store.write([(b.node, b.source, b.samples) for b, _ in group], time.time())
        except Exception as error:
            if len(group) > 1:  # one bad batch must not refuse its neighbours
                for item in group:
                    self._commit([item])
                return
            _LOG.error("a write of node %s failed: %s", group[0][0].node, type(error).__name__)
            if not group[0][1].cancelled():
                group[0][1].set_exception(error)
            return
        for (_, done), count in zip(group, counts, strict=True):
            if not done.cancelled():
                done.set_result(count)
