"""A living cluster whose tasks are tied together by gangs, spreads and affinities.

Events are those of `FlowScheduler`. Rules leave the network that it keeps, so each step solves the present instance
anew (`FlowScheduling`) and takes its schedule, with its certificate: exact, but at the price of a whole solve.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from flowlex.instances.flow import FlowInstance, FlowJob
from flowlex.instances.flow_rules import Affinity, Gang, TaskSpread, check_rules
from flowlex.models.base import ModelError
from flowlex.models.flow.goals import Goal
from flowlex.models.flow.live.delta import Delta
from flowlex.models.flow.live.explain import Explanation
from flowlex.models.flow.live.intake import Timed
from flowlex.models.flow.live.scheduler import EventError, FlowScheduler
from flowlex.models.flow.model import FlowScheduling
from flowlex.models.flow.solution import FlowSolution, Score

__all__ = ["TiedScheduler"]

TieRule = Gang | TaskSpread | Affinity


class TiedScheduler(FlowScheduler):
    """See the module; after every step the schedule is that of a fresh solve, and `audit` returns it.

    Parameters
    ----------
    cluster
        As for `FlowScheduler`, with rules or without.
    goals, options
        As for `FlowScheduler`; ``method`` and ``engine`` have no say.
    solver
        Options of each solve, such as ``time_limit_s`` or ``max_steps``: a step that they cut off takes the best
        schedule so far, and its certificate claims no more.

    Examples
    --------
    >>> from flowlex.instances.flow import FlowJob, FlowTask, Machine
    >>> s = TiedScheduler(FlowInstance(name="live", machines=(Machine(name="m0", slots=2),)))
    >>> s.submit(FlowJob(name="big", tasks=tuple(FlowTask(name=f"t{k}") for k in range(3))))
    >>> s.tie(Gang(name="all", jobs=("big",)))
    >>> s.step().placed
    ()
    >>> s.set_slots("m0", 3)
    >>> len(s.step().placed)
    3
    """

    def __init__(
        self,
        cluster: FlowInstance,
        goals: Iterable[Goal] = (),
        *,
        solver: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.ties: tuple[TieRule, ...] = (*cluster.gangs, *cluster.spreads, *cluster.affinities)
        self.solver: dict[str, Any] = dict(solver or {})
        self._last: FlowSolution | None = None
        free = cluster.model_copy(update={"gangs": (), "spreads": (), "affinities": ()})
        limited = next((job.name for job in cluster.jobs if job.preemptions_per_hour is not None), None)
        if limited is not None:
            raise _limits(limited)
        super().__init__(free, goals, **options)

    # Events ----------------------------------------------------------------------------------------------------
    def tie(self, *rules: TieRule) -> None:
        """More rules from the next step on, over jobs and tasks that are here.

        Raises
        ------
        EventError
            A rule names what is not here, or contradicts another; nothing has changed.
        """
        with self._timed:
            try:
                check_rules(self._with((*self.ties, *rules)))
            except ValueError as error:
                raise EventError(str(error)) from error
            self.ties += rules

    def untie(self, rule: TieRule) -> None:
        """Drop a rule from the next step on."""
        with self._timed:
            if rule not in self.ties:
                raise EventError(f"there is no {rule.says}")
            self.ties = tuple(other for other in self.ties if other != rule)

    def submit(self, job: FlowJob) -> None:
        """A job arrives; tie its tasks before the next step."""
        if job.preemptions_per_hour is not None:
            raise _limits(job.name)
        super().submit(job)

    # Deciding --------------------------------------------------------------------------------------------------
    def step(self, now_s: float | None = None) -> Delta:
        """Decide: the optimum of the present instance, and what it changes."""
        started = time.perf_counter()
        self.prepare(now_s)
        instance, kept, state = self.instance(), self.options, self.state
        self.ties = (*instance.gangs, *instance.spreads, *instance.affinities)
        prepared = time.perf_counter()
        options = {name: kept[name] for name in ("wait_cost", "scale", "lexicographic")}
        model = FlowScheduling(instance, goals=tuple(state.goals), **options)
        solution = model.solve("highs" if self.ties else "network", certify=self.certify, **self.solver)
        if not solution.status.has_answer:
            raise ModelError(f"step {self.steps + 1}: no schedule ({solution.message}); give the solver more time")
        solved = time.perf_counter()
        wanted = {name: (task.machine, solution.machine_of.get(name)) for name, task in state.tasks.items()}
        placed, moved, stopped, fresh = self._take({n: pair for n, pair in wanted.items() if pair[0] != pair[1]})
        self._last = solution
        waiting = tuple((name, solution.waiting[name]) for name, _ in fresh)
        done = time.perf_counter()
        check = 0.0 if solution.seconds is None else solution.seconds.check
        seconds = {
            "events": self._timed.seconds + prepared - started,
            "solve": solved - prepared - check,
            "read": done - solved,
            "check": check,
            "total": self._timed.seconds + done - started,
        }
        events, self._timed = self._timed.events, Timed()
        self.steps += 1
        totals = (state.running, len(state.tasks) - state.running)
        parts = (placed, moved, stopped, waiting)
        return Delta(self.steps, state.now_s, events, *parts, *totals, seconds, solution.certificate, solution.method)

    # Reading ---------------------------------------------------------------------------------------------------
    def instance(self) -> FlowInstance:
        """The present state as an instance; rules keep what is left of their tasks, and go with the last of them."""
        return self._with(self.ties)

    def _with(self, rules: Iterable[TieRule]) -> FlowInstance:
        present, kept = super().instance(), list[TieRule]()
        for rule in rules:
            old = rule in self.ties  # a new one must name what is here
            tasks = tuple(t for t in rule.tasks if not old or t in self.state.tasks)
            jobs = tuple(j for j in rule.jobs if not old or j in self.state.jobs)
            if tasks or jobs:
                kept.append(rule.model_copy(update={"tasks": tasks, "jobs": jobs}))
        kinds = {"gangs": Gang, "spreads": TaskSpread, "affinities": Affinity}
        fields = {name: getattr(present, name) for name in FlowInstance.model_fields}
        fields |= {name: tuple(r for r in kept if isinstance(r, kind)) for name, kind in kinds.items()}
        return FlowInstance.model_construct(**fields)  # a machine may run more than the slots it has left

    def waiting(self) -> dict[str, str]:
        """Reason by waiting task, as of the last step."""
        known = {} if self._last is None else self._last.waiting
        waits = (name for name, task in self.state.tasks.items() if task.machine is None)
        return {name: known.get(name, "it will be looked at by the next step") for name in waits}

    def explain(self, task: str) -> Explanation:
        """Why a task waits, as of the last step; rules across tasks have no one price, so none is given.

        Raises
        ------
        EventError
            No task has the name, or it runs.
        """
        view = self.state.task(task)
        if view.machine is not None:
            raise EventError(f"task {task!r} runs on {view.machine!r}; only what waits is explained")
        tied = any(task in rule.tasks or view.job in rule.jobs for rule in self.ties)
        remedy = "change the rule, add slots, or end what holds them" if tied else "add slots, or make it worth more"
        return Explanation(task, view.job, "placement" if tied else "worth", self.waiting()[task], remedy)

    def audit(self) -> FlowSolution:
        """The solution of the last step, with its certificate.

        Raises
        ------
        EventError
            Something has happened since the last step.
        """
        if self._timed.events or self._last is None:
            raise EventError("events have come since the last step; step first")
        return self._last

    def score(self) -> Score:
        """What the last step minimised."""
        found = self.audit().score
        assert found is not None
        return found


def _limits(job: str) -> EventError:
    return EventError(
        f"job {job!r} limits preemptions, which rules that tie tasks do not go with; leave preemptions_per_hour out "
        "(preempt_cost may stay)"
    )
