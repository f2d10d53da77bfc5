"""State of a cluster while pods are placed: free resources of nodes and cards, in exact integers."""

from __future__ import annotations

import numpy as np

from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.instances.pods import PodArrays, PodInstance
from flowlex.models.model_base import ModelError


def deviation(loads: Floats) -> float:
    """Standard deviation of the node loads: the paper's fitness."""
    return float(np.std(loads)) if len(loads) else 0.0


class Cluster:
    """Free resources of every node and card, and the node of each pod.

    - ``view``: the instance's arrays.
    - ``cards``: if False, GPU memory is counted per node, as in the paper.
    - ``free``, ``card_free``: (N, 2) cores and memory, (N, K) memory of cards, in integer units of `ExactSizes`; -1:
      no card.
    - ``compute_free``: (N, K) compute of cards, in integer units.
    - ``home``: (P,) whether the cards of a running pod are known (always False without ``cards``).
    """

    def __init__(self, view: PodArrays, *, cards: bool = True) -> None:
        self.view = view
        self.cards = cards
        exact, most = view.exact, int(view.cards.max(initial=0)) if cards else 1
        self.free: Integers = exact.node.copy()
        self.node: Integers = np.full(len(view.cpu), -1)
        self.used_cards: dict[int, Integers] = {}
        self.card_free: Integers
        if cards:
            self.card_free = np.where(np.arange(max(most, 1)) < view.cards[:, None], exact.card[:, None], -1)
        else:
            self.card_free = np.where(view.cards > 0, exact.card * view.cards, -1)[:, None]
        self.home: Booleans = (view.home_cards > 0) & cards
        on_card = exact.whole * (1 if cards else view.cards[:, None])
        self.compute_free: Integers = np.where(self.card_free >= 0, on_card, -1)

    @property
    def loads(self) -> Floats:
        """(N,) weighted utilisation of each node."""
        placed = np.flatnonzero(self.node >= 0)
        node = self.node[placed]
        loads = np.bincount(node, self.view.load[placed, node], len(self.view.cards))
        return loads.astype(np.float64)

    def need(self, pod: int) -> tuple[Integers, int]:
        """(N,) memory need on each card, and number of cards, of a pod."""
        view, many = self.view, int(self.view.gpu_cards[pod])
        return (view.exact.gpu[pod], many) if self.cards else (view.exact.gpu[pod] * many, min(1, many))

    def compute(self, pod: int) -> int:
        """Compute need on each card, or on the node without ``cards``."""
        return int(self.view.exact.compute[pod]) * (1 if self.cards else int(self.view.gpu_cards[pod]))

    def fits_node(self, pod: int, node: int) -> bool:
        """Return whether a pod is allowed on a node and fits its free resources."""
        exact, allowed = self.view.exact, self.view.allowed[pod, node]
        if not allowed or self.free[node, 0] < exact.cpu[pod] or self.free[node, 1] < exact.memory[pod]:
            return False
        many = int(self.view.gpu_cards[pod])
        enough = many if self.cards else 1
        return not many or bool(self.view.cards[node] and np.count_nonzero(self._takes(pod, node)) >= enough)

    def _takes(self, pod: int, node: int) -> Booleans:
        """(K,) cards that take the pod now; at home only those that it uses there do, where these are known."""
        view = self.view
        need = int(view.exact.gpu[pod, node]) * (1 if self.cards else int(view.gpu_cards[pod]))
        takes: Booleans = (self.card_free[node] >= need) & (self.compute_free[node] >= self.compute(pod))
        if self.home[pod] and view.running[pod] == node:
            takes &= np.array([int(view.home_cards[pod]) >> k & 1 > 0 for k in range(len(takes))])
        return takes

    def copy(self) -> Cluster:
        """Return an independent copy."""
        other = Cluster.__new__(Cluster)
        other.view, other.cards, other.home = self.view, self.cards, self.home
        other.free, other.node, other.card_free = self.free.copy(), self.node.copy(), self.card_free.copy()
        other.compute_free = self.compute_free.copy()
        other.used_cards = dict(self.used_cards)
        return other

    def add(self, pod: int, node: int, on: Integers | None = None) -> None:
        """Place a pod, on these cards, or else on the fullest cards that take it."""
        exact, many = self.view.exact, int(self.view.gpu_cards[pod])
        if many:
            need = int(exact.gpu[pod, node]) * (1 if self.cards else many)
            if on is None:
                free, wanted = self.card_free[node], many if self.cards else 1
                order = np.lexsort((np.arange(len(free)), free))
                on = order[self._takes(pod, node)[order]][:wanted]
                assert len(on) == wanted
            self.card_free[node, on] -= need
            self.compute_free[node, on] -= self.compute(pod)
            self.used_cards[pod] = on
        self.free[node] -= (exact.cpu[pod], exact.memory[pod])
        self.node[pod] = node

    def pack(self, pods: Integers, nodes: Integers) -> bool:
        """Add pods to nodes: those on known cards first, then by descending memory per card; False if one fails."""
        view, home = self.view, self.home[pods] & (self.view.running[pods] == nodes)
        for k in np.lexsort((pods, -view.gpu_cards[pods], -view.gpu[pods, nodes], ~home)).tolist():
            if not self.fits_node(int(pods[k]), int(nodes[k])):
                return False
            self.add(int(pods[k]), int(nodes[k]))
        return True

    @classmethod
    def of(cls, view: PodArrays, node: Integers, on: dict[int, Integers], *, cards: bool = True) -> Cluster:
        """Return the placement of pods on nodes ((P,), -1: waits) and cards, even if it does not fit."""
        cluster, exact, placed = cls(view, cards=cards), view.exact, node >= 0
        known = np.zeros(len(node), bool)
        known[list(on)] = True
        if not cards:
            known, on = placed, dict.fromkeys(np.flatnonzero(placed).tolist(), np.zeros(1, np.int64))
        pods = np.flatnonzero(placed & (known | (view.gpu_cards == 0)))
        np.subtract.at(cluster.free, node[pods], np.stack([exact.cpu[pods], exact.memory[pods]], axis=1))
        cluster.node[pods] = node[pods]
        pods = pods[view.gpu_cards[pods] > 0]
        cluster.used_cards = {pod: on[pod] for pod in pods.tolist()}
        if len(pods):
            many = view.gpu_cards[pods] if not cards else np.ones_like(pods)
            each = np.repeat(np.arange(len(pods)), [len(chosen) for chosen in cluster.used_cards.values()])
            at = (node[pods][each], np.concatenate(list(cluster.used_cards.values())))
            np.subtract.at(cluster.card_free, at, (exact.gpu[pods, node[pods]] * many)[each])
            np.subtract.at(cluster.compute_free, at, (exact.compute[pods] * many)[each])
        for pod in np.flatnonzero(placed & (cluster.node < 0)).tolist():
            cluster.add(pod, int(node[pod]))
        return cluster


