"""Event queue in a total order with its clock, independent of clusters.

We do not use SimPy, because its processes are generators, which can be neither saved nor re-timed, and transfers that
share a link change their end at every event. Here an event is a call at a time; the order is (time, rank, number), so
a run depends only on its seed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

from flowlex.errors import FlowlexError


class SimulationError(FlowlexError, ValueError):
    """An invalid request to a simulation; names the time, and the event if there is one.

    ``reason``: the error, its cause and the remedy. ``at_s``: simulated time in seconds. ``event``: description of the
    event.
    """

    def __init__(self, reason: str, *, at_s: float | None = None, event: str = "") -> None:
        self.event: str
        self.at_s: float | None
        self.reason, self.at_s, self.event = reason, at_s, event
        when = "" if at_s is None else f"at {at_s:g} s" + (f", {event}" if event else "") + ": "
        super().__init__(when + reason)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.reason, self.at_s, self.event))


def _rebuild(reason: str, at_s: float | None, event: str) -> SimulationError:
    return SimulationError(reason, at_s=at_s, event=event)


@dataclass(slots=True, eq=False)
class Planned:
    """A planned call; `cancel` revokes it."""

    at_s: float
    call: Callable[[], None] | None

    def cancel(self) -> None:
        """Revoke the call."""
        self.call = None


class Kernel:
    """A heap of planned calls and the present time.

    Equal times are ordered by ``rank`` (smaller first), then in the order of planning.

    ``now_s``: current simulated time in seconds; only events advance it. ``events``: number of calls executed.
    """

    __slots__ = ("_heap", "_number", "events", "now_s")

    def __init__(self) -> None:
        self.now_s: float = 0.0
        self.events = 0
        self._number = 0
        self._heap: list[tuple[float, int, int, Planned]] = []

    def at(self, at_s: float, call: Callable[[], None], rank: int = 0) -> Planned:
        """Plan a call.

        Raises `SimulationError`: the time is past or not a finite number.
        """
        if not (math.isfinite(at_s) and at_s >= self.now_s):
            raise SimulationError(
                f"an event cannot be planned for {at_s} s; give a finite time not yet past", at_s=self.now_s
            )
        planned = Planned(at_s, call)
        heapq.heappush(self._heap, (at_s, rank, self._number, planned))
        self._number += 1
        return planned

    def after(self, seconds: float, call: Callable[[], None], rank: int = 0) -> Planned:
        """Plan a call after a number of seconds."""
        return self.at(self.now_s + seconds, call, rank)

    def next_s(self) -> float:
        """Time of the next call; infinite when none is left."""
        while self._heap and self._heap[0][3].call is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def step(self) -> bool:
        """Make the next call; return False if none is left."""
        if self.next_s() == math.inf:
            return False
        at_s, _, _, planned = heapq.heappop(self._heap)
        self.now_s = at_s
        self.events += 1
        call, planned.call = planned.call, None
        assert call is not None
        call()
        return True

    def run(self, until_s: float = math.inf) -> None:
        """Make all calls up to a time (included)."""
        while self.next_s() <= until_s and self.step():
            pass
        if math.isfinite(until_s):
            self.now_s = max(self.now_s, until_s)
