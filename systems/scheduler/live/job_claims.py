"""Claims of jobs under fair shares in arrays that the events of a live cluster update, to recompute shares fast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.flow import FlowJob, Queue
from flowlex.models.flow.fair_share_demands import NO_LIMIT
from flowlex.models.flow.goals import FairShares
from flowlex.models.flow.queue_shares import Claims, Places

#: Rows of the table.
_COUNT, _LEAST, _MOST, _WEIGHT, _QUEUE, _TOLD_COUNT, _TOLD_LOW, _TOLD_HIGH = range(8)
#: Rules of jobs that were removed.
_NONE = Counter[Hashable]()


def _claimed(job: FlowJob) -> tuple[int, int, int]:
    """Least, most and weight."""
    return job.min_tasks, NO_LIMIT if job.max_tasks is None else job.max_tasks, job.weight


class JobClaims:
    """One column per job in order of arrival, as ties go to the earlier job; removed jobs have empty claims.

    After a change of claims or slots, NumPy recomputes the shares of all jobs, because one new job may change every
    share; `changed` returns the jobs whose bounds differ.
    """

    def __init__(self, queues: Iterable[Queue] = ()) -> None:
        self._table = np.zeros((8, 64), np.int64)
        self._names: list[str | None] = []
        self._rules: list[Counter[Hashable]] = []
        self._used: Counter[Hashable] = Counter()
        self._at: dict[str, int] = {}
        self._places: Places | None = None
        self._stale = False
        self._queues = tuple(queues)
        self._number = {queue.name: k for k, queue in enumerate(self._queues)}

    def changed_machines(self) -> None:
        """Note that slots or labels of machines have changed."""
        self._places = None
        self._stale = True

    def put(self, job: FlowJob, rules: Sequence[Hashable]) -> None:
        """Add a job; ``rules`` are the placement rules of its tasks."""
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
        """Change the claim of a job."""
        self._table[_LEAST : _WEIGHT + 1, self._at[job.name]] = _claimed(job)
        self._stale = True

    def lose(self, job: str, rule: Callable[[], Hashable]) -> None:
        """Remove a task of a job; ``rule`` is called only if the rules of the job's tasks differ."""
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
        """Remove a job."""
        at = self._at.pop(job)
        self._names[at], self._rules[at] = None, _NONE
        self._table[:, at] = (0, 0, 0, 1, -1, 0, 0, 0)
        self._stale = True

    def changed(self, shares: FairShares, places: Callable[[Iterable[Hashable]], Places]) -> list[tuple[str, int, int]]:
        """Return the jobs whose bounds have changed since the last call: name, fewest and most running tasks."""
        if not self._stale:
            return []
        low, high = self.bounds(shares, places)
        self._stale, used = False, self._table[:, : len(self._names)]
        differs = (used[_TOLD_COUNT] != used[_COUNT]) | (used[_TOLD_LOW] != low) | (used[_TOLD_HIGH] != high)
        used[_TOLD_COUNT], used[_TOLD_LOW], used[_TOLD_HIGH] = used[_COUNT], low, high
        rows: Integers = np.flatnonzero(differs)
        found = zip(rows.tolist(), low[rows].tolist(), high[rows].tolist(), strict=True)
        return [(name, a, b) for at, a, b in found if (name := self._names[at]) is not None]

    def bounds(self, shares: FairShares, places: Callable[[Iterable[Hashable]], Places]) -> tuple[Integers, Integers]:
        """Fewest and most running tasks of every column."""
        if self._places is None:
            self._places = places(self._used)
        used = self._table[:, : len(self._names)]
        claims = Claims(used[_COUNT], used[_LEAST], used[_MOST], used[_WEIGHT], used[_QUEUE], self._rules)
        return shares.bounds(claims, self._queues, self._places)

    def _make_room(self) -> None:
        """Remove the columns of removed jobs; double the table if more than half of it is in use."""
        kept = [at for at, name in enumerate(self._names) if name is not None]
        size = self._table.shape[1]
        table = np.zeros((8, size if 2 * len(kept) <= size else 2 * size), np.int64)
        table[:, : len(kept)] = self._table[:, kept]
        self._table = table
        self._names, self._rules = [self._names[at] for at in kept], [self._rules[at] for at in kept]
        self._at = {name: at for at, name in enumerate(self._names) if name is not None}
