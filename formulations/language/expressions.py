"""Linear expressions over labels: members, each with terms and a constant; rules compare two of them.

One rule of alignment holds everywhere. Two operands meet if one has all the keys of the other. The smaller is
repeated along the rest. Every member of the larger finds exactly one partner; a label without one is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np

from flowlex.formulations.language import formulas
from flowlex.formulations.language.exact_units import EXACT, Unit, common_unit, exact_numbers, product, to_floats
from flowlex.formulations.language.formulas import Node, Writer
from flowlex.formulations.language.labels import (
    Codes,
    Index,
    Level,
    Positions,
    StatementError,
    is_pandas,
    known,
    match,
    meets,
    nearest,
)
from flowlex.formulations.program_arrays import Floats

Relation: TypeAlias = str
_SINGLE = Index((), {}, {}, 1, True)
_NONE = np.zeros(0, np.int64)
#: Most divisors that are inverted exactly, one by one.
_FRACTIONS = 10_000
_NO_VALUES = np.zeros(0)


class Owner(Protocol):
    """What an expression asks of the problem that it belongs to."""

    family: object

    def as_data(self, value: Any, what: str, near: Index) -> Expression:
        """Numbers of any accepted kind as an expression without variables."""

    def index_of(self, table: Any, what: str, domains: Mapping[str, Level]) -> Index:
        """Members of a table."""

    def writer(self, *, tex: bool = True) -> Writer:
        """Writes formulas with one letter for each level."""


class Expression:
    """A vector of linear expressions, one for each label; made by a problem's variables and data.

    Supports ``+ - *`` and ``/`` by numbers and data, the sums and readings below, and ``<=``, ``>=``, ``==`` with
    another expression, data (pandas Series, DataFrames, dicts) or a number.
    """

    __array_ufunc__ = None
    __pandas_priority__ = 5000
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        owner: Owner,
        index: Index,
        rows: Positions,
        columns: Positions,
        values: Floats,
        constant: Floats,
        unit: Unit,
        formula: Node,
        blocks: frozenset[Any] = frozenset(),
    ) -> None:
        self._owner, self.index = owner, index
        #: Terms: member, column and coefficient of each; constants of members. Coefficients and constants times `unit`.
        self._rows, self._columns, self._values, self._constant, self._unit = rows, columns, values, constant, unit
        self.formula, self._blocks = formula, blocks

    # ---- what it is

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels of its members; the keys come first."""
        return self.index.names

    def __len__(self) -> int:
        return self.index.count

    def __repr__(self) -> str:
        return f"{Writer({}, tex=False).write(self.formula)}{_each(self.index)}"

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self._owner.writer().write(self.formula)}$"

    def __bool__(self) -> NoReturn:
        raise StatementError("an expression is neither true nor false")

    def __getitem__(self, label: Any) -> NoReturn:
        raise StatementError(f"members are selected by level: sel({next(iter(self.levels), 'level')}={label!r})")

    def __iter__(self) -> NoReturn:
        raise StatementError("an expression is not iterated; use sum(by=...) or sel(...)")

    @cached_property
    def _pointer(self) -> Positions:
        """(members + 1,) where the terms of each member begin, in the order of `_order`."""
        return np.concatenate([[0], np.cumsum(np.bincount(self._rows, minlength=self.index.count))])

    @cached_property
    def _order(self) -> Positions | None:
        """The order of terms by member; None if they are in order."""
        rows = self._rows
        return None if not len(rows) or (rows[1:] >= rows[:-1]).all() else np.argsort(rows, kind="stable")

    @property
    def _single_terms(self) -> bool:
        """Whether each member is one column with coefficient 1."""
        if len(self._rows) != self.index.count or self._unit is None or self._constant.any():
            return False
        return bool((self._rows == np.arange(self.index.count)).all() and (self._values * float(self._unit) == 1).all())

    def _like(self, **changed: Any) -> Expression:
        mine = {
            "index": self.index,
            "rows": self._rows,
            "columns": self._columns,
            "values": self._values,
            "constant": self._constant,
            "unit": self._unit,
            "formula": self.formula,
            "blocks": self._blocks,
        }
        return Expression(self._owner, **{**mine, **changed})

    def _gather(self, where: Positions, index: Index, formula: Node, fill: float = 0.0) -> Expression:
        """Members ``where`` (-1: the constant ``fill``) as the members of another index."""
        n = self.index.count
        gaps = bool(len(where)) and int(where.min()) < 0
        if not n:
            return constants(self._owner, index, *exact_numbers(np.full(len(where), fill)), formula)
        constant = self._constant[where]
        if gaps:
            constant = np.where(where < 0, 0.0, constant)
        if len(self._rows) == n and self._order is None and (self._rows == np.arange(n)).all():
            rows, source = np.arange(len(where)), where
            if gaps:
                rows = np.flatnonzero(where >= 0)
                source = where[rows]
        else:
            counts = np.diff(self._pointer)[where]
            if gaps:
                counts = np.where(where < 0, 0, counts)
            rows = np.repeat(np.arange(len(where)), counts)
            begin = np.repeat(self._pointer[:-1][where] - (np.cumsum(counts) - counts), counts)
            source = begin + np.arange(len(rows))
            if self._order is not None:
                source = self._order[source]
        columns, values = self._columns[source], self._values[source]
        found = self._like(index=index, rows=rows, columns=columns, values=values, constant=constant, formula=formula)
        if gaps and fill:
            lifted = constants(self._owner, index, np.where(where < 0, 1.0, 0.0))
            return (found + lifted * fill)._like(formula=formula)
        return found

    # ---- selecting and reading

    def sel(self, **labels: Any) -> Expression:
        """Members with these labels.

        Parameters
        ----------
        **labels
            Of each level: one label (the level then goes), a list of labels, or ``slice(first, last)`` along its order,
            both ends included; numbers that are no labels select those between them.

        Raises
        ------
        StatementError
            There is no such level or label; names the nearest.

        Examples
        --------
        >>> import flowlex as fx
        >>> p = fx.Problem("shifts")
        >>> x = p.variables("x", worker=["ann", "bob"], shift=["day", "night"], binary=True)
        >>> x.sel(shift="night").sum()
        sum(x[worker,night] over worker)
        """
        index, formula, dense = self.index, self.formula, self.index.dense
        chosen = np.ones(index.count, bool)
        gone: list[str] = []
        for name, wanted in labels.items():
            level = self._level(name)
            codes = _positions(level, wanted, f"sel of {self._short()}")
            if isinstance(codes, int):
                gone.append(name)
                formula = ("fix", name, wanted, formula)
                chosen &= index.codes[name] == codes
            else:
                inside = np.zeros(len(level), bool)
                inside[codes] = True
                chosen &= inside[index.codes[name]]
                dense = False
                formula = ("pick", name, tuple(level.labels[c] for c in np.flatnonzero(inside).tolist()), formula)
        members = np.flatnonzero(chosen)
        kept = [name for name in index.names if name not in gone]
        taken = Index(
            tuple(k for k in index.keys if k not in gone),
            {k: index.levels[k] for k in kept},
            {k: index.codes[k][members] for k in kept},
            len(members),
            dense,
        )
        return self._gather(members, taken, formula)

    def sum(self, by: str | Sequence[str] | None = None, *, over: str | Sequence[str] | None = None) -> Expression:
        """Sums of members.

        Parameters
        ----------
        by
            Levels whose labels the sums keep. One level: a sum for each label of its domain, 0 where nothing has it.
            Several: one for each combination that occurs.
        over
            Instead: the levels that the sums run over; the other keys are kept.
        """
        if by is not None and over is not None:
            raise StatementError("sum: give by or over, not both")
        for name in (gone := _names(over) if over is not None else ()):
            self._level(name)
        wanted = tuple(k for k in self.index.keys if k not in gone) if over is not None else _names(by)
        for name in wanted:
            self._level(name)
        index, group = self.index.group(wanted)
        constant: Floats = np.zeros(index.count)
        if self._constant.any():
            constant = np.bincount(group, self._constant, index.count).astype(np.float64)
        run = tuple(k for k in self.index.keys if k not in wanted)
        unit, values = self._unit, self._values
        if unit is not None and float(np.abs(constant).max(initial=0)) > EXACT:
            values, constant, unit = to_floats(values, unit), to_floats(constant, unit), None
        formula = ("sum", run, self.formula) if run else self.formula
        return self._like(
            index=index, rows=group[self._rows], values=values, constant=constant, unit=unit, formula=formula
        )

    def shift(self, *, start: Any = 0, **steps: int) -> Expression:
        """Each member as it was some labels before, along an ordered level.

        Parameters
        ----------
        **steps
            One level and a number of labels: ``shift(week=1)`` reads the week before; -1 the week after.
        start
            What is read before the first label (after the last, for a negative step): a number, or data by the
            other keys.
        """
        name, step = _one(steps, "shift")
        where = self._moved(name, step)
        gaps = np.flatnonzero(where < 0)
        first = self.index.take(gaps)
        begin = self._data(start, f"start of shift({name}={step})", self.index)
        read = ("shift", name, int(step), self.formula)
        shifted = self._gather(where, self.index, (*read, begin.formula) if len(gaps) else read)
        if not len(gaps) or (isinstance(start, (int, float)) and start == 0):
            return shifted
        partner = match(begin.index, first, f"start of shift({name}={step})")
        values = begin._gather(np.arange(first.count) if partner is None else partner, first, ("number", "0"))
        back = np.full(self.index.count, -1, np.int64)
        back[gaps] = np.arange(len(gaps))
        return (shifted + values._gather(back, self.index, ("number", "0")))._like(formula=shifted.formula)

    def diff(self, *, start: Any = 0, **steps: int) -> Expression:
        """The change since some labels before: ``x - x.shift(...)``, with the same arguments."""
        return self - self.shift(start=start, **steps)

    def rolling(self, **widths: int) -> Rolling:
        """Windows along an ordered level: ``x.rolling(shift=3).sum()`` has a member for each end of a whole window."""
        name, width = _one(widths, "rolling")
        self._level(name)
        if isinstance(width, bool) or not isinstance(width, (int, np.integer)) or width < 1:
            raise StatementError(f"rolling: expected a number of labels of at least 1, got {width!r}")
        return Rolling(self, name, width)

    def _moved(self, name: str, step: int) -> Positions:
        level = self._level(name)
        if name not in self.index.keys:
            raise StatementError(f"{name!r} follows from {', '.join(self.index.keys)}; shift along one of these")
        if isinstance(step, bool) or not isinstance(step, (int, np.integer)):
            raise StatementError(f"shift of {name!r}: expected a number of labels, got {step!r}")
        before = self.index.codes[name].astype(np.int64) - int(step)
        inside = np.flatnonzero((before >= 0) & (before < len(level)))
        codes = {k: v[inside] for k, v in self.index.codes.items() if k in self.index.keys}
        codes[name] = before[inside].astype(np.int32)
        wanted = Index(self.index.keys, {k: self.index.levels[k] for k in self.index.keys}, codes, len(inside))
        where = np.full(self.index.count, -1, np.int64)
        where[inside] = _partners(self.index, wanted, f"shift of {self._short()}")
        return where

    def at(self, table: Any = None, /, **reads: Any) -> Expression:
        """Read at the labels that a table holds.

        Parameters
        ----------
        table
            A DataFrame. The result has a member for each of its rows, and for each combination of the levels left.
            Its levels are those of the table: the index if it is named, else all columns.
        **reads
            Level of this expression to the table's column: ``put.at(conflicts, vm="a")``. Without a table: level to a
            Series whose values are the labels: ``load.at(machine=machine_of_task)``.
        """
        if not reads:
            raise StatementError("at: say which level is read where, such as at(conflicts, vm='a')")
        for name in reads:
            if self._level(name).name not in self.index.keys:
                raise StatementError(
                    f"at: {name!r} is no key of {self._short()}, which has {', '.join(self.index.keys)}"
                )
        if table is None:
            if len(reads) != 1 or not is_pandas(next(iter(reads.values())), "Series"):
                raise StatementError("at without a table reads one level through a Series: at(machine=machine_of_task)")
            name, series = next(iter(reads.items()))
            rows = self._owner.index_of(series.index, "at", {})
            codes = {name: self.index.levels[name].codes(series, f"at of {self._short()}")}
            hows: list[tuple[str, Any]] = [(name, (str(series.name or name), rows.keys))]
        else:
            index = getattr(table, "index", table)
            names = [*getattr(index, "names", ()), *getattr(table, "columns", ())]
            have = {name: name for name in names if name is not None}
            for column in reads.values() if have else ():
                known("column of the table", column, have)
            given = {column: self.index.levels[name] for name, column in reads.items()}
            rows = self._owner.index_of(table, "at", given)
            codes, hows = {}, []
            for name, column in reads.items():
                labels = known("column of the table", column, rows.levels)
                same = labels.labels == self.index.levels[name].labels
                change = None if same else self.index.levels[name].codes(labels.labels, f"at of {self._short()}")
                codes[name] = rows.codes[column] if change is None else change[rows.codes[column]]
                hows.append((name, column))
        rest = [k for k in self.index.keys if k not in reads]
        if clash := set(rest) & set(rows.levels):
            raise StatementError(
                f"at: {sorted(clash)[0]!r} is a column of the table and a level of {self._short()}; rename the column"
            )
        others = self.index.group(rest)[0] if rest else _SINGLE
        index, wanted = _crossed(rows, codes, others, self.index)
        where = _partners(self.index, wanted, f"at of {self._short()}")
        return self._gather(where, index, ("at", tuple(hows), self.formula))

    def join(self, table: Any) -> Expression:
        """Each member once for every row of a table with its labels; adds the table's other levels (before a sum).

        Parameters
        ----------
        table
            A DataFrame with at least one level of this expression among its columns: which task covers which hour.
        """
        rows = self._owner.index_of(table, "join", {})
        common = [name for name in rows.names if name in self.index.levels]
        added = [name for name in rows.names if name not in self.index.levels]
        if not common or not added:
            have = ", ".join(self.index.names)
            raise StatementError(
                f"join: a table with some levels of {have} and at least one more; got {', '.join(rows.names)}"
            )
        mine, theirs = _shared_key(self.index, rows, common)
        order = np.argsort(theirs, kind="stable")
        begin, end = np.searchsorted(theirs[order], mine, "left"), np.searchsorted(theirs[order], mine, "right")
        counts = end - begin
        member = np.repeat(np.arange(self.index.count), counts)
        offset = np.repeat(begin - (np.cumsum(counts) - counts), counts) + np.arange(len(member))
        row = order[offset]
        levels = {**self.index.levels, **{k: rows.levels[k] for k in added}}
        codes = {**{k: v[member] for k, v in self.index.codes.items()}, **{k: rows.codes[k][row] for k in added}}
        index = Index((*self.index.keys, *added), levels, codes, len(member))
        return self._gather(member, index, self.formula)

    def reindex(self, index: Any, *, fill: float = 0) -> Expression:
        """Exactly these labels, in their order; gaps are meant and hold the number ``fill``.

        Parameters
        ----------
        index
            A pandas Index or MultiIndex with names of levels, a Series or DataFrame with one, or an expression.
        """
        wanted = index.index if isinstance(index, Expression) else self._owner.index_of(index, "reindex", {})
        if set(wanted.keys) != set(self.index.keys):
            raise StatementError(
                f"reindex: {self._short()} has keys {', '.join(self.index.keys)}, the index {', '.join(wanted.keys)}"
            )
        return self._gather(_partners(self.index, wanted, "reindex", gaps=True), wanted, self.formula, _number(fill)[0])

    # ---- arithmetic

    def __add__(self, other: Any) -> Expression:
        return self._plus(other, 1)

    def __radd__(self, other: Any) -> Expression:
        return self._data(other, "+", self.index)._plus(self, 1)

    def __sub__(self, other: Any) -> Expression:
        return self._plus(other, -1)

    def __rsub__(self, other: Any) -> Expression:
        return self._data(other, "-", self.index)._plus(self, -1)

    def __neg__(self) -> Expression:
        return self._like(values=-self._values, constant=-self._constant, formula=formulas.negative(self.formula))

    def __pos__(self) -> Expression:
        return self

    def __mul__(self, other: Any) -> Expression:
        factor = self._data(other, "*", self.index)
        left, right = (self, factor) if not len(factor._rows) else (factor, self)
        if len(right._rows):
            raise StatementError(
                f"{self._short()} times {factor._short()} is a product of variables, which is not linear"
            )
        formula = formulas.times(right.formula, left.formula)
        if not right.index.keys and right.index.count == 1:  # a number
            number = np.full(1, right._constant[0])
            values, unit = product(left._values, left._unit, np.broadcast_to(number, left._values.shape), right._unit)
            constant, other_unit = product(
                left._constant, left._unit, np.broadcast_to(number, left._constant.shape), right._unit
            )
            if unit != other_unit:
                values, constant, unit = to_floats(values, unit), to_floats(constant, other_unit), None
            return left._like(values=values, constant=constant, unit=unit, formula=formula)
        what = f"{self._short()} * {factor._short()}"
        left, right, index = _aligned(left, right, what)
        values, unit = product(left._values, left._unit, right._constant[left._rows], right._unit)
        constant, other_unit = product(left._constant, left._unit, right._constant, right._unit)
        if unit != other_unit:
            values, constant, unit = to_floats(values, unit), to_floats(constant, other_unit), None
        return left._like(index=index, values=values, constant=constant, unit=unit, formula=formula)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Expression:
        divisor = self._data(other, "/", self.index)
        if len(divisor._rows):
            raise StatementError(f"{self._short()} divided by variables is not linear")
        if not divisor._constant.all():
            zero = divisor.index.text(int(np.argmin(divisor._constant != 0)))
            raise StatementError(f"division of {self._short()} by 0 at {zero}")
        if divisor._unit is not None and len(divisor._constant) <= _FRACTIONS:
            reciprocals = [1 / (Fraction(int(v)) * divisor._unit) for v in divisor._constant.tolist()]
            values, unit = exact_numbers(np.array(reciprocals, object))
        else:
            values, unit = 1.0 / to_floats(divisor._constant, divisor._unit), None
        quotient = self * divisor._like(constant=values, unit=unit)
        return quotient._like(formula=("over", self.formula, divisor.formula))

    def __rtruediv__(self, other: Any) -> NoReturn:
        raise StatementError(f"a division by {self._short()} is not linear")

    def __pow__(self, other: Any) -> NoReturn:
        raise StatementError(f"a power of {self._short()} is not linear")

    def __abs__(self) -> NoReturn:
        raise StatementError(f"the size of {self._short()} is not linear; state a variable that is at least it and -it")

    def _no_operator(self, other: Any) -> NoReturn:
        raise StatementError(f"{self._short()}: there are + - * / and <= >= ==, with numbers, data and expressions")

    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __matmul__ = __rmatmul__ = __and__ = __or__ = _no_operator

    def _plus(self, other: Any, sign: int) -> Expression:
        what = "+" if sign > 0 else "-"
        theirs = self._data(other, what, self.index)
        left, right, index = _aligned(self, theirs, f"{self._short()} {what} {theirs._short()}")
        (v1, c1), (v2, c2), unit = _in_one_unit(left, right)
        return Expression(
            self._owner,
            index,
            np.concatenate([left._rows, right._rows]) if len(right._rows) else left._rows,
            np.concatenate([left._columns, right._columns]) if len(right._rows) else left._columns,
            np.concatenate([v1, sign * v2]) if len(right._rows) else v1,
            c1 + sign * c2,
            unit,
            formulas.add(self.formula, theirs.formula, sign),
            self._blocks | theirs._blocks,
        )

    # ---- rules

    def __le__(self, other: Any) -> Rule:
        return self._rule("<=", other)

    def __ge__(self, other: Any) -> Rule:
        return self._rule(">=", other)

    def __eq__(self, other: object) -> Rule:  # type: ignore[override]
        return self._rule("==", other)

    def __lt__(self, other: Any) -> NoReturn:
        raise StatementError("a strict < states no linear program; write <=")

    def __gt__(self, other: Any) -> NoReturn:
        raise StatementError("a strict > states no linear program; write >=")

    def __ne__(self, other: object) -> NoReturn:
        raise StatementError("!= states no linear program; write two rules with binary variables of your own")

    def _rule(self, relation: Relation, other: Any) -> Rule:
        right = self._data(other, relation, self.index)
        return Rule(self._plus(right, -1), relation, self.formula, right.formula)

    # ---- helpers

    def _short(self) -> str:
        text = Writer({}, tex=False).write(self.formula)
        return text if len(text) <= 60 else text[:57] + "..."

    def _level(self, name: str) -> Level:
        if not isinstance(name, str) or name not in self.index.levels:
            raise StatementError(f"{self._short()} has " + nearest("level", name, self.index.names))
        return self.index.levels[name]

    def _data(self, value: Any, what: str, near: Index) -> Expression:
        if isinstance(value, Expression):
            if value._owner.family is not self._owner.family:
                raise StatementError(f"{value._short()} belongs to another problem than {self._short()}")
            return value
        return self._owner.as_data(value, f"{self._short()} {what}", near)


