"""Verify a pod placement from its instance: capacities, admission by level, balance, and their proofs.

`admission_bound` proves the most pods of a level (a priority, or value), `balance_bound` the bound of the balance;
small instances are enumerated instead. What is not proven is quoted, and the claim falls to ``feasible``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flowlex.formulations.block_labels import label_text
from flowlex.instances.exact_rationals import rational
from flowlex.instances.model_changes import Changes
from flowlex.instances.pods import PodInstance
from flowlex.validation.certificates.certificate import Check, Claim
from flowlex.validation.certificates.exact_numbers import Number, agrees
from flowlex.validation.certificates.pods.admission_bound import AdmissionProof, most_by_prices
from flowlex.validation.certificates.pods.balance_bound import Piece, least_balance
from flowlex.validation.certificates.pods.exhaustive_enumeration import all_ways
from flowlex.validation.certificates.pods.formulation_from_instance import judge_pods, state_pods
from flowlex.validation.certificates.pods.gang_bounds import GangBounds
from flowlex.validation.certificates.pods.group_rules import RuleBook
from flowlex.validation.certificates.pods.placement import Usage, check_placement, could_be_added
from flowlex.validation.certificates.pods.pod_sizes import TOLERANCE, balance_of, size_of, units_of
from flowlex.validation.certificates.pods.pod_values import QueueShares, levels_of
from flowlex.validation.certificates.pods.price_bound import Population
from flowlex.validation.certificates.problem_options import PodOptions
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.certificates.solution_document import Document
from flowlex.validation.certificates.statement.verify_changed_model import in_measure
from flowlex.validation.certificates.verifier_interface import Claimed, Finding, Strict, Verifier, same_values

__all__ = ["VERIFIER", "check_placement"]


#: Steps of the enumeration of placements of few pods on few nodes.
_STEPS = 40_000


class PlacementProof(Strict):
    """What the claim needs beside the answer."""

    admission: dict[str, AdmissionProof] = Field(default={})
    balance: list[Piece] = Field(default=[])


class Waiting(Strict):
    """A pod of the queue."""

    pod: str
    reason: str


class Admitted(Strict):
    """Numbers of one level: pods, or their value."""

    admitted: int | float
    wanted: int | float
    most: int | float


class PlacementAnswer(Strict):
    """Where every pod is."""

    placement: dict[str, str]
    cards: dict[str, list[int]]
    queue: list[Waiting]
    admitted: dict[str, Admitted]


def _judge_placement(claimed: Claimed, objective: float, bound: float) -> Finding:
    """Recompute a placement and what is claimed of it; what is not proven when the budget is spent is quoted."""
    instance, answer, proof, budget = claimed.instance, claimed.answer, claimed.proof, claimed.budget
    options = claimed.document.options
    index = {node.name: n for n, node in enumerate(instance.nodes)}
    number = {pod.name: p for p, pod in enumerate(instance.pods)}
    strange = [name for name in (*answer.placement, *answer.cards) if name not in number]
    strange += [name for name in answer.placement.values() if name not in index]
    if strange:
        return Finding("feasible", (Check("names of pods and nodes", False, len(strange), strange[0][:60]),))
    where = np.array([index.get(answer.placement.get(pod.name, ""), -1) for pod in instance.pods], np.int64)
    on = {number[name]: np.array(cards, np.int64) for name, cards in answer.cards.items()}
    measure, cards = str(options.get("balance", "deviation")), bool(options.get("cards", True))
    moves = float(options.get("move_budget", 0.0))
    checks = [*check_placement(instance, where, on if cards else None, measure, objective, moves)]
    checks += RuleBook(instance).checks(where.tolist())
    waits = {pod.name for p, pod in enumerate(instance.pods) if where[p] < 0}
    queue = [each.pod for each in answer.queue]
    checks.append(Check("who waits", sorted(queue) == sorted(waits), len(waits ^ set(queue))))
    usage = Usage(instance, where, on if cards else None)
    checks.append(could_be_added(usage, where))
    people = Population(instance, options)
    tried = None if budget.spent else all_ways(instance, options, where.tolist(), _STEPS)
    admission, proven = _check_admission(people, where, answer, proof, tried, budget)
    checks += admission
    placed = count_levels(instance, where, options)[0]
    best = tried[1] if tried is not None and [*placed.values()] == tried[0] else None
    shown = best or 0.0
    if bound > shown + TOLERANCE and proof.balance:
        shown = max(shown, least_balance(people, measure, proof.balance, placed, bound, budget))
    balance, claim = _check_balance(objective, bound, shown, best, proven)
    if balance.how == "quoted" and budget.spent:
        balance = budget.quoted(balance.name)
    checks.append(balance)
    met = claim != "feasible" and objective - bound <= TOLERANCE + 1e-11
    most = all(each.admitted == each.most for each in answer.admitted.values())
    claim = "optimal" if met and most and proven else claim
    return Finding(
        claim,
        tuple(checks),
        rational(objective),
        rational(bound),
        {"admission": _weighted(instance, where, options), "balance": rational(objective)},
        _metrics(instance, where, usage.loads(), objective, bound, measure),
        tolerance=TOLERANCE,
        gap=_gap(objective, bound),
    )


def _check_admission(
    people: Population,
    where: NDArray[np.int64],
    answer: PlacementAnswer,
    proof: PlacementProof,
    tried: tuple[list[Fraction], float] | None,
    budget: Budget,
) -> tuple[list[Check], bool]:
    """Recount the numbers of every level, and prove or quote the most of each."""
    placed, wanted = count_levels(people.instance, where, people.options)
    told = {
        key: tuple(_meant(v, people.unit.get(key, Fraction(1))) for v in (each.admitted, each.wanted, each.most))
        for key, each in answer.admitted.items()
    }
    wrong = sorted(k for k in {*told, *wanted} if k not in told or told[k][:2] != (placed.get(k), wanted.get(k)))
    checks = [Check("pods of every priority recounted", not wrong, len(wrong), f"priority {wrong[0]}" if wrong else "")]
    kept: dict[str, Fraction] = {}
    bounds = GangBounds(people)
    proven, lost = not wrong, people.lost(bounds.nowhere)
    for i, k in enumerate(wanted):
        most, least = told[k][2] if k in told else Fraction(0), wanted[k] - lost.get(k, 0)
        name = f"most pods of priority {k}"
        late = budget.spent
        if k in proof.admission and not late:
            least = min(least, most_by_prices(people, k, kept, proof.admission[k]))
        least = least if late else bounds.largest(k, least)
        can = placed[k]
        if tried is not None and all(kept[j] == tried[0][m] for m, j in enumerate(kept)):
            least, can = min(least, tried[0][i]), max(can, tried[0][i])
        if most < can or most > wanted[k]:
            checks.append(
                Check(name, False, float(abs(most - can)), f"{float(most):g} stated, {float(can):g} possible")
            )
        elif most >= least:
            checks.append(Check(name, True, 0, f"at most {float(least):g}, {float(placed[k]):g} placed"))
        else:
            said = f"{float(most):g} stated, only {float(least):g} shown"
            checks.append(budget.quoted(name) if late else Check(name, True, 0, said, how="quoted"))
            proven = False
        kept[k] = placed[k]
    return checks, proven


def _meant(stated: float, unit: Fraction) -> Fraction:
    """The multiple of a level's unit whose nearest float the file states (29/12 has no finite decimal)."""
    exact = round(rational(stated) / unit) * unit
    return exact if float(exact) == stated else rational(stated)


