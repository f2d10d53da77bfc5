"""Vectors of variables and of linear expressions, as index and coefficient arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from flowlex.formulations.program_arrays import Floats, Integers

__all__ = ["Expression", "Floats", "Integers", "Variables"]


class Expression:
    """``count`` linear expressions: term k adds ``value[k] * x[column[k]]`` to expression ``row[k]``.

    Built by the operations below; terms of the same variable are summed when the program is lowered.

    Attributes
    ----------
    row, column
        (terms,) int64.
    value
        (terms,) float64.
    constant
        (count,) float64.
    """

    __array_ufunc__ = None  # numpy arrays on the left defer to our operators
    __slots__ = ("column", "constant", "row", "value")
    row: Integers
    column: Integers
    value: Floats
    constant: Floats

    def __init__(self, row: Integers, column: Integers, value: Floats, constant: Floats) -> None:
        self.row, self.column, self.value, self.constant = row, column, value, constant

    @classmethod
    def empty(cls, count: int) -> Expression:
        """``count`` expressions that are zero.

        Parameters
        ----------
        count
            Number of expressions, at least 0.
        """
        none = np.zeros(0, np.int64)
        return cls(none, none, np.zeros(0), np.zeros(count))

    @property
    def count(self) -> int:
        """How many expressions."""
        return len(self.constant)

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<{self.count} expressions, {len(self.value)} terms>"

    def __getitem__(self, which: Any) -> Expression:
        """The expressions of an index array, mask or slice, renumbered from zero."""
        chosen = np.arange(self.count)[which]
        chosen = np.atleast_1d(chosen)
        if len(np.unique(chosen)) < len(chosen):
            raise IndexError("an expression may be selected only once")
        new = np.full(self.count, -1)
        new[chosen] = np.arange(len(chosen))
        kept = new[self.row] >= 0
        return Expression(new[self.row[kept]], self.column[kept], self.value[kept], self.constant[chosen])

    def __add__(self, other: Expression | ArrayLike) -> Expression:
        if not isinstance(other, Expression):
            return Expression(self.row, self.column, self.value, self.constant + _each(other, self.count))
        if other.count != self.count:
            raise ValueError(f"cannot add {self.count} expressions to {other.count}")
        return Expression(
            np.concatenate([self.row, other.row]),
            np.concatenate([self.column, other.column]),
            np.concatenate([self.value, other.value]),
            self.constant + other.constant,
        )

    def __sub__(self, other: Expression | ArrayLike) -> Expression:
        return self + (other * -1.0 if isinstance(other, Expression) else -_each(other, self.count))

    def __rsub__(self, other: ArrayLike) -> Expression:
        return self * -1.0 + other

    def __neg__(self) -> Expression:
        return self * -1.0

    def __mul__(self, factor: ArrayLike) -> Expression:
        """Multiply every expression by one number or by its own number."""
        if isinstance(factor, Expression):
            raise TypeError("the product of two expressions is not linear")
        each = _each(factor, self.count)
        return Expression(self.row, self.column, self.value * each[self.row], self.constant * each)

    __radd__ = __add__
    __rmul__ = __mul__

    def evaluate(self, values: ArrayLike) -> Floats:
        """(count,) value of every expression where the program's columns have these values.

        Parameters
        ----------
        values
            (n,) one number per column of the program.

        Raises
        ------
        IndexError
            An expression uses a column beyond the last value.
        """
        x = np.asarray(values, np.float64)
        terms = np.bincount(self.row, weights=self.value * x[self.column], minlength=self.count)
        return np.asarray(terms + self.constant)

    def sum(self) -> Expression:
        """The sum of all expressions, as one."""
        return Expression(np.zeros(len(self.row), np.int64), self.column, self.value, np.array([self.constant.sum()]))

    def sum_by(self, key: ArrayLike, groups: int | None = None) -> Expression:
        """Sum the expressions that share a key: row g of the result is the sum over ``key == g``.

        Parameters
        ----------
        key
            (count,) integers in ``0 .. groups - 1``.
        groups
            How many sums; the largest key plus one when omitted. A group without members is zero.
        """
        keys = np.asarray(key)
        if keys.size and keys.dtype.kind not in "iu":
            raise ValueError(f"sum_by keys must be integers, got {keys.dtype}")
        keys = keys.astype(np.int64)
        if keys.shape != (self.count,):
            raise ValueError(f"sum_by needs one key per expression: {self.count}, got shape {keys.shape}")
        number = groups if groups is not None else int(keys.max(initial=-1)) + 1
        if len(keys) and (keys.min() < 0 or keys.max() >= number):
            raise ValueError(f"sum_by keys must lie in 0..{number - 1}, got {keys.min()}..{keys.max()}")
        constant = np.bincount(keys, weights=self.constant, minlength=number).astype(np.float64)
        return Expression(keys[self.row], self.column, self.value, constant)


class Variables(Expression):
    """A vector of variables of one program: one expression for each, of that variable alone.

    Attributes
    ----------
    column
        (count,) int64, the columns of the program.
    """

    __slots__ = ()

    def __init__(self, column: Integers) -> None:
        count = len(column)
        super().__init__(np.arange(count), column, np.ones(count), np.zeros(count))

    def __repr__(self) -> str:
        return f"<{len(self)} variables>"

    def __getitem__(self, which: Any) -> Variables:
        """The variables of an index array, mask or slice; one may be chosen several times."""
        return Variables(np.atleast_1d(self.column[which]))

    def repeated(self, count: int) -> Variables:
        """Repeat a single variable in ``count`` rows.

        Parameters
        ----------
        count
            Number of rows, at least 0.

        Raises
        ------
        ValueError
            There is more than one variable, or none.
        """
        if len(self) != 1:
            raise ValueError(f"only a single variable can be repeated, there are {len(self)}")
        return Variables(np.repeat(self.column, count))


def _each(value: ArrayLike, count: int) -> Floats:
    """One number per expression; a longer array must not stretch a single expression."""
    numbers = np.asarray(value, np.float64)
    if numbers.ndim > 1 or (numbers.ndim == 1 and len(numbers) != count):
        raise ValueError(f"expected one number or {count}, one per expression; got shape {numbers.shape}")
    if not np.isfinite(numbers).all():
        raise ValueError("expressions are made of finite numbers; NaN and infinity are not")
    return np.broadcast_to(numbers, (count,))
