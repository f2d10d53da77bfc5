"""Apply a document of changes to a statement: rules, bounds and costs become rows and columns.

No change is ignored: each takes effect or raises `ModelError` with the name that is wrong.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from flowlex.formulations.block_labels import block_labels, label_text
from flowlex.formulations.linear_expression import Expression
from flowlex.formulations.linear_program import LinearProgram, VariableBlock
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.model_changes import Bounds, Changes, Constraint, Cost, Drop, Fix, Label, Relaxed, Term, Variable
from flowlex.models.solution import ModelError
from flowlex.models.statement.rows_and_objectives import Stage, Statement
from flowlex.models.statement.variable_labels import Index, nearest

Row = tuple[Label, ...]
#: Larger integers are not exact in double precision.
_EXACT = 2**53


def apply_changes(statement: Statement, changes: Changes) -> Statement:
    """The statement after all changes, in their order.

    Raises `ModelError`: a name or label does not exist, a rule is over no variable, bounds contradict each other,
    or the model cannot do without what is dropped.
    """
    for each in changes:
        make: Callable[[Statement, Any], Statement] = _MAKE[type(each)]
        statement = make(statement, each)
    return statement


def _copied(statement: Statement, program: LinearProgram | None = None, **changed: Any) -> Statement:
    both = {"columns": dict(statement.columns), "rows": dict(statement.rows)}
    fresh = statement.program.copy() if program is None else program
    fresh.rows = None  # own rows are declared by the change
    return replace(statement, program=fresh, **{**both, **changed})


def _constraint(statement: Statement, rule: Constraint) -> Statement:
    if rule.name in statement.rows or rule.name in statement.own:
        raise ModelError(f"rule {rule.name!r}: rows or own variables of that name exist already; choose another name")
    stages = {text for stage in statement.stages for text in (stage.name, f"stage_{stage.name}")}
    if rule.name in statement.declared | stages:
        raise ModelError(
            f"rule {rule.name!r}: rows or a stage of that name exist already in the model; choose another name"
        )
    rows, row, column, value, scale = _rows_of(statement, rule)
    filled = np.bincount(row, minlength=len(rows)) > 0
    if (not rows or not filled.all()) and not rule.allow_empty:
        label = next((label for label, some in zip(rows, filled.tolist(), strict=True) if not some), ())
        raise ModelError(
            f"rule {rule.name!r} is over no variable{f' in row {_text(label)!r}' if label else ''}; "
            "allow_empty=True accepts that"
        )
    row, column, value = (part[value != 0] for part in (row, column, value))  # terms that cancel
    sides = sides_of(rule, rows)
    finer = Fraction(math.lcm(*(n.denominator for n in sides), scale.numerator))
    value, scale = value * float(finer / scale), finer
    if any(abs(n * scale) > _EXACT for n in sides) or float(np.abs(value).max(initial=0)) > _EXACT:
        raise ModelError(f"rule {rule.name!r}: its numbers have no common unit that is exact; write fewer digits")
    expression = Expression(row, column, value, np.zeros(len(rows)))
    levels = _levels_of(rule)
    index = (
        Index.of(**{level: [label[k] for label in rows] for k, level in enumerate(levels)})
        if levels
        else Index({}, {}, 1)
    )
    changed = _copied(statement, own=statement.own | {rule.name}, scales={**statement.scales, rule.name: scale})
    if rows:
        changed.constrain(rule.name, expression, rule.relation, [float(side * scale) for side in sides], index)
    return changed


def _levels_of(rule: Constraint) -> tuple[str, ...]:
    """Levels of the rows: those of the term with the most levels; all other terms must use some of these."""
    widest = max((term.by for term in rule.terms), key=len)
    for term in rule.terms:
        if odd := set(term.by) - set(widest):
            both = f"{', '.join(widest)} and {', '.join(term.by)}"
            raise ModelError(f"rule {rule.name!r} adds rows by {both}; sum both by the same levels ({odd.pop()!r})")
    return widest


def _rows_of(statement: Statement, rule: Constraint) -> tuple[dict[Row, int], Integers, Integers, Floats, Fraction]:
    """Rows by label, and row, column and coefficient (times the last number) of every term that is left.

    Terms with fewer levels count in every row that they match.
    """
    levels = _levels_of(rule)
    scale = Fraction(math.lcm(*(term.coefficient.denominator for term in rule.terms)))
    if any(abs(term.coefficient * scale) > _EXACT for term in rule.terms):
        raise ModelError(f"rule {rule.name!r}: its numbers have no common unit that is exact; write fewer digits")
    rows: dict[Row, int] = {}
    parts: list[tuple[Integers, Integers, Floats]] = []
    for term in sorted(rule.terms, key=lambda term: -len(term.by)):
        columns, labels, row = _members(statement, term, rule.name)
        if len(term.by) == len(levels):
            place = [term.by.index(level) for level in levels]
            hits = [[rows.setdefault(tuple(label[p] for p in place), len(rows))] for label in labels]
        else:
            place = [levels.index(level) for level in term.by]
            matching: dict[Row, list[int]] = defaultdict(list)
            for key, r in rows.items():
                matching[tuple(key[p] for p in place)].append(r)
            hits = [matching.get(label, []) for label in labels]
        counts = np.array([len(hit) for hit in hits], np.int64)
        begin = np.concatenate([[0], np.cumsum(counts)])
        flat = np.array([r for hit in hits for r in hit], np.int64)
        times = counts[row]
        member = np.repeat(np.arange(len(row)), times)
        offset = np.arange(len(member)) - np.repeat(np.cumsum(times) - times, times)
        parts.append(
            (
                flat[begin[row[member]] + offset],
                columns[member],
                np.full(len(member), float(term.coefficient * scale)),
            )
        )
    row, column, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    if len(parts) == 1:  # no variable twice in a row
        return rows, row, column, value, scale
    _, first, same = np.unique(
        row * max(statement.program.column_count, 1) + column, return_index=True, return_inverse=True
    )
    total = np.bincount(same, value, len(first))
    return rows, row[first], column[first], total.astype(np.float64), scale


def _members(statement: Statement, term: Term, rule: str) -> tuple[Any, list[Row], Any]:
    """Columns of a term, labels of its rows, and the row of each column."""
    block = statement.block(term.variable)
    index = statement.columns[term.variable]
    index.check({**term.where}, f"rule {rule!r}: {term.variable}")
    for level in term.by:
        if level not in index.levels:
            raise ModelError(f"rule {rule!r}: {term.variable} has " + nearest("level", level, index.levels))
    members = np.flatnonzero(index.select(term.where))
    labels, row = index.group(term.by, members)
    return members + block.start, labels, row


def sides_of(rule: Constraint, rows: Mapping[Row, int]) -> list[Fraction]:
    if not isinstance(rule.rhs, dict):
        return [rule.rhs] * len(rows)
    texts = [_text(label) for label in rows]
    for label in rule.rhs:
        if label not in texts:
            raise ModelError(f"rule {rule.name!r}: " + nearest("row", label, texts))
    for text in texts:
        if text not in rule.rhs:
            raise ModelError(f"rule {rule.name!r}: no right-hand side for row {text!r}")
    return [rule.rhs[text] for text in texts]


def _text(label: Row) -> str:
    return label_text(label)


def _drop(statement: Statement, change: Drop) -> Statement:
    if change.name not in statement.rows:
        raise ModelError("without: " + nearest("rows named", change.name, statement.rows))
    if change.name in statement.needed:
        raise ModelError(f"rows {change.name!r} cannot be dropped: {statement.needed[change.name]}")
    index = statement.rows[change.name]
    texts = index.texts()
    for label in change.rows or ():
        if label not in texts:
            raise ModelError(f"{change.name}: " + nearest("row", label, texts))
    left = np.array([change.rows is not None and text not in change.rows for text in texts], bool)
    program = kept_rows(statement.program, {change.name: left})
    rows = {name: index for name, index in statement.rows.items() if name in program.constraint_blocks}
    if change.name in rows:
        rows[change.name] = index.take(left)
    return _copied(statement, program, rows=rows)


def kept_rows(program: LinearProgram, keep: Mapping[str, Any]) -> LinearProgram:
    """The program with some rows of the families in ``keep`` (True for those that stay), and all of the others."""
    fewer = program.copy()
    fewer.rows, fewer.constraint_blocks = None, {}
    for name, block in program.constraint_blocks.items():
        stays = np.broadcast_to(keep.get(name, True), block.count)
        if stays.any():
            left, labels = block.expression[stays], block.labels
            if not stays.all():
                labels = np.array(block_labels(block.count, labels))[stays]
            fewer.constrain(name, left, block.relation, block.rhs[stays] + left.constant, labels=labels)
    return fewer


def _rebounded(
    statement: Statement, term: Term, what: str, lower: Fraction | None, upper: Fraction | None
) -> Statement:
    block, index = statement.block(term.variable), statement.columns[term.variable]
    index.check({**term.where}, f"{what}: {term.variable}")
    chosen = index.select(term.where)
    if not chosen.any():
        raise ModelError(f"{what} of {term.variable} selects no variable")
    low, high = block.lower.copy(), block.upper.copy()
    for side, value in ((low, lower), (high, upper)):
        if value is not None:
            side[chosen] = float(value)
    if (low > high).any():
        first = int(np.argmax(low > high))
        raise ModelError(
            f"{what}: {block.names()[first]} has lower bound {low[first]:g} above its upper {high[first]:g}"
        )
    program = statement.program.copy()
    changed: VariableBlock = replace(block, lower=low, upper=high)
    program.variable_blocks = program.variable_blocks | {block.name: changed}
    return _copied(statement, program)


def _fix(statement: Statement, change: Fix) -> Statement:
    block = statement.block(change.variables.variable)
    statement.columns[block.name].check({**change.variables.where}, f"with_fixed: {block.name}")
    chosen = statement.columns[block.name].select(change.variables.where)
    value = float(change.value)
    outside = chosen & ((block.lower > value) | (block.upper < value))
    if outside.any():
        first = int(np.argmax(outside))
        between = f"{block.lower[first]:g} and {block.upper[first]:g}"
        raise ModelError(f"with_fixed: {block.names()[first]} = {value:g} lies outside its bounds {between}")
    if block.integer and change.value.denominator != 1:
        raise ModelError(f"with_fixed: {block.name} is integer, {change.value} is not")
    return _rebounded(statement, change.variables, "with_fixed", change.value, change.value)


def _bounds(statement: Statement, change: Bounds) -> Statement:
    if change.lower is None and change.upper is None:
        raise ModelError(f"with_bounds of {change.variables.variable}: give lower, upper or both")
    return _rebounded(statement, change.variables, "with_bounds", change.lower, change.upper)


def _cost(statement: Statement, change: Cost) -> Statement:
    stage = statement.stage(change.stage)
    added: dict[int, Fraction] = defaultdict(Fraction)
    for term in change.terms:
        columns, _, _ = _members(statement, term, f"cost of {change.stage}")
        for column in columns.tolist():
            added[column] += term.coefficient / stage.unit
    if not added:
        raise ModelError(f"with_cost: the cost of stage {change.stage!r} is over no variable")
    factor = math.lcm(*(value.denominator for value in added.values()))
    e = stage.expression
    new = np.array([float(value * factor) for value in added.values()])
    largest = max(np.abs(e.value).max(initial=0) * factor, np.abs(new).max(initial=0))
    if largest > _EXACT:
        raise ModelError(
            f"with_cost: the numbers of stage {change.stage!r} have no common exact unit; use fewer digits"
        )
    expression = Expression(
        np.zeros(len(e.row) + len(new), np.int64),
        np.concatenate([e.column, np.array(list(added), np.int64)]),
        np.concatenate([e.value * factor, new]),
        e.constant * factor,
    )
    changed = Stage(stage.name, expression, stage.maximize, stage.unit / factor)
    return _copied(statement, stages=tuple(changed if each is stage else each for each in statement.stages))


def _variable(statement: Statement, change: Variable) -> Statement:
    if change.name in statement.columns:
        raise ModelError(f"with_variable: variables named {change.name!r} exist already; choose another name")
    if change.lower > change.upper:
        raise ModelError(f"with_variable: {change.name} has lower bound {change.lower} above its upper {change.upper}")
    index = _product(change.levels)
    changed = _copied(statement, own=statement.own | {change.name})
    bounds = {"lower": float(change.lower), "upper": float(change.upper)}
    changed.variables(change.name, index, **bounds, integer=change.integer)
    return changed


def _product(levels: Mapping[str, Sequence[Label]]) -> Index:
    sizes = [len(labels) for labels in levels.values()]
    grid = np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), np.int64)
    return Index.coded(**{name: (labels, codes) for (name, labels), codes in zip(levels.items(), grid, strict=True)})


def _relaxed(statement: Statement, change: Relaxed) -> Statement:
    names = statement.columns if change.variables is None else change.variables
    blocks = {name: replace(statement.block(name), integer=False) for name in names}
    program = statement.program.copy()
    program.variable_blocks = program.variable_blocks | blocks
    return _copied(statement, program)


_MAKE: dict[type, Callable[[Statement, Any], Statement]] = {
    Constraint: _constraint,
    Drop: _drop,
    Fix: _fix,
    Bounds: _bounds,
    Cost: _cost,
    Variable: _variable,
    Relaxed: _relaxed,
}
