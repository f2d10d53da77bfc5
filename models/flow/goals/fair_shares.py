"""How many tasks of each job may run: bounds on the arcs of the unscheduled vertices."""

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

__all__ = ["FairShares"]


@dataclass(frozen=True)
class FairShares(Goal):
    """Bound the running tasks of each job.

    ``max_min``: equal shares of the slots, max-min fair within each job's minimum, maximum and size;
    ``weighted``: in proportion to weights; ``caps``: only the minimum and maximum of each job. The first two share
    along the tree of queues, and count only places that the tasks may take: see `flowlex.models.flow.queue_shares`.
    ``dominant``: by the part of the resource that a node takes most of, along the tree of queues and in proportion to
    weights, where tasks ask for more than a slot: `flowlex.models.flow.dominant_shares`; not in live schedulers.

    With share A of N tasks the arc from the unscheduled vertex to the sink gets lower = upper = N - A, so at most
    A run. As tasks that must keep apart may hold a job below its share, an elastic arc of A units beside it lets
    further tasks wait at a cost above everything else. Source: Sirius, section on fairness. When the guaranteed
    minima exceed the slots (a machine is lost, say), they are scaled down in proportion, in whole tasks.
    """

    kind: Literal["max_min", "weighted", "caps", "dominant"] = "max_min"
    weight: int = 1

    def __post_init__(self) -> None:
        if self.kind not in ("max_min", "weighted", "caps", "dominant"):
            raise ModelError(f"FairShares has no kind {self.kind!r}; one of: max_min, weighted, caps, dominant")

    def bounds(self, claims: Claims, queues: Sequence[Queue], places: Places) -> tuple[Integers, Integers]:
        """(J,) tasks of each job that should run at least and may run at most."""
        if self.kind != "caps":
            share = fair_shares(claims, queues, places, weighted=self.kind == "weighted")
            return share, share
        if queues:
            raise ModelError("FairShares('caps') knows no queues; use kind 'max_min' or 'weighted', or drop the queues")
        most = np.minimum(claims.most, claims.count)
        return guaranteed(np.minimum(claims.least, most), places.total), most
