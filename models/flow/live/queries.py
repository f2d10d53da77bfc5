"""What a flow scheduler answers when it is asked: places, reasons, figures and proofs."""

from __future__ import annotations

from math import inf
from typing import Any

from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.live.event_handlers import EventHandlers
from flowlex.models.flow.live.explain_waiting import Explanation, explain_task
from flowlex.models.flow.live.frozen_state import FrozenState
from flowlex.models.flow.live.full_solve import FullSolve, audit_schedule, priced
from flowlex.models.flow.live.network_optimum import Optimum
from flowlex.models.flow.live.state_queries import present_score, waiting_reason
from flowlex.models.flow.live.task_records import EventError
from flowlex.models.flow.solution import FlowSolution, Score

__all__ = ["Queries"]


class Queries(EventHandlers):
    """Questions to `FlowScheduler`; none of them decides anything."""

    options: dict[str, Any]
    certify: bool
    steps: int
    _full_solve: FullSolve | None  # the last decision, where the network could not make it
    _last_optimum: tuple[object, Optimum] | None  # with when it was read

    def prepare(self, now_s: float | None = None) -> None:
        """Let time pass and bring the network up to the events, without deciding yet.

        Parameters
        ----------
        now_s
            The new time in seconds, on the scheduler's own clock; None: time stands still.

        Raises
        ------
        EventError
            The time is not finite, or it lies before the present one.
        """
        state = self.state
        if now_s is not None:
            if not now_s < inf:
                raise EventError(f"time must be a finite number of seconds, got {now_s}")
            if now_s < state.now_s:
                raise EventError(f"time cannot go back from {state.now_s:g} s to {now_s:g} s")
            state.now_s = now_s
        state.advance()

    def machine_of(self, task: str) -> str | None:
        """Where a task runs; None when it waits."""
        return self.state.task(task).machine

    def placements(self) -> dict[str, str]:
        """Machine by running task."""
        return {name: task.machine for name, task in self.state.tasks.items() if task.machine is not None}

    def waiting(self) -> dict[str, str]:
        """Reason by waiting task."""
        return {name: self.reason(name) for name, task in self.state.tasks.items() if task.machine is None}

    def reason(self, task: str) -> str:
        """Why a task waits, as of the last step."""
        return self._side_constraint_reason(task) or waiting_reason(self.state, task)

    def explain(self, task: str, *, full_solves: bool = True) -> Explanation:
        """Why a task waits, what would have to change, and at what price; see `Explanation`.

        Changes since the last step count: the optimum is brought up to them, but nothing is decided.

        Parameters
        ----------
        full_solves
            Whether to find the price under rules across tasks or capacities too, which takes two full solves.

        Raises
        ------
        EventError
            No task has the name, or it runs (or will with the next step).
        """
        self.state.task(task)
        self.prepare()
        tied = bool(self.state.side_constraints) or self._full_solve is not None
        pending = bool(self._stopwatch.events) and self._side_constraint_reason(task) is None
        why = explain_task(self._optimum(), task, self.reason(task), pending=pending, tied=tied)
        return priced(why, self.frozen()) if tied and full_solves else why

    def frozen(self) -> FrozenState:
        """The state as of now, for other threads and processes."""
        return FrozenState.of(self.state, self.options)

    def _optimum(self) -> Optimum:
        """The optimum of the network, read once for all questions between two steps."""
        state = self.state
        key = self.steps, self._stopwatch.events, state.now_s, state.session.changes
        if self._last_optimum is None or self._last_optimum[0] != key:
            self._last_optimum = key, Optimum.of(state)
        return self._last_optimum[1]

    def _side_constraint_reason(self, task: str) -> str | None:
        """Why a task waits, where the network does not say so."""
        rules = self.state.side_constraints
        solved = None if self._full_solve is None else self._full_solve.waiting.get(task)
        return rules.missing_domain_reason(task) or solved or rules.blocked_reason(task)

    def score(self) -> Score:
        """What the last step minimised; where a whole solve still holds, the figures of that solve.

        Raises
        ------
        EventError
            The last decision was taken over from a log.
        """
        if self._full_solve is None:
            return present_score(self.state)
        if self._full_solve.score is None:
            raise EventError("the last decision was taken over from a log; step first")
        return self._full_solve.score

    def audit(self) -> FlowSolution:
        """The schedule of the last step as a solution, certified from the instance instead of the network.

        Takes a solve of the present instance, whose prices judge the schedule in force (a step proves its flow on the
        network only). The solution can be saved, and judged again by ``flowlex verify`` with the saved `instance`.

        Raises
        ------
        EventError
            Something has happened since the last step, or a task stopped within the limit of its job
            (`FlowJob.preemptions_per_hour`) finds another place now.
        ModelError
            A whole solve stopped at its limit.
        CertificateError
            The schedule does not stand up to the instance (a defect, never an input error).
        """
        if self._stopwatch.events or not self.steps:
            raise EventError("events have come since the last step; step first")
        return audit_schedule(self.state, self.options, self.waiting())

    def instance(self) -> FlowInstance:
        """The present state as an instance."""
        return self.frozen().instance
