"""Verify solution files of flow scheduling from the instance alone.

All figures are recomputed from instance and options; duals of machines and jobs prove optimality.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flowlex.formulations.block_labels import label_text
from flowlex.validation.certificates.certificate import Check, Claim
from flowlex.validation.certificates.exact_numbers import agrees, total, whole, wide
from flowlex.validation.certificates.flow.formulation_from_instance import (
    CountedProof,
    counted_bounds,
    problem_of,
    state_flow,
    weighted_objective,
)
from flowlex.validation.certificates.flow.goal_costs import Problem
from flowlex.validation.certificates.flow.job_shares import stated_shares, unfair
from flowlex.validation.certificates.flow.lexicographic_stage_bounds import PriceProof, StageProof, proven
from flowlex.validation.certificates.flow.price_optimality import Prices, Survey, bound, strict, weighed
from flowlex.validation.certificates.flow.side_constraints import CHECKS, overfull
from flowlex.validation.certificates.problem_options import FlowOptions
from flowlex.validation.certificates.verifier_interface import Claimed, Finding, Strict, Verifier, same_values

__all__ = ["VERIFIER"]


class FlowAnswer(Strict):
    """Machine of each running task, reason of each waiting one, (least, most) tasks of jobs with shares, cost unit."""

    placements: dict[str, str]
    waiting: dict[str, str]
    shares: dict[str, Annotated[list[int], Field(min_length=2, max_length=2)]] = Field(default_factory=dict)
    scale: int = Field(ge=1)
    weights: dict[str, int] | None
    """Weight of each stage in the objective; null where the objective is the value of the last stage."""


class FlowProof(PriceProof):
    """Weights of the stages, and prices in the unit of their sum.

    If a network was stopped between its stages: prices by stage. With capacities or task rules: leaves by stage.
    """

    stages: dict[str, StageProof] = Field(default_factory=dict)
    program: CountedProof | None = None


class _Schedule:
    """The answer in the instance's own order, with its figures."""

    def __init__(self, problem: Problem, answer: FlowAnswer) -> None:
        self.problem, jobs = problem, problem.instance.jobs
        self.at = [problem.machine.get(answer.placements.get(t.task.name, ""), -1) for t in problem.tasks]
        self.where: NDArray[np.int64] = np.array(self.at, dtype=np.int64)
        self.held = Counter(m for m in self.at if m >= 0)
        self.running = [0] * len(jobs)
        for task, m in zip(problem.tasks, self.at, strict=True):
            self.running[task.job] += m >= 0
        self.waits = [len(job.tasks) - n for job, n in zip(jobs, self.running, strict=True)]
        stated = answer.shares if problem.shares() is not None else {}
        pairs = (stated.get(job.name, [0, len(job.tasks)]) for job in jobs)
        self.shares = [(least, most) for least, most in pairs]
        self.bounds = [(least, max(most, n)) for (least, most), n in zip(self.shares, problem.beyond, strict=True)]
        self.short = sum(max(0, least - n) for (least, _), n in zip(self.shares, self.running, strict=True))

    def stages(self) -> dict[str, int]:
        """Value of every stage by name, in strict order."""
        problem, waiting = self.problem, Counter[int]()
        for j, n in enumerate(self.waits):
            waiting[problem.levels[j]] += n
        found = {"shortfall": self.short}
        found |= {f"waiting_{level}": waiting[level] for level in sorted(waiting, reverse=True) if level}
        return found | self.costs()

    @cached_property
    def plain(self) -> NDArray[np.bool_]:
        """(T,) tasks that run where no explicit cost replaces those of placement and locality."""
        found: NDArray[np.bool_] = self.where >= 0
        for t in np.flatnonzero(found & self.problem.explicit).tolist():
            found[t] = self.at[t] not in self.problem.tasks[t].explicit
        return found

    @cached_property
    def paid(self) -> dict[str, NDArray[Any]]:
        """By rank, (T,) cost of each task where it runs or waits."""
        problem, ranks = self.problem, self.problem.goals
        at, runs = self.where, self.where >= 0
        found = {rank: np.where(runs, 0, cost) for rank, cost in problem.waiting.items()}

        def add(rank: str, tasks: NDArray[np.int64], cost: NDArray[Any]) -> None:
            all_of = np.zeros(len(at), cost.dtype)
            all_of[tasks] = cost
            found[rank] = wide(all_of) + (wide(found[rank]) if rank in found else 0)

        plain = self.plain
        for wishes, tasks in problem.classes:
            here = tasks.start + np.flatnonzero(plain[tasks])
            for rank, cost in problem.preference(wishes).items() if wishes else ():
                add(rank, here, cost[at[here]])
        here, kept = np.flatnonzero(plain), np.flatnonzero(runs & (at == problem.own))
        add(ranks.rank("DataLocality"), here, problem.reading(here, at[here], true=False))
        add(ranks.rank("Continuity"), kept, -problem.credit[kept])
        add(ranks.ranks[0], kept, -problem.keep[kept])
        other = np.flatnonzero(runs & ~plain)
        add(ranks.ranks[0], other, whole(problem.tasks[t].explicit[self.at[t]] for t in other.tolist()))
        return found

    def costs(self) -> dict[str, int]:
        """Cost of every rank by name."""
        cost = Counter({rank: total(each) for rank, each in self.paid.items()})
        machine, number, slots = self.problem.slot_costs
        held = np.bincount(self.where[self.where >= 0], minlength=len(self.problem.slots))
        for rank, each in slots.items():
            cost[rank] += total(each[number < held[machine]])
        return {rank: cost[rank] for rank in self.problem.goals.ranks}

    def saved(self) -> int:
        """Cost saved by true distances against aggregated ones."""
        here = np.flatnonzero(self.plain)
        known, true = (self.problem.reading(here, self.where[here], true=true) for true in (False, True))
        return total(known) - total(true)


