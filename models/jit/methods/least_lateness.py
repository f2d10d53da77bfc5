r"""Least total lateness over intervals, and the set of all schedules with it, without one row per slot.

Measured (benchmark *jit_bandwidth*, overloaded): 70 jobs at share 1.0 in 1.7 s, every level proven.

A unit of f in slot t is ``(t + 1 - due_f)^+`` slots late, which is linear in t between events. So we use port duals
that are linear on every interval. They satisfy the dual constraints in all slots if they do so in the first and the
last one, and they give a lower bound: the dual of a program with half of an interval's capacity at its first slot and
half at its last. The amounts of this program, sent evenly over each interval, are a schedule. It is later than the
bound only in intervals where more late units are sent at the first slot than at the last; these are split where a port
would have sent all its late units. Intervals of one or two slots are exact, so the method terminates.

By complementary slackness, a dual optimum describes all schedules of least lateness: a unit with positive reduced cost
is never sent, and a port with a positive dual is full. Intervals are cut where this changes; then their slots are
interchangeable without a change of lateness. So the least sorted loads are found over intervals, as with strict
windows. The intervals do not determine integer schedules: with unit ports and sizes, least lateness is minimum-sum edge
colouring of a bipartite graph, which is NP-hard. If integer units must be later than the bound, a program over slots is
solved.

Source: ours; piecewise linear duals as in separated continuous linear programs (Pullan 1993, Weiss 2008).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.lexicographic.lexicographic_problem import WHOLE
from flowlex.formulations.linear_expression import Expression
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import Outcome, Status
from flowlex.models.jit.baselines import fill
from flowlex.models.jit.interval_schedules import pile
from flowlex.models.jit.methods.plan_search import SearchState
from flowlex.models.jit.multipliers import LATENESS, LevelProof, LoadPrices, common_scale, scaled
from flowlex.models.jit.slot_programs import Cells, latest_end
from flowlex.models.jit.transfer_slot_grid import Grid, Load

#: After the last event, ends of windows are rounded to multiples of (time span of events) / this.
_PARTS = 64
#: Number of programs with guessed splits, after which intervals are also bisected.
_GUESSES = 4


@dataclass(frozen=True, eq=False)
class LeastLate:
    """All schedules of least lateness."""

    outcome: Outcome  # of the program; what follows is there only if it is optimal
    # intervals of interchangeable slots; ports marked ``full`` are full there in every such schedule
    cells: Cells | None = None
    open: NDArray[np.bool_] | None = None  # (columns of the cells,) whether a transfer may be sent there
    proof: LevelProof | None = None  # dual values that prove it

    def least_load(self, load: Load) -> int:
        """Lower bound on the largest load: a full port is shared by at most the loads that may send there."""
        cells, found = self.cells, 0
        if cells is None or cells.full is None:
            return found
        grid, count, counted = cells.grid, len(cells.length), cells.grid.loads(load)
        row = cells.columns.row[self.open]
        for side, limit in enumerate((grid.out_units, grid.in_units)):
            key = cells.entry_keys[side][self.open] * counted.count
            for group in counted.groups:
                used, loads = np.unique(np.unique(key + group[cells.which][row]) // counted.count, return_counts=True)
                shared = np.isin(used, cells.full[side])
                found = max(found, int((-(-limit[used // count] // loads))[shared].max(initial=0)))
        return found


def least_late(state: SearchState, members: Integers) -> LeastLate:
    """Find the least lateness of some transfers, without all others (see the module)."""
    grid = state.grid
    most = latest_end(grid, members)
    end = _snapped(grid, members, _room_ends(grid, members), most)
    marks = grid.due[members]
    for guesses in range(1 << 30):
        cells = Cells(grid, members, end, "intervals", marks=marks)
        ends = _Ends(cells)
        outcome = state.solve(ends.program())
        state.lp_solves += 1
        if outcome.status is Status.INFEASIBLE and (end < most).any():
            end = most  # firm ends may force other transfers to be later
            continue
        if outcome.values is None or outcome.duals is None or outcome.status is not Status.OPTIMAL:
            return LeastLate(outcome)
        prices = ends.prices(outcome)
        wanted = grid.due[members] + prices.lam // prices.scale
        longer = np.maximum(end, np.minimum(wanted + 2 + (wanted - grid.due[members]) // 4, most))
        short = np.minimum(wanted, most) > end
        split = ends.split(outcome.values, bisect=guesses >= _GUESSES)
        if not short.any() and not len(split):
            return prices.face(outcome)
        end = _snapped(grid, members, np.where(short, longer, end), most)
        marks = np.concatenate([marks, split])
    raise AssertionError("intervals of two slots are exact")


class _Ends:
    """The program with half of every interval's capacity at its first slot and half at its last."""

    def __init__(self, cells: Cells) -> None:
        self.cells, self.columns = cells, cells.columns
        self.due = cells.grid.due[cells.which]
        self.begin, self.end = cells.edges[:-1][self.columns.slot], cells.edges[1:][self.columns.slot]
        row = self.columns.row
        self.late = np.maximum(self.begin + 1 - self.due[row], 0), np.maximum(self.end - self.due[row], 0)
        self.long = np.flatnonzero(self.end - self.begin > 1)
        size = len(cells.length)
        self.rows: list[tuple[Integers, Integers, Integers]] = []  # per side: key, end (0 or 1), row of columns
        limits = (cells.grid.out_units, cells.grid.in_units)
        self.capacity: list[Floats] = []
        units = cells.grid.units[cells.which][row]
        for key, limit in zip(cells.entry_keys, limits, strict=True):
            both = np.concatenate([2 * key, 2 * key[self.long] + 1])
            used, inverse = np.unique(both, return_inverse=True)
            length = cells.length[used // 2 % size]
            capacity = limit[used // 2 // size] * np.where(length > 1, length / 2, 1)
            needed = np.bincount(inverse, np.concatenate([units, units[self.long]]), len(used)) > capacity
            number = np.where(needed, np.cumsum(needed) - 1, -1)
            self.rows.append((used[needed] // 2, used[needed] % 2, number[inverse]))
            self.capacity.append(capacity[needed])

    def program(self) -> LinearProgram:
        """Return the program; its optimum is a lower bound of the least lateness."""
        columns, count = self.columns, len(self.cells.which)
        program = LinearProgram("lateness")
        first, last = program.variables("first", columns.count), program.variables("last", len(self.long))
        for name, (key, _, row), capacity in zip(("egress", "ingress"), self.rows, self.capacity, strict=True):
            load = Expression.empty(len(key))
            for rate, part in ((first, row[: columns.count]), (last, row[columns.count :])):
                kept = part >= 0
                load = load + rate[kept].sum_by(part[kept], len(key))
            program.constrain(name, load, "<=", capacity)
        sent = first.sum_by(columns.row, count) + last.sum_by(columns.row[self.long], count)
        program.constrain("size", sent, "==", self.cells.grid.units[self.cells.which])
        program.minimize((first * self.late[0]).sum() + (last * self.late[1][self.long]).sum())
        return program

    def prices(self, outcome: Outcome) -> _LinearPrices:
        """Convert the program's duals to integers at the ends of intervals."""
        assert outcome.duals is not None
        duals = self.program_duals(outcome.duals)
        scale = common_scale(list(duals))
        lam, *sides = (scaled(each, scale) for each in duals)
        ports = []
        for (key, at_last, _), price in zip(self.rows, sides, strict=True):
            value = np.zeros((2, len(self.cells.grid.out_units) * len(self.cells.length)), np.int64)
            value[at_last, key] = price
            single = self.cells.length[np.arange(value.shape[1]) % len(self.cells.length)] == 1
            value[1, single] = value[0, single]
            ports.append(value)
        return _LinearPrices(self, scale, lam, (ports[0], ports[1]))

    def program_duals(self, duals: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the duals of sizes, and of egress and ingress ports as nonnegative prices."""
        cuts = np.cumsum([len(each[0]) for each in self.rows])
        out, into, size = np.split(duals, cuts)
        return size, np.maximum(-out, 0.0), np.maximum(-into, 0.0)

    def split(self, values: Floats, *, bisect: bool) -> Integers:
        """Slots at which to split intervals; empty if the amounts, sent evenly, attain the bound."""
        cell, length = self.columns.slot, self.end - self.begin
        first, last = values[: self.columns.count], np.zeros(self.columns.count)
        last[self.long] = values[self.columns.count :]
        late = (self.late[1] > 0) & (length > 2)
        more = np.where(late, first - last, 0.0)  # amount at the first slot minus amount at the last
        by_cell = np.bincount(cell, more, len(self.cells.length))
        gain = (by_cell * (self.cells.length - 1)).sum() / 2
        if gain <= WHOLE * self.cells.length.max(initial=1):
            return np.zeros(0, np.int64)
        bad = by_cell > WHOLE
        found = np.unique(np.concatenate([*self._dry(first + last, more, late & bad[cell])]))
        edges = self.cells.edges
        inside = found[~np.isin(found, edges)]
        hit = np.zeros(len(by_cell), np.bool_)
        hit[np.searchsorted(edges, inside, side="right") - 1] = True
        halves = np.flatnonzero(bad & (bisect | ~hit))
        return np.concatenate([inside, (edges[halves] + edges[halves + 1]) // 2])

    def _dry(self, sent: Floats, more: Floats, chosen: NDArray[np.bool_]) -> Iterator[Integers]:
        """Slots at which ports would have sent all late units at full rate."""
        grid = self.cells.grid
        sides = ((grid.sender, grid.out_units), (grid.receiver, grid.in_units))
        for key, (port, limit) in zip(self.cells.entry_keys, sides, strict=True):
            used, at, inverse = np.unique(key[chosen], return_index=True, return_inverse=True)
            at = np.flatnonzero(chosen)[at]
            rate = limit[port[self.cells.which[self.columns.row[at]]]]
            dry = self.begin[at] + np.floor(np.bincount(inverse, sent[chosen], len(used)) / rate + WHOLE)
            kept = (np.bincount(inverse, more[chosen], len(used)) > WHOLE) & (dry < self.end[at])
            yield dry[kept].astype(np.int64)
            yield np.minimum(dry + 1, self.end[at])[kept].astype(np.int64)


@dataclass(frozen=True, eq=False)
class _LinearPrices:
    """Duals at both ends of every interval: ``ports[side][end, machine * cells + cell]``."""

    ends: _Ends
    scale: int
    lam: Integers
    ports: tuple[Integers, Integers]

    def face(self, outcome: Outcome) -> LeastLate:
        """Return the optimal face given by complementary slackness, over intervals on which it is constant."""
        ends, cells = self.ends, self.ends.cells
        keys, row = cells.entry_keys, ends.columns.row
        dear = [
            self.scale * ends.late[at] + self.ports[0][at, keys[0]] + self.ports[1][at, keys[1]] - self.lam[row] > 0
            for at in (0, 1)
        ]
        count = len(cells.length)
        priced = [[side[at].reshape(-1, count) > 0 for at in (0, 1)] for side in self.ports]
        # Cut an interval after its first slot, or before its last, if this slot differs from the others.
        behind, before = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        np.logical_or.at(behind, ends.columns.slot, ~dear[0] & dear[1])
        np.logical_or.at(before, ends.columns.slot, dear[0] & ~dear[1])
        for at_first, at_last in priced:
            behind |= (~at_first & at_last).any(axis=0)
            before |= (at_first & ~at_last).any(axis=0)
        a, b = cells.edges[:-1], cells.edges[1:]
        edges = np.unique(np.concatenate([cells.edges, a[behind] + 1, b[before] - 1]))
        parent = np.searchsorted(cells.edges, edges[:-1], side="right") - 1
        inner = np.stack([edges[:-1] > a[parent], edges[1:] < b[parent]])  # not its first piece; not its last
        full = [self._pieces(first, last, parent, inner) for first, last in priced]
        whole = _Pieces(cells, edges, ends.columns.first, ends.columns.last, parent)
        dearer = np.stack([each[whole.column] for each in dear])
        single = (whole.piece_length == 1) & (cells.length[whole.cell] > 1)
        at_first, at_last = ~inner[0][whole.piece], ~inner[1][whole.piece]
        allowed = ~dearer[0] & ~dearer[1]
        allowed |= single & at_first & ~dearer[0]
        allowed |= single & at_last & ~dearer[1]
        return self._cut(outcome, edges, whole, allowed, full)

    @staticmethod
    def _pieces(
        first: NDArray[np.bool_], last: NDArray[np.bool_], parent: Integers, inner: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """(M, pieces) whether a port has a positive dual in all slots of a piece, from its values at both ends."""
        one, two = first[:, parent], last[:, parent]
        return np.asarray((one & two) | (one & inner[1]) | (two & inner[0]))

    def _cut(
        self,
        outcome: Outcome,
        edges: Integers,
        whole: _Pieces,
        allowed: NDArray[np.bool_],
        full: list[NDArray[np.bool_]],
    ) -> LeastLate:
        """Merge adjacent pieces between which nothing changes."""
        cells, row, piece = self.ends.cells, whole.row, whole.piece
        kept = np.zeros(len(edges), np.bool_)
        same = row[1:] == row[:-1]
        kept[piece[1:][same & (allowed[1:] != allowed[:-1])]] = True
        for side in full:
            kept[1:-1] |= (side[:, 1:] != side[:, :-1]).any(axis=0)
        at = np.flatnonzero(allowed)
        start, stop = np.full(len(cells.which), 1 << 60), np.full(len(cells.which), -1)
        np.minimum.at(start, row[at], edges[piece[at]])
        np.maximum.at(stop, row[at], edges[piece[at] + 1])
        if (stop < 0).any():
            return LeastLate(replace(outcome, status=Status.ERROR, values=None, message="prices close a transfer"))
        due = self.ends.due[(start < self.ends.due) & (self.ends.due < stop)]
        kept[np.searchsorted(edges, due)] = True  # so that an interval is late as a whole or not at all
        made = Cells(cells.grid, cells.which, stop, "intervals", None, start, edges[kept])
        number = np.searchsorted(edges, made.edges[:-1])
        keys = tuple(np.flatnonzero(side[:, number].ravel()) for side in full)
        columns = made.columns
        offset = np.concatenate([[0], np.cumsum(whole.last - whole.first)])
        entry = offset[columns.row] + number[columns.slot] - whole.first[columns.row]
        made = replace(made, full=(keys[0], keys[1]))
        return LeastLate(outcome, made, allowed[entry], self._proof())

    def _proof(self) -> LevelProof:
        cells = self.ends.cells
        count, machines = len(cells.length), len(cells.grid.out_units)
        rows = [np.flatnonzero((side > 0).any(axis=0)) for side in self.ports]
        unit = np.concatenate([at // count + side * machines for side, at in enumerate(rows)])
        cell = np.concatenate([at % count for at in rows])
        first, last = (
            np.concatenate([side[end, at] for side, at in zip(self.ports, rows, strict=True)]) for end in (0, 1)
        )
        port = LoadPrices(unit, cells.edges[cell], cells.edges[cell + 1], first, last)
        return LevelProof(LATENESS, self.lam, LoadPrices(), port, self.scale, {}, self.scale)


class _Pieces:
    """Columns cut into pieces of intervals: row, piece, column and interval of every entry."""

    def __init__(self, cells: Cells, edges: Integers, first: Integers, last: Integers, parent: Integers) -> None:
        self.first, self.last = np.searchsorted(edges, cells.edges[first]), np.searchsorted(edges, cells.edges[last])
        size = self.last - self.first
        self.row = np.repeat(np.arange(len(first)), size)
        self.piece = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size - self.first, size)
        self.cell = parent[self.piece]
        self.column = cells.columns.entry(self.row, self.cell)
        self.piece_length = np.diff(edges)[self.piece]


def _snapped(grid: Grid, members: Integers, end: Integers, most: Integers) -> Integers:
    """Move ends of windows to the next event, so that there are few intervals."""
    end = np.clip(end, np.minimum(grid.stop[members], most), most)
    events = np.unique(np.concatenate([grid.start[members], grid.due[members]]))
    last, step = int(events[-1]), max(1, int(events[-1] - events[0]) // _PARTS)
    later = last - (last - end) // step * step
    at = np.minimum(np.searchsorted(events, end), len(events) - 1)
    return np.asarray(np.minimum(np.where(end > last, later, events[at]), most))


def _room_ends(grid: Grid, members: Integers) -> Integers:
    """Guess ends of windows: first slot with free capacity at both ports after a transfer, first come first served."""
    sender, receiver, machines = grid.sender[members], grid.receiver[members], len(grid.out_units)
    facts = (grid.out_units, grid.in_units, sender, receiver, grid.units[members], grid.start[members])
    end, sent = fill(*facts)
    ports = np.concatenate([sender[sent.item], receiver[sent.item] + machines])
    unit, begin, last, load = pile(ports, np.tile(sent.begin, 2), np.tile(sent.end, 2), np.tile(sent.rate, 2))
    full = load >= np.concatenate([grid.out_units, grid.in_units])[unit]
    edges = np.unique(np.concatenate([begin, last, end]))
    change = np.zeros((2 * machines, len(edges)), np.int64)
    np.add.at(change, (unit[full], np.searchsorted(edges, begin[full])), 1)
    np.add.at(change, (unit[full], np.searchsorted(edges, last[full])), -1)
    busy = np.cumsum(change, axis=1) > 0
    first = np.searchsorted(edges, end)
    at = [
        k + int((busy[i, k:] | busy[j, k:]).argmin())
        for i, j, k in zip(sender, receiver + machines, first, strict=True)
    ]
    return np.asarray(np.where(end > grid.due[members], edges[at], end))
