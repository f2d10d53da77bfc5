"""The programs by name: P1, P3 and P4 as the paper prints them, and P2 as one program for each of its stages.

The stages of P2 are the keys of ``solution.stages``: ``lateness``, then ``level_K`` for every level K. The program of
a level holds what the stages before it have settled as rows, so its optimum is the stage's number. Without a stage it
is the program of the largest load, whose optimum is the solution's objective.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from flowlex.formulations.expression import Variables
from flowlex.formulations.lexicographic.lambda_representation import increments
from flowlex.formulations.lexicographic.levels import LexicographicProgram, copy_program
from flowlex.formulations.lexicographic.weighted import weighted_program
from flowlex.formulations.linear_program import LinearProgram
from flowlex.models.base import ModelError
from flowlex.models.jit.baselines import greedy_schedule
from flowlex.models.jit.grid import Grid, Load
from flowlex.models.jit.program import Cells, Horizon, latest_end, lexicographic_program

__all__ = ["is_early", "largest_program", "printed_program", "stage_program"]

Stages = Mapping[str, float | int]


def printed_program(cells: Cells, load: Load, program: str, name: str) -> LinearProgram:
    """P1, P3 or P4 with strict windows."""
    problem = lexicographic_program(cells, load, name=name)
    if program == "P1":
        return largest_program(problem)
    return weighted_program(problem, form="lambda" if program == "P4" else "increments")


def largest_program(problem: LexicographicProgram, base: LinearProgram | None = None) -> LinearProgram:
    """The least largest load, over the problem's base or a copy of it with more rows."""
    program = copy_program(problem.base) if base is None else base
    largest = program.variables("largest", 1, upper=float(problem.levels))
    bound = largest.repeated(len(problem.width)) * problem.width
    program.constrain("largest_link", problem.loads - bound, "<=", 0.0)
    program.minimize(largest)
    return program


def is_early(grid: Grid) -> bool:
    """Whether sending as early as possible, the earliest deadline first, shows that nothing need be late."""
    return bool((grid.stop <= grid.due).all()) and greedy_schedule(grid)[1] == 0


def stage_program(
    grid: Grid,
    load: Load,
    horizon: Horizon,
    stage: str | None,
    settled: Callable[[], Stages],
    *,
    elastic: bool,
    whole: bool,
    name: str,
) -> LinearProgram:
    """One stage of P2 (see the module).

    Parameters
    ----------
    settled
        Gives all stages of the optimum by name; called only when the program rests on them.
    whole
        Whether rates must be whole.

    Raises
    ------
    ModelError
        There is no such stage (those that exist are named).
    """
    stages: Stages = {}
    if stage is not None or (elastic and not is_early(grid)):
        stages = {name: value for name, value in settled().items() if elastic or name != "lateness"}
        if stage not in (None, *stages):
            raise ModelError(f"there is no stage {stage!r}; the stages are: {', '.join(stages)}")
    late = stages.get("lateness", 0)
    first = elastic and (bool(late) or stage == "lateness")
    everything = np.arange(grid.count)
    stop = grid.stop
    if first:
        stop = latest_end(grid, everything)
    elif elastic:
        stop = grid.due
    cells = Cells(grid, everything, stop, "slots" if first else horizon)
    problem = lexicographic_program(cells, load, name=name, elastic=first)
    program = copy_program(problem.base)
    if stage == "lateness":
        assert problem.first is not None
        program.minimize(problem.first)
        return program.with_integer("rate") if whole else program
    if problem.first is not None:
        program.constrain("lateness", problem.first, "<=", float(late))
    if stage is None:
        program = largest_program(problem, program)
        return program.with_integer("rate", "largest") if whole else program
    return _level(program, problem, stages, stage, whole)


def _level(
    program: LinearProgram, problem: LexicographicProgram, stages: Stages, stage: str, whole: bool
) -> LinearProgram:
    """Minimise the loads at a level, those at all higher levels at their optima."""
    level = {name: int(name.rpartition("_")[2]) for name in stages if name.startswith("level_")}
    top = max(level.values())
    pieces = increments(program, "level", problem.loads, np.arange(top + 1), width=problem.width)
    above = [s for s in level.values() if s > level[stage]]
    if above:
        row = np.repeat(np.arange(len(above)), len(problem.width))
        columns = Variables(np.concatenate([pieces[s - 1].column for s in above]))
        most = [float(stages[f"level_{s}"]) for s in above]
        program.constrain("levels_above", columns.sum_by(row, len(above)), "<=", most, labels=above)
    program.minimize(pieces[level[stage] - 1].sum())
    return program.with_integer("rate") if whole else program
