"""A live network whose costs are too large for one machine word: stages in strict order, each warm.

A cost is a Python integer of any size and is cut at given divisors: ``cost = sum of part[k] * divisor[k]``, each part
but the first balanced around zero. The caller knows that minimising the sum means to minimise part 0 first, then part
1 among those optima, and so on (weights of a strict order). So each part gets a `NetworkSession` of its own, on the
same slots. Stage k + 1 may use only the optimal flows of stage k: by complementary slackness with any optimal
potentials these are the feasible flows that keep every arc of non-zero reduced cost at its bound (see
`network_lexicographic`). Arcs held at their capacity go into the supplies of their ends. What is held changes little
from step to step, so every stage starts from its last flow. Memory and time are those of one session per stage,
and a few passes over all arcs in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Integers, exact_dot
from flowlex.systems.scheduler.warm_network.network_session import CheapestPaths, NetworkSession, Violations
from flowlex.systems.scheduler.warm_network.shortest_path_kernels import cheapest


class PhasedSession:
    """The interface of `NetworkSession` for costs of any size; ``divisors`` fall to 1 (see the module)."""

    root = 0

    def __init__(self, divisors: Sequence[int], nodes: int = 64, arcs: int = 256) -> None:
        if list(divisors) != sorted(set(divisors), reverse=True) or not divisors or divisors[-1] != 1:
            raise ValueError(f"divisors must fall to 1, got {tuple(divisors)}")
        self.divisors: tuple[int, ...] = tuple(divisors)
        self.stages: list[NetworkSession] = [NetworkSession(nodes, arcs) for _ in divisors]
        self._noted: dict[int, tuple[int, ...]] = {}  # parts of the cost by slot, since the last `solve`
        self._costs: Integers = np.zeros((len(divisors), 0), np.int64)  # parts by stage and slot, as last solved
        self._last = self.flow = self._costs[0]
        self._ends: tuple[Integers, Integers, Integers] = (self.flow,) * 3  # tail, head and capacity, as last solved

    # Shape -----------------------------------------------------------------------------------------------------
    @property
    def node_count(self) -> int:
        """Number of node slots, used or free."""
        return self.stages[0].node_count

    @property
    def arc_count(self) -> int:
        """Number of arc slots, used or free."""
        return self.stages[0].arc_count

    @property
    def changes(self) -> int:
        """As of `NetworkSession`."""
        return self.stages[0].changes

    def parts(self, cost: int) -> tuple[int, ...]:
        """The parts of a cost, the most important first."""
        found = []
        for divisor in self.divisors:
            part = (cost + divisor // 2) // divisor
            cost -= part * divisor
            found.append(part)
        return tuple(found)

    def add_node(self) -> int:
        """Add a node without supply; return its slot."""
        return self.stages[0].add_node()

    def remove_node(self, node: int) -> None:
        """Free a node slot; its arcs must be free and its supply zero."""
        self.stages[0].remove_node(node)

    def add_arc(self, tail: int, head: int, capacity: int, cost: int) -> int:
        """Add an arc; return its slot."""
        parts = self.parts(cost)
        slot = self.stages[0].add_arc(tail, head, capacity, parts[0])
        self._noted[slot] = parts
        return slot

    def add_arcs(self, tail: int, heads: Sequence[int], costs: Sequence[int]) -> list[int]:
        """As of `NetworkSession`."""
        return [self.add_arc(tail, head, 1, cost) for head, cost in zip(heads, costs, strict=True)]

    def change_arc(self, slot: int, tail: int, head: int, capacity: int, cost: int) -> None:
        """Give an arc other ends, capacity or cost."""
        parts = self._noted[slot] = self.parts(cost)
        self.stages[0].change_arc(slot, tail, head, capacity, parts[0])

    def change_arcs(self, changes: list[int]) -> None:
        """As of `NetworkSession`."""
        for at in range(0, len(changes), 5):
            self.change_arc(*changes[at : at + 5])

    def remove_arc(self, slot: int) -> None:
        """Free an arc slot."""
        self.stages[0].remove_arc(slot)
        self._noted[slot] = (0,) * len(self.stages)

    def add_supply(self, node: int, amount: int) -> None:
        """Add an amount to the supply of a node."""
        self.stages[0].add_supply(node, amount)

    # Solving ---------------------------------------------------------------------------------------------------
    def solve(self, *, cold: bool = False) -> None:
        """Bring the flow to the lexicographic optimum, from the last flows or (``cold``) from nothing.

        Raises `EngineError` where no flow satisfies the network; only the first stage can find that.
        """
        first = self.stages[0]
        first.solve(cold=cold)
        tail, head, capacity, _ = first.arcs()
        self._costs = np.pad(self._costs, ((0, 0), (0, len(tail) - self._costs.shape[1])))
        for slot, parts in self._noted.items():
            self._costs[:, slot] = parts
        self._noted.clear()
        room, held, supply = capacity, np.zeros_like(capacity), first.supply.copy()
        for index, stage in enumerate(self.stages[1:]):
            reduced = _reduced(tail, head, self._costs[index], self.stages[index])
            full = np.where(reduced < 0, room, 0)
            np.subtract.at(supply, tail, full)
            np.add.at(supply, head, full)
            held, room = held + full, np.where(reduced == 0, room, 0)
            stage.become(tail, head, room, self._costs[index + 1], supply)
            stage.solve(cold=cold)
        self._ends = tail, head, capacity
        self.flow = self.stages[-1].flow + held

    # Reading ---------------------------------------------------------------------------------------------------
    @property
    def objective(self) -> int:
        """Exact cost of the current flow."""
        parts = (exact_dot(cost, self.flow) for cost in self.arcs()[3])
        return sum(divisor * part for divisor, part in zip(self.divisors, parts, strict=True))

    def arcs(self) -> tuple[Integers, Integers, Integers, list[Integers]]:
        """Tail, head, capacity and the parts of the cost by slot, as last solved."""
        return (*self._ends, list(self._costs))

    def costs(self, slots: Integers) -> NDArray[Any]:
        """Costs of some arcs as last solved, put together again from their parts."""
        parts = zip(self.divisors, self._costs, strict=True)
        found: NDArray[Any] = sum((d * part[slots].astype(object) for d, part in parts), np.zeros(len(slots), object))
        return found

    def take_touched(self) -> tuple[Integers, Integers]:
        """Arc slots whose flow has changed since the last call, and their flow at that call."""
        before = np.pad(self._last, (0, len(self.flow) - len(self._last)))
        slots = np.flatnonzero(before != self.flow)
        self._last = self.flow.copy()
        return slots, before[slots]

    def cheapest_paths(self, source: int, without: int = -1) -> CheapestPaths:
        """As of `NetworkSession`: by the costs of the first stage, then of the second, and so on."""
        tail, head, capacity, costs = self.arcs()
        first, nodes = self.stages[0], self.node_count
        reduced = [_reduced(tail, head, cost, stage) for cost, stage in zip(costs, self.stages, strict=True)]
        # One Python integer per arc, with a digit of this base per stage, as along a path no digit carries over.
        base = 1 + 2 * nodes * max(1, *(int(np.abs(each).max(initial=0)) for each in reduced))
        joined = np.zeros(len(tail), object)
        for each in reduced:
            joined = joined * base + each
        distance, zero = np.zeros(nodes, object), np.zeros(nodes, object)
        t = first._t._replace(capacity=capacity, flow=self.flow, cost=joined, pi=zero, distance=distance)
        stamp = cheapest.run_plain(t, source, without, False)
        reached, cost = t.stamp[:nodes] == stamp, zero
        for divisor, stage in zip(self.divisors[::-1], self.stages[::-1], strict=True):
            digit = (distance + base // 2) % base - base // 2
            distance = (distance - digit) // base
            cost = cost + divisor * (digit + stage.potentials[source] - stage.potentials)
        return CheapestPaths(cost, np.where(reached, t.link[:nodes], -1), reached)

    def violations(self) -> Violations:
        """Recompute feasibility and optimality of every stage in integers; all zero is a proof."""
        tail, head, capacity, costs = self.arcs()
        flow = self.flow
        excess = -self.stages[0].supply
        np.add.at(excess, tail, flow)
        np.subtract.at(excess, head, flow)
        conservation = np.abs(excess[1:]).max(initial=0)
        bounds = np.maximum(-flow, flow - capacity).max(initial=0)
        free, worst = np.ones(len(tail), np.bool_), list[int]()
        for stage, cost in zip(self.stages, costs, strict=True):
            reduced = _reduced(tail, head, cost, stage)
            up = np.where(free & (flow < capacity), -reduced, 0).max(initial=0)
            down = np.where(free & (flow > 0), reduced, 0).max(initial=0)
            worst.append(int(max(up, down, 0)))
            free &= reduced == 0
        return Violations(int(conservation), int(max(bounds, 0)), max(worst), tuple(worst))


def _reduced(tail: Integers, head: Integers, cost: Integers, stage: NetworkSession) -> Integers:
    pi = stage.potentials
    reduced: Integers = cost - pi[tail] + pi[head]
    return reduced
