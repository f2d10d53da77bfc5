"""Fair shares: bounds on the running tasks of each job, as bounds on the arcs of the unscheduled vertices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.flow import Queue
from flowlex.models.flow.goals.goal_interface import Goal
from flowlex.models.flow.queue_shares import Claims, Places, fair_shares, guaranteed
from flowlex.models.model_base import ModelError


@dataclass(frozen=True)
class FairShares(Goal):
    """Bound the running tasks of each job.

    ``max_min``: max-min fair shares of the slots within each job's minimum, maximum and size; ``weighted``: the same in
    proportion to weights; ``caps``: only the minimum and maximum of each job. The first two follow the tree of queues
    and count only slots that the tasks may use: see `flowlex.models.flow.queue_shares`. ``dominant``: dominant resource
    fairness for tasks with resource demands, by weights and the tree of queues: see
    `flowlex.models.flow.dominant_shares`; a live scheduler needs full solves for it.

    With share A of N tasks the arc from the unscheduled vertex to the sink gets lower = upper = N - A, so at most A
    tasks run. A job may fall below its share (different-machines rules), so a parallel elastic arc of A units lets
    further tasks wait at a cost above everything else. Source: Sirius, section on fairness. If the guaranteed minima
    exceed the slots (for example after a machine is lost), they are scaled down in proportion, to whole tasks.
    """

    kind: Literal["max_min", "weighted", "caps", "dominant"] = "max_min"
    weight: int = 1

    def __post_init__(self) -> None:
        if self.kind not in ("max_min", "weighted", "caps", "dominant"):
            raise ModelError(f"FairShares has no kind {self.kind!r}; one of: max_min, weighted, caps, dominant")

    def bounds(self, claims: Claims, queues: Sequence[Queue], places: Places) -> tuple[Integers, Integers]:
        """(J,) least number of tasks of each job that should run, and (J,) most that may run."""
        if self.kind != "caps":
            share = fair_shares(claims, queues, places, weighted=self.kind == "weighted")
            return share, share
        if queues:
            raise ModelError("FairShares('caps') knows no queues; use kind 'max_min' or 'weighted', or drop the queues")
        most = np.minimum(claims.most, claims.count)
        return guaranteed(np.minimum(claims.least, most), places.total), most