def count_levels(
    instance: PodInstance, where: NDArray[np.int64], options: Mapping[str, Any]
) -> tuple[dict[str, Fraction], dict[str, Fraction]]:
    """Placed and wanted amounts of every level, the most important first."""
    levels = levels_of(instance, options)
    order = {each.key: Fraction(0) for each in sorted((x for x in levels if x is not None), key=lambda x: x.rank)}
    placed, wanted = dict(order), dict(order)
    for level, there in zip(levels, where >= 0, strict=True):
        if level is not None:
            wanted[level.key] += level.worth
            placed[level.key] += level.worth * int(there)
    return placed, wanted


def _check_balance(
    objective: float, bound: float, shown: float, best: float | None, proven: bool
) -> tuple[Check, Claim]:
    """Check the bound of the balance; return also the claim that it supports."""
    if bound > objective + TOLERANCE:
        return Check("bound of the balance", False, bound - objective, "above the balance"), "feasible"
    if best is not None and bound > best + TOLERANCE:
        return Check("bound of the balance", False, bound - best, f"{bound:.6g} stated, {best:.6g} found"), "feasible"
    if bound <= shown + TOLERANCE:
        return Check("bound of the balance", True, 0, f"at least {shown:.6g}"), "bounded" if proven else "feasible"
    return Check("bound of the balance", True, 0, f"{bound:.6g} stated, {shown:.6g} shown", how="quoted"), "feasible"


def _weighted(instance: PodInstance, where: NDArray[np.int64], options: Mapping[str, Any]) -> Fraction:
    """Admission as one number: a unit outweighs all later levels, up to 40 bits; or the least share."""
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
    instance: PodInstance,
    where: NDArray[np.int64],
    loads: NDArray[np.float64],
    objective: float,
    bound: float,
    measure: str,
) -> dict[str, float | int | Fraction | str]:
    fresh = np.array([pod.node is None for pod in instance.pods], bool)
    at = zip(instance.pods, where.tolist(), strict=True)
    moved = [pod for pod, n in at if pod.node and n >= 0 and instance.nodes[n].name != pod.node]
    found = {name: balance_of(loads, name) for name in ("deviation", "max_load", "mean_absolute")}
    return {
        **found,
        "sigma": found["deviation"],
        "largest_load": found["max_load"],
        "admitted": int((where[fresh] >= 0).sum()),
        "waiting": int((where < 0).sum()),
        measure: objective,
        "absolute_gap": objective - bound,
        "relative_gap": _gap(objective, bound),
        "move_cost": float(sum(size_of(pod.move_cost or 0.0) for pod in moved)),
    }


