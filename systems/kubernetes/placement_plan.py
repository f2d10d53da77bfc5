"""The plan for the waiting pods: the best of one-by-one passes, the model and a search, and what is proven of it.

A one-by-one pass in the order of the default scheduler comes first. In a small cluster, the model then places all pods
at once; its placement is bound in an order that the filters allow. Bounds follow; where they leave more to gain, ruin
and recreate continues. The plan that binds more pods of the most important priority, then of the next, is kept: never
fewer than the pass.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from flowlex.formulations.processor_clock import processor_seconds
from flowlex.instances.pods import PodInstance
from flowlex.models.model_base import ModelError
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.problem.cluster import Cluster as Filled
from flowlex.models.pods.problem.cluster import running_cluster
from flowlex.models.pods.solution import PlacementSolution
from flowlex.systems.kubernetes.bindings import Plan, binding, eviction
from flowlex.systems.kubernetes.objects import Cluster, KubePod
from flowlex.systems.kubernetes.one_by_one import (
    Bindings,
    better,
    in_queue_order,
    new_bindings,
    one_by_one,
    place_waiting,
    replay,
)
from flowlex.systems.kubernetes.placement_instance import KubernetesWarning, Snapshot
from flowlex.systems.kubernetes.proven_bounds import most_of_priorities
from flowlex.systems.kubernetes.ruin_and_recreate import improve

#: Absolute gap of the balance, as a fraction of a node's load.
_EVEN = 0.01
#: Nodes times pods up to which the model with its certificate is asked, whose loops need no compiling there.
_SMALL = 500
#: The first bound takes up to so many times as long as stating the instance, and cannot be interrupted.
_BOUNDS = 5.0
#: Share of the remaining time for the first bounds, which tell where a search may gain; the search gets the others.
_SHARE = 0.4


@dataclass(frozen=True)
class Level:
    """Waiting pods of one priority."""

    priority: int
    bound: int
    wanted: int
    most: int | None
    """No plan binds more of them, given the numbers of the priorities above; None: not known."""


@dataclass(frozen=True)
class Answer:
    """What becomes of a pod."""

    pod: str
    priority: int
    node: str | None
    reason: str
    """Why it waits; empty if it is bound."""
    since: str
    """Since when it waits, as the API server says."""
    cards: tuple[int, ...] = ()


@dataclass(eq=False)
class PlacementPlan:
    """A plan, the model's solution if it comes from the model, and what is proven."""

    snapshot: Snapshot
    made: Bindings
    method: str
    """``one by one``, ``model`` or ``ruin and recreate``."""
    levels: tuple[Level, ...]
    solution: PlacementSolution | None = None
    """The solution of the model; it may bind other pods than the plan."""
    notes: list[str] = field(default_factory=list)
    instance: PodInstance | None = None
    """The cluster as a pod placement; None if there was no time to state it."""

    @property
    def stopped(self) -> list[KubePod]:
        """Running pods that stop for more important ones."""
        return self.made.stopped

    @property
    def bound(self) -> int:
        """How many waiting pods are bound."""
        return len(self.made.order)

    @property
    def proven(self) -> bool:
        """Whether no plan binds more pods, priority by priority."""
        return all(level.bound == level.wanted or level.bound == level.most for level in self.levels)

    @property
    def cards(self) -> dict[str, tuple[int, ...]]:
        """The cards of each bound pod, where they are known."""
        return {pod.name: found for pod in self.made.order if (found := self.made.cards(pod))}

    def objects(self, now_ns: int = 0) -> Plan:
        """Return the Evictions and Bindings in order, and why pods wait."""
        found = Plan()
        for pod in self.stopped:
            found.items.append(eviction(pod.name, pod))
        places, cards = self.made.places, self.cards
        for number, pod in enumerate(self.made.order):
            found.items.append(binding(pod.name, places[pod.name], cards.get(pod.name, ()), pod, now_ns + number))
            if late := self.made.state.late_volumes(pod)[0]:
                found.claims[pod.name] = late
        found.waits.update({answer.pod: answer.reason for answer in self.answers() if answer.node is None})
        return found

    def answers(self) -> list[Answer]:
        """Return the answer for every waiting pod, the most important first."""
        return self._answers

    @cached_property
    def _answers(self) -> list[Answer]:
        places, cards = self.made.places, self.cards
        told: dict[tuple[object, ...], str] = {}
        found = []
        for pod in in_queue_order(self.snapshot.cluster.waiting):
            why = ""
            if pod.name not in places:
                group = self.made.groups.of(pod)
                key = (id(pod.spec), pod.kind, group) if not pod.spec.get("volumes") and not pod.notes else (pod.name,)
                if pod.name in self.snapshot.cluster.pending or key not in told:
                    told[key] = self._reason(pod, group)
                why = told[key]
            where = places.get(pod.name)
            found.append(Answer(pod.name, pod.priority, where, why, pod.since, cards.get(pod.name, ())))
        return found

    def _reason(self, pod: KubePod, group: str | None) -> str:
        why = self.made.state.reason(pod)
        groups, bound = self.made.groups, self.made.state.node_of
        if group is not None and pod.name not in self.snapshot.cluster.pending and groups.lacks(group, bound) > 0:
            least = groups.least(group)
            return f"its pod group {group.partition('/')[2]} needs {least} pods at once, and fewer fit; {why}"
        return why


