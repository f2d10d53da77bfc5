"""The integer program of pod placement, with equal pods taken together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowlex.formulations.arrays import Booleans, Floats, Integers
from flowlex.formulations.expression import Expression, Variables
from flowlex.formulations.linear_program import LinearProgram
from flowlex.instances.pods import PodArrays, PodInstance
from flowlex.models.pods.problem.cluster import Cluster
from flowlex.models.pods.problem.levels import Levels
from flowlex.models.pods.problem.rules import add_rules, may_use

__all__ = ["SCALE", "Groups", "PlacementProgram", "partition", "pinned", "stays"]

#: Loads are stated in percent, so that their squares stay well above the solver's tolerances.
SCALE = 100.0


@dataclass(frozen=True, eq=False)
class Groups:
    """Pods that nothing tells apart but their names (column aggregation). Sizes: P pods, K groups.

    Attributes
    ----------
    of
        (P,) group of each pod.
    first
        (K,) one pod of each group.
    count
        (K,) pods in each group.
    """

    of: Integers
    first: Integers
    count: Integers

    @classmethod
    def of_instance(cls, instance: PodInstance, levels: Levels, *, apart: bool = False) -> Groups:
        """Group the pods; ``apart`` keeps each on its own."""
        view = instance.arrays
        if apart:
            return cls(*partition(range(len(instance.pods))))
        alike = (view.load.row, view.rules.kind, levels.of, levels.worth, view.running, view.move_cost)
        return cls(*partition(zip(*(column.tolist() for column in alike), strict=True)))


def partition(keys: Iterable[Hashable]) -> tuple[Integers, Integers, Integers]:
    """Number things by equal keys: the number of each; of each number one thing, and how many there are."""
    number: dict[Hashable, int] = {}
    of = np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
    first = np.unique(of, return_index=True)[1].astype(np.int64)
    return of, first, np.bincount(of, minlength=len(first)).astype(np.int64)


def pinned(view: PodArrays, move_budget: float) -> Integers:
    """(P,) node of each pod that runs and cannot move, -1 otherwise; it may have to be stopped."""
    return np.where((view.running >= 0) & (view.move_cost > move_budget), view.running, -1)


def stays(view: PodArrays, move_budget: float) -> Integers:
    """(P,) node of each pod that runs, cannot move and must go on, -1 otherwise."""
    return np.where(view.stays, pinned(view, move_budget), -1)


@dataclass(frozen=True, eq=False)
class PlacementProgram:
    """Builds the constraints every phase shares (names as in `flowlex.models.pods.model`)."""

    view: PodArrays
    groups: Groups
    levels: Levels
    cards: bool
    move_budget: float
    rows: frozenset[str] | None = None

    @cached_property
    def pairs(self) -> tuple[Integers, Integers]:
        """Group and node of every x: pairs that labels, taints and sizes allow."""
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
        """Columns x and y of the program, which need not be made for this."""
        group, node = self.pairs
        on_card = self.view.gpu_cards[self.groups.first[group]] > 0
        return len(group) + (int(self.view.cards[node[on_card]].sum()) if self.cards else 0)

    @cached_property
    def card_slots(self) -> tuple[Integers, Integers]:
        """X and card (numbered over the cluster) of every y."""
        group, node = self.pairs
        if not self.cards:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        on_gpu = np.flatnonzero(self.view.gpu_cards[self.groups.first[group]] > 0)
        start = np.cumsum(self.view.cards) - self.view.cards
        many = self.view.cards[node[on_gpu]]
        pair = np.repeat(on_gpu, many)
        within = np.arange(len(pair)) - np.repeat(np.cumsum(many) - many, many)
        return pair, start[node[pair]] + within

    @property
    def several(self) -> Booleans:
        """(columns y,) whether the pod wants several cards."""
        return self.view.gpu_cards[self.groups.first[self.pairs[0][self.card_slots[0]]]] > 1

    @property
    def moved(self) -> Booleans:
        """(columns x,) whether the column moves a running pod."""
        view, (group, node) = self.view, self.pairs
        pod = self.groups.first[group]
        moved: Booleans = (view.running[pod] >= 0) & (view.running[pod] != node) & np.isfinite(view.move_cost[pod])
        return moved

    def program(self, name: str, *, integer: bool = True) -> tuple[LinearProgram, Variables]:
        """The constraints without an objective, and x."""
        lp = LinearProgram(name, self.rows)
        view, groups = self.view, self.groups
        group, node = self.pairs
        size, pod = len(view.cards), groups.first[group]
        x = lp.variables("x", len(group), upper=groups.count[group], integer=integer, labels=(pod, node))
        running = view.stays[groups.first]
        placed = x.sum_by(group, len(groups.count))
        if (~running).any():
            lp.constrain("pod", placed[~running], "<=", groups.count[~running])
        if running.any():
            lp.constrain("running", placed[running], "==", groups.count[running])
        # Shares of what the node has, so that the solver's tolerance is relative to it.
        lp.constrain("cpu", (x * (view.cpu[pod] / view.capacity[node, 1])).sum_by(node, size), "<=", 1.0)
        lp.constrain("memory", (x * (view.memory[pod] / view.capacity[node, 2])).sum_by(node, size), "<=", 1.0)
        if self.cards:
            self._cards(lp, x, integer=integer)
        else:
            whole = np.where(view.cards[node] > 0, view.capacity[node, 0], 1.0)
            total = (x * (view.gpu[pod, node] * view.gpu_cards[pod] / whole)).sum_by(node, size)
            lp.constrain("gpu", total, "<=", 1.0)
            if view.exact.compute.any():
                share = view.exact.compute[pod] / view.exact.whole * view.gpu_cards[pod]
                lp.constrain("compute", (x * share).sum_by(node, size), "<=", view.cards.astype(np.float64))
        if (moved := self.moved).any():
            lp.constrain("move_budget", (x[moved] * view.move_cost[pod[moved]]).sum(), "<=", self.move_budget)
        add_rules(lp, x, view, groups.first, groups.count, np.stack([group, node], axis=1))
        return lp, x

    def _cards(self, lp: LinearProgram, x: Variables, *, integer: bool) -> None:
        view, (group, node) = self.view, self.pairs
        pair, card = self.card_slots
        if not len(pair):
            return
        of_pair = self.groups.first[group[pair]]
        y = lp.variables("y", len(pair), upper=self.groups.count[group[pair]], integer=integer, labels=(of_pair, card))
        many = int(view.cards.sum())
        need = view.gpu[of_pair, node[pair]] / view.card_gb[node[pair]]
        lp.constrain("card", (y * need).sum_by(card, many), "<=", 1.0)
        if view.exact.compute.any():
            lp.constrain(
                "compute", (y * (view.exact.compute[of_pair] / view.exact.whole)).sum_by(card, many), "<=", 1.0
            )
        linked, of_link = np.unique(pair, return_inverse=True)
        wanted = view.gpu_cards[self.groups.first[group[linked]]]
        lp.constrain("card_link", y.sum_by(of_link, len(linked)) - x[linked] * wanted, "==", 0.0)
        several = np.flatnonzero(self.several)
        if len(several):  # no pod takes one card twice: at most one y per card and pod
            spread = y[several].expression() - x[pair[several]]
            lp.constrain("card_distinct", spread, "<=", 0.0)

    def by_level(self, x: Variables) -> Expression:
        """(L,) worth of the pods of each level that have a node, in units."""
        pod, levels = self.groups.first[self.pairs[0]], self.levels
        use = levels.of[pod] >= 0
        if not use.any():
            return Expression.empty(len(levels.keys))
        worth: Expression = (x[use] * levels.worth[pod[use]].astype(np.float64)).sum_by(
            levels.of[pod[use]], len(levels.keys)
        )
        return worth

    def keep(self, program: LinearProgram, x: Variables, admitted: Sequence[int]) -> None:
        """Require what phase 1 has admitted, of the first levels."""
        rows, labels = self.by_level(x)[: len(admitted)], list(self.levels.keys[: len(admitted)])
        program.constrain("admitted", rows, "==", list(admitted), labels=labels)

    def loads(self, x: Variables) -> Expression:
        """(N,) node loads, in percent."""
        group, node = self.pairs
        pod = self.groups.first[group]
        loads: Expression = (x * (SCALE * self.view.load[pod, node])).sum_by(node, len(self.view.cards))
        return loads

    def counts(self, values: Floats) -> Integers:
        """(K, N) pods of each group on each node, from the values of x."""
        group, node = self.pairs
        table = np.zeros((len(self.groups.count), len(self.view.cards)), np.int64)
        table[group, node] = np.rint(values[: len(group)]).astype(np.int64)
        return table

    def expand(self, values: Floats) -> Cluster | None:
        """Turn values of the columns (x, then y) into pods on nodes and cards; None where rounding let too much in."""
        counts, view = self.counts(values), self.view
        node = np.full(len(view.cpu), -1)
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
        """Deal the cards of each group and node to its pods, always those that are left most often."""
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
