"""Nodes as they fill up: what fits where, first placements, and moves and swaps that even the loads out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.expression import Floats, Integers
from flowlex.instances.pods import PodArrays

__all__ = ["EPSILON", "Cluster", "deviation", "improve", "place_in_order"]

#: Rounding of sums of sizes, in their units (GB, cores).
EPSILON = 1e-9


def deviation(loads: Floats) -> float:
    """Standard deviation of the node loads: the paper's fitness."""
    return float(np.std(loads)) if len(loads) else 0.0


class Cluster:
    """Free resources of every node and card, and where each pod is.

    Parameters
    ----------
    view
        The instance's arrays.
    cards
        False counts GPU memory per node, as the paper does.
    """

    def __init__(self, view: PodArrays, *, cards: bool = True) -> None:
        self.view = view
        self.cards = cards
        size, most = len(view.cards), int(view.cards.max(initial=0)) if cards else 1
        self.free: Floats = view.capacity[:, 1:].copy()
        self.loads: Floats = np.zeros(size)
        self.node: Integers = np.full(len(view.cpu), -1)
        self.used_cards: dict[int, Integers] = {}
        self.card_free: Floats
        if cards:
            self.card_free = np.where(np.arange(max(most, 1)) < view.cards[:, None], view.card_gb[:, None], -1.0)
        else:
            self.card_free = view.capacity[:, :1].copy()

    def _need(self, pod: int) -> tuple[Floats, int]:
        """(N,) GB on each card, and how many cards."""
        view = self.view
        if self.cards:
            return view.gpu[pod], int(view.gpu_cards[pod])
        return view.gpu[pod] * view.gpu_cards[pod], min(1, int(view.gpu_cards[pod]))

    def fits(self, pod: int) -> NDArray[np.bool_]:
        """(N,) whether the pod may go to the node and fits into what is free now."""
        view = self.view
        room = (self.free[:, 0] >= view.cpu[pod] - EPSILON) & (self.free[:, 1] >= view.memory[pod] - EPSILON)
        need, many = self._need(pod)
        if many:
            room &= ((self.card_free >= need[:, None] - EPSILON).sum(axis=1) >= many) & (view.cards > 0)
        allowed: NDArray[np.bool_] = room & view.allowed[pod]
        return allowed

    def fits_node(self, pod: int, node: int) -> bool:
        """Whether the pod may go to one node and fits into what is free there now."""
        view = self.view
        if not view.allowed[pod, node] or self.free[node, 0] < view.cpu[pod] - EPSILON:
            return False
        if self.free[node, 1] < view.memory[pod] - EPSILON:
            return False
        need, many = self._need(pod)
        if not many:
            return True
        room = np.count_nonzero(self.card_free[node] >= need[node] - EPSILON)
        return bool(view.cards[node] and room >= many)

    def copy(self) -> Cluster:
        """The same pods on the same cards, to be changed freely."""
        other = Cluster.__new__(Cluster)
        other.view, other.cards = self.view, self.cards
        other.free, other.loads = self.free.copy(), self.loads.copy()
        other.node, other.card_free = self.node.copy(), self.card_free.copy()
        other.used_cards = dict(self.used_cards)
        return other

    def add(self, pod: int, node: int) -> None:
        """Place a pod that fits, on the fullest cards that take it."""
        view = self.view
        need, many = self._need(pod)
        if many:
            free = self.card_free[node]
            order = np.lexsort((np.arange(len(free)), free))
            chosen = order[free[order] >= need[node] - EPSILON][:many]
            assert len(chosen) == many
            free[chosen] -= need[node]
            self.used_cards[pod] = chosen
        self.free[node] -= (view.cpu[pod], view.memory[pod])
        self.loads[node] += view.load[pod, node]
        self.node[pod] = node

    def remove(self, pod: int) -> int:
        """Take a pod off its node; return which."""
        view, node = self.view, int(self.node[pod])
        need, many = self._need(pod)
        if many:
            self.card_free[node, self.used_cards.pop(pod)] += need[node]
        self.free[node] += (view.cpu[pod], view.memory[pod])
        self.loads[node] -= view.load[pod, node]
        self.node[pod] = -1
        return node


