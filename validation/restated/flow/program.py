"""Flow scheduling in exact numbers, from the instance: pairs of a task and a machine.

Columns: ``x[task, machine]`` where a task may run, ``waits[task]``, ``slot[machine, k]`` if slots have costs, ``short``
by job below its share; ``gang``, ``gang_domain`` and ``affinity_domain`` of rules.

Rows: a ``task`` runs on one machine or waits; ``machine``: slots; ``apart``: different machines; ``capacity``;
``unscheduled`` and ``share``: most and least waiting tasks of a job; ``preempted``: limits of preemption; ``gang``,
``gang_within``, ``within``, ``spread``.

Objectives in order: ``shortfall`` of shares, ``waiting_k`` by class of priority, then costs by rank.

A cluster of many pairs is never written out. Of each task only the columns are made that are cheapest at the
multipliers of some leaf. With the multipliers of ``task`` completed, all others have reduced costs of at least 0 there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.block_labels import label_text
from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import FlowInstance
from flowlex.validation.certificates.exact_numbers import wide
from flowlex.validation.proofs.exact_program import Exact, ExactProgram, Labels, Whole, common_unit, narrow, scaled
from flowlex.validation.proofs.program_builder import ProgramBuilder, texts_at
from flowlex.validation.restated.flow.data_locality_costs import distinct
from flowlex.validation.restated.flow.goal_costs import Problem

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Pairs = tuple[Ints, Ints]
#: A row: label, coefficients by column, side.
Listed = tuple[str, Mapping[int, int], int]
#: Levels of the statement, which labels of machines cannot be.
_LEVELS = {"task", "machine", "job", "rack", "slot", "rule", "resource", "gang", "affinity", "spread", "domain"}
#: Most pairs of task and machine in one array.
_AT_ONCE = 2**21


class FlowStatement:
    """The instance under its goals and shares, from which programs over some of its pairs are made."""

    def __init__(self, problem: Problem, shares: Sequence[Sequence[int]]) -> None:
        self.problem, self.instance, self.ties = problem, problem.instance, problem.ties
        self.tasks: Ints = np.arange(len(problem.tasks))
        self.least, self.most = np.array(shares, np.int64).reshape(-1, 2).T
        self.most = np.maximum(self.most, np.array(problem.beyond, np.int64))
        self.size: Ints = np.array([len(job.tasks) for job in self.instance.jobs], np.int64)
        self.names = problem.names
        self.machine_names = [machine.name for machine in self.instance.machines]
        self.job_names = [job.name for job in self.instance.jobs]
        #: Tasks of which fewer machines than those of their class fit.
        self.special: Mask = problem.held.copy()
        self.special[list(self.ties.inside)] = True

    # ---- where tasks may run

    def may(self, task: Ints, machine: Ints) -> Mask:
        """(k,) whether tasks, in their order, may run on machines."""
        problem, found = self.problem, np.zeros(len(task), bool)
        for wishes, inside in problem.classes:
            mine = slice(*np.searchsorted(task, (inside.start, inside.stop)))
            if mine.start < mine.stop:
                found[mine] = problem.fits(wishes)[machine[mine]]
        for t in np.unique(task[self.special[task]]).tolist():
            mine = slice(*np.searchsorted(task, (t, t + 1)))
            if problem.held[t]:
                found[mine] &= machine[mine] == problem.own[t]
            if t in self.ties.inside:
                found[mine] &= self.ties.inside[t][machine[mine]]
        return found

    def every(self, tasks: Ints) -> Iterator[Pairs]:
        """All pairs of some tasks, in parts."""
        machines = np.arange(len(self.machine_names))
        step = max(1, _AT_ONCE // max(1, len(machines)))
        for part in (tasks[k : k + step] for k in range(0, len(tasks), step)):
            yield self._allowed(np.repeat(part, len(machines)), np.tile(machines, len(part)))

    def _allowed(self, task: Ints, machine: Ints) -> Pairs:
        may = self.may(task, machine)
        return task[may], machine[may]

    @cached_property
    def amounts(self) -> tuple[Whole, Whole, Fraction]:
        """(T, R) and (M, R) what tasks ask for and machines may hold of each resource, and the unit of these numbers.

        What tasks ask for are multiples of a common unit, and so is what a machine holds: no more than fits of these.
        """
        problem, machines, names = self.problem, self.instance.machines, self.problem.resources
        asks = [[rational(task.demands.get(r, 0)) for r in names] for task in problem.tasks]
        each = [common_unit(value for value in column if value) for column in zip(*asks, strict=True)]
        each = each or [Fraction(1)] * len(names)
        has = [[rational(m.capacity.get(r, 0)) // u * u for r, u in zip(names, each, strict=True)] for m in machines]
        both = Exact.of([value for row in (*asks, *has) for value in row])
        first = len(asks) * len(names)
        tables = both.numbers[:first], both.numbers[first:]
        return tables[0].reshape(len(asks), len(names)), tables[1].reshape(len(machines), len(names)), both.unit

    @cached_property
    def pair_count(self) -> int:
        """At least the number of columns ``x``."""
        classes = self.problem.classes
        return sum((tasks.stop - tasks.start) * int(self.problem.fits(wishes).sum()) for wishes, tasks in classes)

    def all_pairs(self) -> Pairs:
        """Tasks and machines of all columns ``x``, by task."""
        none = np.zeros(0, np.int64)
        task, machine = zip((none, none), *self.every(self.tasks), strict=True)
        return np.concatenate(task), np.concatenate(machine)

    def cheapest(self, weights: Mapping[str, int], price: Whole, apart: Mapping[int, Mapping[int, int]]) -> Pairs:
        """Pairs that include the cheapest machine of each task, at weights of the ranks and prices of machines.

        ``apart``: further prices of machines by rule of different machines. Of machines that a task does not know, one
        of the least price is enough, as it reads at the same cost from all of them; so it is in racks that it knows.
        """
        problem, locality = self.problem, self.problem.locality
        slow = self.special | np.isin(problem.apart, list(apart))
        slow[list(problem.explicit)] = True
        found: list[Pairs] = []
        for wishes, tasks in problem.classes:
            inside = np.flatnonzero(problem.fits(wishes))
            if not len(inside):
                continue
            total = self.weighed(price, problem.preference(wishes), weights)[inside]
            every = np.arange(tasks.start, tasks.stop)
            found.append((every, np.full(len(every), inside[np.argmin(total)])))
            if locality is not None:
                order = inside[np.lexsort((total, problem.rack[inside]))]
                racks, first = np.unique(problem.rack[order], return_index=True)
                best = np.full(int(problem.rack.max()) + 1, -1)
                best[racks] = order[first]
                rows = locality.racks.among(tasks.start, tasks.stop)
                found.append((rows.task, best[rows.place]))
        for task, machine in self.every(np.flatnonzero(slow)):
            cost = wide(self.weighed(price[machine], problem.costs(task, machine), weights))
            for t in np.unique(task[np.isin(problem.apart[task], list(apart))]).tolist():
                mine, more = slice(*np.searchsorted(task, (t, t + 1))), apart[int(problem.apart[t])]
                extra = wide(narrow([more.get(m, 0) for m in machine[mine].tolist()]))
                cost = cost.astype(object) if extra.dtype == object else cost
                cost[mine] += extra
            order = np.lexsort((cost, task))
            task, machine = task[order], machine[order]
            first = np.unique(task, return_index=True)[1]
            found.append((task[first], machine[first]))
        return self.together(found)

    @staticmethod
    def weighed(price: Whole, costs: Mapping[str, Whole], weights: Mapping[str, int]) -> Whole:
        """(k,) prices and weighted costs, added up exactly."""
        total: Whole = price
        for rank, cost in costs.items():
            if weights.get(rank):
                total = wide(total) + wide(scaled(cost, weights[rank]))
        return total

    @cached_property
    def known_pairs(self) -> Pairs:
        """Pairs that differ from all others of their tasks: machines that a task knows, or has costs of."""
        problem = self.problem
        stay = np.flatnonzero(problem.staying)
        explicit = [(t, m) for t, costs in problem.explicit.items() for m in costs]
        said = np.array(explicit, np.int64).reshape(-1, 2).T
        found = [(stay, problem.own[stay]), (said[0], said[1])]
        if problem.locality is not None:
            rows = problem.locality.machines.where(problem.locality.machines.known)
            found.append((rows.task, rows.place))
        return self.together(found)

    def together(self, parts: Iterable[Pairs]) -> Pairs:
        """All of these pairs that may be, each once, by task."""
        parts, machines = list(parts), max(1, len(self.machine_names))
        task, machine = (np.concatenate([np.zeros(0, np.int64), *(each[k] for each in parts)]) for k in (0, 1))
        keys = distinct((task * machines + machine)[machine >= 0])
        return self._allowed(*np.divmod(keys, machines))


class FlowProgram:
    """The program over some pairs of task and machine, by task; ``whole``: these are all pairs; ``priced``: with costs.

    ``program`` is it in exact numbers; `values` says what a schedule means in its columns.
    """

    def __init__(self, of: FlowStatement, pairs: Pairs, *, whole: bool, priced: bool = True) -> None:
        self.of, self.problem, (self.task, self.machine) = of, of.problem, pairs
        self.to = ProgramBuilder()
        problem, machines = self.problem, of.machine_names
        self.x = np.arange(len(self.task))
        self.first: Ints = np.searchsorted(self.task, of.tasks)
        self.last: Ints = np.searchsorted(self.task, of.tasks, side="right")
        most = np.minimum(1, problem.slots[self.machine])
        texts = lambda: texts_at((of.names, self.task), (machines, self.machine))  # noqa: E731
        self.to.columns("x", lambda: list(self._levels()), len(self.x), texts=texts, upper=most)
        self.waits = self._columns("waits", self._waits, np.ones(len(of.tasks), np.int64), texts=lambda: of.names)
        machine, number, self.slot_prices = problem.slot_costs
        used = np.isin(np.arange(len(machines)), self.machine) if whole else np.ones(len(machines), bool)
        self.kept = np.flatnonzero(used[machine])  # slots with columns
        self.slot_machine, self.slot_number = machine[self.kept], number[self.kept]
        if self.slot_prices:
            self.slot = self._columns("slot", self._slots, np.ones(len(self.kept), np.int64), keys=("machine", "slot"))
        self.claims = np.flatnonzero(of.least > 0)
        if len(self.claims):
            mine = [{"job": of.job_names[j]} for j in self.claims.tolist()]
            self.short = self._columns("short", lambda: mine, of.least[self.claims])
        self._rules_of_slots()
        self._rules_of_jobs()
        self._rules_of_tasks()
        self._objectives(step=0 if whole else 1, priced=priced)
        self.program: ExactProgram = self.to.program(tolerance=0)

    # ---- columns

    def _columns(self, name: str, labels: Callable[[], Sequence[Labels]], upper: Ints, **more: Any) -> Ints:
        return self.to.columns(name, labels, len(upper), upper=upper, **more) + np.arange(len(upper))

    def _waits(self) -> list[dict[str, str]]:
        jobs = self.problem.job.tolist()
        return [{"task": t, "job": self.of.job_names[j]} for t, j in zip(self.of.names, jobs, strict=True)]

    def _levels(self) -> Iterator[dict[str, str]]:
        of, jobs = self.of, self.problem.job.tolist()
        machines = [
            {"machine": m.name, "rack": m.rack, **labels}
            for m, labels in zip(of.instance.machines, _labels(of.instance), strict=True)
        ]
        for t, m in zip(self.task.tolist(), self.machine.tolist(), strict=True):
            yield {"task": of.names[t], "job": of.job_names[jobs[t]], **machines[m]}

    def _slots(self) -> list[dict[str, Any]]:
        each = zip(self.slot_machine.tolist(), self.slot_number.tolist(), strict=True)
        machines = self.of.instance.machines
        return [{"machine": machines[m].name, "slot": k + 1, "rack": machines[m].rack} for m, k in each]

    def values(self, at: Ints) -> tuple[Exact, list[int]]:
        """Values of all columns of a schedule, (T,) machine of each task or -1, and tasks where they may not run."""
        of, x = self.of, np.zeros(self.to.count, np.int64)
        runs, machines = np.flatnonzero(at >= 0), max(1, len(self.of.machine_names))
        keys = self.task * machines + self.machine
        wanted = runs * machines + at[runs]
        place = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
        there = keys[place] == wanted if len(keys) else np.zeros(len(runs), bool)
        np.add.at(x, place[there], 1)
        x[self.waits] = at < 0
        held = np.bincount(at[runs], minlength=machines)
        if self.slot_prices:
            machine, number, _ = self.problem.slot_costs
            depth = int(number.max(initial=0)) + 1
            filled = np.flatnonzero(held[machine] > number)
            kept = self.slot_machine * depth + self.slot_number
            mine = machine[filled] * depth + number[filled]
            mine = mine[np.isin(mine, kept)]
            np.add.at(x, self.slot[np.searchsorted(kept, mine)], 1)
        if len(self.claims):
            running = np.bincount(self.problem.job[runs], minlength=len(of.size))
            x[self.short] = np.maximum(of.least - running, 0)[self.claims]
        for kind, teams in self._teams.items():
            for k, team in enumerate(teams):
                here = at[team.tasks][at[team.tasks] >= 0]
                if kind == "gang":
                    x[self.gangs[k]] = bool(len(here))
                for tag, mask in team.domains if len(here) else ():
                    if tag and mask[here].all():
                        x[self.domains[kind][team.name, tag]] = 1
        return Exact(x), runs[~there].tolist()

    # ---- rows

    def _listed(self, name: str, relation: str, rows: Iterable[Listed]) -> None:
        """Rows from label, terms and side of each."""
        for label, terms, side in rows:
            self.to.row(name, label, terms, relation, side)

    def _rules_of_slots(self) -> None:
        of, problem = self.of, self.problem
        once, one = ((self.task, self.x, 1), (of.tasks, self.waits, 1)), np.ones(len(of.tasks), np.int64)
        self.to.rows("task", "==", lambda: of.names, one, *once, empty=True)
        machines = np.flatnonzero(problem.slots > 0)
        self.machines = machines
        names, row = texts_at((of.machine_names, machines)), np.searchsorted(machines, self.machine)
        inside = row, self.x, 1
        if self.slot_prices:
            filled = np.searchsorted(machines, self.slot_machine), self.slot, -1
            self.to.rows("machine", "==", names, 0, inside, filled, empty=True)
        else:
            self.to.rows("machine", "<=", names, problem.slots[machines], inside, empty=True)
        mine = problem.apart[self.task]
        ruled = np.flatnonzero(mine >= 0)
        size = max(1, len(of.machine_names))
        keys, at = np.unique(mine[ruled] * size + self.machine[ruled], return_inverse=True)
        #: Number of the rule of different machines, and machine, of each row ``apart``.
        self.apart = [divmod(k, size) for k in keys.tolist()]
        labels = [label_text((problem.rules[rule], of.machine_names[m])) for rule, m in self.apart]
        self.to.rows("apart", "<=", labels, np.ones(len(keys), np.int64), (at, ruled, 1))
        if not problem.resources:
            return
        asks, has, unit = of.amounts
        taken, kinds = asks[self.task], len(problem.resources)
        pair, resource = np.nonzero(taken)
        self.to.rows(
            "capacity",
            "<=",
            lambda: [label_text((name, each)) for name in names for each in problem.resources],
            Exact(has[machines].ravel(), unit),
            (row[pair] * kinds + resource, self.x[pair], Exact(taken[pair, resource], unit)),
            empty=True,
        )

    def _rules_of_jobs(self) -> None:
        of, problem, jobs = self.of, self.problem, self.of.job_names
        job = problem.job

        def of_jobs(
            name: str, relation: str, some: Ints, side: Ints, chosen: Mask, *more: tuple[Ints, Ints, Any]
        ) -> None:
            at = np.full(len(jobs), -1)
            at[some] = np.arange(len(some))
            mine = np.flatnonzero(chosen & (at[job] >= 0))
            self.to.rows(name, relation, texts_at((jobs, some)), side, (at[job[mine]], self.waits[mine], 1), *more)

        every = np.ones(len(job), bool)
        claims = self.claims
        if len(claims):
            less = np.arange(len(claims)), self.short, -1
            of_jobs("unscheduled", "<=", claims, (of.size - of.least)[claims], every, less)
        limited = np.flatnonzero(of.most < of.size)
        of_jobs("share", ">=", limited, (of.size - of.most)[limited], every)
        held, may = np.array(problem.gates, np.int64).reshape(-1, 2).T
        gated = np.flatnonzero(held)
        of_jobs("preempted", "<=", gated, may[gated], problem.held)

    @cached_property
    def _teams(self) -> dict[str, list[Any]]:
        return {kind: [team for team in self.of.ties.teams if team.kind == kind] for kind in ("gang", "affinity")}

    def _rules_of_tasks(self) -> None:
        of, self.domains = self.of, defaultdict[str, dict[tuple[str, str], int]](dict)
        self.gangs: Ints = np.zeros(0, np.int64)

        def inside(k: int, mask: Mask) -> dict[int, int]:
            mine = np.arange(self.first[k], self.last[k])
            return dict.fromkeys(mine[mask[self.machine[mine]]].tolist(), 1)

        for kind, name in (("gang", "gang_within"), ("affinity", "within")):
            teams = self._teams[kind]
            runs: dict[str, int] = {}
            if kind == "gang" and teams:
                names = [team.name for team in teams]
                self.gangs = self.to.columns("gang", [{"gang": each} for each in names]) + np.arange(len(teams))
                runs = dict(zip(names, self.gangs.tolist(), strict=True))
                every: list[Listed] = []
                for team in teams:
                    every += [(of.names[k], {int(self.waits[k]): 1, runs[team.name]: 1}, 1) for k in team.tasks]
                self._listed("gang", "==", every)
            pairs = [(team, tag, mask) for team in teams for tag, mask in team.domains if tag]
            if not pairs:
                continue
            start = self.to.columns(f"{kind}_domain", [{kind: team.name, "domain": tag} for team, tag, _ in pairs])
            here, one = list[Listed](), defaultdict[str, dict[int, int]](dict)
            for column, (team, tag, mask) in enumerate(pairs, start):
                self.domains[kind][team.name, tag] = column
                one[team.name][column] = 1
                here += [(label_text((tag, of.names[k])), {**inside(k, mask), column: -1}, 0) for k in team.tasks]
            relation = "==" if runs else "<="
            self._listed(name, relation, here)
            once = (
                (team, {**terms, runs[team]: -1} if runs else terms, 0 if runs else 1) for team, terms in one.items()
            )
            self._listed(f"{name}_one", relation, once)
        limits = (
            (label_text((spread.name, tag)), {c: 1 for k in spread.tasks for c in inside(k, mask)}, most)
            for spread in of.ties.spreads
            for tag, (mask, most) in spread.domains.items()
            if most is not None and most < len(spread.tasks)
        )
        self._listed("spread", "<=", limits)

    # ---- objectives

    def _objectives(self, *, step: int, priced: bool) -> None:
        problem = self.problem
        if len(self.claims):
            self.to.objective("shortfall", (self.short, 1), step=step)
        level = np.array(problem.levels, np.int64)[problem.job]
        for each in sorted({*level[level > 0].tolist()}, reverse=True):
            self.to.objective(f"waiting_{each}", (self.waits[level == each], 1), step=step)
        costs = problem.costs(self.task, self.machine) if priced else {}
        for rank in problem.goals.ranks:
            terms = [(self.x, costs[rank])] if priced else []
            if priced and rank in problem.waiting:
                terms.append((self.waits, problem.waiting[rank]))
            if priced and rank in self.slot_prices:
                terms.append((self.slot, self.slot_prices[rank][self.kept]))
            self.to.objective(rank, *terms, step=step)


def _labels(instance: FlowInstance) -> Iterator[dict[str, str]]:
    """Further levels of each machine: values by key, yes or no by plain label; taken names end in ``_label``."""
    every = [label for machine in instance.machines for label in machine.labels]
    keys = {label.split("=", 1)[0] for label in every if "=" in label}
    plain = {label for label in every if "=" not in label}

    def free(name: str) -> str:
        return f"{name}_label" if name in _LEVELS else name

    for machine in instance.machines:
        split = [label.split("=", 1) for label in machine.labels if "=" in label]
        found = {free(key): "+".join(value for k, value in split if k == key) for key in keys}
        for label in plain:
            found[free(f"{label}_label" if label in keys else label)] = "yes" if label in machine.labels else "no"
        yield {name: value for name, value in found.items() if name and not set(name) & set("[]\n\r\t")}
