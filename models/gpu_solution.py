"""What a round of GPU assignment decided, its metrics and pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.expression import Integers
from flowlex.instances.gpu import GpuArrays
from flowlex.models.base import Solution
from flowlex.models.gpu_costs import LEVELS, TransferCosts
from flowlex.models.gpu_round import Round

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["GpuSolution", "jain_index"]


@dataclass(frozen=True, kw_only=True)
class GpuSolution(Solution):
    """Placements of one round.

    Attributes
    ----------
    gpu
        (T,) GPU of each task, -1 when it does not run.
    round, view, costs
        What the answer was decided on.
    transfer_units
        Weighted transfer of all starting tasks, in units of ``costs.unit_s``; exact.
    """

    view: GpuArrays = field(repr=False)
    round: Round = field(repr=False)
    gpu: Integers = field(repr=False)
    costs: TransferCosts = field(repr=False)
    transfer_units: int = field(repr=False)

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
        """Tasks that waited before and go on waiting."""
        return np.flatnonzero((self.gpu < 0) & (self.view.task_running_gpu < 0))

    @cached_property
    def megabytes(self) -> NDArray[np.float64]:
        """(T, 3) MB each starting task reads from its node, its rack, other racks."""
        node = np.full(len(self.gpu), -1)
        node[self.started] = self.view.gpu_node[self.gpu[self.started]]
        return self.costs.megabytes(node)

    @cached_property
    def transfer_s(self) -> NDArray[np.float64]:
        """(T,) weighted transfer seconds of each starting task, 0 for the others."""
        seconds = np.zeros(len(self.gpu))
        seconds[self.started] = self.megabytes[self.started] @ self.costs.seconds_per_mb
        return seconds

    def job_frame(self) -> pd.DataFrame:
        """One row per job: tasks, fair share, running, started, preempted, waiting, transfer seconds."""
        import pandas as pd

        jobs, view = len(self.view.job_names), self.view
        shares = self.round.shares

        def count(tasks: Integers) -> Integers:
            return np.bincount(view.task_job[tasks], minlength=jobs)

        return pd.DataFrame(
            {
                "tasks": np.bincount(view.task_job, minlength=jobs),
                "fair_share": np.nan if shares is None else [float(x) for x in shares.level],
                "allocated": count(np.flatnonzero(self.gpu >= 0)),
                "started": count(self.started),
                "preempted": count(self.preempted),
                "waiting": count(self.waiting),
                "transfer_s": np.bincount(view.task_job, weights=self.transfer_s, minlength=jobs),
            },
            index=pd.Index(view.job_names, name="job"),
        )

    def to_frame(self) -> pd.DataFrame:
        """One row per task: job, state, GPU, node, rack, transfer seconds, MB by level, reason."""
        import pandas as pd

        self.require_answer()
        view, placed = self.view, self.gpu >= 0

        def named(names: tuple[str, ...], index: Integers) -> Any:
            return np.where(placed, np.array((*names, ""), dtype=object)[np.where(placed, index, -1)], "")

        node = view.gpu_node[self.gpu]
        columns: dict[str, Any] = {
            "job": np.array(view.job_names, dtype=object)[view.task_job],
            "state": self.states(),
            "gpu": named(view.gpu_names, self.gpu),
            "node": named(view.node_names, node),
            "rack": named(view.rack_names, view.node_rack[node]),
            "transfer_s": self.transfer_s,
        }
        columns |= {f"{level}_mb": self.megabytes[:, i] for i, level in enumerate(LEVELS)}
        columns["reason"] = self.reasons()
        return pd.DataFrame(columns, index=pd.Index(view.task_names, name="task"))

    def states(self) -> NDArray[Any]:
        """(T,) ``kept``, ``started``, ``preempted`` or ``waiting``."""
        state = np.full(len(self.gpu), "kept", dtype=object)
        state[self.started], state[self.preempted], state[self.waiting] = "started", "preempted", "waiting"
        return state

    def reasons(self) -> list[str]:
        """Why each task that does not run does not run; empty for the others."""
        view, shares = self.view, self.round.shares
        running = np.bincount(view.task_job[self.gpu >= 0], minlength=len(view.job_names)).tolist()
        free = self.round.free_gpu
        idle = np.setdiff1d(free, self.gpu[self.gpu >= 0])
        largest_idle = float(view.gpu_memory[idle].max()) if len(idle) else 0.0
        reasons = [""] * len(self.gpu)
        for task in self.preempted.tolist():
            job = int(view.task_job[task])
            share = "" if shares is None else f" of {float(shares.level[job]):g}"
            reasons[task] = (
                f"job {view.job_names[job]} runs {running[job]}, its fair share{share}; this task ran shortest"
            )
        for task in self.waiting.tolist():
            job = int(view.task_job[task])
            if shares is not None and running[job] >= shares.level[job]:
                reasons[task] = f"job {view.job_names[job]} runs {running[job]}, its fair share"
            elif largest_idle and view.task_memory[task] > largest_idle:
                reasons[task] = f"needs {view.task_memory[task]:g} GB; idle GPUs have at most {largest_idle:g} GB"
            elif not len(idle):
                reasons[task] = "all GPUs are taken"
            else:
                reasons[task] = "all GPUs it fits are taken"
        return reasons

    def metrics(self) -> dict[str, float | int | str]:
        """Tasks by state, transfer seconds, bytes by level and fairness."""
        read = self.megabytes.sum(axis=0) / 1000
        total = float(read.sum())
        frame = self.job_frame()
        metrics: dict[str, float | int | str] = {
            "running": int(np.count_nonzero(self.gpu >= 0)),
            "started": len(self.started),
            "preempted": len(self.preempted),
            "waiting": len(self.waiting),
            "idle GPUs": len(self.view.gpu_node) - int(np.count_nonzero(self.gpu >= 0)),
            "transfer (s)": float(self.transfer_s.sum()),
        }
        for name, gigabytes in zip(("own node", "own rack", "other racks"), read.tolist(), strict=True):
            percent = f" ({100 * gigabytes / total:.1f} %)" if total else ""
            metrics[f"read from {name} (GB)"] = f"{gigabytes:.3f}{percent}"
        metrics["fairness (Jain, GPUs per job)"] = jain_index(frame["allocated"].to_numpy(np.float64))
        if self.costs.rounded_s:
            metrics["cost rounding, at most (s)"] = self.costs.rounded_s
        return metrics

    def to_dict(self) -> dict[str, Any]:
        """Plain data: placements, preempted and waiting tasks with reasons, jobs, prices."""
        answer = super().to_dict()
        if not self.status.has_answer:
            return answer
        names, gpus = self.view.task_names, self.view.gpu_names
        reasons = self.reasons()
        running = np.flatnonzero(self.gpu >= 0).tolist()
        answer["placements"] = {names[t]: gpus[int(self.gpu[t])] for t in running}
        answer["preempted"] = {names[t]: reasons[t] for t in self.preempted.tolist()}
        answer["waiting"] = {names[t]: reasons[t] for t in self.waiting.tolist()}
        answer["jobs"] = self.job_frame().reset_index().astype({"fair_share": object}).to_dict(orient="records")
        for job in answer["jobs"]:
            job["fair_share"] = None if job["fair_share"] != job["fair_share"] else job["fair_share"]
        answer["cost_unit_s"] = str(self.costs.unit_s)
        return answer

    def plot(self, ax: Axes | None = None) -> Axes:
        """Who runs where: one bar per GPU, coloured by where the task's data come from."""
        from flowlex.models.gpu_plots import plot_placements

        self.require_answer()
        return plot_placements(self, ax)


def jain_index(values: NDArray[np.float64]) -> float:
    """Jain's fairness index ``(sum x)^2 / (n sum x^2)``; 1 is equal, 1/n is one takes all."""
    square = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * square) if square else 1.0
