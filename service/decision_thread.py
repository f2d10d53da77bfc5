"""The decision thread, which alone changes a scheduler's state: queued requests share one flush to disk."""

from __future__ import annotations

import gc
import logging
import queue
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from flowlex.service.prometheus_metrics import Metrics
from flowlex.service.reader_process import ReaderProcess
from flowlex.service.replication import Replication
from flowlex.service.scheduler_protocol import Core, Document, RefusedEvent, replay
from flowlex.service.state_snapshot_files import Snapshots
from flowlex.service.write_ahead_log import Journal, Position

_LOG = logging.getLogger(__name__)
_MOST_WAITING, _MOST_TOGETHER, _MOST_KEYS = 1000, 200, 10_000
#: Seconds between two full garbage collections, each of which takes 0.3 s on a cluster of 10 000 machines.
_COLLECT_S = 600.0
C = TypeVar("C", bound=Core)


class BusyError(Exception):
    """Too many requests or events wait; nothing has changed."""


class Taken(NamedTuple):
    """Number of events of a request that were taken, and why the next one was refused."""

    taken: int
    refused: str = ""


class StorageError(Exception):
    """The log cannot be written; the request has no effect."""


class NotLeading(StorageError):
    """Another service has or may have taken over: ask that one."""


class _Job(NamedTuple, Generic[C]):
    """A function of the core, its result, and whether the result waits for a standby."""

    run: Callable[[C], Any]
    future: Future[Any]
    replicated: bool = True


