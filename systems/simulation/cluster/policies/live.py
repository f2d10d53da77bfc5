"""The live flow scheduler as a policy: it receives events and returns changes as actions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass

from flowlex.instances.flow import Block, Constraint, FlowInstance, FlowJob, FlowTask, Machine, Queue
from flowlex.models.flow.goals import FairShares, Goal, Preset, preset
from flowlex.systems.scheduler.live.scheduler import FlowScheduler
from flowlex.systems.simulation.cluster.policy_interface import (
    Action,
    LiveNode,
    LivePlace,
    LiveTask,
    Policy,
    State,
    reads_of,
)
from flowlex.systems.simulation.cluster_workload import ClusterTask
from flowlex.systems.simulation.decision_time import Each, EveryNth
from flowlex.systems.simulation.event_queue import SimulationError
from flowlex.systems.simulation.policy_registry import policy

#: Utility of a label without which a task is slower, per unit of its slowdown factor.
_UTILITY = 10


@dataclass(eq=False)
class Flow(Policy):
    """`FlowScheduler` with any goals. A place is a machine; every task takes one unit of its one resource.

    Tasks of different resources never compete for places, so each resource has its own scheduler.
    """

    goals: tuple[Goal, ...]  # of the scheduler
    _: KW_ONLY
    lexicographic: bool = False  # goals in strict order instead of their weighted sum
    certify: int = 1  # certify every n-th round; 0: none
    queues: bool = False  # whether each user's jobs are in a queue of their own (for `FairShares`)

    def __post_init__(self) -> None:
        self.turn = EveryNth(self.certify)
        self.parts: dict[str, _OfResource] = {}

    def decide(self, state: State) -> Iterable[Action]:
        """Perform one step of every scheduler."""
        if not self.parts:
            places: dict[str, list[LivePlace]] = {}
            for place in state.places:
                places.setdefault(_resource(place), []).append(place)
            for resource, mine in places.items():
                users = dict.fromkeys(job.user for job in state.workload.jobs) if self.queues else ()
                cluster = FlowInstance(
                    name=state.workload.name,
                    machines=tuple(machine_of(place) for place in mine if place.node.up),
                    queues=tuple(Queue(name=user) for user in users),
                )
                scheduler = FlowScheduler(cluster, self.goals, lexicographic=self.lexicographic)
                self.parts[resource] = _OfResource(resource, mine, scheduler)
        self.work, self.proven = 0.0, next(self.turn)
        for part in self.parts.values():
            part.scheduler.certify = self.proven
            yield from part.step(state)
            self.work += part.events


class _OfResource:
    """The scheduler of one resource, its places, and the events it has received."""

    def __init__(self, resource: str, places: Iterable[LivePlace], scheduler: FlowScheduler) -> None:
        self.resource, self.scheduler = resource, scheduler
        self.places = {place.name: place for place in places}
        self.events = 0
        self._known: dict[str, LiveTask] = {}
        self._expected: list[tuple[LiveTask, LivePlace]] = []
        self._halted: set[LiveTask] = set()  # tasks stopped by the last step
        self._machines = {place.name for place in self.places.values() if place.node.up}
        self._waves = 0

    def step(self, state: State) -> Iterator[Action]:
        """Send the events to the scheduler, and return its changes as actions."""
        scheduler = self.scheduler
        self._correct(scheduler)
        self._tell(state, scheduler)
        delta = scheduler.step(state.now_s)
        self.events = delta.events
        moves: list[tuple[str, str | None]] = [(name, None) for name, *_ in delta.stopped]
        moves += [(name, to) for name, _, to, _ in delta.moved] + list(delta.placed)
        self._expected, self._halted = [], {self._known[name] for name, *_ in delta.stopped}
        starts: list[tuple[LiveTask, LivePlace]] = []
        for name, to in moves:
            task = self._known[name]
            if task.place is not None:
                yield state.stop(task)
            if to is not None:
                starts.append((task, self.places[to]))
        for task, place in starts:
            self._expected.append((task, place))
            yield state.start(task, place)

    def _correct(self, scheduler: FlowScheduler) -> None:
        """Withdraw tasks whose start came too late because of the decision time; they are submitted again."""
        for task, place in self._expected:
            if task.place is not place and task.made_on is None and task.name in self._known:
                self._forget(scheduler, task)

    def _forget(self, scheduler: FlowScheduler, task: LiveTask) -> None:
        if self._known.pop(task.name, None) is not None:
            scheduler.cancel(task=task.name)

    def _tell(self, state: State, scheduler: FlowScheduler) -> None:
        """Report all events since the last step."""
        for what, thing in state.news:
            if what == "ended":
                assert isinstance(thing, LiveTask)
                if thing in self._halted:  # it ended during the decision time; the scheduler believes that it waits
                    self._forget(scheduler, thing)
                elif self._known.pop(thing.name, None) is not None:
                    scheduler.finish(thing.name)
            elif what in ("failed", "withdrawn"):
                assert isinstance(thing, LiveTask)
                self._forget(scheduler, thing)
            elif what in ("down", "up"):
                assert isinstance(thing, LiveNode)
                self._node(scheduler, thing)
        for job in state.jobs.values():
            tasks = [task for task in job.waiting if self._is_new(task)] if job.waiting else ()
            if tasks:
                self._waves += 1
                self._known.update((task.name, task) for task in tasks)
                parts = tuple(flow_task(task, state) for task in tasks)
                queue = job.job.user if scheduler.state.queues else None
                name = f"{job.name}/{self._waves}"
                scheduler.submit(FlowJob(name=name, tasks=parts, priority=job.job.priority, queue=queue))

    def _is_new(self, task: LiveTask) -> bool:
        return task.name not in self._known and self.resource in task.task.demand

    def _node(self, scheduler: FlowScheduler, node: LiveNode) -> None:
        """Report to the scheduler whether a node is up now."""
        for place in node.places:
            if place.name not in self.places:
                continue
            if node.up and place.name not in self._machines:
                self._machines.add(place.name)
                scheduler.add_machine(machine_of(place))
            elif not node.up and place.name in self._machines:
                self._machines.remove(place.name)
                scheduler.remove_machine(place.name)


def _resource(place: LivePlace) -> str:
    """The one resource of a place.

    Raises `SimulationError`: it has several.
    """
    capacity = place.place.capacity
    if len(capacity) != 1:
        raise SimulationError(
            f"place {place.name!r} has {len(capacity)} resources; the flow scheduler takes places with one, its slots"
        )
    return next(iter(capacity))


def machine_of(place: LivePlace) -> Machine:
    """A place as a machine of the flow model."""
    slots, node = place.place.capacity[_resource(place)], place.node
    return Machine(name=place.name, slots=slots, rack=node.node.rack, labels=node.node.labels)


def flow_task(task: LiveTask, state: State) -> FlowTask:
    """Convert a task to the flow model: data on machines, preferred labels."""
    if list(task.task.demand.values()) != [1]:
        raise SimulationError(f"task {task.name!r} does not take one slot; the flow scheduler knows no other demand")
    (resource,) = task.task.demand
    blocks = []
    for read, made in reads_of(task):
        sources = made if made is not None else state.holders(read.replicas)
        machines = tuple(dict.fromkeys(place.name for node in sources for place in _places(node, resource)))
        blocks.append(Block(size_mb=math.ceil(read.size_mb), machines=machines))
    return FlowTask(name=task.name, data=tuple(blocks), constraints=tuple(_wishes(task.task)))


def _places(node: LiveNode, resource: str) -> list[LivePlace]:
    return [place for place in node.places if resource in place.place.capacity]


def _wishes(task: ClusterTask) -> Iterator[Constraint]:
    for label, factor in task.slow.items():
        yield Constraint(kind="preferred", resources=(label,), utility=math.ceil(_UTILITY * factor))


@policy("cluster", "FlowScheduler")
def flow(goals: Preset = "borg", lexicographic: bool = False, certify: Each = 1, fair: bool = False) -> Flow:
    """The live flow scheduler with a named cost model; ``fair``: users have max-min fair shares before all else."""
    chosen = (FairShares(), *preset(goals)) if fair else preset(goals)
    return Flow(chosen, lexicographic=lexicographic, certify=certify, queues=fair)


@policy("cluster", "Quincy")
def quincy(certify: Each = 1) -> Flow:
    """Quincy's cost model: data locality, and a credit for tasks that keep running (SOSP 2009)."""
    return Flow(preset("quincy"), certify=certify)
