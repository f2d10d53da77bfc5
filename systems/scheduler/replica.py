"""A scheduler that follows the log in the database, and leads it while the lease is its own.

Two threads: the *core thread* alone touches the scheduler. It runs queued requests one after the other, and commits the
records of all that waited together in one transaction before it answers them. The *watch thread* reads the lease,
renews it, and takes over when the leader has been silent. While another process leads, it applies new records to a
second scheduler; then the two change places, so that no question waits for a decision that is repeated.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import sqlalchemy as sa

from flowlex.systems.scheduler.database import Lease, LostLease, SchedulerDatabase, Settings, me
from flowlex.systems.scheduler.documents import Core, Document, Refusal, RefusedEvent
from flowlex.systems.scheduler.snapshot_and_log import Answer, Memory
from flowlex.systems.telemetry.commit_thread import BusyError
from flowlex.systems.telemetry.prometheus_metrics import HttpMetrics
from flowlex.systems.telemetry.tokens_and_rights import digest

_LOG = logging.getLogger(__name__)
_MOST_WAITING, _MOST_TOGETHER = 1000, 200
#: Seconds between two looks at the database, between full garbage collections (each 0.3 s at 10 000 machines), and most
#: that a follower waits with events for their decision: in between, the network has no optimum.
_POLL_S, _COLLECT_S, _HOLD_S = 0.1, 600.0, 1.0
_ASKED_S = 3.0  # a client whose last request for the leader is no older counts as coming here instead
#: A call for the core thread, its answer, and whether a defect in it may leave the core in between.
_Job = tuple[Callable[[], Any], Future[Any], bool]
T = TypeVar("T")


class KeyUsed(Refusal):
    """The idempotency key named another request before."""

    status, reason = 422, "key_used"


class StorageError(Refusal):
    """The database cannot be written; whether the request took effect is unknown, and the same key finds out."""


class NotLeading(StorageError):
    """Another process leads: ask that one. ``leader``: its address, empty if none is known."""

    reason = "not_leading"

    def __init__(self, leader: str = "") -> None:
        self.leader = leader
        super().__init__(f"this process follows; {leader or 'nobody'} leads")


@dataclass(frozen=True)
class Pace:
    """When a replica decides, takes over and lets a snapshot be stored."""

    every_s: float | None = None  # from a decision to the next if events have come; None: only on request
    idle_s: float | None = None  # from a decision to the next without events, as time alone may place waiting tasks
    max_events: int = 2000  # most events between two decisions; if more come, a decision is made first
    snapshot_every: int = 1000  # records after which another process stores a snapshot
    lease_s: float = 2.0  # seconds of silence after which a follower takes over


class Replica:
    """See the module. ``url``: where clients find this process."""

    def __init__(self, database: SchedulerDatabase, settings: Settings, pace: Pace, url: str = "") -> None:
        self.database, self.settings, self._pace, self._url = database, settings, pace, url
        self._queue: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self.metrics: HttpMetrics = HttpMetrics("flowlex_scheduler")
        self._counted = self.metrics.counter("records", "Records committed, by kind", "kind")
        self._commit_s = self.metrics.histogram("commit_seconds", "Time of a transaction")
        self._decision_s = self.metrics.histogram("decision_seconds", "Time of a decision, its proof included")
        self._facts = self.metrics.gauge("state", "What the scheduler holds", "what")
        self.metrics.gauge("waiting_requests", "Requests that wait").set_function(self._queue.qsize)
        self.metrics.gauge("leads", "1 while this process leads").set_function(lambda: self.term is not None)
        self._records: list[Document] = []
        self._decided = self._collected = time.monotonic()
        self.term: int | None = None  # while it leads
        self._renewed = 0.0  # when the database last took this leader's word
        self._unreachable = (0.0, "")  # until when the database is not asked whether this process leads, and why
        self.leader = ""  # address of the leader, as far as is known
        self.failing = "nobody leads yet"  # why no decision is possible
        self._asked_at = self._tried_at = float("-inf")  # when a client asked for what only a leader does; a connection
        self._alone_since: float | None = None  # since when the leader cannot be reached from here
        self._usable = True  # whether the memory is what the log says
        self._memory: Memory = Memory.read(database, settings)
        self._spare: Memory | None = None  # of a follower: the scheduler that takes records while the first one answers
        self._closing = threading.Event()
        self._compacting: subprocess.Popen[bytes] | None = None
        self._compacted = self._memory.began
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._run, self._watch)]
        for thread in self._threads:
            thread.start()

    @property
    def stuck(self) -> bool:
        """Whether the database has not answered this leader for a lease, so that another process may lead."""
        return self.term is not None and time.monotonic() > self._renewed + self._pace.lease_s

    def decisions(self, after: int = 0) -> list[Document]:
        """The committed decisions after one, oldest first; those before the last thousand are forgotten."""
        kept = list(self._memory.decisions)
        return kept[max(0, len(kept) - kept[-1]["number"] + after) :] if kept else []

    def ask(self, question: Callable[[Any], T]) -> Future[T]:
        """Run a query on the core thread; the future completes after all changes before it are committed."""
        return self._call(lambda: question(self._core()))

    def take(self, events: Sequence[Document], holder: str = "", key: str = "") -> Future[Answer]:
        """Pass events to the core, up to the first that it refuses, and commit them in one record.

        ``key``: names a request of its ``holder``; again, it is answered as before; `KeyUsed`: its body is another.
        """
        return self._call(lambda: self._take(events, holder, key), changes=True)

    def decide(self, holder: str = "", key: str = "") -> Future[Document]:
        """Decide now; ``holder``, ``key`` as in `take`."""
        return self._call(lambda: self._decide(holder, key), changes=True)

    def close(self) -> None:
        """Finish waiting requests, and let a follower take over."""
        self._closing.set()
        self._threads[1].join(15)  # the core thread answers it until then
        self._call(lambda: None, urgent=True)
        self._threads[0].join(15)
        if self.term is not None:
            try:
                self.database.release(self.term)
            except sa.exc.SQLAlchemyError as error:  # it ends by silence then
                _LOG.error("the lease is not given back: %s", type(error).__name__)
        if self._compacting is not None:
            self._compacting.kill()
            self._compacting.wait()

    def _call(self, run: Callable[[], T], *, changes: bool = False, urgent: bool = False) -> Future[T]:
        if self._queue.qsize() > _MOST_WAITING and not urgent:
            raise BusyError(f"{self._queue.qsize()} requests wait")
        if not (self._usable or urgent):  # they would wait until the state is read, or the database answers
            raise self._unusable()
        future: Future[T] = Future()
        self._queue.put((run, future, changes))
        return future

    def _run(self) -> None:
        """Work off what waits together, decide when it is due, and collect garbage between decisions."""
        while self._queue.qsize() or self._threads[1].is_alive() or not self._closing.is_set():
            jobs: list[_Job] = []
            with contextlib.suppress(queue.Empty):
                jobs.append(self._queue.get(timeout=max(0.0, self._patience())))
                while len(jobs) < _MOST_TOGETHER:
                    jobs.append(self._queue.get_nowait())
            self._work(jobs)
            if not self._queue.qsize():
                self._work([(self._core, Future(), True)])
            if self._patience() <= 0:
                self._decide_when_due()
            if time.monotonic() > self._collected + _COLLECT_S:
                gc.collect()
                self._collected = time.monotonic()

    def _patience(self) -> float:
        """Seconds until a decision is due."""
        waits = self._pace.idle_s, self._pace.every_s if self._memory.core.pending else None
        found = [wait for wait in waits if wait is not None]
        return self._decided + min(found) - time.monotonic() if found and self.term is not None else 3600.0

    def _decide_when_due(self) -> None:
        future: Future[Any] = Future()
        self._work([(self._decide, future, True)])
        error = future.exception()
        said = "" if error is None else f"{type(error).__name__}: {error}"
        if said and said != self.failing:
            _LOG.error("no decision: %s", said)
        if self.term is not None:
            self.failing = said
        self._decided = time.monotonic() + (1.0 if error is not None else 0.0)

    def _core(self) -> Core:
        if not self._usable:
            raise self._unusable()
        self._memory.core.solve_ahead()
        return self._memory.core

    def _unusable(self) -> StorageError:
        return StorageError(self.failing or "the state is read from the database again")

    def _known(self, holder: str, key: str, body: str) -> Answer | None:
        """Return the answer to a request that came before."""
        answer = self._memory.answered.get((holder, key)) if key else None
        if answer is not None and answer.body != body:
            raise KeyUsed("this Idempotency-Key named another request before; give each request its own")
        return answer

    def _take(self, events: Sequence[Document], holder: str, key: str) -> Answer:
        core, body = self._core(), digest(json.dumps(events, sort_keys=True))
        if (known := self._known(holder, key, body)) is not None:
            return known
        self._must_lead()
        if core.pending and core.pending + len(events) > self._pace.max_events:
            if self._pace.every_s is None:
                raise BusyError(f"{core.pending} events wait for a decision; ask /v1/step first")
            self._decide()
        at_s, count, refused = self._now(), 0, ""
        for event in events:
            try:
                core.take(event, at_s)
            except RefusedEvent as error:
                refused = str(error)
                break
            count += 1
        answer = Answer(body, count, refused)
        if count or key:
            self._write({"at_s": at_s, "events": list(events[:count])}, holder, key, answer)
        return answer

    def _decide(self, holder: str = "", key: str = "") -> Document:
        core, known = self._core(), self._known(holder, key, "step")
        for decision in self._memory.decisions:
            if known is not None and decision["number"] == known.taken:
                return decision
        self._must_lead()
        at_s = self._now()
        with self._decision_s.time():
            decision = core.decide(at_s)
        self._decided = time.monotonic()
        self._write({"at_s": at_s, "decided": decision}, holder, key, Answer("step", decision["number"]))
        return decision

    def _must_lead(self) -> None:
        """Refuse what only a leader does. One that was stopped or cut off asks first: its state stays as committed."""
        if self.term is None:
            self._asked_at = time.monotonic()
            raise NotLeading(self.leader)
        if time.monotonic() < self._renewed + self._pace.lease_s / 2 or self._records:
            return
        if time.monotonic() < self._unreachable[0]:  # others that wait are not to wait for the database too
            raise StorageError(self._unreachable[1])
        try:
            self._as_leader(self.database.renew)
        except sa.exc.SQLAlchemyError as error:
            self._unreachable = time.monotonic() + 1.0, f"not taken: {_short(error)}"
            raise StorageError(self._unreachable[1]) from error

    def _as_leader(self, write: Callable[[int], None]) -> None:
        """Write with the term of this leader, and note when the database took it."""
        began = time.monotonic()
        if self.term is None:
            raise NotLeading
        try:
            write(self.term)
        except LostLease:
            self._lead(None)
            raise NotLeading from None
        self._renewed = began

    def _write(self, record: Document, holder: str, key: str, answer: Answer) -> None:
        self._records.append(record | ({"key": [holder, key, *answer]} if key else {}))
        if key:  # a repetition in the same transaction is answered too; `note` does it again once committed
            self._memory.answered[holder, key] = answer

    def _now(self) -> float:
        return round(time.monotonic() - self._base, 6)

    def _work(self, jobs: Sequence[_Job]) -> None:
        """Run calls, commit their records together, and answer them."""
        done: list[tuple[Future[Any], Any]] = []
        broken = False
        for run, future, changes in jobs:
            if future.set_running_or_notify_cancel():
                try:
                    done.append((future, run()))
                except Exception as error:  # after a defect or an unsolvable step, the state is read from the log again
                    done.append((future, error))
                    broken = broken or (changes and not isinstance(error, Refusal | BusyError))
        records, self._records = self._records, []
        said: Exception | None = None
        try:
            if records:
                with self._commit_s.time():
                    self._as_leader(lambda term: self.database.append(term, self._memory.number, records))
            for record in records:
                self._memory.note(self._memory.number + 1, record)
                kind = "decision" if "decided" in record else "event"
                self._counted.labels(kind).inc(len(record.get("events", (0,))))
        except Exception as error:
            said = error if isinstance(error, NotLeading) else StorageError(f"not committed: {_short(error)}")
        if broken or said is not None:
            self._usable = False
            try:
                self._follow_up()
            except Exception as error:
                self._lead(None)
                self.failing = f"the state cannot be read again: {_short(error)}"
                _LOG.error("%s", self.failing)
        for name, value in self._memory.core.facts().items():
            self._facts.labels(name).set(value)
        for future, result in done:
            if isinstance(result, Exception):
                future.set_exception(result)
            elif said is not None:
                future.set_exception(said)
            else:
                future.set_result(result)

    def _follow_up(self) -> None:
        """Apply further records, or read the state again if the memory cannot be used."""
        try:
            while self._usable and self._memory.follow(self.database):
                pass
        except sa.exc.SQLAlchemyError:
            raise
        except Exception as error:  # such as records that are in a snapshot only by now
            _LOG.warning("the state is read again: %s", _short(error))
            self._usable = False
        if not self._usable:
            self._memory = Memory.read(self.database, self.settings)
            self._usable = True

    def _lead(self, term: int | None) -> None:
        if term is not None:
            self._base = time.monotonic() - max(self._memory.at_s, time.time() - self.settings.epoch_s)
            self.failing, self.leader = "", self._url
            _LOG.warning("this process leads now, term %d", term)
        elif self.term is not None:
            self.failing, self.leader = "another process leads", ""
            _LOG.warning("this process leads no more")
        self.term = term

    # The watch thread ---------------------------------------------------------------------------------------------
    def _watch(self) -> None:
        seen, seen_at, told = Lease(-1, -1, None), time.monotonic(), ""
        while not self._closing.wait(_POLL_S):
            looked = False
            try:
                self._compact()
                if self.term is not None:
                    if time.monotonic() > self._renewed + self._pace.lease_s / 5:
                        self._as_leader(self.database.renew)
                    continue
                self._follow()
                cut_off = self._cut_off(self.leader)  # first, as a lease that was renewed meanwhile cannot be taken
                if (lease := self.database.lease())[:2] != seen[:2]:
                    seen, seen_at = lease, time.monotonic()
                looked = True
                self.leader = "" if lease.holder is None else lease.holder["url"]
                self.failing = "this process follows"
                silent = lease.holder is None or time.monotonic() > seen_at + self._pace.lease_s
                if silent and self.database.end_stopped(lease.holder):
                    _LOG.warning("the leader was stopped while it held the database's lock; it is ended")
                if silent or cut_off:
                    self._renewed = time.monotonic()
                    term = self.database.take_over(lease, me(self._url))
                    if term is not None:
                        self._spare = None
                        self._call(self._follow_up, urgent=True).result()  # what the leader before committed until then
                        self._call(partial(self._lead, term), urgent=True).result()
                elif self._spare is None:
                    self._spare = Memory(self.settings, *self._call(lambda: self._memory.saved(), urgent=True).result())
                told = ""
            except NotLeading:
                seen_at = time.monotonic()
            except Exception as error:
                if told != (told := _short(error)):
                    _LOG.error("the database cannot be used: %s", told)
                if self.term is None:
                    self.failing = f"the database cannot be used: {told}"
                    if not looked:  # the leader may have been kept from it too; but its lock may only delay a takeover
                        seen_at = max(seen_at, time.monotonic() - self._pace.lease_s / 2)

    def _follow(self) -> None:
        """Apply further records to the second scheduler while questions go to the first, and let them change places."""
        # None stays after a failure, such as records that only a snapshot holds by now.
        spare, self._spare = self._spare, None
        if spare is None:
            self.database.database.ping()  # before questions have to wait for it
            self._call(self._follow_up, urgent=True).result()
            return
        try:
            while spare.follow(self.database, _HOLD_S):
                if spare.number > self._memory.number:
                    spare.core.foresee()
                    spare = self._call(partial(self._change_places, spare), urgent=True).result()
        except sa.exc.SQLAlchemyError:
            self._spare = spare
            raise
        self._spare = spare

    def _change_places(self, spare: Memory) -> Memory:
        self._memory, spare = spare, self._memory
        return spare

    def _cut_off(self, url: str) -> bool:
        """Return whether clients have long come here instead, as the leader's address cannot be reached.

        The leader may go on writing: the database refuses that from the takeover on. A follower that is cut off itself
        is not asked, and clients that reach the leader stay with it.
        """
        now, at = time.monotonic(), urlsplit(url)
        if not at.hostname or now > self._asked_at + _ASKED_S:
            self._alone_since = None
        elif now > self._tried_at + _POLL_S * 5:
            self._tried_at = now
            try:
                socket.create_connection((at.hostname, at.port or 443), 0.5).close()
                self._alone_since = None
            except OSError:
                self._alone_since = self._alone_since or now
        return self._alone_since is not None and now > self._alone_since + self._pace.lease_s / 4

    def _compact(self) -> None:
        """Let another process store a snapshot; it reads the last one and the log, so that nothing waits for it."""
        if self._compacting is not None and self._compacting.poll() is not None:
            if self._compacting.returncode:
                _LOG.error("no snapshot (exit code %d); the log stays", self._compacting.returncode)
            self._compacting = None
        if self.term is None or self._compacting or self._memory.number < self._compacted + self._pace.snapshot_every:
            return
        self._compacted = self._memory.number
        environment = os.environ | {"FLOWLEX_SCHEDULER_DATABASE": self.database.url}  # it may hold a password
        command = [sys.executable, "-m", "flowlex.systems.scheduler.snapshot_and_log"]
        self._compacting = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def _short(error: Exception) -> str:
    """An error in one line; a database's without the statement, which may hold secrets."""
    said = getattr(error, "orig", None) or error
    return f"{type(said).__name__}: {str(said).strip().partition(chr(10))[0][:200]}"