def constants(
    owner: Owner, index: Index, values: Floats, unit: Unit = Fraction(1), formula: Node = ("number", "0")
) -> Expression:
    """An expression without variables."""
    return Expression(owner, index, _NONE, _NONE, _NO_VALUES, values, unit, formula)


class Rolling:
    """Windows of an expression along an ordered level."""

    def __init__(self, expression: Expression, level: str, width: int) -> None:
        self._expression, self._level, self._width = expression, level, width

    def sum(self) -> Expression:
        """The sum of each whole window, at the label that ends it."""
        e = self._expression
        index = e.index
        whole = np.flatnonzero(index.codes[self._level] >= self._width - 1)
        taken = index.take(whole)
        total: Expression | None = None
        for step in range(self._width):
            part = e._gather(e._moved(self._level, step)[whole], taken, e.formula)
            total = part if total is None else total + part
        assert total is not None
        return total._like(formula=("roll", self._level, self._width, e.formula))


@dataclass(frozen=True, eq=False)
class Rule:
    """``expression relation 0`` for each member; what ``<=``, ``>=`` and ``==`` make.

    Attributes
    ----------
    expression
        Left side minus right side.
    relation
        ``<=``, ``>=`` or ``==``.
    left, right
        Both sides as they were written.
    """

    expression: Expression
    relation: Relation
    left: Node
    right: Node
    condition: Expression | None = field(default=None)

    def __bool__(self) -> NoReturn:
        raise StatementError("a rule is neither true nor false; state a <= x and x <= b as two rules")

    def __repr__(self) -> str:
        return f"{self.formula(Writer({}, tex=False))}{_each(self.expression.index)}"

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.formula(self.expression._owner.writer())}$"

    def formula(self, writer: Writer) -> str:
        """The rule as text or LaTeX, without the members for which it holds."""
        return written_rule(
            writer, self.left, self.relation, self.right, self.condition.formula if self.condition is not None else None
        )

    def when(self, condition: Expression) -> Rule:
        """The rule where a binary is 1, nothing where it is 0.

        Parameters
        ----------
        condition
            A binary variable ``y`` or ``1 - y``, with levels of the rule. The numbers that switch the rule off are the
            smallest that the bounds of the variables allow.

        Raises
        ------
        StatementError
            The condition is no binary, or a variable has no bound that is needed (named).
        """
        if not isinstance(condition, Expression):
            raise StatementError(f"when: expected a binary variable, got {condition!r}")
        return replace(self, condition=condition)


