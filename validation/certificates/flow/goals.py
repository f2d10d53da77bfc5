"""What the goals of flow scheduling cost, task by task and machine by machine, from instance and options alone.

All costs are whole multiples of ``1/scale``. A goal prices a task on a machine (placement, locality, continuity), a
machine's slots (spread, chance) or waiting (weighted priority, ``wait_cost``); an explicit cost of a task on a machine
replaces placement and locality there. Shares bound running tasks, a strict priority orders waiting ones.

Locality is aggregated: a task knows its best machines (at least ``threshold`` of its data, the ``most`` best), the
racks with so much, and what its preferences and requirements name. On a machine that it does not know it pays as from
the worst machine of the rack, or of the cluster, that it does know.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.flow import Constraint, FlowInstance, FlowTask
from flowlex.validation.certificates.numbers import Number, exact

__all__ = ["Goals", "Problem", "Task", "fairest"]

_DEFAULTS: dict[str, dict[str, Any]] = {
    "Placement": {"rules": {}},
    "DataLocality": {"rack_cost": 1, "cluster_cost": 2, "threshold": 0.1, "most": 10},
    "Continuity": {"base": 1, "rate": 1, "unit_s": 60.0},
    "LoadSpread": {"step": 1},
    "RandomCosts": {"most": 1000, "seed": 0},
    "Priority": {"weights": {"placement": 1}, "mode": "strict", "omega": 10, "limits": {}, "lowest": None},
    "FairShares": {"kind": "max_min"},
}
_PRESETS: dict[str, list[dict[str, Any]]] = {
    "quincy": [{"type": "Placement"}, {"type": "DataLocality"}, {"type": "Continuity", "base": 10, "rate": 10}],
    "borg": [
        {"type": "Priority"},
        {"type": "Placement"},
        {"type": "Continuity", "base": 4, "rate": 2},
        {"type": "LoadSpread"},
    ],
    "alsched": [{"type": "Placement"}],
    "load_spread": [{"type": "Placement"}, {"type": "LoadSpread"}],
    "random": [{"type": "RandomCosts"}],
    "none": [],
}
_LOWEST = 1000
_OLDEST = 24


@dataclass(frozen=True)
class Goals:
    """The goals of a solution file by kind, and the ranks in which their costs count.

    Attributes
    ----------
    by_kind
        Fields of each goal, defaults filled in.
    ranks
        Names of the ranks: of the goals that price anything in strict order, else ``cost`` alone.
    foreign
        A goal that no file describes; empty when all are known.
    """

    by_kind: dict[str, dict[str, Any]]
    ranks: tuple[str, ...]
    foreign: str = ""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Goals:
        """Read the options of a solution file."""
        said = options["goals"] if options["goals"] is not None else _PRESETS[options["preset"]]
        found: dict[str, dict[str, Any]] = {}
        for goal in said:
            if not isinstance(goal, dict) or goal.get("type") not in _DEFAULTS:
                return cls({}, ("cost",), str(goal)[:60])
            fields = {key: value for key, value in goal.items() if key != "type"}
            known = {"weight": 1, **_DEFAULTS[goal["type"]]}
            if goal["type"] in found or fields.keys() - known.keys():
                raise ValueError(f"goal {goal['type']!r} is given twice or has a field that it does not know")
            found[goal["type"]] = known | fields
        pricing = tuple(
            kind
            for kind, goal in found.items()
            if kind not in ("FairShares", "Priority") or (kind == "Priority" and goal["mode"] == "weighted")
        )
        return cls(found, pricing if options["lexicographic"] and len(pricing) > 1 else ("cost",))

    def rank(self, kind: str) -> str:
        """The rank in which a goal counts."""
        return self.ranks[0] if len(self.ranks) == 1 else kind


@dataclass(eq=False)
class Task:
    """A task with its position; machines are numbered."""

    task: FlowTask
    job: int
    own: int
    explicit: dict[int, int]
    constraints: tuple[Constraint, ...]
    apart: str
    waiting: dict[str, int] = field(default_factory=dict)
    blocks: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    known: dict[bool, tuple[int, dict[int, int], dict[int, int]]] = field(default_factory=dict)


class Problem:
    """The instance under its goals, as columns in its own order."""

    def __init__(self, instance: FlowInstance, options: Mapping[str, Any], scale: int) -> None:
        self.goals: Goals
        self.instance, self.scale, self.goals = instance, scale, Goals.of(options)
        self.machine = {m.name: k for k, m in enumerate(instance.machines)}
        self.slots = np.array([m.slots for m in instance.machines], dtype=np.int64)
        self.racks = {name: r for r, name in enumerate(dict.fromkeys(m.rack for m in instance.machines))}
        self.rack = np.array([self.racks[m.rack] for m in instance.machines], dtype=np.int64)
        self._rack_of: list[int] = self.rack.tolist()
        self._labels: dict[str, list[int]] = defaultdict(list)
        for k, m in enumerate(instance.machines):
            for label in set(m.labels):
                self._labels[label].append(k)
        self._tags = [m.tags for m in instance.machines]
        placement = self.goals.by_kind.get("Placement")
        self._rules = {name: _constraints(rules) for name, rules in (placement or {"rules": {}})["rules"].items()}
        self.placing: int = 0 if placement is None else int(placement["weight"])
        wait = options["wait_cost"]
        self.wait_cost: int | None = None if wait is None else self.units(wait)
        together: dict[str, int] = defaultdict(int)
        for job in instance.jobs:
            together[job.different_machines or ""] += len(job.tasks)
        self.tasks: list[Task] = [
            self._task(task, j, job.name, job.different_machines if together[job.different_machines or ""] > 1 else "")
            for j, job in enumerate(instance.jobs)
            for task in job.tasks
        ]
        self._price_waiting()

    def units(self, value: Number) -> int:
        """A cost in units of ``1/scale``, which must be whole."""
        units = exact(value) * self.scale
        if units.denominator != 1:
            raise ValueError(f"a cost of {value} is no whole number of 1/{self.scale}")
        return units.numerator

    def _task(self, task: FlowTask, job: int, name: str, apart: str | None) -> Task:
        explicit = {self.machine[m]: self.units(cost) for m, cost in task.costs.items()}
        own = -1 if task.running is None else self.machine[task.running.machine]
        rules = (*task.constraints, *self._rules.get(task.name, ()), *self._rules.get(name, ()))
        found = Task(task, job, own, explicit, rules if "Placement" in self.goals.by_kind else (), apart or "")
        if "DataLocality" in self.goals.by_kind:
            found.blocks = [(b.size_mb, frozenset(self.machine[m] for m in b.machines)) for b in task.data]
        return found

    def _price_waiting(self) -> None:
        priority = self.goals.by_kind.get("Priority")
        weighted = None if priority is None or priority["mode"] == "strict" else priority
        jobs = self.instance.jobs
        lowest = max((job.priority for job in jobs), default=0)
        if weighted is not None and weighted["lowest"] is not None:
            lowest = int(weighted["lowest"])
        for task in self.tasks:
            cost: dict[str, int] = defaultdict(int)
            cost[self.goals.ranks[0]] += self.wait_cost or 0
            if weighted is not None:
                gap = int(weighted["omega"]) * sum(weighted["weights"].values()) + 1
                worth = gap * (lowest - jobs[task.job].priority + 1)
                for name, weight in weighted["weights"].items():
                    demand = exact(task.task.demands.get(name, 0))
                    if demand:
                        worth -= weight * math.floor(int(weighted["omega"]) * demand / exact(weighted["limits"][name]))
                cost[self.goals.rank("Priority")] += worth * self.scale * int(weighted["weight"])
            task.waiting = dict(cost)

    def level(self, job: int) -> int:
        """Class in the strict order of waiting tasks, larger first; 0 where waiting has a price instead."""
        priority = self.goals.by_kind.get("Priority")
        if priority is not None:
            return _LOWEST - self.instance.jobs[job].priority + 1 if priority["mode"] == "strict" else 0
        return 1 if self.wait_cost is None else 0

    # Placement ---------------------------------------------------------------------------------------------------
    def having(self, resources: tuple[str, ...]) -> NDArray[np.bool_]:
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

    def utility(self, constraints: tuple[Constraint, ...], machine: int) -> int:
        """Cost of the preferences of a task on one machine."""
        return self.placing * sum(
            (-1 if c.kind == "preferred" else 1) * self.units(c.utility)
            for c in constraints
            if c.kind in ("preferred", "avoided") and not self._tags[machine].isdisjoint(c.resources)
        )

    def broken(self, task: Task, machine: int) -> bool:
        """Whether a requirement or ban is not kept."""
        return any(
            self._tags[machine].isdisjoint(c.resources) == (c.kind == "required")
            for c in task.constraints
            if c.kind in ("required", "forbidden")
        )

    # Locality ----------------------------------------------------------------------------------------------------
    def reading(self, task: Task, machine: int) -> int:
        """What reading its data costs a task on a machine, by true distances."""
        (far, near), total, rack = self._per_mb, 0, self._rack_of[machine]
        for size, holders in task.blocks:
            if machine not in holders:
                total += size * (near if any(self._rack_of[h] == rack for h in holders) else far)
        return total

    @cached_property
    def _per_mb(self) -> tuple[int, int]:
        """Cost of a MB from another rack, and from the same one."""
        goal = self.goals.by_kind["DataLocality"]
        far, near = (self.units(goal[name]) * int(goal["weight"]) for name in ("cluster_cost", "rack_cost"))
        return far, min(far, near)

    def distances(self, task: Task, *, true: bool) -> tuple[int, dict[int, int], dict[int, int]]:
        """Cost from afar, by rack and by machine, of those a task knows; of all that hold data where ``true``."""
        if not task.blocks:
            return 0, {}, {}
        if true not in task.known:
            task.known[true] = self._distances(task, true=true)
        return task.known[true]

    def _distances(self, task: Task, *, true: bool) -> tuple[int, dict[int, int], dict[int, int]]:
        far, near = self._per_mb
        racks, machines = dict[int, int](), dict[int, int]()
        for size, holders in task.blocks:
            for m in holders:
                machines[m] = machines.get(m, 0) + size
            for r in {self._rack_of[m] for m in holders}:
                racks[r] = racks.get(r, 0) + size
        total = sum(size for size, _ in task.blocks)
        known_racks, known = set(racks), set(machines)
        if not true:
            goal, cluster = self.goals.by_kind["DataLocality"], self.instance.machines
            enough = math.ceil(exact(goal["threshold"]) * total)
            known_racks = {r for r, size in racks.items() if size >= enough}
            best = [m for m, size in machines.items() if size >= enough]
            if len(best) > int(goal["most"]):
                best = sorted(best, key=lambda m: (-machines[m], cluster[m].name))[: int(goal["most"])]
            known = set(best) | {m for m in (task.own,) if m >= 0 and "Continuity" in self.goals.by_kind}
            known_racks, known = known_racks | self._named("rack:", task), known | self._named("machine:", task)
        by_rack = {r: far * total - (far - near) * racks.get(r, 0) for r in known_racks}
        here = {
            m: far * total - (far - near) * racks.get(self._rack_of[m], 0) - near * machines.get(m, 0) for m in known
        }
        return far * total, by_rack, here

    def _named(self, prefix: str, task: Task) -> set[int]:
        """Racks or machines that preferences and requirements name."""
        index = self.racks if prefix == "rack:" else self.machine
        named = (tag for c in task.constraints if c.kind in ("preferred", "required") for tag in c.resources)
        return {index[tag[len(prefix) :]] for tag in named if tag.startswith(prefix) and tag[len(prefix) :] in index}

    def aggregated(self, task: Task, machine: int) -> int:
        """What locality charges a task on a machine: the cheapest of what it knows of the machine."""
        far, racks, machines = self.distances(task, true=False)
        return min(far, racks.get(self._rack_of[machine], far), machines.get(machine, far))

    # Continuity and slots ----------------------------------------------------------------------------------------
    def credit(self, task: Task) -> int:
        """What moving or stopping a running task forfeits."""
        goal = self.goals.by_kind.get("Continuity")
        if goal is None or task.task.running is None:
            return 0
        ages, base, rate = self._credits
        age = bisect_right(ages, task.task.running.elapsed_s) - 1
        return (base + rate * age) * int(goal["weight"])

    @cached_property
    def _credits(self) -> tuple[list[float], int, int]:
        """Seconds at which a credit grows (the doubles next to them), what it starts with and grows by."""
        goal = self.goals.by_kind["Continuity"]
        unit = exact(goal["unit_s"])
        ages = [float(unit * (2**k - 1)) for k in range(_OLDEST + 1)]
        return ages, self.units(goal["base"]), self.units(goal["rate"])

    def slot_costs(self, machine: int) -> Iterator[tuple[str, list[int]]]:
        """By rank, what the first, second, ... task on a machine costs."""
        slots, name = int(self.slots[machine]), self.instance.machines[machine].name
        if (goal := self.goals.by_kind.get("LoadSpread")) is not None:
            step = self.units(goal["step"]) * int(goal["weight"])
            yield self.goals.rank("LoadSpread"), [step * k for k in range(slots)]
        if (goal := self.goals.by_kind.get("RandomCosts")) is not None:
            drawn = sorted(zlib.crc32(f"{goal['seed']}/{name}/{k}".encode()) % int(goal["most"]) for k in range(slots))
            yield self.goals.rank("RandomCosts"), [x * self.scale * int(goal["weight"]) for x in drawn]

    def running(self, task: Task, machine: int) -> dict[str, int]:
        """By rank, what a task costs on a machine."""
        cost: dict[str, int] = defaultdict(int)
        if machine in task.explicit:
            cost[self.goals.ranks[0]] += task.explicit[machine]
        else:
            cost[self.goals.rank("Placement")] += self.utility(task.constraints, machine)
            if task.blocks:
                cost[self.goals.rank("DataLocality")] += self.aggregated(task, machine)
        if machine == task.own:
            cost[self.goals.rank("Continuity")] -= self.credit(task)
        return cost

    def shares(self) -> tuple[list[int], list[int], list[int]] | None:
        """Guaranteed and most tasks of each job as its owner set them, and its weight; None without shares."""
        goal = self.goals.by_kind.get("FairShares")
        if goal is None:
            return None
        jobs = self.instance.jobs
        most = [len(j.tasks) if j.max_tasks is None else min(j.max_tasks, len(j.tasks)) for j in jobs]
        weights = [j.weight if goal["kind"] == "weighted" else 1 for j in jobs]
        return [min(j.min_tasks, b) for j, b in zip(jobs, most, strict=True)], most, weights


def _constraints(rules: Any) -> tuple[Constraint, ...]:
    return tuple(Constraint.model_validate(rule) for rule in rules)


def fairest(least: list[int], most: list[int], weight: list[int], units: int, share: list[int]) -> str:
    """Why whole shares are not weighted max-min fair; empty when they are.

    The next unit goes where (share + 1) / weight is least, ties to the earlier job: so the last unit of every job above
    its least comes before the next of every job below its most. That determines the shares.
    """
    if any(not a <= x <= b for a, x, b in zip(least, share, most, strict=True)):
        return "a share below the job's least or above its most"
    wanted = max(sum(least), min(units, sum(most)))
    if sum(share) != wanted:
        return f"shares of {sum(share)} in all, {wanted} can be given"
    rows = list(zip(least, share, most, weight, range(len(share)), strict=True))
    last = max(((Fraction(x, w), j) for a, x, _, w, j in rows if x > a), default=None)
    following = min(((Fraction(x + 1, w), j) for _, x, b, w, j in rows if x < b), default=None)
    if last is not None and following is not None and following < last:
        return f"a unit of job number {last[1] + 1} is due to job number {following[1] + 1}"
    return ""
