"""First incumbent, before any program is solved: equal shares of the cluster, with a simple upper bound.

Each job gets an equal share of every GPU type. No job can gain more than by running all the time on its fastest type.
So the common rise of all jobs is at most the minimum over jobs of this limit divided by the job's pace, and the total
throughput is at most the sum of the largest speeds.
"""

from __future__ import annotations

import numpy as np

from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import Outcome, Status
from flowlex.instances.allocation import AllocationArrays
from flowlex.models.allocation.allocation_linear_program import JobColumns, run_columns
from flowlex.models.allocation.policies import Step
from flowlex.models.allocation.policy_linear_programs import TOTALS, PolicyProgram


def isolated(view: AllocationArrays) -> Floats:
    """Return fractions, (n, J): an equal share ``N_j / (M s_m)`` of every type, scaled to at most all the time."""
    share = np.where(view.speed > 0, view.count / (len(view.scale) * view.scale[:, None]), 0.0)
    return np.asarray(share / np.maximum(share.sum(axis=1), 1.0)[:, None])


def first_answer(task: PolicyProgram) -> tuple[Outcome, tuple[Step, ...], JobColumns]:
    """Return the incumbent, a step whose duals prove its bound (none for some policies), and the columns."""
    view = task.instance.arrays
    columns, jobs = run_columns(view, sharing=False), np.zeros(len(view.scale), bool)
    share = isolated(view)[columns.first, columns.gpu]
    outcome = Outcome(Status.FEASIBLE, task.engine, values=share, message="equal shares, before the first program")
    if task.policy in ("hierarchical", "finish_time"):
        return outcome, (), columns
    if task.policy in TOTALS:
        most = 0.0 if task.policy == "min_cost" else float(task.best.sum())
        return outcome, (Step(most, {}, jobs),), columns
    highest = (np.ones(len(jobs)) if task.unit is None else task.unit * task.best) / task.pace(jobs)
    least = int(np.argmin(highest))
    only = np.zeros(len(jobs))
    only[least] = 1.0
    return outcome, (Step(float(highest[least]), {"level": only}, jobs),), columns
