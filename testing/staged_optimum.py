"""The optimum of a program, stage by stage, by HiGHS."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flowlex.formulations.engines.highs import SMALLEST, solve_arrays
from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import EngineError, SolveOptions, Status
from flowlex.testing.canonical_program import TOLERANCE, Program, Stage, figure, with_row

_OPTIONS = SolveOptions(time_limit_s=60.0)
#: Tolerance for keeping the optima of earlier stages, in addition to HiGHS's own.
_KEPT = 1e-9


@dataclass(frozen=True)
class Optimum:
    """Result of a program: the optimum of each stage and one optimal point, or why there is none."""

    status: Status
    values: tuple[float, ...] = ()
    point: Floats | None = None

    def __str__(self) -> str:
        return ", then ".join(map(figure, self.values)) if self.status is Status.OPTIMAL else str(self.status)


def optimise(program: Program, *stages: Stage) -> Optimum:
    """Solve a program, or its rows with other objectives.

    Raises `EngineError`: HiGHS neither solves it within a minute nor shows that it cannot be solved, or would drop a
    coefficient.
    """
    sizes = abs(program.arrays.matrix).tocoo()
    dropped = np.flatnonzero((sizes.data > 0) & (sizes.data <= SMALLEST))
    if len(dropped):
        row, column = (int(axis[dropped[0]]) for axis in sizes.coords)
        where = f"row {program.rows.names[row]}, column {program.columns.names[column]}"
        raise EngineError(f"{program.name}: HiGHS drops coefficients up to {SMALLEST:g} ({where}); scale the row")
    arrays, values, wanted = program.arrays, list[float](), stages or program.stages
    for number, stage in enumerate(wanted, 1):
        stated = replace(arrays, cost=stage.cost, offset=stage.offset, maximize=stage.maximize)
        outcome = solve_arrays(stated, _OPTIONS)
        if outcome.status in (Status.INFEASIBLE, Status.UNBOUNDED):
            return Optimum(outcome.status)
        if outcome.status is not Status.OPTIMAL or outcome.values is None:
            raise EngineError(f"{program.name}: HiGHS ends with {outcome.message!r}; test a smaller instance")
        point = np.where(arrays.integrality, np.round(outcome.values), outcome.values)
        value = float(stage.cost @ point) + stage.offset
        values.append(value)
        if number < len(wanted):
            side, room = value - stage.offset, _KEPT * max(1.0, abs(value)) + stage.allowed(value)
            kept = (side - room, np.inf) if stage.maximize else (-np.inf, side + room)
            arrays = with_row(arrays, stage.cost, *kept)
    return Optimum(Status.OPTIMAL, tuple(values), point)


def same(a: float, b: float, tolerance: float = TOLERANCE) -> bool:
    """Whether two figures agree, relative to their size."""
    return abs(a - b) <= tolerance * max(1.0, abs(a), abs(b))
