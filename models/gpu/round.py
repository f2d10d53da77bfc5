"""One scheduling round of GPU assignment: who may keep running, who may start, and how many of each job.

The policies differ only here. Whatever they decide, what is left is a minimum-cost flow over free GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.expression import Integers
from flowlex.formulations.shares import Shares, max_min_shares
from flowlex.instances.gpu import GpuArrays

__all__ = ["Policy", "Round", "plan_round"]


class Policy(StrEnum):
    """How fairness and running tasks are treated (Tang et al. 2022, section on policies)."""

    #: Preemptive fair sharing: a job above its share loses its shortest-running tasks.
    FSP = "FSP"
    #: Fair sharing without preemption: running tasks stay, new tasks start up to the share.
    FS = "FS"
    #: No fairness: as many tasks as possible, at least cost.
    FSU = "FSU"


@dataclass(frozen=True, eq=False)
class Round:
    """What is to be decided.

    Attributes
    ----------
    kept
        (T,) bool, tasks that certainly go on running where they are.
    optional
        (O,) running tasks that go on, where they are, or stop.
    startable
        (W,) waiting tasks that may start.
    free_gpu
        (F,) GPUs that no kept task holds.
    shares
        Fair shares counting kept tasks; None without fairness.
    total
        How many of the candidates will run: as many as can.
    """

    view: GpuArrays
    policy: Policy
    kept: NDArray[np.bool_]
    optional: Integers
    startable: Integers
    free_gpu: Integers
    shares: Shares | None
    total: int

    @cached_property
    def candidates(self) -> Integers:
        """(C,) tasks of the network: the startable ones, then the optional ones."""
        return np.concatenate([self.startable, self.optional])

    @cached_property
    def kept_by_job(self) -> Integers:
        """(J,) tasks that go on running."""
        return np.bincount(self.view.task_job[self.kept], minlength=len(self.view.job_names))

    @cached_property
    def candidates_by_job(self) -> Integers:
        """(J,) tasks of the network."""
        return np.bincount(self.view.task_job[self.candidates], minlength=len(self.view.job_names))


def plan_round(
    view: GpuArrays, policy: Policy, kept: NDArray[np.bool_] | None = None, stopped: NDArray[np.bool_] | None = None
) -> Round:
    """Apply a policy to the running tasks and find the shares of what remains.

    FSP leaves open which running tasks go on, but for those that are already decided (``kept``, ``stopped``): each may
    stay on the GPU that it holds. FS and FSU keep all. Shares count kept tasks as floors, so that the GPUs there are go
    to the jobs furthest below their share (an addition to the paper, whose caps alone let one of two needy jobs take
    everything).
    """
    running = view.task_running_gpu >= 0
    keep = running if policy is not Policy.FSP else np.zeros(len(running), bool) if kept is None else kept
    out = ~running | keep if stopped is None else ~running | keep | stopped
    return _with_shares(view, policy, keep, np.flatnonzero(~out), np.flatnonzero(~running))


@dataclass(frozen=True, eq=False)
class _Classes:
    """Distinct GPU memories, ascending, and how many GPUs have each."""

    memory: NDArray[np.float64]
    units: Integers

    def needed(self, memory: NDArray[np.float64]) -> Integers:
        """Smallest class that suffices; the number of classes when none does."""
        return np.searchsorted(self.memory, memory)


def _classes(view: GpuArrays, memory: NDArray[np.float64]) -> _Classes:
    if not len(memory):
        return _Classes(np.array([np.inf]), np.zeros(1, np.int64))
    distinct, units = np.unique(memory, return_counts=True)
    return _Classes(distinct, units.astype(np.int64))


def _demand(view: GpuArrays, classes: _Classes, tasks: Integers, memory: NDArray[np.float64]) -> Integers:
    """(J, C) tasks of each job by the class they need; tasks that no GPU here can hold do not count."""
    need = classes.needed(memory)
    fits = need < len(classes.memory)
    table = np.zeros((len(view.job_names), len(classes.memory)), np.int64)
    np.add.at(table, (view.task_job[tasks[fits]], need[fits]), 1)
    return table


def _with_shares(
    view: GpuArrays, policy: Policy, kept: NDArray[np.bool_], optional: Integers, startable: Integers
) -> Round:
    held_gpus = view.task_running_gpu[kept]
    free = np.setdiff1d(np.arange(len(view.gpu_node)), held_gpus)
    classes = _classes(view, view.gpu_memory[free])
    tasks = np.concatenate([startable, optional])
    # An optional task can use its own GPU only. Whoever serves it by another that is as large can put it back on its
    # own, and the task found there on the other: so it counts as needing a GPU of its own class.
    memory = np.concatenate([view.task_memory[startable], view.gpu_memory[view.task_running_gpu[optional]]])
    demand = _demand(view, classes, tasks, memory)
    kept_by_job = np.bincount(view.task_job[kept], minlength=len(view.job_names))
    if policy is Policy.FSU:
        pooled = max_min_shares(demand.sum(axis=0)[None, :], classes.units)
        return Round(view, policy, kept, optional, startable, free, None, pooled.total)
    shares = max_min_shares(demand, classes.units, kept_by_job)
    return Round(view, policy, kept, optional, startable, free, shares, shares.total - int(kept_by_job.sum()))
