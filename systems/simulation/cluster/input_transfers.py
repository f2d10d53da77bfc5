"""Input transfers of tasks: from the nearest source that is up, over disks, links, uplinks and the aggregation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from flowlex.systems.simulation.cluster.max_min_transfers import Transfer, Transfers
from flowlex.systems.simulation.cluster.policy_interface import LiveNode, LiveTask, State, reads_of
from flowlex.systems.simulation.cluster_workload import Read
from flowlex.systems.simulation.event_log import RunLog

#: Locality of a source: the node's own disk, its rack, another rack.
LEVELS = ("node", "rack", "between")


@dataclass(slots=True, eq=False)
class _Fetch:
    """One read of a task; ``transfer`` is None while no source is up."""

    read: Read
    left_mb: float
    source: LiveNode | None = None
    transfer: Transfer | None = None
    level: str = ""


class InputData:
    """The reads of all running tasks.

    Resources, by number: each node's disk, its port out, its port in; each rack's uplink up, and down; the aggregation.

    ``state``, ``log``: of the run. ``complete``: called with a task when all its data have arrived. ``certify``: check
    rates every n-th time that they change; 0: never.
    """

    def __init__(self, state: State, log: RunLog, complete: Callable[[LiveTask], None], *, certify: int = 1) -> None:
        self.log: RunLog
        self.state: State
        self.state, self.log, self.complete = state, log, complete
        work, nodes, racks = state.workload, len(state.nodes), state.racks
        shared = np.inf if work.aggregation_mb_per_s is None else work.aggregation_mb_per_s
        parts = (np.full(nodes, work.disk_mb_per_s), np.full(2 * nodes, work.link_mb_per_s))
        capacity = np.concatenate([*parts, np.full(2 * racks, work.uplink_mb_per_s), [shared]])
        self.transfers: Transfers = Transfers(capacity, certify=certify)
        self.fetches: dict[LiveTask, dict[_Fetch, None]] = {}
        self.readers: dict[LiveNode, int] = dict.fromkeys(state.nodes, 0)

    def begin(self, task: LiveTask) -> None:
        """Start all reads of a task that has started."""
        made = list(reads_of(task))
        mine = self.fetches[task] = dict.fromkeys(_Fetch(read, read.size_mb) for read, _ in made)
        if not mine:
            del self.fetches[task]
            self.complete(task)
            return
        for fetch, (_, sources) in zip(list(mine), made, strict=True):
            self._fetch(task, fetch, sources)

    def _fetch(self, task: LiveTask, fetch: _Fetch, sources: list[LiveNode] | None = None) -> None:
        """Choose the nearest source; ties go to the one with the fewest readers, then to the first."""
        state, read = self.state, fetch.read
        if sources is None:
            sources = state.holders(read.replicas)
        if not sources:
            return
        assert task.place is not None
        node = task.place.node
        source = min(sources, key=lambda at: (state.level([at], node), self.readers[at], at.number))
        fetch.source, fetch.level = source, LEVELS[state.level([source], node)]
        self.readers[source] += 1
        fetch.transfer = Transfer(fetch.left_mb, self._path(source, node), lambda: self._ended(task, fetch))
        self.transfers.start(fetch.transfer)

    def _path(self, source: LiveNode, node: LiveNode) -> list[int]:
        nodes, racks = len(self.state.nodes), self.state.racks
        path = [source.number]
        if source is not node:
            path += [nodes + source.number, 2 * nodes + node.number]
        if source.rack != node.rack:
            path += [3 * nodes + source.rack, 3 * nodes + racks + node.rack]
            if np.isfinite(self.transfers.capacity[-1]):
                path.append(3 * nodes + 2 * racks)
        return path

    def _ended(self, task: LiveTask, fetch: _Fetch) -> None:
        mine = self.fetches[task]
        self._account(task, fetch)
        del mine[fetch]
        if not mine:
            del self.fetches[task]
            self.complete(task)

    def _account(self, task: LiveTask, fetch: _Fetch) -> None:
        """Log the volume of a transfer that is complete or aborted."""
        transfer, source = fetch.transfer, fetch.source
        if transfer is None or source is None:
            return
        self.readers[source] -= 1
        moved = transfer.moved_mb
        fetch.left_mb -= moved
        fetch.transfer = fetch.source = None
        if moved > 0.0:
            self.log.add(
                self.state.now_s,
                "read",
                task=task.name,
                job=task.job.name,
                level=fetch.level,
                mb=moved,
                source=source.name,
            )

    def abort(self, task: LiveTask) -> None:
        """Abort the reads of a stopped task; log the volume read, which is lost."""
        for fetch in self.fetches.pop(task, ()):
            if fetch.transfer is not None:
                self.transfers.stop(fetch.transfer)
            self._account(task, fetch)

    def node_down(self, node: LiveNode) -> None:
        """Continue reads of shards from a failed node at another replica, or wait for its return."""
        for task, mine in self.fetches.items():
            for fetch in mine:
                if fetch.source is node and fetch.transfer is not None:
                    self.transfers.stop(fetch.transfer)
                    self._account(task, fetch)
                    self._fetch(task, fetch)

    def node_up(self) -> None:
        """Retry the reads that wait for a replica."""
        for task, mine in self.fetches.items():
            for fetch in mine:
                if fetch.transfer is None:
                    self._fetch(task, fetch)

    def stalled(self) -> Iterable[LiveTask]:
        """Tasks that wait for data of which no replica is up."""
        return (task for task, mine in self.fetches.items() if any(fetch.transfer is None for fetch in mine))
