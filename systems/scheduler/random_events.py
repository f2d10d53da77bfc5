"""Random event logs of a cluster, to replay and to test with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowlex.instances.flow import FlowInstance, Machine
from flowlex.instances.generators.flow import heavy_tailed_job
from flowlex.instances.instance_base import Part
from flowlex.systems.scheduler import event_log as ev


def event_stream(
    instance: FlowInstance, *, seed: int = 0, steps: int = 100, events: int = 100, step_s: float = 10.0
) -> Iterator[Part]:
    """Yield a random event log: the cluster, then ``steps`` batches of about ``events`` events and a step.

    About as many tasks end as arrive (lifetimes are heavy-tailed: recent tasks end first, some never end). One event
    in fifty removes or returns a machine, and one in fifty changes a priority.
    """
    rng = np.random.default_rng(seed)
    yield ev.Cluster(instance=instance)
    yield ev.Step()
    alive = [task.name for task in instance.tasks]
    jobs = [job.name for job in instance.jobs]
    present, lost = list(instance.machines), list[Machine]()
    size = {job.name: len(job.tasks) for job in instance.jobs}
    of = {task.name: job.name for job in instance.jobs for task in job.tasks}
    balance, number = 0, 0
    for step in range(1, steps + 1):
        at, new = step * step_s, list[str]()
        for _ in range(events):
            draw = rng.random()
            if draw < 0.01 and len(present) > 1:
                machine = present.pop(int(rng.integers(len(present))))
                lost.append(machine)
                yield ev.RemoveMachine(at_s=at, machine=machine.name)
            elif draw < 0.02 and lost:
                machine = lost.pop(int(rng.integers(len(lost))))
                present.append(machine)
                yield ev.AddMachine(at_s=at, machine=machine)
            elif draw < 0.04 and jobs:
                name = jobs[int(rng.integers(len(jobs)))]
                yield ev.SetPriority(at_s=at, job=name, priority=int(rng.integers(12)))
            elif balance > 0 and alive:
                back = min(int(1 + rng.pareto(0.7)), len(alive))
                task = alive.pop(-back)
                size[of[task]] -= 1
                if not size[of[task]]:
                    jobs.remove(of[task])
                balance -= 1
                yield ev.Finish(at_s=at, task=task)
            else:
                number += 1
                job = heavy_tailed_job(rng, f"new{number}", tuple(present), most=20)
                jobs.append(job.name)
                size[job.name] = len(job.tasks)
                new += [task.name for task in job.tasks]  # they can end from the next step on
                of |= {task.name: job.name for task in job.tasks}
                balance += len(job.tasks)
                yield ev.Submit(at_s=at, job=job)
        alive += new
        yield ev.Step(at_s=at)
