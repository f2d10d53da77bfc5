"""One scheduling round of GPU assignment: who may keep running, who may start, and how many of each job. After the
policy has decided these, the round is a minimum-cost flow over free GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.fair_shares import Shares, shares_of_claims
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.gpu import GpuArrays
from flowlex.instances.gpu_policy import GpuPolicy as Policy

__all__ = ["Policy", "Round", "plan_round"]


@dataclass(frozen=True, eq=False)
class Round:
    """The decisions that a round leaves open."""

    view: GpuArrays
    policy: Policy
    kept: NDArray[np.bool_]  # (T,) bool, tasks that certainly go on running where they are
    optional: Integers  # (O,) running tasks that go on, where they are, or stop
    startable: Integers  # (W,) waiting tasks that may start
    idle: Integers  # (I,) tasks that certainly do not run: stopped ones, and waiting ones of jobs above their share
    free_gpu: Integers  # (F,) GPUs that no kept task holds
    fair_share: Shares | None  # fair shares of all jobs, on which stops depend; None without fairness
    shares: Shares | None  # fair shares of what is left to decide, counting kept tasks; None without fairness
    stoppable: Integers  # (J,) how many running tasks each job may lose
    total: int  # how many of the candidates can run
    priced: bool = False  # whether tasks may wait by choice, at a price: shares are then what a job may run at most
    given: bool = False  # whether shares are given, whichever tasks are kept or stopped

    @cached_property
    def candidates(self) -> Integers:
        """(C,) tasks of the network: the startable ones, then the optional ones."""
        return np.concatenate([self.startable, self.optional])

    @cached_property
    def may_start(self) -> NDArray[np.bool_]:
        """(T,) waiting tasks that may start."""
        chosen = np.zeros(len(self.view.task_job), bool)
        chosen[self.startable] = True
        return chosen

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
        """Whether no job loses more than it may, and kept tasks leave GPUs for shares that are given."""
        view = self.view
        lost = self.idle[view.task_running_gpu[self.idle] >= 0]
        if (np.bincount(view.task_job[lost], minlength=len(view.job_names)) > self.stoppable).any():
            return False
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
    priced: bool = False,
) -> Round:
    """Apply a policy to the running tasks and find the shares of what remains.

    Without preemption all running tasks stay. With it, a job that runs no more than its share, rounded down, keeps all
    of them as well. A job above its share starts nothing, and may lose its shortest-running tasks down to that number,
    but not its last one. Tasks that are already decided (``kept``, ``stopped``) are not open any more. Shares count
    kept tasks as floors, so that the GPUs there are go to the jobs furthest below their share (an addition to the
    paper, whose caps alone let one of two needy jobs take everything).
    """
    running, jobs = view.task_running_gpu >= 0, len(view.job_names)
    startable = np.flatnonzero(~running)
    keep, stop, idle = running, np.zeros(len(running), bool), np.zeros(0, np.int64)
    fair, stoppable = None, np.zeros(jobs, np.int64)
    if policy.preemptive:
        fair = _shares(view, policy, np.arange(len(view.gpu_node)), stoppable, np.flatnonzero(running), startable)
        count = np.bincount(view.task_job[running], minlength=jobs)
        stoppable = np.maximum(count - np.maximum(fair.least, fair.most > 0), 0)
        stop = stop if stopped is None else stopped
        keep = _certain(view, stoppable, stop) if kept is None else (kept | _certain(view, stoppable, stop)) & ~stop
        above = (count > fair.least)[view.task_job[startable]]
        idle, startable = np.concatenate([np.flatnonzero(stop), startable[above]]), startable[~above]
    optional = np.flatnonzero(running & ~keep & ~stop)
    free = np.setdiff1d(np.arange(len(view.gpu_node)), view.task_running_gpu[keep])
    kept_by_job = np.bincount(view.task_job[keep], minlength=jobs)
    shares = fair
    if shares is None or running.any():
        shares = _shares(view, policy, free, kept_by_job, optional, startable)
    total = shares.total - (int(kept_by_job.sum()) if policy.fair else 0)
    left = shares if policy.fair else None
    return Round(
        view, policy, keep, optional, startable, idle, free, fair or left, left, stoppable, total, priced, given=priced
    )


def _certain(view: GpuArrays, stoppable: Integers, stopped: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(T,) running tasks that go on: those that run longer than all that may stop, or after as many stops as may be."""
    task = np.flatnonzero(view.task_running_gpu >= 0)
    order = task[np.lexsort((view.task_elapsed[task], view.task_job[task]))]
    job = view.task_job[order]
    last = np.searchsorted(job, np.arange(len(stoppable))) + stoppable - 1  # the longest-running that may stop
    longest = np.full(len(stoppable), -1.0)
    longest[stoppable > 0] = view.task_elapsed[order[last[stoppable > 0]]]
    done = np.bincount(view.task_job[stopped], minlength=len(stoppable)) >= stoppable
    certain = np.zeros(len(view.task_job), bool)
    certain[order] = (view.task_elapsed[order] > longest[job]) | done[job]
    found: NDArray[np.bool_] = certain & ~stopped
    return found


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
    job = view.task_job[tasks] if policy.fair else np.zeros(len(tasks), np.int64)
    held = kept_by_job if policy.fair else np.zeros(1, np.int64)
    key, amount = np.unique(job[fits] * len(memory) + needed[fits], return_counts=True)
    of_job, of_class = np.divmod(key, max(len(memory), 1))
    return shares_of_claims(of_job, of_class, amount, units, held)
