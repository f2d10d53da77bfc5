"""Goals of flow scheduling, the cost models made of them by name, and the factor that makes their costs integers."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import floor, inf, lcm
from typing import Literal

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import Constraint, FlowInstance, Machine, Queue
from flowlex.models.flow.goal_interface import ANYWHERE, ClusterView, Goal, Scale, Spot, TaskView
from flowlex.models.flow.queue_shares import Claims, Places, fair_shares, guaranteed
from flowlex.models.model_base import ModelError

#: Number of doublings of the running time after which a credit stops growing.
_OLDEST = 24


@dataclass(frozen=True)
class DataLocality(Goal):
    """Run tasks near their data: cost per MB read from the same rack (``rack_cost``) or another one (``cluster_cost``).

    As in Quincy, a task has preference arcs to the machines and racks that hold at least ``threshold`` of its data; an
    arc to a rack or to the whole cluster has the cost of the worst machine there.
    """

    rack_cost: float = 1
    cluster_cost: float = 2
    threshold: float = 0.1
    most: int = 10
    weight: int = 1

    def __post_init__(self) -> None:
        self.require(rack_cost=self.rack_cost, cluster_cost=self.cluster_cost, threshold=self.threshold, most=self.most)

    def real_costs(self) -> Iterable[tuple[float, str]]:
        """Costs per MB."""
        return (self.rack_cost, "rack_cost of DataLocality"), (self.cluster_cost, "cluster_cost of DataLocality")

    def spots(self, task: TaskView, cluster: ClusterView) -> Iterable[str | Spot]:
        """Machines (the ``most`` best) and racks that hold enough of the data."""
        return list(self.arcs(task, cluster, (0, 0, 0)))[1:]

    def _enough(self, total: int) -> int:
        """``threshold`` of the total size, rounded up to whole MB."""
        top, bottom = self._threshold
        return -(-top * total // bottom)

    @cached_property
    def _threshold(self) -> tuple[int, int]:
        return rational(self.threshold).as_integer_ratio()

    def _best(self, held: dict[str, int], enough: int) -> list[str]:
        best = [machine for machine, size in held.items() if size >= enough]
        return best if len(best) <= self.most else sorted(best, key=lambda m: (-held[m], m))[: self.most]

    def per_mb(self, scale: Scale) -> tuple[int, int, int]:
        """Cost of a MB from another rack, and the savings per MB in the same rack and, on top, on the same machine."""
        rack, far = (scale.units(value, what) * self.weight for value, what in self.real_costs())
        near = min(rack, far)
        return far, far - near, near

    def arcs(self, task: TaskView, cluster: ClusterView, per_mb: tuple[int, int, int]) -> dict[str | Spot, int]:
        """Costs of all arcs of a task that nothing else places or prices: quicker than `prices` of its `spots`."""
        if not task.task.data:
            return {ANYWHERE: 0}
        held, racks, total = _data(task, cluster)
        (far, nearer, here), enough, of = per_mb, self._enough(total), cluster.racks
        far *= total
        found: dict[str | Spot, int] = {ANYWHERE: far}
        for machine in self._best(held, enough):
            found[machine] = far - nearer * racks[of[machine]] - here * held[machine]
        for rack, size in racks.items():
            if size >= enough:
                found[Spot.of(rack)] = far - nearer * size
        return found

    def read_elsewhere(self, machines: Sequence[str], rack: str, cluster: ClusterView) -> bool:
        """Return whether no machine with a task's data is in ``rack``, and at most ``most`` machines hold data."""
        of = cluster.racks
        for machine in machines:
            if of.get(machine) == rack:
                return False
        return len(machines) <= self.most

    def prices(
        self, task: TaskView, places: Sequence[tuple[Spot, str | None]], cluster: ClusterView, scale: Scale
    ) -> Sequence[int] | None:
        """Cost of reading each MB from its nearest replica, on the worst machine of each spot."""
        if not task.task.data:
            return None
        held, racks, total = _data(task, cluster)
        far, nearer, here = self.per_mb(scale)
        far *= total
        found = []
        for spot, machine in places:
            if machine is not None:  # the data of its rack includes its own
                rack = cluster.racks[machine]
                found.append(far - nearer * racks.get(rack, 0) - here * held.get(machine, 0))
            else:
                saved = 0
                for tag in spot.has:
                    saved += racks.get(tag, 0)
                found.append(far - nearer * saved)
        return found


