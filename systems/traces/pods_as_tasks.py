"""Pods on nodes as tasks with demands on machines with capacities.

Flow scheduling treats a node's GPUs as one amount. It does not ensure that a share of a card comes from a single card
and complete cards from different ones, so a schedule may not fit on the cards (`flowlex.models.pods` models each card).
Larger priorities of pods, but smaller ones of jobs, are more important.
"""

from __future__ import annotations

from collections import defaultdict

from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import Constraint, FlowInstance, FlowJob, FlowTask, Machine
from flowlex.instances.instance_base import InstanceError
from flowlex.instances.pods import Pod, PodInstance

#: Most pods of a Kubernetes node.
_PODS = 110
_LOWEST = 1000


def flow_of_pods(instance: PodInstance) -> FlowInstance:
    """Convert the cluster to flow scheduling, with resources ``cpu`` (cores), ``memory_gb`` and ``gpu`` (cards).

    Pods of one priority become one job; card models become labels, one of which a task requires.
    """
    jobs: dict[int, list[FlowTask]] = defaultdict(list)
    for pod in instance.pods:
        jobs[pod.priority].append(_task(pod))
    top = max(jobs, default=0)
    if jobs and top - min(jobs) > _LOWEST:
        raise InstanceError(f"priorities of pods span {top - min(jobs)}, those of jobs {_LOWEST}; bring them closer")
    machines = tuple(
        Machine(
            name=node.name,
            slots=_PODS,
            labels=() if node.card_model is None else (node.card_model,),
            capacity={"cpu": node.cpu_cores, "memory_gb": node.memory_gb, "gpu": node.cards},
        )
        for node in instance.nodes
    )
    made = (FlowJob(name=f"priority {p}", priority=top - p, tasks=tuple(jobs[p])) for p in sorted(jobs, reverse=True))
    return FlowInstance(name=instance.name, machines=machines, jobs=tuple(made))


def _task(pod: Pod) -> FlowTask:
    said = {"gpu_memory_gb", "gpu_compute", "gang", "spreads", "queue", "node", "tolerations", "node_labels"}
    lost = [name for name in sorted(said) if getattr(pod, name) != Pod.model_fields[name].get_default()]
    if lost:
        raise InstanceError(
            f"pod {pod.name!r} has {', '.join(lost)}, which tasks of flow scheduling do not; solve it as pods"
        )
    demands = {"cpu": pod.cpu_cores, "memory_gb": pod.memory_gb, "gpu": float(rational(pod.gpu_share) * pod.gpu_cards)}
    wants = (Constraint(kind="required", resources=pod.card_models),) if pod.card_models else ()
    return FlowTask(name=pod.name, demands={name: much for name, much in demands.items() if much}, constraints=wants)
