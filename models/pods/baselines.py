"""Baselines of pod placement: first fit, the default Kubernetes scores, and the paper's genetic algorithm."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.expression import Floats, Integers
from flowlex.formulations.outcome import EngineName
from flowlex.instances.pods import PodInstance
from flowlex.models.base import ModelError
from flowlex.models.pods.problem.cluster import Cluster, deviation

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Evolution", "GeneticSettings", "compare", "first_fit", "genetic", "kubernetes"]


def first_fit(instance: PodInstance, *, cards: bool = True) -> Cluster:
    """Place pods by priority, each on the first node that takes it."""
    return _by_score(instance, cards, lambda cluster, pod, nodes: -nodes.astype(np.float64))


def kubernetes(instance: PodInstance, *, cards: bool = True) -> Cluster:
    """Place pods by priority, each where LeastAllocated plus BalancedAllocation is highest.

    LeastAllocated is the mean free share of cores and memory after placing; BalancedAllocation is 1 less the
    standard deviation of the two used shares. GPU memory filters nodes and does not score, as by default.
    """

    def score(cluster: Cluster, pod: int, nodes: Integers) -> Floats:
        view = cluster.view
        total = view.capacity[nodes, 1:]
        used = 1 - (cluster.free[nodes] - (view.cpu[pod], view.memory[pod])) / total
        points: Floats = (1 - used).mean(axis=1) + 1 - used.std(axis=1)
        return points

    return _by_score(instance, cards, score)


def _by_score(instance: PodInstance, cards: bool, score: Callable[[Cluster, int, Integers], Floats]) -> Cluster:
    cluster = _running(instance, cards)
    view = instance.arrays
    fresh = np.flatnonzero(view.running < 0)
    for pod in fresh[np.lexsort((fresh, -view.priority[fresh]))].tolist():
        nodes = np.flatnonzero(cluster.fits(pod))
        if len(nodes):
            cluster.add(pod, int(nodes[score(cluster, pod, nodes).argmax()]))
    return cluster


def _running(instance: PodInstance, cards: bool) -> Cluster:
    cluster = Cluster(instance.arrays, cards=cards)
    for pod in np.flatnonzero(instance.arrays.running >= 0).tolist():
        node = int(instance.arrays.running[pod])
        if not cluster.fits(pod)[node]:
            raise ModelError(
                f"the running pods do not pack on the cards of {instance.nodes[node].name!r} in this order"
            )
        cluster.add(pod, node)
    return cluster


@dataclass(frozen=True)
class GeneticSettings:
    """Sizes of the genetic algorithm; the paper's are lost, these are ours."""

    population: int = 40
    generations: int = 60
    mutation: float = 0.1
    attempts: int = 8_000


@dataclass(frozen=True)
class Evolution:
    """What the genetic algorithm found.

    Attributes
    ----------
    cluster
        The best chromosome's placement; None when no feasible one was met.
    curve
        (G,) least deviation after each generation.
    tried
        Chromosomes made, infeasible ones included.
    """

    cluster: Cluster | None
    curve: Floats = field(repr=False)
    tried: int

    @property
    def deviation(self) -> float:
        """The least deviation; infinite without a feasible chromosome."""
        return deviation(self.cluster.loads) if self.cluster is not None else float("inf")


def genetic(
    instance: PodInstance,
    admitted: NDArray[np.bool_] | None = None,
    *,
    seed: int = 0,
    cards: bool = True,
    settings: GeneticSettings | None = None,
) -> Evolution:
    """The paper's genetic algorithm: a chromosome is a node for each admitted pod.

    Random population, infeasible ones thrown away; the better half stays; multi-point crossover and mutation;
    children that overflow a node are thrown away.

    Parameters
    ----------
    admitted
        (P,) which pods to place; by default those that first fit admits.
    """
    settings, rng = settings or GeneticSettings(), np.random.default_rng(seed)
    view = instance.arrays
    if admitted is None:
        admitted = first_fit(instance, cards=cards).node >= 0
    pods = np.flatnonzero(admitted & (view.running < 0))
    base = _running(instance, cards)
    choices = [np.flatnonzero(view.allowed[pod] & ((view.gpu_cards[pod] == 0) | (view.cards > 0))) for pod in pods]
    tried = 0
    pool: dict[tuple[int, ...], float] = {}
    while len(pool) < settings.population and tried < settings.attempts and all(len(c) for c in choices):
        tried += 1
        _admit_chromosome(pool, base, pods, tuple(int(rng.choice(c)) for c in choices))
    curve = []
    for _ in range(settings.generations if pool else 0):
        parents = sorted(pool, key=lambda c: (pool[c], c))[: max(2, settings.population // 2)]
        pool = {parent: pool[parent] for parent in parents}
        for _ in range(settings.population - len(parents)):
            tried += 1
            a, b = (parents[int(i)] for i in rng.integers(len(parents), size=2))
            child = np.where(rng.random(len(pods)) < 0.5, a, b)
            for g in np.flatnonzero(rng.random(len(pods)) < settings.mutation):
                child[g] = rng.choice(choices[g])
            _admit_chromosome(pool, base, pods, tuple(int(n) for n in child))
        curve.append(min(pool.values()))
    best = min(pool, key=lambda c: (pool[c], c), default=None)
    cluster = None if best is None else _place(base, pods, best)
    return Evolution(cluster, np.array(curve), tried)


def _admit_chromosome(
    pool: dict[tuple[int, ...], float], base: Cluster, pods: Integers, chromosome: tuple[int, ...]
) -> None:
    cluster = _place(base, pods, chromosome)
    if cluster is not None:
        pool[chromosome] = deviation(cluster.loads)


def _place(base: Cluster, pods: Integers, chromosome: tuple[int, ...]) -> Cluster | None:
    """Place the pods, the largest GPU pods first; None when one does not fit."""
    view = base.view
    cluster = base.copy()
    nodes = np.array(chromosome, np.int64)
    need = view.gpu[pods, nodes] * view.gpu_cards[pods] if len(pods) else np.zeros(0)
    for k in np.argsort(-need, kind="stable").tolist():
        if not cluster.fits_node(int(pods[k]), int(nodes[k])):
            return None
        cluster.add(int(pods[k]), int(nodes[k]))
    return cluster


def compare(
    instance: PodInstance, *, engine: EngineName = "highs", time_limit_s: float = 60.0, seed: int = 0
) -> pd.DataFrame:
    """Admitted pods, balance and seconds of the proven optimum and of every baseline.

    The genetic algorithm places the pods that the optimum admits, so that the two balances compare.
    """
    import pandas as pd

    from flowlex.models.pods.model import PodPlacement

    rows = []
    started = time.perf_counter()
    solution = PodPlacement(instance).solve(engine, time_limit_s=time_limit_s)
    solution.require_answer()
    rows.append(_row(instance, f"optimum ({solution.status})", solution.cluster, started))
    started = time.perf_counter()
    evolution = genetic(instance, solution.node >= 0, seed=seed)
    rows.append(_row(instance, "genetic algorithm", evolution.cluster, started))
    for name, baseline in (("Kubernetes scores", kubernetes), ("first fit", first_fit)):
        started = time.perf_counter()
        rows.append(_row(instance, name, baseline(instance), started))
    return pd.DataFrame(rows).set_index("method")


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
