"""Flow scheduling stated from the instance, for answers of changed models: every pair of a task and a machine."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from flowlex.instances.exact import rational
from flowlex.instances.flow import FlowInstance
from flowlex.validation.certificates.flow.fair_shares import stated_shares
from flowlex.validation.certificates.flow.goal_options import Goals
from flowlex.validation.certificates.flow.goals import Problem
from flowlex.validation.certificates.flow.prices import Prices, Survey
from flowlex.validation.certificates.flow.task_rules import Ties
from flowlex.validation.certificates.statement.program import ExactStatement

__all__ = ["state_flow"]

_REAL_FIELDS = ("rack_cost", "cluster_cost", "base", "rate", "step")


def state_flow(instance: FlowInstance, options: Mapping[str, Any]) -> ExactStatement:
    """The statement of an instance under the goals of a solution file."""
    goals = Goals.of(options)
    if goals.foreign:
        raise ValueError(f"{goals.foreign}: no file holds what it costs, so a changed model with it cannot be judged")
    problem = Problem(instance, options, options.get("scale") or _scale(instance, goals, options))
    return _Stated(problem).statement


def _scale(instance: FlowInstance, goals: Goals, options: Mapping[str, Any]) -> int:
    """The least factor that makes all costs whole."""
    costs: list[Any] = [] if options["wait_cost"] is None else [options["wait_cost"]]
    costs += [goal[name] for goal in goals.by_kind.values() for name in _REAL_FIELDS if name in goal]
    costs += [job.preempt_cost for job in instance.jobs]
    costs += [cost for task in instance.tasks for cost in task.costs.values()]
    if (placement := goals.by_kind.get("Placement")) is not None:
        costs += [c.utility for task in instance.tasks for c in task.constraints]
        costs += [rule.get("utility", 1) for rules in placement["rules"].values() for rule in rules]
    return math.lcm(1, *(rational(cost).denominator for cost in costs))


class _Stated:
    """The statement in the making; columns of pairs by (task, machine)."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.ties = problem, Ties(problem)
        instance = problem.instance
        at = {task.task.name: t for t, task in enumerate(problem.tasks)}
        self.order = [at[task.name] for task in instance.tasks]  # the instance's own order
        self.statement = ExactStatement(problem.goals.ranks[-1], needed=frozenset({"task"}))
        self._declare()
        self._rows()
        self._shares()
        self._teams()
        self._stages()

    def _declare(self) -> None:
        problem, s = self.problem, self.statement
        machines, jobs = problem.instance.machines, problem.instance.jobs
        levels = [{"rack": m.rack, **labels} for m, labels in zip(machines, _labels(problem.instance), strict=True)]
        tasks = np.arange(len(problem.tasks))
        none = Prices(dict.fromkeys(problem.goals.ranks, 0), [0] * len(machines), [])
        survey = Survey(problem)
        _, fits = survey.costs(tasks, none)
        for t, mask in self.ties.inside.items():
            fits[t] &= mask
        for t in np.flatnonzero(problem.held).tolist():
            only = np.zeros(len(machines), bool)
            only[problem.own[t]] = True
            fits[t] &= only
        self.pairs = [(t, m) for t in self.order for m in np.flatnonzero(fits[t]).tolist()]
        names = [task.task.name for task in problem.tasks]
        labels = [
            {"task": names[t], "machine": machines[m].name, "job": jobs[problem.tasks[t].job].name, **levels[m]}
            for t, m in self.pairs
        ]
        s.variables("x", labels, keys=("task", "machine"))
        self.x = {pair: k for k, pair in enumerate(self.pairs)}
        waits = [{"task": names[t], "job": jobs[problem.tasks[t].job].name} for t in self.order]
        start = s.variables("waits", waits, keys=("task",)).start
        self.waits = {t: start + k for k, t in enumerate(self.order)}
        self.names = names
        self.cost = {}
        for rank in problem.goals.ranks:
            one = Prices(dict.fromkeys(problem.goals.ranks, 0) | {rank: 1}, [0] * len(machines), [])
            self.cost[rank] = survey.costs(tasks, one)[0]

    def _rows(self) -> None:
        problem, s = self.problem, self.statement
        machines = problem.instance.machines
        inside: dict[int, dict[int, int]] = defaultdict(dict)
        for t in self.order:
            s.row("task", self.names[t], {self.waits[t]: 1, **{k: 1 for k in self._of(t).values()}}, "==", 1)
        for (_, m), column in self.x.items():
            inside[m][column] = 1
        self.slots: dict[tuple[int, int], int] = {}
        machine, number, prices = problem.slot_costs
        if prices:
            slots = [(m, k) for m, k in zip(machine.tolist(), number.tolist(), strict=True) if m in inside]
            labels = [{"machine": machines[m].name, "slot": k + 1, "rack": machines[m].rack} for m, k in slots]
            start = s.variables("slot", labels, keys=("machine", "slot")).start
            self.slots = {slot: start + k for k, slot in enumerate(slots)}
        filled: dict[int, dict[int, int]] = defaultdict(dict)
        for (m, _), column in self.slots.items():
            filled[m][column] = -1
        for m, terms in sorted(inside.items()):
            if prices:
                s.row("machine", machines[m].name, {**terms, **filled[m]}, "==", 0)
            else:
                s.row("machine", machines[m].name, terms, "<=", machines[m].slots)
            for resource in problem.instance.resources:
                self._capacity(m, resource, inside[m])
        apart: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
        for (t, m), column in self.x.items():
            if problem.tasks[t].apart:
                apart[problem.tasks[t].apart, m][column] = 1
        for (rule, m), terms in apart.items():
            s.row("apart", f"{rule},{machines[m].name}", terms, "<=", 1)

    def _of(self, t: int) -> dict[int, int]:
        """Columns of a task by machine."""
        if not hasattr(self, "_by_task"):
            self._by_task: dict[int, dict[int, int]] = defaultdict(dict)
            for (each, m), column in self.x.items():
                self._by_task[each][m] = column
        return self._by_task[t]

    def _capacity(self, m: int, resource: str, columns: Mapping[int, int]) -> None:
        machine = self.problem.instance.machines[m]
        terms = {k: rational(self.problem.tasks[self.pairs[k][0]].task.demands.get(resource, 0)) for k in columns}
        there: Fraction = rational(machine.capacity.get(resource, 0))
        self.statement.row("capacity", f"{machine.name},{resource}", terms, "<=", there)

    def _shares(self) -> None:
        problem, s, jobs = self.problem, self.statement, self.problem.instance.jobs
        of: dict[int, list[int]] = defaultdict(list)
        for t in self.order:
            of[problem.tasks[t].job].append(t)
        shares = stated_shares(problem)
        claiming = [j for j, (least, _) in enumerate(shares) if least > 0]
        self.short: list[int] = []
        if claiming:
            upper = [shares[j][0] for j in claiming]
            block = s.variables("short", [{"job": jobs[j].name} for j in claiming], upper=upper)
            self.short = [block.start + k for k in range(len(claiming))]
        for j, column in zip(claiming, self.short, strict=True):
            terms = {self.waits[t]: 1 for t in of[j]} | {column: -1}
            s.row("unscheduled", jobs[j].name, terms, "<=", len(of[j]) - shares[j][0])
        for j, (_, most) in enumerate(shares):
            held, may = problem.gates[j]
            most = max(most, held - may) if held else most
            if most < len(of[j]):
                s.row("share", jobs[j].name, {self.waits[t]: 1 for t in of[j]}, ">=", len(of[j]) - most)
            if held:
                stops = {self.waits[t]: 1 for t in of[j] if problem.held[t]}
                s.row("preempted", jobs[j].name, stops, "<=", may)

    def _teams(self) -> None:
        s = self.statement
        for kind, name in (("gang", "gang_within"), ("affinity", "within")):
            teams = [team for team in self.ties.teams if team.kind == kind]
            runs: dict[str, int] = {}
            if kind == "gang" and teams:
                start = s.variables("gang", [{"gang": team.name} for team in teams]).start
                runs = {team.name: start + k for k, team in enumerate(teams)}
                for team in teams:
                    for t in team.tasks:
                        s.row("gang", self.names[t], {self.waits[t]: 1, runs[team.name]: 1}, "==", 1)
            pairs = [(team, tag, mask) for team in teams for tag, mask in team.domains if tag]
            if not pairs:
                continue
            labels = [{kind: team.name, "domain": tag} for team, tag, _ in pairs]
            start = s.variables(f"{kind}_domain", labels).start
            relation, one = ("==" if runs else "<="), defaultdict[str, dict[int, int]](dict)
            for k, (team, tag, mask) in enumerate(pairs):
                one[team.name][start + k] = 1
                for t in team.tasks:
                    here = {column: 1 for m, column in self._of(t).items() if mask[m]}
                    s.row(name, f"{tag},{self.names[t]}", {**here, start + k: -1}, relation, 0)
            for team_name, terms in one.items():
                if runs:
                    s.row(f"{name}_one", team_name, {**terms, runs[team_name]: -1}, "==", 0)
                else:
                    s.row(f"{name}_one", team_name, terms, "<=", 1)
        for spread in self.ties.spreads:
            for tag, (mask, most) in spread.domains.items():
                if most is not None and most < len(spread.tasks):
                    terms = {c: 1 for t in spread.tasks for m, c in self._of(t).items() if mask[m]}
                    s.row("spread", f"{spread.name},{tag}", terms, "<=", most)

    def _stages(self) -> None:
        problem, s = self.problem, self.statement
        if self.short:
            s.stage("shortfall", dict.fromkeys(self.short, 1))
        for level in sorted({level for level in problem.levels if level}, reverse=True):
            mine = [self.waits[t] for t in self.order if problem.levels[problem.tasks[t].job] == level]
            s.stage(f"waiting_{level}", dict.fromkeys(mine, 1))
        machine, number, prices = problem.slot_costs
        slots = list(zip(machine.tolist(), number.tolist(), strict=True))
        for rank in problem.goals.ranks:
            terms = {column: int(self.cost[rank][pair]) for pair, column in self.x.items()}
            waiting = problem.waiting.get(rank)
            if waiting is not None:
                terms |= {column: int(waiting[t]) for t, column in self.waits.items()}
            for slot, cost in zip(slots, prices[rank].tolist(), strict=True) if rank in prices else ():
                if slot in self.slots:
                    terms[self.slots[slot]] = int(cost)
            s.stage(rank, terms)


def _labels(instance: FlowInstance) -> Iterator[dict[str, str]]:
    """Further levels of each machine: values by key, yes or no by plain label; taken names end in ``_label``."""
    every = [label for machine in instance.machines for label in machine.labels]
    keys = {label.split("=", 1)[0] for label in every if "=" in label}
    plain = {label for label in every if "=" not in label}

    def free(name: str) -> str:
        return f"{name}_label" if name in ("task", "machine", "job", "rack") else name

    for machine in instance.machines:
        split = [label.split("=", 1) for label in machine.labels if "=" in label]
        found = {free(key): "+".join(value for k, value in split if k == key) for key in keys}
        for label in plain:
            found[free(f"{label}_label" if label in keys else label)] = "yes" if label in machine.labels else "no"
        yield found
