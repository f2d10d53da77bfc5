"""Sizes of pods and nodes as arrays in exact units, and where each pod by itself may run."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.pods import PodInstance
from flowlex.validation.proofs.exact_program import Exact, Positions, Whole
from flowlex.validation.restated.pods.rules import rules_of
from flowlex.validation.restated.pods.sizes import (
    Amounts,
    fits_wishes,
    machine_kind,
    must_run,
    need_of,
    numbered,
    shape_of,
    size_of,
    wants_gpu,
)


class PodData:
    """Sizes of pods and nodes as arrays, with the rules over pods. Sizes: P pods, N nodes."""

    def __init__(self, instance: PodInstance, options: Mapping[str, Any]) -> None:
        pods, nodes = instance.pods, instance.nodes
        self.options: Mapping[str, Any]
        self.instance, self.options, self.rules = instance, options, rules_of(instance)
        self.cards: bool = bool(options.get("cards", True))
        self.budget: Fraction = size_of(float(options.get("move_budget", 0.0)))
        place, must = {node.name: n for n, node in enumerate(nodes)}, must_run(instance)
        self.pod_names, self.node_names = [pod.name for pod in pods], [node.name for node in nodes]
        #: (P,) node where a pod runs, else -1; whether it must go on; whether it may move; its cards there, as bits.
        self.home: Positions = np.array([place.get(pod.node or "", -1) for pod in pods], np.int64)
        self.must = np.array([pod.name in must for pod in pods], bool)
        costs = [None if pod.move_cost is None else size_of(pod.move_cost) for pod in pods]
        self.movable = np.array([cost is not None and cost <= self.budget for cost in costs], bool)
        self.move_cost = Exact.of([cost or Fraction(0) for cost in costs])
        self.known = np.array([sum(1 << k for k in pod.node_cards or ()) for pod in pods], np.uint64)
        #: (P,) whether it is a GPU pod, and on how many cards; (N,) cards of a node.
        self.gpu = np.array([wants_gpu(pod) for pod in pods], bool)
        self.many: Positions = np.array([pod.gpu_cards for pod in pods], np.int64)
        self.has: Positions = np.array([node.cards for node in nodes], np.int64)
        self.cpu = Amounts.of([size_of(p.cpu_cores) for p in pods], [size_of(n.cpu_cores) for n in nodes])
        self.memory = Amounts.of([size_of(p.memory_gb) for p in pods], [size_of(n.memory_gb) for n in nodes])
        self.compute = Amounts.of([size_of(p.gpu_compute) for p in pods], [Fraction(1)])
        # GB on a card by request and by size of cards
        self._ask, ask = numbered((pod.gpu_memory_gb, pod.gpu_share) for pod in pods)
        self._card, card = numbered(node.card_gb for node in nodes)
        needs = [need_of(pods[p], nodes[n]) for p in ask.tolist() for n in card.tolist()]
        gb = Amounts.of(needs, [size_of(nodes[n].card_gb) for n in card.tolist()])
        self._need, self.gb = gb.of_pod.reshape(len(ask), len(card)), gb.unit
        self.card: Whole = gb.of_node[self._card]  # (N,) size of a card, in units of ``gb``

    def need(self, p: Positions, n: Positions) -> Whole:
        """GPU memory of pods on each card of nodes, or in all if cards are not distinguished, in units of ``gb``."""
        on_card: Whole = self._need[self._ask[p], self._card[n]]
        return on_card if self.cards else on_card * self.many[p]

    @property
    def whole(self) -> Whole:
        """(N,) the size of a card, or of all cards if these are not distinguished, in units of ``gb``."""
        return self.card if self.cards else self.card * self.has

    @cached_property
    def _wishes(self) -> tuple[Positions, Positions, NDArray[np.bool_]]:
        pods, nodes = self.instance.pods, self.instance.nodes
        wish, p = numbered(shape_of(pod)[5:] for pod in pods)
        place, n = numbered(machine_kind(node)[4:] for node in nodes)
        fits = [[fits_wishes(pods[i], nodes[j]) for j in n.tolist()] for i in p.tolist()]
        return wish, place, np.array(fits, bool).reshape(len(p), len(n))

    def may(self, p: Positions, n: Positions) -> NDArray[np.bool_]:
        """Whether each of these pods, by itself, may run on its node."""
        wish, place, fits = self._wishes
        home = self.home[p] == n
        may: NDArray[np.bool_] = fits[wish[p], place[n]] & ((self.home[p] < 0) | home | self.movable[p])
        may &= (self.cpu.of_pod[p] <= self.cpu.of_node[n]) & (self.memory.of_pod[p] <= self.memory.of_node[n])
        room = (self.need(p, n) <= self.whole[n]) & ((self.many[p] <= self.has[n]) | (not self.cards))
        may &= ~self.gpu[p] | (room & (self.has[n] > 0))
        for member, inside in self._inside:
            may &= home | inside[n] | ~member[p]
        return np.asarray(may, bool)

    @cached_property
    def _inside(self) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        """By label whose values are domains: (P,) pods that a rule binds to one, and (N,) whether a node has one."""
        found: dict[str | None, tuple[NDArray[np.bool_], NDArray[np.bool_]]] = {}
        for rule in self.rules:
            if (rule.domain < 0).any():
                member, _ = found.setdefault(rule.key, (np.zeros(len(self.home), bool), rule.domain >= 0))
                member[rule.pods] = True
        return [*found.values()]


def repacked(data: PodData) -> int:
    """Number of running GPU pods that use some of their node's cards, where the file does not say which."""
    unknown = np.array([pod.node_cards is None for pod in data.instance.pods], bool)
    return int((unknown & data.gpu & (data.home >= 0) & (data.many < data.has[data.home])).sum())
