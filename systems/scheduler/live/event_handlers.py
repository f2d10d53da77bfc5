"""Events of a live cluster: each function applies one event to the state, or raises and changes nothing.

The state updates its network at once; the next step finds the optimum.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import ValidationError

from flowlex.instances.flow import MOST_SLOTS, FlowJob, Machine, Queue, check_queues
from flowlex.instances.input_errors import counted, first_fault
from flowlex.models.flow.goals import LOWEST
from flowlex.models.flow.task_rules import GroupRule
from flowlex.models.model_base import ModelError
from flowlex.systems.scheduler.live.cluster_state import LiveState
from flowlex.systems.scheduler.live.task_records import EventError

T = TypeVar("T", FlowJob, Machine)


def submit(state: LiveState, job: FlowJob, *rules: GroupRule) -> None:
    """Add a job, with rules over its tasks; the tasks wait until the next step.

    Parameters
    ----------
    job
        Its name and task names must be new, and none of its tasks may run.
    rules
        Rules over its tasks and tasks that are already present.
    """
    if job.name in state.jobs:
        raise EventError(f"job {job.name!r} is here already; a job is submitted once")
    for task in job.tasks:
        if task.name in state.tasks:
            raise EventError(f"task {task.name!r} is here already; give each task its own name")
        if task.running is not None:
            raise EventError(f"task {task.name!r} runs already; submit it without 'running'")
    if job.preempted_s:
        raise EventError(f"job {job.name!r} is new, so none of its tasks was preempted; leave out preempted_s")
    state.put_job(job)
    try:
        state.side_constraints.tie(rules)
    except EventError:
        for task in job.tasks:
            state.take_task(task.name)
        raise


def tie(state: LiveState, *rules: GroupRule) -> None:
    """Add rules over present jobs and tasks; they apply from the next step on.

    Parameters
    ----------
    rules
        Gangs, spreads and affinities.

    Raises
    ------
    EventError
        A rule names something that is not present, or contradicts another rule; nothing has changed.
    """
    state.side_constraints.tie(rules)


def untie(state: LiveState, kind: str, name: str) -> None:
    """Drop a rule (``gang``, ``spread`` or ``affinity``) from the next step on.

    Parameters
    ----------
    kind, name
        Of the rule.
    """
    state.side_constraints.untie(kind, name)


def finish(state: LiveState, task: str) -> None:
    """Remove a running task that has ended.

    Parameters
    ----------
    task
        Its name.
    """
    if state.task(task).machine is None:
        raise EventError(f"task {task!r} waits, so it cannot finish; cancel it instead")
    state.take_task(task)


def cancel(state: LiveState, *, task: str | None = None, job: str | None = None) -> None:
    """Withdraw a task or a whole job.

    Parameters
    ----------
    task, job
        Exactly one of them must be given.
    """
    if (task is None) == (job is None):
        raise EventError("cancel names a task or a job, one of the two")
    names = [task] if task is not None else list(state.job(str(job)).tasks)
    for name in names:
        state.task(name)
        state.take_task(name)


def add_machine(state: LiveState, machine: Machine) -> None:
    """Add a machine, new or returning.

    Parameters
    ----------
    machine
        Its name must be new.
    """
    if machine.name in state.cluster.machines:
        raise EventError(f"machine {machine.name!r} is here already; use set_slots to change it")
    state.put_machine(machine)


def remove_machine(state: LiveState, machine: str) -> None:
    """Remove a machine; its tasks stop or move in the next step.

    Parameters
    ----------
    machine
        Its name.
    """
    state.machine(machine)
    state.must_leave(machine, "was removed")
    state.take_machine(machine)


def set_slots(state: LiveState, machine: str, slots: int) -> None:
    """Set the number of slots of a machine; excess tasks stop or move in the next step.

    Parameters
    ----------
    machine
        Its name.
    slots
        Its new total number of slots.
    """
    if not isinstance(slots, int) or not 0 <= slots <= MOST_SLOTS:
        raise EventError(f"machine {machine!r}: slots must be a whole number in 0..{MOST_SLOTS}, got {slots!r}")
    old = state.machine(machine)
    new = old.model_copy(update={"slots": slots})
    state.refuse_slots(machine, slots - old.slots)
    if state.rules.asks_each:  # user-defined goals may depend on the slots
        state.replace_machine(new)
    else:
        costs = state.costs.slot_costs(new)
        state.slots += slots - old.slots
        state.preemptions.doubt(machine)
        state.cluster.add(new)
        state.note_machines()
        state.network.set_slots(machine, costs)
    if slots < old.slots:
        state.must_leave(machine, f"has only {counted(slots, 'slot')} now")


def set_priority(state: LiveState, job: str, priority: int) -> None:
    """Set the priority of a job.

    Parameters
    ----------
    job
        Its name.
    priority
        0 to 1000; smaller is more important.
    """
    live = state.job(job)
    if not isinstance(priority, int) or not 0 <= priority <= LOWEST:
        raise EventError(f"job {job!r}: priority must be a whole number in 0..{LOWEST}, got {priority!r}")
    if state.rules.priority is not None:
        state.rules.priority.level(priority)
    state.prioritise(live, priority)


def set_cost(state: LiveState, task: str, machine: str, cost: float | None) -> None:
    """Set the cost of placing a task on a machine.

    `Continuity` still applies: a task that runs there keeps its credit for staying.

    Parameters
    ----------
    task, machine
        Their names.
    cost
        In the unit of the goals; None restores the cost given by the goals.
    """
    live = state.task(task)
    state.machine(machine)
    old = live.task
    costs = {m: c for m, c in old.costs.items() if m != machine} | ({} if cost is None else {machine: cost})
    live.task = old.model_copy(update={"costs": costs})
    try:
        state.reprice(live)
    except ModelError:
        live.task = old
        raise


def update_shares(
    state: LiveState,
    job: str,
    *,
    weight: int | None = None,
    min_tasks: int | None = None,
    max_tasks: int | str | None = "keep",
) -> None:
    """Change a job's claim to the cluster; arguments that are not given keep their values.

    Parameters
    ----------
    job
        Its name.
    weight, min_tasks, max_tasks
        As in `FlowJob`.
    """
    live = state.job(job)
    changes: dict[str, Any] = {"weight": weight, "min_tasks": min_tasks}
    changes = {name: value for name, value in changes.items() if value is not None}
    if max_tasks != "keep":
        changes["max_tasks"] = max_tasks
    new = _changed(f"job {job!r}", live.job, changes)
    live.job = new
    if state.claims is not None:
        state.claims.claim(new)


def set_preemption(
    state: LiveState, job: str, *, cost: float | None = None, per_hour: int | str | None = "keep"
) -> None:
    """Set the cost of preempting tasks of a job, and how many may be preempted per hour (see `FlowJob`).

    Arguments that are not given keep their values.

    Parameters
    ----------
    job
        Its name.
    cost
        Cost of stopping or moving a running task.
    per_hour
        Most preemptions per hour; 0: never, None: no limit.
    """
    live = state.job(job)
    changes: dict[str, Any] = {} if cost is None else {"preempt_cost": cost}
    if per_hour != "keep":
        changes["preemptions_per_hour"] = per_hour
    new = _changed(f"job {job!r}", live.job, changes)
    state.limit(live, new.preempt_cost, new.preemptions_per_hour)


def relabel(state: LiveState, machine: str, *, labels: Iterable[str] | None = None, rack: str | None = None) -> None:
    """Change the labels or the rack of a machine; arguments that are not given keep their values.

    The work is proportional to the arcs of this machine. A task that may no longer run there stops or moves in the
    next step.

    Parameters
    ----------
    machine
        Its name.
    labels, rack
        The complete new labels, and the new rack.
    """
    changes = {"labels": None if labels is None else tuple(labels), "rack": rack}
    changes = {name: value for name, value in changes.items() if value is not None}
    state.replace_machine(_changed(f"machine {machine!r}", state.machine(machine), changes))
    state.must_leave(machine, "was relabelled")


def set_queues(state: LiveState, queues: Iterable[Queue]) -> None:
    """Replace the queues and their quotas from the next step on; every job's queue must be among them.

    Parameters
    ----------
    queues
        All new queues, which replace the present ones; parents must be included.

    Raises
    ------
    EventError
        The queues do not form a tree, or the queue of a job is missing; nothing has changed.
    """
    queues = tuple(queues)
    try:
        check_queues(queues, (live.job for live in state.jobs.values()))
    except ValueError as error:
        raise EventError(str(error)) from error
    state.queues = queues
    state.recompute_claims()


def _changed(what: str, part: T, changes: dict[str, Any]) -> T:
    """Return a validated copy of a job or machine with changed fields."""
    try:
        return type(part).model_validate(part.model_dump() | changes)
    except ValidationError as error:
        raise EventError(f"{what}: {first_fault(error)[1]}") from error
