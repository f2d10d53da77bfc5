"""Nodes and pods of a Kubernetes cluster as pod placement.

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
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from flowlex.formulations.gc_pause import collector_paused
from flowlex.instances.group_rules import PodGang
from flowlex.instances.input_errors import InstanceError, counted, first_fault
from flowlex.instances.pods import Pod, PodInstance, PodNode, fits_wishes
from flowlex.systems.kubernetes.disruption_budgets import evictable
from flowlex.systems.kubernetes.gpu_cards import Cards, cards_in_use, cards_of_nodes
from flowlex.systems.kubernetes.node_capacity import read_capacities, restrict_to_capacities
from flowlex.systems.kubernetes.objects import ANY_ERROR, Cluster, KubeNode, KubePod, read_cluster
from flowlex.systems.kubernetes.one_by_one import SCORES, in_queue_order, one_by_one
from flowlex.systems.kubernetes.pod_groups import Groups
from flowlex.systems.kubernetes.quotas import read_queues, read_scoped_quotas
from flowlex.systems.kubernetes.resources import gigabytes
from flowlex.systems.kubernetes.running_pods import running_pods
from flowlex.systems.kubernetes.scheduler_filters import SchedulerState
from flowlex.systems.kubernetes.selectors import Taint, tolerates
from flowlex.systems.kubernetes.topology import read_affinity, read_anti_affinity, read_spreads
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
    snapshot = Snapshot.of(read_cluster(path), path, card_gb=card_gb, scheduler=scheduler)
    return snapshot.instance(preempt_below=preempt_below).instance


class Stated(NamedTuple):
    """An instance, and what its bounds say of Kubernetes."""

    instance: PodInstance
    exact: bool
    """Whether it allows whatever Kubernetes' filters allow, so that its bounds hold for these."""
    sound: bool
    """Whether bounds of a relaxed instance hold for these."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A cluster prepared for placement: pods that are not to be placed, or cannot be read, are left pending."""

    cluster: Cluster
    path: str | Path
    usable: frozenset[str]
    card_gb: float
    groups: Groups

    @classmethod
    @collector_paused()
    def of(
        cls, cluster: Cluster, path: str | Path, *, card_gb: float = 16.0, scheduler: list[str] | None = None
    ) -> Snapshot:
        """Prepare a cluster without changing it; ``path`` names it in messages."""
        cluster = replace(cluster, pending=dict(cluster.pending), counts=cluster.counts.copy())
        usable = _facts(cluster)
        if not usable:
            raise InstanceError("no node has cores and memory under status.allocatable; list nodes that run", path=path)
        _leave_to_others(cluster, scheduler)
        _count_preferences(cluster)
        groups = Groups(cluster)
        if groups.unreadable:
            cluster.counts["pod group", "that cannot be read"] = groups.unreadable
        if together := len(groups.running.keys() & groups.waiting.keys()):
            cluster.counts["pod group", "running in part (the other pods are placed one by one)"] = together
        found = cls(cluster, path, frozenset(usable), card_gb, groups)
        found.first_state()  # leaves pods pending whose rules cannot be read
        groups.leave_refused()
        return found

    def first_state(self) -> SchedulerState:
        """Return the filters of the scheduler with only the running pods bound."""
        unreadable = [name for name in self.cluster.nodes if name not in self.usable]
        return SchedulerState(self.cluster, cards_of_nodes(self.cluster, self.card_gb), unreadable)

    def notes(self) -> str:
        """Return what an instance cannot express, counted; empty if there is nothing."""
        told = [f"{counted(many, one)} {what}" for (one, what), many in self.cluster.counts.items() if many]
        return f"{self.path}: {'; '.join(told)}" if told else ""

    @collector_paused()
    def instance(
        self,
        *,
        preempt_below: int | None = None,
        guide: Mapping[str, str] | None = None,
        relaxed: bool = False,
        merged: bool = False,
    ) -> Stated:
        """Return the instance; it warns once of what it cannot express.

        ``guide`` is the placement of a one-by-one pass: affinity among waiting pods is then stated as the pass met it,
        instead of leaving such pods pending. ``relaxed`` leaves out what can only be stated more strictly than
        Kubernetes checks it, so that a bound of the instance holds for any order of bindings. ``merged`` states the
        running pods of a node as one pod, where none of them may stop and no rule counts them.
        """
        cluster = replace(self.cluster, pending=dict(self.cluster.pending), counts=self.cluster.counts.copy())
        state, groups = self.first_state(), Groups(cluster)

        @cache
        def first_places() -> Mapping[str, str]:
            return one_by_one(self.cluster, self.first_state, scores=SCORES[:1]).places if guide is None else guide

        queues = read_queues(cluster)
        counts, left, waiting = cluster.counts.copy(), -1, list[Pod]()
        while left != len(cluster.pending):  # each pod that stays pending changes the rules of the others
            cluster.counts = counts.copy()
            names = list(cluster.nodes)
            usable = sum(1 << k for k, name in enumerate(names) if name in self.usable and not state.closed[k])
            draft = Draft(cluster, state, names, usable, guide=guide, relaxed=relaxed, first_places=first_places)
            draft.stoppable = preempt_below is not None
            cards = cards_of_nodes(cluster, self.card_gb)
            draft.each(partial(_choose, draft))
            restrict_to_capacities(draft, cards.stated, stoppable=preempt_below is not None)
            left = len(cluster.pending)
            gangs = _gangs(draft, groups, preempt_below)
            extra = read_capacities(draft, cards.stated)
            read_affinity(draft)
            read_anti_affinity(draft)
            read_spreads(draft)
            read_scoped_quotas(draft)
            waiting = _waiting_pods(draft, cards, preempt_below)
        running = running_pods(cards, draft, preempt_below, merged=merged)
        known = {queue.name for queue in queues}
        pods = list(running + waiting)
        for k, pod in enumerate(pods if gangs or known else ()):
            space = pod.name.partition("/")[0]
            more = {"gang": gangs.get(pod.name), "queue": space if space in known else None}
            pods[k] = pod.model_copy(update=more) if any(more.values()) else pod
        if told := replace(self, cluster=cluster).notes():
            warnings.warn(told, KubernetesWarning, stacklevel=3)
        try:
            instance = PodInstance(
                name=Path(self.path).name.partition(".")[0][:200] or "cluster",
                nodes=tuple(_node(draft, cards, n, extra.get(n, {})) for n in names if draft.bit[n] & draft.usable),
                pods=tuple(pods),
                gangs=tuple(PodGang(name=gang) for gang in dict.fromkeys(pod.gang for pod in pods if pod.gang)),
                spreads=tuple(draft.spreads),
                queues=queues,
                resources=tuple(draft.resources),
                pending={name[:200]: why for name, why in cluster.pending.items()},
            )
        except ValidationError as error:
            raise InstanceError(first_fault(error)[1], path=self.path) from error
        return Stated(instance, draft.exact and draft.sound, draft.sound)


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


