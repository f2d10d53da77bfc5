"""A statement in exact rationals: variables by label, rows by name and label, stages. Plain lists and dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from flowlex.formulations.block_labels import label_text

Number: TypeAlias = int | Fraction
#: Level to label.
Labels: TypeAlias = Mapping[str, Any]
Terms: TypeAlias = dict[int, Number]


def tidy(value: Number) -> Number:
    """The value as an integer if it is one, since integers are faster."""
    return int(value) if value.denominator == 1 else value


@dataclass
class Variables:
    """Variables of one name: their first column, labels, the levels that name them, bounds and kind."""

    start: int
    labels: list[Labels]
    keys: tuple[str, ...]
    lower: list[Number]
    upper: list[Number]
    integer: bool

    def name(self, k: int) -> str:
        """Label of a variable as text."""
        return label_text(self.labels[k][key] for key in self.keys)


@dataclass
class Rows:
    """Rows of one name by label: terms, relation and right-hand side."""

    relation: str
    terms: dict[str, Terms]
    rhs: dict[str, Number]


@dataclass
class Stage:
    """An objective: terms and constant, and whether it is maximised."""

    name: str
    terms: Terms
    constant: Number = 0
    maximize: bool = False


@dataclass
class ExactStatement:
    """The statement of a kind of instance. Declared by `variables` and `row`, in any order."""

    main: str  # the stage whose value is the objective of the solution
    blocks: dict[str, Variables] = field(default_factory=dict)
    rows: dict[str, Rows] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    needed: frozenset[str] = frozenset()  # rows that no change may drop
    tolerance: float = 1e-7  # to what rows with fractions are kept, relative to the size of their numbers
    #: Names of variables that changes added.
    own: set[str] = field(default_factory=set)

    @property
    def columns(self) -> int:
        """Number of variables."""
        return sum(len(block.labels) for block in self.blocks.values())

    def variables(
        self,
        name: str,
        labels: Iterable[Labels],
        *,
        keys: Sequence[str] = (),
        lower: Number | Sequence[Number] = 0,
        upper: Number | Sequence[Number] = 1,
        integer: bool = True,
    ) -> Variables:
        """Declare variables; ``keys`` are the levels that make their names (all, in order, when empty)."""
        listed = list(labels)
        named = tuple(keys) or (tuple(listed[0]) if listed else ())
        low = list(lower) if isinstance(lower, Sequence) else [lower] * len(listed)
        high = list(upper) if isinstance(upper, Sequence) else [upper] * len(listed)
        block = Variables(self.columns, listed, named, low, high, integer)
        self.blocks[name] = block
        return block

    def row(self, name: str, label: str, terms: Mapping[int, Number], relation: str, rhs: Number) -> None:
        """Add a row."""
        rows = self.rows.setdefault(name, Rows(relation, {}, {}))
        if rows.relation != relation or label in rows.terms:
            raise ValueError(f"row {name}[{label}] is stated twice, or with another relation")
        rows.terms[label] = {column: tidy(value) for column, value in terms.items() if value}
        rows.rhs[label] = tidy(rhs)

    def stage(self, name: str, terms: Mapping[int, Number], constant: Number = 0, *, maximize: bool = False) -> None:
        """Add an objective, after those added before."""
        self.stages.append(Stage(name, {c: tidy(v) for c, v in terms.items() if v}, tidy(constant), maximize))

    def bounds(self) -> tuple[list[Number], list[Number], list[bool]]:
        """Lower and upper bounds, and integrality, of all columns."""
        blocks = self.blocks.values()
        lower = [value for block in blocks for value in block.lower]
        upper = [value for block in blocks for value in block.upper]
        return lower, upper, [block.integer for block in blocks for _ in block.labels]