def _data(task: TaskView, cluster: ClusterView) -> tuple[dict[str, int], dict[str, int], int]:
    """MB of a task's data by machine, by rack tag and in total; the last result is cached, as calls come in pairs."""
    data = task.task.data
    last = cluster.last
    if last is not None and last[0] is data:
        found: tuple[dict[str, int], dict[str, int], int] = last[1]
        return found
    held: dict[str, int] = {}
    racks: dict[str, int] = {}
    total = 0
    of = cluster.racks
    for block in data:
        size = block.size_mb
        total += size
        near: dict[str, None] = {}
        for machine in block.machines if len(block.machines) < 2 else dict.fromkeys(block.machines):
            rack = of.get(machine)
            if rack is not None:
                held[machine] = held.get(machine, 0) + size
                near[rack] = None
        for rack in near:
            racks[rack] = racks.get(rack, 0) + size
    cluster.last = (data, (held, racks, total))
    return held, racks, total


@dataclass(frozen=True)
class LoadSpread(Goal):
    """Spread load: the k-th task of a machine costs ``step * (k - 1)``, a convex cost modelled by parallel unit arcs.

    This is the lambda-representation of a convex function in a network; an optimal flow fills cheap slots first.
    """

    step: float = 1
    weight: int = 1

    def __post_init__(self) -> None:
        self.require(step=self.step)  # a falling cost would not be convex

    def real_costs(self) -> Iterable[tuple[float, str]]:
        """Additional cost of each further task."""
        return ((self.step, "step of LoadSpread"),)

    def slot_costs(self, machine: Machine, scale: Scale) -> list[int]:
        """0, step, 2 step, ..."""
        step = scale.units(self.step, "step of LoadSpread") * self.weight
        return [step * k for k in range(machine.slots)]


@dataclass(frozen=True)
class RandomCosts(Goal):
    """A random price per slot, equal for all tasks: random placement as a baseline."""

    most: int = 1000
    seed: int = 0
    weight: int = 1

    def __post_init__(self) -> None:
        self.require()
        if not isinstance(self.most, int) or self.most < 1:
            raise ModelError(f"RandomCosts: most must be a whole number of at least 1, got {self.most!r}")

    def slot_costs(self, machine: Machine, scale: Scale) -> list[int]:
        """Random numbers from machine name and seed, ascending."""
        drawn = (zlib.crc32(f"{self.seed}/{machine.name}/{k}".encode()) % self.most for k in range(machine.slots))
        return sorted(x * scale.factor * self.weight for x in drawn)


