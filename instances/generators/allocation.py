"""Jobs as the Gavel paper draws them: mixed scales, durations over two decades, all at once or as a Poisson process.

Throughputs come from a file (`flowlex.systems.traces.gavel`) or from stated distributions (here).

Source: Narayanan et al. (OSDI 2020), section 7.1: 70 % of jobs on one GPU, 25 % on two to four, 5 % on eight; duration
10^u minutes, u uniform in 1.5..3 for 80 % of jobs and in 3..4 for the rest, at the speed of the fastest type. The parts
of two and four GPUs (10 % and 15 %) and the prices are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field

from flowlex.instances.allocation import (
    AllocationInstance,
    AllocationJob,
    Entity,
    GpuType,
    JobType,
    PairTable,
    PairThroughput,
)
from flowlex.instances.generators.registry import generator
from flowlex.instances.instance_base import InstanceError

Arrivals: TypeAlias = Literal["together", "poisson"]
#: USD per GPU-hour; ours, of the order of public clouds' prices.
PRICES = {"k80": 0.45, "p100": 1.46, "v100": 2.48}
_SCALES = {1: 0.7, 2: 0.1, 4: 0.15, 8: 0.05}


@dataclass(frozen=True)
class Workload:
    """Parameters of a random workload."""

    # jobs, gpus: number of jobs; GPUs of each type
    jobs: int
    gpus: int
    entities: int = 0  # number of users, who own the jobs in turn; 0 for none
    # arrivals, jobs_per_hour: all submitted now, or as a Poisson process of which this is a snapshot
    arrivals: Arrivals = "together"
    jobs_per_hour: float = 10.0
    slack: float = 0.0  # deadline as a multiple of the duration at full speed; 0 for none


def draw_workload(
    name: str,
    work: Workload,
    types: Sequence[str],
    job_types: Sequence[JobType],
    pairs: Sequence[PairThroughput],
    seed: int,
    *,
    own: bool = False,
) -> AllocationInstance:
    """Draw jobs of the given job types; keep only the job types drawn and their pairs.

    With ``own``, each job type has one job, in the order of the job types.
    """
    rng = np.random.default_rng(seed)
    by_scale: dict[int, list[JobType]] = {}
    for kind in job_types:
        if kind.gpus <= work.gpus and any(kind.steps_per_s.values()):
            by_scale.setdefault(kind.gpus, []).append(kind)
    if not by_scale:
        raise InstanceError(f"no job type fits on {work.gpus} GPUs of a type; ask for more GPUs")
    scales = [scale for scale in by_scale if scale in _SCALES] or list(by_scale)
    odds = np.array([_SCALES.get(scale, 1.0) for scale in scales])
    chosen = [by_scale[s] for s in rng.choice(scales, work.jobs, p=odds / odds.sum()).tolist()]
    drawn = list(job_types) if own else [group[int(rng.integers(len(group)))] for group in chosen]
    long = rng.random(work.jobs) >= 0.8
    minutes = 10 ** np.where(long, rng.uniform(3, 4, work.jobs), rng.uniform(1.5, 3, work.jobs))
    age = np.zeros(work.jobs)
    if work.arrivals == "poisson":
        age = np.cumsum(rng.exponential(3600 / work.jobs_per_hour, work.jobs))[::-1]
    owners = [f"user-{k + 1}" for k in range(work.entities)]
    jobs = [
        AllocationJob(
            name=f"job-{i + 1}",
            job_type=kind.name,
            steps_left=float(60 * minutes[i] * max(kind.steps_per_s.values())),
            running_s=float(age[i]),
            entity=owners[i % len(owners)] if owners else None,
            deadline_s=float(60 * minutes[i] * work.slack) if work.slack else None,
        )
        for i, kind in enumerate(drawn)
    ]
    used = {kind.name for kind in drawn}
    return AllocationInstance(
        name=name,
        gpu_types=tuple(GpuType(name=t, count=work.gpus, usd_per_hour=PRICES.get(t, 1.0)) for t in types),
        job_types=tuple(kind for kind in job_types if kind.name in used),
        jobs=tuple(jobs),
        pairs=tuple(pair for pair in pairs if used.issuperset(pair.job_types)),
        entities=tuple(Entity(name=owner) for owner in owners),
    )


def random_pairs(job_types: Sequence[JobType], rng: np.random.Generator, least_gain: float) -> list[PairThroughput]:
    """Draw pairs that keep a uniform 40 to 100 % of each speed; keep those whose sum exceeds ``least_gain``."""
    pairs = []
    for a, one in enumerate(job_types):
        for other in job_types[a:]:
            kept = rng.uniform(0.4, 1.0, (len(one.steps_per_s), 2))
            if one is other:
                kept[:, 1] = kept[:, 0]
            if one.gpus == other.gpus:
                for fractions, gpu_type in zip(kept.tolist(), one.steps_per_s, strict=True):
                    if sum(fractions) > least_gain:
                        both = (one.steps_per_s[gpu_type], other.steps_per_s[gpu_type])
                        speeds = (both[0] * fractions[0], both[1] * fractions[1])
                        pairs.append(
                            PairThroughput(job_types=(one.name, other.name), gpu_type=gpu_type, steps_per_s=speeds)
                        )
    return pairs


@generator("gavel-like")
def gavel_like(
    *,
    seed: int = 0,
    jobs: Annotated[int, Field(ge=1, le=100_000)] = 32,
    gpus: Annotated[int, Field(ge=1, le=10**6)] = 8,
    models: Annotated[int, Field(ge=1, le=1000)] = 10,
    entities: Annotated[int, Field(ge=0, le=10_000)] = 0,
    own: bool = False,
    sharing: bool = False,
    least_gain: Annotated[float, Field(ge=0, le=2)] = 1.2,
    arrivals: Arrivals = "together",
    jobs_per_hour: Annotated[float, Field(gt=0, le=1e6)] = 10.0,
    slack: Annotated[float, Field(ge=0, le=1e6)] = 0.0,
) -> AllocationInstance:
    """Jobs of the Gavel paper's mix on k80, p100 and v100, throughputs from stated distributions.

    - ``jobs``, ``gpus``: number of jobs; GPUs of each of the three types.
    - ``models``: neural networks; each makes a job type for 1, 2, 4 and 8 GPUs. Steps/s on one k80 are log-uniform in
      0.5..20; p100 and v100 are a uniform 2..5 and 3..12 times as fast (the paper reports up to ten times); n GPUs
      bring n^u times the speed, u uniform in 0.7..1.
    - ``entities``: number of users, who own the jobs in turn; 0 for none.
    - ``own``: every job has its own job type, so all throughputs differ; ``models`` is ignored, and pairs are given as
      one table per GPU type, to four digits.
    - ``sharing``, ``least_gain``: whether pairs of job types share GPUs. Each type keeps a uniform 40 to 100 % of its
      speed; a pair is kept if these fractions sum to over ``least_gain``.
    - ``arrivals``, ``jobs_per_hour``: ``together``, or a snapshot of a ``poisson`` process.
    - ``slack``: deadlines at so many times the duration at full speed; 0 for none.
    """
    rng = np.random.default_rng([seed, 1])
    kinds: list[JobType] = []
    drawn = rng.choice(list(_SCALES), jobs, p=list(_SCALES.values())).tolist() if own else []
    for model in range(jobs if own else models):
        base = 10 ** rng.uniform(np.log10(0.5), np.log10(20))
        faster: Mapping[str, float] = {"k80": 1.0, "p100": rng.uniform(2, 5), "v100": rng.uniform(3, 12)}
        power = rng.uniform(0.7, 1.0)
        for scale in (min(drawn[model], gpus),) if own else _SCALES:
            speeds = {t: float(base * f * scale**power) for t, f in faster.items()}
            kinds.append(JobType(name=f"model-{model + 1} x{scale}", gpus=scale, steps_per_s=speeds))
    pairs = random_pairs(kinds, rng, least_gain) if sharing and not own else []
    work = Workload(jobs, gpus, entities, arrivals, jobs_per_hour, slack)
    made = draw_workload(f"gavel-like-{jobs}-{seed}", work, list(faster), kinds, pairs, seed, own=own)
    if not (own and sharing):
        return made
    return made.model_copy(update={"pair_tables": tuple(random_tables(kinds, rng, least_gain))})


def random_tables(kinds: Sequence[JobType], rng: np.random.Generator, least_gain: float) -> list[PairTable]:
    """`random_pairs` of different job types as one table per GPU type."""
    gpus, names = np.array([kind.gpus for kind in kinds]), tuple(kind.name for kind in kinds)
    tables = []
    for gpu_type in kinds[0].steps_per_s:
        alone = np.array([kind.steps_per_s[gpu_type] for kind in kinds])
        kept = rng.uniform(0.4, 1.0, (len(kinds), len(kinds)))
        shares = (kept + kept.T > least_gain) & (gpus[:, None] == gpus) & ~np.eye(len(kinds), dtype=bool)
        speed = np.where(shares, kept * alone[:, None], 0.0)
        digits = 10.0 ** (3 - np.floor(np.log10(np.where(speed > 0, speed, 1.0))))
        rows = tuple(tuple(row) for row in (np.round(speed * digits) / digits).tolist())
        tables.append(PairTable(gpu_type=gpu_type, job_types=names, steps_per_s=rows))
    return tables
