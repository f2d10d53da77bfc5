"""Nodes and pods of a Kubernetes cluster (``kubectl get nodes,pods -A -o json``) as pod placement.

Running pods are given: no rule applies to them, and together they use at most the capacity of their node. A waiting
pod may run where the filters of the default scheduler allow it: resources, node selector and affinity, taints, pod
affinity and anti-affinity, topology spread, host ports, volumes. The nodes that pass are computed here; constraints
among waiting pods become rules of the instance. A pod that cannot be expressed stays pending with the reason
(`PodInstance.pending`).

GPUs are whole cards (``nvidia.com/gpu``), GB of one card (a resource named ``*/gpu-mem``, with
``*/gpu-core.percentage`` for a share of its compute), or thousandths (annotations ``alibabacloud.com/gpu-milli`` and
``gpu-count``). The cards of a running pod are read from an annotation, if there is one (``flowlex/cards``,
``alibabacloud.com/gpu-index``, ``ALIYUN_COM_GPU_MEM_IDX``).
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flowlex.instances.group_rules import PodGang
from flowlex.instances.input_errors import InstanceError, counted, first_fault
from flowlex.instances.pods import Pod, PodInstance, PodNode, fits_wishes
from flowlex.systems.kubernetes.gpu_cards import Cards, cards_in_use, cards_of_nodes
from flowlex.systems.kubernetes.node_capacity import read_capacities
from flowlex.systems.kubernetes.objects import ANY_ERROR, Cluster, KubeNode, KubePod, read_cluster
from flowlex.systems.kubernetes.quotas_and_budgets import (
    evictable,
    read_gangs,
    read_queues,
    read_scoped_quotas,
)
from flowlex.systems.kubernetes.resources import gigabytes
from flowlex.systems.kubernetes.selectors import Taint, tolerates
from flowlex.systems.kubernetes.topology import read_affinity, read_anti_affinity, read_spreads
from flowlex.systems.kubernetes.volumes import count_attached, read_volumes
from flowlex.systems.kubernetes.waiting_pods import Draft

#: Most different sets of nodes; each set becomes a label of its nodes.
_SETS = 500
#: Schedulers whose waiting pods are placed: their filters, and the pod groups of the last two, are read.
_SCHEDULERS = ("default-scheduler", "volcano", "scheduler-plugins-scheduler")
_SOFT = "preferredDuringSchedulingIgnoredDuringExecution"


class KubernetesWarning(UserWarning):
    """Objects contain features that an instance cannot express; the message counts them."""


def read_kubernetes(
    path: str | Path, *, card_gb: float = 16.0, preempt_below: int | None = None, scheduler: list[str] | None = None
) -> PodInstance:
    """Read the objects of a cluster as a pod-placement instance; pods are named ``namespace/name``.

    - ``path``: JSON documents with Node and Pod objects; ResourceQuota, PodGroup, PriorityClass, Namespace,
      PersistentVolumeClaim, PersistentVolume and StorageClass objects are read where they are listed. Gzip too.
    - ``card_gb``: memory of cards of nodes without the label ``nvidia.com/gpu.memory`` (MiB).
    - ``preempt_below``: running pods of a lower priority may be preempted, at cost 1 each; None: no preemption.
    - ``scheduler``: waiting pods of these schedulers (``schedulerName``) are placed, ``any``: of all; None: of the
      default scheduler, Volcano and the coscheduling plugin.

    `InstanceError`: there is no list of objects, or no node in it that pods can use.
    """
    return instance_of(read_cluster(path), path, card_gb=card_gb, preempt_below=preempt_below, scheduler=scheduler)


def instance_of(
    cluster: Cluster,
    path: str | Path,
    *,
    card_gb: float = 16.0,
    preempt_below: int | None = None,
    scheduler: list[str] | None = None,
) -> PodInstance:
    """Return the instance of a cluster without changing the cluster; ``path`` names it in messages."""
    cluster = replace(cluster, pending=dict(cluster.pending), counts=cluster.counts.copy())
    usable = _facts(cluster)
    if not usable:
        raise InstanceError("no node has cores and memory under status.allocatable; list nodes that run", path=path)
    count_attached(cluster)
    queues = read_queues(cluster)
    _leave_to_others(cluster, scheduler)
    _count_preferences(cluster)
    counts, left = cluster.counts.copy(), -1
    while left != len(cluster.pending):  # each pod that stays pending changes the rules of the others
        left, cluster.counts = len(cluster.pending), counts.copy()
        instance = _stated(cluster, usable, card_gb, preempt_below)
    known = {queue.name for queue in queues}
    pods = [
        pod.model_copy(update={"queue": space}) if (space := pod.name.partition("/")[0]) in known else pod
        for pod in instance["pods"]
    ]
    if told := [f"{counted(many, one)} {what}" for (one, what), many in cluster.counts.items() if many]:
        warnings.warn(f"{path}: {'; '.join(told)}", KubernetesWarning, stacklevel=2)
    instance |= {"pods": tuple(pods), "queues": queues, "pending": {n[:200]: w for n, w in cluster.pending.items()}}
    try:
        return PodInstance(name=Path(path).name.partition(".")[0][:200] or "cluster", **instance)
    except ValidationError as error:
        raise InstanceError(first_fault(error)[1], path=path) from error


def _facts(cluster: Cluster) -> set[str]:
    """Return the nodes of the instance: those with cores and memory on which every pod can be read."""
    usable = {
        name for name, node in cluster.nodes.items() if node.allocatable.get("cpu") and node.allocatable.get("memory")
    }
    if bare := len(cluster.nodes) - len(usable):
        cluster.counts["node", "without cores or memory, where no pod is placed"] = bare
    for pod in cluster.running:
        try:
            _ = pod.requests, pod.ports
        except ANY_ERROR as error:
            cluster.counts[
                "node", f"where no pod is placed, since pods there cannot be read, such as {pod.name}: {error}"
            ] += 1
            usable.discard(str(pod.node))
            vars(pod).update(requests={}, limits={}, ports=set())
    return usable


def _leave_to_others(cluster: Cluster, wanted: list[str] | None) -> None:
    """Leave pods of unwanted schedulers pending, and count pods that are placed on behalf of another scheduler."""
    waiting = Counter(pod.scheduler for pod in cluster.waiting if pod.name not in cluster.pending)
    placed = {*waiting} if "any" in (wanted or ()) else {*(wanted or _SCHEDULERS)}
    for pod in cluster.waiting:
        if pod.scheduler not in placed:
            cluster.leave(
                pod, f"it waits for another scheduler, {pod.scheduler} (--scheduler {pod.scheduler} places it)"
            )
    for name in sorted(placed - {"default-scheduler"}):
        cluster.counts["pod", f"of the scheduler {name}, placed as by the default scheduler"] = waiting[name]
    for name in sorted({*(wanted or ())} - {*waiting, "any"}):
        cluster.counts["scheduler", f"that no pod waits for: {name}"] = 1


def _count_preferences(cluster: Cluster) -> None:
    """Count the pods with preferences (soft rules), which are not read."""
    for pod in cluster.waiting:
        try:
            rules = (pod.spec.get("affinity") or {}).values()
            cluster.counts["pod", "with preferences, which this does not read"] += any(
                (rule or {}).get(_SOFT) for rule in rules
            )
            soft = [
                r
                for r in pod.spec.get("topologySpreadConstraints") or ()
                if r.get("whenUnsatisfiable") == "ScheduleAnyway"
            ]
            cluster.counts["pod", "with a spread where possible, which this does not read"] += bool(soft)
        except ANY_ERROR as error:
            cluster.leave(pod, f"its rules cannot be read: {error}")


def _stated(cluster: Cluster, usable: set[str], card_gb: float, preempt_below: int | None) -> dict[str, Any]:
    """Return the fields of the instance, given the pending pods; may leave more pods pending."""
    names = list(cluster.nodes)
    draft = Draft(cluster, names, sum(1 << k for k, name in enumerate(names) if name in usable))
    gangs = read_gangs(cluster)
    cards = cards_of_nodes(cluster, card_gb)
    draft.each(partial(_choose, draft))
    read_volumes(draft)
    extra = read_capacities(draft, cards.stated)
    read_affinity(draft)
    read_anti_affinity(draft)
    read_spreads(draft)
    read_scoped_quotas(draft)
    wishes = _wishes(draft, cards)
    stoppable = [pod.priority for pod in cluster.running if preempt_below is not None and pod.priority < preempt_below]
    modest = min(stoppable, default=None)
    waiting = [made for pod in draft.waiting if (made := _waiting(draft, cards, pod, wishes, modest)) is not None]
    known = {pod.name for pod in waiting}
    gangs = {name: gang for name, gang in gangs.items() if name in known}
    waiting = [pod.model_copy(update={"gang": gangs.get(pod.name)}) for pod in waiting]
    running = cards.running(draft, preempt_below)
    return {
        "nodes": tuple(
            _node(draft, cards, name, extra.get(name, {})) for name in names if draft.bit[name] & draft.usable
        ),
        "pods": tuple(running + waiting),
        "gangs": tuple(PodGang(name=gang) for gang in dict.fromkeys(gangs.values())),
        "spreads": tuple(draft.spreads),
        "resources": tuple(draft.resources),
    }


def _choose(draft: Draft, pod: KubePod) -> None:
    """Restrict a pod to the nodes that it selects and whose taints it tolerates."""
    draft.allowed[pod.name] = (1 << len(draft.names)) - 1
    nodes = draft.cluster.nodes.values()
    chosen = draft.of_spec(pod, "chosen", lambda: draft.mask(node.name for node in nodes if pod.chooses(node)))
    draft.forbid(pod, ~chosen, "no node has what its node selector and affinity ask for")
    if pod.name not in draft.cluster.pending:
        closed = draft.of_spec(
            pod, "closed", lambda: draft.mask(node.name for node in nodes if not node.open_to(pod.spec))
        )
        draft.forbid(pod, closed, "the taints of all nodes that it selects keep it away")


def _wishes(draft: Draft, cards: Cards) -> dict[str, dict[str, Any]]:
    """Return labels and tolerations that admit each waiting pod to exactly its allowed nodes.

    These are the pod's own if they suffice; otherwise a new label on the allowed nodes.
    """
    nodes = [draft.cluster.nodes[name] for name in draft.names if draft.bit[name] & draft.usable]
    taints = sorted({taint for node in nodes for taint in (*node.taints, *node.closed)})
    found: dict[str, dict[str, Any]] = {}
    labels: dict[int, str] = {}
    for pod in draft.waiting:
        allowed = draft.allowed[pod.name] & draft.usable
        plain, wish = draft.of_spec(pod, "plain", partial(_plain_wish, draft, cards, pod, nodes, taints))
        if plain == allowed:
            found[pod.name] = wish
            continue
        if allowed not in labels:
            if len(labels) == _SETS:
                draft.cluster.leave(pod, f"more than {_SETS} different sets of nodes are asked for")
                continue
            inside = {node.name: "yes" for node in nodes if draft.bit[node.name] & allowed}
            labels[allowed] = draft.mark(f"nodes-{len(labels) + 1}", inside)
        found[pod.name] = {"node_labels": {labels[allowed]: "yes"}, "tolerations": tuple(t.text for t in taints)}
    return found


def _plain_wish(
    draft: Draft, cards: Cards, pod: KubePod, nodes: Sequence[KubeNode], taints: Sequence[Taint]
) -> tuple[int, dict[str, Any]]:
    """Return the nodes that the pod's own node selector and tolerations allow, and the latter two as fields."""
    wanted = {str(key): str(value) for key, value in (pod.spec.get("nodeSelector") or {}).items()}
    tolerated = {taint for taint in taints if tolerates(pod.spec.get("tolerations") or (), taint)}
    plain = [
        node.name
        for node in nodes
        if wanted.items() <= node.labels.items() and {*node.taints, *node.closed} <= tolerated
    ]
    if pod.requests.keys() & cards.stated - {"cpu", "memory"}:  # nodes without cards cannot run the pod anyway
        plain = [name for name in plain if cards.of[name][0]]
    wish = {"node_labels": wanted, "tolerations": tuple(taint.text for taint in taints if taint in tolerated)}
    return draft.mask(plain), wish


