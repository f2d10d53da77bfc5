"""What the experiments on networks of training jobs share: means by network of what a log says."""

from __future__ import annotations

from typing import Any

from flowlex.simulation.log import RunLog
from flowlex.simulation.network.record import coflow_frame, transfer_frame

__all__ = ["job_seconds", "slow_copies", "waits"]


def job_seconds(log: RunLog) -> dict[str, float]:
    """Mean job completion time by network, and of all."""
    frame = coflow_frame(log)
    jobs = frame[frame.kind == "coflow"]
    network = jobs.name.str.rpartition("-")[2]
    return {**_means(jobs.jct_s, network), "mean": float(jobs.jct_s.mean())}


def waits(log: RunLog) -> dict[str, float]:
    """Mean seconds from a transfer's arrival to its use, by network."""
    frame = transfer_frame(log)
    jobs = frame[frame.kind == "coflow"]
    return _means(jobs.wait_s, jobs.coflow.str.rpartition("-")[2])


def _means(values: Any, group: Any) -> dict[str, float]:
    return {str(name): float(mean) for name, mean in values.groupby(group).mean().items()}


def slow_copies(log: RunLog) -> dict[str, float]:
    """Mean slow-down of file copies, and by Gbit."""
    frame = coflow_frame(log)
    copies = frame[frame.kind == "copy"]
    gigabits = (copies.mb / 125).round().astype(int)
    return {"mean": float(copies.slowdown.mean())} | {
        str(k): v for k, v in copies.groupby(gigabits).slowdown.mean().items()
    }
