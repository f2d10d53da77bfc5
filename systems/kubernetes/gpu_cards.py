"""GPU cards of nodes, the GPU requests of pods, and running pods with their use capped at the capacity."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from pydantic import ValidationError

from flowlex.instances.pods import Pod
from flowlex.systems.kubernetes.objects import ANY_ERROR, Cluster, KubeNode, KubePod
from flowlex.systems.kubernetes.quotas_and_budgets import evictable
from flowlex.systems.kubernetes.resources import gigabytes
from flowlex.systems.kubernetes.waiting_pods import Draft

GPU = "nvidia.com/gpu"
_MODEL, _MEMORY, _CARDS_LABEL = "nvidia.com/gpu.product", "nvidia.com/gpu.memory", "nvidia.com/gpu.count"
_MILLI, _COUNT = "alibabacloud.com/gpu-milli", "alibabacloud.com/gpu-count"
#: Annotations that name the cards of a running pod: ours, and those of two device plugins.
_NOTES = ("flowlex/cards", "alibabacloud.com/gpu-index", "ALIYUN_COM_GPU_MEM_IDX")
_GB, _COMPUTE = "/gpu-mem", "/gpu-core.percentage"
#: Most cards of a node in an instance; larger counts are time slices, which become an ordinary resource.
_MANY = 64


@dataclass(eq=False)
class Cards:
    """Cards of the nodes: number, GB of each, model.

    ``stated`` are the resources that fields of the instance cover, so that they need no other rule.
    """

    whole: bool
    of: dict[str, tuple[int, float, str | None]] = field(default_factory=dict)
    stated: frozenset[str] = frozenset({"cpu", "memory"})

    def asked(self, pod: KubePod) -> dict[str, Any]:
        """Fields of a pod for its GPU request."""
        wanted, notes = pod.requests, pod.notes
        cards = wanted.get(GPU, 0) if self.whole else 0
        memory = next((amount for name, amount in sorted(wanted.items()) if name.endswith(_GB)), 0)
        compute = next((amount for name, amount in sorted(wanted.items()) if name.endswith(_COMPUTE)), 0)
        share = Fraction(1 if cards else 0)
        if _MILLI in notes:
            share, cards = Fraction(str(notes[_MILLI])) / 1000, int(notes.get(_COUNT, 1))
        if memory and share:
            raise ValueError("it asks for cards and for GB of a card, which no placement says together")
        if not memory and not share:
            return {}
        return {
            "gpu_memory_gb": float(memory),
            "gpu_share": float(share),
            "gpu_cards": max(1, cards),
            "gpu_compute": compute / 100,
        }

    def running(self, draft: Draft, preempt_below: int | None) -> list[Pod]:
        """Return the running pods; on overfull nodes their requests are reduced and no pod may be stopped."""
        taints = {t.text for node in draft.cluster.nodes.values() for t in (*node.taints, *node.closed)}
        on: dict[str, list[KubePod]] = {}
        least = [pod for pod in draft.cluster.running if preempt_below is not None and pod.priority < preempt_below]
        least.sort(key=lambda pod: pod.priority)
        stoppable = evictable(draft.cluster, (p for p in least if p.name not in draft.pinned and not p.static))
        for pod in draft.cluster.running:
            if draft.bit[str(pod.node)] & draft.usable:
                on.setdefault(str(pod.node), []).append(pod)
        made: dict[str, Pod] = {}
        for name, pods in on.items():
            node = draft.cluster.nodes[name]
            sizes = self._on_cards(name, pods)
            left = dict(node.allocatable)
            full = any(amount < 0 for amount in draft.free[name].values())
            for pod in pods:
                held = {what: min(pod.requests.get(what, 0), left[what]) for what in ("cpu", "memory")}
                for what, amount in held.items():
                    left[what] -= amount
                stops = pod.name in stoppable and not full and (bool(sizes) or not pod.requests.get(GPU))
                made[pod.name] = Pod(
                    name=_short(pod.name),
                    cpu_cores=held["cpu"] / 1000,
                    memory_gb=gigabytes(held["memory"]),
                    priority=pod.priority,
                    tolerations=tuple(sorted(taints)),
                    spreads=draft.spread_of.get(pod.name, ()),
                    resources=draft.resources_of.get(pod.name, {}),
                    node=name,
                    preempt_cost=1.0 if stops else None,
                    **sizes.get(pod.name, {}),
                )
        return [made[pod.name] for pod in draft.cluster.running if pod.name in made]

    def _on_cards(self, name: str, pods: list[KubePod]) -> dict[str, dict[str, Any]]:
        """Return the cards that each running pod of a node uses; if they do not fit, the node offers no cards."""
        many, memory, model = self.of[name]
        found: dict[str, dict[str, Any]] = {}
        free = [[Fraction(str(memory)), Fraction(1)] for _ in range(many)]
        try:
            for pod in pods:
                if asked := self.asked(pod):
                    known = cards_in_use(pod, asked["gpu_cards"], many)
                    found[pod.name] = asked | {"node_cards": known}
                    Pod(name="any", node=name, **found[pod.name])
            packs = all(
                _take(found[each], free, memory) for each in sorted(found, key=lambda n: _order(found[n], memory))
            )
        except (*ANY_ERROR, ValidationError):
            packs = False
        if packs:
            return found
        self.of[name] = (0, memory, model)
        return {}


def _order(asked: Mapping[str, Any], memory: float) -> tuple[bool, float]:
    """Sort key: pods with known cards first, then the largest requests."""
    need = asked["gpu_memory_gb"] + asked["gpu_share"] * memory
    return asked["node_cards"] is None, -need * asked["gpu_cards"]


def _take(asked: Mapping[str, Any], free: list[list[Fraction]], memory: float) -> bool:
    """Put a pod on its cards, or on the fullest cards that fit it (best fit)."""
    need = Fraction(str(asked["gpu_memory_gb"])) + Fraction(str(asked["gpu_share"])) * Fraction(str(memory))
    part, cards = Fraction(str(asked["gpu_compute"])), asked["node_cards"]
    able = [k for k, (left, compute) in enumerate(free) if left >= need and compute >= part]
    if cards is None:
        cards = sorted(able, key=lambda k: (free[k][0], k))[: asked["gpu_cards"]]
    if len(cards) < asked["gpu_cards"] or not set(cards) <= set(able):
        return False
    for k in cards:
        free[k][0] -= need
        free[k][1] -= part
    return True


def _short(name: str) -> str:
    """Shorten a name to the length that an instance allows."""
    return name if len(name) <= 200 else f"{name[:180]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def cards_in_use(pod: KubePod, wanted: int, many: int) -> tuple[int, ...] | None:
    """Return the cards that its annotations name, such as ``0,2`` or ``0-2``; None if they name none.

    ``wanted``: how many it uses; ``many``: how many its node has.
    """
    text = next((str(pod.notes[name]) for name in _NOTES if name in pod.notes), "-1")
    if not re.fullmatch(r"\d{1,3}([,-]\d{1,3})*", text.strip()):
        return None
    numbers = tuple(sorted({int(part) for part in re.split("[,-]", text)}))
    return numbers if len(numbers) == wanted and numbers[-1] < many else None


def card_notes(pod: KubePod | None, cards: Sequence[int], now_ns: int) -> dict[str, str]:
    """Return annotations for the cards of a pod: ours, and those of its device plugin, if known.

    The public GPU-sharing plugins read ``ALIYUN_COM_GPU_MEM_IDX`` (one card, by GB) or ``alibabacloud.com/gpu-index``.
    """
    found = {"flowlex/cards": ",".join(map(str, cards))}
    if pod is None:
        return found
    memory = pod.requests.get("aliyun.com/gpu-mem", 0)
    if memory and len(cards) == 1:
        found |= {
            "ALIYUN_COM_GPU_MEM_IDX": str(cards[0]),
            "ALIYUN_COM_GPU_MEM_POD": str(memory),
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
            "ALIYUN_COM_GPU_MEM_ASSUME_TIME": str(now_ns),
        }
    if _MILLI in pod.notes or any(name.startswith("alibabacloud.com/gpu-") for name in pod.requests):
        found |= {"alibabacloud.com/gpu-index": "-".join(map(str, cards)), "alibabacloud.com/assume-time": str(now_ns)}
    return found


def cards_of_nodes(cluster: Cluster, card_gb: float) -> Cards:
    """Read the cards of all nodes, including cards that running pods hold but are no longer allocatable."""
    held: dict[str, int] = {}
    for pod in cluster.running:
        held[str(pod.node)] = held.get(str(pod.node), 0) + pod.requests.get(GPU, 0)
    most = max((node.allocatable.get(GPU, 0) for node in cluster.nodes.values()), default=0)
    cards = Cards(whole=max(most, *held.values(), 0) <= _MANY)
    for name, node in cluster.nodes.items():
        cards.of[name] = _cards(cluster, node, held.get(name, 0) if cards.whole else 0, card_gb, cards.whole)
    own = {"cpu", "memory", GPU} if cards.whole else {"cpu", "memory"}
    cards.stated = frozenset(own | _said_by_cards(cluster, cards))
    return cards


def _said_by_cards(cluster: Cluster, cards: Cards) -> set[str]:
    """Return resources of shared cards whose amount on every node is the total of its cards, or 0."""
    pods = [pod for pod in (*cluster.waiting, *cluster.running) if pod.name not in cluster.pending]
    names = {what for node in cluster.nodes.values() for what in node.allocatable}
    names |= {what for pod in pods for what in pod.requests}
    found = set[str]()
    for ending, per_card in ((_GB, 0.0), (_COMPUTE, 100.0)):
        mine = [what for what in names if what.endswith(ending)]
        same = True
        for name, node in cluster.nodes.items() if len(mine) == 1 else ():
            many, memory, _ = cards.of[name]
            same &= node.allocatable.get(mine[0], 0) in (0, many * (per_card or memory))
        found |= set(mine) if len(mine) == 1 and same else set()
    return found


def _cards(cluster: Cluster, node: KubeNode, held: int, card_gb: float, whole: bool) -> tuple[int, float, str | None]:
    """Number of cards, GB of each, model."""
    many = max(node.allocatable.get(GPU, 0), held) if whole else 0
    memory = card_gb
    try:
        if _MEMORY in node.labels:
            memory = float(Fraction(node.labels[_MEMORY]) / 1024)
        total = sum(amount for what, amount in node.allocatable.items() if what.endswith(_GB))
        if total and not many:  # cards are shared by their memory
            known = [amount for what, amount in node.allocatable.items() if what.endswith("/gpu-count")]
            many = max(known, default=int(node.labels.get(_CARDS_LABEL, 0)))
            if many < 1:
                cluster.counts["node", "with GPU memory taken as one card, as nothing counts its cards"] += 1
            many = max(1, min(_MANY, many))
            memory = total / many
    except ValueError:
        cluster.counts["node", "with GPU labels that cannot be read"] += 1
    return (many, memory, node.labels.get(_MODEL)) if memory > 0 else (0, card_gb, None)
