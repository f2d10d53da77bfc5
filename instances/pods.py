"""The pod-placement instance: nodes with cores, memory and GPU cards; pods that share cards by memory.

Source: Sun, Wang, Xian, Xiang, *Priority-based heterogeneous resource scheduling with an improved genetic
algorithm on Kubeflow*: its unit is 1 GB of GPU memory. Cards, labels, taints and running pods are ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from flowlex.instances.array_types import numbered
from flowlex.instances.field_types import Name, NonNegative, Part, Positive
from flowlex.instances.group_rules import PodGang, PodQueue, PodResource, PodSpread
from flowlex.instances.instance_base import Instance, read_only, require_known, require_unique
from flowlex.instances.pod_rule_arrays import SideRules, side_rules
from flowlex.instances.pod_sizes import ExactSizes, Pairs, exact_sizes

LoadReading: TypeAlias = Literal["normalised", "raw", "equal", "cluster"]
Labels = Annotated[dict[Name, str], Field(max_length=1000)]
Amounts = Annotated[dict[Name, Annotated[int, Field(strict=True, ge=0, le=2**53)]], Field(max_length=1000)]


class PodNode(Part):
    """A machine. Its cards are identical; a taint excludes every pod that does not tolerate it."""

    name: Name
    cpu_cores: Positive
    """Cores that pods may use."""
    memory_gb: Positive
    """Memory that pods may use, in GB."""
    cards: Annotated[int, Field(strict=True, ge=0, le=64)] = 0
    """Number of GPU cards, all identical."""
    card_gb: NonNegative = 0.0
    """Memory of a card, in GB."""
    card_model: Name | None = None
    """Model of its cards."""
    labels: Labels = Field(default={})
    """Labels, name to value."""
    taints: tuple[Name, ...] = ()
    """Taints; they exclude every pod that does not tolerate them."""
    resources: Amounts = Field(default={})
    """Its amounts of the `resources` of the instance; 0 of those not listed."""


class Pod(Part):
    """A unit of work that runs on one node.

    Parameters
    ----------
    gpu_memory_gb, gpu_share
        GPU memory on each card that it uses, in GB or as a share of a card (one of the two).
    gang, spreads, queue
        Names of the gang, the spreads and the queue that it belongs to.
    created_s, deleted_s
        Its arrival and departure in a trace; ``flowlex replay`` uses them, models place all pods at once.
    """

    name: Name
    cpu_cores: NonNegative = 0.0
    """Cores that it requests."""
    memory_gb: NonNegative = 0.0
    """Memory that it requests, in GB."""
    gpu_memory_gb: NonNegative = 0.0
    gpu_share: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)] = 0.0
    gpu_cards: Annotated[int, Field(strict=True, ge=1, le=64)] = 1
    """Number of cards that it uses at once, each with this memory."""
    gpu_compute: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)] = 0.0
    """Share of the compute of each of these cards; the shares on a card sum to at most 1."""
    priority: Annotated[int, Field(strict=True, ge=-(2**31), lt=2**31)] = 0
    """Larger is more important."""
    node_labels: Labels = Field(default={})
    """The node must have these labels."""
    tolerations: tuple[Name, ...] = ()
    """Taints that it tolerates; their order does not matter."""
    card_models: tuple[Name, ...] = ()
    """The node's cards must be of one of these models (empty: any)."""
    resources: Amounts = Field(default={})
    """Its requests of the `resources` of the instance, in integer units."""
    gang: Name | None = None
    spreads: tuple[Name, ...] = ()
    queue: Name | None = None
    node: Name | None = None
    """The node it runs on; null if it waits."""
    node_cards: tuple[Annotated[int, Field(strict=True, ge=0, lt=64)], ...] | None = None
    """Indices from 0 of its cards on that node, which it keeps while it stays there. Null: not known; the pods of the
    node are then assumed to be movable between its cards."""
    move_cost: NonNegative | None = None
    """Cost of moving a running pod; null: it may not move."""
    preempt_cost: Positive | None = None
    """Cost of preempting a running pod, for more important pods only; null: it may not be preempted. A gang is not
    preempted if one of its pods may not be."""
    value: NonNegative = 1.0
    """The value of placing it, if admission is weighted by value."""
    created_s: NonNegative | None = None
    deleted_s: NonNegative | None = None

    @property
    def wants_gpu(self) -> bool:
        """Whether it is a GPU pod."""
        return self.gpu_memory_gb > 0 or self.gpu_share > 0

    @property
    def cards_used(self) -> int:
        """How many cards it uses at once; 0 for a CPU pod."""
        return self.gpu_cards if self.wants_gpu else 0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.gpu_memory_gb and self.gpu_share:
            raise ValueError(f"pod {self.name!r} gives gpu_memory_gb and gpu_share; give one of them")
        if not self.wants_gpu and (self.gpu_cards > 1 or self.card_models):
            raise ValueError(f"pod {self.name!r} names cards but wants no GPU memory; give gpu_memory_gb or gpu_share")
        if self.gpu_compute and not self.wants_gpu:
            reason = f"pod {self.name!r} gives gpu_compute but wants no GPU memory"
            raise ValueError(f"{reason}; give gpu_memory_gb or gpu_share too")
        for cost in ("move_cost", "preempt_cost"):
            if getattr(self, cost) is not None and self.node is None:
                raise ValueError(f"pod {self.name!r} has a {cost} but runs nowhere; leave it out")
        if self.node_cards is not None and (self.node is None or len(set(self.node_cards)) != self.cards_used):
            given = f"pod {self.name!r} on node {self.node!r} gives node_cards {list(self.node_cards)}"
            raise ValueError(f"{given}; expected {self.cards_used} different cards of the node where it runs, or null")
        if self.deleted_s is not None and (self.created_s is None or self.deleted_s < self.created_s):
            raise ValueError(f"pod {self.name!r} has deleted_s {self.deleted_s:g}, which is not after a created_s")
        return self


