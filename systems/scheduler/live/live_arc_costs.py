"""Costs of the arcs of a live network, as given by the goals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from flowlex.instances.flow import Machine
from flowlex.models.flow.arc_costs import Rules, StageWeights, single_file
from flowlex.models.flow.goal_interface import ClusterView, Spot, TaskView
from flowlex.models.flow.lexicographic_costs import TOP_CLASS, StrictOrder
from flowlex.models.model_base import ModelError
from flowlex.systems.scheduler.live.live_network import LiveNetwork
from flowlex.systems.scheduler.live.side_constraints import SideConstraints
from flowlex.systems.scheduler.live.task_ages import elapsed_s
from flowlex.systems.scheduler.live.task_records import EventError, LiveTask


class Trial(NamedTuple):
    """A task with changed attributes, and the cost of each arc and of waiting that it would have.

    ``why``: no arc has a cost within the limit, so the task has to wait.
    """

    task: LiveTask
    changes: Mapping[str, Any]
    offers: dict[str | Spot, int]
    wait: int
    why: str = ""


class ArcCosts:
    """Set the arc costs of tasks and machines by the goals; refuse costs beyond the limit of the strict order.

    ``constraints`` tell which tasks are blocked (gangs without enough slots); these get no arcs. Neither do those of
    ``unpriced``, whose cost left the limit by a fact, such as the removal of a machine, which cannot be refused.
    """

    def __init__(
        self, rules: Rules, order: StrictOrder, cluster: ClusterView, network: LiveNetwork, constraints: SideConstraints
    ) -> None:
        self.rules, self.order, self.cluster, self.network = rules, order, cluster, network
        self.weights: StageWeights = StageWeights.for_bound(order.cycle, TOP_CLASS)
        self._constraints = constraints
        self._mentioning: dict[str, dict[str, None]] = {}  # by machine, the tasks whose arcs depend on it
        self.unpriced: dict[str, str] = {}  # why, by task

    def mentioning(self, machine: str) -> Mapping[str, None]:
        """Tasks whose arcs change when a machine is added or removed, without those that merely run there."""
        return self._mentioning.get(machine, {})

    def slot_costs(self, machine: Machine) -> list[tuple[int, int]]:
        """(capacity, cost) of a machine's slots, within the limit."""
        costs = self.rules.slot_costs(machine)
        if self.rules.order is None and costs:
            self._check(max((cost for _, cost in costs), key=abs), f"a slot of machine {machine.name!r}")
        return costs

    def reprice(self, task: LiveTask, now_s: float) -> None:
        """Update the arcs of a task whose machine, age or hold alone has changed."""
        if task.machine is not None:
            task.elapsed_s = elapsed_s(task.started_s, now_s)
        self.network.reprice(task.task.name, *self.price(task, task.moving))

    def trial(self, task: LiveTask, now_s: float, cluster: ClusterView | None = None, /, **changes: Any) -> Trial:
        """Price a task with changed attributes or in another cluster; raise `EventError` beyond the limit.

        Nothing changes yet: an event makes all its trials before it puts the first one in force.
        """
        if task.machine is not None:
            changes["elapsed_s"] = elapsed_s(task.started_s, now_s)
        changed = replace(task, **changes)
        offers, wait = self.price(changed, cluster=cluster)
        return Trial(task, changes | {"moving": changed.moving}, offers, wait)

    def price_of_fact(self, task: LiveTask) -> tuple[dict[str | Spot, int], int]:
        """Price a task of a state that is loaded, as `trial_of_fact`."""
        try:
            return self.price(task)
        except ModelError as error:
            self.unpriced[task.task.name], task.moving = str(error), {}
            return {}, self.rules.waiting(task)

    def trial_of_fact(self, task: LiveTask, now_s: float, cluster: ClusterView | None = None) -> Trial:
        """Price a task after a change that cannot be refused: it waits if its cost exceeds the limit."""
        try:
            return self.trial(task, now_s, cluster)
        except ModelError as error:
            return Trial(task, {"moving": {}}, {}, self.rules.waiting(task), str(error))

    def put(self, trial: Trial) -> None:
        """Put a trial in force."""
        name = trial.task.task.name
        if trial.why:
            self.unpriced[name] = trial.why
        else:
            self.unpriced.pop(name, None)
        for attribute, value in trial.changes.items():
            setattr(trial.task, attribute, value)
        self.network.reprice(name, trial.offers, trial.wait)
        self.mention(trial.task)

    def move(self, task: LiveTask, left: str | None, now_s: float) -> None:
        """Update the arcs of a task that has left machine ``left`` (if any) and may have started on another now."""
        name, changes = task.task.name, dict[str | Spot, int]()
        if task.limited or task.apart or name in self._constraints.blocked or name in self.unpriced:
            self.reprice(task, now_s)
            return
        assert task.moving is not None
        if left in task.moving:
            changes[left] = task.moving[left]
        elif left is not None:
            self.network.drop_offers(name, (left,))
        if (cost := self.rules.stay(task, task.moving, self.cluster)) is not None and task.machine is not None:
            changes[task.machine] = cost
        self.network.change_offers(name, changes, self.rules.waiting(task))

    def only_leaves(self, task: LiveTask, machine: str, rack: str, cluster: ClusterView) -> bool:
        """Return whether a task only loses arcs to a machine and its rack by a removal, which leaves ``cluster``."""
        if task.moving is None or task.locality is None or task.apart or task.limited:
            return False
        if task.task.name in self.unpriced:
            return False
        if task.machine is not None and task.machine != machine and cluster.racks.get(task.machine) == rack:
            return False
        return task.locality.read_elsewhere(task.mentions, rack, cluster)

    def lose(self, task: LiveTask, machine: str, rack: str) -> None:
        """Remove the arcs that a task had because of a machine that was removed, where that is all (`only_leaves`)."""
        assert task.moving is not None
        gone = [to for to in task.moving if (to == machine if isinstance(to, str) else rack in to.has)]
        for target in gone:
            del task.moving[target]
        self.network.drop_offers(task.task.name, (machine, *gone))

    def grow_older(self, elapsed_s: float, tasks: Iterable[LiveTask]) -> None:
        """Update the credit for staying of running tasks to a new age; their other costs do not change.

        All tasks that started in one step come to an age together: the loop is written for speed.
        """
        now, before, changes, network = self.rules.credit_at(elapsed_s), dict[float, int](), list[int](), self.network
        for task in tasks:
            if task.elapsed_s not in before:
                before[task.elapsed_s] = now - self.rules.credit_at(task.elapsed_s)
            more, task.elapsed_s = before[task.elapsed_s], elapsed_s
            if not more or task.machine is None:
                continue
            target = single_file(task.machine, task.apart) if task.apart else task.machine
            its = network.tasks[task.task.name]
            if (arc := its.arcs.get(target)) is not None:
                network.costs[arc] -= more
                changes += (arc, its.node, network.place(target).node, 1, network.costs[arc])
        network.session.change_arcs(changes)

    def price(
        self, task: LiveTask, moving: dict[str | Spot, int] | None = None, cluster: ClusterView | None = None
    ) -> tuple[dict[str | Spot, int], int]:
        """Return the cost of each arc and of waiting; raise `EventError` beyond the limit and change nothing."""
        cluster, name = cluster or self.cluster, task.task.name
        no_arcs = name in self._constraints.blocked or (moving is not None and name in self.unpriced)
        if moving is None:
            self._check_stated(task)
            moving = self.rules.moving(task, cluster)
        offers, wait = self.rules.staying(task, moving, cluster), self.rules.waiting(task)
        if self.rules.order is None:
            found = moving.values()  # with the largest possible credit, so that ageing can never fail
            credit = self.rules.credit + self.rules.keeping(task)
            worst = max(wait, -wait, max(found, default=0), credit - min(found, default=0))
            self._check(worst, f"task {name!r}")
        task.moving = moving
        return {} if no_arcs else offers, wait

    def _check_stated(self, task: LiveTask) -> None:
        """Check all costs that a task states, also those on machines and labels that are not present yet.

        Otherwise a machine that joins later would be refused for the sake of one task.
        """
        rules, what = self.rules, f"task {task.task.name!r}"
        keep = rules.keeping(task)
        for machine, cost in task.costs.items():
            units = rules.scale.units(cost, f"cost of {task.task.name!r} on {machine!r}")
            self._check_ranked(max(units, keep + rules.credit - units), what)
        for goal in rules.placing(task):
            stated = (c.utility for c in goal.constraints(task) if c.kind in ("preferred", "avoided"))
            gains = sum(rules.scale.units(utility, f"utility of {what}") for utility in stated)
            self._check_ranked(gains * goal.weight + keep + rules.credit, what)

    def _check_ranked(self, worst: int, what: str) -> None:
        if self.rules.order is None:
            self._check(worst, what)
        else:
            self.rules.order.within(worst, what)

    def _check(self, worst: int, what: str) -> None:
        if worst > self.order.limit:
            raise EventError(
                f"{what}: a cost of {worst} (scale {self.rules.scale.factor}) exceeds the limit of "
                f"{self.order.limit}; raise cost_limit"
            )

    def mention(self, task: LiveTask) -> None:
        """Note the machines whose addition or removal changes a task's arcs."""
        assert task.moving is not None
        task.locality = self.rules.locality(task)
        present = mentioned_machines(self.rules, task, task.moving)
        if present == task.mentions:
            return
        name, index = task.task.name, self._mentioning
        self._unmention(name, (machine for machine in task.mentions if machine not in present))
        for machine in present:
            held = index.get(machine)
            if held is None:
                index[machine] = {name: None}
            else:
                held[name] = None
        task.mentions = present

    def forget(self, task: LiveTask) -> None:
        """Forget a removed task."""
        self.unpriced.pop(task.task.name, None)
        self._unmention(task.task.name, task.mentions)

    def _unmention(self, name: str, machines: Iterable[str]) -> None:
        for machine in machines:
            del self._mentioning[machine][name]
            if not self._mentioning[machine]:
                del self._mentioning[machine]


def mentioned_machines(rules: Rules, task: TaskView, moving: Iterable[str | Spot]) -> tuple[str, ...]:
    """Machines whose addition or removal changes the arcs of a task, independent of where it runs."""
    names = {target: None for target in moving if isinstance(target, str)}
    for block in task.task.data:
        for machine in block.machines:
            names[machine] = None
    for machine in task.costs:
        names[machine] = None
    for goal in rules.placing(task):
        for spot in (*goal.choices(task), *(spot for either in goal.required(task) for spot in either)):
            names.update({tag[8:]: None for tag in spot.has if tag.startswith("machine:")})
    return tuple(names)
