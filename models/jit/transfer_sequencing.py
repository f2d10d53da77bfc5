"""Sequencing of the transfers of one pair in the slots that the pair uses (see `tie_break`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

#: Transfer of the pair, first slot, end, units per slot.
Run: TypeAlias = tuple[int, int, int, int]
#: Function from (transfer, slot, units left) to a sort key; the smallest is served first.
_Priority: TypeAlias = Callable[[int, int, int], tuple[int, int, int]]


@dataclass(frozen=True)
class Pair:
    """The transfers of a pair: first slots, due slots, ends, units and jobs; jobs that are late on other pairs."""

    start: list[int]
    due: list[int]
    last: list[int]
    units: list[int]
    job: list[int]
    late_elsewhere: set[int]

    def improved(self, now: list[Run]) -> list[Run]:
        """Return runs in the same slots with no more lateness that improve the goals; or the given runs."""
        profile, best, limit = _profile(now), now, self._lateness(now)
        if self._goals(now)[1]:
            for found in self._forward(profile):
                if self._lateness(found) <= limit and self._goals(found) < self._goals(best):
                    best = found
        if self._goals(best)[2]:
            for found in self._backward(profile, self.arrivals(best)):
                if self._lateness(found) <= limit and self._goals(found) < self._goals(best):
                    best = found
        return best

    def arrivals(self, runs: list[Run]) -> list[int]:
        """End of each transfer's last run."""
        end = [0] * len(self.units)
        for k, _, b, _ in runs:
            end[k] = max(end[k], b)
        return end

    def _goals(self, runs: list[Run]) -> tuple[int, int, int]:
        late = [end - due for end, due in zip(self.arrivals(runs), self.due, strict=True)]
        jobs = {job for job, by in zip(self.job, late, strict=True) if by > 0} - self.late_elsewhere
        return len(jobs), sum(max(by, 0) for by in late), sum(max(-by, 0) for by in late)

    def _lateness(self, runs: list[Run]) -> int:
        """Sum over units of the slots by which they are late."""
        total = 0
        for k, a, b, rate in runs:
            first = max(a, self.due[k])
            if first < b:
                total += rate * (b - first) * (first + b + 1 - 2 * self.due[k])
        return total // 2

    def _forward(self, profile: list[Run]) -> Iterator[list[Run]]:
        """Earliest due slot first, overdue transfers by least remainder; move the largest ones to the end in turn."""
        behind: set[int] = set()

        def first(k: int, t: int, left: int) -> tuple[int, int, int]:
            return (1, left, k) if k in behind or t >= self.due[k] else (0, self.due[k], left)

        windows = list(zip(self.start, self.last, strict=True))
        while (found := self._deal(profile, windows, self.due, first)) is not None:
            yield found
            ends = self.arrivals(found)
            late = [k for k, end in enumerate(ends) if end > self.due[k] and k not in behind]
            if not late:
                return
            by = self.due[min(late, key=lambda k: ends[k])]  # Moore-Hodgson: move the largest one so far to the end
            behind.add(max((k for k in range(len(ends)) if k not in behind and self.due[k] <= by), key=self._size))

    def _size(self, k: int) -> int:
        return self.units[k]

    def _backward(self, profile: list[Run], arrival: list[int]) -> Iterator[list[Run]]:
        """Schedule as late as due slots (or the arrivals of late transfers) allow, in reversed time."""
        ends = [min(max(each), last) for *each, last in zip(self.due, arrival, self.last, strict=True)]
        windows = [(-b, -a) for a, b in zip(self.start, ends, strict=True)]
        for eager in (True, False):

            def first(k: int, _: int, left: int, eager: bool = eager) -> tuple[int, int, int]:
                return int(eager and left < self.units[k]), -self.start[k], -left

            found = self._deal(_reversed(profile), windows, [], first, single=eager)
            if found is not None:
                yield _reversed(found)

    def _deal(
        self,
        profile: list[Run],
        windows: list[tuple[int, int]],
        marks: list[int],
        first: _Priority,
        *,
        single: bool = False,
    ) -> list[Run] | None:
        """Assign the slots of a profile by priorities, which change only at marks; None if units of a slot remain.

        ``single``: priorities also change after the first slot of a transfer.
        """
        left, dealt = list(self.units), list[Run]()
        events = sorted({*marks, *(mark for window in windows for mark in window)})
        for _, begin, end, rate in profile:
            t = begin
            while t < end:
                ready = [k for k, (a, b) in enumerate(windows) if left[k] and a <= t < b]
                ready.sort(key=lambda k: first(k, t, left[k]))
                free, steps = rate, min(end, next((mark for mark in events if mark > t), end)) - t
                if ready and left[ready[0]] >= rate:
                    fresh = single and left[ready[0]] == self.units[ready[0]]
                    steps = min(steps, 1 if fresh else left[ready[0]] // rate)
                else:
                    steps = 1
                for k in ready:
                    sent = min(free, left[k])
                    if sent:
                        dealt.append((k, t, t + steps, sent))
                        left[k] -= sent * steps
                        free -= sent
                if free:
                    return None
                t += steps
        return dealt


def _profile(runs: list[Run]) -> list[Run]:
    """Total rate of a pair, as runs of constant rate (transfer -1)."""
    change: dict[int, int] = {}
    for _, a, b, rate in runs:
        change[a] = change.get(a, 0) + rate
        change[b] = change.get(b, 0) - rate
    marks, height, found = sorted(change), 0, list[Run]()
    for a, b in pairwise(marks):
        height += change[a]
        if height:
            found.append((-1, a, b, height))
    return found


def _reversed(runs: list[Run]) -> list[Run]:
    return [(k, -b, -a, rate) for k, a, b, rate in reversed(runs)]
