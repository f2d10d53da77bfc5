"""P3 and P4 as in the paper: a linear program, and an integer program if its solution is fractional."""

from __future__ import annotations

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.lexicographic.lexicographic_problem import Integrality, is_whole
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.solver_outcome import EngineName, Infeasibility, Outcome, SolveOptions, Status
from flowlex.models.jit.interval_schedules import Blocks
from flowlex.models.jit.plan_search import Plan
from flowlex.models.jit.slot_programs import Cells


def solve_printed(
    program: LinearProgram, cells: Cells, integrality: Integrality, engine: EngineName, options: SolveOptions
) -> Plan:
    """Solve the linear program, test integrality, and solve the integer program if requested."""
    relaxed: Outcome | None = None
    if integrality != "mip":
        relaxed = outcome = solve(program, engine, options)
        route = "lp"
    if integrality != "lp" and (relaxed is None or not _is_whole(relaxed, cells)):
        if relaxed is not None and relaxed.status is Status.INFEASIBLE:
            return _no_plan(relaxed)
        outcome = solve(program.with_integer("rate"), engine, options)
        route = "mip"
    if outcome.values is None:
        return _no_plan(outcome)
    values = outcome.values[: cells.columns.count]
    if not is_whole(values):
        return Plan(outcome.status, cells.blocks(values), (), ("printed", route), lp_solves=1)
    weighted = None
    if outcome.objective is not None and outcome.bound is not None:
        weighted = (float(outcome.objective), float(outcome.bound))
    return Plan(
        outcome.status,
        cells.blocks(np.rint(values).astype(np.int64)),
        (),
        ("printed", route),
        lp_solves=int(relaxed is not None),
        mip_solves=int(route == "mip"),
        weighted=weighted,
    )


def _is_whole(outcome: Outcome, cells: Cells) -> bool:
    return outcome.values is not None and is_whole(outcome.values[: cells.columns.count])


def _no_plan(outcome: Outcome) -> Plan:
    why = outcome.infeasibility or Infeasibility(outcome.message)
    return Plan(outcome.status, Blocks.empty(), infeasibility=why, message=why.message)
