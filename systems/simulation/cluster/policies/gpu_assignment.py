"""FSP, FS, FSU: each round is a `GpuAssignment` (or the published network), solved to its proven optimum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field

from flowlex.instances.gpu import Gpu, GpuInstance, Job, Node, Running, Shard, Task
from flowlex.instances.gpu_policy import GpuPolicy as Fairness
from flowlex.models.gpu.model import GpuAssignment
from flowlex.models.gpu.transfer_costs import Penalties
from flowlex.systems.simulation.cluster.policies.queues import start_where_cheapest
from flowlex.systems.simulation.cluster.policy_interface import (
    Action,
    LiveJob,
    LiveNode,
    LiveTask,
    Policy,
    State,
    reads_of,
)
from flowlex.systems.simulation.decision_time import Each, EveryNth
from flowlex.systems.simulation.policy_registry import policy

#: The resource of GPU places; other tasks start in order of arrival where their data are cheapest to read.
GPU = "gpu"
#: The optional resource for a GPU's memory in GB; a task needs a GPU with enough of it.
MEMORY = "gpu_gb"
Network = Literal["ours", "published"]
_Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def on_gpu(task: LiveTask) -> bool:
    """Whether a task needs a GPU."""
    return GPU in task.task.demand


class Assignment(Policy):
    """Solve a round over the waiting and running GPU tasks whenever one waits.

    ``fairness``: FSP, FS or FSU. ``rack``, ``between_racks``, ``waiting``: penalties a1, a2, a3. ``network``: ``ours``,
    or ``published``, by which tasks whose transfer is expensive wait. ``certify``: certify every n-th round's optimum;
    0: none.
    """

    def __init__(
        self,
        fairness: Fairness,
        rack: float = 1.0,
        between_racks: float = 1.0,
        waiting: float = 1.0,
        network: Network = "ours",
        certify: int = 1,
    ) -> None:
        self.fairness, self.network = fairness, network
        self.penalties: Penalties = Penalties(rack, between_racks, waiting)
        self.turn: EveryNth = EveryNth(certify)
        self.parts: RoundParts = RoundParts()

    def decide(self, state: State) -> Iterable[Action]:
        """Return the actions of the current round's optimum."""
        self.proven = None
        self.parts.renew(state)
        yield from start_where_cheapest(state, (task for task in state.waiting() if not on_gpu(task)))
        waits = any(on_gpu(task) for task in state.waiting())
        free = any(place.free.get(GPU, 0) for place in state.open_places())
        if waits and (free or self.fairness.preemptive):
            yield from self._optimum(state)

    def _optimum(self, state: State) -> Iterator[Action]:
        instance, tasks = round_instance(state, self.parts)
        if instance is None:
            return
        self.work = float(len(tasks) * len(state.places))
        self.proven = next(self.turn)
        form: Literal["compact", "published"] = "compact" if self.network == "ours" else "published"
        model = GpuAssignment(instance, policy=self.fairness, penalties=self.penalties, network=form)
        gpu = model.solve(certify=self.proven).gpu
        places = {place.name: place for place in state.places}
        names = instance.arrays.gpu_names
        chosen = [places[names[unit]] if unit >= 0 else None for unit in gpu.tolist()]
        for task, place in zip(tasks, chosen, strict=True):
            if task.place is not None and place is not task.place:
                yield state.stop(task)
        for task, place in zip(tasks, chosen, strict=True):
            if place is not None and place is not task.place:
                yield state.start(task, place)


class RoundParts:
    """Nodes and tasks of a round's instance, reused until a node fails or returns."""

    def __init__(self) -> None:
        self.nodes: tuple[Node, ...] = ()
        self.tasks: dict[LiveTask, Task | None] = {}

    def renew(self, state: State) -> None:
        """Discard outdated entries."""
        if not self.nodes or any(kind in ("down", "up") for kind, _ in state.news):
            self.nodes = tuple(Node(name=node.name, rack=node.node.rack, gpus=_gpus(node)) for node in state.nodes)
            self.tasks.clear()
        for _, what in state.news:
            changed = what.needed_by if isinstance(what, LiveTask) else what.tasks if isinstance(what, LiveJob) else ()
            for task in changed:  # their input is available now, or their job has ended
                self.tasks.pop(task, None)

    def of(self, state: State, task: LiveTask) -> Task | None:
        """Return a task with the shards that can be read now; None if one cannot and the task does not run."""
        if task in self.tasks:
            found = self.tasks[task]
        else:
            found = self.tasks[task] = _task(state, task)
        if found is None or task.place is None:
            return found
        return found.model_copy(
            update={"running": Running(gpu=task.place.name, elapsed_s=state.now_s - task.started_s)}
        )


def round_instance(state: State, parts: RoundParts | None = None) -> tuple[GpuInstance | None, list[LiveTask]]:
    """Return the round as an instance (None if there is nothing to assign), and its tasks in order.

    A caller may reuse ``parts`` between rounds if it calls their ``renew`` each time.
    """
    work = state.workload
    if parts is None:
        parts = RoundParts()
        parts.renew(state)
    jobs, tasks = [], []
    for job in state.jobs.values():
        mine = [(task, parts.of(state, task)) for task in (*job.running, *job.waiting) if on_gpu(task)]
        found = [part for _, part in mine if part is not None]
        if found:
            tasks += [task for task, part in mine if part is not None]
            jobs.append(Job(name=job.name, tasks=tuple(found)))
    if not jobs or not any(node.gpus for node in parts.nodes):
        return None, []
    disk, rack, between = state.nominal
    instance = GpuInstance(
        name=work.name,
        disk_mb_per_s=disk,
        rack_mb_per_s=rack,
        between_racks_mb_per_s=between,
        nodes=parts.nodes,
        jobs=tuple(jobs),
    )
    return instance, tasks


def _gpus(node: LiveNode) -> tuple[Gpu, ...]:
    found = [place for place in node.places if GPU in place.place.capacity] if node.up else []
    return tuple(Gpu(name=place.name, memory_gb=float(place.place.capacity.get(MEMORY, 1))) for place in found)


def _task(state: State, task: LiveTask) -> Task | None:
    """Return a GPU task; None if it waits and its data are only on nodes that are down."""
    shards = []
    for read, made in reads_of(task):
        sources = made if made is not None else state.holders(read.replicas)
        if sources:
            replicas = tuple(dict.fromkeys(node.name for node in sources))
            shards.append(Shard(size_mb=read.size_mb, replicas=replicas))
        elif task.place is None:
            return None
    return Task(name=task.name, memory_gb=float(task.task.demand.get(MEMORY, 1)), shards=tuple(shards))


def _named(fairness: Fairness) -> None:
    @policy("cluster", fairness.value)
    def make(
        rack: _Weight = 1.0,
        between_racks: _Weight = 1.0,
        waiting: _Weight = 1.0,
        network: Network = "ours",
        certify: Each = 1,
    ) -> Assignment:
        return Assignment(fairness, rack, between_racks, waiting, network, certify)


for _fairness in Fairness:
    _named(_fairness)
