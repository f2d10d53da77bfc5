r"""Large allocations by partitioning (POP): divide jobs and GPUs at random, solve each part alone, bound the optimum.

Measured (benchmark *allocation*): 4096 jobs with own weights in 4 parts take 1.7 s for 6.3 s and lose 0.8 %.

A job that uses more GPUs at once than its part has is split into equal pieces in different parts, if there are enough.
If n pieces with 1/n of the job's GPUs each run for fractions X of the time, the job runs for the mean of X. The
allocations of the parts together are a feasible allocation. Dual values prove its gap: any nonnegative duals of the
complete problem bound its optimum (see `flowlex.validation.restated.allocation`). We construct them from the duals
of the parts. Duals of levels, deadlines and limits of a job come from its part, with all parts weighted equally or only
one part, whichever gives the better bound. The dual of a GPU type is the mean over the parts, improved by local search.
The duals of time follow: the largest value of a job after the cost of its GPUs.

Source: Narayanan et al., *Solving Large-Scale Granular Resource Allocation Problems Efficiently with POP* (SOSP 2021);
the bound is ours.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import EngineError, Status
from flowlex.instances.allocation import AllocationArrays, AllocationInstance, JobType
from flowlex.models.allocation.allocation_linear_program import JobColumns
from flowlex.models.allocation.methods.pair_pricing import PairPrices
from flowlex.models.allocation.policies import Step
from flowlex.models.allocation.policy_linear_programs import TOTALS, Answer, PolicyProgram
from flowlex.models.model_base import ModelError


@dataclass(frozen=True, eq=False)
class Part:
    """A part of the jobs and GPUs, as an instance."""

    # (n,) index in the complete instance of each job; a part may have several pieces of the same job
    jobs: Integers
    # (n,) number of equal pieces of the job; each has this fraction of the job's GPUs and steps
    pieces: Integers
    limits: list[int]  # index in the complete instance of each limit
    instance: AllocationInstance


def divided(instance: AllocationInstance, parts: int, seed: int) -> list[Part]:
    """Divide jobs at random and GPUs as evenly as possible; split jobs that are too large for a part.

    Raises `ModelError` if there are more parts than jobs or than GPUs of a type, or if a limit is not for one job.
    """
    view, types = instance.arrays, instance.gpu_types
    scarce = min(types, key=lambda t: t.count)
    if parts > scarce.count:
        raise ModelError(
            f"parts={parts} leaves a part without GPUs of type {scarce.name!r}, which has {scarce.count}; "
            f"ask for at most {scarce.count} parts"
        )
    if parts > len(instance.jobs):
        raise ModelError(f"parts={parts} for {len(instance.jobs)} jobs; ask for at most {len(instance.jobs)} parts")
    for number, limit in enumerate(instance.limits):
        if limit.job is None:
            raise ModelError(f"limit {number} is not of one job, so parts cannot keep it; drop it or leave parts at 1")
    pieces = _pieces(view, view.count // parts)
    order = np.random.default_rng(seed).permutation(len(instance.jobs))
    order = order[np.argsort(pieces[order] == 1, kind="stable")]  # split jobs first: pieces go to different parts
    dealt = np.repeat(order, pieces[order])
    before = np.cumsum([0, *(view.count % parts)])[:-1]  # distribute remainders over the parts, by type
    extra = [(number - before) % parts < view.count % parts for number in range(parts)]
    return [
        _part_of(instance, np.sort(dealt[number::parts]), pieces, view.count // parts + more)
        for number, more in enumerate(extra)
    ]


def _pieces(view: AllocationArrays, least: Integers) -> Integers:
    """Return the least number of pieces of each job, (n,), such that a piece fits into ``least`` GPUs of a type."""
    most = np.where(view.speed > 0, least, 0).max(axis=1)
    needed = {
        (scale, room): next(q for q in range(1, scale + 1) if scale % q == 0 and scale // q <= room)
        for scale, room in {*zip(view.scale.tolist(), most.tolist(), strict=True)}
    }
    return np.array([needed[key] for key in zip(view.scale.tolist(), most.tolist(), strict=True)], np.int64)


def _part_of(instance: AllocationInstance, jobs: Integers, pieces: Integers, count: Integers) -> Part:
    kinds = {kind.name: kind for kind in instance.job_types}
    limits: dict[str, list[int]] = defaultdict(list)
    for k, limit in enumerate(instance.limits):
        limits[str(limit.job)].append(k)
    taken, counts = {*kinds, *(job.name for job in instance.jobs)}, {t.name: t.count for t in instance.gpu_types}
    made, kept, numbers = [], [], []
    for m in jobs.tolist():
        job, q = instance.jobs[m], int(pieces[m])
        name = job.name
        if q > 1:
            kind = kinds[job.job_type]
            name = next(new for k in itertools.count(1) if (new := f"{job.name}.{k}") not in taken)
            taken.add(name)
            slower = {gpu: speed / q for gpu, speed in kind.steps_per_s.items() if kind.gpus <= counts[gpu]}
            kinds[name] = JobType(name=name, gpus=kind.gpus // q, steps_per_s=slower)
            steps = None if job.steps_left is None else job.steps_left / q
            less = {"name": name, "job_type": name, "weight": job.weight / q, "steps_left": steps}
            job = job.model_copy(update=less)
        made.append(job)
        for k in limits[instance.jobs[m].name]:
            whole = instance.limits[k]
            most = None if whole.most_gpus is None else whole.most_gpus / q
            kept.append(whole.model_copy(update={"job": name, "least_gpus": whole.least_gpus / q, "most_gpus": most}))
            numbers.append(k)
    part = AllocationInstance(
        name=instance.name,
        pairs=instance.pairs,
        pair_tables=instance.pair_tables,
        entities=instance.entities,
        job_types=tuple(kinds.values()),
        gpu_types=tuple(t.model_copy(update={"count": int(n)}) for t, n in zip(instance.gpu_types, count, strict=True)),
        jobs=tuple(made),
        limits=tuple(kept),
    )
    return Part(jobs, pieces[jobs], numbers, part)


def combined(whole: PolicyProgram, parts: list[Part], answers: Iterable[Answer]) -> Answer:
    """Combine the solutions of all parts into an allocation, with one step whose duals bound the optimum.

    Raises `EngineError` if a part has no solution; the complete problem may have one.
    """
    n, limits = len(whole.instance.jobs), whole.instance.limits
    capped = [k for k, limit in enumerate(limits) if limit.most_gpus is not None]
    floors = [k for k, limit in enumerate(limits) if limit.least_gpus > 0]
    owed = np.flatnonzero(np.isfinite(whole.instance.arrays.deadline))
    sizes = {
        "level": n,
        "deadline": n,
        "gpus": len(whole.instance.gpu_types),
        "most": len(limits),
        "least": len(limits),
    }
    found: list[dict[str, Floats]] = []
    shares, columns = [], []
    for number, (part, answer) in enumerate(zip(parts, answers, strict=True)):
        outcome, own = answer.outcome, answer.columns
        if not answer.steps or outcome.values is None:
            raise EngineError(
                f"part {number + 1} of {len(parts)} has no answer ({outcome.status}); the whole may have one: "
                f"ask for fewer parts or another seed. {outcome.message}"
            )
        pieces = part.pieces[own.first]
        shares.append(np.maximum(outcome.values[: own.count], 0.0) / pieces)
        second = np.where(own.paired, part.jobs[own.second], -1)
        columns.append(JobColumns(part.jobs[own.first], second, own.gpu, own.speed * pieces[:, None]))
        found.append(_named(part, answer.steps[0].prices, sizes))
    value, bounding = _bound(whole, found)
    rows: dict[str, Any] = {"most": capped, "least": floors, "deadline": owed}
    rows = {name: places for name, places in rows.items() if len(places) and (name != "deadline" or whole.deadlines)}
    kept = {name: bounding[name][rows[name]] for name in rows}
    kept |= {name: bounding[name] for name in ("time", "gpus", *(() if whole.policy in TOTALS else ("level",)))}
    step = Step(value, kept, np.zeros(n, bool))
    joined, share = _merged(JobColumns.joined(columns), np.concatenate(shares))
    outcome = replace(outcome, status=Status.FEASIBLE, values=share, duals=None, objective=None, bound=None)
    return Answer(outcome, (step,), None, joined)


def _merged(columns: JobColumns, share: Floats) -> tuple[JobColumns, Floats]:
    """Merge columns of equal jobs and GPU type, which come from pieces of the same job."""
    keys = np.column_stack([columns.first, columns.second, columns.gpu])
    _, first, place = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    once = JobColumns(*(getattr(columns, name)[first] for name in ("first", "second", "gpu", "speed")))
    return once, np.asarray(np.bincount(place.ravel(), weights=share, minlength=len(first)), np.float64)


def _named(part: Part, found: Mapping[str, Floats], sizes: Mapping[str, int]) -> dict[str, Floats]:
    """Map the duals of a part to the rows of the complete problem, and aggregate the pieces of a job.

    A piece has the gain of its job, so duals of gains are added. It has a fraction of the job's steps and GPUs, so
    those duals are averaged.
    """
    limits, q = part.instance.limits, part.pieces
    owed = np.flatnonzero(np.isfinite(part.instance.arrays.deadline))
    own = {job.name: m for m, job in enumerate(part.instance.jobs)}
    split = np.array([q[own[str(limit.job)]] for limit in limits], np.int64)
    chosen = {
        "most": np.array([k for k, limit in enumerate(limits) if limit.most_gpus is not None], np.int64),
        "least": np.array([k for k, limit in enumerate(limits) if limit.least_gpus > 0], np.int64),
    }
    places = {name: (np.array(part.limits, np.int64)[at], split[at]) for name, at in chosen.items()}
    places |= {"level": (part.jobs, np.ones_like(q)), "deadline": (part.jobs[owed], q[owed])}
    places["gpus"] = (np.arange(sizes["gpus"]), np.ones(sizes["gpus"], np.int64))
    prices = {name: np.zeros(size) for name, size in sizes.items()}
    for name in places.keys() & found.keys():
        at, among = places[name]
        np.add.at(prices[name], at, found[name] / among)
    return prices


def _bound(whole: PolicyProgram, parts: list[dict[str, Floats]]) -> tuple[float, dict[str, Floats]]:
    """Return an upper bound on the optimum, from the best combination found of the parts' duals, and these duals."""
    k, goal = len(parts), whole.goal
    pairs = PairPrices(whole.instance, sharing=whole.sharing)

    def most(prices: dict[str, Floats]) -> tuple[float, Floats]:
        return pairs.bound(prices, goal)

    if goal.pace is None:
        mixtures = [np.full(k, part) for part in (1.0, 0.9, 0.75, 0.5, 0.25, 0.0)]
    else:
        mixtures = [np.full(k, 1 / k), *np.eye(k)]
    tried = (_mixed(parts, mixture) for mixture in mixtures)
    best, prices = min(((most(mixed)[0], mixed) for mixed in tried), key=lambda one: one[0])
    step, time = 0.25, most(prices)[1]
    for _ in range(12):
        for j in range(len(prices["gpus"])):
            for factor in (1 + step, 1 / (1 + step)):
                moved = prices["gpus"].copy()
                moved[j] *= factor
                value, needed = most({**prices, "gpus": moved})
                if value < best:
                    best, time, prices = value, needed, {**prices, "gpus": moved}
        step /= 1.6
    return best, {**prices, "time": time}


def _mixed(parts: list[dict[str, Floats]], weight: Floats) -> dict[str, Floats]:
    """Return the weighted sum of the parts' duals; those of GPUs, which all parts share, are also averaged."""
    mean = weight / max(weight.sum(), 1e-300)
    return {
        name: sum(
            w * (m if name == "gpus" else 1.0) * part[name] for w, m, part in zip(weight, mean, parts, strict=True)
        )
        for name in parts[0]
    }
