"""A cluster as it could be: with more nodes of a kind, or with running pods that may move."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from flowlex.instances.base import InstanceError
from flowlex.instances.importers.kubernetes import instance_of
from flowlex.instances.importers.kubernetes_cards import cards_in_use
from flowlex.instances.importers.kubernetes_objects import Cluster, KubePod
from flowlex.instances.pods import PodInstance, fits_wishes

__all__ = ["after", "movable_instance", "with_nodes"]

_HOST = "kubernetes.io/hostname"
_MORE = re.compile(r"\s*(\d{1,4})\s+nodes?\s+of\s+(\S+)\s*")


def with_nodes(cluster: Cluster, wanted: str) -> tuple[Cluster, int]:
    """The cluster with empty, ready nodes like one of its own, and how many these are.

    Parameters
    ----------
    wanted
        Such as ``2 nodes of n1``.

    Raises
    ------
    InstanceError
        The wish cannot be read, or there is no such node.
    """
    found = _MORE.fullmatch(wanted)
    if found is None or not int(found[1]):
        raise InstanceError(f"expected such as '2 nodes of n1', got {wanted!r}")
    many, name = int(found[1]), found[2]
    if name not in cluster.nodes:
        some = ", ".join(list(cluster.nodes)[:10])
        raise InstanceError(f"{wanted!r}: there is no node {name!r}; the nodes are: {some}")
    node, nodes = cluster.nodes[name], dict(cluster.nodes)
    for number in range(1, many + 1):
        own = f"{name}-new-{number}"
        labels = node.labels | ({_HOST: own} if _HOST in node.labels else {})
        nodes[own] = replace(node, name=own, labels=labels, closed=())
    return replace(cluster, nodes=nodes), many


def after(
    cluster: Cluster, instance: PodInstance, placement: Mapping[str, str], cards: Mapping[str, Sequence[int]]
) -> Cluster:
    """The cluster once a placement has come about: bound pods run, pods that stopped are gone."""
    stopped = {pod.name for pod in instance.pods if pod.node is not None and placement.get(pod.name) != pod.node}
    running = [pod for pod in cluster.running if pod.name not in stopped]
    for pod in cluster.waiting:
        if pod.name in placement:
            meta = dict(pod.item["metadata"])
            if cards.get(pod.name):
                meta["annotations"] = {**pod.notes, "flowlex/cards": ",".join(map(str, cards[pod.name]))}
            running.append(replace(pod, node=placement[pod.name], item={**pod.item, "metadata": meta}))
    waiting = [pod for pod in cluster.waiting if pod.name not in placement]
    pending = {name: why for name, why in cluster.pending.items() if name not in placement}
    return replace(cluster, running=running, waiting=waiting, pending=pending, counts=Counter())


def movable_instance(cluster: Cluster, path: str | Path, *, card_gb: float, forbidden: Collection[str]) -> PodInstance:
    """The running pods alone; those with GPUs that a controller makes anew may move, at cost 1.

    Where a pod may move is what the scheduler's filters allow it. Pods of DaemonSets, static pods, pods that are being
    deleted, and ``forbidden`` ones stay.
    """
    moving = {pod.name: pod for pod in cluster.running if pod.name not in forbidden and _may_move(pod)}
    while True:
        running = [pod for pod in cluster.running if pod.name not in moving]
        free = [replace(pod, node=None) for pod in moving.values()]
        instance = instance_of(
            replace(cluster, running=running, waiting=free, pending={}, counts=Counter()), path, card_gb=card_gb
        )
        nodes = {node.name: node for node in instance.nodes}
        strange = set(instance.pending)
        for pod in instance.pods:
            home = moving[pod.name].node if pod.name in moving else None
            if pod.name in moving and not (pod.wants_gpu and home in nodes and fits_wishes(pod, nodes[home])):
                strange.add(pod.name)
        if not strange:
            break
        for name in strange:
            moving.pop(name, None)
    pods = [
        pod.model_copy(
            update={
                "node": moving[pod.name].node,
                "node_cards": cards_in_use(moving[pod.name], pod.cards_used, nodes[str(moving[pod.name].node)].cards),
                "move_cost": 1.0,
                "gang": None,
                "preempt_cost": None,
            }
        )
        if pod.name in moving
        else pod
        for pod in instance.pods
    ]
    return PodInstance.model_validate({**dict(instance), "pods": tuple(pods), "gangs": ()})


def _may_move(pod: KubePod) -> bool:
    owners = pod.item["metadata"].get("ownerReferences") or ()
    kinds = {str(owner.get("kind")) for owner in owners if isinstance(owner, dict)}
    return bool(kinds) and not kinds & {"DaemonSet", "Node"} and not pod.ending
