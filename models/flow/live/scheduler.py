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
from copy import deepcopy
from math import inf
from typing import Any

from flowlex.formulations.sessions.phased import PhasedSession
from flowlex.instances.flow import FlowInstance, Queue, check_queues
from flowlex.models.base import ModelError
from flowlex.models.collector import collector_paused
from flowlex.models.flow.goals import Goal
from flowlex.models.flow.goals.priority import Priority
from flowlex.models.flow.goals.scale import common_scale
from flowlex.models.flow.live.audit import audited
from flowlex.models.flow.live.delta import Delta
from flowlex.models.flow.live.engines import EngineChoice, Method, make_session, plan_stages, prove
from flowlex.models.flow.live.explain import Explanation, explain_task
from flowlex.models.flow.live.intake import Intake, Timed
from flowlex.models.flow.live.known import EventError
from flowlex.models.flow.live.reading import present_instance, present_score, waiting_reason
from flowlex.models.flow.live.state import LiveState
from flowlex.models.flow.live.switching import rebuild, switch_goals
from flowlex.models.flow.order import StrictOrder
from flowlex.models.flow.solution import FlowSolution, Score

__all__ = ["Delta", "EventError", "FlowScheduler"]


class FlowScheduler(Intake):
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
        ``paths`` (warm shortest paths); for comparison ``scaling`` (the published incremental cost scaling; a saved
        state goes on by paths) and ``highs`` (the linear program hot-started).
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
        self._timed = Timed()
        self._engine: EngineChoice = engine
        if tied := (*cluster.gangs, *cluster.spreads, *cluster.affinities):
            raise EventError(
                f"{tied[0].says}: this live scheduler knows no rules that tie tasks; use TiedScheduler "
                "(flowlex.models.flow.live.tied)"
            )
        tasks = sum(len(job.tasks) for job in cluster.jobs)
        goals = _lasting(goals)
        if scale is None:
            scale = common_scale(cluster, goals, wait_cost)
        self.options["scale"] = scale
        order, divisors, self.method = self._plan(goals)
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

    def _plan(self, goals: tuple[Goal, ...]) -> tuple[StrictOrder, tuple[int, ...], str]:
        """Order of the goals, how it is cut into stages, and what to say of it."""
        kept = self.options
        limit = kept["cost_limit"] * kept["scale"]
        order = StrictOrder.live(goals, limit, kept["task_limit"], lexicographic=kept["lexicographic"])
        return order, *plan_stages(order, kept["method"], self._engine)

    def _settle_running(self, cluster: FlowInstance) -> None:
        """Let tasks that run already count as running there; the first step moves them only for a gain."""
        for task in cluster.tasks:
            if task.running is not None:
                self.state.resume(task.name, task.running.machine, -task.running.elapsed_s)

    def set_goals(self, goals: Iterable[Goal]) -> None:
        """Other goals, or the same with other weights and parameters, from the next step on.

        All tasks are priced anew (a pass over all of them); in the network only arcs change whose cost differs, and
        the next step starts from the present optimum. Where a strict order of goals needs other stages than before
        (``lexicographic``), the network is built anew with every task in its place. A saved state is then loaded
        with the new goals. Scale, limits and ``wait_cost`` stay.

        Raises
        ------
        ModelError
            The goals cannot be used, or a cost is no multiple of 1 / scale or beyond the limit; nothing has changed.
        """
        with self._timed:
            goals = _lasting(goals)
            order, divisors, method = self._plan(goals)
            state, wait_cost = self.state, self.options["wait_cost"]
            if divisors == (state.session.divisors if isinstance(state.session, PhasedSession) else (1,)):
                switch_goals(state, goals, wait_cost, order)
            else:
                session = make_session(self._engine, divisors, len(state.cluster.machines) + 2 * len(state.tasks), 256)
                self.state = rebuild(state, goals, wait_cost, order, session)
            self.method = method

    def set_queues(self, queues: Iterable[Queue]) -> None:
        """Other quotas from the next step on; every queue that a job is in must be among them.

        Raises
        ------
        EventError
            The queues are no tree, or lack that of a job; nothing has changed.
        """
        with self._timed:
            queues, state = tuple(queues), self.state
            try:
                check_queues(queues, (live.job for live in state.jobs.values()))
            except ValueError as error:
                raise EventError(str(error)) from error
            state.queues = queues
            state.claim_anew()

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
            state.grow_older(state.tasks[name])
        state.hold()
        state.update_bounds()
        state.open_gates()

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
        certificate = prove(self.state.session, f"step {self.steps + 1} of {self.state.name}") if self.certify else None
        done = time.perf_counter()
        seconds = {
            "events": self._timed.seconds + prepared - started,
            "solve": solved - prepared,
            "read": read - solved,
            "check": done - read,
            "total": self._timed.seconds + done - started,
        }
        events, self._timed = self._timed.events, Timed()
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
        waiting = [(n, waiting_reason(self.state, n)) for n in self.state.fresh if self.state.tasks[n].machine is None]
        self.state.fresh.clear()
        self._why.clear()
        return tuple(placed), tuple(moved), tuple(stopped), tuple(waiting)

    # Reading ---------------------------------------------------------------------------------------------------
    def machine_of(self, task: str) -> str | None:
        """Where a task runs; None when it waits."""
        return self.state.task(task).machine

    def placements(self) -> dict[str, str]:
        """Machine by running task."""
        return {name: task.machine for name, task in self.state.tasks.items() if task.machine is not None}

    def waiting(self) -> dict[str, str]:
        """Reason by waiting task."""
        return {
            name: waiting_reason(self.state, name) for name, task in self.state.tasks.items() if task.machine is None
        }

    def explain(self, task: str) -> Explanation:
        """Why a task waits, what would have to change, and at what price; see `Explanation`.

        Changes since the last step count: the optimum is brought up to them, but nothing is decided.

        Raises
        ------
        EventError
            No task has the name, or it runs (or will with the next step).
        """
        self.state.task(task)
        self.prepare()
        self.state.session.solve()
        without, freely = lambda other: self._placed_without(task, other), lambda: self._stopped_freely(task)
        return explain_task(self.state, task, without, freely if self.state.limits else None)

    def _stopped_freely(self, task: str) -> tuple[str, ...] | None:
        """Try on a copy which held tasks stop or move if nothing limits preemptions; None if the task waits then."""
        trial = deepcopy(self)
        trial.certify = False
        for job in list(trial.state.limits):
            trial.set_preemption(job, per_hour=None)
        trial.step()
        if trial.machine_of(task) is None:
            return None
        held = (name for name, its in self.state.tasks.items() if its.held)
        return tuple(name for name in held if trial.machine_of(name) != self.machine_of(name))

    def _placed_without(self, task: str, other: str) -> bool:
        """Try on a copy whether a task runs as soon as another one ends."""
        trial = deepcopy(self)
        trial.certify = False
        trial.cancel(task=other)
        trial.step()
        return trial.machine_of(task) is not None

    def score(self) -> Score:
        """What the last step minimised."""
        return present_score(self.state)

    def audit(self) -> FlowSolution:
        """The schedule of the last step as a solution, certified from the instance instead of the network.

        Takes a pass over the cluster (a step proves its flow on the network only). The solution can be saved, and
        judged again by ``flowlex verify`` with the saved `instance`.

        Raises
        ------
        EventError
            Something has happened since the last step, or a task stopped within the limit of its job
        (`FlowJob.preemptions_per_hour`) finds another place now.
        ModelError
            Stages are solved one after the other, so that there is no one price of a slot.
        CertificateError
            The schedule does not stand up to the instance (a defect, never an input error).
        """
        if self._timed.events or not self.steps:
            raise EventError("events have come since the last step; step first")
        self.prepare()
        return audited(self.state, self.options)

    def instance(self) -> FlowInstance:
        """The present state as an instance."""
        return present_instance(self.state)


def _lasting(goals: Iterable[Goal]) -> tuple[Goal, ...]:
    """Goals that do not depend on the jobs of the start."""
    goals = tuple(goals)
    for goal in goals:
        if isinstance(goal, Priority) and goal.mode == "weighted" and goal.lowest is None:
            raise ModelError(
                "jobs come later, so a live Priority(mode='weighted') needs its largest number: pass lowest=..."
            )
    return goals
