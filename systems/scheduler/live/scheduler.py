"""The live flow scheduler: it takes events; each step returns what the new global optimum changes.

    scheduler = FlowScheduler(cluster, goals=(Priority(), Placement(), Continuity()))
    scheduler.submit(job)
    scheduler.remove_machine("m17")
    delta = scheduler.step(now_s=12.0)      # placed, moved, stopped, waiting - with reasons

After every step the schedule is an optimum of `FlowScheduling` on the same state (`FlowScheduler.instance`), proven
by an exact check of the flow and its potentials. The Python work of a step depends on its events, not on the cluster.

Each event changes the state (`LiveState`) and its network at once, or raises and changes nothing; a step decides
(`decision`); queries change no decision.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from flowlex.formulations.gc_pause import collector_paused
from flowlex.formulations.program_arrays import Integers, exact_dot
from flowlex.instances.flow import MOST_SLOTS, FlowInstance, FlowJob, Machine, Queue, check_queues
from flowlex.instances.input_errors import counted, first_fault
from flowlex.instances.instance_base import Part
from flowlex.models.flow.goals import LOWEST, Goal, Priority, common_scale, preset
from flowlex.models.flow.solution import FlowSolution, Score, score_of
from flowlex.models.flow.task_rules import GroupRule
from flowlex.models.flow.waiting_reasons import plain_reason
from flowlex.models.model_base import ModelError
from flowlex.systems.scheduler import event_log as ev
from flowlex.systems.scheduler.live import exact_state
from flowlex.systems.scheduler.live.cluster_state import LiveState
from flowlex.systems.scheduler.live.decision import decide
from flowlex.systems.scheduler.live.explain_waiting import Explanation, explain_task
from flowlex.systems.scheduler.live.frozen_state import FrozenState
from flowlex.systems.scheduler.live.full_solve import audit_schedule, priced
from flowlex.systems.scheduler.live.garbage_collection import collect_after
from flowlex.systems.scheduler.live.network_optimum import Optimum
from flowlex.systems.scheduler.live.session_choice import Method
from flowlex.systems.scheduler.live.task_records import Decided, Delta, EventError

__all__ = ["Delta", "EventError", "FlowScheduler"]

P = ParamSpec("P")
T = TypeVar("T", FlowJob, Machine)

#: Events that call the method of the same name with their fields as arguments.
_PLAIN = (
    *(ev.Finish, ev.Cancel, ev.AddMachine, ev.RemoveMachine, ev.SetSlots, ev.SetPriority, ev.SetCost, ev.UpdateShares),
    *(ev.SetPreemption, ev.Untie, ev.Relabel, ev.SetQueues),
)


@contextmanager
def _refused() -> Iterator[None]:
    """Turn a cost or a goal that the model refuses into an event that the scheduler refuses."""
    try:
        yield
    except EventError:
        raise
    except ModelError as error:
        raise EventError(str(error)) from error


def _event(change: Callable[Concatenate[FlowScheduler, P], None]) -> Callable[Concatenate[FlowScheduler, P], None]:
    """Count an event that was not refused, and its time."""

    @wraps(change)
    def take(self: FlowScheduler, /, *args: P.args, **kwargs: P.kwargs) -> None:
        started = time.perf_counter()
        with _refused():
            change(self, *args, **kwargs)
        self._taken(started)

    return take


class FlowScheduler:
    """See the module.

    Parameters
    ----------
    cluster
        Machines, and jobs present from the start; running tasks keep their machines until a step moves them.
    goals
        As for `FlowScheduling`.
    wait_cost, scale, lexicographic, method
        As for `FlowScheduling`. The scale is fixed at the start; by default it is the smallest for which all costs of
        the goals and jobs are integers. Later costs that are no multiple of 1 / scale are refused. ``auto`` enforces
        strict orders by weights if these are exact for every cluster within the limits below, and otherwise by as few
        phases as possible; the attribute ``method`` gives the reason.
    certify
        Check every step in exact integers.
    cost_limit
        Largest cost of one arc (of each goal, under ``lexicographic``).
    task_limit
        Largest number of tasks at a time; the proof that strict orders are kept depends on both limits.
    solver
        Options of full solves, such as ``max_steps`` or ``time_limit_s``. A step that reaches such a limit uses the
        best schedule found; its certificate then states only what is proven.
    """

    def __init__(
        self,
        cluster: FlowInstance,
        goals: Iterable[Goal] = (),
        *,
        wait_cost: float | None = None,
        scale: int | None = None,
        certify: bool = True,
        cost_limit: int = 10**6,
        task_limit: int = 2**20,
        lexicographic: bool = False,
        method: Method = "auto",
        solver: dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(cluster, FlowInstance):
            raise ModelError(f"FlowScheduler takes a flow-scheduling instance, got {cluster!r}")
        self.options: dict[str, Any] = {
            "wait_cost": wait_cost,
            "scale": scale,
            "cost_limit": cost_limit,
            "task_limit": task_limit,
            "lexicographic": lexicographic,
            "method": method,
            "solver": dict(solver or {}),
        }
        goals = _lasting(goals)
        if scale is None:
            self.options["scale"] = common_scale(cluster, goals, wait_cost)
        self.certify = certify
        tasks = sum(len(job.tasks) for job in cluster.jobs)
        self._use(LiveState(cluster, goals, self.options, len(cluster.machines), tasks))
        with collector_paused():
            for machine in cluster.machines:
                self.state.put_machine(machine)
            for job in cluster.jobs:
                self.state.put_job(job)
            rules: tuple[GroupRule, ...] = (*cluster.gangs, *cluster.spreads, *cluster.affinities)
            self.state.side_constraints.check(rules)
            self.state.side_constraints.tie(rules)
            for task in cluster.tasks:  # tasks that run already; a step moves them only for a gain
                if task.running is not None:
                    self.state.resume(task.name, task.running.machine, -task.running.elapsed_s)
        collect_after(tasks + len(cluster.machines))

    @classmethod
    def continued(cls, state: LiveState, *, certify: bool = True) -> FlowScheduler:
        """Return a scheduler that goes on with a state.

        Parameters
        ----------
        state
            The state of another scheduler, such as one read from a snapshot; it is not copied.
        certify
            Whether every step carries a certificate.
        """
        made = cls.__new__(cls)
        made.options, made.certify = dict(state.options), certify
        made._use(state)
        return made

    def _use(self, state: LiveState) -> None:
        self.state = state
        self._event_seconds = 0.0  # of events since the last step
        self._is_copy = False
        # between two steps, all queries share one copy with all events, and one optimum; each with the key of its state
        self._ahead: tuple[object, FlowScheduler] | None = None
        self._last_optimum: tuple[object, Optimum] | None = None

    @property
    def steps(self) -> int:
        """Decisions so far."""
        return self.state.steps

    @property
    def method(self) -> str:
        """How strict orders are enforced: by weights, or by phases with the reason."""
        return self.state.method

    # Events ----------------------------------------------------------------------------------------------------
    @_event
    def submit(self, job: FlowJob, *rules: GroupRule) -> None:
        """Add a job, with rules over its tasks; the tasks wait until the next step.

        Parameters
        ----------
        job
            Its name and task names must be new, and none of its tasks may run.
        rules
            Rules over its tasks and tasks that are already present.
        """
        if job.name in self.state.jobs:
            raise EventError(f"job {job.name!r} is here already; a job is submitted once")
        for task in job.tasks:
            if task.name in self.state.tasks:
                raise EventError(f"task {task.name!r} is here already; give each task its own name")
            if task.running is not None:
                raise EventError(f"task {task.name!r} runs already; submit it without 'running'")
        if job.preempted_s:
            raise EventError(f"job {job.name!r} is new, so none of its tasks was preempted; leave out preempted_s")
        self.state.side_constraints.check(rules, job)
        self.state.put_job(job)
        self.state.side_constraints.tie(rules)

    @_event
    def tie(self, *rules: GroupRule) -> None:
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
        self.state.side_constraints.check(rules)
        self.state.side_constraints.tie(rules)

    @_event
    def untie(self, kind: str, name: str) -> None:
        """Drop a rule (``gang``, ``spread`` or ``affinity``) from the next step on.

        Parameters
        ----------
        kind, name
            Of the rule.
        """
        self.state.side_constraints.untie(kind, name)

    @_event
    def finish(self, task: str) -> None:
        """Remove a running task that has ended.

        Parameters
        ----------
        task
            Its name.
        """
        if self.state.task(task).machine is None:
            raise EventError(f"task {task!r} waits, so it cannot finish; cancel it instead")
        self.state.take_task(task)

    @_event
    def cancel(self, *, task: str | None = None, job: str | None = None) -> None:
        """Withdraw a task or a whole job.

        Parameters
        ----------
        task, job
            Exactly one of them must be given.
        """
        if (task is None) == (job is None):
            raise EventError("cancel names a task or a job, one of the two")
        names = [task] if task is not None else list(self.state.job(str(job)).tasks)
        for name in names:
            self.state.task(name)
            self.state.take_task(name)

    @_event
    def add_machine(self, machine: Machine) -> None:
        """Add a machine, new or returning.

        Parameters
        ----------
        machine
            Its name must be new.
        """
        if machine.name in self.state.cluster.machines:
            raise EventError(f"machine {machine.name!r} is here already; use set_slots to change it")
        self.state.put_machine(machine)

    @_event
    def remove_machine(self, machine: str) -> None:
        """Remove a machine; its tasks stop or move in the next step.

        It is gone whatever it costs: a task to which a goal then gives a cost beyond ``cost_limit`` waits, and the
        next step says so.

        Parameters
        ----------
        machine
            Its name.
        """
        self.state.machine(machine)
        unpriced, before = self.state.costs.unpriced, set(self.state.costs.unpriced)
        self.state.take_machine(machine)
        self.state.must_leave(machine, "was removed")
        for task in unpriced.keys() - before:
            self.state.why.setdefault(task, unpriced[task])
            self.state.fresh[task] = None

    @_event
    def set_slots(self, machine: str, slots: int) -> None:
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
        old = self.state.machine(machine)
        new = old.model_copy(update={"slots": slots})
        self.state.refuse_slots(machine, slots - old.slots)
        if self.state.rules.asks_each:  # user-defined goals may depend on the slots
            self.state.replace_machine(new)
        else:
            costs = self.state.costs.slot_costs(new)
            self.state.slots += slots - old.slots
            self.state.preemptions.doubt(machine)
            self.state.cluster.add(new)
            self.state.note_machines()
            self.state.network.set_slots(machine, costs)
        if slots < old.slots:
            self.state.must_leave(machine, f"has only {counted(slots, 'slot')} now")

    @_event
    def set_priority(self, job: str, priority: int) -> None:
        """Set the priority of a job.

        Parameters
        ----------
        job
            Its name.
        priority
            0 to 1000; smaller is more important.
        """
        live = self.state.job(job)
        if not isinstance(priority, int) or not 0 <= priority <= LOWEST:
            raise EventError(f"job {job!r}: priority must be a whole number in 0..{LOWEST}, got {priority!r}")
        if self.state.rules.priority is not None:
            self.state.rules.priority.level(priority)
        self.state.prioritise(live, priority)

    @_event
    def set_cost(self, task: str, machine: str, cost: float | None) -> None:
        """Set the cost of placing a task on a machine.

        `Continuity` still applies: a task that runs there keeps its credit for staying.

        Parameters
        ----------
        task, machine
            Their names.
        cost
            In the unit of the goals; None restores the cost given by the goals.
        """
        live = self.state.task(task)
        self.state.machine(machine)
        old = live.task
        costs = {m: c for m, c in old.costs.items() if m != machine} | ({} if cost is None else {machine: cost})
        arcs, new = self.state.costs, old.model_copy(update={"costs": costs})
        arcs.put(arcs.trial(live, self.state.now_s, task=new))

    @_event
    def update_shares(
        self,
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
        live = self.state.job(job)
        changes: dict[str, Any] = {"weight": weight, "min_tasks": min_tasks}
        changes = {name: value for name, value in changes.items() if value is not None}
        if max_tasks != "keep":
            changes["max_tasks"] = max_tasks
        new = _changed(f"job {job!r}", live.job, changes)
        live.job = new
        if self.state.claims is not None:
            self.state.claims.claim(new)

    @_event
    def set_preemption(self, job: str, *, cost: float | None = None, per_hour: int | str | None = "keep") -> None:
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
        live = self.state.job(job)
        changes: dict[str, Any] = {} if cost is None else {"preempt_cost": cost}
        if per_hour != "keep":
            changes["preemptions_per_hour"] = per_hour
        new = _changed(f"job {job!r}", live.job, changes)
        self.state.preemptions.set_limit(live, new.preempt_cost, new.preemptions_per_hour, self.state.now_s)

    @_event
    def relabel(self, machine: str, *, labels: Iterable[str] | None = None, rack: str | None = None) -> None:
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
        self.state.replace_machine(_changed(f"machine {machine!r}", self.state.machine(machine), changes))
        self.state.must_leave(machine, "was relabelled")

    @_event
    def set_queues(self, queues: Iterable[Queue]) -> None:
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
            check_queues(queues, (live.job for live in self.state.jobs.values()))
        except ValueError as error:
            raise EventError(str(error)) from error
        self.state.queues = queues
        self.state.recompute_claims()

    def set_goals(self, goals: Iterable[Goal]) -> None:
        """Replace the goals, or their weights and parameters, from the next step on.

        The network is rebuilt and every task keeps its machine; among equal schedules the next step keeps the present
        one. Saved states contain the new goals from now on. Scale, limits and ``wait_cost`` do not change.

        Parameters
        ----------
        goals
            All new goals, in their order under ``lexicographic``. `Priority` with ``mode="weighted"`` needs ``lowest``,
            because later jobs are not known yet.

        Raises
        ------
        EventError
            A goal is invalid, or a cost is no multiple of 1 / scale or exceeds the limit; nothing has changed.
        """
        started, state = time.perf_counter(), self.state
        empty = FlowInstance(name=state.name, machines=(), queues=state.queues)
        with _refused():
            made = LiveState(empty, _lasting(goals), self.options, len(state.cluster.machines), len(state.tasks))
            FrozenState.of(state).refill(made, known=False)
        started -= self._event_seconds
        self._use(made)
        self._taken(started)

    def _taken(self, started: float) -> None:
        self.state.events += 1
        self._event_seconds += time.perf_counter() - started

    def handle(self, event: Part) -> None:
        """Apply one event of a log (all except ``cluster`` and ``step``, which are handled by the replay).

        Parameters
        ----------
        event
            A record of `flowlex.systems.scheduler.event_log`.

        Raises
        ------
        EventError
            The event has another type, or is impossible, such as an unknown name or one that exists already.
        """
        if isinstance(event, ev.Submit):
            self.submit(event.job, *event.rules)
        elif isinstance(event, ev.Tie):
            self.tie(*event.rules)
        elif isinstance(event, ev.SetGoals):
            self.set_goals(_preset(event.goals))
        elif isinstance(event, _PLAIN):
            given = event.model_fields_set - {"event", "at_s"}
            getattr(self, event.event)(**{name: getattr(event, name) for name in given})
        else:
            raise EventError(f"a scheduler cannot take the event {type(event).__name__}")

    # Deciding --------------------------------------------------------------------------------------------------
    def prepare(self, now_s: float | None = None) -> None:
        """Advance the clock and apply all events to the network, without deciding; see `LiveState.advance`.

        Parameters
        ----------
        now_s
            The new time on the scheduler's own clock; None: time stands still.
        """
        self.state.advance(now_s)

    def step(self, now_s: float | None = None, *, decided: Decided | None = None) -> Delta:
        """Find the new optimum and return what it changes.

        If the network's optimum satisfies all rules and capacities, it is the best schedule. Otherwise the present
        instance is solved from scratch (`solve_fully`); an optimal decision is kept until the next event.

        Parameters
        ----------
        now_s
            As in `prepare`.
        decided
            A recorded decision, which is applied instead of a new one; it was proven when it was made.

        Raises
        ------
        ModelError
            A full solve found no schedule within its limits; nothing is decided, and the step can be repeated.
        CertificateError
            The check of the optimum failed (a defect of the program, never an input error).
        """
        certify = self.certify and decided is None
        delta = decide(self.state, now_s, self._event_seconds, self.reason, certify=certify, decided=decided)
        self._event_seconds = 0.0
        return delta

    # Queries ---------------------------------------------------------------------------------------------------
    def machine_of(self, task: str) -> str | None:
        """Return the machine of a task; None if it waits.

        Parameters
        ----------
        task
            Its name.
        """
        return self.state.task(task).machine

    def placements(self) -> dict[str, str]:
        """Machine by running task."""
        return {name: task.machine for name, task in self.state.tasks.items() if task.machine is not None}

    def waiting(self) -> dict[str, str]:
        """Reason by waiting task."""
        return {name: self.reason(name) for name, task in self.state.tasks.items() if task.machine is None}

    def reason(self, task: str) -> str:
        """Return why a task waits, as of the last step.

        Parameters
        ----------
        task
            Its name.
        """
        if (reason := self._side_constraint_reason(task)) is not None:
            return reason
        state, view = self.state, self.state.task(task)
        others = state.tasks_apart.get(view.apart, ())
        taken = {at for other in others if (at := state.tasks[other].machine) is not None}
        used = False
        if state.rules.shares is not None:
            waiting = sum(state.tasks[other].machine is None for other in state.jobs[view.job].tasks)
            used = waiting <= state.network.jobs[view.job].bounds.must
        return plain_reason(state.rules, view, state.cluster, taken, share_used=used)

    def _side_constraint_reason(self, task: str) -> str | None:
        """Reason of a waiting task from rules, capacities or the last full solve; None if there is none."""
        if (unpriced := self.state.costs.unpriced.get(task)) is not None:
            return unpriced
        rules, decision = self.state.side_constraints, self.state.decision
        solved = None if decision is None else decision.waiting.get(task)
        return rules.task_rules.missing_domains.get(task) or solved or rules.blocked_reason(task)

    def explain(self, task: str, *, full_solves: bool = True) -> Explanation:
        """Explain why a task waits, what would have to change, and at what price; see `Explanation`.

        The optimum includes all events since the last step, but nothing is decided.

        Parameters
        ----------
        task
            Its name.
        full_solves
            Whether to find the price also under rules across tasks or capacities, by two full solves.

        Raises
        ------
        EventError
            No task has this name, or it runs (or may run from the next step on).
        """
        state = self.state
        state.task(task)
        if state.events and not self._is_copy and (copied := self._copy()) is not None:
            return copied.explain(task, full_solves=full_solves)
        state.advance()
        if task in state.costs.unpriced:
            remedy = "raise cost_limit, or change the goal or the task"
            return Explanation(task, state.tasks[task].job, "placement", self.reason(task), remedy)
        tied = bool(state.side_constraints) or state.decision is not None
        pending = bool(state.events) and self._side_constraint_reason(task) is None
        why = explain_task(self._optimum(), task, self.reason(task), pending=pending, tied=tied)
        return priced(why, self.frozen()) if tied and full_solves else why

    def _copy(self) -> FlowScheduler | None:
        """Return a copy, where advancing would decide ties of the next step; None: it would not."""
        state = self.state
        if state.claims is None and not state.preemptions.jobs and not state.side_constraints.rules:
            return None
        if self._ahead is None or self._ahead[0] != self._key():
            copied = exact_state.write(state)  # a tenth of the time of `deepcopy`
            if not copied:  # goals of other packages
                return None
            self._ahead = self._key(), FlowScheduler.continued(exact_state.read(copied, state.goals))
            self._ahead[1]._is_copy = True
        return self._ahead[1]

    def _key(self) -> object:
        return self.state.steps, self.state.events, self.state.now_s, self.state.session.changes

    def _optimum(self) -> Optimum:
        state, key = self.state, self._key()
        if self._last_optimum is None or self._last_optimum[0] != key:
            self._last_optimum = key, Optimum.of(state)
        return self._last_optimum[1]

    def frozen(self) -> FrozenState:
        """The state as of now, for other threads and processes."""
        return FrozenState.of(self.state)

    def instance(self) -> FlowInstance:
        """The present state as an instance."""
        return self.frozen().instance

    def score(self) -> Score:
        """Return the objective of the last step; while the decision of a full solve holds, that solve's score.

        Raises
        ------
        EventError
            The last decision was taken over from a log.
        """
        decision = self.state.decision
        if decision is None:
            return _present_score(self.state)
        if decision.score is None:
            raise EventError("the last decision was taken over from a log; step first")
        return decision.score

    def audit(self) -> FlowSolution:
        """Return the schedule of the last step as a solution, certified from the instance instead of the network.

        This solves the present instance and certifies the schedule with the duals of this solve (a step proves its flow
        only on the network). Save the solution and `instance` to verify it again by ``flowlex verify``.

        Raises
        ------
        EventError
            There were events since the last step, or a task that was stopped within the limit of its job
            (`FlowJob.preemptions_per_hour`) could run now.
        ModelError
            A full solve stopped at its limit.
        CertificateError
            The check of the schedule failed (a defect of the program, never an input error).
        """
        if self.state.events or not self.state.steps:
            raise EventError("events have come since the last step; step first")
        return audit_schedule(self.state, self.waiting())


def _present_score(state: LiveState) -> Score:
    """Recompute the objective of the last step (work proportional to the cluster)."""
    waiting = [sum(state.tasks[task].machine is None for task in job.tasks) for job in state.jobs.values()]
    shortfall = weighted = 0
    for name, waits in zip(state.jobs, waiting, strict=True):
        bounds = state.network.jobs[name].bounds
        short = max(0, waits - bounds.must - bounds.free)
        shortfall += short
        weighted += bounds.wait_cost * (waits - bounds.must - short) + bounds.short_cost * short
    if state.rules.order is None:
        costs = {"cost": exact_dot(*_arcs_as_decided(state)) - weighted}
    else:
        costs = dict(zip(state.costs.order.names, _cost_by_goal(state), strict=True))
    jobs = (live.job for live in state.jobs.values())
    return score_of(jobs, state.rules, waiting, {"shortfall": shortfall, **costs})


def _cost_by_goal(state: LiveState) -> list[int]:
    """Cost of each goal, summed arc by arc: a total over many arcs cannot be split by goal."""
    total = [0] * len(state.costs.order.names)
    costs, flow = _arcs_as_decided(state)
    for cost, units in zip(costs.tolist(), flow.tolist(), strict=True):
        if cost:
            total = [a + units * b for a, b in zip(total, state.costs.order.split(cost), strict=True)]
    return total


def _arcs_as_decided(state: LiveState) -> tuple[NDArray[Any], Integers]:
    """Costs and flow of the arcs that carried flow after the last step."""
    if state.as_decided is not None and state.as_decided[0] == state.steps:
        return state.as_decided[1:]
    arcs = np.flatnonzero(state.session.flow)
    return state.session.costs(arcs), state.session.flow[arcs]


def _preset(name: str) -> tuple[Goal, ...]:
    try:
        return preset(name)
    except ModelError as error:
        raise EventError(str(error)) from error


def _lasting(goals: Iterable[Goal]) -> tuple[Goal, ...]:
    """Check that goals do not depend on the initial jobs, and return them as a tuple."""
    goals = (goals,) if isinstance(goals, str) else tuple(goals)
    for goal in goals:
        if not isinstance(goal, Goal):
            raise ModelError(
                f"goals: expected goals such as (FairShares(), Priority()), got {goal!r}; see preset(name)"
            )
        if isinstance(goal, Priority) and goal.mode == "weighted" and goal.lowest is None:
            raise ModelError(
                "jobs come later, so a live Priority(mode='weighted') needs its largest number: pass lowest=..."
            )
    return goals


def _changed(what: str, part: T, changes: dict[str, Any]) -> T:
    """Return a validated copy of a job or machine with changed fields."""
    try:
        return type(part).model_validate(part.model_dump() | changes)
    except ValidationError as error:
        raise EventError(f"{what}: {first_fault(error)[1]}") from error
