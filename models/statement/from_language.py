"""A problem of the language as the statement that models change and solve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np

from flowlex.formulations.language import labels as language
from flowlex.formulations.language.statement import Statement as Problem
from flowlex.formulations.linear_expression import Expression
from flowlex.models.statement.rows_and_objectives import Stage, Statement
from flowlex.models.statement.variable_labels import Index


def statement_of(problem: Problem, needed: Mapping[str, str]) -> Statement:
    """The statement of a problem.

    Parameters
    ----------
    problem
        Stated in the language.
    needed
        Names of rows that cannot be dropped, with the reason.
    """
    s = Statement.start(problem.name, problem.rows, needed)
    scales = {}
    for block in problem.blocks.values():
        integer = bool(len(block.integer)) and bool(block.integer.all())
        s.variables(block.name, _index(block.index), lower=block.lower, upper=block.upper, integer=integer)
    for row in problem.rows.values():
        left = Expression(row.rows, row.columns, row.values, np.zeros(row.index.count))
        s.constrain(row.name, left, row.relation, row.rhs, _index(row.index))  # type: ignore[arg-type]
        if row.unit not in (None, 1):
            scales[row.name] = 1 / Fraction(row.unit)
    stages = []
    for o in problem.objectives:
        total = Expression(np.zeros(len(o.columns), np.int64), o.columns, o.values, np.array([float(o.constant)]))
        stages.append(Stage(o.name, total, o.maximize, Fraction(1) if o.unit is None else o.unit))
    return replace(s.with_stages(*stages), scales=scales)


def _index(index: language.Index) -> Index:
    levels = {name: (index.levels[name].labels, index.codes[name].astype(np.int64)) for name in index.names}
    return Index.coded(**levels).named_by(*index.keys) if levels else Index({}, {}, index.count)
