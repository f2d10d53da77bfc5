"""A pod placement recomputed from its instance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.pods import PodInstance, fits_wishes
from flowlex.validation.certificates.certificate import Check

__all__ = ["balance_of", "check_placement"]

#: Rounding of sums of sizes.
TOLERANCE = 1e-6


def balance_of(loads: NDArray[np.float64], measure: str) -> float:
    """The balance of node loads by its name: deviation, max_load or mean_absolute."""
    if measure == "deviation":
        return float(np.sqrt(np.mean((loads - loads.mean()) ** 2)))
    if measure == "max_load":
        return float(loads.max())
    return float(np.abs(loads - loads.mean()).mean())


def check_placement(
    instance: PodInstance,
    node: NDArray[np.int64],
    used_cards: Mapping[int, NDArray[np.int64]] | None,
    measure: str,
    objective: float,
    move_budget: float,
) -> tuple[Check, ...]:
    """Capacities of nodes and cards, wishes, running pods, and the stated balance, from the documents alone.

    Parameters
    ----------
    node
        (P,) node of each pod, -1 when it waits.
    used_cards
        Card numbers of each GPU pod; None when GPU memory is counted per node.
    """
    cpu, memory = np.zeros(len(instance.nodes)), np.zeros(len(instance.nodes))
    gpu = [np.zeros(max(1, machine.cards)) for machine in instance.nodes]
    wrong_wish, wrong_cards, stopped, spent = [], [], [], 0.0
    for p, pod in enumerate(instance.pods):
        n = int(node[p])
        if pod.node is not None and (n < 0 or (instance.nodes[n].name != pod.node and pod.move_cost is None)):
            stopped.append(pod.name)
        if n < 0:
            continue
        machine = instance.nodes[n]
        if not fits_wishes(pod, machine):
            wrong_wish.append(pod.name)
        if pod.node is not None and machine.name != pod.node:
            spent += pod.move_cost or 0.0
        cpu[n] += pod.cpu_cores
        memory[n] += pod.memory_gb
        if pod.wants_gpu:
            need = pod.gpu_memory_gb or pod.gpu_share * machine.card_gb
            cards = None if used_cards is None else sorted({int(k) for k in used_cards.get(p, ())})
            if cards is None:
                gpu[n][0] += need * pod.gpu_cards
            elif machine.cards == 0 or len(cards) != pod.gpu_cards or max(cards, default=0) >= machine.cards:
                wrong_cards.append(pod.name)
            else:
                gpu[n][cards] += need
    over = max((cpu[n] - machine.cpu_cores for n, machine in enumerate(instance.nodes)), default=0.0)
    over_memory = max((memory[n] - machine.memory_gb for n, machine in enumerate(instance.nodes)), default=0.0)
    each = [m.card_gb if used_cards is not None else m.card_gb * m.cards for m in instance.nodes]
    over_gpu = max((float(g.max()) - size for g, size in zip(gpu, each, strict=True)), default=0.0)
    found = balance_of(_loads(instance, cpu, memory, gpu), measure)
    return (
        Check("cores of every node", over <= TOLERANCE, max(0.0, float(over))),
        Check("memory of every node", over_memory <= TOLERANCE, max(0.0, float(over_memory))),
        Check("GPU memory of every card" if used_cards is not None else "GPU memory of every node",
              over_gpu <= TOLERANCE, max(0.0, over_gpu)),
        Check("every GPU pod has its cards", not wrong_cards, len(wrong_cards), ", ".join(wrong_cards[:3])),
        Check("labels, taints and card models", not wrong_wish, len(wrong_wish), ", ".join(wrong_wish[:3])),
        Check("running pods go on", not stopped, len(stopped), ", ".join(stopped[:3])),
        Check("moves within the budget", spent <= move_budget + TOLERANCE, max(0.0, spent - move_budget)),
        Check("balance recomputed", abs(found - objective) <= TOLERANCE, abs(found - objective),
              f"{measure} {found:.6g} (stated {objective:.6g})"),
    )  # fmt: skip


def _loads(
    instance: PodInstance, cpu: NDArray[np.float64], memory: NDArray[np.float64], gpu: list[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Weighted utilisation of each node."""
    used = np.stack([np.array([g.sum() for g in gpu]), cpu, memory], axis=1)
    capacity = np.array([[m.cards * m.card_gb, m.cpu_cores, m.memory_gb] for m in instance.nodes])
    totals = capacity.sum(axis=0)
    weight = np.divide(capacity, totals, out=np.zeros_like(capacity), where=totals > 0)
    weight /= weight.sum(axis=1, keepdims=True)
    share = np.divide(used, capacity, out=np.zeros_like(used), where=capacity > 0)
    loads: NDArray[np.float64] = (weight * share).sum(axis=1)
    return loads
