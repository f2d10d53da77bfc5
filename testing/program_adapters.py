"""Convert every source of a program to the form of `canonical_program`, and a mutated form back.

Only this module knows PuLP, HiGHS, model files, `flowlex.Problem` and our own formulations: a new kind of source needs
a line in `program_of`, and one in `rewrite` for mutation tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import highspy
import numpy as np
import pulp

from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.highs_adapter import program_of_highs, to_highs
from flowlex.formulations.language.exact_units import exact_numbers
from flowlex.formulations.linear_expression import Expression, Variables
from flowlex.formulations.linear_program import ConstraintBlock, LinearProgram, VariableBlock
from flowlex.formulations.program_arrays import Floats, Integers, LinearProgramArrays
from flowlex.formulations.program_files import NamedProgram, read_program
from flowlex.formulations.pulp_adapter import program_of_pulp, replace_objective, replace_row, terms_of
from flowlex.models.model_base import Model
from flowlex.models.problem import Problem
from flowlex.testing.canonical_program import Program, Stage, changed_rows
from flowlex.testing.row_names import Names, families_of

_SENSES = {"<=": pulp.LpConstraintLE, ">=": pulp.LpConstraintGE, "==": pulp.LpConstraintEQ}


@dataclass(frozen=True)
class Staged:
    """A program with several objectives, each optimised among the optima of those before it.

    Parameters
    ----------
    program
        A PuLP problem or `LinearProgram`; its own objective is not used.
    minimize
        Expressions of its variables by name, in order. For a maximisation state the negative.

    Examples
    --------
    >>> import pulp
    >>> from flowlex.testing import Staged, assert_optimum
    >>> problem = pulp.LpProblem("work")
    >>> late, cost = problem.add_variable("late", 0), problem.add_variable("cost", 0)
    >>> problem += late + cost >= 4, "work"
    >>> assert_optimum(Staged(problem, {"lateness": late, "price": cost}), [0, 4])
    """

    program: Any
    minimize: Mapping[str, Any]


def program_of(source: Any, families: Iterable[str] = ()) -> Program:
    """Convert a source to the form on which asserts and mutants work.

    ``source``: a `Problem`, a PuLP problem, a `LinearProgram`, a `FlowNetwork`, `Staged`, a model of ours, the path of
        an MPS or LP file, a model that HiGHS holds, or any object with ``compile()``.
    ``families``: names of families of rows and columns, for sources that declare no blocks.
    Raises `TypeError`: the source is none of these.
    """
    families = tuple(families)
    match source:
        case Program():
            return source
        case Staged():
            program = program_of(source.program, families)
            return program.with_stages(*_stages(source, program))
        case Problem():
            return _of_problem(source)
        case Model():
            return _of_problem(source.problem)
        case LinearProgram():
            return _of_blocks(source)
        case FlowNetwork():
            return _of_blocks(source.to_linear_program())
        case pulp.LpProblem():
            return _of_named(program_of_pulp(source), families)
        case highspy.Highs() | highspy.HighsModel() | highspy.HighsLp():
            return _of_named(program_of_highs(source), families)
        case NamedProgram():
            return _of_named(source, families)
        case str() | Path():
            return _of_named(read_program(source), families)
    if callable(compiled := getattr(source, "compile", None)):
        return program_of(compiled(), families)
    known = (
        "a Problem, a PuLP problem, a LinearProgram, a FlowNetwork, a model, a HiGHS model or the path of a model file"
    )
    raise TypeError(f"cannot read a program from {source!r}; expected {known}")


def rewrite(source: Any, before: Program, after: Program) -> Any:
    """Make the source state another program: change a PuLP problem in place, return a changed copy of any other."""
    match source:
        case Program():
            return after
        case Staged():
            inner = program_of(source.program)
            changed = rewrite(source.program, inner, after.with_stages(*inner.stages))
            return Staged(changed, {stage.name: stage for stage in after.stages})
        case Problem():
            return _to_problem(source, after)
        case LinearProgram():
            return _to_blocks(source, after)
        case FlowNetwork():
            return _to_blocks(source.to_linear_program(), after)
        case pulp.LpProblem():
            return _into_pulp(source, before, after)
        case highspy.Highs():
            changed = highspy.Highs()
            changed.setOptionValue("output_flag", False)
            changed.passModel(to_highs(_stated(after), after.name, after.columns.names, after.rows.names))
            return changed
    raise TypeError(
        f"cannot mutate {type(source).__name__}; a formulation returns a Problem, a PuLP problem, a LinearProgram, a "
        "FlowNetwork, Staged or a HiGHS model (of a model of ours return its problem or formulation)"
    )


def _program(
    name: str,
    rows: list[str],
    columns: list[str],
    families: tuple[dict[str, Integers], dict[str, Integers]],
    arrays: LinearProgramArrays,
) -> Program:
    stage = Stage("objective", arrays.cost, arrays.offset, arrays.maximize)
    return Program(name, Names("row", rows, families[0]), Names("column", columns, families[1]), arrays, (stage,))


def _of_blocks(program: LinearProgram) -> Program:
    rows, columns = (
        {name: np.concatenate([np.arange(b.start, b.start + b.count) for b in group]) for name, group in named.items()}
        for named in (_by_name(program.constraint_blocks.values()), _by_name(program.variable_blocks.values()))
    )
    return _program(program.name, program.row_names(), program.column_names(), (rows, columns), program.arrays())


def _of_problem(problem: Problem) -> Program:
    columns = {b.name: np.arange(b.columns.start, b.columns.stop) for b in problem.blocks.values()}
    ends = np.cumsum([0, *(b.index.count for b in problem.rows.values())]).tolist()
    rows = {name: np.arange(*part) for name, part in zip(problem.rows, pairwise(ends), strict=True)}
    made = _program(problem.name, problem.row_names(), problem.column_names(), (rows, columns), problem.arrays(None))
    n = problem.column_count
    stages = (Stage(o.name, o.cost(n), o.offset, o.maximize, float(o.within), o.relative) for o in problem.objectives)
    return made.with_stages(*stages) if problem.objectives else made


def _to_problem(source: Problem, after: Program) -> Problem:
    """A problem with the names of the source and the numbers of a program; rows of one relation each."""
    changed, arrays, matrix = source.copy(), after.arrays, after.arrays.matrix.tocsr()
    for name, block in source.blocks.items():
        part = block.columns
        changed.blocks[name] = replace(
            block, lower=arrays.column_lower[part], upper=arrays.column_upper[part], integer=arrays.integrality[part]
        )
    changed.rows, start = {}, 0
    for name, rows in source.rows.items():
        sides = arrays.row_lower[start : start + rows.index.count], arrays.row_upper[start : start + rows.index.count]
        relations = np.array([_relation(low, high)[0] for low, high in zip(*sides, strict=True)], object)
        for first, count in _runs(relations):
            terms = matrix[start + first : start + first + count].tocoo()
            row, column = (axis.astype(np.int64) for axis in terms.coords)
            low, high = (side[first : first + count] for side in sides)
            numbers, unit = exact_numbers(np.concatenate([terms.data, np.where(np.isfinite(high), high, low)]))
            changed.rows[name if name not in changed.rows else f"{name} from {first}"] = replace(
                rows,
                index=rows.index if count == rows.index.count else rows.index.take(np.arange(first, first + count)),
                relation=relations[first] if count else rows.relation,
                rows=row,
                columns=column,
                values=numbers[: len(row)],
                rhs=numbers[len(row) :],
                unit=unit,
            )
        start += rows.index.count
    changed.objectives = []
    for objective, stage in zip(source.objectives, after.stages, strict=False):
        used = np.flatnonzero(stage.cost)
        numbers, unit = exact_numbers(np.append(stage.cost[used], stage.offset))
        changed.objectives.append(
            replace(objective, columns=used, values=numbers[:-1], constant=float(numbers[-1]), unit=unit)
        )
    return changed


def _by_name(blocks: Iterable[Any]) -> dict[str, list[Any]]:
    """Blocks by name; a mutated program may have several of one name."""
    named: dict[str, list[Any]] = {}
    for block in blocks:
        named.setdefault(block.name, []).append(block)
    return named


def _of_named(program: NamedProgram, families: tuple[str, ...]) -> Program:
    rows, columns = list(program.row_names), list(program.column_names)
    named = families_of(rows, families), families_of(columns, families)
    return _program(program.name or "program", rows, columns, named, program.arrays)


def _stages(staged: Staged, program: Program) -> list[Stage]:
    if not staged.minimize:
        raise ValueError("Staged needs at least one objective")
    stages = []
    for name, expression in staged.minimize.items():
        if isinstance(expression, Stage):
            stages.append(expression)
            continue
        cost = np.zeros(len(program.columns.names))
        if isinstance(expression, pulp.LpVariable | pulp.LpAffineExpression):
            terms, offset = terms_of(expression)
            for column, value in terms:
                cost[program.column(column)] += value
        else:
            row = expression.sum() if isinstance(expression, Variables) else expression
            if row.count != 1:
                raise ValueError(f"objective {name!r} has {row.count} rows; expected one, use .sum()")
            np.add.at(cost, row.column, row.value)
            offset = float(row.constant[0])
        stages.append(Stage(name, cost, offset))
    return stages


def _stated(program: Program) -> LinearProgramArrays:
    """The arrays with the objective of the first stage."""
    first = program.stages[0]
    return replace(program.arrays, cost=first.cost, offset=first.offset, maximize=first.maximize)


def _into_pulp(problem: pulp.LpProblem, before: Program, after: Program) -> pulp.LpProblem:
    """Change rows, bounds, categories and costs that differ; the variables stay the same objects."""
    variables = problem.variables()
    old, new = before.arrays, after.arrays
    rows = new.matrix.tocsr()
    for row in changed_rows(old, new):
        part = slice(rows.indptr[row], rows.indptr[row + 1])
        terms = zip(rows.indices[part].tolist(), rows.data[part].tolist(), strict=True)
        relation, side = _relation(new.row_lower[row], new.row_upper[row])
        replace_row(problem, row, {variables[column]: value for column, value in terms}, _SENSES[relation], side)
    for column, variable in enumerate(variables):
        low, high = new.column_lower[column], new.column_upper[column]
        if (low, high) != (old.column_lower[column], old.column_upper[column]):
            variable.lowBound, variable.upBound = (float(b) if np.isfinite(b) else None for b in (low, high))
        if new.integrality[column] != old.integrality[column]:
            variable.cat = pulp.LpInteger if new.integrality[column] else pulp.LpContinuous
    cost, offset = after.stages[0].cost, after.stages[0].offset
    if (cost != before.stages[0].cost).any():
        replace_objective(problem, dict(zip(variables, cost.tolist(), strict=True)), offset)
    return problem


def _relation(low: float, high: float) -> tuple[Any, float]:
    """Relation and side of a row with one side."""
    if low == high:
        return "==", float(low)
    return (">=", float(low)) if np.isfinite(low) else ("<=", float(high))


def _to_blocks(source: LinearProgram, after: Program) -> LinearProgram:
    """A program with the blocks of the source; a block whose rows no longer have one relation becomes several."""
    changed, arrays, matrix = LinearProgram(source.name), after.arrays, after.arrays.matrix.tocsr()
    sides = zip(arrays.row_lower.tolist(), arrays.row_upper.tolist(), strict=True)
    relations = np.array([_relation(*pair)[0] for pair in sides], object)
    for name, block in source.variable_blocks.items():
        for start, count in _runs(arrays.integrality[block.columns]):
            first, labels = block.start + start, _labels(block, start, count)
            part = slice(first, first + count)
            lower, upper, integer = arrays.column_lower[part], arrays.column_upper[part], arrays.integrality[first]
            piece = VariableBlock(name, first, count, lower, upper, bool(integer), labels)
            changed.variable_blocks[name if name not in changed.variable_blocks else f"{name} from {start}"] = piece
    for name, rows in source.constraint_blocks.items():
        for start, count in _runs(relations[rows.rows]):
            first, labels = rows.start + start, _labels(rows, start, count)
            terms = matrix[first : first + count].tocoo()
            row, column = (axis.astype(np.int64) for axis in terms.coords)
            left = Expression(row, column, terms.data, np.zeros(count))
            relation = relations[first] if count else rows.relation
            high = arrays.row_upper[first : first + count]
            side: Floats = np.where(np.isfinite(high), high, arrays.row_lower[first : first + count])
            key = name if name not in changed.constraint_blocks else f"{name} from {start}"
            changed.constraint_blocks[key] = ConstraintBlock(name, first, left, relation, side, labels)
    stage = after.stages[0]
    objective = _expression(stage.cost, stage.offset)
    (changed.maximize if stage.maximize else changed.minimize)(objective)
    return changed


def _expression(cost: Floats, offset: float) -> Expression:
    used = np.flatnonzero(cost)
    return Expression(np.zeros(len(used), np.int64), used, cost[used], np.array([offset]))


def _runs(values: Any) -> list[tuple[int, int]]:
    """Start and length of each run of equal values; one empty run when there are none."""
    cuts = [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)]
    return [(a, b - a) for a, b in pairwise(cuts) if b > a or len(values) == 0]


def _labels(block: VariableBlock | ConstraintBlock, start: int, count: int) -> list[str]:
    """Labels of a piece of a block, so that its members keep their names."""
    return [name[len(block.name) + 1 : -1] for name in block.names()[start : start + count]]