def written_rule(writer: Writer, left: Node, relation: str, right: Node, condition: Node | None) -> str:
    """A rule as text or LaTeX."""
    tex = writer._tex
    sign = {"<=": r"\le", ">=": r"\ge", "==": "="}[relation] if tex else relation
    text = f"{writer.write(left)} {sign} {writer.write(right)}"
    if condition is None:
        return text
    value = 1
    if condition[0] == "add" and condition[1][0] == (1, ("number", "1")) and len(condition[1]) == 2:
        condition, value = condition[1][1][1], 0
    on = f"{writer.write(condition)} {'=' if tex else 'is'} {value}"
    return rf"{text} \quad \text{{if }} {on}" if tex else f"{text} if {on}"


def cross(first: Expression, second: Expression) -> tuple[Expression, Expression]:
    """Two expressions repeated over all combinations of their members, so that they meet."""
    for each in (first, second):
        if not isinstance(each, Expression):
            raise StatementError(f"cross: expected two expressions, got {each!r}; give data a name with p.data(...)")
    if clash := set(first.index.names) & set(second.index.names):
        raise StatementError(f"cross: both have the level {sorted(clash)[0]!r}; they meet without it")
    n, m = first.index.count, second.index.count
    left, right = np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
    codes = {
        **{k: v[left] for k, v in first.index.codes.items()},
        **{k: v[right] for k, v in second.index.codes.items()},
    }
    index = Index(
        (*first.index.keys, *second.index.keys),
        {**first.index.levels, **second.index.levels},
        codes,
        n * m,
        first.index.dense and second.index.dense,
    )
    return first._gather(left, index, first.formula), second._gather(right, index, second.formula)


