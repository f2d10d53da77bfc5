"""The search for even loads from above: seeded annealing by moves and exchanges of pods, compiled."""

from __future__ import annotations

import time

import numpy as np

from flowlex.models.pods.problem.cluster import Cluster
from flowlex.models.pods.problem.measures import MEASURES, Measure
from flowlex.models.pods.search.state import SearchState

__all__ = ["anneal_cluster", "even_clusters"]

#: Steps of one call into the compiled loop, so that a time limit is kept.
_BATCH = 500_000
#: Runs with different seeds.
_RUNS = 3
#: First temperature of runs that start from a good answer.
_MILD = 0.003
#: Temperatures fall from the first to the last share of the typical cost of a move.
_HOT, _COLD = 0.3, 3e-5


def anneal_cluster(
    cluster: Cluster,
    measure: Measure,
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
    mode = measure.mode
    centre = float(state.loads.mean()) if target is None else target
    if mode == 2 and target is None:
        centre = measure.value(state.loads) * 0.995
    typical = float(np.median(state.load.min(axis=1)[state.row[pods]]))
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
    return state.cluster(cluster)


def even_clusters(
    start: Cluster, measure: Measure, *, least: float, enough: float, seed: int, until: float | None, steps: int
) -> list[Cluster]:
    """Several good answers, the best first, the start among them; no more once one is as even as ``enough``.

    The deviation is annealed from ``start`` with several seeds. Other measures go on from there: the mean absolute
    deviation at a low temperature, the largest load towards targets between the best so far and ``least``, its
    lower bound.
    """
    found = [start]

    def run(cluster: Cluster, by: Measure, k: int, **more: float) -> None:
        if measure.value(found[0].loads) > enough:
            found.append(anneal_cluster(cluster, by, seed=seed * 101 + k, steps=steps, until=until, **more))
            found.sort(key=lambda each: measure.value(each.loads))

    for k in range(_RUNS):
        run(start, MEASURES["deviation"], k)
    if measure.centred and not measure.curved:
        for k, cluster in enumerate(found[:_RUNS]):
            run(cluster, measure, _RUNS + k, heat=_MILD)
    for k in range(0 if measure.centred else 2 * _RUNS):
        target = 0.5 * (least + measure.value(found[0].loads))
        run(found[0], measure, _RUNS + k, target=target, heat=_MILD)
        if measure.value(found[0].loads) > target + 1e-9:
            least = target  # not met: aim less high
    return found
