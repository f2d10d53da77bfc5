"""How many tasks of each job may run: bounds on the arcs of the unscheduled vertices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from flowlex.formulations.arrays import Integers
from flowlex.formulations.shares import whole_shares
from flowlex.models.base import ModelError
from flowlex.models.flow.goals.base import Goal

__all__ = ["FairShares"]


@dataclass(frozen=True)
class FairShares(Goal):
    """Bound the running tasks of each job.

    ``max_min``: equal shares of the slots, max-min fair within each job's minimum, maximum and size;
    ``weighted``: in proportion to the jobs' weights; ``caps``: only the minimum and maximum of each job.

    With share A of N tasks the arc from the unscheduled vertex to the sink gets lower = upper = N - A, so at most
    A run. As placement may keep a job below its share, an elastic arc of A units beside it lets further tasks
    wait at a cost above everything else. Source: Sirius, section on fairness. When the guaranteed minima exceed the
    slots (a machine is lost, say), they are scaled down in proportion, in whole tasks.
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
        least = guaranteed(np.minimum(least, most), slots)
        if self.kind == "caps":
            return least, most
        share = whole_shares(least, most, weight if self.kind == "weighted" else np.ones_like(weight), slots)
        return share, share


def guaranteed(least: Integers, slots: int) -> Integers:
    """The minima that the slots can hold: as they are, or scaled down in proportion where they exceed the slots."""
    if int(least.sum()) <= slots:
        return least
    return whole_shares(np.zeros_like(least), least, np.maximum(least, 1), slots)
