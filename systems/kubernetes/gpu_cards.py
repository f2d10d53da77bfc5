"""GPU cards of nodes, and the GPU requests of pods."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from flowlex.systems.kubernetes.objects import Cluster, KubeNode, KubePod

GPU = "nvidia.com/gpu"
_MODEL, _MEMORY, _CARDS_LABEL = "nvidia.com/gpu.product", "nvidia.com/gpu.memory", "nvidia.com/gpu.count"
_MILLI, _COUNT = "alibabacloud.com/gpu-milli", "alibabacloud.com/gpu-count"
#: Annotations of the KAI scheduler: share of a card, or MiB of it, and the number of cards.
_FRACTION, _MIB, _DEVICES = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
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
        memory: int | Fraction = next((amount for name, amount in sorted(wanted.items()) if name.endswith(_GB)), 0)
        compute = next((amount for name, amount in sorted(wanted.items()) if name.endswith(_COMPUTE)), 0)
        share = Fraction(1 if cards else 0)
        if _MILLI in notes:
            share, cards = Fraction(str(notes[_MILLI])) / 1000, int(notes.get(_COUNT, 1))
        elif _FRACTION in notes:
            share, cards = Fraction(str(notes[_FRACTION])), int(notes.get(_DEVICES, 1))
            if not 0 < share <= 1:
                raise ValueError(f"its annotation {_FRACTION} is {notes[_FRACTION]}; above 0 and at most 1 is expected")
        elif _MIB in notes:
            if cards:
                raise ValueError(f"it asks for cards and for {_MIB} of a card, which no placement says together")
            memory, cards = Fraction(str(notes[_MIB])) / 1024, int(notes.get(_DEVICES, 1))
            if memory <= 0:
                raise ValueError(f"its annotation {_MIB} is {notes[_MIB]}; a number of MiB above 0 is expected")
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


def card_order(asked: Mapping[str, Any], memory: float) -> tuple[bool, float]:
    """Sort key: pods with known cards first, then the largest requests."""
    need = asked["gpu_memory_gb"] + asked["gpu_share"] * memory
    return asked["node_cards"] is None, -need * asked["gpu_cards"]


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
    counts: Counter[tuple[str, str]] = Counter()
    for name, node in cluster.nodes.items():
        cards.of[name] = _cards(counts, node, held.get(name, 0) if cards.whole else 0, card_gb, cards.whole)
    cluster.counts |= counts  # the same for each call
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


def _cards(
    counts: Counter[tuple[str, str]], node: KubeNode, held: int, card_gb: float, whole: bool
) -> tuple[int, float, str | None]:
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
                counts["node", "with GPU memory taken as one card, as nothing counts its cards"] += 1
            many = max(1, min(_MANY, many))
            memory = total / many
    except ValueError:
        counts["node", "with GPU labels that cannot be read"] += 1
    return (many, memory, node.labels.get(_MODEL)) if memory > 0 else (0, card_gb, None)
