"""The integer program of pod placement, with one column for equal pods."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowlex.formulations.linear_expression import Expression, Variables
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.instances.exact_rationals import rational
from flowlex.instances.pods import PodArrays, PodInstance
from flowlex.models.pods.problem.admission_levels import Levels
from flowlex.models.pods.problem.balance_measures import SCALE, Measure
from flowlex.models.pods.problem.cluster import Cluster, pinned
from flowlex.models.pods.problem.group_rules import add_rules, may_use


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of pods that are equal except for their names (column aggregation). Sizes: P pods, K groups."""

    of: Integers  # (P,) group of each pod
    first: Integers  # (K,) one pod of each group
    count: Integers  # (K,) pods in each group

    @classmethod
    def of_instance(cls, instance: PodInstance, levels: Levels, *, apart: bool = False) -> Groups:
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
class PlacementProgram:
    """Builds the common constraints of all phases, with names as in `flowlex.models.pods.statement`."""

    view: PodArrays
    groups: Groups
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
        """Number of columns x and y, without building the program."""
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

    def program(self, name: str) -> tuple[LinearProgram, Variables]:
        """Return the program without an objective, and its columns x."""
        lp = LinearProgram(name)
        view, groups = self.view, self.groups
        group, node = self.pairs
        size, pod = len(view.cards), groups.first[group]
        x = lp.variables("x", len(group), upper=groups.count[group], integer=True, labels=(pod, node))
        running = view.stays[groups.first]
        placed = x.sum_by(group, len(groups.count))
        if (~running).any():
            lp.constrain("pod", placed[~running], "<=", groups.count[~running])
        if running.any():
            lp.constrain("running", placed[running], "==", groups.count[running])
        exact = view.exact
        lp.constrain("cpu", (x * (view.cpu[pod] / view.capacity[node, 1])).sum_by(node, size), "<=", 1.0)
        lp.constrain("memory", (x * (view.memory[pod] / view.capacity[node, 2])).sum_by(node, size), "<=", 1.0)
        if self.cards:
            self._cards(lp, x)
        else:
            many, has = view.gpu_cards[pod], np.where(view.cards > 0, view.capacity[:, 0], 1.0)
            lp.constrain("gpu", (x * (view.gpu[pod, node] * many / has[node])).sum_by(node, size), "<=", 1.0)
            if exact.compute.any():
                share = (x * (exact.compute[pod] / exact.whole * many)).sum_by(node, size)
                lp.constrain("compute", share, "<=", view.cards)
        if (moved := self.moved).any():
            lp.constrain("move_budget", (x[moved] * view.move_cost[pod[moved]]).sum(), "<=", self.move_budget)
        add_rules(lp, x, view, groups.first, groups.count, np.stack([group, node], axis=1))
        return lp, x

    def _cards(self, lp: LinearProgram, x: Variables) -> None:
        view, (group, node) = self.view, self.pairs
        pair, card = self.card_slots
        if not len(pair):
            return
        of_pair = self.groups.first[group[pair]]
        y = lp.variables("y", len(pair), upper=self.groups.count[group[pair]], integer=True, labels=(of_pair, card))
        exact, many = view.exact, int(view.cards.sum())
        share = y * (view.gpu[of_pair, node[pair]] / view.card_gb[node[pair]])
        lp.constrain("card", share.sum_by(card, many), "<=", 1.0)
        if exact.compute.any():
            lp.constrain("compute", (y * (exact.compute[of_pair] / exact.whole)).sum_by(card, many), "<=", 1.0)
        linked, of_link = np.unique(pair, return_inverse=True)
        wanted = view.gpu_cards[self.groups.first[group[linked]]]
        lp.constrain("card_link", y.sum_by(of_link, len(linked)) - x[linked] * wanted, "==", 0.0)
        several = np.flatnonzero(self.several)
        if len(several):  # a pod uses each card at most once
            spread = y[several] - x[pair[several]]
            lp.constrain("card_distinct", spread, "<=", 0.0)

    def by_level(self, x: Variables) -> Expression:
        """(L,) value of the placed pods of each level, in units."""
        pod, levels = self.groups.first[self.pairs[0]], self.levels
        use = levels.of[pod] >= 0
        if not use.any():
            return Expression.empty(len(levels.keys))
        worth: Expression = (x[use] * levels.worth[pod[use]].astype(np.float64)).sum_by(
            levels.of[pod[use]], len(levels.keys)
        )
        return worth

    def keep(self, program: LinearProgram, x: Variables, admitted: Sequence[int]) -> None:
        """Fix the first levels to the values that phase 1 has admitted."""
        rows, labels = self.by_level(x)[: len(admitted)], list(self.levels.keys[: len(admitted)])
        program.constrain("admitted", rows, "==", list(admitted), labels=labels)

    def loads(self, x: Variables) -> Expression:
        """(N,) node loads, in percent."""
        group, node = self.pairs
        pod = self.groups.first[group]
        loads: Expression = (x * (SCALE * self.view.load[pod, node])).sum_by(node, len(self.view.cards))
        return loads

    def balance(
        self,
        name: str,
        measure: Measure,
        admitted: Sequence[int],
        points: list[Floats],
        *,
        at_most: float | None = None,
    ) -> LinearProgram:
        """The program of phase 2 in percent; for ``deviation``, tangents approximate the sum of squares.

        ``admitted``: value of the pods to place by level, in units. ``points``: tangent points, (N,) each. ``at_most``:
        objective of a known placement, as a cutoff.
        """
        program, x = self.program(name)
        if admitted:
            self.keep(program, x, admitted)
        objective = measure.expression(program, self.loads(x), np.ones(len(self.view.cards)), points)
        if at_most is not None:
            program.constrain("at_most", objective, "<=", at_most)
        program.minimize(objective)
        return program

    def expand(self, values: Floats) -> Cluster | None:
        """Convert values of the columns (x, then y) to a placement; None if it violates exact capacities."""
        view, node = self.view, np.full(len(self.view.cpu), -1)
        counts = np.zeros((len(self.groups.count), len(view.cards)), np.int64)
        counts[self.pairs] = np.rint(values[: len(self.pairs[0])])
        for g in range(len(counts)):
            pods = np.flatnonzero(self.groups.of == g)
            places = np.repeat(np.arange(counts.shape[1]), counts[g])
            home = int(view.running[pods[0]])
            places = places[np.argsort(places != home, kind="stable")]
            node[pods[: len(places)]] = places
        on = self._chosen_cards(values, node) if self.cards else {}
        cluster = Cluster.of(view, node, on, cards=self.cards)
        there = Cluster(view, cards=self.cards).card_free >= 0
        fits = cluster.free.min(initial=0) >= 0 and cluster.card_free[there].min(initial=0) >= 0
        fits = fits and cluster.compute_free[there].min(initial=0) >= 0
        return cluster if fits else None

    def _chosen_cards(self, values: Floats, node: Integers) -> dict[int, Integers]:
        """Assign the cards of each group and node to its pods, always those with the most remaining uses."""
        view, (group, of_pair), (pair, card) = self.view, self.pairs, self.card_slots
        amount = np.rint(values[len(group) : len(group) + len(pair)]).astype(np.int64)
        start = np.cumsum(view.cards) - view.cards
        left: dict[tuple[int, int], Integers] = {}
        for a, k, c in zip(amount, pair, card, strict=True):
            if a:
                n = int(of_pair[k])
                slots = left.setdefault((int(group[k]), n), np.zeros(int(view.cards[n]), np.int64))
                slots[c - start[n]] += a
        chosen = {}
        for pod in np.flatnonzero((node >= 0) & (view.gpu_cards > 0)).tolist():
            slots = left[int(self.groups.of[pod]), int(node[pod])]
            chosen[pod] = np.argsort(-slots, kind="stable")[: view.gpu_cards[pod]]
            slots[chosen[pod]] -= 1
        return chosen


