"""Variables by label, sums of them, and rules, with which a user changes a model.

No column numbers appear here: a sum is a list of terms over names and labels, which can be written to a document
(`flowlex.instances.model_changes`) directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from flowlex.formulations.block_labels import label_text
from flowlex.formulations.language.exact_units import to_floats
from flowlex.formulations.language.labels import Index, StatementError, nearest
from flowlex.formulations.language.statement import RowBlock
from flowlex.formulations.program_arrays import Booleans
from flowlex.instances.exact_rationals import rational
from flowlex.instances.model_changes import Interval, Term
from flowlex.models.problem_changes import selected
from flowlex.models.solution import ModelError

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")


class _Comparable:
    """Comparisons create rules; a rule has no truth value, so ``a <= x <= b`` raises an error."""

    __hash__ = None  # type: ignore[assignment]  # == makes a rule
    __array_ufunc__ = None

    def _sum(self) -> Sum:
        raise NotImplementedError

    def __le__(self, other: Any) -> Rule:
        return _rule(self._sum(), "<=", other)

    def __ge__(self, other: Any) -> Rule:
        return _rule(self._sum(), ">=", other)

    def __eq__(self, other: object) -> Rule:  # type: ignore[override]
        return _rule(self._sum(), "==", other)

    def __lt__(self, other: Any) -> NoReturn:
        raise ModelError("a strict < states no linear program; write <=")

    def __gt__(self, other: Any) -> NoReturn:
        raise ModelError("a strict > states no linear program; write >=")

    def __ne__(self, other: object) -> NoReturn:
        raise ModelError("!= states no linear program; write two rules with own binary variables")

    def __add__(self, other: Any) -> Sum:
        return self._sum()._plus(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Sum:
        return self._sum()._plus(other, -1)

    def __rsub__(self, other: Any) -> Sum:
        return (-self)._plus(other, 1)

    def __neg__(self) -> Sum:
        return self._sum() * -1

    def __mul__(self, factor: Any) -> Sum:
        if isinstance(factor, _Comparable):
            raise ModelError("a product of variables is not linear")
        by, mine = _number(factor, "a coefficient"), self._sum()
        terms = tuple(t.model_copy(update={"coefficient": t.coefficient * by}) for t in mine.terms)
        return Sum(terms, mine.constant * by, mine.indices)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Sum:
        by = _number(divisor, "a divisor")
        if not by:
            raise ModelError("an expression cannot be divided by 0")
        return self * (1 / by)


@dataclass(frozen=True, eq=False)
class LabelledVariables(_Comparable):
    """Variables of one name, all or some of them.

    Attributes
    ----------
    name
        Their name in the statement.
    labels
        Labels of all variables of that name.
    where
        The labels that select among them.
    """

    name: str
    labels: Index
    where: Mapping[str, Any]

    @property
    def index(self) -> pd.MultiIndex:
        """Labels of the selected variables by all levels, as a pandas MultiIndex."""
        return _pandas(self.labels, self._members)

    @property
    def _members(self) -> Booleans:
        return selected(self.labels, self.where, self.name)

    def __len__(self) -> int:
        return int(self._members.sum())

    def __repr__(self) -> str:
        chosen = "".join(f", {level}={value!r}" for level, value in self.where.items())
        return f"<variables {self.name} by {', '.join(self.labels.names) or 'nothing'}{chosen}>"

    def sel(self, **where: Any) -> LabelledVariables:
        """The variables with these labels: a label, a list of labels, or ``slice(low, high)`` over numbers.

        Raises
        ------
        ModelError
            There is no such level or label; names the nearest.

        Examples
        --------
        >>> from flowlex import generate, model_for
        >>> x = model_for(generate("network-random")).variables["flow"]
        >>> len(x.sel(tail="1")) < len(x)
        True
        """
        chosen = {level: _wanted(value) for level, value in where.items()}
        if again := chosen.keys() & self.where.keys():
            raise ModelError(
                f"{self.name}: {sorted(again)[0]!r} is selected already; select once, with a list of labels"
            )
        try:
            selected(self.labels, chosen, self.name)
        except StatementError as error:
            raise ModelError(str(error)) from error
        return replace(self, where={**self.where, **chosen})

    def sum(self, by: str | Sequence[str] = ()) -> Sum:
        """The sum of the variables; with ``by`` one sum for each combination of these levels."""
        levels = (by,) if isinstance(by, str) else tuple(by)
        for level in levels:
            if level not in self.labels.levels:
                raise ModelError(f"{self.name} has " + nearest("level", level, self.labels.names))
        return self._term(levels)

    def _sum(self) -> Sum:
        return self._term(self.labels.names)

    def _term(self, by: tuple[str, ...]) -> Sum:
        return Sum((Term(variable=self.name, where=dict(self.where), by=by),), Fraction(0), {self.name: self.labels})

    @property
    def term(self) -> Term:
        """The selection as part of a document."""
        return Term(variable=self.name, where=dict(self.where))


@dataclass(frozen=True, eq=False)
class Sum(_Comparable):
    """Linear expressions over labels: terms and a constant."""

    terms: tuple[Term, ...]
    constant: Fraction
    indices: Mapping[str, Index]

    def __repr__(self) -> str:
        return f"<{' + '.join(_written(t) for t in self.terms)}{f' + {self.constant}' if self.constant else ''}>"

    def _sum(self) -> Sum:
        return self

    def _plus(self, other: Any, sign: int) -> Sum:
        if isinstance(other, _Comparable):
            theirs = other._sum() if sign > 0 else -other
            for name, index in theirs.indices.items():
                if self.indices.get(name, index) is not index:
                    raise ModelError(f"{name} belongs to another model; take the variables of one model")
            return Sum(
                (*self.terms, *theirs.terms), self.constant + theirs.constant, {**self.indices, **theirs.indices}
            )
        return Sum(self.terms, self.constant + sign * _number(other, "a constant"), self.indices)


@dataclass(frozen=True, eq=False)
class Rule:
    """An expression compared with a number, to be added by ``with_constraint``."""

    expression: Sum
    relation: str
    rhs: Fraction | dict[str, Fraction]

    def __bool__(self) -> NoReturn:
        raise ModelError("a rule is neither true nor false; state a <= x and x <= b as two rules")

    def __repr__(self) -> str:
        return f"{self.expression!r} {self.relation} {self.rhs}"


def _rule(left: Sum, relation: str, right: Any) -> Rule:
    if isinstance(right, _Comparable):
        left, right = left - right, 0
    if not hasattr(right, "items"):  # neither a mapping nor a pandas Series
        return Rule(replace(left, constant=Fraction(0)), relation, _number(right, "a right-hand side") - left.constant)
    rhs = {_joined(k): _number(v, "a right-hand side") - left.constant for k, v in right.items()}
    return Rule(replace(left, constant=Fraction(0)), relation, rhs)


def _joined(label: Any) -> str:
    return label_text(label) if isinstance(label, tuple) else str(label)


def _number(value: Any, what: str) -> Fraction:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, str, Fraction, np.number)):
        raise ModelError(f"expected {what} as one number, got {value!r}")
    try:
        return rational(value if not isinstance(value, np.number) else value.item())
    except ValueError as error:
        raise ModelError(f"{what} is a finite number, got {value!r}") from error


def _wanted(value: Any) -> Any:
    if isinstance(value, slice):
        if value.step is not None:
            raise ModelError("a slice of labels has no step")
        return Interval(at_least=value.start, at_most=value.stop)
    if isinstance(value, (list, tuple, set, frozenset, np.ndarray)):
        return tuple(
            _plain(each) for each in (sorted(value, key=str) if isinstance(value, (set, frozenset)) else value)
        )
    return _plain(value)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _written(term: Term) -> str:
    chosen = ", ".join(f"{k}={v}" for k, v in term.where.items())
    over = f" by {', '.join(term.by)}" if term.by else ""
    factor = "" if term.coefficient == 1 else f"{term.coefficient} "
    return f"{factor}{term.variable}[{chosen}]{over}"


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows of one name, for inspection."""

    block: RowBlock
    own: bool

    def __len__(self) -> int:
        return self.block.index.count

    def __repr__(self) -> str:
        whose = "own rows" if self.own else "rows"
        return f"<{len(self)} {whose} {self.block.name} by {', '.join(self.block.index.names) or 'nothing'}>"

    def to_frame(self) -> pd.DataFrame:
        """Relation, right-hand side and number of variables by label."""
        import pandas as pd

        rhs = to_floats(self.block.rhs, self.block.unit)
        terms = np.bincount(self.block.rows, minlength=len(self))
        columns = {"relation": self.block.relation, "rhs": rhs, "variables": terms}
        return pd.DataFrame(columns, index=_pandas(self.block.index, np.ones(len(self), bool)))


class Named(dict[str, T]):
    """Members by name; an unknown name raises `ModelError` with the nearest one."""

    def __init__(self, what: str, members: Mapping[str, T]) -> None:
        super().__init__(members)
        self._what = what

    def __missing__(self, name: str) -> T:
        raise ModelError(nearest(self._what, name, self))


def _pandas(index: Index, chosen: Booleans) -> pd.MultiIndex:
    """Labels of some members by all levels."""
    import pandas as pd

    if not index.names:
        return pd.MultiIndex.from_arrays([[""] * int(chosen.sum())], names=[""])
    codes = [index.codes[name][chosen].tolist() for name in index.names]
    return pd.MultiIndex(levels=[list(index.levels[n].labels) for n in index.names], codes=codes, names=index.names)
