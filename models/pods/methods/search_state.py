"""The state of a placement in the compiled searches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Floats, Integers, frozen
from flowlex.instances.pod_rule_arrays import SKEW
from flowlex.instances.pods import PodArrays
from flowlex.models.pods.problem.cluster import Cluster
from flowlex.models.pods.problem.group_rules import room


class SearchState(NamedTuple):
    """A placement for compiled loops. Sizes: P pods, N nodes, R kinds of pods, C of nodes, K cards of a node."""

    # row, column: (P,), (N,) kind of each pod and node
    row: Integers
    column: Integers
    # load, allowed, gpu: (R, C) as in `PodArrays`; ``gpu`` in exact units, per node if cards are not modelled
    load: Floats
    allowed: NDArray[np.bool_]
    gpu: Integers
    # cpu, memory, many, pin, movable: (P,) exact sizes, number of cards, node to which a running pod is fixed (else
    # -1), and whether a search may move a pod (False for running and for waiting pods)
    cpu: Integers
    memory: Integers
    many: Integers
    pin: Integers
    # home, home_cards: (P,) node of a running pod, else -1, and its cards there as bits; 0 if it may use any
    home: Integers
    home_cards: NDArray[np.uint64]
    movable: NDArray[np.bool_]
    # node, loads, free, card_free, used: the placement: (P,), (N,), (N, 2), (N, K), (P,) cards as bits
    node: Integers
    loads: Floats
    free: Integers
    card_free: Integers
    used: NDArray[np.uint64]
    # compute, compute_free: (P,) compute need on each card, (N, K) free compute
    compute: Integers
    compute_free: Integers
    # head, after, before, many_on: linked lists of the pods of each node
    head: Integers
    after: Integers
    before: Integers
    many_on: Integers
    # rule_start, rule, amount, domain, topology, offset: as in `flowlex.instances.pod_rule_arrays.SideRules`
    rule_start: Integers
    rule: Integers
    amount: Integers
    domain: Integers
    topology: Integers
    offset: Integers
    room: Integers  # amount that each domain may still take, see `flowlex.models.pods.problem.group_rules.room`

    @classmethod
    def of(cls, cluster: Cluster) -> SearchState:
        """Copy a cluster's placement."""
        view, exact, cards = cluster.view, cluster.view.exact, cluster.cards
        used = np.zeros(len(view.cpu), np.uint64)
        for pod, chosen in cluster.used_cards.items():
            used[pod] = sum(1 << int(card) for card in chosen)
        many, with_gpu = _by_kind(view)
        # Always read-only: numba treats a writable array as another type and would compile all loops again.
        return cls(
            exact.gpu.row,
            exact.gpu.column,
            view.load.table,
            view.allowed.table & ((many[:, None] == 0) | with_gpu),
            exact.gpu.table if cards else frozen(exact.gpu.table * many[:, None]),
            exact.cpu,
            exact.memory,
            view.gpu_cards if cards else frozen(np.minimum(view.gpu_cards, 1)),
            view.running,
            view.running,
            frozen(np.where(cluster.home, view.home_cards, np.uint64(0))),
            (view.running < 0) & (cluster.node >= 0) & ~view.rules.members(SKEW),
            cluster.node.copy(),
            cluster.loads.copy(),
            cluster.free.copy(),
            cluster.card_free.copy(),
            used,
            exact.compute if cards else frozen(exact.compute * view.gpu_cards),
            cluster.compute_free.copy(),
            *_linked(cluster.node, len(view.cards)),
            view.rules.start,
            view.rules.rule,
            view.rules.amount,
            view.rules.domain,
            view.rules.topology,
            view.rules.offset,
            room(view, cluster.node),
        )

    def cluster(self, start: Cluster) -> Cluster:
        """Return the placement as a cluster of the same kind as ``start``."""
        bits = np.arange(self.card_free.shape[1], dtype=np.uint64)
        placed = np.flatnonzero((self.node >= 0) & (self.many > 0))
        of, card = np.nonzero((self.used[placed, None] >> bits) & np.uint64(1))
        chosen = np.split(card, np.searchsorted(of, np.arange(1, len(placed)))) if len(placed) else []
        return Cluster.of(start.view, self.node, dict(zip(placed.tolist(), chosen, strict=True)), cards=start.cards)


def _by_kind(view: PodArrays) -> tuple[Integers, NDArray[np.bool_]]:
    """(R,) number of cards of each kind of pods, and (C,) whether each kind of nodes has cards."""
    gpu = view.exact.gpu
    kinds, first = np.unique(gpu.row, return_index=True)
    many, with_gpu = np.zeros(gpu.table.shape[0], np.int64), np.zeros(gpu.table.shape[1], np.bool_)
    many[kinds] = view.gpu_cards[first]
    with_gpu[gpu.column] = view.cards > 0
    return many, with_gpu


def _linked(node: Integers, nodes: int) -> tuple[Integers, Integers, Integers, Integers]:
    """Linked lists: first pod of each node, next and previous pod of each pod, and number of pods of each node."""
    head, after, before = np.full(nodes, -1), np.full(len(node), -1), np.full(len(node), -1)
    for pod in np.flatnonzero(node >= 0).tolist():
        first = head[node[pod]]
        after[pod] = first
        if first >= 0:
            before[first] = pod
        head[node[pod]] = pod
    return head, after, before, np.bincount(node[node >= 0], minlength=nodes)
