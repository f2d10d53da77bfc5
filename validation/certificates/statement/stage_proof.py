"""The proof of the stages of a changed model: leaves of a tree with multipliers of named rows, added up exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pydantic import Field

from flowlex.instances.exact_rationals import rational
from flowlex.validation.certificates.solution_document import Numeric, Strict
from flowlex.validation.certificates.statement.rational_linear_program import ExactStatement, Number, Stage


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
    """A statement as rows with sides, made once for all leaves."""

    statement: ExactStatement

    def __post_init__(self) -> None:
        self.lower, self.upper, self.integer = self.statement.bounds()

    def total(
        self, leaf: StatedLeaf, cost: Mapping[int, Number], before: Mapping[str, tuple[Stage, Number]]
    ) -> Fraction | None:
        """Lower bound on ``own`` times the cost of the leaf's answers; None if the multipliers bound nothing.

        ``before``: the earlier stages by name, each with the value (to be minimised) at which it is fixed.
        """
        multipliers = {(n, label): rational(y) for n, each in leaf.rows.items() for label, y in each.items()}
        earlier = {name: rational(e) for name, e in leaf.earlier.items()}
        whole = math.lcm(1, *(y.denominator for y in (*multipliers.values(), *earlier.values())))
        reduced: dict[int, Number] = {column: leaf.own * whole * c for column, c in cost.items()} if leaf.own else {}
        total: Number = 0
        for (name, label), y in multipliers.items():
            rows = self.statement.rows.get(name)
            if rows is None or label not in rows.terms:
                raise ValueError(f"a multiplier of row {name}[{label}], which does not exist")
            if (y > 0 and rows.relation == "<=") or (y < 0 and rows.relation == ">="):
                raise ValueError(f"the multiplier of row {name}[{label}] has the wrong sign")
            times = int(y * whole)
            total += times * rows.rhs[label]
            for column, value in rows.terms[label].items():
                reduced[column] = reduced.get(column, 0) - times * value
        for name, e in earlier.items():
            if name not in before or e > 0:
                raise ValueError(f"a multiplier of stage {name!r}, which comes later or has the wrong sign")
            stage, value = before[name]
            times = int(e * whole)
            total += times * value
            for column, each in stage.terms.items():
                sign = -each if stage.maximize else each
                reduced[column] = reduced.get(column, 0) - times * sign
        low, high = self._leaf_bounds(leaf.branches)
        for column, value in reduced.items():
            if value:
                total += value * (
                    low.get(column, self.lower[column]) if value > 0 else high.get(column, self.upper[column])
                )
        return Fraction(total) / whole

    def _leaf_bounds(self, branches: Sequence[StatedBranch]) -> tuple[dict[int, Number], dict[int, Number]]:
        low: dict[int, Number] = {}
        high: dict[int, Number] = {}
        for branch in branches:
            column = self._column(branch)
            if branch.relation == "<=":
                high[column] = min(high.get(column, self.upper[column]), branch.side)
            else:
                low[column] = max(low.get(column, self.lower[column]), branch.side)
        return low, high

    def crossed(self, leaf: StatedLeaf) -> bool:
        """Whether the branches exclude all values of a variable."""
        low, high = self._leaf_bounds(leaf.branches)
        return any(low.get(c, self.lower[c]) > high.get(c, self.upper[c]) for c in low.keys() | high.keys())

    def _column(self, branch: StatedBranch) -> int:
        block = self.statement.blocks.get(branch.variable)
        names = {} if block is None else self._names(branch.variable)
        if block is None or branch.label not in names:
            raise ValueError(f"a branch on {branch.variable}[{branch.label}], which does not exist")
        if not block.integer:
            raise ValueError(f"a branch on {branch.variable}, which may be fractional")
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
    if not leaves or not _covers([leaf.branches for leaf in leaves]):
        raise ValueError("the leaves leave something out")
    sign = -1 if stage is not None and stage.maximize else 1
    cost = {} if stage is None else {column: sign * value for column, value in stage.terms.items()}
    found: Fraction | None = None
    for leaf in leaves:
        if bounded.crossed(leaf):
            continue
        total = bounded.total(leaf, cost, before)
        if total is None:
            return None
        if not leaf.own or stage is None:
            if total <= 0:
                return None
            continue
        found = total if found is None else min(found, total)
    if stage is None:
        return Fraction(0)
    return None if found is None else _raised(bounded, cost, found)


def _raised(bounded: Bounded, cost: Mapping[int, Number], bound: Fraction) -> Fraction:
    """The bound raised to the next value that integer variables can take."""
    fractions = [Fraction(value) for value in cost.values() if value]
    if not fractions or not all(bounded.integer[column] for column, value in cost.items() if value):
        return bound
    unit = math.lcm(*(value.denominator for value in fractions))
    step = Fraction(math.gcd(*(int(value * unit) for value in fractions)), unit)
    return math.ceil(bound / step) * step


def _covers(paths: Sequence[Sequence[StatedBranch]]) -> bool:
    """Whether every way to branch ends in exactly one path."""
    stack = [(list(paths), 0)]
    while stack:
        these, depth = stack.pop()
        if any(len(path) == depth for path in these):
            if len(these) != 1:
                return False
            continue
        if len({(path[depth].variable, path[depth].label) for path in these}) != 1:
            return False
        sides: dict[tuple[str, int], list[Sequence[StatedBranch]]] = {}
        for path in these:
            sides.setdefault((path[depth].relation, path[depth].side), []).append(path)
        below = [side for relation, side in sides if relation == "<="]
        above = [side for relation, side in sides if relation == ">="]
        if not len(below) == len(above) == 1 or above[0] != below[0] + 1:
            return False
        stack += [(side, depth + 1) for side in sides.values()]
    return bool(paths)
