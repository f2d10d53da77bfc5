"""One scheduler over a living cluster: events in, the new global optimum and what moved out.

    scheduler = FlowScheduler(cluster, goals=(Priority(), Placement(), Continuity()))
    scheduler.submit(job)
    scheduler.remove_machine("m17")
    delta = scheduler.step(now_s=12.0)      # placed, moved, stopped, waiting - with reasons

After every step the schedule is an optimum of `FlowScheduling` on the same state (`FlowScheduler.instance`), proven
by an exact check of the flow and its potentials. Python's work per step grows with the events, not the cluster.

Rules that tie tasks (gangs, spreads, affinities) and capacities of machines leave the network. Its optimum is still
taken where it keeps them, as nothing can be better; otherwise a step costs a whole solve of the present instance.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from flowlex.instances import event_log as ev
from flowlex.instances.flow import FlowInstance, Queue, check_queues
from flowlex.instances.instance_base import Part
from flowlex.models.flow.garbage_collection import collect_after, collector_paused
from flowlex.models.flow.goals import Goal, preset
from flowlex.models.flow.goals.priority import Priority
from flowlex.models.flow.goals.scale import common_scale
from flowlex.models.flow.lexicographic_costs import StrictOrder
from flowlex.models.flow.live.cluster_record import Record
from flowlex.models.flow.live.cluster_state import LiveState
from flowlex.models.flow.live.equal_schedules import without_idle_changes
from flowlex.models.flow.live.event_handlers import Stopwatch
from flowlex.models.flow.live.full_solve import Decided, FullSolve, solve_fully
from flowlex.models.flow.live.queries import Queries
from flowlex.models.flow.live.session_choice import Method, make_session, plan_stages, prove
from flowlex.models.flow.live.side_constraints import Changes
from flowlex.models.flow.live.task_records import Delta, EventError
from flowlex.models.model_base import ModelError

__all__ = ["Delta", "EventError", "FlowScheduler"]


class FlowScheduler(Queries):
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
    certify
        Check every step in exact integers.
    cost_limit
        Largest cost of one arc (of each goal, under ``lexicographic``).
    task_limit
        Most tasks at a time; the proof that strict orders are kept rests on both limits.
    solver
        Options of whole solves, such as ``max_steps`` or ``time_limit_s``: a step that they cut off takes the best
        schedule found, and its certificate claims no more than it proves.
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
        self.certify = certify
        self.steps = 0
        self._why: dict[str, str] = {}
        self._stopwatch: Stopwatch = Stopwatch()
        self._full_solve: FullSolve | None = None  # the last decision, where the network could not make it
        self._last_optimum = None
        tasks = sum(len(job.tasks) for job in cluster.jobs)
        goals = _lasting(goals)
        if scale is None:
            scale = common_scale(cluster, goals, wait_cost)
        self.options["scale"] = scale
        order, divisors, self.method = self._plan(goals)
        session = make_session(divisors, len(cluster.machines) + 2 * tasks, 12 * tasks + 4 * len(cluster.machines))
        self.state: LiveState = LiveState(cluster, goals, session, wait_cost, scale, order, task_limit)
        with collector_paused():
            for machine in cluster.machines:
                self.state.put_machine(machine)
            for job in cluster.jobs:
                self.state.put_job(job)
            self.tie(*cluster.gangs, *cluster.spreads, *cluster.affinities)
            self._settle_running(cluster)
        self._stopwatch = Stopwatch()
        collect_after(tasks + len(cluster.machines))

    def _plan(self, goals: tuple[Goal, ...]) -> tuple[StrictOrder, tuple[int, ...], str]:
        """Order of the goals, how it is cut into stages, and what to say of it."""
        kept = self.options
        limit = kept["cost_limit"] * kept["scale"]
        order = StrictOrder.live(goals, limit, kept["task_limit"], lexicographic=kept["lexicographic"])
        return order, *plan_stages(order, kept["method"])

    def _settle_running(self, cluster: FlowInstance) -> None:
        """Let tasks that run already count as running there; the first step moves them only for a gain."""
        for task in cluster.tasks:
            if task.running is not None:
                self.state.resume(task.name, task.running.machine, -task.running.elapsed_s)

    def set_goals(self, goals: Iterable[Goal]) -> None:
        """Other goals, or the same with other weights and parameters, from the next step on.

        The network is built anew with every task in its place; among equal schedules the next step keeps the present
        one. A saved state is then loaded with the new goals. Scale, limits and ``wait_cost`` stay.

        Parameters
        ----------
        goals
            All goals that hold from now on, in their order under ``lexicographic``. `Priority` with ``mode="weighted"``
            needs ``lowest``, because jobs come later.

        Raises
        ------
        ModelError
            The goals cannot be used, or a cost is no multiple of 1 / scale or beyond the limit; nothing has changed.
        """
        with self._stopwatch:
            goals = _lasting(goals)
            order, divisors, method = self._plan(goals)
            state, wait_cost = self.state, self.options["wait_cost"]
            session = make_session(divisors, len(state.cluster.machines) + 2 * len(state.tasks), 256)
            empty = FlowInstance(name=state.name, machines=(), queues=state.queues)
            made = LiveState(empty, goals, session, wait_cost, state.rules.scale.factor, order, state.task_limit)
            Record.of(state).refill(made)
            self.state = made
            self.method = method

    def set_queues(self, queues: Iterable[Queue]) -> None:
        """Other quotas from the next step on; every queue that a job is in must be among them.

        Parameters
        ----------
        queues
            All queues that hold from now on; they replace the present ones. A parent must be among them.

        Raises
        ------
        EventError
            The queues are no tree, or lack that of a job; nothing has changed.
        """
        with self._stopwatch:
            queues, state = tuple(queues), self.state
            try:
                check_queues(queues, (live.job for live in state.jobs.values()))
            except ValueError as error:
                raise EventError(str(error)) from error
            state.queues = queues
            state.recompute_claims()

    def handle(self, event: Part) -> None:
        """Take one event of a log (all but ``cluster`` and ``step``, which say what to do, not what happened).

        Parameters
        ----------
        event
            A record of `flowlex.instances.event_log`.

        Raises
        ------
        EventError
            The event is not one of these, or cannot be: a name unknown or there twice.
        """
        match event:
            case ev.Submit():
                self.submit(event.job, *event.rules)
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
            case ev.SetPreemption():
                given = event.model_fields_set & {"cost", "per_hour"}
                self.set_preemption(event.job, **{name: getattr(event, name) for name in given})
            case ev.Tie():
                self.tie(*event.rules)
            case ev.Untie():
                self.untie(event.kind, event.name)
            case ev.Relabel():
                self.relabel(event.machine, labels=event.labels, rack=event.rack)
            case ev.SetQueues():
                self.set_queues(event.queues)
            case ev.SetGoals():
                self.set_goals(_preset(event.goals))
            case _:
                raise EventError(f"a scheduler cannot take the event {type(event).__name__}")

    # Deciding --------------------------------------------------------------------------------------------------
    def step(
        self,
        now_s: float | None = None,
        *,
        decided: Decided | None = None,
        prefer: Mapping[str, str | None] | None = None,
    ) -> Delta:
        """Decide: the new optimum, and what it changes.

        Where the network's optimum keeps all rules and capacities, it is the best schedule. Otherwise the present
        instance is solved anew (`solve_fully`); if nothing but time has passed since that was done, what it found
        stays.

        Parameters
        ----------
        decided
            What this step changed when it was made first, by a whole solve; taken over instead of solving again.
        prefer
            Where tasks should rather be than where they are, among schedules that are equally good.

        Raises
        ------
        ModelError
            A whole solve found nothing within its limits; nothing is decided, and the step can be repeated.
        CertificateError
            The optimum does not stand up to the check (a defect, never an input error).
        """
        started = time.perf_counter()
        quiet = not self._stopwatch.events and self._full_solve is not None and self._full_solve.best
        self.prepare(now_s)
        prepared = time.perf_counter()
        self.state.session.solve()
        changes: Changes = self.state.network.read_changes()
        certificate, check_s = None, 0.0
        kept = None if decided is not None or quiet else self._steady(changes, prefer or {})
        if kept is not None:
            changes = kept
            self._full_solve, method = None, self.method
            if self.certify:
                checking = time.perf_counter()
                certificate = prove(self.state.session, f"step {self.steps + 1} of {self.state.name}")
                check_s = time.perf_counter() - checking
        else:
            changes, check_s = self._solve_with_side_constraints(changes, quiet=quiet, decided=decided)
            assert self._full_solve is not None
            certificate, method = self._full_solve.certificate, self._full_solve.method
        decided_at = time.perf_counter()
        parts = self._take(changes)
        self.state.side_constraints.settled()
        if not self.steps:
            collect_after(len(self.state.tasks))  # the first step places everything
        done = time.perf_counter()
        seconds = {
            "events": self._stopwatch.seconds + prepared - started,
            "solve": decided_at - prepared - check_s,
            "read": done - decided_at,
            "check": check_s,
            "total": self._stopwatch.seconds + done - started,
        }
        events, self._stopwatch = self._stopwatch.events, Stopwatch()
        self.steps += 1
        state = self.state
        totals = (state.running, len(state.tasks) - state.running)
        whole = self._full_solve is not None
        return Delta(self.steps, state.now_s, events, *parts, *totals, seconds, certificate, method, whole)

    def _steady(self, changes: Changes, prefer: Mapping[str, str | None]) -> Changes | None:
        """What the network's optimum changes, without what gains nothing; None where it is no schedule."""
        state = self.state
        kept = without_idle_changes(state, changes, {t: m for t, m in prefer.items() if t in state.tasks})
        found = next((each for each in (kept, changes) if self._enough(each)), None)
        if found is kept:
            for name in changes.keys() | kept.keys():
                machine = kept[name][1] if name in kept else state.tasks[name].machine
                if state.network.tasks[name].machine != machine:
                    state.network.displace(name, machine)
        return found

    def _enough(self, changes: Changes) -> bool:
        """Whether the network's optimum is a schedule that keeps what the network does not know."""
        state = self.state
        if state.rules.shares is not None and state.rules.shares.kind == "dominant":
            return False
        return not state.side_constraints or state.side_constraints.breach(changes, state._on) is None

    def _solve_with_side_constraints(
        self, changes: Changes, *, quiet: bool, decided: Decided | None
    ) -> tuple[Changes, float]:
        """Decide what the network cannot; returns the changes, and the seconds of checking."""
        state, check_s = self.state, 0.0
        here = {name: state.tasks[name].machine for name in changes}
        next_of: Mapping[str, str | None] = here
        try:
            if decided is not None:
                self._full_solve = decided.as_full_solve(self._full_solve)
                known = here | dict(decided.places)
                next_of = {name: known[name] for name in state.tasks if name in known}  # in the order of a solve
            elif not quiet:
                solution = solve_fully(state, self.options, certify=self.certify)
                self._full_solve = FullSolve.of(solution)
                next_of = {name: solution.machine_of.get(name) for name in state.tasks}
                check_s = 0.0 if solution.seconds is None else solution.seconds.check
        finally:  # also where there is no schedule: what the network wants is asked again at the next step
            for name, machine in next_of.items():
                if state.network.tasks[name].machine != machine:
                    state.network.displace(name, machine)
        pairs = {name: (state.tasks[name].machine, machine) for name, machine in next_of.items()}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}, check_s

    def _take(
        self, changes: Changes
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
        waiting = [(n, self.reason(n)) for n in self.state.fresh if self.state.tasks[n].machine is None]
        self.state.fresh.clear()
        self._why.clear()
        return tuple(placed), tuple(moved), tuple(stopped), tuple(waiting)


def _preset(name: str) -> tuple[Goal, ...]:
    try:
        return preset(name)
    except ModelError as error:
        raise EventError(str(error)) from error


def _lasting(goals: Iterable[Goal]) -> tuple[Goal, ...]:
    """Goals that do not depend on the jobs of the start."""
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