def _judge(claimed: Claimed) -> Finding:
    instance, document, answer = claimed.instance, claimed.document, claimed.answer
    problem = Problem(instance, document.options, answer.scale, claimed.goals)
    names = {task.task.name for task in problem.tasks}
    strange = [f"{t} on {m}" for t, m in answer.placements.items() if t not in names or m not in problem.machine]
    if strange:
        return Finding("feasible", (_none("tasks and machines of this instance", strange),))
    schedule = _Schedule(problem, answer)
    if problem.goals.foreign:
        quoted = f"{problem.goals.foreign}: no file holds what it costs"
        checks = [*_feasible(schedule, answer), Check("costs of the goals", True, detail=quoted, how="quoted")]
        stated = None if document.objective is None else Fraction(document.objective)
        said = {name: Fraction(value) for name, value in document.stages.items()}
        return Finding("feasible", tuple(checks), stated, stated, said, {}, document.metrics, ["waiting_by_class"])
    checks = [*_feasible(schedule, answer), *_shares(schedule, answer)]
    values = schedule.stages()
    checks.append(Check("costs of the goals", True, detail=_said(values)))
    metrics = _metrics(schedule, values)
    stages, objective = _objective(document.stages, answer.weights, values)
    if claimed.proof.stages or claimed.proof.program is not None:
        return _by_stage(
            schedule, claimed, checks, values, answer.weights, Finding("feasible", (), objective, None, stages, metrics)
        )
    if document.status != "optimal" or not all(check.ok for check in checks):
        return Finding("feasible", tuple(checks), objective, stages=stages, metrics=metrics)
    if claimed.proof.weights is None:
        checks.append(Check("optimality", True, detail=f"says {document.engine}", how="quoted"))
        return Finding("feasible", tuple(checks), objective, objective, stages, metrics)
    if claimed.budget.spent:
        checks.append(claimed.budget.quoted("optimality"))
        return Finding("feasible", tuple(checks), objective, objective, stages, metrics)
    checks += _best(schedule, claimed.proof, values, answer, document.duals)
    return Finding("optimal", tuple(checks), objective, objective, stages, metrics)


