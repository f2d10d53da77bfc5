"""The allocation instance: jobs whose throughput differs by GPU type, and how many GPUs of each type there are.

Source: Narayanan et al., *Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads* (OSDI 2020).
Limits (caps and floors) are ours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from flowlex.instances.array_types import Floats, Integers, floats
from flowlex.instances.instance_base import (
    Instance,
    Name,
    NonNegative,
    Part,
    Positive,
    read_only,
    require_known,
    require_unique,
)

GpuCount = Annotated[int, Field(ge=1, le=10**9, strict=True)]


class GpuType(Part):
    """A type of GPU: the number of identical GPUs and the price of each."""

    name: Name
    count: GpuCount
    """Number of GPUs of the type."""
    usd_per_hour: NonNegative = 0.0
    """Price of one, in US dollars per hour."""


class JobType(Part):
    """A kind of training job: GPUs used at once, and steps per second on each GPU type (0 if left out)."""

    name: Name
    gpus: GpuCount = 1
    """GPUs that a job of the type uses at once."""
    steps_per_s: dict[Name, NonNegative]
    """Steps per second by GPU type; it does not run on a GPU type that is left out."""


class PairThroughput(Part):
    """Throughputs of two job types that share GPUs of one type (space sharing), in steps per second."""

    job_types: tuple[Name, Name]
    """The two job types; both use the same number of GPUs."""
    gpu_type: Name
    """The GPU type that they share."""
    steps_per_s: tuple[NonNegative, NonNegative]
    """Steps per second of the first and of the second job type."""


class PairTable(Part):
    """Throughputs of job types that share GPUs of one type, as a square table (shorter than a list of pairs)."""

    gpu_type: Name
    """The GPU type that they share."""
    job_types: tuple[Name, ...]
    """Job types of the rows and columns."""
    steps_per_s: tuple[tuple[NonNegative, ...], ...]
    """Row a, column b: steps per second of type a when it shares with type b; a pair with two zeros cannot share."""

    @cached_property
    def beside(self) -> Floats:
        """(k, k) ``steps_per_s`` as an array."""
        size = len(self.job_types)
        found = np.array(self.steps_per_s, np.float64).reshape(size, size)
        found.flags.writeable = False
        return found


class Entity(Part):
    """A user or group that owns jobs."""

    name: Name
    weight: Positive = 1.0
    """Its share of the cluster, relative to other entities."""
    inside: Literal["fair", "fifo"] = "fair"
    """How its jobs share: ``fair`` in proportion to their weights, ``fifo`` in order of arrival."""


class AllocationJob(Part):
    """A training job; jobs are listed in order of arrival."""

    name: Name
    job_type: Name
    """Its kind of training."""
    weight: Positive = 1.0
    """Its share, relative to other jobs."""
    steps_left: Positive | None = None
    """Steps until it is done; makespan, finish-time fairness and deadlines need it."""
    running_s: NonNegative = 0.0
    """Seconds since it was submitted."""
    isolated_s: NonNegative = 0.0
    """Seconds it would have run so far in a cluster of the size of its share (finish-time fairness)."""
    entity: Name | None = None
    """The entity that owns it."""
    deadline_s: Positive | None = None
    """Seconds from now until it must be done."""


class Limit(Part):
    """Bounds on the average number of GPUs, of one type or of all, that a job, an entity or all jobs hold.

    Parameters
    ----------
    least_gpus, most_gpus
        Lower and upper bound; GPUs that a pair shares count once.
    """

    job: Name | None = None
    """The job; null for no particular job."""
    entity: Name | None = None
    """The entity; null for no particular entity."""
    gpu_type: Name | None = None
    """The GPU type; null for all types together."""
    least_gpus: NonNegative = 0.0
    most_gpus: NonNegative | None = None


# Compared by identity: equal instances must stay equal whether or not this view was built.
@dataclass(frozen=True, slots=True, eq=False)
class AllocationArrays:
    """The instance as arrays. Sizes: n jobs, J GPU types, P pair throughputs, E entities."""

    speed: Floats  # (n, J) steps/s; 0 where the type has fewer GPUs than the job uses at once
    # scale, weight, kind: (n,) GPUs used at once, weight, index of the job type
    scale: Integers
    weight: Floats
    kind: Integers
    # steps, running, isolated, deadline: (n,); NaN where steps or deadline are not given
    steps: Floats
    running: Floats
    isolated: Floats
    deadline: Floats
    entity: Integers  # (n,) index of the job's entity, -1 without
    # count, price: (J,) GPUs, USD per hour
    count: Integers
    price: Floats
    # pair_kind, pair_gpu, pair_speed: (P, 2) job types, (P,) GPU type, (P, 2) steps/s; pairs that do not fit or do not
    # run are left out
    pair_kind: Integers
    pair_gpu: Integers
    pair_speed: Floats


class AllocationInstance(Instance):
    """Which job gets which share of which GPU type?

    Attributes
    ----------
    gpu_types, job_types
        GPU types and job types, at least one of each. Prices in US dollars per hour, speeds in steps/s.
    jobs
        At least one, in order of arrival; times in seconds. Each runs on some GPU type that has enough GPUs.
    pairs, pair_tables
        Throughputs of job types that share GPUs, in steps/s, as a list or as one table per GPU type. Both types of a
        pair use the same number of GPUs.
    entities
        Owners of jobs, with unique names; may be empty.
    limits
        Lower and upper bounds in GPUs, each for at most one job or entity; no lower bound exceeds its upper bound.
    """

    kind: Literal["allocation"] = "allocation"
    gpu_types: Annotated[tuple[GpuType, ...], Field(min_length=1)]
    job_types: Annotated[tuple[JobType, ...], Field(min_length=1)]
    jobs: Annotated[tuple[AllocationJob, ...], Field(min_length=1)]
    pairs: tuple[PairThroughput, ...] = ()
    pair_tables: tuple[PairTable, ...] = ()
    entities: tuple[Entity, ...] = ()
    limits: tuple[Limit, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        listed: tuple[tuple[Any, ...], ...] = (self.gpu_types, self.job_types, self.jobs, self.entities)
        for what, parts in zip(("GPU types", "job types", "jobs", "entities"), listed, strict=True):
            require_unique((part.name for part in parts), what)
        gpu_types, kinds, jobs, entities = ({part.name: part for part in parts} for parts in listed)
        for kind in self.job_types:
            for name in kind.steps_per_s:
                require_known(name, gpu_types, f"job type {kind.name!r} names GPU type", "GPU types")
        self._check_jobs(kinds, entities)
        self._check_pairs(gpu_types, kinds)
        for limit in self.limits:
            require_known(limit.job, jobs, "a limit names job", "jobs")
            require_known(limit.entity, entities, "a limit names entity", "entities")
            require_known(limit.gpu_type, gpu_types, "a limit names GPU type", "GPU types")
            if limit.job is not None and limit.entity is not None:
                raise ValueError(f"a limit names job {limit.job!r} and entity {limit.entity!r}; make it two limits")
            if limit.most_gpus is not None and limit.least_gpus > limit.most_gpus:
                raise ValueError(f"a limit's floor {limit.least_gpus:g} is above its cap {limit.most_gpus:g} GPUs")
        return self

    def _check_jobs(self, kinds: Mapping[str, Any], entities: Collection[str]) -> None:
        most = {t.name: t.count for t in self.gpu_types}
        for job in self.jobs:
            require_known(job.job_type, kinds, f"job {job.name!r} names job type", "job types")
            require_known(job.entity, entities, f"job {job.name!r} names entity", "entities")
            kind = kinds[job.job_type]
            runs = [name for name, speed in kind.steps_per_s.items() if speed > 0]
            if not runs:
                raise ValueError(f"job {job.name!r} has throughput 0 on every GPU type; drop it or mend its job type")
            if all(most[name] < kind.gpus for name in runs):
                largest = max(most[name] for name in runs)
                raise ValueError(
                    f"job {job.name!r} uses {kind.gpus} GPUs at once, the types it runs on have at most {largest}; "
                    "drop it or add GPUs"
                )
            if job.deadline_s is not None and job.steps_left is None:
                raise ValueError(f"job {job.name!r} has a deadline but no steps_left; say how many steps it needs")

    def _check_pairs(self, gpu_types: Collection[str], kinds: Mapping[str, Any]) -> None:
        seen = set()
        for pair in self.pairs:
            one, other = pair.job_types
            for name in pair.job_types:
                require_known(name, kinds, "a pair names job type", "job types")
            require_known(pair.gpu_type, gpu_types, f"the pair of {one!r} and {other!r} names GPU type", "GPU types")
            if kinds[one].gpus != kinds[other].gpus:
                raise ValueError(
                    f"job types {one!r} and {other!r} use {kinds[one].gpus} and {kinds[other].gpus} GPUs; "
                    "only jobs of one scale can share GPUs: drop the pair"
                )
            if one == other and pair.steps_per_s[0] != pair.steps_per_s[1]:
                first, second = pair.steps_per_s
                raise ValueError(
                    f"two jobs of type {one!r} on {pair.gpu_type!r} run at {first:g} and {second:g} steps/s; "
                    "jobs of one type are identical: give both the same"
                )
            for key in {(one, other, pair.gpu_type), (other, one, pair.gpu_type)}:
                if key in seen:
                    raise ValueError(f"the pair of {one!r} and {other!r} on {pair.gpu_type!r} occurs twice; keep one")
                seen.add(key)
        for table in self.pair_tables:
            require_known(table.gpu_type, gpu_types, "a pair table names GPU type", "GPU types")
            for name in table.job_types:
                require_known(name, kinds, f"the pair table of {table.gpu_type!r} names job type", "job types")
            self._check_table(table, np.array([kinds[name].gpus for name in table.job_types]))
            listed = dict.fromkeys(table.job_types)
            for one, other, gpu_type in seen:
                if gpu_type == table.gpu_type and one in listed and other in listed:
                    raise ValueError(f"the pair of {one!r} and {other!r} on {gpu_type!r} is listed and in a table")

    def _check_table(self, table: PairTable, gpus: Integers) -> None:
        what, size = f"the pair table of {table.gpu_type!r}", len(table.job_types)
        require_unique(table.job_types, f"job types in {what}")
        if sum(other.gpu_type == table.gpu_type for other in self.pair_tables) > 1:
            raise ValueError(f"GPU type {table.gpu_type!r} has two pair tables; make them one")
        if [len(row) for row in table.steps_per_s] != [size] * size:
            raise ValueError(f"{what} needs {size} rows of {size} numbers, one per job type")
        runs = table.beside > 0
        wrong = np.argwhere((runs | runs.T) & (gpus[:, None] != gpus))
        if len(wrong):
            one, other = (table.job_types[k] for k in wrong[0])
            raise ValueError(f"{what} pairs {one!r} and {other!r} of unequal numbers of GPUs; put 0 there")

    @cached_property
    def arrays(self) -> AllocationArrays:
        """The instance as arrays, built once."""
        types = {t.name: j for j, t in enumerate(self.gpu_types)}
        kinds = {kind.name: k for k, kind in enumerate(self.job_types)}
        entities = {entity.name: e for e, entity in enumerate(self.entities)}
        count = np.array([t.count for t in self.gpu_types], np.int64)
        gpus = np.array([kind.gpus for kind in self.job_types], np.int64)
        table = np.array([[kind.steps_per_s.get(name, 0.0) for name in types] for kind in self.job_types])
        kind = np.array([kinds[job.job_type] for job in self.jobs], np.int64)
        listed = [[kinds[n] for n in p.job_types] for p in self.pairs]
        pair_kind = [np.array(listed, np.int64).reshape(-1, 2)]
        pair_gpu = [np.array([types[p.gpu_type] for p in self.pairs], np.int64)]
        pair_speed = [np.array([p.steps_per_s for p in self.pairs], np.float64).reshape(-1, 2)]
        for square in self.pair_tables:
            of = np.array([kinds[name] for name in square.job_types], np.int64)
            beside = square.beside
            one, other = np.nonzero(np.triu((beside > 0) | (beside.T > 0)))
            pair_kind.append(np.column_stack([of[one], of[other]]))
            pair_gpu.append(np.full(len(one), types[square.gpu_type]))
            pair_speed.append(np.column_stack([beside[one, other], beside[other, one]]))
        listed_kind, listed_gpu, speed = np.concatenate(pair_kind), np.concatenate(pair_gpu), np.concatenate(pair_speed)
        fits = gpus[:, None] <= count
        kept = (speed > 0).any(axis=1) & fits[listed_kind[:, 0], listed_gpu]
        return read_only(
            AllocationArrays(
                speed=np.where(fits, table, 0.0)[kind],
                scale=gpus[kind],
                weight=floats(job.weight for job in self.jobs),
                kind=kind,
                steps=floats(job.steps_left for job in self.jobs),
                running=floats(job.running_s for job in self.jobs),
                isolated=floats(job.isolated_s for job in self.jobs),
                deadline=floats(job.deadline_s for job in self.jobs),
                entity=np.array([-1 if job.entity is None else entities[job.entity] for job in self.jobs], np.int64),
                count=count,
                price=floats(t.usd_per_hour for t in self.gpu_types),
                pair_kind=listed_kind[kept],
                pair_gpu=listed_gpu[kept],
                pair_speed=speed[kept],
            )
        )

    def summary(self) -> dict[str, str | int | float]:
        """Sizes and totals."""
        return {
            "jobs": len(self.jobs),
            "job types": len(self.job_types),
            "GPU types": len(self.gpu_types),
            "GPUs": int(self.arrays.count.sum()),
            "GPUs asked for at once": int(self.arrays.scale.sum()),
            "entities": len(self.entities),
            "pairs of job types": len(self.arrays.pair_gpu),
            "limits": len(self.limits),
            "deadlines": int(np.isfinite(self.arrays.deadline).sum()),
        }