def _gap(objective: float, bound: float) -> float:
    return (objective - bound) / objective if objective - bound > TOLERANCE + 1e-11 else 0.0


def _judge(claimed: Claimed) -> Finding:
    document = claimed.document
    if document.status not in ("optimal", "feasible"):
        return Finding("feasible", (Check("an answer", False, detail=f"status {document.status}: nothing to judge"),))
    objective, bound = (float(rational(0 if v is None else v)) for v in (document.objective, document.bound))
    if document.duals:
        return Finding("feasible", (Check("duals", False, len(document.duals), "pod placement has none"),))
    finding = _judge_placement(claimed, objective, bound)
    short = [key for key, each in claimed.answer.admitted.items() if each.admitted != each.most]
    if document.status == "optimal" and short:
        told = Check("an optimum admits the most", False, len(short), f"level {short[0]} does not")
        return replace(finding, checks=(*finding.checks, told))
    if document.status == "optimal" and objective - bound > 2 * TOLERANCE:  # the cheapest moves may cost one of them
        told = Check("an optimum meets its bound", False, objective - bound, f"{bound:.6g} below {objective:.6g}")
        return replace(finding, checks=(*finding.checks, told))
    return finding


def _measure(document: Document, _: PodInstance, changes: Changes, finding: Finding) -> Finding:
    """For ``deviation``, convert the stage (variance in squared percent) to the objective, its root."""
    if document.options.get("balance", "deviation") != "deviation":
        return finding

    def root(value: Fraction, stated: Number | None) -> Fraction:
        said = Fraction(-1) if stated is None else rational(stated)
        if said >= 0 and agrees(str((100 * said) ** 2), value, finding.tolerance):
            return said  # compared before the root, which magnifies rounding near 0
        return Fraction(math.sqrt(max(value, Fraction(0))) / 100)

    return in_measure(finding, changes, "balance", document, root)


def _changed_figures(claimed: Claimed, values: Mapping[str, Mapping[str, Any]]) -> Finding:
    """The answer of a changed model: nodes and cards are those of the values, and figures follow from them."""
    instance, answer, document = claimed.instance, claimed.answer, claimed.document
    index = {node.name: n for n, node in enumerate(instance.nodes)}
    number = {pod.name: p for p, pod in enumerate(instance.pods)}
    where = np.array([index.get(answer.placement.get(pod.name, ""), -1) for pod in instance.pods], np.int64)
    on = {number[name]: np.array(cards, np.int64) for name, cards in answer.cards.items()}
    told = {
        "x": {label_text(pair): 1 for pair in answer.placement.items()},
        "y": {label_text((pod, answer.placement[pod], k)): 1 for pod, each in answer.cards.items() for k in each},
    }
    waits = {pod.name for p, pod in enumerate(instance.pods) if where[p] < 0}
    queue = sorted(each.pod for each in answer.queue)
    placed, wanted = count_levels(instance, where, document.options)
    unit = Population(instance, document.options).unit
    wrong = [key for key in {*wanted, *answer.admitted} if key not in answer.admitted or key not in wanted]
    for key in wanted.keys() & answer.admitted.keys():
        each = answer.admitted[key]
        stated = [_meant(v, unit.get(key, Fraction(1))) for v in (each.admitted, each.wanted, each.most)]
        wrong += [key] if stated != [placed[key], wanted[key], placed[key]] else []
    checks = (
        same_values(told, values),
        Check("who waits", queue == sorted(waits), len(waits ^ set(queue))),
        Check("pods of every priority recounted", not wrong, len(wrong), f"priority {wrong[0]}" if wrong else ""),
    )
    measure, cards = str(document.options.get("balance", "deviation")), bool(document.options.get("cards", True))
    loads = Usage(instance, where, on if cards else None).loads()
    objective, bound = (None if v is None else float(rational(v)) for v in (document.objective, document.bound))
    figures = _metrics(instance, where, loads, balance_of(loads, measure), 0.0, measure)
    gap = None if objective is None or bound is None else objective - bound
    figures |= {"absolute_gap": "unknown" if gap is None else gap}
    figures |= {"relative_gap": "unknown" if document.gap is None else float(rational(document.gap))}
    return Finding("feasible", checks, metrics=figures)


VERIFIER = Verifier(
    "pod-placement",
    PlacementAnswer,
    PlacementProof,
    _judge,
    options=PodOptions,
    state=state_pods,
    grouped=judge_pods,
    figures=_changed_figures,
    measure=_measure,
)