def _by_stage(
    schedule: _Schedule,
    claimed: Claimed,
    checks: list[Check],
    values: dict[str, int],
    weights: dict[str, int] | None,
    found: Finding,
) -> Finding:
    """Bound every stage, among the schedules that are no worse in the earlier stages."""
    document, proof, problem = claimed.document, claimed.proof, schedule.problem
    checks.append(_none("no duals beside the proofs of the stages", list(document.duals)))
    one = proof.weights == (None if proof.program is None else weights)
    one = one and not (proof.machine_price or proof.job_price or proof.apart_price)
    checks.append(Check("one kind of proof", one and not (proof.stages and proof.program)))
    if proof.program is None:
        bounds = proven(problem, proof.stages, values, schedule.bounds, claimed.budget)
    else:
        bounds = counted_bounds(problem, proof.program, values, schedule.shares, claimed.budget)
    shown: dict[str, int] = {}
    for check, stage, at_least in bounds:
        checks.append(check)
        if at_least is not None:
            shown[stage] = at_least
    least = {name: shown[name] for name in values if name in shown}
    free = [name for name, value in values.items() if value == 0 and name not in problem.goals.ranks]
    loose = [name for name, value in values.items() if least.get(name) != value and name not in free]
    last = list(document.stages)[-1]
    bound: Fraction | int | None = least.get(last)
    if weights is not None:  # the objective is the weighted sum, which the last stage bounds if the others are optimal
        checks.append(_in_order(schedule, weights, values, Survey(problem)))
        above = None if set(loose) - {last} or bound is None else values[last] - bound
        bound = None if above is None else Fraction(found.objective or 0) - above
    if document.status == "optimal" and loose and claimed.budget.spent:
        for name in loose:
            far = f"says {document.engine}; proven: at least {least.get(name, 'nothing')}, here {values[name]}"
            checks.append(Check(f"{name} is least", True, detail=far, how="quoted"))
        bound = found.objective
    claim: Claim = "optimal" if not loose else "bounded" if last in least else "feasible"
    metrics = {**found.metrics, **{f"{name}_at_least": low for name, low in least.items()}}
    for name in least:  # exact multipliers may prove more than the solver's tolerance let it state
        said = document.metrics.get(f"{name}_at_least")
        if isinstance(said, int) and said < least[name]:
            metrics[f"{name}_at_least"] = said
    if claimed.budget.spent:  # bounds that were not checked are quoted too
        metrics |= {name: value for name, value in document.metrics.items() if name.endswith("_at_least")} | metrics
    return replace(found, claim=claim, checks=tuple(checks), bound=bound, metrics=metrics)


def _objective(
    stated: dict[str, Any], weights: dict[str, int] | None, values: dict[str, int]
) -> tuple[dict[str, int], int]:
    """Stages that the file should state, and its objective: their weighted sum, or the last one stated."""
    stages = {name: value for name, value in values.items() if value or name in stated} if stated else {}
    if weights is None:
        return stages, values[[name for name in values if name in stated][-1]]
    if weights.keys() != values.keys():
        raise ValueError(f"weights of {', '.join(weights)}; the stages are {', '.join(values)}")
    return stages, sum(weights[name] * value for name, value in values.items())


def _feasible(schedule: _Schedule, answer: FlowAnswer) -> Iterator[Check]:
    problem, machines = schedule.problem, schedule.problem.instance.machines
    placed = list(zip(problem.tasks, schedule.at, strict=True))
    over = [machines[m].name for m, n in schedule.held.items() if n > machines[m].slots]
    yield _none("slots of machines", over)
    if problem.resources:
        demands = (task.task.demands for task in problem.tasks)
        yield _none("capacities of machines", list(overfull(problem.instance, demands, schedule.at)))
    broken = list[str]()
    for wishes, tasks in problem.classes:
        if wishes:
            runs = tasks.start + np.flatnonzero(schedule.where[tasks] >= 0)
            wrong = runs[~problem.fits(wishes, drained=True)[schedule.where[runs]]]
            broken += [problem.tasks[t].task.name for t in wrong.tolist()]
    yield _none("required and forbidden resources", broken)
    pairs = Counter((t.apart, machines[m].name) for t, m in placed if m >= 0 and t.apart)
    yield _none("rules of different machines", [f"{r} on {m}" for (r, m), n in pairs.items() if n > 1])
    held = [placed[t] for t in np.flatnonzero(problem.held).tolist()]
    moved = [t.task.name for t, m in held if m not in (-1, t.own)]
    stops = Counter(t.job for t, m in held if m < 0)
    beyond = [problem.instance.jobs[j].name for j, n in stops.items() if n > problem.gates[j][1]]
    yield _none("limits of preemptions", [*moved, *beyond])
    offenders = list(problem.ties.broken(schedule.at))
    for name in CHECKS if problem.ties else ():
        yield _none(name, [who for check, who, _ in offenders if check == name])
    waiting = {t.task.name for t, m in placed if m < 0}
    yield _none("names of waiting tasks", sorted(waiting ^ set(answer.waiting)))


