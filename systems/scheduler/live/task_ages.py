"""Times at which the credit for staying of running tasks grows; a live network changes costs only then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from heapq import heappop, heappush
from math import inf, nextafter

from flowlex.instances.exact_rationals import rational
from flowlex.models.flow.goal_interface import Goal
from flowlex.models.flow.goals import Continuity


@lru_cache(maxsize=2**10)  # many tasks start and age at the same times
def elapsed_s(started_s: float, now_s: float) -> float:
    """Return the seconds between two times, computed exactly from their decimals: 128.2 is 60 s after 68.2."""
    return float(rational(now_s) - rational(started_s))


class TaskAges:
    """Schedules the next growth of each running task's credit (`Continuity`); tasks with equal start form a cohort."""

    def __init__(self, goal: Continuity | None) -> None:
        self._goal = goal
        self._cohort_of: dict[str, tuple[float, int]] = {}  # start time, next age
        self._cohorts: dict[tuple[float, int], dict[str, None]] = {}
        self._queue: list[tuple[float, float, int]] = []  # lower bound on the time, and a cohort that may be removed

    @classmethod
    def of(cls, goals: Iterable[Goal]) -> TaskAges:
        """Make the clock for a set of goals."""
        return cls(next((goal for goal in goals if isinstance(goal, Continuity)), None))

    @property
    def matters(self) -> bool:
        """Whether costs depend on the time or place of running tasks (`Continuity` is among the goals)."""
        return self._goal is not None

    def start(self, task: str, at_s: float) -> None:
        """Note that a task starts at ``at_s``."""
        if self._goal is not None:
            self._await((task,), at_s, 1)

    def _await(self, tasks: Iterable[str], started_s: float, age: int) -> None:
        """Note a lower bound on the time when tasks reach an age; `due` checks the exact age."""
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
        """Note that a task has stopped."""
        key = self._cohort_of.pop(task, None)
        if key is not None:
            cohort = self._cohorts[key]
            del cohort[task]
            if not cohort:
                del self._cohorts[key]

    def due(self, now_s: float) -> Iterator[tuple[float, list[str]]]:
        """Yield (start time, tasks) of the tasks whose credit has grown by now; each task occurs once per call."""
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
