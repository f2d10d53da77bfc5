"""The flow-scheduling instance: machines with slots, jobs of tasks, data locations and task demands.

Source: Chen, Wu, Wu, Lu, Zhang, "Large-Scale Resource Scheduling Based on Minimum Cost Maximum Flow", Journal of
Software 28(3), 2017, with the data placement of Quincy (SOSP 2009).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from flowlex.instances.exact_rationals import rational
from flowlex.instances.group_rules import Affinity, Gang, TaskSpread, check_rules
from flowlex.instances.instance_base import Instance, Name, NonNegative, Part, require_known, require_unique

Count = Annotated[int, Field(strict=True, ge=0, le=10**9)]
#: Most slots of one machine; bounds memory, because goals may give every slot its own cost.
MOST_SLOTS = 100_000
Slots = Annotated[int, Field(strict=True, ge=0, le=MOST_SLOTS)]
#: A finite number; integers stay integers, however large.
Finite = Annotated[int, Field(strict=True)] | Annotated[float, Field(strict=True, allow_inf_nan=False)]


class Machine(Part):
    """A machine that runs up to ``slots`` tasks at a time."""

    name: Name
    """Unique among the machines."""
    slots: Slots = 1
    """Tasks it can run at a time; 0 for a machine that is drained."""
    rack: Name = "rack0"
    """Machines with the same rack name share a rack switch."""
    labels: tuple[Name, ...] = ()
    """Labels that constraints can refer to, such as ``gpu``."""
    capacity: Mapping[Name, NonNegative] = {}
    """Amount by resource that the ``demands`` of its tasks share: ``{"cpu": 32, "memory_gb": 128, "gpu": 4}``; read as
    decimals. If any machine lists a resource, a machine that does not list it has none of it."""

    @model_validator(mode="after")
    def _check_slots(self) -> Machine:
        if self.capacity and "slots" not in self.model_fields_set:
            raise ValueError(
                f"machine {self.name!r} has a capacity but no slots; say how many tasks it may run at most, whatever "
                "they ask for (Kubernetes: 110)"
            )
        return self

    @field_validator("labels")
    @classmethod
    def _check_labels(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        for label in labels:
            if label.startswith(("rack:", "machine:")):
                raise ValueError(f"label {label!r}: 'rack:' and 'machine:' are reserved; rename the label")
        return labels

    @property
    def tags(self) -> frozenset[str]:
        """Tags that constraints match: labels, ``rack:<rack>`` and ``machine:<name>``."""
        return frozenset((*self.labels, f"rack:{self.rack}", f"machine:{self.name}"))


class Block(Part):
    """A piece of input data and the machines that hold it."""

    size_mb: Annotated[int, Field(strict=True, gt=0, le=10**9)]
    """Size in whole MB (network costs are integers)."""
    machines: tuple[Name, ...]
    """Machines with a replica."""


class Constraint(Part):
    """Machines on which a task must, must not, preferably should or should not run."""

    kind: Literal["required", "forbidden", "preferred", "avoided"]
    """``required`` and ``forbidden`` always hold; ``preferred`` and ``avoided`` have the weight ``utility``."""
    resources: tuple[Name, ...] = Field(min_length=1)
    """Labels, ``rack:<rack>`` or ``machine:<name>``; any one of them meets the constraint."""
    utility: Annotated[Finite, Field(gt=0)] = 1
    """Gain of a preferred resource, or loss on an avoided one, in cost units."""


class RunningOn(Part):
    """The placement of a started task."""

    machine: Name
    """The machine whose slot it holds."""
    elapsed_s: NonNegative = 0.0
    """How long it has run, in seconds."""


class FlowTask(Part):
    """A unit of work for one slot; without ``running`` it waits."""

    name: Name
    """Unique among the tasks of all jobs."""
    running: RunningOn | None = None
    """Set when the task has started."""
    data: tuple[Block, ...] = ()
    """Its input data."""
    constraints: tuple[Constraint, ...] = ()
    """Machines on which it may run, see `Constraint`."""
    demands: Mapping[str, NonNegative] = {}
    """Demands by name (``cpu``, ``memory_gb``): a part of the ``capacity`` of its machine, if it lists one, and a
    dimension of weighted priorities."""
    costs: Mapping[str, Finite] = {}
    """Explicit cost of placing it on a machine, by machine name; replaces the placement cost of the goals.
    The cost of moving or stopping it, once it runs, still counts."""

    @model_validator(mode="after")
    def _check(self) -> FlowTask:
        banned = {tag for c in self.constraints if c.kind == "forbidden" for tag in c.resources}
        for constraint in self.constraints:
            if constraint.kind == "required" and banned.issuperset(constraint.resources):
                what = " or ".join(map(repr, constraint.resources))
                raise ValueError(f"task {self.name!r} requires {what} and forbids it too; drop one of the two")
        return self


class Queue(Part):
    """A share of the cluster for jobs or child queues; unused capacity is lent to other queues.

    Counts under `FairShares` of kind ``max_min``, ``weighted`` or ``dominant``.
    """

    name: Name
    """Unique among the queues."""
    parent: Name | None = None
    """The parent queue; null at the top level."""
    min_tasks: Count = 0
    """Running tasks that it is guaranteed (never more than its jobs have); lent while it does not use them."""
    max_tasks: Count | None = None
    """Running tasks that its jobs may have at most; null for no limit."""
    weight: Annotated[int, Field(strict=True, ge=1, le=10**6)] = 1
    """Share beyond the guarantee, relative to sibling queues and jobs, for weighted shares."""

    @model_validator(mode="after")
    def _check(self) -> Queue:
        if self.max_tasks is not None and self.max_tasks < self.min_tasks:
            raise ValueError(
                f"queue {self.name!r}: min_tasks {self.min_tasks} exceeds max_tasks {self.max_tasks}; lower the minimum"
            )
        return self


class FlowJob(Part):
    """Tasks with a common priority and a common share of the cluster."""

    name: Name
    """Unique among the jobs."""
    tasks: tuple[FlowTask, ...] = Field(min_length=1)
    """At least one."""
    priority: Annotated[int, Field(strict=True, ge=0, le=1000)] = 0
    """Smaller is more important."""
    weight: Annotated[int, Field(strict=True, ge=1, le=10**6)] = 1
    """Share of the cluster in relation to other jobs, for weighted shares."""
    min_tasks: Count = 0
    """Tasks that should run at least (never more than it has)."""
    max_tasks: Count | None = None
    """Tasks that may run at most; null for no limit."""
    queue: Name | None = None
    """The queue it belongs to; null for the top level."""
    different_machines: Name | None = None
    """The tasks of all jobs that give the same name here run on different machines; null for no such rule."""
    preempt_cost: NonNegative = 0
    """Cost of stopping or moving one of its running tasks, in addition to the costs of the goals."""
    preemptions_per_hour: Count | None = None
    """Most preemptions of its running tasks within an hour: 0 for none, null for no limit. With a limit, tasks stay or
    stop but do not move; a stopped task waits until the next decision. A task whose machine is lost, has too few slots
    or may no longer run it is not preempted: it does not count and may run elsewhere."""
    preempted_s: tuple[NonNegative, ...] = ()
    """Seconds since each of its preemptions under the limit; those of an hour ago or more do not count."""

    @model_validator(mode="after")
    def _check(self) -> FlowJob:
        if self.max_tasks is not None and self.max_tasks < self.min_tasks:
            raise ValueError(
                f"job {self.name!r}: min_tasks {self.min_tasks} exceeds max_tasks {self.max_tasks}; lower the minimum"
            )
        if self.preempted_s and self.preemptions_per_hour is None:
            raise ValueError(f"job {self.name!r} has preempted_s but no preemptions_per_hour; give it, or leave it out")
        return self


class FlowInstance(Instance):
    """Jobs that share a cluster: which task shall run where, and which shall wait?

    Attributes
    ----------
    machines
        The cluster. No machine runs more tasks than it has slots, or tasks that ask for more than its capacity.
    jobs
        Jobs with their tasks; times in seconds, data in whole MB. Names of tasks are unique among all jobs.
    queues
        A tree of quotas, in running tasks, for fair shares.
    gangs, spreads, affinities
        Tasks that run all together or not at all; limits of tasks per rack or label; tasks that run in one rack or
        under one label. Names are unique within each of the three.
    """

    kind: Literal["flow-scheduling"] = "flow-scheduling"
    machines: tuple[Machine, ...]
    jobs: tuple[FlowJob, ...] = ()
    queues: tuple[Queue, ...] = ()
    gangs: tuple[Gang, ...] = ()
    spreads: tuple[TaskSpread, ...] = ()
    affinities: tuple[Affinity, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> FlowInstance:
        for kind in ("machines", "jobs", "tasks", "gangs", "spreads", "affinities"):
            require_unique((each.name for each in getattr(self, kind)), kind)
        check_queues(self.queues, self.jobs)
        _check_places(self)
        _check_amounts(self)
        tasks_of = {job.name: [task.name for task in job.tasks] for job in self.jobs}
        tasks = {task.name for task in self.tasks}
        check_rules((*self.gangs, *self.spreads, *self.affinities), tasks_of, tasks, self.machines)
        return self

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Resources that machines have capacities of, sorted; empty if only slots count."""
        return tuple(sorted({name for machine in self.machines for name in machine.capacity}))

    @property
    def tasks(self) -> Iterator[FlowTask]:
        """All tasks, job by job."""
        return (task for job in self.jobs for task in job.tasks)

    @property
    def cells(self) -> int:
        """Machines times tasks."""
        return len(self.machines) * sum(len(job.tasks) for job in self.jobs)

    def summary(self) -> dict[str, str | int | float]:
        """Sizes and totals, in the order they should be printed."""
        tasks = list(self.tasks)
        running = sum(task.running is not None for task in tasks)
        return {
            "racks": len({machine.rack for machine in self.machines}),
            "machines": len(self.machines),
            "slots": sum(machine.slots for machine in self.machines),
            "labels": ", ".join(sorted({label for m in self.machines for label in m.labels})) or "none",
            "jobs": len(self.jobs),
            "tasks": len(tasks),
            "running tasks": running,
            "waiting tasks": len(tasks) - running,
            "priorities": len({job.priority for job in self.jobs}),
            "data blocks": sum(len(task.data) for task in tasks),
            "constraints": sum(len(task.constraints) for task in tasks),
            **{f"{name} (asked for / there)": self._amounts(name) for name in self.resources},
            **{what: len(rules) for what in ("gangs", "spreads", "affinities") if (rules := getattr(self, what))},
        }

    def _amounts(self, name: str) -> str:
        asked = sum((rational(task.demands.get(name, 0)) for task in self.tasks), Fraction(0))
        there = sum((rational(machine.capacity.get(name, 0)) for machine in self.machines), Fraction(0))
        return f"{float(asked):g} / {float(there):g}"


