"""An allocation's instance read once more, and bounds on what any allocation brings, from prices.

Nothing here is shared with the models; see `flowlex.validation.certificates.allocation` for the argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Floats
from flowlex.instances.allocation import AllocationInstance, Limit
from flowlex.validation.certificates.contract import Strict

__all__ = ["Data", "Floats", "PricedStep", "Prices", "most_gain", "priced"]

Row = Literal["time", "gpus", "most", "least", "deadline", "level"]


class PricedStep(Strict):
    """One step: its value, the jobs found full, and non-negative prices by row and label; zeros are left out."""

    value: float
    full: list[str]
    prices: dict[Row, dict[str, float]]


@dataclass(frozen=True, eq=False)
class Data:
    """The instance read once more, not through its array view: speeds of jobs and of pairs, limits, deadlines."""

    instance: AllocationInstance
    options: Mapping[str, Any]
    job: dict[str, int] = field(init=False)
    gpu: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "job", {job.name: m for m, job in enumerate(self.instance.jobs)})
        object.__setattr__(self, "gpu", {t.name: j for j, t in enumerate(self.instance.gpu_types)})

    @cached_property
    def count(self) -> Floats:
        return np.array([t.count for t in self.instance.gpu_types], np.float64)

    @cached_property
    def price(self) -> Floats:
        return np.array([t.usd_per_hour for t in self.instance.gpu_types], np.float64)

    @cached_property
    def kind(self) -> NDArray[np.int64]:
        position = {kind.name: k for k, kind in enumerate(self.instance.job_types)}
        return np.array([position[job.job_type] for job in self.instance.jobs], np.int64)

    @cached_property
    def scale(self) -> Floats:
        return np.array([kind.gpus for kind in self.instance.job_types], np.float64)[self.kind]

    @cached_property
    def weight(self) -> Floats:
        return np.array([job.weight for job in self.instance.jobs], np.float64)

    @cached_property
    def speed(self) -> Floats:
        """(n, J)."""
        names = list(self.gpu)
        table = np.zeros((len(self.instance.job_types), len(names)))
        for k, kind in enumerate(self.instance.job_types):
            for name, speed in kind.steps_per_s.items():
                if kind.gpus <= self.count[self.gpu[name]]:
                    table[k, self.gpu[name]] = speed
        return np.asarray(table[self.kind])

    @cached_property
    def pairs(self) -> dict[tuple[int, int, int], tuple[float, float]]:
        """Job types and GPU type to both speeds, as the instance lists them."""
        position = {kind.name: k for k, kind in enumerate(self.instance.job_types)}
        found = {}
        for pair in self.instance.pairs if self.options.get("sharing", True) else ():
            a, b = (position[name] for name in pair.job_types)
            j = self.gpu[pair.gpu_type]
            if self.instance.job_types[a].gpus <= self.count[j] and any(pair.steps_per_s):
                found[a, b, j] = pair.steps_per_s
        return found

    @cached_property
    def equal(self) -> Floats:
        return np.asarray((self.speed * self.count).sum(axis=1) / self.count.sum())

    @cached_property
    def owed(self) -> Floats:
        """(n,) steps/s that the deadlines need, 0 where none is kept."""
        kept = self.options.get("deadlines")
        if kept is None:
            kept = self.options["policy"] in ("max_throughput", "min_cost")
        jobs = self.instance.jobs
        return np.array([j.steps_left / j.deadline_s if kept and j.deadline_s and j.steps_left else 0.0 for j in jobs])

    def counts(self, limit: Limit) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(n,) jobs and (J,) types that a limit speaks of."""
        jobs = [limit.job in (None, job.name) and limit.entity in (None, job.entity) for job in self.instance.jobs]
        return np.array(jobs), np.array([limit.gpu_type in (None, name) for name in self.gpu])


@dataclass(frozen=True, eq=False)
class Prices:
    """A step's prices as arrays; ``wrong`` names a label that no row has, or a price that is negative."""

    time: Floats
    gpus: Floats
    level: Floats
    deadline: Floats
    most: Floats
    least: Floats
    wrong: str = ""


def priced(data: Data, step: PricedStep) -> Prices:
    limits = {str(k): k for k in range(len(data.instance.limits))}
    rows: dict[str, dict[str, int]] = {
        "time": data.job, "gpus": data.gpu, "level": data.job, "deadline": data.job, "most": limits, "least": limits
    }  # fmt: skip
    found, wrong = {}, ""
    for name, labels in rows.items():
        values = np.zeros(len(labels))
        for label, price in step.prices.get(name, {}).items():  # type: ignore[call-overload]
            if label not in labels or price < 0:
                wrong = f"{name}[{label}]: {price}"[:100]
            else:
                values[labels[label]] = price
        found[name] = values
    uncapped = [limit.most_gpus is None for limit in data.instance.limits]
    if found["most"][uncapped].any():
        wrong = "a price of a cap that no limit has"
    return Prices(**found, wrong=wrong)


def most_gain(
    data: Data, prices: Prices, *, speed: Floats | None = None, time: Floats | None = None, cost: Floats | None = None
) -> tuple[float, float]:
    """Upper bound over all allocations on gains from throughput and time, less the cost of GPUs; size of its terms.

    Parameters
    ----------
    speed, time
        (n,) what a job gains by a step/s, and by running all the time; nothing by default.
    cost
        (J,) what a GPU costs; nothing by default.
    """
    nothing = np.zeros(len(data.job))
    pull = (nothing if speed is None else speed) + prices.deadline  # what a step/s of the job earns
    flat = nothing if time is None else time
    charge = prices.gpus if cost is None else prices.gpus + cost
    rent = np.tile(charge, (len(data.job), 1))  # (n, J) what a GPU costs the job
    shared = []
    for k, limit in enumerate(data.instance.limits):
        members, on = data.counts(limit)
        shared.append((members, on, prices.most[k] - prices.least[k]))
        rent += np.outer(members, on) * (prices.most[k] - prices.least[k])
    earned = pull[:, None] * data.speed + flat[:, None] - data.scale[:, None] * rent
    own = np.maximum(prices.time, np.where(data.speed > 0, earned, 0.0).max(axis=1))
    _raise_for_pairs(data, own, pull, flat, charge, shared)
    most = np.array([x.most_gpus or 0.0 for x in data.instance.limits])
    least = np.array([x.least_gpus for x in data.instance.limits])
    gains = float(prices.gpus @ data.count + own.sum() + prices.most @ most)
    owed = float(prices.least @ least + prices.deadline @ data.owed)
    return gains - owed, gains + owed


def _raise_for_pairs(
    data: Data, own: Floats, pull: Floats, flat: Floats, charge: Floats, shared: list[tuple[Any, Any, float]]
) -> None:
    """Raise the price of jobs' time (``own``) until no pair earns more than it pays."""
    members_of = [np.flatnonzero(data.kind == k) for k in range(len(data.instance.job_types))]
    for (a, b, j), (fast, other) in data.pairs.items():
        one, two = members_of[a], members_of[b]
        if not len(one) or not len(two):
            continue
        both = (pull[one] * fast + flat[one])[:, None] + (pull[two] * other + flat[two])
        due = np.full(both.shape, charge[j])
        for members, on, price in shared:  # a pair holds its GPUs once, whoever of both a limit counts
            due += price * on[j] * (members[one][:, None] | members[two])
        over = both - data.scale[one[0]] * due - own[one][:, None] - own[two]
        if a == b:
            np.fill_diagonal(over, 0.0)
        own[one] += np.maximum(over.max(axis=1), 0.0)
