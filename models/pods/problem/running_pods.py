"""Checks of running pods: whether they fit their nodes and cards."""

from __future__ import annotations

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.pods import PodArrays, PodInstance
from flowlex.models.model_base import ModelError
from flowlex.models.pods.problem.integer_program import stays
from flowlex.models.pods.problem.node_fill_state import Cluster


def running_cluster(view: PodArrays, *, cards: bool, all_of_it: bool = True) -> Cluster | None:
    """Return the cluster of running pods; None if `Cluster.pack` fails.

    ``all_of_it``: include pods that may be stopped.
    """
    cluster = Cluster(view, cards=cards)
    running = np.flatnonzero(view.running >= 0 if all_of_it else view.stays)
    return cluster if cluster.pack(running, view.running[running]) else None


def packed_running(view: PodArrays) -> Cluster:
    """What runs already, cards told apart; raises `ModelError` where it does not pack."""
    cluster = running_cluster(view, cards=True)
    if cluster is None:
        raise ModelError("the running pods do not pack on their cards in falling order of size")
    return cluster


def check_running(instance: PodInstance, move_budget: float) -> None:
    """Raise `ModelError` if running pods overfill their nodes or are not allowed there."""
    view, nodes, exact = instance.arrays, instance.nodes, instance.arrays.exact
    fixed = stays(view, move_budget)
    pods = np.flatnonzero(fixed >= 0)
    for p in pods.tolist():
        n, pod = int(fixed[p]), instance.pods[p]
        if not view.allowed[p, n] or (pod.wants_gpu and not nodes[n].cards):
            raise ModelError(f"pod {pod.name!r} runs on {pod.node!r}, which its labels, taints or GPU exclude")
    _check_cards(instance, pods)
    gpu = exact.gpu[pods, fixed[pods]] * view.gpu_cards[pods]
    whole = exact.card * view.cards
    used = [view.gpu[pods, fixed[pods]] * view.gpu_cards[pods], view.cpu[pods], view.memory[pods]]
    asked = (gpu, exact.cpu[pods], exact.memory[pods])
    for r, what in enumerate(("GB of GPU memory", "cores", "GB of memory")):
        left = whole.copy() if r == 0 else exact.node[:, r - 1].copy()
        np.subtract.at(left, fixed[pods], asked[r])
        if (left < 0).any():
            n = int(np.flatnonzero(left < 0)[0])
            total = used[r][fixed[pods] == n].sum()
            has = view.capacity[n, r]
            raise ModelError(f"node {nodes[n].name!r}: running pods use {total:g} {what}, it has {has:g}")


def _check_cards(instance: PodInstance, pods: Integers) -> None:
    """Raise `ModelError` if running pods (indices) overfill their stated cards."""
    view, exact = instance.arrays, instance.arrays.exact
    left: dict[tuple[int, int], list[int]] = {}
    for p in pods.tolist():
        n, pod = int(view.running[p]), instance.pods[p]
        for card in pod.node_cards or ():
            free = left.setdefault((n, card), [int(exact.card[n]), exact.whole])
            free[0] -= int(exact.gpu[p, n])
            free[1] -= int(exact.compute[p])
            if min(free) < 0:
                what = "GB" if free[0] < 0 else "compute"
                raise ModelError(
                    f"node {pod.node!r}: the running pods up to {pod.name!r} use more {what} than card {card} has; "
                    "correct their node_cards, or leave them out"
                )
