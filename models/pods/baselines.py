"""Baselines of pod placement: policies that place one pod after another, and the paper's genetic algorithm.

In addition, ``priority-queue`` is the paper's rule (the most important pod first, on the node that balances the loads
best; a pod that does not fit waits, and the next one is tried), and ``whole-cards`` is Kubernetes without GPU sharing
(pods in order of submission, whole cards, no priority; a pod without an idle card stays pending).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.deferred_compilation import with_small_work
from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import EngineName
from flowlex.instances.pods import PodInstance
from flowlex.models.model_base import ModelError
from flowlex.models.pods.genetic_algorithm import Evolution, GeneticSettings, genetic
from flowlex.models.pods.methods.placement_policies import EVEN, POLICIES, by_priority, place_by
from flowlex.models.pods.problem.cluster import Cluster, deviation, packed_running
from flowlex.models.pods.problem.group_rules import broken_rules

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BASELINES", "POLICIES", "Evolution", "GeneticSettings", "compare", "genetic", "place"]

BASELINES = (*POLICIES, "priority-queue", "whole-cards")


@with_small_work
def place(instance: PodInstance, policy: str, *, seed: int = 0) -> Cluster:
    """Place pods by a baseline (`BASELINES`), in order of priority, then as listed; pods that do not fit wait.

    Raises `ModelError` if there is no such policy, or the running pods do not fit their cards.
    """
    if policy not in BASELINES:
        raise ModelError(f"there is no policy {policy!r}; there are: {', '.join(BASELINES)}")
    if policy == "whole-cards":
        return _whole_cards(instance)
    start = packed_running(instance.arrays)
    return place_by(POLICIES.get(policy, EVEN), start, by_priority(instance.arrays), seed=seed)


def _whole_cards(instance: PodInstance) -> Cluster:
    """Place pods in order of submission, alone on their cards, each on the node with the best Kubernetes score."""
    view, cluster = instance.arrays, packed_running(instance.arrays)
    size, whole = view.exact.card, view.exact.node.astype(np.float64)
    waiting = np.flatnonzero(view.running < 0)
    created = np.array([instance.pods[p].created_s or 0.0 for p in waiting.tolist()])
    for pod in waiting[np.argsort(created, kind="stable")].tolist():
        many = int(view.gpu_cards[pod])
        idle = (cluster.card_free == size[:, None]) & (size[:, None] > 0)
        fits = idle.sum(axis=1) >= many
        fits[fits] = [cluster.fits_node(pod, n) for n in np.flatnonzero(fits).tolist()]
        if not fits.any():
            continue
        asked = np.array([view.exact.cpu[pod], view.exact.memory[pod]])
        node = int(np.argmax(np.where(fits, _kubernetes(whole, cluster.free - asked), -1.0)))
        cluster.add(pod, node, np.flatnonzero(idle[node])[:many])
    if broken := broken_rules(view, cluster.node):
        raise ModelError(f"{broken[0]} cannot be kept by the baseline whole-cards, which knows no rules over pods")
    return cluster


def _kubernetes(whole: Floats, free: Floats) -> Floats:
    """(N,) sum of the scores LeastAllocated and BalancedAllocation (0 to 100 each) for remaining cores and memory."""
    left = free / whole
    points: Floats = np.floor(100 * left).sum(axis=1) // 2 + np.floor(100 * (1 - np.abs(left[:, 0] - left[:, 1]) / 2))
    return points


@with_small_work
def compare(
    instance: PodInstance, *, engine: EngineName = "highs", time_limit_s: float = 60.0, seed: int = 0
) -> pd.DataFrame:
    """Compare admitted pods, balance and seconds of the optimum and of every baseline.

    Balances are comparable only for the same admitted pods. So ``sigma, same pods`` is the best balance found for the
    pods of each row, with a twentieth of the time limit. The genetic algorithm places the pods that the optimum admits.
    """
    import pandas as pd

    from flowlex.models.pods.model import PodPlacement

    rows, known = [], dict[bytes, float]()

    def least(cluster: Cluster | None) -> float | None:
        if cluster is None:
            return None
        placed = cluster.node >= 0
        if placed.tobytes() not in known:
            some = tuple(pod for pod, there in zip(instance.pods, placed.tolist(), strict=True) if there)
            alone = PodPlacement(instance.model_copy(update={"pods": some}))
            answer = alone.solve(engine, time_limit_s=max(1.0, time_limit_s / 20))
            all_there = answer.status.has_answer and bool((answer.node >= 0).all())
            known[placed.tobytes()] = min(
                deviation(cluster.loads), float(answer.objective or 0.0) if all_there else np.inf
            )
        return known[placed.tobytes()]

    started = time.perf_counter()
    solution = PodPlacement(instance).solve(engine, time_limit_s=time_limit_s)
    solution.require_answer()
    known[(solution.node >= 0).tobytes()] = float(solution.objective or 0.0)
    rows.append(_row(instance, f"optimum ({solution.status})", solution.cluster, started))
    started = time.perf_counter()
    evolution = genetic(instance, solution.node >= 0, seed=seed)
    rows.append(_row(instance, "genetic algorithm", evolution.cluster, started))
    clusters = [solution.cluster, evolution.cluster]
    for policy in BASELINES:
        started = time.perf_counter()
        clusters.append(place(instance, policy, seed=seed))
        rows.append(_row(instance, policy, clusters[-1], started))
    table = pd.DataFrame(rows).set_index("method")
    table.insert(list(table.columns).index("sigma") + 1, "sigma, same pods", [least(cluster) for cluster in clusters])
    return table


def _row(
    instance: PodInstance, method: str, cluster: Cluster | None, started: float
) -> dict[str, str | float | int | None]:
    row: dict[str, str | float | int | None] = {"method": method}
    fresh = instance.arrays.running < 0
    for priority in sorted(set(instance.arrays.priority[fresh].tolist()), reverse=True):
        of_class = fresh & (instance.arrays.priority == priority)
        row[f"admitted, priority {priority}"] = None if cluster is None else int((cluster.node[of_class] >= 0).sum())
    row["sigma"] = None if cluster is None else deviation(cluster.loads)
    row["largest load"] = None if cluster is None else float(cluster.loads.max())
    row["seconds"] = time.perf_counter() - started
    return row
