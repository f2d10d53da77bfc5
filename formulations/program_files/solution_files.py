"""Solution files of solvers, with the names that the model file gave the columns."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import numpy as np

from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.program_files.named_program import ProgramFileError, at_line
from flowlex.formulations.program_files.written_names import Spelling, written_names


@dataclass(frozen=True)
class SolutionFile:
    """What a solver wrote about its answer.

    Attributes
    ----------
    solver
        Whose format it is: ``HiGHS``, ``SCIP``, ``Gurobi`` or ``CBC``.
    status
        The solver's own words; empty where its format has none.
    objective
        As the solver states it; None where it does not.
    values
        (n,) the value of each column, in the order of the names; None if the file holds no answer.
    """

    solver: str
    status: str
    objective: float | None
    values: Floats | None = field(repr=False)


def read_solution(path: str | Path, names: Sequence[str]) -> SolutionFile:
    """Read the solution file that HiGHS, SCIP, Gurobi or CBC wrote.

    Parameters
    ----------
    path
        The file.
    names
        Names of the columns in order. In the file they may stand as `write_program` or PuLP writes them.

    Raises
    ------
    ProgramFileError
        It is no such file, names a column that the program does not have, or leaves columns out that its format
        would list; names file, line and remedy.
    OSError
        The file cannot be read.
    """
    try:
        return parse_solution(Path(path).read_bytes(), names)
    except ProgramFileError as error:
        raise error.at(path) from error.__cause__


def parse_solution(data: bytes, names: Sequence[str]) -> SolutionFile:
    """`read_solution` for the content of a file."""
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ProgramFileError("not UTF-8 text, so no solution file") from error
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("Model status"):
        return _highs(lines, names)
    if first.startswith("solution status:"):
        return _scip(lines, names)
    if first.startswith("#"):
        return _gurobi(lines, names)
    if re.match(r"(Optimal|Infeasible|Integer infeasible|Unbounded|Stopped|Status unknown|Unknown)\b.*", first):
        return _cbc(lines, names)
    raise ProgramFileError(
        "not a solution file of HiGHS, SCIP, Gurobi or CBC (these begin with 'Model status', 'solution status:', "
        f"'# Objective value' and a status); it begins with {first[:40]!r}"
    )


def _highs(lines: list[str], names: Sequence[str]) -> SolutionFile:
    status = next((line.strip() for line in lines[1:] if line.strip()), "")
    entries: dict[str, float] = {}
    objective, count, section = None, None, ""
    feasible = False
    for number, line in enumerate(lines, 1):
        words = line.split()
        if line.startswith("# Dual"):
            break
        if line.startswith("# Primal"):
            section = "primal"
        elif line.startswith("# Columns"):
            count, section = int(words[2]), "columns"
        elif line.startswith("# Rows"):
            break
        elif section == "primal" and words and words[0] in ("Feasible", "Infeasible", "None"):
            feasible = words[0] == "Feasible"
            if words[0] == "None":
                return SolutionFile("HiGHS", status, None, None)
        elif words[:1] == ["Objective"]:
            objective = _number(words[-1], number)
        elif section == "columns" and words:
            _enter(entries, line, number)
    if count is None:
        return SolutionFile("HiGHS", status, None, None)
    if len(entries) != count:
        raise ProgramFileError(f"{count} columns announced, {len(entries)} found; is the file cut off?")
    if not feasible:
        return SolutionFile("HiGHS", f"{status}, infeasible point", objective, None)
    return SolutionFile("HiGHS", status, objective, _placed(entries, names, complete=True))


def _scip(lines: list[str], names: Sequence[str]) -> SolutionFile:
    status, objective = "", None
    entries: dict[str, float] = {}
    found = False
    for number, line in enumerate(lines, 1):
        if line.startswith("solution status:"):
            status = line.partition(":")[2].strip()
        elif line.startswith("objective value:"):
            objective, found = _number(line.partition(":")[2].strip(), number), True
        elif line.strip() == "no solution available":
            return SolutionFile("SCIP", status, None, None)
        elif line.strip():
            _enter(entries, re.sub(r"\s*\(obj:.*\)\s*$", "", line), number)
    values = _placed(entries, names, complete=False) if found else None
    return SolutionFile("SCIP", status, objective, values)


def _gurobi(lines: list[str], names: Sequence[str]) -> SolutionFile:
    objective = None
    entries: dict[str, float] = {}
    for number, line in enumerate(lines, 1):
        if line.startswith("#"):
            if found := re.match(r"#\s*Objective value\s*=\s*(\S+)", line):
                objective = _number(found[1], number)
        elif line.strip():
            _enter(entries, line, number)
    return SolutionFile("Gurobi", "", objective, _placed(entries, names, complete=True))


def _cbc(lines: list[str], names: Sequence[str]) -> SolutionFile:
    """What CBC writes: a status line, then index, name, value and reduced cost of the columns that are not 0."""
    start = next(number for number, line in enumerate(lines) if line.strip())
    status, _, tail = lines[start].partition(" - ")
    found = re.search(r"objective value\s*(\S+)", tail)
    objective = None if found is None else _number(found[1], start + 1)
    entries: dict[str, float] = {}
    for number, line in enumerate(lines[start + 1 :], start + 2):
        words = line.removeprefix("**").split()  # stars: outside a bound
        if not words:
            continue
        if len(words) != 4 or not words[0].isdigit():
            raise at_line(number, f"expected index, name, value and reduced cost, got {line.strip()[:60]!r}")
        if line.startswith("**"):
            objective = None
        _enter(entries, f"{words[1]} {words[2]}", number)
    answered = status.strip() == "Optimal" or (status.startswith("Stopped") and bool(entries))
    values = _placed(entries, names, complete=False) if answered else None
    return SolutionFile("CBC", status.strip(), objective, values)


def _enter(entries: dict[str, float], line: str, number: int) -> None:
    """Take a line with a name and a value."""
    words = line.split()
    if len(words) != 2:
        raise at_line(number, f"expected a name and a value, got {line.strip()[:60]!r}")
    if words[0] in entries:
        raise at_line(number, f"a second value of {words[0]!r}")
    entries[words[0]] = _number(words[1], number)


def _number(word: str, line: int) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in word:
        raise at_line(line, f"{word[:40]!r} is no finite number")
    return value


def _placed(entries: dict[str, float], names: Sequence[str], *, complete: bool) -> Floats:
    """Values in the order of the names."""
    place = columns_of(entries, names)
    if complete and len(entries) < len(names):
        known = set(place.values())
        left_out = next(name for column, name in enumerate(names) if column not in known)
        raise ProgramFileError(f"column {left_out!r} has no value; is the file of this model, and whole?")
    values = np.zeros(len(names))
    for name, value in entries.items():
        values[place[name]] = value
    return values


def columns_of(written: Collection[str], names: Sequence[str]) -> dict[str, int]:
    """The columns that written names stand for: as they are, or as MPS files, LP files or PuLP spell them.

    Raises `ProgramFileError`: some are unknown under every one spelling, or they stand for different columns under two.
    """
    found: dict[str, int] | None = None
    unknown = ""
    for spelled in (list(names), *(written_names(names, spelling) for spelling in get_args(Spelling))):
        place = {name: column for column, name in enumerate(spelled)}
        missing = next((name for name in written if name not in place), None)
        if missing is not None:
            unknown = unknown or missing
            continue
        here = {name: place[name] for name in written}
        if found is not None and here != found:
            said = "stand for different columns in .mps files, .lp files and PuLP; give the columns other names"
            raise ProgramFileError(f"names such as {next(n for n in here if here[n] != found[n])!r} {said}")
        found = here
    if found is None:
        raise ProgramFileError(f"the model has no column {unknown!r}; is this of another model?")
    return found
