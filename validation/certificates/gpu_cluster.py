"""A GPU-assignment instance as columns in its own order, read for certificates, and the answer placed in them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.gpu import GpuInstance
from flowlex.validation.certificates.certificate import Check

__all__ = ["Cluster", "none"]


class Cluster:
    """The instance as columns in its own order, and the answer placed in them."""

    def __init__(self, instance: GpuInstance, placements: dict[str, str]) -> None:
        gpus = [(gpu, node) for node in instance.nodes for gpu in node.gpus]
        tasks = [(task, j) for j, job in enumerate(instance.jobs) for task in job.tasks]
        self.gpu: dict[str, int] = {gpu.name: g for g, (gpu, _) in enumerate(gpus)}
        self.task: dict[str, int] = {task.name: t for t, (task, _) in enumerate(tasks)}
        self.job: dict[str, int] = {job.name: j for j, job in enumerate(instance.jobs)}
        self.gpu_memory: NDArray[np.float64] = np.array([gpu.memory_gb for gpu, _ in gpus])
        self.node: dict[str, int] = {n.name: i for i, n in enumerate(instance.nodes)}
        self.gpu_node: NDArray[np.int64] = np.array([self.node[n.name] for _, n in gpus])
        self.need: NDArray[np.float64] = np.array([task.memory_gb for task, _ in tasks])
        self.job_of: NDArray[np.int64] = np.array([j for _, j in tasks])
        self.own: NDArray[np.int64] = np.array([-1 if t.running is None else self.gpu[t.running.gpu] for t, _ in tasks])
        self.elapsed: NDArray[np.float64] = np.array(
            [0.0 if t.running is None else t.running.elapsed_s for t, _ in tasks]
        )
        self.names: list[str] = list(self.task)
        self.names_of_jobs: list[str] = list(self.job)
        self.at: NDArray[np.int64] = np.full(len(tasks), -1)
        self.strange: list[str] = [
            f"{t} on {g}" for t, g in placements.items() if t not in self.task or g not in self.gpu
        ]
        if not self.strange:
            for t, g in placements.items():
                self.at[self.task[t]] = self.gpu[g]

    def labels(self) -> list[str]:
        """Node and memory of each GPU."""
        names = list(self.node)
        memory = [repr(gb).removesuffix(".0") for gb in self.gpu_memory.tolist()]
        return [f"{names[n]},{gb}" for n, gb in zip(self.gpu_node.tolist(), memory, strict=True)]

    def counts(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(self.job_of[chosen], minlength=len(self.job))


def none(name: str, offenders: list[str]) -> Check:
    return Check(name, not offenders, len(offenders), ", ".join(offenders[:3]))
