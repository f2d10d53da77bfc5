"""Verify rounds from the instance: every round fits, and after each, every job has what it is owed up to its lag.

Deliveries are counted from the rounds alone, whatever method found the rounds and their lag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field, ValidationError

from flowlex.instances.allocation import AllocationInstance
from flowlex.instances.input_errors import first_fault
from flowlex.validation.certificates.certificate import Certificate, Check
from flowlex.validation.certificates.verifier_interface import SolutionError, Strict
from flowlex.validation.restated.allocation import Share
from flowlex.validation.restated.allocation_program import Cluster, Floats

#: Largest drift from what is owed, per second of a round; it allows for a solver's tolerance.
DRIFT = 1e-6


class Running(Strict):
    """One job, or two that share GPUs, on a GPU type."""

    jobs: list[str]
    gpu_type: str


class Rounds(Strict):
    """The document of a schedule of rounds (`flowlex.models.allocation.shares_to_rounds.RoundSchedule.to_dict`)."""

    seconds: float = Field(gt=0, allow_inf_nan=False)
    part: float = Field(gt=0, le=1)
    shares: list[Share]
    configurations: list[list[Running]]
    rounds: list[int] = Field(min_length=1)
    lag_s: dict[str, dict[str, float]]
    drift_s: float = Field(ge=0, allow_inf_nan=False)


def certify_rounds(document: Mapping[str, Any], instance: AllocationInstance) -> Certificate:
    """Recount what the rounds deliver.

    Raises `SolutionError`: the document does not hold rounds.
    """
    try:
        stated = Rounds.model_validate(document)
    except ValidationError as error:
        raise SolutionError(f"not a schedule of rounds: {': '.join(first_fault(error))}") from None
    data = Cluster(instance, {"policy": "", "deadlines": False})
    wrong = [why for number, one in enumerate(stated.configurations) if (why := _misfit(data, number, one))]
    wrong += [f"round of configuration {k}" for k in stated.rounds if not 0 <= k < len(stated.configurations)][:1]
    wrong += [f"a share of {'+'.join(s.jobs)}"[:100] for s in stated.shares if not _known(data, s.jobs, s.gpu_type)][:1]
    checks = [Check("every round fits: jobs once, GPUs of each type", not wrong, len(wrong), "; ".join(wrong[:3]))]
    small = stated.drift_s <= DRIFT * stated.seconds
    checks.append(
        Check("the drift per round is a solver's tolerance", small, stated.drift_s, f"{stated.drift_s:.3g} s")
    )
    if not wrong:
        checks.append(_behind(data, stated))
    return Certificate("feasible", False, tuple(checks), DRIFT)


def _known(data: Cluster, jobs: list[str], gpu: str) -> bool:
    return gpu in data.gpu and 1 <= len(jobs) <= 2 and all(name in data.job for name in jobs)


def _misfit(data: Cluster, number: int, running: list[Running]) -> str:
    """Why a configuration does not fit; empty when it does."""
    held, seen = np.zeros(len(data.gpu)), set[str]()
    for run in running:
        where = f"configuration {number}: {'+'.join(run.jobs)} on {run.gpu_type}"[:100]
        if not _known(data, run.jobs, run.gpu_type):
            return f"{where} is unknown"
        if seen & set(run.jobs) or len(set(run.jobs)) < len(run.jobs):
            return f"{where} runs twice"
        seen.update(run.jobs)
        j, jobs = data.gpu[run.gpu_type], [data.job[name] for name in run.jobs]
        both = (*(np.array([m]) for m in jobs), np.array([j]))
        paired = len(jobs) == 2 and bool((data.together(*both)[2] >= 0).all())
        if not paired and (len(jobs) == 2 or data.speed[jobs[0], j] <= 0):
            return f"{where} may not run there"
        held[j] += data.scale[jobs[0]]
    over = np.flatnonzero(held > data.count)
    return f"configuration {number} needs {held[over[0]]:g} GPUs of {list(data.gpu)[over[0]]}" if len(over) else ""


def _behind(data: Cluster, stated: Rounds) -> Check:
    """Check that after every round each job has, on each GPU type, what it is owed up to its lag."""
    n, types = len(data.job), len(data.gpu)
    owed = np.zeros((n, types))
    for share in stated.shares:
        for name in share.jobs:
            owed[data.job[name], data.gpu[share.gpu_type]] += share.fraction
    taking = np.zeros((len(stated.configurations), n, types), bool)
    for k, running in enumerate(stated.configurations):
        for run in running:
            for name in run.jobs:
                taking[k, data.job[name], data.gpu[run.gpu_type]] = True
    order, after = np.array(stated.rounds), np.arange(1.0, len(stated.rounds) + 1)
    worst, offender = -np.inf, ""
    for m, job in enumerate(data.job):
        for j, gpu in enumerate(data.gpu):
            if owed[m, j] <= 0 and not taking[:, m, j].any():
                continue
            delivered: Floats = np.cumsum(taking[order, m, j], dtype=np.float64)
            off = stated.seconds * np.abs(delivered - stated.part * owed[m, j] * after)
            over = (off - stated.drift_s * after).max() - stated.lag_s.get(job, {}).get(gpu, 0.0)
            if not over <= worst:
                worst, offender = float(over), f"{job} on {gpu}"
    ok = worst <= 1e-9 * stated.seconds * len(order)
    return Check(
        "after every round each job has what it is owed, but its lag",
        ok,
        max(worst, 0.0),
        "" if ok else f"{offender} is {worst:.3g} s beyond its lag",
    )
