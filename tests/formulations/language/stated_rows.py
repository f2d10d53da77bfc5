"""Rows of a problem as plain dictionaries, for tests."""

from fractions import Fraction
from typing import Any

from flowlex.formulations.language.statement import Statement

Stated = tuple[dict[str, Fraction], str, Fraction]


def rows(p: Statement, name: str) -> dict[Any, Stated]:
    """Label (a tuple for several levels) to terms by variable, relation and right side."""
    block = p.rows[name]
    unit = block.unit or Fraction(1)
    labels = [x if len(x) != 1 else x[0] for x in block.index.tuples()]
    found: dict[Any, Stated] = {
        label: ({}, block.relation, Fraction(b) * unit) for label, b in zip(labels, block.rhs.tolist(), strict=True)
    }
    for i, j, v in zip(block.rows.tolist(), block.columns.tolist(), block.values.tolist(), strict=True):
        terms = found[labels[i]][0]
        (variable,) = p.names_of([j])
        assert variable not in terms
        terms[variable] = Fraction(v) * unit
    return found