def _shares(schedule: _Schedule, answer: FlowAnswer) -> Iterator[Check]:
    problem, jobs = schedule.problem, schedule.problem.instance.jobs
    if problem.shares() is None:
        yield _none("shares without a goal of shares: none", list(answer.shares))
        return
    yield _none("names of jobs with shares", sorted(answer.shares.keys() ^ {job.name for job in jobs}))
    above = [
        j.name
        for j, n, (_, most) in zip(jobs, schedule.running, schedule.bounds, strict=True)
        if n > min(most, len(j.tasks))
    ]
    yield _none("upper bounds of shares", above)
    kind = problem.goals.by_kind["FairShares"]["kind"]
    if kind in ("max_min", "weighted"):
        same = all(lower == upper for lower, upper in schedule.shares)
        why = unfair(problem, [lower for lower, _ in schedule.shares])
        yield Check("shares are max-min fair", same and not why, detail=why)
        return
    true = stated_shares(problem)
    wrong = [job.name for job, here, share in zip(jobs, schedule.shares, true, strict=True) if here != share]
    name = "shares by dominant resources" if kind == "dominant" else "guarantees and limits of the jobs"
    yield _none(name, wrong)


def _best(
    schedule: _Schedule, proof: FlowProof, values: dict[str, int], answer: FlowAnswer, duals: dict[str, Any]
) -> Iterator[Check]:
    """Check that the weights put the stages in strict order, and that the prices bound their sum."""
    problem, weights = schedule.problem, proof.weights or {}
    strange = [*proof.offenders(problem, values), *sorted(values.keys() - weights.keys())]
    yield _none("names of prices and weights", strange)
    if strange or (answer.weights is not None and answer.weights != weights):
        yield Check("optimality", False, detail="not looked at" if strange else "weights of the objective")
        return
    survey = Survey(problem)
    yield _in_order(schedule, weights, values, survey)
    prices = proof.prices(problem, weights)
    here = sum(weights[name] * value for name, value in values.items())
    least = bound(problem, survey, prices, schedule.bounds, true=False)
    yield Check("optimality", least == here, abs(here - least), f"at least {least}, here {here}")
    if problem.locality is not None:
        rank = problem.goals.rank("DataLocality")
        true = here - weights[rank] * schedule.saved() - bound(problem, survey, prices, schedule.bounds, true=True)
        detail = f"true distances cost {schedule.saved()} less; at most {true // weights[rank]} above the best for them"
        yield Check("gap of aggregated locality", true >= 0, detail=detail)
    yield _duals(schedule, prices, duals)


def _in_order(schedule: _Schedule, weights: Mapping[str, int], values: dict[str, int], survey: Survey) -> Check:
    """Check that the weights put the stages in strict order."""
    ranks = schedule.problem.goals.ranks
    swing = {rank: survey.swing(rank) for rank in ranks}
    why = strict(weights, [name for name in values if name.startswith("waiting_")], ranks, swing)
    return Check("weights put the stages in strict order", not why, detail=why)


