"""A schedule that fits, from one that may not: tasks leave overfull machines, and take what is left elsewhere."""

from __future__ import annotations

import numpy as np

from flowlex.formulations.arrays import Booleans, Integers
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.vectors.amounts import Amounts
from flowlex.models.flow.vectors.classes import Places
from flowlex.models.flow.vectors.program import Program

__all__ = ["repaired"]


def repaired(instance: FlowInstance, amounts: Amounts, program: Program, machine: Integers) -> Integers:
    """(T,) machine of each task, -1 for none, near a proposal of the same shape; every place is one machine.

    First every task that may stay does, those that matter more and ask for less first; then the others take the
    cheapest machine with room, of equally cheap ones that which they fill most.
    """
    room = _Room(instance, amounts, program)
    order = room.order()
    for t in order[machine[order] >= 0].tolist():
        if room.fits(t)[machine[t]]:
            room.take(t, int(machine[t]))
    for t in order[room.at[order] < 0].tolist():
        fits = room.fits(t)
        if fits.any():
            m = room.cheapest(t, fits)
            if m >= 0:
                room.take(t, m)
    return room.at


class _Room:
    """What is left of machines, shares and rules."""

    def __init__(self, instance: FlowInstance, amounts: Amounts, program: Program) -> None:
        self.classes, self.places, self.shares = program.classes, program.places, program.shares
        self.demand, self.free = amounts.demand, amounts.capacity.copy()
        self.slots = np.array([machine.slots for machine in instance.machines], np.int64)
        self.most = self.shares[:, 1].copy()
        self.held = np.zeros(len(self.slots), np.int64)
        self.at: Integers = np.full(len(self.classes.of), -1, np.int64)
        self.rules: dict[str, set[int]] = {}
        self.size = (self.demand / np.maximum(amounts.capacity.sum(axis=0), 1)).max(axis=1, initial=0)
        self._costs = self._by_slot(self.places)

    @staticmethod
    def _by_slot(places: Places) -> list[list[tuple[int, Integers]]]:
        slots: list[list[tuple[int, Integers]]] = [[] for _ in range(places.size)]
        for s, (p, n) in enumerate(zip(places.slots.place.tolist(), places.slots.count.tolist(), strict=True)):
            slots[p].append((n, places.slots.cost[:, s]))
        return slots

    def order(self) -> Integers:
        """Tasks, the more important and smaller ones first."""
        found: Integers = np.lexsort((np.arange(len(self.at)), self.size, -self.classes.level[self.classes.of]))
        return found

    def fits(self, task: int) -> Booleans:
        """(M,) machines that a task may take now."""
        k = self.classes.of[task]
        if self.most[self.classes.job[k]] <= 0:
            return np.zeros(len(self.slots), np.bool_)
        found: Booleans = self.places.may[k] & (self.held < self.slots) & (self.free >= self.demand[task]).all(axis=1)
        found[list(self.rules.get(self.classes.apart[k], ()))] = False
        return found

    def cheapest(self, task: int, fits: Booleans) -> int:
        """The cheapest of some machines, rank by rank; -1 where waiting is cheaper."""
        k, among = self.classes.of[task], np.flatnonzero(fits)
        slot = np.stack([self._next(m) for m in among.tolist()], axis=1)
        cost = self.places.cost[:, k, among] + slot
        for rank in range(len(cost)):
            kept = cost[rank] == cost[rank].min()
            among, cost = among[kept], cost[:, kept]
        if not self.classes.level[k] and tuple(cost[:, 0].tolist()) > tuple(self.classes.wait[:, k].tolist()):
            return -1
        left = ((self.free[among] - self.demand[task]) / np.maximum(self.free[among], 1)).sum(axis=1)
        return int(among[np.argmin(left)])

    def _next(self, machine: int) -> Integers:
        """Cost of the next slot, by rank."""
        left = int(self.held[machine])
        for count, cost in self._costs[machine]:
            if left < count:
                return cost
            left -= count
        return self._costs[machine][-1][1]

    def take(self, task: int, machine: int) -> None:
        """Let a task run."""
        k = self.classes.of[task]
        self.at[task] = machine
        self.free[machine] -= self.demand[task]
        self.held[machine] += 1
        self.most[self.classes.job[k]] -= 1
        if self.classes.apart[k]:
            self.rules.setdefault(self.classes.apart[k], set()).add(machine)
