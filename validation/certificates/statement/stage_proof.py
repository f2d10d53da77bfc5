"""The proof of the stages of a changed model: leaves of a tree with multipliers of named rows, added up exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from pydantic import Field

from flowlex.instances.exact_rationals import rational
from flowlex.validation.certificates.solution_document import Numeric, Strict
from flowlex.validation.certificates.statement.rational_linear_program import ExactStatement, Number, Stage
from flowlex.validation.proofs.checker import Checker
from flowlex.validation.proofs.exact_program import (
    Bounds,
    ColumnBlock,
    Exact,
    ExactProgram,
    Objective,
    RowBlock,
    narrow,
)
from flowlex.validation.proofs.proof import Branch, Leaf


class StatedBranch(Strict):
    """``variable[label] relation side``; the opposite branch belongs to another leaf."""

    variable: str
    label: str
    relation: str = Field(pattern="^(<=|>=)$")
    side: int


class StatedLeaf(Strict):
    """Branches from the root, and multipliers of rows (by name and label) and of earlier stages (by name, at most 0).

    ``own`` is 1, or 0 if the multipliers prove that the leaf has no answer.
    """

    branches: list[StatedBranch] = Field(default_factory=list)
    rows: dict[str, dict[str, Numeric]] = Field(default_factory=dict)
    earlier: dict[str, Numeric] = Field(default_factory=dict)
    own: int = Field(ge=0, le=1, default=1)


class StatementProof(Strict):
    """Leaves of each stage by name; ``empty``: leaves that prove that there is no answer."""

    stages: dict[str, list[StatedLeaf]] = Field(default_factory=dict)
    empty: list[StatedLeaf] = Field(default_factory=list)


def duals_of(leaves: Sequence[StatedLeaf], *, maximize: bool) -> dict[str, dict[str, Fraction]]:
    """The duals that a proven stage shows: the multipliers of its only leaf; none if there are several."""
    if len(leaves) != 1 or not leaves[0].own:
        return {}
    sign = -1 if maximize else 1
    return {name: {label: sign * rational(y) for label, y in each.items()} for name, each in leaves[0].rows.items()}


@dataclass
class Bounded:
    """A statement as exact arrays, made once for all leaves."""

    statement: ExactStatement

    def __post_init__(self) -> None:
        self.lower, self.upper, self.integer = self.statement.bounds()
        self.checker = Checker(self._program())

    def _program(self) -> ExactProgram:
        rows = {}
        for name, block in self.statement.rows.items():
            terms = [(k, c, v) for k, each in enumerate(block.terms.values()) for c, v in each.items()]
            rhs = [block.rhs[label] for label in block.terms]
            unit = Fraction(1, math.lcm(1, *(v.denominator for _, _, v in terms), *(v.denominator for v in rhs)))
            rows[name] = RowBlock(
                name,
                len(block.terms),
                block.relation,
                np.array([k for k, _, _ in terms], np.int64),
                np.array([c for _, c, _ in terms], np.int64),
                narrow([int(v / unit) for _, _, v in terms]),
                narrow([int(v / unit) for v in rhs]),
                unit,
                lambda labels=list(block.terms): labels,  # type: ignore[misc]
            )
        columns = [
            ColumnBlock(name, b.start, len(b.labels), lambda b=b: [b.name(k) for k in range(len(b.labels))])  # type: ignore[misc]
            for name, b in self.statement.blocks.items()
        ]
        return ExactProgram(
            columns, _side(self.lower), _side(self.upper), np.array(self.integer, bool).reshape(-1), rows
        )

    def leaf(self, leaf: StatedLeaf) -> Leaf:
        """A leaf as arrays; `ValueError` names a row that does not exist."""
        rows = {}
        for name, each in leaf.rows.items():
            block = self.checker.program.rows.get(name)
            places = {} if block is None else block.places
            for label in each:
                if label not in places:
                    raise ValueError(f"a multiplier of row {name}[{label}], which does not exist")
            if block is None:
                continue
            numbers = {places[label]: rational(y) for label, y in each.items()}
            common = math.lcm(1, *(y.denominator for y in numbers.values()))
            whole = [0] * block.count
            for k, y in numbers.items():
                whole[k] = int(y * common)
            rows[name] = Exact(narrow(whole), Fraction(1, common))
        branches = tuple(Branch.single(self._column(b), b.relation == "<=", b.side) for b in leaf.branches)
        return Leaf(rows, {name: rational(e) for name, e in leaf.earlier.items()}, {}, branches, leaf.own)

    def _column(self, branch: StatedBranch) -> int:
        names = self._names(branch.variable) if branch.variable in self.statement.blocks else {}
        if branch.label not in names:
            raise ValueError(f"a branch on {branch.variable}[{branch.label}], which does not exist")
        return names[branch.label]

    def _names(self, variable: str) -> dict[str, int]:
        known: dict[str, dict[str, int]] = self.__dict__.setdefault("_known", {})
        if variable not in known:
            block = self.statement.blocks[variable]
            known[variable] = {block.name(k): block.start + k for k in range(len(block.labels))}
        return known[variable]

    def columns(self, values: Mapping[str, Mapping[str, Any]]) -> list[Number]:
        """Values of all columns from values by name and label; those that are not named are 0."""
        found: list[Number] = [0] * self.statement.columns
        for variable, each in values.items():
            if variable not in self.statement.blocks:
                raise ValueError(f"values of {variable!r}, which does not exist")
            names = self._names(variable)
            for label, value in each.items():
                if label not in names:
                    raise ValueError(f"a value of {variable}[{label}], which does not exist")
                number = rational(value)
                found[names[label]] = int(number) if number.denominator == 1 else number
        return found


def least(
    bounded: Bounded, leaves: Sequence[StatedLeaf], stage: Stage | None, before: Mapping[str, tuple[Stage, Number]]
) -> Fraction | None:
    """A lower bound on the value of the stage (to be minimised); None if nothing is proven.

    Without a stage: 0 if the leaves prove that there is no answer at all.

    Raises `ValueError`: the leaves leave something out, or speak of what does not exist.
    """
    if not leaves:
        raise ValueError("the leaves leave something out")
    kept = {
        name: (_objective(s), Fraction(value) + _objective(s).sign * s.constant) for name, (s, value) in before.items()
    }
    cost = None if stage is None else _objective(stage)
    return bounded.checker.bound([bounded.leaf(leaf) for leaf in leaves], cost, kept, len(before))


def _objective(stage: Stage) -> Objective:
    numbers = Exact.of([*stage.terms.values(), stage.constant])
    columns = np.array(list(stage.terms), np.int64)
    return Objective(stage.name, columns, numbers.numbers[:-1], int(numbers.numbers[-1]), numbers.unit, stage.maximize)


def _side(values: Sequence[Number]) -> Bounds:
    return Bounds(Exact.of(values), np.zeros(len(values), bool))
