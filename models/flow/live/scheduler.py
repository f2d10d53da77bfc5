"""One scheduler over a living cluster: events in, the new global optimum and what moved out.

    scheduler = FlowScheduler(cluster, goals=(Priority(), Placement(), Continuity()))
    scheduler.submit(job)
    scheduler.remove_machine("m17")
    delta = scheduler.step(now_s=12.0)      # placed, moved, stopped, waiting - with reasons

After every step the schedule is an optimum of `FlowScheduling` on the same state (`FlowScheduler.instance`), proven
by an exact check of the flow and its potentials. Python's work per step grows with the events, not the cluster.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from math import inf
from typing import Any

from flowlex.formulations.sessions.phased import PhasedSession
from flowlex.instances import events as ev
from flowlex.instances.base import Part
from flowlex.instances.flow import FlowInstance, FlowJob, Machine
from flowlex.models.base import ModelError
from flowlex.models.collector import collector_paused
from flowlex.models.flow.goals import Goal
from flowlex.models.flow.goals.priority import LOWEST, Priority
from flowlex.models.flow.goals.scale import common_scale
from flowlex.models.flow.live.delta import Delta
from flowlex.models.flow.live.engines import EngineChoice, Method, make_session, plan_stages
from flowlex.models.flow.live.state import EventError, LiveJob, LiveState
from flowlex.models.flow.order import StrictOrder
from flowlex.models.flow.solution import Score
from flowlex.validation.certificates import Certificate, Check

__all__ = ["Delta", "EventError", "FlowScheduler"]


class _Timed:
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


class FlowScheduler:
    """See the module.

    Parameters
    ----------
    cluster
        Machines, and jobs present from the start; where tasks run already is kept as their place.
    goals
        As for `FlowScheduling`.
    wait_cost, scale, lexicographic, method
        As for `FlowScheduling`. The scale is fixed at the start, by default the least that makes the goals and the
        cluster's jobs whole; a later cost that is no multiple of its fraction is refused, naming the scale. Under
        ``auto`` strict orders are kept by weights where these stay exact for any cluster within the limits below,
        else by as few phases as fit; the attribute ``method`` then says why.
    engine
        ``paths`` (warm shortest paths) or ``highs`` (the linear program hot-started, for comparison).
    certify
        Check every step in exact integers.
    cost_limit
        Largest cost of one arc (of each goal, under ``lexicographic``).
    task_limit
        Most tasks at a time; the proof that strict orders are kept rests on both limits.
    """

    def __init__(
        self,
        cluster: FlowInstance,
        goals: Iterable[Goal] = (),
        *,
        wait_cost: float | None = None,
        scale: int | None = None,
        engine: EngineChoice = "paths",
        certify: bool = True,
        cost_limit: int = 10**6,
        task_limit: int = 2**20,
        lexicographic: bool = False,
        method: Method = "auto",
    ) -> None:
        self.options: dict[str, Any] = {
            "wait_cost": wait_cost,
            "scale": scale,
            "cost_limit": cost_limit,
            "task_limit": task_limit,
            "lexicographic": lexicographic,
            "method": method,
        }
        self.certify = certify
        self.steps = 0
        self._why: dict[str, str] = {}
        self._timed = _Timed()
        tasks = sum(len(job.tasks) for job in cluster.jobs)
        goals = tuple(goals)
        for goal in goals:
            if isinstance(goal, Priority) and goal.mode == "weighted" and goal.lowest is None:
                raise ModelError(
                    "jobs come later, so a live Priority(mode='weighted') needs its largest number: pass lowest=..."
                )
        if scale is None:
            scale = common_scale(cluster, goals, wait_cost)
        self.options["scale"] = scale
        order = StrictOrder.live(goals, cost_limit * scale, task_limit, lexicographic=lexicographic)
        divisors, self.method = plan_stages(order, method, engine)
        session = make_session(
            engine, divisors, len(cluster.machines) + 2 * tasks, 12 * tasks + 4 * len(cluster.machines)
        )
        self.state: LiveState = LiveState(cluster, goals, session, wait_cost, scale, order, task_limit)
        with collector_paused():
            for machine in cluster.machines:
                self.state.put_machine(machine)
            for job in cluster.jobs:
                self.state.put_job(job)
            self._settle_running(cluster)
        gc.collect()  # or a collection of all that was built falls into one of the first steps

    def _settle_running(self, cluster: FlowInstance) -> None:
        """Let tasks that run already count as running there; the first step moves them only for a gain."""
        for task in cluster.tasks:
            if task.running is not None:
                self.state.settle(task.name, task.running.machine)
                live = self.state.tasks[task.name]
                live.started_s = -task.running.elapsed_s
                self.state.clock.stop(task.name)
                self.state.clock.start(task.name, live.started_s)
                self.state.reprice(live)
                self.state.network.tasks[task.name].machine = task.running.machine

    # Events ----------------------------------------------------------------------------------------------------
    def handle(self, event: Part) -> None:
        """Take one event of a log (all but ``cluster`` and ``step``, which say what to do, not what happened)."""
        match event:
            case ev.Submit():
                self.submit(event.job)
            case ev.Finish():
                self.finish(event.task)
            case ev.Cancel():
                self.cancel(task=event.task, job=event.job)
            case ev.AddMachine():
                self.add_machine(event.machine)
            case ev.RemoveMachine():
                self.remove_machine(event.machine)
            case ev.SetSlots():
                self.set_slots(event.machine, event.slots)
            case ev.SetPriority():
                self.set_priority(event.job, event.priority)
            case ev.SetCost():
                self.set_cost(event.task, event.machine, event.cost)
            case ev.UpdateShares():
                given = event.model_fields_set & {"weight", "min_tasks", "max_tasks"}
                self.update_shares(event.job, **{name: getattr(event, name) for name in given})
            case _:
                raise EventError(f"a scheduler cannot take the event {type(event).__name__}")

    def submit(self, job: FlowJob) -> None:
        """A job arrives; its tasks wait until the next step."""
        with self._timed:
            if job.name in self.state.jobs:
                raise EventError(f"job {job.name!r} is here already; a job is submitted once")
            for task in job.tasks:
                if task.name in self.state.tasks:
                    raise EventError(f"task {task.name!r} is here already; give each task its own name")
                if task.running is not None:
                    raise EventError(f"task {task.name!r} runs already; submit it without 'running'")
            self.state.put_job(job)

    def finish(self, task: str) -> None:
        """A running task has ended."""
        with self._timed:
            if self.state.task(task).machine is None:
                raise EventError(f"task {task!r} waits, so it cannot finish; cancel it instead")
            self.state.take_task(task)

    def cancel(self, *, task: str | None = None, job: str | None = None) -> None:
        """A task or a whole job is withdrawn."""
        with self._timed:
            if (task is None) == (job is None):
                raise EventError("cancel names a task or a job, one of the two")
            names = [task] if task is not None else list(self.state.job(str(job)).tasks)
            for name in names:
                self.state.task(name)
                self.state.take_task(name)

    def add_machine(self, machine: Machine) -> None:
        """A machine joins or returns."""
        with self._timed:
            if machine.name in self.state.cluster.machines:
                raise EventError(f"machine {machine.name!r} is here already; use set_slots to change it")
            self.state.put_machine(machine)

    def remove_machine(self, machine: str) -> None:
        """A machine leaves; its tasks stop or move in the next step."""
        with self._timed:
            self.state.machine(machine)
            for name in self.state.held(machine):
                self._why[name] = f"machine {machine!r} was removed"
            self.state.take_machine(machine)

    def set_slots(self, machine: str, slots: int) -> None:
        """A machine runs more or fewer tasks from now on; what is beyond stops or moves in the next step."""
        with self._timed:
            if not isinstance(slots, int) or slots < 0:
                raise EventError(f"machine {machine!r}: slots must be a whole number of at least 0, got {slots!r}")
            old = self.state.machine(machine)
            new = old.model_copy(update={"slots": slots})
            costs = self.state.slot_costs(new)
            self.state.slots += slots - old.slots
            self.state.cluster.add(new)
            self.state.network.set_slots(machine, costs)
            if slots < old.slots:
                for name in self.state.held(machine):
                    self._why[name] = f"machine {machine!r} has only {slots} slots now"

    def set_priority(self, job: str, priority: int) -> None:
        """A job becomes more or less important."""
        with self._timed:
            live = self.state.job(job)
            if not isinstance(priority, int) or not 0 <= priority <= LOWEST:
                raise EventError(f"job {job!r}: priority must be a whole number in 0..{LOWEST}, got {priority!r}")
            if self.state.rules.priority is not None:
                self.state.rules.priority.level(priority)
            try:
                self._prioritise(live, priority)
            except ModelError:
                self._prioritise(live, live.job.priority)
                raise
            live.job = live.job.model_copy(update={"priority": priority})
            self.state.refresh_job(live)

    def _prioritise(self, live: LiveJob, priority: int) -> None:
        for name in live.tasks:
            self.state.tasks[name].priority = priority
            self.state.reprice(self.state.tasks[name])

    def set_cost(self, task: str, machine: str, cost: float | None) -> None:
        """Set what placing a task on a machine costs; None leaves it to the goals again.

        `Continuity` is on top as ever: a task that runs there has its credit for staying.
        """
        with self._timed:
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
        with self._timed:
            live = self.state.job(job)
            changes: dict[str, Any] = {"weight": weight, "min_tasks": min_tasks}
            changes = {name: value for name, value in changes.items() if value is not None}
            if max_tasks != "keep":
                changes["max_tasks"] = max_tasks
            try:
                new = FlowJob.model_validate(live.job.model_dump() | changes)
            except ValueError as error:
                raise EventError(f"job {job!r}: {_first_reason(error)}") from error
            live.job = new
            if self.state.claims is not None:
                self.state.claims.claim(new)

    # Deciding --------------------------------------------------------------------------------------------------
    def prepare(self, now_s: float | None = None) -> None:
        """Let time pass and bring the network up to the events, without deciding yet."""
        state = self.state
        if now_s is not None:
            if not now_s < inf:
                raise EventError(f"time must be a finite number of seconds, got {now_s}")
            if now_s < state.now_s:
                raise EventError(f"time cannot go back from {state.now_s:g} s to {now_s:g} s")
            state.now_s = now_s
        for name in state.clock.due(state.now_s):
            state.reprice(state.tasks[name], placed=True)
        state.update_bounds()

    def step(self, now_s: float | None = None) -> Delta:
        """Decide: the new optimum, and what it changes.

        Raises
        ------
        CertificateError
            The optimum does not stand up to the check (a defect, never an input error).
        """
        started = time.perf_counter()
        self.prepare(now_s)
        prepared = time.perf_counter()
        self.state.session.solve()
        solved = time.perf_counter()
        parts = self._take(self.state.network.read_changes())
        if not self.steps:
            gc.collect()  # the first step places everything, so the same holds as after building
        read = time.perf_counter()
        certificate = self._certificate() if self.certify else None
        done = time.perf_counter()
        seconds = {
            "events": self._timed.seconds + prepared - started,
            "solve": solved - prepared,
            "read": read - solved,
            "check": done - read,
            "total": self._timed.seconds + done - started,
        }
        events, self._timed = self._timed.events, _Timed()
        self.steps += 1
        state = self.state
        totals = (state.running, len(state.tasks) - state.running)
        return Delta(self.steps, state.now_s, events, *parts, *totals, seconds, certificate, self.method)

    def _take(
        self, changes: dict[str, tuple[str | None, str | None]]
    ) -> tuple[
        tuple[tuple[str, str], ...],
        tuple[tuple[str, str, str, str], ...],
        tuple[tuple[str, str, str], ...],
        tuple[tuple[str, str], ...],
    ]:
        placed, moved, stopped = [], [], []
        for name, (old, new) in changes.items():
            if new is None:
                assert old is not None
                stopped.append((name, old, self._why.get(name, "it gave way to work that is worth more")))
                self.state.fresh[name] = None
            elif old is None:
                placed.append((name, new))
            else:
                moved.append((name, old, new, self._why.get(name, "all places together are cheaper so")))
        for name, (_, new) in changes.items():
            self.state.settle(name, new)
        waiting = [(n, self.state.reason(n)) for n in self.state.fresh if self.state.tasks[n].machine is None]
        self.state.fresh.clear()
        self._why.clear()
        return tuple(placed), tuple(moved), tuple(stopped), tuple(waiting)

    def _certificate(self) -> Certificate:
        session = self.state.session
        found = session.violations()
        stages = session.worst if isinstance(session, PhasedSession) else [found.reduced_costs]
        names = [f"stage {k}: " for k in range(1, len(stages) + 1)] if len(stages) > 1 else [""]
        checks = (
            Check("flow conservation at every vertex", not found.conservation, found.conservation),
            Check("flow between zero and the capacity", not found.bounds, found.bounds),
            *(
                Check(f"{name}reduced costs have the right sign", not worst, worst)
                for name, worst in zip(names, stages, strict=True)
            ),
        )
        return Certificate("optimal", True, checks).require(f"step {self.steps + 1} of {self.state.name}")

    # Reading ---------------------------------------------------------------------------------------------------
    def machine_of(self, task: str) -> str | None:
        """Where a task runs; None when it waits."""
        return self.state.task(task).machine

    def placements(self) -> dict[str, str]:
        """Machine by running task."""
        return {name: task.machine for name, task in self.state.tasks.items() if task.machine is not None}

    def waiting(self) -> dict[str, str]:
        """Reason by waiting task."""
        return {name: self.state.reason(name) for name, task in self.state.tasks.items() if task.machine is None}

    def score(self) -> Score:
        """What the last step minimised."""
        return self.state.score()

    def instance(self) -> FlowInstance:
        """The present state as an instance."""
        return self.state.instance()


def _first_reason(error: ValueError) -> str:
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        return str(error.errors()[0]["msg"]).removeprefix("Value error, ")
    return str(error)