def _waiting_pods(draft: Draft, cards: Cards, preempt_below: int | None) -> list[Pod]:
    """Return the pods to be placed; leaves pods pending that an instance cannot express."""
    wishes = _wishes(draft, cards)
    running = draft.cluster.running
    stoppable = [pod.priority for pod in running if preempt_below is not None and pod.priority < preempt_below]
    modest = min(stoppable, default=None)
    return [made for pod in draft.waiting if (made := _waiting(draft, cards, pod, wishes, modest)) is not None]


def _gangs(draft: Draft, groups: Groups, preempt_below: int | None) -> dict[str, str]:
    """Return the gang of each pod that starts, or may be stopped, only together with others.

    A group with ``minMember`` below its size is a gang of as many pods as the one-by-one pass has bound, or of
    ``minMember``; the others are left to start afterwards. Of a running group, all pods beyond ``minMember`` may be
    stopped one by one, and the others only together.
    """
    found: dict[str, str] = {}
    for group, pods in groups.waiting.items():
        able = [pod for pod in pods if pod.name not in draft.cluster.pending]
        if group in groups.running or not able:
            continue
        least = groups.least(group)
        if why := groups.refused(group):
            for pod in able:
                draft.cluster.leave(pod, why)
        elif least <= 1:
            continue
        elif least == len(able):
            found |= dict.fromkeys((pod.name for pod in able), group)
        elif draft.stricter():
            chosen = [pod for pod in able if pod.name in draft.first_places()]
            chosen = chosen if len(chosen) >= least else in_queue_order(able)[:least]
            found |= {pod.name: group for pod in chosen}
            for pod in able:
                if pod.name not in found:
                    draft.cluster.leave(pod, f"it starts after the {len(chosen)} pods that its pod group needs first")
    for group, pods in groups.running.items() if preempt_below is not None else ():
        core = sorted(pods, key=lambda pod: -pod.priority)[: len(pods) - groups.spare(group)]
        found |= {pod.name: f"{group} running" for pod in core}
    return found


def _choose(draft: Draft, pod: KubePod) -> None:
    """Restrict a pod to the nodes that it selects and whose taints it tolerates."""
    draft.allowed[pod.name] = (1 << len(draft.names)) - 1
    for refusal in draft.state.static_refusals(pod):
        draft.forbid(pod, draft.of_mask(refusal.nodes), "")
        if pod.name in draft.cluster.pending:
            return


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
                draft.exact = False
                if not draft.relaxed:
                    draft.cluster.leave(pod, f"more than {_SETS} different sets of nodes are asked for")
                    continue
                found[pod.name] = {"node_labels": {}, "tolerations": tuple(t.text for t in taints)}
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
    drivers = [item for item in cluster.others.get("CSINode", ()) if (item.get("metadata") or {}).get("name") == name]
    copies = [
        {**item, "metadata": {**item["metadata"], "name": f"{name}-new-{number}"}}
        for item in drivers
        for number in range(1, many + 1)
    ]
    others = {**cluster.others, "CSINode": [*cluster.others.get("CSINode", ()), *copies]} if copies else cluster.others
    return replace(cluster, nodes=nodes, others=others), many


def movable_instance(
    cluster: Cluster, path: str | Path, *, card_gb: float = 16.0, scheduler: list[str] | None = None
) -> PodInstance:
    """Return the instance of the running pods; those with GPUs that a controller recreates may move at cost 1.

    A pod may move where the scheduler's filters allow it. Static pods, pods of DaemonSets and of other schedulers, pods
    that are being deleted and pods that a PodDisruptionBudget protects stay.
    """
    able = {pod.name: pod for pod in cluster.running if _may_move(pod)}
    groups = Groups(cluster)
    for group, members in groups.running.items():  # a pod that moves is missing for a while
        mine = [one.name for one in sorted(members, key=lambda one: -one.priority) if one.name in able]
        for name in mine[: max(0, len(mine) - groups.spare(group))]:
            del able[name]
    moving = {name: able[name] for name in able if name in evictable(cluster, able.values())}
    while True:
        running = [pod for pod in cluster.running if pod.name not in moving]
        free = [replace(pod, node=None) for pod in moving.values()]
        free_again = replace(cluster, running=running, waiting=free, pending={}, counts=Counter())
        instance = Snapshot.of(free_again, path, card_gb=card_gb, scheduler=scheduler).instance().instance
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
