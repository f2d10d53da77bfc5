"""Schedules that keep slots, capacities, shares and task rules, made greedily: first incumbents, and counts dealt out.

Every task that may stay on its proposed machine does; then the others take a machine one after the other, gangs all at
once in one domain. Nothing here is optimal or proven: the integer program starts from it, and judges it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.arrays import Booleans, Integers

if TYPE_CHECKING:
    from flowlex.models.flow.program import CountedProgram

__all__ = ["Greedy"]


class Greedy:
    """What is left of machines, shares and rules while tasks take their places.

    Parameters
    ----------
    program
        Classes, kinds and costs.
    tight
        Take the machine that is left fullest, not the cheapest one.
    """

    def __init__(self, program: CountedProgram, *, tight: bool) -> None:
        self.program, self.tight, instance = program, tight, program.instance
        classes, amounts = program.classes, program.amounts
        self.kind, self.task_class, count = classes.machine, classes.task, len(instance.machines)
        self.demand = np.zeros((len(classes.task), 0), np.int64) if amounts is None else amounts.demand
        self.free = np.zeros((count, 0), np.int64) if amounts is None else amounts.capacity.copy()
        there = np.maximum(self.free.sum(axis=0), 1)
        self._size = (self.demand / there).max(axis=1, initial=0)
        self._scarce = self.demand.sum(axis=0) / there / np.maximum(self.free.max(axis=0, initial=1), 1)
        self.slots = np.array([machine.slots for machine in instance.machines], np.int64)
        self.held = np.zeros(count, np.int64)
        self.left = program.most_running.copy()
        self.at: Integers = np.full(len(classes.task), -1, np.int64)
        self._apart: dict[str, set[int]] = defaultdict(set)
        self._spread: Counter[int] = Counter()
        for t in np.flatnonzero([view.held for view in program.views]).tolist():
            self.take(t, program.own[t])  # it stays, whatever else

    def schedule(self, proposal: Integers, *, large: int) -> Integers:
        """(T,) machines, -1 for none, near a proposal of the same shape; from class ``large`` larger tasks come first.

        A gang of which a task lost its place is placed anew or waits.
        """
        order = self._order(large)
        for t in order[(proposal[order] >= 0) & (self.at[order] < 0)].tolist():
            if self.fits(t)[proposal[t]]:
                self.take(t, int(proposal[t]))
        for tasks, _ in self.program.teams_whole:
            if (self.at[tasks] < 0).any():
                self._leave(tasks)
        for t in order.tolist():
            if self.at[t] < 0:
                team = self.program.team_of.get(t)
                if team is not None and team[0]:
                    self._place_gang(team[1], team[2])
                else:
                    self._place(t, np.ones(len(self.slots), bool))
        return self.at

    def deal(self, counts: Integers) -> Integers:
        """(T,) machines for (K, P) tasks of each class on each kind, as far as they fit; others wait.

        Running tasks stay where they can; then larger ones come first, each on the machine with most slots left, or,
        where machines have capacities, on that which is left fullest.
        """
        program, rest = self.program, counts.copy()
        by_class = program.members
        for t in np.flatnonzero(self.at >= 0).tolist():
            rest[self.task_class[t], self.kind[self.at[t]]] -= 1
        for k, p in np.argwhere(rest > 0).tolist():
            for t in by_class[k]:
                m = program.own[t]
                if rest[k, p] and m >= 0 and self.kind[m] == p and self.at[t] < 0 and self.fits(t)[m]:
                    self.take(t, m)
                    rest[k, p] -= 1
        pairs = np.argwhere(rest > 0)
        sizes = self._size[program.classes.first_task[pairs[:, 0]]]
        for k, p in pairs[np.argsort(-sizes, kind="stable")].tolist():
            inside = self.kind == p
            for t in [t for t in by_class[k] if self.at[t] < 0][: int(rest[k, p])]:
                fits = self.fits(t) & inside
                if not fits.any():
                    break
                among = np.flatnonzero(fits)
                empty = self.slots[among] - self.held[among]
                left = (self.free[among] - self.demand[t]) @ self._scarce if self.free.size else -empty
                self.take(t, int(among[int(np.argmin(left))]))
        return self.at

    def _order(self, large: int) -> Integers:
        level = self.program.level[self.task_class]
        size = np.where(level >= large, -self._size, self._size)
        found: Integers = np.lexsort((np.arange(len(self.at)), size, -level))
        return found

    def fits(self, t: int) -> Booleans:
        """(M,) machines that a task may take now."""
        program, k = self.program, self.task_class[t]
        if self.left[program.job[k]] <= 0:
            return np.zeros(len(self.slots), np.bool_)
        found: Booleans = program.may[k, self.kind] & (self.held < self.slots)
        found &= (self.free >= self.demand[t]).all(axis=1)
        found[list(self._apart[program.views[t].apart])] = False
        for number in program.limits_of[t]:
            if self._spread[number] >= program.limits[number][1]:
                found &= ~program.limits[number][0]
        team = program.team_of.get(t)
        if team is not None and team[2]:
            there = next((self.at[other] for other in team[1] if self.at[other] >= 0), None)
            if there is not None:
                found &= next(mask for mask in team[2] if mask[there])
        return found

    def take(self, t: int, m: int, by: int = 1) -> None:
        """Let a task run on a machine; leave it with ``by`` -1."""
        program = self.program
        self.at[t] = m if by > 0 else -1
        self.free[m] -= by * self.demand[t]
        self.held[m] += by
        self.left[program.job[self.task_class[t]]] -= by
        if apart := program.views[t].apart:
            (self._apart[apart].add if by > 0 else self._apart[apart].discard)(m)
        for number in program.limits_of[t]:
            self._spread[number] += by * bool(program.limits[number][0][m])

    def _leave(self, tasks: Iterable[int]) -> None:
        for t in tasks:
            if self.at[t] >= 0:
                self.take(t, int(self.at[t]), -1)

    def _place(self, t: int, inside: Booleans, *, must: bool = False) -> bool:
        """Let a task take a machine; unless it ``must``, it waits where that is cheaper."""
        program, k = self.program, self.task_class[t]
        among = np.flatnonzero(self.fits(t) & inside)
        if not len(among):
            return False
        cost = program.cost[:, k, self.kind[among]] + program.slot_cost(self.kind[among], self.held[among])
        for rank in range(0 if self.tight else len(cost)):
            kept = cost[rank] == cost[rank].min()
            among, cost = among[kept], cost[:, kept]
        left = (self.free[among] - self.demand[t]) @ self._scarce if self.free.size else self.held[among]
        best = int(np.argmin(left))
        if not must and not program.level[k] and cost[:, best].tolist() > program.wait_cost[:, k].tolist():
            return False
        self.take(t, int(among[best]))
        return True

    def _place_gang(self, tasks: Sequence[int], domains: Sequence[Booleans]) -> None:
        """Let all tasks of a gang take machines in the first domain that has them, or none."""
        everywhere = np.ones(len(self.slots), bool)
        for mask in sorted(domains, key=lambda mask: -int((self.slots - self.held)[mask].sum())) or [everywhere]:
            if int((self.slots - self.held)[mask].sum()) < len(tasks):
                return
            if all(self._place(t, mask, must=True) for t in tasks):
                return
            self._leave(tasks)
