"""Build a problem in exact numbers block by block, from rationals by label or from arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.block_labels import label_text
from flowlex.validation.proofs.exact_program import (
    Bounds,
    ColumnBlock,
    Exact,
    ExactProgram,
    Labels,
    Objective,
    Positions,
    RowBlock,
)

Number: TypeAlias = int | Fraction
Terms: TypeAlias = dict[int, Number]


@dataclass
class _Rows:
    relation: str
    terms: dict[str, Mapping[int, Number]] = field(default_factory=dict)
    rhs: list[Number] = field(default_factory=list)


class ProgramBuilder:
    """Collects columns, rows and objectives, then makes the `program`."""

    def __init__(self) -> None:
        self.count: int = 0
        self._columns: list[ColumnBlock] = []
        self._sides: list[tuple[list[Number], list[Number], NDArray[np.bool_]]] = []
        self._rows: dict[str, _Rows] = {}
        self._blocks: dict[str, RowBlock] = {}
        self.objectives: list[Objective] = []

    def columns(
        self,
        name: str,
        labels: Sequence[Labels],
        *,
        keys: Sequence[str] = (),
        lower: Number = 0,
        upper: Number | Sequence[Number] = 1,
        integer: bool = True,
    ) -> int:
        """Declare columns and return the first; ``keys`` are the levels of their names (all, in order, when empty)."""
        start, count = self.count, len(labels)
        named = tuple(keys) or (tuple(labels[0]) if labels else ())
        self._columns.append(
            ColumnBlock(
                name, start, count, lambda: [label_text(each[k] for k in named) for each in labels], lambda: labels
            )
        )
        most = list(upper) if isinstance(upper, Sequence) else [upper] * count
        self._sides.append(([lower] * count, most, np.full(count, integer)))
        self.count += count
        return start

    def row(self, name: str, label: str, terms: Mapping[int, Number], relation: str, rhs: Number) -> None:
        """Add a row."""
        rows = self._rows.setdefault(name, _Rows(relation))
        if rows.relation != relation or label in rows.terms:
            raise ValueError(f"row {name}[{label}] is stated twice, or with another relation")
        rows.terms[label] = terms
        rows.rhs.append(rhs)

    def rows(
        self,
        name: str,
        relation: str,
        place: tuple[Positions, Positions],
        values: Exact,
        rhs: Iterable[Number],
        texts: Callable[[], list[str]],
    ) -> None:
        """Add all rows of a name; ``place``: row and column of each of the ``values``."""
        sides = [Fraction(v) / values.unit for v in rhs]
        finest = Exact.of(sides)
        times = int(1 / finest.unit)
        value = values.numbers if times == 1 else values.numbers.astype(object) * times
        unit = values.unit * finest.unit
        self._blocks[name] = RowBlock(name, len(sides), relation, *place, value, finest.numbers, unit, texts)

    def objective(self, name: str, terms: Mapping[int, Number], *, maximize: bool = False) -> None:
        """Add an objective, after those added before."""
        exact = Exact.of(terms.values())
        columns = np.array(list(terms), np.int64)
        self.objectives.append(Objective(name, columns, exact.numbers, 0, exact.unit, maximize))

    def program(self, tolerance: float = 1e-7) -> ExactProgram:
        """The problem."""
        none = np.zeros(self.count, bool)
        lower, upper = (Exact.of(v for side in self._sides for v in side[k]) for k in (0, 1))
        integer = np.concatenate([side[2] for side in self._sides]) if self._sides else none
        rows = {name: _block(name, rows) for name, rows in self._rows.items()}
        bounds = Bounds(lower, none), Bounds(upper, none)
        return ExactProgram(self._columns, *bounds, integer, self._blocks | rows, self.objectives, tolerance)


def _block(name: str, rows: _Rows) -> RowBlock:
    many = [len(terms) for terms in rows.terms.values()]
    values: list[Any] = [v for terms in rows.terms.values() for v in terms.values()]
    both = Exact.of([*values, *rows.rhs])
    column = np.array([c for terms in rows.terms.values() for c in terms], np.int64)
    row = np.repeat(np.arange(len(many)), many)
    texts = list(rows.terms)
    k = len(values)
    return RowBlock(
        name, len(many), rows.relation, row, column, both.numbers[:k], both.numbers[k:], both.unit, lambda: texts
    )
