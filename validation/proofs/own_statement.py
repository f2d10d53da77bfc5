"""A user's own statement in exact numbers: the problem is proven as it is stated, in memory or in a file."""

from __future__ import annotations

import numpy as np

from flowlex.formulations.language.exact_units import Unit
from flowlex.formulations.language.statement import Statement
from flowlex.formulations.program_arrays import Floats
from flowlex.validation.proofs.exact_program import Exact, ExactProgram
from flowlex.validation.proofs.program_builder import ProgramBuilder


def exact_program(statement: Statement) -> ExactProgram:
    """The statement in exact numbers. Floats without a decimal unit are taken as the binary numbers that they are."""
    of = ProgramBuilder()
    for b in statement.blocks.values():
        of.columns(b.name, list, b.index.count, texts=b.index.texts, lower=b.lower, upper=b.upper, integer=b.integer)
    for row in statement.rows.values():
        terms = row.rows, row.columns, _integers(row.values, row.unit)
        of.rows(row.name, row.relation, row.index.texts, _integers(row.rhs, row.unit), terms, empty=True)
    for o in statement.objectives:
        constant = _integers(np.array([o.constant]), o.unit)
        of.objective(
            o.name,
            (o.columns, _integers(o.values, o.unit)),
            constant=constant,
            maximize=o.maximize,
            within=o.within,
            relative=o.relative,
        )
    return of.program()


def _integers(values: Floats, unit: Unit) -> Exact:
    return Exact.of_floats(values) if unit is None else Exact(values.astype(np.int64), unit)
