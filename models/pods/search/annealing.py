"""The search for even loads from above: seeded annealing by moves and exchanges of pods, compiled."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.expression import Floats, Integers
from flowlex.instances.pods import PodInstance
from flowlex.models.pods.problem.cluster import Cluster
from flowlex.models.pods.solution import pack_cards
from flowlex.validation.certificates.pods import balance_of

__all__ = ["SearchState", "anneal_cluster", "even_clusters"]

#: Steps of one call into the compiled loop, so that a time limit is kept.
_BATCH = 500_000
#: Steps of one run, per pod and at most; runs with different seeds.
_STEPS_PER_POD, _MOST_STEPS, _RUNS = 3_000, 10_000_000, 3
#: First temperature of runs that start from a good answer.
_MILD = 0.003
#: Temperatures fall from the first to the last share of the typical cost of a move.
_HOT, _COLD = 0.3, 3e-5


class SearchState(NamedTuple):
    """What the compiled loop changes. Sizes: P pods, N nodes, K cards of a node.

    Attributes
    ----------
    load, allowed, gpu
        (P, N) as in `PodArrays`; ``gpu`` is per node when cards are not told apart.
    cpu, memory, many, movable
        (P,).
    node, loads, free, card_free, used
        The placement: (P,), (N,), (N, 2), (N, K), (P,) cards as bits.
    head, after, before, many_on
        Linked lists of the pods of each node.
    """

    load: Floats
    allowed: NDArray[np.bool_]
    cpu: Floats
    memory: Floats
    gpu: Floats
    many: Integers
    movable: NDArray[np.bool_]
    node: Integers
    loads: Floats
    free: Floats
    card_free: Floats
    used: NDArray[np.uint64]
    head: Integers
    after: Integers
    before: Integers
    many_on: Integers

    @classmethod
    def of(cls, cluster: Cluster) -> SearchState:
        """Copy a cluster's placement; pods that run already stay where they are."""
        view = cluster.view
        pods, nodes = len(view.cpu), len(view.cards)
        used = np.zeros(pods, np.uint64)
        for pod, cards in cluster.used_cards.items():
            used[pod] = sum(1 << int(card) for card in cards)
        head, count = np.full(nodes, -1), np.zeros(nodes, np.int64)
        after, before = np.full(pods, -1), np.full(pods, -1)
        for pod, node in enumerate(cluster.node.tolist()):
            if node >= 0:
                after[pod] = head[node]
                if head[node] >= 0:
                    before[head[node]] = pod
                head[node] = pod
                count[node] += 1
        many = view.gpu_cards if cluster.cards else np.minimum(view.gpu_cards, 1)
        gpu = view.gpu if cluster.cards else view.gpu * view.gpu_cards[:, None]
        return cls(
            view.load,
            view.allowed & ((many[:, None] == 0) | (view.cards > 0)),
            view.cpu,
            view.memory,
            gpu,
            many,
            (view.running < 0) & (cluster.node >= 0),
            cluster.node.copy(),
            cluster.loads.copy(),
            cluster.free.copy(),
            cluster.card_free.copy(),
            used,
            head,
            after,
            before,
            count,
        )

    def cluster(self, instance: PodInstance, *, cards: bool) -> Cluster:
        """The placement as a cluster."""
        if cards:
            bits = np.arange(64, dtype=np.uint64)
            placed = np.flatnonzero((self.node >= 0) & (self.many > 0))
            chosen = {int(p): np.flatnonzero((self.used[p] >> bits) & np.uint64(1)) for p in placed}
            return pack_cards(instance, self.node, chosen)
        cluster = Cluster(instance.arrays, cards=False)
        for pod in np.flatnonzero(self.node >= 0).tolist():
            cluster.add(pod, int(self.node[pod]))
        return cluster


def anneal_cluster(
    instance: PodInstance,
    cluster: Cluster,
    measure: str,
    *,
    seed: int,
    steps: int,
    until: float | None = None,
    target: float | None = None,
    heat: float = _HOT,
) -> Cluster:
    """One run of annealing; the answer may be worse than what it started from.

    Parameters
    ----------
    seed
        The same seed, cluster and steps give the same answer, unless time runs out.
    until
        Stop at this `time.perf_counter`.
    target
        For ``max_load``: the largest load sought (by default a little below that of the cluster).
    heat
        First temperature, as a share of the typical cost of a move.
    """
    from flowlex.models.pods.search.kernels import anneal

    state = SearchState.of(cluster)
    pods = np.flatnonzero(state.movable)
    if len(pods) < 2 or len(state.loads) < 2:
        return cluster
    mode = {"deviation": 0, "mean_absolute": 1, "max_load": 2}[measure]
    centre = float(state.loads.mean()) if target is None else target
    if mode == 2 and target is None:
        centre = balance_of(state.loads, measure) * 0.995
    typical = float(np.median(state.load[pods].min(axis=1)))
    scale = max(typical, 1e-9) ** (1 if mode == 1 else 2)
    rng, batches = np.random.default_rng(seed), max(1, -(-steps // _BATCH))
    heats = scale * heat * (_COLD / heat) ** (np.arange(batches + 1) / batches)
    for k in range(batches):
        if until is not None and time.perf_counter() >= until:
            break
        if mode == 1:
            centre = float(state.loads.mean())
        size = min(_BATCH, steps - k * _BATCH)
        cost = anneal(state, pods, mode, centre, heats[k], heats[k + 1], size, rng)
        if mode == 2 and cost < 1e-18:
            break
    return state.cluster(instance, cards=cluster.cards)


def even_clusters(
    instance: PodInstance, start: Cluster, measure: str, *, least: float, seed: int, until: float
) -> list[Cluster]:
    """Several good answers, the best first, the start among them.

    The deviation is annealed from ``start`` with several seeds. Other measures go on from there: the mean absolute
    deviation at a low temperature, the largest load towards targets between the best so far and ``least``, its
    lower bound.
    """
    steps = int(np.clip(_STEPS_PER_POD * len(instance.pods), _BATCH, _MOST_STEPS))

    def run(cluster: Cluster, measure: str, k: int, **more: float) -> Cluster:
        return anneal_cluster(instance, cluster, measure, seed=seed * 101 + k, steps=steps, until=until, **more)

    found = [start, *(run(start, "deviation", k) for k in range(_RUNS))]
    found.sort(key=lambda cluster: balance_of(cluster.loads, measure))
    if measure == "mean_absolute":
        found += [run(found[k], measure, _RUNS + k, heat=_MILD) for k in range(_RUNS)]
    if measure == "max_load":
        for k in range(2 * _RUNS):
            value = balance_of(found[0].loads, measure)
            target = 0.5 * (least + value)
            found.insert(0, run(found[0], measure, _RUNS + k, target=target, heat=_MILD))
            if balance_of(found[0].loads, measure) > target + 1e-9:
                least = target  # not met: aim less high
            found.sort(key=lambda cluster: balance_of(cluster.loads, measure))
    return sorted(found, key=lambda cluster: balance_of(cluster.loads, measure))
