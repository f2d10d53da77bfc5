"""A live network whose costs are too large for one machine word: stages in strict order, each warm.

A cost is a Python integer of any size and is cut at given divisors: ``cost = sum of part[k] * divisor[k]``, each part
but the first balanced around zero. The caller knows that minimising the sum means to minimise part 0 first, then part
1 among those optima, and so on (weights of a strict order). So each part gets a `NetworkSession` of its own, on the
same slots. Stage k + 1 may use only the optimal flows of stage k: by complementary slackness with any optimal
potentials these are the feasible flows that keep every arc of non-zero reduced cost at its bound (see
`network_lexicographic`). Arcs held at their capacity go into the supplies of their ends. What is held changes little
from step to step, so every stage starts from its last tree. Memory and time are those of one session per stage,
and a few passes over all arcs in NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowlex.formulations.program_arrays import Integers, exact_dot
from flowlex.formulations.sessions.live_network import NetworkSession, Violations

__all__ = ["PhasedSession"]


@dataclass
class _Face:
    """What a later stage was last told: room left on each arc, and the flow held at capacity, which its ends supply."""

    room: Integers
    held: Integers

    def fitted(self, arcs: int) -> _Face:
        more = arcs - len(self.room)
        return _Face(np.pad(self.room, (0, more)), np.pad(self.held, (0, more)))


class PhasedSession:
    """The interface of `NetworkSession` for costs of any size.

    Parameters
    ----------
    divisors
        Falling, the last is 1; see the module.
    nodes, arcs
        Slots made ahead.
    """

    root = 0

    def __init__(self, divisors: Sequence[int], nodes: int = 64, arcs: int = 256) -> None:
        if list(divisors) != sorted(set(divisors), reverse=True) or not divisors or divisors[-1] != 1:
            raise ValueError(f"divisors must fall to 1, got {tuple(divisors)}")
        self.divisors: tuple[int, ...] = tuple(divisors)
        self.stages: list[NetworkSession] = [NetworkSession(nodes, arcs) for _ in divisors]
        self._noted: dict[int, tuple[int, int, int, tuple[int, ...]]] = {}  # arcs as they will be
        self._supplies: dict[int, int] = {}
        none = np.zeros(0, np.int64)
        self._faces = [_Face(none, none) for _ in divisors[1:]]
        self._tail, self._head, self._last, self._supply = none, none, none, none
        self.flow: Integers = none
        self.worst: list[int] = []  # `stage_violations` at the last call of `violations`

    # Shape -----------------------------------------------------------------------------------------------------
    @property
    def node_count(self) -> int:
        """Node slots in use or given up."""
        return self.stages[0].node_count

    @property
    def arc_count(self) -> int:
        """Arc slots in use or given up."""
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
        """Take a node slot; it supplies nothing."""
        node = self.stages[0].add_node()
        for stage in self.stages[1:]:
            while stage.node_count <= node:
                stage.add_node()
        return node

    def remove_node(self, node: int) -> None:
        """Give a node slot up; its arcs must have been given up, its supply must be zero."""
        self.stages[0].remove_node(node)

    def add_arc(self, tail: int, head: int, capacity: int, cost: int) -> int:
        """Take an arc slot."""
        parts = self.parts(cost)
        slot = self.stages[0].add_arc(tail, head, capacity, parts[0])
        for stage in self.stages[1:]:
            while stage.arc_count <= slot:
                stage.add_arc(0, 0, 0, 0)
        self._noted[slot] = (tail, head, capacity, parts)
        return slot

    def change_arc(self, slot: int, tail: int, head: int, capacity: int, cost: int) -> None:
        """Give an arc other ends, capacity or cost."""
        parts = self.parts(cost)
        self.stages[0].change_arc(slot, tail, head, capacity, parts[0])
        self._noted[slot] = (tail, head, capacity, parts)

    def change_arcs(self, changes: list[int]) -> None:
        """As of `NetworkSession`."""
        for at in range(0, len(changes), 5):
            self.change_arc(*changes[at : at + 5])

    def remove_arc(self, slot: int) -> None:
        """Give an arc slot up."""
        self.stages[0].remove_arc(slot)
        self._noted[slot] = (0, 0, 0, (0,) * len(self.stages))

    def add_supply(self, node: int, amount: int) -> None:
        """Let a node supply more (or less)."""
        self.stages[0].add_supply(node, amount)
        self._supplies[node] = self._supplies.get(node, 0) + amount

    # Solving ---------------------------------------------------------------------------------------------------
    def solve(self, *, cold: bool = False) -> None:
        """Bring the flow to the lexicographic optimum, from the last trees or (``cold``) from nothing.

        Raises
        ------
        EngineError
            No flow satisfies the network.
        """
        first = self.stages[0]
        first.solve(cold=cold)  # only this stage can fail, and then everything noted is still to be told to the others
        noted, self._noted = self._noted, {}
        supplies, self._supplies = self._supplies, {}
        self._supply = np.pad(self._supply, (0, self.node_count - len(self._supply)))
        for node, units in supplies.items():
            self._supply[node] += units
        tail, head, capacity, cost = first.arcs()
        room, held = capacity, np.zeros_like(capacity)
        for index, stage in enumerate(self.stages[1:], 1):
            reduced = _reduced(tail, head, cost, self.stages[index - 1])
            held = held + np.where(reduced < 0, room, 0)
            room = np.where(reduced == 0, room, 0)
            self._tell(index, tail, head, _Face(room, held), noted, supplies)
            stage.solve(cold=cold)
            cost = stage.arcs()[3]
        self._tail, self._head = tail, head
        self.flow = self.stages[-1].flow + held

    def _tell(
        self,
        index: int,
        tail: Integers,
        head: Integers,
        face: _Face,
        noted: Mapping[int, tuple[int, int, int, tuple[int, ...]]],
        supplies: Mapping[int, int],
    ) -> None:
        """Bring a later stage up to the optima of the stages before it."""
        stage, count = self.stages[index], len(tail)
        old = self._faces[index - 1].fitted(count)
        old_tail, old_head = (np.pad(ends, (0, count - len(ends))) for ends in (self._tail, self._head))
        costs = stage.arcs()[3]
        for slot in np.flatnonzero(face.room != old.room).tolist():
            if slot not in noted:
                stage.change_arc(slot, int(tail[slot]), int(head[slot]), int(face.room[slot]), int(costs[slot]))
        for slot, (a, b, _, parts) in noted.items():
            stage.change_arc(slot, a, b, int(face.room[slot]), parts[index])
        more = np.zeros(self.node_count, np.int64)
        moved = np.flatnonzero((old.held != face.held) | ((old_tail != tail) | (old_head != head)))
        for sign, ends, amount in ((1, old_tail, old.held), (-1, old_head, old.held)):
            np.add.at(more, ends[moved], sign * amount[moved])
        for sign, ends, amount in ((-1, tail, face.held), (1, head, face.held)):
            np.add.at(more, ends[moved], sign * amount[moved])
        for node, units in supplies.items():
            more[node] += units
        for node in np.flatnonzero(more).tolist():
            if node:
                stage.add_supply(node, int(more[node]))
        self._faces[index - 1] = face

    # Reading ---------------------------------------------------------------------------------------------------
    @property
    def objective(self) -> int:
        """Exact cost of the present flow."""
        parts = (exact_dot(cost, self.flow) for cost in self.arcs()[3])
        return sum(divisor * part for divisor, part in zip(self.divisors, parts, strict=True))

    def arcs(self) -> tuple[Integers, Integers, Integers, list[Integers]]:
        """Tail, head, capacity and the parts of the cost by slot, as last solved."""
        solved = slice(0, len(self.flow))
        tail, head, capacity, _ = (column[solved] for column in self.stages[0].arcs())
        return tail, head, capacity, [stage.arcs()[3][solved] for stage in self.stages]

    def take_touched(self) -> tuple[Integers, Integers]:
        """Arc slots whose flow has changed since the last call, and their flow then; forgets them."""
        before = np.pad(self._last, (0, len(self.flow) - len(self._last)))
        slots = np.flatnonzero(before != self.flow)
        self._last = self.flow.copy()
        return slots, before[slots]

    def violations(self) -> Violations:
        """Recompute feasibility and optimality of every stage in integers; all zero is a proof."""
        tail, head, capacity, _ = self.arcs()
        flow = self.flow
        excess = -self._supply
        np.add.at(excess, tail, flow)
        np.subtract.at(excess, head, flow)
        conservation = np.abs(excess[1:]).max(initial=0)
        bounds = np.maximum(-flow, flow - capacity).max(initial=0)
        found = {"conservation": int(conservation), "bounds": int(max(bounds, 0))}
        self.worst = self.stage_violations()
        return replace(self.stages[0].violations(), **found, reduced_costs=max(self.worst))

    def stage_violations(self) -> list[int]:
        """Largest reduced cost of the wrong sign in each stage, among the arcs that the earlier stages leave free."""
        tail, head, capacity, costs = self.arcs()
        flow, free = self.flow, np.ones(len(tail), np.bool_)
        worst = []
        for stage, cost in zip(self.stages, costs, strict=True):
            reduced = _reduced(tail, head, cost, stage)
            up = np.where(free & (flow < capacity), -reduced, 0).max(initial=0)
            down = np.where(free & (flow > 0), reduced, 0).max(initial=0)
            worst.append(int(max(up, down, 0)))
            free &= reduced == 0
        return worst


def _reduced(tail: Integers, head: Integers, cost: Integers, stage: NetworkSession) -> Integers:
    pi = stage.potentials
    reduced: Integers = cost - pi[tail] + pi[head]
    return reduced
