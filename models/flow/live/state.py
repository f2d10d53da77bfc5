"""What the flow scheduler knows of its cluster, kept in step with the live network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine, Queue, RunningOn
from flowlex.models.base import ModelError
from flowlex.models.flow.claims import places_of, rule_of
from flowlex.models.flow.goals import Goal
from flowlex.models.flow.goals.base import ClusterView, Scale, Spot, TaskView
from flowlex.models.flow.live.apart import ApartNetwork
from flowlex.models.flow.live.clock import Clock, elapsed_s
from flowlex.models.flow.live.engines import solved_costs
from flowlex.models.flow.live.network import UNBOUND, JobBounds, Session
from flowlex.models.flow.live.shares import JobClaims
from flowlex.models.flow.offers import Rules, StageWeights, mentioned_machines
from flowlex.models.flow.order import TOP_CLASS, StrictOrder
from flowlex.models.flow.reasons import SHARE_USED, WORTH_MORE
from flowlex.models.flow.solution import Score

__all__ = ["EventError", "LiveJob", "LiveState", "LiveTask"]


class EventError(ModelError):
    """An event does not fit the state of the cluster; the state is as before."""


@dataclass(slots=True)
class LiveTask(TaskView):
    """A task that is here, since when it runs, and the machines its arcs depend on."""

    started_s: float = 0.0
    mentions: tuple[str, ...] = ()
    moving: dict[str | Spot, int] | None = None  # `Rules.moving`, kept while it holds


@dataclass(slots=True)
class LiveJob:
    """A job as submitted (its claims may have changed since) and its tasks that are still here."""

    job: FlowJob
    tasks: dict[str, None]


class LiveState:
    """Machines, jobs and tasks; every change here goes to the network at once, the optimum waits for a step."""

    def __init__(
        self,
        cluster: FlowInstance,
        goals: tuple[Goal, ...],
        session: Session,
        wait_cost: float | None,
        scale: int,
        order: StrictOrder,
        task_limit: int,
    ) -> None:
        self.name: str = cluster.name
        self.goals = goals
        initial = [TaskView(t, j.name, j.priority, None, 0.0, t.costs) for j in cluster.jobs for t in j.tasks]
        self.rules: Rules = Rules(goals, wait_cost, Scale(scale), initial, order)
        self.order = order
        self.weights: StageWeights = StageWeights.for_bound(order.cycle, TOP_CLASS)
        self.session = session
        self.cluster: ClusterView = ClusterView()
        self.network: ApartNetwork = ApartNetwork(session, self.cluster)
        self.task_limit = task_limit
        self.now_s: float = 0.0
        self.tasks: dict[str, LiveTask] = {}
        self.jobs: dict[str, LiveJob] = {}
        self.queues: tuple[Queue, ...] = cluster.queues
        self.claims: JobClaims | None = None if self.rules.shares is None else JobClaims(self.queues)
        self.clock: Clock = Clock.of(self.rules.goals)
        self.running = 0
        self.slots = 0
        self.fresh: dict[str, None] = {}  # tasks to be reported if they wait
        self._mentions: dict[str, dict[str, None]] = {}
        self._on: dict[str, dict[str, None]] = {}
        self._apart: dict[str, dict[str, None]] = {}  # tasks by `FlowJob.different_machines`

    def claim_anew(self) -> None:
        """Claims of all jobs under the present goals and queues; the next step hands all bounds on."""
        self.claims = claims = None if self.rules.shares is None else JobClaims(self.queues)
        if claims is not None:
            for live in self.jobs.values():
                claims.put(live.job, [rule_of(self.rules, self.tasks[name]) for name in live.tasks])

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

    def held(self, machine: str) -> Iterable[str]:
        """Tasks that run on a machine since the last step."""
        return list(self._on.get(machine, ()))

    # Changing --------------------------------------------------------------------------------------------------
    def put_machine(self, machine: Machine) -> None:
        """Add a machine."""
        if machine.capacity:
            raise EventError(
                f"machine {machine.name!r} has a capacity; the live scheduler counts slots only. Solve the cluster "
                "as an instance (flowlex solve, model_for), or leave the capacity out and give slots of a fitting size"
            )
        costs = self.slot_costs(machine)
        self.cluster.add(machine)
        self.slots += machine.slots
        self.note_machines()
        self.network.add_machine(machine.name, costs)
        try:
            self._reprice_around(machine.name)
        except ModelError:  # what a task costs there exceeds the limit
            self.take_machine(machine.name)
            raise

    def take_machine(self, name: str) -> None:
        """Take a machine out."""
        self.slots -= self.cluster.machines[name].slots
        self.cluster.remove(name)
        self.note_machines()
        self._reprice_around(name)
        self.network.remove_machine(name)

    def note_machines(self) -> None:
        """Shares depend on the machines, which have changed."""
        if self.claims is not None:
            self.claims.changed_machines()

    def slot_costs(self, machine: Machine) -> list[tuple[int, int]]:
        """(capacity, cost) of a machine's slots, within the limit."""
        costs = self.rules.slot_costs(machine)
        if self.rules.order is None and costs:
            self._check(max((cost for _, cost in costs), key=abs), f"a slot of machine {machine.name!r}")
        return costs

    def _reprice_around(self, machine: str) -> None:
        """Reprice the tasks whose arcs depend on whether a machine is there."""
        for name in {**self._mentions.get(machine, {}), **self._on.get(machine, {})}:
            self.reprice(self.tasks[name])

    def put_job(self, job: FlowJob) -> None:
        """Add a job with all its tasks; a refused cost leaves nothing behind."""
        if len(self.tasks) + len(job.tasks) > self.task_limit:
            raise EventError(f"job {job.name!r}: there would be more than {self.task_limit} tasks; raise task_limit")
        if job.queue is not None and all(queue.name != job.queue for queue in self.queues):
            raise EventError(f"job {job.name!r} is in queue {job.queue!r}, which does not exist; see set_queues")
        rule = job.different_machines or ""
        present = self._apart.get(rule, {})
        apart = rule if len(present) + len(job.tasks) > 1 else ""
        views = [LiveTask(task, job.name, job.priority, None, 0.0, task.costs, apart) for task in job.tasks]
        priced = [(view, *self._priced(view)) for view in views]
        live = LiveJob(job, dict.fromkeys(task.name for task in job.tasks))
        self.jobs[job.name] = live
        if self.claims is not None:
            self.claims.put(job, [rule_of(self.rules, view) for view in views])
        self.network.set_job(job.name, self.bounds(live, 0, len(views)))
        for view, offers, wait in priced:
            name = view.task.name
            self.tasks[name] = view
            self.network.add_task(name, job.name, offers, wait)
            self._mention(name, view)
            self.fresh[name] = None
        if rule:
            for name in present if apart else ():
                self._keep_apart(self.tasks[name], rule)
            self._apart.setdefault(rule, {}).update(live.tasks)

    def _keep_apart(self, task: LiveTask, rule: str) -> None:
        """A task is no longer alone with its rule."""
        if not task.apart:
            task.apart = rule
            self.reprice(task)

    def take_task(self, name: str) -> None:
        """Take a task out, and its job with the last one."""
        task = self.tasks.pop(name)
        job = self.jobs[task.job]
        self.network.remove_task(name)
        for machine in task.mentions:
            del self._mentions[machine][name]
            if not self._mentions[machine]:
                del self._mentions[machine]
        if task.machine is not None:
            self.running -= 1
            del self._on[task.machine][name]
        self.clock.stop(name)
        self.fresh.pop(name, None)
        rule = job.job.different_machines
        if rule:
            del self._apart[rule][name]
            if not self._apart[rule]:
                del self._apart[rule]
                self.network.forget(rule)
        del job.tasks[name]
        if self.claims is not None:
            self.claims.lose(task.job, rule_of(self.rules, task))
        if not job.tasks:
            if self.claims is not None:
                self.claims.take(task.job)
            self.network.remove_job(task.job)
            del self.jobs[task.job]

    def reprice(self, task: LiveTask, *, placed: bool = False) -> None:
        """Give a task the arcs that the goals ask for now; ``placed``: nothing but its place or age is new."""
        if task.machine is not None:
            task.elapsed_s = elapsed_s(task.started_s, self.now_s)
        offers, wait = self._priced(task, task.moving if placed else None)
        self.network.reprice(task.task.name, offers, wait)
        if not placed:
            self._mention(task.task.name, task)

    def settle(self, name: str, machine: str | None) -> None:
        """Note where a task runs from now on."""
        task = self.tasks[name]
        if task.machine is not None:
            self.running -= 1
            del self._on[task.machine][name]
            self.clock.stop(name)
        task.machine, task.started_s, task.elapsed_s = machine, self.now_s, 0.0
        if machine is not None:
            self.running += 1
            self._on.setdefault(machine, {})[name] = None
            self.clock.start(name, self.now_s)
        if self.clock.matters:
            self.reprice(task, placed=True)

    def resume(self, name: str, machine: str, started_s: float) -> None:
        """Let a task count as running on a machine since then; a step moves it only for a gain."""
        self.settle(name, machine)
        task = self.tasks[name]
        task.started_s = started_s
        self.clock.stop(name)
        self.clock.start(name, started_s)
        self.reprice(task)
        self.network.tasks[name].machine = machine

    def prioritise(self, job: LiveJob, priority: int) -> None:
        """Make a job more or less important; a refused cost leaves all as before."""
        try:
            self._prioritise(job, priority)
        except ModelError:
            self._prioritise(job, job.job.priority)
            raise
        job.job = job.job.model_copy(update={"priority": priority})
        self.refresh_job(job)

    def _prioritise(self, job: LiveJob, priority: int) -> None:
        for name in job.tasks:
            self.tasks[name].priority = priority
            self.reprice(self.tasks[name])

    def replace_machine(self, machine: Machine) -> None:
        """Give a machine other labels or another rack; a refused cost leaves it as it was. What runs there stays."""
        old = self.cluster.machines[machine.name]
        self.take_machine(machine.name)
        try:
            self.put_machine(machine)
        except ModelError:
            self.put_machine(old)
            raise

    def update_bounds(self) -> None:
        """Bring the bounds of jobs up to the present shares; without shares nothing depends on the others."""
        if self.rules.shares is None or self.claims is None:
            return
        for name, low, high in self.claims.changed(self.rules.shares, lambda used: places_of(self.cluster, used)):
            self.network.set_job(name, self.bounds(self.jobs[name], low, high))

    def refresh_job(self, job: LiveJob) -> None:
        """Bring one job's costs up to its priority."""
        old = self.network.jobs[job.job.name].bounds
        new = self.bounds(job, 0, 0)
        self.network.set_job(job.job.name, replace(old, wait_cost=new.wait_cost, short_cost=new.short_cost))

    def bounds(self, job: LiveJob, least: int, most: int) -> JobBounds:
        """Bounds of a job that runs ``least`` to ``most`` tasks (without meaning when no goal bounds jobs)."""
        cost = self.weights.level * self.rules.level(job.job.priority)
        if self.rules.shares is None:
            return JobBounds(0, UNBOUND, 0, cost, cost)
        return JobBounds(len(job.tasks) - most, most - least, least, cost, cost + self.weights.shortfall)

    def _priced(self, task: LiveTask, moving: dict[str | Spot, int] | None = None) -> tuple[dict[str | Spot, int], int]:
        """Cost of each arc and of waiting, within the limit; a refusal leaves the task as it was."""
        if moving is None:
            moving = self.rules.moving(task, self.cluster)
        offers, wait = self.rules.staying(task, moving, self.cluster), self.rules.waiting(task)
        if self.rules.order is None:
            found = moving.values()  # with room for the credit, so that growing older can never fail
            worst = max(wait, -wait, max(found, default=0), self.rules.credit - min(found, default=0))
            self._check(worst, f"task {task.task.name!r}")
        task.moving = moving
        return offers, wait

    def _check(self, worst: int, what: str) -> None:
        if worst > self.order.limit:
            raise EventError(
                f"{what}: a cost of {worst} (scale {self.rules.scale.factor}) exceeds the limit of "
                f"{self.order.limit}; raise cost_limit"
            )

    def _mention(self, name: str, task: LiveTask) -> None:
        """Note the machines whose coming or going changes a task's arcs; where it runs is in ``_on`` already."""
        assert task.moving is not None
        present = mentioned_machines(self.rules, task, task.moving)
        if present == task.mentions:
            return
        index = self._mentions
        for machine in task.mentions:
            if machine not in present:
                del index[machine][name]
        for machine in present:
            held = index.get(machine)
            if held is None:
                index[machine] = {name: None}
            else:
                held[name] = None
        task.mentions = present

    # Reading ---------------------------------------------------------------------------------------------------
    def reason(self, name: str) -> str:
        """Why a task waits."""
        view = self.task(name)
        if not self.network.could_run(name):
            return self.rules.unmet(view, self.cluster) or "the cluster has no machine"
        if view.apart:
            others = {at for other in self._apart[view.apart] if (at := self.tasks[other].machine) is not None}
            if unmet := self.rules.unmet(view, self.cluster, others):
                return unmet
        job = self.jobs[view.job]
        if self.rules.shares is not None:
            running = sum(self.tasks[other].machine is not None for other in job.tasks)
            if running >= len(job.tasks) - self.network.jobs[view.job].bounds.must:
                return SHARE_USED
        return WORTH_MORE

    def score(self) -> Score:
        """What the schedule of the last step minimises, recomputed (work in proportion to the cluster)."""
        strict = self.rules.priority is not None and self.rules.priority.mode == "strict"
        waiting: Counter[int] = Counter()
        shortfall = weighted = 0
        for name, job in self.jobs.items():
            waits = sum(self.tasks[t].machine is None for t in job.tasks)
            waiting[job.job.priority if strict else 0] += waits
            bounds = self.network.jobs[name].bounds
            short = max(0, waits - bounds.must - bounds.free)
            shortfall += short
            weighted += bounds.wait_cost * (waits - bounds.must - short) + bounds.short_cost * short
        by_goal = self._cost_by_goal()
        cost = sum(cost for _, cost in by_goal) if by_goal else self.session.objective - weighted
        return Score(shortfall, tuple(sorted(waiting.items())), by_goal, cost)

    def _cost_by_goal(self) -> tuple[tuple[str, int], ...]:
        """Cost of each rank, arc by arc, as sums over many arcs cannot be told apart by rank."""
        if self.rules.order is None:
            return ()
        flow = self.session.flow
        slots = np.flatnonzero(flow)
        total = [0] * len(self.order.names)
        for cost, units in zip(solved_costs(self.session, slots), flow[slots].tolist(), strict=True):
            if cost:
                total = [a + units * b for a, b in zip(total, self.order.split(cost), strict=True)]
        return tuple(zip(self.order.names, total, strict=True))

    def instance(self) -> FlowInstance:
        """The present state as an instance: what runs where, for how long, and what waits."""
        jobs = [
            live.job.model_copy(update={"tasks": tuple(self._snapshot(self.tasks[name]) for name in live.tasks)})
            for live in self.jobs.values()
        ]
        machines = tuple(self.cluster.machines.values())
        # Between a loss of slots and the next step a machine may hold more than it has, so nothing is checked here.
        return FlowInstance.model_construct(name=self.name, machines=machines, jobs=tuple(jobs), queues=self.queues)

    def _snapshot(self, task: LiveTask) -> FlowTask:
        known = self.cluster.machines
        running = None
        if task.machine in known:
            running = RunningOn(machine=str(task.machine), elapsed_s=elapsed_s(task.started_s, self.now_s))
        data = tuple(
            block
            if known.keys() >= set(block.machines)
            else block.model_copy(update={"machines": tuple(m for m in block.machines if m in known)})
            for block in task.task.data
        )
        costs = {m: c for m, c in task.costs.items() if m in known}
        return task.task.model_copy(update={"running": running, "costs": costs, "data": data})
