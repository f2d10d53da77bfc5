"""Policy with shares of GPU time from an `Allocation`, realised by rounds with a proven lag (`schedule_rounds`).

The first label of a node is its type of GPU. Each GPU task is a job of the allocation, with its number of GPUs and its
speed on each type. Tasks outside of a round's configuration are stopped; tasks should keep their progress (``keeps``),
as training with checkpoints does. Tasks without GPU start where access to their data is cheapest.

Shares are recomputed at the next round after GPU tasks arrive or end, or nodes fail or return. Every plan begins at a
random round, so that in expectation each configuration gets its share of the first rounds, however often plans change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from flowlex.instances.allocation import AllocationInstance, AllocationJob, Entity, GpuType, JobType
from flowlex.models.allocation.baselines import BASELINES, baseline
from flowlex.models.allocation.model import Allocation
from flowlex.models.allocation.shares_to_rounds import schedule_rounds
from flowlex.systems.simulation.cluster.policies.gpu_assignment import GPU, on_gpu
from flowlex.systems.simulation.cluster.policies.queues import start_where_cheapest
from flowlex.systems.simulation.cluster.policy_interface import Action, LiveNode, LivePlace, LiveTask, Policy, State
from flowlex.systems.simulation.decision_time import Each, EveryNth
from flowlex.systems.simulation.policy_registry import policy

#: Rounds of a plan, and the number of its first rounds at which it may begin.
_ROUNDS, _BEGINNINGS = 200, 100

Chosen = Literal[
    "max_min",
    "water_filling",
    "hierarchical",
    "makespan",
    "finish_time",
    "max_throughput",
    "fifo",
    "proportional",
    "isolated",
]


@policy("cluster", "allocation")
@dataclass(eq=False)
class Shares(Policy):
    """Rounds of an allocation."""

    shares: Chosen = "max_min"  # a policy of `Allocation`, or a baseline; with ``hierarchical``, users are the entities
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0  # length of a round
    fill: bool = True  # whether waiting tasks, the earliest first, get the GPUs that a round leaves free
    certify: Each = 1  # certify every n-th allocation; 0: none

    rotates = True

    def __post_init__(self) -> None:
        self.again_s, self.turn = self.seconds, EveryNth(self.certify)
        self._plan: list[dict[str, str]] = []
        self._known: frozenset[str] = frozenset()
        self._next, self._round_s = 0, 0.0

    def decide(self, state: State) -> Iterable[Action]:
        """Stop and start tasks as the round requires; between rounds, only fill free GPUs."""
        self.proven = None
        yield from start_where_cheapest(state, (task for task in state.waiting() if not on_gpu(task)))
        tasks = [task for job in state.jobs.values() for task in (*job.running, *job.waiting) if on_gpu(task)]
        assert self.again_s is not None
        if tasks and state.now_s >= self._round_s:
            self._round_s = state.now_s + self.again_s
            yield from self._turn_over(state, tasks)
        if self.fill:
            waiting = sorted((task for task in state.waiting() if on_gpu(task)), key=lambda task: task.number)
            tried = {action.task for action in state.tried}
            yield from start_where_cheapest(state, (task for task in waiting if task not in tried))

    def _turn_over(self, state: State, tasks: list[LiveTask]) -> Iterator[Action]:
        """Apply one round of the plan; recompute the plan if tasks or nodes have changed."""
        up = [node for node in state.nodes if node.up]
        known = frozenset([*(task.name for task in tasks), *(node.name for node in up)])
        if known != self._known or self._next >= len(self._plan):
            self._known, self._plan = known, self._planned(state, tasks)
            self._next = int(state.random.integers(min(_BEGINNINGS, len(self._plan)) or 1))
        wanted = self._plan[self._next] if self._plan else {}
        self._next += 1
        for task in tasks:
            if task.place is not None and wanted.get(task.name) != gpu_type(task.place.node):
                yield state.stop(task)
        for task in sorted(tasks, key=lambda task: -task.task.demand[GPU]):  # large first, so that small ones fill gaps
            if task.place is not None and wanted.get(task.name) == gpu_type(task.place.node):
                continue
            place = _fullest(state, task, wanted.get(task.name))
            if place is not None:
                yield state.start(task, place)

    def _planned(self, state: State, tasks: list[LiveTask]) -> list[dict[str, str]]:
        """Return, for every round of a new plan, the GPU type of each running task."""
        instance = allocation_round(state, tasks, hierarchical=self.shares == "hierarchical")
        if instance is None:
            return []
        self.work = float(len(instance.jobs) * len(instance.gpu_types))
        if self.shares in BASELINES:
            solution = baseline(instance, self.shares)
        else:
            self.proven = next(self.turn)
            options: dict[str, Any] = {"policy": self.shares}
            solution = Allocation(instance, **options).solve("highs", certify=self.proven)
        rounds = schedule_rounds(solution, self.again_s or 1.0, rounds=_ROUNDS, shrink=True).to_dict()
        names = [{run["jobs"][0]: run["gpu_type"] for run in one} for one in rounds["configurations"]]
        return [names[number] for number in rounds["rounds"]]


def allocation_round(state: State, tasks: list[LiveTask], *, hierarchical: bool = False) -> AllocationInstance | None:
    """Return the nodes that are up and the GPU tasks as an instance; tasks that fit no such node are left out.

    A step is one second of the task's ``compute_s``; speeds are steps per second.
    """
    count: Counter[str] = Counter()
    first: dict[str, LiveNode] = {}
    largest: Counter[str] = Counter()
    for place in state.places:
        if place.node.up and place.place.capacity.get(GPU):
            kind, much = gpu_type(place.node), place.place.capacity[GPU]
            count[kind] += much
            largest[kind] = max(largest[kind], much)
            first.setdefault(kind, place.node)
    kinds, jobs = [], []
    for task in tasks:
        need = task.task.demand[GPU]
        speed = {kind: _speed(task, node) for kind, node in first.items() if largest[kind] >= need}
        if speed:
            kinds.append(JobType(name=task.name, gpus=need, steps_per_s=speed))
            left = max(task.left_at(state.now_s) * max(task.task.compute_s, 1.0), 1e-6)
            waits_s = state.now_s - task.job.job.arrival_s
            owner = task.job.job.user if hierarchical else None
            jobs.append(
                AllocationJob(name=task.name, job_type=task.name, steps_left=left, running_s=waits_s, entity=owner)
            )
    if not jobs:
        return None
    users = dict.fromkeys(job.entity for job in jobs if job.entity is not None)
    return AllocationInstance(
        name="round",
        gpu_types=tuple(GpuType(name=kind, count=much) for kind, much in count.items()),
        job_types=tuple(kinds),
        jobs=tuple(jobs),
        entities=tuple(Entity(name=user) for user in users),
    )


def gpu_type(node: LiveNode) -> str:
    """Return the first label of a node; ``gpu`` if it has none."""
    return node.node.labels[0] if node.node.labels else GPU


def _speed(task: LiveTask, node: LiveNode) -> float:
    """Return the steps per second of a task on a node, with at least 1 s of computing."""
    return max(task.task.compute_s, 1.0) / max(task.seconds_on(node), 1.0)


def _fullest(state: State, task: LiveTask, kind: str | None) -> LivePlace | None:
    """Return the place of a type that fits with the fewest free GPUs (best fit)."""
    if kind is None:
        return None
    places = (place for place in state.open_places() if gpu_type(place.node) == kind and place.fits(task))
    return min(places, key=lambda place: (place.free[GPU], place.number), default=None)
