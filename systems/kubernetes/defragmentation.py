"""Find a few moves of running pods that free the most whole GPU cards.

The constraints are those of pod placement with a move budget; a card is idle if no pod uses it:

    maximise   sum_c idle_c
    subject to sum_p need_pc y_pc + idle_c <= 1   for every card c (needs as shares of the card),
               at most N running pods leave their node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import SolveOptions
from flowlex.instances.pods import PodInstance
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.problem.cluster import Cluster, packed_running
from flowlex.models.pods.statement import LARGEST_STATEMENT


@dataclass(frozen=True)
class Move:
    """A pod that moves to another node, and the cards that it uses there."""

    pod: str
    source: str
    target: str
    cards: tuple[int, ...]


@dataclass(frozen=True)
class Defragmentation:
    """Moves of running pods, and the numbers of idle cards before and after."""

    moves: tuple[Move, ...]
    before: int
    after: int
    bound: int  # proven upper bound on the idle cards after
    cluster: Cluster


def defragment(
    instance: PodInstance, moves: int, *, time_limit_s: float | None = None, seed: int = 0
) -> Defragmentation:
    """Find at most ``moves`` moves of running pods that leave the most GPU cards idle; waiting pods are ignored.

    ``instance``: its running pods with a ``move_cost`` may move. ``moves``: how many pods may move. Raises
    `ModelError`: the running pods do not pack on their cards.
    """
    running = tuple(
        pod.model_copy(update={"gang": None, "preempt_cost": None, "move_cost": None if pod.move_cost is None else 1.0})
        for pod in instance.pods
        if pod.node is not None
    )
    instance = instance.model_copy(update={"pods": running, "gangs": ()})
    start = packed_running(instance.arrays)
    before, effort = _idle(start), _effort(instance, start)
    bound = before + int((np.cumsum(np.sort(effort)) <= moves + 1e-9).sum())
    chosen, everyone = _movable(instance, start)
    if bound == before or not chosen:
        return Defragmentation((), before, before, bound, start)
    pods = tuple(pod if p in chosen else pod.model_copy(update={"move_cost": None}) for p, pod in enumerate(running))
    instance = instance.model_copy(update={"pods": pods})
    programs = PodPlacement(instance, move_budget=float(moves), balance="max_load").programs
    program = programs.program(None, {})
    (pods_of_x, nodes_of_x), (pair, card) = programs.columns.pairs, programs.columns.card_slots
    pod, node = pods_of_x[pair], nodes_of_x[pair]
    exact, size = instance.arrays.exact, int(instance.arrays.cards.sum())
    idle = program.variables("idle", size, upper=1.0, integer=True)
    need = exact.gpu[pod, node] / exact.card[node]
    used = (program.variable("y") * need).sum_by(card, size)
    program.constrain("idle_card", used + idle, "<=", 1.0)
    program.maximize(idle.sum())
    found = solve(program, "highs", SolveOptions(time_limit_s=time_limit_s, seed=seed))
    if found.bound is not None and everyone and math.isfinite(found.bound):
        bound = min(bound, math.floor(found.bound + 1e-6))
    cluster = None if found.values is None else programs.placement(program, found.values)
    if cluster is None or _idle(cluster) <= before:
        return Defragmentation((), before, before, max(before, bound), start)
    return Defragmentation(_moves(instance, cluster), before, _idle(cluster), max(_idle(cluster), bound), cluster)


def _idle(cluster: Cluster) -> int:
    """Cards that no pod uses."""
    whole = cluster.view.exact.card[:, None]
    return int(((cluster.card_free == whole) & (whole > 0)).sum())


def _by_card(start: Cluster) -> dict[tuple[int, int], list[int]]:
    """Return the pods on each card in use, by node and number of the card."""
    found: dict[tuple[int, int], list[int]] = {}
    for p, cards in start.used_cards.items():
        for card in cards.tolist():
            found.setdefault((int(start.node[p]), card), []).append(p)
    return found


def _effort(instance: PodInstance, start: Cluster) -> Floats:
    """Lower bound on the moves that empty each used card: a pod on k cards counts 1/k; infinite if one cannot move."""
    stays = [pod.move_cost is None for pod in instance.pods]
    each = {p: math.inf if stays[p] else 1 / len(cards) for p, cards in start.used_cards.items()}
    return np.array([sum(each[p] for p in pods) for pods in _by_card(start).values()], np.float64)


def _movable(instance: PodInstance, start: Cluster) -> tuple[set[int], bool]:
    """Return the pods that may move, chosen by fewest pods on a card, and whether these are all movable pods."""
    least: dict[int, int] = {}
    for pods in _by_card(start).values():
        for p in pods:
            least[p] = min(least.get(p, len(pods)), len(pods))
    ranked = sorted((p for p in least if instance.pods[p].move_cost is not None), key=lambda p: (least[p], p))
    each = int((1 + start.view.cards).sum())  # columns of a pod that may move
    stay = sum(1 + int(start.view.cards[n]) for n in start.node.tolist())
    kept = ranked[: max(1, (LARGEST_STATEMENT - stay) // each)]  # those on cards with the fewest pods
    return set(kept), len(kept) == len(ranked)


def _moves(instance: PodInstance, cluster: Cluster) -> tuple[Move, ...]:
    names, view = [node.name for node in instance.nodes], instance.arrays
    moved = np.flatnonzero((view.running >= 0) & (cluster.node != view.running))
    return tuple(
        Move(
            instance.pods[p].name,
            names[view.running[p]],
            names[cluster.node[p]],
            tuple(sorted(cluster.used_cards[p].tolist())),
        )
        for p in moved.tolist()
    )
