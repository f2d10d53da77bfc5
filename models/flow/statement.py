"""Flow scheduling as a statement: each task on a machine or waiting, rows of machines, shares and rules, stages.

It names every pair of a task and a machine that may run it, where the network goes through groups of machines. Shares
of jobs are data: they are computed from the cluster before the goals, and changes do not alter them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from flowlex.formulations.arrays import Floats, Integers
from flowlex.formulations.expression import Expression, Variables
from flowlex.instances.exact import rational
from flowlex.instances.flow import FlowInstance, Machine
from flowlex.models.answer import ModelError
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.goals.base import ClusterView
from flowlex.models.flow.network import ScheduleNetwork
from flowlex.models.flow.task_rules.gangs_and_spreads import Bonds, Team
from flowlex.models.statement.labels import Index
from flowlex.models.statement.statement import Stage, Statement

__all__ = ["label_levels", "state_flow"]

#: Pairs of a task and a machine in one statement.
_PAIRS = 2_000_000
#: Larger whole numbers are not exact in double precision.
_EXACT = 2**53
_LEVELS = ("task", "machine", "job", "rack")


def label_levels(machines: Sequence[Machine]) -> dict[str, list[str]]:
    """Further levels of machines: the values of ``key=value`` labels, and yes or no for each plain label.

    A name that is taken (``rack``, or a plain label beside a key) ends in ``_label``.
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
    instance: FlowInstance, rules: Rules, schedule: ScheduleNetwork, bonds: Bonds, declared: Collection[str]
) -> Statement:
    """The statement of an instance under its goals."""
    return _Builder(instance, rules, schedule, bonds, declared).build()


