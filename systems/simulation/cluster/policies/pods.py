"""Pods on places with several resources: rules that place pods one by one, and the model, round by round.

A place is a node of the pod model: ``core`` or ``slot`` are its cores, ``gb`` its memory, ``gpu_gb`` or ``gpu`` its GPU
memory, counted per place as in the paper (one card). A task cannot use a place that lacks one of its resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.pods.baselines import GeneticSettings, genetic, place
from flowlex.models.pods.model import PodPlacement
from flowlex.systems.simulation.cluster.policy_interface import Action, LivePlace, LiveTask, Policy, State
from flowlex.systems.simulation.decision_time import Each, EveryNth
from flowlex.systems.simulation.event_queue import SimulationError
from flowlex.systems.simulation.policy_registry import policy

Rule = Literal[
    "first-fit", "best-fit", "dot-product", "gpu-clustering", "gpu-packing", "fgd", "kubernetes", "random",
    "priority-queue", "whole-cards", "genetic",
]  # fmt: skip
#: Name in the pod model of each resource of a place.
_FIELDS = {"core": "cpu", "slot": "cpu", "gb": "memory", "gpu_gb": "gpu", "gpu": "gpu"}
#: Settings of each round; if nearly all chromosomes exceed capacities, it gives up and first fit is used.
_GENETIC = GeneticSettings(generations=20, attempts=400)
_Price = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@policy("cluster", "pods")
class PodRule(Policy):
    """Place waiting tasks, the most important first, by a rule (see `flowlex.models.pods`).

    Parameters
    ----------
    rule
        One of the pod baselines; ``genetic`` places what first fit admits with the paper's genetic algorithm, and
        ``whole-cards`` takes tasks in the order of arrival, whatever their priority, each alone on its GPU.
    """

    def __init__(self, rule: Rule = "fgd") -> None:
        self.rule = rule

    def decide(self, state: State) -> Iterable[Action]:
        """One pass over the queue."""
        if not _some_fit(state):
            return ()
        instance, tasks = pod_round(state, list(state.waiting()))
        self.work = float(len(tasks) * len(instance.nodes))
        seed = int(state.random.integers(2**31))
        if self.rule != "genetic":
            cluster = place(instance, self.rule, seed=seed)
        else:
            found = genetic(instance, seed=seed, settings=_GENETIC).cluster
            cluster = place(instance, "first-fit") if found is None else found  # no feasible chromosome was met
        return list(_actions(state, instance, tasks, cluster.node))


@policy("cluster", "PodPlacement")
@dataclass(eq=False)
class PodModel(Policy):
    """Each round is a `PodPlacement`: the most pods of each priority in turn, then the least uneven loads."""

    balance: Literal["deviation", "max_load", "mean_absolute"] = "deviation"  # as for `PodPlacement`
    # most waiting tasks considered in a round, the most important first, then the earliest; bounds the work
    window: Annotated[int, Field(ge=1)] = 12
    # cost of each preemption of a running task for more important ones; None: no preemption
    preempt_cost: _Price | None = None
    # stopping criteria of a round's balance, see `PodPlacement` and `SolveOptions`
    absolute_gap: Annotated[float, Field(ge=0, lt=1)] = 0.01
    max_steps: Annotated[int, Field(ge=1)] = 500
    certify: Each = 1  # certify every n-th round; 0: none

    def __post_init__(self) -> None:
        self.turn = EveryNth(self.certify)

    def decide(self, state: State) -> Iterable[Action]:
        """Return the actions of the current round's optimum, to within the gap."""
        self.proven = None
        waiting = sorted(state.waiting(), key=lambda task: task.job.job.priority)[: self.window]
        if not waiting or (self.preempt_cost is None and not _some_fit(state)):
            return ()
        instance, tasks = pod_round(state, waiting, self.preempt_cost)
        self.work, self.proven = float(len(tasks) * len(instance.nodes)), next(self.turn)
        model = PodPlacement(instance, balance=self.balance, absolute_gap=self.absolute_gap)
        solution = model.solve("highs", max_steps=self.max_steps, certify=self.proven)
        if solution.cluster is None:
            raise SimulationError(f"the pod model has no answer ({solution.status}): {solution.message}")
        return list(_actions(state, instance, tasks, solution.cluster.node))


def pod_round(
    state: State, waiting: Iterable[LiveTask], preempt_cost: float | None = None
) -> tuple[PodInstance, list[LiveTask]]:
    """Return an instance of the running tasks and the given waiting ones, and its tasks in the order of the pods.

    Raises `SimulationError`: a place has a resource that the pod model does not know.
    """
    tasks = [*state.running(), *waiting]
    places = [place for place in state.places if place.node.up]
    nodes = tuple(_node(place) for place in places)
    return PodInstance(name="round", nodes=nodes, pods=tuple(_pod(task, preempt_cost) for task in tasks)), tasks


def _some_fit(state: State) -> bool:
    places = state.open_places()
    kinds = {tuple(sorted(task.task.demand.items())): task for task in state.waiting()}
    return any(place.fits(task) for task in kinds.values() for place in places)


def _actions(state: State, instance: PodInstance, tasks: list[LiveTask], chosen: Iterable[int]) -> Iterable[Action]:
    """Convert a placement of pods to actions, stops first."""
    places = {each.name: each for each in state.places}
    to = [places[instance.nodes[node].name] if node >= 0 else None for node in np.asarray(chosen).tolist()]
    for task, target in zip(tasks, to, strict=True):
        if task.place is not None and task.place is not target:
            yield state.stop(task)
    for task, target in zip(tasks, to, strict=True):
        if target is not None and task.place is not target:
            yield state.start(task, target)


def _amounts(of: Mapping[str, int], owner: str) -> dict[str, int]:
    """Return cores, memory and GPU memory by their names in the pod model."""
    for name in of:
        if name not in _FIELDS:
            known = ", ".join(_FIELDS)
            raise SimulationError(f"{owner} has the resource {name!r}; pod policies know {known}")
    found = {_FIELDS[name]: much for name, much in of.items()}
    if len(found) < len(of):
        raise SimulationError(
            f"{owner} has two resources of one kind ({', '.join(of)}); pod policies do not distinguish them"
        )
    return found


def _node(place: LivePlace) -> PodNode:
    much = _amounts(place.place.capacity, f"place {place.name!r}")
    return PodNode(
        name=place.name,
        cpu_cores=much.get("cpu", 1),
        memory_gb=much.get("memory", 1),
        cards=int("gpu" in much),
        card_gb=much.get("gpu", 0),
        labels=dict.fromkeys(place.place.capacity, "has"),
    )


def _pod(task: LiveTask, preempt_cost: float | None) -> Pod:
    much = _amounts(task.task.demand, f"task {task.name!r}")
    return Pod(
        name=task.name,
        cpu_cores=much.get("cpu", 0),
        memory_gb=much.get("memory", 0),
        gpu_memory_gb=much.get("gpu", 0),
        priority=-task.job.job.priority,
        node_labels=dict.fromkeys(task.task.demand, "has"),
        node=None if task.place is None else task.place.name,
        preempt_cost=None if task.place is None else preempt_cost,
    )
