"""Running pods of an instance, with their use capped at the capacity of their node and cards."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from pydantic import ValidationError

from flowlex.instances.pods import Pod
from flowlex.systems.kubernetes.disruption_budgets import evictable
from flowlex.systems.kubernetes.gpu_cards import GPU, Cards, card_order, cards_in_use
from flowlex.systems.kubernetes.objects import ANY_ERROR, KubePod
from flowlex.systems.kubernetes.resources import gigabytes
from flowlex.systems.kubernetes.waiting_pods import Draft


def running_pods(cards: Cards, draft: Draft, preempt_below: int | None, *, merged: bool = False) -> list[Pod]:
    """Return the running pods; on overfull nodes their requests are reduced and no pod may be stopped.

    ``merged``: pods of a node that may not stop, without cards and rules, are one pod with all that they use.
    """
    taints = {t.text for node in draft.cluster.nodes.values() for t in (*node.taints, *node.closed)}
    tolerated = tuple(sorted(taints))
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
        sizes = _on_cards(cards, name, pods)
        left = dict(node.allocatable)
        full = any(amount < 0 for amount in draft.free[name].values())
        plain: list[str] = []
        total: Counter[str] = Counter()
        for pod in pods:
            held = {what: min(pod.requests.get(what, 0), left[what]) for what in ("cpu", "memory")}
            for what, amount in held.items():
                left[what] -= amount
            stops = pod.name in stoppable and not full and (bool(sizes) or not pod.requests.get(GPU))
            if merged and not (stops or pod.name in sizes or pod.name in draft.spread_of):
                plain.append(pod.name)
                total.update(held)
                total.update({f"+{what}": much for what, much in draft.resources_of.get(pod.name, {}).items()})
                continue
            made[pod.name] = Pod(
                name=_short(pod.name),
                cpu_cores=held["cpu"] / 1000,
                memory_gb=gigabytes(held["memory"]),
                priority=pod.priority,
                tolerations=tolerated,
                node_labels={},  # pydantic copies a default
                spreads=draft.spread_of.get(pod.name, ()),
                resources=draft.resources_of.get(pod.name, {}),
                node=name,
                preempt_cost=1.0 if stops else None,
                **sizes.get(pod.name, {}),
            )
        if plain:
            made[plain[0]] = Pod(
                name=_short(plain[0] if len(plain) == 1 else f"{plain[0]} and {len(plain) - 1} more on {name}"),
                cpu_cores=total["cpu"] / 1000,
                memory_gb=gigabytes(total["memory"]),
                tolerations=tolerated,
                resources={what[1:]: much for what, much in total.items() if what[0] == "+"},
                node=name,
            )
    return [made[pod.name] for pod in draft.cluster.running if pod.name in made]


def _on_cards(cards: Cards, name: str, pods: list[KubePod]) -> dict[str, dict[str, Any]]:
    """Return the cards that each running pod of a node uses; if they do not fit, the node offers no cards."""
    many, memory, model = cards.of[name]
    found: dict[str, dict[str, Any]] = {}
    free = [[Fraction(str(memory)), Fraction(1)] for _ in range(many)]
    try:
        for pod in pods:
            if asked := cards.asked(pod):
                known = cards_in_use(pod, asked["gpu_cards"], many)
                found[pod.name] = asked | {"node_cards": known}
                Pod(name="any", node=name, **found[pod.name])
        packs = all(
            _take(found[each], free, memory) for each in sorted(found, key=lambda n: card_order(found[n], memory))
        )
    except (*ANY_ERROR, ValidationError):
        packs = False
    if packs:
        return found
    cards.of[name] = (0, memory, model)
    return {}


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
