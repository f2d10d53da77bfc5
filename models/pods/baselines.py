"""Baselines of pod placement: policies that place one pod after another, and the paper's genetic algorithm."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Floats, Integers
from flowlex.formulations.outcome import EngineName
from flowlex.instances.pods import PodInstance
from flowlex.models.base import ModelError
from flowlex.models.pods.problem.cluster import Cluster, deviation
from flowlex.models.pods.problem.rules import broken_rules
from flowlex.models.pods.problem.running import running_cluster
from flowlex.models.pods.search.placing import place_by
from flowlex.models.pods.search.policies import POLICIES, by_priority

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["POLICIES", "Evolution", "GeneticSettings", "compare", "genetic", "place"]


def place(instance: PodInstance, policy: str, *, cards: bool = True, seed: int = 0) -> Cluster:
    """Place pods by priority, then as listed, each where a policy says (`POLICIES`); what does not fit waits.

    Raises
    ------
    ModelError
        There is no such policy, or the running pods do not pack on their cards.
    """
    if policy not in POLICIES:
        raise ModelError(f"there is no policy {policy!r}; there are: {', '.join(POLICIES)}")
    start = _running(instance, cards)
    return place_by(POLICIES[policy], start, by_priority(instance.arrays), seed=seed)


def _running(instance: PodInstance, cards: bool) -> Cluster:
    start = running_cluster(instance.arrays, cards=cards)
    if start is None:
        raise ModelError("the running pods do not pack on their cards in falling order of size")
    return start


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
        admitted = place(instance, "first-fit", cards=cards).node >= 0
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
    return None if broken_rules(view, cluster.node) else cluster


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
    for policy in POLICIES:
        started = time.perf_counter()
        rows.append(_row(instance, policy, place(instance, policy, seed=seed), started))
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
