"""Times at which the credit of running tasks grows, so that a live network changes only then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from heapq import heappop, heappush
from math import inf, nextafter

from flowlex.instances.exact_rationals import rational
from flowlex.models.flow.goals.costs import Continuity
from flowlex.models.flow.goals.goal_interface import Goal

__all__ = ["TaskAges", "elapsed_s"]


@lru_cache(maxsize=2**10)  # many tasks start, and grow older, at the same time
def elapsed_s(started_s: float, now_s: float) -> float:
    """Seconds between two times, exact in the decimals they are written in: 128.2 is 60 s after 68.2."""
    return float(rational(now_s) - rational(started_s))


class TaskAges:
    """Knows when the credit of each running task grows next (`Continuity`); tasks that start together grow together."""

    def __init__(self, goal: Continuity | None) -> None:
        self._goal = goal
        self._cohort_of: dict[str, tuple[float, int]] = {}  # since when it runs, next age
        self._cohorts: dict[tuple[float, int], dict[str, None]] = {}
        self._queue: list[tuple[float, float, int]] = []  # not before, and a cohort, which may be gone

    @classmethod
    def of(cls, goals: Iterable[Goal]) -> TaskAges:
        """The clock that a set of goals needs."""
        return cls(next((goal for goal in goals if isinstance(goal, Continuity)), None))

    @property
    def matters(self) -> bool:
        """Whether costs depend on time or place at all."""
        return self._goal is not None

    def start(self, task: str, at_s: float) -> None:
        """A task begins to run where it is."""
        if self._goal is not None:
            self._await((task,), at_s, 1)

    def _await(self, tasks: Iterable[str], started_s: float, age: int) -> None:
        """Note when tasks reach an age; never later than they do, so that `due` may have to look again."""
        assert self._goal is not None
        if age >= len(self._goal.ages_s):
            return
        key = started_s, age
        cohort = self._cohorts.get(key)
        if cohort is None:
            cohort = self._cohorts[key] = {}
            heappush(self._queue, (nextafter(started_s + self._goal.ages_s[age], -inf), *key))
        for task in tasks:
            cohort[task] = None
            self._cohort_of[task] = key

    def stop(self, task: str) -> None:
        """A task runs no more."""
        key = self._cohort_of.pop(task, None)
        if key is not None:
            cohort = self._cohorts[key]
            del cohort[task]
            if not cohort:
                del self._cohorts[key]

    def due(self, now_s: float) -> Iterator[tuple[float, list[str]]]:
        """Since when, and which tasks run whose credit has grown by now; each is named once per call."""
        early = []
        while self._queue and self._queue[0][0] <= now_s:
            entry = heappop(self._queue)
            _, started, next_age = entry
            if self._goal is None or (started, next_age) not in self._cohorts:
                continue
            age = self._goal.age(elapsed_s(started, now_s))
            if age < next_age:
                early.append(entry)
                continue
            tasks = list(self._cohorts.pop((started, next_age)))
            for task in tasks:
                del self._cohort_of[task]
            self._await(tasks, started, age + 1)
            yield started, tasks
        for entry in early:
            heappush(self._queue, entry)
