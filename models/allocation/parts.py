r"""Large allocations by parts: jobs and GPUs divided at random, each part solved alone, and a bound on the whole.

The answers of the parts together are an allocation of the whole, as the parts' GPUs are those of the whole. How far it
is from the best is proven by prices: any non-negative prices of the whole bound its optimum (see
`flowlex.validation.certificates.allocation`), and those of the parts suggest good ones. Levels, deadlines and limits of
a job keep the price of its part, all parts weighed alike or one alone, whichever bounds better; a GPU type's price is
the mean of the parts', moved while that lowers the bound; prices of time follow: what a job can earn beyond its GPUs.

Source: Narayanan et al., *Solving Large-Scale Granular Resource Allocation Problems Efficiently with POP* (SOSP 2021);
the bound is ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flowlex.formulations.arrays import Floats, Integers
from flowlex.formulations.outcome import EngineError, Status
from flowlex.instances.allocation import AllocationInstance
from flowlex.models.allocation.policies import Step
from flowlex.models.allocation.pricing import PairPrices
from flowlex.models.allocation.program import Columns
from flowlex.models.allocation.task import TOTALS, AllocationTask, Answer
from flowlex.models.base import ModelError

__all__ = ["Part", "combined", "divided", "part_of"]


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the jobs and GPUs: which ``jobs`` and ``limits`` of the whole, and these as an instance of their own."""

    jobs: Integers
    limits: list[int]
    instance: AllocationInstance


def divided(instance: AllocationInstance, parts: int, seed: int) -> list[tuple[Integers, Integers]]:
    """Jobs (at random, in parts of equal size) and (J,) GPUs (as evenly as whole numbers allow) of every part.

    Raises
    ------
    ModelError
        More parts than jobs or than GPUs of a type, a limit that is not of one job, or a job too large for its part.
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
    order = np.random.default_rng(seed).permutation(len(instance.jobs))
    before = np.cumsum([0, *(view.count % parts)])[:-1]  # what does not divide goes round the parts, type after type
    found = []
    for number, jobs in enumerate(np.array_split(order, parts)):
        jobs = np.sort(jobs)
        extra = (number - before) % parts < view.count % parts
        count = view.count // parts + extra
        _check_sizes(instance, jobs, count)
        found.append((jobs, count))
    return found


def _check_sizes(instance: AllocationInstance, jobs: Integers, count: Integers) -> None:
    view = instance.arrays
    fits = ((view.speed[jobs] > 0) & (view.scale[jobs][:, None] <= count)).any(axis=1)
    for m in jobs[~fits][:1].tolist():
        largest = int(count[view.speed[m] > 0].max())
        raise ModelError(
            f"job {instance.jobs[m].name!r} uses {view.scale[m]} GPUs at once, the types it runs on have at most "
            f"{largest} in its part; ask for fewer parts"
        )


def part_of(instance: AllocationInstance, jobs: Integers, count: Integers) -> Part:
    """Some jobs and GPUs as an instance."""
    names = {instance.jobs[m].name for m in jobs}
    limits = [k for k, limit in enumerate(instance.limits) if limit.job in names]
    whole = {name: getattr(instance, name) for name in ("name", "job_types", "pairs", "entities")}
    part = AllocationInstance(
        **whole,
        gpu_types=tuple(t.model_copy(update={"count": int(n)}) for t, n in zip(instance.gpu_types, count, strict=True)),
        jobs=tuple(instance.jobs[m] for m in jobs),
        limits=tuple(instance.limits[k] for k in limits),
    )
    return Part(jobs, limits, part)


def combined(whole: AllocationTask, parts: list[Part], answers: Iterable[Answer]) -> Answer:
    """The fractions of all parts as an answer to the whole, with one step, whose prices bound the whole.

    Raises
    ------
    EngineError
        A part has no answer; the whole may have one.
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
        shares.append(np.maximum(outcome.values[: own.count], 0.0))
        second = np.where(own.paired, part.jobs[own.second], -1)
        columns.append(Columns(part.jobs[own.first], second, own.gpu, own.speed))
        prices = {name: np.zeros(size) for name, size in sizes.items()}
        places: dict[str, Any] = {"level": part.jobs, "gpus": slice(None)}
        places |= {"deadline": np.intersect1d(part.jobs, owed), "most": [k for k in part.limits if k in capped]}
        places["least"] = [k for k in part.limits if k in floors]
        for name in places.keys() & answer.steps[0].prices.keys():
            prices[name][places[name]] = answer.steps[0].prices[name]
        found.append(prices)
    value, bounding = _bound(whole, found)
    rows: dict[str, Any] = {"most": capped, "least": floors, "deadline": owed}
    rows = {name: places for name, places in rows.items() if len(places) and (name != "deadline" or whole.deadlines)}
    kept = {name: bounding[name][rows[name]] for name in rows}
    kept |= {name: bounding[name] for name in ("time", "gpus", *(() if whole.policy in TOTALS else ("level",)))}
    step = Step(value, kept, np.zeros(n, bool))
    share = np.concatenate(shares)
    outcome = replace(outcome, status=Status.FEASIBLE, values=share, duals=None, objective=None, bound=None)
    return Answer(outcome, (step,), None, Columns.joined(columns))


def _bound(whole: AllocationTask, parts: list[dict[str, Floats]]) -> tuple[float, dict[str, Floats]]:
    """What no allocation exceeds, by the best found mixture of the parts' prices, made to fit the whole."""
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
    """Prices of the parts, weighted and added up; those of GPUs, which all parts have, are also averaged."""
    mean = weight / max(weight.sum(), 1e-300)
    return {
        name: sum(
            w * (m if name == "gpus" else 1.0) * part[name] for w, m, part in zip(weight, mean, parts, strict=True)
        )
        for name in parts[0]
    }
