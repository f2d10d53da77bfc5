"""Judge the answer of a changed model: every row at its values, every stage by its leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeAlias

from flowlex.instances.instance_base import Instance
from flowlex.instances.model_changes import Change, Changes, Cost
from flowlex.validation.certificates.certificate import Check, Claim, Finding
from flowlex.validation.certificates.exact_numbers import Number as Stated
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.certificates.solution_document import Document
from flowlex.validation.certificates.statement.apply_changes import change
from flowlex.validation.certificates.statement.rational_linear_program import ExactStatement, Number, Stage
from flowlex.validation.certificates.statement.stage_proof import Bounded, StatementProof, duals_of, least

#: Converts the value of a stage, given what a document states, to the objective of the unchanged model.
Convert: TypeAlias = Callable[[Fraction, Stated | None], Fraction]
#: Makes the statement of an instance under some options, without changes.
State: TypeAlias = Callable[[Any, Mapping[str, Any]], ExactStatement]


def judge_statement(
    state: State,
    instance: Instance,
    options: Mapping[str, Any],
    changes: Changes,
    values: Mapping[str, Mapping[str, Any]] | None,
    proof: StatementProof,
    budget: Budget,
) -> Finding:
    """Judge values by variable and label (None: it is claimed that there are none) and the proof of the stages."""
    statement = state(instance, options)
    change(statement, changes)
    bounded = Bounded(statement)
    if values is None and not proof.empty:
        return Finding("feasible", (Check("no answer exists", True, detail="the solver's word", how="quoted"),))
    if values is None:
        shown = least(bounded, proof.empty, None, {}) is not None
        return Finding("infeasible" if shown else "feasible", (Check("no answer exists", shown),))
    return judge_columns(bounded, bounded.columns(values), proof, budget)


def in_measure(
    finding: Finding, changes: Iterable[Change], stage: str, document: Document, convert: Convert
) -> Finding:
    """The finding with objective and bound of a stage converted, unless a change adds costs to that stage."""
    if any(isinstance(change, Cost) and change.stage == stage for change in changes):
        return finding
    objective = None if finding.objective is None else convert(Fraction(finding.objective), document.objective)
    bound = None if finding.bound is None else convert(Fraction(finding.bound), document.bound)
    return replace(finding, objective=objective, bound=bound)


def judge_columns(bounded: Bounded, x: list[Number], proof: StatementProof, budget: Budget) -> Finding:
    """Judge values of all columns, and the proof of the stages."""
    statement = bounded.statement
    checks = [*_facts(bounded, x)]
    tolerance = 0.0 if all(bounded.integer) else statement.tolerance
    figures: dict[str, Fraction] = {}
    main: Fraction | None = None
    duals: dict[str, dict[str, Fraction]] = {}
    before: dict[str, tuple[Stage, Number]] = {}
    proven = True
    for stage in statement.stages:
        value = _value(stage, x)
        figures[stage.name] = Fraction(value)
        goal = Fraction(-(value - stage.constant) if stage.maximize else value - stage.constant)
        bound = _bound(bounded, proof, stage, before, budget, checks) if proven else None
        if stage.name == statement.main and bound is not None:
            low = min(bound, goal)
            main = (-low if stage.maximize else low) + stage.constant
        proven = proven and bound is not None and goal - bound <= Fraction(tolerance) * max(Fraction(1), abs(goal))
        if proven and stage.name == statement.main:
            duals = duals_of(proof.stages[stage.name], maximize=stage.maximize)
        checks.append(Check(f"stage {stage.name}", True, detail=f"{float(value):g}{', optimal' if proven else ''}"))
        before[stage.name] = stage, goal
    claim: Claim = "optimal" if proven else "bounded" if main is not None else "feasible"
    objective = figures.get(statement.main)
    bound = objective if proven else main
    return Finding(claim, tuple(checks), objective, bound, figures, tolerance=tolerance, duals=duals)


def _bound(
    bounded: Bounded,
    proof: StatementProof,
    stage: Stage,
    before: Mapping[str, tuple[Stage, Number]],
    budget: Budget,
    checks: list[Check],
) -> Fraction | None:
    """The bound that the leaves of a stage prove; None without leaves, or if the time for proofs is spent."""
    if stage.name not in proof.stages:
        return None
    if budget.spent:
        checks.append(budget.quoted(f"bound of stage {stage.name}"))
        return None
    return least(bounded, proof.stages[stage.name], stage, before)


def _value(stage: Stage, x: list[Number]) -> Number:
    return sum((value * x[column] for column, value in stage.terms.items()), stage.constant)


def _facts(bounded: Bounded, x: list[Number]) -> Iterator[Check]:
    """Check bounds, integrality, and every family of rows."""
    statement = bounded.statement
    for name, block in statement.blocks.items():
        wrong = []
        for k in range(len(block.labels)):
            value, column = x[block.start + k], block.start + k
            low, high = bounded.lower[column], bounded.upper[column]
            slack = Fraction(0 if block.integer else statement.tolerance) * max(Fraction(1), abs(Fraction(value)))
            if not low - slack <= value <= high + slack or (block.integer and value.denominator != 1):
                wrong.append(f"{name}[{block.name(k)}] = {float(value):g}, bounds {float(low):g} to {float(high):g}")
        yield Check(f"bounds of {name}", not wrong, len(wrong), "; ".join(wrong[:3]))
    for name, rows in statement.rows.items():
        wrong = [
            f"{name}[{label}]: {text}"
            for label, terms in rows.terms.items()
            if (text := _broken(terms, rows.relation, rows.rhs[label], x, _tolerance(bounded, terms)))
        ]
        yield Check(f"rows {name}", not wrong, len(wrong), "; ".join(wrong[:3]) or f"{len(rows.terms)} rows hold")


def _tolerance(bounded: Bounded, terms: Mapping[int, Number]) -> float:
    """Tolerance of a row; 0 if all its variables are integer."""
    return 0.0 if all(bounded.integer[column] for column in terms) else bounded.statement.tolerance


def _broken(terms: Mapping[int, Number], relation: str, rhs: Number, x: list[Number], tolerance: float) -> str:
    """Why a row does not hold; empty where it does."""
    activity: Number = 0
    size = max(Fraction(1), abs(Fraction(rhs)))
    for column, value in terms.items():
        if x[column]:
            activity += value * x[column]
            size = max(size, abs(Fraction(value * x[column])))
    slack = Fraction(tolerance) * size
    low = activity >= rhs - slack or relation == "<="
    high = activity <= rhs + slack or relation == ">="
    return "" if low and high else f"{float(activity):g} {relation} {float(rhs):g}"
