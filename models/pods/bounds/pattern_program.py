"""The best pattern of a node class as a small integer program, kept while prices change (see `pod_patterns`).

The square of the load is seen by tangents that are added where the answer lies. Cards are counted by what they hold
together: a column for each maximal filling of a card. That a pod takes several *different* cards is left out, and so
are fillings when there are too many of them; both keep the bound valid, and patterns that do not pack are never used
as an answer.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flowlex.formulations.arrays import Floats, Integers
from flowlex.formulations.sessions.growing import INFINITY, GrowingProgram
from flowlex.instances.pods import PodArrays
from flowlex.models.pods.problem.classes import Demand
from flowlex.models.pods.problem.measures import Measure

__all__ = ["PatternProgram", "fillings"]

#: Rounding of sums of shares of a node.
EPSILON = 1e-9
#: More fillings of a card than this are replaced by total memory.
_MOST_FILLINGS = 400
#: A square is known well enough by its tangents when it is off by less (in squares of the scale).
_SQUARE = 1e-3
_ROUNDS = 12
#: Nodes of the search tree of one integer program.
_NODES = 300
#: Scaled loads at which the square has tangents from the start.
_TANGENTS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.5, 7.0, 10.0, 15.0, 25.0, 50.0)


def fillings(sizes: list[Any], room: Any, most: int = _MOST_FILLINGS) -> list[list[int]] | None:
    """All maximal ways to fill a card, as counts by size (descending); None when there are more than ``most``.

    Integers are taken exactly, floats to within rounding.
    """
    found: list[list[int]] = []
    slack = EPSILON if isinstance(room, float) else 0
    tried = 0

    def fill(k: int, left: Any, counts: list[int]) -> bool:
        nonlocal tried
        if k == len(sizes):
            tried += 1
            if left < sizes[-1] - slack if sizes else True:
                found.append(counts)
            return len(found) <= most and tried <= 20 * most
        return all(
            fill(k + 1, left - many * sizes[k], [*counts, many])
            for many in range(int((left + slack) // sizes[k]), -1, -1)
        )

    return found if fill(0, room, []) else None


class PatternProgram:
    """The integer program of one class, kept while prices change.

    Parameters
    ----------
    centre, scale
        Of the scaled load.
    """

    def __init__(
        self,
        view: PodArrays,
        demand: Demand,
        kind: int,
        *,
        cards: bool,
        measure: Measure,
        centre: float,
        scale: float,
        seed: int = 0,
    ) -> None:
        self.measure: Measure
        self.kind, self.demand, self.measure = kind, demand, measure
        self.scale: float
        self.centre, self.scale = centre, scale
        self.groups: Integers = np.flatnonzero(demand.may[:, kind])
        self.program = program = GrowingProgram(seed=seed)
        pods, node, base = demand.pod[self.groups], int(demand.classes.first[kind]), demand.base[kind]
        many = [float(count) for count in demand.most[self.groups]]
        self.counts: list[int] = [program.add_column(0.0, upper, integer=True) for upper in many]
        self.load: int = program.add_column(0.0, lower=-INFINITY)
        self.cost: int = program.add_column(1.0 if measure.centred else 0.0, lower=0.0)
        for r, used in ((1, view.cpu), (2, view.memory)):
            used = used / view.capacity[node, r]
            program.add_row(-INFINITY, 1.0 - used[base].sum() + EPSILON, self.counts, used[pods].tolist())
        loads = (demand.load[self.groups, kind] / scale).tolist()
        rest = (centre - demand.base_load[kind]) / scale
        program.add_row(rest, rest, [*self.counts, self.load], [*loads, -1.0])
        self._fill_cards(view, pods, node, base, cards)
        self.points: set[float] = set()
        if measure.curved:
            for size in _TANGENTS:
                self._touch(size)
                self._touch(-size)
        elif measure.centred:
            self.above: int = program.add_row(0.0, INFINITY, [self.cost, self.load], [1.0, -1.0])
            self.below: int = program.add_row(0.0, INFINITY, [self.cost, self.load], [1.0, 1.0])

    def _fill_cards(self, view: PodArrays, pods: Integers, node: int, base: Integers, cards: bool) -> None:
        on_gpu = np.flatnonzero(view.gpu_cards[pods] > 0).tolist()
        held = base[view.gpu_cards[base] > 0]
        if not on_gpu:
            return
        unit = float(view.card_gb[node])
        program, many, need = self.program, view.gpu_cards[pods], view.gpu[pods, node] / unit
        held_need = view.gpu[held, node] / unit
        used = float((held_need * view.gpu_cards[held]).sum())
        columns = [self.counts[k] for k in on_gpu]
        room = float(view.cards[node]) - used + EPSILON
        program.add_row(-INFINITY, room, columns, [float(need[k] * many[k]) for k in on_gpu])
        if not cards:
            return
        number, size = float(view.cards[node]), 1.0
        sizes = sorted({*need[on_gpu].tolist(), *held_need.tolist()}, reverse=True)
        ways = fillings([s for s in sizes if s > 0], size)
        if ways is None:  # at least, no two pods of more than half a card share one
            large = [k for k in on_gpu if need[k] > size / 2 + EPSILON]
            taken = float(view.gpu_cards[held][held_need > size / 2 + EPSILON].sum())
            program.add_row(-INFINITY, number - taken, [self.counts[k] for k in large], [float(many[k]) for k in large])
            return
        filled = [program.add_column(0.0, number, integer=True) for _ in ways]
        program.add_row(-INFINITY, number, filled, [1.0] * len(filled))
        for s, wanted in enumerate(s for s in sizes if s > 0):
            mine = [k for k in on_gpu if need[k] == wanted]
            taken = float(view.gpu_cards[held][held_need == wanted].sum())
            values = [*(float(many[k]) for k in mine), *(-float(way[s]) for way in ways)]
            program.add_row(-INFINITY, -taken, [*(self.counts[k] for k in mine), *filled], values)

    def _touch(self, point: float) -> None:
        if point not in self.points:
            self.points.add(point)
            self.program.add_row(-point * point, INFINITY, [self.cost, self.load], [1.0, -2.0 * point])

    def confine(self, low: float, high: float) -> None:
        """Set what the cost depends on: the interval of the mean (mean absolute) or the cap of the load."""
        if not self.measure.centred:
            self.program.set_bounds(self.load, -INFINITY, high)
        elif not self.measure.curved:
            self.program.set_row(self.above, -high, INFINITY)
            self.program.set_row(self.below, low, INFINITY)

    def best(
        self, prices: Floats, slope: float, *, time_limit_s: float | None, tolerance: float
    ) -> tuple[float, Integers | None]:
        """Proven least cost of a pattern at these prices ((G,)), and the best counts found.

        The bound is minus infinity when time ran out, plus infinity when the class has no pattern.
        """
        self.program.set_cost(self.counts, -prices[self.groups])
        self.program.set_cost([self.load], [slope])
        bound, counts = -math.inf, None
        for _ in range(_ROUNDS):
            outcome = self.program.solve(time_limit_s=time_limit_s, absolute_gap=tolerance, max_nodes=_NODES)
            if outcome.values is None:
                return (math.inf if outcome.status == "infeasible" else max(bound, outcome.bound)), None
            bound = max(bound, outcome.bound)
            counts = np.zeros(len(self.demand.pod), np.int64)
            counts[self.groups] = np.rint(outcome.values[self.counts]).astype(np.int64)
            load, cost = float(outcome.values[self.load]), float(outcome.values[self.cost])
            if not self.measure.curved or load * load - cost <= _SQUARE:
                break
            self._touch(round(load, 9))
        return bound, counts
