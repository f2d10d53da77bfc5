"""All policies and baselines of GPU assignment on one instance, in one table."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.arrays import Integers
from flowlex.formulations.outcome import EngineName
from flowlex.instances.gpu import GpuArrays, GpuInstance
from flowlex.models.gpu.costs import Penalties, TransferCosts
from flowlex.models.gpu.greedy import greedy, greedy_delay, greedy_preemptive
from flowlex.models.gpu.model import GpuAssignment
from flowlex.models.gpu.placement import Placement
from flowlex.models.gpu.round import Policy

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BASELINES", "compare"]

BASELINES: dict[str, Callable[[GpuArrays, TransferCosts], Integers]] = {
    "GS": greedy,
    "GSP": greedy_preemptive,
    "GSD": greedy_delay,
}


def compare(
    instance: GpuInstance, *, engine: EngineName = "network", penalties: Penalties | None = None
) -> pd.DataFrame:
    """One row per policy (proven optimum) and baseline (greedy): placements, bytes, fairness, seconds.

    ``least_running`` is what the job with waiting tasks that runs the fewest has got.
    """
    import pandas as pd

    weights = penalties or Penalties()
    rows: dict[str, dict[str, float | int | str]] = {}
    for policy in Policy:
        started = time.perf_counter()
        solution = GpuAssignment(instance, policy=policy, penalties=weights).solve(engine)
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