def place_pods(
    snapshot: Snapshot,
    *,
    preempt_below: int | None = None,
    until: float | None = None,
    gap: float = 0.0,
    seed: int = 0,
    even: float = _EVEN,
) -> PlacementPlan:
    """Return the best plan that is found until a time (`processor_seconds`); the first pass always ends."""

    def late() -> bool:
        return until is not None and processor_seconds() >= until

    first = one_by_one(snapshot.cluster, snapshot.first_state)
    plan = PlacementPlan(snapshot, first, "one by one", _levels(snapshot.cluster, first, {}))
    plan.notes = [*filter(None, [snapshot.notes()])]
    if not snapshot.cluster.waiting or late():
        return plan
    began = processor_seconds()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        guide = first.places
        relaxed = snapshot.instance(preempt_below=preempt_below, guide=guide, relaxed=True, merged=True)
    least = _BOUNDS * (processor_seconds() - began)
    plan.instance = relaxed.instance
    plan.notes = [str(each.message) for each in caught if issubclass(each.category, KubernetesWarning)] or plan.notes
    if relaxed.instance.cells <= _SMALL:
        options: dict[str, Any] = {"gap": gap, "seed": seed, "time_limit_s": _left(until, 1.0)}
        solution = _solved(relaxed.instance, even, options)
        plan = plan if solution is None else _better_of(plan, solution, late)

    def levels(share: float, known: Mapping[int, int]) -> tuple[Level, ...]:
        left, most = _left(until, share), known
        if relaxed.sound and (left is None or left >= least):
            end = None if left is None else processor_seconds() + left
            most = most_of_priorities(relaxed.instance, plan.made, plan.solution, end, known)
        return _levels(snapshot.cluster, plan.made, most)

    plan.levels = levels(_SHARE, {})
    if not plan.proven and not late():
        before = plan.levels
        proven = [level.priority for level in before if level.bound in (level.wanted, level.most)]
        enough = _until(_left(until, 1 - _SHARE))
        improve(plan.made, enough, preempt_below=preempt_below, proven=proven, seed=seed)
        place_waiting(plan.made, late=late)
        _unstop(plan.made)
        known, same = dict[int, int](), True  # bounds hold while the numbers of the priorities above are the same
        for then, now in zip(before, _levels(snapshot.cluster, plan.made, {}), strict=True):
            if same and then.most is not None:
                known[then.priority] = then.most
            if now.bound != then.bound:
                plan.method, same = "ruin and recreate", False
        plan.levels = levels(1.0, known if preempt_below is None else {})
    return plan


def _left(until: float | None, share: float) -> float | None:
    """Return a share of the remaining seconds; None without a limit."""
    return None if until is None else share * max(0.0, until - processor_seconds())


def _until(seconds: float | None) -> Callable[[], bool]:
    end = None if seconds is None else processor_seconds() + seconds
    return lambda: end is not None and processor_seconds() >= end


