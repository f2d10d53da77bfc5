"""A problem in exact numbers: columns, rows and objectives as integers times a unit, with names and labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Integers: 64 bits, or Python's where these would overflow.
Whole: TypeAlias = NDArray[Any]
Positions: TypeAlias = NDArray[np.int64]
#: Label of a column by level.
Labels: TypeAlias = Mapping[str, Any]
#: Sums of products below this stay within 64 bits.
SAFE = 2.0**62
#: Coefficients below this are not worth a common divisor.
_LARGE = 2.0**31
#: Largest common denominator, in bits: a file of many unlike denominators must not grow without end.
MOST_BITS = 1 << 16


@dataclass(frozen=True, eq=False)
class Exact:
    """A vector ``numbers * unit``."""

    numbers: Whole
    unit: Fraction = Fraction(1)

    @classmethod
    def of(cls, values: Iterable[Fraction | int]) -> Exact:
        """Any rationals, in their largest common unit.

        Raises `OverflowError`: their common denominator has too many digits.
        """
        listed = list(values)
        if all(type(v) is int for v in listed):
            return cls(narrow(listed))  # type: ignore[arg-type]
        common = 1
        for below in {v.denominator for v in listed}:
            common = math.lcm(common, below)
            if common.bit_length() > MOST_BITS:
                raise OverflowError("the common denominator of these numbers has too many digits")
        return cls(narrow([v.numerator * (common // v.denominator) for v in listed]), Fraction(1, common))

    @classmethod
    def of_floats(cls, values: NDArray[np.float64]) -> Exact:
        """Finite floats as the binary numbers they are."""
        mantissa, exponent = np.frexp(values)
        whole, shift = (mantissa * 2.0**53).astype(np.int64), exponent.astype(np.int64) - 53
        used = whole != 0
        if not used.any():
            return cls(whole)
        zeros = np.zeros(len(whole), np.int64)  # trailing zero bits
        zeros[used] = np.log2((whole[used] & -whole[used]).astype(np.float64)).astype(np.int64)
        whole, shift = whole >> zeros, shift + zeros
        lowest = int(shift[used].min())
        places = np.where(used, shift - lowest, 0)
        size = float(np.max(np.log2(np.abs(whole[used]).astype(np.float64)) + places[used]))
        unit = Fraction(2) ** lowest
        if size < 61:
            return cls(whole << places, unit)
        return cls(np.array([w << p for w, p in zip(whole.tolist(), places.tolist(), strict=True)], object), unit)

    @property
    def floats(self) -> NDArray[np.float64]:
        """The nearest floats; infinite where a number is too large for one."""
        try:
            return np.asarray(self.numbers, np.float64) * float(self.unit.numerator) / float(self.unit.denominator)
        except OverflowError:
            return np.array([to_float(int(v) * self.unit) for v in self.numbers.tolist()], np.float64)

    def __getitem__(self, k: int) -> Fraction:
        return int(self.numbers[k]) * self.unit


def to_float(value: Fraction | int) -> float:
    """The nearest float; infinite if there is none."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def narrow(values: Sequence[int]) -> Whole:
    """Integers in 64 bits if all of them fit."""
    try:
        return np.array(values, np.int64).reshape(-1)
    except OverflowError:
        return np.array(values, object).reshape(-1)


def largest(values: Whole) -> float:
    """Largest absolute value."""
    if not len(values):
        return 0.0
    if values.dtype == object:
        listed = values.tolist()
        return to_float(max(max(listed), -min(listed)))
    return float(max(int(np.maximum.reduce(values)), -int(np.minimum.reduce(values))))


def smallest(values: Whole) -> int:
    """Smallest absolute value; 0 without any."""
    return int(np.abs(values).min()) if len(values) else 0


def dot(a: Whole, b: Whole) -> int:
    """``sum(a * b)``, exactly."""
    if not len(a):
        return 0
    if a.dtype != object and b.dtype != object and largest(a) * largest(b) * len(a) < SAFE:
        return int(np.dot(a, b))
    used = np.flatnonzero(b)  # bounds are 0 mostly
    return sum(x * y for x, y in zip(a[used].tolist(), b[used].tolist(), strict=True))


def scaled(values: Whole, factor: int) -> Whole:
    """``values * factor``, exactly."""
    if factor == 1:
        return values
    small = to_float(abs(factor)) * max(largest(values), 1.0) < SAFE
    return values * factor if small else values.astype(object) * factor


def labelled(name: str, label: str) -> str:
    """A row or variable for a message; alone of its name it has no label."""
    return f"{name}[{label}]" if label else name


