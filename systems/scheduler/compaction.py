"""Store a snapshot from the last one and the log: ``python -m flowlex.systems.scheduler.compaction``.

The database's URL comes on standard input. A process of its own, so that no decision waits for a large state.
"""

from __future__ import annotations

import contextlib
import os
import sys

from flowlex.systems.scheduler.database import SchedulerDatabase
from flowlex.systems.scheduler.kinds import loader_of
from flowlex.systems.scheduler.replica import Memory


def compact(database: SchedulerDatabase) -> None:
    """Store a snapshot."""
    settings = database.begun()
    if settings is not None:
        memory = Memory.read(database, loader_of(settings))
        database.keep_snapshot(memory.number, memory.core.save(), memory.answers())


if __name__ == "__main__":
    os.nice(10)
    with contextlib.closing(SchedulerDatabase(sys.stdin.read(), create=False)) as opened:
        compact(opened)
