"""A GPU-assignment instance as columns in its own order, read for certificates, and the answer placed in them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowlex.validation.certificates.certificate import Check
from flowlex.validation.restated.gpu import GpuColumns


class Cluster:
    """The instance as columns in its own order, and the answer placed in them."""

    def __init__(self, view: GpuColumns, placements: dict[str, str]) -> None:
        self.view = view
        self.gpu: dict[str, int] = {name: g for g, name in enumerate(view.gpu_names)}
        self.task: dict[str, int] = {name: t for t, name in enumerate(view.task_names)}
        self.job: dict[str, int] = {name: j for j, name in enumerate(view.job_names)}
        self.node: dict[str, int] = {name: n for n, name in enumerate(view.node_names)}
        self.gpu_memory, self.gpu_node = view.gpu_memory, view.gpu_node
        self.need, self.job_of = view.task_memory, view.task_job
        self.own, self.elapsed = view.task_running_gpu, view.task_elapsed
        self.names: list[str] = list(self.task)
        self.names_of_jobs: list[str] = list(self.job)
        self.at: NDArray[np.int64] = np.full(len(self.task), -1)
        self.strange: list[str] = [
            f"{t} on {g}" for t, g in placements.items() if t not in self.task or g not in self.gpu
        ]
        if not self.strange:
            for t, g in placements.items():
                self.at[self.task[t]] = self.gpu[g]

    def counts(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(self.job_of[chosen], minlength=len(self.job))


def none(name: str, offenders: list[str]) -> Check:
    return Check(name, not offenders, len(offenders), ", ".join(offenders[:3]))
