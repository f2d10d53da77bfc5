"""Problems from elsewhere: parsed files, solver arrays, PuLP, HiGHS, flat programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from flowlex.formulations.language.labels import StatementError, nearest
from flowlex.formulations.language.program_conversion import statement_of
from flowlex.formulations.language.statement import Statement
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats, LinearProgramArrays
from flowlex.formulations.program_files import NamedProgram, ProgramFileError, columns_of, read_solution

StatementT = TypeVar("StatementT", bound=Statement)


def problem_of(cls: type[StatementT], source: Any, name: str = "") -> StatementT:
    """A problem from a PuLP problem, a ``highspy.Highs`` or one of its models, a parsed file, arrays, a flat program.

    Variables are ``x`` by ``column``, rows ``at_most``, ``at_least``, ``equal``, ``range_lower`` and ``range_upper`` by
    ``row``; labels are the names of the source.

    Parameters
    ----------
    cls
        The class of the problem.
    source
        What to convert.
    name
        Name of the problem, if the source has none.

    Raises
    ------
    StatementError
        The source is none of these, or states more than a linear or integer program.
    ProgramFileError
        A number is not finite.
    """
    try:
        return statement_of(cls, _named(source), name)
    except ProgramFileError:
        raise
    except (TypeError, ValueError) as error:
        raise StatementError(f"Problem.of: {error}") from error


def _named(source: Any) -> NamedProgram:
    if isinstance(source, NamedProgram):
        return source
    if isinstance(source, LinearProgram):
        return source.named()
    if isinstance(source, LinearProgramArrays):
        n, m = len(source.cost), len(source.row_lower)
        return NamedProgram(source, [f"c{k}" for k in range(n)], [f"r{k}" for k in range(m)])
    if hasattr(source, "getLp") or hasattr(source, "lp_") or hasattr(source, "a_matrix_"):
        from flowlex.formulations.highs_adapter import program_of_highs

        return program_of_highs(source)
    if _of_pulp(source):
        from flowlex.formulations.pulp_adapter import program_of_pulp

        return program_of_pulp(source)
    raise StatementError(
        f"cannot make a problem of {type(source).__name__}; give a PuLP problem, a highspy.Highs, arrays, or read a "
        "file with flowlex.read"
    )


def _of_pulp(source: Any) -> bool:
    return callable(getattr(source, "variables", None)) and hasattr(source, "objective") and hasattr(source, "sense")


def column_values(values: Any, names: Sequence[str]) -> Floats:
    """(columns,) values from outside by flat name, in the order of the names.

    Parameters
    ----------
    values
        The path of a solver's solution file, a solved PuLP problem, or numbers by name; columns that are not named are
        0. Names may be spelled as files or PuLP spell them.
    names
        Of the columns.

    Raises
    ------
    StatementError
        There is no answer, or a name or value is wrong.
    """
    try:
        if isinstance(values, (str, Path)):
            found = read_solution(values, names)
            if found.values is None:
                raise StatementError(f"{values}: the file of {found.solver} holds no answer ({found.status})")
            return found.values
        if _of_pulp(values):
            from flowlex.formulations.pulp_adapter import values_of

            values = values_of(values)
            missing = [name for name, value in values.items() if value is None]
            if missing:
                raise StatementError(f"values: the PuLP problem has no value of {missing[0]!r}; solve it first")
        place = _places(values, names)
    except OSError as error:
        raise StatementError(f"values: {values}: cannot be read: {error.strerror or error}") from error
    except ProgramFileError as error:
        raise StatementError(str(error)) from error
    x = np.zeros(len(names))
    for name, value in values.items():
        x[place[name]] = value
    return x


def _places(values: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, int]:
    plain = {name: k for k, name in enumerate(names)}
    if all(name in plain for name in values):
        return plain
    try:
        return columns_of(values, names)
    except ProgramFileError as error:
        wrong = next(name for name in values if name not in plain)
        raise StatementError(f"values: {nearest('variables named', wrong, names[:1000])} ({error.reason})") from error
