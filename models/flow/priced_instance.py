"""An instance as its goals price it, each goal asked once; statement and network are made of this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowlex.formulations.gc_pause import collector_paused
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.arc_costs import Rules, StageWeights
from flowlex.models.flow.fair_share_demands import job_bounds
from flowlex.models.flow.goal_interface import ClusterView, Spot, task_views
from flowlex.models.flow.preemption import hold
from flowlex.models.flow.resource_units import Resources
from flowlex.models.flow.task_rules import TaskRules
from flowlex.models.model_base import ModelError

#: Largest number of pairs of a task and a machine in one statement.
_PAIRS = 2_000_000


@dataclass(frozen=True, eq=False)
class Pairs:
    """Tasks and machines, by number, of which the task may run on the machine, and what that costs."""

    task: Integers
    machine: Integers
    costs: list[int]  # weighted sum of all ranks

    @cached_property
    def used(self) -> list[int]:
        """Machines on which some task may run."""
        found: list[int] = np.unique(self.machine).tolist()
        return found


class PricedInstance:
    """Where tasks may run and at what cost, what waiting and slots cost, and how many tasks of each job may run."""

    def __init__(self, instance: FlowInstance, rules: Rules, task_rules: TaskRules) -> None:
        self.instance, self.rules, self.task_rules = instance, rules, task_rules
        cluster = ClusterView.of(instance)
        self.cluster, self.views = cluster, task_views(instance)
        self._reach: dict[str | Spot, tuple[str, ...]] = {}  # machines of each group
        job_at = {job.name: j for j, job in enumerate(instance.jobs)}
        #: (T,) number of the job of each task.
        self.job: Integers = np.array([job_at[view.job] for view in self.views], np.int64)
        held = hold(instance, self.views, lambda v: rules.may_stay(v, rules.moving(v, cluster), cluster), task_rules)
        #: (G, 3) for each gate, through which held tasks of a job stop: the job, how many may stop, and how many keep
        #: running even beyond the share.
        self.gates: Integers = np.array([(job_at[job], *each) for job, each in held.items()], np.int64).reshape(-1, 3)
        #: (J, 2) least and most running tasks of each job, (J,) most with held ones, and class of its waiting tasks.
        self.shares: Integers = job_bounds(instance, rules, self.views, cluster)
        self.most: Integers = self.shares[:, 1].copy()
        self.most[self.gates[:, 0]] = np.maximum(self.most[self.gates[:, 0]], self.gates[:, 2])
        self.levels: Integers = np.array([rules.level(job.priority) for job in instance.jobs], np.int64)

    @cached_property
    def offers(self) -> list[dict[str | Spot, int]]:
        """Cost of each arc of each task: to machines by name, to groups of machines by `Spot`."""
        with collector_paused():
            return [self.rules.offers(view, self.cluster) for view in self.views]

    @cached_property
    def waiting(self) -> list[int]:
        """Ordinary cost of waiting of each task."""
        return [self.rules.waiting(view) for view in self.views]

    @cached_property
    def slot_costs(self) -> list[list[tuple[int, int]]]:
        """(capacity, cost) of the arcs of each machine to the sink."""
        return [self.rules.slot_costs(machine) for machine in self.instance.machines]

    def costs(self, task: int) -> Mapping[str, int]:
        """Least cost of a task, by its number, on every machine where it may run."""
        found: dict[str, int] = {}
        for target, cost in self.offers[task].items():
            if target not in self._reach:
                self._reach[target] = tuple(self.cluster.reach(target))
            for name in self._reach[target]:
                if name not in found or cost < found[name]:
                    found[name] = cost
        return found

    @cached_property
    def task_names(self) -> list[str]:
        """Names of the tasks."""
        return [view.task.name for view in self.views]

    @cached_property
    def machine_names(self) -> list[str]:
        """Names of the machines."""
        return [machine.name for machine in self.instance.machines]

    @cached_property
    def resources(self) -> Resources:
        """Demands of tasks and capacities of machines."""
        return Resources.of(self.instance)

    def pairs(self, most: int | None = None) -> Pairs:
        """Which task may run on which machine with slots; ``most``: of so many tasks only, and not all of them.

        Raises `ModelError` if there are too many.
        """
        found: list[tuple[int, int, int]] = []
        for t, name in enumerate(self.task_names[:most]):
            costs = self.costs(t)
            inside = self.task_rules.inside.get(name, costs)
            found += [
                (t, m, costs[machine.name])
                for m, machine in enumerate(self.instance.machines if costs else ())
                if machine.slots and machine.name in costs and machine.name in inside
            ]
            if len(found) > _PAIRS:
                raise ModelError(
                    f"{self.instance.name}: the integer program names every task on every machine, here more "
                    f"than {_PAIRS} pairs; use a smaller instance, or leave out the changes, rules or capacities"
                )
        if most is not None:  # some combinations of tasks and machines, not all of some tasks
            del found[-1:]
        ends = np.array([(t, m) for t, m, _ in found], np.int64).reshape(-1, 2)
        return Pairs(ends[:, 0], ends[:, 1], [cost for *_, cost in found])

    def waiting_by_job(self, machine: Integers) -> list[int]:
        """(J,) waiting tasks of each job, from the (T,) machines of tasks, -1 for none."""
        found: list[int] = np.bincount(self.job[machine < 0], minlength=len(self.levels)).tolist()
        return found

    @property
    def classes(self) -> list[int]:
        """Classes of waiting tasks in strict order, the most important first."""
        return sorted({level for level in self.levels.tolist() if level > 0}, reverse=True)

    @cached_property
    def weights(self) -> StageWeights:
        """Weights that make the weighted sum of all stages lexicographic."""
        return StageWeights.for_bound(self.cycle, int(self.levels.max(initial=0)))

    @cached_property
    def cycle(self) -> int:
        """Bound on the ordinary cost of any simple residual cycle: two arcs per task, and two arcs at the sink."""
        spread = 0
        for offers, waits in zip(self.offers, self.waiting, strict=True):
            spread += max(0, waits, *offers.values()) - min(0, waits, *offers.values())
        return spread + 2 * max((abs(cost) for each in self.slot_costs for _, cost in each), default=0)
