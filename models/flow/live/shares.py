"""What each job claims of the cluster, as arrays that follow the events, so that shares are recomputed at once."""

from __future__ import annotations

import numpy as np

from flowlex.formulations.arrays import Integers
from flowlex.instances.flow import FlowJob
from flowlex.models.flow.goals.fair_shares import FairShares

__all__ = ["JobClaims"]

_NO_LIMIT = 2**40
#: Rows of the table.
_COUNT, _LEAST, _MOST, _WEIGHT, _TOLD_COUNT, _TOLD_LOW, _TOLD_HIGH = range(7)


class JobClaims:
    """A column per job, in order of arrival as ties go to the earlier job; a job that leaves claims nothing.

    Nothing is done while no claim and no slot changes. After a change the shares of all jobs are computed anew in
    NumPy (a new job may change everybody's), and only those whose bounds differ are handed on.
    """

    def __init__(self) -> None:
        self._table = np.zeros((7, 64), np.int64)
        self._names: list[str | None] = []
        self._at: dict[str, int] = {}
        self._stale = False
        self._slots = -1

    def put(self, job: FlowJob, count: int) -> None:
        """A job arrives with ``count`` tasks."""
        if len(self._names) == self._table.shape[1]:
            self._make_room()
        at = self._at[job.name] = len(self._names)
        self._names.append(job.name)
        self._table[:, at] = (count, 0, 0, 0, -1, 0, 0)
        self.claim(job)

    def claim(self, job: FlowJob) -> None:
        """A job claims more or less."""
        most = _NO_LIMIT if job.max_tasks is None else job.max_tasks
        self._table[_LEAST : _WEIGHT + 1, self._at[job.name]] = (job.min_tasks, most, job.weight)
        self._stale = True

    def lose(self, job: str) -> None:
        """A task of a job ends."""
        self._table[_COUNT, self._at[job]] -= 1
        self._stale = True

    def take(self, job: str) -> None:
        """A job leaves."""
        at = self._at.pop(job)
        self._names[at] = None
        self._table[:, at] = (0, 0, 0, 1, 0, 0, 0)
        self._stale = True

    def changed(self, shares: FairShares, slots: int) -> list[tuple[str, int, int]]:
        """Jobs whose bounds are others than at the last call: name, fewest and most running tasks."""
        if not self._stale and slots == self._slots:
            return []
        self._stale, self._slots = False, slots
        used = self._table[:, : len(self._names)]
        low, high = shares.bounds(used[_COUNT], used[_LEAST], used[_MOST], used[_WEIGHT], slots)
        differs = (used[_TOLD_COUNT] != used[_COUNT]) | (used[_TOLD_LOW] != low) | (used[_TOLD_HIGH] != high)
        used[_TOLD_COUNT], used[_TOLD_LOW], used[_TOLD_HIGH] = used[_COUNT], low, high
        rows: Integers = np.flatnonzero(differs)
        found = zip(rows.tolist(), low[rows].tolist(), high[rows].tolist(), strict=True)
        return [(name, a, b) for at, a, b in found if (name := self._names[at]) is not None]

    def _make_room(self) -> None:
        """Close the gaps, or if there are few of them, take twice the room."""
        kept = [at for at, name in enumerate(self._names) if name is not None]
        room = self._table.shape[1]
        table = np.zeros((7, room if 2 * len(kept) <= room else 2 * room), np.int64)
        table[:, : len(kept)] = self._table[:, kept]
        self._table = table
        self._names = [self._names[at] for at in kept]
        self._at = {name: at for at, name in enumerate(self._names) if name is not None}
