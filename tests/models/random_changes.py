"""Random changes of a model, and the same changes of the arrays of its unchanged statement.

The arrays know nothing of how models are changed: rows, bounds, prices and columns are added by the labels of columns.
That the statement itself is right, certificates show, which restate the problem from its instance.
"""

from dataclasses import replace
from typing import Any, Self

import numpy as np

from flowlex.models.solution import ModelError
from flowlex.testing.canonical_program import Program, with_row
from flowlex.testing.program_adapters import program_of
from flowlex.testing.staged_optimum import optimise

KINDS = ("cap", "floor", "by", "price", "upper", "fix", "drop", "drop", "own")


class Changed:
    """A model and its program, changed alike."""

    def __init__(self, model: Any, seed: int, unit: float = 1.0) -> None:
        self.model, self.rng, self.unit = model, np.random.default_rng([seed, 50]), unit
        self.program: Program = program_of(model.problem)
        self.index = {name: model.variables[name].index for name in model.variables}
        self.begin = {name: self.program.column(name) for name in self.index}
        self.rows = list(self.program.rows.names)
        found = optimise(self.program).point
        self.best = np.zeros(len(self.program.arrays.cost)) if found is None else found

    def draw(self) -> Self:
        """Make one to four changes, where there are variables; what a model refuses by name is left out of both."""
        if not len(next(iter(self.index.values()))):
            return self
        for k in range(int(self.rng.integers(1, 5))):
            try:
                getattr(self, f"_{self.rng.choice(KINDS)}")(f"own{k}")
            except ModelError:
                continue
        if self.rng.random() < 0.15:
            self.model = self.model.relaxed()
            self._arrays(integrality=np.zeros(len(self.program.arrays.integrality), bool))
        return self

    def _some(self) -> tuple[Any, np.ndarray]:
        """Variables of the first block that share one or two labels of a level, and their columns."""
        name = next(iter(self.index))
        index = self.index[name]
        level = str(self.rng.choice(index.names))
        values = index.get_level_values(level)
        picked = {values[int(k)] for k in self.rng.integers(len(values), size=2)}
        member = np.array([value in picked for value in values])
        return self.model.variables[name].sel(**{level: sorted(picked)}), self.begin[name][member]

    def _arrays(self, **changes: Any) -> None:
        self.program = replace(self.program, arrays=replace(self.program.arrays, **changes))

    def _row(self, columns: np.ndarray, low: float, high: float, factor: float = 1.0) -> None:
        row = np.zeros(len(self.program.arrays.cost))
        row[columns] = factor
        self.program = replace(self.program, arrays=with_row(self.program.arrays, row, low, high))

    def _near(self, value: float, low: int, high: int) -> float:
        """A side near the value in an optimum of the unchanged program, so that it binds and can often be kept."""
        steps = np.floor(value / self.unit + 1e-6) + self.rng.integers(low, high + 1)
        return float(self.unit * max(0.0, steps))

    def _cap(self, name: str) -> None:
        (chosen, columns), factor = self._some(), int(self.rng.integers(1, 4))
        side = self._near(factor * self.best[columns].sum(), -2, 0)
        self.model = self.model.with_constraint(name, factor * chosen.sum() <= side)
        self._row(columns, -np.inf, side, factor)

    def _floor(self, name: str) -> None:
        chosen, columns = self._some()
        side = self._near(self.best[columns].sum(), 0, 2)
        self.model = self.model.with_constraint(name, chosen.sum() >= side)
        self._row(columns, side, np.inf)

    def _by(self, name: str) -> None:
        block = next(iter(self.index))
        level = str(self.rng.choice(self.index[block].names))
        values = self.index[block].get_level_values(level)
        groups = [self.begin[block][values == value] for value in dict.fromkeys(values)]
        side = self._near(max(self.best[group].sum() for group in groups), -1, 0)
        self.model = self.model.with_constraint(name, self.model.variables[block].sum(by=level) <= side)
        for group in groups:
            self._row(group, -np.inf, side)

    def _price(self, name: str) -> None:
        (chosen, columns), price = self._some(), int(self.rng.integers(1, 5))
        self._add_price(price * chosen.sum(), columns, price)

    def _add_price(self, cost: Any, columns: np.ndarray, price: float) -> None:
        """Add a cost to a stage drawn at random; where that is maximised, against it."""
        k = int(self.rng.integers(len(self.program.stages)))
        stage = self.program.stages[k]
        sign = -1 if stage.maximize else 1
        self.model = self.model.with_cost(sign * cost, stage=stage.name)
        added = np.zeros(len(stage.cost))
        added[columns] = sign * price
        stages = [replace(each, cost=each.cost + added) if each is stage else each for each in self.program.stages]
        self.program = self.program.with_stages(*stages)

    def _upper(self, name: str) -> None:
        chosen, columns = self._some()
        side = self._near(self.best[columns].max(), -1, 0)
        self.model = self.model.with_bounds(chosen, upper=side)
        upper = self.program.arrays.column_upper.copy()
        upper[columns] = side
        self._arrays(column_upper=upper)

    def _fix(self, name: str) -> None:
        block = next(iter(self.index))
        k = int(self.rng.integers(len(self.index[block])))
        value = self._near(self.best[self.begin[block][k]], -1, 1)
        label = dict(zip(self.index[block].names, self.index[block][k], strict=True))
        self.model = self.model.with_fixed(self.model.variables[block].sel(**label), value)
        lower, upper = self.program.arrays.column_lower.copy(), self.program.arrays.column_upper.copy()
        lower[self.begin[block][k]] = upper[self.begin[block][k]] = value
        self._arrays(column_lower=lower, column_upper=upper)

    def _drop(self, name: str) -> None:
        block = str(self.rng.choice(list(dict.fromkeys(row.partition("[")[0] for row in self.rows))))
        row = str(self.rng.choice([row for row in self.rows if row.partition("[")[0] == block]))
        block, _, label = row.removesuffix("]").partition("[")
        self.model = self.model.without(block, label) if label and "," not in label else self.model.without(block)
        low, high = self.program.arrays.row_lower.copy(), self.program.arrays.row_upper.copy()
        for k, other in enumerate(self.rows):
            if other == row or ("," in label and other.partition("[")[0] == block):
                low[k], high[k] = -np.inf, np.inf
        self._arrays(row_lower=low, row_upper=high)

    def _own(self, name: str) -> None:
        """Variables beyond a soft limit, at a price."""
        (chosen, columns), integer = self._some(), bool(self.rng.integers(2))
        side = self._near(self.best[columns].sum(), -3, 0)
        wide = self.model.with_variable(f"v{name}", upper=3, integer=integer)
        over = wide.variables[f"v{name}"].sum()
        before = self.model, self.program
        try:
            self.model = wide.with_constraint(name, chosen.sum() - over <= side)
            arrays, k = self.program.arrays, len(self.program.arrays.cost)
            empty = np.zeros((arrays.matrix.shape[0], 1))
            self._arrays(
                matrix=type(arrays.matrix)(np.hstack([arrays.matrix.toarray(), empty])),
                column_lower=np.append(arrays.column_lower, 0.0),
                column_upper=np.append(arrays.column_upper, 3.0),
                cost=np.append(arrays.cost, 0.0),
                integrality=np.append(arrays.integrality, integer),
            )
            stages = [replace(stage, cost=np.append(stage.cost, 0.0)) for stage in self.program.stages]
            self.program = self.program.with_stages(*stages)
            row = np.zeros(k + 1)
            row[columns], row[k] = 1.0, -1.0
            self.program = replace(self.program, arrays=with_row(self.program.arrays, row, -np.inf, side))
            self._add_price(over, np.array([k]), 1)
        except ModelError:
            self.model, self.program = before
            raise
