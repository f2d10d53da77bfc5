"""Changes of a problem as a document, as files of changes hold them, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from flowlex.formulations.block_labels import label_text
from flowlex.formulations.language import formulas
from flowlex.formulations.language.exact_units import EXACT, exact_numbers
from flowlex.formulations.language.expressions import Expression
from flowlex.formulations.language.formulas import Node
from flowlex.formulations.language.labels import Index, Level, Positions, StatementError, nearest
from flowlex.formulations.language.problem_document import from_label, index_document, label_document, read_index
from flowlex.formulations.language.statement import RowBlock, _summed
from flowlex.formulations.program_arrays import Booleans
from flowlex.instances.model_changes import (
    Bounds,
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


def apply_changes(problem: ProblemT, changes: Iterable[Any], needed: Mapping[str, str] | None = None) -> ProblemT:
    """The problem after all changes, in their order.

    ``needed``: rows that cannot be dropped, with the reason. Raises `StatementError`: a name or label does not exist, a
    rule is over no variable, or a change contradicts the problem.
    """
    for each in changes:
        if isinstance(each, Drop) and needed and each.name in needed:
            raise StatementError(f"rows {each.name!r} cannot be dropped: {needed[each.name]}")
        apply: Callable[[Any, Any], Any] = _APPLY[type(each)]
        problem = apply(problem, each)
    return problem


def selected(index: Index, where: Mapping[str, Any], owner: str) -> Booleans:
    """(count,) members with these labels; `StatementError` names a level or label that does not exist."""
    chosen = np.ones(index.count, bool)
    for name, wanted in where.items():
        if name not in index.levels:
            raise StatementError(f"{owner} has " + nearest("level", name, index.names))
        level = index.levels[name]
        inside = np.zeros(len(level), bool)
        if isinstance(wanted, Interval):
            if not all(isinstance(each, (int, float)) for each in level.labels):
                raise StatementError(f"{owner}: an interval selects numbers; the labels of {name!r} are text")
            inside[:] = [_within(label, wanted) for label in level.labels]
        else:
            inside[level.codes(list(wanted) if isinstance(wanted, tuple) else [wanted], owner)] = True
        chosen &= inside[index.codes[name]]
    return chosen


def _expression(problem: Problem, term: Term, owner: str) -> Expression:
    every = problem[term.variable]
    members = np.flatnonzero(selected(every.index, term.where, f"{owner}: {term.variable}"))
    if not len(members):
        raise StatementError(f"{owner}: {term.variable} has no variable with these labels")
    return every._gather(members, every.index.take(members), _selection(every, term))


def _selection(variables: Expression, term: Term) -> Node:
    """The formula of a selection."""
    node = variables.formula
    for name, wanted in term.where.items():
        if isinstance(wanted, (tuple, Interval)):
            level = variables.index.levels[name]
            these = wanted if isinstance(wanted, tuple) else tuple(x for x in level.labels if _within(x, wanted))
            node = ("pick", name, these, node)
        else:
            node = ("fix", name, wanted, node)
    return node


def _within(label: Any, interval: Interval) -> bool:
    low, high = interval.at_least, interval.at_most
    return (low is None or label >= low) and (high is None or label <= high)


def _constraint(problem: Problem, rule: Constraint) -> Problem:
    """Rows for the labels that occur; terms with fewer levels count in every row that they match."""
    by, what = max((term.by for term in rule.terms), key=len), f"rule {rule.name!r}"
    if rule.name in problem.rows or rule.name in {o.name for o in problem.objectives}:
        raise StatementError(f"{what}: rows or an objective of that name exist already; choose another name")
    for term in rule.terms:
        if odd := set(term.by) - set(by):
            both = f"{', '.join(by)} and {', '.join(term.by)}"
            raise StatementError(f"{what} adds rows by {both}; sum both by the same levels ({odd.pop()!r})")
    rows: dict[tuple[Any, ...], int] = {}
    parts = [_part(problem, term, by, rows, what) for term in sorted(rule.terms, key=lambda term: -len(term.by))]
    count = len(rows)
    scale = math.lcm(*(term.coefficient.denominator for term in rule.terms))
    sides = _sides(rule, list(rows))
    scale = math.lcm(scale, *(side.denominator for side in sides))
    row, column = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    exact = [int(part[2] * scale) for part in parts]
    numbers: list[Any] = [*exact, *(side * scale for side in sides)]
    if any(abs(each) > EXACT for each in numbers):
        raise StatementError(f"{what}: its numbers have no common unit that is exact; write fewer digits")
    value = np.repeat(np.array(exact, np.float64), [len(part[0]) for part in parts])
    filled = np.bincount(row, minlength=count) > 0
    if (not count or not filled.all()) and not rule.allow_empty:
        label = next((label for label, some in zip(rows, filled.tolist(), strict=True) if not some), ())
        where = f" in row {label_text(label)!r}" if label else ""
        raise StatementError(f"{what} is over no variable{where}; allow_empty=True accepts that")
    fresh = problem.copy()
    if not count:
        return fresh
    row, column, value = _summed(row, column, value, problem.column_count)
    left: Node = ("add", ())
    for term in rule.terms:
        every = problem[term.variable]
        one = {k for k, wanted in term.where.items() if not isinstance(wanted, (tuple, Interval))}
        gone = tuple(k for k in every.index.keys if k not in by and k not in one)
        node = _selection(every, term)
        left = formulas.add(left, formulas.times(_written(term.coefficient), ("sum", gone, node) if gone else node), 1)
    right = _written(rule.rhs) if isinstance(rule.rhs, Fraction) else ("numbers", "...", by)
    levels = []
    for k, name in enumerate(by):
        known, labels = problem.levels.get(name), tuple(dict.fromkeys(label[k] for label in rows))
        levels.append(known if known is not None and set(labels) <= known.position.keys() else Level(name, labels))
    codes = [level.codes([label[k] for label in rows], what) for k, level in enumerate(levels)]
    index = Index.of(levels, codes, by, what) if by else Index((), {}, {}, 1, True)
    rhs = np.array([float(side * scale) for side in sides])
    fresh.rows[rule.name] = RowBlock(
        rule.name, index, rule.relation, row, column, value, rhs, Fraction(1, scale), left, right
    )
    return fresh


def _written(value: Fraction) -> Node:
    return ("number", str(value) if value.denominator < 100 else f"{float(value):g}")


def _part(
    problem: Problem, term: Term, by: tuple[str, ...], rows: dict[tuple[Any, ...], int], what: str
) -> tuple[Positions, Positions, Fraction]:
    """Rows and columns of a term, which may add rows, and its coefficient."""
    index = problem[term.variable].index
    for name in term.by:
        if name not in index.levels:
            raise StatementError(f"{what}: {term.variable} has " + nearest("level", name, index.names))
    members = np.flatnonzero(selected(index, term.where, f"{what}: {term.variable}"))
    key = np.zeros(len(members), np.int64)
    for name in term.by:
        key = key * len(index.levels[name]) + index.codes[name][members]
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    at = members[first] if len(members) else members
    labels = list(zip(*(index.labels(name, at) for name in term.by), strict=True)) if term.by else [()]
    if len(term.by) == len(by):
        place = [term.by.index(name) for name in by]
        hits = [[rows.setdefault(tuple(label[p] for p in place), len(rows))] for label in labels]
    else:
        place = [by.index(name) for name in term.by]
        matching: dict[tuple[Any, ...], list[int]] = {}
        for label, row in rows.items():
            matching.setdefault(tuple(label[p] for p in place), []).append(row)
        hits = [matching.get(label, []) for label in labels]
    counts = np.array([len(hit) for hit in hits], np.int64)
    begin = np.concatenate([[0], np.cumsum(counts)])
    flat = np.array([row for hit in hits for row in hit], np.int64)
    times = counts[group] if len(group) else counts[:0]
    member = np.repeat(np.arange(len(members)), times)
    offset = np.arange(len(member)) - np.repeat(np.cumsum(times) - times, times)
    return flat[begin[group[member]] + offset], members[member] + problem.blocks[term.variable].start, term.coefficient


def _sides(rule: Constraint, rows: list[tuple[Any, ...]]) -> list[Fraction]:
    if not isinstance(rule.rhs, dict):
        return [rule.rhs] * len(rows)
    texts = [label_text(label) for label in rows]
    for label in rule.rhs:
        if label not in texts:
            raise StatementError(f"rule {rule.name!r}: " + nearest("row", label, texts))
    for text in texts:
        if text not in rule.rhs:
            raise StatementError(f"rule {rule.name!r}: no right-hand side for row {text!r}")
    return [rule.rhs[text] for text in texts]


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
    if len(rhs) != index.count:
        raise StatementError(f"{index.count} right-hand sides expected, got {len(rhs)}")
    numbers, unit = exact_numbers(np.array([*values, *rhs, Fraction(0)], object))
    count = len(values)
    terms = np.array(rows, np.int64), np.array(columns, np.int64), numbers[:count]
    return problem.combined(index, terms, -numbers[count : count + len(rhs)], unit, ("symbol", "rows", index.keys))


def _drop(problem: Problem, change: Drop) -> Problem:
    block = problem._rows_named(change.name)
    if change.rows is None:
        return problem.without(change.name)
    texts = {text: k for names in (block.index.texts(), block.index.plain_texts()) for k, text in enumerate(names)}
    if odd := [text for text in change.rows if text not in texts]:
        raise StatementError(f"without {change.name!r}: " + nearest("row", odd[0], block.index.plain_texts()))
    return problem.without_members(change.name, [texts[text] for text in change.rows])


def _fix(problem: Problem, change: Fix) -> Problem:
    return problem.with_fixed(_expression(problem, change.variables, "with_fixed"), float(change.value))


def _bounds(problem: Problem, change: Bounds) -> Problem:
    low, high = (None if side is None else float(side) for side in (change.lower, change.upper))
    return problem.with_bounds(_expression(problem, change.variables, "with_bounds"), lower=low, upper=high)


def _cost(problem: Problem, change: Cost) -> Problem:
    total, what = None, f"cost of {change.stage}"
    for term in change.terms:
        part = _expression(problem, term, what).sum() * term.coefficient
        total = part if total is None else total + part
    changed = problem.with_cost(change.stage, total)
    before, after = ({o.name: o.unit for o in each.objectives}[change.stage] for each in (problem, changed))
    if before is not None and after is None:
        raise StatementError(f"with_cost: the numbers of {change.stage!r} have no common exact unit; use fewer digits")
    return changed


def _variable(problem: Problem, change: Variable) -> Problem:
    if change.lower > change.upper:
        raise StatementError(
            f"with_variable: {change.name} has lower bound {change.lower} above its upper {change.upper}"
        )
    levels = []
    for name, labels in change.levels.items():
        known = problem.levels.get(name)
        levels.append(known if known is not None and known.labels == labels else Level(name, labels))
    fresh, low, high = problem.copy(), float(change.lower), float(change.upper)
    fresh.declare(change.name, Index.product(levels), lower=low, upper=high, integer=change.integer)
    return fresh


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
