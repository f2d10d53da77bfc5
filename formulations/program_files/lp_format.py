"""LP files (the format of CPLEX): what a program reads as, and the text that states one.

Read are linear objectives with constants, rows with terms and constants on the left and a number on the right, rows
with two sides, bounds, and sections of integer, binary and semi-continuous columns. Everything else is an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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

_TOKEN = re.compile(
    r"(?P<blank>[ \t\r\f\v]+)"
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<relation>[<>]=?|=[<>]?|==)"
    r"|(?P<sign>[+\-*/^:\[\]])"
    r"|(?P<name>[^\s<>=+\-*/^:\[\]\\]+)",
    re.ASCII,
)
_NUMBER, _NAME = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", r"[A-Za-z_][^\s<>=+\-*/^:\[\]\\]*"
#: A line of nothing but terms, after the name of a row or a sign, and perhaps the end of the row. Most lines are such.
_PLAIN = re.compile(
    rf"[ \t]*(?:(?P<label>{_NAME})[ \t]*:(?:[ \t]*(?:{_NUMBER}[ \t]+)?{_NAME})?)?"
    rf"(?:[ \t]*[+-][ \t]*(?:{_NUMBER}[ \t]+)?{_NAME})*(?P<end>)"
    rf"(?:[ \t]*(?P<relation><=|>=|=)[ \t]*(?P<sign>[+-]?)[ \t]*(?P<side>{_NUMBER}))?[ \t\r]*$",
    re.ASCII,
)
_PLAIN_TERM = re.compile(rf"([+-]?)[ \t]*({_NUMBER}(?=[ \t]))?[ \t]*({_NAME})", re.ASCII)
#: Words that begin a section, where they begin a line.
_SECTION = re.compile(
    r"\s*(?:(?P<rows>subject[ \t]+to|such[ \t]+that|s\.t\.|st\.|st)|(?P<bounds>bounds?)"
    r"|(?P<refused>lazy[ \t]+constraints|user[ \t]+cuts|general[ \t]+constraints|gencons?|general[ \t]+constrs?|pwlobj"
    r"|sos[12]?|multi-?objectives|scenario)"
    r"|(?P<integer>generals?|gens?|integers?|int)|(?P<binary>binary|binaries|bin)"
    r"|(?P<semi>semi-continuous|semi|semis)|(?P<end>end))"
    r"(?=[ \t\r]*$|[ \t]+(?![ \t]*(?:[<>=:+\-*/^]|free\b)))",
    re.IGNORECASE,
)
#: Words that begin the objective, and with it the file.
_OBJECTIVE = re.compile(
    r"\s*(?:(?P<minimize>minimi[sz]e|minimum|min)|(?P<maximize>maximi[sz]e|maximum|max))(?=\s|$)", re.I
)
_INFINITY = re.compile(r"inf(inity)?$", re.IGNORECASE)
_LEAST, _MOST = "lower", "upper"
#: Kinds of tokens within a section.
_PARTS = ("number", "name", "relation", "sign", "terms")
#: Words that are no columns.
_WORDS = frozenset(("inf", "infinity", "free", "nan"))
_BOUND = "expected a bound like 'x <= 4', '0 <= x <= 4', 'x = 4' or 'x free'"


def parse_lp(data: bytes) -> NamedProgram:
    """Read the text of an LP file.

    Raises `ProgramFileError` with line, reason and remedy.
    """
    return _Reader(data.decode("utf-8")).read()


@dataclass(slots=True)
class _Token:
    kind: str  # number, name, relation, sign, terms, or the name of a section
    text: str
    line: int
    first: bool  # of its line
    terms: Sequence[tuple[str, str, str]] = ()  # sign, number and name of each


@dataclass
class _Expression:
    """A sum of terms and a constant."""

    terms: dict[str, float] = field(default_factory=dict)
    constant: float = 0.0
    quadratic: bool = False


class _Reader:
    """The state of reading one file."""

    def __init__(self, text: str) -> None:
        self._names = NameComments()
        self._last = 1  # line of the last token
        self._plain_names: set[str] = set()
        self._tokens = self._split(text)
        self._place = 0
        self._columns: dict[str, int] = {}
        self._rows: list[tuple[str, dict[str, float], float, float]] = []
        self._row_lines: dict[str, int] = {}
        self._bounds: dict[tuple[str, str], float] = {}
        self._bound_lines: dict[str, int] = {}
        self._integer: set[str] = set()
        self._binary: dict[str, int] = {}
        self._beyond = ""
        self._semi: set[str] = set()

    def _split(self, text: str) -> list[_Token]:
        """Cut the text into tokens; comments go, and words that begin a section become tokens of that kind."""
        tokens: list[_Token] = []
        plain = False  # whether lines of terms may be taken whole
        for number, line in enumerate(text.split("\n"), 1):
            cut = line.find("\\")
            if cut >= 0:
                self._names.read(line[cut:])
                line = line[:cut]
            place, first = 0, True
            if found := _SECTION.match(line) if tokens else _OBJECTIVE.match(line):
                tokens.append(_Token(str(found.lastgroup), found[0].strip(), number, first=True))
                place, first = found.end(), False
                plain = found.lastgroup in ("rows", "minimize", "maximize")
                if found.lastgroup == "end":
                    break
            elif plain and self._take_plain(line, number, tokens):
                continue
            while place < len(line):
                token = _TOKEN.match(line, place)
                if token is None:
                    raise at_line(number, f"unexpected {line[place : place + 20]!r}")
                place = token.end()
                if token.lastgroup != "blank":
                    tokens.append(_Token(str(token.lastgroup), token[0], number, first))
                    plain = plain and token[0] != "["
                    first, self._last = False, number
        return tokens

    def _take_plain(self, line: str, number: int, tokens: list[_Token]) -> bool:
        """Take a line of terms in one piece; False if it must be cut into tokens."""
        found = _PLAIN.match(line)
        if found is None:
            return False
        label, relation, sign, side = found.group("label", "relation", "sign", "side")
        before = tokens[-1]
        if label is None and (before.kind == "relation" or (before.kind == "sign" and before.text != ":")):
            return False  # the signs of this line belong to what stands before
        terms = _PLAIN_TERM.findall(line, 0 if label is None else found.end("label") + 1, found.end("end"))
        if not terms or any(name not in self._plain_names and not self._is_plain(name) for _, _, name in terms):
            return False
        if label is not None:
            tokens.append(_Token("name", label, number, first=True))
            tokens.append(_Token("sign", ":", number, first=False))
        tokens.append(_Token("terms", line, number, label is None, terms))
        if relation:
            tokens.append(_Token("relation", relation, number, first=False))
            if sign:
                tokens.append(_Token("sign", sign, number, first=False))
            tokens.append(_Token("number", side, number, first=False))
        self._last = number
        return True

    def _is_plain(self, name: str) -> bool:
        """Whether a name is no word of the format."""
        plain = name.lower() not in _WORDS
        if plain:
            self._plain_names.add(name)
        return plain

    def read(self) -> NamedProgram:
        """Read the whole file."""
        start = self._next()
        if start.kind not in ("minimize", "maximize"):
            other = self._at().text == ":"
            hint = "; is this the LP format of lp_solve? That of CPLEX is read" if other else ""
            raise at_line(start.line, f"expected Minimize or Maximize first, got {start.text[:40]!r}{hint}")
        objective_name = self._label() or "objective"
        objective = self._expression(quadratic=True)
        if not math.isfinite(objective.constant):
            raise at_line(start.line, "the objective has an infinite constant")
        sections = {
            "rows": self._read_row,
            "bounds": self._read_bound,
            "integer": self._read_member,
            "binary": self._read_member,
            "semi": self._read_member,
        }
        while (head := self._next()).kind != "end":
            if head.kind == "nothing":
                raise ProgramFileError("the LP file has no End line; is it cut off?")
            if head.kind == "refused":
                raise at_line(head.line, f"{head.text!r}: only linear and integer programs are read")
            if head.kind not in sections:
                got = head.text[:40]
                raise at_line(head.line, f"unexpected {got!r}; expected a section such as Subject To, or End")
            while self._at().kind in _PARTS:
                sections[head.kind](head)
        return self._program(start.kind == "maximize", objective_name, objective)

    def _peek(self, ahead: int = 0) -> _Token | None:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else None

    def _at(self) -> _Token:
        """The next token; one that stands for the end of the file behind the last."""
        return self._peek() or _Token("nothing", "the end of the file", self._last, first=True)

    def _next(self) -> _Token:
        token = self._at()
        self._place += 1
        return token

    def _label(self) -> str:
        """The name before a colon, if there is one."""
        if not self._labelled():
            return ""
        name = self._next()
        self._place += 1
        if name.kind not in ("name", "number"):
            raise at_line(name.line, f"{name.text!r} is no name of a row")
        return name.text

    def _expression(self, *, quadratic: bool = False) -> _Expression:
        """A sum: terms like ``- 3 x``, constants, and for an objective one quadratic part."""
        found, beginning = _Expression(), True
        while True:
            sign, signed = 1.0, False
            while self._at().text in ("+", "-"):
                sign, signed = -sign if self._at().text == "-" else sign, True
                self._place += 1
            token = self._at()
            if token.kind == "terms" and (beginning or token.terms[0][0]):
                self._place += 1
                self._add_terms(found, token)
                beginning = False
                continue
            if token.kind not in ("number", "name", "sign") or (token.first and self._labelled()):
                if signed:
                    raise at_line(token.line, f"expected a term after the sign, got {token.text!r}")
                return found
            if not signed and not beginning:
                return found
            beginning = False
            if token.text == "[" and quadratic:
                self._quadratic(found)
            elif token.kind == "sign":
                raise at_line(token.line, f"unexpected {token.text!r}; only linear terms like '3 x' are read")
            else:
                self._term(found, sign)

    def _add_terms(self, found: _Expression, token: _Token) -> None:
        """Add the terms of a line."""
        columns, sums = self._columns, found.terms
        for sign, number, name in token.terms:
            value = float(number) if number else 1.0
            if value == math.inf:
                raise at_line(token.line, f"{number!r} is no finite number")
            if name not in columns:
                self._column(_Token("name", name, token.line, first=False))
            sums[name] = sums.get(name, 0.0) + (-value if sign == "-" else value)

    def _term(self, found: _Expression, factor: float) -> None:
        token = self._at()
        if token.kind == "number":
            self._place += 1
            factor *= _value(token)
            if self._at().text == "*":
                self._place += 1
            elif self._at().kind == "number" and not self._at().first:
                raise at_line(token.line, f"two numbers, {token.text} and {self._at().text}; write a sign between them")
            elif self._at().kind != "name" or (self._at().first and self._starts_statement()):
                found.constant += factor
                return
        elif _INFINITY.match(token.text):
            self._place += 1
            found.constant += factor * math.inf
            return
        name = self._column(self._next())
        if self._at().text in ("*", "/", "^"):
            raise at_line(token.line, f"{self._at().text!r} after {name!r}; only linear terms like '3 x' are read")
        found.terms[name] = found.terms.get(name, 0.0) + factor

    def _starts_statement(self) -> bool:
        """Whether the name that is next begins the next statement: ``c2: ...`` or ``x >= 1``."""
        following = self._peek(1)
        return following is not None and (following.text == ":" or following.kind == "relation")

    def _column(self, token: _Token) -> str:
        """The name of a column; one that was not seen before is new."""
        name = token.text
        if token.kind != "name":
            raise at_line(token.line, f"expected the name of a column, got {name!r}")
        if name in self._columns:
            return name
        if name.count("(") != name.count(")") or name[0] in "(;" or name[-1] == ";":
            said = "expressions in brackets and ';' are no part of the LP format of CPLEX: multiply out"
            raise at_line(token.line, f"{name!r} is no name of a column; {said}")
        if name.lower() in _WORDS:
            raise at_line(token.line, f"{name!r} is a word of the format, not a column; rename it")
        self._columns[name] = len(self._columns)
        return name

    def _quadratic(self, found: _Expression) -> None:
        """Skip ``[ ... ] / 2``, and note whether a column stands in it."""
        opening = self._next()
        while (token := self._next()).text != "]":
            if token.kind not in _PARTS:
                raise at_line(opening.line, "'[' without ']'")
            if token.kind == "name":
                self._column(token)
                found.quadratic = True
        half = self._peek(1)
        if self._at().text == "/" and half is not None and half.text == "2":
            self._place += 2

    def _read_row(self, head: _Token) -> None:
        begin = self._at()
        name = self._label()
        what = f"row {name!r}" if name else "this row"
        if name in self._row_lines:
            first = self._row_lines[name]
            raise at_line(begin.line, f"a second row {name!r}, first in line {first}; give each its own name")
        if name:
            self._row_lines[name] = begin.line
        left = self._expression()
        relation = self._relation(what)
        if left.terms:
            low, high = _sides(relation.text, self._right_side(what) - left.constant)
            row = left
        else:
            start = self._place
            self._signed_number()
            if self._at().kind == "name" and self._at().first and not self._labelled():
                said = f"{what} has no columns, or breaks its line after a number; write '0 x', or join the lines"
                raise at_line(relation.line, said)
            self._place = start
            row = self._expression()
            low, high = _sides(relation.text, left.constant - row.constant, flipped=True)
            if self._at().kind == "relation":
                second = self._relation(what)
                if second.text[0] != relation.text[0] or second.text[0] == "=":
                    raise at_line(second.line, f"{what} has the relations {relation.text!r} and {second.text!r}")
                more = _sides(second.text, self._right_side(what) - row.constant)
                low, high = max(low, more[0]), min(high, more[1])
        if not math.isfinite(row.constant):
            raise at_line(relation.line, f"{what} has an infinite constant among its terms")
        if low == math.inf or high == -math.inf or math.isnan(low) or math.isnan(high):
            raise at_line(relation.line, f"{what} has an infinite side; no point meets it")
        self._end_of_statement(what)
        self._rows.append((name, row.terms, low, high))

    def _relation(self, what: str) -> _Token:
        token = self._at()
        self._place += 1
        if token.kind != "relation":
            extra = "; indicator constraints are not read" if token.text == "-" else ""
            raise at_line(token.line, f"expected <=, >= or = in {what}, got {token.text!r}{extra}")
        if self._at().text == ">" and token.text == "<":  # of "<->"
            raise at_line(token.line, f"unexpected '<>' in {what}")
        return token

    def _right_side(self, what: str) -> float:
        """The number that ends a row."""
        value = self._signed_number()
        if value is None:
            said = f"expected a number on the right of {what}, got {self._at().text!r}; move columns to the left"
            raise at_line(self._at().line, said)
        return value

    def _signed_number(self) -> float | None:
        """A number with its sign, or an infinity; None where something else stands."""
        start, sign = self._place, 1.0
        while self._at().text in ("+", "-"):
            sign = -sign if self._at().text == "-" else sign
            self._place += 1
        token = self._at()
        self._place += 1
        if token.kind == "number":
            return without_infinite(sign * _value(token))
        if token.kind == "name" and _INFINITY.match(token.text):
            return sign * math.inf
        self._place = start
        return None

    def _end_of_statement(self, what: str) -> None:
        """Refuse what follows a statement on its line, except a section and the next row with its name."""
        token = self._at()
        if token.kind in _PARTS and not token.first and not self._labelled():
            following = self._peek(1)
            if token.text == "-" and following is not None and following.text.startswith(">"):
                raise at_line(token.line, "'->': indicator constraints are not read; state them by a big-M row")
            hint = "columns stand on the left, one number on the right, and each statement begins a line"
            raise at_line(token.line, f"unexpected {token.text!r} after {what}; {hint}")

    def _labelled(self) -> bool:
        following = self._peek(1)
        return following is not None and following.text == ":"

    def _read_bound(self, head: _Token) -> None:
        begin = self._at()
        first = self._bound_part()
        if isinstance(first, str) and self._at().kind == "name" and self._at().text.lower() == "free":
            self._place += 1
            self._set_bound(first, -math.inf, math.inf, begin.line)
            return
        relation = self._relation("this bound")
        second = self._bound_part()
        if isinstance(first, str) and isinstance(second, float):
            name, low, high = first, *_sides(relation.text, second)
        elif isinstance(first, float) and isinstance(second, str):
            name, low, high = second, *_sides(relation.text, first, flipped=True)
        else:
            raise at_line(begin.line, _BOUND)
        both = low == high  # of "x = 3"
        if self._at().kind == "relation":
            again = self._relation("this bound")
            last = self._bound_part()
            if isinstance(first, str) or isinstance(last, str) or again.text[0] != relation.text[0] or both:
                raise at_line(begin.line, _BOUND)
            more = _sides(again.text, last)
            low, high = (low, more[1]) if again.text[0] == "<" else (more[0], high)
            both = True
        self._end_of_statement("a bound")
        if low == math.inf or high == -math.inf:
            raise at_line(begin.line, f"no number lies within this bound of {name!r}")
        upper = ("<" in relation.text) == isinstance(first, str)
        self._set_bound(name, low if both or not upper else None, high if both or upper else None, begin.line)

    def _bound_part(self) -> float | str:
        """A number with its sign, or the name of a column."""
        value = self._signed_number()
        token = self._at()
        if value is not None:
            if token.kind in ("name", "number") and not token.first:
                raise at_line(token.line, f"a factor before {token.text!r}; divide the bound by it")
            return value
        self._place += 1
        if token.kind != "name":
            raise at_line(token.line, f"expected a number or a column, got {token.text!r}")
        return self._column(token)

    def _set_bound(self, name: str, low: float | None, high: float | None, line: int) -> None:
        for side, bound in ((_LEAST, low), (_MOST, high)):
            if bound is None:
                continue
            given = self._bounds.get((name, side))
            if given is not None and given != bound:
                said = f"the {side} bound of {name!r} is {figure(given)} above and {figure(bound)} here; keep one"
                raise at_line(line, said)
            self._bounds[name, side] = bound
            self._bound_lines[name] = line

    def _read_member(self, head: _Token) -> None:
        token = self._next()
        name = self._column(token)
        if head.kind == "semi":
            self._semi.add(name)
        elif head.kind == "integer":
            self._integer.add(name)
        else:
            self._binary[name] = token.line

    def _program(self, maximize: bool, objective_name: str, objective: _Expression) -> NamedProgram:
        if objective.quadratic:
            self._beyond = "the objective is quadratic"
        names = list(self._columns)
        lower, upper = np.zeros(len(names)), np.full(len(names), np.inf)
        for (name, side), bound in self._bounds.items():
            if side == _MOST and bound < 0 and (name, _LEAST) not in self._bounds:
                raise at_line(
                    self._bound_lines[name],
                    f"column {name!r} has a negative upper bound and no lower one, which solvers read as 0 or as "
                    f"-infinity; write '0 <= {name} <= ...' or '-inf <= {name} <= ...'",
                )
        for name, line in self._binary.items():
            low, high = self._bounds.get((name, _LEAST), 0.0), self._bounds.get((name, _MOST), 1.0)
            if not (low >= 0 and high <= 1):
                raise at_line(
                    line, f"{name!r} is binary and has bounds beyond 0 and 1; make it integer, or drop the bounds"
                )
            self._bounds[name, _LEAST], self._bounds[name, _MOST] = low, high
        for (name, side), bound in self._bounds.items():
            (lower if side == _LEAST else upper)[self._columns[name]] = bound
        integer = np.array([name in self._integer or name in self._binary for name in names], bool)
        cost = np.zeros(len(names))
        for name, value in objective.terms.items():
            cost[self._columns[name]] = value
        at_rows, at_columns, values = [], [], []
        for row, (_, terms, _, _) in enumerate(self._rows):
            for name, value in terms.items():
                at_rows.append(row)
                at_columns.append(self._columns[name])
                values.append(value)
        matrix = scipy.sparse.coo_array(
            (np.array(values, float), (np.array(at_rows, np.int64), np.array(at_columns, np.int64))),
            shape=(len(self._rows), len(names)),
        ).tocsc()
        matrix.eliminate_zeros()
        arrays = LinearProgramArrays(
            matrix=matrix,
            row_lower=np.array([row[2] for row in self._rows], float),
            row_upper=np.array([row[3] for row in self._rows], float),
            column_lower=lower,
            column_upper=upper,
            cost=cost,
            offset=objective.constant,
            integrality=integer,
            maximize=maximize,
        )
        semi = [self._columns[name] for name in self._semi]
        return self._names.program(arrays, names, self._row_names(), "-", objective_name, self._beyond, semi)

    def _row_names(self) -> list[str]:
        """The names of all rows; one without a name gets its number."""
        taken, names = set(self._row_lines), []
        for number, (name, *_) in enumerate(self._rows, 1):
            if not name:
                name = free_name(f"r{number}", taken)
                taken.add(name)
            names.append(name)
        return names


def _value(token: _Token) -> float:
    value = float(token.text)
    if value == math.inf:
        raise at_line(token.line, f"{token.text!r} is no finite number")
    return value


def _sides(relation: str, side: float, *, flipped: bool = False) -> tuple[float, float]:
    """Lower and upper side of ``x relation side``; ``flipped``: of ``side relation x``."""
    side = without_infinite(side)
    if "<" not in relation and ">" not in relation:
        return side, side
    return (-math.inf, side) if ("<" in relation) != flipped else (side, math.inf)


def lp_lines(program: NamedProgram) -> Iterator[str]:
    """The lines that state a program, without line ends; all columns stand in the objective, which keeps their order.

    A row with two sides is written as two rows with a comment, since HiGHS reads no other form.
    """
    arrays = program.arrays
    objective, rows, columns, comments = file_names(program, "lp", "-")
    if rows and not columns:
        raise ProgramFileError("LP files cannot state rows without columns; write an .mps file")
    low, high = arrays.row_lower.tolist(), arrays.row_upper.tolist()
    both = (arrays.row_lower != arrays.row_upper) & np.isfinite(arrays.row_lower) & np.isfinite(arrays.row_upper)
    split, taken = dict[int, str](), {objective, *rows}
    for row in np.flatnonzero(both).tolist():
        split[row] = free_name(f"{rows[row]}_upper", taken)
        taken.add(split[row])
    yield from (f"\\ {line}" for line in comments)
    yield from (f"\\ {upper_comment(name, rows[row])}" for row, name in split.items())
    yield "Maximize" if arrays.maximize else "Minimize"
    terms = [_term_text(value, name) for value, name in zip(arrays.cost.tolist(), columns, strict=True)]
    if arrays.offset or not terms:
        terms.append(_constant_text(arrays.offset))
    yield from _wrapped(f" {objective}:", terms, "")
    yield "Subject To"
    by_row = arrays.matrix.tocsr()
    pointer, index, data = by_row.indptr.tolist(), by_row.indices.tolist(), by_row.data.tolist()
    for row, name in enumerate(rows):
        places = range(pointer[row], pointer[row + 1])
        terms = [_term_text(data[place], columns[index[place]]) for place in places] or [_term_text(0.0, columns[0])]
        if row in split:
            yield from _wrapped(f" {name}:", terms, f" >= {figure(low[row])}")
            yield from _wrapped(f" {split[row]}:", terms, f" <= {figure(high[row])}")
        elif low[row] == high[row]:
            yield from _wrapped(f" {name}:", terms, f" = {figure(low[row])}")
        elif high[row] < math.inf:
            yield from _wrapped(f" {name}:", terms, f" <= {figure(high[row])}")
        else:
            yield from _wrapped(f" {name}:", terms, f" >= {figure(low[row])}")
    yield "Bounds"
    for name, least, most in zip(columns, arrays.column_lower.tolist(), arrays.column_upper.tolist(), strict=True):
        if least == most:
            yield f" {name} = {figure(least)}"
        elif least == -math.inf and most == math.inf:
            yield f" {name} free"
        elif most < math.inf:
            yield f" {figure(least)} <= {name} <= {figure(most)}"
        elif least:
            yield f" {name} >= {figure(least)}"
    integer = np.flatnonzero(arrays.integrality).tolist()
    if integer:
        yield "General"
        yield from (f" {columns[column]}" for column in integer)
    yield "End"


def _term_text(value: float, name: str) -> str:
    sign = "-" if value < 0 else "+"
    return f" {sign} {name}" if abs(value) == 1 else f" {sign} {figure(abs(value))} {name}"


def _constant_text(value: float) -> str:
    return f" {'-' if value < 0 else '+'} {figure(abs(value))}"


def _wrapped(head: str, terms: Sequence[str], tail: str, each: int = 8) -> Iterator[str]:
    """A statement over several lines, as solvers limit the length of one."""
    parts = ["".join(terms[start : start + each]) for start in range(0, len(terms), each)]
    parts[-1] += tail
    yield head + parts[0]
    yield from (f"   {part}" for part in parts[1:])
