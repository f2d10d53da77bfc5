"""The linear constraints that all policies share: time shares, capacities, limits and deadlines."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from flowlex.formulations.linear_expression import Expression, Variables
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.instances.allocation import AllocationArrays, AllocationInstance, Limit


@dataclass(frozen=True, eq=False)
class JobColumns:
    """Columns of the program: a job alone, or two jobs that share GPUs, on a GPU type. C columns."""

    # (C,) jobs; ``second`` is -1 for a job alone
    first: Integers
    second: Integers
    gpu: Integers  # (C,) GPU type
    speed: Floats  # (C, 2) steps/s of the first and of the second job

    @property
    def count(self) -> int:
        """Number of columns."""
        return len(self.first)

    @property
    def paired(self) -> Booleans:
        """(C,) whether the column runs two jobs."""
        return self.second >= 0

    @classmethod
    def none(cls) -> JobColumns:
        """Return zero columns."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 2)))

    @classmethod
    def joined(cls, parts: Sequence[JobColumns]) -> JobColumns:
        """Concatenate several blocks of columns."""
        names = ("first", "second", "gpu", "speed")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def per_job(self, values: Floats, jobs: int, *, speed: bool = True) -> Floats:
        """Return the throughput of every job, (n,), or with ``speed=False`` the fraction of time that it runs."""
        rate = self.speed if speed else np.ones((self.count, 2))
        pair = self.paired
        alone = np.bincount(self.first, weights=rate[:, 0] * values, minlength=jobs)
        both = np.bincount(self.second[pair], weights=(rate[:, 1] * values)[pair], minlength=jobs)
        return np.asarray(alone + both)


def run_columns(view: AllocationArrays, *, sharing: bool = True, many: Integers | None = None) -> JobColumns:
    """Return all columns: jobs alone, in the order of jobs and GPU types, then pairs if ``sharing``.

    A job that represents ``many`` > 1 identical jobs is also paired with itself.
    """
    twin = np.zeros(len(view.kind), bool) if many is None else many > 1
    job, gpu = np.nonzero(view.speed)
    parts = [(job, np.full(len(job), -1), gpu, np.column_stack([view.speed[job, gpu], np.zeros(len(job))]))]
    if sharing:
        parts.append(_pair_columns(view, twin))
    first, second, gpus, speeds = (np.concatenate(column) for column in zip(*parts, strict=True))
    return JobColumns(first, second, gpus, speeds)


