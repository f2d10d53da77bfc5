"""Bind pods one after the other, each where the filters of the default scheduler allow it at that moment.

The order is that of the default scheduler: priority, then how long a pod waits. Pods of a group are tried together and
bound only if the group reaches its ``minMember``. Passes are repeated until nothing is bound any more, so that no pod
waits that would fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.systems.kubernetes.objects import Cluster, KubePod
from flowlex.systems.kubernetes.pod_groups import Groups
from flowlex.systems.kubernetes.pod_volumes import Mask
from flowlex.systems.kubernetes.scheduler_filters import SchedulerState

#: How a pod chooses among the nodes that pass: the scheduler's scores for free and for balanced resources, the fullest
#: node, or the first that is listed.
Score: TypeAlias = Literal["least-allocated", "most-allocated", "first"]
SCORES: tuple[Score, ...] = ("least-allocated", "most-allocated", "first")


@dataclass(eq=False)
class Bindings:
    """Pods that run or are bound after a pass, in the order of binding."""

    state: SchedulerState
    groups: Groups
    order: list[KubePod] = field(default_factory=list)
    stopped: list[KubePod] = field(default_factory=list)
    chosen: dict[str, tuple[int, ...]] = field(default_factory=dict)  # cards that the model chose

    @property
    def places(self) -> dict[str, str]:
        """The node of each bound pod."""
        return {pod.name: self.state.names[self.state.node_of[pod.name]] for pod in self.order}

    def counts(self) -> dict[tuple[int, bool], int]:
        """Pods of each priority that are bound (False), and minus those that are stopped (True)."""
        found = Counter((pod.priority, False) for pod in self.order)
        found.subtract((pod.priority, True) for pod in self.stopped)
        return dict(found)

    def cards(self, pod: KubePod) -> tuple[int, ...]:
        """Return the cards of a bound pod; empty if they are not known."""
        return self.chosen.get(pod.name) or self.state.cards.of(pod.name)


def better(one: Mapping[tuple[int, bool], int], other: Mapping[tuple[int, bool], int]) -> int:
    """Compare numbers of pods by priority, the most important first, running pods before waiting ones: 1, 0 or -1."""
    for key in sorted(one.keys() | other.keys(), reverse=True):
        if one.get(key, 0) != other.get(key, 0):
            return 1 if one.get(key, 0) > other.get(key, 0) else -1
    return 0


def in_queue_order(pods: Iterable[KubePod]) -> list[KubePod]:
    """Sort pods as the default scheduler's queue does."""
    return sorted(pods, key=lambda pod: (-pod.priority, str(pod.item["metadata"].get("creationTimestamp") or "")))


def place_waiting(
    made: Bindings,
    score: Score = "least-allocated",
    *,
    late: Callable[[], bool] = lambda: False,
    priority: int | None = None,
) -> None:
    """Bind the waiting pods, or those of a priority, one by one until none of them passes or it is ``late``."""
    cluster, state = made.state.cluster, made.state
    waiting = (pod for pod in cluster.waiting if priority is None or pod.priority == priority)
    left = in_queue_order(p for p in waiting if p.name not in state.node_of and p.name not in cluster.pending)
    while left:
        before = len(made.order)
        one_pass(made, left, score, late)
        left = [pod for pod in left if pod.name not in state.node_of]
        if len(made.order) == before or late():
            return
        left = [pod for pod in left if _may_change(made, pod)]


def _may_change(made: Bindings, pod: KubePod) -> bool:
    """Return whether a pod that was refused may pass when further pods are bound."""
    return made.state.rules(pod).any or made.groups.of(pod) is not None


def one_pass(made: Bindings, pods: Sequence[KubePod], score: Score, late: Callable[[], bool] = lambda: False) -> None:
    """Bind the given pods that are not bound, in this order, each to the node that it scores best."""
    state, groups = made.state, made.groups
    tried, hopeless = set[str](), set[tuple[object, ...]]()
    for pod in pods:
        if late():
            return
        if pod.name in state.node_of or pod.name in tried:
            continue
        group = groups.of(pod)
        if group is None or groups.lacks(group, state.node_of) <= 0:
            _bind_one(made, pod, score, hopeless)
            continue
        mine = [other for other in pods if groups.of(other) == group and other.name not in state.node_of]
        tried |= {other.name for other in mine}
        if groups.lacks(group, state.node_of) > len(mine) or groups.refused(group):
            continue
        began = len(made.order)
        for other in mine:
            _bind_one(made, other, score, hopeless)
        if groups.lacks(group, state.node_of) > 0:
            for other in reversed(made.order[began:]):
                state.unbind(other)
            del made.order[began:]
            hopeless.clear()


def _bind_one(made: Bindings, pod: KubePod, score: Score, hopeless: set[tuple[object, ...]]) -> None:
    # in a pass nothing is freed: what refused a pod without affinity and spread refuses all pods that are equal to it
    key = (id(pod.spec), pod.kind, pod.priority, *(str(pod.notes[k]) for k in sorted(pod.notes) if "gpu" in k))
    if key in hopeless:
        return
    passing = made.state.open_nodes(pod)
    if passing.any():
        made.state.bind(pod, _chosen(made.state, pod, passing, score))
        made.order.append(pod)
    elif not made.state.rules(pod).any and not pod.spec.get("volumes"):
        hopeless.add(key)


