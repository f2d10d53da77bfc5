"""Flow scheduling as an integer program: assignment variables, rows of machines, shares and rules, and stages.

It has a variable for every task and machine that may run it; the network uses groups of machines instead. Shares of
jobs are data: they are computed from the cluster in advance, and changes of the model do not alter them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flowlex.formulations.linear_expression import Expression, Variables
from flowlex.formulations.program_arrays import Floats
from flowlex.instances.flow import FlowInstance, Machine
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.integer_resources import Resources
from flowlex.models.flow.network import ScheduleNetwork
from flowlex.models.flow.task_and_machine_classes import Classes
from flowlex.models.flow.task_rules import TaskRules, Team
from flowlex.models.solution import ModelError
from flowlex.models.statement.rows_and_objectives import Stage, Statement
from flowlex.models.statement.variable_labels import Index

#: Largest integer up to which double precision is exact.
_EXACT = 2**53
_LEVELS = ("task", "machine", "job", "rack")


def label_levels(machines: Sequence[Machine]) -> dict[str, list[str]]:
    """Further levels of machines: the values of ``key=value`` labels, and yes or no for each plain label.

    If a name is already in use (``rack``, or a plain label equal to a key), ``_label`` is appended.
    """
    found: dict[str, list[str]] = {}
    for label in dict.fromkeys(label for machine in machines for label in machine.labels):
        key, has_value, _ = label.partition("=")
        if has_value and key not in found:
            found[key] = ["+".join(x[len(key) + 1 :] for x in m.labels if x.startswith(f"{key}=")) for m in machines]
    for label in dict.fromkeys(label for machine in machines for label in machine.labels if "=" not in label):
        name = f"{label}_label" if label in found else label
        found[name] = ["yes" if label in machine.labels else "no" for machine in machines]
    return {f"{name}_label" if name in _LEVELS else name: values for name, values in found.items()}


def state_flow(
    instance: FlowInstance,
    rules: Rules,
    schedule: ScheduleNetwork,
    task_rules: TaskRules,
    declared: Collection[str],
    classes: Classes | None = None,
) -> Statement:
    """Return the statement of an instance under its goals.

    With ``classes``, variables count the tasks of a class on machines of a kind, named by their first members; the
    capacities are then added by `with_sizes`.
    """
    single = Classes.of(instance, rules, task_rules, schedule.views, None) if classes is None else classes
    return _Builder(instance, rules, schedule, task_rules, declared, single).build(counts=classes is not None)


@dataclass(eq=False)
class _Builder:
    instance: FlowInstance
    rules: Rules
    schedule: ScheduleNetwork
    task_rules: TaskRules
    declared: Collection[str]
    classes: Classes

    def __post_init__(self) -> None:
        instance, classes = self.instance, self.classes
        needed = {"task": "a task runs on one machine or waits"}
        self.s = Statement.start(instance.name, self.declared, needed)
        self.machines = [instance.machines[m] for m in classes.first_machine.tolist()]
        self.names = [m.name for m in self.machines]
        self.views = [self.schedule.views[t] for t in classes.first_task.tolist()]
        self.tasks = [view.task.name for view in self.views]
        self.job_names = [job.name for job in instance.jobs]
        at = {name: k for k, name in enumerate(self.job_names)}
        self.job = np.array([at[view.job] for view in self.views], np.int64)
        number = {view.task.name: k for k, view in enumerate(self.schedule.views)}
        self.class_of = {name: int(classes.task[t]) for name, t in number.items()}
        self.count = np.array([len(job.tasks) for job in instance.jobs], np.int64)

    def build(self, *, counts: bool) -> Statement:
        """Variables and rows, then stages."""
        s, c, task, machine = self.s, self.classes, self.classes.pairs.task, self.classes.pairs.machine
        labels = label_levels(self.machines)
        racks = [m.rack for m in self.machines]
        index = Index.coded(
            task=(self.tasks, task), machine=(self.names, machine), job=(self.job_names, self.job[task])
        )
        further = {"rack": racks, **labels}
        each = Index.of(**{name: [values[m] for m in machine.tolist()] for name, values in further.items()})
        index = Index({**index.levels, **each.levels}, {**index.codes, **each.codes}, len(task), ("task", "machine"))
        slots = np.array([m.slots for m in self.machines], np.int64) * c.machines
        most = np.minimum(c.tasks[task], slots[machine]) if counts else 1
        self.x = s.variables("x", index, upper=most, integer=True)
        jobs = Index.coded(task=(self.tasks, np.arange(len(self.tasks))), job=(self.job_names, self.job))
        self.waits = s.variables("waits", jobs.named_by("task"), upper=c.tasks, integer=True)
        run = self.x.sum_by(task, len(self.tasks))
        s.constrain("task", run + self.waits, "==", c.tasks, Index.of(task=list(self.tasks)))
        self._slots()
        self._jobs()
        self._apart()
        scale = 1 if counts else self._capacities()
        self._ties()
        return replace(s.with_stages(*self._stages()), scales={"capacity": Fraction(scale)} if scale != 1 else {})

    def _slots(self) -> None:
        """Add the rows ``machine``, and variables by slot if slots have prices."""
        machine, times = self.classes.pairs.machine, self.classes.machines
        used = np.unique(machine)
        index = Index.of(machine=[self.names[m] for m in used.tolist()])
        inside = self.x.sum_by(np.searchsorted(used, machine), len(used))
        self.slot_costs: list[int] = []
        self.slots: Variables | None = None
        if not self.rules.prices_slots(self.machines):
            slots = np.array([self.machines[m].slots for m in used.tolist()], np.int64)
            self.s.constrain("machine", inside, "<=", slots * times[used], index)
            return
        at, number = list[int](), list[int]()
        for k, m in enumerate(used.tolist()):
            most = int(self.count.sum())
            unit = [c for n, c in self.rules.slot_costs(self.machines[m]) for _ in range(min(n, most))]
            for slot, cost in enumerate(unit[:most], 1):
                at.append(k)
                number.append(slot)
                self.slot_costs.append(cost)
        names = [self.names[used[k]] for k in at]
        racks = [self.machines[used[k]].rack for k in at]
        labels = Index.of(machine=names, slot=number, rack=racks).named_by("machine", "slot")
        self.slots = self.s.variables("slot", labels, upper=times[used[np.array(at, np.int64)]], integer=True)
        filled = self.slots.sum_by(np.array(at, np.int64), len(used))
        self.s.constrain("machine", inside - filled, "==", 0, index)

    def _jobs(self) -> None:
        """Add the rows of shares and preemption limits of jobs."""
        views, shares = self.views, self.schedule.shares
        waiting = self.waits.sum_by(self.job, len(self.job_names))
        most = shares[:, 1].copy()
        for j, _, beyond in self.schedule.gates.tolist():
            most[j] = max(most[j], beyond)
        self.short: Variables | None = None
        some = np.flatnonzero(shares[:, 0] > 0)
        if len(some):
            index = Index.of(job=[self.job_names[j] for j in some.tolist()])
            self.short = self.s.variables("short", index, upper=shares[some, 0], integer=True)
            self.s.constrain("unscheduled", waiting[some] - self.short, "<=", self.count[some] - shares[some, 0], index)
        full = np.flatnonzero(most < self.count)
        index = Index.of(job=[self.job_names[j] for j in full.tolist()])
        self.s.constrain("share", waiting[full], ">=", (self.count - most)[full], index)
        gated = np.flatnonzero([view.held for view in views])
        rows = self.schedule.gates[:, 0].tolist()
        stops = _sums(len(rows), self.waits, ((rows.index(int(self.job[t])), t) for t in gated.tolist()))
        index = Index.of(job=[self.job_names[j] for j in rows])
        self.s.constrain("preempted", stops, "<=", self.schedule.gates[:, 1], index)

    def _apart(self) -> None:
        """Add the rows of ``different_machines``: at most one task of a rule per machine."""
        pairs = self.classes.pairs
        rows: dict[tuple[str, int], int] = {}
        terms = []
        for k, (t, m) in enumerate(zip(pairs.task.tolist(), pairs.machine.tolist(), strict=True)):
            if rule := self.views[t].apart:
                terms.append((rows.setdefault((rule, m), len(rows)), k))
        index = Index.of(rule=[rule for rule, _ in rows], machine=[self.names[m] for _, m in rows])
        most = self.classes.machines[[m for _, m in rows]]
        self.s.constrain("apart", _sums(len(rows), self.x, terms), "<=", most, index)

    def _capacities(self) -> int:
        """Add the rows ``capacity``, scaled to integers; return the factor."""
        instance, task, machine = self.instance, self.classes.pairs.task, self.classes.pairs.machine
        resources = Resources.of(instance)
        scale = math.lcm(1, *(unit.denominator for unit in resources.units))
        factor = np.array([int(unit * scale) for unit in resources.units], object)
        exact = resources.demand * factor, resources.capacity * factor
        if max(each.max(initial=0) for each in exact) > _EXACT:
            raise ModelError("capacities and demands have no common unit that is exact; write them with fewer digits")
        asked, there = (each.astype(np.float64) for each in exact)
        used = np.unique(machine)
        rows = [(m, r) for m in used.tolist() for r in range(len(instance.resources))]
        each = len(instance.resources)
        parts = []
        for r in range(each):
            amount = asked[task, r]
            some = np.flatnonzero(amount)
            row = np.searchsorted(used, machine[some]) * each + r
            parts.append(Expression(row, self.x.column[some], amount[some], np.zeros(len(rows))))
        if parts:
            index = Index.of(
                machine=[self.names[m] for m, _ in rows], resource=[instance.resources[r] for _, r in rows]
            )
            sides = [there[m, r] for m, r in rows]
            self.s.constrain("capacity", sum(parts[1:], parts[0]), "<=", sides, index)
        return scale

    def _ties(self) -> None:
        """Gangs, affinities and spreads."""
        s, gangs = self.s, [team for team in self.task_rules.teams if team.whole]
        if gangs:
            runs = s.variables("gang", Index.of(gang=[team.name for team in gangs]), upper=1, integer=True)
            of = [(g, k) for g, team in enumerate(gangs) for k in self._members(team.tasks)]
            count = self.classes.tasks[[k for _, k in of]]
            waits = _sums(len(of), self.waits, ((row, k) for row, (_, k) in enumerate(of)))
            whole = _sums(len(of), runs, ((row, g) for row, (g, _) in enumerate(of)))
            s.constrain("gang", waits + whole * count, "==", count, Index.of(task=[self.tasks[k] for _, k in of]))
            self._domains([team for team in gangs if team.domains], "gang_within", runs)
        self._domains([team for team in self.task_rules.teams if not team.whole], "within", None)
        limits = [each for each in self.task_rules.limits if each.most < len(each.tasks)]
        terms = [
            (row, place)
            for row, limit in enumerate(limits)
            for k in self._members(limit.tasks)
            for place in self._inside.get((k, limit.tag), ())
        ]
        index = Index.of(spread=[each.spread for each in limits], domain=[each.tag for each in limits])
        s.constrain("spread", _sums(len(limits), self.x, terms), "<=", [each.most for each in limits], index)

    def _members(self, tasks: Sequence[str]) -> list[int]:
        """Classes of tasks without duplicates; a rule applies to all tasks of a class or to none."""
        return list(dict.fromkeys(self.class_of[task] for task in tasks))

    @cached_property
    def _inside(self) -> Mapping[tuple[int, str], list[int]]:
        """Positions in ``x`` by (class with rules, domain tag of the machine)."""
        found: dict[tuple[int, str], list[int]] = defaultdict(list)
        on = [sorted(self.task_rules.tags & machine.tags) for machine in self.machines]
        tied, pairs = {self.class_of[task] for task in self.task_rules.tasks}, self.classes.pairs
        for at, (k, m) in enumerate(zip(pairs.task.tolist(), pairs.machine.tolist(), strict=True)):
            for tag in on[m] if k in tied else ():
                found[k, tag].append(at)
        return found

    def _domains(self, teams: Sequence[Team], name: str, runs: Variables | None) -> None:
        """Add the rows that keep the tasks of a gang or affinity in one domain."""
        if not teams:
            return
        kind, relation = teams[0].kind, "<=" if runs is None else "=="
        pairs = [(g, tag) for g, team in enumerate(teams) for tag in team.domains]
        index = Index.of(**{kind: [teams[g].name for g, _ in pairs], "domain": [tag for _, tag in pairs]})
        chosen = self.s.variables(f"{kind}_domain", index, upper=1, integer=True)
        rows = [(p, k) for p, (g, _) in enumerate(pairs) for k in self._members(teams[g].tasks)]
        inside = [(r, at) for r, (p, k) in enumerate(rows) for at in self._inside.get((k, pairs[p][1]), ())]
        of = _sums(len(rows), chosen, ((r, p) for r, (p, _) in enumerate(rows)))
        labels = Index.of(domain=[pairs[p][1] for p, _ in rows], task=[self.tasks[k] for _, k in rows])
        most = of * self.classes.tasks[[k for _, k in rows]]
        here = _sums(len(rows), self.x, inside)
        self.s.constrain(name, here - most, relation, 0, labels)  # type: ignore[arg-type]
        total = _sums(len(teams), chosen, ((g, p) for p, (g, _) in enumerate(pairs)))
        mine = Index.of(**{kind: [team.name for team in teams]})
        if runs is None:
            self.s.constrain(f"{name}_one", total, "<=", 1, mine)
            return
        at = {team.name: g for g, team in enumerate(team for team in self.task_rules.teams if team.whole)}
        one = _sums(len(teams), runs, ((g, at[team.name]) for g, team in enumerate(teams)))
        self.s.constrain(f"{name}_one", total - one, "==", 0, mine)

    def _stages(self) -> list[Stage]:
        """Shortfall of shares, waiting tasks by class, costs by rank."""
        stages = [] if self.short is None else [Stage("shortfall", self.short.sum())]
        level = np.array([self.rules.level(view.priority) for view in self.views], np.int64)
        for each in sorted(set(level[level > 0].tolist()), reverse=True):
            stages.append(Stage(f"waiting_{each}", self.waits[level == each].sum()))
        waiting = [self.rules.waiting(view) for view in self.views]
        parts = [(self.x, self._ranks(self.classes.pairs.cost)), (self.waits, self._ranks(waiting))]
        if self.slots is not None:
            parts.append((self.slots, self._ranks(self.slot_costs)))
        names = ("cost",) if self.rules.order is None else self.rules.order.names
        for rank, name in enumerate(names):
            terms = [(variables * cost[rank]).sum() for variables, cost in parts]
            stages.append(Stage(name, sum(terms[1:], terms[0])))
        return stages

    def _ranks(self, costs: Sequence[int]) -> Floats:
        """(ranks, n) costs; raise `ModelError` if they are not exact in double precision."""
        order = self.rules.order
        found = np.array([list(costs)], object) if order is None else order.columns(costs).astype(object)
        if any(abs(cost) > _EXACT for cost in found.ravel().tolist()):
            raise ModelError(
                f"a cost beyond {_EXACT} of 1/{self.rules.scale.factor} cannot be stated; use larger units"
            )
        return found.astype(np.float64)


def _sums(count: int, of: Variables, terms: Iterable[tuple[int, int]]) -> Expression:
    """Return sums of variables by row, (count,), from pairs of a row and an index into ``of``."""
    row, at = np.array(list(terms), np.int64).reshape(-1, 2).T
    return Expression(row, of.column[at], np.ones(len(row)), np.zeros(count))


class Size(NamedTuple):
    """Slots of ``size`` units of a resource on the machines of a kind."""

    machine: int
    resource: int
    size: int


def with_sizes(statement: Statement, classes: Classes, resources: Resources, sizes: Sequence[Size]) -> Statement:
    """Return the statement by classes with rows ``size`` for its capacities.

    With slots of size d, a capacity C has ``floor(C / d)`` slots, and a task with demand q takes ``floor(q / d)``. The
    row is valid because a sum of rounded-down terms is at most the rounded-down sum. If d is the unit, it is the
    capacity; if d is the demand of a class, it bounds the number of tasks. Source: Chvatal-Gomory; the sizes are ours.
    """
    program = statement.program.copy()
    x, pairs = program.variable("x"), classes.pairs
    rows, columns, values = [], [], []
    for row, (m, r, size) in enumerate(sizes):
        asked = resources.demand[classes.first_task[pairs.task], r] // size
        taken = asked.astype(np.int64) * (pairs.machine == m)
        some = np.flatnonzero(taken)
        rows.append(np.full(len(some), row))
        columns.append(x.column[some])
        values.append(taken[some].astype(np.float64))
    there = [int(classes.machines[m] * (resources.capacity[classes.first_machine[m], r] // d)) for m, r, d in sizes]
    expression = Expression(np.concatenate(rows), np.concatenate(columns), np.concatenate(values), np.zeros(len(sizes)))
    names = [statement.columns["x"].levels["machine"][m] for m, _, _ in sizes]
    texts = [str(size * resources.units[r]) for _, r, size in sizes]
    index = Index.of(machine=names, resource=[resources.names[r] for _, r, _ in sizes], size=texts)
    found = replace(statement, program=program, rows=dict(statement.rows))
    found.constrain("size", expression, "<=", there, index)
    return found