def place_in_order(cluster: Cluster, pods: Iterable[int], *, power: int = 0) -> list[int]:
    """Place each pod where the loads become least uneven (see `improve`); return those that fit nowhere."""
    left = []
    for pod in pods:
        fits = np.flatnonzero(cluster.fits(pod))
        if not len(fits):
            left.append(pod)
            continue
        cluster.add(pod, int(fits[_spread(cluster.loads, cluster.view.load[pod], fits, power).argmin()]))
    return left


def _spread(loads: Floats, added: Floats, nodes: Integers, power: int = 0) -> Floats:
    """What the loads cost after adding to each of ``nodes`` in turn, up to a constant.

    Power 0: their variance, times their number. Otherwise the sum of powers, which counts large loads.
    """
    now, more = loads[nodes], added[nodes]
    if power:
        peak = max(1e-12, float(loads.max()))  # keeps the powers of the large loads near 1
        powers: Floats = np.minimum((now + more) / peak, 4.0) ** power - (now / peak) ** power
        return powers
    total = loads.sum() + more
    squares: Floats = (loads**2).sum() - now**2 + (now + more) ** 2 - total**2 / len(loads)
    return squares


def improve(cluster: Cluster, movable: Sequence[int], *, power: int = 0, passes: int = 50) -> None:
    """Move or swap pods as long as the loads become more even; the same input gives the same result.

    Parameters
    ----------
    power
        0 lowers the deviation; a large even number lowers the largest loads.
    """
    peak = max(1e-12, float(cluster.loads.max(initial=0.0)))
    for _ in range(passes):
        before = _cost(cluster.loads / peak, power)
        for pod in movable:
            _move(cluster, pod, power)
        for pod in movable:
            _swap(cluster, pod, movable, power)
        if _cost(cluster.loads / peak, power) > before * (1 - 1e-6) - 1e-15:
            return


def _cost(loads: Floats, power: int) -> float:
    return float((loads**power).sum() if power else loads.var())


def _move(cluster: Cluster, pod: int, power: int) -> None:
    home = cluster.remove(pod)
    added = cluster.view.load[pod]
    fits = np.flatnonzero(cluster.fits(pod))
    costs = _spread(cluster.loads, added, fits, power)
    stays = _spread(cluster.loads, added, np.array([home]), power)[0]
    better = len(fits) > 0 and costs.min() < stays - 1e-12
    cluster.add(pod, int(fits[costs.argmin()]) if better else home)


def _swap(cluster: Cluster, pod: int, movable: Sequence[int], power: int) -> None:
    view, a = cluster.view, int(cluster.node[pod])
    others = np.array([q for q in movable if cluster.node[q] != a and view.allowed[q, a]], np.int64)
    others = others[view.allowed[pod, cluster.node[others]]] if len(others) else others
    if not len(others):
        return
    b = cluster.node[others]
    change_a = view.load[others, a] - view.load[pod, a]
    change_b = view.load[pod, b] - view.load[others, b]
    loads, size = cluster.loads, len(cluster.loads)
    if power:
        peak = max(1e-12, float(loads.max()))
        loads = loads / peak
        change_a, change_b = (np.minimum(change / peak, 3.0) for change in (change_a, change_b))
    each = power or 2
    gain = (loads[a] + change_a) ** each - loads[a] ** each + (loads[b] + change_b) ** each - loads[b] ** each
    if not power:
        total = loads.sum()
        gain -= ((total + change_a + change_b) ** 2 - total**2) / size
    for i in np.argsort(gain)[:5]:
        if gain[i] > -1e-12:
            return
        if _try_swap(cluster, pod, int(others[i])):
            return


def _try_swap(cluster: Cluster, pod: int, other: int) -> bool:
    a, b = cluster.remove(pod), cluster.remove(other)
    if cluster.fits(pod)[b]:
        cluster.add(pod, b)
        if cluster.fits(other)[a]:
            cluster.add(other, a)
            return True
        cluster.remove(pod)
    # Putting back may choose other cards of the same node; it always succeeds in the order they left room.
    for each, home in sorted(((pod, a), (other, b)), key=lambda pair: -cluster.view.gpu[pair]):
        cluster.add(each, home)
    return False