def _solved(instance: PodInstance, even: float, options: Mapping[str, Any]) -> PlacementSolution | None:
    """Place the pods of an instance, with a certificate."""
    if options["time_limit_s"] == 0 or not any(pod.node is None for pod in instance.pods):
        return None
    try:
        found = PodPlacement(instance, absolute_gap=even).solve("highs", **options)
    except ModelError:
        return None  # running pods that do not pack on their cards: the pass stands
    return found if found.status.has_answer else None


def _better_of(plan: PlacementPlan, solution: PlacementSolution, late: Callable[[], bool]) -> PlacementPlan:
    """Bind the model's placement, add what still fits, and return it unless the plan binds more important pods."""
    snapshot, answer = plan.snapshot, solution.to_dict()["answer"]
    placement, cards = answer["placement"], answer["cards"]
    gone = {pod.name for pod in solution.source.pods if pod.node is not None and placement.get(pod.name) != pod.node}
    gone = _whole_groups(snapshot, gone, {pod.name for pod in solution.source.pods if pod.preempt_cost is not None})
    made = new_bindings(snapshot.cluster, snapshot.first_state)
    replay(made, placement, cards, gone)
    place_waiting(made, late=late)
    _unstop(made)
    if better(made.counts(), plan.made.counts()) < 0:
        plan.solution = solution
        return plan
    return PlacementPlan(snapshot, made, "model", plan.levels, solution, plan.notes, plan.instance)


def _whole_groups(snapshot: Snapshot, stopped: set[str], able: set[str]) -> set[str]:
    """Return the pods to stop: of a running group that would keep too few pods, all, or none if one may not stop."""
    found = set(stopped)
    for group, pods in snapshot.groups.running.items():
        names = {pod.name for pod in pods}
        if names & stopped and len(names - stopped) < snapshot.groups.least(group):
            found = found | names if names <= able else found - names
    return found


def _unstop(made: Bindings) -> None:
    """Let stopped pods go on where nothing was bound in their place."""
    groups, state = made.groups, made.state
    units: dict[str, list[KubePod]] = {}
    for pod in made.stopped:
        units.setdefault(groups.of(pod) or pod.name, []).append(pod)
    for pods in sorted(units.values(), key=lambda pods: -pods[0].priority):
        kept = []
        for pod in pods:
            if not state.takes(pod, state.at[str(pod.node)]):
                break
            state.bind(pod, state.at[str(pod.node)])
            kept.append(pod)
        if len(kept) < len(pods):
            for pod in kept:
                state.unbind(pod)
        else:
            names = {pod.name for pod in kept}
            made.stopped[:] = [pod for pod in made.stopped if pod.name not in names]


def _levels(cluster: Cluster, made: Bindings, most: Mapping[int, int]) -> tuple[Level, ...]:
    """Count the waiting pods by priority; ``most``: the bounds that are proven for these numbers."""
    wanted = Counter(pod.priority for pod in cluster.waiting)
    bound = Counter(pod.priority for pod in made.order)
    return tuple(Level(p, bound[p], wanted[p], most.get(p)) for p in sorted(wanted, reverse=True))


def filled_clusters(plan: PlacementPlan) -> tuple[PodInstance, dict[str, Filled]]:
    """Return an instance, and the use of its nodes and cards before and after the plan, for pictures."""
    instance = plan.instance
    if instance is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KubernetesWarning)
            instance = plan.snapshot.instance(guide=plan.made.places).instance
    view, at = instance.arrays, {node.name: n for n, node in enumerate(instance.nodes)}
    places, gone, cards = plan.made.places, {pod.name for pod in plan.stopped}, plan.cards
    after = [None if pod.name in gone else places.get(pod.name, pod.node) for pod in instance.pods]
    node = np.array([-1 if name is None else at[name] for name in after], np.int64)
    on = {p: np.array(cards[pod.name]) for p, pod in enumerate(instance.pods) if node[p] >= 0 and pod.name in cards}
    if plan.solution is not None and plan.solution.cluster is not None and plan.method == "model":
        held = plan.solution.cluster.used_cards.items()
        on = {p: chosen for p, chosen in held if node[p] >= 0 and view.running[p] >= 0} | on
    before = running_cluster(view, cards=True)
    return instance, {"before": before or Filled(view), "after": Filled.of(view, node, on)}
