"""Bounds of each stage for a schedule whose network was stopped between its stages.

For weights w of the stages (the weight of the stage itself is the unit of its prices) every schedule has a weighted,
priced sum of at least B (see `price_optimality`). So a schedule that costs no more in the earlier stages costs at least
``(B - sum of w times the values of the earlier stages) / unit``, rounded up, in this stage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pydantic import Field

from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.flow.goal_costs import Problem
from flowlex.validation.certificates.flow.price_optimality import Prices, Survey, bound
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.certificates.verifier_interface import Strict


class PriceProof(Strict):
    """Weights of stages, and prices in the unit of their sum; those left out are 0."""

    weights: dict[str, int] | None = None
    machine_price: dict[str, int] = Field(default_factory=dict)
    job_price: dict[str, int] = Field(default_factory=dict)
    apart_price: dict[str, dict[str, int]] = Field(default_factory=dict)
    preempt_price: dict[str, int] = Field(default_factory=dict)

    def offenders(self, problem: Problem, stages: Collection[str]) -> list[str]:
        """Names with a weight or price that do not exist, and names whose price must not be negative but is."""
        apart = self.apart_price
        found = {*self.machine_price, *(m for more in apart.values() for m in more)} - problem.machine.keys()
        found |= {*self.job_price, *self.preempt_price} - {job.name for job in problem.instance.jobs}
        found |= apart.keys() - {task.apart for task in problem.tasks if task.apart}
        found |= (self.weights or {}).keys() - set(stages)
        negative = [job for job, price in self.preempt_price.items() if price < 0]
        negative += [rule for rule, more in apart.items() if min(more.values(), default=0) < 0]
        return [*sorted(found), *(f"negative price of {name}" for name in negative)]

    def prices(self, problem: Problem, weights: Mapping[str, int]) -> Prices:
        """The prices by position, with these weights."""
        jobs = problem.instance.jobs
        return Prices(
            weights,
            [self.machine_price.get(name, 0) for name in problem.machine],
            [self.job_price.get(job.name, 0) for job in jobs],
            {rule: {problem.machine[m]: p for m, p in more.items()} for rule, more in self.apart_price.items()},
            {j: self.preempt_price[job.name] for j, job in enumerate(jobs) if job.name in self.preempt_price},
        )


class StageProof(PriceProof):
    """Prices that bound a stage, with weights of the stage itself and of those before it."""

    weights: dict[str, int]
    at_least: int
    """The bound that they are said to prove."""


def proven(
    problem: Problem,
    proofs: Mapping[str, StageProof],
    values: Mapping[str, int],
    shares: list[tuple[int, int]],
    budget: Budget,
) -> Iterator[tuple[Check, str, int | None]]:
    """For every stage with a proof: its check, its name, and the stated bound (None once the budget is spent)."""
    survey = Survey(problem)
    for stage, proof in proofs.items():
        if budget.spent:
            yield budget.quoted(f"bound of {stage}"), stage, None
            continue
        why = _strange(problem, stage, proof, values)
        if why:
            yield Check(f"bound of {stage}", False, detail=why), stage, proof.at_least
            continue
        prices = proof.prices(problem, dict.fromkeys(values, 0) | proof.weights)
        least = bound(problem, survey, prices, shares, true=False)
        least -= sum(weight * values[name] for name, weight in proof.weights.items() if name != stage)
        least = -(-least // proof.weights[stage])
        detail = f"at least {least}, here {values[stage]}"
        yield Check(f"bound of {stage}", proof.at_least <= least <= values[stage], detail=detail), stage, proof.at_least


def _strange(problem: Problem, stage: str, proof: StageProof, values: Mapping[str, int]) -> str:
    """Why a proof is invalid; empty when it is valid."""
    names = list(values)
    if stage not in names:
        return f"there is no stage {stage!r}"
    if proof.weights.get(stage, 0) < 1 or min(proof.weights.values()) < 0:
        return "weights must not be negative, and that of the stage itself is at least 1"
    strange = proof.offenders(problem, names[: names.index(stage) + 1])
    return f"prices or weights of {', '.join(strange[:3])}" if strange else ""
