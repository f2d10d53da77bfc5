"""Names in files: distinct legal ones for names that a format cannot hold, and comment lines that keep the originals.

A comment line reads ``flowlex column x_1 is "x 1"``, with the original as a JSON string. Files of other programs do
not have such lines; a name without one stands for itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from flowlex.formulations.program_arrays import LinearProgramArrays
from flowlex.formulations.program_files.named_program import NamedProgram, ProgramFileError

Spelling = Literal["mps", "lp", "pulp"]
Kind = Literal["column", "row", "objective", "problem"]

#: Characters that a format cannot hold in names. PuLP translates some itself, and the solvers behind it mind more.
_ILLEGAL: dict[Spelling, re.Pattern[str]] = {
    "mps": re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]"),
    "lp": re.compile(r"[^\w!\"#$%&(),.?@~{}]", re.ASCII),
    "pulp": re.compile(r"[-+\[\]>/,; :'\"()*^<=\\\s]"),
}
#: Names that a format would take for something else: comments, numbers, or (LP) words of the format.
_MISREAD: dict[Spelling, re.Pattern[str]] = {
    "mps": re.compile(
        r"[$*]|$|'MARKER'$|(name|objsense|objname|max|min|rows|columns|rhs|ranges|bounds|endata|quadobj|qmatrix|qsection|"
        r"qcmatrix|csection|sos[12]?|sets|indicators|gencons|lazycons|usercuts)$",
        re.IGNORECASE,
    ),
    "lp": re.compile(
        r"[\d.$(]|$|inf|nan|e\d*$|(st|s\.t\.|st\.|subject|such|to|that|free|end|bounds?|min|minimi[sz]e|minimum|max|"
        r"maximi[sz]e|maximum|general|generals|gen|gens|integers?|int|binary|binaries|bin|semi|semis|sos[12]?|"
        r"lazy|user|cuts|constraints)$",
        re.IGNORECASE,
    ),
    "pulp": re.compile(r"_|$"),
}
_LONGEST = 200
_COMMENT = re.compile(r"[*\\]\s*flowlex (column|row|objective|problem) (\S+) is (\".*\")\s*$")
_UPPER = re.compile(r"[*\\]\s*flowlex row (\S+) is the upper side of (\S+)\s*$")


def written_names(names: Sequence[str], spelling: Spelling) -> list[str]:
    """Distinct names that a format holds; a name that it can hold stays as it is, unless it occurred before.

    Examples
    --------
    >>> written_names(["x", "x 1", "x_1"], "mps")
    ['x', 'x_1_2', 'x_1']
    """
    cleaned = [_cleaned(name, spelling) for name in names]
    taken = {name for name, clean in zip(names, cleaned, strict=True) if name == clean}
    kept, times = set[str](), dict[str, int]()
    for index, (name, clean) in enumerate(zip(names, cleaned, strict=True)):
        if name == clean and name not in kept:
            kept.add(name)
            continue
        count, candidate = times.get(clean, 1), clean
        while candidate in taken:
            count += 1
            candidate = f"{clean}_{count}"
        times[clean] = count
        taken.add(candidate)
        cleaned[index] = candidate
    return cleaned


def _cleaned(name: str, spelling: Spelling) -> str:
    if spelling == "lp":
        name = name[:_LONGEST].replace("[", "(").replace("]", ")")
        if name.count("(") != name.count(")"):
            name = name.replace("(", "_").replace(")", "_")
    clean = _ILLEGAL[spelling].sub("_", name)
    if spelling == "pulp" and clean != name:
        clean = clean.rstrip("_")
    if _MISREAD[spelling].match(clean):
        clean = f"n_{clean.lstrip('_') if spelling == 'pulp' else clean}"
    return clean if len(clean) <= _LONGEST else clean[:_LONGEST]


def free_name(name: str, taken: Iterable[str]) -> str:
    """A name that is not taken."""
    known = set(taken)
    while name in known:
        name += "_"
    return name


def file_names(program: NamedProgram, spelling: Spelling, title: str) -> tuple[str, list[str], list[str], list[str]]:
    """Names of objective, rows and columns in a file, and the comments that keep their originals, without their sign.

    ``title`` is the name of the problem in the file. Raises `ProgramFileError` for numbers that no file can state.
    """
    program.check_finite()
    names = [program.objective_name or "objective", *program.row_names]
    objective, *rows = written_names([free_name(names[0], names[1:]), *names[1:]], spelling)
    columns = written_names(program.column_names, spelling)
    kept = [
        *_name_comments("problem", [program.name], [title]),
        *_name_comments("objective", [program.objective_name], [objective]),
        *_name_comments("row", program.row_names, rows),
        *_name_comments("column", program.column_names, columns),
    ]
    return objective, rows, columns, kept


def _name_comments(kind: Kind, names: Iterable[str], written: Iterable[str]) -> Iterator[str]:
    """The comments that keep names which are written differently."""
    for name, as_written in zip(names, written, strict=True):
        if name != as_written:
            yield f"flowlex {kind} {as_written} is {json.dumps(name)}"


def upper_comment(upper: str, row: str) -> str:
    """The comment that two rows of the file are the sides of one, for sides that the format cannot state at once."""
    return f"flowlex row {upper} is the upper side of {row}"


class NameComments:
    """The comments on names that a file holds."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, str]] = {"column": {}, "row": {}, "objective": {}, "problem": {}}
        self.upper: dict[str, str] = {}  # by row that holds an upper side, the row that it belongs to

    def read(self, line: str) -> None:
        """Take notice of a comment line, if it is one on names."""
        if found := _COMMENT.match(line):
            kind, written, text = found.groups()
            try:
                name = json.loads(text)
            except ValueError:
                return
            self._names[kind][written] = name
        elif found := _UPPER.match(line):
            self.upper[found[1]] = found[2]

    def program(
        self,
        arrays: LinearProgramArrays,
        columns: Sequence[str],
        rows: list[str],
        title: str,
        objective: str,
        beyond: str,
        semi: Iterable[int] = (),
    ) -> NamedProgram:
        """What a file states, under its original names; rows that are the two sides of one are joined."""
        arrays, rows = _merge_sides(arrays, rows, self.upper)
        return NamedProgram(
            arrays,
            self._originals("column", columns),
            self._originals("row", rows),
            self._original("problem", title),
            self._original("objective", objective),
            beyond,
            tuple(sorted(semi)),
        )

    def _original(self, kind: Kind, written: str) -> str:
        """The name behind a written one."""
        return self._names[kind].get(written, written)

    def _originals(self, kind: Kind, written: Sequence[str]) -> list[str]:
        """The names behind written ones."""
        known: Mapping[str, str] = self._names[kind]
        names = [known.get(name, name) for name in written] if known else list(written)
        if known and len(set(names)) < len(names):
            seen: set[str] = set()
            twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            raise ProgramFileError(
                f"two {kind}s stand for {twice!r}, by the comments on names; remove the comment of one"
            )
        return names


def _merge_sides(
    arrays: LinearProgramArrays, rows: list[str], upper: dict[str, str]
) -> tuple[LinearProgramArrays, list[str]]:
    """Join rows that a comment calls the two sides of one, if they still are."""
    place = {name: row for row, name in enumerate(rows)}
    matrix = arrays.matrix.tocsr() if upper else arrays.matrix
    high, gone = arrays.row_upper.copy(), set[int]()
    for second, first in upper.items():
        if second not in place or first not in place:
            continue
        a, b = place[first], place[second]
        sides = arrays.row_upper[a] == np.inf and arrays.row_lower[b] == -np.inf
        if a != b and sides and not abs(matrix[[a]] - matrix[[b]]).sum():
            high[a] = arrays.row_upper[b]
            gone.add(b)
    if not gone:
        return arrays, rows
    kept = np.array([row for row in range(len(rows)) if row not in gone], np.int64)
    joined = replace(arrays, matrix=matrix[kept].tocsc(), row_lower=arrays.row_lower[kept], row_upper=high[kept])
    return joined, [rows[row] for row in kept]
