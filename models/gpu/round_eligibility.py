"""Eligibility in a scheduling round: tasks that keep running, tasks that may start, and fair shares of jobs. With these
fixed by the policy, the round is a minimum-cost flow over free GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.fair_shares import Shares, shares_of_claims
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.gpu import GpuArrays
from flowlex.instances.gpu_policy import GpuPolicy as Policy

__all__ = ["Policy", "Round", "base_shares", "plan_published", "plan_round"]


@dataclass(frozen=True, eq=False)
class Round:
    """The data of a scheduling round: fixed tasks, open tasks and shares."""

    view: GpuArrays
    policy: Policy
    kept: NDArray[np.bool_]  # (T,) tasks that keep running on their GPU
    optional: Integers  # (O,) running tasks that either keep running on their GPU or stop
    startable: Integers  # (W,) waiting tasks that may start
    idle: Integers  # (I,) tasks that do not run: stopped tasks, and waiting tasks of jobs above their share
    free_gpu: Integers  # (F,) GPUs without a kept task
    fair_share: Shares | None  # fair shares of all jobs, which determine stops; None without fairness
    shares: Shares | None  # fair shares in this round, including kept tasks; None without fairness
    stoppable: Integers  # (J,) largest number of running tasks that each job may lose
    total: int  # number of candidates that can run
    priced: bool = False  # whether a task may wait at a cost although it could run; shares are then upper bounds
    given: bool = False  # whether shares are fixed and do not depend on the kept and stopped tasks

    @cached_property
    def candidates(self) -> Integers:
        """(C,) tasks of the network: first startable, then optional tasks."""
        return np.concatenate([self.startable, self.optional])

    @cached_property
    def may_start(self) -> NDArray[np.bool_]:
        """(T,) waiting tasks that may start."""
        chosen = np.zeros(len(self.view.task_job), bool)
        chosen[self.startable] = True
        return chosen

    @cached_property
    def kept_by_job(self) -> Integers:
        """(J,) number of kept tasks of each job."""
        return np.bincount(self.view.task_job[self.kept], minlength=len(self.view.job_names))

    @cached_property
    def waiting_by_job(self) -> tuple[Integers, Integers]:
        """(J,) lower and upper bound on the waiting candidates of each job in a fair round."""
        assert self.shares is not None
        have = self.candidates_by_job + self.kept_by_job
        return np.maximum(have - self.shares.most, 0), np.maximum(have - self.shares.least, 0)

    @cached_property
    def waiting_by_group(self) -> Integers:
        """(groups,) lower bound on waiting candidates: sum of the jobs' upper bounds minus the remainder GPUs."""
        assert self.shares is not None
        group, total = self.shares.group, self.shares.group_total.copy()
        np.subtract.at(total, group, self.shares.least)
        waiting = -total
        np.add.at(waiting, group, self.waiting_by_job[1])
        return np.maximum(waiting, 0)

    @property
    def is_possible(self) -> bool:
        """Return whether no job loses too many tasks and the kept tasks are compatible with fixed shares."""
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
        """(J,) number of candidates of each job."""
        return np.bincount(self.view.task_job[self.candidates], minlength=len(self.view.job_names))


def plan_round(
    view: GpuArrays,
    policy: Policy,
    kept: NDArray[np.bool_] | None = None,
    stopped: NDArray[np.bool_] | None = None,
    *,
    priced: bool = False,
) -> Round:
    """Apply a policy to the running tasks and compute the fair shares of the free GPUs.

    Without preemption all running tasks are kept. With preemption a job at or below its share, rounded down, keeps all
    of them too. A job above its share starts no task and may lose its shortest-running tasks down to that number, but
    never its last one. ``kept`` and ``stopped`` fix further tasks. Kept tasks are lower bounds of the shares, so that
    free GPUs go to the jobs furthest below their share (our addition: with the paper's upper bounds alone, one of two
    jobs below their share may take all).
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


def base_shares(view: GpuArrays) -> Integers:
    """(J,) the paper's A*: ``min(floor(Q / K), N_j)`` for Q GPUs, K jobs, and N_j tasks of job j."""
    jobs = len(view.job_names)
    return np.minimum(len(view.gpu_node) // jobs, np.bincount(view.task_job, minlength=jobs))


def plan_published(view: GpuArrays, policy: Policy) -> Round:
    """The round of the published network: shares A*; with preemption the A* longest-running tasks of a job stay."""
    running, base = view.task_running_gpu >= 0, base_shares(view)
    keep = running.copy()
    if policy.preemptive:
        held = np.flatnonzero(running)
        order = held[np.lexsort((held, -view.task_elapsed[held], view.task_job[held]))]
        job = view.task_job[order]
        keep[order] = np.arange(len(order)) - np.searchsorted(job, job) < base[job]
    free = np.setdiff1d(np.arange(len(view.gpu_node)), view.task_running_gpu[keep])
    shares = Shares(tuple(map(Fraction, base.tolist())), base, base, np.zeros_like(base), np.array([base.sum()]))
    lost = np.bincount(view.task_job[running & ~keep], minlength=len(base))
    starts, optional, nobody = np.flatnonzero(~running), np.flatnonzero(running & ~keep), np.zeros(0, np.int64)
    fair = shares if policy.fair else None
    return Round(view, policy, keep, optional, starts, nobody, free, fair, None, lost, len(free), priced=True)


def _certain(view: GpuArrays, stoppable: Integers, stopped: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(T,) running tasks that must be kept: longer than all stoppable ones of the job, or its limit is reached."""
    task = np.flatnonzero(view.task_running_gpu >= 0)
    order = task[np.lexsort((view.task_elapsed[task], view.task_job[task]))]
    job = view.task_job[order]
    last = np.searchsorted(job, np.arange(len(stoppable))) + stoppable - 1  # longest-running stoppable task
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
    """Compute the shares of jobs in the free GPUs by memory; without fairness, one job represents all."""
    # An optional task can only use its own GPU. An assignment that gives it another GPU of equal memory can be repaired
    # by swapping it with the task on its own GPU, so it counts as needing a GPU of its own memory class.
    tasks = np.concatenate([startable, optional])
    need = np.concatenate([view.task_memory[startable], view.gpu_memory[view.task_running_gpu[optional]]])
    memory, units = np.unique(view.gpu_memory[free], return_counts=True)
    needed = np.searchsorted(memory, need)
    fits = needed < len(memory)  # ignore tasks too large for every free GPU
    job = view.task_job[tasks] if policy.fair else np.zeros(len(tasks), np.int64)
    held = kept_by_job if policy.fair else np.zeros(1, np.int64)
    key, amount = np.unique(job[fits] * len(memory) + needed[fits], return_counts=True)
    of_job, of_class = np.divmod(key, max(len(memory), 1))
    return shares_of_claims(of_job, of_class, amount, units, held)
