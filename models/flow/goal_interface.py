"""The interface of goals: costs and bounds of tasks, machines and jobs.

A goal does not see arcs. It names *spots* where a task may run (a spot is a set of machines given by tags), and prices
spots, waiting or slots of machines, or bounds the running tasks of a job. The network is a pure function of the
instance and the goals, so removing a goal undoes its effect exactly.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import FlowInstance, FlowTask, Machine
from flowlex.models.flow.machine_tree import Layout
from flowlex.models.model_base import ModelError


class Spot(NamedTuple):
    """All machines that have every tag of ``has`` and none of ``lacks``.

    With ``once``, no machine runs two tasks of this different-machines rule (`FlowJob.different_machines`), even if
    they use different spots of the rule.
    """

    has: frozenset[str]
    lacks: frozenset[str]
    once: str = ""

    @staticmethod
    @lru_cache(maxsize=2**16)
    def of(*tags: str) -> Spot:
        """Machines that have all of these tags."""
        return Spot(frozenset(tags), frozenset())

    @classmethod
    def without(cls, *tags: str) -> Spot:
        """Machines that have none of these tags."""
        return cls(frozenset(), frozenset(tags))

    def both(self, other: Spot) -> Spot | None:
        """Return the intersection of two spots; None if it is certainly empty."""
        has = self.has | other.has
        lacks = self.lacks | other.lacks
        if has & lacks:
            return None
        rack = [tag for tag in has if tag.startswith("rack:")]
        machine = [tag for tag in has if tag.startswith("machine:")]
        if len(rack) > 1 or len(machine) > 1:
            return None
        if rack:  # a machine is in exactly one rack, so exclusions of others are redundant
            lacks = frozenset(tag for tag in lacks if not tag.startswith("rack:"))
        return Spot(has, lacks, self.once or other.once)

    @property
    def base(self) -> Spot | None:
        """Return a spot without its exclusions of machines and racks; None if it has none, or has a rule ``once``."""
        kept = frozenset(tag for tag in self.lacks if not tag.startswith(("machine:", "rack:")))
        return None if self.once or kept == self.lacks else Spot(self.has, kept)

    def lacks_for_sure(self, tag: str) -> bool:
        """Return whether no machine of the spot can have the tag."""
        if tag in self.lacks:
            return True
        return tag.startswith("rack:") and tag not in self.has and any(t.startswith("rack:") for t in self.has)

    def __str__(self) -> str:
        parts = [*sorted(self.has), *(f"not {tag}" for tag in sorted(self.lacks))]
        where = " and ".join(parts) if parts else "any machine"
        return f"{where}, one {self.once} each" if self.once else where


#: Largest scaled cost of an arc, so that sums along a path fit 64 bits.
LARGEST_COST = 2**56

#: Every machine.
ANYWHERE = Spot(frozenset(), frozenset())


class Scale(NamedTuple):
    """One factor that makes real-valued costs integers; a cost that it does not make an integer is refused."""

    factor: int = 1

    def units(self, value: float, what: str) -> int:
        """Return ``value * factor``, which must be an integer; decimals are read as written."""
        if isinstance(value, int):
            return self._within(value * self.factor, value, what)
        if value != value or value in (float("inf"), float("-inf")):
            raise ModelError(f"{what} is {value}; a cost must be a finite number")
        units = rational(value) * self.factor
        if units.denominator != 1:
            raise ModelError(
                f"{what} = {value!r} is no whole number of 1/{self.factor}; pass "
                f"scale={self.factor * units.denominator} (costs are multiplied by it) or round the cost"
            )
        return self._within(units.numerator, value, what)

    def _within(self, units: int, value: float, what: str) -> int:
        if abs(units) > LARGEST_COST:
            raise ModelError(
                f"{what} is {value!r}, more than {LARGEST_COST} units of 1/{self.factor}; use a larger unit of cost"
            )
        return units


@dataclass
class ClusterView:
    """The machines as goals see them."""

    machines: dict[str, Machine] = field(default_factory=dict)
    tags: dict[str, frozenset[str]] = field(default_factory=dict)
    racks: dict[str, str] = field(default_factory=dict)  # machine: its ``rack:`` tag
    spots: dict[str, Spot] = field(default_factory=dict)  # machine: all its tags
    by_tag: dict[str, dict[str, None]] = field(default_factory=dict)  # tag: machines that have it, in order
    layout: Layout = field(default_factory=Layout)
    last: tuple[object, Any] | None = None  # a goal's last input and result; cleared by every change

    @classmethod
    def of(cls, instance: FlowInstance) -> ClusterView:
        """The machines of an instance."""
        found = cls()
        for machine in instance.machines:
            found.add(machine)
        return found

    def add(self, machine: Machine) -> None:
        """Add a machine, or replace one of the same name."""
        self.enter(machine)
        self.layout.add(machine.name, machine.rack)

    def remove(self, name: str) -> None:
        """Forget a machine."""
        self.leave(name)
        self.layout.remove(name)

    def replaced(self, new: Machine) -> ClusterView:
        """Return a copy with another machine of the same name, to price a change; its layout is not changed."""
        machines, tags, racks = dict(self.machines), dict(self.tags), dict(self.racks)
        found = ClusterView(machines, tags, racks, dict(self.spots), dict(self.by_tag), self.layout)
        for tag in self.tags[new.name] | new.tags:
            found.by_tag[tag] = dict(self.by_tag.get(tag, {}))
        found.leave(new.name)
        found.enter(new)
        return found

    def enter(self, machine: Machine) -> None:
        """Add or replace a machine without a place in the layout, to price a change."""
        self.last = None
        tags = machine.tags
        for tag in self.tags.get(machine.name, tags) - tags:
            del self.by_tag[tag][machine.name]
        self.machines[machine.name], self.tags[machine.name] = machine, tags
        for tag in tags:
            self.by_tag.setdefault(tag, {})[machine.name] = None
        self.spots[machine.name] = Spot(tags, frozenset())
        self.racks[machine.name] = f"rack:{machine.rack}"

    def leave(self, name: str) -> None:
        """Undo `enter`."""
        self.last = None
        for tag in self.tags[name]:
            del self.by_tag[tag][name]
            if not self.by_tag[tag]:
                del self.by_tag[tag]
        del self.machines[name], self.tags[name], self.racks[name], self.spots[name]

    def meets(self, name: str, spot: Spot) -> bool:
        """Return whether a machine belongs to a spot."""
        tags = self.tags[name]
        return spot.has <= tags and not (spot.lacks & tags)

    def reach(self, target: str | Spot) -> Iterable[str]:
        """Iterate over the machines behind an arc: the machine itself, or those of a spot."""
        return (target,) if isinstance(target, str) else self.members(target)

    def members(self, spot: Spot) -> Iterator[str]:
        """Iterate over the machines of a spot, searched among those with its rarest tag."""
        tagged = [self.by_tag.get(tag, {}) for tag in spot.has]
        rarest = min(tagged, key=len) if tagged else None
        pool: Iterable[str] = self.machines if rarest is None else rarest
        return (name for name in pool if self.meets(name, spot))


@dataclass(slots=True)
class TaskView:
    """A task as goals see it."""

    task: FlowTask
    job: str
    priority: int
    machine: str | None
    elapsed_s: float
    apart: str = ""  # name of its different-machines rule
    preempt_cost: float = 0
    limited: bool = False  # its job has a limit of preemptions
    held: bool = False  # it may stay or stop, but not move

    @property
    def costs(self) -> Mapping[str, float]:
        """Explicit costs by machine."""
        return self.task.costs


def task_views(instance: FlowInstance) -> list[TaskView]:
    """Every task of an instance as goals see it; a ``different_machines`` rule with one task is dropped."""
    together: Counter[str | None] = Counter()
    for job in instance.jobs:
        together[job.different_machines] += len(job.tasks)
    views = []
    for job in instance.jobs:
        name, priority, rule = job.name, job.priority, job.different_machines
        apart, price = rule if rule and together[rule] > 1 else "", job.preempt_cost
        limited = job.preemptions_per_hour is not None
        for task in job.tasks:
            machine, elapsed_s = (None, 0.0) if task.running is None else (task.running.machine, task.running.elapsed_s)
            views.append(TaskView(task, name, priority, machine, elapsed_s, apart, price, limited))
    return views


class Goal:
    """Base class of goals without any effect; a goal overrides the methods it needs."""

    #: Weight of the goal in the sum of costs.
    weight: int = 1

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for name in inspect.get_annotations(cls):
            if callable(getattr(Goal, name, None)):
                raise TypeError(f"{cls.__name__}: field {name!r} hides the method of a goal; choose another name")

    def require(self, **values: float) -> None:
        """Raise `ModelError` unless the weight is a whole number and each value a finite one, all at least 0."""
        if not isinstance(self.weight, int) or self.weight < 0:
            raise ModelError(f"{type(self).__name__}: weight must be a whole number of at least 0, got {self.weight!r}")
        for name, value in values.items():
            if not 0 <= value < float("inf"):
                raise ModelError(f"{type(self).__name__}: {name} must be a finite number of at least 0, got {value}")

    def real_costs(self) -> Iterable[tuple[float, str]]:
        """The goal's real-valued costs with their names; the `Scale` must make them integers."""
        return ()

    def prepare(self, tasks: Iterable[TaskView]) -> Goal:
        """Set parameters that depend on all tasks of the instance; called once, before all other methods."""
        return self

    def spots(self, task: TaskView, cluster: ClusterView) -> Iterable[str | Spot]:
        """Spots to which the task gets its own arc; a single machine is given by its name."""
        return ()

    def forbids(self, task: TaskView, machine: Machine) -> bool:
        """Return whether a task must not run on a machine; fair shares count only the machines that are left."""
        return False

    def price(self, task: TaskView, spot: Spot, machine: str | None, cluster: ClusterView, scale: Scale) -> int:
        """Return the largest cost in the spot; if it is one ``machine``, the spot has all its tags."""
        return 0

    def prices(
        self, task: TaskView, places: Sequence[tuple[Spot, str | None]], cluster: ClusterView, scale: Scale
    ) -> Sequence[int] | None:
        """Return `price` at each (spot, machine); None if the goal sets no price. Override it to vectorize."""
        return [self.price(task, spot, machine, cluster, scale) for spot, machine in places]

    def waiting(self, task: TaskView, scale: Scale) -> int:
        """Return the cost of waiting."""
        return 0

    def slot_costs(self, machine: Machine, scale: Scale) -> list[int] | None:
        """Return the nondecreasing costs of a machine's slots; None if the goal sets no price."""
        return None
