"""Allocation of GPU time stated from the instance in exact rationals, for answers of changed models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

from flowlex.instances.allocation import AllocationInstance, JobType, Limit
from flowlex.instances.exact_rationals import rational
from flowlex.validation.certificates.statement.rational_linear_program import ExactStatement

#: Tolerance of rows, relative to the size of their numbers.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class _Run:
    """One job or two that may run: positions in the instance, GPU type, steps/s of each, and GPUs used."""

    jobs: tuple[int, ...]
    gpu_type: str
    speeds: tuple[Fraction, ...]
    gpus: int


def state_allocation(instance: AllocationInstance, options: Mapping[str, Any]) -> ExactStatement:
    """Variables ``share``, ``runs`` and ``rise``; see the model for the rows."""
    policy = str(options.get("policy", "max_min"))
    if policy not in ("max_min", "makespan", "max_throughput", "min_cost") or options.get("parts", 1) != 1:
        raise ValueError(f"policy {policy!r} by {options.get('parts', 1)} parts takes no changes")
    runs = _runs(instance, sharing=bool(options.get("sharing", True)))
    statement = ExactStatement("objective", needed=frozenset({"time", "gpus", "runs"}), tolerance=_TOLERANCE)
    names, owners = [job.name for job in instance.jobs], [job.entity or "" for job in instance.jobs]
    labels = [
        {
            "job": names[run.jobs[0]],
            "partner": names[run.jobs[1]] if len(run.jobs) > 1 else "",
            "gpu_type": run.gpu_type,
            "entity": owners[run.jobs[0]],
        }
        for run in runs
    ]
    statement.variables("share", labels, keys=("job", "partner", "gpu_type"), integer=False)
    _capacities(statement, instance, runs)
    kept = options.get("deadlines")
    kept = policy in ("max_throughput", "min_cost") if kept is None else kept
    speed: list[dict[int, Fraction]] = [{} for _ in names]
    for column, run in enumerate(runs):
        for m, each in zip(run.jobs, run.speeds, strict=True):
            speed[m][column] = each
    for job, terms in zip(instance.jobs, speed, strict=True):
        if kept and job.deadline_s is not None and job.steps_left is not None:
            owed = rational(job.steps_left) / rational(job.deadline_s)
            statement.row("deadline", job.name, terms, ">=", owed)
    _time_on_types(statement, instance, runs)
    if policy == "max_throughput":
        total = {column: sum(run.speeds, Fraction(0)) for column, run in enumerate(runs)}
        statement.stage("objective", total, maximize=True)
    elif policy == "min_cost":
        price = {t.name: rational(t.usd_per_hour) for t in instance.gpu_types}
        statement.stage("objective", {column: run.gpus * price[run.gpu_type] for column, run in enumerate(runs)})
    else:
        _rise(statement, instance, speed, policy, aware=bool(options.get("aware", True)))
    return statement


def _runs(instance: AllocationInstance, *, sharing: bool) -> list[_Run]:
    """All jobs and pairs that may run, on each GPU type."""
    kinds = {kind.name: kind for kind in instance.job_types}
    count = {t.name: t.count for t in instance.gpu_types}
    found = []
    members: dict[str, list[int]] = {name: [] for name in kinds}
    for m, job in enumerate(instance.jobs):
        members[job.job_type].append(m)
        for gpu_type, speed in kinds[job.job_type].steps_per_s.items():
            if speed > 0 and kinds[job.job_type].gpus <= count[gpu_type]:
                found.append(_Run((m,), gpu_type, (rational(speed),), kinds[job.job_type].gpus))
    listed = [(*pair.job_types, pair.gpu_type, *pair.steps_per_s) for pair in instance.pairs]
    for table in instance.pair_tables:
        for a, one in enumerate(table.job_types):
            for b, other in enumerate(table.job_types[a:], a):
                listed.append((one, other, table.gpu_type, table.steps_per_s[a][b], table.steps_per_s[b][a]))
    for one, other, gpu_type, fast, slow in listed if sharing else ():
        if (fast > 0 or slow > 0) and kinds[one].gpus <= count[gpu_type]:
            both = rational(fast), rational(slow)
            for a, b in product(members[one], members[other]):
                if a != b and (one != other or a < b):
                    order = ((a, b), both) if a < b else ((b, a), both[::-1])
                    found.append(_Run(order[0], gpu_type, order[1], kinds[one].gpus))
    return found


def _capacities(statement: ExactStatement, instance: AllocationInstance, runs: list[_Run]) -> None:
    """Time of jobs, GPUs of types, caps and floors."""
    for m, job in enumerate(instance.jobs):
        statement.row("time", job.name, {c: 1 for c, run in enumerate(runs) if m in run.jobs}, "<=", 1)
    for gpu_type in instance.gpu_types:
        held = {c: run.gpus for c, run in enumerate(runs) if run.gpu_type == gpu_type.name}
        statement.row("gpus", gpu_type.name, held, "<=", gpu_type.count)
    for k, limit in enumerate(instance.limits):
        held = {c: run.gpus for c, run in enumerate(runs) if _counts(instance, limit, run)}
        if limit.most_gpus is not None:
            statement.row("most", str(k), held, "<=", rational(limit.most_gpus))
        if limit.least_gpus > 0:
            statement.row("least", str(k), held, ">=", rational(limit.least_gpus))


def _counts(instance: AllocationInstance, limit: Limit, run: _Run) -> bool:
    """Whether a run counts against a limit."""
    jobs = [instance.jobs[m] for m in run.jobs]
    meant = any(limit.job in (None, job.name) and limit.entity in (None, job.entity) for job in jobs)
    return meant and limit.gpu_type in (None, run.gpu_type)


def _time_on_types(statement: ExactStatement, instance: AllocationInstance, runs: list[_Run]) -> None:
    """``runs`` and the rows that tie it to the shares."""
    shares: dict[tuple[int, str], dict[int, int]] = {}
    for column, run in enumerate(runs):
        for m in run.jobs:
            shares.setdefault((m, run.gpu_type), {})[column] = 1
    labels = [
        {"job": instance.jobs[m].name, "gpu_type": gpu_type, "entity": instance.jobs[m].entity or ""}
        for m, gpu_type in shares
    ]
    block = statement.variables("runs", labels, keys=("job", "gpu_type"), integer=False)
    for k, terms in enumerate(shares.values()):
        statement.row("runs", block.name(k), terms | {block.start + k: -1}, "==", 0)


def _speeds(instance: AllocationInstance) -> list[dict[str, Fraction]]:
    """By job, steps per second on each type that has the GPUs it needs."""
    kinds: dict[str, JobType] = {kind.name: kind for kind in instance.job_types}
    return [
        {t.name: rational(kind.steps_per_s.get(t.name, 0)) for t in instance.gpu_types if t.count >= kind.gpus}
        for kind in (kinds[job.job_type] for job in instance.jobs)
    ]


def shortest_makespan(instance: AllocationInstance) -> Fraction:
    """Seconds that the longest job needs alone on its fastest type: no makespan is shorter."""
    pairs = zip(instance.jobs, _speeds(instance), strict=True)
    return max(rational(job.steps_left or 0) / max(speeds.values()) for job, speeds in pairs)


def _rise(
    statement: ExactStatement,
    instance: AllocationInstance,
    speed: list[dict[int, Fraction]],
    policy: str,
    *,
    aware: bool,
) -> None:
    """Maximise ``rise``: each job's gain (from steps/s or from time) is at least its pace times ``rise``."""
    kinds: dict[str, JobType] = {kind.name: kind for kind in instance.job_types}
    total = sum(t.count for t in instance.gpu_types)
    fits = _speeds(instance)
    count = {t.name: t.count for t in instance.gpu_types}
    shortest = shortest_makespan(instance) if policy == "makespan" else Fraction(0)
    gains, paces, highest = [], [], Fraction(0)
    for job, mine, terms in zip(instance.jobs, fits, speed, strict=True):
        if policy == "makespan":
            unit, pace = shortest / rational(job.steps_left or 0), Fraction(1)
        else:
            unit = Fraction(total) / sum((each * count[name] for name, each in mine.items()), Fraction(0))
            pace = rational(job.weight) / kinds[job.job_type].gpus
        gain = {column: each * unit if aware or policy == "makespan" else Fraction(1) for column, each in terms.items()}
        highest = max(highest, max(gain.values(), default=Fraction(0)) / pace)
        gains.append(gain)
        paces.append(pace)
    block = statement.variables("rise", [{}], upper=2 * highest, integer=False)
    for job, gain, pace in zip(instance.jobs, gains, paces, strict=True):
        statement.row("level", job.name, {**gain, block.start: -pace}, ">=", 0)
    statement.stage("objective", {block.start: 1}, maximize=True)
