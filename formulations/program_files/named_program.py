"""A program with the names of its columns and rows, as model files hold it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from flowlex.errors import FlowlexError
from flowlex.formulations.program_arrays import LinearProgramArrays

#: Bounds and sides from here on are infinite, as all common solvers read them.
INFINITE = 1e20
#: Says that columns are 0 or within their bounds.
SEMI = "it has semi-continuous variables"


class ProgramFileError(FlowlexError, ValueError):
    """A model or solution file that cannot be read or written; the message names file, place, reason and remedy.

    Parameters
    ----------
    reason
        What is wrong, naming the offender, and what to do.
    place
        Where in the file (``line 12``); empty for the whole.
    path
        The file, when there is one.
    """

    def __init__(self, reason: str, *, place: str = "", path: str | Path | None = None) -> None:
        self.reason, self.place = reason, place
        self.path: str | None = None if path is None else str(path)
        super().__init__(": ".join(part for part in (self.path, place, reason) if part))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self.reason, self.place, self.path))

    def at(self, path: str | Path) -> ProgramFileError:
        """Return the same error with the name of its file.

        Parameters
        ----------
        path
            The file.
        """
        return ProgramFileError(self.reason, place=self.place, path=path)


def _rebuild(reason: str, place: str, path: str | None) -> ProgramFileError:
    return ProgramFileError(reason, place=place, path=path)


def at_line(number: int, reason: str) -> ProgramFileError:
    """An error in a line of the file that is being read."""
    return ProgramFileError(reason, place=f"line {number}")


@dataclass(frozen=True)
class NamedProgram:
    """A linear or integer program with its names.

    Parameters
    ----------
    arrays
        The program; bounds and sides are infinite where there are none. A row may have two different sides, or none.
    column_names, row_names
        (n,) and (m,) distinct names, of any characters.
    name
        Name of the problem.
    objective_name
        Name of the objective.
    beyond
        What a file states beyond a linear program (``the objective is quadratic``), if reading it was asked for;
        such a program is not the file's problem.
    semi
        Columns that are 0 or within their bounds, as the file states; see `switched`.

    Raises
    ------
    ValueError
        A name is missing or occurs twice.
    """

    arrays: LinearProgramArrays
    column_names: Sequence[str]
    row_names: Sequence[str]
    name: str = ""
    objective_name: str = "objective"
    beyond: str = ""
    semi: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for what, names, count in (
            ("column", self.column_names, len(self.arrays.cost)),
            ("row", self.row_names, len(self.arrays.row_lower)),
        ):
            if len(names) != count:
                raise ValueError(f"expected {count} {what} names, got {len(names)}")
            if len(set(names)) != count:
                twice = next(name for name, times in Counter(names).items() if times > 1)
                raise ValueError(f"two {what}s are named {twice!r}; give each its own name")

    def check_finite(self) -> None:
        """Raise `ProgramFileError` for numbers that no file can state."""
        arrays = self.arrays
        rows = arrays.matrix.indices
        columns = np.repeat(np.arange(len(arrays.cost)), np.diff(arrays.matrix.indptr))
        bad = np.flatnonzero(~np.isfinite(arrays.matrix.data))
        if len(bad):
            row, column = self.row_names[rows[bad[0]]], self.column_names[columns[bad[0]]]
            raise ProgramFileError(f"row {row!r}: the coefficient of {column!r} is {arrays.matrix.data[bad[0]]}")
        for what, names, lower, upper in (
            ("column", self.column_names, arrays.column_lower, arrays.column_upper),
            ("row", self.row_names, arrays.row_lower, arrays.row_upper),
        ):
            bad = np.flatnonzero(np.isnan(lower) | np.isnan(upper) | (lower == np.inf) | (upper == -np.inf))
            if len(bad):
                where = bad[0]
                raise ProgramFileError(
                    f"{what} {names[where]!r}: no number lies between {lower[where]} and {upper[where]}"
                )
        bad = np.flatnonzero(~np.isfinite(arrays.cost))
        if len(bad):
            raise ProgramFileError(f"the cost of {self.column_names[bad[0]]!r} is {arrays.cost[bad[0]]}")
        if not np.isfinite(arrays.offset):
            raise ProgramFileError(f"the constant of the objective is {arrays.offset}")


def switched(program: NamedProgram) -> NamedProgram:
    """The program with a binary column ``NAME_on`` for each semi-continuous one, and rows that let it be 0 alone.

    Raises `ProgramFileError`: such a column has no upper bound.
    """
    a = program.arrays
    low, high = a.column_lower.copy(), a.column_upper.copy()
    columns, rows = set(program.column_names), set(program.row_names)
    names: tuple[list[str], list[str]] = ([], [])
    terms: list[tuple[int, int, float]] = []
    sides: list[tuple[float, float]] = []
    for k in program.semi:
        name = program.column_names[k]
        if not np.isfinite(high[k]) or not np.isfinite(low[k]):
            end = "upper" if not np.isfinite(high[k]) else "lower"
            raise ProgramFileError(f"column {name!r} is semi-continuous and has no {end} bound; give it one")
        switch = len(low) + len(names[0])
        names[0].append(_fresh(f"{name}_on", columns))
        for end, value, side in (("least", low[k], (0.0, np.inf)), ("most", high[k], (-np.inf, 0.0))):
            # x >= low on, x <= high on
            terms += [(len(sides), k, 1.0), (len(sides), switch, -float(value))]
            sides.append(side)
            names[1].append(_fresh(f"{name}_{end}", rows))
        low[k], high[k] = min(low[k], 0.0), max(high[k], 0.0)
    m, n, more = len(a.row_lower), len(low), len(names[0])
    old = a.matrix.tocoo()
    row = np.concatenate([old.row, [m + r for r, _, _ in terms]]).astype(np.int64)
    column = np.concatenate([old.col, [c for _, c, _ in terms]]).astype(np.int64)
    value = np.concatenate([old.data, [v for _, _, v in terms]])
    matrix = scipy.sparse.coo_array((value, (row, column)), shape=(m + len(sides), n + more)).tocsc()
    matrix.eliminate_zeros()
    return replace(
        program,
        arrays=replace(
            a,
            matrix=matrix,
            row_lower=np.concatenate([a.row_lower, [side for side, _ in sides]]),
            row_upper=np.concatenate([a.row_upper, [side for _, side in sides]]),
            column_lower=np.concatenate([low, np.zeros(more)]),
            column_upper=np.concatenate([high, np.ones(more)]),
            cost=np.concatenate([a.cost, np.zeros(more)]),
            integrality=np.concatenate([a.integrality, np.ones(more, bool)]),
        ),
        column_names=[*program.column_names, *names[0]],
        row_names=[*program.row_names, *names[1]],
        beyond="",
        semi=(),
    )


def _fresh(name: str, taken: set[str]) -> str:
    """The name, with a number if it is taken; taken from now on."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


def figure(value: float) -> str:
    """The shortest decimal that reads back as the same double."""
    text = repr(float(value))
    return text[:-2] if text.endswith(".0") else text


def without_infinite(value: float) -> float:
    """A bound or side; infinite from 1e20 on."""
    return value if -INFINITE < value < INFINITE else float("inf") if value > 0 else float("-inf")
