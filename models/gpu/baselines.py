"""The paper's greedy baselines, one scheduling round each, and a table of all policies and baselines.

GS offers all free GPUs to the job that uses the fewest; the job takes its cheapest task and GPU (algorithm 1 of the
paper). GSP first preempts the shortest-running tasks of jobs above their base share, then runs GS.
GSD is delay scheduling: a job below its base share declines offers of single GPUs on which no task reads its data at
least cost, up to a number of declined offers.

Source: Tang et al. 2022, baselines. Base share ``min(floor(Q / K), N_j)`` for Q GPUs and K jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.solver_outcome import EngineName
from flowlex.instances.gpu import GpuArrays, GpuInstance
from flowlex.models.gpu.model import GpuAssignment
from flowlex.models.gpu.placement_metrics import Placement
from flowlex.models.gpu.round_eligibility import Policy, base_shares
from flowlex.models.gpu.transfer_costs import Penalties, TransferCosts

if TYPE_CHECKING:
    import pandas as pd


def greedy(view: GpuArrays, costs: TransferCosts) -> Integers:
    """GS: return the GPU of each task, (T,), -1 if it does not run."""
    return _Offers(view, costs, view.task_running_gpu.copy()).all_at_once()


def greedy_preemptive(view: GpuArrays, costs: TransferCosts) -> Integers:
    """GSP: preempt the shortest-running tasks of jobs above their base share, then run GS.

    The paper does not say how many tasks to preempt. We preempt as many as the jobs below their base share need in
    addition to the free GPUs.
    """
    jobs, share = len(view.job_names), base_shares(view)
    gpu = view.task_running_gpu.copy()
    running = np.bincount(view.task_job[gpu >= 0], minlength=jobs)
    lacking = int(np.maximum(share - running, 0).sum()) - (len(view.gpu_node) - int(running.sum()))
    for task in sorted(np.flatnonzero(gpu >= 0).tolist(), key=lambda t: (float(view.task_elapsed[t]), -t)):
        job = view.task_job[task]
        if lacking > 0 and running[job] > share[job]:
            gpu[task] = -1
            running[job] -= 1
            lacking -= 1
    return _Offers(view, costs, gpu).all_at_once()


def greedy_delay(view: GpuArrays, costs: TransferCosts, thresholds: tuple[int, int] | None = None) -> Integers:
    """GSD: delay scheduling.

    ``thresholds``: numbers of declined offers (counting starts at the job's deficit) after which a job also accepts a
    GPU in a rack with some of its data, and after which it accepts any GPU. The paper gives no numbers; the default is
    one and two times the number of GPUs.
    """
    whole = len(view.gpu_node)
    limits = thresholds or (whole, 2 * whole)
    if not 0 <= limits[0] <= limits[1]:
        raise ValueError(f"thresholds must be two non-decreasing numbers of at least 0, got {limits}")
    return _Offers(view, costs, view.task_running_gpu.copy()).one_by_one(limits)


class _Offers:
    """Offer free GPUs to the jobs until no job accepts any."""

    def __init__(self, view: GpuArrays, costs: TransferCosts, gpu: Integers) -> None:
        self.view, self.gpu = view, gpu
        self.cost = costs.dense()
        self.cheapest = self.cost.min(axis=1)
        self.remote = costs.remote
        jobs = len(view.job_names)
        self.running = np.bincount(view.task_job[gpu >= 0], minlength=jobs)
        # A task preempted in this round does not start again in it.
        startable = (gpu < 0) & (view.task_running_gpu < 0)
        self.waiting = [np.flatnonzero(startable & (view.task_job == job)) for job in range(jobs)]
        self.declined = np.maximum(base_shares(view) - self.running, 0)

    def _free(self) -> Integers:
        return np.setdiff1d(np.arange(len(self.view.gpu_node)), self.gpu[self.gpu >= 0])

    def all_at_once(self) -> Integers:
        """Repeat: the job with the fewest GPUs starts its cheapest pair of waiting task and free GPU."""
        free, jobs = self._free(), set(range(len(self.waiting)))
        while jobs and len(free):
            job = min(jobs, key=lambda j: (self.running[j], j))
            tasks = self.waiting[job]
            fits = self.view.task_memory[tasks][:, None] <= self.view.gpu_memory[free]
            if not fits.any():
                jobs.remove(job)
                continue
            row, column = np.nonzero(fits)
            best = int(np.argmin(self.cost[tasks[row], self.view.gpu_node[free[column]]]))
            self._start(job, int(tasks[row[best]]), int(free[column[best]]))
            free = np.delete(free, column[best])
        return self.gpu

    def _start(self, job: int, task: int, unit: int) -> None:
        self.gpu[task] = unit
        self.running[job] += 1
        self.waiting[job] = self.waiting[job][self.waiting[job] != task]

    def one_by_one(self, limits: tuple[int, int]) -> Integers:
        """Offer each free GPU in turn to the jobs, those with the fewest GPUs first."""
        self.limits: tuple[int, int]
        self.limits, free = limits, self._free().tolist()
        while free:
            left = [unit for unit in free if not self._offer(unit)]
            if len(left) == len(free) and not self._still_waiting_for_better(left):
                break
            free = left
        return self.gpu

    def _offer(self, unit: int) -> bool:
        """Offer a GPU to the jobs, those with the fewest GPUs first; return whether one accepted it."""
        for job in np.argsort(self.running, kind="stable").tolist():
            tasks = self._fitting(job, unit)
            cost = self.cost[tasks, self.view.gpu_node[unit]]
            good = self._accepted(job, tasks, cost)
            if good.any():
                self._start(job, int(tasks[good][np.argmin(cost[good])]), unit)
                return True
            self.declined[job] += len(tasks) > 0
        return False

    def _fitting(self, job: int, unit: int) -> Integers:
        tasks: Integers = self.waiting[job]
        fits: Integers = tasks[self.view.task_memory[tasks] <= self.view.gpu_memory[unit]]
        return fits

    def _accepted(self, job: int, tasks: Integers, cost: Integers) -> NDArray[np.bool_]:
        """Tasks and costs that the job accepts now: at least cost, later near the task's data, then all."""
        first, second = self.limits
        near = (cost < self.remote[tasks]) & (self.declined[job] > first)
        good: NDArray[np.bool_] = near | (cost <= self.cheapest[tasks]) | (self.declined[job] > second)
        return good

    def _still_waiting_for_better(self, free: list[int]) -> bool:
        """Return whether some job will accept one of these GPUs after more offers."""
        return any(
            self.declined[job] <= self.limits[1] + 1 and len(self._fitting(job, unit))
            for job in range(len(self.waiting))
            for unit in free
        )


BASELINES: dict[str, Callable[[GpuArrays, TransferCosts], Integers]] = {
    "GS": greedy,
    "GSP": greedy_preemptive,
    "GSD": greedy_delay,
}


def compare(
    instance: GpuInstance, *, engine: EngineName = "network", penalties: Penalties | None = None
) -> pd.DataFrame:
    """One row per policy (proven optimum) and baseline (greedy): placements, bytes, fairness, seconds.

    ``least_running`` is the minimum number of running tasks over the jobs with waiting tasks.
    """
    import pandas as pd

    weights = penalties or Penalties()
    rows: dict[str, dict[str, float | int | str]] = {}
    for policy in Policy:
        started = time.perf_counter()
        solution = GpuAssignment(instance, policy=policy, penalties=weights).solve(engine if policy.network else "auto")
        rows[str(policy)] = {
            "kind": "optimum",
            **_figures(solution.placement),
            "seconds": time.perf_counter() - started,
        }
    costs = TransferCosts.of(instance, weights)
    for name, baseline in BASELINES.items():
        started = time.perf_counter()
        placement = Placement(instance.arrays, costs, baseline(instance.arrays, costs))
        rows[name] = {"kind": "greedy", **_figures(placement), "seconds": time.perf_counter() - started}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("policy")


def _figures(placement: Placement) -> dict[str, float | int]:
    view = placement.view
    hungry = np.unique(view.task_job[np.concatenate([placement.waiting, placement.preempted])])
    least = int(placement.running_by_job[hungry].min()) if len(hungry) else 0
    return {**placement.metrics(), "least_running": least}
