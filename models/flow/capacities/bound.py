"""What no schedule can beat, from the relaxation: multipliers that prove it, in whole numbers.

The relaxation is solved over kinds of machines, with slot sizes added where its answer overfills them. Its duals,
rounded to whole multiples of a small unit, are prices of slots, of slots of each size, of waiting and of the costs that
earlier stages may have. Whatever the prices, every schedule costs at least what the cheapest way of each task costs
with them, less what all that is priced is worth; see `flowlex.validation.certificates.flow.stages`, which judges it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Floats
from flowlex.formulations.engines import solve
from flowlex.formulations.outcome import Outcome, Status
from flowlex.models.flow.capacities.program import Program, Size

__all__ = ["Bound", "Relaxation"]

#: Rounds of added slot sizes in one relaxation, and sizes added in a round.
_ROUNDS, _ADDED = 20, 400
#: Slots of a size that the relaxation must overfill before the size is added.
_OVER = 1e-6


@dataclass(frozen=True)
class Bound:
    """A stage's bound, among schedules that cost no more in the stages before.

    Attributes
    ----------
    value
        No such schedule costs less.
    unit
        What a price of 1 is: a unit-th of a unit of cost.
    weights
        By stage before: what its cost counts in prices.
    machine, size
        Price of a slot, and of a slot of a size, by place.
    job
        Price of waiting, by job.
    apart
        Price of a machine for a rule of different machines, by (rule, place).
    """

    value: int
    unit: int
    weights: Mapping[str, int]
    machine: list[int]
    size: Mapping[Size, int]
    job: list[int]
    apart: Mapping[tuple[str, int], int] = field(default_factory=dict)


class Relaxation:
    """The relaxation of a program over kinds of machines; sizes once added stay.

    Attributes
    ----------
    sizes
        Added so far, in order.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.sizes = program, dict[Size, None]()
        demands = program.classes.demand
        self._asked = [np.unique(column[column > 0]) for column in demands.T]

    def bound(self, stage: str, fixed: Mapping[str, int]) -> Bound | None:
        """A stage's bound when the stages before cost no more than ``fixed``; None when the solver finds none."""
        parts = None
        for _ in range(_ROUNDS):
            lp = self.program.build(stage, self.sizes, fixed, integer=False)
            found = solve(lp, "highs")
            if found.status is not Status.OPTIMAL or found.duals is None or found.values is None:
                break
            parts, sizes = lp.split_rows(found.duals), list(self.sizes)
            fresh = self._overfull(self._running(found))
            if not fresh:
                break
            self.sizes |= dict.fromkeys(fresh)
        return None if parts is None else self._proven(stage, fixed, parts, sizes)

    def _running(self, outcome: Outcome) -> Floats:
        program = self.program
        found = np.zeros(program.places.may.shape)
        assert outcome.values is not None
        found[program.pairs[:, 0], program.pairs[:, 1]] = outcome.values[: len(program.pairs)]
        return found

    def _overfull(self, running: Floats) -> list[Size]:
        """Sizes that the relaxation overfills: of each place and resource the capacity, and the worst other one."""
        program, found = self.program, []
        for r, asked in enumerate(self._asked):
            capacity = program.places.capacity[:, r]
            few = np.unique(np.concatenate([capacity // (n + 1) + 1 for n in range(1, 9)]))
            sizes = np.concatenate([[1], np.union1d(asked, few)])
            sizes = sizes[(sizes == 1) | (sizes > 1)]
            taken = (program.classes.demand[None, :, r] // sizes[:, None]) @ running
            there = program.places.count * (capacity // sizes[:, None])
            over = (taken - there) / np.maximum(there, 1)
            worst = np.argmax(over, axis=0)
            for p in range(len(capacity)):
                for s in {0, int(worst[p])}:
                    if taken[s, p] - there[s, p] > _OVER * max(1, there[s, p]):
                        found.append((float(over[s, p]), Size(p, r, int(sizes[s]))))
        found.sort(key=lambda each: (-each[0], each[1]))
        return [size for _, size in found if size not in self.sizes][:_ADDED]

    def _proven(self, stage: str, fixed: Mapping[str, int], parts: Mapping[str, Floats], sizes: list[Size]) -> Bound:
        """Whole prices, and what they prove."""
        largest = max((int(self.program.classes.demand.max(initial=0))).bit_length(), 1)
        unit = 2 ** (20 + largest)

        def whole(duals: Floats, sign: int) -> list[int]:
            scaled = [round(float(dual) * unit) * -1 for dual in duals]
            return [max(price, 0) for price in scaled] if sign else scaled

        job, machine = whole(parts["unscheduled"], 0), whole(parts["machine"], 0)
        by_name = {
            name: whole(parts[name], 1) if name in parts else [] for name in ("capacity", "slot_size", "apart", "stage")
        }
        rows = [s for s in sizes if s.size == 1], [s for s in sizes if s.size != 1]
        price = dict(zip([*rows[0], *rows[1]], [*by_name["capacity"], *by_name["slot_size"]], strict=True))
        weights = dict(zip(fixed, by_name["stage"], strict=True))
        apart = dict(zip(self.program.together[1], by_name["apart"], strict=True))
        price = {size: p for size, p in price.items() if p}
        apart = {key: p for key, p in apart.items() if p}
        bound = Bound(0, unit, weights, machine, price, job, apart)
        least = self._least(stage, bound) - sum(weights[name] * value for name, value in fixed.items())
        return Bound(-(-least // unit), unit, weights, machine, price, job, apart)

    def _least(self, stage: str, bound: Bound) -> int:
        """Least that any schedule costs, weighed and priced, less what all that is priced is worth."""
        program, classes, places = self.program, self.program.classes, self.program.places
        weights = {**bound.weights, stage: bound.unit}
        run: NDArray[Any] = np.zeros(places.may.shape, object)
        wait: NDArray[Any] = np.array([bound.job[j] for j in classes.job], object)
        slot: NDArray[Any] = np.zeros(len(places.slots.count), object)
        short = np.zeros(len(program.tasks), object)
        for name, weight in weights.items():
            costs = program.stages[name]
            run += costs.run.astype(object) * weight
            wait += costs.wait.astype(object) * weight
            slot += costs.slot.astype(object) * weight
            short += costs.short.astype(object) * weight
        run += np.array(bound.machine, object)[None, :]
        worth = 0
        loads: dict[int, list[tuple[Size, int]]] = defaultdict(list)
        for size, price in bound.size.items():
            loads[size.place].append((size, price))
            worth += price * program.there(size)
        for p, each in loads.items():
            run[:, p] += sum(program.taken(size).astype(object) * price for size, price in each)
        for (rule, p), price in bound.apart.items():
            run[[a == rule for a in classes.apart], p] += price
            worth += price * int(places.count[p])
        least = wait.copy()
        for k in range(len(least)):
            if places.may[k].any():
                least[k] = min(least[k], min(run[k, places.may[k]]))
        found = sum(int(n) * cost for n, cost in zip(classes.count, least, strict=True)) - worth
        for p, n, cost in zip(places.slots.place, places.slots.count.tolist(), slot, strict=True):
            found -= n * max(bound.machine[p] - cost, 0)
        for j, ((few, most), tasks) in enumerate(zip(program.shares.tolist(), program.tasks.tolist(), strict=True)):
            corners = ((w, max(0, w - tasks + few)) for w in (tasks - most, tasks - few, tasks))
            found -= max(bound.job[j] * w - short[j] * s for w, s in corners)
        return int(found)
