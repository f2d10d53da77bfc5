"""What each job claims of the cluster, as arrays that follow the events, so that shares are recomputed at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np

from flowlex.formulations.arrays import Integers
from flowlex.instances.flow import FlowJob, Queue
from flowlex.models.flow.goals.fair_shares import FairShares
from flowlex.models.flow.share_claims import NO_LIMIT
from flowlex.models.flow.sharing import Claims, Places

__all__ = ["JobClaims", "live_claims"]

#: Rows of the table.
_COUNT, _LEAST, _MOST, _WEIGHT, _QUEUE, _TOLD_COUNT, _TOLD_LOW, _TOLD_HIGH = range(8)
#: Of jobs that have left.
_NONE = Counter[Hashable]()


def live_claims(shares: FairShares | None, queues: Iterable[Queue]) -> JobClaims | None:
    """Claims under a goal of shares; None without one, and where whole solves share what tasks ask for."""
    return None if shares is None or shares.kind == "dominant" else JobClaims(queues)


def _claimed(job: FlowJob) -> tuple[int, int, int]:
    """Least, most and weight."""
    return job.min_tasks, NO_LIMIT if job.max_tasks is None else job.max_tasks, job.weight


class JobClaims:
    """A column per job, in order of arrival as ties go to the earlier job; a job that leaves claims nothing.

    Nothing is done while no claim and no slot changes. After a change the shares of all jobs are computed anew in
    NumPy (a new job may change everybody's), and only those whose bounds differ are handed on.
    """

    def __init__(self, queues: Iterable[Queue] = ()) -> None:
        self._table = np.zeros((8, 64), np.int64)
        self._names: list[str | None] = []
        self._rules: list[Counter[Hashable]] = []
        self._used: Counter[Hashable] = Counter()
        self._at: dict[str, int] = {}
        self._places: Places | None = None
        self._stale = False
        self.queues: tuple[Queue, ...] = tuple(queues)
        self._number = {queue.name: k for k, queue in enumerate(self.queues)}

    def changed_machines(self) -> None:
        """Slots or labels are others than before."""
        self._places = None
        self._stale = True

    def put(self, job: FlowJob, rules: Sequence[Hashable]) -> None:
        """A job arrives with tasks that have these rules of where they may run."""
        if len(self._names) == self._table.shape[1]:
            self._make_room()
        at = self._at[job.name] = len(self._names)
        self._names.append(job.name)
        mine = Counter[Hashable]()
        for rule in rules:
            mine[rule] = mine.get(rule, 0) + 1
            used = self._used.get(rule, 0)
            self._places = self._places if used else None
            self._used[rule] = used + 1
        self._rules.append(mine)
        queue = -1 if job.queue is None else self._number[job.queue]
        self._table[:, at] = (len(rules), *_claimed(job), queue, -1, 0, 0)
        self._stale = True

    def claim(self, job: FlowJob) -> None:
        """A job claims more or less."""
        self._table[_LEAST : _WEIGHT + 1, self._at[job.name]] = _claimed(job)
        self._stale = True

    def lose(self, job: str, rule: Callable[[], Hashable]) -> None:
        """A task of a job ends; its rule is asked for where those of the job differ."""
        at = self._at[job]
        self._table[_COUNT, at] -= 1
        mine = self._rules[at]
        ended = rule() if len(mine) > 1 else next(iter(mine))
        for table in (mine, self._used):
            if table[ended] > 1:
                table[ended] -= 1
            else:
                del table[ended]
        self._stale = True

    def take(self, job: str) -> None:
        """A job leaves."""
        at = self._at.pop(job)
        self._names[at], self._rules[at] = None, _NONE
        self._table[:, at] = (0, 0, 0, 1, -1, 0, 0, 0)
        self._stale = True

    def changed(self, shares: FairShares, places: Callable[[Iterable[Hashable]], Places]) -> list[tuple[str, int, int]]:
        """Jobs whose bounds are others than at the last call: name, fewest and most running tasks."""
        if not self._stale:
            return []
        if self._places is None:
            self._places = places(self._used)
        used = self._table[:, : len(self._names)]
        claims = Claims(used[_COUNT], used[_LEAST], used[_MOST], used[_WEIGHT], used[_QUEUE], self._rules)
        low, high = shares.bounds(claims, self.queues, self._places)
        self._stale = False
        differs = (used[_TOLD_COUNT] != used[_COUNT]) | (used[_TOLD_LOW] != low) | (used[_TOLD_HIGH] != high)
        used[_TOLD_COUNT], used[_TOLD_LOW], used[_TOLD_HIGH] = used[_COUNT], low, high
        rows: Integers = np.flatnonzero(differs)
        found = zip(rows.tolist(), low[rows].tolist(), high[rows].tolist(), strict=True)
        return [(name, a, b) for at, a, b in found if (name := self._names[at]) is not None]

    def _make_room(self) -> None:
        """Close the gaps, or if there are few of them, take twice the room."""
        kept = [at for at, name in enumerate(self._names) if name is not None]
        room = self._table.shape[1]
        table = np.zeros((8, room if 2 * len(kept) <= room else 2 * room), np.int64)
        table[:, : len(kept)] = self._table[:, kept]
        self._table = table
        self._names, self._rules = [self._names[at] for at in kept], [self._rules[at] for at in kept]
        self._at = {name: at for at, name in enumerate(self._names) if name is not None}