def _aligned(a: Expression, b: Expression, what: str) -> tuple[Expression, Expression, Index]:
    """Both operands over the members of the larger."""
    if a.index is b.index:
        return a, b, a.index
    if meets(b.index, a.index) and not (meets(a.index, b.index) and len(a.index.keys) < len(b.index.keys)):
        where = match(b.index, a.index, what)
        return a, b if where is None else b._gather(where, a.index, b.formula), a.index
    if meets(a.index, b.index):
        where = match(a.index, b.index, what)
        return a if where is None else a._gather(where, b.index, a.formula), b, b.index
    mine, theirs = set(a.index.names), set(b.index.names)
    raise StatementError(
        f"{what}: one side has {_listed(mine - theirs)} and the other {_listed(theirs - mine)}; sum over "
        "one of them, or say with cross(a, b) that all combinations are meant"
    )


def _listed(levels: set[str]) -> str:
    return ", ".join(map(repr, sorted(levels))) or "no other level"


def _in_one_unit(a: Expression, b: Expression) -> tuple[list[Floats], list[Floats], Unit]:
    first, second, unit = common_unit(([a._values, a._constant], a._unit), ([b._values, b._constant], b._unit))
    if unit is not None:
        top = max(float(np.abs(c).max(initial=0)) for c in (first[1], second[1]))
        if top > EXACT / 2:
            return [to_floats(v, unit) for v in first], [to_floats(v, unit) for v in second], None
    return first, second, unit


