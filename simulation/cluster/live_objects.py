"""Tasks, jobs, places and nodes of a running cluster, as policies see them."""

from __future__ import annotations

from flowlex.instances.cluster import ClusterJob, ClusterNode, ClusterTask, Place

__all__ = ["LiveJob", "LiveNode", "LivePlace", "LiveTask"]


class LiveTask:
    """A task.

    Attributes
    ----------
    task, job
        As the workload describes it; its job.
    number
        Position among all tasks.
    missing
        Tasks that must end before it can start.
    place
        Where it runs; None when it does not.
    made_on
        The node where it ended; None before.
    started_s
        When it last started.
    failures
        How often it has failed while it computed.
    left
        Part of its computing that is still to be done, when it last stopped: 1 unless it keeps what it has computed.
    computing
        When it began to compute and how many seconds it needs from then; None while it reads or does not run.
    """

    __slots__ = (
        "computing",
        "failures",
        "job",
        "left",
        "made_on",
        "missing",
        "needed_by",
        "needs",
        "number",
        "place",
        "started_s",
        "task",
    )

    def __init__(self, task: ClusterTask, job: LiveJob, number: int) -> None:
        self.number: int
        self.job: LiveJob
        self.task, self.job, self.number = task, job, number
        self.needs: tuple[LiveTask, ...] = ()
        self.needed_by: list[LiveTask] = []
        self.missing: int = 0
        self.place: LivePlace | None = None
        self.made_on: LiveNode | None = None
        self.started_s: float = 0.0
        self.failures: int = 0
        self.left: float = 1.0
        self.computing: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.task.name

    def seconds_on(self, node: LiveNode) -> float:
        """Seconds of computing, all of it, on a node."""
        seconds = self.task.compute_s
        for label, factor in self.task.slow.items():
            seconds *= 1.0 if label in node.labels else factor
        for label, factor in self.task.fast.items():
            seconds /= factor if label in node.labels else 1.0
        return seconds

    def left_at(self, now_s: float) -> float:
        """Part of its computing that is left now."""
        if self.computing is None:
            return self.left
        begun_s, seconds = self.computing
        return self.left * max(1.0 - (now_s - begun_s) / seconds, 0.0) if seconds else 0.0

    def __repr__(self) -> str:
        return f"<task {self.name}>"


class LiveJob:
    """A job that has arrived.

    Attributes
    ----------
    admitted
        How many jobs were let in before it; -1 as long as it is not.
    waiting, running
        Its tasks that may start now, and those that run, in the order in which they became so.
    left
        Tasks that have not ended.
    """

    __slots__ = ("admitted", "job", "left", "number", "running", "tasks", "waiting")

    def __init__(self, job: ClusterJob, number: int) -> None:
        self.number: int
        self.job: ClusterJob
        self.job, self.number, self.admitted = job, number, -1
        self.tasks: list[LiveTask] = []
        self.waiting: dict[LiveTask, None] = {}
        self.running: dict[LiveTask, None] = {}
        self.left: int = len(job.tasks)

    @property
    def name(self) -> str:
        """Its name."""
        return self.job.name

    def __repr__(self) -> str:
        return f"<job {self.name}>"


class LivePlace:
    """Something that runs tasks.

    Attributes
    ----------
    free
        Amount by resource that nobody holds.
    open
        Whether anything is free.
    tasks
        Who runs there.
    """

    __slots__ = ("changes", "free", "name", "node", "number", "open", "place", "tasks")

    def __init__(self, place: Place, node: LiveNode, number: int, changes: list[LivePlace]) -> None:
        self.number: int
        self.node: LiveNode
        self.place, self.node, self.number, self.name, self.changes = place, node, number, place.name, changes
        self.free: dict[str, int] = dict(place.capacity)
        self.open: bool = any(self.free.values())
        self.tasks: dict[LiveTask, None] = {}

    def fits(self, task: LiveTask) -> bool:
        """Whether the task's demand is free here."""
        free = self.free
        return all(free.get(name, 0) >= much for name, much in task.task.demand.items())

    def unheld(self) -> dict[str, int]:
        """Amount by resource that the tasks running here leave, whatever a policy has written into `free`."""
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


class LiveNode:
    """A machine; ``up`` is False while it is down."""

    __slots__ = ("labels", "name", "node", "number", "places", "rack", "up")

    def __init__(self, node: ClusterNode, number: int, rack: int) -> None:
        self.rack: int
        self.number: int
        self.node, self.number, self.rack, self.name = node, number, rack, node.name
        self.labels = frozenset(node.labels)
        self.places: list[LivePlace] = []
        self.up: bool = True

    def __repr__(self) -> str:
        return f"<node {self.name}>"
