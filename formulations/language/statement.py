r"""A problem as it is stated: sets, data, variables, rows and objectives, all with names and labels.

What is stated is kept once, as arrays with labels, and once as formulas. From these follow the program for a solver,
the names in files, the LaTeX, and the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
import scipy

from flowlex.formulations.language import formulas
from flowlex.formulations.language.exact_units import Unit, exact_numbers, to_floats
from flowlex.formulations.language.expressions import Expression, Rule, constants, cross
from flowlex.formulations.language.formulas import Node, Writer
from flowlex.formulations.language.labels import (
    Codes,
    Index,
    Level,
    Positions,
    StatementError,
    factored,
    is_pandas,
    known,
    match,
    meets,
    nearest,
    plain_labels,
    table_columns,
)
from flowlex.formulations.program_arrays import Booleans, Floats, LinearProgramArrays

StatementT = TypeVar("StatementT", bound="Statement")
_Method = TypeVar("_Method", bound=Callable[..., Any])
_NONE, _NO_VALUES = np.zeros(0, np.int64), np.zeros(0)
_SINGLE = Index((), {}, {}, 1, True)


@dataclass(frozen=True, eq=False)
class VariableToken:
    """Identity of a declaration of variables, which copies of a problem share."""


@dataclass(frozen=True, eq=False)
class VariableBlock:
    """Variables of one name: columns ``start .. start + index.count - 1``."""

    name: str
    index: Index
    start: int
    lower: Floats
    upper: Floats
    integer: Booleans
    words: str = ""
    unit: str = ""
    token: VariableToken = field(default_factory=VariableToken)

    @property
    def columns(self) -> slice:
        """Its columns."""
        return slice(self.start, self.start + self.index.count)

    def names(self, members: Positions | slice = slice(None)) -> list[str]:
        """``name[labels]`` of some members (all by default)."""
        return bracketed(self.name, self.index, members)


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Rows of one name: ``sum of terms relation rhs``, each times `unit` (None: plain floats)."""

    name: str
    index: Index
    relation: str
    rows: Positions
    columns: Positions
    values: Floats
    rhs: Floats
    unit: Unit
    left: Node
    right: Node
    condition: Node | None = None
    words: str = ""
    dual: str = ""

    def names(self, members: Positions | slice = slice(None)) -> list[str]:
        """``name[labels]`` of some rows (all by default)."""
        return bracketed(self.name, self.index, members)


@dataclass(frozen=True, eq=False)
class Objective:
    """``constant + sum of terms``, times `unit`, to be minimised or maximised after the objectives before it.

    ``within``: how much of its optimum later objectives may give up: a number, or a share of its size (``relative``).
    """

    name: str
    columns: Positions
    values: Floats
    constant: float
    unit: Unit
    maximize: bool
    formula: Node
    within: Fraction = Fraction(0)
    relative: bool = False
    words: str = ""
    measure: str = ""  # the unit in which it is measured, such as "s"
    #: The objective over which these stages are sorted, and which of its stages this is; empty for a plain one.
    sorted_of: str = ""

    def cost(self, count: int) -> Floats:
        """(count,) coefficients as floats."""
        cost = np.zeros(count)
        cost[self.columns] = to_floats(self.values, self.unit)
        return cost

    @property
    def offset(self) -> float:
        """The constant as a float."""
        return float(to_floats(np.array([self.constant]), self.unit)[0])


def bracketed(name: str, index: Index, members: Positions | slice = slice(None)) -> list[str]:
    """``name[labels]`` of some members of an index."""
    texts = index.texts(members)
    return [f"{name}[{text}]" for text in texts] if index.keys else [name] * len(texts)


def whole_or_not(method: _Method) -> _Method:
    """A method that states something, or leaves the problem as it was when it raises: nothing is half stated."""

    @wraps(method)
    def stating(self: Statement, /, *args: Any, **options: Any) -> Any:
        parts: tuple[dict[str, Any], ...] = (self.levels, self.level_words, self.blocks, self.rows, self.symbols)
        counts, goals = [len(part) for part in parts], len(self.objectives)
        try:
            return method(self, *args, **options)
        except BaseException:
            for part, count in zip(parts, counts, strict=True):
                while len(part) > count:
                    part.popitem()
            del self.objectives[goals:]
            raise

    return cast("_Method", stating)