def _node(draft: Draft, cards: Cards, name: str, extra: Mapping[str, int]) -> PodNode:
    node = draft.cluster.nodes[name]
    many, memory, model = cards.of[name]
    return PodNode(
        name=name,
        cpu_cores=node.allocatable["cpu"] / 1000,
        memory_gb=gigabytes(node.allocatable["memory"], up=True),
        cards=many,
        card_gb=memory if many else 0.0,
        card_model=model if many else None,
        labels=node.labels | draft.marks.get(name, {}),
        taints=tuple(dict.fromkeys(taint.text for taint in (*node.taints, *node.closed))),
        resources=dict(extra),
    )


def _waiting(
    draft: Draft, cards: Cards, pod: KubePod, wishes: Mapping[str, dict[str, Any]], modest: int | None
) -> Pod | None:
    """Return a pod to be placed; None if the instance cannot express what it requests.

    ``modest`` is the lowest priority of preemptible pods; a pod that must not preempt gets at most this priority.
    """
    try:
        return Pod(
            name=pod.name,
            cpu_cores=pod.requests.get("cpu", 0) / 1000,
            memory_gb=gigabytes(pod.requests.get("memory", 0)),
            priority=pod.priority if modest is None or pod.preempts else min(modest, pod.priority),
            spreads=draft.spread_of.get(pod.name, ()),
            resources=draft.resources_of.get(pod.name, {}),
            **cards.asked(pod),
            **wishes[pod.name],
        )
    except ValidationError as error:
        draft.cluster.leave(pod, ": ".join(first_fault(error)))
    except ANY_ERROR as error:
        draft.cluster.leave(pod, str(error))
    return None