def check_queues(queues: Iterable[Queue], jobs: Iterable[FlowJob]) -> None:
    """Raise `ValueError` unless the queues form trees and include the queue of every job."""
    queues = tuple(queues)
    require_unique((queue.name for queue in queues), "queues")
    parent = {queue.name: queue.parent for queue in queues}
    for queue in queues:
        require_known(queue.parent, parent, f"queue {queue.name!r} is a part of queue", "queues")
        above, seen = queue.parent, {queue.name}
        while above is not None:
            if above in seen:
                raise ValueError(f"queue {queue.name!r} is a part of itself; give one of its parents another parent")
            seen.add(above)
            above = parent.get(above)
    for job in jobs:
        require_known(job.queue, parent, f"job {job.name!r} is in queue", "queues")


def _check_places(instance: FlowInstance) -> None:
    slots = {machine.name: machine.slots for machine in instance.machines}
    held: Counter[str] = Counter()
    for task in instance.tasks:
        if task.running is not None:
            require_known(task.running.machine, slots, f"task {task.name!r} runs on machine", "machines")
            held[task.running.machine] += 1
        for block in task.data:
            for machine in block.machines:
                require_known(machine, slots, f"task {task.name!r} has data on machine", "machines")
        for machine in task.costs:
            require_known(machine, slots, f"task {task.name!r} has a cost for machine", "machines")
    for name, count in held.items():
        if count > slots[name]:
            raise ValueError(f"machine {name!r} has {slots[name]} slots but runs {count} tasks")


def _check_amounts(instance: FlowInstance) -> None:
    used: dict[tuple[str, str], Fraction] = {}
    for task in instance.tasks if instance.resources else ():
        if task.running is not None:
            for key in ((task.running.machine, name) for name in instance.resources):
                used[key] = used.get(key, Fraction(0)) + rational(task.demands.get(key[1], 0))
    capacity = {machine.name: machine.capacity for machine in instance.machines}
    for (machine, name), amount in used.items():
        there = rational(capacity[machine].get(name, 0))
        if amount > there:
            raise ValueError(
                f"machine {machine!r} has {float(there):g} {name} but runs tasks that ask for {float(amount):g}; let "
                "one of them wait (no ``running``), or state the capacity it has"
            )
