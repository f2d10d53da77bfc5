"""The live network as a linear program that HiGHS keeps and hot-starts; for comparison with `NetworkSession`.

Rows are nodes (the root has none), columns are arcs. New arcs are new columns; an arc given up is closed by its
bounds, and the program is packed when closed columns outnumber the others. HiGHS works in floating point: flows and
duals are rounded, and `violations` checks the rounded ones in exact integers.
"""

from __future__ import annotations

import highspy
import numpy as np

from flowlex.formulations.arrays import Integers
from flowlex.formulations.engines.highs import quiet, run
from flowlex.formulations.outcome import EngineError
from flowlex.formulations.sessions.network import Violations
from flowlex.formulations.sessions.residual import ENDLESS

__all__ = ["HighsSession"]

#: Integers beyond this are not exact in floating point.
_EXACT = 2**53


class HighsSession:
    """The interface of `NetworkSession` on a hot-started linear program."""

    def __init__(self) -> None:
        self._highs = quiet(presolve="off")
        self._arcs: list[tuple[int, int, int, int]] = []  # tail, head, capacity, cost by slot
        self._column: list[int] = []  # column by slot, -1 before it has one
        self._columns = 0
        self._supply = [0]
        self._rows = 1
        self._free: list[int] = []
        self._nodes: list[int] = []
        self._pending: dict[int, tuple[int, int, int, int]] = {}  # what arcs become with the next solve
        self._supplies: dict[int, int] = {}
        self.flow: Integers = np.zeros(0, np.int64)
        self._last: Integers = np.zeros(0, np.int64)
        self.potentials: Integers = np.zeros(1, np.int64)

    def add_node(self) -> int:
        """Take a node slot."""
        if self._nodes:
            return self._nodes.pop()
        self._supply.append(0)
        return len(self._supply) - 1

    def remove_node(self, node: int) -> None:
        """Give a node slot up."""
        self._nodes.append(node)

    def add_arc(self, tail: int, head: int, capacity: int, cost: int) -> int:
        """Take an arc slot."""
        if self._free:
            slot = self._free.pop()
            self.change_arc(slot, tail, head, capacity, cost)
            return slot
        self._arcs.append((0, 0, 0, 0))
        self._column.append(-1)
        self._pending[len(self._arcs) - 1] = (tail, head, capacity, cost)
        return len(self._arcs) - 1

    def change_arc(self, slot: int, tail: int, head: int, capacity: int, cost: int) -> None:
        """Give an arc other ends, capacity or cost."""
        self._pending[slot] = (tail, head, capacity, cost)

    def remove_arc(self, slot: int) -> None:
        """Give an arc slot up."""
        self.change_arc(slot, 0, 0, 0, 0)
        self._free.append(slot)

    def add_supply(self, node: int, amount: int) -> None:
        """Let a node supply more (or less)."""
        self._supplies[node] = self._supplies.get(node, 0) + amount

    def _apply(self) -> None:
        rows = len(self._supply)
        if rows > self._rows:
            more = rows - self._rows
            none = np.zeros(0)
            zeros = np.zeros(more)
            self._highs.addRows(more, zeros, zeros, 0, np.zeros(more, np.int32), none.astype(np.int32), none)
            self._rows = rows
        for node, amount in self._supplies.items():
            self._supply[node] += amount
        nodes = np.array(sorted(self._supplies.keys() - {0}), np.int32)
        if len(nodes):
            values = np.array([self._supply[v] for v in nodes], np.float64)
            self._highs.changeRowsBounds(len(nodes), nodes - 1, values, values)
        self._supplies.clear()
        moved = [slot for slot, arc in self._pending.items() if self._arcs[slot][:2] != arc[:2]]
        kept = [slot for slot, arc in self._pending.items() if self._arcs[slot][:2] == arc[:2] and arc[0] != arc[1]]
        for slot, arc in self._pending.items():
            self._arcs[slot] = arc
        self._pending.clear()
        gone = [self._column[slot] for slot in moved if self._column[slot] >= 0]
        if gone:
            closed = np.array(sorted(gone), np.int32)
            self._highs.changeColsBounds(len(closed), closed, np.zeros(len(closed)), np.zeros(len(closed)))
        for slot in moved:
            self._column[slot] = -1
        self._add([slot for slot in moved if self._arcs[slot][0] != self._arcs[slot][1]])
        self._update(kept)
        if self._columns > 2 * len(self._arcs) + 1000:
            self._pack()

    def _pack(self) -> None:
        """Make the program anew without its closed columns; this start is cold."""
        self._highs.deleteCols(self._columns, np.arange(self._columns, dtype=np.int32))
        self._columns, self._column = 0, [-1] * len(self._arcs)
        self._add([slot for slot, arc in enumerate(self._arcs) if arc[0] != arc[1]])

    def _add(self, slots: list[int]) -> None:
        if not slots:
            return
        arcs = np.array([self._arcs[slot] for slot in slots], np.int64)
        if int(np.abs(arcs[:, 3]).max()) > _EXACT:
            raise EngineError("costs beyond 2**53 are not exact in HiGHS; use engine='simplex'")
        upper = np.where(arcs[:, 2] >= ENDLESS, np.inf, arcs[:, 2].astype(np.float64))
        ends = arcs[:, :2] - 1
        kept = ends >= 0
        index = ends[kept].astype(np.int32)
        value = np.broadcast_to(np.array([1.0, -1.0]), ends.shape)[kept]
        start = np.concatenate([[0], np.cumsum(kept.sum(axis=1))[:-1]]).astype(np.int32)
        count = len(slots)
        self._highs.addCols(
            count, arcs[:, 3].astype(np.float64), np.zeros(count), upper, len(index), start, index, value
        )
        for offset, slot in enumerate(slots):
            self._column[slot] = self._columns + offset
        self._columns += count

    def _update(self, slots: list[int]) -> None:
        if not slots:
            return
        columns = np.array([self._column[slot] for slot in slots], np.int32)
        arcs = np.array([self._arcs[slot] for slot in slots], np.int64)
        order = np.argsort(columns)
        columns, arcs = columns[order], arcs[order]
        upper = np.where(arcs[:, 2] >= ENDLESS, np.inf, arcs[:, 2].astype(np.float64))
        self._highs.changeColsBounds(len(columns), columns, np.zeros(len(columns)), upper)
        self._highs.changeColsCost(len(columns), columns, arcs[:, 3].astype(np.float64))

    def solve(self, *, cold: bool = False) -> None:
        """Bring the flow to minimum cost, hot-started unless ``cold``."""
        self._apply()
        if cold:
            self._highs.clearSolver()
        run(self._highs)
        status = self._highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise EngineError(f"HiGHS ends with {self._highs.modelStatusToString(status)}")
        solution = self._highs.getSolution()
        values = np.rint(np.array(solution.col_value)).astype(np.int64)
        column = np.array(self._column, np.int64)
        self.flow = np.where(column >= 0, values[np.maximum(column, 0)], 0) if len(values) else column * 0
        duals = np.rint(np.array(solution.row_dual)).astype(np.int64)
        self.potentials = np.concatenate([[0], duals])

    def take_touched(self) -> tuple[Integers, Integers]:
        """Arc slots whose flow has changed since the last call, and their flow then."""
        before = np.zeros(len(self.flow), np.int64)
        before[: len(self._last)] = self._last
        slots = np.flatnonzero(before != self.flow)
        self._last = self.flow.copy()
        return slots, before[slots]

    @property
    def objective(self) -> int:
        """Exact cost of the present flow."""
        cost = np.array([arc[3] for arc in self._arcs], np.int64)
        return int(cost[: len(self.flow)] @ self.flow)

    def violations(self) -> Violations:
        """Recompute feasibility and optimality of the rounded answer in integers."""
        tail, head, capacity, cost = np.array(self._arcs[: len(self.flow)], np.int64).reshape(-1, 4).T
        flow, pi = self.flow, self.potentials
        excess = -np.array(self._supply[: len(pi)], np.int64)
        np.add.at(excess, tail, flow)
        np.subtract.at(excess, head, flow)
        reduced = cost - pi[tail] + pi[head]
        up = np.where(flow < capacity, -reduced, 0).max(initial=0)
        down = np.where(flow > 0, reduced, 0).max(initial=0)
        bounds = np.maximum(-flow, flow - capacity).max(initial=0)
        return Violations(int(np.abs(excess[1:]).max(initial=0)), int(max(bounds, 0)), int(max(up, down, 0)))
