"""What to tell Kubernetes so that a placement comes about: evictions, then bindings in an order that works."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flowlex.instances.base import InstanceError
from flowlex.instances.importers.kubernetes_objects import objects_of
from flowlex.instances.pod_rules import PodSpread
from flowlex.instances.pods import Pod, PodInstance, PodNode, fits_wishes

__all__ = ["binding_order", "bindings", "manifests"]


class _Evenness:
    """Pods of a spread by domain, while pods are bound one by one."""

    def __init__(self, spread: PodSpread, instance: PodInstance, placement: Mapping[str, str]) -> None:
        self.skew, self.over = spread.skew or 0, spread.over
        node = {each.name: each for each in instance.nodes}
        mine = [pod for pod in instance.pods if spread.name in pod.spreads]
        here = [each for each in instance.nodes if any(fits_wishes(pod, each) for pod in mine)]
        self.held = Counter({d: 0 for each in here if (d := self.domain(each)) is not None})
        for pod in mine:
            if pod.node is not None and placement.get(pod.name) == pod.node:
                self.add(node[pod.node])

    def domain(self, node: PodNode) -> str | None:
        return node.name if self.over == "node" else node.labels.get(self.over)

    def takes(self, node: PodNode) -> bool:
        return self.held[self.domain(node) or ""] + 1 - min(self.held.values(), default=0) <= self.skew

    def add(self, node: PodNode) -> None:
        if (domain := self.domain(node)) is not None:
            self.held[domain] += 1


def binding_order(instance: PodInstance, placement: Mapping[str, str]) -> tuple[list[Pod], list[str]]:
    """Pods that start, in an order in which each keeps the topology spread when it is bound; names of those left over.

    Only several constraints at once can leave pods over; the next placement takes them up.
    """
    node = {each.name: each for each in instance.nodes}
    even = {spread.name: _Evenness(spread, instance, placement) for spread in instance.spreads if spread.skew}
    waits = [pod for pod in instance.pods if pod.node is None and pod.name in placement]
    ordered: list[Pod] = []
    while waits:
        later = []
        for pod in waits:
            mine, at = [even[name] for name in pod.spreads if name in even], node[placement[pod.name]]
            if all(each.takes(at) for each in mine):
                ordered.append(pod)
                for each in mine:
                    each.add(at)
            else:
                later.append(pod)
        if len(later) == len(waits):
            gangs = {pod.gang for pod in later} - {None}  # a gang goes whole or not at all
            stuck = [pod.name for pod in later] + [pod.name for pod in ordered if pod.gang in gangs]
            return [pod for pod in ordered if pod.gang not in gangs], stuck
        waits = later
    return ordered, []


def bindings(instance: PodInstance, placement: Mapping[str, str], cards: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The List of objects that brings a placement about, in the order in which they have to be created.

    An Eviction for each pod that stops or moves, whose controller then makes a new pod for the next placement; then a
    Binding for each pod that starts, its cards as an annotation.

    Parameters
    ----------
    placement, cards
        Pod to node, and pod to its cards, as in a solution file.
    """
    items: list[dict[str, Any]] = []
    for pod in instance.pods:
        if pod.node is not None and placement.get(pod.name) != pod.node:
            items.append({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": _meta(pod)})
    for pod in binding_order(instance, placement)[0]:
        meta = _meta(pod)
        if cards.get(pod.name):
            meta["annotations"] = {"flowlex/cards": ",".join(map(str, cards[pod.name]))}
        target = {"apiVersion": "v1", "kind": "Node", "name": placement[pod.name]}
        items.append({"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target})
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _meta(pod: Pod) -> dict[str, Any]:
    namespace, _, name = pod.name.rpartition("/")
    return {"name": name, "namespace": namespace or "default"}


def manifests(
    path: str | Path, instance: PodInstance, placement: Mapping[str, str], cards: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """The objects of a cluster, patched: a List of the Pods that start or move, with ``nodeName`` and their cards.

    What a server adds (status, uid, ..) is left out, so that they can be created anew. Pods that move or stop come as
    Evictions first; a controller makes those that it owns again by itself, so no manifest is given for them.

    Parameters
    ----------
    path
        The objects that the instance was read from.
    placement, cards
        As for `bindings`.

    Raises
    ------
    InstanceError
        A pod of the placement is not among the objects.
    """
    found = {
        f"{item['metadata'].get('namespace', 'default')}/{item['metadata']['name']}": item
        for kind, item, _ in objects_of(path)
        if kind == "Pod" and isinstance(item.get("metadata"), dict) and "name" in item["metadata"]
    }
    items = [item for item in bindings(instance, placement, cards)["items"] if item["kind"] == "Eviction"]
    moved = [pod for pod in instance.pods if pod.node is not None and placement.get(pod.name, pod.node) != pod.node]
    for pod in (*binding_order(instance, placement)[0], *moved):
        if pod.name not in found:
            raise InstanceError(
                f"it has no Pod {pod.name!r}; give the objects that the instance was read from", path=path
            )
        item = copy.deepcopy(found[pod.name])
        meta = item["metadata"]
        if pod.node is not None and meta.get("ownerReferences"):
            continue
        item.pop("status", None)
        for name in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink"):
            meta.pop(name, None)
        if cards.get(pod.name):
            meta["annotations"] = {
                **(meta.get("annotations") or {}),
                "flowlex/cards": ",".join(map(str, cards[pod.name])),
            }
        item["spec"]["nodeName"] = placement[pod.name]
        items.append({"apiVersion": "v1", "kind": "Pod"} | item)
    return {"apiVersion": "v1", "kind": "List", "items": items}
