"""Free memory and compute of the GPU cards of all nodes, while pods are bound one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.systems.kubernetes.gpu_cards import GPU, Cards, card_order, cards_in_use
from flowlex.systems.kubernetes.objects import ANY_ERROR, Cluster, KubePod

#: Units of a GB of GPU memory, and of the compute of a card, so that sizes are integers.
_UNIT, _PARTS = 1024 * 1_000_000, 10**9


class CardState:
    """Free memory and compute of the cards of all nodes; without pods that share cards it refuses nothing."""

    def __init__(self, cluster: Cluster, cards: Cards) -> None:
        self._cards, self.used = cards, dict[str, tuple[int, tuple[int, ...], int, int]]()
        self._spec: dict[tuple[int, str], dict[str, Any]] = {}
        nodes = list(cluster.nodes)
        self._memory = [cards.of[name][1] for name in nodes]
        self.many = [cards.of[name][0] for name in nodes]
        most = max(self.many, default=0)
        self.free = np.full((len(nodes), most), -1, np.int64)
        self.compute = np.full((len(nodes), most), -1, np.int64)
        for k, many in enumerate(self.many):
            self.free[k, :many], self.compute[k, :many] = math.floor(self._memory[k] * _UNIT), _PARTS
        self.shared = False
        on: dict[int, list[KubePod]] = {}
        at = {name: k for k, name in enumerate(nodes)}
        for pod in (*cluster.running, *cluster.waiting):
            try:
                if not (asked := self.asked(pod)):
                    continue
            except ANY_ERROR:
                continue
            self.shared |= asked["gpu_memory_gb"] > 0 or asked["gpu_share"] < 1 or asked["gpu_compute"] > 0
            if pod.node is not None:
                on.setdefault(at[pod.node], []).append(pod)
        for node, pods in on.items() if self.shared else ():
            known = {pod.name: cards_in_use(pod, self.asked(pod)["gpu_cards"], self.many[node]) for pod in pods}
            order = {
                pod.name: card_order(self.asked(pod) | {"node_cards": known[pod.name]}, self._memory[node])
                for pod in pods
            }
            for pod in sorted(pods, key=lambda pod: order[pod.name]):
                self._add(pod, node, known[pod.name])

    def asked(self, pod: KubePod) -> dict[str, Any]:
        """Return the GPU request of a pod, as fields of the instance; raises `ValueError` where it has no meaning."""
        key = (id(pod.spec), str(sorted((k, str(v)) for k, v in pod.notes.items() if "gpu" in k)) if pod.notes else "")
        if key not in self._spec:
            self._spec[key] = self._cards.asked(pod)
        return self._spec[key]

    def add(self, pod: KubePod, node: int, cards: Sequence[int] | None) -> None:
        """Use cards of a node for a pod: the given ones, or the fullest that fit."""
        if self.shared and pod.name not in self.used:
            self._add(pod, node, cards)

    def _add(self, pod: KubePod, node: int, cards: Sequence[int] | None) -> None:
        try:
            asked = self.asked(pod)
        except ANY_ERROR:
            return
        if not asked:
            return
        need, part = self._need(asked)[node], self._part(asked)
        if cards is None:
            able = np.flatnonzero((self.free[node] >= need) & (self.compute[node] >= part))
            order = able[np.lexsort((able, self.free[node][able]))]
            cards = order[: asked["gpu_cards"]].tolist()
        if len(cards) < asked["gpu_cards"]:  # more is in use than there is: no further pod gets a card here
            cards, need = range(self.many[node]), _UNIT * 2**20
        self.free[node, list(cards)] -= need
        self.compute[node, list(cards)] -= part
        self.used[pod.name] = (node, tuple(cards), int(need), part)

    def of(self, name: str) -> tuple[int, ...]:
        """Return the cards of a bound pod; empty if cards are not shared, or it has none."""
        return self.used[name][1] if name in self.used else ()

    def remove(self, pod: KubePod, node: int) -> None:
        """Free the cards of a pod."""
        if pod.name in self.used:
            _, cards, need, part = self.used.pop(pod.name)
            self.free[node, list(cards)] += need
            self.compute[node, list(cards)] += part

    def _need(self, asked: Mapping[str, Any]) -> list[int]:
        """(N,) units of memory on each card of each node."""
        memory, share = Fraction(str(asked["gpu_memory_gb"])), Fraction(str(asked["gpu_share"]))
        known = {each: math.ceil((memory + share * Fraction(str(each))) * _UNIT) for each in set(self._memory)}
        if share == 1:
            known = {each: math.floor(each * _UNIT) for each in known}
        return [known[each] for each in self._memory]

    @staticmethod
    def _part(asked: Mapping[str, Any]) -> int:
        return math.ceil(Fraction(str(asked["gpu_compute"])) * _PARTS)

    def refusals(self, pod: KubePod) -> Iterator[tuple[str, NDArray[np.bool_], str]]:
        """Yield the nodes whose cards do not take a pod."""
        if self.shared and (asked := self.asked(pod)):
            need, part = np.array(self._need(asked), np.int64)[:, None], self._part(asked)
            room = (self.free >= need) & (self.compute >= part) & (self.free >= 0)
            what = "GPU memory on a card" if asked["gpu_memory_gb"] or asked["gpu_share"] < 1 else GPU
            yield "NodeResourcesFit", room.sum(axis=1) < asked["gpu_cards"], f"Insufficient {what}"