def _partners(index: Index, wanted: Index, what: str, *, gaps: bool = False) -> Positions:
    """(wanted.count,) the member with these keys; an error, or -1 where ``gaps`` are meant."""
    if not index.keys:
        return np.zeros(wanted.count, np.int64)
    mine, theirs = _shared_key(index, wanted, list(index.keys))
    if index.dense and not gaps:
        return theirs
    order = np.argsort(mine, kind="stable")
    if not len(order):
        found = np.full(wanted.count, -1, np.int64)
    else:
        place = np.minimum(np.searchsorted(mine[order], theirs), len(order) - 1)
        found = np.where(mine[order][place] == theirs, order[place], -1)
    if not gaps and len(found) and found.min() < 0:
        lost = wanted.text(int(np.argmin(found)))
        raise StatementError(f"{what}: there is nothing at {lost}; reindex(..., fill=0) says that a gap is meant")
    return found


def _shared_key(a: Index, b: Index, levels: Sequence[str]) -> tuple[Positions, Positions]:
    """One number for the labels of some levels, the same in both indices."""
    mine, theirs = np.zeros(a.count, np.int64), np.zeros(b.count, np.int64)
    reach = 1
    for name in levels:
        one, two = a.levels[name], b.levels[name]
        if one is not two and one.labels != two.labels:
            raise StatementError(f"level {name!r} has different labels in both operands; are they of one problem?")
        if reach * max(len(one), 1) >= 2**62:
            _, both = np.unique(np.concatenate([mine, theirs]), return_inverse=True)
            mine, theirs, reach = both[: a.count], both[a.count :], int(both.max(initial=0)) + 1
        mine, theirs = mine * len(one) + a.codes[name], theirs * len(one) + b.codes[name]
        reach *= max(len(one), 1)
    return mine, theirs


