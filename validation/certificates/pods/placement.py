"""Check a placement exactly: use of nodes and cards, constraints of pods, running pods, the stated balance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.pods.group_rules import RuleBook
from flowlex.validation.certificates.pods.pod_sizes import TOLERANCE, balance_of, kind_of, loads_of, need_of, size_of
from flowlex.validation.restated.pods import fits_wishes, must_run, repacked, wants_gpu

Cards = Mapping[int, NDArray[np.int64]]


class Usage:
    """Resources used on every node and card; cards that do not exist are ignored (and refused elsewhere)."""

    def __init__(self, instance: PodInstance, where: NDArray[np.int64], on: Cards | None) -> None:
        self.instance, self.apart, nodes = instance, on is not None, instance.nodes
        self.cpu, self.memory = [Fraction(0)] * len(nodes), [Fraction(0)] * len(nodes)
        self.gpu = [[Fraction(0)] * max(1, node.cards if self.apart else 1) for node in nodes]
        self.compute = [[Fraction(0)] * len(held) for held in self.gpu]
        for p, pod in enumerate(instance.pods):
            if where[p] >= 0:
                self.put(pod, int(where[p]), [0] if on is None else [int(k) for k in on.get(p, ())])

    def put(self, pod: Pod, n: int, on: Sequence[int], sign: int = 1) -> None:
        """Add (or with -1 remove) what a pod takes of a node and of these cards."""
        need, part = self._asks(pod, n)
        self.cpu[n] += sign * size_of(pod.cpu_cores)
        self.memory[n] += sign * size_of(pod.memory_gb)
        for k in on if wants_gpu(pod) else ():
            if 0 <= k < len(self.gpu[n]):
                self.gpu[n][k] += sign * need
                self.compute[n][k] += sign * part

    def _asks(self, pod: Pod, n: int) -> tuple[Fraction, Fraction]:
        """GB and compute on each card, or on the node."""
        times = 1 if self.apart else pod.gpu_cards
        return need_of(pod, self.instance.nodes[n]) * times, size_of(pod.gpu_compute) * times

    def _has(self, n: int) -> tuple[Fraction, Fraction]:
        """GB and compute of each card, or of all of them."""
        node = self.instance.nodes[n]
        return size_of(node.card_gb) * (1 if self.apart else node.cards), Fraction(1 if self.apart else node.cards)

    def over(self) -> tuple[Fraction, Fraction, Fraction, Fraction]:
        """Largest excess of nodes (cores, memory) and of cards (GPU memory, compute)."""
        nodes = self.instance.nodes
        gpu = [max(used) - self._has(n)[0] for n, used in enumerate(self.gpu)]
        compute = [max(used) - self._has(n)[1] for n, used in enumerate(self.compute) if any(used)]
        cpu = [used - size_of(node.cpu_cores) for used, node in zip(self.cpu, nodes, strict=True)]
        memory = [used - size_of(node.memory_gb) for used, node in zip(self.memory, nodes, strict=True)]
        return max(cpu), max(memory), max(gpu), max(compute, default=Fraction(0))

    def ways(self, pod: Pod, n: int) -> Iterator[tuple[int, ...]]:
        """Yield the choices of cards on which a pod fits beside what a node holds."""
        node = self.instance.nodes[n]
        if not fits_wishes(pod, node) or size_of(node.cpu_cores) - self.cpu[n] < size_of(pod.cpu_cores):
            return
        if size_of(node.memory_gb) - self.memory[n] < size_of(pod.memory_gb):
            return
        if not wants_gpu(pod):
            yield ()
        elif node.cards:
            (need, part), (memory, compute) = self._asks(pod, n), self._has(n)
            rooms = enumerate(zip(self.gpu[n], self.compute[n], strict=True))
            able = [k for k, (gb, shares) in rooms if memory - gb >= need and compute - shares >= part]
            if self.apart and pod.node_cards is not None and pod.node == node.name:  # it may only be on these
                able = [k for k in able if k in pod.node_cards]
            yield from combinations(able, pod.gpu_cards if self.apart else 1)

    def loads(self) -> NDArray[np.float64]:
        """(N,) weighted utilisation."""
        return loads_of(self.instance, self.cpu, self.memory, self.gpu)


def _has_its_cards(pod: Pod, node: PodNode | None, chosen: list[int], apart: bool) -> bool:
    """Whether a pod is on as many different cards of its node as it asks for, and a waiting one on none."""
    if node is None or not wants_gpu(pod) or not apart:
        return not chosen and (node is None or not wants_gpu(pod) or node.cards > 0)
    return len(set(chosen)) == len(chosen) == pod.gpu_cards and all(0 <= k < node.cards for k in chosen)


def _keeps_cards(pod: Pod, node: PodNode, chosen: list[int]) -> bool:
    """Whether a pod that stays on its node keeps its cards, if these are known."""
    return pod.node_cards is None or pod.node != node.name or sorted(chosen) == sorted(pod.node_cards)


def _running_cards(instance: PodInstance, other: list[str], apart: bool) -> tuple[Check, ...]:
    """One check, if GPU pods run and cards are distinguished."""
    running = sum(pod.node is not None and wants_gpu(pod) for pod in instance.pods)
    if not running or not apart:
        return ()
    many = len(repacked(instance))
    assumed = f"not known of {many} of {running} pods, which are assumed to be repacked" if many else ""
    return (Check("running pods keep their cards", not other, len(other), ", ".join(other[:3]) or assumed),)


def check_placement(
    instance: PodInstance,
    node: NDArray[np.int64],
    used_cards: Cards | None,
    measure: str,
    objective: float,
    move_budget: float,
) -> tuple[Check, ...]:
    """Check capacities of nodes and cards, constraints, running pods and the stated balance from the documents alone.

    Sizes are added exactly, as the decimals that they are written as; only the balance is compared within `TOLERANCE`.

    ``node``: (P,) node of each pod, -1 when it waits. ``used_cards``: card numbers of each GPU pod; None when GPU
    memory is counted per node.
    """
    wrong_wish, wrong_cards, stopped, spent = list[str](), list[str](), list[str](), Fraction(0)
    other_cards, must = list[str](), must_run(instance)
    for p, pod in enumerate(instance.pods):
        machine = instance.nodes[int(node[p])] if node[p] >= 0 else None
        moved = machine is not None and pod.node not in (None, machine.name)
        spent += size_of(pod.move_cost or 0.0) if moved else 0
        if (moved and pod.move_cost is None) or (machine is None and pod.name in must):
            stopped.append(pod.name)
        if machine is not None and not fits_wishes(pod, machine):
            wrong_wish.append(pod.name)
        chosen = [] if used_cards is None else [int(k) for k in used_cards.get(p, ())]
        if not _has_its_cards(pod, machine, chosen, used_cards is not None):
            wrong_cards.append(pod.name)
        if used_cards is not None and node[p] >= 0 and not _keeps_cards(pod, instance.nodes[int(node[p])], chosen):
            other_cards.append(pod.name)
    usage = Usage(instance, node, used_cards)
    cpu, memory, gpu, compute = usage.over()
    found = balance_of(usage.loads(), measure)
    asked = any(pod.gpu_compute for pod in instance.pods)
    apart, where = abs(found - objective), "card" if used_cards is not None else "node"
    return (
        Check("cores of every node", cpu <= 0, max(0.0, float(cpu))),
        Check("memory of every node", memory <= 0, max(0.0, float(memory))),
        Check(f"GPU memory of every {where}", gpu <= 0, max(0.0, float(gpu))),
        *([Check("compute of every card", compute <= 0, max(0.0, float(compute)))] if asked else []),
        _none("every GPU pod has its cards", wrong_cards),
        *_running_cards(instance, other_cards, used_cards is not None),
        _none("labels, taints and card models", wrong_wish),
        _none("running pods go on", stopped),
        Check("moves within the budget", spent <= size_of(move_budget), max(0.0, float(spent) - move_budget)),
        Check("balance recomputed", apart <= TOLERANCE, apart, f"{measure} {found:.6g} (stated {objective:.6g})"),
    )


def _none(name: str, offenders: list[str]) -> Check:
    return Check(name, not offenders, len(offenders), ", ".join(offenders[:3]))


def could_be_added(usage: Usage, where: NDArray[np.int64]) -> Check:
    """Check that no waiting pod fits beside the placed ones; otherwise the placement does not admit the most."""
    instance = usage.instance
    capacity = np.array([[float(node.cpu_cores), float(node.memory_gb)] for node in instance.nodes])
    used = np.array([[float(a), float(b)] for a, b in zip(usage.cpu, usage.memory, strict=True)])
    rough = capacity - used + 1e-9 * (1 + capacity)
    adds: list[str] = []
    known: set[tuple[object, ...]] = set()
    book, even = RuleBook(instance), {spread.name for spread in instance.spreads if spread.skew is not None}
    for p, pod in enumerate(instance.pods):
        # Gangs come only as a whole, and where a skew allows a pod depends on the others.
        if where[p] >= 0 or kind_of(pod) in known or pod.gang is not None or even & {*pod.spreads}:
            continue
        known.add(kind_of(pod))
        for n in np.flatnonzero((rough[:, 0] >= pod.cpu_cores) & (rough[:, 1] >= pod.memory_gb)).tolist():
            if pod.node not in (None, instance.nodes[n].name) or not any(True for _ in usage.ways(pod, n)):
                continue  # a stopped pod may only continue where it ran
            now = (
                [*where[:p].tolist(), n, *where[p + 1 :].tolist()] if pod.spreads or pod.queue or pod.resources else []
            )
            if not now or book.holds(now, p):
                adds.append(pod.name)
                break
    return _none("nobody who waits fits what is free", adds)
