"""A scheduler that follows the log in the database, and leads it while the lease is its own.

Two threads: the *core thread* alone touches the scheduler. It runs queued requests one after the other, and commits the
records of all that waited together in one transaction before it answers them. The *watch thread* reads new records and
the lease, renews it, and takes over when the leader has been silent.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import queue
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

import sqlalchemy as sa

from flowlex.systems.scheduler.core_protocol import Core, Document, RefusedEvent, UnknownTask, replay
from flowlex.systems.scheduler.database import Lease, LostLease, SchedulerDatabase, me
from flowlex.systems.scheduler.metrics import Metrics
from flowlex.systems.telemetry.commit_thread import BusyError

_LOG = logging.getLogger(__name__)
_MOST_WAITING, _MOST_TOGETHER, _MOST_KEYS, _MOST_DECISIONS = 1000, 200, 10_000, 1000
#: Seconds between two looks at the database, and between two full garbage collections (each 0.3 s at 10 000 machines).
_POLL_S, _COLLECT_S = 0.1, 600.0
#: Seconds after a client's last request for the leader for which it counts as coming here instead.
_ASKED_S = 3.0
C = TypeVar("C", bound=Core)
T = TypeVar("T")


class KeyUsed(Exception):
    """The idempotency key named another request before."""


class StorageError(Exception):
    """The database cannot be written; whether the request took effect is unknown, and the same key finds out."""


class NotLeading(StorageError):
    """Another process leads: ask that one. ``leader``: its address, empty if none is known."""

    def __init__(self, leader: str = "") -> None:
        self.leader = leader
        super().__init__(f"this process follows; {leader or 'nobody'} leads")


class Answer(NamedTuple):
    """The answer to a request with a key: digest of its body, events taken, why the next was refused."""

    body: str
    taken: int
    refused: str = ""


class Memory(Generic[C]):
    """A core, the number of its last record, and what clients may ask for again: answers by key, decisions."""

    def __init__(self, core: C, number: int, answers: Document) -> None:
        self.core, self.number = core, number
        self.answered: OrderedDict[tuple[str, str], Answer] = OrderedDict(
            ((holder, key), Answer(*said)) for holder, key, *said in answers.get("keys", ())
        )
        self.decisions: deque[Document] = deque(answers.get("decisions", ()), maxlen=_MOST_DECISIONS)

    @classmethod
    def read(cls, database: SchedulerDatabase, load: Callable[[bytes | None], C]) -> Memory[C]:
        """Continue from the newest readable state in the database, and the records after it."""
        first: Exception | None = None
        for number, state, answers in database.snapshots():
            try:
                made = cls(load(None if state is None else zlib.decompress(state)), number, answers)
                while made.follow(database):
                    pass
                return made
            except sa.exc.SQLAlchemyError:
                raise
            except Exception as error:
                _LOG.error("state %d cannot be read (%s); going on from the one before", number, error)
                first = first or error
        assert first is not None
        raise ValueError(f"{database.place}: no state can be read: {first}") from first

    def follow(self, database: SchedulerDatabase) -> int:
        """Apply further records of the log; return how many came."""
        rows = database.records(self.number)
        for number, record in rows:
            replay(self.core, record)
            self.note(number, record)
        return len(rows)

    def note(self, number: int, record: Document) -> None:
        """Remember what a record says, after its events or its decision are in the core."""
        self.number = number
        if "decided" in record:
            self.decisions.append({"at_s": record["at_s"], **record["decided"]})
        if "key" in record:
            holder, key, *said = record["key"]
            self.answered[holder, key] = Answer(*said)
            if len(self.answered) > _MOST_KEYS:
                self.answered.popitem(last=False)

    def answers(self) -> Document:
        """What a snapshot keeps beside the core."""
        keys = [[*key, *answer] for key, answer in self.answered.items()]
        return {"keys": keys, "decisions": list(self.decisions)}


class Replica(Generic[C]):
    """See the module.

    ``every_s``: seconds after the last decision to decide again if events have come; None: only on request. ``idle_s``:
    seconds after the last decision to decide again without events, as time alone may place waiting tasks. ``lease_s``:
    seconds of silence after which a follower takes over.
    """

    def __init__(
        self,
        database: SchedulerDatabase,
        load: Callable[[bytes | None], C],  # creates the core from a state, or (None) from the beginning
        metrics: Metrics,
        *,
        url: str = "",  # where clients find this process
        epoch_s: float = 0.0,  # wall-clock time of the service's second 0
        every_s: float | None = None,
        idle_s: float | None = None,
        max_events: int = 2000,  # most events between two decisions; if more come, a decision is made first
        snapshot_every: int = 1000,  # records after which another process stores a snapshot
        lease_s: float = 2.0,
    ) -> None:
        self.database, self.metrics = database, metrics
        self._load, self._url, self._epoch_s = load, url, epoch_s
        self._every_s, self._idle_s, self._max_events = every_s, idle_s, max_events
        self._snapshot_every, self._lease_s = snapshot_every, lease_s
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
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
        self._memory: Memory[C] = Memory.read(database, load)
        self._base = 0.0
        self._closing = threading.Event()
        self._compacting: subprocess.Popen[bytes] | None = None
        self._compacted = database.last_snapshot()
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (("scheduler", self._run), ("watch", self._watch))
        ]
        for thread in self._threads:
            thread.start()

    # What others call -------------------------------------------------------------------------------------------
    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return self._queue.qsize()

    @property
    def stuck(self) -> bool:
        """Whether the database has not answered this leader for a lease, so that another process may lead."""
        return self.term is not None and time.monotonic() > self._renewed + self._lease_s

    def decisions(self, after: int = 0) -> list[Document]:
        """The committed decisions after one, oldest first; those before the last thousand are forgotten."""
        kept = self._memory.decisions
        news = kept and kept[-1]["number"] > after  # many clients ask often
        return [each for each in list(kept) if each["number"] > after] if news else []

    def ask(self, question: Callable[[C], T]) -> Future[T]:
        """Run a query on the core thread; the future completes after all changes before it are committed."""

        def run() -> T:
            try:
                return question(self._memory.core)
            except (RefusedEvent, UnknownTask):
                raise
            except Exception as error:  # the state is as it was
                raise StorageError(f"no answer: {_short(error)}") from error

        return self._call(run)

    def take(self, events: Sequence[Document], holder: str = "", key: str = "") -> Future[Answer]:
        """Pass events to the core, up to the first that it refuses, and commit them in one record.

        ``key``: names a request of its ``holder``: one that comes again is answered as it was, with `KeyUsed` if its
        body is another.
        """
        return self._call(lambda: self._take(events, holder, key))

    def decide(self, holder: str = "", key: str = "") -> Future[Document]:
        """Decide now; ``holder``, ``key`` as in `take`."""
        return self._call(lambda: self._decide(holder, key))

    def close(self) -> None:
        """Finish waiting requests, and let a follower take over."""
        self._closing.set()
        self._queue.put(None)
        for thread in self._threads:
            thread.join(15)
        if self.term is not None:
            try:
                self.database.release(self.term)
            except sa.exc.SQLAlchemyError as error:
                _LOG.error("the lease is not given back: %s", type(error).__name__)
        if self._compacting is not None:
            self._compacting.kill()
            self._compacting.wait()

    # On the core thread -------------------------------------------------------------------------------------------
    def _call(self, run: Callable[[], T], *, ours: bool = False) -> Future[T]:
        if not ours and self.waiting > _MOST_WAITING:
            raise BusyError(f"{self.waiting} requests wait")
        future: Future[T] = Future()
        self._queue.put((run, future))
        return future

    def _known(self, holder: str, key: str, body: str) -> Answer | None:
        """Return the answer to a request that came before."""
        answer = self._memory.answered.get((holder, key)) if key else None
        if answer is not None and answer.body != body:
            raise KeyUsed("this Idempotency-Key named another request before; give each request its own")
        return answer

    def _take(self, events: Sequence[Document], holder: str, key: str) -> Answer:
        body = _digest(events)
        known = self._known(holder, key, body)
        if known is not None:
            return known
        self._must_lead()
        core = self._memory.core
        if core.pending and core.pending + len(events) > self._max_events:
            if self._every_s is None:
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
        known = self._known(holder, key, "step")
        if known is not None:
            found = next((each for each in self._memory.decisions if each["number"] == known.taken), None)
            if found is not None:
                return found
        self._must_lead()
        at_s, started = self._now(), time.perf_counter()
        decision = self._memory.core.decide(at_s)
        self.metrics.decision.observe(time.perf_counter() - started)
        self._decided = time.monotonic()
        self._write({"at_s": at_s, "decided": decision}, holder, key, Answer("step", decision["number"]))
        return decision

    def _must_lead(self) -> None:
        """Refuse what only a leader does. One that was stopped or cut off asks first: its state stays as committed."""
        if self.term is None:
            self._asked_at = time.monotonic()
            raise NotLeading(self.leader)
        if time.monotonic() < self._renewed + self._lease_s / 2 or self._records:
            return
        if time.monotonic() < self._unreachable[0]:  # others that wait are not to wait for the database too
            raise StorageError(self._unreachable[1])
        try:
            self._renew(self.term)
        except LostLease:
            self._lead(None)
            raise NotLeading from None
        except sa.exc.SQLAlchemyError as error:
            self._unreachable = time.monotonic() + 1.0, f"not taken: {_short(error)}"
            raise StorageError(self._unreachable[1]) from error

    def _renew(self, term: int) -> None:
        began = time.monotonic()
        self.database.renew(term)
        self._renewed = began

    def _write(self, record: Document, holder: str, key: str, answer: Answer) -> None:
        self._records.append(record | ({"key": [holder, key, *answer]} if key else {}))
        if key:  # a repetition in the same transaction is answered too; `note` does it again once committed
            self._memory.answered[holder, key] = answer

    def _now(self) -> float:
        return round(time.monotonic() - self._base, 6)

    def _run(self) -> None:
        open_ = True
        while open_:
            jobs, open_ = self._together()
            if jobs:
                self._work(jobs)
            if open_ and self.term is not None and self._patience() <= 0:
                self._decide_when_due()
            if time.monotonic() > self._collected + _COLLECT_S:
                gc.collect()
                self._collected = time.monotonic()

    def _decide_when_due(self) -> None:
        future: Future[Any] = Future()
        self._work([(self._decide, future)])
        error = future.exception()
        said = "" if error is None else f"{type(error).__name__}: {error}"
        if said and said != self.failing:
            _LOG.error("no decision: %s", said)
        if self.term is not None:
            self.failing = said
        self._decided = time.monotonic() + (1.0 if error is not None else 0.0)

    def _patience(self) -> float:
        """Seconds until a decision is due."""
        waits = [self._idle_s, self._every_s if self._memory.core.pending else None]
        found = [wait for wait in waits if wait is not None]
        return self._decided + min(found) - time.monotonic() if found and self.term is not None else 3600.0

    def _together(self) -> tuple[list[tuple[Callable[[], Any], Future[Any]]], bool]:
        """Wait for a request and take those queued behind it; return False once the replica closes."""
        jobs: list[tuple[Callable[[], Any], Future[Any]]] = []
        try:
            item = self._queue.get(timeout=max(0.0, self._patience()))
            while item is not None:
                jobs.append(item)
                if len(jobs) == _MOST_TOGETHER:
                    break
                item = self._queue.get_nowait()
        except queue.Empty:
            return jobs, True
        return jobs, item is not None

    def _work(self, jobs: Sequence[tuple[Callable[[], Any], Future[Any]]]) -> None:
        done: list[tuple[Future[Any], Any]] = []
        broken = False
        for run, future in jobs:
            if not future.set_running_or_notify_cancel():
                continue
            try:
                if not self._usable and run != self._follow_up:
                    raise StorageError(self.failing or "the state is read from the database again")
                done.append((future, run()))
            except (RefusedEvent, UnknownTask, BusyError, KeyUsed, StorageError) as error:
                done.append((future, error))
            except Exception as error:  # a defect or an unsolvable step: the state is read from the log again
                done.append((future, error))
                broken = broken or run != self._follow_up
        try:
            self._commit()
        except Exception as error:
            broken = True
            if isinstance(error, LostLease):
                self._lead(None)
            said = NotLeading() if isinstance(error, LostLease) else StorageError(f"not committed: {_short(error)}")
            done = [(future, result if isinstance(result, Exception) else said) for future, result in done]
        if broken:
            self._usable, self._records = False, []
            try:
                self._recover()
            except Exception as error:
                self._lead(None)
                self.failing = f"the state cannot be read again: {_short(error)}"
                _LOG.error("%s", self.failing)
        for future, result in done:
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

    def _commit(self) -> None:
        records, self._records = self._records, []
        if not records:
            return
        if self.term is None:
            raise LostLease
        started = time.perf_counter()
        began = time.monotonic()
        self.database.append(self.term, self._memory.number, records)
        self._renewed = began
        self.metrics.commit.observe(time.perf_counter() - started)
        for record in records:
            self._memory.note(self._memory.number + 1, record)
            kind = "decision" if "decided" in record else "event"
            self.metrics.records.labels(kind).inc(len(record.get("events", (0,))))

    def _recover(self) -> None:
        self._memory = Memory.read(self.database, self._load)
        self._usable = True

    def _follow_up(self) -> int:
        """Apply the records of another leader; return how many came."""
        if self._usable:
            try:
                return self._memory.follow(self.database)
            except sa.exc.SQLAlchemyError:
                raise
            except Exception as error:  # such as records that are in a snapshot only by now
                _LOG.warning("the state is read again: %s", _short(error))
                self._usable = False
        self._recover()
        return 1

    def _lead(self, term: int | None) -> None:
        if term is not None:
            self._base = time.monotonic() - max(self._memory.core.now_s, time.time() - self._epoch_s)
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
            try:
                self._compact()
                if (term := self.term) is not None:
                    if time.monotonic() > self._renewed + self._lease_s / 5:
                        self._renew(term)
                    continue
                while self._on_core(self._follow_up):
                    pass
                cut_off = self._cut_off(self.leader)  # first, as a lease that was renewed meanwhile cannot be taken
                lease = self.database.lease()
                if lease[:2] != seen[:2]:
                    seen, seen_at = lease, time.monotonic()
                self.leader = "" if lease.holder is None else lease.holder["url"]
                self.failing = "this process follows"
                silent = lease.holder is None or time.monotonic() > seen_at + self._lease_s
                if silent and self.database.end_stopped(lease.holder):
                    _LOG.warning("the leader was stopped while it held the database's lock; it is ended")
                if silent or cut_off:
                    self._renewed = time.monotonic()
                    taken = self.database.take_over(lease, me(self._url))
                    while taken is not None and self._on_core(self._follow_up):
                        pass  # what the leader before committed until then
                    if taken is not None:
                        self._on_core(lambda term=taken: self._lead(term))  # type: ignore[misc]
                told = ""
            except LostLease:
                self._lead(None)
                seen_at = time.monotonic()
            except Exception as error:
                if told != (told := _short(error)):
                    _LOG.error("the database cannot be used: %s", told)
                if self.term is None:
                    self.failing = f"the database cannot be used: {told}"
                    # The leader may have been kept from it too.
                    seen_at = max(seen_at, time.monotonic() - self._lease_s / 2)

    def _on_core(self, run: Callable[[], T]) -> T:
        return self._call(run, ours=True).result()

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
            except OSError:
                self._alone_since = self._alone_since or now
            else:
                self._alone_since = None
        return self._alone_since is not None and now > self._alone_since + self._lease_s / 4

    def _compact(self) -> None:
        """Let another process store a snapshot; it reads the last one and the log, so that nothing waits for it."""
        if self._compacting is not None and self._compacting.poll() is not None:
            if self._compacting.returncode:
                _LOG.error("no snapshot (exit code %d); the log stays", self._compacting.returncode)
            self._compacting = None
        if self.term is None or self._compacting or self._memory.number < self._compacted + self._snapshot_every:
            return
        self._compacted = self._memory.number
        command = [sys.executable, "-m", "flowlex.systems.scheduler.compaction"]
        self._compacting = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert self._compacting.stdin is not None
        with self._compacting.stdin as stream:  # not in the arguments, as the URL may hold a password
            stream.write(self.database.url.encode())


def _digest(events: Sequence[Document]) -> str:
    return hashlib.sha256(json.dumps(events, sort_keys=True).encode()).hexdigest()


def _short(error: Exception) -> str:
    """An error in one line; a database's without the statement, which may hold secrets."""
    said = getattr(error, "orig", None) or error
    return f"{type(said).__name__}: {str(said).strip().partition(chr(10))[0][:200]}"
