r"""Verify an allocation of GPU time from its instance: who runs where, and prices that prove every policy step.

The proof is a list of steps. Prices of jobs' time ``u``, of GPUs ``p``, of caps ``q``, floors ``r`` and deadlines ``d``
bound the gains of every allocation: for any weights ``y`` of the jobs' gains,

    sum_m y_m gain_m  <=  V  =  sum p_j N_j + sum u_m + sum q_l u_l - sum r_l o_l - sum d_m n_m / d_m

if no job or pair earns more on any GPU type than it pays. The prices of time are raised here until that holds
exactly, so no bound depends on a solver's tolerance. Therefore

- a step that raises all gains to ``level + pace t`` ends at ``t <= (V - y level) / (y pace)``;
- a job stated as full can gain at most ``(V - y (level + pace t)) / y_m`` more; this sets the paces of later steps;
- finish-time fairness needs ``sum y_m needed_m(rho) <= V``;
- a bound below zero without any gain (``y = 0``) proves that deadlines and floors cannot all be met.

Source: linear programming duality; the policies are those of Narayanan et al. (OSDI 2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from pydantic import Field

from flowlex.formulations.block_labels import label_text
from flowlex.instances.allocation import AllocationInstance
from flowlex.instances.exact_rationals import rational
from flowlex.instances.model_changes import Changes
from flowlex.validation.certificates.allocation_answer import (
    TOLERANCE,
    AllocationAnswer,
    Use,
    feasible,
    small,
    throughputs,
    used,
)
from flowlex.validation.certificates.allocation_bounds import Data, Floats, PricedStep, most_gain, priced
from flowlex.validation.certificates.allocation_formulation import shortest_makespan, state_allocation
from flowlex.validation.certificates.certificate import Check, Claim
from flowlex.validation.certificates.exact_numbers import Number
from flowlex.validation.certificates.problem_options import AllocationOptions
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.certificates.solution_document import Document
from flowlex.validation.certificates.statement.verify_changed_model import in_measure
from flowlex.validation.certificates.verifier_interface import Claimed, Finding, Strict, Verifier, same_values

#: Policies that minimise their objective.
_LEAST = ("makespan", "min_cost", "finish_time")


class AllocationProof(Strict):
    """The steps of the policy, in order."""

    steps: list[PricedStep] = Field(default_factory=list)


# Policies ----------------------------------------------------------------------------------------------------------
def _units(data: Data) -> Floats | None:
    """(n,) gain of each job per step/s; None if gains are time."""
    policy = data.options["policy"]
    if policy == "makespan":
        return _shortest(data) / _steps(data)
    return None if not data.options.get("aware", True) else 1 / data.equal


def _steps(data: Data) -> Floats:
    return np.array([job.steps_left or np.nan for job in data.instance.jobs])


def _shortest(data: Data) -> float:
    return float((_steps(data) / data.speed.max(axis=1)).max())


def _paces(data: Data, full: set[str]) -> Floats:
    """(n,) pace of each job's gain: weight / scale, or its part of the entity's weight among jobs that can rise."""
    policy, pace = data.options["policy"], np.zeros(len(data.job))
    rising = [(m, job) for m, job in enumerate(data.instance.jobs) if job.name not in full]
    if policy != "hierarchical":
        for m, job in rising:
            pace[m] = 1.0 if policy == "makespan" else job.weight / data.scale[m]
        return pace
    entities = {entity.name: entity for entity in data.instance.entities}
    groups: dict[str | None, list[int]] = {}
    for m, job in rising:
        groups.setdefault(job.entity, []).append(m)
    for owner, members in groups.items():
        if owner is None:
            pace[members] = data.weight[members] / data.scale[members]
        elif entities[owner].inside == "fifo":
            pace[members[0]] = entities[owner].weight / data.scale[members[0]]
        else:
            part = data.weight[members] / data.weight[members].sum()
            pace[members] = entities[owner].weight * part / data.scale[members]
    return pace


def _reached(data: Data, use: Use) -> float:
    """The policy's objective at an answer; may be infinite or NaN."""
    policy = data.options["policy"]
    if policy == "min_cost":
        return float(use.held @ data.price)
    if policy == "max_throughput":
        return float(use.throughput.sum())
    if policy == "finish_time":
        return float(_ratios(data, use.throughput)[0].max())
    units, pace = _units(data), _paces(data, set())
    moved = pace > 0
    level = float(((use.time if units is None else units * use.throughput)[moved] / pace[moved]).min())
    return level if policy != "makespan" else _shortest(data) / level if level > 0 else np.inf


