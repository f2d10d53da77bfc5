"""What happens to a living cluster, as it reaches the flow scheduler; every event is taken whole or refused."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import ValidationError

from flowlex.instances.flow import MOST_SLOTS, FlowJob, Machine
from flowlex.models.flow.goals.priority import LOWEST
from flowlex.models.flow.live.cluster_state import LiveState
from flowlex.models.flow.live.side_constraints import TieRule
from flowlex.models.flow.live.task_records import EventError
from flowlex.models.model_base import ModelError

__all__ = ["EventHandlers", "Stopwatch"]

T = TypeVar("T", FlowJob, Machine)


class Stopwatch:
    """Counts the events that were taken, and their seconds."""

    __slots__ = ("events", "seconds", "started")

    def __init__(self) -> None:
        self.events, self.seconds, self.started = 0, 0.0, 0.0

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.events += 1
            self.seconds += time.perf_counter() - self.started


class EventHandlers:
    """The events of `FlowScheduler`: each changes the network at once, the optimum waits for a step."""

    state: LiveState
    _stopwatch: Stopwatch
    _why: dict[str, str]

    def submit(self, job: FlowJob, *rules: TieRule) -> None:
        """A job arrives, with rules over its tasks; they wait until the next step."""
        with self._stopwatch:
            if job.name in self.state.jobs:
                raise EventError(f"job {job.name!r} is here already; a job is submitted once")
            for task in job.tasks:
                if task.name in self.state.tasks:
                    raise EventError(f"task {task.name!r} is here already; give each task its own name")
                if task.running is not None:
                    raise EventError(f"task {task.name!r} runs already; submit it without 'running'")
            if job.preempted_s:
                raise EventError(f"job {job.name!r} is new, so none of its tasks was preempted; leave out preempted_s")
            self.state.put_job(job)
            try:
                self.state.side_constraints.tie(rules)
            except EventError:
                for task in job.tasks:
                    self.state.take_task(task.name)
                raise

    def tie(self, *rules: TieRule) -> None:
        """More rules from the next step on, over jobs and tasks that are here.

        Raises
        ------
        EventError
            A rule names what is not here, or contradicts another; nothing has changed.
        """
        with self._stopwatch:
            self.state.side_constraints.tie(rules)

    def untie(self, kind: str, name: str) -> None:
        """Drop a rule (``gang``, ``spread`` or ``affinity``) from the next step on."""
        with self._stopwatch:
            self.state.side_constraints.untie(kind, name)

    def finish(self, task: str) -> None:
        """A running task has ended."""
        with self._stopwatch:
            if self.state.task(task).machine is None:
                raise EventError(f"task {task!r} waits, so it cannot finish; cancel it instead")
            self.state.take_task(task)

    def cancel(self, *, task: str | None = None, job: str | None = None) -> None:
        """A task or a whole job is withdrawn."""
        with self._stopwatch:
            if (task is None) == (job is None):
                raise EventError("cancel names a task or a job, one of the two")
            names = [task] if task is not None else list(self.state.job(str(job)).tasks)
            for name in names:
                self.state.task(name)
                self.state.take_task(name)

    def add_machine(self, machine: Machine) -> None:
        """A machine joins or returns."""
        with self._stopwatch:
            if machine.name in self.state.cluster.machines:
                raise EventError(f"machine {machine.name!r} is here already; use set_slots to change it")
            self.state.put_machine(machine)

    def remove_machine(self, machine: str) -> None:
        """A machine leaves; its tasks stop or move in the next step."""
        with self._stopwatch:
            self.state.machine(machine)
            for name in self.state.held(machine):
                self._why[name] = f"machine {machine!r} was removed"
            self.state.take_machine(machine)

    def set_slots(self, machine: str, slots: int) -> None:
        """A machine runs more or fewer tasks from now on; what is beyond stops or moves in the next step."""
        with self._stopwatch:
            if not isinstance(slots, int) or not 0 <= slots <= MOST_SLOTS:
                raise EventError(f"machine {machine!r}: slots must be a whole number in 0..{MOST_SLOTS}, got {slots!r}")
            old = self.state.machine(machine)
            new = old.model_copy(update={"slots": slots})
            self.state.refuse_slots(machine, slots - old.slots)
            if self.state.rules.asks_each:  # own goals may ask for the slots
                self.state.replace_machine(new)
            else:
                costs = self.state.costs.slot_costs(new)
                self.state.slots += slots - old.slots
                self.state.preemptions.doubt(machine)
                self.state.cluster.add(new)
                self.state.note_machines()
                self.state.network.set_slots(machine, costs)
            if slots < old.slots:
                for name in self.state.held(machine):
                    self._why[name] = f"machine {machine!r} has only {slots} slots now"

    def set_priority(self, job: str, priority: int) -> None:
        """A job becomes more or less important."""
        with self._stopwatch:
            live = self.state.job(job)
            if not isinstance(priority, int) or not 0 <= priority <= LOWEST:
                raise EventError(f"job {job!r}: priority must be a whole number in 0..{LOWEST}, got {priority!r}")
            if self.state.rules.priority is not None:
                self.state.rules.priority.level(priority)
            self.state.prioritise(live, priority)

    def set_cost(self, task: str, machine: str, cost: float | None) -> None:
        """Set what placing a task on a machine costs; None leaves it to the goals again.

        `Continuity` is on top as ever: a task that runs there has its credit for staying.
        """
        with self._stopwatch:
            live = self.state.task(task)
            self.state.machine(machine)
            old = live.costs
            live.costs = {m: c for m, c in old.items() if m != machine} | ({} if cost is None else {machine: cost})
            try:
                self.state.reprice(live)
            except ModelError:
                live.costs = old
                raise

    def update_shares(
        self, job: str, *, weight: int | None = None, min_tasks: int | None = None, max_tasks: int | str | None = "keep"
    ) -> None:
        """Change a job's claim to the cluster; what is not given stays."""
        with self._stopwatch:
            live = self.state.job(job)
            changes: dict[str, Any] = {"weight": weight, "min_tasks": min_tasks}
            changes = {name: value for name, value in changes.items() if value is not None}
            if max_tasks != "keep":
                changes["max_tasks"] = max_tasks
            new = _changed(f"job {job!r}", live.job, changes)
            live.job = new
            if self.state.claims is not None:
                self.state.claims.claim(new)

    def set_preemption(self, job: str, *, cost: float | None = None, per_hour: int | str | None = "keep") -> None:
        """Set what preempting running tasks of a job costs, and how many an hour may be (`FlowJob`).

        ``per_hour``: 0 for never, None for no limit; what is not given stays.
        """
        with self._stopwatch:
            live = self.state.job(job)
            changes: dict[str, Any] = {} if cost is None else {"preempt_cost": cost}
            if per_hour != "keep":
                changes["preemptions_per_hour"] = per_hour
            new = _changed(f"job {job!r}", live.job, changes)
            self.state.limit(live, new.preempt_cost, new.preemptions_per_hour)

    def relabel(self, machine: str, *, labels: Iterable[str] | None = None, rack: str | None = None) -> None:
        """A machine has other labels or stands in another rack; what is not given stays.

        Costs what the arcs of this machine cost. A task that must not run there any more stops or moves in the next
        step.
        """
        with self._stopwatch:
            changes = {"labels": None if labels is None else tuple(labels), "rack": rack}
            changes = {name: value for name, value in changes.items() if value is not None}
            self.state.replace_machine(_changed(f"machine {machine!r}", self.state.machine(machine), changes))
            for name in self.state.held(machine):
                self._why[name] = f"machine {machine!r} was relabelled"


def _changed(what: str, part: T, changes: dict[str, Any]) -> T:
    """A job or machine with other fields."""
    try:
        return type(part).model_validate(part.model_dump() | changes)
    except ValidationError as error:
        raise EventError(f"{what}: {str(error.errors()[0]['msg']).removeprefix('Value error, ')}") from error
