"""A linear or integer program as columns: blocks of variables and of constraints over NumPy arrays.

Constraints are written with `sum_by(key)`: the sum of the columns that share a key is at most a capacity::

    lp = LinearProgram("transport")
    x = lp.variables("ship", len(cost), upper=supply[origin])
    lp.constrain("supply", x.sum_by(origin), "<=", supply)
    lp.constrain("demand", x.sum_by(target), ">=", demand)
    lp.minimize((x * cost).sum())

Blocks have names and rows labels: ``egress[m1,3]`` is the same row in a file, in duals and in an infeasible set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowlex.formulations.block_labels import Labels, block_names, blocks_html, check_declared, check_labels
from flowlex.formulations.linear_expression import Expression, Variables
from flowlex.formulations.program_arrays import Floats, LinearProgramArrays, frozen

if TYPE_CHECKING:
    import highspy
    import pulp

    from flowlex.formulations.program_files import NamedProgram

Relation: TypeAlias = Literal["<=", ">=", "=="]


@dataclass(frozen=True)
class VariableBlock:
    """Variables declared together: their columns are ``start .. start + count - 1``."""

    name: str
    start: int
    count: int
    lower: Floats
    upper: Floats
    integer: bool
    labels: Labels = None

    @property
    def columns(self) -> slice:
        """The block's columns."""
        return slice(self.start, self.start + self.count)

    def names(self) -> list[str]:
        """One name per column, ``name[label]``."""
        return block_names(self.name, self.count, self.labels)


@dataclass(frozen=True)
class ConstraintBlock:
    """Constraints declared together: ``expression relation rhs``, rows ``start .. start + count - 1``."""

    name: str
    start: int
    expression: Expression = field(repr=False)
    relation: Relation
    rhs: Floats = field(repr=False)
    labels: Labels = None

    @property
    def count(self) -> int:
        """How many rows."""
        return self.expression.count

    @property
    def rows(self) -> slice:
        """The block's rows."""
        return slice(self.start, self.start + self.count)

    def names(self) -> list[str]:
        """One name per row, ``name[label]``."""
        return block_names(self.name, self.count, self.labels)


