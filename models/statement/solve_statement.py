"""Solve a statement stage by stage, with a proof in names and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from flowlex.formulations.engines.infeasibility_explanation import explained
from flowlex.formulations.lexicographic.branch_and_bound_leaves import Branch, Leaf, StagesOutcome
from flowlex.formulations.lexicographic.objective_stages import solve_stages
from flowlex.formulations.linear_program import ConstraintBlock
from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import Infeasibility, Outcome, SolveOptions, Status
from flowlex.models.solution import Dual, ModelError, Solution, plain
from flowlex.models.statement.rows_and_objectives import Statement
from flowlex.models.statement.variable_labels import nearest

#: Multipliers times the largest number of their row below half of ``1 / _GRAIN`` are left out; others become small
#: fractions or multiples of ``1 / _FINE``.
_GRAIN, _FINE = 2**24, 2**44
#: Tolerance for solver values of integer columns.
_WHOLE = 1e-5
#: Largest denominator of a small fraction.
_SMALL = 5040


@dataclass(frozen=True, eq=False)
class StatementRun:
    """The result of solving a statement: the outcome, and the data of a solution file."""

    statement: Statement  # what was solved
    outcome: Outcome  # status, and values of all columns
    stages: Mapping[str, Fraction]  # value of every stage, in its unit
    bounds: Mapping[str, Fraction | None]  # proven bound of every stage; None where a stage before it is open
    proof: Mapping[str, Any]  # leaves by stage, in names and labels
    method: str  # how it was solved
    duals: Mapping[str, Dual]  # duals of the main stage by name of the rows, where a linear program proves it

    @property
    def answered(self) -> bool:
        """Whether there is an answer."""
        return self.outcome.values is not None and self.outcome.status.has_answer

    @property
    def values(self) -> dict[str, Floats]:
        """Values by name of the variables."""
        return self.statement.split(self.outcome.values)

    def document(self) -> dict[str, dict[str, Any]]:
        """All values that are not 0, by variable and label."""
        assert self.outcome.values is not None
        return values_document(self.statement, self.outcome.values)

    def slack(self) -> dict[str, Dual]:
        """Distance of every row from its side, by name and label."""
        assert self.outcome.values is not None
        x, found = self.outcome.values, {}
        for name, block in self.statement.program.constraint_blocks.items():
            activity = block.expression.evaluate(x) - block.expression.constant
            gap = activity - block.rhs if block.relation == ">=" else block.rhs - activity
            found[name] = Dual.of_block(block, gap / float(self.statement.scale(name)))
        return found


def run_statement(
    statement: Statement, options: SolveOptions, *, main: str, start: Floats | None = None
) -> StatementRun:
    """Minimise the stages one after the other; ``main`` is the stage whose duals are returned."""
    arrays = statement.program.arrays()
    columns = len(arrays.cost)
    costs = [stage.cost(columns) for stage in statement.stages]
    found = solve_stages(arrays, costs, options, start=start)
    outcome = Outcome(found.status, "highs", values=found.values, message=found.message, seconds=found.seconds)
    if found.status is Status.INFEASIBLE:
        outcome = _conflict(statement, outcome, options)
    stages, bounds, proven = {}, {}, 0
    known = True
    for k, (stage, result) in enumerate(zip(statement.stages, found.stages, strict=False)):
        # A later stage may move fractional values within the solver's tolerance, so the final ones are measured.
        stages[stage.name] = stage.value_of(result.value) if found.values is None else stage.value_at(found.values)
        bounds[stage.name] = stage.value_of(result.bound) if known and np.isfinite(result.bound) else None
        proven = k + 1 if known else proven
        known = known and result.proven
    document: dict[str, Any] = {"stages": proof_leaves(statement, found, proven)} if found.stages else {}
    if found.status is Status.INFEASIBLE and found.empty:
        names = _Names(statement)
        document = {"empty": [names.leaf(leaf, ()) for leaf in found.empty]}
    if found.status is Status.UNBOUNDED and found.ray is not None:
        size = float(np.abs(found.ray).max(initial=0)) or 1.0
        point = np.zeros(columns) if found.values is None else found.values
        document = {"point": _vector(statement, point), "ray": _vector(statement, found.ray / size)}
    return StatementRun(statement, outcome, stages, bounds, document, found.method, _duals(statement, found, main))


def _vector(statement: Statement, values: Floats) -> list[list[Any]]:
    """Values that are not 0 by variable and label, as small fractions."""
    found: list[list[Any]] = []
    for name, mine in statement.split(values).items():
        used = np.flatnonzero(mine)
        texts = statement.columns[name].take(used).texts()
        near = (Fraction(value).limit_denominator(_SMALL) for value in mine[used].tolist())
        found += [[name, text, str(value)] for text, value in zip(texts, near, strict=True)]
    return found


def proof_leaves(statement: Statement, found: StagesOutcome, stages: int | None = None) -> dict[str, Any]:
    """Leaves of the first ``stages`` stages (all if None) as plain data, in names and labels."""
    names = _Names(statement)
    each = zip(statement.stages, found.stages[:stages], strict=False)
    return {
        stage.name: [names.leaf(leaf, statement.stages[: k + 1]) for leaf in result.leaves]
        for k, (stage, result) in enumerate(each)
    }


def _conflict(statement: Statement, outcome: Outcome, options: SolveOptions) -> Outcome:
    """Name the conflicting rows of the linear program, or all own rules if it has no conflict."""
    program = statement.stage_program(statement.stages[0].name) if statement.stages else statement.program
    own = [name for name in program.constraint_blocks if name in statement.own]
    shown = explained(program, outcome, options, own)
    reason = shown.infeasibility
    if reason is not None and reason.constraints:
        return replace(shown, message=reason.message)
    needed = tuple(name for name in statement.own if name in statement.rows)
    text = f"No answer satisfies all rows; own rules: {', '.join(needed) or 'none'}."
    return replace(outcome, infeasibility=Infeasibility(text, needed), message=text)


def _duals(statement: Statement, found: StagesOutcome, main: str) -> dict[str, Dual]:
    k = next((k for k, stage in enumerate(statement.stages) if stage.name == main), None)
    if k is None or k >= len(found.stages) or len(found.stages[k].leaves) != 1 or not found.stages[k].leaves[0].own:
        return {}
    stage, duals = statement.stages[k], found.stages[k].leaves[0].rows
    sign = -1.0 if stage.maximize else 1.0
    each = statement.program.split_rows(duals)
    blocks = statement.program.constraint_blocks
    unit = float(stage.unit) * sign
    return {n: Dual.of_block(blocks[n], v * (unit * float(statement.scale(n)))) for n, v in each.items()}


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


def values_document(statement: Statement, values: Floats) -> dict[str, dict[str, Any]]:
    """All values that are not 0, by variable and label; integers where the variables are integer."""
    document: dict[str, dict[str, Any]] = {}
    for name, block in statement.program.variable_blocks.items():
        mine = values[block.columns]
        used = np.flatnonzero(mine)
        if used.size:
            numbers = (
                np.rint(mine[used]).astype(np.int64).tolist() if block.integer else map(_short, mine[used].tolist())
            )
            document[name] = dict(zip(statement.columns[name].take(used).texts(), numbers, strict=True))
    return document


def _short(value: float) -> int | float:
    return plain(Fraction(value))


def feasible_run(statement: Statement, values: Floats) -> StatementRun:
    """The result for given values, without a proof of optimality."""
    outcome = Outcome(Status.FEASIBLE, "given", values=values, message="Values from outside; no optimum is claimed.")
    stages = {stage.name: stage.value_at(values) for stage in statement.stages}
    return StatementRun(statement, outcome, stages, {}, {}, "given values", {})


def read_values(statement: Statement, values: Any) -> Floats:
    """Values of all columns from a solved PuLP problem, a solution file, or by name.

    Integer columns are rounded within a tolerance.
    Raises `ModelError`: a name does not exist, a number is missing or not finite, or a value of an integer column
    is fractional.
    """
    program = statement.program
    if isinstance(values, str | Path):
        from flowlex.formulations.program_files import read_solution

        found = read_solution(values, program.column_names())
        if found.values is None:
            raise ModelError(f"{values}: {found.solver} found no answer ({found.status})")
        x = found.values
    elif hasattr(values, "variablesDict"):
        from flowlex.formulations.program_files.written_names import written_names

        given = {variable.name: variable.varValue for variable in values.variables()}
        names = written_names(program.column_names(), "pulp")
        if missing := [name for name in names if given.get(name) is None]:
            raise ModelError(f"the problem has no value of {missing[0]}; solve a problem made by compile() first")
        x = np.array([float(given[name]) for name in names])
    else:
        x = _named_values(statement, values)
    if not np.isfinite(x).all():
        raise ModelError(f"the value of {program.column_names()[int(np.argmin(np.isfinite(x)))]} is not finite")
    for block in program.variable_blocks.values():
        if block.integer:
            given_here, whole = x[block.columns], np.rint(x[block.columns])
            apart = np.abs(given_here - whole) > _WHOLE
            if apart.any():
                k = int(np.argmax(apart))
                raise ModelError(
                    f"{block.names()[k]} is integer, its value is {given_here[k]:g}; solve the integer program, or "
                    "use model.relaxed()"
                )
            x[block.columns] = whole
    return x


def _named_values(statement: Statement, values: Mapping[str, Any]) -> Floats:
    names = statement.program.column_names()
    x, known = np.zeros(len(names)), {name: k for k, name in enumerate(names)}
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if hasattr(value, "items"):
            flat |= {_column(name, label): each for label, each in value.items()}
        else:
            flat[name] = value
    if unknown := next((name for name in flat if name not in known), None):
        from flowlex.formulations.program_files import ProgramFileError, columns_of

        try:
            known = columns_of(flat, names)  # as written files spell them
        except ProgramFileError as error:
            raise ModelError(nearest("variable", unknown, known)) from error
    for name, value in flat.items():
        x[known[name]] = float(value)
    return x


def start_values(statement: Statement, solution: Solution) -> Floats | None:
    """Values of an earlier answer for the variables that still exist; None if it holds no values."""
    if solution.stated is None or solution.stated.values is None:
        return None
    mine = {n: v for n, v in solution.stated.values.items() if n in statement.columns}
    known = set(statement.program.column_names())
    return _named_values(
        statement, {n: {k: x for k, x in v.items() if _column(n, k) in known} for n, v in mine.items()}
    )


def _column(name: str, label: str) -> str:
    """The name of a column; variables without levels have no label."""
    return f"{name}[{label}]" if label else name
