"""A snapshot of the public Google cluster trace of 2011, as an instance with capacities.

CPU and memory of machines and tasks are fractions of the largest machine, as in the trace. The trace's placement is
dropped: all tasks wait. See `flowlex.systems.traces.google` for the tables.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from flowlex.instances.flow import FlowInstance, FlowJob, Machine
from flowlex.instances.instance_base import InstanceError
from flowlex.systems.scheduler import event_log as ev
from flowlex.systems.traces.google import google_trace_events


def google_snapshot(
    folder: str | Path,
    at_s: float,
    *,
    slots: int = 110,
    different_machines: bool = True,
    most_jobs: int | None = None,
    counts: Counter[str] | None = None,
) -> FlowInstance:
    """Read the machines and tasks present ``at_s`` seconds after the start of the trace.

    Each machine has ``slots`` slots. Only the first ``most_jobs`` of the jobs present are read. Other
    parameters and errors are those of `google_trace_events`.
    """
    if slots < 1:
        raise InstanceError(f"slots is {slots}; a machine needs at least 1", path=folder)
    machines: dict[str, Machine] = {}
    jobs: dict[str, FlowJob] = {}
    job_of: dict[str, str] = {}
    counts = Counter() if counts is None else counts
    options = {"until_s": at_s, "different_machines": different_machines, "counts": counts}
    for event in google_trace_events(folder, capacity_slots=slots, **options):  # type: ignore[arg-type]
        match event:
            case ev.AddMachine():
                machines[event.machine.name] = event.machine
            case ev.RemoveMachine():
                del machines[event.machine]
            case ev.Submit():
                jobs[event.job.name] = event.job
                job_of |= {task.name: event.job.name for task in event.job.tasks}
            case ev.SetPriority() if event.job in jobs:
                jobs[event.job] = jobs[event.job].model_copy(update={"priority": event.priority})
            case ev.Finish() | ev.Cancel() if event.task is not None:
                _end(jobs, job_of.pop(event.task), event.task)
    if not machines:
        raise InstanceError(f"no machine is there after {at_s:g} s; the trace adds its machines at 0", path=folder)
    kept = tuple(jobs.values())[:most_jobs]
    return FlowInstance(name=f"google-{at_s:g}s", machines=tuple(machines.values()), jobs=kept)


def _end(jobs: dict[str, FlowJob], job: str, task: str) -> None:
    left = tuple(each for each in jobs[job].tasks if each.name != task)
    if left:
        jobs[job] = jobs[job].model_copy(update={"tasks": left})
    else:
        del jobs[job]
