"""The state that a policy sees, and the actions that it may return."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from flowlex.systems.simulation.cluster.live_objects import LiveJob, LiveNode, LivePlace, LiveTask
from flowlex.systems.simulation.cluster_workload import ClusterWorkload, Read

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

#: Events since the last decision: a task became ready, ended, was stopped by a failure, or was withdrawn because its
#: data are lost or its job is given up; a node failed or returned; a job was submitted or finished.
News = tuple[
    Literal["ready", "ended", "failed", "withdrawn", "down", "up", "submitted", "finished"],
    LiveTask | LiveNode | LiveJob,
]


@dataclass(frozen=True, slots=True)
class Start:
    """Let a waiting task start on a place."""

    task: LiveTask
    place: LivePlace


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a running task; its work is lost and it waits again."""

    task: LiveTask


Action = Start | Stop


class Policy:
    """Base class of policies: a subclass decides which tasks run where, and returns actions.

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
        Seconds after which to decide again while tasks wait, even without events; None: decide only after events.
    rotates
        Whether ``again_s`` also applies while tasks run and none waits.
    work
        Units of work of the last decision, for counted decision times; None if they are not counted.
    proven
        Whether the last decision's optimum was certified; None if it claims no optimum. The log records it.
    """

    again_s: float | None = None
    rotates: bool = False
    work: float | None = None
    proven: bool | None = None

    def decide(self, state: State) -> Iterable[Action]:
        """Return the actions to take now."""
        raise NotImplementedError


@dataclass(eq=False)
class State:
    """The cluster at one moment. Policies read it; only `start` and `stop` may be called."""

    workload: ClusterWorkload  # what is simulated
    random: np.random.Generator  # the policy's own stream of random numbers
    # nodes, places: All of them, by number
    nodes: list[LiveNode] = field(default_factory=list)
    places: list[LivePlace] = field(default_factory=list)
    # jobs that have arrived (and were let in) and have not ended, in that order, by name
    jobs: dict[str, LiveJob] = field(default_factory=dict)
    news: list[News] = field(default_factory=list)  # what has happened since the last decision
    now_s: float = 0.0  # the present
    tried: list[Start | Stop] = field(default_factory=list)
    # places whose ``free`` or ``node.up`` has changed, one after another since the run began
    changes: list[LivePlace] = field(default_factory=list)
    # what policies keep between decisions, by a name of their own
    memory: dict[object, Any] = field(default_factory=dict)
    waiting_count: int = 0
    running_count: int = 0

    def __post_init__(self) -> None:
        racks = {rack: k for k, rack in enumerate(dict.fromkeys(node.rack for node in self.workload.nodes))}
        for number, node in enumerate(self.workload.nodes):
            live = LiveNode(node, number, racks[node.rack])
            self.nodes.append(live)
            for place in node.places:
                live.places.append(LivePlace(place, live, len(self.places), self.changes))
                self.places.append(live.places[-1])
        self.racks: int = len(racks)
        self._open, self._seen = [place for place in self.places if place.open], 0
        self._queued: dict[LiveJob, None] = {}
        self.by_name: dict[str, LiveNode] = {node.name: node for node in self.nodes}
        sizes = np.bincount([node.rack for node in self.nodes])
        work = self.workload
        #: Nominal MB/s of a transfer: disk, within a rack, between racks (the nodes of a rack share its uplink).
        self.nominal: tuple[float, float, float] = (
            work.disk_mb_per_s,
            min(work.link_mb_per_s, work.disk_mb_per_s),
            min(work.link_mb_per_s, work.disk_mb_per_s, work.uplink_mb_per_s / float(sizes.max())),
        )

    def waiting(self) -> Iterator[LiveTask]:
        """Tasks that may start now, job by job."""
        return (task for job in self.waiting_jobs() for task in job.waiting)

    def waiting_jobs(self) -> list[LiveJob]:
        """Jobs with tasks that may start now, in order of admission."""
        return sorted(self._queued, key=lambda job: job.admitted)

    def wait(self, task: LiveTask) -> None:
        """Add a task that may start from now on (called by the simulator)."""
        task.job.waiting[task] = self._queued[task.job] = None
        self.waiting_count += 1

    def wait_no_more(self, task: LiveTask) -> None:
        """Remove a task that starts or can no longer start (called by the simulator)."""
        del task.job.waiting[task]
        self.waiting_count -= 1
        if not task.job.waiting:
            del self._queued[task.job]

    def running(self) -> Iterator[LiveTask]:
        """Tasks that hold a place, job by job."""
        return (task for job in self.jobs.values() for task in job.running)

    def open_places(self) -> list[LivePlace]:
        """Places that are up and have something free."""
        for place in dict.fromkeys(self.changes[self._seen :]):
            at = bisect_left(self._open, place.number, key=lambda other: other.number)
            listed = at < len(self._open) and self._open[at] is place
            if listed and not (place.open and place.node.up):
                del self._open[at]
            elif place.open and place.node.up and not listed:
                self._open.insert(at, place)
        self._seen = len(self.changes)
        return list(self._open)

    def start(self, task: LiveTask, place: LivePlace) -> Start:
        """Return the action, and count the demand as taken for the rest of this decision."""
        place.hold(task)
        self.tried.append(Start(task, place))
        return Start(task, place)

    def stop(self, task: LiveTask) -> Stop:
        """Return the action, and count the task's demand as free for the rest of this decision."""
        if task.place is not None:
            task.place.hold(task, -1)
            self.tried.append(Stop(task))
        return Stop(task)

    def forget_tries(self) -> None:
        """Undo the changes of free amounts by `start` and `stop`."""
        for action in self.tried:
            place = action.place if isinstance(action, Start) else action.task.place
            assert place is not None
            place.hold(action.task, -1 if isinstance(action, Start) else 1)
        self.tried.clear()

    def seconds(self, task: LiveTask) -> list[float]:
        """Return, by node, the seconds to read a task's data there, one by one from the nearest sources that are up."""
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
        """Return the locality of the nearest source: 0 the node itself, 1 its rack, 2 another rack (or none is up)."""
        if node in sources:
            return 0
        return 1 if any(source.rack == node.rack for source in sources) else 2


def reads_of(task: LiveTask) -> Iterator[tuple[Read, list[LiveNode] | None]]:
    """Yield the reads of a task, with the node that holds it for the output of another task."""
    made = {other.name: other.made_on for other in task.needs}
    for read in task.task.reads:
        if read.task is None:
            yield read, None
        else:
            source = made[read.task]
            yield read, [] if source is None or not source.up else [source]
