"""What a flow scheduler answers when it is asked: places, reasons, figures and proofs."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from flowlex.formulations.sessions.phased import PhasedSession
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.live.audit import audited
from flowlex.models.flow.live.delta import Delta
from flowlex.models.flow.live.event_handlers import Intake
from flowlex.models.flow.live.explain import Explanation, explain_task
from flowlex.models.flow.live.full_solve import Whole, audited_anew, explained
from flowlex.models.flow.live.records import EventError
from flowlex.models.flow.live.state_queries import present_instance, present_score, waiting_reason
from flowlex.models.flow.solution import FlowSolution, Score

__all__ = ["Answers"]


class Answers(Intake):
    """Questions to `FlowScheduler`; none of them decides anything."""

    options: dict[str, Any]
    certify: bool
    steps: int
    _whole: Whole | None  # the last decision, where the network could not make it

    def prepare(self, now_s: float | None = None) -> None:
        """Let time pass and bring the network up to the events, without deciding yet."""
        raise NotImplementedError

    def step(self, now_s: float | None = None) -> Delta:
        """Decide."""
        raise NotImplementedError

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
        known = None if self._whole is None else self._whole.waiting.get(task)
        beyond = self.state.beyond
        return beyond.placeless(task) or known or beyond.hopeless(task) or waiting_reason(self.state, task)

    def explain(self, task: str) -> Explanation:
        """Why a task waits, what would have to change, and at what price; see `Explanation`.

        Changes since the last step count: the optimum is brought up to them, but nothing is decided.

        Raises
        ------
        EventError
            No task has the name, or it runs (or will with the next step).
        """
        self.state.task(task)
        if self.state.beyond or self._whole is not None:
            return self._explain_whole(task)
        self.prepare()
        self.state.session.solve()
        if self._stays_waiting(task):
            return explained(self.state, task, self.reason(task))
        without, freely = lambda other: self._placed_without(task, other), lambda: self._stopped_freely(task)
        return explain_task(self.state, task, without, freely if self.state.limits else None)

    def _stays_waiting(self, task: str) -> bool:
        """Whether a task that the network would run waits for the sake of what runs: it is worth no more."""
        node, state = self.state.network.tasks[task], self.state
        if state.tasks[task].machine is not None or state.session.flow[node.wait_arc]:
            return False
        trial = deepcopy(self)
        trial.certify = False
        trial.step()
        return trial.machine_of(task) is None

    def _explain_whole(self, task: str) -> Explanation:
        """After events: of the step that would come next, tried on a copy."""
        trial = self
        if self._timed.events:
            trial = deepcopy(self)
            trial.certify = False
            trial.step()
            if self.machine_of(task) is None and trial.machine_of(task) is not None:
                raise EventError(f"task {task!r} will be placed by the next step; only what waits is explained")
        return explained(trial.state, task, trial.reason(task))

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
        """What the last step minimised; where a whole solve still holds, the figures of that solve.

        Raises
        ------
        EventError
            The last decision was taken over from a log.
        """
        if self._whole is None:
            return present_score(self.state)
        if self._whole.score is None:
            raise EventError("the last decision was taken over from a log; step first")
        return self._whole.score

    def audit(self) -> FlowSolution:
        """The schedule of the last step as a solution, certified from the instance instead of the network.

        Takes a pass over the cluster (a step proves its flow on the network only); where goals are solved in several
        stages, or rules and whole solves are in force, a whole solve, whose prices judge the schedule in force. The
        solution can be saved, and judged again by ``flowlex verify`` with the saved `instance`.

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
        if self._timed.events or not self.steps:
            raise EventError("events have come since the last step; step first")
        state = self.state
        if self._whole is not None or state.beyond.rules or isinstance(state.session, PhasedSession):
            return audited_anew(state, self.options, self.waiting())
        self.prepare()
        return audited(state, self.options)

    def instance(self) -> FlowInstance:
        """The present state as an instance."""
        return present_instance(self.state)
