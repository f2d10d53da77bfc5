"""Sequential placement by a policy; gangs are placed completely or not, skewed spreads fill their emptiest domains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.program_arrays import Booleans, Integers
from flowlex.instances.pod_rule_arrays import GANG, SKEW
from flowlex.instances.pods import PodArrays
from flowlex.models.pods.problem.group_rules import room
from flowlex.models.pods.problem.node_fill_state import Cluster
from flowlex.models.pods.search.placement_policies import POLICIES, Scores, in_order
from flowlex.models.pods.search.search_state import SearchState

if TYPE_CHECKING:
    from collections.abc import Sequence


def tied(view: PodArrays) -> Booleans:
    """(P,) whether searches must not remove a pod alone: pods of gangs and of spreads with a skew."""
    return view.rules.members(GANG, SKEW)


def place_by(policy: int, start: Cluster, pods: Sequence[int] | Integers, *, seed: int = 0) -> Cluster:
    """Place pods in this order, gangs as a whole; pods that fit nowhere wait."""
    placing = Placing(start, policy, seed)
    placing.place(np.asarray(pods, np.int64))
    return placing.cluster()


def with_waiting(cluster: Cluster, level: Integers) -> Cluster:
    """Add waiting pods by level, repeatedly until none fits (with rules, placed pods may make others feasible).

    ``level``: (P,) level of each pod to place, the smallest first; -1: do not place.
    """
    while True:
        more = place_by(POLICIES["fgd"], cluster, in_order(np.where(cluster.node < 0, level, -1)))
        if (more.node == cluster.node).all():
            return cluster
        cluster = more


class Placing:
    """A placement that grows, with so many moves of placed pods for one that fits nowhere; the start stays as it is."""

    def __init__(self, start: Cluster, policy: int, seed: int = 0, moves: int = 0) -> None:
        self.view: PodArrays
        self.start, self.policy, self.view = start, policy, start.view
        self.scores: Scores
        self.state, self.scores = SearchState.of(start), Scores.of(start)
        self.rng, self.moves, self.moved = np.random.default_rng(seed), moves, 0
        self.dead = np.zeros((moves + 1, self.state.gpu.shape[0]), np.bool_)  # see `ejection_chains`
        self.alone: Booleans
        self.alone, self.skewed = tied(start.view), start.view.rules.members(SKEW)

    def cluster(self) -> Cluster:
        """Return the present placement."""
        return self.state.cluster(self.start)

    def offer(self, pod: int) -> list[int]:
        """Place one waiting pod, or its whole gang; return the placed pods."""
        gang = int(self.view.rules.gang[pod])
        pods = np.flatnonzero(self.view.rules.gang == gang) if gang >= 0 else np.array([pod], np.int64)
        pods = pods[self.state.node[pods] < 0]
        self.place(pods)
        return [int(p) for p in pods[self.state.node[pods] >= 0]]

    def place(self, pods: Integers) -> None:
        """Place pods in this order by the policy, a gang when the first of its pods comes."""
        begin, done = 0, set[int]()
        for cut in np.flatnonzero(self.alone[pods]).tolist():
            self._arrive(pods[begin:cut], self.moves, movable=True)
            begin, gang = cut + 1, int(self.view.rules.gang[pods[cut]])
            if gang < 0:
                self._one(pods[cut : cut + 1])
                self.freed(pods[cut : cut + 1])
            elif gang not in done:
                done.add(gang)
                self._gang(gang, pods)
        self._arrive(pods[begin:], self.moves, movable=True)

    def freed(self, pods: Integers) -> None:
        """Update the room of skewed spreads after these pods were added or removed."""
        if self.skewed[pods].any():
            skew = (self.view.rules.what == SKEW)[self.view.rules.of]
            self.state.room[skew] = room(self.view, self.state.node)[skew]

    def _one(self, pods: Integers) -> int:
        """Place pods in this order without moves of others; return the number of placed pods."""
        self._arrive(pods, 0, movable=False)
        return int((self.state.node[pods] >= 0).sum())

    def _arrive(self, pods: Integers, moves: int, *, movable: bool) -> None:
        from flowlex.models.pods.search.ejection_chains import arrive

        if len(pods):
            known = self.state, self.scores, self.policy, pods, moves, self.dead, self.rng, movable
            self.moved += int(arrive(*known))

    def _gang(self, gang: int, wanted: Integers) -> None:
        """Place all pods of a gang in the domain with the least free resources that fits, or none of them."""
        from flowlex.models.pods.search.ejection_chains import depart

        view, state, rules = self.view, self.state, self.view.rules
        members = np.flatnonzero((rules.gang == gang) & (state.node < 0))
        if len(members) < rules.limit[gang] or not np.isin(members, wanted).all():
            return
        members = members[np.argsort(-view.load.most()[members], kind="stable")]
        for d in _domains(view, state, gang, members):
            spot = rules.offset[gang] + d
            state.room[spot] = rules.limit[gang]
            for k in range(len(members)):
                if not self._one(members[k : k + 1]):
                    break
                self.freed(members)
            if (state.node[members] >= 0).all():
                return
            depart(state, self.scores, members, self.dead)
            state.room[spot] = 0
            self.freed(members)


def _domains(view: PodArrays, state: SearchState, gang: int, members: Integers) -> list[int]:
    """Domains with enough total free cores and memory, those with the least free GPU memory first."""
    rules, exact = view.rules, view.exact
    of_node = rules.domain[rules.topology[gang]]
    there = of_node >= 0
    free = np.zeros((int(of_node.max(initial=-1)) + 1, 3))
    np.add.at(free[:, :2], of_node[there], state.free[there].astype(np.float64))
    np.add.at(free[:, 2], of_node[there], np.maximum(state.card_free, 0).sum(axis=1)[there].astype(np.float64))
    asked = np.array([exact.cpu[members].sum(dtype=float), exact.memory[members].sum(dtype=float)])
    enough = np.all(free[:, :2] >= asked * (1 - 1e-9), axis=1)
    order = np.lexsort((free[:, 0], free[:, 2]))
    return [int(d) for d in order if enough[d]]
