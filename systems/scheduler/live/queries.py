"""Queries of a flow scheduler: placements, reasons, scores and proofs. Queries change no decision."""

from __future__ import annotations

import numpy as np

from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.network_method import score_of
from flowlex.models.flow.solution import FlowSolution, Score
from flowlex.models.flow.waiting_reasons import plain_reason
from flowlex.systems.scheduler.live import exact_state
from flowlex.systems.scheduler.live.cluster_state import LiveState
from flowlex.systems.scheduler.live.explain_waiting import Explanation, explain_task
from flowlex.systems.scheduler.live.frozen_state import FrozenState
from flowlex.systems.scheduler.live.full_solve import audit_schedule, priced
from flowlex.systems.scheduler.live.network_optimum import Optimum
from flowlex.systems.scheduler.live.task_records import EventError


class Queries:
    """Queries of a state; between two steps, all queries share one solved optimum of the network."""

    def __init__(self, state: LiveState, *, copied: bool = False) -> None:
        self.state, self._copied = state, copied
        self._ahead: tuple[object, Queries] | None = None  # of a copy with all events, with the key of its state
        self._last_optimum: tuple[object, Optimum] | None = None  # with the key of its state

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
        waiting = sum(state.tasks[other].machine is None for other in state.jobs[view.job].tasks)
        used = state.rules.shares is not None and waiting <= state.network.jobs[view.job].bounds.must
        return plain_reason(state.rules, view, state.cluster, taken, share_used=used)

    def _side_constraint_reason(self, task: str) -> str | None:
        """Reason of a waiting task from rules, capacities or the last full solve; None if there is none."""
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
        if state.events and not self._copied and (copied := self._copy()) is not None:
            return copied.explain(task, full_solves=full_solves)
        state.advance()
        tied = bool(state.side_constraints) or state.decision is not None
        pending = bool(state.events) and self._side_constraint_reason(task) is None
        why = explain_task(self._optimum(), task, self.reason(task), pending=pending, tied=tied)
        return priced(why, self.frozen()) if tied and full_solves else why

    def _copy(self) -> Queries | None:
        """Return the queries of a copy, where advancing would decide ties of the next step; None: it would not."""
        state = self.state
        if state.claims is None and not state.preemptions.jobs and not state.side_constraints.rules:
            return None
        if self._ahead is None or self._ahead[0] != self._key():
            copied = exact_state.write(state)  # a tenth of the time of `deepcopy`
            if not copied:  # goals of other packages
                return None
            self._ahead = self._key(), Queries(exact_state.read(copied, state.goals), copied=True)
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
        costs = {"cost": state.session.objective - weighted}
    else:
        costs = dict(zip(state.costs.order.names, _cost_by_goal(state), strict=True))
    jobs = (live.job for live in state.jobs.values())
    return score_of(jobs, state.rules, waiting, {"shortfall": shortfall, **costs})


def _cost_by_goal(state: LiveState) -> list[int]:
    """Cost of each goal, summed arc by arc: a total over many arcs cannot be split by goal."""
    flow = state.session.flow
    slots = np.flatnonzero(flow)
    total = [0] * len(state.costs.order.names)
    for cost, units in zip(state.session.costs(slots).tolist(), flow[slots].tolist(), strict=True):
        if cost:
            total = [a + units * b for a, b in zip(total, state.costs.order.split(cost), strict=True)]
    return total
