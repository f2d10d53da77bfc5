"""MPS files, fixed and free: what a program reads as, and the text that states one.

The layout is free (fields between blanks), or fixed (fields at columns 2, 5, 15, 25, 40 and 50) where the text makes
no sense as free. A file that solvers read differently is an error that says how to be clear.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import scipy

from flowlex.formulations.program_arrays import LinearProgramArrays
from flowlex.formulations.program_files.named_program import (
    NamedProgram,
    ProgramFileError,
    at_line,
    figure,
    without_infinite,
)
from flowlex.formulations.program_files.written_names import (
    NameComments,
    file_names,
    free_name,
    upper_comment,
)

_SECTIONS = {b"NAME", b"OBJSENSE", b"OBJNAME", b"ROWS", b"COLUMNS", b"RHS", b"RANGES", b"BOUNDS", b"ENDATA"}
_QUADRATIC = {b"QUADOBJ", b"QMATRIX", b"QSECTION"}
_REFUSED = {
    b"QCMATRIX": "a quadratic constraint",
    b"CSECTION": "a conic constraint",
    b"SOS": "a special ordered set",
    b"SOS1": "a special ordered set",
    b"SOS2": "a special ordered set",
    b"SETS": "a special ordered set",
    b"INDICATORS": "indicator constraints",
    b"GENCONS": "general constraints",
    b"PWLOBJ": "a piecewise linear objective",
    b"LAZYCONS": "lazy constraints",
    b"USERCUTS": "user cuts",
    b"SCENARIOS": "scenarios",
}
_SENSES = {
    **dict.fromkeys((b"MAX", b"MAXIMIZE", b"MAXIMISE", b"MAXIMUM"), True),
    **dict.fromkeys((b"MIN", b"MINIMIZE", b"MINIMISE", b"MINIMUM"), False),
}
_WITH_VALUE = {b"UP", b"LO", b"FX", b"LI", b"UI", b"SC", b"SI"}
_WITHOUT_VALUE = {b"FR", b"MI", b"PL", b"BV"}
_FORTRAN = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)[dD][+-]?\d+$")
_INFINITY = re.compile(rb"[+-]?inf(inity)?$", re.IGNORECASE)
#: Starts and ends of the fields of a fixed file, and of the gaps between them.
_FIELDS = ((1, 3), (4, 12), (14, 22), (24, 36), (39, 47), (49, 61))
_GAPS = ((0, 1), (3, 4), (12, 14), (22, 24), (36, 39), (47, 49), (61, None))


def parse_mps(data: bytes) -> NamedProgram:
    """Read the text of an MPS file.

    Raises `ProgramFileError` with line, reason and remedy.
    """
    try:
        return _Reader(fixed=False).read(data)
    except ProgramFileError as free:
        try:
            return _Reader(fixed=True).read(data)
        except ProgramFileError as fixed:
            raise max(free, fixed, key=_line) from None  # of the layout in which more of the file made sense


def _line(error: ProgramFileError) -> int:
    return int(error.place.removeprefix("line ") or sys.maxsize)


class _Reader:
    """The state of reading one file in one layout."""

    def __init__(self, *, fixed: bool) -> None:
        self._fixed = fixed
        self._names = NameComments()
        self._name = b""
        self._maximize: bool | None = None
        self._by_comment = False  # whether PuLP states the sense of a maximisation in a comment
        self._objective: bytes | None = None
        self._asked: bytes | None = None  # by OBJNAME
        self._rows: dict[bytes, int] = {}  # all rows, free ones included
        self._kinds: list[bytes] = []
        self._columns: dict[bytes, int] = {}
        self._integer: list[bool] = []
        self._entries: tuple[list[int], list[int], list[float]] = [], [], []
        self._rhs: dict[int, float] = {}
        self._ranges: dict[int, float] = {}
        self._sets: dict[bytes, bytes] = {}  # by section, the name of its only set
        self._lower: dict[int, float] = {}
        self._upper: dict[int, float] = {}
        self._bounded: dict[tuple[int, str], float] = {}  # sides of columns that were given by number
        self._bound_lines: dict[int, int] = {}
        self._beyond = ""
        self._semi: set[int] = set()
        # of the COLUMNS section
        self._current = b""
        self._in_integers = False
        self._seen: list[int] = []  # by row, the column in which it occurred last

    def read(self, data: bytes) -> NamedProgram:
        """Read a whole file."""
        section, ended, done = b"", False, set[bytes]()
        take = {
            b"OBJSENSE": self._take_sense,
            b"OBJNAME": self._take_objective_name,
            b"ROWS": self._take_row,
            b"COLUMNS": self._take_entries,
            b"RHS": self._take_side,
            b"RANGES": self._take_side,
            b"BOUNDS": self._take_bound,
        }
        reading = None
        for number, line in enumerate(data.split(b"\n"), 1):
            first = line[:1]
            if first == b" " or first == b"\t":
                words = self._fixed_fields(section, line, number) if self._fixed else line.split()
                if not words or words[0] in (b"*", b"$"):
                    continue
                if reading is None:
                    if section in _QUADRATIC:
                        self._beyond = "the objective is quadratic"
                        continue
                    raise at_line(number, f"expected a section such as ROWS, got {_shown(words[0])}")
                reading(words, section, number)
                continue
            if first in (b"*", b"$", b"\r", b""):
                if first == b"*":
                    self._take_comment(line, number)
                continue
            words = line.split()
            if not words:
                continue
            section = words[0].upper()
            if section == b"ENDATA":
                ended = True
                break
            if section in _REFUSED or section not in _SECTIONS | _QUADRATIC:
                kind = _REFUSED.get(section)
                known = "only linear and integer programs are read"
                said = (
                    f"{_shown(words[0])}: the model has {kind}; {known}"
                    if kind
                    else f"unknown section {_shown(words[0])}"
                )
                raise at_line(number, said)
            if section in done and section != b"NAME":
                raise at_line(number, f"a second section {section.decode()}; join the two")
            done.add(section)
            reading = take.get(section)
            if section == b"NAME":
                self._name = line.strip()[4:].strip()
            elif section in (b"OBJSENSE", b"OBJNAME") and len(words) > 1:
                take[section](words[1:], section, number)
            elif len(words) > 1 and section not in _QUADRATIC and section != b"RHS":
                raise at_line(number, f"unexpected {_shown(words[1])} after {section.decode()}")
            elif len(words) > 1 and section == b"RHS":
                raise at_line(number, "a line of the section RHS begins with a blank; this begins in the first column")
            if section == b"COLUMNS":
                self._seen = [-1] * len(self._rows)
        if not ended:
            raise ProgramFileError("the MPS file has no ENDATA line at its end; is it cut off?")
        if self._by_comment and self._maximize is None:
            reason = (
                "PuLP wrote this maximisation with its sense in a comment only, where PuLP 4 negates the objective and "
                "PuLP 3 does not; write it with writeMPS(..., with_objsense=True), or as an .lp file"
            )
            raise ProgramFileError(reason)
        if b"ROWS" not in done:
            raise ProgramFileError("the MPS file has no ROWS section")
        return self._program()

    def _take_comment(self, line: bytes, number: int) -> None:
        if number == 1 and line.startswith(b"*SENSE:Maximize"):
            self._by_comment = True
        self._names.read(line.decode("utf-8", "replace"))

    @staticmethod
    def _fixed_fields(section: bytes, line: bytes, number: int) -> list[bytes]:
        """The words of a line of a fixed file, as a free file would have them."""
        line = line.rstrip()
        if b"'MARKER'" in line or section in (b"OBJSENSE", b"OBJNAME") or line.lstrip()[:1] in (b"*", b"$"):
            return line.split()
        for start in (14, 39, 61):  # a comment may begin in the third and fifth field, and behind the last
            if line[start:].lstrip().startswith(b"$"):
                line = line[:start].rstrip()
        if any(line[end:start].strip() for end, start in _GAPS) or (section == b"ROWS" and line[12:].strip()):
            raise at_line(number, "neither in free nor in fixed layout (fields at columns 2, 5, 15, 25, 40 and 50)")
        parts = [line[start:end].strip() for start, end in _FIELDS]
        if section == b"ROWS":
            return parts[:2]
        if section == b"COLUMNS":
            return [part for part in parts[1:] if part]
        last = max(place for place in range(6) if parts[place] or place == 1)
        return parts[:3] + parts[3:4] * (last > 2) if section == b"BOUNDS" else parts[1 : last + 1]

    def _take_sense(self, words: list[bytes], section: bytes, number: int) -> None:
        sense = _SENSES.get(words[0].upper())
        if sense is None or len(words) > 1:
            raise at_line(number, f"expected MIN or MAX after OBJSENSE, got {_shown(b' '.join(words))}")
        if self._maximize is not None:
            raise at_line(number, "OBJSENSE is given twice")
        self._maximize = sense

    def _take_objective_name(self, words: list[bytes], section: bytes, number: int) -> None:
        self._asked = words[0]

    def _take_row(self, words: list[bytes], section: bytes, number: int) -> None:
        if len(words) > 2 and words[2].startswith(b"$"):
            words = words[:2]
        if len(words) != 2:
            raise at_line(number, f"expected a kind (N, E, L, G) and the name of a row, got {len(words)} words")
        kind, name = words[0].upper(), words[1]
        if kind not in (b"N", b"E", b"L", b"G"):
            raise at_line(number, f"expected a kind of row (N, E, L or G), got {_shown(words[0])}")
        if name in self._rows:
            raise at_line(number, f"a second row {_shown(name)}; give each its own name")
        self._rows[name] = len(self._rows)
        self._kinds.append(kind)
        wanted = name == self._asked if self._asked is not None else self._objective is None
        if kind == b"N" and wanted:
            self._objective = name

    def _take_entries(self, words: list[bytes], section: bytes, number: int) -> None:
        name = words[0]
        if len(words) == 3 and words[1] == b"'MARKER'":
            if words[2] not in (b"'INTORG'", b"'INTEND'"):
                raise at_line(number, f"expected 'INTORG' or 'INTEND', got {_shown(words[2])}")
            if self._in_integers == (words[2] == b"'INTORG'"):
                raise at_line(number, f"the marker {_shown(words[2])} has no counterpart before it")
            self._in_integers = not self._in_integers
            return
        rows, seen = self._rows, self._seen
        if len(words) not in (3, 5) or b"$" in words[1] + words[-2]:
            words = self._without_comment(words, rows, 1)
            if len(words) < 3 or len(words) % 2 == 0:
                raise at_line(number, f"expected a column, then rows with a number each, got {len(words)} words")
        if name != self._current:
            if name in self._columns:
                raise at_line(number, f"the entries of column {_shown(name)} do not stand together")
            self._current = name
            self._columns[name] = len(self._columns)
            self._integer.append(self._in_integers)
        column = len(self._integer) - 1
        at_rows, at_columns, values = self._entries
        for place in range(1, len(words), 2):
            row = rows.get(words[place])
            if row is None:
                raise at_line(number, f"no row is named {_shown(words[place])}; declare it in ROWS")
            if seen[row] == column:
                raise at_line(number, f"column {_shown(name)} has two entries in row {_shown(words[place])}; join them")
            seen[row] = column
            at_rows.append(row)
            at_columns.append(column)
            values.append(_number(words[place + 1], number))

    def _take_side(self, words: list[bytes], section: bytes, number: int) -> None:
        """A line of RHS or RANGES."""
        start = 1 if self._fixed else len(words) % 2
        words = self._without_comment(words, self._rows, start)
        start = 1 if self._fixed else len(words) % 2
        if len(words) < start + 2 or (len(words) - start) % 2:
            raise at_line(number, f"expected rows with a number each in {section.decode()}, got {len(words)} words")
        self._only_set(section, words[0] if start else b"", number)
        sides = self._rhs if section == b"RHS" else self._ranges
        for place in range(start, len(words), 2):
            row = self._rows.get(words[place])
            if row is None:
                raise at_line(number, f"no row is named {_shown(words[place])}; declare it in ROWS")
            if row in sides:
                raise at_line(number, f"a second number of row {_shown(words[place])} in {section.decode()}")
            if section == b"RANGES" and self._kinds[row] == b"N":
                raise at_line(number, f"row {_shown(words[place])} is free (N), so it has no range")
            sides[row] = _number(words[place + 1], number)

    def _take_bound(self, words: list[bytes], section: bytes, number: int) -> None:
        kind = words[0].upper()
        if kind not in _WITH_VALUE | _WITHOUT_VALUE:
            raise at_line(
                number, f"unknown kind of bound {_shown(words[0])}; one of UP, LO, FX, FR, MI, PL, BV, LI, UI"
            )
        words = self._without_comment(words, self._columns, 1)
        valued = kind in _WITH_VALUE
        if not self._fixed and len(words) == (3 if valued else 2):
            words = [kind, b"", *words[1:]]  # no name of a set
        if len(words) not in ((4,) if valued else (3, 4)):
            wanted = "kind, set, column and number" if valued else "kind, set and column"
            raise at_line(number, f"expected {wanted} of a bound, got {len(words)} words")
        self._only_set(section, words[1], number)
        column = self._columns.get(words[2])
        if column is None:
            raise at_line(number, f"no column is named {_shown(words[2])}; declare it in COLUMNS")
        value = _number(words[3], number, infinite=True) if valued else math.inf
        self._set_bound(kind, column, value, words[2], number)

    def _set_bound(self, kind: bytes, column: int, value: float, name: bytes, number: int) -> None:
        if kind == b"SC" and self._integer[column]:
            said = "is integer and SC, which solvers read as semi-integer or as continuous; write SI"
            raise at_line(number, f"column {_shown(name)} {said}, or take it out of the markers")
        if kind in (b"LI", b"UI", b"BV", b"SI"):
            self._integer[column] = True
        if kind in (b"SC", b"SI"):
            self._semi.add(column)
        low: float | None
        high: float | None
        low, high = {
            b"LO": (value, None),
            b"LI": (value, None),
            b"UP": (None, value),
            b"UI": (None, value),
            b"SC": (None, value),
            b"SI": (None, value),
            b"FX": (value, value),
            b"FR": (-math.inf, math.inf),
            b"MI": (-math.inf, None),
            b"PL": (None, math.inf),
            b"BV": (0.0, 1.0),
        }[kind]
        if low == math.inf or high == -math.inf:
            raise at_line(number, f"no number lies within the bound {_shown(kind)} {value} of {_shown(name)}")
        for side, sides, bound in (("lower", self._lower, low), ("upper", self._upper, high)):
            if bound is None:
                continue
            given = self._bounded.get((column, side))
            if given is not None and given != bound:
                said = f"the {side} bound of {_shown(name)} is {figure(given)} above and {figure(bound)} here; keep one"
                raise at_line(number, said)
            sides[column] = bound
            self._bound_lines[column] = number
            if kind in _WITH_VALUE:
                self._bounded[column, side] = bound

    def _only_set(self, section: bytes, name: bytes, number: int) -> None:
        first = self._sets.setdefault(section, name)
        if first != name:
            said = f"two sets in {section.decode()}, {_shown(first)} and {_shown(name)}; keep one"
            raise at_line(number, said)

    @staticmethod
    def _without_comment(words: list[bytes], known: dict[bytes, int], start: int) -> list[bytes]:
        """The words before one that begins with ``$`` and is no name."""
        for place in range(start, len(words)):
            if words[place].startswith(b"$") and words[place] not in known:
                return words[:place]
        return words

    def _program(self) -> NamedProgram:
        if self._asked is not None and self._objective is None:
            raise ProgramFileError(f"OBJNAME asks for {_shown(self._asked)}, which is no free row (N)")
        rows, columns = list(self._rows), list(self._columns)
        objective = -1 if self._objective is None else self._rows[self._objective]
        lower, upper = np.full(len(rows), -np.inf), np.full(len(rows), np.inf)
        for row, kind in enumerate(self._kinds):
            if kind != b"N":
                lower[row], upper[row] = self._sides(row, kind)
        column_lower, column_upper = np.zeros(len(columns)), np.full(len(columns), np.inf)
        for column, integer in enumerate(self._integer):
            if integer and column not in self._lower and column not in self._upper:
                column_upper[column] = 1.0
        for column, bound in self._lower.items():
            column_lower[column] = bound
        for column, bound in self._upper.items():
            column_upper[column] = bound
            if bound < 0 and column not in self._lower:
                raise at_line(
                    self._bound_lines[column],
                    f"column {_shown(columns[column])} has the upper bound {figure(bound)} and no lower one, which "
                    "solvers read as 0 or as -infinity; add a bound LO 0, or MI",
                )
        at_rows, at_columns, values = self._entries
        every = scipy.sparse.coo_array(
            (np.array(values, float), (np.array(at_rows, np.int64), np.array(at_columns, np.int64))),
            shape=(len(rows), len(columns)),
        ).tocsr()
        kept = np.array([row for row in range(len(rows)) if row != objective], np.int64)
        matrix = every[kept].tocsc()
        matrix.eliminate_zeros()
        arrays = LinearProgramArrays(
            matrix=matrix,
            row_lower=lower[kept],
            row_upper=upper[kept],
            column_lower=column_lower,
            column_upper=column_upper,
            cost=every[[objective]].toarray()[0] if objective >= 0 else np.zeros(len(columns)),
            offset=0.0 - self._rhs.get(objective, 0.0),
            integrality=np.array(self._integer, bool),
            maximize=bool(self._maximize),
        )
        return self._names.program(
            arrays,
            [_text(column) for column in columns],
            [_text(rows[row]) for row in kept],
            _text(self._name) or "-",
            _text(self._objective) if self._objective is not None else "objective",
            self._beyond,
            self._semi,
        )

    def _sides(self, row: int, kind: bytes) -> tuple[float, float]:
        side = self._rhs.get(row, 0.0)
        low = -math.inf if kind == b"L" else side
        high = math.inf if kind == b"G" else side
        if row in self._ranges:
            width = self._ranges[row]
            if kind == b"G" or (kind == b"E" and width >= 0):
                high = low + abs(width)
            else:
                low = high - abs(width)
        low, high = without_infinite(low), without_infinite(high)
        if low == math.inf or high == -math.inf:
            name = list(self._rows)[row]
            raise ProgramFileError(f"row {_shown(name)} has the infinite side {figure(side)}; no point meets it")
        return low, high


def _number(word: bytes, line: int, *, infinite: bool = False) -> float:
    """A number; ``1,5``, ``nan`` and ``1_000`` are none. A bound may be infinite, in words or from 1e20 on."""
    try:
        value = float(word)
    except ValueError:
        value = float(word.replace(b"D", b"e").replace(b"d", b"e")) if _FORTRAN.match(word) else math.nan
    if infinite:
        if _INFINITY.match(word):
            return -math.inf if word.startswith(b"-") else math.inf
        value = without_infinite(value) if value == value else value
    finite = -math.inf < value < math.inf or (infinite and value == value and word.strip(b"+-")[:1].isdigit())
    if not finite or b"_" in word:
        raise at_line(line, f"{_shown(word)} is no finite number")
    return value


def _text(name: bytes) -> str:
    return name.decode("utf-8")


def _shown(word: bytes) -> str:
    return repr(word.decode("utf-8", "replace")[:60])


def mps_lines(program: NamedProgram) -> Iterator[str]:
    """The lines that state a program, without line ends.

    The sense stands in OBJSENSE, the constant as the negative right side of the objective.
    """
    arrays = program.arrays
    title = "_".join(program.name.split()) or "-"
    objective, rows, columns, comments = file_names(program, "mps", title)
    yield from (f"* {line}" for line in comments)
    low, high = arrays.row_lower.tolist(), arrays.row_upper.tolist()
    split: dict[int, str] = {}  # rows whose two sides no single range states exactly
    ranges: dict[int, tuple[str, float]] = {}  # kind and range of rows with two sides
    taken = {objective, *rows}
    for row in np.flatnonzero(
        (arrays.row_lower != arrays.row_upper) & np.isfinite(arrays.row_lower - arrays.row_upper)
    ).tolist():
        stated = _range(low[row], high[row]) if low[row] < high[row] else None
        if stated is None:
            split[row] = free_name(f"{rows[row]}_upper", taken)
            taken.add(split[row])
        else:
            ranges[row] = stated
    yield from (f"* {upper_comment(name, rows[row])}" for row, name in split.items())
    yield f"NAME {title}"
    if arrays.maximize:
        yield "OBJSENSE"
        yield "    MAX"
    yield "ROWS"
    yield f" N {objective}"
    kinds: list[str] = []
    for row, name in enumerate(rows):
        if row in split or row in ranges:
            kinds.append(ranges[row][0] if row in ranges else "G")
        elif low[row] == high[row]:
            kinds.append("E")
        else:
            kinds.append("G" if math.isfinite(low[row]) else "L" if math.isfinite(high[row]) else "N")
        yield f" {kinds[row]} {name}"
        if row in split:
            yield f" L {split[row]}"
    yield "COLUMNS"
    yield from _columns(arrays, objective, rows, columns, split)
    taken.update(columns)
    side = free_name("RHS", taken)
    yield "RHS"
    if arrays.offset:
        yield f"    {side} {objective} {figure(-arrays.offset)}"
    for row, name in enumerate(rows):
        value = low[row] if kinds[row] in "GE" else high[row]
        if value and kinds[row] != "N":
            yield f"    {side} {name} {figure(value)}"
        if row in split and high[row]:
            yield f"    {side} {split[row]} {figure(high[row])}"
    if ranges:
        yield "RANGES"
        width = free_name("RANGE", taken)
        for row, (_, value) in ranges.items():
            yield f"    {width} {rows[row]} {figure(value)}"
    yield "BOUNDS"
    yield from _bounds(arrays, columns, free_name("BOUND", taken))
    yield "ENDATA"


def _range(low: float, high: float) -> tuple[str, float] | None:
    """The kind of row and the range that read back as exactly these two sides, if there are such."""
    width = high - low
    for each in (width, math.nextafter(width, math.inf), math.nextafter(width, 0.0)):
        if low + each == high:
            return "G", each
        if high - each == low:
            return "L", each
    return None


def _columns(
    arrays: LinearProgramArrays, objective: str, rows: Sequence[str], columns: Sequence[str], split: dict[int, str]
) -> Iterator[str]:
    """Names of columns and rows are given; ``split``: by row, the name of its copy that states the upper side."""
    matrix = arrays.matrix
    pointer, index, data = matrix.indptr.tolist(), matrix.indices.tolist(), matrix.data.tolist()
    cost, integer, among_integers = arrays.cost.tolist(), arrays.integrality.tolist(), False
    for column, name in enumerate(columns):
        if integer[column] != among_integers:
            among_integers = integer[column]
            yield f"    MARKER 'MARKER' '{'INTORG' if among_integers else 'INTEND'}'"
        start, stop = pointer[column], pointer[column + 1]
        if cost[column] or start == stop:
            yield f"    {name} {objective} {figure(cost[column])}"
        for row, value in zip(index[start:stop], data[start:stop], strict=True):
            yield f"    {name} {rows[row]} {figure(value)}"
            if row in split:
                yield f"    {name} {split[row]} {figure(value)}"
    if among_integers:
        yield "    MARKER 'MARKER' 'INTEND'"


def _bounds(arrays: LinearProgramArrays, columns: Sequence[str], name: str) -> Iterator[str]:
    bounds = zip(
        columns, arrays.column_lower.tolist(), arrays.column_upper.tolist(), arrays.integrality.tolist(), strict=True
    )
    for column, low, high, integer in bounds:
        if low == high:
            yield f" FX {name} {column} {figure(low)}"
        elif low == -math.inf and high == math.inf:
            yield f" FR {name} {column}"
        else:
            if low == -math.inf:
                yield f" MI {name} {column}"
            elif low or high <= 0:
                yield f" LO {name} {column} {figure(low)}"
            if high < math.inf:
                yield f" UP {name} {column} {figure(high)}"
            elif integer:
                yield f" PL {name} {column}"
