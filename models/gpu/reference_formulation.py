r"""GPU assignment as an integer program: a 0/1 variable for each task and GPU, named constraints, ordered objectives.

``x[t,g]`` is 1 if task t runs on GPU g. It exists for a waiting task on every GPU with enough memory, and for a
running task on its own GPU. ``share_step[j,s]`` is 1 if job j runs at least s tasks. The first stages are fair shares:
for s = 1, 2, ... maximise the number of jobs that run at least s tasks; this is the lexicographically largest sorted
vector of tasks by job. Later stages maximise running tasks, minimise transfer plus lost work, and minimise stops.

Under FSP the fair shares of the unchanged instance determine which jobs may lose tasks.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

import numpy as np

from flowlex.formulations.linear_expression import Expression, Variables
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.gpu import GpuArrays, GpuInstance
from flowlex.models.gpu.admissible_pairs import LARGEST, LargeStatement, labels_of, pair_count, pairs_of
from flowlex.models.gpu.round_eligibility import Round
from flowlex.models.gpu.transfer_costs import TransferCosts
from flowlex.models.solution import ModelError
from flowlex.models.statement.rows_and_objectives import Stage, Statement
from flowlex.models.statement.variable_labels import Index

_NEEDED = {
    "task": "a task would run several times",
    "gpu_out": "a GPU would run several tasks at once",
    "running": "running tasks would be lost without being stopped",
}


def state(instance: GpuInstance, plan: Round, costs: TransferCosts, rows: Collection[str]) -> Statement:
    """Build the statement of a round; a placeholder without rows if there are too many pairs of tasks and GPUs.

    Raises `ModelError` if waiting has a cost.
    """
    if plan.priced:
        raise ModelError("GpuAssignment(waiting='priced') takes no changes; use waiting='least'")
    view = instance.arrays
    if pair_count(plan) > LARGEST:
        return LargeStatement.of(plan)
    task, gpu = pairs_of(plan)
    s = Statement.start(instance.name, rows, _NEEDED)
    x = s.variables("x", labels_of(view, task, gpu), upper=1, integer=True)
    names, jobs = np.array(view.task_names, object), np.array(view.job_names, object)
    some = np.flatnonzero(np.bincount(task, minlength=len(names)))
    runs = x.sum_by(task, len(names))
    s.constrain("task", runs[some], "<=", 1, Index.of(task=names[some]))
    s.constrain("gpu_out", x.sum_by(gpu, len(view.gpu_names)), "<=", 1, Index.of(gpu=view.gpu_names))
    held = np.flatnonzero(view.task_running_gpu >= 0)
    if not plan.policy.preemptive:
        s.constrain("running", runs[held], "==", 1, Index.of(task=names[held]))
    else:
        _preemption(s, view, runs, held, plan.stoppable)
    by_job = x.sum_by(view.task_job[task], len(jobs))
    stages = _shares(s, view, by_job) if plan.policy.fair else []
    stages.append(Stage("running", x.sum(), maximize=True))
    return s.with_stages(*stages, *_costs(plan, costs, x, task, gpu, runs, held))


def _preemption(s: Statement, view: GpuArrays, runs: Expression, held: Integers, stoppable: Integers) -> None:
    """Limit the tasks that a job loses, and stop the shortest-running first."""
    count = np.bincount(view.task_job[held], minlength=len(view.job_names))
    some = np.flatnonzero(count)
    kept = runs[held].sum_by(np.searchsorted(some, view.task_job[held]), len(some))
    jobs = np.array(view.job_names, object)
    s.constrain("stops", kept, ">=", (count - stoppable)[some], Index.of(job=jobs[some]))
    first, second = order_pairs(view, held)
    if len(first):
        names = np.array(view.task_names, object)
        gap = _each(runs, first) - _each(runs, second)
        s.constrain("order", gap, ">=", 0, Index.of(longer=names[first], shorter=names[second]))


def order_pairs(view: GpuArrays, held: Integers) -> tuple[Integers, Integers]:
    """Return pairs of running tasks of a job: the first has the next longer elapsed time after the second."""
    longer, shorter = [], []
    for job in np.unique(view.task_job[held]).tolist():
        mine = held[view.task_job[held] == job]
        elapsed = np.unique(view.task_elapsed[mine])
        for low, high in pairwise(elapsed.tolist()):
            pairs = np.meshgrid(mine[view.task_elapsed[mine] == high], mine[view.task_elapsed[mine] == low])
            longer += pairs[0].ravel().tolist()
            shorter += pairs[1].ravel().tolist()
    return np.array(longer, np.int64), np.array(shorter, np.int64)


def _each(runs: Expression, which: Integers) -> Expression:
    """Select expressions of running tasks (one variable each); entries may repeat."""
    column = np.zeros(runs.count, np.int64)
    column[runs.row] = runs.column
    return Expression(np.arange(len(which)), column[which], np.ones(len(which)), np.zeros(len(which)))


def _shares(s: Statement, view: GpuArrays, by_job: Expression) -> list[Stage]:
    """Add the share steps of every job, linked to its running tasks; return a stage for each step."""
    most = np.minimum(np.bincount(view.task_job, minlength=len(view.job_names)), len(view.gpu_names))
    job = np.repeat(np.arange(len(most)), most)
    step = np.concatenate([np.arange(1, n + 1) for n in most.tolist()] or [np.zeros(0, np.int64)])
    index = Index.coded(
        job=(view.job_names, job), step=(tuple(range(1, int(most.max(initial=0)) + 1)), step.astype(np.int64) - 1)
    )
    y = s.variables("share_step", index, upper=1, integer=True)
    s.constrain("share", by_job - y.sum_by(job, len(most)), "==", 0, Index.of(job=view.job_names))
    return [
        Stage(f"share_{k}", y[np.flatnonzero(step == k)].sum(), maximize=True)
        for k in range(1, int(most.max(initial=0)) + 1)
    ]


def _costs(
    plan: Round, costs: TransferCosts, x: Variables, task: Integers, gpu: Integers, runs: Expression, held: Integers
) -> list[Stage]:
    """Return the stages of transfer (with the costs of waiting and lost work) and of stops."""
    view, waiting = plan.view, costs.waiting if plan.policy.fair else 0
    started = view.task_running_gpu[task] < 0
    cost = np.where(started, costs.dense()[task, view.gpu_node[gpu]], 0)
    saved = np.where(started, 0, costs.stop[task]) + waiting
    constant = int(costs.stop[held].sum()) + waiting * len(view.task_names)
    weight = (cost - saved).astype(object)
    if max((abs(int(w)) for w in weight), default=0) * (len(view.task_names) + 1) >= 2**53:
        raise ModelError("transfer costs have no common unit that is exact in a program; write sizes with fewer digits")
    transfer = (x * weight.astype(np.float64)).sum() + float(constant)
    stages = [Stage("transfer", transfer, unit=costs.unit_s)]
    if plan.policy.preemptive and len(held):
        stages.append(Stage("stops", runs[held].sum() * -1.0 + float(len(held))))
    return stages
