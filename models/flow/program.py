"""The integer program of an instance with capacities or task rules: counts of classes on kinds, and what they mean."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowlex.formulations.arrays import Booleans, Floats, Integers
from flowlex.instances.flow import FlowInstance
from flowlex.models.base import ModelError
from flowlex.models.flow.amounts import Amounts
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.classes import Classes
from flowlex.models.flow.goals.base import TaskView
from flowlex.models.flow.network import ScheduleNetwork
from flowlex.models.flow.statement import Size, state_flow, with_sizes
from flowlex.models.flow.task_rules import TaskRules
from flowlex.models.statement.statement import Statement

__all__ = ["CountedProgram"]

#: Sums of costs beyond this are not exact in an integer program's floating point.
_EXACT = 2**52


@dataclass(frozen=True, eq=False)
class CountedProgram:
    """The statement of classes, and everything by task and machine that greedy schedules need.

    Attributes
    ----------
    base
        All rows but those of capacities.
    """

    instance: FlowInstance
    rules: Rules
    schedule: ScheduleNetwork
    task_rules: TaskRules
    amounts: Amounts | None
    classes: Classes
    base: Statement

    @classmethod
    def of(
        cls,
        instance: FlowInstance,
        rules: Rules,
        schedule: ScheduleNetwork,
        task_rules: TaskRules,
        declared: Collection[str],
        classes: Classes | None = None,
    ) -> CountedProgram:
        """State an instance in counts; ``classes`` where they are known.

        Raises
        ------
        ModelError
            Costs add up to more than floating point holds exactly, or there are too many pairs.
        """
        amounts = Amounts.of(instance) if instance.resources else None
        if classes is None:
            classes = Classes.alike(instance, rules, task_rules, schedule.views, amounts)
        base = state_flow(instance, rules, schedule, task_rules, declared, classes)
        found = cls(instance, rules, schedule, task_rules, amounts, classes, base)
        sizes = np.maximum(np.abs(found.cost).max(axis=2, initial=0), np.abs(found.wait_cost)) @ classes.tasks
        if sizes.max(initial=0) > _EXACT:
            raise ModelError(
                f"costs add up to {sizes.max():.3g}, more than an integer program holds exactly ({_EXACT:.3g}); use a "
                "larger unit of cost"
            )
        return found

    def with_machines_apart(self, declared: Collection[str]) -> CountedProgram:
        """The same with every machine alone."""
        if (self.classes.machines == 1).all():
            return self
        classes = self.classes.with_machines_apart()
        return CountedProgram.of(self.instance, self.rules, self.schedule, self.task_rules, declared, classes)

    def with_sizes(self, sizes: Sequence[Size]) -> Statement:
        """The statement with rows for these sizes."""
        if self.amounts is None or not sizes:
            return self.base
        return with_sizes(self.base, self.classes, self.amounts, sizes)

    @cached_property
    def capacities(self) -> list[Size]:
        """Every capacity that tasks could overfill."""
        if self.amounts is None:
            return []
        wanted = self.amounts.demand.sum(axis=0)
        has = self.amounts.capacity[self.classes.first_machine]
        return [Size(int(p), int(r), 1) for p, r in np.argwhere(has < wanted)]

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
    def members(self) -> list[list[int]]:
        """Tasks of each class."""
        found: list[list[int]] = [[] for _ in self.classes.tasks]
        for t, k in enumerate(self.classes.task.tolist()):
            found[k].append(t)
        return found

    @cached_property
    def job(self) -> Integers:
        """(K,) job of each class."""
        at = {job.name: j for j, job in enumerate(self.instance.jobs)}
        return np.array([at[self.views[t].job] for t in self.classes.first_task.tolist()], np.int64)

    @cached_property
    def level(self) -> Integers:
        """(K,) class of waiting in the strict order, 0 where waiting has a price."""
        firsts = self.classes.first_task.tolist()
        return np.array([self.rules.level(self.views[t].priority) for t in firsts], np.int64)

    @cached_property
    def most_running(self) -> Integers:
        """(J,) most running tasks of each job."""
        most = self.schedule.shares[:, 1].copy()
        held = np.bincount(self.job[self.classes.task], weights=[v.held for v in self.views], minlength=len(most))
        for j, may in self.schedule.gates.tolist():
            most[j] = max(most[j], int(held[j]) - may)
        found: Integers = np.maximum(most, held.astype(np.int64))
        return found

    @cached_property
    def may(self) -> Booleans:
        """(K, P) which classes may run where."""
        found = np.zeros((len(self.classes.tasks), len(self.classes.machines)), bool)
        found[self.classes.pairs.task, self.classes.pairs.machine] = True
        return found

    def _by_rank(self, block: str) -> Floats:
        """(ranks, n) costs of variables by rank."""
        columns = self.base.program.variable_blocks[block].columns
        total = self.base.program.column_count
        ranks = 1 if self.rules.order is None else len(self.rules.order.names)
        return np.stack([stage.cost(total)[columns] for stage in self.base.stages[-ranks:]])

    @cached_property
    def cost(self) -> Floats:
        """(ranks, K, P) cost of a task of each class on each kind."""
        each = self._by_rank("x")
        found = np.zeros((len(each), *self.may.shape))
        found[:, self.classes.pairs.task, self.classes.pairs.machine] = each
        return found

    @cached_property
    def wait_cost(self) -> Floats:
        """(ranks, K) cost of waiting."""
        return self._by_rank("waits")

    @cached_property
    def _slots(self) -> Floats | None:
        """(ranks, P, n) cost of the next slot of a machine on which n tasks run."""
        if "slot" not in self.base.columns:
            return None
        index, each = self.base.columns["slot"], self._by_rank("slot")
        number = np.array(index.levels["slot"], np.int64)[index.codes["slot"]]
        used = np.unique(self.classes.pairs.machine)
        found = np.zeros((len(each), len(self.classes.machines), int(number.max(initial=0)) + 1))
        found[:, used[index.codes["machine"]], number - 1] = each
        return found

    def slot_cost(self, kinds: Integers, held: Integers) -> Floats:
        """(ranks, n) cost of the next slot of machines of these kinds that run so many tasks."""
        if self._slots is None:
            return np.zeros((len(self.cost), len(kinds)))
        return self._slots[:, kinds, np.minimum(held, self._slots.shape[2] - 1)]

    @cached_property
    def _position(self) -> dict[str, int]:
        return {view.task.name: t for t, view in enumerate(self.views)}

    @cached_property
    def team_of(self) -> dict[int, tuple[bool, list[int], list[Booleans]]]:
        """Of each task in a gang or affinity: whether it is a gang, its tasks, and the machines of each domain."""
        found: dict[int, tuple[bool, list[int], list[Booleans]]] = {}
        for team in self.task_rules.teams:
            tasks = [self._position[task] for task in team.tasks]
            masks = [np.array([tag in m.tags for m in self.instance.machines], bool) for tag in team.domains]
            found |= dict.fromkeys(tasks, (team.whole, tasks, masks))
        return found

    @cached_property
    def teams_whole(self) -> list[tuple[list[int], list[Booleans]]]:
        """Tasks and domains of each gang."""
        return [(of[1], of[2]) for t, of in self.team_of.items() if of[0] and t == of[1][0]]

    @cached_property
    def limits(self) -> list[tuple[Booleans, int]]:
        """Machines and limit of each domain of a spread."""
        machines = self.instance.machines
        return [(np.array([x.tag in m.tags for m in machines], bool), x.most) for x in self.task_rules.limits]

    @cached_property
    def limits_of(self) -> list[list[int]]:
        """Numbers of the `limits` of each task."""
        found: list[list[int]] = [[] for _ in self.views]
        for number, limit in enumerate(self.task_rules.limits):
            for task in limit.tasks:
                found[self._position[task]].append(number)
        return found

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
            names = [job.name for job in self.instance.jobs]
            j = np.array([names.index(str(job)) for job in columns["short"].levels["job"]], np.int64)
            found[blocks["short"].columns] = np.maximum(self.schedule.shares[j, 0] - few[j], 0)
        if "slot" in blocks:
            index, held = columns["slot"], np.bincount(at[runs], minlength=len(c.machine))
            used = np.unique(c.pairs.machine)[index.codes["machine"]]
            number = np.array(index.levels["slot"], np.int64)[index.codes["slot"]]
            filled = {p: held[c.machine == p] for p in np.unique(used).tolist()}
            found[blocks["slot"].columns] = [
                int((filled[p] >= n).sum()) for p, n in zip(used.tolist(), number.tolist(), strict=True)
            ]
        self._teams(found, at)
        return found

    def _teams(self, found: Floats, at: Integers) -> None:
        """Values of the variables of gangs and affinities."""
        blocks = self.base.program.variable_blocks
        gangs = [team for team in self.task_rules.teams if team.whole]
        there = {
            (team.kind, team.name): {int(at[self._position[task]]) for task in team.tasks} - {-1}
            for team in self.task_rules.teams
        }
        if "gang" in blocks:
            found[blocks["gang"].columns] = [bool(there["gang", team.name]) for team in gangs]
        machines = self.instance.machines
        for kind in ("gang", "affinity"):
            if f"{kind}_domain" in blocks:
                labels = self.base.columns[f"{kind}_domain"].labels()
                on = ((there[kind, str(name)], str(tag)) for name, tag in labels)
                found[blocks[f"{kind}_domain"].columns] = [
                    bool(those) and all(tag in machines[m].tags for m in those) for those, tag in on
                ]

    def counts(self, values: Floats) -> Integers:
        """(K, P) tasks of each class on each kind."""
        found = np.zeros(self.may.shape, np.int64)
        x = np.rint(values[self.base.program.variable_blocks["x"].columns]).astype(np.int64)
        found[self.classes.pairs.task, self.classes.pairs.machine] = x
        return found

    def sizes_overfull(self, values: Floats, known: Collection[Size], most: int) -> list[Size]:
        """Sizes that fractional values overfill: of each kind and resource the capacity, and the worst other one."""
        if self.amounts is None:
            return []
        c, pairs = self.classes, self.classes.pairs
        running = np.zeros(self.may.shape)
        running[pairs.task, pairs.machine] = values[self.base.program.variable_blocks["x"].columns]
        demand, found = self.amounts.demand[c.first_task], []
        for r in range(len(self.amounts.names)):
            capacity = self.amounts.capacity[c.first_machine, r]
            few = np.unique(np.concatenate([capacity // (n + 1) + 1 for n in range(1, 9)]))
            sizes = np.union1d(np.unique(demand[:, r]), few)
            sizes = np.concatenate([[1], sizes[sizes > 1]])
            taken = (demand[None, :, r] // sizes[:, None]) @ running
            there = c.machines * (capacity // sizes[:, None])
            over = (taken - there) / np.maximum(there, 1)
            worst = np.argmax(over, axis=0)
            for p in range(len(capacity)):
                for s in {0, int(worst[p])}:
                    if taken[s, p] - there[s, p] > 1e-6 * max(1, there[s, p]):
                        found.append((float(over[s, p]), Size(p, r, int(sizes[s]))))
        found.sort(key=lambda each: (-each[0], each[1]))
        return [size for _, size in found if size not in known][:most]