def common_unit(units: Iterable[Fraction]) -> Fraction:
    """The largest unit of which all are integer multiples; 1 if there is none but zeros."""
    listed = [*units]
    above = math.gcd(*[unit.numerator for unit in listed])
    below = math.lcm(*[unit.denominator for unit in listed])
    return Fraction(above, below) if above else Fraction(1)


@dataclass(frozen=True, eq=False)
class Bounds:
    """One side of the columns: numbers, and where there is none."""

    at: Exact
    missing: NDArray[np.bool_]

    @classmethod
    def of_floats(cls, values: NDArray[np.float64]) -> Bounds:
        """Floats as the shortest decimals that read back to them; infinite ones are missing."""
        missing = ~np.isfinite(values)
        plain = np.where(missing, 0.0, values)
        if (plain == np.rint(plain)).all() and np.abs(plain).max(initial=0) < 2.0**62:
            return cls(Exact(plain.astype(np.int64)), missing)
        distinct, place = np.unique(plain, return_inverse=True)
        few = Exact.of(Fraction(repr(v)) for v in distinct.tolist())
        return cls(Exact(few.numbers[place], few.unit), missing)


@dataclass(frozen=True, eq=False)
class ColumnBlock:
    """Columns of one name, from ``start`` on."""

    name: str
    start: int
    count: int
    texts: Callable[[], list[str]]  # labels as text, made when they are needed
    #: Labels by level, by which changes select columns.
    levels: Callable[[], Sequence[Labels]] = list

    @cached_property
    def written(self) -> list[str]:
        """Labels as text."""
        return self.texts()

    @cached_property
    def places(self) -> dict[str, int]:
        """Column of each label."""
        return dict(zip(self.written, range(self.start, self.start + self.count), strict=True))

    @cached_property
    def labels(self) -> Sequence[Labels]:
        """Labels by level of each column."""
        return self.levels()


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Rows of one name: ``sum of values * unit relation rhs * unit``."""

    name: str
    count: int
    relation: str
    row: Positions
    column: Positions
    value: Whole
    rhs: Whole
    unit: Fraction
    texts: Callable[[], list[str]]
    #: Rows that labels stand for, and which label each of them has, where one may stand for a run of an ordered level.
    runs: Callable[[Sequence[str]], tuple[Positions, Positions]] | None = None

    @cached_property
    def written(self) -> list[str]:
        """Labels as text."""
        return self.texts()

    @cached_property
    def places(self) -> dict[str, int]:
        """Position of each label."""
        return dict(zip(self.written, range(self.count), strict=True))

    @cached_property
    def once(self) -> bool:
        """Whether no column occurs twice."""
        if len(self.column) < 2:
            return True
        return int(np.bincount(self.column).max()) <= 1

    @cached_property
    def completion(self) -> tuple[Whole, Positions, Positions, NDArray[np.bool_], int] | None:
        """How multipliers of all rows follow from reduced costs; None: they do not.

        Of each term its multiple of the positive coefficient; columns and rows of the terms that have that coefficient;
        rows that have such a term; and the coefficient.
        """
        value = self.value
        unit = int(value.max(initial=0))
        own = value > 0
        if not self.once or (value[own] != unit).any() or (value % max(unit, 1)).any():
            return None
        filled = np.zeros(self.count, bool)
        filled[self.row[own]] = True
        return value // max(unit, 1), self.column[own], self.row[own], filled, unit

    @cached_property
    def smallest(self) -> int:
        """Smallest absolute coefficient; 0 without any."""
        return smallest(self.value)

    @cached_property
    def widest(self) -> int:
        """Most terms of a row."""
        return int(np.bincount(self.row).max()) if len(self.row) else 0

    @cached_property
    def size(self) -> float:
        """Largest of the `coefficients` times the most terms of a column."""
        if not len(self.column):
            return 0.0
        return largest(self.coefficients[0]) * float(np.bincount(self.column).max())

    @cached_property
    def coefficients(self) -> tuple[Whole, int]:
        """Coefficients divided by their divisor, and the divisor: large where sides have more digits than they."""
        if self.value.dtype != object and largest(self.value) < _LARGE:
            return self.value, 1
        divisor = math.gcd(*self.value.tolist())
        return (self.value, 1) if divisor <= 1 else (narrow((self.value // divisor).tolist()), divisor)


@dataclass(frozen=True, eq=False)
class Objective:
    """``(constant + sum of values) * unit``; later objectives may give up ``within`` (``relative``: of its size)."""

    name: str
    column: Positions
    value: Whole
    constant: int
    unit: Fraction
    maximize: bool = False
    within: Fraction = Fraction(0)
    relative: bool = False
    #: Its values are multiples of ``step * unit`` if its columns are integer; 0: of the divisor of ``value``.
    step: int = 0

    @cached_property
    def smallest(self) -> int:
        """Smallest absolute coefficient; 0 without any."""
        return smallest(self.value)

    @cached_property
    def divisor(self) -> int:
        """Largest common divisor of its coefficients; 1 if all are 0."""
        if self.value.dtype == object:
            return math.gcd(*(abs(v) for v in self.value.tolist())) or 1
        return int(np.gcd.reduce(self.value)) or 1

    @property
    def sign(self) -> int:
        """-1 if it is maximised: proofs minimise."""
        return -1 if self.maximize else 1

    def limit(self, value: Fraction) -> Fraction:
        """How large it (as a minimisation) may become in later stages when its optimum is ``value``."""
        return value + (self.within * abs(value) if self.relative else self.within)


@dataclass(frozen=True, eq=False)
class Block:
    """``count`` copies whose sums are the ``columns`` (see `flowlex.validation.proofs.blocks`).

    ``least``: a lower bound on the cost of a copy, given the reduced costs of the columns as integers and their unit;
    None: none is known.
    """

    count: int
    columns: Positions
    least: Callable[[Whole, Fraction], Fraction | None]


@dataclass(eq=False)
class ExactProgram:
    """A problem: columns with bounds, rows, objectives in strict order."""

    columns: list[ColumnBlock] = field(default_factory=list)
    lower: Bounds = field(default_factory=lambda: Bounds(Exact(np.zeros(0, np.int64)), np.zeros(0, bool)))
    upper: Bounds = field(default_factory=lambda: Bounds(Exact(np.zeros(0, np.int64)), np.zeros(0, bool)))
    integer: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    rows: dict[str, RowBlock] = field(default_factory=dict)
    objectives: list[Objective] = field(default_factory=list)
    #: Relative tolerance to which rows hold where values are fractions; 0: nothing has a tolerance, optima neither.
    tolerance: float = 1e-7
    #: By name, blocks of identical copies (see `flowlex.validation.proofs.blocks`); those of a name share no column.
    blocks: dict[str, Sequence[Block]] = field(default_factory=dict)

    @cached_property
    def integer_bounds(self) -> tuple[Whole, Whole, float] | None:
        """Bounds of all columns as integers of 64 bits, and the largest; None: one is missing or no such integer."""
        sides = self.lower.at, self.upper.at
        if self.lower.missing.any() or self.upper.missing.any() or any(side.unit.denominator > 1 for side in sides):
            return None
        low, high = (scaled(side.numbers, side.unit.numerator) for side in sides)
        return None if object in (low.dtype, high.dtype) else (low, high, max(largest(low), largest(high)))

    @cached_property
    def separable_objectives(self) -> tuple[Positions, Whole, Positions, Whole]:
        """Of the first objectives that have integer columns of their own, one unit and one sense, no reserve.

        Columns; coefficients, as a minimisation; where each objective begins; steps of their values.
        """
        these: list[Objective] = []
        for each in self.objectives:
            first = these[0] if these else each
            same = each.maximize == first.maximize and (each.unit is first.unit or each.unit == first.unit)
            if not same or each.within or each.value.dtype == object or not len(each.column):
                break
            these.append(each)
        sizes = [len(each.column) for each in these]
        column = np.concatenate([np.zeros(0, np.int64), *(each.column for each in these)])
        value = np.concatenate([np.zeros(0, np.int64), *(each.value for each in these)])
        other = (np.bincount(column, minlength=self.count)[column] > 1) | ~self.integer[column] | (value == 0)
        if other.any():
            many = int(np.searchsorted(np.cumsum(sizes), int(np.argmax(other)), side="right"))
            these, sizes = these[:many], sizes[:many]
            column, value = column[: sum(sizes)], value[: sum(sizes)]
        start = np.cumsum([0, *sizes])[: len(sizes)]
        step = np.gcd.reduceat(np.abs(value), start) if len(start) else start
        stated = np.array([each.step for each in these], np.int64)
        return column, value * (these[0].sign if these else 1), start, np.where(stated, stated, step)

    @property
    def count(self) -> int:
        """Number of columns."""
        return len(self.integer)

    @cached_property
    def column_blocks(self) -> dict[str, ColumnBlock]:
        """Columns by name."""
        return {block.name: block for block in self.columns}

    def column_text(self, column: int) -> tuple[str, str]:
        """Name and label of a column."""
        for block in self.columns:
            if block.start <= column < block.start + block.count:
                return block.name, block.written[column - block.start]
        raise IndexError(column)
