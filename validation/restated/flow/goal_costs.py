"""Costs of the goals of flow scheduling, by task and machine, from instance and options alone.

All costs are integer multiples of ``1/scale``. A goal prices a task on a machine (placement, locality, continuity),
slots of a machine (spread, chance) or waiting (weighted priority, ``wait_cost``). An explicit cost of a task on a
machine replaces the costs of placement and locality there. Shares bound running tasks; a strict priority orders waiting
ones. Locality is aggregated, see `data_locality_costs`.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import Constraint, FlowInstance, FlowJob, FlowTask
from flowlex.validation.certificates.exact_numbers import Number, wide
from flowlex.validation.proofs.exact_program import narrow, scaled
from flowlex.validation.restated.flow.data_locality_costs import Blocks, Locality, Reach
from flowlex.validation.restated.flow.goal_options import Goals
from flowlex.validation.restated.flow.own_goals import OwnGoal, OwnGoals, Wishes
from flowlex.validation.restated.flow.side_constraints import Ties

_LOWEST = 1000
_OLDEST = 24
_NO_WISHES = Wishes(())
Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


class Problem:
    """The instance under its goals: machines and jobs in its own order, tasks by class of equal wishes.

    ``tasks``, ``job``, ``own``: (T,) tasks, the job of each, and the machine where it runs now or -1. ``classes``:
    where those of each class are among them; ``kind``: (T,) number of the class. ``apart``: (T,) number of the
    different-machines rule among ``rules``, or -1. ``explicit``: by task, its costs by machine.
    """

    def __init__(
        self, instance: FlowInstance, options: Mapping[str, Any], scale: int, given: Sequence[OwnGoal] = ()
    ) -> None:
        self.goals: Goals
        self.scale: int
        self.instance, self.scale, self.goals = instance, scale, Goals.of(options, given)
        self.own_goals: OwnGoals = OwnGoals(self.goals.own, instance, scale)
        jobs, machines = instance.jobs, instance.machines
        self.machine: dict[str, int] = {m.name: k for k, m in enumerate(machines)}
        self.slots: Ints = np.array([m.slots for m in machines], np.int64)
        self.racks: dict[str, int] = {name: r for r, name in enumerate(dict.fromkeys(m.rack for m in machines))}
        self.rack: Ints = np.array([self.racks[m.rack] for m in machines], np.int64)
        #: Resources of which some machine has a capacity.
        self.resources: list[str] = sorted({name for m in machines if m.capacity for name in m.capacity})
        self._labels: dict[str, list[int]] = defaultdict(list)
        for k, m in enumerate(machines):
            for label in set(m.labels):
                self._labels[label].append(k)
        placement, wait = self.goals.by_kind.get("Placement"), options["wait_cost"]
        self._rules = {name: _constraints(rules) for name, rules in (placement or {"rules": {}})["rules"].items()}
        self.placing: int = 0 if placement is None else int(placement["weight"])
        self.wait_cost: int | None = None if wait is None else self.units(wait)
        alike: dict[Wishes, list[tuple[FlowTask, int]]] = {}
        last, group = None, list[tuple[FlowTask, int]]()
        plain = not self._rules and not self.own_goals.goals  # most tasks have no wishes then
        for j, job in enumerate(jobs):
            for task in job.tasks:
                wishes = _NO_WISHES if plain and not task.constraints else self._wishes(task, job)
                if wishes is not last:  # hashing is slow
                    last, group = wishes, alike.setdefault(wishes, [])
                group.append((task, j))
        sizes = [len(tasks) for tasks in alike.values()]
        self.classes: list[tuple[Wishes, slice]] = [
            (wishes, slice(end - size, end)) for wishes, size, end in zip(alike, sizes, accumulate(sizes), strict=True)
        ]
        self.kind: Ints = np.repeat(np.arange(len(sizes)), np.array(sizes, np.int64))
        self.tasks: list[FlowTask] = [task for tasks in alike.values() for task, _ in tasks]
        self.names: list[str] = [task.name for task in self.tasks]
        self.job: Ints = np.array([j for tasks in alike.values() for _, j in tasks], np.int64)
        at = self.machine
        self.own: Ints = np.array([-1 if t.running is None else at[t.running.machine] for t in self.tasks], np.int64)
        self.explicit: dict[int, dict[int, int]] = {
            t: {at[m]: self.units(cost) for m, cost in task.costs.items()}
            for t, task in enumerate(self.tasks)
            if task.costs
        }
        together: Counter[str | None] = Counter()
        for job in jobs:
            together[job.different_machines] += len(job.tasks)
        ruled = [name if name and together[name] > 1 else "" for name in (job.different_machines for job in jobs)]
        self.rules: list[str] = list(dict.fromkeys(name for name in ruled if name))
        number = {"": -1} | {name: k for k, name in enumerate(self.rules)}
        self.apart: Ints = np.array([number[name] for name in ruled], np.int64)[self.job]
        #: (T,) cost of preempting a running task, stated by its job, in the first rank; whether that is limited.
        self.keep: NDArray[Any] = np.where(
            self.own >= 0, narrow([self.units(j.preempt_cost) if j.preempt_cost else 0 for j in jobs])[self.job], 0
        )
        self.limited: Mask = np.array([j.preemptions_per_hour is not None for j in jobs], bool)[self.job]

    def units(self, value: Number) -> int:
        """A cost as an integer number of ``1/scale``."""
        if isinstance(value, int):
            return value * self.scale
        units = rational(value) * self.scale
        if units.denominator != 1:
            raise ValueError(f"a cost of {value} is no whole number of 1/{self.scale}")
        return units.numerator

    def _wishes(self, task: FlowTask, job: FlowJob) -> Wishes:
        rules = task.constraints if "Placement" in self.goals.by_kind else ()
        if self._rules:
            rules = (*rules, *self._rules.get(task.name, ()), *self._rules.get(job.name, ()))
        asked = self.own_goals.number(task)
        return Wishes(rules, asked) if rules or asked else _NO_WISHES

    @cached_property
    def ties(self) -> Ties:
        """The rules over several tasks."""
        return Ties(self.instance, self.names)

    @cached_property
    def levels(self) -> list[int]:
        """Class of every job in the strict order of waiting tasks, larger first; 0 if waiting has a cost instead."""
        goal, jobs = self.goals.by_kind.get("Priority"), self.instance.jobs
        if goal is not None and goal["mode"] == "strict":
            return [_LOWEST - job.priority + 1 for job in jobs]
        return [int(goal is None and self.wait_cost is None)] * len(jobs)

    @cached_property
    def waiting(self) -> dict[str, NDArray[Any]]:
        """By rank, (T,) cost of letting a task wait."""
        found = {self.goals.ranks[0]: np.repeat(narrow([self.wait_cost or 0]), len(self.tasks))}
        for kind, cost in self.own_goals.waiting(self.tasks).items():
            if cost.any():
                _add(found, self.goals.rank(kind), cost)
        goal, jobs = self.goals.by_kind.get("Priority"), self.instance.jobs
        if goal is None or goal["mode"] == "strict":
            return found
        lowest = max((job.priority for job in jobs), default=0) if goal["lowest"] is None else int(goal["lowest"])
        omega, weight, worth = int(goal["omega"]), self.scale * int(goal["weight"]), []
        gap = omega * sum(goal["weights"].values()) + (goal["mode"] == "weighted")
        for task, j in zip(self.tasks, self.job.tolist(), strict=True):
            worth.append(gap * (lowest - jobs[j].priority + 1))
            for name, share in goal["weights"].items():
                demand = rational(task.demands.get(name, 0))
                if demand:
                    worth[-1] -= share * math.floor(omega * demand / rational(goal["limits"][name]))
        _add(found, self.goals.rank("Priority"), scaled(narrow(worth), weight))
        return found

    # Placement ---------------------------------------------------------------------------------------------------
    def having(self, resources: tuple[str, ...]) -> Mask:
        """(M,) machines that have any of the resources."""
        found = np.zeros(len(self.slots), bool)
        for tag in resources:
            if tag.startswith("machine:"):
                found[[self.machine[tag[8:]]] if tag[8:] in self.machine else []] = True
            elif tag.startswith("rack:"):
                found |= self.rack == self.racks.get(tag[5:], -1)
            else:
                found[self._labels.get(tag, [])] = True
        return found

    def fits(self, wishes: Wishes, *, drained: bool = False) -> Mask:
        """(M,) machines with slots (or, if ``drained``, without) that satisfy required and forbidden constraints."""
        found: Mask = ((self.slots > 0) | drained) & ~self.own_goals.rows[wishes.own].forbidden
        for c in wishes.constraints:
            if c.kind in ("required", "forbidden"):
                having = self.having(c.resources)
                found &= having if c.kind == "required" else ~having
        return found

    def preference(self, wishes: Wishes) -> dict[str, NDArray[Any]]:
        """By rank, (M,) cost of machines from a task's preferences and own goals."""
        cost: NDArray[Any] = np.zeros(len(self.slots), np.int64)
        for c in wishes.constraints:
            if self.placing and c.kind in ("preferred", "avoided"):
                units = self.placing * self.units(c.utility) * (-1 if c.kind == "preferred" else 1)
                cost = wide(cost) + scaled(self.having(c.resources).astype(np.int64), units)
        found = {self.goals.rank("Placement"): cost}
        for kind, price in self.own_goals.rows[wishes.own].prices.items():
            _add(found, self.goals.rank(kind), price)
        return found

    # Locality ----------------------------------------------------------------------------------------------------
    @cached_property
    def locality(self) -> Locality | None:
        """Costs of reading data; None without the goal or without data."""
        goal = self.goals.by_kind.get("DataLocality")
        of_task = [task.data for task in self.tasks] if goal is not None else []
        data = list(chain.from_iterable(of_task))
        if goal is None or not data:
            return None
        holders = [block.machines for block in data]
        blocks_of, copies = np.array(list(map(len, of_task)), np.int64), np.array(list(map(len, holders)), np.int64)
        reads = np.flatnonzero(blocks_of)
        racks, machines = list[tuple[int, int]](), list[tuple[int, int]]()
        for wishes, tasks in self.classes:
            known_racks, known_machines = self._named(wishes)
            if known_racks or known_machines:
                here = reads[(reads >= tasks.start) & (reads < tasks.stop)].tolist()
                racks += [(t, r) for t in here for r in known_racks]
                machines += [(t, m) for t in here for m in known_machines]
        stay = reads[self.staying[reads]]
        machines += zip(stay.tolist(), self.own[stay].tolist(), strict=True)
        blocks = Blocks(
            np.repeat(np.arange(len(self.tasks)), blocks_of),
            np.array([block.size_mb for block in data], dtype=np.int64),
            np.repeat(np.arange(len(data)), copies),
            np.array([self.machine[name] for name in chain.from_iterable(holders)], dtype=np.int64),
            racks,
            machines,
        )
        far, near = (self.units(goal[name]) * int(goal["weight"]) for name in ("cluster_cost", "rack_cost"))
        reach = Reach(rational(goal["threshold"]), int(goal["most"]))
        return Locality.of(blocks, self.rack, list(self.machine), len(self.tasks), (far, min(far, near)), reach)

    def _named(self, wishes: Wishes) -> tuple[list[int], list[int]]:
        """Racks and machines that preferences, requirements and own goals name."""
        tags = {tag for c in wishes.constraints if c.kind in ("preferred", "required") for tag in c.resources}
        tags.update(self.own_goals.rows[wishes.own].named)
        racks = [self.racks[tag[5:]] for tag in tags if tag.startswith("rack:") and tag[5:] in self.racks]
        return racks, [self.machine[tag[8:]] for tag in tags if tag.startswith("machine:") and tag[8:] in self.machine]

    def costs(self, task: Ints, machine: Ints) -> dict[str, NDArray[Any]]:
        """By rank, (k,) costs of tasks on machines, by task."""
        found: dict[str, NDArray[Any]] = {rank: np.zeros(len(task), np.int64) for rank in self.goals.ranks}

        def add(rank: str, at: Ints, cost: NDArray[Any]) -> None:
            if rank not in found:  # of a goal that there is not
                return
            total, cost = wide(found[rank]), wide(cost)
            total = total.astype(object) if cost.dtype == object else total
            total[at] += cost
            found[rank] = total

        plain, first = np.ones(len(task), bool), self.goals.ranks[0]
        for t, said in self.explicit.items():
            mine = np.arange(*np.searchsorted(task, (t, t + 1)))
            mine = mine[np.isin(machine[mine], list(said))]
            plain[mine] = False
            add(first, mine, narrow([said[m] for m in machine[mine].tolist()]))
        for wishes, tasks in self.classes:
            low, high = np.searchsorted(task, (tasks.start, tasks.stop)).tolist()
            if wishes and low < high:
                here = low + np.flatnonzero(plain[low:high])
                for rank, cost in self.preference(wishes).items():
                    add(rank, here, cost[machine[here]])
        if self.locality is not None:
            here = np.flatnonzero(plain)
            add(self.goals.rank("DataLocality"), here, self.locality.at(task[here], machine[here]))
        kept = np.flatnonzero(machine == self.own[task])
        add(self.goals.rank("Continuity"), kept, -self.credit[task[kept]])
        add(first, kept, -self.keep[task[kept]])
        return found

    # Continuity and slots ----------------------------------------------------------------------------------------
    @cached_property
    def credit(self) -> NDArray[Any]:
        """(T,) credit that a running task loses if it is moved or stopped."""
        goal = self.goals.by_kind.get("Continuity")
        if goal is None:
            return np.zeros(len(self.tasks), np.int64)
        unit, weight = rational(goal["unit_s"]), int(goal["weight"])
        ages = [float(unit * (2**k - 1)) for k in range(_OLDEST + 1)]  # the nearest doubles
        worth = [(self.units(goal["base"]) + self.units(goal["rate"]) * k) * weight for k in range(_OLDEST + 1)]
        running = [task.running for task in self.tasks]
        return narrow([0 if r is None else worth[bisect_right(ages, r.elapsed_s) - 1] for r in running])

    @cached_property
    def staying(self) -> Mask:
        """(T,) running tasks whose costs or limits depend on whether they stay; they know their own machine."""
        everywhere = "Continuity" in self.goals.by_kind
        return np.asarray((self.own >= 0) & (everywhere | self.limited | (self.keep > 0)), np.bool_)

    @cached_property
    def held(self) -> Mask:
        """(T,) running tasks that may only stay or stop (`FlowJob.preemptions_per_hour`).

        If a machine runs more of them than it has slots or capacity for, tasks of jobs that are never preempted come
        first, then by priority, longest run time, and name; at most one per machine for a rule of different machines.
        Tasks of gangs, affinities and spreads are not held if the held tasks alone, all staying, break the rule.
        """
        found, on = np.zeros(len(self.tasks), bool), defaultdict[int, list[int]](list)
        for t in np.flatnonzero(self.limited & (self.own >= 0)).tolist():
            if self.fits(self.classes[self.kind[t]][0])[self.own[t]]:
                on[int(self.own[t])].append(t)

        def order(t: int) -> tuple[bool, int, float, str]:
            job, running = self.instance.jobs[self.job[t]], self.tasks[t].running
            ran = 0.0 if running is None else running.elapsed_s
            return job.preemptions_per_hour != 0, job.priority, -ran, self.names[t]

        for m, inside in on.items():
            room, rules = int(self.slots[m]), set[int]()
            has = {r: rational(self.instance.machines[m].capacity.get(r, 0)) for r in self.resources}
            for t in sorted(inside, key=order):
                asks = {r: rational(self.tasks[t].demands.get(r, 0)) for r in has}
                if room and self.apart[t] not in rules and all(asks[r] <= has[r] for r in has):
                    found[t], room = True, room - 1
                    rules |= {int(self.apart[t])} - {-1}
                    has = {r: has[r] - asks[r] for r in has}
        while free := [t for t in self.ties.broken(np.where(found, self.own, -1)) if found[t]]:
            found[free] = False
        return found

    @cached_property
    def gates(self) -> list[tuple[int, int]]:
        """By job, the number of held tasks, and how many of them may stop now."""
        held = np.bincount(self.job[self.held], minlength=len(self.instance.jobs)).tolist()
        may = [
            0 if job.preemptions_per_hour is None else job.preemptions_per_hour - sum(s < 3600 for s in job.preempted_s)
            for job in self.instance.jobs
        ]
        return [(n, max(0, m)) for n, m in zip(held, may, strict=True)]

    @cached_property
    def beyond(self) -> list[int]:
        """By job, the number of tasks that run beyond any share: held ones that may not stop; of a gang, all held."""
        gangs = (team.tasks for team in self.ties.teams if team.kind == "gang")
        ganged = {int(self.job[t]) for tasks in gangs for t in tasks if self.held[t]}
        return [held if j in ganged else held - may for j, (held, may) in enumerate(self.gates)]

    @cached_property
    def slot_costs(self) -> tuple[Ints, Ints, dict[str, NDArray[Any]]]:
        """Machine and number of every slot that tasks could fill, and its cost by rank; empty if slots cost nothing."""
        spread, chance = (self.goals.by_kind.get(kind) for kind in ("LoadSpread", "RandomCosts"))
        if spread is None and chance is None and not self.own_goals.slots:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), {}
        slots = np.minimum(self.slots, len(self.tasks))
        machine = np.repeat(np.arange(len(slots)), slots)
        number = np.arange(len(machine)) - np.repeat(np.cumsum(slots) - slots, slots)
        found: dict[str, NDArray[Any]] = {}
        if spread is not None:
            found[self.goals.rank("LoadSpread")] = scaled(number, self.units(spread["step"]) * int(spread["weight"]))
        if chance is not None:
            seed, most = chance["seed"], int(chance["most"])
            drawn = [
                x
                for m, n in zip(self.instance.machines, slots.tolist(), strict=True)
                for x in sorted(zlib.crc32(f"{seed}/{m.name}/{k}".encode()) % most for k in range(m.slots))[:n]
            ]
            _add(found, self.goals.rank("RandomCosts"), scaled(narrow(drawn), self.scale * int(chance["weight"])))
        for kind, rows in self.own_goals.slots.items():
            none = [0] * int(slots.max(initial=0))
            more = narrow([cost for row, n in zip(rows, slots.tolist(), strict=True) for cost in (row or none)[:n]])
            _add(found, self.goals.rank(kind), more)
        return machine, number, found

    @cached_property
    def claims(self) -> tuple[list[int], list[int], list[int]] | None:
        """Least and most tasks of each job as set by its owner, and its weight; None without shares."""
        goal = self.goals.by_kind.get("FairShares")
        if goal is None:
            return None
        jobs = self.instance.jobs
        most = [len(j.tasks) if j.max_tasks is None else min(j.max_tasks, len(j.tasks)) for j in jobs]
        weights = [j.weight if goal["kind"] == "weighted" else 1 for j in jobs]
        return [min(j.min_tasks, b) for j, b in zip(jobs, most, strict=True)], most, weights


def _add(found: dict[str, NDArray[Any]], rank: str, cost: NDArray[Any]) -> None:
    """Add a cost to that of a rank, exactly."""
    found[rank] = wide(found[rank]) + wide(cost) if rank in found else cost


def _constraints(rules: Any) -> tuple[Constraint, ...]:
    return tuple(Constraint.model_validate(rule) for rule in rules)
