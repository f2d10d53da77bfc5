"""How far from the best a schedule is, for which the network was stopped between its stages: a bound for each stage.

For weights w of the stages (that of the stage itself is the unit of its prices) every schedule has a weighted, priced
sum of at least B (see `prices`). So no schedule that costs no more in the stages before costs less in the stage than
``(B - sum of w times what the earlier stages came to) / unit``, rounded up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from flowlex.validation.certificates.budget import Budget
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.contract import Strict
from flowlex.validation.certificates.flow.goals import Problem
from flowlex.validation.certificates.flow.prices import Prices, Survey, bound

__all__ = ["StageProof", "proven"]


class StageProof(Strict):
    """Prices that bound a stage; those left out are 0."""

    at_least: int
    """What they are said to prove."""
    weights: dict[str, int]
    """Of the stage itself, and of those before it."""
    machine_price: dict[str, int] = Field(default_factory=dict)
    job_price: dict[str, int] = Field(default_factory=dict)
    apart_price: dict[str, dict[str, int]] = Field(default_factory=dict)
    preempt_price: dict[str, int] = Field(default_factory=dict)


def proven(
    problem: Problem,
    proofs: Mapping[str, StageProof],
    values: Mapping[str, int],
    shares: list[tuple[int, int]],
    budget: Budget,
) -> Iterator[tuple[Check, str, int | None]]:
    """Of every stage with a proof: the check of it, and the bound stated; None once the budget is spent."""
    survey = Survey(problem)
    for stage, proof in proofs.items():
        if budget.spent:
            yield budget.quoted(f"bound of {stage}"), stage, None
            continue
        why = _strange(problem, stage, proof, values)
        if why:
            yield Check(f"bound of {stage}", False, detail=why), stage, proof.at_least
            continue
        jobs = problem.instance.jobs
        prices = Prices(
            dict.fromkeys(values, 0) | proof.weights,
            [proof.machine_price.get(name, 0) for name in problem.machine],
            [proof.job_price.get(job.name, 0) for job in jobs],
            {rule: {problem.machine[m]: p for m, p in more.items()} for rule, more in proof.apart_price.items()},
            {j: proof.preempt_price[job.name] for j, job in enumerate(jobs) if job.name in proof.preempt_price},
        )
        least = bound(problem, survey, prices, shares, true=False)
        least -= sum(weight * values[name] for name, weight in proof.weights.items() if name != stage)
        least = -(-least // proof.weights[stage])
        detail = f"at least {least}, here {values[stage]}"
        yield Check(f"bound of {stage}", proof.at_least <= least <= values[stage], detail=detail), stage, proof.at_least


def _strange(problem: Problem, stage: str, proof: StageProof, values: Mapping[str, int]) -> str:
    """What a proof must not name or price; empty where all is well."""
    names = list(values)
    if stage not in names:
        return f"there is no stage {stage!r}"
    if proof.weights.get(stage, 0) < 1 or min(proof.weights.values()) < 0:
        return "weights must not be negative, and that of the stage itself is at least 1"
    late = proof.weights.keys() - set(names[: names.index(stage) + 1])
    jobs = {job.name for job in problem.instance.jobs}
    machines = {*proof.machine_price, *(m for more in proof.apart_price.values() for m in more)}
    strange = sorted(late | (machines - problem.machine.keys()) | (proof.job_price.keys() - jobs))
    strange += sorted(proof.preempt_price.keys() - jobs)
    strange += [job for job, price in proof.preempt_price.items() if price < 0]
    strange += sorted(proof.apart_price.keys() - {task.apart for task in problem.tasks if task.apart})
    strange += [r for r, more in proof.apart_price.items() if min(more.values(), default=0) < 0]
    return f"prices or weights of {', '.join(strange[:3])}" if strange else ""
