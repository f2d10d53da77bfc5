"""The paper's genetic algorithm: a chromosome is a node for each pod, new or running."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.deferred_compilation import with_small_work
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.pods import PodInstance
from flowlex.models.model_base import ModelError
from flowlex.models.pods.methods.balance import move_cost_of
from flowlex.models.pods.methods.placement_policies import POLICIES, by_priority, place_by
from flowlex.models.pods.problem.cluster import Cluster, deviation, packed_running
from flowlex.models.pods.problem.group_rules import broken_rules


@dataclass(frozen=True)
class GeneticSettings:
    """Parameters of the genetic algorithm; those of the paper are lost, these are our choice."""

    population: int = 40
    generations: int = 60
    # crossover_points, mutation_points: points where a child changes between its parents, and pods that get a random
    # node
    crossover_points: int = 2
    mutation_points: int = 2  # multi-point, as printed
    attempts: int = 8_000  # most random chromosomes drawn for the initial population


@dataclass(frozen=True)
class Evolution:
    """The result of the genetic algorithm."""

    cluster: Cluster | None  # the best chromosome's placement; None if no feasible one was found
    curve: Floats = field(repr=False)  # (G,) least deviation after each generation
    tried: int  # number of chromosomes made, including infeasible ones

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
    """Balance the loads by a genetic algorithm.

    The initial population is random and feasible. The half with the smaller deviation survives (the paper discards "the
    lower" half, which contradicts its goal). Children arise by multi-point crossover and mutation; infeasible children
    (which overfill a node, break a rule or exceed the move budget) are discarded.

    ``admitted``: (P,) whether to place each pod; by default, as first fit admits. ``move_budget``: largest total cost
    of moves; running pods with a move cost up to it are part of the chromosome.
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
    """Feasible chromosomes (nodes of ``pods``, added to ``base``) with their deviations."""

    def __init__(self, base: Cluster, pods: Integers, budget: float, rng: np.random.Generator) -> None:
        self.base, self.pods, self.budget, self.rng = base, pods, budget, rng
        view = base.view
        able = [view.allowed[pod] & ((view.gpu_cards[pod] == 0) | (view.cards > 0)) for pod in pods]
        self.choices = [np.flatnonzero(each) for each in able]
        self.pool: dict[tuple[int, ...], float] = {}
        self.tried = 0

    def judge(self, nodes: Integers) -> None:
        """Add a chromosome to the pool if it is feasible."""
        view, cluster = self.base.view, _packed(self.base, self.pods, nodes)
        if cluster is None or broken_rules(view, cluster.node) or move_cost_of(view, cluster.node) > self.budget:
            return
        self.pool[tuple(nodes.tolist())] = deviation(cluster.loads)

    def best(self, count: int) -> list[tuple[int, ...]]:
        """Return the chromosomes with the least deviation."""
        return sorted(self.pool, key=lambda c: (self.pool[c], c))[:count]

    def settle(self, settings: GeneticSettings, moving: NDArray[np.bool_]) -> None:
        """Draw the initial population at random; each ``moving`` pod stays on its node with probability 1/2."""
        running, moving = self.base.view.running[self.pods], moving[self.pods]
        if moving.any() and (running >= 0).all():  # all pods on their present nodes
            self.judge(running)
        while len(self.pool) < settings.population and self.tried < settings.attempts and all(map(len, self.choices)):
            self.tried += 1
            drawn = np.array([self.rng.choice(c) for c in self.choices], np.int64)
            stay = moving & (self.rng.random(len(self.pods)) < 0.5)
            self.judge(np.where(stay, running, drawn))

    def breed(self, settings: GeneticSettings) -> float:
        """Replace the worse half by children of the better half; return the least deviation."""
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
    """Multi-point crossover: take genes from the two parents alternately, changing at random points."""
    cuts = np.sort(rng.permutation(max(0, len(a) - 1))[:points] + 1)
    from_b = np.searchsorted(cuts, np.arange(len(a)), side="right") % 2 == 1
    return np.where(from_b, b, a)


def _packed(base: Cluster, pods: Integers, nodes: Integers) -> Cluster | None:
    """Return the base with these pods added; None if one does not fit."""
    cluster = base.copy()
    return cluster if cluster.pack(pods, nodes) else None