def pinned(view: PodArrays, move_budget: float) -> Integers:
    """(P,) node of each running pod that cannot move, -1 otherwise; it may still be stopped."""
    return np.where((view.running >= 0) & (view.move_cost > move_budget), view.running, -1)


def stays(view: PodArrays, move_budget: float) -> Integers:
    """(P,) node of each running pod that can neither move nor be stopped, -1 otherwise."""
    return np.where(view.stays, pinned(view, move_budget), -1)


def running_cluster(view: PodArrays, *, cards: bool, all_of_it: bool = True) -> Cluster | None:
    """Return the cluster of running pods; None if `Cluster.pack` fails.

    ``all_of_it``: include pods that may be stopped.
    """
    cluster = Cluster(view, cards=cards)
    running = np.flatnonzero(view.running >= 0 if all_of_it else view.stays)
    return cluster if cluster.pack(running, view.running[running]) else None


def packed_running(view: PodArrays) -> Cluster:
    """What runs already, cards told apart; raises `ModelError` where it does not pack."""
    cluster = running_cluster(view, cards=True)
    if cluster is None:
        raise ModelError("the running pods do not pack on their cards in falling order of size")
    return cluster


def check_running(instance: PodInstance, move_budget: float) -> None:
    """Raise `ModelError` if running pods overfill their nodes or are not allowed there."""
    view, nodes, exact = instance.arrays, instance.nodes, instance.arrays.exact
    fixed = stays(view, move_budget)
    pods = np.flatnonzero(fixed >= 0)
    for p in pods.tolist():
        n, pod = int(fixed[p]), instance.pods[p]
        if not view.allowed[p, n] or (pod.wants_gpu and not nodes[n].cards):
            raise ModelError(f"pod {pod.name!r} runs on {pod.node!r}, which its labels, taints or GPU exclude")
    _check_cards(instance, pods)
    gpu = exact.gpu[pods, fixed[pods]] * view.gpu_cards[pods]
    whole = exact.card * view.cards
    used = [view.gpu[pods, fixed[pods]] * view.gpu_cards[pods], view.cpu[pods], view.memory[pods]]
    asked = (gpu, exact.cpu[pods], exact.memory[pods])
    for r, what in enumerate(("GB of GPU memory", "cores", "GB of memory")):
        left = whole.copy() if r == 0 else exact.node[:, r - 1].copy()
        np.subtract.at(left, fixed[pods], asked[r])
        if (left < 0).any():
            n = int(np.flatnonzero(left < 0)[0])
            total = used[r][fixed[pods] == n].sum()
            has = view.capacity[n, r]
            raise ModelError(f"node {nodes[n].name!r}: running pods use {total:g} {what}, it has {has:g}")


def _check_cards(instance: PodInstance, pods: Integers) -> None:
    """Raise `ModelError` if running pods (indices) overfill their stated cards."""
    view, exact = instance.arrays, instance.arrays.exact
    left: dict[tuple[int, int], list[int]] = {}
    for p in pods.tolist():
        n, pod = int(view.running[p]), instance.pods[p]
        for card in pod.node_cards or ():
            free = left.setdefault((n, card), [int(exact.card[n]), exact.whole])
            free[0] -= int(exact.gpu[p, n])
            free[1] -= int(exact.compute[p])
            if min(free) < 0:
                what = "GB" if free[0] < 0 else "compute"
                raise ModelError(
                    f"node {pod.node!r}: the running pods up to {pod.name!r} use more {what} than card {card} has; "
                    "correct their node_cards, or leave them out"
                )
