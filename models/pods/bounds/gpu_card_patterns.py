"""Card constraints of a node class in a bound, by patterns of a card if these are few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flowlex.formulations.linear_expression import Variables
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats, Integers

#: Largest number of card patterns; beyond it, only total memory and pods with more than half a card are constrained.
_WAYS = 4_000


class Slots(NamedTuple):
    """Card demands of pods: (n,) exact share of each card, and (n,) number of cards."""

    need: Integers
    many: Integers


@dataclass(frozen=True, eq=False)
class CardRows:
    """Rows ``size`` and ``card`` of one class (``gpu`` and ``large`` with too many patterns), and their duals."""

    number: int
    # whole, nodes, cards: memory of a card, number of nodes of the class, and cards per node
    whole: int
    nodes: float
    cards: float
    # placed, held: demands of the pods of the columns, and of those that each node already holds
    placed: Slots
    held: Slots
    # sizes, ways: (S,) needs, descending; maximal card patterns as counts by size, None if they are too many
    sizes: Integers
    ways: list[list[int]] | None

    @classmethod
    def of(
        cls, number: int, whole: int, cards: tuple[float, float], placed: Slots, held: Slots, *, filled: bool
    ) -> CardRows:
        """Make the rows of a class, given ``cards`` (nodes, cards per node); ``filled``: use card patterns."""
        sizes = np.unique(np.concatenate([placed.need, held.need[held.need > 0]]))[::-1]
        ways = fillings(sizes.tolist(), whole) if filled and len(sizes) < 200 else None
        return cls(number, whole, *cards, placed, held, sizes, ways)

    def constrain(self, program: LinearProgram, x: Variables) -> None:
        """Add the rows for the columns ``x``."""
        c, whole, (need, slots), (held_need, held_slots) = self.number, self.whole, self.placed, self.held
        if self.ways is None:
            for name, worth, held_worth in (
                ("gpu", need / whole, held_need / whole),
                ("large", (2 * need > whole) * 1.0, (2 * held_need > whole) * 1.0),
            ):
                free = self.nodes * self.cards - self.nodes * float((held_worth * held_slots).sum())
                program.constrain(f"{name}_{c}", (x * (worth * slots)).sum(), "<=", free)
            return
        table, size = np.array(self.ways, np.float64), len(self.sizes)
        z = program.variables(f"z_{c}", len(table))
        program.constrain(f"card_{c}", z.sum(), "<=", self.nodes * self.cards)
        way, s = np.nonzero(table)
        offered = (z[way] * table[way, s]).sum_by(s, size)
        used = (x * slots.astype(np.float64)).sum_by(self._place(need), size)
        on = held_need > 0
        taken = self.nodes * np.bincount(self._place(held_need[on]), held_slots[on], size)
        program.constrain(f"size_{c}", used - offered, "<=", -taken)

    def prices(self, of: Callable[[str], Floats]) -> dict[float, float]:
        """Return price by memory (share of a card) of a pod on one card; ``of`` gives the duals of a row."""
        c, share = self.number, self.sizes / self.whole
        if self.ways is not None:
            price = of(f"size_{c}")[: len(self.sizes)]
        else:
            price = float(of(f"gpu_{c}")[0]) * share + float(of(f"large_{c}")[0]) * (2 * self.sizes > self.whole)
        return dict(zip(share.tolist(), price.tolist(), strict=True))

    def _place(self, need: Integers) -> Integers:
        """Index of each need in the sizes."""
        place: Integers = len(self.sizes) - 1 - np.searchsorted(self.sizes[::-1], need)
        return place


def fillings(sizes: list[int], room: int, most: int = _WAYS) -> list[list[int]] | None:
    """All maximal patterns of a card, as counts by size (descending); None if there are more than ``most``."""
    found: list[list[int]] = []
    tried = 0

    def fill(k: int, left: int, counts: list[int]) -> bool:
        nonlocal tried
        if k == len(sizes):
            tried += 1
            if left < sizes[-1] if sizes else True:
                found.append(counts)
            return len(found) <= most and tried <= 20 * most
        return all(fill(k + 1, left - many * sizes[k], [*counts, many]) for many in range(left // sizes[k], -1, -1))

    return found if fill(0, room, []) else None
