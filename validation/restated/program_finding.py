"""What the one checker shows of an answer to a restated problem, as a finding for the contract of solution files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flowlex.validation.certificates.certificate import Check, Finding
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.proofs.checker import judge
from flowlex.validation.proofs.exact_program import Exact, ExactProgram
from flowlex.validation.proofs.proof import Completion, from_document


def program_finding(
    program: ExactProgram,
    values: Exact | None,
    proof: Mapping[str, Any],
    status: str,
    budget: Budget,
    *,
    main: str = "",
    checks: Iterable[Check] = (),
    metrics: Mapping[str, Any] | None = None,
    stages: bool = True,
    complete: Completion | None = None,
) -> Finding:
    """Judge the values of all columns (None: there is said to be no answer) and a proof, as plain data.

    ``main``: the objective whose value the file states; the last one if there is none of this name. ``checks``: of
    facts that the problem does not state; the values are not judged if one fails. ``stages``: whether the file states
    the value of each objective. ``complete``: adds what the proof leaves out.

    Once the budget is spent, the answer alone is judged and the claim is quoted. Raises `ProofError`: the proof names
    what does not exist.
    """
    facts = tuple(checks)
    if not all(check.ok for check in facts):
        return Finding("feasible", facts)
    read = from_document(dict(proof), program)
    verdict = judge(program, values, read if complete is None else complete(read), status, budget)
    late = verdict.late
    shown = (*facts, *verdict.certificate.checks)
    if values is None or not verdict.certificate.ok:
        return Finding(verdict.claim, shown, tolerance=verdict.certificate.tolerance)
    if late:
        shown = *shown, budget.quoted("no answer is better")
    elif status == "optimal" and not proof:
        shown = *shown, Check("no answer is better", True, detail="the solver's word", how="quoted")
    quoted = status == "optimal" and (late or not proof)
    each = {stage.name: stage for stage in verdict.stages}
    main = main if main in each else verdict.stages[-1].name
    return Finding(
        "feasible" if quoted else verdict.claim,
        shown,
        each[main].value,
        each[main].value if quoted else each[main].bound,
        {name: stage.value for name, stage in each.items()} if stages else {},
        metrics or {},
        tolerance=verdict.certificate.tolerance,
        bounds={name: stage.bound for name, stage in each.items() if stage.bound is not None},
    )
