"""The paper's genetic algorithm: a chromosome is a node for each pod, new or running."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.deferred_compilation import with_small_work
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.pods import PodInstance
from flowlex.models.model_base import ModelError
from flowlex.models.pods.problem.group_rules import broken_rules
from flowlex.models.pods.problem.node_fill_state import Cluster, deviation
from flowlex.models.pods.problem.running_pods import packed_running
from flowlex.models.pods.relocation_phase import move_cost_of
from flowlex.models.pods.search.placement_policies import POLICIES, by_priority
from flowlex.models.pods.search.placement_steps import place_by

__all__ = ["Evolution", "GeneticSettings", "genetic"]


@dataclass(frozen=True)
class GeneticSettings:
    """Sizes of the genetic algorithm; the paper's are lost, these are ours."""

    population: int = 40
    generations: int = 60
    # crossover_points, mutation_points: where a child changes from one parent to the other, and how many of its pods
    # get a node at random
    crossover_points: int = 2
    mutation_points: int = 1
    attempts: int = 8_000  # random chromosomes drawn at most for the first population


@dataclass(frozen=True)
class Evolution:
    """What the genetic algorithm found."""

    cluster: Cluster | None  # the best chromosome's placement; None when no feasible one was met
    curve: Floats = field(repr=False)  # (G,) least deviation after each generation
    tried: int  # chromosomes made, infeasible ones included

    @property
    def deviation(self) -> float:
        """The least deviation; infinite without a feasible chromosome."""
        return deviation(self.cluster.loads) if self.cluster is not None else float("inf")


@with_small_work
def genetic(
    instance: PodInstance,
    admitted: NDArray[np.bool_] | None = None,
    *,
    seed: int = 0,
    move_budget: float = 0.0,
    settings: GeneticSettings | None = None,
) -> Evolution:
    """Even the loads out by evolution.

    Random population, infeasible ones thrown away; the better half stays (smaller is better: the paper discards "the
    lower" half, which contradicts it); multi-point crossover and mutation; children that overflow a node, break a rule
    or move too much are thrown away.

    ``admitted``: (P,) which pods to place; by default those that first fit admits. ``move_budget``: running pods that
    may move at this total cost are part of the chromosome; where one goes, its parents and chance decide.
    """
    settings, rng = settings or GeneticSettings(), np.random.default_rng(seed)
    view = instance.arrays
    if admitted is None:
        admitted = place_by(POLICIES["first-fit"], packed_running(view), by_priority(view)).node >= 0
    moving = (view.running >= 0) & np.isfinite(view.move_cost) & (view.move_cost <= move_budget)
    staying = np.flatnonzero((view.running >= 0) & admitted & ~moving)
    base = _packed(Cluster(view), staying, view.running[staying])
    if base is None:
        raise ModelError("the running pods do not pack on their cards in falling order of size")
    people = _People(base, np.flatnonzero(admitted & ((view.running < 0) | moving)), move_budget, rng)
    people.settle(settings, moving)
    curve = [people.breed(settings) for _ in range(settings.generations if people.pool else 0)]
    best = people.best(1)
    cluster = _packed(base, people.pods, np.array(best[0], np.int64)) if best else None
    return Evolution(cluster, np.array(curve), people.tried)


class _People:
    """Feasible chromosomes (nodes of ``pods``, beside what stays on ``base``) with their deviations."""

    def __init__(self, base: Cluster, pods: Integers, budget: float, rng: np.random.Generator) -> None:
        self.base, self.pods, self.budget, self.rng = base, pods, budget, rng
        view = base.view
        able = [view.allowed[pod] & ((view.gpu_cards[pod] == 0) | (view.cards > 0)) for pod in pods]
        self.choices = [np.flatnonzero(each) for each in able]
        self.pool: dict[tuple[int, ...], float] = {}
        self.tried = 0

    def judge(self, nodes: Integers) -> None:
        """Take a chromosome into the pool if it is feasible."""
        view, cluster = self.base.view, _packed(self.base, self.pods, nodes)
        if cluster is None or broken_rules(view, cluster.node) or move_cost_of(view, cluster.node) > self.budget:
            return
        self.pool[tuple(nodes.tolist())] = deviation(cluster.loads)

    def best(self, count: int) -> list[tuple[int, ...]]:
        """The most even ones."""
        return sorted(self.pool, key=lambda c: (self.pool[c], c))[:count]

    def settle(self, settings: GeneticSettings, moving: NDArray[np.bool_]) -> None:
        """Draw the first ones at random; what is ``moving`` stays where it runs every other time."""
        running, moving = self.base.view.running[self.pods], moving[self.pods]
        if moving.any() and (running >= 0).all():  # everything where it is
            self.judge(running)
        while len(self.pool) < settings.population and self.tried < settings.attempts and all(map(len, self.choices)):
            self.tried += 1
            drawn = np.array([self.rng.choice(c) for c in self.choices], np.int64)
            stay = moving & (self.rng.random(len(self.pods)) < 0.5)
            self.judge(np.where(stay, running, drawn))

    def breed(self, settings: GeneticSettings) -> float:
        """Let the better half have children in the place of the others; the least deviation."""
        rng, parents = self.rng, self.best(max(2, settings.population // 2))
        self.pool = {parent: self.pool[parent] for parent in parents}
        for _ in range(settings.population - len(parents)):
            self.tried += 1
            a, b = (np.array(parents[int(i)], np.int64) for i in rng.integers(len(parents), size=2))
            child = _crossed(a, b, settings.crossover_points, rng)
            for g in rng.permutation(len(self.pods))[: settings.mutation_points].tolist():
                child[g] = rng.choice(self.choices[g])
            self.judge(child)
        return min(self.pool.values())


def _crossed(a: Integers, b: Integers, points: int, rng: np.random.Generator) -> Integers:
    """The genes of one parent up to a point, then those of the other up to the next, and so on."""
    cuts = np.sort(rng.permutation(max(0, len(a) - 1))[:points] + 1)
    from_b = np.searchsorted(cuts, np.arange(len(a)), side="right") % 2 == 1
    return np.where(from_b, b, a)


def _packed(base: Cluster, pods: Integers, nodes: Integers) -> Cluster | None:
    """The base with these pods; None when one does not fit."""
    cluster = base.copy()
    return cluster if cluster.pack(pods, nodes) else None
