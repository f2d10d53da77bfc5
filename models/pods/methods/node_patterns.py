r"""The pricing problem: the best pattern of one node class at given multipliers.

A pattern is the number n_g of pods of each group on one node. With the scaled load w = (u - centre) / scale::

    minimise   f(w) + slope w - sum_g price_g n_g
    subject to cores, memory, cards of the node

where f is (w - low)(w - high) (deviation), max(0, w - high, low - w) (mean absolute) or 0 up to a cap (largest load).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.pods import PodArrays
from flowlex.models.pods.problem.balance_measures import Measure
from flowlex.models.pods.problem.node_and_pod_classes import Demand

#: Tolerance of sums of shares of a node.
EPSILON = 1e-9
#: Number of patterns, each the best for a while, that pricing hands on as further columns.
_KEPT = 24


@dataclass(frozen=True, eq=False)
class Pattern:
    """A feasible set of pods on one node."""

    kind: int  # the node class
    counts: Integers  # (G,) pods by group
    load: float  # the node's load, including pods that cannot move

    @property
    def key(self) -> tuple[int, bytes]:
        """Hashable key, equal for equal patterns."""
        return self.kind, self.counts.tobytes()


@dataclass(eq=False)
class Pricing:
    """Finds the best pattern of one class by enumeration."""

    view: PodArrays
    demand: Demand
    kind: int
    cards: bool
    measure: Measure
    # centre, scale: parameters of the scaled load
    centre: float
    scale: float
    # low, high: parameters of the cost: the interval of the mean, or the cap of the load (``high``)
    low: float = 0.0
    high: float = 0.0

    def __post_init__(self) -> None:
        view, demand, kind, cards = self.view, self.demand, self.kind, self.cards
        self.steps = 0
        self.others: list[Pattern] = []
        groups = np.flatnonzero(demand.may[:, kind])
        node, base, pods = int(demand.classes.first[kind]), demand.base[kind], demand.pod[groups]
        many = view.gpu_cards if cards else np.minimum(view.gpu_cards, 1)
        self.node_cards: int = int(view.cards[node]) if cards else 0
        # Demands as shares of the node's capacity, so that tolerances are relative.
        unit = np.where(view.capacity[node] > 0, view.capacity[node], 1.0) / (max(1, self.node_cards), 1, 1)
        gpu = view.gpu[np.arange(len(view.cpu)), node] * (1 if cards else view.gpu_cards)
        cpu, memory, need = view.cpu / unit[1], view.memory / unit[2], gpu / unit[0]
        loads = demand.load[groups, kind] / self.scale
        table = np.column_stack([cpu[pods], memory[pods], need[pods], many[pods], loads])
        shapes, of = np.unique(table, axis=0, return_inverse=True)
        self.members = [groups[of == h] for h in range(len(shapes))]
        most = np.array([demand.most[members].sum() for members in self.members], np.float64)
        room = np.array([1.0, 1.0, view.capacity[node, 0] / unit[0], view.cards[node]])
        room[:3] -= (cpu[base].sum(), memory[base].sum(), (need[base] * many[base]).sum())
        room[3] -= many[base][need[base] > 0.5 + EPSILON].sum()
        fit = np.where(shapes[:, :3] > 0, np.floor((room[:3] + EPSILON) / np.maximum(shapes[:, :3], 1e-12)), np.inf)
        self.shape = np.column_stack([shapes, np.clip(np.minimum(most, fit.min(axis=1, initial=np.inf)), 0, None)])
        self.room = room
        held = base[view.gpu_cards[base] > 0]
        self.held, self.held_many = need[held], many[held]
        self.order = np.argsort(-np.concatenate([shapes[:, 2], self.held]), kind="stable")
        self.size: float = 1.0
        self.empty: float = (float(demand.base_load[kind]) - self.centre) / self.scale

    def law(self, slope: float) -> tuple[float, ...]:
        """Parameters of the cost for the kernels: mode, interval, slope, load of the empty node, largest load."""
        return self.measure.mode, self.low, self.high, slope, self.empty, (1.0 - self.centre) / self.scale

    def best(self, prices: Floats, slope: float, *, tolerance: float, limit: int) -> tuple[float, Pattern | None]:
        """Return a lower bound on the cost of a pattern at multipliers ``prices``, (G,), and the best pattern found.

        The bound is less than the pattern's cost if ``limit`` steps did not suffice, and plus infinity if the class has
        no pattern. ``others`` are earlier incumbents; ``steps`` is the number of steps used.
        """
        from flowlex.models.pods.methods.compiled_patterns import enumerate_patterns

        profit, chosen = self._profit(prices)
        gain = profit[:, 1] / np.maximum(self.shape[:, 4], 1e-12) if len(profit) else np.zeros(0)
        met = np.zeros((_KEPT, len(self.shape)), np.int64)
        bound, value, counts, kept, self.steps = enumerate_patterns(
            self.shape,
            self.room,
            self.held,
            self.held_many,
            self.order,
            self.node_cards,
            self.size,
            profit,
            np.argsort(-gain, kind="stable"),
            np.array(self.law(slope)),
            tolerance,
            limit,
            met,
        )
        self.others = [self._pattern_of(other, chosen) for other in met[: min(kept, _KEPT)]]
        return -bound, self._pattern_of(counts, chosen) if np.isfinite(value) else None

    def _profit(self, prices: Floats) -> tuple[Floats, list[Integers]]:
        """(H, M) profit of the m most profitable pods of each shape, and the groups of these pods in this order."""
        width = int(self.shape[:, 5].max(initial=0)) + 2
        profit, chosen = np.zeros((len(self.members), width)), []
        for h, members in enumerate(self.members):
            count = int(self.shape[h, 5])
            order = members[np.argsort(-prices[members], kind="stable")]
            each = np.repeat(order, np.minimum(self.demand.most[order], count))[:count]
            chosen.append(each)
            profit[h, 1 : count + 1] = np.cumsum(prices[each])
        return profit, chosen

    def _pattern_of(self, counts: Integers, chosen: list[Integers]) -> Pattern:
        groups = np.zeros(len(self.demand.pod), np.int64)
        for h, many in enumerate(counts.tolist()):
            np.add.at(groups, chosen[h][:many], 1)
        return self.pattern(groups)

    def pattern(self, counts: Integers) -> Pattern:
        """Return the pattern with these counts."""
        load = float(self.demand.base_load[self.kind] + self.demand.load[:, self.kind] @ counts)
        return Pattern(self.kind, counts, load)
