"""Goals that price machines: data locality, load spreading, continuity, and chance."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, inf, log2

from flowlex.instances.flow import Machine
from flowlex.models.base import ModelError
from flowlex.models.flow.goals.base import ANYWHERE, ClusterView, Goal, Scale, Spot, TaskView

__all__ = ["Continuity", "DataLocality", "LoadSpread", "RandomCosts"]


#: Doublings after which a credit stops growing.
_OLDEST = 24


@dataclass(frozen=True)
class DataLocality(Goal):
    """Run tasks near their data: cost per MB read from the same rack, and from another one.

    Quincy's arcs: a task prefers the machines and racks that hold at least ``threshold`` of its data; through a
    rack or the whole cluster it pays what it would pay on the worst machine there.
    """

    rack_cost: int = 1
    cluster_cost: int = 2
    threshold: float = 0.1
    most: int = 10
    weight: int = 1

    def spots(self, task: TaskView, cluster: ClusterView) -> Iterable[str | Spot]:
        """Machines (the ``most`` best) and racks that hold enough of the data."""
        if not task.task.data:
            return ()
        held, racks, total = _data(task, cluster)
        enough = self.threshold * total
        return [*self._best(held, enough), *(Spot.of(rack) for rack, size in racks.items() if size >= enough)]

    def _best(self, held: dict[str, int], enough: float) -> list[str]:
        best = [machine for machine, size in held.items() if size >= enough]
        return best if len(best) <= self.most else sorted(best, key=lambda m: (-held[m], m))[: self.most]

    def alone(self, task: TaskView, cluster: ClusterView, scale: Scale) -> dict[str | Spot, int] | None:
        """What `spots` and `prices` say together."""
        if not task.task.data:
            return {ANYWHERE: 0}
        held, racks, total = _data(task, cluster)
        enough, rack_of = self.threshold * total, cluster.racks
        far, nearer, here = self._units(total, scale)
        found: dict[str | Spot, int] = {ANYWHERE: far}
        for machine in self._best(held, enough):
            found[machine] = far - nearer * racks[rack_of[machine]] - here * held[machine]
        for rack, size in racks.items():
            if size >= enough:
                found[Spot.of(rack)] = far - nearer * size
        return found

    def _units(self, total: int, scale: Scale) -> tuple[int, int, int]:
        """Cost of reading all from afar, and what a MB in the same rack, and on the same machine, takes off."""
        unit = scale.factor * self.weight
        near = min(self.rack_cost, self.cluster_cost)
        return self.cluster_cost * total * unit, (self.cluster_cost - near) * unit, near * unit

    def prices(
        self, task: TaskView, places: Sequence[tuple[Spot, str | None]], cluster: ClusterView, scale: Scale
    ) -> Sequence[int] | None:
        """MB times what they cost from the nearest replica, in the worst machine of each spot."""
        if not task.task.data:
            return None
        held, racks, total = _data(task, cluster)
        far, nearer, here = self._units(total, scale)
        found = []
        for spot, machine in places:
            if machine is not None:  # its rack has all that it has
                rack = cluster.racks[machine]
                found.append(far - nearer * racks.get(rack, 0) - here * held.get(machine, 0))
            else:
                saved = 0
                for tag in spot.has:
                    saved += racks.get(tag, 0)
                found.append(far - nearer * saved)
        return found

    def price(self, task: TaskView, spot: Spot, machine: str | None, cluster: ClusterView, scale: Scale) -> int:
        """The price of one place."""
        return next(iter(self.prices(task, ((spot, machine),), cluster, scale) or (0,)))


def _data(task: TaskView, cluster: ClusterView) -> tuple[dict[str, int], dict[str, int], int]:
    """MB of a task's data on each machine, in each rack (by its tag), and in all; asked for twice in a row."""
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
    """Spread load: the k-th task of a machine costs ``step * (k - 1)``, a convex cost by parallel unit arcs.

    This is the lambda-representation of a convex function in a network; the cheap slots fill first by themselves.
    """

    step: int = 1
    weight: int = 1

    def slot_costs(self, machine: Machine, scale: Scale) -> list[int]:
        """0, step, 2 step, ..."""
        return [self.step * k * scale.factor * self.weight for k in range(machine.slots)]


@dataclass(frozen=True)
class RandomCosts(Goal):
    """A random price per slot, the same for all tasks: random placement, as a baseline."""

    most: int = 1000
    seed: int = 0
    weight: int = 1

    def slot_costs(self, machine: Machine, scale: Scale) -> list[int]:
        """Random numbers from machine name and seed, ascending."""
        drawn = (zlib.crc32(f"{self.seed}/{machine.name}/{k}".encode()) % self.most for k in range(machine.slots))
        return sorted(x * scale.factor * self.weight for x in drawn)


@dataclass(frozen=True)
class Continuity(Goal):
    """Keep running tasks where they are: moving or stopping one forfeits a credit that grows with its time.

    The credit is ``base + rate * floor(log2(1 + elapsed / unit_s))``; it grows by steps ever further apart, so
    that a live network changes seldom, and no more after ``2**24 * unit_s`` (32 years of minutes), so that it has a
    largest value. Source: reconstructed (Quincy's preemption cost grows with running time).
    """

    base: int = 1
    rate: int = 1
    unit_s: float = 60.0
    weight: int = 1

    def __post_init__(self) -> None:
        if self.base < 0 or self.rate < 0 or not self.unit_s > 0:
            raise ModelError("Continuity: base and rate must be at least 0, unit_s positive")

    def age(self, elapsed_s: float) -> int:
        """Doublings of the unit that a task has run."""
        return min(floor(log2(1.0 + elapsed_s / self.unit_s)), _OLDEST)

    def largest(self, scale: Scale) -> int:
        """The largest credit."""
        return (self.base + self.rate * _OLDEST) * scale.factor * self.weight

    def next_step(self, elapsed_s: float) -> float:
        """Elapsed time at which the credit grows next; infinite when it does not."""
        if self.age(elapsed_s) == _OLDEST:
            return inf
        return self.unit_s * float(2 ** (self.age(elapsed_s) + 1) - 1)

    def spots(self, task: TaskView, cluster: ClusterView) -> Iterable[str | Spot]:
        """Where it runs."""
        return () if task.machine is None else (task.machine,)

    def price(self, task: TaskView, spot: Spot, machine: str | None, cluster: ClusterView, scale: Scale) -> int:
        """Minus the credit for staying."""
        if machine is None or task.machine != machine:
            return 0
        return -(self.base + self.rate * self.age(task.elapsed_s)) * scale.factor * self.weight
