"""Weights for lexicographic order: transfer and waiting costs first, then fewest stops, then most starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.gpu import GpuArrays


@dataclass(frozen=True, eq=False)
class Ties:
    """Rewards for running tasks that are kept and waiting tasks that start; in total less than a unit of transfer."""

    factor: int  # multiplier of transfer costs; exceeds the sum of all rewards
    base: int  # reward for a started task if the number of starts is open; at least ``base * steps`` for a kept task
    # a kept task is weighted like this many starts: number of waiting tasks + 1; 1 if the number of starts is fixed
    steps: int
    # (T,) reward for each kept task: increases with its elapsed time, which saves branching on preemptions; the sum of
    # these increases is less than ``base``
    keep: NDArray[Any]
    start: int  # reward for each waiting task that starts

    @classmethod
    def of(cls, view: GpuArrays, *, preemptive: bool, priced: bool) -> Ties:
        """Compute the weights of an instance; the factor is 1 if transfer is the only objective."""
        running = np.flatnonzero(view.task_running_gpu >= 0) if preemptive else np.zeros(0, np.int64)
        waiting = int(np.count_nonzero(view.task_running_gpu < 0)) if priced else 0
        rank = _ranks(view, running)
        base = int(rank.sum()) + 1
        keep = np.zeros(len(view.task_job), dtype=object)
        keep[running] = rank.astype(object) + base * (waiting + 1)
        start = base if priced else 0
        factor = int(keep.sum()) + start * waiting + 1
        if factor < 2**62:
            keep = keep.astype(np.int64)
        return cls(factor, base, waiting + 1, keep, start)


def _ranks(view: GpuArrays, running: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rank the running tasks of each job by elapsed time: 0 for the shortest, equal times have equal ranks."""
    rank = np.zeros(len(running), np.int64)
    if len(running):
        order = np.lexsort((view.task_elapsed[running], view.task_job[running]))
        job, elapsed = view.task_job[running[order]], view.task_elapsed[running[order]]
        new = np.append(True, job[1:] != job[:-1])
        step = np.cumsum(np.append(True, new[1:] | (np.diff(elapsed) > 0)))
        rank[order] = step - np.maximum.accumulate(np.where(new, step, 0))
    return rank
