"""Solve a statement stage by stage, with a proof in names and labels."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from flowlex.formulations.lexicographic.branch_and_bound_leaves import Branch, Leaf, StagesOutcome
from flowlex.formulations.linear_program import ConstraintBlock
from flowlex.formulations.program_arrays import Floats
from flowlex.models.statement.rows_and_objectives import Statement

#: Multipliers times the largest number of their row below half of ``1 / _GRAIN`` are left out; others become small
#: fractions or multiples of ``1 / _FINE``.
_GRAIN, _FINE = 2**24, 2**44
#: Tolerance for solver values of integer columns.
_WHOLE = 1e-5
#: Largest denominator of a small fraction.
_SMALL = 5040


def proof_leaves(statement: Statement, found: StagesOutcome, stages: int | None = None) -> dict[str, Any]:
    """Leaves of the first ``stages`` stages (all if None) as plain data, in names and labels."""
    names = _Names(statement)
    each = zip(statement.stages, found.stages[:stages], strict=False)
    return {
        stage.name: [names.leaf(leaf, statement.stages[: k + 1]) for leaf in result.leaves]
        for k, (stage, result) in enumerate(each)
    }


class _Names:
    """Columns and rows of a statement by name, for documents."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._columns: list[tuple[str, str]] | None = None
        #: The largest number of each row, by name: its multipliers are rounded relative to it.
        self._sizes = {name: _largest(block) for name, block in statement.program.constraint_blocks.items()}

    def leaf(self, leaf: Leaf, stages: Sequence[Any]) -> dict[str, Any]:
        """A leaf as plain data; multipliers are those of the unscaled rows, in the unit of the stage."""
        statement, unit = self._statement, stages[-1].unit if stages and leaf.own else Fraction(1)
        rows: dict[str, dict[str, int | str]] = {}
        for name, block in statement.program.constraint_blocks.items():
            sizes, scale = self._sizes[name], statement.scale(name)
            effects = leaf.rows[block.rows] * sizes
            used = np.flatnonzero(np.abs(effects) * _GRAIN >= 0.5)
            if used.size:
                labels = statement.rows[name].take(used).texts()
                each = zip(labels, effects[used].tolist(), sizes[used].tolist(), strict=True)
                rows[name] = {label: _text(y, unit * scale / Fraction(size)) for label, y, size in each}
        earlier = {}
        for stage, multiplier in zip(stages[:-1], leaf.earlier.tolist(), strict=False):
            size = float(np.abs(stage.expression.value).max(initial=0)) or 1.0
            if abs(multiplier * size) * _GRAIN >= 0.5:
                earlier[stage.name] = _text(multiplier * size, unit / stage.unit / Fraction(size))
        document: dict[str, Any] = {"own": leaf.own, "rows": rows}
        if earlier:
            document["earlier"] = earlier
        if leaf.branches:
            document["branches"] = [self._branch(branch) for branch in leaf.branches]
        return document

    def _branch(self, branch: Branch) -> dict[str, Any]:
        if self._columns is None:
            self._columns = [(n, text) for n, index in self._statement.columns.items() for text in index.texts()]
        variable, label = self._columns[branch.column]
        relation = "<=" if branch.upper else ">="
        return {"variable": variable, "label": label, "relation": relation, "side": branch.side}


def _largest(block: ConstraintBlock) -> Floats:
    """(n,) largest absolute coefficient of each row; 1 where there is none."""
    found = np.zeros(block.count)
    np.maximum.at(found, block.expression.row, np.abs(block.expression.value))
    return np.where(found > 0, found, 1.0)


def _text(multiplier: float, factor: Fraction) -> int | str:
    """A multiplier as a small fraction if it is close to one, since rounding would weaken the bound."""
    small = Fraction(multiplier).limit_denominator(_SMALL)
    near = abs(small - Fraction(multiplier)) <= max(1.0, abs(multiplier)) / 10**9
    value = (small if near else Fraction(round(multiplier * _FINE), _FINE)) * factor
    return int(value) if value.denominator == 1 else str(value)
