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
        (O,) running tasks that go on only if their job gets an odd GPU (at most one per job).
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


def plan_round(view: GpuArrays, policy: Policy) -> Round:
    """Apply a policy to the running tasks and find the shares of what remains.

    FSP first shares all GPUs among all tasks, counting a task by the memory it needs. A job keeps its
    longest-running tasks up to the least it may get; the next one is optional where the share is fractional.
    Because a kept task holds its own GPU, shares are then computed again over what is left, with kept tasks as
    floors, until keeping and shares agree. FS keeps all running tasks; its shares have them as floors, so that
    the GPUs there are go to the jobs furthest below their share (an addition to the paper, whose caps alone let
    one of two needy jobs take everything).
    """
    running = view.task_running_gpu >= 0
    waiting = np.flatnonzero(~running)
    if policy is not Policy.FSP:
        no_option = np.zeros(0, np.int64)
        return _with_shares(view, policy, running, no_option, waiting)
    jobs = len(view.job_names)
    order = _by_elapsed(view, np.flatnonzero(running))
    held = np.bincount(view.task_job[order], minlength=jobs)
    everything = _classes(view, view.gpu_memory)
    first = max_min_shares(_demand(view, everything, np.arange(len(view.task_job)), view.task_memory), everything.units)
    keep = np.minimum(held, first.least)
    while True:
        kept_rows, optional = _split(view, order, keep, jobs)
        kept = np.zeros(len(view.task_job), bool)
        kept[kept_rows] = True
        startable = waiting[(keep == held)[view.task_job[waiting]]]
        plan = _with_shares(view, policy, kept, optional, startable)
        assert plan.shares is not None
        certain = (plan.shares.least > keep) & (keep < held)
        if not certain.any():
            return plan
        keep = np.where(certain, keep + 1, keep)


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
    # An optional task can use its own GPU only; by exchange that counts as needing a GPU of that class.
    memory = np.concatenate([view.task_memory[startable], view.gpu_memory[view.task_running_gpu[optional]]])
    demand = _demand(view, classes, tasks, memory)
    kept_by_job = np.bincount(view.task_job[kept], minlength=len(view.job_names))
    if policy is Policy.FSU:
        pooled = max_min_shares(demand.sum(axis=0)[None, :], classes.units)
        return Round(view, policy, kept, optional, startable, free, None, pooled.total)
    shares = max_min_shares(demand, classes.units, kept_by_job)
    return Round(view, policy, kept, optional, startable, free, shares, shares.total - int(kept_by_job.sum()))


def _by_elapsed(view: GpuArrays, running: Integers) -> Integers:
    """Running tasks by job, longest-running first, ties in the order of the instance."""
    return running[np.lexsort((running, -view.task_elapsed[running], view.task_job[running]))]


def _split(view: GpuArrays, order: Integers, keep: Integers, jobs: int) -> tuple[Integers, Integers]:
    """The first ``keep[j]`` running tasks of each job, and the one after them."""
    job = view.task_job[order]
    rank = np.arange(len(order)) - np.searchsorted(job, np.arange(jobs))[job]
    return order[rank < keep[job]], order[rank == keep[job]]
