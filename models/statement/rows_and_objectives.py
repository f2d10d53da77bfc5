"""A model as a statement: labelled variables, rows under declared names, and objectives in their order.

A family of models builds its statement once, block by block::

    s = Statement(name, rows=declared)
    x = s.variables("x", Index.of(task=..., node=...), upper=1, integer=True)
    s.constrain("task", x.sum_by(task), "<=", 1, Index.of(task=names))
    s.minimize("transfer", (x * cost).sum(), unit=Fraction(1, 1000))

The objectives are stages: the first is minimised, the second among its optima, and so on. Rows and stages are scaled by
an exact factor so that their numbers are integers wherever the data allow it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from flowlex.formulations.linear_expression import Expression, Variables
from flowlex.formulations.linear_program import LinearProgram, Relation, VariableBlock
from flowlex.formulations.program_arrays import Floats
from flowlex.instances.exact_rationals import rational
from flowlex.models.solution import ModelError
from flowlex.models.statement.variable_labels import Index, nearest

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, eq=False)
class Stage:
    """One objective."""

    name: str  # its name in ``solution.stages``
    expression: Expression  # one row over the columns of the statement; integer coefficients where the data are exact
    maximize: bool = False  # whether more is better
    unit: Fraction = Fraction(1)  # what one unit of the expression is in the unit of the stage

    def cost(self, columns: int) -> Floats:
        """(n,) coefficients to be minimised."""
        cost = np.zeros(columns)
        np.add.at(cost, self.expression.column, self.expression.value)
        return -cost if self.maximize else cost

    def value_of(self, internal: float) -> Fraction:
        """A minimised value in the unit of the stage; an integer where the expression is integer."""
        value = Fraction(round(internal)) if abs(internal - round(internal)) < 1e-6 else Fraction(internal)
        constant = Fraction(float(self.expression.constant[0]))
        return ((-value if self.maximize else value) + constant) * self.unit

    def value_at(self, values: Floats) -> Fraction:
        """The exact value of the stage at (n,) values of all columns, each read as the decimal that a file states."""
        e = self.expression
        used = values[e.column] != 0
        each = zip(e.value[used].tolist(), values[e.column[used]].tolist(), strict=True)
        total = sum((Fraction(cost) * rational(x) for cost, x in each), Fraction(float(e.constant[0])))
        return total * self.unit


@dataclass(frozen=True, eq=False)
class Statement:
    """See the module."""

    program: LinearProgram  # columns and rows. It has no objective: stages have.
    #: Labels of variables and of rows, by name.
    columns: dict[str, Index] = field(default_factory=dict)
    rows: dict[str, Index] = field(default_factory=dict)
    stages: tuple[Stage, ...] = ()  # the objectives in their order
    needed: Mapping[str, str] = field(default_factory=dict)  # rows that cannot be dropped, with the reason
    own: frozenset[str] = frozenset()  # names of rows and variables that changes added
    declared: frozenset[str] = frozenset()  # names of rows that the model has in some instances; own rows have others
    scales: Mapping[str, Fraction] = field(default_factory=dict)  # by what rows were multiplied, where it is not 1

    def scale(self, name: str) -> Fraction:
        """Factor by which the rows of a name were scaled."""
        return self.scales.get(name, Fraction(1))

    @classmethod
    def start(
        cls, name: str, rows: Collection[str] | None = None, needed: Mapping[str, str] | None = None
    ) -> Statement:
        """An empty statement; ``rows`` are the declared names, ``needed`` those that cannot be dropped, and why."""
        return cls(LinearProgram(name, rows), needed=needed or {}, declared=frozenset(rows or ()))

    def variables(
        self, name: str, index: Index, *, lower: ArrayLike = 0.0, upper: ArrayLike, integer: bool = False
    ) -> Variables:
        """Declare variables, one per member of the index, and return them; their bounds are finite."""
        found = self.program.variables(
            name, index.count, lower=lower, upper=upper, integer=integer, labels=index.columns()
        )
        self.columns[name] = index
        return found

    def constrain(self, name: str, expression: Expression, relation: Relation, rhs: ArrayLike, index: Index) -> None:
        """Require ``expression relation rhs``, one row per member of the index; none if the index is empty."""
        if index.count:
            self.program.constrain(name, expression, relation, rhs, labels=index.columns())
            self.rows[name] = index

    def with_stages(self, *stages: Stage) -> Statement:
        """The statement with its objectives."""
        return replace(self, stages=stages)

    def stage(self, name: str) -> Stage:
        """A stage by name.

        Raises `ModelError`: there is none; names the nearest.
        """
        for each in self.stages:
            if each.name == name:
                return each
        raise ModelError(nearest("stage", name, (each.name for each in self.stages)))

    def stage_program(self, stage: str | None = None, before: Mapping[str, Fraction] | None = None) -> LinearProgram:
        """The program of a stage (the first when None), with the stages in ``before`` fixed at their values.

        The block ``stages_before`` has a row for each of these.
        """
        program = LinearProgram(self.program.name)
        chosen = self.stages[0] if stage is None else self.stage(stage)
        program.variable_blocks = dict(self.program.variable_blocks)
        program.constraint_blocks = dict(self.program.constraint_blocks)
        if before:
            rows, sides = self.limits(before)
            program.constrain("stages_before", rows, "<=", sides, labels=list(before))
        (program.maximize if chosen.maximize else program.minimize)(chosen.expression)
        return program

    def limits(self, before: Mapping[str, Fraction]) -> tuple[Expression, Floats]:
        """Left and right sides of ``<=`` that keep stages, as minimisations, at their values."""
        rows, sides = Expression.empty(len(before)), np.zeros(len(before))
        for k, (name, value) in enumerate(before.items()):
            each = self.stage(name)
            sign = -1.0 if each.maximize else 1.0
            rows = rows + (each.expression * sign).sum_by([k], len(before))
            sides[k] = sign * float(value / each.unit)
        return rows, sides

    def split(self, values: Any) -> dict[str, Floats]:
        """Values of all columns by name of the variables."""
        return self.program.split_columns(np.asarray(values, np.float64))

    def block(self, name: str) -> VariableBlock:
        """The variables of a name."""
        if name not in self.columns:
            raise ModelError(nearest("variables named", name, self.columns))
        return self.program.variable_blocks[name]