# Compared by identity: equal instances must stay equal whether or not this view was built.
@dataclass(frozen=True, slots=True, eq=False)
class PodArrays:
    """The instance as arrays. Sizes: P pods, N nodes."""

    capacity: NDArray[np.float64]  # (N, 3) GPU memory of all cards in GB, cores, memory in GB
    # cards, card_gb: (N,) number and size of cards
    cards: NDArray[np.int64]
    card_gb: NDArray[np.float64]
    # (N, 3) node's share of each total, normalised to sum to 1 (reconstructed; see `PodInstance.load_reading`)
    weight: NDArray[np.float64]
    # cpu, memory, gpu_cards, priority: (P,) cores, GB, number of cards, priority
    cpu: NDArray[np.float64]
    memory: NDArray[np.float64]
    gpu_cards: NDArray[np.int64]
    gpu: Pairs  # (P, N) GB needed on each card if the pod runs on the node
    load: Pairs  # (P, N) the pod's contribution to the node's load: weighted utilisation, in 0..1 if it fits
    allowed: Pairs  # (P, N) whether labels, taints and card models let the pod run on the node
    priority: NDArray[np.int64]
    running: NDArray[np.int64]  # (P,) node it runs on, -1 when it waits to be placed
    # (P,) cards that a running pod uses, as bits; 0 where they are not known or there are none
    home_cards: NDArray[np.uint64]
    stays: NDArray[np.bool_]  # (P,) whether it runs and may not be stopped
    move_cost: NDArray[np.float64]  # (P,) cost of moving; infinite when it may not move; 0 for pods that do not run yet
    # exact, rules: sizes as integers, for exact computations; gangs, spreads and quotas
    exact: ExactSizes
    rules: SideRules