def _raised(data: Data, use: Use, steps: list[PricedStep], budget: Budget) -> list[Check]:
    """Replay the steps: each value is optimal, full jobs can gain nothing more, the answer reaches all.

    Once the budget is spent, the steps that are left are quoted.
    """
    units = _units(data)
    gains = use.time if units is None else units * use.throughput
    level, full = np.zeros(len(data.job)), set[str]()
    late, loose, never = [], [], []
    for number, step in enumerate(steps):
        if budget.spent:
            return [budget.quoted(f"steps from {number} on")]
        prices, pace = priced(data, step), _paces(data, full)
        y, strange = prices.level, set(step.full) - (data.job.keys() - full)
        if prices.wrong or strange or y @ pace <= 0 or not step.full or step.value < 0:
            never.append(f"step {number}: {prices.wrong or ', '.join(sorted(strange))[:60] or 'nothing is raised'}")
            break
        most, size = most_gain(data, prices, **({"time": y} if units is None else {"speed": y * units}))
        late.append(((most - y @ level) / (y @ pace) - step.value) / (1 + step.value))
        level = level + pace * step.value
        which = [data.job[name] for name in step.full]
        # The absolute value, so that a price of 0 cannot hide a level slightly above the bound.
        room = abs(most - y @ level) + np.finfo(float).eps * size
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            loose.append(float((room / y[which] / (1 + level[which])).max()))
        full |= set(step.full)
    once = data.options["policy"] in ("max_min", "makespan")
    done = len(steps) == 1 if once else len(full) == len(data.job)
    checks = [
        Check("steps can be replayed", not never and done, len(never), "; ".join(never) or ("" if done else "not all")),
        small("no step could end higher", np.array(late), [f"step {k}" for k in range(len(late))]),
        small("full jobs can gain nothing more", np.array(loose), [f"step {k}" for k in range(len(loose))]),
        small("the answer reaches every level", (level - gains) / (1 + level), list(data.job)),
    ]
    if once:
        checks[2] = Check("one step", len(steps) == 1)
    return checks


def _ratios(data: Data, throughput: Floats) -> tuple[Floats, Floats, Floats]:
    """(n,) finish-time ratios, seconds run so far, and seconds in isolation."""
    n = len(data.job)
    share = np.where(data.speed > 0, data.count / n / data.scale[:, None], 0.0)
    share = share / np.maximum(1.0, share.sum(axis=1, keepdims=True))
    run = np.array([job.running_s for job in data.instance.jobs])
    isolated = np.array([job.isolated_s for job in data.instance.jobs])
    isolated = isolated + _steps(data) / (share * data.speed).sum(axis=1)
    with np.errstate(divide="ignore"):
        return (run + _steps(data) / throughput) / isolated, run, isolated


def _finish(data: Data, use: Use, steps: list[PricedStep]) -> tuple[list[Check], float, float]:
    ratio, run, isolated = _ratios(data, use.throughput)
    stated = steps[-1].value
    rho = stated * (1 - 1e-9)
    best = data.speed.max(axis=1)
    together = np.zeros(len(data.instance.job_types))
    np.maximum.at(together, data.pairs[0][:, :2], data.pairs[1])
    best = np.maximum(best, together[data.kind])
    shown = bool(rho <= _ratios(data, best)[0].max())
    wrong = [prices.wrong for prices in (priced(data, step) for step in steps) if prices.wrong]
    room = rho * isolated - run
    with np.errstate(divide="ignore"):
        needed = np.where(room > 0, _steps(data) / room, np.inf)
    for step in steps:
        prices = priced(data, step)
        pulled = prices.level > 0
        most = most_gain(data, prices, speed=prices.level)[0]
        shown = shown or bool((prices.level[pulled] * needed[pulled]).sum() >= most > 0)
    reached, gap = float(ratio.max()), float(data.options.get("tolerance", 0.0))
    detail = f"{reached:.10g}, bound {stated:.10g}, tolerance {gap:g}"
    checks = [
        Check("prices of rows that exist", not wrong, len(wrong), "; ".join(wrong[:3])),
        Check("no allocation has a lower worst ratio than the bound", shown, detail=f"{stated:.10g}"),
        Check("the answer is within the tolerance of the bound", reached <= stated * (1 + gap) + 1e-12, detail=detail),
    ]
    return checks, reached, stated


