"""How many tasks of each job may run: bounds on the arcs of the unscheduled vertices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowlex.models.base import ModelError
from flowlex.models.goals.base import Goal

__all__ = ["FairShares", "share_slots"]

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class FairShares(Goal):
    """Bound the running tasks of each job.

    ``max_min``: equal shares of the slots, max-min fair within each job's minimum, maximum and size;
    ``weighted``: in proportion to the jobs' weights; ``caps``: only the minimum and maximum of each job.

    With share A of N tasks the arc from the unscheduled vertex to the sink gets lower = upper = N - A, so at most
    A run. As placement may keep a job below its share, an elastic arc of A units beside it lets further tasks
    wait at a cost above everything else. Source: Sirius, section on fairness.
    """

    kind: Literal["max_min", "weighted", "caps"] = "max_min"
    weight: int = 1

    def __post_init__(self) -> None:
        if self.kind not in ("max_min", "weighted", "caps"):
            raise ModelError(f"FairShares has no kind {self.kind!r}; one of: max_min, weighted, caps")

    def bounds(
        self, count: Integers, least: Integers, most: Integers, weight: Integers, slots: int
    ) -> tuple[Integers, Integers]:
        """Tasks of each job that should run at least and may run at most; all arguments (J,) but ``slots``."""
        most = np.minimum(most, count)
        least = np.minimum(least, most)
        if self.kind == "caps":
            return least, most
        share = share_slots(least, most, weight if self.kind == "weighted" else np.ones_like(weight), slots)
        return share, share


def share_slots(least: ArrayLike, most: ArrayLike, weight: ArrayLike, slots: int) -> Integers:
    """Whole slots for each job, weighted max-min fair: the next slot goes where (share + 1) / weight is least.

    Ties go to the earlier job. When the minima exceed the slots (machines failed), every job gets its minimum
    and the shortfall shows in the schedule.
    """
    low, high, w = (np.asarray(x, np.int64) for x in (least, most, weight))
    left = min(slots, int(high.sum())) - int(low.sum())
    if left <= 0 or not len(low):
        return low
    down, up = 0.0, float((high / w).max())  # the level below which everything fits
    for _ in range(64):
        middle = (down + up) / 2
        if int((np.clip(np.floor(middle * w).astype(np.int64), low, high) - low).sum()) <= left:
            down = middle
        else:
            up = middle
    share: Integers = np.clip(np.floor(down * w).astype(np.int64), low, high)
    left -= int((share - low).sum())
    while left > 0:
        open_jobs = np.flatnonzero(share < high)
        order = open_jobs[np.argsort((share[open_jobs] + 1) / w[open_jobs], kind="stable")]
        chosen = order[:left]
        nexts = (share[chosen] + 1) / w[chosen]
        chosen = chosen[nexts == nexts[0]]  # those at one level together, the next level after them
        share[chosen] += 1
        left -= len(chosen)
    return share
