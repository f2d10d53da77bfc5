"""The live flow scheduler: it takes events; each step returns what the new global optimum changes.

    scheduler = FlowScheduler(cluster, goals=(Priority(), Placement(), Continuity()))
    scheduler.submit(job)
    scheduler.remove_machine("m17")
    delta = scheduler.step(now_s=12.0)      # placed, moved, stopped, waiting - with reasons

After every step the schedule is an optimum of `FlowScheduling` on the same state (`FlowScheduler.instance`), proven
by an exact check of the flow and its potentials. The Python work of a step depends on its events, not on the cluster.

Events (`event_handlers`) change the state (`LiveState`) and its network, a step decides (`decision`), and `Queries`,
its base, only read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from flowlex.formulations.gc_pause import collector_paused
from flowlex.instances import event_log as ev
from flowlex.instances.flow import FlowInstance
from flowlex.instances.instance_base import Part
from flowlex.models.flow.goals import Goal, Priority, common_scale, preset
from flowlex.models.model_base import ModelError
from flowlex.systems.scheduler.live import event_handlers
from flowlex.systems.scheduler.live.cluster_state import LiveState
from flowlex.systems.scheduler.live.decision import decide
from flowlex.systems.scheduler.live.frozen_state import FrozenState
from flowlex.systems.scheduler.live.garbage_collection import collect_after
from flowlex.systems.scheduler.live.queries import Queries
from flowlex.systems.scheduler.live.session_choice import Method
from flowlex.systems.scheduler.live.task_records import Decided, Delta, EventError

__all__ = ["Delta", "EventError", "FlowScheduler"]

P = ParamSpec("P")

#: Events that call the method of the same name with their fields as arguments.
_PLAIN = (
    *(ev.Finish, ev.Cancel, ev.AddMachine, ev.RemoveMachine, ev.SetSlots, ev.SetPriority, ev.SetCost, ev.UpdateShares),
    *(ev.SetPreemption, ev.Untie, ev.Relabel, ev.SetQueues),
)


def _event(change: Callable[Concatenate[LiveState, P], None]) -> Callable[Concatenate[FlowScheduler, P], None]:
    """Make a method that applies an event to the state, and counts the event if it was not refused."""

    @wraps(change)
    def take(self: FlowScheduler, /, *args: P.args, **kwargs: P.kwargs) -> None:
        started = time.perf_counter()
        with _refused():
            change(self.state, *args, **kwargs)
        self._taken(started)

    return take


@contextmanager
def _refused() -> Iterator[None]:
    """Turn a cost or a goal that the model refuses into an event that the scheduler refuses."""
    try:
        yield
    except EventError:
        raise
    except ModelError as error:
        raise EventError(str(error)) from error


class FlowScheduler(Queries):
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
            self.state.side_constraints.tie((*cluster.gangs, *cluster.spreads, *cluster.affinities))
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
        super().__init__(state)
        self._event_seconds = 0.0  # of events since the last step

    @property
    def steps(self) -> int:
        """Decisions so far."""
        return self.state.steps

    @property
    def method(self) -> str:
        """How strict orders are enforced: by weights, or by phases with the reason."""
        return self.state.method

    # Events ----------------------------------------------------------------------------------------------------
    submit = _event(event_handlers.submit)
    tie = _event(event_handlers.tie)
    untie = _event(event_handlers.untie)
    finish = _event(event_handlers.finish)
    cancel = _event(event_handlers.cancel)
    add_machine = _event(event_handlers.add_machine)
    remove_machine = _event(event_handlers.remove_machine)
    set_slots = _event(event_handlers.set_slots)
    set_priority = _event(event_handlers.set_priority)
    set_cost = _event(event_handlers.set_cost)
    update_shares = _event(event_handlers.update_shares)
    set_preemption = _event(event_handlers.set_preemption)
    relabel = _event(event_handlers.relabel)
    set_queues = _event(event_handlers.set_queues)

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
            FrozenState.of(state).refill(made)
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
            A record of `flowlex.instances.event_log`.

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
        delta = decide(self.state, now_s, self._event_seconds, certify=certify, decided=decided)
        self._event_seconds = 0.0
        return delta


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