def pods_of_values(
    instance: PodInstance, builder: PlacementProgram, values: Mapping[str, Floats]
) -> tuple[Cluster, list[str]]:
    """Return the placement of integrally placed pods, and the names of pods with fractional values."""
    view, (group, at) = builder.view, builder.pairs
    pod, (pair, card) = builder.groups.first[group], builder.card_slots
    x = values["x"]
    placed = np.flatnonzero(x > 1 - 1e-6)
    node = np.full(len(view.cpu), -1)
    node[pod[placed]] = at[placed]
    start = np.cumsum(view.cards) - view.cards
    on: dict[int, list[int]] = {int(p): [] for p in pod[placed] if builder.cards and view.gpu_cards[p]}
    for k in np.flatnonzero(values["y"] > 1 - 1e-6).tolist() if on else ():
        on.setdefault(int(pod[pair[k]]), []).append(int(card[k] - start[at[pair[k]]]))
    for p, cards in on.items():
        if len(cards) != view.gpu_cards[p]:
            node[p] = -1
    parts = {int(p) for p in pod[x > 1e-6] if node[p] < 0}
    used = {p: np.array(cards, np.int64) for p, cards in on.items() if node[p] >= 0}
    return Cluster.of(view, node, used, cards=builder.cards), [instance.pods[p].name for p in sorted(parts)]
