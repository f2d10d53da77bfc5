"""Apply a document of changes to an exact statement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import product
from typing import Any

from flowlex.formulations.block_labels import label_text
from flowlex.instances.model_changes import (
    Bounds,
    Changes,
    Constraint,
    Cost,
    Drop,
    Fix,
    Interval,
    Relaxed,
    Term,
    Variable,
)
from flowlex.validation.certificates.statement.rational_linear_program import (
    ExactStatement,
    Labels,
    Number,
    Variables,
    tidy,
)


def change(statement: ExactStatement, changes: Changes) -> None:
    """Make all changes in their order.

    Raises `ValueError`: a change names something that does not exist.
    """
    for each in changes:
        apply: Callable[[ExactStatement, Any], None] = _APPLY[type(each)]
        apply(statement, each)


def _block(statement: ExactStatement, name: str) -> Variables:
    if name not in statement.blocks:
        raise ValueError(f"no variables are named {name!r}")
    return statement.blocks[name]


def _chosen(block: Variables, term: Term) -> list[int]:
    """Positions of the variables that a term selects."""
    return [k for k, labels in enumerate(block.labels) if all(_has(labels, *each) for each in term.where.items())]


def _has(labels: Labels, level: str, wanted: object) -> bool:
    if level not in labels:
        raise ValueError(f"there is no level {level!r}")
    label = labels[level]
    if isinstance(wanted, Interval):
        low, high = wanted.at_least, wanted.at_most
        return (low is None or label >= low) and (high is None or label <= high)
    return label in wanted if isinstance(wanted, tuple) else bool(label == wanted)


def _constraint(statement: ExactStatement, rule: Constraint) -> None:
    if rule.name in statement.rows:
        raise ValueError(f"rows named {rule.name!r} exist already")
    levels = max((term.by for term in rule.terms), key=len)
    rows: dict[tuple[Any, ...], dict[int, Number]] = {}
    for term in sorted(rule.terms, key=lambda term: -len(term.by)):
        if not set(term.by) <= set(levels):
            raise ValueError(f"rule {rule.name!r} adds sums by different levels")
        block = _block(statement, term.variable)
        for k in _chosen(block, term):
            mine = {level: block.labels[k][level] for level in term.by}
            full = len(term.by) == len(levels)
            hits = [tuple(mine[level] for level in levels)] if full else [r for r in rows if _matches(r, levels, mine)]
            for hit in hits:
                row = rows.setdefault(hit, defaultdict(int))
                row[block.start + k] = row[block.start + k] + term.coefficient
    if not levels:
        rows.setdefault((), {})
    for row_labels, terms in rows.items():
        text = label_text(row_labels)
        if not isinstance(rule.rhs, dict):
            side = rule.rhs
        elif text in rule.rhs:
            side = rule.rhs[text]
        else:
            raise ValueError(f"rule {rule.name!r} has no right-hand side for {text!r}")
        statement.row(rule.name, text, terms, rule.relation, side)


def _matches(row: tuple[Any, ...], levels: tuple[str, ...], wanted: Labels) -> bool:
    return all(label == wanted[level] for level, label in zip(levels, row, strict=True) if level in wanted)


def _drop(statement: ExactStatement, drop: Drop) -> None:
    if drop.name not in statement.rows:
        raise ValueError(f"no rows are named {drop.name!r}")
    if drop.name in statement.needed:
        raise ValueError(f"rows {drop.name!r} cannot be dropped")
    rows = statement.rows[drop.name]
    for label in list(rows.terms) if drop.rows is None else drop.rows:
        del rows.terms[label], rows.rhs[label]
    if not rows.terms:
        del statement.rows[drop.name]


def _fix(statement: ExactStatement, fix: Fix) -> None:
    block = _block(statement, fix.variables.variable)
    for k in _chosen(block, fix.variables):
        if not block.lower[k] <= fix.value <= block.upper[k]:
            raise ValueError(f"{fix.variables.variable} is fixed outside its bounds")
        block.lower[k] = block.upper[k] = tidy(fix.value)


def _bounds(statement: ExactStatement, bounds: Bounds) -> None:
    block = _block(statement, bounds.variables.variable)
    for k in _chosen(block, bounds.variables):
        block.lower[k] = block.lower[k] if bounds.lower is None else tidy(bounds.lower)
        block.upper[k] = block.upper[k] if bounds.upper is None else tidy(bounds.upper)


def _cost(statement: ExactStatement, cost: Cost) -> None:
    stage = next((stage for stage in statement.stages if stage.name == cost.stage), None)
    if stage is None:
        raise ValueError(f"no stage is named {cost.stage!r}")
    for term in cost.terms:
        block = _block(statement, term.variable)
        for k in _chosen(block, term):
            stage.terms[block.start + k] = tidy(stage.terms.get(block.start + k, 0) + term.coefficient)


def _variable(statement: ExactStatement, new: Variable) -> None:
    if new.name in statement.blocks:
        raise ValueError(f"variables named {new.name!r} exist already")
    labels = [dict(zip(new.levels, each, strict=True)) for each in product(*new.levels.values())]
    keys, low, high = tuple(new.levels), tidy(new.lower), tidy(new.upper)
    statement.variables(new.name, labels, keys=keys, lower=low, upper=high, integer=new.integer)
    statement.own.add(new.name)


def _relaxed(statement: ExactStatement, relaxed: Relaxed) -> None:
    for name in statement.blocks if relaxed.variables is None else relaxed.variables:
        _block(statement, name).integer = False


_APPLY: dict[type, Callable[[ExactStatement, Any], None]] = {
    Constraint: _constraint,
    Drop: _drop,
    Fix: _fix,
    Bounds: _bounds,
    Cost: _cost,
    Variable: _variable,
    Relaxed: _relaxed,
}