def _total(data: Data, use: Use, steps: list[PricedStep]) -> tuple[list[Check], float]:
    """Compare the total throughput, or cost, with the bound that the prices prove."""
    cheap = data.options["policy"] == "min_cost"
    prices = priced(data, steps[0])
    most = most_gain(data, prices, **({"cost": data.price} if cheap else {"speed": np.ones(len(data.job))}))[0]
    reached = -float(use.held @ data.price) if cheap else float(use.throughput.sum())
    off = (most - reached) / (1 + abs(reached))
    detail = f"{abs(reached):.10g}, bound {abs(most):.10g}"
    checks = [
        Check("prices of rows that exist", not prices.wrong, detail=prices.wrong),
        Check("no allocation is better", len(steps) == 1 and off <= TOLERANCE, max(off, 0.0), detail),
    ]
    return checks, abs(reached)


def _by_parts(data: Data, use: Use, steps: list[PricedStep], stated: Any) -> tuple[list[Check], float, float]:
    """The value of an answer by parts or of an incumbent, and whether prices of the full problem prove its bound."""
    policy, prices = data.options["policy"], priced(data, steps[0])
    if policy in ("max_throughput", "min_cost"):
        sign = -1 if policy == "min_cost" else 1
        gains: dict[str, Floats] = {"cost": data.price} if sign < 0 else {"speed": np.ones(len(data.job))}
        bound = sign * most_gain(data, prices, **gains)[0]
    elif policy in ("max_min", "water_filling", "makespan"):
        units, y, pace = _units(data), prices.level, _paces(data, set())
        most = most_gain(data, prices, **({"time": y} if units is None else {"speed": y * units}))[0]
        bound = float(most / (y @ pace)) if y @ pace > 0 else np.inf
        if policy == "makespan":
            bound = _shortest(data) / bound if bound > 0 else np.inf
    else:
        return [Check("a policy that is solved by parts", False, detail=str(policy)[:60])], 0.0, 0.0
    objective = _reached(data, use)
    said = float(stated) if isinstance(stated, int | float) else np.nan
    over = (said - bound if policy in _LEAST else bound - said) / (1 + abs(bound))
    checks = [
        Check("prices of rows that exist", not prices.wrong, detail=prices.wrong),
        Check("no allocation is better than the bound", len(steps) == 1 and over <= TOLERANCE, detail=f"{bound:.10g}"),
        Check("what is reached is finite", bool(np.isfinite([objective, bound]).all())),
    ]
    return checks, objective if np.isfinite(objective) else 0.0, said if np.isfinite(said) else 0.0


def _judge(claimed: Claimed) -> Finding:
    document = claimed.document
    data = Data(claimed.instance, document.options)
    steps: list[PricedStep] = claimed.proof.steps
    if document.status == "infeasible":
        if not steps:
            return Finding("infeasible", (Check("prices that show why there is no answer", False),))
        if claimed.budget.spent:
            return Finding("feasible", (claimed.budget.quoted("deadlines and floors contradict the rest"),))
        prices = priced(data, steps[0])
        most, size = most_gain(data, prices)
        ok = not prices.wrong and most < -1e-9 * size
        detail = prices.wrong or f"what is owed exceeds what can be by {-most:.3g} of {size:.3g}"
        return Finding("infeasible", (Check("deadlines and floors contradict the rest", ok, max(most, 0.0), detail),))
    use = used(data, claimed.answer.shares)
    checks = feasible(data, use, claimed.answer.steps_per_s)
    figures = _figures(data, use) | ({"programs_solved": len(steps)} if steps else {})
    policy = document.options["policy"]
    if not steps:
        if document.duals and not document.proof:
            checks.append(Check("duals", document.status == "optimal", detail="without prices", how="quoted"))
        return _quoted(data, use, checks, figures, stated=document.objective is not None)
    if claimed.budget.spent:
        checks += [claimed.budget.quoted("no allocation is better"), _duals(document.duals, steps[0])]
        return _quoted(data, use, checks, figures, bound=None if document.status == "optimal" else document.bound)
    if document.options.get("parts", 1) != 1 or document.status == "feasible":
        more, objective, bound = _by_parts(data, use, steps, document.bound)
        checks += [*more, _duals(document.duals, steps[0])]
        exact = [Fraction(value) for value in (objective, bound)]
        return Finding("bounded", tuple(checks), exact[0], exact[1], metrics=figures, tolerance=TOLERANCE)
    if policy == "finish_time":
        more, objective, bound = _finish(data, use, steps)
    elif policy in ("max_throughput", "min_cost"):
        more, objective = _total(data, use, steps)
        bound = objective
    elif policy in ("max_min", "water_filling", "hierarchical", "makespan"):
        more, objective = _raised(data, use, steps, claimed.budget), _reached(data, use)
        bound = objective
        if claimed.budget.quoting:
            return _quoted(data, use, [*checks, *more, _duals(document.duals, steps[0])], figures)
    else:
        return Finding("feasible", (*checks, Check("a policy that is known", False, detail=str(policy)[:60])))
    checks += [*more, _duals(document.duals, steps[0])]
    exact = [Fraction(value) for value in (objective, bound)]
    return Finding("optimal", tuple(checks), exact[0], exact[1], metrics=figures, tolerance=TOLERANCE)


