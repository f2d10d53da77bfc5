"""From goals to the arcs of one task, one machine and one job; shared by the model and the live scheduler."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flowlex.instances.flow import Machine
from flowlex.models.base import ModelError
from flowlex.models.goals.base import ANYWHERE, ClusterView, Goal, Scale, Spot, TaskView
from flowlex.models.goals.costs import Continuity
from flowlex.models.goals.fair_shares import FairShares
from flowlex.models.goals.placement import Placement
from flowlex.models.goals.priority import Priority

__all__ = ["Rules", "StageWeights", "mentioned_machines"]

#: Spots of one task beyond which its preferences are too entangled for a network.
_MOST_SPOTS = 256


@dataclass(frozen=True)
class StageWeights:
    """Weights that make one cost of several in strict order: shortfall of shares, waiting by class, the rest.

    Let P bound the ordinary cost of any simple cycle of the residual network. Such a cycle passes the sink once,
    so it changes the tasks waiting in one class by at most one, for at most one of another class. A gap of
    P + 1 between neighbouring classes therefore outweighs all ordinary costs, and P + 1 + (most important class)
    outweighs every class: the sum's optimum is the lexicographic one. (Chains of displaced tasks, which defeat
    the paper's weight, are inside P.)
    """

    level: int
    shortfall: int

    @classmethod
    def for_bound(cls, cycle: int, top_level: int) -> StageWeights:
        """Weights for P = ``cycle`` and the importance of the top class."""
        return cls(cycle + 1, cycle + 1 + (cycle + 1) * top_level)


class Rules:
    """Goals made ready for one cluster.

    Parameters
    ----------
    goals
        At most one of each kind that speaks for whole jobs (`FairShares`, `Priority`) or for slots.
    wait_cost
        Cost of a waiting task; None makes running come before all other costs.
    """

    def __init__(self, goals: Iterable[Goal], wait_cost: float | None, scale: Scale, tasks: Iterable[TaskView]) -> None:
        tasks = list(tasks)
        self.goals = tuple(goal.prepare(tasks) for goal in goals)
        self.scale = scale
        for kind in (FairShares, Priority):
            if sum(isinstance(goal, kind) for goal in self.goals) > 1:
                raise ModelError(f"two goals are of kind {kind.__name__}; keep one")
        self._continuity = [goal for goal in self.goals if isinstance(goal, Continuity)]
        others = [goal for goal in self.goals if not isinstance(goal, Continuity)]
        self._pricing = [goal for goal in others if type(goal).price is not Goal.price]
        self._spotting = [goal for goal in others if type(goal).spots is not Goal.spots]
        self._placing = [goal for goal in self.goals if isinstance(goal, Placement)]
        self.shares = next((goal for goal in self.goals if isinstance(goal, FairShares)), None)
        self.priority = next((goal for goal in self.goals if isinstance(goal, Priority)), None)
        if wait_cost is not None and not wait_cost >= 0:
            raise ModelError(f"wait_cost is {wait_cost}; it must be at least 0")
        self.wait_cost = None if wait_cost is None else scale.units(wait_cost, "wait_cost")

    def level(self, priority: int) -> int:
        """Importance of a job in the strict order; 0 when its waiting is an ordinary cost."""
        if self.priority is not None:
            return self.priority.level(priority) if self.priority.mode == "strict" else 0
        return 1 if self.wait_cost is None else 0

    def waiting(self, task: TaskView) -> int:
        """Ordinary cost of waiting."""
        return sum(goal.waiting(task, self.scale) for goal in self.goals) + (self.wait_cost or 0)

    def slot_costs(self, machine: Machine) -> list[tuple[int, int]]:
        """(capacity, cost) of a machine's arcs to the sink."""
        said = [costs for goal in self.goals if (costs := goal.slot_costs(machine, self.scale)) is not None]
        if not said:
            return [(machine.slots, 0)] if machine.slots else []
        return [(1, sum(costs)) for costs in zip(*said, strict=True)]

    def offers(self, task: TaskView, cluster: ClusterView) -> dict[str | Spot, int]:
        """Cost of each arc of a task: to machines by name, to groups of machines by `Spot`."""
        return self.staying(task, self.moving(task, cluster), cluster)

    def staying(self, task: TaskView, moving: dict[str | Spot, int], cluster: ClusterView) -> dict[str | Spot, int]:
        """Add to ``moving`` what staying on its machine costs a running task."""
        machine = task.machine
        if machine is None or not self._continuity or machine not in cluster.machines or machine in task.costs:
            return moving
        spot = cluster.spots[machine]
        cost = moving.get(machine)
        if cost is None:
            if not any(isinstance(t, Spot) and cluster.meets(machine, t) for t in moving):
                return moving
            cost = sum(goal.price(task, spot, machine, cluster, self.scale) for goal in self._pricing)
        credit = sum(goal.price(task, spot, machine, cluster, self.scale) for goal in self._continuity)
        return moving | {machine: cost + credit}

    def moving(self, task: TaskView, cluster: ClusterView) -> dict[str | Spot, int]:
        """Costs of the arcs that do not depend on where the task runs."""
        found: dict[str | Spot, int] = {}
        for spot in self._spots(task, cluster):
            machine = _machine_of(spot)
            target: str | Spot = spot
            if machine is not None:
                if machine not in cluster.machines or not cluster.meets(machine, spot):
                    continue
                if machine in task.costs:
                    what = f"cost of {task.task.name!r} on {machine!r}"
                    found[machine] = self.scale.units(task.costs[machine], what)
                    continue
                target, spot = machine, cluster.spots[machine]
            cost = 0
            for goal in self._pricing:
                cost += goal.price(task, spot, machine, cluster, self.scale)
            present = found.get(target)
            if present is None or cost < present:
                found[target] = cost
        return self._shield(task, found, cluster) if task.costs else found

    def _spots(self, task: TaskView, cluster: ClusterView) -> set[Spot]:
        spots = {ANYWHERE}
        for goal in self._spotting:
            spots.update(goal.spots(task, cluster))
        if task.costs:
            spots.update(Spot.of(f"machine:{machine}") for machine in task.costs)
        for placement in self._placing:
            if not placement.constraints(task):
                continue
            for choice in placement.choices(task):
                spots |= {both for spot in spots if (both := spot.both(choice)) is not None}
                if len(spots) > _MOST_SPOTS:
                    raise ModelError(f"task {task.task.name!r} has too many preferences for a network; merge some")
            for alternatives in placement.required(task):
                spots = {both for spot in spots for a in alternatives if (both := spot.both(a)) is not None}
        return spots

    def _shield(self, task: TaskView, found: dict[str | Spot, int], cluster: ClusterView) -> dict[str | Spot, int]:
        """Keep groups from offering a machine for less than the explicit cost of the task there."""
        shielded: dict[str | Spot, int] = {}
        for target, cost in found.items():
            if isinstance(target, Spot):
                dear = [
                    f"machine:{m}"
                    for m in task.costs
                    if m in cluster.machines and cluster.meets(m, target) and found.get(m, cost) > cost
                ]
                target = Spot(target.has, target.lacks | frozenset(dear))
            shielded[target] = cost
        return shielded

    def placing(self, task: TaskView) -> list[Placement]:
        """Placement goals that have something to say about a task."""
        return [goal for goal in self._placing if goal.constraints(task)]

    def unmet(self, task: TaskView, cluster: ClusterView) -> str | None:
        """Why no machine of the cluster will do for a task; None when some will."""
        spots = self._spots(task, cluster)
        if any(cluster.meets(name, spot) for spot in spots for name in cluster.machines):
            return None
        wants = [" or ".join(map(str, a)) for goal in self._placing for a in goal.required(task)]
        return f"no machine meets its placement ({'; '.join(wants) or 'the cluster is empty'})"


def _machine_of(spot: Spot) -> str | None:
    for tag in spot.has:
        if tag.startswith("machine:"):
            return tag[8:]
    return None


def mentioned_machines(rules: Rules, task: TaskView, offers: Iterable[str | Spot]) -> set[str]:
    """Machines whose coming or going changes the arcs of a task."""
    names = {machine for block in task.task.data for machine in block.machines} | set(task.costs)
    names.update(target for target in offers if isinstance(target, str))
    for goal in rules.placing(task):
        for spot in (*goal.choices(task), *(spot for either in goal.required(task) for spot in either)):
            names.update(tag[8:] for tag in spot.has if tag.startswith("machine:"))
    if task.machine is not None:
        names.add(task.machine)
    return names
