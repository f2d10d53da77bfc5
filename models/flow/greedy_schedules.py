"""Greedy feasible schedules: first incumbents, and assignments of tasks to machines from counts per class and kind.

First, tasks take machines of their proposed kind; then the other tasks take any machine, gangs as a whole in one
domain. The schedules satisfy slots, capacities, shares and rules; the integer program starts from the best one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.program_arrays import Booleans, Integers

if TYPE_CHECKING:
    from flowlex.models.flow.class_count_program import CountedProgram


class Greedy:
    """A partial schedule with the remaining slots, capacities, shares and limits of rules.

    ``program``: classes, kinds and costs. ``tight``: large tasks first, each on the machine with the least remaining
    capacity; otherwise small tasks first, each on the cheapest machine. ``stops``: held tasks (`TaskView.held`) that
    stop; all other held tasks stay.
    """

    def __init__(self, program: CountedProgram, *, tight: bool, stops: Collection[int] = ()) -> None:
        self.program, self.tight, instance = program, tight, program.instance
        self.kind, self.task_class, count = program.classes.machine, program.classes.task, len(instance.machines)
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
