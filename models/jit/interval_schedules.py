"""Schedules over intervals: amounts sent in blocks of slots, as evenly as integer units allow.

A *block* is an amount of one transfer in slots ``begin .. end - 1``. It is *steady* if every slot gets the same
integer rate. Other blocks of the same slots are split into runs together: then every pair and port has its mean,
rounded down or up, in every slot (integer decomposition, `flowlex.formulations.bipartite_decomposition`). So loads of
pairs and ports are known before, and the work depends on blocks, not on the number of slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.bipartite_decomposition import decompose_runs
from flowlex.formulations.program_arrays import Integers
from flowlex.models.jit.transfer_slot_grid import Grid, Load, Runs

#: First slot, end, units in each.
Run: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Blocks:
    """(B,) arrays: block b sends ``amount`` units of ``item`` in slots ``begin .. end - 1`` (see the module)."""

    item: Integers
    begin: Integers
    end: Integers
    amount: NDArray[Any]

    @classmethod
    def of(cls, item: Integers, begin: Integers, end: Integers, amount: NDArray[Any]) -> Blocks:
        """Make blocks sorted by item and time; merge adjacent steady blocks of equal rate, and drop empty ones."""
        used = np.flatnonzero(amount)
        used = used[np.lexsort((begin[used], item[used]))]
        made = cls(item, begin, end, amount)._chosen(used)
        if not len(used):
            return made
        joined = made.steady[1:] & made.steady[:-1] & (made.rate[1:] == made.rate[:-1])
        joined &= (made.item[1:] == made.item[:-1]) & (made.begin[1:] == made.end[:-1])
        first, last = np.flatnonzero(np.r_[True, ~joined]), np.flatnonzero(np.r_[~joined, True])
        return cls(made.item[first], made.begin[first], made.end[last], np.add.reduceat(made.amount, first))

    @classmethod
    def empty(cls) -> Blocks:
        """Return a schedule without blocks."""
        none = np.zeros(0, np.int64)
        return cls(none, none, none, none)

    @property
    def whole(self) -> bool:
        """Whether amounts are integer units."""
        return bool(np.issubdtype(self.amount.dtype, np.integer))

    @property
    def steady(self) -> NDArray[np.bool_]:
        """(B,) whether every slot gets the same rate; always True for fractional amounts."""
        if not self.whole:
            return np.ones(len(self.item), np.bool_)
        return np.asarray(self.amount % (self.end - self.begin) == 0)

    @property
    def rate(self) -> NDArray[Any]:
        """(B,) mean units per slot, rounded down for integer amounts."""
        length = self.end - self.begin
        return np.asarray(self.amount // length if self.whole else self.amount / length)

    def without(self, items: Integers) -> Blocks:
        """The blocks of all other items."""
        return self._chosen(~np.isin(self.item, items))

    def only(self, items: Integers) -> Blocks:
        """The blocks of some items."""
        return self._chosen(np.isin(self.item, items))

    def and_also(self, other: Blocks) -> Blocks:
        """Return the union of schedules of different items."""
        both = zip(self._arrays(), other._arrays(), strict=True)
        return Blocks(*(np.concatenate(pair) for pair in both))

    def _arrays(self) -> tuple[Integers, Integers, Integers, NDArray[Any]]:
        return self.item, self.begin, self.end, self.amount

    def _chosen(self, which: NDArray[Any]) -> Blocks:
        return Blocks(*(each[which] for each in self._arrays()))

    def lateness(self, due: Integers) -> Any:
        """Sum over units of the slots by which they are sent after their due slots.

        The remainder of an unsteady block counts with the mean of its slots; one of the two orders of its slots is at
        most that late.
        """
        first = np.maximum(self.begin, due[self.item])
        length = np.maximum(self.end - first, 0)
        # Slots first .. end - 1 are late by first + 1 - due, ..., end - due: this is twice their mean.
        twice = np.where(length > 0, first + self.end + 1 - 2 * due[self.item], 0)
        rough = ~self.steady & (length == self.end - self.begin)
        sent = np.where(rough, self.amount, length * self.rate)
        if float(np.abs(twice).max(initial=0)) * float(np.abs(sent).sum()) >= 2.0**62 and self.whole:
            twice = twice.astype(object)  # sums of 64 bits could overflow
        total = (twice * sent).sum()
        return total // 2 if self.whole else total / 2

    def cut(self, grid: Grid) -> Blocks:
        """Make all blocks steady: those of the same slots are split into runs of slots with the same rates.

        The earliest runs are those with most late units, and else those with fewest units.
        """
        rough = self._chosen(~self.steady)
        rows: list[Integers] = []
        _, kind = np.unique(np.stack([rough.begin, rough.end], axis=1), axis=0, return_inverse=True)
        order = np.argsort(kind.ravel(), kind="stable")
        for members in np.split(order, np.flatnonzero(np.diff(kind.ravel()[order])) + 1) if len(order) else []:
            item, begin, end = rough.item[members], int(rough.begin[members[0]]), int(rough.end[members[0]])
            late = begin >= grid.due[item]
            members, item = members[np.argsort(~late, kind="stable")], item[np.argsort(~late, kind="stable")]
            pair, inverse = np.unique(grid.pair[item], return_inverse=True)
            total, behind = np.zeros((2, len(pair)), np.int64)
            np.add.at(total, inverse, rough.amount[members])
            np.add.at(behind, inverse, begin >= grid.due[item])
            some = np.zeros(len(pair), np.int64)
            some[inverse] = item
            patterns = decompose_runs(grid.sender[some], grid.receiver[some], total, end - begin)
            patterns.sort(key=lambda each: (-int(each[1][behind > 0].sum()), int(each[1].sum())))
            edges = np.concatenate([[begin], begin + np.cumsum([count for count, _ in patterns])])
            rates = np.array([rate for _, rate in patterns])
            alone = np.bincount(inverse) == 1
            which, run = np.nonzero(rates.T * alone[:, None])
            slots = edges[run], edges[run + 1]
            rows.append(np.stack([some[which], *slots, rates[run, which] * (slots[1] - slots[0])], axis=1))
            for p in np.flatnonzero(~alone):
                runs = list(zip(edges[:-1].tolist(), edges[1:].tolist(), rates[:, p].tolist(), strict=True))
                rows.append(np.array(share_runs(rough, members[inverse == p], runs), np.int64).reshape(-1, 4))
        found = self._chosen(self.steady)._arrays()
        return Blocks.of(*map(np.concatenate, zip(found, np.concatenate(rows).T, strict=True))) if rows else self


def share_runs(blocks: Blocks, members: Integers, runs: list[Run]) -> list[tuple[int, int, int, int]]:
    """Assign a pair's runs to its transfers one after the other: (item, first slot, end, total units)."""
    rows: list[tuple[int, int, int, int]] = []
    waiting = [(int(blocks.item[k]), int(blocks.amount[k])) for k in members]
    item, left = waiting.pop(0)
    for first, last, rate in runs:
        slot, room = first, rate  # room: units left in the slot for the next transfer
        while slot < last and rate:
            steps = min(left // rate, last - slot) if room == rate else 0
            sent, end = (steps * rate, slot + steps) if steps else (min(left, room), slot + 1)
            rows.append((item, slot, end, sent))
            left -= sent
            room = rate if steps else room - sent
            if steps or not room:
                slot, room = end, rate
            if not left and waiting:
                item, left = waiting.pop(0)
            elif not left:
                return rows
    return rows


def pile(
    unit: Integers, begin: Integers, end: Integers, amount: NDArray[Any]
) -> tuple[Integers, Integers, Integers, NDArray[Any]]:
    """Sum overlapping blocks by unit: unit, begin, end and nonzero sum of the pieces between changes."""
    units, times = np.concatenate([unit, unit]), np.concatenate([begin, end])
    order = np.lexsort((times, units))
    units, times, change = units[order], times[order], np.concatenate([amount, -amount])[order]
    if not len(units):
        return units, times, times, change
    first = np.flatnonzero(np.r_[True, (np.diff(units) != 0) | (np.diff(times) != 0)])
    height = np.cumsum(np.add.reduceat(change, first))
    units, times = units[first], times[first]
    whole = np.issubdtype(height.dtype, np.integer)
    kept = np.flatnonzero(np.r_[units[1:] == units[:-1], False] & (np.abs(height) > (0 if whole else 1e-9)))
    return units[kept], times[kept], times[kept + 1], height[kept]


def _rough_totals(blocks: Blocks, group: Integers) -> tuple[Integers, Integers, Integers, Integers]:
    """Unit, begin, end and total of the unsteady blocks with equal unit and slots."""
    rough = np.flatnonzero(~blocks.steady)
    key = np.stack([group[blocks.item[rough]], blocks.begin[rough], blocks.end[rough]], axis=1)
    kind, inverse = np.unique(key, axis=0, return_inverse=True)
    total = np.zeros(len(kind), np.int64)
    if len(rough):
        np.add.at(total, inverse.ravel(), blocks.amount[rough])
    return kind[:, 0], kind[:, 1], kind[:, 2], total


def _with_rough(blocks: Blocks, group: Integers, up: bool) -> tuple[Integers, Integers, Integers, NDArray[Any]]:
    """Pieces of the loads of ``group``, with unsteady totals rounded down, or up."""
    unit, begin, end, total = _rough_totals(blocks, group)
    length, steady = end - begin, blocks.steady
    rounded = -(-total // length) if up else total // length
    return pile(
        np.concatenate([group[blocks.item[steady]], unit]),
        np.concatenate([blocks.begin[steady], begin]),
        np.concatenate([blocks.end[steady], end]),
        np.concatenate([blocks.rate[steady], rounded]),
    )


def overfull(grid: Grid, blocks: Blocks) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Ports that exceed their capacity in some slot if unsteady totals are rounded up: (M,) bool each."""
    found = []
    for port, limit in ((grid.sender, grid.out_units), (grid.receiver, grid.in_units)):
        unit, _, _, load = _with_rough(blocks, port, up=True)
        over = np.zeros(len(limit), np.bool_)
        over[unit[load > limit[unit] + 1e-6]] = True
        found.append(over)
    return found[0], found[1]


def load_counts(grid: Grid, blocks: Blocks, load: Load) -> tuple[NDArray[Any], Integers]:
    """Positive loads in descending order, and the number of loads and slots with each.

    For unsteady totals, the remainder of their division is the number of slots with one more unit.
    """
    values, widths = [], []
    for group in grid.loads(load).groups:
        unit, begin, end, height = _with_rough(blocks, group, up=False)
        values.append(height)
        widths.append(end - begin)
        at, start, stop, total = _rough_totals(blocks, group)
        more = total % (stop - start)
        if len(at):  # the load under an unsteady total does not change within its slots
            span = int(max(end.max(initial=0), stop.max())) + 1
            key = unit * span + begin
            place = np.searchsorted(key, at * span + start, side="right") - 1
            inside = (place >= 0) & (unit[place] == at) & (end[place] > start) if len(key) else np.zeros(len(at), bool)
            under = np.where(inside, height[place], 0) if len(key) else np.zeros(len(at), np.int64)
            values += [under + 1, under]
            widths += [more, -more]
    value, inverse = np.unique(np.concatenate(values), return_inverse=True)
    width = np.zeros(len(value), np.int64)
    np.add.at(width, inverse, np.concatenate(widths))
    kept = np.flatnonzero((value > 1e-9) & (width > 0))[::-1]
    return value[kept], width[kept]


def port_pieces(grid: Grid, runs: Blocks) -> tuple[Integers, Integers, Integers, NDArray[Any]]:
    """Port (ingress after egress), first slot, end and load of all pieces of port loads."""
    ports = np.concatenate([grid.sender[runs.item], grid.receiver[runs.item] + len(grid.out_units)])
    return pile(ports, np.tile(runs.begin, 2), np.tile(runs.end, 2), np.tile(runs.rate, 2))


def blocks_of_cells(item: Integers, edges: Integers, columns: Runs, amount: NDArray[Any]) -> Blocks:
    """Convert amounts per column (row of ``item``, cell between adjacent edges) to blocks."""
    used = np.flatnonzero(amount)
    row, cell = columns.row[used], columns.slot[used]
    return Blocks.of(item[row], edges[cell], edges[cell + 1], amount[used])
