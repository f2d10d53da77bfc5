"""Tasks with CPU and memory: what the program over classes of tasks and kinds of machines is worth.

Each cluster is solved twice within the same limit: by `flowlex.models.flow.methods.counted_program`, and as it is
stated, task by task (a rule that holds anyway makes the model solve its statement). Times are processor times.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks import Row, Tables
from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine
from flowlex.models.flow.model import FlowScheduling

_SHAPES = ({"cpu": 16, "gb": 64}, {"cpu": 32, "gb": 128})


def tables(*, quick: bool = False) -> Tables:
    sizes = [(4, 3, 4)] if quick else [(4, 3, 6), (8, 3, 15), (16, 4, 20)]
    limit = 2.0 if quick else 30.0
    rows = [_row(cluster(k, *size), counted, limit) for k, size in enumerate(sizes) for counted in (True, False)]
    return [(f"At most {limit:g} s", rows)]


def cluster(seed: int, machines: int, jobs: int, tasks: int) -> FlowInstance:
    """Machines of two kinds, and jobs of identical tasks that ask for more than there is."""
    rng = np.random.default_rng(seed)
    asked = [{"cpu": int(rng.integers(3, 20)), "gb": int(rng.integers(5, 60))} for _ in range(jobs)]
    return FlowInstance(
        name=f"counting-{seed}",
        machines=tuple(Machine(name=f"m{k}", slots=110, capacity=_SHAPES[k % 2]) for k in range(machines)),
        jobs=tuple(
            FlowJob(name=f"j{j}", tasks=tuple(FlowTask(name=f"j{j}t{k}", demands=each) for k in range(tasks)))
            for j, each in enumerate(asked)
        ),
    )


def _row(instance: FlowInstance, counted: bool, limit: float) -> Row:
    model = FlowScheduling(instance, preset="alsched")
    if not counted:
        model = model.with_constraint("holds", model.variables["x"].sum() >= 0)
    started = time.process_time()
    solution = model.solve(certify=False, time_limit_s=limit)
    spent = round(time.process_time() - started, 2)
    tasks = len(list(instance.tasks))
    ends = {"waiting": len(solution.waiting), "status": str(solution.status), "seconds": spent}
    return {"machines": len(instance.machines), "tasks": tasks, "counted": counted, **ends}
