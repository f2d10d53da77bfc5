"""A pod placement recomputed from its instance: capacities, admission by level, balance, and what proves them.

The most pods of a level (a priority, or worth) are proven as `admission` says. What is
not proven is quoted, and the claim falls to ``feasible``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flowlex.instances.exact import rational
from flowlex.instances.pods import PodInstance, fits_wishes
from flowlex.validation.certificates.certificate import Check, Claim
from flowlex.validation.certificates.contract import Claimed, Finding, Strict, Verifier
from flowlex.validation.certificates.pods.admission import AdmissionProof, most_by_prices
from flowlex.validation.certificates.pods.balance import Piece, least_balance
from flowlex.validation.certificates.pods.compute import compute_checks, compute_left
from flowlex.validation.certificates.pods.exhaustion import best_of_all
from flowlex.validation.certificates.pods.market import Population
from flowlex.validation.certificates.pods.rules import RuleBook
from flowlex.validation.certificates.pods.sizes import (
    TOLERANCE,
    balance_of,
    kind_of,
    loads_of,
    need_of,
    size_of,
    units_of,
)
from flowlex.validation.certificates.pods.worths import QueueShares, levels_of

__all__ = ["VERIFIER", "PlacementAnswer", "PlacementProof", "check_placement", "judge_placement"]


def check_placement(
    instance: PodInstance,
    node: NDArray[np.int64],
    used_cards: Mapping[int, NDArray[np.int64]] | None,
    measure: str,
    objective: float,
    move_budget: float,
) -> tuple[Check, ...]:
    """Capacities of nodes and cards, wishes, running pods, and the stated balance, from the documents alone.

    Sizes are added exactly, as the decimals that they are written as; only the balance is compared within `TOLERANCE`.

    Parameters
    ----------
    node
        (P,) node of each pod, -1 when it waits.
    used_cards
        Card numbers of each GPU pod; None when GPU memory is counted per node.
    """
    nodes, zero = instance.nodes, Fraction(0)
    cpu, memory = [zero] * len(nodes), [zero] * len(nodes)
    gpu = [[zero] * max(1, machine.cards) for machine in nodes]
    wrong_wish, wrong_cards, stopped, spent = [], [], [], zero
    for p, pod in enumerate(instance.pods):
        n = int(node[p])
        moved = pod.node is not None and n >= 0 and nodes[n].name != pod.node
        if (moved and pod.move_cost is None) or (pod.node is not None and n < 0 and pod.preempt_cost is None):
            stopped.append(pod.name)
        if n < 0:
            if used_cards and len(used_cards.get(p, ())):
                wrong_cards.append(pod.name)
            continue
        machine = nodes[n]
        if not fits_wishes(pod, machine):
            wrong_wish.append(pod.name)
        if pod.node is not None and machine.name != pod.node:
            spent += size_of(pod.move_cost or 0.0)
        cpu[n] += size_of(pod.cpu_cores)
        memory[n] += size_of(pod.memory_gb)
        chosen = [] if used_cards is None else [int(k) for k in used_cards.get(p, ())]
        if not pod.wants_gpu:
            wrong_cards += [pod.name] * bool(chosen)
        elif used_cards is None:
            gpu[n][0] += need_of(pod, machine) * pod.gpu_cards
            wrong_cards += [pod.name] * (machine.cards == 0)
        elif len(set(chosen)) != pod.gpu_cards or len(chosen) != pod.gpu_cards or not _on(chosen, machine.cards):
            wrong_cards.append(pod.name)
        else:
            for k in chosen:
                gpu[n][k] += need_of(pod, machine)
    sizes = [size_of(m.card_gb) * (1 if used_cards is not None else m.cards) for m in nodes]
    over = max((cpu[n] - size_of(m.cpu_cores) for n, m in enumerate(nodes)), default=zero)
    over_memory = max((memory[n] - size_of(m.memory_gb) for n, m in enumerate(nodes)), default=zero)
    over_gpu = max((max(g) - size for g, size in zip(gpu, sizes, strict=True)), default=zero)
    found = balance_of(loads_of(instance, cpu, memory, gpu), measure)
    apart = abs(found - objective)
    return (
        Check("cores of every node", over <= 0, max(0.0, float(over))),
        Check("memory of every node", over_memory <= 0, max(0.0, float(over_memory))),
        Check("GPU memory of every card" if used_cards is not None else "GPU memory of every node",
              over_gpu <= 0, max(0.0, float(over_gpu))),
        Check("every GPU pod has its cards", not wrong_cards, len(wrong_cards), ", ".join(wrong_cards[:3])),
        Check("labels, taints and card models", not wrong_wish, len(wrong_wish), ", ".join(wrong_wish[:3])),
        Check("running pods go on", not stopped, len(stopped), ", ".join(stopped[:3])),
        Check("moves within the budget", spent <= size_of(move_budget), max(0.0, float(spent) - move_budget)),
        Check("balance recomputed", apart <= TOLERANCE, apart, f"{measure} {found:.6g} (stated {objective:.6g})"),
    )  # fmt: skip


def _on(cards: list[int], many: int) -> bool:
    return all(0 <= k < many for k in cards)


class PlacementProof(Strict):
    """What the claim needs beside the answer."""

    admission: dict[str, AdmissionProof] = Field(default={})
    balance: list[Piece] = Field(default=[])


class Waiting(Strict):
    """A pod of the queue."""

    pod: str
    reason: str


class Admitted(Strict):
    """Numbers of one level: pods, or their worth."""

    admitted: int | float
    wanted: int | float
    most: int | float


class PlacementAnswer(Strict):
    """Where every pod is."""

    placement: dict[str, str]
    cards: dict[str, list[int]]
    queue: list[Waiting]
    admitted: dict[str, Admitted]


def judge_placement(
    instance: PodInstance,
    answer: PlacementAnswer,
    proof: PlacementProof,
    options: Mapping[str, Any],
    objective: float,
    bound: float,
) -> Finding:
    """Recompute a placement and what is claimed of it."""
    index = {node.name: n for n, node in enumerate(instance.nodes)}
    number = {pod.name: p for p, pod in enumerate(instance.pods)}
    strange = [name for name in (*answer.placement, *answer.cards) if name not in number]
    strange += [name for name in answer.placement.values() if name not in index]
    if strange:
        return Finding("feasible", (Check("names of pods and nodes", False, len(strange), strange[0][:60]),))
    where = np.array([index.get(answer.placement.get(pod.name, ""), -1) for pod in instance.pods], np.int64)
    on = {number[name]: np.array(cards, np.int64) for name, cards in answer.cards.items()}
    measure, cards = str(options.get("balance", "deviation")), bool(options.get("cards", True))
    budget = float(options.get("move_budget", 0.0))
    checks = [*check_placement(instance, where, on if cards else None, measure, objective, budget)]
    checks += compute_checks(instance, where.tolist(), on, cards)
    checks += RuleBook(instance).checks(where.tolist())
    waits = {pod.name for p, pod in enumerate(instance.pods) if where[p] < 0}
    queue = [each.pod for each in answer.queue]
    checks.append(Check("who waits", sorted(queue) == sorted(waits), len(waits ^ set(queue))))
    adds = _could_be_added(instance, where, on, options)
    checks.append(Check("nobody who waits fits what is free", not adds, len(adds), ", ".join(adds[:3])))
    people = Population(instance, options)
    tried = best_of_all(people, where.tolist())
    admission, proven = _check_admission(people, where, answer, proof, tried)
    checks += admission
    shown = 0.0 if tried is None else tried[1]
    if bound > shown + TOLERANCE and proof.balance:
        placed = count_levels(instance, where, options)[0]
        shown = max(shown, least_balance(people, measure, proof.balance, placed, bound))
    balance, claim = _check_balance(objective, bound, shown, proven)
    checks.append(balance)
    met = claim != "feasible" and objective - bound <= TOLERANCE
    most = all(each.admitted == each.most for each in answer.admitted.values())
    claim = "optimal" if met and most and proven else claim
    return Finding(
        claim,
        tuple(checks),
        rational(objective),
        rational(bound),
        {"admission": _weighted(instance, where, options), "balance": rational(objective)},
        _metrics(instance, where, objective, bound, measure),
        tolerance=TOLERANCE,
        gap=(objective - bound) / objective if objective - bound > TOLERANCE + 1e-11 else 0.0,
    )


def _could_be_added(
    instance: PodInstance, where: NDArray[np.int64], on: Mapping[int, NDArray[np.int64]], options: Mapping[str, Any]
) -> list[str]:
    """Waiting pods that fit beside all that is placed; whoever leaves them out has not placed the most."""
    cards = bool(options.get("cards", True))
    free = [[size_of(m.cpu_cores), size_of(m.memory_gb)] for m in instance.nodes]
    gpu = [[size_of(m.card_gb)] * m.cards if cards else [size_of(m.card_gb) * m.cards] for m in instance.nodes]
    for p, pod in enumerate(instance.pods):
        n = int(where[p])
        if n >= 0:
            free[n][0] -= size_of(pod.cpu_cores)
            free[n][1] -= size_of(pod.memory_gb)
            for k in on.get(p, ()) if cards else range(pod.wants_gpu):
                if 0 <= k < len(gpu[n]):
                    gpu[n][k] -= need_of(pod, instance.nodes[n]) * (1 if cards else pod.gpu_cards)
    compute = compute_left(instance, where.tolist(), on, cards)
    rough = np.array([[float(a), float(b)] for a, b in free]) * (1 + 1e-9) + 1e-9
    adds: list[str] = []
    known: set[tuple[object, ...]] = set()
    book, even = RuleBook(instance), {spread.name for spread in instance.spreads if spread.skew is not None}
    for p, pod in enumerate(instance.pods):
        # Gangs come whole only, and where a skew lets a pod go depends on the others.
        if where[p] >= 0 or kind_of(pod) in known or pod.gang is not None or even & {*pod.spreads}:
            continue
        known.add(kind_of(pod))
        for n in np.flatnonzero((rough[:, 0] >= pod.cpu_cores) & (rough[:, 1] >= pod.memory_gb)).tolist():
            machine = instance.nodes[n]
            if pod.node is not None and pod.node != machine.name:  # what was stopped goes on where it ran
                continue
            if not fits_wishes(pod, machine) or free[n][0] < size_of(pod.cpu_cores):
                continue
            need, many = need_of(pod, machine) * (1 if cards else pod.gpu_cards), pod.gpu_cards if cards else 1
            asked = size_of(pod.gpu_compute) * (1 if cards else pod.gpu_cards)
            enough = sum(left >= need and c >= asked for left, c in zip(gpu[n], compute[n], strict=True))
            room = not pod.wants_gpu or (machine.cards > 0 and enough >= many)
            ruled = (pod.spreads or pod.queue) and not book.holds([*where[:p].tolist(), n, *where[p + 1 :].tolist()])
            if room and free[n][1] >= size_of(pod.memory_gb) and not ruled:
                adds.append(pod.name)
                break
    return adds


def _check_admission(
    people: Population,
    where: NDArray[np.int64],
    answer: PlacementAnswer,
    proof: PlacementProof,
    tried: tuple[list[Fraction], float] | None,
) -> tuple[list[Check], bool]:
    """Numbers of every level recounted, and the most of each proven or quoted."""
    placed, wanted = count_levels(people.instance, where, people.options)
    told = {
        key: tuple(rational(v) for v in (each.admitted, each.wanted, each.most))
        for key, each in answer.admitted.items()
    }
    wrong = sorted(k for k in {*told, *wanted} if k not in told or told[k][:2] != (placed.get(k), wanted.get(k)))
    checks = [Check("pods of every priority recounted", not wrong, len(wrong), f"priority {wrong[0]}" if wrong else "")]
    kept: dict[str, Fraction] = {}
    proven = not wrong
    for i, k in enumerate(wanted):
        most, least = told[k][2] if k in told else Fraction(0), wanted[k]
        name = f"most pods of priority {k}"
        if k in proof.admission:
            least = min(least, most_by_prices(people, k, kept, proof.admission[k]))
        if tried is not None and all(kept[j] == tried[0][m] for m, j in enumerate(kept)):
            least = min(least, tried[0][i])
        if most < placed[k] or most > wanted[k]:
            apart = float(abs(most - placed[k]))
            checks.append(Check(name, False, apart, f"{float(most):g} stated, {float(placed[k]):g} placed"))
        elif most >= least:
            checks.append(Check(name, True, 0, f"at most {float(least):g}, {float(placed[k]):g} placed"))
        else:
            checks.append(Check(name, True, 0, f"{float(most):g} stated, only {float(least):g} shown", how="quoted"))
            proven = False
        kept[k] = placed[k]
    return checks, proven


def count_levels(
    instance: PodInstance, where: NDArray[np.int64], options: Mapping[str, Any]
) -> tuple[dict[str, Fraction], dict[str, Fraction]]:
    """What is placed and what was wanted of every level, the most important first."""
    levels = levels_of(instance, options)
    order = {each.key: Fraction(0) for each in sorted((x for x in levels if x is not None), key=lambda x: x.rank)}
    placed, wanted = dict(order), dict(order)
    for level, there in zip(levels, where >= 0, strict=True):
        if level is not None:
            wanted[level.key] += level.worth
            placed[level.key] += level.worth * int(there)
    return placed, wanted


def _check_balance(objective: float, bound: float, shown: float, proven: bool) -> tuple[Check, Claim]:
    """The bound of the balance, and the claim that it leaves."""
    if bound > objective + TOLERANCE:
        return Check("bound of the balance", False, bound - objective, "above the balance"), "feasible"
    if bound <= shown + TOLERANCE:
        return Check("bound of the balance", True, 0, f"at least {shown:.6g}"), "bounded" if proven else "feasible"
    return Check("bound of the balance", True, 0, f"{bound:.6g} stated, {shown:.6g} shown", how="quoted"), "feasible"


def _weighted(instance: PodInstance, where: NDArray[np.int64], options: Mapping[str, Any]) -> Fraction:
    """Admission as one number: a unit counts more than all of later levels, up to 40 bits; or the least share."""
    placed, wanted = count_levels(instance, where, options)
    if options.get("admission") == "fair" and (shares := QueueShares(instance, options).ordered(where.tolist())):
        return shares[0]
    unit = units_of(x for x in levels_of(instance, options) if x is not None)
    units = {key: wanted[key] / unit[key] for key in wanted}
    total, weight = Fraction(0), Fraction(1)
    used: list[str] = []
    for key in units:
        if used and math.prod(1 + units[j] for j in (*used, key)) > 2**40:
            break
        used.append(key)
    for key in reversed(used):
        total += weight * placed[key] / unit[key]
        weight *= 1 + units[key]
    return total


def _metrics(
    instance: PodInstance, where: NDArray[np.int64], objective: float, bound: float, measure: str
) -> dict[str, float | int | Fraction | str]:
    fresh = np.array([pod.node is None for pod in instance.pods], bool)
    there = {pod.name for p, pod in enumerate(instance.pods) if where[p] >= 0}
    apart = objective - bound
    moved = [
        pod
        for p, pod in enumerate(instance.pods)
        if pod.node and pod.name in there and instance.nodes[where[p]].name != pod.node
    ]
    return {
        "admitted": int((where[fresh] >= 0).sum()),
        "waiting": int((where < 0).sum()),
        measure: objective,
        "absolute_gap": apart,
        "move_cost": float(sum(size_of(pod.move_cost or 0.0) for pod in moved)),
    }


def _judge(claimed: Claimed) -> Finding:
    document = claimed.document
    if document.status not in ("optimal", "feasible"):
        return Finding("feasible", (Check("an answer", False, detail=f"status {document.status}: nothing to judge"),))
    objective, bound = (float(rational(0 if v is None else v)) for v in (document.objective, document.bound))
    return judge_placement(claimed.instance, claimed.answer, claimed.proof, document.options, objective, bound)


VERIFIER = Verifier("pod-placement", PlacementAnswer, PlacementProof, _judge)
