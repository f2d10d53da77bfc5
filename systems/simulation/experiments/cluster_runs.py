"""Shared functions of the cluster experiments: runs by policy name, jobs alone, fairness rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from flowlex.instances.generators import generate
from flowlex.systems.simulation.cluster import Policy, simulate_cluster
from flowlex.systems.simulation.cluster.run_metrics import figures, job_spans
from flowlex.systems.simulation.cluster_workload import ClusterWorkload
from flowlex.systems.simulation.event_log import RunLog
from flowlex.systems.simulation.experiments.statements_and_verdicts import PROVEN
from flowlex.systems.simulation.policy_registry import make_policy
from flowlex.systems.simulation.scenario import PolicyChoice

_CLAIMING = ("FSP", "FS", "FSU", "FlowScheduler", "Quincy", "PodPlacement", "allocation")


def workload(generator: str, **parameters: Any) -> ClusterWorkload:
    """Make a workload."""
    return cast(ClusterWorkload, generate(generator, **parameters))


def made(name: str, **parameters: Any) -> Policy:
    """Make a policy by name; every `PROVEN`-th optimum that it claims is certified."""
    if name in _CLAIMING:
        parameters.setdefault("certify", PROVEN)
    return cast(Policy, make_policy("cluster", PolicyChoice(name=name, parameters=parameters)))


def simulated(work: ClusterWorkload, policy: str | Policy, **options: Any) -> RunLog:
    """Run a policy or the policy of a name; rates are certified at every `PROVEN`-th change."""
    return simulate_cluster(work, made(policy) if isinstance(policy, str) else policy, **{"certify": PROVEN, **options})


def run(work: ClusterWorkload, policy: str | Policy, **options: Any) -> dict[str, float]:
    """Figures of a run."""
    return figures(simulated(work, policy, **options))


def alone_seconds(work: ClusterWorkload, parts: int, **options: Any) -> dict[str, float]:
    """Return, by job, its seconds from first start to end if it runs alone on 1/``parts`` of the GPUs under GS (t_id).

    The GPUs left are spread evenly over the nodes; all nodes keep their data, disks and cores.
    """
    gpus = [place.name for place in work.places if "gpu" in place.capacity]
    kept = set(gpus[:: max(parts, 1)])
    nodes = tuple(
        node.model_copy(update={"places": tuple(p for p in node.places if p.name in kept or "gpu" not in p.capacity)})
        for node in work.nodes
    )
    found = {}
    for job in work.jobs:
        single = work.model_copy(update={"nodes": nodes, "jobs": (job.model_copy(update={"arrival_s": 0.0}),)})
        start, end = job_spans(simulated(single, "GS", **options))[job.name]
        found[job.name] = end - start
    return found


def fairness_rates(log: RunLog, ideal_s: Mapping[str, float]) -> dict[str, float]:
    """By job, its fairness rate t_id / t_sh."""
    return {job: ideal_s[job] / (end - start) for job, (start, end) in job_spans(log).items()}


def first_waits(log: RunLog) -> list[tuple[str, float]]:
    """Return job and seconds from ready to first start of every task; one that never starts waits until the end."""
    ready: dict[str, tuple[str, float]] = {}
    started: dict[str, float] = {}
    for record in log.of("ready", "start"):
        if record["event"] == "ready":
            ready.setdefault(record["task"], (record["job"], record["at_s"]))
        else:
            started.setdefault(record["task"], record["at_s"])
    last_s = float(log.records[-1]["at_s"])
    return [(job, started.get(task, last_s) - at_s) for task, (job, at_s) in ready.items()]
