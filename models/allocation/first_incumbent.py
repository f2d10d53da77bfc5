"""An answer before the first program is solved: an equal share of the cluster, with the bound of the job that can rise
least.

Each job gets its part of every GPU type. Nobody can gain more than on the fastest type all the time; so all gains rise
together no higher than that of the job which this holds back most, and throughput in all is at most its sum.
"""

from __future__ import annotations

import numpy as np

from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import Outcome, Status
from flowlex.instances.allocation import AllocationArrays
from flowlex.models.allocation.allocation_linear_program import Columns, run_columns
from flowlex.models.allocation.policies import Step
from flowlex.models.allocation.policy_linear_programs import TOTALS, PolicyProgram

__all__ = ["first_answer", "isolated"]


def isolated(view: AllocationArrays) -> Floats:
    """(n, J) fractions: a cluster of one's own, ``N_j / (M s_m)`` of every type, at most all the time."""
    share = np.where(view.speed > 0, view.count / (len(view.scale) * view.scale[:, None]), 0.0)
    return np.asarray(share / np.maximum(share.sum(axis=1), 1.0)[:, None])


def first_answer(task: PolicyProgram) -> tuple[Outcome, tuple[Step, ...], Columns]:
    """The answer, a step whose prices prove its bound (none under policies whose steps differ), and what may run."""
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