def _crossed(rows: Index, read: Mapping[str, Codes], others: Index, source: Index) -> tuple[Index, Index]:
    """The index of all rows with all other labels, and the labels of the source that each of them reads."""
    n, m = rows.count, others.count
    left, right = np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
    rest = {k: others.codes[k][right] for k in others.keys}
    index = Index(
        (*rows.keys, *others.keys),
        {**rows.levels, **others.levels},
        {**{k: v[left] for k, v in rows.codes.items()}, **rest},
        n * m,
        rows.dense and others.dense,
    )
    codes = {**{k: v[left] for k, v in read.items()}, **rest}
    return index, Index(source.keys, {k: source.levels[k] for k in source.keys}, codes, n * m)


def _positions(level: Level, wanted: Any, what: str) -> int | Positions:
    """Position of one label, or positions of several."""
    if isinstance(wanted, slice):
        if wanted.step is not None:
            raise StatementError(f"{what}: a slice of labels has no step")
        return _range(level, wanted, what)
    if isinstance(wanted, (list, set, frozenset, range, np.ndarray)) or is_pandas(wanted, "Index", "Series"):
        listed = sorted(wanted, key=str) if isinstance(wanted, (set, frozenset)) else wanted
        return level.codes(listed, what).astype(np.int64)
    label = wanted.item() if isinstance(wanted, np.generic) else wanted
    return int(level.codes([label], what)[0])


