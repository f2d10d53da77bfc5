"""Integer programs of single objectives of the statement, for what searches and bounds leave open."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.linear_expression import Expression
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats
from flowlex.instances.pods import PodInstance
from flowlex.models.model_base import ModelError
from flowlex.models.pods.problem.balance_measures import SCALE, Measure
from flowlex.models.pods.problem.cluster import Cluster
from flowlex.models.pods.problem.placement_columns import PlacementColumns, pods_of_values
from flowlex.models.pods.statement import BALANCE_ROWS, BALANCE_VARIABLES

if TYPE_CHECKING:
    from flowlex.models.problem import Problem

#: Denominator of the grid on which tangents touch squares.
_GRID = 2**16


def touching(distance: Floats) -> list[tuple[int, Fraction]]:
    """Tangents, as `StagePrograms.state` takes them, at (N,) distances from the mean, whose sum is kept."""
    steps = np.rint(np.cumsum(distance) * _GRID)
    return [(n, Fraction(int(step), _GRID)) for n, step in enumerate(np.diff(steps, prepend=0.0))]


@dataclass(frozen=True, eq=False)
class StagePrograms:
    """The statement, one objective at a time; `ModelError` if the instance cannot be stated."""

    instance: PodInstance
    columns: PlacementColumns  # of single pods
    state: Callable[[Collection[tuple[int, Fraction]]], Problem]  # with further tangents: node, distance in percent

    def fits(self, columns: int) -> bool:
        """Whether the statement can be made, with at most so many columns x and y."""
        return self.columns.columns <= columns and self.possible

    @cached_property
    def possible(self) -> bool:
        """Whether the statement can be made; not for a large instance, or numbers of many digits."""
        try:
            self.state(())
        except ModelError:
            return False
        return True

    def program(
        self,
        objective: str | None,
        before: Mapping[str, Fraction],
        tangents: Collection[tuple[int, Fraction]] = (),
    ) -> LinearProgram:
        """The program of an objective (None: of none), with objectives before it at these values.

        Only the program of the balance has its rows and variables. Values of levels are kept exactly. Rows with a
        positive right-hand side are divided by it, so that the solver's tolerances are relative.
        """
        from flowlex.formulations.language.program_conversion import flat_program
        from flowlex.models.problem import KEPT

        problem = self.state(tangents)
        problem = problem.copy() if objective is None else problem.alone(objective, before)
        if objective != "balance":
            for name in BALANCE_ROWS:
                problem.rows.pop(name, None)
            for name in BALANCE_VARIABLES:
                problem.blocks.pop(name, None)
        program = flat_program(problem, None if objective is None else 0)
        for name, block in program.constraint_blocks.items():
            if name.endswith(KEPT) and not name.startswith("admission fair"):
                program.constraint_blocks[name] = replace(block, relation="==")
            elif block.relation == "<=":
                size, sums = np.where(block.rhs > 0, block.rhs, 1.0), block.expression
                sums = Expression(sums.row, sums.column, sums.value / size[sums.row], sums.constant)
                program.constraint_blocks[name] = replace(block, expression=sums, rhs=block.rhs / size)
        return program

    def balance(
        self, measure: Measure, before: Mapping[str, Fraction], points: Sequence[Floats], at_most: float | None = None
    ) -> LinearProgram:
        """The program of the balance, in `Measure.total` of percent.

        ``points``: (N,) distances from the mean, in percent, at which further tangents touch the squares. ``at_most``:
        total of a known placement, as a cutoff.
        """
        size = len(self.instance.nodes)
        program = self.program("balance", before, [tangent for point in points for tangent in touching(point)])
        total = program.objective * (size if measure.curved else measure.total(SCALE, size))
        if at_most is not None:
            program.constrain("at_most", total, "<=", at_most)
        program.minimize(total)
        return program

    def placement(self, program: LinearProgram, values: Floats) -> Cluster | None:
        """The placement of an answer; None if it violates exact capacities."""
        whole = {
            name: np.rint(values[block.start : block.start + block.count])
            for name, block in program.variable_blocks.items()
        }
        cluster, parts = pods_of_values(self.instance, self.columns, {"y": np.zeros(0), **whole})
        there = Cluster(cluster.view, cards=cluster.cards).card_free >= 0
        free = (cluster.free, cluster.card_free[there], cluster.compute_free[there])
        return None if parts or min(each.min(initial=0) for each in free) < 0 else cluster
