"""Goals that price machines: data locality, load spreading, continuity and random costs."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf

from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import Machine
from flowlex.models.flow.goals.goal_interface import ANYWHERE, ClusterView, Goal, Scale, Spot, TaskView
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
