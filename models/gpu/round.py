"""One scheduling round of GPU assignment: who may keep running, who may start, and how many of each job.

The policies differ only here. Whatever they decide, what is left is a minimum-cost flow over free GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Integers
from flowlex.formulations.shares import Shares, shares_of_claims
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
        How many of the candidates can run.
    stopped_count
        Running tasks that certainly stop.
    priced
        Whether tasks may wait by choice, at a price: shares are then what a job may run at most.
    given
        Whether shares are given, whichever tasks are kept or stopped.
    """

    view: GpuArrays
    policy: Policy
    kept: NDArray[np.bool_]
    optional: Integers
    startable: Integers
    free_gpu: Integers
    shares: Shares | None
    total: int
    stopped_count: int = 0
    priced: bool = False
    given: bool = False

    @cached_property
    def candidates(self) -> Integers:
        """(C,) tasks of the network: the startable ones, then the optional ones."""
        return np.concatenate([self.startable, self.optional])

    def row(self, task: int) -> int:
        """Where a task is among the candidates."""
        return int(np.flatnonzero(self.candidates == task)[0])

    @cached_property
    def kept_by_job(self) -> Integers:
        """(J,) tasks that go on running."""
        return np.bincount(self.view.task_job[self.kept], minlength=len(self.view.job_names))

    @cached_property
    def waiting_by_job(self) -> tuple[Integers, Integers]:
        """(J,) candidates of each job that must wait, and that wait at most in a fair round."""
        assert self.shares is not None
        have = self.candidates_by_job + self.kept_by_job
        return np.maximum(have - self.shares.most, 0), np.maximum(have - self.shares.least, 0)

    @cached_property
    def waiting_by_group(self) -> Integers:
        """(groups,) of the latter, how many must wait: all but the odd units of the group."""
        assert self.shares is not None
        group, total = self.shares.group, self.shares.group_total.copy()
        np.subtract.at(total, group, self.shares.least)
        waiting = -total
        np.add.at(waiting, group, self.waiting_by_job[1])
        return np.maximum(waiting, 0)

    @property
    def is_possible(self) -> bool:
        """Whether kept tasks leave room for shares that are given."""
        if self.shares is None or not self.given:
            return True
        have, (must, fair) = self.candidates_by_job, self.waiting_by_job
        can = np.zeros_like(self.waiting_by_group)
        np.add.at(can, self.shares.group, np.minimum(have, fair))
        return bool((must <= have).all() and (can >= self.waiting_by_group).all())

    @cached_property
    def candidates_by_job(self) -> Integers:
        """(J,) tasks of the network."""
        return np.bincount(self.view.task_job[self.candidates], minlength=len(self.view.job_names))


def plan_round(
    view: GpuArrays,
    policy: Policy,
    kept: NDArray[np.bool_] | None = None,
    stopped: NDArray[np.bool_] | None = None,
    *,
    without: int | None = None,
    priced: bool = False,
) -> Round:
    """Apply a policy to the running tasks and find the shares of what remains.

    FSP leaves open which running tasks go on, but for those that are already decided (``kept``, ``stopped``): each may
    stay on the GPU that it holds. FS and FSU keep all. Shares count kept tasks as floors, so that the GPUs there are go
    to the jobs furthest below their share (an addition to the paper, whose caps alone let one of two needy jobs take
    everything). A waiting task may be left out (``without``).
    """
    running = view.task_running_gpu >= 0
    keep = running if policy is not Policy.FSP else np.zeros(len(running), bool) if kept is None else kept
    stop = np.zeros(len(running), bool) if stopped is None else stopped
    optional, startable = np.flatnonzero(running & ~keep & ~stop), np.flatnonzero(~running)
    if without is not None:
        startable = startable[startable != without]
    free = np.setdiff1d(np.arange(len(view.gpu_node)), view.task_running_gpu[keep])
    kept_by_job = np.bincount(view.task_job[keep], minlength=len(view.job_names))
    shares = _shares(view, policy, free, kept_by_job, optional, startable)
    total = shares.total - (0 if policy is Policy.FSU else int(kept_by_job.sum()))
    fair = None if policy is Policy.FSU else shares
    stops = int(np.count_nonzero(stop & ~keep))
    return Round(view, policy, keep, optional, startable, free, fair, total, stops, priced, given=priced)


def _shares(
    view: GpuArrays, policy: Policy, free: Integers, kept_by_job: Integers, optional: Integers, startable: Integers
) -> Shares:
    """Shares of jobs in free GPUs by memory; one job that stands for all where fairness does not count."""
    # An optional task can use its own GPU only. Whoever serves it by another that is as large can put it back on its
    # own, and the task found there on the other: so it counts as needing a GPU of its own class.
    tasks = np.concatenate([startable, optional])
    need = np.concatenate([view.task_memory[startable], view.gpu_memory[view.task_running_gpu[optional]]])
    memory, units = np.unique(view.gpu_memory[free], return_counts=True)
    needed = np.searchsorted(memory, need)
    fits = needed < len(memory)  # tasks that no GPU here can hold do not count
    job = np.zeros(len(tasks), np.int64) if policy is Policy.FSU else view.task_job[tasks]
    held = np.zeros(1, np.int64) if policy is Policy.FSU else kept_by_job
    key, amount = np.unique(job[fits] * len(memory) + needed[fits], return_counts=True)
    of_job, of_class = np.divmod(key, max(len(memory), 1))
    return shares_of_claims(of_job, of_class, amount, units, held)
