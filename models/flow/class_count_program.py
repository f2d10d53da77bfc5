"""The integer program of an instance with capacities or task rules: tasks of each class on each kind of machines."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.goals.goal_interface import TaskView
from flowlex.models.flow.integer_resources import Resources
from flowlex.models.flow.network import ScheduleNetwork
from flowlex.models.flow.statement import NEEDED, FlowData, Size, state, with_sizes
from flowlex.models.flow.task_and_machine_classes import Classes
from flowlex.models.flow.task_rules import TaskRules, Team
from flowlex.models.model_base import ModelError
from flowlex.models.statement.from_language import statement_of
from flowlex.models.statement.rows_and_objectives import Statement

if TYPE_CHECKING:
    from flowlex.models.problem import Problem

#: Largest sum of costs that is exact in the floating point of a solver.
_EXACT = 2**52


@dataclass(frozen=True, eq=False)
class CountedProgram:
    """The statement by classes and kinds, and the data that greedy schedules need."""

    instance: FlowInstance
    rules: Rules
    schedule: ScheduleNetwork
    task_rules: TaskRules
    resources: Resources
    classes: Classes
    data: FlowData
    problem: Problem  # all rows except those of capacities
    base: Statement  # the problem as it is solved

    @classmethod
    def of(
        cls,
        instance: FlowInstance,
        rules: Rules,
        schedule: ScheduleNetwork,
        task_rules: TaskRules,
        *,
        machines_alone: bool = False,
    ) -> CountedProgram:
        """Formulate an instance by classes of tasks and kinds of machines (single machines if ``machines_alone``).

        Raises `ModelError` if the sum of costs is not exact in floating point, or if there are too many pairs.
        """
        from flowlex.models.problem import Problem

        resources = Resources.of(instance)
        classes = Classes.of(instance, rules, task_rules, schedule.views, resources, machines_alone=machines_alone)
        data, problem = FlowData(instance, rules, schedule, task_rules, classes, counted=True), Problem(instance.name)
        state(problem, data)
        base = statement_of(problem, NEEDED)
        columns = base.program.column_count
        largest = max(float(np.abs(stage.cost(columns)).max(initial=0)) for stage in base.stages)
        if largest * len(schedule.views) > _EXACT:
            raise ModelError(
                f"costs add up to {largest * len(schedule.views):.3g}, more than an integer program holds exactly "
                f"({_EXACT:.3g}); use a larger unit of cost"
            )
        return cls(instance, rules, schedule, task_rules, resources, classes, data, problem, base)

    def with_sizes(self, sizes: Sequence[Size]) -> Statement:
        """Return the statement with the capacity rows of these sizes."""
        if not sizes:
            return self.base
        return statement_of(with_sizes(self.problem, self.data, self.resources, sizes), NEEDED)

    @cached_property
    def capacities(self) -> list[Size]:
        """Every capacity that is less than the total demand."""
        wanted = self.resources.demand.sum(axis=0)
        has = self.resources.capacity[self.classes.first_machine]
        return [Size(int(p), int(r), self.resources.smallest_size[r]) for p, r in np.argwhere(has < wanted)]

    @property
    def views(self) -> list[TaskView]:
        """Every task as goals see it."""
        return self.schedule.views

    @cached_property
    def own(self) -> list[int]:
        """Machine on which each task runs now, -1 for none."""
        at = {machine.name: m for m, machine in enumerate(self.instance.machines)}
        return [at.get(view.machine or "", -1) for view in self.views]

    @cached_property
    def job(self) -> Integers:
        """(K,) job of each class."""
        at = {job.name: j for j, job in enumerate(self.instance.jobs)}
        return np.array([at[self.views[t].job] for t in self.classes.first_task.tolist()], np.int64)

    @cached_property
    def level(self) -> Integers:
        """(K,) importance of waiting in the strict order, 0 if waiting has an ordinary cost."""
        firsts = self.classes.first_task.tolist()
        return np.array([self.rules.level(self.views[t].priority) for t in firsts], np.int64)

    @cached_property
    def most_running(self) -> Integers:
        """(J,) most running tasks of each job."""
        most = self.schedule.shares[:, 1]
        held = np.bincount(self.job[self.classes.task], weights=[v.held for v in self.views], minlength=len(most))
        found: Integers = np.maximum(most, held.astype(np.int64))
        return found

    @cached_property
    def may(self) -> Booleans:
        """(K, P) whether each class may run on each kind."""
        found = np.zeros((len(self.classes.tasks), len(self.classes.machines)), bool)
        found[self.classes.pairs.task, self.classes.pairs.machine] = True
        return found

    @cached_property
    def cost(self) -> Floats:
        """(K, P) cost of a task of each class on each kind, as the weighted sum of all ranks."""
        found = np.zeros(self.may.shape)
        found[self.classes.pairs.task, self.classes.pairs.machine] = self.classes.pairs.cost
        return found

    @cached_property
    def wait_cost(self) -> Floats:
        """(K,) cost of waiting, as the weighted sum of all ranks."""
        firsts = self.classes.first_task.tolist()
        return np.array([self.rules.waiting(self.views[t]) for t in firsts], np.float64)

    @cached_property
    def slot_cost(self) -> Floats:
        """(P, n) cost of the next slot of a machine with n tasks, as the weighted sum of all ranks."""
        machines = [self.instance.machines[m] for m in self.classes.first_machine.tolist()]
        most = min(max((machine.slots for machine in machines), default=0), len(self.views))
        found = np.zeros((len(machines), most + 1))
        for row, machine in zip(found, machines, strict=True):
            unit = [cost for count, cost in self.rules.slot_costs(machine) for _ in range(min(count, most))][:most]
            row[: len(unit)] = unit
        return found

    @cached_property
    def teams(self) -> list[tuple[Team, list[int], list[Booleans]]]:
        """Gangs and affinities, with their tasks and the machines of each domain."""
        return [
            (team, [self._position[task] for task in team.tasks], [self._tagged[tag] for tag in team.domains])
            for team in self.task_rules.teams
        ]

    @cached_property
    def limits(self) -> list[tuple[list[int], Booleans, int]]:
        """Tasks, machines and limit of each domain of a spread."""
        limits = self.task_rules.limits
        return [([self._position[task] for task in x.tasks], self._tagged[x.tag], x.most) for x in limits]

    @cached_property
    def _position(self) -> dict[str, int]:
        return {view.task.name: t for t, view in enumerate(self.views)}

    @cached_property
    def _tagged(self) -> dict[str, Booleans]:
        """(M,) machines with a tag, for the tags of all domains."""
        machines = self.instance.machines
        return {tag: np.array([tag in machine.tags for machine in machines], bool) for tag in self.task_rules.tags}

    def columns(self, at: Integers) -> Floats:
        """Values of the statement's variables for (T,) machines of tasks, -1 for none."""
        c, blocks, columns = self.classes, self.base.program.variable_blocks, self.base.columns
        found = np.zeros(self.base.program.column_count)
        runs = at >= 0
        counts = np.zeros(self.may.shape)
        np.add.at(counts, (c.task[runs], c.machine[at[runs]]), 1)
        found[blocks["x"].columns] = counts[c.pairs.task, c.pairs.machine]
        found[blocks["waits"].columns] = c.tasks - counts.sum(axis=1)
        if "short" in blocks:
            few = np.bincount(self.job[c.task[runs]], minlength=len(self.instance.jobs))
            j = columns["short"].codes["job"]
            found[blocks["short"].columns] = np.maximum(self.schedule.shares[j, 0] - few[j], 0)
        if "slot" in blocks:
            index, held = columns["slot"], np.bincount(at[runs], minlength=len(c.machine))
            used = index.codes["machine"]
            number = np.array(index.levels["slot"], np.int64)[index.codes["slot"]]
            filled = {p: held[c.machine == p] for p in np.unique(used).tolist()}
            found[blocks["slot"].columns] = [
                int((filled[p] >= n).sum()) for p, n in zip(used.tolist(), number.tolist(), strict=True)
            ]
        self._teams(found, at)
        return found

    def _teams(self, found: Floats, at: Integers) -> None:
        """Values of the variables of gangs and affinities."""
        blocks, values = self.base.program.variable_blocks, dict[str, list[bool]]()
        for team, tasks, masks in self.teams:
            there = at[tasks][at[tasks] >= 0]
            if team.whole:
                values.setdefault("gang", []).append(bool(len(there)))
            inside = (bool(len(there) and mask[there].all()) for mask in masks)
            values.setdefault(f"{team.kind}_domain", []).extend(inside)
        for name, each in values.items():
            if each:
                found[blocks[name].columns] = each

    def counts(self, values: Floats) -> Integers:
        """(K, P) tasks of each class on each kind."""
        found = np.zeros(self.may.shape, np.int64)
        x = np.rint(values[self.base.program.variable_blocks["x"].columns]).astype(np.int64)
        found[self.classes.pairs.task, self.classes.pairs.machine] = x
        return found

    def sizes_overfull(self, values: Floats, known: Collection[Size], most: int) -> list[Size]:
        """Size rows violated by fractional values: per kind and resource, the capacity and the most violated other."""
        c, pairs = self.classes, self.classes.pairs
        running = np.zeros(self.may.shape)
        running[pairs.task, pairs.machine] = values[self.base.program.variable_blocks["x"].columns]
        demand, found = self.resources.demand[c.first_task], []
        for r in range(len(self.resources.names)):
            capacity = self.resources.capacity[c.first_machine, r]
            few = np.unique(np.concatenate([capacity // (n + 1) + 1 for n in range(1, 9)]))
            sizes = np.union1d(np.unique(demand[:, r]), few)
            least = self.resources.smallest_size[r]
            sizes = np.concatenate([np.array([least], sizes.dtype), sizes[sizes > least]])
            taken = (demand[None, :, r] // sizes[:, None]).astype(np.int64) @ running
            there = c.machines * (capacity // sizes[:, None]).astype(np.int64)
            over = (taken - there) / np.maximum(there, 1)
            worst = np.argmax(over, axis=0)
            for p in range(len(capacity)):
                for s in {0, int(worst[p])}:
                    if taken[s, p] - there[s, p] > 1e-6 * max(1, there[s, p]):
                        found.append((float(over[s, p]), Size(p, r, int(sizes[s]))))
        found.sort(key=lambda each: (-each[0], each[1]))
        return [size for _, size in found if size not in known][:most]
