"""Programs with flat names as statements, and back: the names of files, of PuLP and of solvers.

The columns become one block of variables ``x`` by ``column``, the rows a block by ``row`` for each relation. Labels are
the names. Written again, such a problem has its names, and a row with two sides is one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import scipy

from flowlex.formulations.language.exact_units import exact_numbers, to_floats
from flowlex.formulations.language.formulas import Node
from flowlex.formulations.language.labels import Codes, Index, Level
from flowlex.formulations.language.problem_document import fingerprint, from_document
from flowlex.formulations.language.statement import Objective, RowBlock, Statement, VariableBlock
from flowlex.formulations.linear_expression import Expression as FlatTerms
from flowlex.formulations.linear_program import ConstraintBlock, LinearProgram
from flowlex.formulations.linear_program import VariableBlock as FlatVariables
from flowlex.formulations.program_arrays import Floats, LinearProgramArrays
from flowlex.formulations.program_files.named_program import NamedProgram
from flowlex.formulations.program_files.read_and_write import parse_program

_NONE = np.zeros(0, np.int64)
StatementT = TypeVar("StatementT", bound=Statement)

VARIABLES, COLUMN, ROW = "x", "column", "row"
#: Names of the rows by relation; a row with two sides is a row of the last two.
AT_MOST, AT_LEAST, EQUAL, RANGE_LOWER, RANGE_UPPER = "at_most", "at_least", "equal", "range_lower", "range_upper"
_RELATIONS = {AT_MOST: "<=", AT_LEAST: ">=", EQUAL: "==", RANGE_LOWER: ">=", RANGE_UPPER: "<="}


def statement_of(cls: type[StatementT], program: NamedProgram, name: str = "") -> StatementT:
    """The statement of a program.

    Rows without a side are left out: they restrict nothing.

    Parameters
    ----------
    cls
        Class of the statement to make.
    program
        The program with its names.
    name
        Name of the problem, if the program has none.

    Raises
    ------
    ProgramFileError
        A number is not finite.
    """
    program.check_finite()
    a = program.arrays
    problem = cls(program.name or name or "problem")
    columns, rows = Level(COLUMN, tuple(program.column_names)), Level(ROW, tuple(program.row_names))
    problem.levels |= {COLUMN: columns, ROW: rows}
    problem.blocks[VARIABLES] = VariableBlock(
        VARIABLES, Index.product([columns]), 0, a.column_lower, a.column_upper, a.integrality
    )
    low, high = a.row_lower, a.row_upper
    has_low, has_high, equal = np.isfinite(low), np.isfinite(high), low == high
    parts = {
        AT_MOST: (has_high & ~has_low, high),
        AT_LEAST: (has_low & ~has_high, low),
        EQUAL: (equal, low),
        RANGE_LOWER: (has_low & has_high & ~equal, low),
        RANGE_UPPER: (has_low & has_high & ~equal, high),
    }
    matrix = a.matrix.tocsr()
    for part, (chosen, side) in parts.items():
        members = np.flatnonzero(chosen)
        if len(members):
            problem.rows[part] = _rows(part, matrix[members], rows, members.astype(np.int32), side[members])
    used = np.flatnonzero(a.cost)
    both, unit = exact_numbers(np.append(a.cost[used], a.offset))
    formula: Node = ("sum", (COLUMN,), ("times", ("symbol", "c", (COLUMN,)), _X))
    goal = program.objective_name or "objective"
    problem.objectives.append(Objective(goal, used, both[:-1], float(both[-1]), unit, a.maximize, formula))
    return problem


_X: Node = ("symbol", VARIABLES, (COLUMN,))


def _rows(name: str, matrix: Any, level: Level, members: Codes, side: Floats) -> RowBlock:
    matrix.sort_indices()
    both, unit = exact_numbers(np.concatenate([matrix.data, side]))
    row = np.repeat(np.arange(len(members)), np.diff(matrix.indptr))
    index = Index.of([level], [members], (ROW,), f"rows {name!r}")
    left: Node = ("sum", (COLUMN,), ("times", ("symbol", "A", (ROW, COLUMN)), _X))
    n = len(row)
    return RowBlock(
        name, index, _RELATIONS[name], row, matrix.indices.astype(np.int64), both[:n], both[n:], unit, left,
        ("symbol", "b", (ROW,)),
    )  # fmt: skip


def program_of(statement: Statement, objective: int | None = 0) -> NamedProgram:
    """The program of one objective with its names (None: of no objective), as `statement_of` takes it.

    Raises `ValueError`: two names are the same.
    """
    arrays = statement.arrays(objective)
    goal = statement.objectives[objective].name if objective is not None and statement.objectives else "objective"
    blocks = list(statement.blocks.values())
    flat = [b.name for b in blocks] == [VARIABLES] and blocks[0].index.keys == (COLUMN,)
    columns = [str(label) for label in blocks[0].index.labels(COLUMN)] if flat else statement.column_names()
    names, place = statement.row_names(), 0
    order: list[int] = []  # in the file, by label, before the rows of the user
    pairs: dict[int, int] = {}
    known = {n: b for n, b in statement.rows.items() if flat and _RELATIONS.get(n) == b.relation}
    known = {n: b for n, b in known.items() if b.index.keys == (ROW,)}
    ranked: list[tuple[int, int]] = []
    for block in statement.rows.values():
        count = block.index.count
        if block.name in known:
            names[place : place + count] = [str(label) for label in block.index.labels(ROW)]
            ranked += zip(block.index.codes[ROW].tolist(), range(place, place + count), strict=True)
        else:
            ranked += ((len(names), k) for k in range(place, place + count))
        place += count
    if RANGE_LOWER in known and RANGE_UPPER in known:
        pairs = _ranges(statement, arrays, known[RANGE_LOWER], known[RANGE_UPPER])
    order = [k for _, k in sorted(ranked) if k not in pairs]
    upper = arrays.row_upper.copy()
    for second, first in pairs.items():
        upper[first] = arrays.row_upper[second]
    if order != list(range(len(names))):
        arrays = replace(
            arrays,
            matrix=scipy.sparse.csc_array(arrays.matrix.tocsr()[order]),
            row_lower=arrays.row_lower[order],
            row_upper=upper[order],
        )
    return NamedProgram(arrays, _distinct(columns), _distinct([names[k] for k in order]), statement.name, goal)


def _ranges(statement: Statement, arrays: LinearProgramArrays, lower: RowBlock, upper: RowBlock) -> dict[int, int]:
    """For rows that are upper sides, the rows with their lower sides and the same terms."""
    starts, place = {}, 0
    for block in statement.rows.values():
        starts[block.name] = place
        place += block.index.count
    firsts = {code: k for k, code in enumerate(lower.index.codes[ROW].tolist())}
    both = [(firsts[code], k) for k, code in enumerate(upper.index.codes[ROW].tolist()) if code in firsts]
    one, two = (np.array(side, np.int64) for side in zip(*both, strict=True)) if both else (_NONE, _NONE)
    one, two = one + starts[lower.name], two + starts[upper.name]
    matrix = arrays.matrix.tocsr()
    difference = matrix[one] - matrix[two]
    difference.eliminate_zeros()
    same = np.diff(difference.indptr) == 0
    return dict(zip(two[same].tolist(), one[same].tolist(), strict=True))


def _distinct(names: Sequence[str]) -> list[str]:
    """The names; of equal ones (a row of the user named like one of the file) the later get a number."""
    if len(set(names)) == len(names):
        return list(names)
    taken, found = set(names), []
    seen: set[str] = set()
    for name in names:
        fresh, number = name, 1
        while fresh in seen or (fresh != name and fresh in taken):
            number += 1
            fresh = f"{name}_{number}"
        seen.add(fresh)
        found.append(fresh)
    return found


def statement_of_content(cls: type[StatementT], file_format: str, content: Any, name: str = "") -> StatementT:
    """The statement of a file's content: a parsed document (``json``) or the text of a model file (``mps``, ``lp``).

    Raises `StatementError` or `ProgramFileError`, with place and reason.
    """
    if file_format == "json":
        return from_document(cls, content)
    return statement_of(cls, parse_program(content.encode(), "mps" if file_format == "mps" else "lp"), name)


def content_fingerprint(file_format: str, content: Any, name: str = "") -> str:
    """The fingerprint of the problem that a file states."""
    return fingerprint(statement_of_content(Statement, file_format, content, name))


def flat_program(statement: Statement, objective: int | None) -> LinearProgram:
    """The statement of one objective (None: of none) as a program with flat blocks, for engines and checkers."""
    lp = LinearProgram(statement.name)
    for b in statement.blocks.values():
        labels = b.index.texts()
        mixed = len(b.integer) and bool(b.integer.any()) and not bool(b.integer.all())
        flags = b.integer if mixed else bool(b.integer.any())
        lp.variable_blocks[b.name] = FlatVariables(b.name, b.start, b.index.count, b.lower, b.upper, flags, labels)  # type: ignore[arg-type]
    start = 0
    for r in statement.rows.values():
        terms = FlatTerms(r.rows, r.columns, to_floats(r.values, r.unit), np.zeros(r.index.count))
        labels = r.index.texts()
        relation: Any = r.relation
        lp.constraint_blocks[r.name] = ConstraintBlock(r.name, start, terms, relation, to_floats(r.rhs, r.unit), labels)
        start += r.index.count
    if objective is not None and statement.objectives:
        o = statement.objectives[objective]
        zeros = np.zeros(len(o.columns), np.int64)
        lp._objective = FlatTerms(zeros, o.columns, to_floats(o.values, o.unit), np.array([o.offset]))
        lp.maximizing = o.maximize
    return lp
