"""Classes of identical nodes, and the most that a node can earn at prices of pods, minus the cost of its load."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.pods import Pod, PodNode
from flowlex.validation.certificates.pods.pod_sizes import machine_kind, size_of
from flowlex.validation.certificates.pods.price_bound import Population
from flowlex.validation.restated.pods import wants_gpu


class _Shape(NamedTuple):
    """What a pod takes of a node: cores, memory, total GPU memory, GPU memory of each slot, slots; its load."""

    cpu: Fraction
    memory: Fraction
    gpu: Fraction
    slot: Fraction
    slots: int
    load: float

    @classmethod
    def of(cls, people: Population, pod: Pod, node: PodNode) -> _Shape:
        need = people.need(pod, node) if wants_gpu(pod) else Fraction(0)
        slots = (pod.gpu_cards if people.cards else 1) if wants_gpu(pod) else 0
        load = people.load(pod, node)
        return cls(size_of(pod.cpu_cores), size_of(pod.memory_gb), need * slots, need, slots, load)


@dataclass(frozen=True)
class NodeClass:
    """Nodes of one kind on which the same pods stay, and to which the same pods may return."""

    people: Population
    # node, many: one of them, and their number
    node: PodNode
    many: int
    held: tuple[tuple[_Shape, int], ...]  # shapes of the pods that stay there, and their numbers

    @cached_property
    def start(self) -> float:
        """Load of the pods that stay."""
        return math.fsum(shape.load * many for shape, many in self.held)

    @cached_property
    def _offers(self) -> dict[_Shape, list[tuple[int, float]]]:
        """By shape, the groups whose pods may come here, and the costs of their moves."""
        offers: dict[_Shape, list[tuple[int, float]]] = {}
        for k, pod in enumerate(self.people.pod):
            away = pod.node is not None and pod.node != self.node.name
            if self.people.held(k) or (away and self.people.pinned(pod)) or not self.people.fits(pod, self.node):
                continue
            shape = _Shape.of(self.people, pod, self.node)
            offers.setdefault(shape, []).append((k, (pod.move_cost or 0.0) if away else 0.0))
        return offers

    def best(
        self, price: list[float], move: float, law: int, low: float, high: float, slope: float, fine: float, limit: int
    ) -> float:
        """Bound on the earnings of pods at these prices by group, minus the cost of load (see `best_node_pattern`)."""
        from flowlex.validation.certificates.pods.best_node_pattern import best_pattern

        earns = {
            shape: sorted(((price[k] - move * cost, len(self.people.groups[k])) for k, cost in groups), reverse=True)
            for shape, groups in self._offers.items()
        }
        free = math.fsum(max(0.0, each) * many for s, of in earns.items() if s.load <= 0 for each, many in of)
        shapes = sorted((s for s in earns if s.load > 0), key=lambda s: -earns[s][0][0] / s.load)
        bounds = np.array([low, high, slope, self.start, max(1.0, self.start)])
        return free + float(best_pattern(*self._arrays(shapes, earns), law, bounds, fine, limit))

    def _arrays(self, shapes: list[_Shape], earns: dict[_Shape, list[tuple[float, int]]]) -> tuple[Any, ...]:
        """Sizes, loads, most, profit, room, half a card, slots of pods that stay, order of slots, card, cards."""
        sizes, room, card, held = self._whole(shapes)
        loads = np.array([s.load for s in shapes], np.float64)
        most = np.array([sum(many for _, many in earns[s]) for s in shapes], np.int64)
        for r in range(3):
            most = np.where(sizes[:, r] > 0, np.minimum(most, room[r] // np.maximum(sizes[:, r], 1)), most)
        width = int(most.max(initial=0)) + 1
        profit = np.zeros((len(shapes), width + 1))
        for h, s in enumerate(shapes):
            each = np.repeat([e for e, _ in earns[s]], [min(many, width) for _, many in earns[s]])[:width]
            profit[h, 1 : len(each) + 1] = np.cumsum(each)
        order = np.argsort(-sizes[:, 3], kind="stable").astype(np.int64)
        cards = self.node.cards if self.people.cards else 0
        return sizes, loads, most, profit, room, card // 2, held, order, card, cards

    def _whole(self, shapes: list[_Shape]) -> tuple[NDArray[np.int64], NDArray[np.int64], int, NDArray[np.int64]]:
        """Sizes of shapes, room, size of a card, and slots of pods that stay with their owners, in integer units."""
        node, one = self.node, self.people.whole(self.node)
        cards = node.cards if self.people.cards else min(1, node.cards)
        parts = [[(s.cpu, s.memory, s.gpu)[r] * many for s, many in self.held] for r in range(3)]
        used = [sum(part, Fraction(0)) for part in parts]
        room = [size_of(node.cpu_cores) - used[0], size_of(node.memory_gb) - used[1], one * cards - used[2]]
        room = [max(Fraction(0), left) for left in room]
        slots = [(s, pod) for s, many in self.held if s.slots for pod in range(many)]
        cpu, most_cpu = _in_units([s.cpu for s in shapes], room[:1])
        memory, most_memory = _in_units([s.memory for s in shapes], room[1:2])
        needs = [[s.gpu for s in shapes], [s.slot for s in shapes], [s.slot for s, _ in slots]]
        gpu, (most_gpu, card) = _in_units([need for part in needs for need in part], [room[2], one])
        n = len(shapes)
        large = cards - sum(s.slots * many for s, many in self.held if 2 * s.slot > one)
        sizes = np.array([cpu, memory, gpu[:n], gpu[n : 2 * n], [s.slots for s in shapes]], np.int64)
        owners = enumerate(zip(gpu[2 * n :], slots, strict=True))
        rows = [(size, owner) for owner, (size, (s, _)) in owners for _ in range(s.slots)]
        held = np.array(sorted(rows, key=lambda row: (-row[0], row[1])), np.int64).reshape(len(rows), 2)
        return sizes.reshape(5, n).T.copy(), np.array([*most_cpu, *most_memory, most_gpu, max(0, large)]), card, held


def node_classes(people: Population) -> list[NodeClass]:
    """Classes of nodes of one kind with the same staying pods; a node that a pod may leave is a class of its own."""
    stays: dict[str, Counter[int]] = {}
    home: set[str] = set()
    for k, pods in enumerate(people.groups):
        at = people.pod[k].node
        if at is not None and people.held(k):
            stays.setdefault(at, Counter())[k] += len(pods)
        elif at is not None:
            home.add(at)
    kinds: dict[tuple[object, ...], list[PodNode]] = {}
    held: dict[str, Counter[_Shape]] = {}
    for node in people.instance.nodes:
        there = held[node.name] = Counter[_Shape]()
        for k, many in stays.get(node.name, Counter[int]()).items():
            there[_Shape.of(people, people.pod[k], node)] += many
        own = node.name if node.name in home else None
        kinds.setdefault((machine_kind(node), frozenset(there.items()), own), []).append(node)
    return [NodeClass(people, nodes[0], len(nodes), tuple(held[nodes[0].name].items())) for nodes in kinds.values()]


def _in_units(wanted: list[Fraction], held: list[Fraction]) -> tuple[list[int], list[int]]:
    """Sizes and room in a common integer unit; if that exceeds 60 bits, rounded so that never less fits."""
    unit = math.lcm(*{value.denominator for value in (*wanted, *held)})
    largest = max((*held, Fraction(1)))
    if largest * unit < 2**60:
        return [min(int(v * unit), 2**61) for v in wanted], [int(v * unit) for v in held]
    scale = Fraction(2**60) / largest
    return [min(math.floor(v * scale), 2**61) for v in wanted], [math.ceil(v * scale) for v in held]