class PodInstance(Instance):
    """Which pod runs on which node, and which pods wait?

    Attributes
    ----------
    nodes, pods
        At least one node; running and waiting pods. Memory is in GB, names are unique, and every named rule is listed.
    """

    kind: Literal["pod-placement"] = "pod-placement"
    nodes: Annotated[tuple[PodNode, ...], Field(min_length=1)]
    pods: tuple[Pod, ...] = ()
    gangs: tuple[PodGang, ...] = ()
    """Gangs: all of their pods are placed, or none."""
    spreads: tuple[PodSpread, ...] = ()
    """Anti-affinity and topology spreads."""
    queues: tuple[PodQueue, ...] = ()
    """Users or queues, with their quotas."""
    resources: tuple[PodResource, ...] = ()
    """Resources beside cores, memory and cards."""
    pending: dict[Name, str] = Field(default={})
    """Pods that an importer could not express, and why; they are not part of the problem and stay pending."""
    load_reading: LoadReading = "normalised"
    """How the load of a node combines its resources: ``normalised``: used shares of the node, weighted by the node's
    shares of the cluster, normalised; ``raw``: the same weights divided by 3 instead; ``equal``: equal weights;
    ``cluster``: used shares of the cluster's totals, with normalised weights."""

    @model_validator(mode="after")
    def _known_nodes(self) -> Self:
        require_unique((node.name for node in self.nodes), "nodes")
        require_unique((pod.name for pod in self.pods), "pods")
        names = {node.name: node for node in self.nodes}
        for node in self.nodes:
            if (node.cards > 0) != (node.card_gb > 0):
                raise ValueError(f"node {node.name!r} needs both cards and card_gb, or neither")
        for pod in self.pods:
            require_known(pod.node, names, f"pod {pod.name!r} runs on node", "nodes")
            if pod.node is not None and (last := max(pod.node_cards or (-1,))) >= names[pod.node].cards:
                there = f"node {pod.node!r} has {names[pod.node].cards} cards; cards are counted from 0"
                raise ValueError(f"pod {pod.name!r} gives node_cards {last}, and {there}")
        return self

    @model_validator(mode="after")
    def _known_rules(self) -> Self:
        for what, of, rules in (
            ("gang", lambda pod: (pod.gang,) * (pod.gang is not None), self.gangs),
            ("spread", lambda pod: pod.spreads, self.spreads),
            ("queue", lambda pod: (pod.queue,) * (pod.queue is not None), self.queues),
            ("resource", lambda pod: tuple(pod.resources), self.resources),
        ):
            require_unique((rule.name for rule in rules), f"{what}s")
            names = {rule.name for rule in rules}
            for pod in self.pods:
                for name in of(pod):
                    require_known(name, names, f"pod {pod.name!r} is of {what}", f"{what}s")
        runs = {pod.gang: pod.name for pod in self.pods if pod.node is not None}
        for pod in self.pods:
            if pod.gang is not None and pod.node is None and pod.gang in runs:
                reason = f"gang {pod.gang!r}: pod {runs[pod.gang]!r} runs and pod {pod.name!r} waits"
                raise ValueError(f"{reason}; a gang runs or waits as a unit, so give the waiting pods their own gang")
        labels = {"node", *(key for node in self.nodes for key in node.labels)}
        of_node = {resource.name for resource in self.resources if resource.amount is None}
        for node in self.nodes:
            if strange := sorted(node.resources.keys() - of_node):
                reason = f"node {node.name!r} has {strange[0]!r}, which is no resource of nodes"
                raise ValueError(f"{reason}; list it in resources, without an amount")
        for rule in (*self.gangs, *self.spreads, *self.resources):
            if rule.key is not None and rule.key not in labels:
                what = f"{rule.says} names the label {rule.key!r}"
                raise ValueError(f"{what}, which no node has; name a label, or 'node'")
        return self

    @cached_property
    def must_run(self) -> frozenset[str]:
        """Names of the running pods that may not be stopped, because of themselves or their gang."""
        must = [pod for pod in self.pods if pod.node is not None and pod.preempt_cost is None]
        gangs = {pod.gang for pod in must if pod.gang is not None}
        return frozenset(pod.name for pod in self.pods if pod.gang in gangs) | {pod.name for pod in must}

    @property
    def repacked(self) -> tuple[str, ...]:
        """Names of the running GPU pods whose cards are not known and not determined."""
        cards = {node.name: node.cards for node in self.nodes}
        unknown = (p for p in self.pods if p.node is not None and p.wants_gpu and p.node_cards is None)
        return tuple(pod.name for pod in unknown if cards[str(pod.node)] > pod.cards_used)

    @cached_property
    def arrays(self) -> PodArrays:
        """The instance as arrays, made once."""
        nodes, pods = self.nodes, self.pods
        kinds = [_kind_of(node) for node in nodes]
        wishes = [_wish_of(pod) for pod in pods]
        column, row = numbered(kinds), numbered(wishes)
        # Sizes are computed for one pod and one node of each kind.
        pod = [pods[k] for k in np.unique(row, return_index=True)[1].tolist()]
        node = [nodes[k] for k in np.unique(column, return_index=True)[1].tolist()]
        cards = np.array([n.cards for n in nodes], np.int64)
        card_gb = np.array([n.card_gb for n in nodes])
        capacity = np.stack(
            [cards * card_gb, np.array([n.cpu_cores for n in nodes]), np.array([n.memory_gb for n in nodes])], axis=1
        )
        totals = capacity.sum(axis=0)
        weight = _weights(capacity, self.load_reading)
        gpu = np.array([[p.gpu_memory_gb + p.gpu_share * n.card_gb for n in node] for p in pod], np.float64)
        gpu = gpu.reshape(len(pod), len(node))
        whole = np.broadcast_to(totals, capacity.shape) if self.load_reading == "cluster" else capacity
        rate = np.divide(weight, whole, out=np.zeros_like(weight), where=capacity > 0)
        rate = rate[np.unique(column, return_index=True)[1]]
        size = np.array([[p.gpu_cards, p.cpu_cores, p.memory_gb] for p in pod], np.float64).reshape(len(pod), 3)
        load = gpu * size[:, :1] * rate[:, 0] + size[:, 1:2] * rate[:, 1] + size[:, 2:] * rate[:, 2]
        allowed = np.array([[fits_wishes(p, n) for n in node] for p in pod], bool).reshape(len(pod), len(node))
        index = {n.name: i for i, n in enumerate(nodes)}
        moving = [0.0 if p.node is None else np.inf if p.move_cost is None else p.move_cost for p in pods]
        return read_only(
            PodArrays(
                capacity,
                cards,
                card_gb,
                weight,
                np.array([p.cpu_cores for p in pods]),
                np.array([p.memory_gb for p in pods]),
                np.array([p.cards_used for p in pods], np.int64),
                read_only(Pairs(gpu, row, column)),
                read_only(Pairs(load, row, column)),
                read_only(Pairs(allowed, row, column)),
                np.array([p.priority for p in pods], np.int64),
                np.array([-1 if p.node is None else index[p.node] for p in pods], np.int64),
                np.array([sum(1 << card for card in p.node_cards or ()) for p in pods], np.uint64),
                np.array([p.name in self.must_run for p in pods], bool),
                np.array(moving),
                exact_sizes(pod, node, row, column),
                side_rules(self, Pairs(allowed, row, column)),
            )
        )

    @property
    def cells(self) -> int:
        """Nodes times pods."""
        return len(self.nodes) * len(self.pods)

    def summary(self) -> dict[str, str | int | float]:
        """Sizes and totals."""
        view = self.arrays
        asked = np.where(view.gpu.table > 0, view.gpu.table, np.inf).min(axis=1, initial=np.inf)[view.gpu.row]
        gpu = float((np.where(np.isfinite(asked), asked, 0.0) * view.gpu_cards).sum())
        return {
            "nodes": len(self.nodes),
            "GPU cards": int(view.cards.sum()),
            "pods": len(self.pods),
            "GPU pods": int((view.gpu_cards > 0).sum()),
            "running": int((view.running >= 0).sum()),
            "running on unknown cards": len(self.repacked),
            "priority classes": len(set(view.priority.tolist())),
            "GPU memory asked for of": f"{gpu:.6g} of {view.capacity[:, 0].sum():.6g} GB",
            "cores asked for of": f"{view.cpu.sum():.6g} of {view.capacity[:, 1].sum():.6g}",
            "memory asked for of": f"{view.memory.sum():.6g} of {view.capacity[:, 2].sum():.6g} GB",
            **_left_pending(self.pending),
        }


