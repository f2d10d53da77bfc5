"""Verify solution files of flow scheduling: the problem restated from the instance, and the proof of its objectives.

`flowlex.validation.restated.flow.program` states the problem. Here are what the answer means in its columns, which
columns a proof needs in a large cluster, and the figures beside the answer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flowlex.formulations.block_labels import label_text
from flowlex.formulations.gc_pause import collector_paused
from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import FlowInstance
from flowlex.instances.model_changes import Changes
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.solution_document import read_as
from flowlex.validation.certificates.verifier_interface import (
    Claimed,
    Document,
    Finding,
    Strict,
    Verifier,
    same_values,
)
from flowlex.validation.proofs.exact_program import ExactProgram, Whole, dot, scaled
from flowlex.validation.proofs.proof import Leaf, Proof, ProofError, from_document
from flowlex.validation.restated.flow.goal_costs import Problem
from flowlex.validation.restated.flow.goal_options import FlowOptions, Goals
from flowlex.validation.restated.flow.job_shares import stated_shares, unfair
from flowlex.validation.restated.flow.own_goals import OwnGoal
from flowlex.validation.restated.flow.program import FlowProgram, FlowStatement
from flowlex.validation.restated.program_finding import program_finding

__all__ = ["VERIFIER"]

#: Pairs of task and machine up to which all columns are written out; if the proof needs them all.
_WRITTEN_OUT, _MOST = 20_000, 2_000_000
#: Rows whose multipliers the columns that are not made have, too.
_PRICED = {"machine", "apart", "unscheduled", "share", "preempted"}


class Beside(Strict):
    """What a file states even without a schedule: the weight of each stage, and (least, most) tasks of jobs."""

    weights: dict[str, Annotated[int, Field(ge=1)]] | None = None
    """Weight of each stage in the objective; null where the objective is the value of the last stage."""
    shares: dict[str, Annotated[list[int], Field(min_length=2, max_length=2)]] = Field(default_factory=dict)


class FlowAnswer(Beside):
    """Machine of each running task, reason of each waiting one, cost unit."""

    placements: dict[str, str]
    waiting: dict[str, str]
    scale: int = Field(ge=1)


def _places(problem: Problem, answer: FlowAnswer) -> NDArray[np.int64]:
    """(T,) machine of each task, -1 if it waits."""
    machine, placed = problem.machine, answer.placements
    return np.array([machine[placed[name]] if name in placed else -1 for name in problem.names], np.int64)


@collector_paused()
def _judge(claimed: Claimed) -> Finding:
    instance, document, answer = claimed.instance, claimed.document, claimed.answer
    problem = Problem(instance, document.options, answer.scale, claimed.goals)
    names = set(problem.names)
    strange = [f"{t} on {m}" for t, m in answer.placements.items() if t not in names or m not in problem.machine]
    if strange:
        return Finding("feasible", (Check.none("tasks and machines of this instance", strange),))
    at, jobs = _places(problem, answer), instance.jobs
    foreign = problem.goals.foreign
    checks = [_waiting(problem, at, answer), *(() if foreign else _shares(problem, answer))]
    stated = {} if foreign or problem.claims is None else answer.shares
    shares = [stated.get(job.name, [0, len(job.tasks)]) for job in jobs]
    statement, body = FlowStatement(problem, shares), {} if foreign else document.proof
    made = _program_for(statement, body, at)
    values, wrong = made.values(at)
    checks.append(Check.none("every task may run on its machine", [problem.names[t] for t in wrong]))
    metrics = ["waiting_by_class"]
    if foreign:
        quoted = f"{foreign}: no file holds what it costs"
        found = program_finding(made.program, values, {}, "feasible", claimed.budget, checks=checks)
        stated = None if document.objective is None else Fraction(document.objective)
        said = {name: Fraction(value) for name, value in document.stages.items()}
        checks = [*found.checks, Check("costs of the goals", True, detail=quoted, how="quoted")]
        return Finding("feasible", tuple(checks), stated, stated, said, {}, document.metrics, metrics)
    named = [o.name for o in made.program.objectives if o.name in document.stages]
    last = named[-1] if named and answer.weights is None else ""
    found = program_finding(made.program, values, body, document.status, claimed.budget, main=last, checks=checks)
    if not found.stages:
        return found
    bounds = {"shortfall": Fraction(0), **found.bounds}  # without claims there is no such stage
    reached: dict[str, Any] = {f"{name}_at_least": bound for name, bound in bounds.items()}
    for name, low in reached.items():  # exact multipliers may prove more than the solver's tolerance let it state
        said_low = document.metrics.get(name)
        reached[name] = said_low if isinstance(said_low, int) and said_low < low else low
    if claimed.budget.spent:  # bounds that were not checked are quoted too
        reached |= {name: value for name, value in document.metrics.items() if name.endswith("_at_least")}
    whole = {"shortfall": Fraction(0), **found.stages}
    found = replace(found, metrics={**_metrics(problem, at, whole), **reached})
    if answer.weights is not None:
        found = _weighted(found, answer.weights, _largest_change(made))
    stated_stages = {name: value for name, value in whole.items() if value or name in document.stages}
    return replace(found, stages=stated_stages if document.stages else {})


def _weighted(found: Finding, weights: Mapping[str, int], change: int = 0) -> Finding:
    """The finding with the weighted sum of the stages as its objective; a bound of the last one holds for all.

    Weights must order the stages strictly. With a gap g, a waiting task of class k weighs g k, and one below a share
    more than all of these; g exceeds what one of them could save of the costs, which is at least ``change``.
    """
    last, classes = list(found.stages)[-1], [name for name in found.stages if name.startswith("waiting_")]
    level = {name: int(name.removeprefix("waiting_")) for name in classes}
    above = 1 + max(level.values(), default=0)
    gap = weights.get("shortfall", 0) // above
    if gap <= change or weights != {"shortfall": gap * above, **{n: gap * k for n, k in level.items()}, last: 1}:
        raise ValueError(f"weights: expected {last} 1, waiting_k k times a gap above {change}, shortfall {above} times")
    objective = sum((weights[name] * Fraction(value) for name, value in found.stages.items()), Fraction(0))
    bound = None
    if found.bound is not None:
        bound = objective - weights[last] * (Fraction(found.stages[last]) - Fraction(found.bound))
    return replace(found, objective=objective, bound=bound)


def _largest_change(made: FlowProgram) -> int:
    """What moving every task once could change of the costs, over the columns that are there, and two slots more."""
    objective, count = made.program.objectives[-1], len(made.waits)
    cost = np.zeros(made.program.count, object)
    cost[objective.column] = objective.value
    low, high = cost[made.waits].copy(), cost[made.waits].copy()
    np.minimum.at(low, made.task, cost[made.x])
    np.maximum.at(high, made.task, cost[made.x])
    slots = np.abs(cost[made.slot]).max(initial=0) if made.slot_prices else 0
    return int((high - low).sum() if count else 0) + 2 * int(slots)


def _program_for(statement: FlowStatement, proof: Mapping[str, Any], at: NDArray[np.int64]) -> FlowProgram:
    """The program over all pairs, or in a large cluster over those that the answer and the proof need."""
    if statement.pair_count <= _WRITTEN_OUT:
        return FlowProgram(statement, statement.all_pairs(), whole=True)
    runs = np.flatnonzero(at >= 0)
    placed = runs, at[runs]
    small = FlowProgram(statement, statement.together([placed]), whole=False, priced=False)
    try:
        read = from_document(dict(proof), small.program)
    except ProofError:  # multipliers of rows over other pairs
        read = None
    if read is None or not _prices_alone(read):
        if statement.pair_count > _MOST:
            raise ProofError(f"in a cluster of more than {_MOST} pairs, each stage has one leaf without branches")
        return FlowProgram(statement, statement.all_pairs(), whole=True)
    chosen = [statement.cheapest(*_prices(small, name, leaves[0])) for name, leaves in read.stages.items() if leaves]
    pairs = statement.together([placed, statement.known_pairs, *chosen])
    return FlowProgram(statement, pairs, whole=False)


def _prices_alone(proof: Proof) -> bool:
    """Whether columns that are not made have no other multipliers than those of `_PRICED` and of ``task``."""
    leaves = [leaf for leaves in proof.stages.values() for leaf in leaves]
    return (
        not (proof.derived or proof.empty or proof.points or proof.ray)
        and all(len(leaves) <= 1 for leaves in proof.stages.values())
        and all(leaf.complete == ("task",) and not leaf.shared and not leaf.branches for leaf in leaves)
        and all(leaf.rows.keys() <= _PRICED for leaf in leaves)
    )


def _prices(made: FlowProgram, stage: str, leaf: Leaf) -> tuple[dict[str, int], Whole, dict[int, dict[int, int]]]:
    """Of a leaf: weights of the stages, prices of machines, and those of rules of different machines, as integers."""
    machine, apart = leaf.rows.get("machine"), leaf.rows.get("apart")
    units = [y.unit for y in (machine, apart) if y is not None]
    names = [objective.name for objective in made.program.objectives]
    earlier = {name: leaf.before + leaf.earlier.get(name, 0) for name in names[: names.index(stage)]}
    common = math.lcm(*(Fraction(each).denominator for each in (leaf.own, *earlier.values(), *units)))
    weights = {name: int(-e * common) for name, e in earlier.items()} | {stage: int(leaf.own * common)}
    price: Whole = np.zeros(len(made.of.machine_names), np.int64)
    if machine is not None:
        mine = scaled(machine.numbers, -int(machine.unit * common))
        price = price.astype(mine.dtype)
        price[made.machines] = mine
    rules: dict[int, dict[int, int]] = {}
    if apart is not None:
        each = zip(made.apart, scaled(apart.numbers, -int(apart.unit * common)).tolist(), strict=True)
        for (rule, m), more in each:
            if more:
                rules.setdefault(rule, {})[m] = more
    return weights, price, rules


def _waiting(problem: Problem, at: NDArray[np.int64], answer: FlowAnswer) -> Check:
    waiting = {problem.names[t] for t in np.flatnonzero(at < 0).tolist()}
    return Check.none("names of waiting tasks", sorted(waiting ^ set(answer.waiting)))


def _shares(problem: Problem, answer: FlowAnswer) -> Iterator[Check]:
    jobs, stated = problem.instance.jobs, answer.shares
    if problem.claims is None:
        yield Check.none("shares without a goal of shares: none", list(stated))
        return
    yield Check.none("names of jobs with shares", sorted(stated.keys() ^ {job.name for job in jobs}))
    if stated.keys() != {job.name for job in jobs}:
        return
    kind, shares = problem.goals.by_kind["FairShares"]["kind"], [tuple(stated[job.name]) for job in jobs]
    if kind in ("max_min", "weighted"):
        same = all(lower == upper for lower, upper in shares)
        why = unfair(problem, [lower for lower, _ in shares])
        yield Check("shares are max-min fair", same and not why, detail=why)
        return
    wrong = [job.name for job, here, share in zip(jobs, shares, stated_shares(problem), strict=True) if here != share]
    yield Check.none(
        "shares by dominant resources" if kind == "dominant" else "guarantees and limits of the jobs", wrong
    )


def _metrics(problem: Problem, at: NDArray[np.int64], values: Mapping[str, Any]) -> dict[str, Any]:
    own, slots, jobs = problem.own, int(problem.slots.sum()), problem.instance.jobs
    running, waits = int(np.count_nonzero(at >= 0)), np.bincount(problem.job[at < 0], minlength=len(jobs)).tolist()
    priority = problem.goals.by_kind.get("Priority")
    waiting: Counter[int] = Counter()
    for job, n in zip(jobs, waits, strict=True):
        waiting[job.priority if priority is not None and priority["mode"] == "strict" else 0] += n
    ranks = problem.goals.ranks
    return {
        "running": running,
        "waiting": sum(waits),
        "utilisation": Fraction(running, slots) if slots else 0,
        "placed": int(np.count_nonzero((own < 0) & (at >= 0))),
        "moved": int(np.count_nonzero((own >= 0) & (at >= 0) & (own != at))),
        "stopped": int(np.count_nonzero((own >= 0) & (at < 0))),
        "share_shortfall": values["shortfall"],
        "waiting_by_class": "; ".join(f"{name}: {n}" for name, n in sorted(waiting.items())),
        **({f"cost_of_{rank}": values[rank] for rank in ranks} if len(ranks) > 1 else {}),
        "cost": sum(values[rank] for rank in ranks),
    }


# ---- changed models


def _scale(instance: FlowInstance, goals: Goals, options: Mapping[str, Any]) -> int:
    """The least factor that makes all costs integers."""
    costs: list[Any] = [] if options["wait_cost"] is None else [options["wait_cost"]]
    costs += goals.real_costs
    costs += [job.preempt_cost for job in instance.jobs]
    costs += [cost for task in instance.tasks for cost in task.costs.values()]
    if (placement := goals.by_kind.get("Placement")) is not None:
        costs += [c.utility for task in instance.tasks for c in task.constraints]
        costs += [rule.get("utility", 1) for rules in placement["rules"].values() for rule in rules]
    return math.lcm(1, *(rational(cost).denominator for cost in costs))


def _stated_problem(instance: FlowInstance, options: Mapping[str, Any], given: Sequence[OwnGoal]) -> Problem:
    """The instance under the goals of a solution file, in the least unit of its costs."""
    goals = Goals.of(options, given)
    if goals.foreign:
        raise ValueError(
            f"no file holds what {goals.foreign} costs; pass the goal to verify(..., goals=ask(instance, goals))"
        )
    return Problem(instance, options, options.get("scale") or _scale(instance, goals, options), given)


def restate_flow(claimed: Claimed) -> ExactProgram:
    """The problem of a solution file with its own goals, and with its shares if these cannot be filled again."""
    problem = _stated_problem(claimed.instance, claimed.document.options, claimed.goals)
    statement = FlowStatement(problem, stated_shares(problem, _beside(claimed.document).shares))
    if statement.pair_count > _MOST:
        raise ValueError(f"a changed model has at most {_MOST} pairs of task and machine")
    program = FlowProgram(statement, statement.all_pairs(), whole=True).program
    program.tolerance = 1e-7  # a change may let variables be fractions
    return program


def _beside(document: Document) -> Beside:
    said: Beside = read_as(Beside, {k: v for k, v in document.answer.items() if k in Beside.model_fields}, "answer")
    return said


def _measure(document: Document, _: FlowInstance, __: Changes, finding: Finding) -> Finding:
    """The finding with the weighted sum of the stages as its objective, as in the unchanged model."""
    weights = _beside(document).weights
    return finding if weights is None or finding.objective is None else _weighted(finding, weights)


def _changed_figures(claimed: Claimed, values: Mapping[str, Mapping[str, Any]]) -> Finding:
    """The answer of a changed model: machines are those of the values, and goals cost what they do unchanged."""
    answer, instance = claimed.answer, claimed.instance
    problem = _stated_problem(instance, claimed.document.options, claimed.goals)
    jobs, shares, at = instance.jobs, stated_shares(problem, answer.shares), _places(problem, answer)
    runs = np.flatnonzero(at >= 0)
    statement = FlowStatement(problem, shares)
    made = FlowProgram(statement, (runs, at[runs]), whole=False)
    here, _ = made.values(at)
    figures = {o.name: dot(o.value, here.numbers[o.column]) for o in made.program.objectives}
    true = {j.name: list(s) for j, s in zip(jobs, shares, strict=True)} if problem.claims is not None else {}
    wrong = sorted(job for job in {*true, *answer.shares} if true.get(job) != answer.shares.get(job))
    checks = (
        same_values({"x": {label_text(pair): 1 for pair in answer.placements.items()}}, values),
        _waiting(problem, at, answer),
        Check.none("shares of jobs", wrong),
        Check("unit of costs", answer.scale == problem.scale, detail=f"1/{problem.scale}"),
    )
    return Finding("feasible", checks, metrics=_metrics(problem, at, {"shortfall": 0, **figures}))


VERIFIER = Verifier(
    "flow-scheduling",
    FlowAnswer,
    None,
    _judge,
    solvable=True,
    options=FlowOptions,
    restated=restate_flow,
    needed=frozenset({"task"}),
    figures=_changed_figures,
    measure=_measure,
)
