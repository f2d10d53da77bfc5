"""When running tasks grow older in steps that matter, so that a live network changes only then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from flowlex.models.flow.goals.base import Goal
from flowlex.models.flow.goals.costs import Continuity

__all__ = ["Clock"]


class Clock:
    """Knows when the credit of each running task grows next (`Continuity`)."""

    def __init__(self, goal: Continuity | None) -> None:
        self._goal = goal
        self._started: dict[str, float] = {}
        self._queue: list[tuple[float, str, float]] = []

    @classmethod
    def of(cls, goals: Iterable[Goal]) -> Clock:
        """The clock that a set of goals needs."""
        return cls(next((goal for goal in goals if isinstance(goal, Continuity)), None))

    @property
    def matters(self) -> bool:
        """Whether costs depend on time or place at all."""
        return self._goal is not None

    def start(self, task: str, at_s: float) -> None:
        """A task begins to run where it is."""
        if self._goal is not None:
            self._started[task] = at_s
            heappush(self._queue, (at_s + self._goal.next_step(0.0), task, at_s))

    def stop(self, task: str) -> None:
        """A task runs no more."""
        self._started.pop(task, None)

    def due(self, now_s: float) -> Iterator[str]:
        """Tasks whose credit has grown by now; each is named once per call."""
        while self._queue and self._queue[0][0] <= now_s:
            _, task, started = heappop(self._queue)
            if self._goal is not None and self._started.get(task) == started:
                heappush(self._queue, (started + self._goal.next_step(now_s - started), task, started))
                yield task