@dataclass(frozen=True)
class Continuity(Goal):
    """Keep running tasks on their machines: a task that moves or stops loses a credit that grows with its running time.

    The credit is ``base + rate * floor(log2(1 + elapsed / unit_s))``. It grows at ever longer intervals, so that a live
    network rarely changes, and stops growing after ``2**24 * unit_s`` (32 years for minutes), so that it is bounded.
    Source: reconstructed (Quincy's preemption cost grows with running time).
    """

    base: float = 1
    rate: float = 1
    unit_s: float = 60.0
    weight: int = 1

    def __post_init__(self) -> None:
        self.require(base=self.base, rate=self.rate)
        if not 0 < self.unit_s < inf:
            raise ModelError(f"Continuity: unit_s must be a positive number of seconds, got {self.unit_s}")

    @cached_property
    def ages_s(self) -> tuple[float, ...]:
        """Elapsed seconds at which the credit grows, each the nearest float to the exact ``unit * (2**k - 1)``."""
        unit = rational(self.unit_s)
        return tuple(float(unit * (2**k - 1)) for k in range(_OLDEST + 1))

    def age(self, elapsed_s: float) -> int:
        """Return ``floor(log2(1 + elapsed_s / unit_s))``, at most 24."""
        return bisect_right(self.ages_s, elapsed_s) - 1

    def largest(self, scale: Scale) -> int:
        """The largest credit."""
        return self._credit(_OLDEST, scale)

    def real_costs(self) -> Iterable[tuple[float, str]]:
        """Base and rate."""
        return (self.base, "base of Continuity"), (self.rate, "rate of Continuity")

    def credit(self, elapsed_s: float, scale: Scale) -> int:
        """Credit that a task loses if it moves or stops after ``elapsed_s`` seconds."""
        return _credit_at(self, self.age(elapsed_s), scale)

    def _credit(self, age: int, scale: Scale) -> int:
        base, rate = (scale.units(value, what) for value, what in self.real_costs())
        return (base + rate * age) * self.weight


@lru_cache(maxsize=2**10)
def _credit_at(goal: Continuity, age: int, scale: Scale) -> int:
    return goal._credit(age, scale)


@dataclass(frozen=True)
class FairShares(Goal):
    """Bound the running tasks of each job.

    ``max_min``: max-min fair shares of the slots within each job's minimum, maximum and size; ``weighted``: the same in
    proportion to weights; ``caps``: only the minimum and maximum of each job. The first two follow the tree of queues
    and count only slots that the tasks may use: see `flowlex.models.flow.queue_shares`. ``dominant``: dominant resource
    fairness for tasks with resource demands, by weights and the tree of queues: see
    `flowlex.models.flow.dominant_shares`; a live scheduler needs full solves for it.

    With share A of N tasks the arc from the unscheduled vertex to the sink gets lower = upper = N - A, so at most A
    tasks run. A job may fall below its share (different-machines rules), so a parallel elastic arc of A units lets
    further tasks wait at a cost above everything else. Source: Sirius, section on fairness. If the guaranteed minima
    exceed the slots (for example after a machine is lost), they are scaled down in proportion, to whole tasks.
    """

    kind: Literal["max_min", "weighted", "caps", "dominant"] = "max_min"
    weight: int = 1

    def __post_init__(self) -> None:
        if self.kind not in ("max_min", "weighted", "caps", "dominant"):
            raise ModelError(f"FairShares has no kind {self.kind!r}; one of: max_min, weighted, caps, dominant")

    def bounds(self, claims: Claims, queues: Sequence[Queue], places: Places) -> tuple[Integers, Integers]:
        """(J,) least number of tasks of each job that should run, and (J,) most that may run."""
        if self.kind != "caps":
            share = fair_shares(claims, queues, places, weighted=self.kind == "weighted")
            return share, share
        if queues:
            raise ModelError("FairShares('caps') knows no queues; use kind 'max_min' or 'weighted', or drop the queues")
        most = np.minimum(claims.most, claims.count)
        return guaranteed(np.minimum(claims.least, most), places.total), most


