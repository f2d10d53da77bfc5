"""Metrics of the placements after a round, for any method: task states, bytes by level, figures per job."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.gpu import GpuArrays
from flowlex.models.gpu.transfer_costs import LEVELS, TransferCosts


@dataclass(frozen=True, eq=False)
class Placement:
    """Assignment of tasks to GPUs."""

    view: GpuArrays
    costs: TransferCosts
    gpu: Integers  # (T,) GPU of each task, -1 if it does not run

    @cached_property
    def started(self) -> Integers:
        """Tasks that start now."""
        return np.flatnonzero((self.gpu >= 0) & (self.view.task_running_gpu < 0))

    @cached_property
    def preempted(self) -> Integers:
        """Running tasks that stop now."""
        return np.flatnonzero((self.gpu < 0) & (self.view.task_running_gpu >= 0))

    @cached_property
    def waiting(self) -> Integers:
        """Tasks that waited before and still wait."""
        return np.flatnonzero((self.gpu < 0) & (self.view.task_running_gpu < 0))

    @cached_property
    def running_by_job(self) -> Integers:
        """(J,) tasks of each job that run after the round."""
        return self._count(np.flatnonzero(self.gpu >= 0))

    @cached_property
    def megabytes(self) -> NDArray[np.float64]:
        """(T, 3) MB that each starting task reads from its node, its rack and other racks."""
        return self.costs.megabytes(self._started_on)

    @cached_property
    def transfer_s(self) -> NDArray[np.float64]:
        """(T,) weighted transfer seconds of each starting task, 0 for the others."""
        return self.megabytes @ np.array(self.costs.rates, dtype=np.float64)

    @cached_property
    def exact_transfer_s(self) -> Fraction:
        """Weighted transfer seconds of all starting tasks, exact."""
        return self.costs.seconds(self._started_on)

    @cached_property
    def lost_work_s(self) -> Fraction:
        """Exact cost of all stops, seconds: lost work times the cost per second."""
        return sum((self.costs.stop_s[task] for task in self.preempted.tolist()), Fraction())

    @cached_property
    def _started_on(self) -> Integers:
        node = np.full(len(self.gpu), -1)
        node[self.started] = self.view.gpu_node[self.gpu[self.started]]
        return node

    def states(self) -> NDArray[Any]:
        """(T,) ``kept``, ``started``, ``preempted`` or ``waiting``."""
        state = np.full(len(self.gpu), "kept", dtype=object)
        state[self.started], state[self.preempted], state[self.waiting] = "started", "preempted", "waiting"
        return state

    def task_columns(self) -> dict[str, Any]:
        """One row per task: name, job, state, GPU, node, rack, transfer seconds, MB by level."""
        view, placed = self.view, self.gpu >= 0

        def named(names: tuple[str, ...], index: Integers) -> Any:
            return np.where(placed, np.array(names, dtype=object)[np.where(placed, index, 0)], "")

        node = view.gpu_node[self.gpu]
        columns: dict[str, Any] = {
            "task": view.task_names,
            "job": np.array(view.job_names, dtype=object)[view.task_job],
            "state": self.states(),
            "gpu": named(view.gpu_names, self.gpu),
            "node": named(view.node_names, node),
            "rack": named(view.rack_names, view.node_rack[node]),
            "transfer_s": self.transfer_s,
        }
        return columns | {f"{level}_mb": self.megabytes[:, i] for i, level in enumerate(LEVELS)}

    def by_job(self) -> dict[str, NDArray[Any]]:
        """(J,) each: tasks, running, started, preempted, waiting, transfer seconds."""
        view = self.view
        return {
            "tasks": np.bincount(view.task_job, minlength=len(view.job_names)),
            "running": self.running_by_job,
            "started": self._count(self.started),
            "preempted": self._count(self.preempted),
            "waiting": self._count(self.waiting),
            "transfer_s": np.bincount(view.task_job, weights=self.transfer_s, minlength=len(view.job_names)),
        }

    def metrics(self) -> dict[str, float | int]:
        """Tasks by state, transfer seconds, GB by level and fairness."""
        gigabytes = (self.megabytes.sum(axis=0) / 1000).tolist()
        total = sum(gigabytes)
        running = int(np.count_nonzero(self.gpu >= 0))
        metrics: dict[str, float | int] = {
            "running": running,
            "started": len(self.started),
            "preempted": len(self.preempted),
            "waiting": len(self.waiting),
            "idle_gpus": len(self.view.gpu_node) - running,
            "transfer_s": float(self.exact_transfer_s),
        }
        for level, amount in zip(LEVELS, gigabytes, strict=True):
            metrics[f"{level}_gb"] = amount
        for level, amount in zip(LEVELS, gigabytes, strict=True):
            metrics[f"{level}_percent"] = 100 * amount / total if total else 0.0
        metrics["jain_index"] = jain_index(self.running_by_job.astype(np.float64))
        return metrics

    def _count(self, tasks: Integers) -> Integers:
        return np.bincount(self.view.task_job[tasks], minlength=len(self.view.job_names))


def jain_index(values: NDArray[np.float64]) -> float:
    """Jain's fairness index ``(sum x)^2 / (n sum x^2)``: 1 if all are equal, 1/n if only one is positive."""
    square = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * square) if square else 1.0
