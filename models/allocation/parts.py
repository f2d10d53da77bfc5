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

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flowlex.formulations.arrays import Booleans, Floats, Integers
from flowlex.formulations.outcome import EngineError, Outcome, Status
from flowlex.instances.allocation import AllocationInstance
from flowlex.models.allocation.policies import Step
from flowlex.models.allocation.program import Columns, limited
from flowlex.models.base import ModelError

__all__ = ["Bounded", "Part", "combined", "divided", "part_of"]


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the jobs and GPUs.

    Attributes
    ----------
    jobs, limits
        Of the whole, that are in the part.
    instance
        The part as an instance of its own.
    chosen, columns
        (C,) which of the whole's columns run in the part, and these with the part's own numbers of jobs.
    """

    jobs: Integers
    limits: list[int]
    instance: AllocationInstance
    chosen: Booleans
    columns: Columns


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


def part_of(instance: AllocationInstance, columns: Columns, jobs: Integers, count: Integers) -> Part:
    """Some jobs and GPUs as an instance, and what of the whole may run there."""
    names = {instance.jobs[m].name for m in jobs}
    limits = [k for k, limit in enumerate(instance.limits) if limit.job in names]
    whole = {name: getattr(instance, name) for name in ("name", "job_types", "pairs", "entities")}
    part = AllocationInstance(
        **whole,
        gpu_types=tuple(t.model_copy(update={"count": int(n)}) for t, n in zip(instance.gpu_types, count, strict=True)),
        jobs=tuple(instance.jobs[m] for m in jobs),
        limits=tuple(instance.limits[k] for k in limits),
    )
    number = np.full(len(instance.jobs) + 1, -1)
    number[jobs] = np.arange(len(jobs))  # the last entry stays -1: that of a job alone
    inside = (number[columns.first] >= 0) & (~columns.paired | (number[columns.second] >= 0))
    chosen = inside & (instance.arrays.scale[columns.first] <= count[columns.gpu])
    first, second = number[columns.first[chosen]], number[columns.second[chosen]]
    own = Columns(first, second, columns.gpu[chosen], columns.speed[chosen])
    return Part(jobs, limits, part, chosen, own)


def combined(
    whole: Bounded, parts: list[Part], solve: Callable[[Part], tuple[Outcome, tuple[Step, ...]]]
) -> tuple[Outcome, tuple[Step, ...]]:
    """Solve part after part: an outcome with the fractions of the whole, and one step, whose prices bound the whole.

    Raises
    ------
    EngineError
        A part has no answer; the whole may have one.
    """
    columns, instance = whole.columns, whole.instance
    share, n, limits = np.zeros(columns.count), len(instance.jobs), instance.limits
    capped = [k for k, limit in enumerate(limits) if limit.most_gpus is not None]
    floors = [k for k, limit in enumerate(limits) if limit.least_gpus > 0]
    owed = np.flatnonzero(np.isfinite(instance.arrays.deadline))
    sizes = {"level": n, "deadline": n, "gpus": len(instance.gpu_types), "most": len(limits), "least": len(limits)}
    found: list[dict[str, Floats]] = []
    for number, part in enumerate(parts):
        outcome, steps = solve(part)
        if not steps or outcome.values is None:
            raise EngineError(
                f"part {number + 1} of {len(parts)} has no answer ({outcome.status}); the whole may have one: "
                f"ask for fewer parts or another seed. {outcome.message}"
            )
        share[part.chosen] = np.maximum(outcome.values[: part.columns.count], 0.0)
        prices = {name: np.zeros(size) for name, size in sizes.items()}
        places: dict[str, Any] = {"level": part.jobs, "gpus": slice(None)}
        places |= {"deadline": np.intersect1d(part.jobs, owed), "most": [k for k in part.limits if k in capped]}
        places["least"] = [k for k in part.limits if k in floors]
        for name in places.keys() & steps[0].prices.keys():
            prices[name][places[name]] = steps[0].prices[name]
        found.append(prices)
    value, bounding = whole.bound(found)
    rows: dict[str, Any] = {"most": capped, "least": floors, "deadline": owed}
    kept = {name: bounding[name][rows[name]] if name in rows else bounding[name] for name in whole.rows}
    step = Step(value, kept, np.zeros(n, bool))
    return replace(outcome, status=Status.FEASIBLE, values=share, duals=None, objective=None, bound=None), (step,)


@dataclass(frozen=True, eq=False)
class Bounded:
    """What prices prove of a whole.

    Attributes
    ----------
    rows
        Names of the rows that have prices.
    unit
        (n,) gain per step/s; None where gain is time.
    pace
        (n,) how fast gains rise together; None where throughput or cost is added up.
    cost
        (J,) cost of a GPU where that counts, else zero.
    """

    instance: AllocationInstance
    columns: Columns
    rows: list[str]
    unit: Floats | None
    pace: Floats | None
    cost: Floats

    @property
    def total(self) -> bool:
        """Whether throughput or cost is added up."""
        return self.pace is None

    def bound(self, parts: list[dict[str, Floats]]) -> tuple[float, dict[str, Floats]]:
        """What no allocation exceeds, by the best found mixture of the parts' prices, made to fit the whole."""
        k = len(parts)
        if self.pace is None:
            mixtures = [np.full(k, part) for part in (1.0, 0.9, 0.75, 0.5, 0.25, 0.0)]
        else:
            mixtures = [np.full(k, 1 / k), *np.eye(k)]
        best, prices = min(
            ((self._most(mixed, mixed["gpus"])[0], mixed) for mixed in (_mixed(parts, m) for m in mixtures)),
            key=lambda one: one[0],
        )
        gpus, step, time = prices["gpus"].copy(), 0.25, self._most(prices, prices["gpus"])[1]
        for _ in range(12):
            for j in range(len(gpus)):
                for factor in (1 + step, 1 / (1 + step)):
                    moved = gpus.copy()
                    moved[j] *= factor
                    value, needed = self._most(prices, moved)
                    if value < best:
                        best, time, gpus = value, needed, moved
            step /= 1.6
        return best, {**prices, "gpus": gpus, "time": time}

    def _most(self, prices: dict[str, Floats], gpus: Floats) -> tuple[float, Floats]:
        """The bound, and (n,) what a job's time must cost so that nothing earns more than it pays."""
        columns, view, limits = self.columns, self.instance.arrays, self.instance.limits
        level = prices["level"] if self.pace is not None else np.zeros(len(view.scale))
        speed = level * self.unit if self.unit is not None else np.zeros(len(level))
        if self.pace is None and not self.cost.any():
            speed = np.ones(len(level))
        pull, flat = speed + prices["deadline"], level if self.unit is None else np.zeros(len(level))
        rent = gpus[columns.gpu] + self.cost[columns.gpu]
        for k in np.flatnonzero(prices["most"] + prices["least"]).tolist():
            rent = rent + (prices["most"][k] - prices["least"][k]) * limited(self.instance, limits[k], columns)
        one, pair = columns.first, columns.paired
        earned = pull[one] * columns.speed[:, 0] + flat[one] - view.scale[one] * rent
        time = np.zeros(len(level))
        np.maximum.at(time, one[~pair], earned[~pair])
        first, second = one[pair], columns.second[pair]
        over = earned[pair] + pull[second] * columns.speed[pair, 1] + flat[second] - time[first] - time[second]
        more = np.zeros(len(level))
        np.maximum.at(more, first, over)
        alike = view.kind[first] == view.kind[second]  # raised for both: the certificate looks at pairs in any order
        np.maximum.at(more, second[alike], over[alike])
        time += more
        most = np.array([limit.most_gpus or 0.0 for limit in limits])
        least = np.array([limit.least_gpus for limit in limits])
        owed = np.where(prices["deadline"] > 0, view.steps / view.deadline, 0.0)
        value = gpus @ view.count + time.sum() + prices["most"] @ most
        value -= prices["least"] @ least + prices["deadline"] @ owed
        return float(value / (level @ self.pace) if self.pace is not None else value), time


def _mixed(parts: list[dict[str, Floats]], weight: Floats) -> dict[str, Floats]:
    """Prices of the parts, weighted and added up; those of GPUs, which all parts have, are also averaged."""
    mean = weight / max(weight.sum(), 1e-300)
    return {
        name: sum(
            w * (m if name == "gpus" else 1.0) * part[name] for w, m, part in zip(weight, mean, parts, strict=True)
        )
        for name in parts[0]
    }
