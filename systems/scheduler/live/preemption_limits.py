"""Preemption limits in a live cluster: which tasks are held, and how many of them may stop now.

See `flowlex.models.flow.preemption`. Events mark machines that may have changed; a step checks only these.
"""

from __future__ import annotations

from collections.abc import Mapping

from flowlex.models.flow.goal_interface import TaskView
from flowlex.models.flow.preemption import HOUR_S, kept_tasks, left
from flowlex.systems.scheduler.live.live_arc_costs import ArcCosts
from flowlex.systems.scheduler.live.side_constraints import SideConstraints
from flowlex.systems.scheduler.live.task_ages import elapsed_s
from flowlex.systems.scheduler.live.task_records import LiveJob, LiveTask


class PreemptionLimits:
    """The preemption limits of all jobs.

    Parameters ``jobs``, ``tasks``, ``tasks_on``: those of the state, the last by machine. Attribute ``jobs``: names of
    the jobs that limit preemptions now or did before.
    """

    def __init__(
        self,
        jobs: Mapping[str, LiveJob],
        tasks: Mapping[str, LiveTask],
        tasks_on: Mapping[str, Mapping[str, None]],
        costs: ArcCosts,  # sets the costs of arcs, which change when a task is held
        side_constraints: SideConstraints,  # releases held tasks that break a rule
    ) -> None:
        self.jobs: dict[str, None] = {}
        self._jobs, self._tasks, self._tasks_on, self._costs = jobs, tasks, tasks_on, costs
        self._side_constraints = side_constraints
        self._unsure: dict[str, None] = {}  # machines whose set of held tasks may have changed
        self._ruled: dict[str, None] = {}  # machines whose tasks may have been released by rules
        self._gates: dict[str, None] = {}  # jobs whose gates and bounds may have changed
        self._resources: frozenset[str] = frozenset()  # those with a limit, as of the last step
        self._spent: dict[str, None] = {}  # jobs with preemptions in the last hour

    def set_limit(self, live: LiveJob, cost: float, per_hour: int | None, now_s: float) -> None:
        """Set the cost and the hourly limit of preempting a job; if a cost is refused, nothing changes."""
        name, limited, tasks = live.job.name, per_hour is not None, map(self._tasks.__getitem__, live.tasks)
        trials = [self._costs.trial(task, now_s, preempt_cost=cost, limited=limited) for task in tasks]
        live.job = live.job.model_copy(update={"preempt_cost": cost, "preemptions_per_hour": per_hour})
        self.note(live, [] if per_hour is None else live.preempted)
        for trial in trials:
            self._costs.put(trial)
            self.jobs[name] = None
            self.doubt(trial.task.machine)
        if per_hour is None:
            del self.jobs[name]

    def note(self, live: LiveJob, times_s: list[float]) -> None:
        """Set the times at which tasks of a job were preempted."""
        name, live.preempted = live.job.name, times_s
        self.jobs[name] = self._gates[name] = None
        if times_s:
            self._spent[name] = None

    def forget(self, job: str) -> None:
        """Forget a removed job."""
        for names in (self.jobs, self._gates, self._spent):
            names.pop(job, None)

    def passes(self, job: LiveJob, now_s: float) -> int:
        """Return how many held tasks of a job may stop now."""
        limited = job.job.preemptions_per_hour is not None
        return left(job.job, (elapsed_s(at, now_s) for at in job.preempted)) if limited else 0

    def doubt(self, machine: str | None) -> None:
        """Mark a machine whose set of held tasks may have changed."""
        if machine is not None and self.jobs:
            self._unsure[machine] = None

    def hold(self, now_s: float) -> None:
        """Update which tasks are held, and which preemptions are older than an hour."""
        rules = self._side_constraints.task_rules
        ruled, self._ruled = self._ruled, dict.fromkeys(self._tasks_on) if rules and self.jobs else {}
        ruled |= self._ruled
        if self._resources != (resources := frozenset(self._side_constraints.resources)):
            self._resources = resources  # a resource that comes or goes limits the tasks of every machine
            ruled |= dict.fromkeys(self._tasks_on if self.jobs else ())
        unsure, self._unsure = self._unsure | ruled, {}
        machines, network = self._costs.cluster.machines, self._costs.network
        tasks_on = {machine: [self._tasks[name] for name in self._tasks_on.get(machine, ())] for machine in unsure}
        bound = [task for tasks in tasks_on.values() for task in tasks if task.limited or task.held]
        for task in bound:
            task.elapsed_s = elapsed_s(task.started_s, now_s)
        there = {machine: tasks for machine, tasks in tasks_on.items() if machine in machines}
        kept = kept_tasks(there, machines, lambda task: self._jobs[task.job].job, self._may_stay, rules, resources)
        for task in bound:
            if task.task.name not in kept:
                self.release(task, now_s)
            elif not task.held:
                live = self._jobs[task.job]
                task.held, live.held = True, live.held + 1
                self._gates[task.job] = None
                network.set_gate(task.job, self.passes(live, now_s))
                network.hold_task(task.task.name, True)
                self._costs.reprice(task, now_s)
        for name in self.jobs if ruled else ():
            live = self._jobs[name]
            ganged = any(self._tasks[task].held for task in rules.gang_tasks & live.tasks.keys())
            if ganged != live.ganged:
                live.ganged = ganged
                self._gates[name] = None
        for name in list(self._spent):
            live = self._jobs[name]
            recent = [at for at in live.preempted if elapsed_s(at, now_s) < HOUR_S]
            if len(recent) < len(live.preempted):
                live.preempted = recent
                self._gates[name] = None
            if not recent:
                del self._spent[name]

    def _may_stay(self, task: TaskView) -> bool:
        if task.task.name in self._costs.unpriced:
            return False
        rules, cluster = self._costs.rules, self._costs.cluster
        return rules.may_stay(task, rules.moving(task, cluster), cluster)

    def release(self, task: LiveTask, now_s: float) -> bool:
        """Release a task if it is held; return whether it was."""
        if not task.held:
            return False
        live = self._jobs[task.job]
        task.held, live.held = False, live.held - 1
        self._gates[task.job] = None
        if task.task.name in self._tasks:
            self._costs.network.hold_task(task.task.name, False)
            self._costs.reprice(task, now_s)
        return True

    def open_gates(self, now_s: float) -> list[LiveJob]:
        """Open the gates for the preemptions that are allowed now; return the jobs whose bounds may have changed."""
        gates, self._gates = self._gates, {}
        network = self._costs.network
        for name in gates:
            if network.jobs[name].gate is not None:
                network.set_gate(name, self.passes(self._jobs[name], now_s))
        return [self._jobs[name] for name in gates]
