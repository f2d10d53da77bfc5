"""Arcs and arc costs of one task, machine or job, as given by the goals; shared by the model and the live scheduler."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from flowlex.instances.flow import Machine
from flowlex.models.flow.goal_interface import ANYWHERE, ClusterView, Goal, Scale, Spot, TaskView
from flowlex.models.flow.goals import Continuity, DataLocality, FairShares, Placement, Priority
from flowlex.models.flow.lexicographic_costs import StrictOrder
from flowlex.models.flow.own_goals import CheckedGoal, is_foreign
from flowlex.models.model_base import ModelError

#: Largest number of spots of one task; more combinations of preferences are refused.
_MOST_SPOTS = 256


@dataclass(frozen=True)
class StageWeights:
    """Weights that combine goals in strict order (shortfall of shares, waiting by class, other costs) into one cost.

    Let P bound the ordinary cost of any simple cycle of the residual network. Such a cycle passes the sink once, so
    it changes the number of waiting tasks by at most one in each of at most two classes. Therefore a gap of P + 1
    between neighbouring classes outweighs all ordinary costs, and a shortfall weight of P + 1 + (weight of the most
    important class) outweighs every class: the optimum of the sum is the lexicographic optimum. (P includes chains
    of displaced tasks, for which the paper's weight is too small.)
    """

    level: int
    shortfall: int

    @classmethod
    def for_bound(cls, cycle: int, top_level: int) -> StageWeights:
        """Weights for P = ``cycle`` and the importance of the top class."""
        return cls(cycle + 1, cycle + 1 + (cycle + 1) * top_level)


class Rules:
    """The goals, prepared for one cluster."""

    def __init__(
        self,
        goals: Iterable[Goal],  # at most one of each kind
        wait_cost: float | None,  # cost of a waiting task; None: running tasks has priority over all other costs
        scale: Scale,
        tasks: Iterable[TaskView],
        order: StrictOrder | None = None,  # ranks of the goals; None: minimise the sum of their costs
    ) -> None:
        tasks = list(tasks)
        self.goals: tuple[Goal, ...] = tuple(goal.prepare(tasks) for goal in goals)
        self.scale = scale
        self.order: StrictOrder | None = order if order is not None and len(order.names) > 1 else None
        kinds = [type(goal).__name__ for goal in self.goals]
        for kind in kinds:
            if kinds.count(kind) > 1:
                raise ModelError(f"two goals are of kind {kind}; keep one, with their rules and weights together")
        weight = 1 if self.order is None else self.order.weight_of
        weighted = [(goal, weight if isinstance(weight, int) else weight(k)) for k, goal in enumerate(self.goals)]
        #: Weight of explicit costs and ``wait_cost``.
        self.first: int = 1 if self.order is None else self.order.weights[0]
        others = [(goal, w) for goal, w in weighted if not isinstance(goal, Continuity)]
        self._continuity = [(goal, w) for goal, w in weighted if isinstance(goal, Continuity)]
        pricing = [(goal, w) for goal, w in others if _overrides(goal, "price") or _overrides(goal, "prices")]
        self._pricing = [(_checked(goal).prices, w) for goal, w in pricing]
        self._waiting = [(_checked(goal), w) for goal, w in weighted if _overrides(goal, "waiting")]
        self._slots = [(_checked(goal), w) for goal, w in weighted if _overrides(goal, "slot_costs")]
        self._spotting = [goal for goal, _ in others if _overrides(goal, "spots")]
        self._placing = [goal for goal in self.goals if isinstance(goal, Placement)]
        self._forbidding = [goal for goal in self.goals if _overrides(goal, "forbids")]
        #: Whether the arcs of every task depend on every machine, because user-defined goals look at each machine.
        self.asks_each: bool = bool(self._forbidding) or any(is_foreign(goal) for goal, _ in pricing)
        local = [goal for goal, _ in pricing if not isinstance(goal, Placement)]
        alone = [goal for goal in local if isinstance(goal, DataLocality)]
        #: Data locality, if no other goal gives arcs or prices to tasks without constraints.
        self._locality = alone[0] if alone and alone == local == self._spotting and not self.asks_each else None
        self._per_mb = (0, 0, 0) if self._locality is None else self._locality.per_mb(scale)
        self.shares: FairShares | None = next((goal for goal in self.goals if isinstance(goal, FairShares)), None)
        self.priority: Priority | None = next((goal for goal in self.goals if isinstance(goal, Priority)), None)
        if wait_cost is not None and not wait_cost >= 0:
            raise ModelError(f"wait_cost is {wait_cost}; it must be at least 0")
        self.wait_cost: int | None = None if wait_cost is None else scale.units(wait_cost, "wait_cost")
        #: Largest credit for staying that a task can reach.
        self.credit: int = sum(goal.largest(scale) for goal in self.goals if isinstance(goal, Continuity))
        if self.order is not None:
            self.order.within(self.wait_cost or 0, "wait_cost")
            self.order.within(self.credit, "Continuity")

    @property
    def rank_names(self) -> tuple[str, ...]:
        """Names of the last stages: ``cost``, or the goals in strict order."""
        return ("cost",) if self.order is None else self.order.names

    def level(self, priority: int) -> int:
        """Importance of a job in the strict order; 0 if its waiting has an ordinary cost."""
        if self.priority is not None:
            return self.priority.level(priority) if self.priority.mode == "strict" else 0
        return 1 if self.wait_cost is None else 0

    def waiting(self, task: TaskView) -> int:
        """Ordinary cost of waiting."""
        cost = (self.wait_cost or 0) * self.first
        for goal, weight in self._waiting:
            units = goal.waiting(task, self.scale)
            if self.order is not None:
                more = (self.wait_cost or 0) if weight == self.first else 0
                self.order.within(units + more, f"task {task.task.name!r} waiting")
            cost += units * weight
        return cost

    def slot_costs(self, machine: Machine) -> list[tuple[int, int]]:
        """(capacity, cost) of a machine's arcs to the sink."""
        said = []
        for goal, weight in self._slots:
            costs = goal.slot_costs(machine, self.scale)
            if costs is None:
                continue
            if self.order is not None and costs:
                self.order.within(max(costs, key=abs), f"slots of machine {machine.name!r}")
            said.append(costs if weight == 1 else [weight * cost for cost in costs])
        if not said:
            return [(machine.slots, 0)] if machine.slots else []
        return [(1, sum(costs)) for costs in zip(*said, strict=True)]

    def offers(self, task: TaskView, cluster: ClusterView) -> dict[str | Spot, int]:
        """Cost of each arc of a task: to machines by name, to groups of machines by `Spot`."""
        return self.staying(task, self.moving(task, cluster), cluster)

    def prices_slots(self, machines: Iterable[Machine]) -> bool:
        """Return whether a goal prices slots of any of these machines."""
        return any(goal.slot_costs(m, self.scale) is not None for goal, _ in self._slots for m in machines)

    def staying(self, task: TaskView, moving: dict[str | Spot, int], cluster: ClusterView) -> dict[str | Spot, int]:
        """Add a running task's arc to stay, with its cost, to ``moving``; a held task keeps only this arc."""
        cost = self.stay(task, moving, cluster)
        if cost is not None and task.machine is not None:
            moving = {task.machine: cost} if task.held else moving | {task.machine: cost}
        return {_once(target, task.apart): c for target, c in moving.items()} if task.apart else moving

    def stay(self, task: TaskView, moving: dict[str | Spot, int], cluster: ClusterView) -> int | None:
        """Cost of staying: the placement cost minus credits; None if no credit or limit applies, or it may not stay."""
        if task.machine is None or not (self._continuity or task.preempt_cost or task.limited):
            return None
        cost = self._here(task, moving, cluster)
        if cost is None:
            return None
        for goal, weight in self._continuity:
            cost -= weight * self._ranked(goal.credit(task.elapsed_s, self.scale), task)
        if task.preempt_cost:
            cost -= self.first * self.keeping(task)
            if self.order is not None:
                self._ranked(self.order.split(cost)[0], task)
        return cost

    def _here(self, task: TaskView, moving: dict[str | Spot, int], cluster: ClusterView) -> int | None:
        """Cost of placing a running task on its present machine; None if it may not run there any more."""
        machine = task.machine
        if machine is None or machine not in cluster.machines:
            return None
        cost = moving.get(machine)
        if cost is None and any(isinstance(t, Spot) and cluster.meets(machine, t) for t in moving):
            cost = self._prices(task, ((cluster.spots[machine], machine),), cluster)[0]
        return cost

    def credit_at(self, elapsed_s: float) -> int:
        """Credit of `Continuity` for staying after ``elapsed_s`` seconds."""
        return sum(weight * goal.credit(elapsed_s, self.scale) for goal, weight in self._continuity)

    def may_stay(self, task: TaskView, moving: dict[str | Spot, int], cluster: ClusterView) -> bool:
        """Return whether a running task may stay on its machine."""
        return self._here(task, moving, cluster) is not None

    def keeping(self, task: TaskView) -> int:
        """Credit for not preempting a running task, in units of explicit costs."""
        if not task.preempt_cost:
            return 0
        units = self.scale.units(task.preempt_cost, f"preempt_cost of job {task.job!r}")
        return self._ranked(units, task)

    def moving(self, task: TaskView, cluster: ClusterView) -> dict[str | Spot, int]:
        """Costs of the arcs that do not depend on the present machine of the task."""
        if self._locality is not None and self.order is None and not task.costs and not self.placing(task):
            return self._locality.arcs(task, cluster, self._per_mb)
        targets = self._targets(task, cluster)
        found = dict(zip(targets, self._prices(task, list(targets.values()), cluster), strict=True))
        if not task.costs:
            return found
        for machine in task.costs.keys() & found.keys():
            what = f"cost of {task.task.name!r} on {machine!r}"
            found[machine] = self.first * self._ranked(self.scale.units(task.costs[machine], what), task)
        return self._shield(task, found, cluster)

    def locality(self, task: TaskView) -> DataLocality | None:
        """Data locality if it alone determines the machines and racks to which a task has arcs; else None."""
        if self._locality is None or task.costs:
            return None
        for goal in self._placing:
            for constraint in goal.constraints(task):
                if any(tag.startswith(("rack:", "machine:")) for tag in constraint.resources):
                    return None
        return self._locality

    def _prices(self, task: TaskView, places: Sequence[tuple[Spot, str | None]], cluster: ClusterView) -> list[int]:
        costs: list[int] | None = None
        for prices, weight in self._pricing if places else ():
            said = prices(task, places, cluster, self.scale)
            if said is None:
                continue
            if self.order is not None:
                self._ranked(max(said, key=abs), task)
            if weight != 1:
                said = [weight * units for units in said]
            costs = list(said) if costs is None else [a + b for a, b in zip(costs, said, strict=True)]
        return [0] * len(places) if costs is None else costs

    def _ranked(self, units: int, task: TaskView) -> int:
        return units if self.order is None else self.order.within(units, f"task {task.task.name!r}")

    def _targets(self, task: TaskView, cluster: ClusterView) -> dict[str | Spot, tuple[Spot, str | None]]:
        """Machines and groups where a task may run, with what goals are asked about, in an order of their own."""
        wanted: list[str | Spot] = [ANYWHERE]
        for goal in self._spotting:
            wanted += goal.spots(task, cluster)
        wanted += task.costs
        placing, left = self.placing(task), self.allowed(task, cluster)
        if placing or left is not None:
            wanted = list(self._placed(task, wanted, placing, left))
        spots, found = cluster.spots, dict[str | Spot, tuple[Spot, str | None]]()
        for target in wanted:
            if isinstance(target, str):
                if target in spots:
                    found[target] = spots[target], target
            elif (only := only_machine(target)) is None:
                found[target] = target, None
            elif only in spots and cluster.meets(only, target):
                found[only] = spots[only], only
        return found

    def _placed(
        self, task: TaskView, wanted: Iterable[str | Spot], placing: list[Placement], left: Spot | None
    ) -> dict[Spot, None]:
        """Intersect the spots with preferences and requirements, and with ``left``, the machines that goals allow."""
        spots = {Spot.of(f"machine:{t}") if isinstance(t, str) else t: None for t in wanted}
        for placement in placing:
            for choice in placement.choices(task):
                spots |= {both: None for spot in spots if (both := spot.both(choice)) is not None}
                if len(spots) > _MOST_SPOTS:
                    raise ModelError(f"task {task.task.name!r} has too many preferences for a network; merge some")
            for either in placement.required(task):
                spots = {both: None for spot in spots for a in either if (both := spot.both(a)) is not None}
        if left is not None:
            spots = {both: None for spot in spots if (both := spot.both(left)) is not None}
        return spots

    def allowed(self, task: TaskView, cluster: ClusterView) -> Spot | None:
        """All machines except those that goals forbid for a task; None if none is forbidden."""
        machines = cluster.machines.items() if self._forbidding else ()
        forbidden = [name for name, m in machines if any(goal.forbids(task, m) for goal in self._forbidding)]
        return Spot.without(*(f"machine:{name}" for name in forbidden)) if forbidden else None

    def _shield(self, task: TaskView, found: dict[str | Spot, int], cluster: ClusterView) -> dict[str | Spot, int]:
        """Exclude a machine from groups that would be cheaper than the task's explicit cost on this machine."""
        shielded: dict[str | Spot, int] = {}
        for target, cost in found.items():
            if isinstance(target, Spot):
                dear = [
                    f"machine:{m}"
                    for m in task.costs
                    if m in cluster.machines and cluster.meets(m, target) and found.get(m, cost) > cost
                ]
                target = Spot(target.has, target.lacks | frozenset(dear))
            shielded[target] = min(cost, shielded.get(target, cost))
        return shielded

    def placing(self, task: TaskView) -> list[Placement]:
        """Placement goals with constraints on a task."""
        return [goal for goal in self._placing if goal.constraints(task)]

    def unmet(self, task: TaskView, cluster: ClusterView, apart: Collection[str] = ()) -> str | None:
        """Return why no machine of the cluster is feasible for a task; None if one is.

        ``apart``: machines that run another task of the same different-machines rule.
        """
        if cluster.machines and not apart and not self._forbidding and not self.placing(task):
            return None
        fit = (machine for target in self._targets(task, cluster) for machine in cluster.reach(target))
        first = next(fit, None)
        if first is None:
            wants = [" or ".join(map(str, a)) for goal in self._placing for a in goal.required(task)]
            wants += [f"goal {type(goal).__name__}" for goal in self._forbidding if cluster.machines]
            return f"no machine meets its placement ({'; '.join(wants) or 'the cluster is empty'})"
        if apart and first in apart and all(machine in apart for machine in fit):
            return f"every machine it could take runs another task of {task.apart!r}"
        return None


def _checked(goal: Goal) -> Goal | CheckedGoal:
    return CheckedGoal(goal) if is_foreign(goal) else goal


def _overrides(goal: Goal, method: str) -> bool:
    return getattr(type(goal), method) is not getattr(Goal, method)


def single_file(machine: str, once: str) -> Spot:
    """Return the spot of one machine for the tasks of the different-machines rule ``once``."""
    return Spot(frozenset((f"machine:{machine}",)), frozenset(), once)


def _once(target: str | Spot, apart: str) -> Spot:
    return single_file(target, apart) if isinstance(target, str) else target._replace(once=apart)


@lru_cache(maxsize=2**14)
def only_machine(spot: Spot) -> str | None:
    """Return the machine of a spot that consists of one machine; None for other spots."""
    for tag in spot.has:
        if tag.startswith("machine:"):
            return tag[8:]
    return None