def _quoted(
    data: Data,
    use: Use,
    checks: list[Check],
    figures: Mapping[str, float | int],
    *,
    stated: bool = True,
    bound: Number | None = None,
) -> Finding:
    """The finding without a recomputed bound; a stated bound must not contradict the answer."""
    claim: Claim = "feasible"
    reached = _reached(data, use) if stated else np.nan
    objective = Fraction(reached) if np.isfinite(reached) else None
    if bound is not None and objective is not None:
        better = objective - rational(bound) if data.options["policy"] in _LEAST else rational(bound) - objective
        ok = better >= -TOLERANCE * (1 + abs(objective))
        checks.append(Check("the bound does not contradict the answer", ok, detail=f"{bound}"))
        claim = "bounded"
    said = None if claim == "feasible" else rational(bound or 0)
    return Finding(claim, tuple(checks), objective, said, {}, figures, ["programs_solved"], tolerance=TOLERANCE)


def _duals(stated: Mapping[str, Mapping[str, Any]], step: PricedStep) -> Check:
    """Check that the labelled duals are the prices of the first step."""
    wrong = [
        f"{name}[{label}]"
        for name, values in stated.items()
        for label, value in values.items()
        if value != step.prices.get(name, {}).get(label, 0.0)  # type: ignore[call-overload]
    ]
    wrong += [name for name in step.prices if stated and name not in stated]  # no duals claim nothing
    return Check("duals are the prices of the first step", not wrong, len(wrong), ", ".join(wrong[:3]))


def _figures(data: Data, use: Use) -> dict[str, float | int]:
    figures: dict[str, float | int] = {
        "least_normalised": float((use.throughput / data.equal * data.scale / data.weight).min()),
        "total_steps_per_s": float(use.throughput.sum()),
        "gpus_held": float(use.held.sum()),
        "cost_usd_per_hour": float(use.held @ data.price),
    }
    left = _steps(data)
    if np.isfinite(left).all() and (use.throughput > 0).all():
        figures["makespan_s"] = float((left / use.throughput).max())
    return figures


def _measure(document: Document, instance: AllocationInstance, changes: Changes, finding: Finding) -> Finding:
    """For ``makespan``, convert the stage (how far all jobs rise) to the objective in seconds."""
    if document.options.get("policy") != "makespan" or not finding.objective:
        return finding
    shortest = shortest_makespan(instance)
    return in_measure(finding, changes, "objective", document, lambda value, _: shortest / value)


def _changed_figures(claimed: Claimed, values: Mapping[str, Mapping[str, Any]]) -> Finding:
    """The answer of a changed model: shares are those of the values, and throughputs follow from them."""
    data, answer = Data(claimed.instance, claimed.document.options), claimed.answer
    use = used(data, answer.shares)
    told = {}
    for each in answer.shares:
        first, second, *_ = [*sorted(each.jobs, key=lambda name: data.job.get(name, -1)), "", ""]
        told[label_text((first, second, each.gpu_type))] = each.fraction
    checks = (
        same_values({"share": told}, values, TOLERANCE),
        Check("shares of jobs and types that exist", not use.wrong, len(use.wrong), ", ".join(use.wrong[:3])),
        *throughputs(data, use, answer.steps_per_s),
    )
    return Finding("feasible", checks, metrics=_figures(data, use), unjudged=["programs_solved"])


VERIFIER = Verifier(
    "allocation",
    AllocationAnswer,
    AllocationProof,
    _judge,
    duals=True,
    options=AllocationOptions,
    state=state_allocation,
    measure=_measure,
    figures=_changed_figures,
)
