"""The answer of an allocation, the sums of its shares (throughput, time, GPUs held), and checks of feasibility."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flowlex.validation.certificates.allocation_bounds import Data, Floats
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.verifier_interface import Strict

#: Accepted difference, relative to 1 + the size of the numbers compared.
TOLERANCE = 1e-6


class Share(Strict):
    """One job, or two that share GPUs, on a GPU type for a fraction of time."""

    jobs: list[str]
    gpu_type: str
    fraction: float


class AllocationAnswer(Strict):
    """Who runs where, and the throughput of every job."""

    shares: list[Share]
    steps_per_s: dict[str, float]


@dataclass(frozen=True, eq=False)
class Use:
    """Sums of an answer's shares: (n,) throughput and time; GPUs held by (J,) type and by limit; invalid shares."""

    throughput: Floats
    time: Floats
    held: Floats
    limited: Floats
    wrong: tuple[str, ...]


def used(data: Data, shares: list[Share]) -> Use:
    n, types = len(data.job), len(data.gpu)
    throughput, time, held = np.zeros(n), np.zeros(n), np.zeros(types)
    limits = [data.counts(limit) for limit in data.instance.limits]
    limited = np.zeros(len(limits))
    wrong, seen = [], set()
    for share in shares:
        key = (tuple(sorted(share.jobs)), share.gpu_type)
        jobs, j = [data.job.get(name, -1) for name in share.jobs], data.gpu.get(share.gpu_type, -1)
        speeds = _speeds(data, jobs, j)
        if speeds is None or key in seen or share.fraction < 0:
            wrong.append(f"{' + '.join(share.jobs)} on {share.gpu_type}"[:100])
            continue
        seen.add(key)
        gpus = data.scale[jobs[0]] * share.fraction
        held[j] += gpus
        for m, speed in zip(jobs, speeds, strict=True):
            throughput[m] += speed * share.fraction
            time[m] += share.fraction
        for k, (members, on) in enumerate(limits):
            limited[k] += gpus * float(on[j] and members[jobs].any())
    return Use(throughput, time, held, limited, tuple(wrong))


def _speeds(data: Data, jobs: list[int], j: int) -> tuple[float, ...] | None:
    """Speeds of one job, or of two that share GPUs; None if they cannot run there."""
    if j < 0 or not 1 <= len(jobs) <= 2 or min(jobs) < 0:
        return None
    if len(jobs) == 1:
        return (float(data.speed[jobs[0], j]),) if data.speed[jobs[0], j] > 0 else None
    a, b = data.kind[jobs].tolist()
    if jobs[0] == jobs[1]:
        return None
    return data.together(a, b, j)


def feasible(data: Data, use: Use, stated: Mapping[str, float]) -> list[Check]:
    limits = data.instance.limits
    most = np.array([np.inf if limit.most_gpus is None else limit.most_gpus for limit in limits])
    least = np.array([limit.least_gpus for limit in limits])
    names, numbers = list(data.job), [f"limit {k}" for k in range(len(limits))]
    late = (data.owed - use.throughput) / (1 + data.owed)
    return [
        Check("every share is of jobs that may run there", not use.wrong, len(use.wrong), "; ".join(use.wrong[:3])),
        small("no job runs more than all the time", use.time - 1.0, names),
        small("no type lends more GPUs than it has", (use.held - data.count) / (1 + data.count), list(data.gpu)),
        small("caps hold", use.limited - most, numbers),
        small("floors hold", (least - use.limited) / (1 + least), numbers),
        small("deadlines are kept", late, names),
        *throughputs(data, use, stated),
    ]


def throughputs(data: Data, use: Use, stated: Mapping[str, float]) -> list[Check]:
    said = np.array([stated.get(name, np.inf) for name in data.job])
    strange = len(stated.keys() - data.job.keys())
    off = np.abs(said - use.throughput) / (1 + use.throughput)
    return [
        Check("throughputs of known jobs", not strange, strange),
        small("throughputs recomputed", off, list(data.job)),
    ]


def small(name: str, violation: Floats, labels: list[str]) -> Check:
    """Whether the largest violation is within the tolerance; NaN is not."""
    worst = float(violation.max(initial=0.0))
    ok = worst <= TOLERANCE
    return Check(name, ok, worst, "" if ok else f"{labels[int(violation.argmax())]} is off by {worst:.3g}")
