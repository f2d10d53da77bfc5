"""A schedule that fits, from one that may not: tasks leave overfull machines, and take what is left elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowlex.formulations.arrays import Booleans, Integers
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.capacities.amounts import Amounts
from flowlex.models.flow.capacities.classes import Places
from flowlex.models.flow.capacities.program import Program

__all__ = ["repaired"]


def repaired(instance: FlowInstance, amounts: Amounts, program: Program, machine: Integers) -> Iterator[Integers]:
    """Yield (T,) machines of tasks, -1 for none, near a proposal of the same shape or away from it.

    First every task that may stay does, those that matter more and ask for less first; then the others take the
    cheapest machine with room. That is cheap, but wastes room; so it is also done with the largest tasks first (of all
    classes but the last, or of all), each on the machine that it leaves least of, near the proposal or from nothing.
    Every place is one machine.
    """
    top = int(program.classes.level.max(initial=0))
    lowest = int(program.classes.level.min(initial=top))
    for keeps, tight, large in ((True, False, top + 1), (True, True, 0), (False, True, 0), (False, True, lowest + 1)):
        room = _Room(instance, amounts, program, tight=tight)
        order = room.order(large)
        for t in order[machine[order] >= 0].tolist() if keeps else ():
            if room.fits(t)[machine[t]]:
                room.take(t, int(machine[t]))
        for t in order[room.at[order] < 0].tolist():
            fits = room.fits(t)
            m = room.chosen(t, fits) if fits.any() else -1
            if m >= 0:
                room.take(t, m)
        yield room.at


class _Room:
    """What is left of machines, shares and rules."""

    def __init__(self, instance: FlowInstance, amounts: Amounts, program: Program, *, tight: bool) -> None:
        self.tight = tight
        self.classes, self.places, self.shares = program.classes, program.places, program.shares
        self.demand, self.free = amounts.demand, amounts.capacity.copy()
        self.slots = np.array([machine.slots for machine in instance.machines], np.int64)
        self.most = self.shares[:, 1].copy()
        self.held = np.zeros(len(self.slots), np.int64)
        self.at: Integers = np.full(len(self.classes.of), -1, np.int64)
        self.rules: dict[str, set[int]] = {}
        there = np.maximum(amounts.capacity.sum(axis=0), 1)
        self.size = (self.demand / there).max(axis=1, initial=0)
        self.scarce = self.demand.sum(axis=0) / there / np.maximum(amounts.capacity.max(axis=0, initial=1), 1)
        self._costs = self._by_slot(self.places)
        self.next = np.zeros((len(self.places.cost), len(self.slots)), np.int64)
        for m in range(len(self.slots)):
            self._price(m)

    @staticmethod
    def _by_slot(places: Places) -> list[list[tuple[int, Integers]]]:
        slots: list[list[tuple[int, Integers]]] = [[] for _ in range(places.size)]
        for s, (p, n) in enumerate(zip(places.slots.place.tolist(), places.slots.count.tolist(), strict=True)):
            slots[p].append((n, places.slots.cost[:, s]))
        return slots

    def order(self, large: int) -> Integers:
        """Tasks, the more important ones first, then the smaller ones, but from class ``large`` on the larger ones."""
        level = self.classes.level[self.classes.of]
        size = np.where(level >= large, -self.size, self.size)
        found: Integers = np.lexsort((np.arange(len(self.at)), size, -level))
        return found

    def fits(self, task: int) -> Booleans:
        """(M,) machines that a task may take now."""
        k = self.classes.of[task]
        if self.most[self.classes.job[k]] <= 0:
            return np.zeros(len(self.slots), np.bool_)
        found: Booleans = self.places.may[k] & (self.held < self.slots) & (self.free >= self.demand[task]).all(axis=1)
        found[list(self.rules.get(self.classes.apart[k], ()))] = False
        return found

    def chosen(self, task: int, fits: Booleans) -> int:
        """The cheapest of some machines, rank by rank, or the one that is left fullest; -1 where waiting is cheaper."""
        k, among = self.classes.of[task], np.flatnonzero(fits)
        cost = self.places.cost[:, k, among] + self.next[:, among]
        for rank in range(0 if self.tight else len(cost)):
            kept = cost[rank] == cost[rank].min()
            among, cost = among[kept], cost[:, kept]
        best = int(np.argmin((self.free[among] - self.demand[task]) @ self.scarce))
        if not self.classes.level[k] and tuple(cost[:, best].tolist()) > tuple(self.classes.wait[:, k].tolist()):
            return -1
        return int(among[best])

    def _price(self, machine: int) -> None:
        """Note the cost of the next slot, by rank."""
        left = int(self.held[machine])
        for count, cost in self._costs[machine]:
            self.next[:, machine] = cost
            if left < count:
                return
            left -= count

    def take(self, task: int, machine: int) -> None:
        """Let a task run."""
        k = self.classes.of[task]
        self.at[task] = machine
        self.free[machine] -= self.demand[task]
        self.held[machine] += 1
        self._price(machine)
        self.most[self.classes.job[k]] -= 1
        if self.classes.apart[k]:
            self.rules.setdefault(self.classes.apart[k], set()).add(machine)
