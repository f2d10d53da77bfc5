"""Weights that put transfer and waiting first, then the fewest stops, then the most starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.gpu import GpuArrays

__all__ = ["Ties"]


@dataclass(frozen=True, eq=False)
class Ties:
    """What running tasks earn that go on, and waiting ones that start; together less than one unit of transfer."""

    factor: int  # every transfer cost counts so many times: more than all tasks together can earn
    base: int  # least value of one stop less, divided by ``steps``; and of one start more, where that is open
    # A task that goes on counts like so many that start: more than all that can (1 where their number is given)
    steps: int
    # (T,) what each running task earns: the more the longer it runs, which spares the search for who may stop; all such
    # differences together are less than ``base``
    keep: NDArray[Any]
    start: int  # what each waiting task earns that starts

    @classmethod
    def of(cls, view: GpuArrays, *, preemptive: bool, priced: bool) -> Ties:
        """Weights of one instance; costs count once where all that is open is transfer."""
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
    """For each running task, how many distinct shorter elapsed times its job has among them."""
    rank = np.zeros(len(running), np.int64)
    if len(running):
        order = np.lexsort((view.task_elapsed[running], view.task_job[running]))
        job, elapsed = view.task_job[running[order]], view.task_elapsed[running[order]]
        new = np.append(True, job[1:] != job[:-1])
        step = np.cumsum(np.append(True, new[1:] | (np.diff(elapsed) > 0)))
        rank[order] = step - np.maximum.accumulate(np.where(new, step, 0))
    return rank
