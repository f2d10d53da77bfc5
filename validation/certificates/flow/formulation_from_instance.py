"""Flow scheduling stated from the instance: every pair of a task and a machine, or counts of identical ones."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import FlowInstance
from flowlex.instances.model_changes import Changes
from flowlex.validation.certificates.certificate import Check, Finding
from flowlex.validation.certificates.flow.equal_groups import Groups
from flowlex.validation.certificates.flow.goal_costs import Problem
from flowlex.validation.certificates.flow.goal_options import Goals
from flowlex.validation.certificates.flow.job_shares import stated_shares
from flowlex.validation.certificates.flow.price_optimality import Prices, Survey, strict
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.certificates.solution_document import Document, Strict, read_as
from flowlex.validation.certificates.statement.rational_linear_program import ExactStatement, Number, Stage
from flowlex.validation.certificates.statement.stage_proof import Bounded, StatedLeaf, least

_REAL_FIELDS = ("rack_cost", "cluster_cost", "base", "rate", "step")


def state_flow(instance: FlowInstance, options: Mapping[str, Any]) -> ExactStatement:
    """The statement of an instance under the goals of a solution file."""
    problem = problem_of(instance, options)
    return _Stated(problem, stated_shares(problem)).statement


def problem_of(instance: FlowInstance, options: Mapping[str, Any]) -> Problem:
    """The instance under the goals of a solution file, in the least unit of its costs."""
    goals = Goals.of(options)
    if goals.foreign:
        raise ValueError(f"{goals.foreign}: no file holds what it costs, so a changed model with it cannot be judged")
    return Problem(instance, options, options.get("scale") or _scale(instance, goals, options))


class StageWeights(Strict):
    """Weight of each stage in the objective; None if that is the value of the last stage."""

    weights: dict[str, int] | None


def weighted_objective(document: Document, instance: FlowInstance, _: Changes, finding: Finding) -> Finding:
    """The finding with the weighted sum of the stages as its objective, as in the unchanged model."""
    weights = read_as(StageWeights, {"weights": document.answer.get("weights")}, "answer").weights
    if weights is None or finding.objective is None:
        return finding
    problem = problem_of(instance, document.options)
    survey, ranks = Survey(problem), problem.goals.ranks
    waiting = [f"waiting_{level}" for level in sorted({*problem.levels} - {0}, reverse=True)]
    if missing := sorted({"shortfall", *waiting, *ranks, *finding.stages} - weights.keys()):
        raise ValueError(f"weights: {', '.join(missing)} have none")
    why = strict(weights, waiting, ranks, {rank: survey.swing(rank) for rank in ranks})
    check = Check("weights put the stages in strict order", not why, detail=why)
    objective = sum((weights[name] * Fraction(value) for name, value in finding.stages.items()), Fraction(0))
    bound = None if finding.bound is None else objective - Fraction(finding.objective) + Fraction(finding.bound)
    return replace(finding, checks=(*finding.checks, check), objective=objective, bound=bound)


class StatedSize(Strict):
    """A rounding cut: demands for a resource in whole multiples of a size, on machines of a kind."""

    machine: str
    resource: str
    size: str


class CountedProof(Strict):
    """Leaves of each stage over the statement in counts; the members of each class and kind except the first."""

    classes: dict[str, list[str]] = Field(default_factory=dict)
    machines: dict[str, list[str]] = Field(default_factory=dict)
    sizes: list[StatedSize] = Field(default_factory=list)
    stages: dict[str, list[StatedLeaf]] = Field(default_factory=dict)


def counted_bounds(
    problem: Problem, proof: CountedProof, values: Mapping[str, int], shares: Sequence[tuple[int, int]], budget: Budget
) -> Iterator[tuple[Check, str, int | None]]:
    """For every stage with leaves: the check of its bound, its name and its bound (None once the budget is spent).

    Raises `ValueError`: tasks or machines of a stated group differ, or leaves name what does not exist.
    """
    stated = _Stated(problem, shares, Groups.of(problem, proof.classes, proof.machines))
    for each in proof.sizes:
        stated.size(each.machine, each.resource, each.size)
    bounded, before = Bounded(stated.statement), dict[str, tuple[Stage, Number]]()
    known = [stage.name for stage in stated.statement.stages]
    if strange := sorted(proof.stages.keys() - set(known)):
        raise ValueError(f"leaves of stage {strange[0]!r}, which does not exist")
    for stage in stated.statement.stages:
        if budget.spent:
            yield budget.quoted(f"bound of {stage.name}"), stage.name, None
        elif stage.name in proof.stages:
            found = least(bounded, proof.stages[stage.name], stage, before)
            value, text = values[stage.name], "nothing" if found is None else str(found)
            ok = found is None or found <= value
            low = None if found is None else math.ceil(found)
            yield Check(f"bound of {stage.name}", ok, detail=f"at least {text}, here {value}"), stage.name, low
        before[stage.name] = stage, values[stage.name]


def _scale(instance: FlowInstance, goals: Goals, options: Mapping[str, Any]) -> int:
    """The least factor that makes all costs integers."""
    costs: list[Any] = [] if options["wait_cost"] is None else [options["wait_cost"]]
    costs += [goal[name] for goal in goals.by_kind.values() for name in _REAL_FIELDS if name in goal]
    costs += [job.preempt_cost for job in instance.jobs]
    costs += [cost for task in instance.tasks for cost in task.costs.values()]
    if (placement := goals.by_kind.get("Placement")) is not None:
        costs += [c.utility for task in instance.tasks for c in task.constraints]
        costs += [rule.get("utility", 1) for rules in placement["rules"].values() for rule in rules]
    return math.lcm(1, *(rational(cost).denominator for cost in costs))


class _Stated:
    """Builds the statement; columns of pairs by (task, machine).

    With ``groups``, columns count the tasks of a class on the machines of a kind, keyed by the first of each.
    """

    def __init__(self, problem: Problem, shares: Sequence[tuple[int, int]], groups: Groups | None = None) -> None:
        self.problem, self.ties, self.shares = problem, problem.ties, shares
        instance = problem.instance
        self.counting = groups is not None
        self.groups = groups or Groups.single(problem)
        firsts = set(self.groups.tasks)
        at = {task.task.name: t for t, task in enumerate(problem.tasks)}
        self.order = [t for task in instance.tasks if (t := at[task.name]) in firsts]  # the instance's own order
        self.count = {t: len(members) for t, members in self.groups.tasks.items()}
        self.times = {m: len(members) for m, members in self.groups.machines.items()}
        self.first_of = {t: first for first, members in self.groups.tasks.items() for t in members}
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
        tasks = np.array(self.order, np.int64)
        none = Prices(dict.fromkeys(problem.goals.ranks, 0), [0] * len(machines), [])
        survey = Survey(problem)
        _, fits = survey.costs(tasks, none)
        for row, t in enumerate(self.order):
            if t in self.ties.inside:
                fits[row] &= self.ties.inside[t]
            if problem.held[t]:
                fits[row] &= np.arange(len(machines)) == problem.own[t]
        self.cost = {}
        for rank in problem.goals.ranks:
            one = Prices(dict.fromkeys(problem.goals.ranks, 0) | {rank: 1}, [0] * len(machines), [])
            self.cost[rank] = survey.costs(tasks, one)[0]
        if self.counting:
            for row, t in enumerate(self.order):
                asked = {name: rational(amount) for name, amount in problem.tasks[t].task.demands.items()}
                for m in np.flatnonzero(fits[row]).tolist():
                    has = machines[m].capacity
                    fits[row, m] = all(asked.get(r, 0) <= rational(has.get(r, 0)) for r in problem.resources)
            self._require_alike(fits)
        fits &= np.isin(np.arange(len(machines)), list(self.times))
        self.row_of = {t: row for row, t in enumerate(self.order)}
        self.pairs = [(t, m) for row, t in enumerate(self.order) for m in np.flatnonzero(fits[row]).tolist()]
        names = [task.task.name for task in problem.tasks]
        labels = [
            {"task": names[t], "machine": machines[m].name, "job": jobs[problem.tasks[t].job].name, **levels[m]}
            for t, m in self.pairs
        ]
        most = [min(self.count[t], int(problem.slots[m]) * self.times[m]) for t, m in self.pairs]
        s.variables("x", labels, keys=("task", "machine"), upper=most)
        self.x = {pair: k for k, pair in enumerate(self.pairs)}
        waits = [{"task": names[t], "job": jobs[problem.tasks[t].job].name} for t in self.order]
        start = s.variables("waits", waits, keys=("task",), upper=[self.count[t] for t in self.order]).start
        self.waits = {t: start + k for k, t in enumerate(self.order)}
        self.names = names

    def _require_alike(self, fits: NDArray[np.bool_]) -> None:
        """Raise `ValueError` where machines of a kind differ."""
        problem = self.problem
        machine, _, prices = problem.slot_costs
        for first, members in self.groups.machines.items():
            for m in members:
                here, there = (problem.instance.machines[k] for k in (first, m))
                same = here.capacity == there.capacity and here.slots == there.slots
                same = same and bool((fits[:, m] == fits[:, first]).all())
                each = (cost[fits[:, first]] for cost in self.cost.values())
                same = same and all(bool((cost[:, m] == cost[:, first]).all()) for cost in each)
                masks = [mask for team in self.ties.teams for _, mask in team.domains]
                limited = (each for spread in self.ties.spreads for each in spread.domains.values())
                masks += [mask for mask, most in limited if most is not None]
                same = same and all(mask[m] == mask[first] for mask in masks)
                slots = ([each[machine == k].tolist() for each in prices.values()] for k in (first, m))
                if not same or next(slots) != next(slots):
                    raise ValueError(f"machines {here.name!r} and {there.name!r} are not identical")

    def _rows(self) -> None:
        problem, s = self.problem, self.statement
        machines = problem.instance.machines
        self.inside: dict[int, dict[int, int]] = defaultdict(dict)
        for t in self.order:
            terms = {self.waits[t]: 1, **{k: 1 for k in self._of(t).values()}}
            s.row("task", self.names[t], terms, "==", self.count[t])
        for (_, m), column in self.x.items():
            self.inside[m][column] = 1
        self.slots: dict[tuple[int, int], int] = {}
        machine, number, prices = problem.slot_costs
        if prices:
            slots = [(m, k) for m, k in zip(machine.tolist(), number.tolist(), strict=True) if m in self.inside]
            labels = [{"machine": machines[m].name, "slot": k + 1, "rack": machines[m].rack} for m, k in slots]
            times = [self.times[m] for m, _ in slots]
            start = s.variables("slot", labels, keys=("machine", "slot"), upper=times).start
            self.slots = {slot: start + k for k, slot in enumerate(slots)}
        filled: dict[int, dict[int, int]] = defaultdict(dict)
        for (m, _), column in self.slots.items():
            filled[m][column] = -1
        for m, terms in sorted(self.inside.items()):
            if prices:
                s.row("machine", machines[m].name, {**terms, **filled[m]}, "==", 0)
            else:
                s.row("machine", machines[m].name, terms, "<=", machines[m].slots * self.times[m])
            for resource in () if self.counting else problem.resources:
                there = {k: self._asked(k, resource) for k in terms}
                s.row("capacity", f"{machines[m].name},{resource}", there, "<=", self._has(m, resource))
        apart: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
        for (t, m), column in self.x.items():
            if problem.tasks[t].apart:
                apart[problem.tasks[t].apart, m][column] = 1
        for (rule, m), terms in apart.items():
            s.row("apart", f"{rule},{machines[m].name}", terms, "<=", self.times[m])

    def _asked(self, column: int, resource: str) -> Fraction:
        return rational(self.problem.tasks[self.pairs[column][0]].task.demands.get(resource, 0))

    def _has(self, m: int, resource: str) -> Fraction:
        return rational(self.problem.instance.machines[m].capacity.get(resource, 0))

    def size(self, machine: str, resource: str, size: str) -> None:
        """Add a rounding cut: the sum of demands // ``size`` is at most capacity // ``size``."""
        m, unit = self.problem.machine[machine], rational(size)
        if unit <= 0 or resource not in self.problem.resources or m not in self.times:
            raise ValueError(f"slots of {size} {resource} on {machine!r}")
        terms = {k: self._asked(k, resource) // unit for k in self.inside[m]}
        self.statement.row(
            "size", f"{machine},{resource},{size}", terms, "<=", self._has(m, resource) // unit * self.times[m]
        )

    def _of(self, t: int) -> dict[int, int]:
        """Columns of a task by machine."""
        if not hasattr(self, "_by_task"):
            self._by_task: dict[int, dict[int, int]] = defaultdict(dict)
            for (each, m), column in self.x.items():
                self._by_task[each][m] = column
        return self._by_task[t]

    def _shares(self) -> None:
        problem, s, jobs = self.problem, self.statement, self.problem.instance.jobs
        of: dict[int, list[int]] = defaultdict(list)
        for t in self.order:
            of[problem.tasks[t].job].append(t)
        claiming = [j for j, (least, _) in enumerate(self.shares) if least > 0]
        self.short: list[int] = []
        if claiming:
            upper = [self.shares[j][0] for j in claiming]
            block = s.variables("short", [{"job": jobs[j].name} for j in claiming], upper=upper)
            self.short = [block.start + k for k in range(len(claiming))]
        for j, column in zip(claiming, self.short, strict=True):
            terms = {self.waits[t]: 1 for t in of[j]} | {column: -1}
            s.row("unscheduled", jobs[j].name, terms, "<=", len(jobs[j].tasks) - self.shares[j][0])
        for j, (_, most) in enumerate(self.shares):
            held, may = problem.gates[j]
            most, count = max(most, problem.beyond[j]), len(jobs[j].tasks)
            if most < count:
                s.row("share", jobs[j].name, {self.waits[t]: 1 for t in of[j]}, ">=", count - most)
            if held:
                stops = {self.waits[t]: 1 for t in of[j] if problem.held[t]}
                s.row("preempted", jobs[j].name, stops, "<=", may)

    def _members(self, tasks: Sequence[int]) -> list[int]:
        """First tasks of the classes of some tasks."""
        return list(dict.fromkeys(self.first_of[t] for t in tasks))

    def _teams(self) -> None:
        s = self.statement
        for kind, name in (("gang", "gang_within"), ("affinity", "within")):
            teams = [team for team in self.ties.teams if team.kind == kind]
            runs: dict[str, int] = {}
            if kind == "gang" and teams:
                start = s.variables("gang", [{"gang": team.name} for team in teams]).start
                runs = {team.name: start + k for k, team in enumerate(teams)}
                for team in teams:
                    for t in self._members(team.tasks):
                        terms = {self.waits[t]: 1, runs[team.name]: self.count[t]}
                        s.row("gang", self.names[t], terms, "==", self.count[t])
            pairs = [(team, tag, mask) for team in teams for tag, mask in team.domains if tag]
            if not pairs:
                continue
            labels = [{kind: team.name, "domain": tag} for team, tag, _ in pairs]
            start = s.variables(f"{kind}_domain", labels).start
            relation, one = ("==" if runs else "<="), defaultdict[str, dict[int, int]](dict)
            for k, (team, tag, mask) in enumerate(pairs):
                one[team.name][start + k] = 1
                for t in self._members(team.tasks):
                    here = {column: 1 for m, column in self._of(t).items() if mask[m]}
                    s.row(name, f"{tag},{self.names[t]}", {**here, start + k: -self.count[t]}, relation, 0)
            for team_name, terms in one.items():
                if runs:
                    s.row(f"{name}_one", team_name, {**terms, runs[team_name]: -1}, "==", 0)
                else:
                    s.row(f"{name}_one", team_name, terms, "<=", 1)
        for spread in self.ties.spreads:
            for tag, (mask, most) in spread.domains.items():
                if most is not None and most < len(spread.tasks):
                    members = self._members(spread.tasks)
                    terms = {c: 1 for t in members for m, c in self._of(t).items() if mask[m]}
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
            terms = {column: int(self.cost[rank][self.row_of[t], m]) for (t, m), column in self.x.items()}
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