def _duals(schedule: _Schedule, prices: Prices, duals: dict[str, Any]) -> Check:
    """Check that the stated duals are the prices, and for every task its cost at these prices."""
    problem = schedule.problem
    waits = schedule.where < 0
    jobs, machines = wide(whole(prices.job)), wide(whole(prices.machine))
    price = jobs[problem.job].astype(np.result_type(jobs, machines))
    price[~waits] = machines[schedule.where[~waits]]
    cost = (wide(weighed(schedule.paid, prices.weights, len(problem.tasks))) + price).tolist()
    for t in np.flatnonzero(waits & problem.held).tolist() if prices.preempt else ():
        cost[t] += prices.preempt.get(problem.tasks[t].job, 0)
    for t in np.flatnonzero(~waits).tolist() if prices.apart else ():
        cost[t] += prices.apart.get(problem.tasks[t].apart, {}).get(schedule.at[t], 0)
    true = {
        "machine": dict(zip(problem.machine, prices.machine, strict=True)),
        "unscheduled": {job.name: p for job, p in zip(problem.instance.jobs, prices.job, strict=True)},
        "task": {t.task.name: price for t, price in zip(problem.tasks, cost, strict=True)},
    }
    wrong = [name for name in duals if name not in true]
    wrong += [name for name in true.keys() & duals.keys() if not _same(duals[name], true[name])]
    return _none("duals are the prices", wrong)


def _same(stated: dict[str, Any], true: dict[str, int]) -> bool:
    same = stated == true  # mostly equal integers; only others need reading
    return same or (stated.keys() == true.keys() and all(agrees(value, true[name]) for name, value in stated.items()))


def _metrics(schedule: _Schedule, values: dict[str, int]) -> dict[str, Any]:
    problem, jobs = schedule.problem, schedule.problem.instance.jobs
    own, at = problem.own, schedule.where
    running, slots = sum(schedule.running), int(problem.slots.sum())
    priority = problem.goals.by_kind.get("Priority")
    waiting: Counter[int] = Counter()
    for job, n in zip(jobs, schedule.waits, strict=True):
        waiting[job.priority if priority is not None and priority["mode"] == "strict" else 0] += n
    ranks = problem.goals.ranks
    return {
        "running": running,
        "waiting": sum(schedule.waits),
        "utilisation": Fraction(running, slots) if slots else 0,
        "placed": int(np.count_nonzero((own < 0) & (at >= 0))),
        "moved": int(np.count_nonzero((own >= 0) & (at >= 0) & (own != at))),
        "stopped": int(np.count_nonzero((own >= 0) & (at < 0))),
        "share_shortfall": schedule.short,
        "waiting_by_class": "; ".join(f"{name}: {n}" for name, n in sorted(waiting.items())),
        **({f"cost_of_{rank}": values[rank] for rank in ranks} if len(ranks) > 1 else {}),
        "cost": sum(values[rank] for rank in ranks),
    }


def _said(values: dict[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _none(name: str, offenders: list[str]) -> Check:
    return Check(name, not offenders, len(offenders), ", ".join(offenders[:3]))


def _changed_figures(claimed: Claimed, values: Mapping[str, Mapping[str, Any]]) -> Finding:
    """The answer of a changed model: machines are those of the values, and goals cost what they do unchanged."""
    answer, problem = claimed.answer, problem_of(claimed.instance, claimed.document.options)
    schedule = _Schedule(problem, answer)
    waiting = {task.task.name for task, m in zip(problem.tasks, schedule.at, strict=True) if m < 0}
    jobs, shares = [job.name for job in claimed.instance.jobs], problem.shares() is not None
    true = dict(zip(jobs, map(list, stated_shares(problem)), strict=True)) if shares else {}
    wrong = sorted(job for job in {*true, *answer.shares} if true.get(job) != answer.shares.get(job))
    checks = (
        same_values({"x": {label_text(pair): 1 for pair in answer.placements.items()}}, values),
        _none("names of waiting tasks", sorted(waiting ^ set(answer.waiting))),
        _none("shares of jobs", wrong),
        Check("unit of costs", answer.scale == problem.scale, detail=f"1/{problem.scale}"),
    )
    return Finding("feasible", checks, metrics=_metrics(schedule, schedule.stages()))


VERIFIER = Verifier(
    "flow-scheduling",
    FlowAnswer,
    FlowProof,
    _judge,
    duals=True,
    solvable=True,
    options=FlowOptions,
    state=state_flow,
    figures=_changed_figures,
    measure=weighted_objective,
)
