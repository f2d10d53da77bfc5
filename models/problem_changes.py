"""Changes of a problem as a document, as files of changes hold them, and back."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

from flowlex.formulations.language.expressions import Expression
from flowlex.formulations.language.labels import Index, Level, StatementError, nearest
from flowlex.formulations.language.problem_document import from_label, index_document, label_document, read_index
from flowlex.formulations.language.statement import RowBlock
from flowlex.instances.model_changes import (
    Bounds,
    Changes,
    Constraint,
    Cost,
    Drop,
    Fix,
    Interval,
    Relaxed,
    Rows,
    Term,
    Variable,
)
from flowlex.models.problem import Problem

ProblemT = TypeVar("ProblemT", bound=Problem)


def apply_changes(problem: ProblemT, changes: Changes) -> ProblemT:
    """The problem after all changes, in their order.

    Raises `StatementError`: a name or label does not exist, or a change contradicts the problem.
    """
    for each in changes:
        apply: Callable[[Any, Any], Any] = _APPLY[type(each)]
        problem = apply(problem, each)
    return problem


def _expression(problem: Problem, term: Term) -> Expression:
    chosen: dict[str, Any] = {}
    for level, wanted in term.where.items():
        if isinstance(wanted, Interval):
            chosen[level] = slice(wanted.at_least, wanted.at_most)
        else:
            chosen[level] = list(wanted) if isinstance(wanted, tuple) else [wanted]
    return problem[term.variable].sel(**chosen) if chosen else problem[term.variable]


def _sum(problem: Problem, terms: tuple[Term, ...], by: tuple[str, ...]) -> Expression:
    total: Expression | None = None
    for term in sorted(terms, key=lambda t: -len(t.by)):
        part = _expression(problem, term).sum(by=[level for level in by if level in term.by]) * term.coefficient
        total = part if total is None else total + part
    assert total is not None
    return total


def _constraint(problem: Problem, rule: Constraint) -> Problem:
    by = max((term.by for term in rule.terms), key=len)
    total = _sum(problem, rule.terms, by)
    right: Any = rule.rhs
    if isinstance(right, dict):
        index = total.index
        places = {text: k for k, text in enumerate(index.texts())}
        if odd := [label for label in right if label not in places]:
            raise StatementError(f"rule {rule.name!r}: " + nearest("row", odd[0], places))
        import pandas as pd

        labels = [text for text in places if text in right]
        if len(labels) != index.count:
            lost = next(text for text in places if text not in right)
            raise StatementError(f"rule {rule.name!r}: no right-hand side for row {lost!r}")
        right = pd.Series([right[text] for text in labels], index=index.to_pandas(), dtype=object)
    compared = total <= right if rule.relation == "<=" else total >= right if rule.relation == ">=" else total == right
    return problem.with_constraint(rule.name, compared)


def _rows(problem: Problem, change: Rows) -> Problem:
    fresh = problem.copy()
    for name, labels in change.levels.items():
        if name not in fresh.levels:
            fresh.set(name, [from_label(label, f"rows {change.name!r}") for label in labels])
    index = read_index(change.members, fresh.levels, f"rows {change.name!r}")
    places = {
        block.name: {t: block.start + k for k, t in enumerate(block.index.texts())} for block in fresh.blocks.values()
    }
    rows, columns, values = [], [], []
    for row, variable, label, value in change.terms:
        if not 0 <= row < index.count or label not in places.get(variable, {}):
            raise StatementError(f"rows {change.name!r}: there is no variable {variable}[{label}] or no row {row}")
        rows.append(row)
        columns.append(places[variable][label])
        values.append(value)
    left = _plain_rows(fresh, index, rows, columns, values, list(change.rhs))
    compared = left <= 0 if change.relation == "<=" else left >= 0 if change.relation == ">=" else left == 0
    fresh.constrain(change.name, compared)
    return fresh


def _plain_rows(
    problem: Problem, index: Index, rows: Any, columns: Any, values: Any, rhs: list[Fraction]
) -> Expression:
    import numpy as np

    from flowlex.formulations.language.exact_units import exact_numbers

    if len(rhs) != index.count:
        raise StatementError(f"{index.count} right-hand sides expected, got {len(rhs)}")
    numbers, unit = exact_numbers(np.array([*values, *rhs, Fraction(0)], object))
    count = len(values)
    tokens = frozenset(block.token for block in problem.blocks.values())
    return Expression(
        problem,
        index,
        np.array(rows, np.int64),
        np.array(columns, np.int64),
        numbers[:count],
        -numbers[count : count + len(rhs)],
        unit,
        ("symbol", "rows", index.keys),
        tokens,
    )


def _drop(problem: Problem, change: Drop) -> Problem:
    if change.rows is None:
        return problem.without(change.name)
    block = problem._rows_named(change.name)
    texts = block.index.texts()
    if odd := [text for text in change.rows if text not in texts]:
        raise StatementError(f"without {change.name!r}: " + nearest("row", odd[0], texts))
    return problem.without_members(change.name, [texts.index(text) for text in change.rows])


def _fix(problem: Problem, change: Fix) -> Problem:
    return problem.with_fixed(_expression(problem, change.variables), float(change.value))


def _bounds(problem: Problem, change: Bounds) -> Problem:
    low, high = (None if side is None else float(side) for side in (change.lower, change.upper))
    return problem.with_bounds(_expression(problem, change.variables), lower=low, upper=high)


def _cost(problem: Problem, change: Cost) -> Problem:
    return problem.with_cost(change.stage, _sum(problem, change.terms, ()))


def _variable(problem: Problem, change: Variable) -> Problem:
    levels: dict[str, Any] = {name: list(labels) for name, labels in change.levels.items()}
    return problem.with_variable(
        change.name, lower=float(change.lower), upper=float(change.upper), integer=change.integer, **levels
    )


def _relaxed(problem: Problem, change: Relaxed) -> Problem:
    return problem.relaxed(*(change.variables or ()))


_APPLY: dict[type, Callable[[Any, Any], Problem]] = {
    Constraint: _constraint,
    Rows: _rows,
    Drop: _drop,
    Fix: _fix,
    Bounds: _bounds,
    Cost: _cost,
    Variable: _variable,
    Relaxed: _relaxed,
}


# ---- from expressions to documents


def rows_document(problem: Problem, block: RowBlock) -> Rows:
    """Rows that were stated with expressions, as a change."""
    unit = block.unit if block.unit is not None else None

    def exact(value: float) -> Fraction:
        return Fraction(int(value)) * unit if unit is not None else Fraction(repr(value))

    names = {b.name: b for b in problem.blocks.values()}
    texts = {name: b.index.texts() for name, b in names.items()}
    terms = []
    for row, column, value in zip(block.rows.tolist(), block.columns.tolist(), block.values.tolist(), strict=True):
        mine = next(b for b in names.values() if b.start <= column < b.start + b.index.count)
        terms.append((row, mine.name, texts[mine.name][column - mine.start], exact(value)))
    levels = {k: tuple(label_document(label) for label in level.labels) for k, level in block.index.levels.items()}
    return Rows(
        name=block.name,
        relation=block.relation,
        levels=levels,
        members=index_document(block.index),
        terms=tuple(terms),
        rhs=tuple(exact(v) for v in block.rhs.tolist()),
    )


def terms_document(problem: Problem, expression: Expression) -> tuple[Term, ...]:
    """One expression without levels as terms, a term for each variable."""
    terms = []
    values = expression._values.tolist()
    for column, value in zip(expression._columns.tolist(), values, strict=True):
        block = next(b for b in problem.blocks.values() if b.start <= column < b.start + b.index.count)
        coefficient = Fraction(int(value)) * expression._unit if expression._unit is not None else Fraction(repr(value))
        terms.append(
            Term(variable=block.name, where=_labels(block.index, column - block.start), coefficient=coefficient)
        )
    return tuple(terms)


def _labels(index: Index, member: int) -> dict[str, Any]:
    where = {key: index.levels[key].labels[int(index.codes[key][member])] for key in index.keys}
    for level, label in where.items():
        if isinstance(label, bool) or not isinstance(label, (str, int, float)):
            raise StatementError(
                f"label {label!r} of {level!r} cannot be written to a file of changes; use text or numbers"
            )
    return where


Levels = dict[str, Level]
