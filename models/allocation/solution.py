"""An allocation: the fraction of time of every job or pair on every GPU type, and the throughput of every job."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import Status
from flowlex.instances.allocation import AllocationInstance
from flowlex.models.allocation.allocation_linear_program import JobColumns, equal_throughput
from flowlex.models.allocation.dual_multipliers import Multipliers
from flowlex.models.allocation.policies import Step
from flowlex.models.allocation.policy_linear_programs import PolicyProgram
from flowlex.models.model_base import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True)
class AllocationSolution(Solution):
    """Fraction of time of every job or pair on every GPU type.

    Attributes
    ----------
    columns, share
        Jobs and pairs by GPU type, and the fraction of time that each runs, (C,).
    steps
        The solved programs, with their dual values.
    policy
        The programs of the policy, which its proof is of.
    level
        (n,) final gain of every job (policies that compare jobs).
    """

    row_name: ClassVar[str] = "job"

    source: AllocationInstance = field(repr=False)
    columns: JobColumns = field(repr=False)
    share: Floats = field(repr=False)
    steps: tuple[Step, ...] = field(default=(), repr=False)
    level: Floats | None = field(default=None, repr=False)
    policy: PolicyProgram | None = field(default=None, repr=False)

    @property
    def rise(self) -> float | None:
        """Optimum of the first program, the one that ``flowlex export`` writes, if it raises all jobs."""
        return self.steps[0].rise if self.steps else None

    @property
    def throughput(self) -> Floats:
        """(n,) steps per second."""
        return self.columns.per_job(self.share, len(self.source.jobs))

    @property
    def time(self) -> Floats:
        """(n,) fraction of time that a job runs."""
        return self.columns.per_job(self.share, len(self.source.jobs), speed=False)

    @property
    def normalised(self) -> Floats:
        """(n,) throughput relative to an equal split of time, times scale over weight (the gain of ``max_min``)."""
        view = self.source.arrays
        return np.asarray(self.throughput / equal_throughput(view) * view.scale / view.weight)

    @property
    def gpus_held(self) -> Floats:
        """(J,) average number of GPUs in use, by type."""
        view = self.source.arrays
        held = view.scale[self.columns.first] * self.share
        return np.asarray(np.bincount(self.columns.gpu, weights=held, minlength=len(view.count)), np.float64)

    def _columns(self) -> dict[str, Any]:
        """One row per job: throughput, normalised throughput, fraction of time in total and on each GPU type."""
        columns = self.columns
        data: dict[str, Any] = {
            "job": [job.name for job in self.source.jobs],
            "steps_per_s": self.throughput,
            "normalised": self.normalised,
            "time": self.time,
        }
        for j, gpu_type in enumerate(self.source.gpu_types):
            on = np.where(columns.gpu == j, self.share, 0.0)
            data[gpu_type.name] = columns.per_job(on, len(self.source.jobs), speed=False)
        return data

    def _metrics(self) -> dict[str, float | int | str]:
        """Least and total throughput, GPUs in use, cost, and the makespan at constant throughput."""
        view = self.source.arrays
        figures: dict[str, float | int | str] = {
            "least_normalised": float(self.normalised.min()),
            "total_steps_per_s": float(self.throughput.sum()),
            "gpus_held": float(self.gpus_held.sum()),
            "cost_usd_per_hour": float(self.gpus_held @ view.price),
            "programs_solved": len(self.steps),
        }
        if np.isfinite(view.steps).all() and (self.throughput > 0).all():
            figures["makespan_s"] = float((view.steps / self.throughput).max())
        return figures

    def _answer(self) -> dict[str, Any]:
        """Shares of time by name, and the throughput of every job."""
        jobs = [job.name for job in self.source.jobs]
        types = [t.name for t in self.source.gpu_types]
        rows = [
            {
                "jobs": [jobs[m] for m in (self.columns.first[c], self.columns.second[c]) if m >= 0],
                "gpu_type": types[self.columns.gpu[c]],
                "fraction": float(self.share[c]),
            }
            for c in np.flatnonzero(self.share > 0).tolist()
        ]
        found = {"shares": rows, "steps_per_s": dict(zip(jobs, self.throughput.tolist(), strict=True))}
        if not self._fills:
            return found
        before, full = np.zeros(len(jobs), bool), []
        for step in self.steps:
            full.append([jobs[m] for m in np.flatnonzero(step.full & ~before)])
            before = before | step.full
        return {**found, "full": full}

    @property
    def _fills(self) -> bool:
        """Whether the steps raise all jobs until each is full."""
        if self.stated is not None:
            return bool(self.steps) and self.options["policy"] in ("water_filling", "hierarchical")
        whole = self.status is Status.OPTIMAL and self.options.get("parts", 1) == 1
        return whole and self.options["policy"] in ("water_filling", "hierarchical")

    def _proof(self) -> dict[str, Any]:
        """Multipliers of the rows, made of the dual values of every step."""
        return self._multipliers

    @cached_property
    def _multipliers(self) -> dict[str, Any]:
        if self.policy is None or not self.steps:
            return {}
        found = Multipliers(self.policy)
        if not self.status.has_answer:
            return found.empty(self.steps[0])
        if self.options["policy"] == "finish_time":
            return found.ratio(self.steps, float(self.bound or 0))
        return found.filled(self.steps) if self._fills else found.first(self.steps[0])

    def _draw(self, ax: Axes | None) -> Axes:
        from flowlex.models.allocation.plots import draw_allocation

        title = f"{self.instance}: {self.options['policy']}"
        return draw_allocation(self.to_frame(), [t.name for t in self.source.gpu_types], title, ax)


def row_labels(instance: AllocationInstance) -> dict[str, list[str]]:
    """Return the row labels of every equation, by its name."""
    jobs, limits = [job.name for job in instance.jobs], instance.limits
    return {
        "time": jobs,
        "level": jobs,
        "gpus": [t.name for t in instance.gpu_types],
        "most": [str(k) for k, limit in enumerate(limits) if limit.most_gpus is not None],
        "least": [str(k) for k, limit in enumerate(limits) if limit.least_gpus > 0],
        "deadline": [job.name for job in instance.jobs if job.deadline_s is not None],
    }
