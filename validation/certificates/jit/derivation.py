r"""Stage by stage, no schedule is better: linear programming duality over what the stages before have settled.

With ``N_s`` the number of loads (pair or port, in one slot) of at least s, level k claims: no schedule whose ``N_s``
for s > k are as small as ours has a smaller ``N_k``. Its proof are whole prices (over a common ``scale``): ``lam`` per
transfer, ``rho`` per unit of load, ``pi`` per unit of port, ``mu`` per level above that is still open. Every such
schedule then has ::

    scale N_k  >=  sum_f lam_f d_f + sum_(f,c) min (rho + pi - lam_f) x  -  sum_(port,c) pi C
                   + sum_(u,c) min_delta (F(delta) - rho delta)  -  sum_s mu_s N_s

each minimum over the bounds known so far; ``F`` counts a load with weight ``scale`` at level k and ``mu_s`` above.
``N_k`` is whole, so a bound above ``scale (N_k - 1)`` proves it.

What is left between ``N_k`` and the bound (the *gap*) is all that any schedule as good can lose in all the minima
together. That settles more bounds (reduced cost fixing; with gap 0 complementary slackness), on which the later
stages, for lower levels, build. Total lateness, where there is any, is the first stage, with the number `LATENESS`:
`flowlex.validation.certificates.jit.lateness`, which says what may be sent when, and which ports are full.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from flowlex.formulations.arrays import Integers

__all__ = ["LATENESS", "SAFE", "Allowed", "Board", "LevelProof", "Prices", "greatest", "together"]

#: The "level" of the proof that total lateness is least.
LATENESS = -1
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Prices:
    """Prices of loads or ports: ``unit`` (its number), slots ``begin .. end - 1``, price per unit sent.

    For lateness, ports may have another price in the ``last`` slot; between the two it is linear.
    """

    unit: Integers = field(default_factory=lambda: _NONE)
    begin: Integers = field(default_factory=lambda: _NONE)
    end: Integers = field(default_factory=lambda: _NONE)
    price: Integers = field(default_factory=lambda: _NONE)
    last: Integers = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.last is None:
            object.__setattr__(self, "last", self.price)


@dataclass(frozen=True, eq=False)
class LevelProof:
    """Prices that bound ``N_level`` (or the total lateness) from below for one part.

    Attributes
    ----------
    scale
        What a price of 1 is written as.
    lam
        (transfers of the part,) price of sending one unit.
    load, port
        `Prices`; a pair is ``sender * machines + receiver``, a port ``machine``, or ``machines + machine`` inwards.
    mu
        Level to price, for levels above whose own bound left a gap.
    nu
        Price of total lateness.
    solver_bound
        What an integer program proved, where duality leaves a gap; quoted, not recomputed.
    """

    level: int
    lam: Integers
    load: Prices
    port: Prices = field(default_factory=Prices)
    scale: int = 1
    mu: dict[int, int] = field(default_factory=dict)
    nu: int = 0
    solver_bound: float | None = None


@dataclass(frozen=True, eq=False)
class Allowed:
    """When transfers may be sent.

    Attributes
    ----------
    row, begin, end
        (P,) transfer (of the part) and slots; those of one transfer do not overlap.
    until, open_end
        (F',) end of its last piece; whether it may be sent at any later time too.
    full
        Ports that are full in some slots (with price 1, which has no meaning).
    latest
        Prices of later slots are refused.
    """

    row: Integers
    begin: Integers
    end: Integers
    until: Integers
    open_end: NDArray[np.bool_]
    full: Prices
    latest: int


@dataclass(frozen=True, eq=False)
class _Rows:
    """One row per unit (pair or port) over the cells of its clock; entries are numbered through."""

    unit: Integers
    first: Integers
    offset: Integers
    column: Integers

    @classmethod
    def of(cls, unit: Integers, row: Integers, cell: Integers) -> _Rows:
        """Rows of the units that transfers use; ``column`` is the entry of every column."""
        used, inverse = np.unique(unit, return_inverse=True)
        low, high = np.full(len(used), 1 << 62), np.full(len(used), -1)
        np.minimum.at(low, inverse[row], cell)
        np.maximum.at(high, inverse[row], cell)
        count = np.maximum(high - low + 1, 0)
        offset = np.concatenate([[0], np.cumsum(count)])
        return cls(used, low, offset, offset[inverse[row]] + cell - low[inverse[row]])

    def paint(self, prices: Prices, clock_of: dict[int, int], edge: Integers, span: int) -> Integers:
        """(entries,) the price of every entry."""
        total = np.zeros(int(self.offset[-1]) + 1, np.int64)
        place = {unit: k for k, unit in enumerate(self.unit.tolist())}
        rows = np.array([place.get(u, -1) for u in prices.unit.tolist()], np.int64)
        clock = np.array([clock_of.get(u, 0) for u in prices.unit.tolist()], np.int64)
        known = rows >= 0
        rows, clock = rows[known], clock[known]
        size = np.diff(self.offset)[rows]
        for when, sign in ((prices.begin[known], 1), (prices.end[known], -1)):
            at = np.searchsorted(edge, clock * span + when) - self.first[rows]
            np.add.at(total, self.offset[rows] + np.clip(at, 0, size), sign * prices.price[known])
        within = np.cumsum(total)[:-1]
        return np.asarray(within)


#: Sums stay below this, so that 64 bits hold them whatever their order.
SAFE = 2.0**61


class Board:
    """The columns of one part, and what has been settled about them.

    Parameters
    ----------
    groups, ports
        Per kind of load, and per side: (F',) the unit a transfer counts towards.
    allowed
        When what may be sent, and which ports are full: `flowlex.validation.certificates.jit.lateness`.
    due
        (F',) slots from which on it is late.
    amount, most
        (F',) units to send, and at most in a slot.
    load_most, port_most
        By unit: the most in a slot.
    """

    def __init__(
        self,
        groups: tuple[Integers, ...],
        ports: tuple[Integers, ...],
        allowed: Allowed,
        due: Integers,
        amount: Integers,
        most: Integers,
        load_most: Integers,
        port_most: Integers,
        proofs: tuple[LevelProof, ...],
    ) -> None:
        self.ports: tuple[Integers, ...] = ports
        self.groups: tuple[Integers, ...] = groups
        self.amount: Integers = amount
        self.slot_most: Integers = most
        told = max((int(each.end.max(initial=0)) for p in proofs for each in (p.load, p.port)), default=0)
        self.span: int = max(told, int(allowed.end.max(initial=0))) + 2
        if self.span > allowed.latest:
            raise ValueError(f"prices of slot {self.span - 2}; there is nothing to send after slot {allowed.latest}")
        if (allowed.until[allowed.open_end] < told).any():
            raise ValueError("prices of slots after those that are told apart")
        joined = (*groups, *ports) if any(len(p.port.unit) for p in proofs) or len(allowed.full.unit) else groups
        clock = together(len(amount), joined)
        self.load_clock: dict[Any, Any] = {
            u: c for g in groups for u, c in zip(g.tolist(), clock.tolist(), strict=True)
        }
        self.port_clock: dict[Any, Any] = {u: c for g in ports for u, c in zip(g.tolist(), clock.tolist(), strict=True)}
        base = clock[allowed.row] * self.span
        begin, end = base + allowed.begin, base + allowed.end
        marks = [begin, end]
        if any(p.nu for p in proofs):
            marks.append(np.clip(base + due[allowed.row], begin, end))
        some = [(proof.load, self.load_clock) for proof in proofs] + [(proof.port, self.port_clock) for proof in proofs]
        for prices, clocks in (*some, (allowed.full, self.port_clock)):
            at = np.array([clocks.get(u, 0) for u in prices.unit.tolist()], np.int64) * self.span
            marks += [at + np.maximum(prices.begin, 0), at + np.maximum(prices.end, 0)]
        self.edge: Integers = np.unique(np.concatenate(marks))
        first = np.searchsorted(self.edge, begin)
        count = np.searchsorted(self.edge, end) - first
        self.row: Integers = np.repeat(allowed.row, count)
        self.cell: Integers = np.arange(len(self.row)) - np.repeat(np.cumsum(count) - count, count)
        self.cell += np.repeat(first, count)
        length = np.diff(self.edge, append=self.edge[-1:] + 1)
        self.length: Integers = length[self.cell]
        self.loads: list[_Rows] = [_Rows.of(group, self.row, self.cell) for group in groups]
        self.sides: list[_Rows] = [_Rows.of(port, self.row, self.cell) for port in ports]
        self.least: Integers = np.zeros(len(self.row), np.int64)
        self.most: Integers = np.minimum(most[self.row] * self.length, amount[self.row])
        self.late: Integers = np.maximum(self.edge[self.cell] % self.span + 1 - due[self.row], 0)
        self.tail_late: Integers = np.maximum(allowed.until + 1 - due, 1)
        self.tail_most: Integers = np.where(allowed.open_end, amount, 0)
        self.width: list[Integers] = []
        self.low: list[Integers] = []
        self.high: list[Integers] = []
        for rows in self.loads:
            cells = _cells(rows)
            self.width.append(length[cells])
            self.low.append(np.zeros(len(cells), np.int64))
            self.high.append(np.repeat(load_most[rows.unit], np.diff(rows.offset)) * length[cells])
        self.room: list[Integers] = []
        self.room_low: list[Integers] = []
        for rows in self.sides:
            cells = _cells(rows)
            self.room.append(np.repeat(port_most[rows.unit], np.diff(rows.offset)) * length[cells])
            full = rows.paint(allowed.full, self.port_clock, self.edge, self.span) > 0
            self.room_low.append(np.where(full, self.room[-1], 0))
        self.high = [self._passed(*each) for each in zip(self.loads, self.high, strict=True)]

    def _passed(self, rows: _Rows, high: Integers) -> Integers:
        """The most of every load, as its transfers come through the ports of either side: each port has its room."""
        if self.most.sum(dtype=float) >= SAFE:
            raise ValueError("amounts are too large to be summed exactly in 64 bits")
        for side, room in zip(self.sides, self.room, strict=True):
            ways, way = np.unique(rows.column * len(room) + side.column, return_inverse=True)
            most, total = np.zeros(len(ways), np.int64), np.zeros(len(high), np.int64)
            np.add.at(most, way, self.most)
            np.add.at(total, ways // max(len(room), 1), np.minimum(most, room[ways % max(len(room), 1)]))
            high = np.minimum(high, total)
        return high

    def prove(self, proof: LevelProof, value: int, counts: dict[int, int], lateness: int) -> int:
        """The bound (times ``scale``) of one stage whose answer is ``value``; settles what follows from it."""
        lam, scale = proof.lam, proof.scale
        reduced = proof.nu * self.late - lam[self.row]
        rho = [r.paint(proof.load, self.load_clock, self.edge, self.span) for r in self.loads]
        pi = [r.paint(proof.port, self.port_clock, self.edge, self.span) for r in self.sides]
        for rows, price in zip((*self.loads, *self.sides), (*rho, *pi), strict=True):
            reduced = reduced + price[rows.column]
        self._check_size(proof, rho, pi, reduced)
        if not proof.nu:
            lam, reduced = self._repriced(lam, reduced)
        bound = _dot(lam, self.amount) + _dot(np.maximum(reduced, 0), self.least) + self._cheap(reduced, proof.nu)
        tail = proof.nu * self.tail_late - lam
        bound += _dot(np.minimum(tail, 0), self.tail_most)
        for price, room, low in zip(pi, self.room, self.room_low, strict=True):
            bound -= _dot(price, np.where(price > 0, room, low))
        weights = dict(proof.mu) | {proof.level: scale}
        for price, width, low, high in zip(rho, self.width, self.low, self.high, strict=True):
            bound += _least(price, width, low, high, weights)
        bound -= sum(price * counts.get(level, 0) for level, price in proof.mu.items())
        bound -= proof.nu * lateness
        self._settle(proof, scale * value - bound, reduced, tail, rho, pi)
        return int(bound)

    def _repriced(self, lam: Integers, reduced: Integers) -> tuple[Integers, Integers]:
        """Prices of transfers that bound more, with the reduced costs that follow.

        Where cells are finer than those that prices were made for, a transfer that gains in each of them would gain in
        all at once; all of it together is its amount, so that the next cheapest cell must not gain either.
        """
        order = np.lexsort((reduced, self.row))
        row, total = self.row[order], np.cumsum((self.most - self.least)[order])
        count = len(lam)
        least, begin = np.zeros(count, np.int64), np.searchsorted(row, np.arange(count + 1))
        np.add.at(least, self.row, self.least)
        taken = np.concatenate([[0], total])[begin[:-1]]
        enough = np.flatnonzero(total - taken[row] + least[row] >= self.amount[row])[::-1]
        price = np.zeros(count, np.int64)
        price[row[enough]] = reduced[order[enough]]  # the first that is enough is written last
        price[self.tail_most > 0] = 0

        def gain(by: Integers) -> Integers:
            left, found = reduced - by[self.row], by * self.amount
            np.add.at(found, self.row, np.maximum(left, 0) * self.least + np.minimum(left, 0) * self.most)
            return found

        price = np.where(gain(price) > gain(np.zeros(count, np.int64)), price, 0)
        return lam + price, reduced - price[self.row]

    def _cheap(self, reduced: Integers, nu: int) -> int:
        """What columns can gain: slot by slot while they gain, being later costs ``nu`` more in each; all at most."""
        gain = np.minimum(reduced, 0)
        slope = np.where(self.late > 0, nu, 0)
        slots = np.minimum(np.where(slope > 0, -(gain // np.maximum(slope, 1)), self.length), self.length)
        each = self.slot_most[self.row] * (slots * gain + slope * (slots * (slots - 1) // 2))
        return int(np.maximum(each, gain * self.most).sum())

    def _check_size(self, proof: LevelProof, rho: list[Integers], pi: list[Integers], reduced: Integers) -> None:
        """Refuse prices with which sums would leave 64 bits."""
        goals = proof.scale + sum(proof.mu.values())
        steep = sum(greatest(price) for price in (proof.lam, *rho, *pi))
        steep += proof.nu * (greatest(self.late) + greatest(self.tail_late))
        held = max(greatest(prices.price) * len(prices.price) for prices in (proof.load, proof.port))
        size = goals * sum(width.sum(dtype=float) for width in self.width) + steep * float(self.amount.sum())
        for price, room in zip((reduced, *pi, *rho), (self.most, *self.room, *self.high), strict=True):
            size += float(np.abs(price.astype(float)) @ room.astype(float))
        if max(4 * size, steep, held, float(goals)) >= SAFE:
            raise ValueError(f"prices of level {proof.level} are too large to be summed exactly in 64 bits")

    def _settle(
        self, proof: LevelProof, gap: int, reduced: Integers, tail: Integers, rho: list[Integers], pi: list[Integers]
    ) -> None:
        """No schedule as good loses more than ``gap``: new bounds of columns, loads and ports."""
        gap = max(int(gap), 0)
        room = gap // np.maximum(np.abs(reduced), 1)
        self.most = np.where(reduced > 0, np.minimum(self.most, self.least + room), self.most)
        if not proof.nu:  # else the later slots may be dear
            self.least = np.where(reduced < 0, np.maximum(self.least, self.most - room), self.least)
        self.tail_most = np.where(tail > 0, np.minimum(self.tail_most, gap // np.maximum(tail, 1)), self.tail_most)
        for k, price in enumerate(pi):
            full = self.room[k] - gap // np.maximum(price, 1)
            self.room_low[k] = np.where(price > 0, np.maximum(self.room_low[k], full), self.room_low[k])
        if proof.mu:
            return
        scale, level = proof.scale, proof.level
        for k, price in enumerate(rho):
            width, low, high = self.width[k], self.low[k], self.high[k]
            # Only loads that the levels above leave at most at this one: there the cost is convex.
            mine = (high <= level * width) & (low < level * width)
            full = low >= level * width  # these count in full, whatever they are
            self.low[k] = np.where(full & (price > 0), np.maximum(low, high - gap // np.maximum(price, 1)), low)
            self.high[k] = np.where(full & (price < 0), np.minimum(high, low + gap // np.maximum(-price, 1)), high)
            low, high = self.low[k], self.high[k]
            edge = (level - 1) * width
            over = scale - price  # what a unit above the edge costs
            most = np.maximum(edge, low) + np.where(over > 0, gap // np.maximum(over, 1), width)
            least = edge - np.where(price > 0, gap // np.maximum(price, 1), edge)
            full = np.minimum(level * width, high) - np.where(over < 0, gap // np.maximum(-over, 1), width)
            least = np.where((over < 0) & (full >= edge), np.maximum(least, full), least)
            self.high[k] = np.where(mine, np.minimum(high, np.maximum(most, low)), high)
            self.low[k] = np.where(mine & (high >= edge), np.maximum(low, np.minimum(least, high)), low)


def _least(price: Integers, width: Integers, low: Integers, high: Integers, weights: dict[int, int]) -> int:
    """Sum over the loads of the least of ``F(delta) - price * delta``: at a bound, or where F bends."""
    best: Integers | None = None
    bends = [low, high]
    for level in weights:
        bends += [np.clip((level - 1) * width, low, high), np.clip(level * width, low, high)]
    for delta in bends:
        cost = -price * delta
        for level, weight in weights.items():
            cost = cost + weight * np.clip(delta - (level - 1) * width, 0, width)
        best = cost if best is None else np.minimum(best, cost)
    return int(best.sum()) if best is not None and len(best) else 0


def _cells(rows: _Rows) -> Integers:
    """(entries,) the cell of every entry."""
    count = np.diff(rows.offset)
    within = np.arange(int(rows.offset[-1])) - np.repeat(rows.offset[:-1], count)
    return np.asarray(within + np.repeat(rows.first, count))


def together(count: int, groups: tuple[Integers, ...]) -> Integers:
    """Transfers that share a unit share a clock."""
    offset, tails, heads = count, [], []
    for group in groups:
        used, inverse = np.unique(group, return_inverse=True)
        tails.append(np.arange(count))
        heads.append(inverse + offset)
        offset += len(used)
    tail, head = np.concatenate(tails), np.concatenate(heads)
    graph = scipy.sparse.coo_array((np.ones(len(tail)), (tail, head)), shape=(offset, offset))
    return np.asarray(scipy.sparse.csgraph.connected_components(graph, directed=False)[1][:count], np.int64)


def greatest(values: Integers) -> float:
    """Largest absolute value, as a float: that of the smallest integer is no integer of 64 bits."""
    return float(np.abs(values.astype(float)).max(initial=0.0))


def _dot(a: Integers, b: Integers) -> int:
    return int((a * b).sum())
