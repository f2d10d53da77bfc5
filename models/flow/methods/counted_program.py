"""The integer program of an instance with capacities or task rules: tasks of each class on each kind of machines.

*Greedy* schedules are its first incumbents, and assign counts to tasks and machines. First, tasks take machines of
their proposed kind; then the other tasks take any machine, gangs as a whole in one domain. The schedules satisfy slots,
capacities, shares and rules.

What counting is worth (``benchmarks/flow_counting.py``): 45 tasks of 3 classes with CPU and memory on 8 machines of 2
kinds are proven optimal in 0.2 s; named one by one, the same program is not proven in 1.4 s. Of 18 tasks both are
proven, of 80 neither.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.models.flow.goal_interface import TaskView
from flowlex.models.flow.statement import FlowData, Size, state, with_sizes
from flowlex.models.flow.task_rules import Team
from flowlex.models.model_base import ModelError

if TYPE_CHECKING:
    from flowlex.models.problem import Problem

#: Largest sum of costs that is exact in the floating point of a solver.
_EXACT = 2**52


class CountedProgram(FlowData):
    """The statement by classes and kinds, and the data that greedy schedules need."""

    @cached_property
    def problem(self) -> Problem:
        """All rows except those of capacities.

        Raises `ModelError` if the sum of costs is not exact in floating point.
        """
        from flowlex.models.problem import Problem

        p = Problem(self.instance.name)
        state(p, self)
        largest = max(float(np.abs(objective.values).max(initial=0)) for objective in p.objectives)
        if largest * len(self.views) > _EXACT:
            raise ModelError(
                f"costs add up to {largest * len(self.views):.3g}, more than an integer program holds exactly "
                f"({_EXACT:.3g}); use a larger unit of cost"
            )
        return p

    def with_sizes(self, sizes: Sequence[Size]) -> Problem:
        """Return the problem with the capacity rows of these sizes."""
        return with_sizes(self.problem, self, sizes) if sizes else self.problem

    @cached_property
    def capacities(self) -> list[Size]:
        """Every capacity that is less than the total demand."""
        wanted = self.resources.demand.sum(axis=0)
        has = self.resources.capacity[self.first_machine]
        return [Size(int(p), int(r), self.resources.smallest_size[r]) for p, r in np.argwhere(has < wanted)]

    @property
    def views(self) -> list[TaskView]:
        """Every task as goals see it."""
        return self.priced.views

    @cached_property
    def own(self) -> list[int]:
        """Machine on which each task runs now, -1 for none."""
        at = {machine.name: m for m, machine in enumerate(self.instance.machines)}
        return [at.get(view.machine or "", -1) for view in self.views]

    @cached_property
    def job(self) -> Integers:
        """(K,) job of each class."""
        found: Integers = self.priced.job[self.first_task]
        return found

    @cached_property
    def level(self) -> Integers:
        """(K,) importance of waiting in the strict order, 0 if waiting has an ordinary cost."""
        found: Integers = self.priced.levels[self.job]
        return found

    @cached_property
    def most_running(self) -> Integers:
        """(J,) most running tasks of each job."""
        most = self.priced.shares[:, 1]
        held = np.bincount(self.job[self.class_of], weights=[v.held for v in self.views], minlength=len(most))
        found: Integers = np.maximum(most, held.astype(np.int64))
        return found

    @cached_property
    def may(self) -> Booleans:
        """(K, P) whether each class may run on each kind."""
        found = np.zeros((len(self.task_count), len(self.machine_count)), bool)
        found[self.task, self.machine] = True
        return found

    @cached_property
    def cost(self) -> Floats:
        """(K, P) cost of a task of each class on each kind, as the weighted sum of all ranks."""
        found = np.zeros(self.may.shape)
        found[self.task, self.machine] = self.costs
        return found

    @cached_property
    def wait_cost(self) -> Floats:
        """(K,) cost of waiting, as the weighted sum of all ranks."""
        return np.array(self.priced.waiting, np.float64)[self.first_task]

    @cached_property
    def slot_cost(self) -> Floats:
        """(P, n) cost of the next slot of a machine with n tasks, as the weighted sum of all ranks."""
        most = min(max((machine.slots for machine in self.machines), default=0), len(self.views))
        found = np.zeros((len(self.machines), most + 1))
        for row, m in zip(found, self.first_machine.tolist(), strict=True):
            unit = [cost for count, cost in self.priced.slot_costs[m] for _ in range(min(count, most))][:most]
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
        blocks = self.problem.blocks
        found = np.zeros(self.problem.column_count)
        runs = at >= 0
        counts = np.zeros(self.may.shape)
        np.add.at(counts, (self.class_of[runs], self.kind_of[at[runs]]), 1)
        found[blocks["x"].columns] = counts[self.task, self.machine]
        found[blocks["waits"].columns] = self.task_count - counts.sum(axis=1)
        if "short" in blocks:
            few = np.bincount(self.job[self.class_of[runs]], minlength=len(self.instance.jobs))
            j = blocks["short"].index.codes["job"]
            found[blocks["short"].columns] = np.maximum(self.priced.shares[j, 0] - few[j], 0)
        if "slot" in blocks:
            index, held = blocks["slot"].index, np.bincount(at[runs], minlength=len(self.kind_of))
            used = index.codes["machine"]
            number = np.array(index.levels["slot"].labels, np.int64)[index.codes["slot"]]
            filled = {p: held[self.kind_of == p] for p in np.unique(used).tolist()}
            found[blocks["slot"].columns] = [
                int((filled[p] >= n).sum()) for p, n in zip(used.tolist(), number.tolist(), strict=True)
            ]
        self._teams(found, at)
        return found

    def _teams(self, found: Floats, at: Integers) -> None:
        """Values of the variables of gangs and affinities."""
        blocks, values = self.problem.blocks, dict[str, list[bool]]()
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
        x = np.rint(values[self.problem.blocks["x"].columns]).astype(np.int64)
        found[self.task, self.machine] = x
        return found

    def sizes_overfull(self, values: Floats, known: Collection[Size], most: int) -> list[Size]:
        """Size rows violated by fractional values: per kind and resource, the capacity and the most violated other."""
        running = np.zeros(self.may.shape)
        running[self.task, self.machine] = values[self.problem.blocks["x"].columns]
        demand, found = self.resources.demand[self.first_task], []
        for r in range(len(self.resources.names)):
            capacity = self.resources.capacity[self.first_machine, r]
            few = np.unique(np.concatenate([capacity // (n + 1) + 1 for n in range(1, 9)]))
            sizes = np.union1d(np.unique(demand[:, r]), few)
            least = self.resources.smallest_size[r]
            sizes = np.concatenate([np.array([least], sizes.dtype), sizes[sizes > least]])
            taken = (demand[None, :, r] // sizes[:, None]).astype(np.int64) @ running
            there = self.machine_count * (capacity // sizes[:, None]).astype(np.int64)
            over = (taken - there) / np.maximum(there, 1)
            worst = np.argmax(over, axis=0)
            for p in range(len(capacity)):
                for s in {0, int(worst[p])}:
                    if taken[s, p] - there[s, p] > 1e-6 * max(1, there[s, p]):
                        found.append((float(over[s, p]), Size(p, r, int(sizes[s]))))
        found.sort(key=lambda each: (-each[0], each[1]))
        return [size for _, size in found if size not in known][:most]


class Greedy:
    """A partial schedule with the remaining slots, capacities, shares and limits of rules.

    ``program``: classes, kinds and costs. ``tight``: large tasks first, each on the machine with the least remaining
    capacity; otherwise small tasks first, each on the cheapest machine. ``stops``: held tasks (`TaskView.held`) that
    stop; all other held tasks stay.
    """

    def __init__(self, program: CountedProgram, *, tight: bool, stops: Collection[int] = ()) -> None:
        self.program, self.tight, instance = program, tight, program.instance
        self.kind, self.task_class, count = program.kind_of, program.class_of, len(instance.machines)
        self.demand, self.free = program.resources.demand, program.resources.capacity.copy()
        self._there = np.maximum(self.free.sum(axis=0), 1)
        size = (self.demand / self._there).astype(np.float64).max(axis=1, initial=0) * (-1 if tight else 1)
        self.order: Integers = np.lexsort((np.arange(len(size)), size, -program.level[self.task_class]))
        self._scarce = (self.demand.sum(axis=0) / np.maximum(self.free.max(axis=0, initial=1), 1)).astype(np.float64)
        self.slots = np.array([machine.slots for machine in instance.machines], np.int64)
        self.held = np.zeros(count, np.int64)
        self.left = program.most_running.copy()
        self.at: Integers = np.full(len(self.task_class), -1, np.int64)
        self._apart: dict[str, set[int]] = defaultdict(set)
        self._spread: Counter[int] = Counter()
        self._team = {t: (team.whole, tasks, masks) for team, tasks, masks in program.teams for t in tasks}
        self._limits: dict[int, list[int]] = defaultdict(list)
        for number, (tasks, _, _) in enumerate(program.limits):
            for t in tasks:
                self._limits[t].append(number)
        for t in np.flatnonzero([view.held for view in program.views]).tolist():
            if t not in stops:
                self.take(t, program.own[t])

    def deal(self, kind: Integers) -> bool:
        """Place tasks on machines of their (T,) kind, -1 for none, if they fit; return whether all of them did.

        Running tasks stay if possible; the others take the machine with the least remaining capacity, or, without
        capacities, the one with the most free slots.
        """
        open_ = self.order[(kind[self.order] >= 0) & (self.at[self.order] < 0)].tolist()
        own = self.program.own
        for t in open_:
            if own[t] >= 0 and self.kind[own[t]] == kind[t] and self.fits(t)[own[t]]:
                self.take(t, own[t])
        for t in open_:
            among = np.flatnonzero(self.fits(t) & (self.kind == kind[t])) if self.at[t] < 0 else self.slots[:0]
            if len(among):
                self.take(t, int(among[np.argmin(self._left(t, among, -(self.slots - self.held)[among]))]))
        return bool((self.at[kind >= 0] >= 0).all())

    def fill(self) -> Integers:
        """Remove incomplete gangs, place further tasks, and return the (T,) machines, -1 for none."""
        for team, tasks, _ in self.program.teams:
            if team.whole and (self.at[tasks] < 0).any():
                self._leave(tasks)
        for t in self.order.tolist():
            if self.at[t] < 0:
                whole, tasks, domains = self._team.get(t, (False, [], []))
                if whole:
                    self._place_gang(tasks, domains)
                else:
                    self._place(t, np.ones(len(self.slots), bool))
        return self.at

    def fits(self, t: int) -> Booleans:
        """(M,) whether a task may take each machine now."""
        program, k = self.program, self.task_class[t]
        if self.left[program.job[k]] <= 0:
            return np.zeros(len(self.slots), np.bool_)
        found: Booleans = program.may[k, self.kind] & (self.held < self.slots)
        found &= (self.free >= self.demand[t]).all(axis=1)
        found[list(self._apart[program.views[t].apart])] = False
        for number in self._limits[t]:
            _, inside, most = program.limits[number]
            if self._spread[number] >= most:
                found &= ~inside
        _, tasks, domains = self._team.get(t, (False, [], []))
        there = next((self.at[other] for other in tasks if domains and self.at[other] >= 0), None)
        if there is not None:
            found &= next(mask for mask in domains if mask[there])
        return found

    def take(self, t: int, m: int, by: int = 1) -> None:
        """Place a task on a machine; with ``by`` -1, remove it."""
        program = self.program
        self.at[t] = m if by > 0 else -1
        self.free[m] -= by * self.demand[t]
        self.held[m] += by
        self.left[program.job[self.task_class[t]]] -= by
        if apart := program.views[t].apart:
            (self._apart[apart].add if by > 0 else self._apart[apart].discard)(m)
        for number in self._limits[t]:
            self._spread[number] += by * bool(program.limits[number][1][m])

    def _leave(self, tasks: Iterable[int]) -> None:
        for t in tasks:
            if self.at[t] >= 0:
                self.take(t, int(self.at[t]), -1)

    def _left(self, t: int, among: Integers, otherwise: Integers) -> Any:
        """Capacity (weighted sum) that a task would leave on each machine; ``otherwise`` without capacities."""
        if not self.free.size:
            return otherwise
        return ((self.free[among] - self.demand[t]) / self._there).astype(np.float64) @ self._scarce

    def _place(self, t: int, inside: Booleans, *, must: bool = False) -> bool:
        """Place a task on a machine; unless it ``must`` run, it waits if that is cheaper."""
        program, k = self.program, self.task_class[t]
        among = np.flatnonzero(self.fits(t) & inside)
        if not len(among):
            return False
        held = np.minimum(self.held[among], program.slot_cost.shape[1] - 1)
        cost = program.cost[k, self.kind[among]] + program.slot_cost[self.kind[among], held]
        if not self.tight:
            among, cost = among[cost == cost.min()], cost[cost == cost.min()]
        best = int(np.argmin(self._left(t, among, self.held[among])))
        if not must and not program.level[k] and cost[best] > program.wait_cost[k]:
            return False
        self.take(t, int(among[best]))
        return True

    def _place_gang(self, tasks: Sequence[int], domains: Sequence[Booleans]) -> None:
        """Place all tasks of a gang in the first domain where they fit, or none of them."""
        empty, everywhere = self.slots - self.held, np.ones(len(self.slots), bool)
        for mask in sorted(domains, key=lambda mask: -int(empty[mask].sum())) or [everywhere]:
            if int(empty[mask].sum()) < len(tasks) or all(self._place(t, mask, must=True) for t in tasks):
                return
            self._leave(tasks)
