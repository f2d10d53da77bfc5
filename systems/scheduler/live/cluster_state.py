"""The state of a live cluster; every change updates the network."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.flow import FlowInstance, FlowJob, Machine, Queue
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.fair_share_demands import places_of, rule_of
from flowlex.models.flow.goal_interface import ClusterView, Scale, TaskView
from flowlex.models.flow.goals import Goal
from flowlex.models.flow.lexicographic_costs import StrictOrder
from flowlex.systems.scheduler.live.job_claims import JobClaims
from flowlex.systems.scheduler.live.live_arc_costs import ArcCosts, Trial
from flowlex.systems.scheduler.live.live_network import UNBOUND, JobBounds, LiveNetwork
from flowlex.systems.scheduler.live.preemption_limits import PreemptionLimits
from flowlex.systems.scheduler.live.session_choice import Session, make_session, plan_stages
from flowlex.systems.scheduler.live.side_constraints import SideConstraints
from flowlex.systems.scheduler.live.task_ages import TaskAges, elapsed_s
from flowlex.systems.scheduler.live.task_records import EventError, FullSolve, LiveJob, LiveTask
from flowlex.systems.scheduler.warm_network.staged_network import PhasedSession

#: Largest total number of slots; the network may have one arc per slot.
_SLOT_LIMIT = 2**21
_MACHINE_LIMIT = 2**18


class LiveState:
    """Machines, jobs and tasks; every change updates the network at once, and the next step re-optimizes it.

    ``network``: the min-cost flow network of the state. ``method``: how strict orders of goals are enforced. ``costs``
    sets the costs of its arcs. ``preemptions``: which tasks may only stay or stop. ``side_constraints``: rules and
    capacities outside the network. ``steps``, ``events``: decisions so far, and events since the last one.
    ``decision``: the last decision if a full solve made it, else None. For the next step: ``fresh``, tasks to report if
    they wait, and ``why``, the reasons why tasks leave their machines.
    """

    def __init__(
        self, cluster: FlowInstance, goals: tuple[Goal, ...], options: Mapping[str, Any], machines: int, tasks: int
    ) -> None:
        self.name: str = cluster.name
        self.goals, self.options = goals, options
        limit, lexicographic = options["cost_limit"] * options["scale"], options["lexicographic"]
        order = StrictOrder.live(goals, limit, options["task_limit"], lexicographic=lexicographic)
        divisors, self.method = plan_stages(order, options["method"])
        initial = [TaskView(t, j.name, j.priority, None, 0.0) for j in cluster.jobs for t in j.tasks]
        self.rules: Rules = Rules(goals, options["wait_cost"], Scale(options["scale"]), initial, order)
        self.session: Session = make_session(divisors, machines + 2 * tasks, 12 * tasks + 4 * machines)
        self.cluster: ClusterView = ClusterView()
        self.network: LiveNetwork = LiveNetwork(self.session, self.cluster)
        self.now_s: float = 0.0
        self.steps = self.events = 0
        self.decision: FullSolve | None = None
        # number of the last step, and costs and flow of its arcs, if it was solved since; see `solve_ahead`
        self.as_decided: tuple[int, NDArray[Any], Integers] | None = None
        self.why: dict[str, str] = {}
        self.tasks: dict[str, LiveTask] = {}
        self.jobs: dict[str, LiveJob] = {}
        self.queues: tuple[Queue, ...] = cluster.queues
        self.claims: JobClaims | None = None
        self.recompute_claims()
        self.ages: TaskAges = TaskAges.of(self.rules.goals)
        self.running = 0
        self.slots = 0
        self.fresh: dict[str, None] = {}  # tasks to be reported if they wait
        self.side_constraints: SideConstraints = SideConstraints(self.cluster.machines, self.jobs, self.tasks)
        self.tasks_on: dict[str, dict[str, None]] = {}  # running tasks by machine, as of the last step
        self.tasks_apart: dict[str, dict[str, None]] = {}  # by `FlowJob.different_machines`
        self.costs: ArcCosts = ArcCosts(self.rules, order, self.cluster, self.network, self.side_constraints)
        self.preemptions: PreemptionLimits = PreemptionLimits(
            self.jobs, self.tasks, self.tasks_on, self.costs, self.side_constraints
        )

    def recompute_claims(self) -> None:
        """Recompute the claims of all jobs for the present goals and queues; the next step updates the bounds."""
        shares = self.rules.shares
        if shares is None or shares.kind == "dominant":  # full solves compute these shares
            return
        self.claims = JobClaims(self.queues)
        for live in self.jobs.values():
            self.claims.put(live.job, [rule_of(self.rules, self.tasks[name], self.cluster) for name in live.tasks])

    # Looking up ------------------------------------------------------------------------------------------------
    def task(self, name: str) -> LiveTask:
        """A task by name."""
        if name not in self.tasks:
            raise EventError(f"no task is named {name!r}; it may have finished or been cancelled")
        return self.tasks[name]

    def job(self, name: str) -> LiveJob:
        """A job by name."""
        if name not in self.jobs:
            raise EventError(f"no job is named {name!r}; it may have finished or been cancelled")
        return self.jobs[name]

    def machine(self, name: str) -> Machine:
        """A machine by name."""
        if name not in self.cluster.machines:
            raise EventError(f"no machine is named {name!r}; it may have been removed")
        return self.cluster.machines[name]

    def must_leave(self, machine: str, why: str) -> None:
        """Note the reason why the tasks that run on a machine now will stop or move."""
        self.why.update(dict.fromkeys(self.tasks_on.get(machine, ()), f"machine {machine!r} {why}"))

    def refuse_slots(self, machine: str, more: int) -> None:
        """Raise `EventError` if the cluster would exceed the limit on machines or on slots."""
        if machine not in self.cluster.machines and len(self.cluster.machines) >= _MACHINE_LIMIT:
            raise EventError(f"machine {machine!r}: there may be at most {_MACHINE_LIMIT} machines")
        if more > 0 and self.slots + more > _SLOT_LIMIT:
            raise EventError(
                f"machine {machine!r}: all machines together may have {_SLOT_LIMIT} slots and have {self.slots}; "
                f"{more} more are too many"
            )

    # Changes ---------------------------------------------------------------------------------------------------
    def put_machine(self, machine: Machine) -> None:
        """Add a machine; if a cost is refused, nothing changes."""
        self.side_constraints.check_machine(machine)
        self.refuse_slots(machine.name, machine.slots)
        costs = self.costs.slot_costs(machine)
        self.cluster.enter(machine)
        try:
            trials = self._trials(machine.name, None, self.cluster)
        except BaseException:
            self.cluster.leave(machine.name)
            raise
        self.cluster.add(machine)
        self.side_constraints.put_machine(machine)
        self.slots += machine.slots
        self.note_machines()
        self.network.add_machine(machine.name, costs)
        self.preemptions.doubt(machine.name)
        self._put(trials)

    def take_machine(self, name: str) -> None:
        """Remove a machine. It is gone, so this is never refused: a task whose cost exceeds the limit then waits."""
        machine, rack = self.cluster.machines[name], self.cluster.racks[name]
        self.cluster.remove(name)
        trials = self._trials(name, rack, self.cluster)
        self.slots -= machine.slots
        self.side_constraints.take_machine(machine)
        self.note_machines()
        self.preemptions.doubt(name)
        self._put(trials, name, rack)
        self.network.remove_machine(name)

    def note_machines(self) -> None:
        """Note that machines have changed: shares and blocked gangs depend on them."""
        self.side_constraints.changed_slots()
        if self.claims is not None:
            self.claims.changed_machines()

    def _trials(self, machine: str, left: str | None, cluster: ClusterView) -> dict[str, Trial | None]:
        """Price the tasks whose arcs depend on a machine that leaves rack ``left`` or comes (None) in ``cluster``.

        None: such a task only loses arcs.
        """
        each, costs = self.rules.asks_each, self.costs
        around = {**costs.mentioning(machine), **self.tasks_on.get(machine, {}), **costs.unpriced}
        return {
            name: None
            if left is not None and not each and costs.only_leaves(task, machine, left, cluster)
            else costs.trial_of_fact(task, self.now_s, cluster)
            if left is not None or name in costs.unpriced
            else costs.trial(task, self.now_s, cluster)
            for name, task in (self.tasks.items() if each else [(name, self.tasks[name]) for name in around])
        }

    def _put(self, trials: Mapping[str, Trial | None], gone: str = "", rack: str = "") -> None:
        for name, trial in trials.items():
            if trial is None:
                self.costs.lose(self.tasks[name], gone, rack)
            else:
                self.costs.put(trial)
        if self.rules.asks_each and self.claims is not None:
            self.recompute_claims()

    def put_job(self, job: FlowJob, *, known: bool = False) -> None:
        """Add a job with all its tasks; if a cost is refused (not of a job ``known`` to a state), nothing changes."""
        most = self.options["task_limit"]
        if len(self.tasks) + len(job.tasks) > most:
            raise EventError(f"job {job.name!r}: there would be more than {most} tasks; raise task_limit")
        if job.queue is not None and all(queue.name != job.queue for queue in self.queues):
            raise EventError(f"job {job.name!r} is in queue {job.queue!r}, which does not exist; see set_queues")
        rule = job.different_machines or ""
        present = self.tasks_apart.get(rule, {})
        apart = rule if len(present) + len(job.tasks) > 1 else ""
        cost, limited = job.preempt_cost, job.preemptions_per_hour is not None
        views = [LiveTask(t, job.name, job.priority, None, 0.0, apart, cost, limited) for t in job.tasks]
        price = self.costs.price_of_fact if known else self.costs.price
        priced = [(view, *price(view)) for view in views]
        alone = [task for task in map(self.tasks.__getitem__, present if apart else ()) if not task.apart]
        trials = [self.costs.trial(task, self.now_s, apart=rule) for task in alone]  # each was alone with its rule
        # From now on the state stores the times of preemptions, not their ages.
        lasting = job.model_copy(update={"preempted_s": ()}) if job.preempted_s else job
        live = LiveJob(lasting, dict.fromkeys(task.name for task in job.tasks), (0, len(views)))
        self.jobs[job.name] = live
        if limited:
            self.preemptions.note(live, [self.now_s - age for age in job.preempted_s])
        if self.claims is not None:
            self.claims.put(job, [rule_of(self.rules, view, self.cluster) for view in views])
        self.network.set_job(job.name, self.bounds(live, 0, len(views)))
        for view, offers, wait in priced:
            name = view.task.name
            self.tasks[name] = view
            self.network.add_task(name, job.name, offers, wait)
            self.costs.mention(view)
            self.fresh[name] = None
        for trial in trials:
            self.costs.put(trial)
        if rule:
            self.tasks_apart.setdefault(rule, {}).update(live.tasks)

    def take_task(self, name: str) -> None:
        """Remove a task, and its job if this was the last task."""
        task = self.tasks.pop(name)
        job = self.jobs[task.job]
        self.network.remove_task(name)
        self.costs.forget(task)
        if task.machine is not None:
            self.running -= 1
            del self.tasks_on[task.machine][name]
            self.preemptions.doubt(task.machine)
            self.preemptions.release(task, self.now_s)
        self.ages.stop(name)
        self.fresh.pop(name, None)
        self.side_constraints.forget(name, task.job)
        rule = job.job.different_machines
        if rule:
            del self.tasks_apart[rule][name]
            if not self.tasks_apart[rule]:
                del self.tasks_apart[rule]
                self.network.forget(rule)
        del job.tasks[name]
        if self.claims is not None:
            self.claims.lose(task.job, lambda: rule_of(self.rules, task, self.cluster))
        if not job.tasks:
            if self.claims is not None:
                self.claims.take(task.job)
            self.network.remove_job(task.job)
            del self.jobs[task.job]
            self.preemptions.forget(task.job)

    def settle(self, name: str, machine: str | None) -> None:
        """Set the machine on which a task runs from now on; None if it waits."""
        task = self.tasks[name]
        left = task.machine
        if task.machine is not None:
            self.running -= 1
            del self.tasks_on[task.machine][name]
            self.ages.stop(name)
            self.preemptions.doubt(task.machine)
            if self.preemptions.release(task, self.now_s) and machine is None:
                live = self.jobs[task.job]
                self.preemptions.note(live, [*live.preempted, self.now_s])
        task.machine, task.started_s, task.elapsed_s = machine, self.now_s, 0.0
        if machine is not None:
            self.running += 1
            self.tasks_on.setdefault(machine, {})[name] = None
            self.ages.start(name, self.now_s)
            self.preemptions.doubt(machine)
        if self.ages.matters or task.limited or task.preempt_cost:
            self.costs.move(task, left, self.now_s)

    def resume(self, name: str, machine: str, started_s: float) -> None:
        """Record that a task has run on a machine since ``started_s``; a step moves it only if that lowers the cost."""
        self.settle(name, machine)
        task = self.tasks[name]
        task.started_s = started_s
        self.ages.stop(name)
        self.ages.start(name, started_s)
        self.costs.put(self.costs.trial_of_fact(task, self.now_s))
        self.network.tasks[name].machine = machine

    def prioritise(self, job: LiveJob, priority: int) -> None:
        """Change the priority of a job; if a cost is refused, nothing changes."""
        tasks = map(self.tasks.__getitem__, job.tasks)
        for trial in [self.costs.trial(task, self.now_s, priority=priority) for task in tasks]:
            self.costs.put(trial)
            self.preemptions.doubt(trial.task.machine)
        job.job = job.job.model_copy(update={"priority": priority})
        old, new = self.network.jobs[job.job.name].bounds, self.bounds(job, 0, 0)
        self.network.set_job(job.job.name, old._replace(wait_cost=new.wait_cost, short_cost=new.short_cost))

    def replace_machine(self, machine: Machine) -> None:
        """Change a machine's labels, rack or slots; its tasks stay. If a cost is refused, nothing changes."""
        self.side_constraints.check_machine(machine)
        self.refuse_slots(machine.name, machine.slots - self.cluster.machines[machine.name].slots)
        self.costs.slot_costs(machine)
        self._trials(machine.name, None, self.cluster.replaced(machine))  # so that the second half cannot be refused
        self.take_machine(machine.name)
        self.put_machine(machine)

    def update_bounds(self) -> None:
        """Update the bounds of the jobs whose fair shares have changed; without shares there is nothing to do."""
        if self.rules.shares is None or self.claims is None:
            return
        for name, low, high in self.claims.changed(self.rules.shares, lambda used: places_of(self.cluster, used)):
            live = self.jobs[name]
            live.share = low, high
            self.network.set_job(name, self.bounds(live, low, high))

    def advance(self, now_s: float | None = None) -> None:
        """Advance the clock and apply all events to the network, without solving it.

        ``now_s``: the new time in seconds, on the scheduler's own clock; None: unchanged. Raises `EventError` if the
        time is not finite or before the present time.
        """
        if now_s is not None:
            if not now_s < inf:
                raise EventError(f"time must be a finite number of seconds, got {now_s}")
            if now_s < self.now_s:
                raise EventError(f"time cannot go back from {self.now_s:g} s to {now_s:g} s")
            self.now_s = now_s
        for started_s, names in self.ages.due(self.now_s):
            self.costs.grow_older(elapsed_s(started_s, self.now_s), map(self.tasks.__getitem__, names))
        for name in self.side_constraints.update_blocked():
            self.costs.put(self.costs.trial_of_fact(self.tasks[name], self.now_s))
        self.preemptions.hold(self.now_s)
        self.update_bounds()
        for live in self.preemptions.open_gates(self.now_s):
            if self.rules.shares is not None:
                self.network.set_job(live.job.name, self.bounds(live, *live.share))

    def solve_ahead(self) -> None:
        """Solve the network again after a step, as its changes have their own costs: questions find an optimum then.

        Not after events: an optimum between tasks that end and tasks that come may be far from both. Not where there
        may be none before `advance`. Which of two equally good schedules a step finds may depend on it.
        """
        session = self.session
        bounded = self.claims is not None or bool(self.preemptions.jobs)
        if self.events or not session.changes or bounded or isinstance(session, PhasedSession):
            return
        if self.as_decided is None or self.as_decided[0] != self.steps:
            arcs = np.flatnonzero(session.flow)
            self.as_decided = self.steps, session.costs(arcs), session.flow[arcs]
        session.solve()

    def bounds(self, job: LiveJob, least: int, most: int) -> JobBounds:
        """Bounds of a job that runs ``least`` to ``most`` tasks; ignored if no goal bounds jobs."""
        cost = self.costs.weights.level * self.rules.level(job.job.priority)
        if self.rules.shares is None:
            return JobBounds(0, UNBOUND, 0, cost, cost)
        if job.held:  # tasks that may not stop keep running, even beyond the share
            most = max(most, job.held - (0 if job.ganged else self.preemptions.passes(job, self.now_s)))
        return JobBounds(len(job.tasks) - most, most - least, least, cost, cost + self.costs.weights.shortfall)