class Statement:
    """Everything that a problem says. `flowlex.Problem` adds solving, files and proof.

    Parameters
    ----------
    name
        Name of the problem.
    """

    def __init__(self, name: str = "problem") -> None:
        if not isinstance(name, str):
            raise StatementError(f"expected the name of the problem as text, got {name!r}")
        self.name = name
        self.levels: dict[str, Level] = {}
        self.level_words: dict[str, str] = {}
        self.blocks: dict[str, VariableBlock] = {}
        self.rows: dict[str, RowBlock] = {}
        self.objectives: list[Objective] = []
        #: Words, unit and value range of data with a symbol.
        self.symbols: dict[str, tuple[str, str, tuple[str, ...]]] = {}
        #: Shared by all copies, whose expressions may be mixed as long as they use variables of both.
        self.family = object()

    # ---- sets and data

    def set(self, level: str, labels: Any, words: str = "") -> Level:
        """Declare the domain of a level: its labels, in order.

        Parameters
        ----------
        level
            Its name.
        labels
            Distinct labels: a list, a range or a pandas Index.
        words
            What it is, for the mathematics.

        Raises
        ------
        StatementError
            The level has other labels already, or a label is missing or occurs twice.
        """
        fresh = Level(_checked_name(level, "a level"), tuple(plain_labels(labels)))
        stated = self.levels.setdefault(level, fresh)
        if stated.labels != fresh.labels:
            raise StatementError(
                f"level {level!r} has {len(stated)} other labels already; declare it once, before its use"
            )
        _checked_words(f"level {level!r}", words)
        if words:
            self.level_words[level] = words
        return self.levels[level]

    @whole_or_not
    def data(self, name: str, values: Any, *, unit: str = "", words: str = "", scale: Fraction | int = 1) -> Expression:
        """Data with a symbol, which formulas show instead of numbers.

        Parameters
        ----------
        name
            Its symbol.
        values
            A number, or a pandas Series or DataFrame whose index (and columns) are named after levels. A new level gets
            the labels of these data as its domain.
        unit, words
            What the numbers are.
        scale
            By what the values are multiplied, exactly: many integers in a unit that is a fraction.
        """
        _checked_words(f"data {_checked_name(name, 'data')!r}", words, unit)
        numbers = self.as_data(values, f"data {name!r}", _SINGLE)
        if scale != 1:
            numbers = numbers * scale
        self.symbols[name] = (words, unit, numbers.index.keys)
        return numbers._like(formula=("symbol", name, numbers.index.keys))

    @whole_or_not
    def as_data(self, value: Any, what: str, near: Index) -> Expression:
        """Numbers of any accepted kind as an expression without variables; a dict takes its levels from ``near``."""
        count = len(self.levels)
        numbers = self._as_data(value, what, near)
        if not meets(numbers.index, near) and not meets(near, numbers.index):
            while len(self.levels) > count:  # the operands do not meet, which is an error: its labels are forgotten
                self.levels.popitem()
        return numbers

    def _as_data(self, value: Any, what: str, near: Index) -> Expression:
        if isinstance(value, (bool, np.bool_)):
            raise StatementError(f"{what}: expected a number or data with labels, got {value!r}")
        if is_pandas(value, "Series"):
            keys, columns = table_columns(value, what)
            index = self._index(keys, columns, what, {})
            return self._constant(index, value.to_numpy(), what, str(value.name) if isinstance(value.name, str) else "")
        if is_pandas(value, "DataFrame"):
            if value.columns.nlevels == 1 and value.columns.name is None:
                raise StatementError(f"{what}: the columns of the DataFrame have no name; name them after their level")
            stacked = value.T.unstack() if value.size else value.stack()
            keys, columns = table_columns(stacked, what)
            return self._constant(self._index(keys, columns, what, {}), stacked.to_numpy(), what)
        if isinstance(value, Mapping):
            return self._from_mapping(value, what, near)
        if np.ndim(value) > 0:
            raise StatementError(
                f"{what}: an array or list has no labels; give a pandas Series whose index is named after its level"
            )
        if value is None or isinstance(value, str):
            raise StatementError(f"{what}: expected a number or data with labels, got {value!r}")
        found = self._constant(_SINGLE, np.array([value], object), what)
        return found._like(formula=("number", _short(value)))

    def _from_mapping(self, value: Mapping[Any, Any], what: str, near: Index) -> Expression:
        labels = list(value)
        if not labels:
            raise StatementError(f"{what}: an empty dict has no labels; use a pandas Series with a named index")
        if len(near.keys) > 1 and all(isinstance(each, tuple) and len(each) == len(near.keys) for each in labels):
            columns = {key: factored([each[k] for each in labels], what) for k, key in enumerate(near.keys)}
            index = self._index(list(near.keys), columns, what, {})
        else:
            fits = [
                n for n in near.names if all(label in near.levels[n].position for label in labels if _hashable(label))
            ]
            if len(near.names) == 1:
                fits = list(near.names)
            if len(fits) != 1:
                which = "several levels have" if fits else "no level has"
                raise StatementError(f"{what}: {which} the labels of this dict; use a pandas Series with a named index")
            index = self._index(fits, {fits[0]: factored(labels, what)}, what, {})
        return self._constant(index, np.array(list(value.values()), object), what)

    def _constant(self, index: Index, values: Any, what: str, name: str = "") -> Expression:
        try:
            numbers, unit = exact_numbers(values)
        except (TypeError, OverflowError) as error:
            raise StatementError(f"{what}: {error}") from error
        if not np.isfinite(numbers).all():
            k = int(np.argmin(np.isfinite(numbers)))
            where = f" at {index.text(k)}" if index.keys else ""
            raise StatementError(f"{what}: the number{where} is {numbers[k]}")
        formula: Node
        if name:
            formula = ("symbol", name, index.keys)
        else:
            plain = to_floats(numbers, unit)
            low, high = (plain.min(), plain.max()) if len(plain) else (0.0, 0.0)
            formula = (
                ("number", _short(low)) if low == high else ("numbers", f"{_short(low)}..{_short(high)}", index.keys)
            )
        return constants(self, index, numbers, unit, formula)

    def index_of(self, table: Any, what: str, domains: Mapping[str, Level]) -> Index:
        """Members of a table; ``domains``: of new levels, by column."""
        if not is_pandas(table, "Series", "DataFrame", "Index"):
            table = _frame(table, what)
        keys, columns = table_columns(table, what)
        if is_pandas(table, "Series"):
            columns = {k: columns[k] for k in keys}
        return self._index(keys, columns, what, domains)

    def _index(
        self,
        keys: Sequence[str],
        columns: Mapping[str, tuple[list[Any], Codes]],
        what: str,
        domains: Mapping[str, Level],
    ) -> Index:
        levels, codes = [], []
        for name, (labels, code) in columns.items():
            if name not in self.levels:
                domain = domains.get(name)
                used = np.zeros(len(labels), bool)
                used[code] = True
                fresh = (
                    domain.labels
                    if domain is not None
                    else tuple(x for x, u in zip(labels, used.tolist(), strict=True) if u)
                )
                self.levels[name] = Level(_checked_name(name, f"{what}: a level"), tuple(fresh))
            level = self.levels[name]
            place = np.array([level.position.get(label, -1) for label in labels], np.int32).reshape(len(labels))
            found = place[code]
            if len(found) and found.min() < 0:
                wrong = labels[int(code[int(np.argmin(found))])]
                raise StatementError(f"{what}: " + nearest(name, wrong, level.labels))
            levels.append(level)
            codes.append(found)
        return Index.of(levels, codes, keys, what)

    # ---- variables

    @whole_or_not
    def variables(
        self,
        name: str,
        *,
        over: Any = None,
        keys: Sequence[str] | None = None,
        lower: Any = 0,
        upper: Any = None,
        integer: bool = False,
        binary: bool = False,
        words: str = "",
        unit: str = "",
        **levels: Any,
    ) -> Expression:
        """Declare variables and return them.

        Parameters
        ----------
        name
            Their name.
        over
            Sparse members: a DataFrame, a pandas MultiIndex or a list of tuples (with ``keys``). The index of a
            DataFrame, if named, holds the keys; its columns are labels that follow. Without a named index all columns
            are keys.
        keys
            Names of the columns that identify members, where ``over`` does not say.
        lower, upper
            Bounds: numbers, data by level, arrays in the order of the members; None for no bound.
        integer, binary
            Whether they take whole numbers only; 0 or 1 only.
        words, unit
            What they are, for the mathematics.
        **levels
            Members: all combinations of these labels. The first use of a level declares its domain.

        Raises
        ------
        StatementError
            The name is taken, a label is unknown or occurs twice, or a lower bound exceeds its upper bound.
        """
        _checked_name(name, "variables")
        if name in self.blocks:
            raise StatementError(f"variables named {name!r} exist already; choose another name")
        if over is not None and levels:
            raise StatementError(f"variables {name!r}: give over= or levels, not both")
        index = self._over(name, over, keys) if over is not None else self._product(name, levels)
        if not isinstance(binary, (bool, np.bool_)):
            raise StatementError(f"variables {name!r}: integer= and binary= are True or False, got {binary!r}")
        if binary:
            if upper is not None or not (isinstance(lower, int) and lower == 0):
                raise StatementError(f"variables {name!r}: binary=True has bounds 0 and 1; use integer=True for others")
            lower, upper, integer = 0, 1, True
        return self.declare(name, index, lower=lower, upper=upper, integer=integer, words=words, unit=unit)

    def declare(
        self,
        name: str,
        index: Index,
        *,
        lower: Any = 0,
        upper: Any = None,
        integer: bool = False,
        words: str = "",
        unit: str = "",
    ) -> Expression:
        """Declare variables with the members of an index; other parameters as in `variables`."""
        _checked_name(name, "variables")
        if name in self.blocks:
            raise StatementError(f"variables named {name!r} exist already; choose another name")
        _checked_words(f"variables {name!r}", words, unit)
        if not isinstance(integer, (bool, np.bool_)):
            raise StatementError(f"variables {name!r}: integer= and binary= are True or False, got {integer!r}")
        low = self._bound(name, "lower", lower, -np.inf, index)
        high = self._bound(name, "upper", upper, np.inf, index)
        crossed = low > high
        if crossed.any():
            k = int(np.argmax(crossed))
            raise StatementError(
                f"{bracketed(name, index, np.array([k]))[0]}: lower bound {low[k]:g} exceeds upper bound {high[k]:g}"
            )
        block = VariableBlock(
            name, index, self.column_count, low, high, np.full(index.count, bool(integer)), words, unit
        )
        self.blocks[name] = block
        return self._expression(block)

    def combined(
        self,
        index: Index,
        terms: tuple[Positions, Positions, Floats],
        constant: Floats,
        unit: Unit,
        formula: Node,
    ) -> Expression:
        """An expression of this problem's variables from arrays.

        ``terms``: member, column and coefficient of each; ``constant``: of each member; both times ``unit``.
        """
        tokens = frozenset(block.token for block in self.blocks.values())
        return Expression(self, index, *terms, constant, unit, formula, tokens)

    def _expression(self, block: VariableBlock) -> Expression:
        n = block.index.count
        return Expression(
            self,
            block.index,
            np.arange(n),
            np.arange(block.start, block.start + n),
            np.ones(n),
            np.zeros(n),
            Fraction(1),
            ("symbol", block.name, block.index.keys),
            frozenset((block.token,)),
        )

    def __getitem__(self, name: str) -> Expression:
        """Variables by name."""
        return self._expression(known("variables named", name, self.blocks))

    def _product(self, name: str, levels: Mapping[str, Any]) -> Index:
        parts: list[tuple[Level, Positions | None]] = []
        for level, labels in levels.items():
            if labels is None:
                raise StatementError(f"variables {name!r}: unknown option or level {level!r} without labels")
            if isinstance(labels, Level):
                labels = labels.labels
            listed = plain_labels(labels)
            domain = self.levels.get(level) or self.set(level, listed)
            same = tuple(listed) == domain.labels
            parts.append((domain, None if same else domain.codes(listed, f"variables {name!r}").astype(np.int64)))
        if all(chosen is None for _, chosen in parts):
            return Index.product([level for level, _ in parts])
        chosen = [np.arange(len(level)) if some is None else some for level, some in parts]
        grid = np.meshgrid(*chosen, indexing="ij")
        codes = [part.reshape(-1).astype(np.int32) for part in grid]
        return Index.of([level for level, _ in parts], codes, [level.name for level, _ in parts], f"variables {name!r}")

    def _over(self, name: str, over: Any, keys: Sequence[str] | None) -> Index:
        what = f"variables {name!r}"
        if isinstance(over, Expression):
            return over.index
        if not is_pandas(over, "DataFrame", "Index", "Series"):
            if keys is None:
                raise StatementError(f"{what}: name the levels of the tuples: over=pairs, keys=('task', 'gpu')")
            over = _frame(over, what, keys)
        elif keys is not None:
            over = over.reset_index() if is_pandas(over, "DataFrame") and over.index.names != [None] else over
            if not is_pandas(over, "DataFrame"):
                raise StatementError(f"{what}: keys= is for a DataFrame or tuples; an index names its levels itself")
            if lost := [key for key in keys if key not in over.columns]:
                raise StatementError(f"{what}: " + nearest("column", lost[0], over.columns))
            over = over.set_index(list(keys))
        return self.index_of(over, what, {})

    def _bound(self, name: str, side: str, value: Any, none: float, index: Index) -> Floats:
        what = f"{side} bound of {name!r}"
        if value is None:
            return np.full(index.count, none)
        if isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and np.isinf(value):
            return np.full(index.count, float(value))
        if isinstance(value, np.ndarray) and value.ndim:
            shape = tuple(len(index.levels[k]) for k in index.keys) if index.dense else (index.count,)
            if value.shape not in (shape, (index.count,)):
                raise StatementError(f"{what}: an array of shape {shape} expected, got {value.shape}")
            numbers = np.asarray(value, np.float64).reshape(-1)
            if np.isnan(numbers).any():
                raise StatementError(
                    f"{what}: the number at {index.text(int(np.argmax(np.isnan(numbers))))} is missing"
                )
            return numbers
        if is_pandas(value, "Series") and np.isinf(value.to_numpy(dtype=float, na_value=np.nan)).any():
            infinite = value.where(np.isfinite(value), np.sign(value) * 1e300)
            found = self._bound(name, side, infinite, none, index)
            return np.where(np.abs(found) == 1e300, np.sign(found) * np.inf, found)
        data = value if isinstance(value, Expression) else self.as_data(value, what, index)
        if len(data._rows):
            raise StatementError(f"{what} depends on variables; state it as a rule with constrain")
        where = match(data.index, index, what) if set(data.index.keys) <= set(index.names) else None
        if where is None and not (data.index is index or data.index.keys == index.keys):
            raise StatementError(
                f"{what}: data by {', '.join(data.index.keys)} do not fit variables by {', '.join(index.keys)}"
            )
        plain = to_floats(data._constant, data._unit)
        return plain.copy() if where is None else plain[where]

    # ---- rows

    @whole_or_not
    def constrain(self, name: str, rule: Rule, *, words: str = "", dual: str = "") -> None:
        """Add rows.

        Parameters
        ----------
        name
            Of the rows: in duals, files, messages and the mathematics.
        rule
            ``left <= right``, ``>=`` or ``==``: a row for each member.
        words
            What the rows demand.
        dual
            What one unit more of their right side is: ``"a nurse more"``.

        Raises
        ------
        StatementError
            The name is taken, the rule is none, or a row without variables cannot hold (named).
        """
        _checked_name(name, "rows")
        if name in self.rows or name in {o.name for o in self.objectives}:
            raise StatementError(f"rows or an objective named {name!r} exist already; choose another name")
        if not isinstance(rule, Rule):
            hint = "; a comparison without variables is not a rule" if isinstance(rule, (bool, np.bool_)) else ""
            raise StatementError(f"rows {name!r}: expected a rule such as x.sum() <= 3, got {rule!r}{hint}")
        self._own(rule.expression, f"rows {name!r}")
        _checked_words(f"rows {name!r}", words, dual)
        for suffix, each in _without_condition(self, name, rule):
            if name + suffix in self.rows:
                raise StatementError(f"rows {name!r}: rows named {name + suffix!r} exist already; choose another name")
            block = self._row_block(name + suffix, each, rule, words, dual)
            self.rows[block.name] = block

    def _row_block(self, name: str, rule: Rule, said: Rule, words: str, dual: str) -> RowBlock:
        e = rule.expression
        rows, columns, values = _summed(e._rows, e._columns, e._values, self.column_count)
        rhs = -e._constant + 0.0
        bare = np.bincount(rows, minlength=e.index.count) == 0
        if bare.any():
            fails = {"<=": rhs < 0, ">=": rhs > 0, "==": rhs != 0}[rule.relation] & bare
            if fails.any():
                k = int(np.argmax(fails))
                row = bracketed(name, e.index, np.array([k]))[0]
                side = float(to_floats(rhs[k : k + 1], e._unit)[0])
                raise StatementError(f"{row} has no variable and cannot hold: 0 {rule.relation} {side:g}")
        condition = said.condition.formula if said.condition is not None else None
        return RowBlock(
            name,
            e.index,
            rule.relation,
            rows,
            columns,
            values,
            rhs,
            e._unit,
            said.left,
            said.right,
            condition,
            words,
            dual,
        )

    def _own(self, expression: Expression, what: str) -> None:
        mine = {block.token for block in self.blocks.values()}
        if expression._owner.family is not self.family or not expression._blocks <= mine:
            raise StatementError(f"{what}: uses variables of another problem; take those of this one: p[name]")

    def cross(self, first: Expression, second: Expression) -> tuple[Expression, Expression]:
        """Both over all combinations of their members, so that they meet: ``a, b = p.cross(x, y)``."""
        return cross(first, second)

    # ---- objectives

    def minimize(self, name: str, expression: Any, *, within: Any = 0, words: str = "", unit: str = "") -> None:
        """Add an objective after those before it, to be minimised among their optima.

        Parameters
        ----------
        name
            Of the objective.
        expression
            One expression; use ``.sum()``.
        within
            How much of this optimum later objectives may give up: a number in its unit, or a share such as ``"1 %"``.
        words, unit
            What it is.
        """
        self._objective(name, expression, False, within, words, unit)

    def maximize(self, name: str, expression: Any, *, within: Any = 0, words: str = "", unit: str = "") -> None:
        """Add an objective to be maximised; parameters as in `minimize`."""
        self._objective(name, expression, True, within, words, unit)

    def maximize_in_order(self, name: str, expression: Expression, *, words: str = "") -> None:
        """Add an objective for each label of a level, one after the other in the order of the labels.

        Parameters
        ----------
        name
            Of the objectives: ``name_label``.
        expression
            One member for each label of one level, such as ``y.sum(by="step")``.
        words
            What it is.

        Examples
        --------
        >>> import flowlex as fx
        >>> p = fx.Problem("fair")
        >>> y = p.variables("y", job=["a", "b"], step=range(1, 3), binary=True)
        >>> p.maximize_in_order("share", y.sum(by="step"))
        >>> [o.name for o in p.objectives]
        ['share_1', 'share_2']
        """
        self._in_order(name, expression, True, words)

    def minimize_in_order(self, name: str, expression: Expression, *, words: str = "") -> None:
        """As `maximize_in_order`, minimised."""
        self._in_order(name, expression, False, words)

    @whole_or_not
    def _in_order(self, name: str, expression: Expression, maximize: bool, words: str) -> None:
        if not isinstance(expression, Expression) or len(expression.index.keys) != 1:
            raise StatementError(
                f"objective {name!r}: expected a member for each label of one level, got {expression!r}"
            )
        (level,) = expression.index.keys
        for label in expression.index.labels(level):
            one = expression.sel(**{level: label})._like(formula=("each", level, expression.formula))
            self._objective(f"{name}_{label}", one, maximize, 0, words or name, "", sorted_of=name)

    @whole_or_not
    def _objective(
        self, name: str, expression: Any, maximize: bool, within: Any, words: str, unit: str, sorted_of: str = ""
    ) -> None:
        _checked_name(name, "an objective")
        _checked_words(f"objective {name!r}", words, unit)
        if name in self.rows or name in {o.name for o in self.objectives}:
            raise StatementError(f"rows or an objective named {name!r} exist already; choose another name")
        e = (
            expression
            if isinstance(expression, Expression)
            else self.as_data(expression, f"objective {name!r}", _SINGLE)
        )
        self._own(e, f"objective {name!r}")
        if e.index.keys or e.index.count != 1:
            raise StatementError(f"objective {name!r}: {e!r} is not one number; use .sum()")
        _, columns, values = _summed(e._rows, e._columns, e._values, self.column_count)
        amount, relative = _within(name, within)
        self.objectives.append(
            Objective(
                name,
                columns,
                values,
                float(e._constant[0]),
                e._unit,
                maximize,
                e.formula,
                amount,
                relative,
                words,
                unit,
                sorted_of,
            )
        )

    # ---- as a program

    @property
    def column_count(self) -> int:
        """Number of variables."""
        return sum(block.index.count for block in self.blocks.values())

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return sum(block.index.count for block in self.rows.values())

    def column_names(self) -> list[str]:
        """Names of all variables, ``x[ann,mon]``, in the order of columns."""
        return [name for block in self.blocks.values() for name in block.names()]

    def row_names(self) -> list[str]:
        """Names of all rows, in order."""
        return [name for block in self.rows.values() for name in block.names()]

    def arrays(self, objective: int | None = 0) -> LinearProgramArrays:
        """The program of one objective for a solver, without the others (None: without any)."""
        blocks, rows, n = list(self.blocks.values()), list(self.rows.values()), self.column_count
        starts = np.cumsum([0, *(block.index.count for block in rows)])
        matrix = scipy.sparse.coo_array(
            (
                _joined([to_floats(b.values, b.unit) for b in rows], np.float64),
                (
                    _joined([b.rows + s for b, s in zip(rows, starts.tolist(), strict=False)], np.int32),
                    _joined([b.columns for b in rows], np.int32),
                ),
            ),
            shape=(int(starts[-1]), n),
        ).tocsc()
        rhs = _joined([to_floats(b.rhs, b.unit) for b in rows], np.float64)
        relation = np.repeat([b.relation for b in rows] or ["=="], [b.index.count for b in rows] or [0])
        chosen = self.objectives[objective] if objective is not None and self.objectives else None
        return LinearProgramArrays(
            matrix=matrix,
            row_lower=np.where(relation == "<=", -np.inf, rhs),
            row_upper=np.where(relation == ">=", np.inf, rhs),
            column_lower=_joined([b.lower for b in blocks], np.float64),
            column_upper=_joined([b.upper for b in blocks], np.float64),
            cost=chosen.cost(n) if chosen else np.zeros(n),
            offset=chosen.offset if chosen else 0.0,
            integrality=_joined([b.integer for b in blocks], np.bool_),
            maximize=chosen.maximize if chosen else False,
        )

    def copy(self: StatementT) -> StatementT:
        """The same problem, to which more can be added without changing this one."""
        fresh = type(self).__new__(type(self))
        fresh.__dict__.update(self.__dict__)
        for name in ("levels", "level_words", "blocks", "rows", "symbols"):
            setattr(fresh, name, dict(getattr(self, name)))
        fresh.objectives = list(self.objectives)
        return fresh

    # ---- as mathematics

    def writer(self, *, tex: bool = True) -> Writer:
        """Writes the formulas of this problem with one letter for each level."""
        return Writer(formulas.index_letters(self.levels), tex=tex)

    def row(self, name: str, **labels: Any) -> str:
        """One row with its numbers, as text.

        Examples
        --------
        >>> import flowlex as fx
        >>> p = fx.Problem("shifts")
        >>> x = p.variables("x", worker=["ann", "bob"], shift=["day", "night"], binary=True)
        >>> p.constrain("cover", x.sum(by="shift") >= 1)
        >>> print(p.row("cover", shift="day"))
        cover[day]: x[ann,day] + x[bob,day] >= 1
        """
        block = known("rows named", name, self.rows)
        found = np.ones(block.index.count, bool)
        for level, label in labels.items():
            if level not in block.index.levels:
                raise StatementError(f"rows {name!r} have " + nearest("level", level, block.index.names))
            found &= block.index.codes[level] == block.index.levels[level].codes([label], f"row of {name!r}")[0]
        members = np.flatnonzero(found)
        if len(members) != 1:
            raise StatementError(
                f"{len(members)} rows {name!r} have these labels; give one label of each of {block.index.keys}"
            )
        return self.written_row(block, int(members[0]))

    def written_row(self, block: RowBlock, member: int, most: int | None = None) -> str:
        """One row with its numbers, as text; of more terms than ``most`` the first, and how many there are."""
        mine = np.flatnonzero(block.rows == member)
        count = len(mine)
        if most is not None and count > most:
            mine = mine[: most // 2]
        values = to_floats(block.values[mine], block.unit)
        text = linear_text(self.names_of(block.columns[mine]), values.tolist())
        if len(mine) < count:
            text += f" + ... ({count} terms)"
        side = _in_full(float(to_floats(block.rhs[member : member + 1], block.unit)[0]))
        return f"{block.names(np.array([member]))[0]}: {text or '0'} {block.relation} {side}"

    def written_bounds(self, column: int) -> str:
        """The bounds of one variable, as text."""
        block = next(b for b in self.blocks.values() if b.start <= column < b.start + b.index.count)
        k = column - block.start
        low, high, (name,) = float(block.lower[k]), float(block.upper[k]), block.names(np.array([k]))
        if np.isinf(low) or np.isinf(high):
            return f"{name} >= {_in_full(low)}" if np.isinf(high) else f"{name} <= {_in_full(high)}"
        return f"{name} = {_in_full(low)}" if low == high else f"{_in_full(low)} <= {name} <= {_in_full(high)}"

    def names_of(self, columns: Iterable[int]) -> list[str]:
        """Names of some columns."""
        listed = np.asarray(list(columns), np.int64)
        found = [""] * len(listed)
        for block in self.blocks.values():
            inside = np.flatnonzero((listed >= block.start) & (listed < block.start + block.index.count))
            for k, name in zip(inside.tolist(), block.names(listed[inside] - block.start), strict=True):
                found[k] = name
        return found


def linear_text(names: Sequence[str], values: Sequence[float]) -> str:
    """``2 x + y - 3 z``."""
    text = ""
    for name, value in zip(names, values, strict=True):
        size = "" if abs(value) == 1 else f"{_in_full(abs(value))} "
        sign = "-" if value < 0 else "+"
        text += f" {sign} {size}{name}" if text else ("-" if value < 0 else "") + size + name
    return text


def _without_condition(problem: Statement, name: str, rule: Rule) -> list[tuple[str, Rule]]:
    """The rule as plain rules: switched off by the smallest safe number where its condition does not hold."""
    if rule.condition is None:
        return [("", rule)]
    condition = rule.condition
    problem._own(condition, f"rows {name!r}")
    off = 1 - condition
    low, high = _range_of(problem, condition)
    if not len(condition._rows) or (low < 0).any() or (high > 1).any() or not _integral(problem, condition):
        raise StatementError(f"rows {name!r}: when() takes a binary variable y, or 1 - y; got {condition!r}")
    parts = []
    for relation in ("<=", ">=") if rule.relation == "==" else (rule.relation,):
        e = rule.expression if relation == "<=" else -rule.expression
        _, top = _range_of(problem, e)
        if np.isinf(top).any():
            k = int(np.argmax(np.isinf(top)))
            free = _unbounded_in(problem, e, k)
            raise StatementError(f"rows {name!r}: when() needs a bound of {free}; give it one in variables(...)")
        needed = np.maximum(top, 0.0)
        numbers, unit = exact_numbers(needed)
        size = constants(problem, e.index, numbers, unit, ("numbers", "M", e.index.keys))
        switched = e <= size * off
        suffix = "" if rule.relation != "==" else ("_upper" if relation == "<=" else "_lower")
        parts.append(
            (suffix, switched if relation == "<=" else Rule(-switched.expression, ">=", rule.left, rule.right))
        )
    return parts


def _range_of(problem: Statement, e: Expression) -> tuple[Floats, Floats]:
    """Smallest and largest value of each member within the bounds of the variables."""
    lower = _joined([b.lower for b in problem.blocks.values()], np.float64)
    upper = _joined([b.upper for b in problem.blocks.values()], np.float64)
    rows, columns, exact = _summed(e._rows, e._columns, e._values, problem.column_count)
    values = to_floats(exact, e._unit)
    at_low, at_high = values * lower[columns], values * upper[columns]
    constant = to_floats(e._constant, e._unit)
    low = constant + np.bincount(rows, np.minimum(at_low, at_high), e.index.count)
    high = constant + np.bincount(rows, np.maximum(at_low, at_high), e.index.count)
    return low, high


def _integral(problem: Statement, e: Expression) -> bool:
    integer = _joined([b.integer for b in problem.blocks.values()], np.bool_)
    return bool(integer[e._columns].all())


def _unbounded_in(problem: Statement, e: Expression, member: int) -> str:
    mine = e._rows == member
    lower = _joined([b.lower for b in problem.blocks.values()], np.float64)[e._columns[mine]]
    upper = _joined([b.upper for b in problem.blocks.values()], np.float64)[e._columns[mine]]
    worst = np.where(e._values[mine] > 0, upper, lower)
    return problem.names_of(e._columns[mine][np.isinf(worst)][:1].tolist())[0]


def _summed(rows: Positions, columns: Positions, values: Floats, count: int) -> tuple[Positions, Positions, Floats]:
    """Terms in order of their row, terms of one variable added, zeros left out."""
    if not len(rows):
        return rows, columns, values
    key = rows * count + columns
    if (key[1:] > key[:-1]).all():
        kept = values != 0
        return (rows, columns, values) if kept.all() else (rows[kept], columns[kept], values[kept])
    # Rows are sorted by counting; most terms are then in order, as those of a sum are.
    each = np.arange(len(rows), dtype=np.int64)
    order: Positions = scipy.sparse.coo_array((each, (rows, each)), shape=(int(rows.max()) + 1, len(rows))).tocsr().data
    sorted_key = key[order]
    if not (sorted_key[1:] >= sorted_key[:-1]).all():
        order = np.argsort(key, kind="stable")
        sorted_key = key[order]
    first = np.concatenate([[True], sorted_key[1:] != sorted_key[:-1]])
    summed = np.add.reduceat(values[order], np.flatnonzero(first)) if not first.all() else values[order]
    at = order[first]
    kept = summed != 0
    return rows[at][kept], columns[at][kept], summed[kept]


def _within(name: str, within: Any) -> tuple[Fraction, bool]:
    relative = isinstance(within, str)
    try:
        if isinstance(within, str):
            if not within.strip().endswith("%"):
                raise ValueError
            amount = Fraction(within.strip()[:-1].strip()) / 100
        elif isinstance(within, bool):
            raise ValueError
        else:
            amount = Fraction(repr(within)) if isinstance(within, float) else Fraction(within)
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise StatementError(
            f"objective {name!r}: within= is a number or a share such as '1 %', got {within!r}"
        ) from error
    if amount < 0:
        raise StatementError(f"objective {name!r}: within= must be at least 0, got {within!r}")
    return amount, relative


def _checked_name(name: Any, what: str) -> str:
    if not isinstance(name, str) or not name:
        raise StatementError(f"{what}: expected a name as text, got {name!r}")
    if any(c in name for c in "[]\n\r\t"):
        raise StatementError(f"{what}: the name {name!r} must not contain brackets, tabs or line breaks")
    return name


def _checked_words(what: str, *texts: Any) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise StatementError(f"{what}: expected words and units as text, got {text!r}")


def _frame(values: Any, what: str, keys: Sequence[str] | None = None) -> Any:
    import pandas as pd

    if keys is None:
        raise StatementError(f"{what}: expected a DataFrame, a Series or a pandas Index, got {type(values).__name__}")
    rows = [each if isinstance(each, tuple) else (each,) for each in values]
    if any(len(row) != len(keys) for row in rows):
        raise StatementError(
            f"{what}: expected tuples of {len(keys)} labels, got {next(r for r in rows if len(r) != len(keys))!r}"
        )
    columns: dict[str, Any] = {}
    for k, key in enumerate(keys):
        column = np.empty(len(rows), object)
        column[:] = [row[k] for row in rows]
        columns[key] = column
    return pd.DataFrame(columns)


def _joined(parts: Sequence[Any], dtype: Any) -> Any:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.zeros(0, dtype)


def _hashable(label: Any) -> bool:
    try:
        hash(label)
    except TypeError:
        return False
    return True


def _in_full(value: float) -> str:
    """The shortest digits that read back to the number."""
    return f"{value:.15g}" if float(f"{value:.15g}") == value else repr(value)


def _short(value: Any) -> str:
    return str(value) if isinstance(value, (int, Fraction)) and not isinstance(value, bool) else f"{float(value):.6g}"