class LinearProgram:
    """A linear or mixed-integer program, built block by block (see the module's example).

    Parameters
    ----------
    name
        Name of the problem; appears in exported files.
    rows
        Names that constraints may have (those of a model's equations); any when None.
    """

    def __init__(self, name: str, rows: Collection[str] | None = None) -> None:
        self.name = name
        self.rows = rows
        self.maximizing: bool = False
        self.variable_blocks: dict[str, VariableBlock] = {}
        self.constraint_blocks: dict[str, ConstraintBlock] = {}
        self._objective = Expression.empty(1)

    def __repr__(self) -> str:
        kind = "integer program" if self.is_mip else "linear program"
        return f"<{kind} {self.name!r}: {self.column_count} columns, {self.row_count} rows>"

    def _repr_html_(self) -> str:
        return blocks_html(repr(self), variables=self.variable_blocks, constraints=self.constraint_blocks)

    @property
    def column_count(self) -> int:
        """Number of variables."""
        return sum(block.count for block in self.variable_blocks.values())

    @property
    def row_count(self) -> int:
        """Number of constraints."""
        return sum(block.count for block in self.constraint_blocks.values())

    @property
    def is_mip(self) -> bool:
        """Whether any variable must be integer."""
        return any(bool(np.any(block.integer)) and block.count for block in self.variable_blocks.values())

    @property
    def objective(self) -> Expression:
        """The objective as an expression of one row."""
        return self._objective

    def variables(
        self,
        name: str,
        count: int,
        *,
        lower: ArrayLike = 0.0,
        upper: ArrayLike = np.inf,
        integer: bool = False,
        labels: Labels = None,
    ) -> Variables:
        """Declare ``count`` variables and return them as a vector.

        Parameters
        ----------
        lower, upper
            One number or (count,) numbers; infinite for no bound.
        labels
            One label per variable, or a tuple of (count,) arrays; numbers from 0 when omitted.

        Raises
        ------
        ValueError
            The name is taken, there are more or fewer labels than variables, a bound is NaN, or a lower bound
            exceeds its upper bound (the first is named).
        """
        if name in self.variable_blocks:
            raise ValueError(f"{self.name}: variables named {name!r} exist already")
        labels = check_labels(name, count, labels)
        low, high = (
            _broadcast(lower, count, f"lower bounds of {name}"),
            _broadcast(upper, count, f"upper bounds of {name}"),
        )
        block = VariableBlock(name, self.column_count, count, frozen(low), frozen(high), integer, labels)
        self.variable_blocks[name] = _checked(block)
        return Variables(np.arange(block.start, block.start + count))

    def constrain(
        self,
        name: str,
        expression: Expression,
        relation: Relation,
        rhs: ArrayLike,
        *,
        labels: Labels = None,
    ) -> ConstraintBlock:
        """Require ``expression relation rhs`` row by row; constants of the expression move to the right.

        Parameters
        ----------
        rhs, labels
            One finite number for all rows or one per row; labels as in ``variables``, one per row.

        Raises
        ------
        ValueError
            The name is taken, the relation unknown, the right-hand side not finite or of another length, there
            are more or fewer labels than rows, a coefficient is not finite, or a variable belongs elsewhere.
        """
        if name in self.constraint_blocks:
            raise ValueError(f"{self.name}: constraints named {name!r} exist already")
        check_declared(self.name, "constraints", name, self.rows)
        if relation not in ("<=", ">=", "=="):
            raise ValueError(f"{name}: unknown relation {relation!r}; one of <=, >=, ==")
        self._check_terms(name, expression)
        labels = check_labels(name, expression.count, labels)
        right = _broadcast(rhs, expression.count, f"right-hand sides of {name}") - expression.constant
        if not np.isfinite(right).all():
            raise ValueError(f"{name}: row {int(np.argmin(np.isfinite(right)))} has no finite right-hand side")
        block = ConstraintBlock(name, self.row_count, expression, relation, frozen(right), labels)
        self.constraint_blocks[name] = block
        return block

    def variable(self, name: str) -> Variables:
        """Return the declared variables of a name.

        Parameters
        ----------
        name
            Name of a declared block; `ValueError` lists the known names for any other.
        """
        block = self._block(name)
        return Variables(np.arange(block.start, block.start + block.count))

    def with_integer(self, *names: str) -> LinearProgram:
        """Return the program with variables required to be integer.

        Parameters
        ----------
        names
            Names of blocks; all blocks if none is given.
        """
        chosen = [self._block(name) for name in names] or self.variable_blocks.values()
        return self._with_variables(replace(block, integer=True) for block in chosen)

    def with_upper(self, name: str, upper: ArrayLike) -> LinearProgram:
        """Return the program with other upper bounds on the variables of a name.

        Parameters
        ----------
        name
            Of the block.
        upper
            One bound, or (count,) one for each variable; infinity for none.

        Raises
        ------
        ValueError
            There is no such name, or bounds of another length, NaN, or below the lower bounds.
        """
        block = self._block(name)
        high = frozen(_broadcast(upper, block.count, f"upper bounds of {name}"))
        return self._with_variables([_checked(replace(block, upper=high))])

    def copy(self) -> LinearProgram:
        """A program with the same blocks and objective, to which more can be added."""
        return self._with_variables(())

    def _block(self, name: str) -> VariableBlock:
        if name not in self.variable_blocks:
            known = ", ".join(self.variable_blocks) or "none"
            raise ValueError(f"{self.name}: there are no variables named {name!r}; there are: {known}")
        return self.variable_blocks[name]

    def _with_variables(self, blocks: Iterable[VariableBlock]) -> LinearProgram:
        program = LinearProgram(self.name, self.rows)
        program.variable_blocks = self.variable_blocks | {block.name: block for block in blocks}
        program.constraint_blocks = dict(self.constraint_blocks)
        program._objective, program.maximizing = self._objective, self.maximizing
        return program

    def minimize(self, expression: Expression) -> None:
        """Set the objective, to be minimised.

        Parameters
        ----------
        expression
            One row; a longer expression raises `ValueError`.
        """
        self._set_objective(expression, maximizing=False)

    def maximize(self, expression: Expression) -> None:
        """Set the objective, to be maximised.

        Parameters
        ----------
        expression
            One row; a longer expression raises `ValueError`.
        """
        self._set_objective(expression, maximizing=True)

    def _set_objective(self, expression: Expression, *, maximizing: bool) -> None:
        if expression.count != 1:
            raise ValueError(
                f"{self.name}: an objective has one row, this expression has {expression.count}; use .sum()"
            )
        self._check_terms("objective", expression)
        if not np.isfinite(expression.constant[0]):
            raise ValueError(f"objective: the constant {expression.constant[0]} is not finite")
        self._objective = expression
        self.maximizing = maximizing

    def _check_terms(self, name: str, expression: Expression) -> None:
        if not np.isfinite(expression.value).all():
            first = int(np.argmin(np.isfinite(expression.value)))
            value, at = expression.value[first], expression.column[first]
            raise ValueError(f"{name}: the coefficient {value} of column {at} is not finite")
        if expression.column.max(initial=-1) >= self.column_count:
            raise ValueError(f"{name}: an expression uses variables of another program than {self.name!r}")

    def arrays(self) -> LinearProgramArrays:
        """Lower the program to solver arrays (a fresh copy each time)."""
        import scipy

        columns, rows = self.column_count, self.row_count
        blocks, constraints = list(self.variable_blocks.values()), list(self.constraint_blocks.values())
        matrix = scipy.sparse.coo_array(
            (
                _join([c.expression.value for c in constraints], np.float64),
                (
                    _join([c.expression.row + c.start for c in constraints], np.int64),
                    _join([c.expression.column for c in constraints], np.int64),
                ),
            ),
            shape=(rows, columns),
        ).tocsc()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        cost = np.zeros(columns)
        np.add.at(cost, self._objective.column, self._objective.value)
        rhs = _join([c.rhs for c in constraints], np.float64)
        relation = np.repeat([c.relation for c in constraints] or ["=="], [c.count for c in constraints] or [0])
        return LinearProgramArrays(
            matrix=matrix,
            row_lower=np.where(relation == "<=", -np.inf, rhs),
            row_upper=np.where(relation == ">=", np.inf, rhs),
            column_lower=_join([b.lower for b in blocks], np.float64),
            column_upper=_join([b.upper for b in blocks], np.float64),
            cost=cost,
            offset=float(self._objective.constant[0]),
            integrality=_join([np.broadcast_to(b.integer, b.count) for b in blocks], np.bool_),
            maximize=self.maximizing,
        )

    def column_names(self) -> list[str]:
        """Names of all columns, in order."""
        return [name for block in self.variable_blocks.values() for name in block.names()]

    def row_names(self) -> list[str]:
        """Names of all rows, in order."""
        return [name for block in self.constraint_blocks.values() for name in block.names()]

    def split_rows(self, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Cut a vector over all rows into one array per constraint name.

        Parameters
        ----------
        values
            (rows,) such as duals or activities.
        """
        return {name: values[block.rows] for name, block in self.constraint_blocks.items()}

    def split_columns(self, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Cut a vector over all columns into one array per variable name.

        Parameters
        ----------
        values
            (columns,) such as values or reduced costs.
        """
        return {name: values[block.columns] for name, block in self.variable_blocks.items()}

    def named(self) -> NamedProgram:
        """The program as arrays and names, as model files hold it (see `flowlex.formulations.program_files`)."""
        from flowlex.formulations.program_files import NamedProgram

        return NamedProgram(self.arrays(), self.column_names(), self.row_names(), self.name)

    def to_pulp(self) -> pulp.LpProblem:
        """The same program as a PuLP problem, for reading, exporting or any other PuLP solver."""
        from flowlex.formulations.pulp_adapter import to_pulp

        return to_pulp(self.arrays(), self.name, self.column_names(), self.row_names())[0]

    def to_highs(self) -> highspy.HighsLp:
        """The same program as a HiGHS model with names."""
        from flowlex.formulations.highs_adapter import to_highs

        return to_highs(self.arrays(), self.name, self.column_names(), self.row_names())


def _checked(block: VariableBlock) -> VariableBlock:
    low, high = block.lower, block.upper
    if (low == np.inf).any() or (high == -np.inf).any():
        first = int(np.argmax((low == np.inf) | (high == -np.inf)))
        raise ValueError(f"{block.names()[first]}: no number lies between bounds {low[first]} and {high[first]}")
    if (low > high).any():
        first = int(np.argmax(low > high))
        raise ValueError(f"{block.names()[first]}: lower bound {low[first]} exceeds upper bound {high[first]}")
    return block


def _broadcast(value: ArrayLike, count: int, what: str) -> Floats:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim > 1 or (array.ndim == 1 and len(array) != count):
        raise ValueError(f"{what}: expected one number or {count}, got shape {array.shape}")
    if np.isnan(array).any():
        raise ValueError(f"{what}: NaN is not a number to optimise with")
    return np.broadcast_to(array, (count,))


def _join(parts: list[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.zeros(0, dtype)
