"""Names of the policies that place pods one by one; `flowlex.models.pods.methods.compiled_policies` describes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.instances.pod_rule_arrays import GANG, SKEW
from flowlex.instances.pods import PodArrays
from flowlex.models.pods.methods.search_state import SearchState
from flowlex.models.pods.problem.cluster import Cluster
from flowlex.models.pods.problem.group_rules import room

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Name to number in `flowlex.models.pods.methods.compiled_policies`.
POLICIES = {
    "first-fit": 0,
    "best-fit": 1,
    "dot-product": 2,
    "gpu-clustering": 3,
    "gpu-packing": 4,
    "fgd": 5,
    "kubernetes": 6,
    "random": 7,
}
#: Policy with the least deviation of loads; not a baseline, but the initial placement of the balance.
EVEN = 8
#: Default requests of Kubernetes in scores: 0.1 cores, 200 MB.
_DEFAULT = (0.1, 200 / 1024)
#: Largest number of cached scores (kinds of pods times nodes).
_TABLE = 20_000_000


def workload(view: PodArrays) -> Floats:
    """(R, 5) kinds of pods: number, share of all pods, cores, memory (exact), cards."""
    rows, first = np.unique(view.load.row, return_index=True)
    count = np.bincount(view.load.row, minlength=len(rows)).astype(np.float64)
    exact = view.exact
    table = (rows, count / max(1.0, count.sum()), exact.cpu[first], exact.memory[first], view.gpu_cards[first])
    return np.stack([np.asarray(column, np.float64) for column in table], axis=1)


def in_order(level: Integers, *keys: Floats | Integers) -> Integers:
    """Pods with a level, sorted by level, then by descending keys, then as listed."""
    pods = np.flatnonzero(level >= 0)
    order: Integers = pods[np.lexsort((pods, *(-key[pods] for key in keys[::-1]), level[pods]))]
    return order


def by_priority(view: PodArrays) -> Integers:
    """Waiting pods, the most important first, then as listed."""
    _, level = np.unique(-view.priority, return_inverse=True)
    return in_order(np.where(view.running < 0, level, -1))


class Scores(NamedTuple):
    """Parameters of scores besides the placement, and cached scores. Sizes as in `SearchState`."""

    # whole, size: (N, 2) cores and memory of the empty nodes, (N,) memory of a card; exact
    whole: Integers
    size: Integers
    top: Floats  # (3,) the largest node's cores, memory and GPU memory
    kinds: Floats  # (T, 5) the workload, see `workload`
    default: Integers  # (2,) default requests of Kubernetes
    # cost, known, version: (R, N) cached scores, (R, N) node versions they belong to, (N,) present version of each
    # node, which every change increases
    cost: Floats
    known: NDArray[np.int32]
    version: NDArray[np.int32]
    total: Floats  # (1,) the sum of all loads

    @classmethod
    def of(cls, cluster: Cluster) -> Scores:
        """Make an empty cache; scores are cached only if the table is small enough."""
        view, exact = cluster.view, cluster.view.exact
        units = [_unit(sizes, held) for sizes, held in zip(exact.node.T, view.capacity.T[1:], strict=True)]
        rows, nodes = exact.gpu.table.shape[0], len(view.cards)
        rows_kept = rows if rows * nodes <= _TABLE else 1
        gpu = exact.card * view.cards
        return cls(
            exact.node,
            exact.card if cluster.cards else gpu,
            np.array([*np.maximum(exact.node.max(axis=0), 1), gpu.max()], np.float64),
            workload(view),
            np.array([round(asked * unit) for asked, unit in zip(_DEFAULT, units, strict=True)], np.int64),
            np.zeros((rows_kept, nodes)),
            np.zeros((rows_kept, nodes), np.int32),
            np.ones(nodes, np.int32),
            np.array([cluster.loads.sum()]),
        )


def _unit(exact: Integers, size: Floats) -> float:
    """Exact units per core or GB."""
    largest = int(size.argmax())
    return float(exact[largest] / size[largest])


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
        self.dead = np.zeros((moves + 1, self.state.gpu.shape[0]), np.bool_)  # see `compiled_policies`
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
        from flowlex.models.pods.methods.compiled_policies import arrive

        if len(pods):
            known = self.state, self.scores, self.policy, pods, moves, self.dead, self.rng, movable
            self.moved += int(arrive(*known))

    def _gang(self, gang: int, wanted: Integers) -> None:
        """Place all pods of a gang in the domain with the least free resources that fits, or none of them."""
        from flowlex.models.pods.methods.compiled_policies import depart

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
