"""The state that a policy sees, and the actions that it may answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from flowlex.instances.cluster import ClusterJob, ClusterNode, ClusterTask, ClusterWorkload, Place, Read

__all__ = [
    "Action",
    "LiveJob",
    "LiveNode",
    "LivePlace",
    "LiveTask",
    "News",
    "Policy",
    "Start",
    "State",
    "Stop",
    "reads_of",
]

#: What has happened since a policy last decided: a task can start now, has ended, was stopped by a failure, or waits no
#: more since its data are lost or its job is given up; a node failed or returned; a job came or ended.
News = tuple[
    Literal["ready", "ended", "failed", "withdrawn", "down", "up", "submitted", "finished"],
    "LiveTask | LiveNode | LiveJob",
]


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
    waiting, running
        Its tasks that may start now, and those that run, in the order in which they became so.
    left
        Tasks that have not ended.
    """

    __slots__ = ("job", "left", "number", "running", "tasks", "waiting")

    def __init__(self, job: ClusterJob, number: int) -> None:
        self.number: int
        self.job: ClusterJob
        self.job, self.number = job, number
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

    __slots__ = ("free", "name", "node", "number", "open", "place", "tasks")

    def __init__(self, place: Place, node: LiveNode, number: int) -> None:
        self.number: int
        self.node: LiveNode
        self.place, self.node, self.number, self.name = place, node, number, place.name
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


@dataclass(frozen=True, slots=True)
class Start:
    """Let a waiting task start on a place."""

    task: LiveTask
    place: LivePlace


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a running task; its work is lost, it waits again."""

    task: LiveTask


Action = Start | Stop


class Policy:
    """Decides who runs where: subclass it, and answer actions.

    Examples
    --------
    The shortest task first, anywhere::

        class ShortestFirst(Policy):
            def decide(self, state):
                places = state.open_places()
                for task in sorted(state.waiting(), key=lambda task: task.task.compute_s):
                    place = next((place for place in places if place.fits(task)), None)
                    if place is not None:
                        yield state.start(task, place)

    ``state.start`` takes the demand at once, so that `LivePlace.fits` stays true within a decision.

    Attributes
    ----------
    again_s
        Decide again after so many seconds while tasks wait, though nothing happened; None: only when something does.
    rotates
        Whether ``again_s`` counts also while tasks run and none waits.
    work
        Units of work of the last decision, for decision times that are counted; None when they are not.
    proven
        Whether the last decision's optimum was certified; None when it claims none. The log keeps it.
    """

    again_s: float | None = None
    rotates: bool = False
    work: float | None = None
    proven: bool | None = None

    def decide(self, state: State) -> Iterable[Action]:
        """Answer what is to be done now."""
        raise NotImplementedError


@dataclass(eq=False)
class State:
    """The cluster at one moment. Policies read it; only `start` and `stop` may be called.

    Attributes
    ----------
    workload
        What is simulated.
    now_s
        The present.
    nodes, places
        All of them, by number.
    jobs
        Jobs that have arrived (and were let in) and have not ended, in that order, by name.
    news
        What has happened since the last decision.
    random
        The policy's own stream of random numbers.
    """

    workload: ClusterWorkload
    random: np.random.Generator
    nodes: list[LiveNode] = field(default_factory=list)
    places: list[LivePlace] = field(default_factory=list)
    jobs: dict[str, LiveJob] = field(default_factory=dict)
    news: list[News] = field(default_factory=list)
    now_s: float = 0.0
    tried: list[Start | Stop] = field(default_factory=list)

    def __post_init__(self) -> None:
        racks = {rack: k for k, rack in enumerate(dict.fromkeys(node.rack for node in self.workload.nodes))}
        for number, node in enumerate(self.workload.nodes):
            live = LiveNode(node, number, racks[node.rack])
            self.nodes.append(live)
            for place in node.places:
                live.places.append(LivePlace(place, live, len(self.places)))
                self.places.append(live.places[-1])
        self.racks: int = len(racks)
        self.by_name: dict[str, LiveNode] = {node.name: node for node in self.nodes}
        sizes = np.bincount([node.rack for node in self.nodes])
        work = self.workload
        #: MB/s that one transfer may count on: disk, within a rack, between racks (an uplink is shared by its nodes).
        self.nominal: tuple[float, float, float] = (
            work.disk_mb_per_s,
            min(work.link_mb_per_s, work.disk_mb_per_s),
            min(work.link_mb_per_s, work.disk_mb_per_s, work.uplink_mb_per_s / float(sizes.max())),
        )

    def waiting(self) -> Iterator[LiveTask]:
        """Tasks that may start now, job by job."""
        return (task for job in self.jobs.values() if job.waiting for task in job.waiting)

    def running(self) -> Iterator[LiveTask]:
        """Tasks that hold a place, job by job."""
        return (task for job in self.jobs.values() for task in job.running)

    def open_places(self) -> list[LivePlace]:
        """Places that are up and have something free."""
        return [place for place in self.places if place.open and place.node.up]

    def start(self, task: LiveTask, place: LivePlace) -> Start:
        """Make the action, and count the demand as taken for the rest of this decision."""
        place.hold(task)
        self.tried.append(Start(task, place))
        return Start(task, place)

    def stop(self, task: LiveTask) -> Stop:
        """Make the action, and count its demand as free for the rest of this decision."""
        if task.place is not None:
            task.place.hold(task, -1)
            self.tried.append(Stop(task))
        return Stop(task)

    def forget_tries(self) -> None:
        """Give back what `start` and `stop` counted as taken or free."""
        for action in self.tried:
            place = action.place if isinstance(action, Start) else action.task.place
            assert place is not None
            place.hold(action.task, -1 if isinstance(action, Start) else 1)
        self.tried.clear()

    def seconds(self, task: LiveTask) -> list[float]:
        """By node, seconds to bring a task's data there, each read by itself from its nearest source that is up."""
        disk, rack, between = self.nominal
        total = [0.0] * len(self.nodes)
        for read, made in reads_of(task):
            sources = made if made is not None else self.holders(read.replicas)
            racks, here = {source.rack for source in sources}, set(sources)
            for node in self.nodes:
                rate = disk if node in here else rack if node.rack in racks else between
                total[node.number] += read.size_mb / rate
        return total

    def holders(self, names: Iterable[str]) -> list[LiveNode]:
        """Nodes of these names that are up."""
        return [node for node in map(self.by_name.__getitem__, names) if node.up]

    @staticmethod
    def level(sources: list[LiveNode], node: LiveNode) -> int:
        """How far the nearest source is: 0 the node itself, 1 its rack, 2 another rack (or no source is up)."""
        if node in sources:
            return 0
        return 1 if any(source.rack == node.rack for source in sources) else 2


def reads_of(task: LiveTask) -> Iterator[tuple[Read, list[LiveNode] | None]]:
    """What a task reads, and for the output of another task the node that holds it."""
    made = {other.name: other.made_on for other in task.needs}
    for read in task.task.reads:
        if read.task is None:
            yield read, None
        else:
            source = made[read.task]
            yield read, [] if source is None or not source.up else [source]