@dataclass(eq=False)
class _Builder:
    instance: FlowInstance
    rules: Rules
    schedule: ScheduleNetwork
    bonds: Bonds
    declared: Collection[str]

    def __post_init__(self) -> None:
        instance = self.instance
        needed = {"task": "a task runs on one machine or waits"}
        self.s = Statement.start(instance.name, self.declared, needed)
        self.machines = [m.name for m in instance.machines]
        self.tasks = [view.task.name for view in self.schedule.views]
        self.job_names = [job.name for job in instance.jobs]
        at = {name: k for k, name in enumerate(self.job_names)}
        self.job = np.array([at[view.job] for view in self.schedule.views], np.int64)
        self.position = {name: k for k, name in enumerate(self.tasks)}
        self.count = np.bincount(self.job, minlength=len(at)).astype(np.int64)

    def build(self) -> Statement:
        """Variables and rows, then stages."""
        s, (task, machine, _) = self.s, self.pairs
        labels = label_levels(self.instance.machines)
        racks = [m.rack for m in self.instance.machines]
        index = Index.coded(
            task=(self.tasks, task), machine=(self.machines, machine), job=(self.job_names, self.job[task])
        )
        further = {"rack": racks, **labels}
        each = Index.of(**{name: [values[m] for m in machine.tolist()] for name, values in further.items()})
        index = Index({**index.levels, **each.levels}, {**index.codes, **each.codes}, len(task), ("task", "machine"))
        self.x = s.variables("x", index, upper=1, integer=True)
        jobs = Index.coded(task=(self.tasks, np.arange(len(self.tasks))), job=(self.job_names, self.job))
        self.waits = s.variables("waits", jobs.named_by("task"), upper=1, integer=True)
        s.constrain("task", self.x.sum_by(task, len(self.tasks)) + self.waits, "==", 1, Index.of(task=list(self.tasks)))
        self._slots()
        self._jobs()
        self._apart()
        scale = self._capacities()
        self._ties()
        return replace(s.with_stages(*self._stages()), scales={"capacity": Fraction(scale)} if scale != 1 else {})

    @cached_property
    def pairs(self) -> tuple[Integers, Integers, list[int]]:
        """Task, machine and cost (of all ranks, weighted) of every pair that may run."""
        cluster, number = ClusterView(), {name: k for k, name in enumerate(self.machines)}
        for each in self.instance.machines:
            cluster.add(each)
        tasks, machines, costs = list[int](), list[int](), list[int]()
        for k, view in enumerate(self.schedule.views):
            found = self.rules.everywhere(view, cluster)
            inside = self.bonds.machines(view.task.name)
            for name in sorted(found, key=number.__getitem__):
                if cluster.machines[name].slots and (inside is None or name in inside):
                    tasks.append(k)
                    machines.append(number[name])
                    costs.append(found[name])
            if len(tasks) > _PAIRS:
                raise ModelError(
                    f"{self.instance.name}: a changed model names every task on every machine, here more than "
                    f"{_PAIRS} pairs; use a smaller instance, or leave the model unchanged"
                )
        return np.array(tasks, np.int64), np.array(machines, np.int64), costs

    def _slots(self) -> None:
        """Rows ``machine``; where slots have prices, variables by slot."""
        instance, (_, machine, _) = self.instance, self.pairs
        used = np.unique(machine)
        index = Index.of(machine=[self.machines[m] for m in used.tolist()])
        inside = self.x.sum_by(np.searchsorted(used, machine), len(used))
        self.slot_costs: list[int] = []
        self.slots: Variables | None = None
        if not self.rules.prices_slots(instance.machines):
            self.s.constrain("machine", inside, "<=", [instance.machines[m].slots for m in used.tolist()], index)
            return
        at, number = list[int](), list[int]()
        for k, m in enumerate(used.tolist()):
            unit = [c for n, c in self.rules.slot_costs(instance.machines[m]) for _ in range(min(n, len(self.tasks)))]
            for slot, cost in enumerate(unit[: len(self.tasks)], 1):
                at.append(k)
                number.append(slot)
                self.slot_costs.append(cost)
        names = [self.machines[used[k]] for k in at]
        racks = [instance.machines[used[k]].rack for k in at]
        slots = Index.of(machine=names, slot=number, rack=racks).named_by("machine", "slot")
        self.slots = self.s.variables("slot", slots, upper=1, integer=True)
        filled = self.slots.sum_by(np.array(at, np.int64), len(used))
        self.s.constrain("machine", inside - filled, "==", 0, index)

    def _jobs(self) -> None:
        """Shares of jobs, and how many of their running tasks may stop."""
        views, shares = self.schedule.views, self.schedule.shares
        waiting = self.waits.sum_by(self.job, len(self.job_names))
        held = np.bincount(self.job, weights=[view.held for view in views], minlength=len(self.count)).astype(np.int64)
        most = shares[:, 1].copy()
        for j, may in self.schedule.gates.tolist():
            most[j] = max(most[j], int(held[j]) - may)
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
        stops = self._sum((rows.index(int(self.job[t])), self.waits, t) for t in gated.tolist())
        index = Index.of(job=[self.job_names[j] for j in rows])
        self.s.constrain("preempted", stops(len(rows)), "<=", self.schedule.gates[:, 1], index)

    @staticmethod
    def _sum(terms: Any) -> Any:
        """Sums of single variables by row, from (row, variables, position); to be called with the number of rows."""
        listed = list(terms)

        def made(rows: int) -> Expression:
            row = np.array([r for r, _, _ in listed], np.int64)
            column = np.array([of.column[k] for _, of, k in listed], np.int64)
            return Expression(row, column, np.ones(len(listed)), np.zeros(rows))

        return made

    def _apart(self) -> None:
        """Tasks that share ``different_machines`` run on different machines."""
        task, machine, _ = self.pairs
        rows: dict[tuple[str, str], int] = {}
        terms = []
        for k, (t, m) in enumerate(zip(task.tolist(), machine.tolist(), strict=True)):
            if rule := self.schedule.views[t].apart:
                terms.append((rows.setdefault((rule, self.machines[m]), len(rows)), self.x, k))
        index = Index.of(rule=[rule for rule, _ in rows], machine=[m for _, m in rows])
        self.s.constrain("apart", self._sum(terms)(len(rows)), "<=", 1, index)

    def _capacities(self) -> int:
        """Rows ``capacity``, multiplied by the factor that makes them whole, which is returned."""
        instance, (task, machine, _) = self.instance, self.pairs
        asked = [[rational(v.task.demands.get(r, 0)) for r in instance.resources] for v in self.schedule.views]
        there = [[rational(m.capacity.get(r, 0)) for r in instance.resources] for m in instance.machines]
        scale = math.lcm(1, *(q.denominator for row in (*asked, *there) for q in row))
        if any(q * scale > _EXACT for row in (*asked, *there) for q in row):
            raise ModelError("capacities and demands have no common unit that is exact; write them with fewer digits")
        used = np.unique(machine)
        rows = [(m, r) for m in used.tolist() for r in range(len(instance.resources))]
        each = len(instance.resources)
        parts = []
        for r in range(each):
            amount = np.array([float(asked[t][r] * scale) for t in task.tolist()])
            some = np.flatnonzero(amount)
            row = np.searchsorted(used, machine[some]) * each + r
            parts.append(Expression(row, self.x.column[some], amount[some], np.zeros(len(rows))))
        if parts:
            index = Index.of(
                machine=[self.machines[m] for m, _ in rows], resource=[instance.resources[r] for _, r in rows]
            )
            sides = [float(there[m][r] * scale) for m, r in rows]
            self.s.constrain("capacity", sum(parts[1:], parts[0]), "<=", sides, index)
        return scale

    def _ties(self) -> None:
        """Gangs, affinities and spreads."""
        s, gangs = self.s, [team for team in self.bonds.teams if team.whole]
        if gangs:
            runs = s.variables("gang", Index.of(gang=[team.name for team in gangs]), upper=1, integer=True)
            of = [(g, task) for g, team in enumerate(gangs) for task in team.tasks]
            both = [(k, self.waits, self.position[task]) for k, (_, task) in enumerate(of)]
            both += [(k, runs, g) for k, (g, _) in enumerate(of)]
            s.constrain("gang", self._sum(both)(len(of)), "==", 1, Index.of(task=[task for _, task in of]))
            self._domains([team for team in gangs if team.domains], "gang_within", [runs[g] for g in range(len(gangs))])
        self._domains([team for team in self.bonds.teams if not team.whole], "within", None)
        limits = [each for each in self.bonds.limits if each.most < len(each.tasks)]
        terms = [
            (k, self.x, place)
            for k, limit in enumerate(limits)
            for task in limit.tasks
            for place in self._inside.get((task, limit.tag), ())
        ]
        index = Index.of(spread=[each.spread for each in limits], domain=[each.tag for each in limits])
        s.constrain("spread", self._sum(terms)(len(limits)), "<=", [each.most for each in limits], index)

    @cached_property
    def _inside(self) -> Mapping[tuple[str, str], list[int]]:
        """Positions in ``x`` of a tied task on the machines with a tag of a domain."""
        found: dict[tuple[str, str], list[int]] = defaultdict(list)
        tags = {tag for team in self.bonds.teams for tag in team.domains} | {each.tag for each in self.bonds.limits}
        on = [sorted(tags & machine.tags) for machine in self.instance.machines]
        task, machine, _ = self.pairs
        for k, (t, m) in enumerate(zip(task.tolist(), machine.tolist(), strict=True)):
            if self.tasks[t] in self.bonds.tasks:
                for tag in on[m]:
                    found[self.tasks[t], tag].append(k)
        return found

    def _domains(self, teams: Sequence[Team], name: str, runs: list[Variables] | None) -> None:
        """The one domain that the tasks of a gang, or of an affinity, keep to."""
        if not teams:
            return
        kind, relation = teams[0].kind, "<=" if runs is None else "=="
        pairs = [(k, tag) for k, team in enumerate(teams) for tag in team.domains]
        index = Index.of(**{kind: [teams[k].name for k, _ in pairs], "domain": [tag for _, tag in pairs]})
        chosen = self.s.variables(f"{kind}_domain", index, upper=1, integer=True)
        rows = [(p, task) for p, (k, _) in enumerate(pairs) for task in teams[k].tasks]
        inside = [
            (r, self.x, at) for r, (p, task) in enumerate(rows) for at in self._inside.get((task, pairs[p][1]), ())
        ]
        of = self._sum((r, chosen, p) for r, (p, _) in enumerate(rows))
        labels = Index.of(domain=[pairs[p][1] for p, _ in rows], task=[task for _, task in rows])
        self.s.constrain(name, self._sum(inside)(len(rows)) - of(len(rows)), relation, 0, labels)  # type: ignore[arg-type]
        total = self._sum((k, chosen, p) for p, (k, _) in enumerate(pairs))(len(teams))
        mine = Index.of(**{kind: [team.name for team in teams]})
        if runs is None:
            self.s.constrain(f"{name}_one", total, "<=", 1, mine)
            return
        at = {team.name: k for k, team in enumerate(team for team in self.bonds.teams if team.whole)}
        one = self._sum((k, runs[at[team.name]], 0) for k, team in enumerate(teams))
        self.s.constrain(f"{name}_one", total - one(len(teams)), "==", 0, mine)

    def _stages(self) -> list[Stage]:
        """Shortfall of shares, waiting tasks by class, costs by rank."""
        stages = [] if self.short is None else [Stage("shortfall", self.short.sum())]
        level = np.array([self.rules.level(view.priority) for view in self.schedule.views], np.int64)
        for each in sorted(set(level[level > 0].tolist()), reverse=True):
            stages.append(Stage(f"waiting_{each}", self.waits[level == each].sum()))
        waiting = [self.rules.waiting(view) for view in self.schedule.views]
        parts = [(self.x, self._ranks(self.pairs[2])), (self.waits, self._ranks(waiting))]
        if self.slots is not None:
            parts.append((self.slots, self._ranks(self.slot_costs)))
        names = ("cost",) if self.rules.order is None else self.rules.order.names
        for rank, name in enumerate(names):
            terms = [(variables * cost[rank]).sum() for variables, cost in parts]
            stages.append(Stage(name, sum(terms[1:], terms[0])))
        return stages

    def _ranks(self, costs: Sequence[int]) -> Floats:
        """(ranks, n) costs, which double precision must hold."""
        order = self.rules.order
        found = np.array([list(costs)], object) if order is None else order.columns(costs).astype(object)
        if any(abs(cost) > _EXACT for cost in found.ravel().tolist()):
            raise ModelError(
                f"a cost beyond {_EXACT} of 1/{self.rules.scale.factor} cannot be stated; use larger units"
            )
        return found.astype(np.float64)
