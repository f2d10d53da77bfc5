"""Read an allocation's instance independently, and bound the gains of all allocations by prices.

Nothing here is shared with the models; see `flowlex.validation.certificates.allocation` for the argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Floats
from flowlex.instances.allocation import AllocationInstance, Limit
from flowlex.validation.certificates.verifier_interface import Strict

__all__ = ["Data", "Floats", "PricedStep", "Prices", "most_gain", "priced"]

#: Number of job pairs in one array.
_CHUNK = 2**19

Row = Literal["time", "gpus", "most", "least", "deadline", "level"]


class PricedStep(Strict):
    """One step: its value, the jobs found full, and non-negative prices by row and label; zeros are left out."""

    value: float
    full: list[str]
    prices: dict[Row, dict[str, float]]


@dataclass(frozen=True, eq=False)
class Data:
    """Data read from the instance, not from its array view: speeds of jobs and of pairs, limits, deadlines."""

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
    def pairs(self) -> tuple[NDArray[np.int64], Floats]:
        """The sorted pairs that may share GPUs: (P, 3) two job types and GPU type, (P, 2) both speeds."""
        position = {kind.name: k for k, kind in enumerate(self.instance.job_types)}
        if not self.options.get("sharing", True):
            return np.zeros((0, 3), np.int64), np.zeros((0, 2))
        listed = [(*(position[name] for name in p.job_types), self.gpu[p.gpu_type]) for p in self.instance.pairs]
        keys = [np.array(listed, np.int64).reshape(-1, 3)]
        speeds = [np.array([p.steps_per_s for p in self.instance.pairs], np.float64).reshape(-1, 2)]
        for table in self.instance.pair_tables:
            of = np.array([position[name] for name in table.job_types], np.int64)
            beside = np.array(table.steps_per_s, np.float64).reshape(len(of), len(of))
            row, column = np.nonzero(np.triu((beside > 0) | (beside.T > 0)))
            on = np.full(len(row), self.gpu[table.gpu_type])
            keys.append(np.column_stack([of[row], of[column], on]))
            speeds.append(np.column_stack([beside[row, column], beside[column, row]]))
        key, speed = np.concatenate(keys), np.concatenate(speeds)
        needed = np.array([kind.gpus for kind in self.instance.job_types])
        kept = np.flatnonzero((speed > 0).any(axis=1) & (needed[key[:, 0]] <= self.count[key[:, 2]]))
        kept = kept[np.argsort(self._number(*key[kept].T), kind="stable")]
        return key[kept], speed[kept]

    def _number(self, a: Any, b: Any, j: Any) -> Any:
        return (a * len(self.instance.job_types) + b) * len(self.gpu) + j

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        return np.asarray(self._number(*self.pairs[0].T))

    def together(self, a: int, b: int, j: int) -> tuple[float, float] | None:
        """Speeds of a job of type a and one of type b that share GPUs; None if they may not."""
        for one, other, turned in ((a, b, False), (b, a, True)):
            at = int(np.searchsorted(self._numbers, self._number(one, other, j)))
            if at < len(self._numbers) and self._numbers[at] == self._number(one, other, j):
                first, second = self.pairs[1][at].tolist()
                return (second, first) if turned else (first, second)
        return None

    @cached_property
    def equal(self) -> Floats:
        return np.asarray((self.speed * self.count).sum(axis=1) / self.count.sum())

    @cached_property
    def owed(self) -> Floats:
        """(n,) steps/s that the deadlines require; 0 without a deadline."""
        kept = self.options.get("deadlines")
        if kept is None:
            kept = self.options["policy"] in ("max_throughput", "min_cost")
        jobs = self.instance.jobs
        return np.array([j.steps_left / j.deadline_s if kept and j.deadline_s and j.steps_left else 0.0 for j in jobs])

    def counts(self, limit: Limit) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(n,) jobs and (J,) GPU types to which a limit applies."""
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
    """Upper bound for all allocations on gains from throughput and time minus GPU costs, and the size of its terms.

    ``speed``, ``time``: (n,) gain of each job per step/s, and for running all the time; 0 by default. ``cost``: (J,)
    cost of a GPU; 0 by default.
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
    for one, two, pair in _members(data):
        (a, b, j), (fast, other) = data.pairs[0][pair].T, data.pairs[1][pair].T
        due = charge[j]
        for members, on, price in shared:  # a pair holds its GPUs once, even if a limit counts both
            due = due + price * on[j] * (members[one] | members[two])
        over = pull[one] * fast + flat[one] + pull[two] * other + flat[two] - data.scale[one] * due
        over -= own[one] + own[two]
        np.maximum.at(raised := np.zeros(len(own)), one, np.where((a == b) & (one == two), 0.0, over))
        own += raised


def _members(data: Data) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Yield, in chunks, the first and second job of pairs that may share GPUs, and their numbers in ``data.pairs``."""
    key = data.pairs[0]
    order, size = np.argsort(data.kind, kind="stable"), np.bincount(data.kind, minlength=len(data.instance.job_types))
    begin, count = np.cumsum(size) - size, size[key[:, 0]] * size[key[:, 1]]
    for part in np.split(
        np.arange(len(key)), np.searchsorted(np.cumsum(count), np.arange(_CHUNK, count.sum(), _CHUNK))
    ):
        pair = np.repeat(part, count[part])
        at = np.arange(len(pair)) - np.repeat(np.cumsum(count[part]) - count[part], count[part])
        many = size[key[pair, 1]]
        yield order[begin[key[pair, 0]] + at // many], order[begin[key[pair, 1]] + at % many], pair
