"""A core as of the last record of the log, read from the newest snapshot and the records after it.

``python -m flowlex.systems.scheduler.snapshot_and_log`` reads one and stores it as the next snapshot: in a process of
its own, so that no decision waits for a large state.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import zlib
from collections import OrderedDict, deque
from typing import NamedTuple

import sqlalchemy as sa

from flowlex.systems.scheduler.database import SchedulerDatabase, Settings
from flowlex.systems.scheduler.documents import Core, Document
from flowlex.systems.scheduler.flow_core import ClusterCore
from flowlex.systems.scheduler.gpu_core import GpuCore

_LOG = logging.getLogger(__name__)
_MOST_KEYS, _MOST_DECISIONS = 10_000, 1000
#: By kind of service; ``continued`` makes a core from options and a saved state, or (None) the beginning.
CORES: dict[str, type[ClusterCore | GpuCore]] = {"scheduler": ClusterCore, "gpu": GpuCore}


def replay(core: Core, record: Document) -> None:
    """Apply a record of the log to a core: its events, or its decision."""
    core.solve_ahead()
    if "decided" in record:
        core.redo(record["decided"], record["at_s"])
    for event in record.get("events", ()):
        core.take(event, record["at_s"])


class Answer(NamedTuple):
    """The answer to a request with a key: digest of its body, events taken, why the next was refused."""

    body: str
    taken: int
    refused: str = ""


class Memory:
    """A core, and what clients may ask for again: answers by key, decisions.

    ``number``, ``at_s``: of its last record. ``began``: of the last one in the ``state`` that was read (None: the
    beginning).
    """

    def __init__(self, settings: Settings, number: int, state: bytes | None, answers: Document) -> None:
        self.core: Core = CORES[settings.kind].continued(settings.options, state)
        self.number = self.began = number
        self.at_s: float = answers.get("at_s", self.core.now_s)
        self._held_at = time.monotonic()  # when no events waited last
        self.answered: OrderedDict[tuple[str, str], Answer] = OrderedDict(
            ((holder, key), Answer(*said)) for holder, key, *said in answers.get("keys", ())
        )
        self.decisions: deque[Document] = deque(answers.get("decisions", ()), maxlen=_MOST_DECISIONS)

    @classmethod
    def read(cls, database: SchedulerDatabase, settings: Settings) -> Memory:
        """Continue from the newest readable state in the database, and the records after it."""
        errors = list[Exception]()
        for number, state, answers in database.snapshots():
            try:
                made = cls(settings, number, None if state is None else zlib.decompress(state), answers)
                while made.follow(database):
                    pass
                return made
            except sa.exc.SQLAlchemyError:
                raise
            except Exception as error:
                _LOG.error("state %d cannot be read (%s); going on from the one before", number, error)
                errors.append(error)
        raise ValueError(f"{database.place}: no state can be read: {errors[0]}") from errors[0]

    def follow(self, database: SchedulerDatabase, hold_s: float = 0.0) -> int:
        """Apply further records of the log; return how many. Events wait ``hold_s`` seconds for their decision."""
        rows, now = database.records(self.number, 2000), time.monotonic()
        ready = max((k for k, (_, record) in enumerate(rows, 1) if "decided" in record), default=0)
        self._held_at = now if ready or not rows else self._held_at
        rows = rows if now >= self._held_at + hold_s else rows[:ready]
        for number, record in rows:
            replay(self.core, record)
            self.note(number, record)
        return len(rows)

    def note(self, number: int, record: Document) -> None:
        """Remember what a record says, after its events or its decision are in the core."""
        self.number, self.at_s = number, record["at_s"]
        if "decided" in record:
            self.decisions.append({"at_s": record["at_s"], **record["decided"]})
        if "key" in record:
            holder, key, *said = record["key"]
            self.answered[holder, key] = Answer(*said)
            if len(self.answered) > _MOST_KEYS:
                self.answered.popitem(last=False)

    def saved(self) -> tuple[int, bytes, Document]:
        """Return number, state and answers."""
        keys = [[*key, *answer] for key, answer in self.answered.items()]
        return self.number, self.core.save(), {"keys": keys, "decisions": list(self.decisions), "at_s": self.at_s}


if __name__ == "__main__":
    os.nice(10)
    with contextlib.closing(SchedulerDatabase(os.environ["FLOWLEX_SCHEDULER_DATABASE"], create=False)) as opened:
        if (settings := opened.begun()) is not None:
            opened.keep_snapshot(*Memory.read(opened, settings).saved())