def _range(level: Level, wanted: slice, what: str) -> Positions:
    ends = [wanted.start, wanted.stop]
    if all(end is None or end in level.position for end in ends):
        first = 0 if ends[0] is None else level.position[ends[0]]
        last = len(level) - 1 if ends[1] is None else level.position[ends[1]]
        return np.arange(first, last + 1)
    try:
        inside = [
            (ends[0] is None or label >= ends[0]) and (ends[1] is None or label <= ends[1]) for label in level.labels
        ]
    except TypeError as error:
        raise StatementError(
            f"{what}: {level.name!r} has no label {next(e for e in ends if e not in level.position)!r}"
        ) from error
    return np.flatnonzero(np.array(inside, bool))


def _names(levels: str | Sequence[str] | None) -> tuple[str, ...]:
    if levels is None or isinstance(levels, str):
        return () if levels is None else (levels,)
    if not isinstance(levels, Iterable) or len(set(map(repr, levels))) != len(list(levels)):
        raise StatementError(f"sum: expected the name of a level or distinct names, got {levels!r}")
    return tuple(levels)


def _one(given: Mapping[str, int], what: str) -> tuple[str, int]:
    if len(given) != 1:
        raise StatementError(f"{what} takes one level and a number, such as {what}(week=1); got {dict(given)!r}")
    return next(iter(given.items()))


def _number(value: Any) -> tuple[float, Unit]:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, Fraction, Decimal, np.number)):
        raise StatementError(f"expected a number, got {value!r}")
    found, unit = exact_numbers(np.array([value], object if isinstance(value, (Fraction, Decimal)) else None))
    return float(to_floats(found, unit)[0]), unit


def _each(index: Index) -> str:
    return f"  for each {', '.join(index.keys)} ({index.count})" if index.keys else ""