@dataclass(frozen=True)
class Placement(Goal):
    """Apply the placement constraints of tasks, and further ``rules`` by name of task or job.

    An arc costs minus the utility of the preferences that all its machines satisfy, plus the utility of avoided
    resources that some of them may have; required and forbidden resources remove arcs. Utilities are added up.
    Source: Sirius, section on placement (utility as negative cost).
    """

    rules: Mapping[str, tuple[Constraint, ...]] = field(default_factory=dict)
    weight: int = 1

    def constraints(self, task: TaskView) -> tuple[Constraint, ...]:
        """All constraints that apply to a task."""
        if not self.rules:
            return task.task.constraints
        return (*task.task.constraints, *self.rules.get(task.task.name, ()), *self.rules.get(task.job, ()))

    def choices(self, task: TaskView) -> Iterable[Spot]:
        """Each preferred resource, and the absence of each avoided one."""
        for constraint in self.constraints(task):
            if constraint.kind == "preferred":
                yield from (Spot.of(tag) for tag in constraint.resources)
            elif constraint.kind == "avoided":
                yield Spot.without(*constraint.resources)

    def required(self, task: TaskView) -> Iterable[tuple[Spot, ...]]:
        """Spots to choose from, by requirement: one of the required resources, without all forbidden ones."""
        for constraint in self.constraints(task):
            if constraint.kind == "required":
                yield tuple(Spot.of(tag) for tag in constraint.resources)
            elif constraint.kind == "forbidden":
                yield (Spot.without(*constraint.resources),)

    def prices(
        self, task: TaskView, places: Sequence[tuple[Spot, str | None]], cluster: ClusterView, scale: Scale
    ) -> Sequence[int] | None:
        """`price` of every place; None for tasks without constraints."""
        return super().prices(task, places, cluster, scale) if self.constraints(task) else None

    def price(self, task: TaskView, spot: Spot, machine: str | None, cluster: ClusterView, scale: Scale) -> int:
        """Minus the utilities gained, plus those lost."""
        constraints = self.constraints(task)
        if not constraints:
            return 0
        total = 0
        for constraint in constraints:
            if constraint.kind == "preferred":
                if not spot.has.isdisjoint(constraint.resources):
                    total -= scale.units(constraint.utility, f"utility of task {task.task.name!r}")
            elif constraint.kind == "avoided":
                safe = (
                    spot.has.isdisjoint(constraint.resources)
                    if machine is not None
                    else all(spot.lacks_for_sure(tag) for tag in constraint.resources)
                )
                if not safe:
                    total += scale.units(constraint.utility, f"utility of task {task.task.name!r}")
        return total * self.weight


#: The largest priority number an instance can hold.
LOWEST = 1000


@dataclass(frozen=True)
class Priority(Goal):
    """Prefer tasks with smaller priority numbers.

    Parameters
    ----------
    weights
        Weights of the other dimensions of a task's cost (its ``demands``), each normalised to ``0 .. omega``;
        ``placement`` stands for the costs of the other goals, which the user must keep within omega.
    mode
        ``strict``: fewest waiting tasks in the most important class, then in the next, ..., then least cost.
        ``published``: Sirius' vector cost as printed, ``cost = w . [priority, cpu, ...]``, with w_priority the sum of
        omega times the other weights: a step of priority may only tie with the other dimensions.
        ``weighted``: one more, ``gap = omega * sum(weights) + 1`` per step of priority. It orders two tasks on one
        arc correctly, but not all schedules (see the counter-example in the tests).
    omega
        Largest normalised value of a dimension.
    limits
        Largest demand by dimension, normalised to omega.
    lowest
        Largest priority number in use; by default the largest in the instance (not if ``strict``).
    """

    weights: Mapping[str, int] = field(default_factory=lambda: {"placement": 1})
    mode: Literal["strict", "weighted", "published"] = "strict"
    omega: int = 10
    limits: Mapping[str, float] = field(default_factory=dict)
    lowest: int | None = None
    weight: int = 1

    def __post_init__(self) -> None:
        if self.mode not in ("strict", "weighted", "published"):
            raise ModelError(f"Priority has no mode {self.mode!r}; one of: strict, weighted, published")
        for name, value in self.weights.items():
            if not isinstance(value, int) or value < 0:
                raise ModelError(f"Priority: the weight of {name!r} is {value!r}; weights are whole and at least 0")

    @property
    def gap(self) -> int:
        """Weight of one step of priority, unless the mode is strict."""
        return self.omega * sum(self.weights.values()) + (self.mode == "weighted")

    def prepare(self, tasks: Iterable[TaskView]) -> Priority:
        """Find the largest priority number in use."""
        if self.lowest is not None or self.mode == "strict":
            return self
        return replace(self, lowest=max((task.priority for task in tasks), default=0))

    def level(self, priority: int) -> int:
        """Importance of a priority; 1 is the least important class."""
        lowest = LOWEST if self.mode == "strict" or self.lowest is None else self.lowest
        if priority > lowest:
            raise ModelError(f"priority {priority} exceeds the lowest, {lowest}; pass Priority(lowest={priority})")
        return lowest - priority + 1

    def waiting(self, task: TaskView, scale: Scale) -> int:
        """Cost of waiting, unless the mode is strict; at equal priority, tasks with smaller demands come first."""
        if self.mode == "strict":
            return 0
        total = self.gap * self.level(task.priority)
        for name, weight in self.weights.items():
            demand = task.task.demands.get(name, 0.0)
            if not demand:
                continue
            if name not in self.limits:
                raise ModelError(f"Priority: pass limits={{{name!r}: ...}}, the demand that stands for omega")
            if demand > self.limits[name]:
                raise ModelError(f"task {task.task.name!r} demands {demand:g} {name}, beyond {self.limits[name]:g}")
            total -= weight * floor(self.omega * rational(demand) / rational(self.limits[name]))
        return total * scale.factor * self.weight


