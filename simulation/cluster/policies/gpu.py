"""FSP, FS, FSU: each round is a `GpuAssignment`, solved to its proven optimum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

from pydantic import Field

from flowlex.instances.gpu import Gpu, GpuInstance, Job, Node, Running, Shard, Task
from flowlex.models.gpu.costs import Penalties
from flowlex.models.gpu.model import GpuAssignment
from flowlex.models.gpu.round import Policy as Fairness
from flowlex.simulation.cluster.policies.queues import start_where_cheapest
from flowlex.simulation.cluster.state import Action, LiveJob, LiveNode, LiveTask, Policy, State, reads_of
from flowlex.simulation.decision import Each, EveryNth
from flowlex.simulation.registry import policy

__all__ = ["GPU", "Assignment", "round_instance"]

#: The resource whose places are GPUs; tasks of other places start where their data are cheapest, first come first.
GPU = "gpu"
_GB = 1.0
_Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def on_gpu(task: LiveTask) -> bool:
    """Whether a task wants a GPU."""
    return GPU in task.task.demand


class Assignment(Policy):
    """Solve `GpuAssignment` on the waiting and running GPU tasks whenever one waits.

    Parameters
    ----------
    fairness
        FSP, FS or FSU.
    rack, between_racks, waiting
        Penalties a1, a2, a3.
    certify
        Certify every so manieth round's optimum; 0: none.
    """

    def __init__(
        self,
        fairness: Fairness,
        rack: float = 1.0,
        between_racks: float = 1.0,
        waiting: float = 1.0,
        certify: int = 1,
    ) -> None:
        self.fairness = fairness
        self.penalties: Penalties = Penalties(rack, between_racks, waiting)
        self.turn: EveryNth = EveryNth(certify)

    def decide(self, state: State) -> Iterable[Action]:
        """The optimum of this moment."""
        self.proven = None
        yield from start_where_cheapest(state, (task for task in state.waiting() if not on_gpu(task)))
        waits = any(on_gpu(task) for task in state.waiting())
        free = any(place.free.get(GPU, 0) for place in state.open_places())
        if waits and (free or self.fairness is Fairness.FSP):
            yield from self._optimum(state)

    def _optimum(self, state: State) -> Iterator[Action]:
        instance, tasks = round_instance(state)
        if instance is None:
            return
        self.work = float(len(tasks) * len(state.places))
        self.proven = next(self.turn)
        model = GpuAssignment(instance, policy=self.fairness, penalties=self.penalties)
        solution = model.solve("network", certify=self.proven)
        places = {place.name: place for place in state.places}
        names = instance.arrays.gpu_names
        chosen = [places[names[unit]] if unit >= 0 else None for unit in solution.gpu.tolist()]
        for task, place in zip(tasks, chosen, strict=True):
            if task.place is not None and place is not task.place:
                yield state.stop(task)
        for task, place in zip(tasks, chosen, strict=True):
            if place is not None and place is not task.place:
                yield state.start(task, place)


def round_instance(state: State) -> tuple[GpuInstance | None, list[LiveTask]]:
    """The round as an instance, and its tasks in order; None when there is nothing to assign."""
    work = state.workload
    jobs, tasks = [], []
    for job in state.jobs.values():
        mine = _tasks(state, job)
        if mine:
            tasks += [task for task, _ in mine]
            jobs.append(Job(name=job.name, tasks=tuple(part for _, part in mine)))
    nodes = tuple(Node(name=node.name, rack=node.node.rack, gpus=_gpus(node)) for node in state.nodes)
    if not jobs or not any(node.gpus for node in nodes):
        return None, []
    disk, rack, between = state.nominal
    instance = GpuInstance(
        name=work.name,
        disk_mb_per_s=disk,
        rack_mb_per_s=rack,
        between_racks_mb_per_s=between,
        nodes=nodes,
        jobs=tuple(jobs),
    )
    return instance, tasks


def _gpus(node: LiveNode) -> tuple[Gpu, ...]:
    found = [place for place in node.places if GPU in place.place.capacity] if node.up else []
    return tuple(Gpu(name=place.name, memory_gb=_GB) for place in found)


def _tasks(state: State, job: LiveJob) -> list[tuple[LiveTask, Task]]:
    """GPU tasks of a job that run or may start; one whose data are on nodes that are down cannot."""
    found = []
    for task in (*job.running, *job.waiting):
        if not on_gpu(task):
            continue
        running = None
        if task.place is not None:
            running = Running(gpu=task.place.name, elapsed_s=state.now_s - task.started_s)
        shards = []
        for read, made in reads_of(task):
            sources = made if made is not None else state.holders(read.replicas)
            shards.append(
                Shard(size_mb=read.size_mb, replicas=tuple(dict.fromkeys(node.name for node in sources)))
                if sources
                else None
            )
        if running is None and None in shards:
            continue
        known = tuple(shard for shard in shards if shard is not None)
        found.append((task, Task(name=task.name, memory_gb=_GB, shards=known, running=running)))
    return found


def _named(fairness: Fairness) -> None:
    @policy("cluster", fairness.value)
    def make(
        rack: _Weight = 1.0, between_racks: _Weight = 1.0, waiting: _Weight = 1.0, certify: Each = 1
    ) -> Assignment:
        return Assignment(fairness, rack, between_racks, waiting, certify)


for _fairness in Fairness:
    _named(_fairness)