def _chosen(state: SchedulerState, pod: KubePod, passing: Mask, score: Score) -> int:
    nodes = np.flatnonzero(passing)
    if score == "first" or len(nodes) == 1:
        return int(nodes[0])
    points = _points(state, pod, nodes)
    return int(nodes[int(np.argmax(points if score == "least-allocated" else -points))])


def _points(state: SchedulerState, pod: KubePod, nodes: NDArray[np.intp]) -> NDArray[np.float64]:
    """Scores LeastAllocated and BalancedAllocation of the default scheduler, of cores, memory and GPUs."""
    shares = []
    for what in ("cpu", "memory", *(w for w in pod.requests if "/" in w)):
        row = state.row(what)
        if row is not None:
            total = np.maximum(1, state.total[row, nodes]).astype(np.float64)
            shares.append((state.free[row, nodes] - pod.requests.get(what, 0)) / total)
    if not shares:
        return np.zeros(len(nodes))
    left = np.array(shares)
    found: NDArray[np.float64] = np.floor(100 * left.mean(axis=0)) + np.floor(100 * (1 - left.std(axis=0)))
    return found


def new_bindings(cluster: Cluster, make: Callable[[], SchedulerState]) -> Bindings:
    """Return the state in which only the running pods are bound."""
    state = make()
    return Bindings(state, Groups(cluster))


def one_by_one(
    cluster: Cluster,
    make: Callable[[], SchedulerState],
    *,
    scores: Sequence[Score] = SCORES,
) -> Bindings:
    """Return the best one-by-one pass over several ways to choose nodes."""
    best: Bindings | None = None
    for score in scores:
        if best is not None and len(best.order) == len(cluster.waiting) - len(cluster.pending):
            break
        made = new_bindings(cluster, make)
        place_waiting(made, score)
        if best is None or better(made.counts(), best.counts()) > 0:
            best = made
    assert best is not None
    if len(scores) > 1 and len(best.order) < len(cluster.waiting) - len(cluster.pending):
        made = _best_by_priority(cluster, make, scores)
        best = made if better(made.counts(), best.counts()) > 0 else best
    return best


def _best_by_priority(cluster: Cluster, make: Callable[[], SchedulerState], scores: Sequence[Score]) -> Bindings:
    """Bind the pods of one priority after the other, each by the way to choose nodes that binds most of them."""
    made = new_bindings(cluster, make)
    for priority in sorted({pod.priority for pod in cluster.waiting}, reverse=True):
        best: list[tuple[KubePod, int]] = []
        for score in scores:
            began = len(made.order)
            place_waiting(made, score, priority=priority)
            found = [(pod, made.state.node_of[pod.name]) for pod in made.order[began:]]
            best = found if len(found) > len(best) else best
            for pod, _ in reversed(found):
                made.state.unbind(pod)
            del made.order[began:]
        for pod, node in best:
            made.state.bind(pod, node)
            made.order.append(pod)
    place_waiting(made, scores[0])
    return made


def replay(
    made: Bindings,
    placement: Mapping[str, str],
    cards: Mapping[str, Sequence[int]],
    stopped: Collection[str] = (),
) -> None:
    """Stop pods, then bind pods to the given nodes in an order that the filters allow; drop what they refuse.

    Pods with spreads come first, as others that their selectors match bind nobody when they are bound later.
    """
    cluster, state, groups = made.state.cluster, made.state, made.groups
    for pod in cluster.running:
        if pod.name in stopped:
            state.unbind(pod)
            made.stopped.append(pod)
    wanted = [pod for pod in cluster.waiting if pod.name in placement and pod.name not in cluster.pending]
    dropped: set[str] = set()
    while True:
        _bind_in_order(made, [pod for pod in wanted if groups.of(pod) not in dropped], placement, cards)
        short = {g for pod in made.order if (g := groups.of(pod)) and groups.lacks(g, state.node_of) > 0}
        if not short:
            return
        dropped |= short
        for pod in reversed(made.order):  # what was bound beside these groups may count on them
            state.unbind(pod)
        made.order.clear()


def _bind_in_order(
    made: Bindings, pods: Sequence[KubePod], placement: Mapping[str, str], cards: Mapping[str, Sequence[int]]
) -> None:
    state = made.state
    left = sorted(pods, key=lambda pod: (not state.rules(pod).spreads, bool(state.rules(pod).affinity), -pod.priority))
    while left:
        later = []
        for pod in left:
            node = state.at[placement[pod.name]]
            if state.open_nodes(pod)[node]:
                state.bind(pod, node, cards.get(pod.name))
                made.order.append(pod)
                if cards.get(pod.name):
                    made.chosen[pod.name] = tuple(cards[pod.name])
            else:
                later.append(pod)
        if len(later) == len(left):
            return
        left = [pod for pod in later if state.rules(pod).any]