def _left_pending(pending: Mapping[str, str]) -> dict[str, str | int]:
    """Return the number of pending pods, in all and by reason, the most frequent first."""
    reasons = Counter(pending.values()).most_common(10)
    found: dict[str, str | int] = {"left pending": len(pending)} if pending else {}
    return found | {f"left pending, as {why}": many for why, many in reasons}


def _weights(capacity: NDArray[np.float64], reading: LoadReading) -> NDArray[np.float64]:
    """Return (N, 3) weights of resources on nodes, by one of the readings of the paper's lost formula."""
    if reading == "equal":
        weight = (capacity > 0).astype(np.float64)
    else:
        totals = capacity.sum(axis=0)
        weight = np.divide(capacity, totals, out=np.zeros_like(capacity), where=totals > 0)
    return weight / (3.0 if reading == "raw" else weight.sum(axis=1, keepdims=True))


def fits_wishes(pod: Pod, node: PodNode) -> bool:
    """Return whether labels, taints and card model allow a pod on a node, regardless of sizes."""
    models = not pod.card_models or node.card_model in pod.card_models
    return models and pod.node_labels.items() <= node.labels.items() and set(node.taints) <= set(pod.tolerations)


def _kind_of(node: PodNode) -> tuple[object, ...]:
    """Key that is equal for nodes that differ only in their names."""
    sizes = (node.cpu_cores, node.memory_gb, node.cards, node.card_gb, node.card_model, *sorted(node.resources.items()))
    return (*sizes, tuple(sorted(node.labels.items())), tuple(sorted(set(node.taints))))


def _wish_of(pod: Pod) -> tuple[object, ...]:
    """Key that is equal for pods with the same requests."""
    sizes = (pod.cpu_cores, pod.memory_gb, pod.gpu_memory_gb, pod.gpu_share, pod.gpu_cards, pod.gpu_compute)
    wishes = (tuple(sorted(pod.node_labels.items())), frozenset(pod.tolerations), frozenset(pod.card_models))
    return (*sizes, *wishes, *sorted(pod.resources.items()))