class Worker(Generic[C]):
    """A core, its journal, and the thread that operates on both.

    ``every_s``: seconds after the last decision to decide again if events have come; None: only on request. ``idle_s``:
    seconds after the last decision to decide again without events, as time alone may place waiting tasks.
    """

    def __init__(
        self,
        snapshots: Snapshots[C],  # snapshots of the journal, from which the core is recovered first
        metrics: Metrics,
        readers: ReaderProcess,  # readers, which receive all records on disk and answer queries
        *,
        epoch_s: float = 0.0,  # wall-clock time of the service's second 0; its time continues while it is down
        every_s: float | None = None,
        idle_s: float | None = None,
        keep: int = 1000,  # number of decisions that `decisions` keeps
        max_events: int = 2000,  # most events between two decisions; if more come, a decision is made first
    ) -> None:
        self.metrics: Metrics
        self._snapshots, self.metrics, self.readers = snapshots, metrics, readers
        self.journal: Journal = snapshots.journal
        self._every_s, self._idle_s = every_s, idle_s
        self._decided_at: deque[tuple[Position, Document]] = deque(maxlen=keep)
        self._records: list[Document] = []
        self._untold: deque[tuple[Position, bytes | Path]] = deque()  # unsent lines on disk, and states to write
        self._telling = threading.Lock()
        self._max_events = max_events
        self._answered: OrderedDict[str, Taken] = OrderedDict()  # by idempotency key, oldest first
        self._queue: queue.SimpleQueue[_Job[C] | None] = queue.SimpleQueue()
        self._decided = self._collected = time.monotonic()
        self._refusal: StorageError | None = None  # the answer to all further requests
        self._retired = False  # set by the thread: it does nothing more
        self.replication: Replication = Replication(self.journal.folder / "attached-standby")
        self.failing = ""  # why the last automatic decision failed
        self.core: C = self._recover()
        self.readers.start(self.journal)
        if self.replication.standby:
            self.replication.needed = self.journal.end
            _LOG.warning("a standby was attached: nothing is acknowledged until it follows again")
        self._base = time.monotonic() - max(self.core.now_s, time.time() - epoch_s)
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    # What others call -------------------------------------------------------------------------------------------
    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return self._queue.qsize()

    @property
    def decisions(self) -> list[Document]:
        """The last decisions that survive a takeover, oldest first."""
        return [decision for position, decision in list(self._decided_at) if self.replication.covers(position)]

    def call(self, job: Callable[[C], Any], *, replicated: bool = True) -> Future[Any]:
        """Run a function on the thread; the future completes once all its changes are on disk.

        ``replicated``: whether the result waits for an attached standby; it must if anyone may rely on it after a
        takeover.
        """
        if self._refusal is not None:
            raise self._refusal
        if self.waiting > _MOST_WAITING:
            raise BusyError(f"{self.waiting} requests wait")
        future: Future[Any] = Future()
        self._queue.put(_Job(job, future, replicated))
        return future

    def ask(self, question: str, *arguments: Any) -> Future[bytes]:
        """Query the readers; they see the records that survive a takeover."""
        self._tell()
        return self.readers.ask(question, *arguments)

    def _tell(self) -> None:
        """Send readers the records that survive a takeover."""
        with self._telling:
            while self._untold and self.replication.covers(self._untold[0][0]):
                end, new = self._untold.popleft()
                if isinstance(new, bytes):
                    self.readers.tell(end, new)
                else:
                    self._snapshots.wait_for(new, self.readers.ask("save", new))

    def retire(self) -> Future[Any]:
        """Accept and decide nothing more; the future completes once waiting requests are done and the log is closed."""
        self._refusal = NotLeading("another service takes over; ask that one")
        self.failing = str(self._refusal)

        def last(core: C) -> None:
            self._retired = True

        future: Future[Any] = Future()
        self._queue.put(_Job(last, future, replicated=False))
        return future

    def close(self) -> None:
        """Finish waiting requests, take a snapshot and release the journal."""
        self._queue.put(None)
        self._thread.join()
        self.replication.refuse("the service stops")
        if not self._retired:  # a retired service's log stays a part of its successor's
            self._snapshots.close(self.core, self._carried())
        self._snapshots.stop_reading()
        self.readers.close()
        self.journal.close()

    # What jobs call, on the thread --------------------------------------------------------------------------------
    def take(self, events: Sequence[Document], key: str = "") -> Taken:
        """Pass events to the core, up to the first that it refuses, and log them in one record.

        ``key``: names the request: one that comes again is not taken again but answered as it was.
        """
        if key in self._answered:
            return self._answered[key]
        self._require_standby()
        if self.core.pending and self.core.pending + len(events) > self._max_events:
            if self._every_s is None:
                raise BusyError(f"{self.core.pending} events wait for a decision; ask /v1/step first")
            self.decide()
        at_s, count, refused = self._now(), 0, ""
        for event in events:
            try:
                self.core.take(event, at_s)
            except RefusedEvent as error:
                refused = str(error)
                break
            count += 1
        record = {"at_s": at_s, "events": list(events[:count])}
        if key:
            record |= {"key": key, "refused": refused}
        if count or key:
            self._records.append(record)
        return self._remember(key, Taken(count, refused))

    def _remember(self, key: str, taken: Taken) -> Taken:
        if key:
            self._answered[key] = taken
            if len(self._answered) > _MOST_KEYS:
                self._answered.popitem(last=False)
        return taken

    def _carried(self) -> list[Document]:
        """Return the first record of a new log: answers to requests that may be repeated."""
        keys = [[key, *taken] for key, taken in self._answered.items()]
        return [{"keys": keys}] if keys else []

    def decide(self, key: str = "") -> Document:
        """Decide now and log the decision. ``key`` as in `take`."""
        known = self._answered.get(key)
        if known is not None:
            found = next((each for _, each in self._decided_at if each["number"] == known.taken), None)
            if found is not None:
                return found
        self._require_standby()
        at_s = self._now()
        started = time.perf_counter()
        decision = self.core.decide(at_s)
        self.metrics.decision.observe(time.perf_counter() - started)
        self._decided = time.monotonic()
        self._remember(key, Taken(decision["number"]))
        self._records.append({"at_s": at_s, "decided": decision} | ({"key": key} if key else {}))
        return decision

    def _require_standby(self) -> None:
        if trouble := self.replication.trouble:
            raise NotLeading(trouble)

    # The thread ---------------------------------------------------------------------------------------------------
    def _now(self) -> float:
        return round(time.monotonic() - self._base, 6)

    def _run(self) -> None:
        open_, last = True, False
        while open_:
            jobs, open_ = self._together(self._patience())
            self.replication.expire()
            if jobs:
                self._work(jobs)
            if open_ and self._patience() <= 0:
                future: Future[Any] = Future()
                self._work([_Job(lambda core: self.decide(), future)])
                error = future.exception()
                self.failing = "" if error is None else f"{type(error).__name__}: {error}"
                if error is not None and not last:
                    _LOG.error("no decision: %s", self.failing)
                last = error is not None
                self._decided = time.monotonic() + (1.0 if last else 0.0)
            if time.monotonic() > self._collected + _COLLECT_S:
                gc.collect()
                self._collected = time.monotonic()
            if self._snapshots.due and not self._retired:
                end = self.journal.end
                if path := self._snapshots.begin(self._carried()):
                    self._untold.append((end, path))
                    self._tell()

    def _patience(self) -> float:
        """Seconds until a decision is due."""
        if self._refusal is not None:
            return 3600.0
        waits = [self._idle_s, self._every_s if self.core.pending else None]
        found = [wait for wait in waits if wait is not None]
        return self._decided + min(found) - time.monotonic() if found else 3600.0

    def _together(self, seconds: float) -> tuple[list[_Job[C]], bool]:
        """Wait for a request and take those queued behind it; return False once the worker closes."""
        jobs: list[_Job[C]] = []
        try:
            held = 0.25 if self.replication.waiting else 3600.0
            item = self._queue.get(timeout=max(0.0, min(seconds, held)))
            while item is not None:
                jobs.append(item)
                if len(jobs) == _MOST_TOGETHER:
                    break
                item = self._queue.get_nowait()
        except queue.Empty:
            return jobs, True
        return jobs, item is not None

    def _work(self, jobs: list[_Job[C]]) -> None:
        done: list[tuple[_Job[C], Any]] = []
        broken = False
        for job in jobs:
            if not job.future.set_running_or_notify_cancel():
                continue
            try:
                if self._retired:
                    raise NotLeading(self.failing)
                done.append((job, job.run(self.core)))
            except (RefusedEvent, BusyError, StorageError) as error:
                done.append((job, error))
            except Exception as error:  # a defect or an unsolvable step: the state is recovered from the log
                done.append((job, error))
                broken = True
        try:
            self._commit()
        except OSError as error:
            broken = True
            said = StorageError(f"the log cannot be written: {error.strerror or error}")
            done = [(job, result if isinstance(result, Exception) else said) for job, result in done]
        if broken:
            self._start_again()
        _deliver([(job.future, result) for job, result in done if not job.replicated])
        waiting = [(job.future, result) for job, result in done if job.replicated]
        self.replication.answer(self.journal.end, lambda trouble: _deliver(waiting, trouble))

    def _start_again(self) -> None:
        try:
            self.core = self._recover()
        except Exception as error:  # the data on disk are no longer usable: refuse everything, and say why
            self.failing = f"the state cannot be made again: {error}"
            self._refusal = StorageError(self.failing)
            _LOG.critical("%s", self.failing)

    def _commit(self) -> None:
        records, self._records = self._records, []
        if not records:
            return
        started = time.perf_counter()
        lines = self.journal.append(records)
        self.metrics.commit.observe(time.perf_counter() - started)
        self._untold.append((self.journal.end, lines))
        self._tell()
        for record in records:
            if "decided" in record:
                self.metrics.records.labels("decision").inc()
                self._decided_at.append((self.journal.end, {"at_s": record["at_s"], **record["decided"]}))
            else:
                self.metrics.records.labels("event").inc(len(record["events"]))

    def _recover(self) -> C:
        """Recover the state from the journal."""
        number, core = self._snapshots.newest()
        self._answered.clear()
        decisions: deque[Document] = deque(maxlen=self._decided_at.maxlen)
        for record in self.journal.read(number):
            replay(core, record)
            if "decided" in record:
                decisions.append({"at_s": record["at_s"], **record["decided"]})
                self._remember(record.get("key", ""), Taken(record["decided"]["number"]))
                continue
            if "key" in record:
                self._remember(record["key"], Taken(len(record["events"]), record["refused"]))
            for key, count, refused in record.get("keys", ()):
                self._remember(key, Taken(count, refused))
        corrected = core.settle()
        if corrected is not None:
            _LOG.warning("decisions made again differ from the log's; decision %s says so", corrected["number"])
            decisions.append({"at_s": core.now_s, **corrected})
            self.readers.start(self.journal)
        self._decided_at.clear()
        self._decided_at.extend((self.journal.end, decision) for decision in decisions)
        return core


def _deliver(done: list[tuple[Future[Any], Any]], trouble: str = "") -> None:
    for future, result in done:
        if isinstance(result, Exception):
            future.set_exception(result)
        elif trouble:
            future.set_exception(NotLeading(trouble))
        else:
            future.set_result(result)
