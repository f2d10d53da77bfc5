"""Loads of amounts sent as evenly as integers allow, computed from runs of slots without a loop over slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Integers

_NONE = np.zeros(0, np.int64)


def sweep(
    unit: Integers, begin: Integers, end: Integers, amount: NDArray[Any]
) -> tuple[Integers, Integers, Integers, NDArray[Any]]:
    """Sum overlapping amounts: unit, begin, end and sum of each piece between neighbouring changes, without zeros."""
    units, times = np.concatenate([unit, unit]), np.concatenate([begin, end])
    change = np.concatenate([amount, -amount])
    order = np.lexsort((times, units))
    units, times, change = units[order], times[order], change[order]
    if not len(units):
        return _NONE, _NONE, _NONE, change
    first = np.flatnonzero(np.r_[True, (np.diff(units) != 0) | (np.diff(times) != 0)])
    level = np.cumsum(np.add.reduceat(change, first))
    units, times = units[first], times[first]
    same = np.r_[units[1:] == units[:-1], False]
    kept = np.flatnonzero(same & (np.abs(level) > (0 if np.issubdtype(level.dtype, np.integer) else 1e-9)))
    return units[kept], times[kept], times[kept + 1], level[kept]


@dataclass(frozen=True, eq=False)
class Even:
    """Amounts in slots ``begin .. end - 1`` of units, sent as evenly as integers allow.

    Amounts with the same slots are split together, so that every unit (pair and port at once) has its mean, rounded
    down or up, in each slot: integer decomposition of bipartite b-matchings (de Werra 1971). An amount that is a
    multiple of its number of slots is the same in each of them.
    """

    unit: Integers
    begin: Integers
    end: Integers
    amount: NDArray[Any]

    def _totals(self) -> tuple[Integers, Integers, Integers, NDArray[Any], Integers]:
        """Unit, begin, end, least amount per slot, and the number of slots with one unit more."""
        length = self.end - self.begin
        if not np.issubdtype(self.amount.dtype, np.integer):
            return self.unit, self.begin, self.end, self.amount / length, np.zeros(len(self.unit), np.int64)
        rough = self.amount % length != 0
        key = np.stack([self.unit, self.begin, self.end], axis=1)
        kind, inverse = np.unique(key[rough], axis=0, return_inverse=True)
        total = np.zeros(len(kind), np.int64)
        np.add.at(total, inverse.ravel(), self.amount[rough])
        slots = kind[:, 2] - kind[:, 1]
        unit, begin, end = (np.concatenate([kind[:, k], key[~rough, k]]) for k in range(3))
        each = np.concatenate([total // slots, (self.amount // length)[~rough]])
        return unit, begin, end, each, np.concatenate([total % slots, np.zeros(int((~rough).sum()), np.int64)])

    def most(self) -> tuple[Integers, NDArray[Any]]:
        """Unit and largest possible load of every piece; a remainder counts in all its slots."""
        unit, begin, end, each, over = self._totals()
        unit, _, _, load = sweep(unit, begin, end, each + (over > 0))
        return unit, load

    def loads(self) -> tuple[NDArray[Any], Integers] | None:
        """Loads and their numbers of slots (totals; single ones may be negative); None if remainders leave it open."""
        unit, begin, end, each, over = self._totals()
        at = np.flatnonzero(over)
        at = at[np.lexsort((begin[at], unit[at]))]
        if ((unit[at[1:]] == unit[at[:-1]]) & (begin[at[1:]] < end[at[:-1]])).any():
            return None
        place, first, last, load = sweep(unit, begin, end, each)
        if len(place):
            new = np.flatnonzero(
                np.r_[True, (np.diff(place) != 0) | (first[1:] != last[:-1]) | (load[1:] != load[:-1])]
            )
            place, first, load = place[new], first[new], load[new]
            last = np.append(last[new[1:] - 1], last[-1:])
        under = np.zeros(len(at), load.dtype)
        for n, k in enumerate(at.tolist()):  # beneath a remainder, the load must be the same in all slots
            low = int(np.searchsorted(place, unit[k]))
            own = slice(low, int(np.searchsorted(place, unit[k], side="right")))
            meets = low + np.flatnonzero((first[own] < end[k]) & (last[own] > begin[k]))
            if len(meets) > 1 or (len(meets) and (first[meets[0]] > begin[k] or last[meets[0]] < end[k])):
                return None
            under[n] = load[meets[0]] if len(meets) else 0
        return np.concatenate([load, under + 1, under]), np.concatenate([last - first, over[at], -over[at]])
