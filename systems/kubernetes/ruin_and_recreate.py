"""Improve a one-by-one pass by ruin and recreate, with the filters of the scheduler themselves.

A step picks a pod that waits, unbinds the pods of the plan on a few nodes that it may run on, and binds it and them
again in an order of its own. The result is kept unless it binds fewer important pods. The order of binding stays one
that the filters allow: where a rule of a bound pod counts a pod that is unbound, both are unbound, and so is the whole
of a pod group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

import numpy as np

from flowlex.systems.kubernetes.disruption_budgets import evictable
from flowlex.systems.kubernetes.objects import Kind, KubePod
from flowlex.systems.kubernetes.one_by_one import SCORES, Bindings, Score, better, one_pass
from flowlex.systems.kubernetes.scheduler_filters import PodRules

#: Most nodes that a step empties, most pods that it unbinds, and how many other waiting pods it tries to bind.
_NODES, _UNBOUND, _TRIED = 4, 60, 10
#: Steps without a gain after which the search ends: at least, and for each pod to place.
_PATIENCE, _PATIENCE_PER_POD = 2000, 20


def improve(
    made: Bindings,
    late: Callable[[], bool] = lambda: False,
    *,
    preempt_below: int | None = None,
    proven: Collection[int] = (),
    seed: int = 0,
) -> None:
    """Bind more pods of the most important priority, then of the next, until it is ``late`` or nothing more is found.

    Running pods below the priority ``preempt_below`` may be stopped for more important ones, as far as disruption
    budgets and pod groups allow it. No further pod of the ``proven`` priorities can be bound.
    """
    search = _Search(made, preempt_below, seed)
    idle, patience = 0, max(_PATIENCE, _PATIENCE_PER_POD * len(search.pods))
    while idle < patience and not late() and (open_to := [p for p in search.waiting() if p.priority not in proven]):
        idle = 0 if search.step(open_to) else idle + 1


class _Search:
    """The bindings, and what the steps read of them."""

    def __init__(self, made: Bindings, preempt_below: int | None, seed: int) -> None:
        self.made, self.state, self.rng = made, made.state, np.random.default_rng(seed)
        cluster = self.state.cluster
        # what claims take, and the room that is kept for nominated pods, depends on the order: these stay as they are
        self.pods = [
            pod
            for pod in cluster.waiting
            if pod.name not in cluster.pending
            and not pod.spec.get("volumes")
            and not (pod.item.get("status") or {}).get("nominatedNodeName")
        ]
        running = sorted(cluster.running, key=lambda pod: pod.priority)
        least = [] if preempt_below is None else [p for p in running if p.priority < preempt_below and not p.static]
        stoppable = evictable(cluster, least)
        self.movable = {pod.name for pod in self.pods} | stoppable
        # on: the pods on each node that a step may unbind; held: what they use
        self.on: dict[int, dict[str, KubePod]] = {}
        self.held = np.zeros_like(self.state.free)
        self.ruled: dict[int, tuple[PodRules, dict[str, KubePod]]] = {}
        self.counted: dict[Kind, list[PodRules]] = {}
        for pod in (*made.order, *(pod for pod in least if pod.name in stoppable)):
            self._note(pod, self.state.node_of[pod.name])

    def _note(self, pod: KubePod, node: int, sign: int = 1) -> None:
        """Note a pod that is bound now, or no longer (sign -1)."""
        for what, amount in pod.requests.items():
            if (row := self.state.row(what)) is not None:
                self.held[row, node] += sign * amount
        places = [self.on.setdefault(node, {})]
        if pod.node is None and (rules := self.state.rules(pod)).any:
            if id(rules) not in self.ruled:
                self.ruled[id(rules)] = (rules, {})
                self.counted.clear()
            places.append(self.ruled[id(rules)][1])
        for place in places:
            if sign > 0:
                place[pod.name] = pod
            else:
                del place[pod.name]

    def waiting(self) -> list[KubePod]:
        """Return the pods that are not bound."""
        return [pod for pod in self.pods if pod.name not in self.state.node_of]

    def step(self, waiting: list[KubePod]) -> bool:
        """Rearrange some pods around one of those that wait; return whether more important pods are bound now."""
        rng, made, state = self.rng, self.made, self.state
        levels = sorted({pod.priority for pod in waiting}, reverse=True)
        level = levels[min(int(rng.geometric(0.5)) - 1, len(levels) - 1)]
        wanted = self._any([pod for pod in waiting if pod.priority == level])
        removed = self._removed(wanted)
        if removed is None:
            return False
        before = [(pod, state.node_of[pod.name], made.cards(pod)) for pod in removed]
        order, stopped, chosen = made.order[:], made.stopped[:], dict(made.chosen)
        for pod, node, _ in before:
            state.unbind(pod)
            made.chosen.pop(pod.name, None)
            self._note(pod, node, -1)
        made.order[:] = [pod for pod in order if pod.name in state.node_of]
        began = len(made.order)
        one_pass(made, [wanted], self._score())
        went_on = self._go_on([pod for pod in removed if pod.node is not None])
        others = [self._any(waiting) for _ in range(_TRIED)]
        tried = {pod.name: pod for pod in (*removed, *others) if pod.node is None and pod.name not in state.node_of}
        one_pass(made, self._in_order(list(tried.values())), self._score())
        bound, found = (
            made.order[began:],
            [pod for pod in removed if pod.node is not None and pod.name not in state.node_of],
        )
        gain = better(_levels([*bound, *went_on]), _levels(removed)) if self._whole(found) else -1
        if gain >= 0:
            made.stopped += found
            for pod in (*bound, *went_on):
                self._note(pod, state.node_of[pod.name])
            return gain > 0
        for pod in (*bound, *went_on):
            state.unbind(pod)
        for pod, node, cards in before:
            state.bind(pod, node, cards or None)
            self._note(pod, node)
        made.order[:], made.stopped[:], made.chosen = order, stopped, chosen
        return False

    def _removed(self, wanted: KubePod) -> list[KubePod] | None:
        """Return the pods on a few nodes, with all that must be unbound beside them; None if that is not possible."""
        state, rng = self.state, self.rng
        able = np.ones(state.size, np.bool_)
        for refusal in state.static_refusals(wanted):
            able &= ~refusal.nodes
        alone = able.copy()  # where it fits without the pods that a step may unbind
        for what, amount in wanted.requests.items():
            row = state.row(what)
            alone &= state.free[row] + self.held[row] >= amount
        if not alone.any():
            return None
        nodes = {int(rng.choice(np.flatnonzero(alone)))}
        nodes |= {int(rng.choice(np.flatnonzero(able))) for _ in range(int(rng.integers(_NODES)))}
        found: dict[str, KubePod] = {}
        left = [
            pod
            for node in sorted(nodes)
            for pod in self.on.get(node, {}).values()
            if pod.node is None or (pod.priority < wanted.priority and wanted.preempts)
        ]
        while left:
            pod = left.pop()
            if pod.name in found:
                continue
            if pod.name not in self.movable or len(found) == _UNBOUND:
                return None
            found[pod.name] = pod
            if pod.kind not in self.counted:
                means = state.selections.means
                self.counted[pod.kind] = [
                    rules
                    for rules, _ in self.ruled.values()
                    if any(means(term, pod) for term in (*rules.affinity, *(s.selection for s in rules.spreads)))
                ]
            for rules in self.counted[pod.kind]:
                left += self.ruled[id(rules)][1].values()
            group = self.made.groups.of(pod)
            if group is not None and pod.node is None:
                left += [each for each in self.made.groups.waiting[group] if each.name in state.node_of]
        return list(found.values())

    def _go_on(self, running: list[KubePod]) -> list[KubePod]:
        """Let running pods go on where they still fit, the most important first, and return them."""
        found = []
        for pod in sorted(running, key=lambda pod: -pod.priority):
            node = self.state.at[str(pod.node)]
            if self.state.takes(pod, node):
                self.state.bind(pod, node)
                found.append(pod)
        return found

    def _whole(self, stopped: list[KubePod]) -> bool:
        """Return whether no group of these pods is left with fewer running pods than it needs at once."""
        groups = self.made.groups
        for group in {group for pod in stopped if (group := groups.of(pod)) is not None}:
            left = sum(pod.name in self.state.node_of for pod in groups.running[group])
            if 0 < left < groups.least(group):
                return False
        return True

    def _in_order(self, pods: list[KubePod]) -> list[KubePod]:
        """Return pods by priority, those of one priority at random or the large ones first."""
        large, noise = bool(self.rng.integers(2)), self.rng.random(len(pods))
        size = [-self._share(pod) if large else 0.0 for pod in pods]
        level = np.array([-pod.priority for pod in pods], np.int64)
        return [pods[k] for k in np.lexsort((noise, np.array(size), level))]

    def _share(self, pod: KubePod) -> float:
        """Return the largest part of a node that a pod asks for."""
        state = self.state
        rows = ((state.row(what), amount) for what, amount in pod.requests.items() if what != "pods")
        return max((amount / max(1, int(state.total[row].max())) for row, amount in rows), default=0.0)

    def _score(self) -> Score:
        return SCORES[int(self.rng.integers(len(SCORES)))]

    def _any(self, pods: list[KubePod]) -> KubePod:
        return pods[int(self.rng.integers(len(pods)))]


def _levels(pods: Iterable[KubePod]) -> Counter[tuple[int, bool]]:
    """Count pods by priority, waiting ones (False) and running ones (True)."""
    return Counter((pod.priority, pod.node is not None) for pod in pods)
