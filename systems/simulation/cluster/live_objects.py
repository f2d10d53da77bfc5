"""Tasks, jobs, places and nodes of a running cluster, as policies see them."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowlex.systems.simulation.cluster_workload import ClusterJob, ClusterNode, ClusterTask, Place


@dataclass(slots=True, eq=False)
class LiveTask:
    """A task."""

    task: ClusterTask  # as the workload describes it
    job: LiveJob
    number: int  # position among all tasks
    needs: tuple[LiveTask, ...] = ()
    needed_by: list[LiveTask] = field(default_factory=list)
    missing: int = 0  # tasks that must end before it can start
    place: LivePlace | None = None  # the place it runs on; None if it does not run
    made_on: LiveNode | None = None  # the node where it ended; None before
    started_s: float = 0.0  # time of its last start
    failures: int = 0  # number of failures while it computed
    # fraction of its computing left at its last stop: 1 unless it keeps its progress (``keeps``)
    left: float = 1.0
    # start of its computation, and the seconds needed from then; None while it reads or does not run
    computing: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.task.name

    def seconds_on(self, node: LiveNode) -> float:
        """Return the seconds of its entire computation on a node."""
        seconds = self.task.compute_s
        for label, factor in self.task.slow.items():
            seconds *= 1.0 if label in node.labels else factor
        for label, factor in self.task.fast.items():
            seconds /= factor if label in node.labels else 1.0
        return seconds

    def left_at(self, now_s: float) -> float:
        """Return the fraction of its computing that is left now."""
        if self.computing is None:
            return self.left
        begun_s, seconds = self.computing
        return self.left * max(1.0 - (now_s - begun_s) / seconds, 0.0) if seconds else 0.0

    def __repr__(self) -> str:
        return f"<task {self.name}>"


@dataclass(slots=True, eq=False)
class LiveJob:
    """A job that has arrived."""

    job: ClusterJob
    number: int
    admitted: int = -1  # number of jobs admitted before it; -1 until it is admitted
    tasks: list[LiveTask] = field(default_factory=list)
    # tasks that may start now, and those that run, in the order in which they became so
    waiting: dict[LiveTask, None] = field(default_factory=dict)
    running: dict[LiveTask, None] = field(default_factory=dict)
    left: int = field(init=False)  # tasks that have not ended

    def __post_init__(self) -> None:
        self.left = len(self.job.tasks)

    @property
    def name(self) -> str:
        """Its name."""
        return self.job.name

    def __repr__(self) -> str:
        return f"<job {self.name}>"


@dataclass(slots=True, eq=False)
class LivePlace:
    """Something that runs tasks."""

    place: Place
    node: LiveNode
    number: int
    changes: list[LivePlace]  # where it notes that what is free has changed
    name: str = field(init=False)
    free: dict[str, int] = field(init=False)  # free amount by resource
    open: bool = field(init=False)  # whether any amount is free
    tasks: dict[LiveTask, None] = field(default_factory=dict)  # the tasks that run there

    def __post_init__(self) -> None:
        self.name, self.free = self.place.name, dict(self.place.capacity)
        self.open = any(self.free.values())

    def fits(self, task: LiveTask) -> bool:
        """Whether the task's demand is free here."""
        free = self.free
        return all(free.get(name, 0) >= much for name, much in task.task.demand.items())

    def unheld(self) -> dict[str, int]:
        """Compute the free amount by resource from the running tasks, regardless of what a policy wrote into `free`."""
        left = dict(self.place.capacity)
        for task in self.tasks:
            for name, much in task.task.demand.items():
                left[name] = left.get(name, 0) - much
        return left

    def hold(self, task: LiveTask, times: int = 1) -> None:
        """Take the task's demand, or with ``times=-1`` give it back."""
        for name, much in task.task.demand.items():
            self.free[name] = self.free.get(name, 0) - times * much
        self.open = any(self.free.values())
        self.changes.append(self)

    def __repr__(self) -> str:
        return f"<place {self.name}>"


@dataclass(slots=True, eq=False)
class LiveNode:
    """A machine; ``up`` is False while it is down."""

    node: ClusterNode
    number: int
    rack: int
    name: str = field(init=False)
    labels: frozenset[str] = field(init=False)
    places: list[LivePlace] = field(default_factory=list)
    up: bool = True

    def __post_init__(self) -> None:
        self.name, self.labels = self.node.name, frozenset(self.node.labels)

    def __repr__(self) -> str:
        return f"<node {self.name}>"
