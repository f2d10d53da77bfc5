"""Pod placement: Sun et al. (about 2023): balance on the testbed, convergence of the genetic algorithm, the queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from flowlex.instances.generators import generate
from flowlex.instances.pods import PodInstance
from flowlex.models.pods.baselines import GeneticSettings, genetic, place
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.problem.cluster import Cluster, deviation
from flowlex.systems.simulation.cluster import simulate_cluster
from flowlex.systems.simulation.cluster.run_metrics import figures
from flowlex.systems.simulation.event_log import RunLog
from flowlex.systems.simulation.experiments.cluster_runs import made, workload

#: Gap to which the balance is proven, as a fraction of a node's load; most nodes of the search tree.
_GAP, _STEPS = 1e-3, 500


def balance(seed: int, quick: bool, *, pods: int = 12, draws: str = "digits") -> Mapping[str, float]:
    """Measure sigma, waiting pods and use by resource of the optimum (within `_GAP`) on the testbed."""
    instance = cast(PodInstance, generate("kubeflow-testbed", seed=seed, pods=pods, draws=draws))
    cluster, bound = _best(instance)
    waiting = np.count_nonzero(np.asarray(cluster.node) < 0)
    used, spread = _use(instance, np.asarray(cluster.node))
    return {
        "sigma_optimum": deviation(cluster.loads),
        "bound": bound,
        "waiting": float(waiting),
        **{f"used_{name}": part for name, part in zip(_RESOURCES, used, strict=True)},
        **{f"spread_{name}": part for name, part in zip(_RESOURCES, spread, strict=True)},
        "gpu/next": float(used[0] / max(used[1:])),
    }


_RESOURCES = ("gpu", "cpu", "memory")


def _use(instance: PodInstance, node: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[list[float], list[float]]:
    """Return, by resource, the fraction in use, and its standard deviation over the nodes that have the resource."""
    has = np.array([(n.cards * n.card_gb, n.cpu_cores, n.memory_gb) for n in instance.nodes])
    wants = np.array([(p.gpu_memory_gb * p.gpu_cards, p.cpu_cores, p.memory_gb) for p in instance.pods])
    used = np.zeros_like(has)
    np.add.at(used, node[node >= 0], wants[node >= 0])
    parts = (used[has[:, r] > 0, r] / has[has[:, r] > 0, r] for r in range(len(_RESOURCES)))
    return (used.sum(axis=0) / has.sum(axis=0)).tolist(), [float(np.std(part)) for part in parts]


def _best(instance: PodInstance) -> tuple[Cluster, float]:
    """The proven optimum's placement, and the proven bound of its deviation."""
    solution = PodPlacement(instance, absolute_gap=_GAP).solve("highs", max_steps=_STEPS)
    assert solution.cluster is not None and solution.bound is not None  # pods may wait, so there is an answer
    return solution.cluster, float(solution.bound)


def native(seed: int, quick: bool, *, pods: int = 12) -> Mapping[str, float]:
    """Compare the paper's pipeline (backfilling queue by priority, then the genetic algorithm) with native Kubernetes.

    The deviations are those of the pods that native Kubernetes admits, placed by it and by the genetic algorithm.
    """
    instance = cast(PodInstance, generate("kubeflow-testbed", seed=seed, pods=pods))
    settings = GeneticSettings(attempts=500 if quick else 4_000)
    whole, queued = place(instance, "whole-cards"), place(instance, "priority-queue")
    found = genetic(instance, np.asarray(queued.node) >= 0, seed=seed, settings=settings).cluster or queued
    again = genetic(instance, np.asarray(whole.node) >= 0, seed=seed, settings=settings).cluster
    numbers = {}
    for name, cluster in (("native", whole), ("pipeline", found)):
        cards = Counter(
            (node, card) for pod, node in enumerate(cluster.node) for card in cluster.used_cards.get(pod, ())
        )
        numbers[f"per_card_{name}"] = float(max(cards.values(), default=0))
        numbers[f"pending_{name}"] = float(np.count_nonzero(np.asarray(cluster.node) < 0))
    return numbers | {
        "sigma_native": deviation(whole.loads),
        "sigma_pipeline": deviation(whole.loads if again is None else again.loads),
    }


def convergence(
    seed: int, quick: bool, *, generator: str = "pods-scale", populations: tuple[int, ...] = (10, 40, 100)
) -> Mapping[str, float]:
    """Measure the genetic algorithm's convergence to the proven optimum, for several population sizes."""
    scale = {"nodes": 3, "pods": 10} if quick else {"nodes": 4, "pods": 16}
    sizes = {"pods-scale": scale, "kubeflow-testbed": {"pods": 12}}[generator]
    instance = cast(PodInstance, generate(generator, seed=seed, **sizes))
    cluster, bound = _best(instance)
    best, numbers = deviation(cluster.loads), dict[str, float]()
    for population in populations:
        settings = GeneticSettings(population=population, attempts=200 if quick else 4_000)
        found = genetic(instance, np.asarray(cluster.node) >= 0, seed=seed, settings=settings)
        if found.cluster is None:  # no feasible chromosome was met
            continue
        gap = found.curve - best
        numbers |= {f"gap_{population}@{k + 1}": float(gap[k]) for k in range(0, len(gap), 3)}
        numbers |= {f"gap_{population}_1": float(gap[0]), f"gap_{population}_60": float(gap[-1])}
        numbers[f"converged_{population}"] = float(gap[-1] <= _GAP)
        numbers["below_bound"] = max(numbers.get("below_bound", 0.0), bound - float(found.curve[-1]))
    return numbers


def queue(seed: int, quick: bool, *, load: float = 1.3) -> Mapping[str, float]:
    """Measure waiting pods over time: by priority, in submission order, under FGD, and under the model each round."""
    work = workload("cluster-pods", seed=seed, load=load, pods=40 if quick else 200)
    numbers: dict[str, float] = {}
    for name, policy in _QUEUES.items():
        log = simulate_cluster(work, made(policy))
        waits: dict[int, list[float]] = {}
        ready = {record["job"]: record["at_s"] for record in log.of("ready")}
        level = {job.name: job.priority for job in work.jobs}
        for record in log.of("start"):
            waits.setdefault(level[record["job"]], []).append(record["at_s"] - ready[record["job"]])
        numbers |= {f"wait_s_{name}_{p}": float(np.mean(found)) for p, found in sorted(waits.items())}
        numbers |= {f"{figure}_{name}": figures(log)[figure] for figure in ("total_s", "wait_s", "utilisation")}
        numbers |= {f"waiting_{name}@{share:g}": many for share, many in _waiting(log).items()}
    return numbers


_QUEUES = {"priority": "priority", "submission": "FIFO", "fgd": "pods", "model": "PodPlacement"}


def _waiting(log: RunLog, points: int = 40) -> dict[float, float]:
    """Return the number of waiting pods by the elapsed fraction of the run."""
    changes = [(record["at_s"], 1 if record["event"] == "ready" else -1) for record in log.of("ready", "start")]
    times, count = np.array([at_s for at_s, _ in changes]), np.cumsum([step for _, step in changes])
    shares = np.arange(1, points + 1) / points
    at = np.searchsorted(times, shares * log.records[-1]["at_s"], side="right") - 1
    return {float(share): float(count[k]) if k >= 0 else 0.0 for share, k in zip(shares, at, strict=True)}
