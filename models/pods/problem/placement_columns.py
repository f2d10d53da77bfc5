"""The columns of a placement: which groups of equal pods may run on which nodes and cards."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.instances.exact_rationals import rational
from flowlex.instances.pods import PodArrays, PodInstance
from flowlex.models.pods.problem.admission_levels import Levels
from flowlex.models.pods.problem.cluster import Cluster, pinned
from flowlex.models.pods.problem.group_rules import may_use


@dataclass(frozen=True, eq=False)
class PodGroups:
    """Groups of pods that are equal except for their names (column aggregation). Sizes: P pods, K groups."""

    of: Integers  # (P,) group of each pod
    first: Integers  # (K,) one pod of each group
    count: Integers  # (K,) pods in each group

    @classmethod
    def of_instance(cls, instance: PodInstance, levels: Levels, *, apart: bool = False) -> PodGroups:
        """Group the pods; ``apart``: one group per pod."""
        view = instance.arrays
        if apart:
            return cls(*partition(range(len(instance.pods))))
        ranked, home = (levels.of, levels.worth), (view.running, view.home_cards, view.move_cost)
        alike = (view.load.row, view.rules.kind, *ranked, *home)
        return cls(*partition(zip(*(column.tolist() for column in alike), strict=True)))


def partition(keys: Iterable[Hashable]) -> tuple[Integers, Integers, Integers]:
    """Number items by key: return the number of each item, the first item of each number, and the counts."""
    number: dict[Hashable, int] = {}
    of = np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
    first = np.unique(of, return_index=True)[1].astype(np.int64)
    return of, first, np.bincount(of, minlength=len(first)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class PlacementColumns:
    """Pairs of a group and a node that no rule excludes beforehand, and their cards."""

    view: PodArrays
    groups: PodGroups
    levels: Levels
    cards: bool
    move_budget: float

    @cached_property
    def pairs(self) -> tuple[Integers, Integers]:
        """Group and node of every x: the pairs that labels, taints and sizes allow."""
        view, first, exact = self.view, self.groups.first, self.view.exact
        allowed = view.allowed[first] & (exact.cpu[first][:, None] <= exact.node[:, 0])
        allowed &= exact.memory[first][:, None] <= exact.node[:, 1]
        many, need = view.gpu_cards[first][:, None], exact.gpu[first]
        on_card, in_all = (need <= exact.card) & (many <= view.cards), need * many <= exact.card * view.cards
        room = on_card if self.cards else in_all
        allowed &= (many == 0) | (room & (view.cards > 0))
        running = pinned(view, self.move_budget)[first]
        ruled = np.flatnonzero(view.rules.kind[first])
        allowed[ruled] &= may_use(view, first[ruled])
        fixed = running >= 0
        allowed[fixed] &= np.arange(len(view.cards)) == running[fixed][:, None]
        group, node = np.nonzero(allowed)
        return group, node

    @property
    def columns(self) -> int:
        """Number of columns x and y."""
        group, node = self.pairs
        on_card = self.view.gpu_cards[self.groups.first[group]] > 0
        return len(group) + (int(self.view.cards[node[on_card]].sum()) if self.cards else 0)

    @cached_property
    def card_slots(self) -> tuple[Integers, Integers]:
        """Column x and card (numbered over the cluster) of every y."""
        group, node = self.pairs
        if not self.cards:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        on_gpu = np.flatnonzero(self.view.gpu_cards[self.groups.first[group]] > 0)
        start = np.cumsum(self.view.cards) - self.view.cards
        many = self.view.cards[node[on_gpu]]
        pair = np.repeat(on_gpu, many)
        within = np.arange(len(pair)) - np.repeat(np.cumsum(many) - many, many)
        pod = self.groups.first[group[pair]]
        bits = np.where(self.view.running[pod] == node[pair], self.view.home_cards[pod], np.uint64(0))
        usable = (bits == 0) | ((bits >> within.astype(np.uint64)) & np.uint64(1) > 0)
        return pair[usable], (start[node[pair]] + within)[usable]

    @property
    def several(self) -> Booleans:
        """(columns y,) whether the pod needs several cards."""
        return self.view.gpu_cards[self.groups.first[self.pairs[0][self.card_slots[0]]]] > 1

    @property
    def moved(self) -> Booleans:
        """(columns x,) whether the column moves a running pod."""
        view, (group, node) = self.view, self.pairs
        pod = self.groups.first[group]
        moved: Booleans = (view.running[pod] >= 0) & (view.running[pod] != node) & np.isfinite(view.move_cost[pod])
        return moved

    @property
    def move_unit(self) -> int:
        """Factor that makes the costs of moves and their budget integers."""
        costs = self.view.move_cost[self.groups.first[self.pairs[0][self.moved]]]
        return math.lcm(*(rational(c).denominator for c in {*costs.tolist(), self.move_budget}))


def pods_of_values(
    instance: PodInstance, placeable: PlacementColumns, values: Mapping[str, Floats]
) -> tuple[Cluster, list[str]]:
    """Return the placement of integrally placed pods, and the names of pods with fractional values."""
    view, (group, at) = placeable.view, placeable.pairs
    pod, (pair, card) = placeable.groups.first[group], placeable.card_slots
    x = values["x"]
    placed = np.flatnonzero(x > 1 - 1e-6)
    node = np.full(len(view.cpu), -1)
    node[pod[placed]] = at[placed]
    start = np.cumsum(view.cards) - view.cards
    on: dict[int, list[int]] = {int(p): [] for p in pod[placed] if placeable.cards and view.gpu_cards[p]}
    for k in np.flatnonzero(values["y"] > 1 - 1e-6).tolist() if on else ():
        on.setdefault(int(pod[pair[k]]), []).append(int(card[k] - start[at[pair[k]]]))
    for p, cards in on.items():
        if len(cards) != view.gpu_cards[p]:
            node[p] = -1
    parts = {int(p) for p in pod[x > 1e-6] if node[p] < 0}
    used = {p: np.array(cards, np.int64) for p, cards in on.items() if node[p] >= 0}
    return Cluster.of(view, node, used, cards=placeable.cards), [instance.pods[p].name for p in sorted(parts)]
