"""The paper's genetic algorithm: a chromosome is a node for each pod, new or running."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Floats, Integers
from flowlex.instances.pods import PodInstance
from flowlex.models.base import ModelError
from flowlex.models.pods.moves import move_cost_of
from flowlex.models.pods.problem.cluster import Cluster, deviation
from flowlex.models.pods.problem.rules import broken_rules
from flowlex.models.pods.problem.running import running_cluster
from flowlex.models.pods.search.placing import place_by
from flowlex.models.pods.search.policies import POLICIES, by_priority

__all__ = ["Evolution", "GeneticSettings", "genetic"]


@dataclass(frozen=True)
class GeneticSettings:
    """Sizes of the genetic algorithm; the paper's are lost, these are ours.

    Attributes
    ----------
    crossover_points, mutation_points
        Where a child changes from one parent to the other, and how many of its pods get a node at random.
    attempts
        Random chromosomes drawn at most for the first population.
    """

    population: int = 40
    generations: int = 60
    crossover_points: int = 2
    mutation_points: int = 1
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
    move_budget: float = 0.0,
    settings: GeneticSettings | None = None,
) -> Evolution:
    """Even the loads out by evolution.

    Random population, infeasible ones thrown away; the better half stays (smaller is better: the paper discards "the
    lower" half, which contradicts it); multi-point crossover and mutation; children that overflow a node, break a rule
    or move too much are thrown away.

    Parameters
    ----------
    admitted
        (P,) which pods to place; by default those that first fit admits.
    move_budget
        Running pods that may move at this total cost are part of the chromosome; where one goes, its parents and
        chance decide.
    """
    settings, rng = settings or GeneticSettings(), np.random.default_rng(seed)
    view = instance.arrays
    if admitted is None:
        start = running_cluster(view, cards=cards)
        admitted = (
            view.running >= 0 if start is None else place_by(POLICIES["first-fit"], start, by_priority(view)).node >= 0
        )
    moving = (view.running >= 0) & np.isfinite(view.move_cost) & (view.move_cost <= move_budget)
    pods = np.flatnonzero(admitted & ((view.running < 0) | moving))
    base = _packed(Cluster(view, cards=cards), *_at(view.running, (view.running >= 0) & admitted & ~moving))
    if base is None:
        raise ModelError("the running pods do not pack on their cards in falling order of size")
    choices = [np.flatnonzero(view.allowed[pod] & ((view.gpu_cards[pod] == 0) | (view.cards > 0))) for pod in pods]
    pool: dict[tuple[int, ...], float] = {}
    if moving[pods].any() and (view.running[pods] >= 0).all():  # everything where it is
        _judge(pool, base, pods, view.running[pods], move_budget)
    tried = 0
    while len(pool) < settings.population and tried < settings.attempts and all(len(c) for c in choices):
        tried += 1
        drawn = np.array([rng.choice(c) for c in choices], np.int64)
        stay = moving[pods] & (rng.random(len(pods)) < 0.5)
        _judge(pool, base, pods, np.where(stay, view.running[pods], drawn), move_budget)
    curve = []
    for _ in range(settings.generations if pool else 0):
        parents = sorted(pool, key=lambda c: (pool[c], c))[: max(2, settings.population // 2)]
        pool = {parent: pool[parent] for parent in parents}
        for _ in range(settings.population - len(parents)):
            tried += 1
            a, b = (np.array(parents[int(i)], np.int64) for i in rng.integers(len(parents), size=2))
            child = _crossed(a, b, settings.crossover_points, rng)
            for g in rng.permutation(len(pods))[: settings.mutation_points].tolist():
                child[g] = rng.choice(choices[g])
            _judge(pool, base, pods, child, move_budget)
        curve.append(min(pool.values()))
    best = min(pool, key=lambda c: (pool[c], c), default=None)
    cluster = None if best is None else _packed(base, pods, np.array(best, np.int64))
    return Evolution(cluster, np.array(curve), tried)


def _at(running: Integers, chosen: NDArray[np.bool_]) -> tuple[Integers, Integers]:
    pods = np.flatnonzero(chosen)
    return pods, running[pods]


def _crossed(a: Integers, b: Integers, points: int, rng: np.random.Generator) -> Integers:
    """The genes of one parent up to a point, then those of the other up to the next, and so on."""
    cuts = np.sort(rng.permutation(max(0, len(a) - 1))[:points] + 1)
    from_b = np.searchsorted(cuts, np.arange(len(a)), side="right") % 2 == 1
    return np.where(from_b, b, a)


def _judge(pool: dict[tuple[int, ...], float], base: Cluster, pods: Integers, nodes: Integers, budget: float) -> None:
    """Take a chromosome into the pool if it is feasible."""
    cluster = _packed(base, pods, nodes)
    if cluster is None or broken_rules(base.view, cluster.node) or move_cost_of(base.view, cluster.node) > budget:
        return
    pool[tuple(nodes.tolist())] = deviation(cluster.loads)


def _packed(base: Cluster, pods: Integers, nodes: Integers) -> Cluster | None:
    """Place the pods, the largest GPU pods first; None when one does not fit."""
    view, cluster = base.view, base.copy()
    need = view.gpu[pods, nodes] * view.gpu_cards[pods] if len(pods) else np.zeros(0)
    for k in np.argsort(-need, kind="stable").tolist():
        if not cluster.fits_node(int(pods[k]), int(nodes[k])):
            return None
        cluster.add(int(pods[k]), int(nodes[k]))
    return cluster
