"""What the flow scheduler knows of its cluster, and what its goals make each part of it cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flowlex.instances.flow import FlowInstance, Machine, Queue
from flowlex.models.flow.arc_costs import Rules, StageWeights, mentioned_machines, single_file
from flowlex.models.flow.goals import Goal
from flowlex.models.flow.goals.base import ClusterView, Scale, Spot, TaskView
from flowlex.models.flow.lexicographic_costs import TOP_CLASS, StrictOrder
from flowlex.models.flow.live.network import LiveNetwork
from flowlex.models.flow.live.network_parts import UNBOUND, JobBounds, Session
from flowlex.models.flow.live.records import EventError, LiveJob, LiveTask
from flowlex.models.flow.live.side_constraints import SideConstraints
from flowlex.models.flow.live.task_ages import TaskAges, elapsed_s
from flowlex.models.flow.preemption import left
from flowlex.models.flow.share_claims import JobClaims, rule_of

__all__ = ["StateWithCosts"]


#: Slots of all machines; each may be an arc.
_SLOT_LIMIT = 2**21
_MACHINE_LIMIT = 2**18


class StateWithCosts:
    """Machines, jobs and tasks, and the arcs and bounds that the goals ask for now."""

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
        self._frozen: ClusterView | None = None  # a copy of the cluster, until machines change
        self.network: LiveNetwork = LiveNetwork(session, self.cluster)
        self.task_limit = task_limit
        self.now_s: float = 0.0
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
        self._named_in_costs: dict[str, dict[str, None]] = {}
        self._on: dict[str, dict[str, None]] = {}
        self._apart: dict[str, dict[str, None]] = {}  # tasks by `FlowJob.different_machines`
        self.limits: dict[str, None] = {}  # jobs that limit preemptions, or did
        self._unsure: dict[str, None] = {}  # machines whose held tasks may be others
        self._gates: dict[str, None] = {}  # jobs whose gates and bounds may be others
        self._spent: dict[str, None] = {}  # jobs with preemptions of the last hour

    def recompute_claims(self) -> None:
        """Claims of all jobs under the present goals and queues; the next step hands all bounds on."""
        shares = self.rules.shares
        if shares is None or shares.kind == "dominant":  # there whole solves share what tasks ask for
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

    def frozen_cluster(self) -> ClusterView:
        """The cluster as it is now, which later changes leave alone."""
        if self._frozen is None:
            now = self.cluster
            by_tag = {tag: dict(those) for tag, those in now.by_tag.items()}
            self._frozen = ClusterView(dict(now.machines), dict(now.tags), dict(now.racks), dict(now.spots), by_tag)
        return self._frozen

    def held(self, machine: str) -> Iterable[str]:
        """Tasks that run on a machine since the last step."""
        return list(self._on.get(machine, ()))

    def refuse_slots(self, machine: str, more: int) -> None:
        """Raise `EventError` where a machine would bring more slots than all machines may have."""
        if machine not in self.cluster.machines and len(self.cluster.machines) >= _MACHINE_LIMIT:
            raise EventError(f"machine {machine!r}: {_MACHINE_LIMIT} machines are here, the most there may be")
        if more > 0 and self.slots + more > _SLOT_LIMIT:
            raise EventError(
                f"machine {machine!r}: all machines together may have {_SLOT_LIMIT} slots and have {self.slots}; "
                f"{more} more are too many"
            )

    # Pricing --------------------------------------------------------------------------------------------------
    def slot_costs(self, machine: Machine) -> list[tuple[int, int]]:
        """(capacity, cost) of a machine's slots, within the limit."""
        costs = self.rules.slot_costs(machine)
        if self.rules.order is None and costs:
            self._check(max((cost for _, cost in costs), key=abs), f"a slot of machine {machine.name!r}")
        return costs

    def reprice(self, task: LiveTask, *, placed: bool = False) -> None:
        """Give a task the arcs that the goals ask for now; ``placed``: nothing but its place or age is new."""
        if task.machine is not None:
            task.elapsed_s = elapsed_s(task.started_s, self.now_s)
        offers, wait = self._priced(task, task.moving if placed else None)
        self.network.reprice(task.task.name, offers, wait)
        if not placed:
            self._mention(task.task.name, task)

    def grow_older(self, started_s: float, names: Iterable[str]) -> None:
        """Give tasks that run since then the credit of their age; whatever else they cost stays as it is."""
        elapsed = elapsed_s(started_s, self.now_s)
        self.network.cheapen(self._credits(elapsed, names))

    def _credits(self, elapsed_s: float, names: Iterable[str]) -> Iterator[tuple[str, str | Spot, int]]:
        """What more credit each running task has by now, and the target it is for; notes the new age."""
        now, before = self.rules.credit_at(elapsed_s), dict[float, int]()
        for task in map(self.tasks.__getitem__, names):
            if task.elapsed_s not in before:
                before[task.elapsed_s] = now - self.rules.credit_at(task.elapsed_s)
            more, task.elapsed_s = before[task.elapsed_s], elapsed_s
            if more and task.machine is not None:
                yield task.task.name, single_file(task.machine, task.apart) if task.apart else task.machine, more

    def passes(self, job: LiveJob) -> int:
        """Held tasks of a job that may stop now."""
        limited = job.job.preemptions_per_hour is not None
        return left(job.job, (elapsed_s(at, self.now_s) for at in job.preempted)) if limited else 0

    def bounds(self, job: LiveJob, least: int, most: int) -> JobBounds:
        """Bounds of a job that runs ``least`` to ``most`` tasks (without meaning when no goal bounds jobs)."""
        cost = self.weights.level * self.rules.level(job.job.priority)
        if self.rules.shares is None:
            return JobBounds(0, UNBOUND, 0, cost, cost)
        if job.held:
            most = max(most, job.held - self.passes(job))  # what may not stop runs on, beyond the share
        return JobBounds(len(job.tasks) - most, most - least, least, cost, cost + self.weights.shortfall)

    def _priced(self, task: LiveTask, moving: dict[str | Spot, int] | None = None) -> tuple[dict[str | Spot, int], int]:
        """Cost of each arc and of waiting, within the limit; a refusal leaves the task as it was."""
        if moving is None:
            moving = self.rules.moving(task, self.cluster)
        offers, wait = self.rules.staying(task, moving, self.cluster), self.rules.waiting(task)
        if self.rules.order is None:
            found = moving.values()  # with room for the credit, so that growing older can never fail
            credit = self.rules.credit + self.rules.keeping(task)
            worst = max(wait, -wait, max(found, default=0), credit - min(found, default=0))
            self._check(worst, f"task {task.task.name!r}")
        task.moving = moving
        return {} if task.task.name in self.side_constraints.blocked else offers, wait

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
        index = self._named_in_costs
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