def _pair_columns(view: AllocationArrays, twin: Booleans) -> tuple[Integers, Integers, Integers, Floats]:
    """Return all pairs of jobs for all pairs of job types: first, second, GPU type and speeds."""
    order, kinds = np.argsort(view.kind, kind="stable"), view.pair_kind
    size = np.bincount(view.kind, minlength=int(kinds.max(initial=0)) + 1)
    begin, (many, others) = np.cumsum(size) - size, size[kinds.T]
    pair = np.repeat(np.arange(len(kinds)), many * others)
    at = np.arange(len(pair)) - np.repeat(np.cumsum(many * others) - many * others, many * others)
    one = order[begin[kinds[pair, 0]] + at // others[pair]]
    other = order[begin[kinds[pair, 1]] + at % others[pair]]
    kept = (kinds[pair, 0] != kinds[pair, 1]) | (one < other) | ((one == other) & twin[one])
    return one[kept], other[kept], view.pair_gpu[pair[kept]], view.pair_speed[pair[kept]]


def equal_throughput(view: AllocationArrays) -> Floats:
    """Return the steps/s of each job, (n,), if its time is split in proportion to the GPUs of each type."""
    return np.asarray(view.speed @ view.count / view.count.sum())


def limited(instance: AllocationInstance, limit: Limit, columns: JobColumns) -> Booleans:
    """Return which columns, (C,), count against a limit."""
    chosen = np.ones(columns.count, bool)
    if limit.gpu_type is not None:
        chosen &= columns.gpu == [t.name for t in instance.gpu_types].index(limit.gpu_type)
    if limit.job is not None:
        member = np.array([job.name == limit.job for job in instance.jobs])
    elif limit.entity is not None:
        member = np.array([job.entity == limit.entity for job in instance.jobs])
    else:
        return chosen
    against: Booleans = chosen & (member[columns.first] | (columns.paired & member[columns.second]))
    return against


@dataclass(frozen=True, eq=False)
class Base:
    """The constraints that all policies share, and expressions over the columns."""

    columns: JobColumns
    program: LinearProgram  # without objective
    share: Variables
    # (n,) steps/s of every job and fraction of time that it runs; for a job that represents several, the sums over them
    throughput: Expression
    time: Expression
    many: Integers  # (n,) number of identical jobs that each job represents


def sums_by_job(columns: JobColumns, share: Variables, jobs: int) -> tuple[Expression, Expression]:
    """Return the fraction of time of every job, (n,), and its steps/s."""
    pair, rate = columns.paired, columns.speed
    first, second = columns.first, columns.second[pair]
    time = share.sum_by(first, jobs) + share[pair].sum_by(second, jobs)
    return time, (share * rate[:, 0]).sum_by(first, jobs) + (share[pair] * rate[pair, 1]).sum_by(second, jobs)


def base_program(
    instance: AllocationInstance,
    columns: JobColumns,
    rows: Collection[str] | None,
    *,
    deadlines: bool,
    many: Integers | None = None,
) -> Base:
    """Build the constraints on time shares: time of each job, GPUs of each type, limits and, if kept, deadlines."""
    view = instance.arrays
    many = np.ones(len(view.scale), np.int64) if many is None else many
    jobs = np.array([job.name for job in instance.jobs], object)
    types = np.array([t.name for t in instance.gpu_types], object)
    program = LinearProgram(instance.name, rows)
    pair, scale = columns.paired, view.scale[columns.first].astype(np.float64)
    labels = jobs[columns.first]
    labels[pair] = labels[pair] + "+" + jobs[columns.second[pair]]
    share = program.variables("share", columns.count, labels=(labels, types[columns.gpu]))
    time, throughput = sums_by_job(columns, share, len(jobs))
    program.constrain("time", time, "<=", many, labels=jobs)
    program.constrain("gpus", (share * scale).sum_by(columns.gpu, len(types)), "<=", view.count, labels=types)
    caps = [k for k, limit in enumerate(instance.limits) if limit.most_gpus is not None]
    floors = [k for k, limit in enumerate(instance.limits) if limit.least_gpus > 0]
    for name, relation, which in (("most", "<=", caps), ("least", ">=", floors)):
        if which:
            held = _held(instance, columns, share, scale, which)
            sides = [getattr(instance.limits[k], f"{name}_gpus") for k in which]
            program.constrain(name, held, relation, sides, labels=np.array(which))  # type: ignore[arg-type]
    owed = np.flatnonzero(np.isfinite(view.deadline)) if deadlines else np.zeros(0, np.int64)
    if len(owed):
        need = many[owed] * view.steps[owed] / view.deadline[owed]
        program.constrain("deadline", throughput[owed], ">=", need, labels=jobs[owed])
    return Base(columns, program, share, throughput, time, many)


def _held(
    instance: AllocationInstance, columns: JobColumns, share: Variables, scale: Floats, which: list[int]
) -> Expression:
    """Return the average number of GPUs that count against each limit."""
    chosen = [np.flatnonzero(limited(instance, instance.limits[k], columns)) for k in which]
    key = np.repeat(np.arange(len(which)), [len(c) for c in chosen])
    column = np.concatenate(chosen)
    return Expression(key, share.column[column], scale[column], np.zeros(len(which)))


def raised_program(base: Base, gain: Expression, pace: Floats, level: Floats, labels: list[str]) -> LinearProgram:
    """Maximise the rise t with ``gain_m >= level_m + pace_m t`` for every job (scaled by ``many``)."""
    pace, level = base.many * pace, base.many * level
    program = base.program.copy()
    rise = program.variables("rise", 1)
    raised = gain - rise.repeated(len(pace)) * pace
    program.constrain("level", raised, ">=", level, labels=labels)
    program.maximize(rise)
    return program
