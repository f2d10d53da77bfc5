"""Apply a document of changes to a problem in exact numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

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
from flowlex.validation.proofs import exact_program
from flowlex.validation.proofs.exact_program import ColumnBlock, Exact, ExactProgram, Labels, RowBlock
from flowlex.validation.proofs.program_builder import listed_rows


def changed_program(program: ExactProgram, changes: Changes, needed: Collection[str] = ()) -> ExactProgram:
    """The problem, whose columns have labels by level, after all changes in their order.

    ``needed``: names of rows that no change may drop. Raises `ValueError`: a change names something that does not
    exist, or drops what is needed.
    """
    for each in changes:
        if isinstance(each, Drop) and each.name in needed:
            raise ValueError(f"rows {each.name!r} cannot be dropped")
        apply: Callable[[ExactProgram, Any], ExactProgram] = _APPLY[type(each)]
        program = apply(program, each)
    return program


def _block(program: ExactProgram, name: str) -> ColumnBlock:
    found = next((block for block in program.columns if block.name == name), None)
    if found is None:
        raise ValueError(f"no variables are named {name!r}")
    return found


def _chosen(block: ColumnBlock, term: Term) -> list[int]:
    """Positions in a block of the variables that a term selects."""
    found = list(range(block.count))
    for level, wanted in term.where.items():
        labels = block.labels
        if labels and level not in labels[0]:
            raise ValueError(f"there is no level {level!r}")
        found = [k for k in found if _is(labels[k][level], wanted)]
    return found


def _plain(value: Fraction) -> Fraction | int:
    """The same number, as an integer if it is one: that is much quicker."""
    return value.numerator if value.denominator == 1 else value


def _is(label: Any, wanted: object) -> bool:
    if isinstance(wanted, Interval):
        low, high = wanted.at_least, wanted.at_most
        return (low is None or label >= low) and (high is None or label <= high)
    return label in wanted if isinstance(wanted, tuple) else bool(label == wanted)


def _constraint(program: ExactProgram, rule: Constraint) -> ExactProgram:
    levels = max((term.by for term in rule.terms), key=len)
    rows: dict[tuple[Any, ...], dict[int, Fraction | int]] = {}
    for term in sorted(rule.terms, key=lambda term: -len(term.by)):
        if not set(term.by) <= set(levels):
            raise ValueError(f"rule {rule.name!r} adds sums by different levels")
        block, coefficient = _block(program, term.variable), _plain(term.coefficient)
        labels, full = block.labels if term.by else (), len(term.by) == len(levels)
        for k in _chosen(block, term):
            mine = {level: labels[k][level] for level in term.by} if term.by else {}
            if full:
                hits = [tuple(mine[level] for level in levels)] if levels else [()]
            else:
                hits = [r for r in rows if _matches(r, levels, mine)]
            for hit in hits:
                row, column = rows.setdefault(hit, {}), block.start + k
                row[column] = row.get(column, 0) + coefficient
    if not levels:
        rows.setdefault((), {})
    texts = [label_text(labels) for labels in rows]
    if isinstance(rule.rhs, dict) and (lost := [text for text in texts if text not in rule.rhs]):
        raise ValueError(f"rule {rule.name!r} has no right-hand side for {lost[0]!r}")
    sides = [_plain(rule.rhs[text] if isinstance(rule.rhs, dict) else rule.rhs) for text in texts]
    if rule.name in program.rows:
        raise ValueError(f"rows named {rule.name!r} exist already")
    made = listed_rows(rule.name, rule.relation, dict(zip(texts, rows.values(), strict=True)), sides)
    return replace(program, rows={**program.rows, rule.name: made} if texts else program.rows)


def _matches(row: tuple[Any, ...], levels: tuple[str, ...], wanted: Labels) -> bool:
    return all(label == wanted[level] for level, label in zip(levels, row, strict=True) if level in wanted)


def _drop(program: ExactProgram, drop: Drop) -> ExactProgram:
    if drop.name not in program.rows:
        raise ValueError(f"no rows are named {drop.name!r}")
    rows, block = dict(program.rows), program.rows[drop.name]
    gone = set(block.places if drop.rows is None else drop.rows)
    if lost := sorted(gone - block.places.keys()):
        raise ValueError(f"no row {drop.name}[{lost[0]}] exists")
    texts = [text for text in block.texts() if text not in gone]
    stays = np.array([text not in gone for text in block.texts()], bool)
    place, terms = np.cumsum(stays) - 1, stays[block.row]
    if not texts:
        del rows[drop.name]
        return replace(program, rows=rows)
    rows[drop.name] = RowBlock(
        drop.name,
        len(texts),
        block.relation,
        place[block.row[terms]],
        block.column[terms],
        block.value[terms],
        block.rhs[stays],
        block.unit,
        lambda: texts,
    )
    return replace(program, rows=rows)


def _side(bounds: exact_program.Bounds, columns: Sequence[int], value: Fraction | None) -> exact_program.Bounds:
    """One side of the columns with another number for some of them."""
    if value is None:
        return bounds
    unit = exact_program.common_unit([bounds.at.unit, value])
    numbers = exact_program.scaled(bounds.at.numbers, int(bounds.at.unit / unit)).tolist()
    missing = bounds.missing.copy()
    missing[list(columns)] = False
    for column in columns:
        numbers[column] = int(value / unit)
    return exact_program.Bounds(Exact(exact_program.narrow(numbers), unit), missing)


def _fix(program: ExactProgram, fix: Fix) -> ExactProgram:
    block = _block(program, fix.variables.variable)
    columns = [block.start + k for k in _chosen(block, fix.variables)]
    for column in columns:
        below = not program.lower.missing[column] and fix.value < program.lower.at[column]
        above = not program.upper.missing[column] and fix.value > program.upper.at[column]
        if below or above:
            raise ValueError(f"{fix.variables.variable} is fixed outside its bounds")
    return _bounds(program, Bounds(variables=fix.variables, lower=fix.value, upper=fix.value))


def _bounds(program: ExactProgram, bounds: Bounds) -> ExactProgram:
    block = _block(program, bounds.variables.variable)
    columns = [block.start + k for k in _chosen(block, bounds.variables)]
    lower, upper = _side(program.lower, columns, bounds.lower), _side(program.upper, columns, bounds.upper)
    return replace(program, lower=lower, upper=upper)


def _cost(program: ExactProgram, cost: Cost) -> ExactProgram:
    objective = next((each for each in program.objectives if each.name == cost.stage), None)
    if objective is None:
        raise ValueError(f"no stage is named {cost.stage!r}")
    terms, unit = defaultdict[int, Fraction | int](int), _plain(objective.unit)
    for column, value in zip(objective.column.tolist(), objective.value.tolist(), strict=True):
        terms[column] += value * unit
    for term in cost.terms:
        block, coefficient = _block(program, term.variable), _plain(term.coefficient)
        for k in _chosen(block, term):
            terms[block.start + k] += coefficient
    numbers = Exact.of([*terms.values(), objective.constant * unit])
    columns = np.array(list(terms), np.int64)
    changed = replace(
        objective,
        column=columns,
        value=numbers.numbers[:-1],
        constant=int(numbers.numbers[-1]),
        unit=numbers.unit,
    )
    return replace(program, objectives=[changed if each is objective else each for each in program.objectives])


def _variable(program: ExactProgram, new: Variable) -> ExactProgram:
    if any(block.name == new.name for block in program.columns):
        raise ValueError(f"variables named {new.name!r} exist already")
    labels = [dict(zip(new.levels, each, strict=True)) for each in product(*new.levels.values())]
    start, count = program.count, len(labels)
    block = ColumnBlock(new.name, start, count, lambda: [label_text(each.values()) for each in labels], lambda: labels)
    lower, upper = (
        exact_program.Bounds(
            Exact(exact_program.narrow([*side.at.numbers.tolist(), *[0] * count]), side.at.unit),
            np.concatenate([side.missing, np.zeros(count, bool)]),
        )
        for side in (program.lower, program.upper)
    )
    columns = range(start, start + count)
    return replace(
        program,
        columns=[*program.columns, block],
        lower=_side(lower, columns, new.lower),
        upper=_side(upper, columns, new.upper),
        integer=np.concatenate([program.integer, np.full(count, new.integer)]),
    )


def _relaxed(program: ExactProgram, relaxed: Relaxed) -> ExactProgram:
    names = [block.name for block in program.columns] if relaxed.variables is None else relaxed.variables
    integer = program.integer.copy()
    for name in names:
        block = _block(program, name)
        integer[block.start : block.start + block.count] = False
    return replace(program, integer=integer)


_APPLY: Mapping[type, Callable[[ExactProgram, Any], ExactProgram]] = {
    Constraint: _constraint,
    Drop: _drop,
    Fix: _fix,
    Bounds: _bounds,
    Cost: _cost,
    Variable: _variable,
    Relaxed: _relaxed,
}