#: Largest factor; with larger ones most costs would exceed `LARGEST_COST`.
_MOST = 2**53


def common_scale(instance: FlowInstance, goals: Sequence[Goal], wait_cost: float | None) -> int:
    """Return the least factor that makes every cost an integer (decimals are read as written).

    Raises `ModelError` with cost and factor if a cost is not finite or the factor would exceed 2^53.
    """
    factor = 1
    seen: set[float] = set()
    for value, what in _costs(instance, goals, wait_cost):
        if isinstance(value, int) or value in seen:
            continue
        if value != value or value in (float("inf"), float("-inf")):
            raise ModelError(f"{what} is {value}; a cost must be a finite number")
        seen.add(value)
        factor = lcm(factor, rational(value).denominator)
        if factor > _MOST:
            raise ModelError(
                f"{what} = {value!r} would need costs to be scaled by {factor}, beyond {_MOST}; round it to "
                "fewer digits"
            )
    return factor


def _costs(instance: FlowInstance, goals: Sequence[Goal], wait_cost: float | None) -> Iterator[tuple[float, str]]:
    if wait_cost is not None:
        yield wait_cost, "wait_cost"
    for goal in goals:
        yield from goal.real_costs()
    placement = next((goal for goal in goals if isinstance(goal, Placement)), None)
    for job in instance.jobs:
        yield job.preempt_cost, f"preempt_cost of job {job.name!r}"
    for task in instance.tasks:
        for machine, cost in task.costs.items():
            yield cost, f"cost of task {task.name!r} on machine {machine!r}"
        if placement is not None:
            for constraint in task.constraints:
                yield constraint.utility, f"utility of task {task.name!r}"
    if placement is not None:
        for name, rules in placement.rules.items():
            for constraint in rules:
                yield constraint.utility, f"utility of a rule for {name!r}"


__all__ = [
    "PRESETS",
    "Continuity",
    "DataLocality",
    "FairShares",
    "Goal",
    "LoadSpread",
    "Placement",
    "Preset",
    "Priority",
    "RandomCosts",
    "preset",
]

Preset = Literal["quincy", "borg", "alsched", "load_spread", "random", "none"]

#: Cost models by name, each modelled on the scheduler of its name (the weights are our choice).
PRESETS: dict[str, tuple[Goal, ...]] = {
    "quincy": (Placement(), DataLocality(), Continuity(base=10, rate=10)),
    "borg": (Priority(mode="strict"), Placement(), Continuity(base=4, rate=2), LoadSpread()),
    "alsched": (Placement(),),
    "load_spread": (Placement(), LoadSpread()),
    "random": (RandomCosts(),),
    "none": (),
}


def preset(name: str) -> tuple[Goal, ...]:
    """Goals of a named cost model."""
    if name not in PRESETS:
        raise ModelError(f"no cost model is named {name!r}; one of: {', '.join(PRESETS)}")
    return PRESETS[name]
