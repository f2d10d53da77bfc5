"""A user's own statement in exact numbers: the problem is proven as it is stated, in memory or in a file."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from flowlex.formulations.language.exact_units import Unit
from flowlex.formulations.language.statement import Statement
from flowlex.formulations.program_arrays import Floats
from flowlex.validation.proofs.exact_program import Bounds, ColumnBlock, Exact, ExactProgram, Objective, RowBlock, Whole


def exact_program(statement: Statement) -> ExactProgram:
    """The statement in exact numbers. Floats without a decimal unit are taken as the binary numbers that they are."""
    blocks = list(statement.blocks.values())
    lower = np.concatenate([b.lower for b in blocks]) if blocks else np.zeros(0)
    upper = np.concatenate([b.upper for b in blocks]) if blocks else np.zeros(0)
    rows = {}
    for block in statement.rows.values():
        both, unit = _integers(np.concatenate([block.values, block.rhs]), block.unit)
        k = len(block.values)
        rows[block.name] = RowBlock(
            block.name,
            block.index.count,
            block.relation,
            block.rows,
            block.columns,
            both[:k],
            both[k:],
            unit,
            block.index.texts,
        )
    objectives = []
    for o in statement.objectives:
        both, unit = _integers(np.concatenate([o.values, [o.constant]]), o.unit)
        objectives.append(
            Objective(o.name, o.columns, both[:-1], int(both[-1]), unit, o.maximize, o.within, o.relative)
        )
    return ExactProgram(
        [ColumnBlock(b.name, b.start, b.index.count, b.index.texts) for b in blocks],
        Bounds.of_floats(lower),
        Bounds.of_floats(upper),
        np.concatenate([b.integer for b in blocks]) if blocks else np.zeros(0, bool),
        rows,
        objectives,
    )


def _integers(values: Floats, unit: Unit) -> tuple[Whole, Fraction]:
    if unit is not None:
        return values.astype(np.int64), unit
    exact = Exact.of_floats(values)
    return exact.numbers, exact.unit
