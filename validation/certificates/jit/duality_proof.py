r"""Prove stage by stage that no schedule is better, by linear programming duality given the earlier stages.

Let ``N_s`` be the number of loads (pair or port, in one slot) of at least s. Level k claims: no schedule whose ``N_s``
for s > k are as small as ours has a smaller ``N_k``. The proof consists of integer prices (over a common ``scale``):
``lam`` per transfer, ``rho`` per unit of load, ``pi`` per unit of port, ``mu`` per higher level that is not proven.
Every such schedule then satisfies ::

    scale N_k  >=  sum_f lam_f d_f + sum_(f,c) min (rho + pi - lam_f) x  -  sum_(port,c) pi C
                   + sum_(u,c) min_delta (F(delta) - rho delta)  -  sum_s mu_s N_s

with each minimum over the bounds known so far; ``F`` weighs a load by ``scale`` at level k and by ``mu_s`` above.
``N_k`` is an integer, so a bound above ``scale (N_k - 1)`` proves it.

The difference between ``N_k`` and the bound (the *gap*) is the most that an equally good schedule can lose in all the
minima together. This tightens more bounds (reduced cost fixing; with gap 0 complementary slackness), which the later
stages, for lower levels, use. Total lateness, if there is any, is the first stage, with the number `LATENESS`:
`flowlex.validation.certificates.jit.lateness` determines when transfers may be sent, and which ports are full.
"""

from __future__ import annotations

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.validation.certificates.jit.prices_and_windows import SAFE, Allowed, LevelProof, greatest
from flowlex.validation.certificates.jit.transfer_cells import Cells, Rows


class Board:
    """The columns of one part, and the bounds settled so far.

    ``groups``, ``ports``: (F',) unit of each transfer, for each kind of load and for each side. ``allowed``: when
    transfers may be sent, and which ports are full: `flowlex.validation.certificates.jit.lateness`. ``due``: (F',)
    first slot in which a transfer is late. ``amount``, ``most``: (F',) units to send, and at most in a slot.
    ``load_most``, ``port_most``: capacity per slot, by unit.
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
        cells = Cells.of(groups, ports, allowed, due, proofs)
        self.edge: Integers = cells.edge
        self.row: Integers = cells.row
        self.length: Integers = cells.length
        self.loads: list[Rows] = cells.loads
        self.sides: list[Rows] = cells.sides
        self.amount: Integers = amount
        self.slot_most: Integers = most
        self.least: Integers = np.zeros(len(self.row), np.int64)
        self.most: Integers = np.minimum(most[self.row] * self.length, amount[self.row])
        self.late: Integers = np.maximum(cells.begin + 1 - due[self.row], 0)
        self.tail_late: Integers = np.maximum(allowed.until + 1 - due, 1)
        self.tail_most: Integers = np.where(allowed.open_end, amount, 0)
        self.width: list[Integers] = [cells.size[rows.cell] for rows in self.loads]
        self.low: list[Integers] = [np.zeros(len(rows.cell), np.int64) for rows in self.loads]
        self.room: list[Integers] = [port_most[rows.unit] * cells.size[rows.cell] for rows in self.sides]
        self.room_low: list[Integers] = [
            np.where(rows.paint(allowed.full, self.edge) > 0, room, 0)
            for rows, room in zip(self.sides, self.room, strict=True)
        ]
        self.high: list[Integers] = [
            self._passed(rows, load_most[rows.unit] * width) for rows, width in zip(self.loads, self.width, strict=True)
        ]

    def _passed(self, rows: Rows, high: Integers) -> Integers:
        """Tighten upper bounds of loads: their transfers must pass the ports of either side, which have capacities."""
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
        """Return the bound (times ``scale``) of a stage with this ``value``; settle the bounds that follow from it."""
        lam, scale = proof.lam, proof.scale
        reduced = proof.nu * self.late - lam[self.row]
        rho = [r.paint(proof.load, self.edge) for r in self.loads]
        pi = [r.paint(proof.port, self.edge) for r in self.sides]
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

    def count_full(self, level: int, count: float) -> None:
        """If the loads that must reach a level are as many as may reach it, keep all others below it."""
        full = [low >= level * width for low, width in zip(self.low, self.width, strict=True)]
        reached = sum(int(width[at].sum()) for width, at in zip(self.width, full, strict=True))
        if reached < count:
            return
        for k, at in enumerate(full):
            self.high[k] = np.where(at, self.high[k], np.minimum(self.high[k], (level - 1) * self.width[k]))

    def _repriced(self, lam: Integers, reduced: Integers) -> tuple[Integers, Integers]:
        """Improve the bound by new prices of transfers; return these and the new reduced costs.

        If cells are finer than those of the prices, a transfer that gains in each cell would gain in all at once,
        beyond its amount. With the new price it gains nothing in the cell that completes its amount.
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
        """Least cost of the columns: slots are filled while they gain, each later slot costs ``nu`` more."""
        gain = np.minimum(reduced, 0)
        slope = np.where(self.late > 0, nu, 0)
        slots = np.minimum(np.where(slope > 0, -(gain // np.maximum(slope, 1)), self.length), self.length)
        each = self.slot_most[self.row] * (slots * gain + slope * (slots * (slots - 1) // 2))
        return int(np.maximum(each, gain * self.most).sum())

    def _check_size(self, proof: LevelProof, rho: list[Integers], pi: list[Integers], reduced: Integers) -> None:
        """Refuse prices whose sums could exceed 64 bits."""
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
        """Tighten bounds of columns, loads and ports: no equally good schedule loses more than ``gap``."""
        gap = max(int(gap), 0)
        room = gap // np.maximum(np.abs(reduced), 1)
        self.most = np.where(reduced > 0, np.minimum(self.most, self.least + room), self.most)
        if not proof.nu:  # else the later slots may be expensive
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
            # Only loads that are at most at this level: there the cost is convex.
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
    """Sum over the loads of the minimum of ``F(delta) - price * delta``, at a bound or a breakpoint of F."""
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


def _dot(a: Integers, b: Integers) -> int:
    return int((a * b).sum())
