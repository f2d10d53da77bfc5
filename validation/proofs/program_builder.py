"""Build a problem in exact numbers block by block: arrays or single rows, integers times a unit, labels when needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.block_labels import label_text, label_texts
from flowlex.validation.proofs.exact_program import (
    SAFE,
    Bounds,
    ColumnBlock,
    Exact,
    ExactProgram,
    Labels,
    Objective,
    Positions,
    RowBlock,
    common_unit,
    scaled,
)

Number: TypeAlias = int | Fraction
Terms: TypeAlias = dict[int, Number]
#: One number for all; numbers one by one; an array of integers, or of floats as the binary numbers that they are;
#: integers times a unit.
Values: TypeAlias = Number | Sequence[Number] | NDArray[Any] | Exact
#: The rows that labels stand for, and which label each of them has (see `RowBlock.runs`).
Runs: TypeAlias = Callable[[Sequence[str]], tuple[Positions, Positions]]

_ONE = Fraction(1)


@dataclass
class _SingleRows:
    relation: str
    terms: dict[str, Mapping[int, Number]] = field(default_factory=dict)
    rhs: list[Number] = field(default_factory=list)


class ProgramBuilder:
    """Collects columns, rows and objectives, then makes the `program`."""

    def __init__(self) -> None:
        self.count: int = 0
        self.objectives: list[Objective] = []
        self._columns: list[ColumnBlock] = []
        self._lower: list[Bounds] = []
        self._upper: list[Bounds] = []
        self._integer: list[NDArray[np.bool_]] = []
        self._rows: dict[str, RowBlock | _SingleRows] = {}

    def columns(
        self,
        name: str,
        labels: Sequence[Labels] | Callable[[], Sequence[Labels]],
        count: int | None = None,
        *,
        keys: Sequence[str] = (),
        texts: Callable[[], list[str]] | None = None,
        lower: Values | Bounds = 0,
        upper: Values | Bounds = 1,
        integer: bool | NDArray[np.bool_] = True,
    ) -> int:
        """Declare columns and return the first.

        Parameters
        ----------
        name
            Name of the block.
        labels, count
            Labels by level of each column, or what makes them; then their number.
        keys, texts
            The levels of the columns' names (all, in order, when empty), or what makes the names.
        lower, upper
            Bounds; floats are taken as the shortest decimals that read back to them, and infinite ones are missing.
        integer
            Whether columns are integer.
        """
        made = labels if callable(labels) else (lambda: labels)
        start, size = self.count, len(labels) if count is None and not callable(labels) else count or 0

        def names() -> list[str]:
            every = made()
            named = tuple(keys) or (tuple(every[0]) if every else ())
            return [label_text(each[k] for k in named) for each in every]

        self._columns.append(ColumnBlock(name, start, size, texts or names, made))
        self._lower.append(_side(lower, size))
        self._upper.append(_side(upper, size))
        self._integer.append(np.full(size, integer) if isinstance(integer, bool) else integer)
        self.count += size
        return start

    def rows(
        self,
        name: str,
        relation: str,
        labels: Sequence[str] | Callable[[], list[str]],
        rhs: Values,
        *terms: tuple[Positions, Positions, Values],
        empty: bool = False,
        runs: Runs | None = None,
    ) -> None:
        """Add all rows of a name; ``terms``: row, column and value of each; ``empty``: even if there are no rows."""
        sized: Any = rhs.numbers if isinstance(rhs, Exact) else rhs
        count = len(sized if callable(labels) else labels)
        if not count and not empty:
            return
        row, column = _joined([term[0] for term in terms]), _joined([term[1] for term in terms])
        value, side = _together(*(_exact(v, len(r)) for r, _, v in terms)), _exact(rhs, count)
        value, side = _same_unit(value, side)
        texts = labels if callable(labels) else (lambda: list(labels))
        self._rows[name] = RowBlock(
            name, count, relation, row, column, value.numbers, side.numbers, value.unit, texts, runs
        )

    def row(self, name: str, label: str, terms: Mapping[int, Number], relation: str, rhs: Number) -> None:
        """Add a row."""
        rows = self._rows.setdefault(name, _SingleRows(relation))
        if not isinstance(rows, _SingleRows) or rows.relation != relation or label in rows.terms:
            raise ValueError(f"row {name}[{label}] is stated twice, or with another relation")
        rows.terms[label] = terms
        rows.rhs.append(rhs)

    def objective(
        self,
        name: str,
        *terms: tuple[Positions, Values] | Mapping[int, Number],
        constant: Exact | None = None,
        maximize: bool = False,
        **more: Any,
    ) -> None:
        """Add an objective, after those added before; ``constant``: one number; ``more``: fields of `Objective`."""
        parts = [t if isinstance(t, tuple) else (np.array([*t], np.int64), [*t.values()]) for t in terms]
        column = _joined([columns for columns, _ in parts])
        value = _together(*(_exact(values, len(columns)) for columns, values in parts))
        value, added = _same_unit(value, constant or Exact(np.zeros(1, np.int64), value.unit))
        self.objectives.append(
            Objective(name, column, value.numbers, int(added.numbers[0]), value.unit, maximize, **more)
        )

    def counts(self, names: Sequence[str], columns: Sequence[Positions]) -> None:
        """Add objectives that maximise the sums of these columns, after those added before."""
        ones = np.ones(max(map(len, columns), default=0), np.int64)
        self.objectives += [
            Objective(name, each, ones[: len(each)], 0, _ONE, maximize=True)
            for name, each in zip(names, columns, strict=True)
        ]

    def program(self, tolerance: float = 1e-7) -> ExactProgram:
        """The problem."""
        rows = {
            name: listed_rows(name, each.relation, each.terms, each.rhs) if isinstance(each, _SingleRows) else each
            for name, each in self._rows.items()
        }
        lower, upper = (
            Bounds(_together(*(side.at for side in sides)), _joined([side.missing for side in sides], bool))
            for sides in (self._lower, self._upper)
        )
        integer = _joined(self._integer, bool)
        return ExactProgram(self._columns, lower, upper, integer, rows, self.objectives, tolerance)


def texts_at(*parts: tuple[Sequence[str], Positions]) -> list[str]:
    """Labels as text of names and the positions of those that are meant, one pair for each level."""
    return label_texts([[names[k] for k in at.tolist()] for names, at in parts])


def _exact(values: Values, count: int) -> Exact:
    """Numbers of a block. Raises `ValueError`: one of them is not finite, such as that of a field without a value."""
    if isinstance(values, Exact):
        return values
    if type(values) is int and -SAFE < values < SAFE:
        return Exact(np.full(count, values, np.int64))
    if isinstance(values, (int, Fraction, np.integer)):
        one = Exact.of([values])
        return Exact(np.full(count, one.numbers[0], one.numbers.dtype), one.unit)
    if isinstance(values, np.ndarray):
        if values.dtype.kind != "f":
            return Exact(values)
        if not np.isfinite(values).all():
            raise ValueError("the instance does not have the data of some numbers")
        return Exact.of_floats(values)
    return Exact.of(values)


def _side(values: Values | Bounds, count: int) -> Bounds:
    if isinstance(values, Bounds):
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return Bounds.of_floats(values)
    return Bounds(_exact(values, count), np.zeros(count, bool))


def _joined(parts: Sequence[NDArray[Any]], kind: Any = np.int64) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, kind), *parts])


def _same_unit(*parts: Exact) -> list[Exact]:
    first = next((part.unit for part in parts if len(part.numbers)), _ONE)
    if all(part.unit is first or part.unit == first or not len(part.numbers) for part in parts):
        return [part if part.unit is first else Exact(part.numbers, first) for part in parts]
    unit = common_unit(part.unit for part in parts)
    return [Exact(scaled(part.numbers, int(part.unit / unit)), unit) for part in parts]


def _together(*parts: Exact) -> Exact:
    same = _same_unit(*parts)
    return Exact(_joined([part.numbers for part in same]), same[0].unit if same else Fraction(1))


def listed_rows(name: str, relation: str, terms: Mapping[str, Mapping[int, Number]], rhs: Sequence[Number]) -> RowBlock:
    """Rows one by one: the coefficients of each by its label and by column, and the sides."""
    many = [len(each) for each in terms.values()]
    values: list[Any] = [v for each in terms.values() for v in each.values()]
    both, k = Exact.of([*values, *rhs]), len(values)
    column = np.array([c for each in terms.values() for c in each], np.int64)
    row, texts = np.repeat(np.arange(len(many)), many), list(terms)
    numbers = both.numbers[:k], both.numbers[k:]
    return RowBlock(name, len(many), relation, row, column, *numbers, both.unit, lambda: texts)
