"""Judge a schedule under the rules of a changed model, and the optimality of the part that they concern. Rules only
remove schedules, so bounds proven without them hold with them. The transfers that rules concern share no load with
others; a statement of their own, with the ports to themselves, proves them optimal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.jit import JitInstance
from flowlex.instances.model_changes import Bounds, Changes, Constraint, Fix, Interval, Term
from flowlex.validation.certificates.certificate import Check, Finding
from flowlex.validation.certificates.jit.formulation_from_instance import JitStatement
from flowlex.validation.certificates.jit.schedule import JitSchedule, View
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.certificates.statement.apply_changes import change
from flowlex.validation.certificates.statement.rational_linear_program import ExactStatement, Number
from flowlex.validation.certificates.statement.stage_proof import Bounded, StatementProof
from flowlex.validation.certificates.statement.verify_changed_model import judge_columns

_MOMENTS = frozenset({"slot", "time", "step"})


def judge_rules(
    instance: JitInstance,
    options: Mapping[str, Any],
    changes: Changes,
    schedule: JitSchedule,
    proof: StatementProof,
    budget: Budget,
) -> tuple[Finding, tuple[str, ...]]:
    """Judge the part that rules concern; also return the names of its stages."""
    whole = JitStatement(instance, options, View.of(instance, schedule).windows)
    concerned = _concerned(whole, changes)
    members = {int(k) for k in schedule.parts[-1].transfers} if schedule.ruled else concerned
    statement = whole.state(members)
    change(statement, changes)
    found = judge_columns(Bounded(statement), _columns(instance, statement, schedule, members), proof, budget)
    inside = Check("rules concern no other transfers", concerned <= members, len(concerned - members))
    checks = (inside, *found.checks)
    return Finding(found.claim, checks), tuple(stage.name for stage in statement.stages)


def _concerned(whole: JitStatement, changes: Changes) -> set[int]:
    """Transfers that rules name, at whatever time, and all that share loads with them, directly or not."""
    named: set[int] = set()
    for term in (term for each in changes for term in _terms(each)):
        for f in whole.every:
            if term.variable == "rate":
                hit = _matches(whole.rate_labels(f), term)
            else:
                hit = any(_matches(whole.load_labels(f, load), term) for load in whole.loads_of(f))
            if hit:
                named.add(f)
    by_load: dict[str, set[int]] = {}
    for f in whole.every:
        for load in whole.loads_of(f):
            by_load.setdefault(load, set()).add(f)
    reached, left = set(named), list(named)
    while left:
        near = set[int]().union(*(by_load.pop(load, set()) for load in whole.loads_of(left.pop())))
        left += near - reached
        reached |= near
    return reached


def _terms(each: object) -> Iterator[Term]:
    """Terms of a change; raises for a change that does more than remove schedules."""
    terms = each.terms if isinstance(each, Constraint) else (each.variables,) if isinstance(each, Fix | Bounds) else ()
    loose = isinstance(each, Bounds) and ((each.lower or 0) < 0 or (each.upper is None or each.upper > 1))
    for term in terms:
        if term.variable not in ("rate", "level") or (term.variable == "level" and loose):
            raise ValueError(f"a change of {term.variable!r} concerns the whole model")
        yield term
    if not terms or (loose and isinstance(each, Bounds) and (each.lower or 0) < 0):
        raise ValueError("a change that does more than forbid schedules concerns the whole model")


def _matches(labels: Mapping[str, Any], term: Term) -> bool:
    for level, wanted in term.where.items():
        if level in _MOMENTS:
            continue
        if level not in labels or isinstance(wanted, Interval):
            raise ValueError(f"{term.variable} has no such level {level!r}")
        if labels[level] not in (wanted if isinstance(wanted, tuple) else (wanted,)):
            return False
    return True


def _columns(
    instance: JitInstance, statement: ExactStatement, schedule: JitSchedule, members: set[int]
) -> list[Number]:
    """Values of all columns at a schedule: rates, the largest load, and the levels that loads reach."""
    x: list[Number] = [0] * statement.columns
    rate = statement.blocks["rate"]
    place = {(labels["transfer"], labels["slot"]): rate.start + k for k, labels in enumerate(rate.labels)}
    at, names = np.flatnonzero(np.isin(schedule.transfer, list(members))), View.of(instance, schedule).arrays.names
    for f, begin, end, units in _runs(schedule, at):
        if units % (end - begin):
            raise ValueError("what rules concern is stated slot by slot")
        for t in range(begin, end):
            x[place[names[f], t]] += units // (end - begin)
    largest = statement.blocks["largest"].start
    rows = statement.rows.get("largest_link")
    loads = [sum(x[c] for c in terms if c != largest) for terms in rows.terms.values()] if rows else []
    x[largest] = max(loads, default=0)
    if "level" in statement.blocks:
        level = statement.blocks["level"]
        for terms in statement.rows["level_link"].terms.values() if "level_link" in statement.rows else ():
            load = sum(x[c] for c in terms if c < level.start)
            for column in terms:
                if column >= level.start:
                    x[column] = int(level.labels[column - level.start]["step"] <= load)
    return x


def _runs(schedule: JitSchedule, at: Integers) -> Iterator[tuple[int, int, int, int]]:
    columns = (schedule.transfer, schedule.begin, schedule.end, schedule.amount)
    yield from zip(*(each[at].tolist() for each in columns), strict=True)
