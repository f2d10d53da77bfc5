"""Baseline allocations and a table of all policies and baselines. Baselines ignore limits, deadlines and pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import EngineName, Status
from flowlex.instances.allocation import AllocationArrays, AllocationInstance
from flowlex.models.allocation.allocation_linear_program import run_columns
from flowlex.models.allocation.first_incumbent import isolated
from flowlex.models.allocation.model import Allocation
from flowlex.models.allocation.solution import AllocationSolution
from flowlex.models.model_base import ModelError

if TYPE_CHECKING:
    import pandas as pd


def fifo(view: AllocationArrays) -> Floats:
    """Return fractions, (n, J): in order, each job runs all the time on the fastest type with enough free GPUs."""
    share, left = np.zeros_like(view.speed), view.count.copy()
    for m, (speed, scale) in enumerate(zip(view.speed, view.scale.tolist(), strict=True)):
        best = int(np.where(left >= scale, speed, 0.0).argmax())
        if speed[best] > 0 and left[best] >= scale:
            share[m, best] = 1.0
            left[best] -= scale
    return share


def proportional(view: AllocationArrays) -> Floats:
    """Return fractions, (n, J): each job's time is split by ``N_j / sum N`` and scaled down until all jobs fit."""
    total = view.count.sum()
    share = np.broadcast_to(view.count / total, view.speed.shape) * min(1.0, total / view.scale.sum())
    return np.where(view.speed > 0, share, 0.0)


BASELINES = {"fifo": fifo, "proportional": proportional, "isolated": isolated}


def baseline(instance: AllocationInstance, name: str) -> AllocationSolution:
    """Return the allocation of a baseline as a solution with status ``feasible``.

    Raises `ModelError` if the baseline does not exist.
    """
    if name not in BASELINES:
        raise ModelError(f"no baseline is named {name!r}; one of: {', '.join(BASELINES)}")
    view = instance.arrays
    columns = run_columns(view, sharing=False)
    share = BASELINES[name](view)[columns.first, columns.gpu]
    facts: dict[str, Any] = {"model": name, "engine": "none", "source": instance, "options": {"policy": name}}
    return AllocationSolution(**facts, status=Status.FEASIBLE, columns=columns, share=share)


def compare(instance: AllocationInstance, *, engine: EngineName = "highs") -> pd.DataFrame:
    """Compare all baselines with every policy for which the instance has data, one row each."""
    import pandas as pd

    rows: dict[str, dict[str, Any]] = {name: baseline(instance, name).metrics() for name in BASELINES}
    policies: list[dict[str, Any]] = [{"policy": "max_min", "aware": False}]
    names = ("max_min", "water_filling", "hierarchical", "makespan", "finish_time", "max_throughput", "min_cost")
    policies += [{"policy": name} for name in names if name != "hierarchical" or instance.entities]
    for options in policies:
        label = options["policy"] + ("" if options.get("aware", True) else ", time only")
        try:
            solution = Allocation(instance, **options).solve(engine)
        except ModelError:  # no steps or deadlines in the instance
            continue
        if solution.status.has_answer:
            rows[label] = solution.metrics()
    return pd.DataFrame(rows).T.rename_axis("policy")