_HOST = "kubernetes.io/hostname"
#: Prefixes of taints for a node's state: cordoned, not ready, short of memory, starting, being removed.
_STATES = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeletedByClusterAutoscaler")
_MORE = re.compile(r"\s*(\d{1,4})\s+nodes?\s+of\s+(\S+)\s*")


def with_nodes(cluster: Cluster, wanted: str) -> tuple[Cluster, int]:
    """Add empty, ready copies of a node (``2 nodes of n1``); return the new cluster and the number of copies."""
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
        taints = tuple(taint for taint in node.taints if not taint.key.startswith(_STATES))
        nodes[own] = replace(node, name=own, labels=labels, taints=taints, closed=())
    return replace(cluster, nodes=nodes), many


def after(
    cluster: Cluster, instance: PodInstance, placement: Mapping[str, str], cards: Mapping[str, Sequence[int]]
) -> Cluster:
    """Return the cluster after a placement: bound pods run, stopped pods are gone."""
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


def movable_instance(
    cluster: Cluster, path: str | Path, *, card_gb: float = 16.0, scheduler: list[str] | None = None
) -> PodInstance:
    """Return the instance of the running pods; those with GPUs that a controller recreates may move at cost 1.

    A pod may move where the scheduler's filters allow it. Static pods, pods of DaemonSets and of other schedulers, pods
    that are being deleted and pods that a PodDisruptionBudget protects stay.
    """
    able = {pod.name: pod for pod in cluster.running if _may_move(pod)}
    moving = {name: able[name] for name in able if name in evictable(cluster, able.values())}
    while True:
        running = [pod for pod in cluster.running if pod.name not in moving]
        free = [replace(pod, node=None) for pod in moving.values()]
        free_again = replace(cluster, running=running, waiting=free, pending={}, counts=Counter())
        instance = instance_of(free_again, path, card_gb=card_gb, scheduler=scheduler)
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
