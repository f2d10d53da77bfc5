r"""Prove that no schedule is less late, by port duals that are linear in runs of slots and checked at run ends only.

With a price ``lam`` per transfer, ``pi`` per port and slot, and ``nu`` of lateness, every schedule satisfies ::

    nu L  >=  sum_f lam_f d_f  +  sum_(f,t) min (nu late_f(t) + pi - lam_f, 0) x  -  sum_(port,t) pi C

``late_f(t) = max(t + 1 - due_f, 0)`` is linear before and after ``due_f``, and ``pi`` in every run, so the reduced cost
of a transfer is least at an end of each piece between such marks, and sums of prices are trapezoid sums.

The difference between lateness and bound (the *gap*) is the most that an equally good schedule can lose. As units are
integers, it sends no unit whose reduced cost exceeds the gap, and fills every port whose price exceeds it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.validation.certificates.jit.prices_and_windows import SAFE, Allowed, LevelProof, Prices, greatest
from flowlex.validation.certificates.jit.transfer_cells import together

#: A gap that settles nothing.
_NOTHING = 1 << 61
#: Most entries of the table of prices.
_MOST = 10**8


@dataclass(frozen=True, eq=False)
class PartWindows:
    """Transfers of a part, (F',) each: windows (``end`` if they may not be late), ports, units, most in a slot.

    ``late``: they may be sent until ``firm``. ``port_most``: units a slot, by port. ``last``: end of the schedule.
    """

    start: Integers
    end: Integers
    due: Integers
    firm: Integers
    ports: tuple[Integers, Integers]
    amount: Integers
    most: Integers
    port_most: Integers
    late: bool
    last: int

    @property
    def latest(self) -> int:
        """Slot before which both ports of every transfer have capacity for it, whatever else is sent."""
        ends = (self.start, self.end if not self.late else self.due, self.due)
        return max(self.last, *(int(each.max(initial=0)) for each in ends)) + int(self.amount.sum()) + 4


def all_allowed(part: PartWindows, proofs: tuple[LevelProof, ...]) -> Allowed:
    """The windows; late transfers may be sent until the last priced slot, and at any later time."""
    rows, until = np.arange(len(part.amount)), part.end
    if part.late:
        ends = [prices.end for p in proofs for prices in (p.load, p.port)]
        dear = [part.due + np.minimum(p.lam // max(p.nu, 1), part.latest) for p in proofs]
        until = np.maximum(part.start, max((int(each.max(initial=0)) for each in ends), default=0))
        until = np.minimum(np.maximum.reduce([until, part.due, *dear]) + 1, np.minimum(part.firm, part.latest - 3))
    open_end = (until < part.firm) if part.late else np.zeros(len(rows), np.bool_)
    return Allowed(rows, part.start, until, until, open_end, Prices(), part.latest)


def judge_lateness(
    part: PartWindows, proof: LevelProof, lateness: float, *, whole: bool, near: float
) -> tuple[int, Allowed]:
    """The bound (times ``scale``), and when schedules with at most this lateness may send.

    ``whole``: whether only integer units are sent; else ``near`` (times scale) is what counts as no gap.
    """
    pieces = _Pieces(part, proof)
    bound = pieces.bound()
    gap = int(np.floor(lateness * proof.scale)) - bound
    if not whole:
        gap = 0 if gap <= near * proof.scale else _NOTHING
    return bound, pieces.allowed(max(gap, 0))


class _Pieces:
    """Pieces of transfers between breakpoints of reduced costs; reduced costs at both ends, times ``steps``."""

    def __init__(self, part: PartWindows, proof: LevelProof) -> None:
        self.part, self.proof, latest = part, proof, part.latest
        self.nu = proof.nu if part.late else 0
        prices = proof.port
        if max(greatest(prices.begin), greatest(prices.end)) > latest or (prices.begin < 0).any():
            raise ValueError(f"prices of slots that are not there; there is nothing to send after slot {latest}")
        if len(prices.unit) and ((prices.begin >= prices.end).any() or len(proof.load.unit)):
            raise ValueError("prices of lateness are those of ports, in runs that end after they begin")
        dear = part.due + np.minimum(proof.lam // max(proof.nu, 1), latest)
        self.until = part.end
        if part.late:
            self.until = np.maximum(dear + 1, np.maximum(part.start, int(prices.end.max(initial=0))))
            self.until = np.minimum(self.until, np.minimum(part.firm, latest))
        self.span = latest + 2
        self.clock = together(len(part.amount), part.ports)
        clocks = {u: c for g in part.ports for u, c in zip(g.tolist(), self.clock.tolist(), strict=True)}
        known = np.array([u in clocks for u in prices.unit.tolist()], np.bool_)
        self.run = Prices(*(each[known] for each in (prices.unit, prices.begin, prices.end, prices.price, prices.last)))
        self.at = np.array([clocks[u] for u in self.run.unit.tolist()], np.int64) * self.span
        begin, end = self.at + self.run.begin, self.at + self.run.end
        base = self.clock * self.span
        first, stop = base + part.start, base + np.maximum(self.until, part.start)
        marks = [begin, begin + 1, end - 1, end, first, stop]
        marks += [np.clip(base + each, first, stop) for each in (part.due, dear - 1, dear)]
        self.edge: Integers = np.unique(np.concatenate(marks))
        low = np.searchsorted(self.edge, first)
        count = np.searchsorted(self.edge, stop) - low
        self.row: Integers = np.repeat(np.arange(len(low)), count)
        self.cell: Integers = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - low, count)
        self._reduce()

    def _reduce(self) -> None:
        """Reduced costs in the first and the last slot of every piece."""
        part, proof = self.part, self.proof
        begins, self.steps, slope = self._grid()
        ports = np.unique(np.concatenate(part.ports))
        length = np.diff(self.edge, append=self.edge[-1:] + 1)
        first, tilt = self._painted(ports, self.run.price), self._painted(ports, slope)
        steps, begin = self.steps[self.cell], self.edge[self.cell]
        self.length: Integers = length[self.cell]
        size = self.nu * (greatest(part.due) + self.span) + greatest(proof.lam)
        size += 2 * (greatest(self.run.price) + greatest(self.run.last)) * (len(self.run.unit) + 1)
        if size * max(greatest(self.steps), 1) >= SAFE or len(ports) * len(self.edge) > _MOST:
            raise ValueError("prices of lateness are too large to be summed exactly in 64 bits")
        self.reduced: list[Integers] = []
        rows = [np.searchsorted(ports, group)[self.row] for group in part.ports]
        for slot in (begin, begin + self.length - 1):
            passed = slot - begins[self.cell]
            late = np.maximum(slot % self.span + 1 - part.due[self.row], 0)
            cost = steps * (self.nu * late - proof.lam[self.row])
            for row in rows:
                cost = cost + first[row, self.cell] * steps + tilt[row, self.cell] * passed
            self.reduced.append(cost)

    def _grid(self) -> tuple[Integers, Integers, Integers]:
        """Per cell: first slot of its linear run, and slots per integer price change; per run: that change."""
        tilted = np.flatnonzero(self.run.price != self.run.last)
        ends = np.stack([self.at + self.run.begin, self.at + self.run.end], axis=1)[tilted]
        runs, which = np.unique(ends, axis=0, return_inverse=True)
        if (runs[1:, 0] < runs[:-1, 1]).any() or (runs[:, 1] - runs[:, 0] < 2).any():
            raise ValueError("linear prices of lateness overlap; ports that share transfers need the same runs")
        begin, steps = self.edge.copy(), np.ones(len(self.edge), np.int64)
        size = np.searchsorted(self.edge, runs[:, 1]) - np.searchsorted(self.edge, runs[:, 0])
        cells = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size - np.searchsorted(self.edge, runs[:, 0]), size)
        change, slots = self.run.last - self.run.price, runs[:, 1] - runs[:, 0] - 1
        common = slots.copy()
        np.gcd.at(common, which.ravel(), np.abs(change[tilted]))
        begin[cells] = np.repeat(runs[:, 0], size)
        steps[cells] = np.repeat(slots // common, size)
        slope = np.zeros(len(change), np.int64)
        slope[tilted] = change[tilted] // common[which.ravel()]
        return begin, steps, slope

    def _painted(self, ports: Integers, price: Integers) -> Integers:
        """(ports, cells) the value of every run in each of its cells."""
        total = np.zeros((len(ports), len(self.edge) + 1), np.int64)
        unit = np.searchsorted(ports, self.run.unit)
        np.add.at(total, (unit, np.searchsorted(self.edge, self.at + self.run.begin)), price)
        np.add.at(total, (unit, np.searchsorted(self.edge, self.at + self.run.end)), -price)
        return np.asarray(np.cumsum(total, axis=1)[:, :-1])

    def bound(self) -> int:
        """The lower bound on lateness, times the scale."""
        part, proof = self.part, self.proof
        total: int = sum(a * b for a, b in zip(proof.lam.tolist(), part.amount.tolist(), strict=True))
        gain = np.minimum(np.minimum(*self.reduced), 0)
        at = np.flatnonzero(gain)
        most = np.minimum(part.most[self.row[at]] * self.length[at], part.amount[self.row[at]])
        steps = self.steps[self.cell[at]]
        total += sum(g * m // s for g, m, s in zip(gain[at].tolist(), most.tolist(), steps.tolist(), strict=True))
        if part.late:
            tail = np.minimum(self.nu * (self.until + 1 - part.due) - proof.lam, 0)[self.until < part.firm]
            amount = part.amount[self.until < part.firm]
            total += sum(a * b for a, b in zip(tail.tolist(), amount.tolist(), strict=True))
        p = proof.port
        twice = 0
        ends, slots = (p.price.tolist(), p.last.tolist()), (p.end - p.begin).tolist()
        for unit, n, a, b in zip(p.unit.tolist(), slots, *ends, strict=True):
            trapezoid = n * (a + b) if min(a, b) >= 0 else 2 * n * max(a, b, 0)
            twice += int(part.port_most[unit]) * trapezoid
        return total - (twice + 1) // 2

    def allowed(self, gap: int) -> Allowed:
        """The pieces whose reduced cost is at most the gap, joined; the ports whose price exceeds it."""
        part, proof, steps = self.part, self.proof, self.steps[self.cell]
        kept = np.minimum(*self.reduced) // steps <= gap if gap else np.minimum(*self.reduced) <= 0
        row, begin = self.row[kept], self.edge[self.cell[kept]] % self.span
        end = begin + self.length[kept]
        late_end = self.until
        if part.late:
            late_end = part.due + np.minimum((proof.lam + gap) // max(proof.nu, 1), part.latest)
        more = np.flatnonzero((np.minimum(late_end, part.firm) > self.until) & part.late)
        row = np.concatenate([row, more])
        begin = np.concatenate([begin, self.until[more]])
        end = np.concatenate([end, np.minimum(np.minimum(late_end, part.firm), part.latest - 3)[more]])
        right = begin < end
        row, begin, end = row[right], begin[right], end[right]
        order = np.lexsort((begin, row))
        row, begin, end = row[order], begin[order], end[order]
        if len(row):
            breaks = (np.diff(row) != 0) | (begin[1:] != end[:-1])
            first, last = np.flatnonzero(np.r_[True, breaks]), np.flatnonzero(np.r_[breaks, True])
            row, begin, end = row[first], begin[first], end[last]
        until = part.start.copy()
        np.maximum.at(until, row, end)
        open_end = (late_end > until) & (until < part.firm) & (until >= part.latest - 3) & part.late
        return Allowed(row, begin, end, until, np.asarray(open_end, np.bool_), self._full(gap), part.latest)

    def _full(self, gap: int) -> Prices:
        """Slots in which one run's price alone exceeds the gap; with gap 0, all but ends with price 0."""
        run = self.run
        least = np.minimum(run.price, run.last)
        begin, end = run.begin.copy(), run.end.copy()
        if gap == 0:
            begin, end = begin + ((run.price == 0) & (run.last > 0)), end - ((run.last == 0) & (run.price > 0))
            kept = (least >= 0) & (np.maximum(run.price, run.last) > 0) & (begin < end)
        else:
            kept = least > gap
        negative = np.isin(run.unit, run.unit[least < 0])
        kept &= ~negative
        ones = np.ones(int(kept.sum()), np.int64)
        return Prices(run.unit[kept], begin[kept], end[kept], ones)
