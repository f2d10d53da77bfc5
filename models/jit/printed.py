"""The programs by name: P1, P3 and P4 as the paper prints them, and P2 as one program for each of its stages.

The stages of P2 are the keys of ``solution.stages``: ``lateness``, then ``level_K`` for every level K. The program of
a level holds what the stages before it have settled as rows, so its optimum is the stage's number. Without a stage it
is the program of the largest load, whose optimum is the solution's objective.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.expression import Variables
from flowlex.formulations.lexicographic.lambda_representation import increments
from flowlex.formulations.lexicographic.levels import WHOLE, Integrality, LexicographicProgram, copy_program
from flowlex.formulations.lexicographic.weighted import weighted_program
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineName, Infeasibility, Outcome, SolveOptions, Status
from flowlex.models.base import ModelError
from flowlex.models.jit.baselines import greedy_schedule
from flowlex.models.jit.blocks import Blocks
from flowlex.models.jit.grid import Grid, Load, Windows
from flowlex.models.jit.program import Cells, Horizon, latest_end, lexicographic_program
from flowlex.models.jit.proofs import largest_proof
from flowlex.models.jit.search import Plan
from flowlex.validation.certificates.jit import SchedulePart

__all__ = ["is_early", "largest_program", "printed_program", "require_stage", "solve_printed", "stage_program"]

Stages = Mapping[str, float | int]


def printed_program(cells: Cells, load: Load, program: str, name: str) -> LinearProgram:
    """P1, P3 or P4 with strict windows."""
    problem = lexicographic_program(cells, load, name=name)
    if program == "P1":
        return largest_program(problem)
    return weighted_program(problem, form="lambda" if program == "P4" else "increments")


def solve_printed(
    program: LinearProgram,
    kind: str,
    cells: Cells,
    load: Load,
    integrality: Integrality,
    engine: EngineName,
    options: SolveOptions,
) -> Plan:
    """Solve the named program itself; integers are tested and, where asked for, enforced."""
    relaxed: Outcome | None = None
    if integrality != "mip":
        relaxed = outcome = solve(program, engine, options)
        route = "lp"
    if integrality != "lp" and (relaxed is None or not _is_whole(relaxed, cells)):
        if relaxed is not None and relaxed.status is Status.INFEASIBLE:
            return _no_plan(relaxed)
        whole_rates = program.with_integer(*({"rate", "largest"} & program.variable_blocks.keys()))
        outcome = solve(whole_rates, engine, options)
        route = "mip"
    if outcome.values is None:
        return _no_plan(outcome)
    values = outcome.values[: cells.columns.count]
    whole = np.rint(values)
    parts: tuple[SchedulePart, ...] = ()
    if np.abs(values - whole).max(initial=0.0) > WHOLE:
        return Plan(outcome.status, cells.blocks(values), parts, ("printed", route), lp_solves=1)
    if kind == "P1" and relaxed is not None:
        proofs = largest_proof(cells, load, program, relaxed, outcome)
        parts = (SchedulePart(cells.grid.transfer[cells.which], proofs),)
    weighted = None
    if kind in ("P3", "P4") and outcome.objective is not None and outcome.bound is not None:
        weighted = (float(outcome.objective), float(outcome.bound))
    return Plan(
        outcome.status,
        cells.blocks(whole.astype(np.int64)),
        parts,
        ("printed", route),
        lp_solves=int(relaxed is not None),
        mip_solves=int(route == "mip"),
        weighted=weighted,
    )


def _is_whole(outcome: Outcome, cells: Cells) -> bool:
    if outcome.values is None:
        return False
    values = outcome.values[: cells.columns.count]
    return bool(np.abs(values - np.rint(values)).max(initial=0.0) <= WHOLE)


def _no_plan(outcome: Outcome) -> Plan:
    why = outcome.infeasibility or Infeasibility(outcome.message)
    return Plan(outcome.status, Blocks.empty(), infeasibility=why, message=why.message)


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


def require_stage(stage: str | None, settled: Stages, windows: Windows) -> dict[str, float | int]:
    """Return the stages that the windows have; raise `ModelError` for a name that is none of them."""
    stages = {name: value for name, value in settled.items() if windows == "elastic" or name != "lateness"}
    if stage not in (None, *stages):
        raise ModelError(f"there is no stage {stage!r}; the stages are: {', '.join(stages)}")
    return stages


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
        stages = require_stage(stage, settled(), "elastic" if elastic else "strict")
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
