"""Training jobs over time on GPUs of unlike types: what shares of GPU time are for."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from flowlex.instances.cluster import ClusterJob, ClusterNode, ClusterTask, ClusterWorkload, Place, Read
from flowlex.instances.generators.registry import Rate, Size, generator

__all__ = ["cluster_training"]

#: Least and most times as fast as on a k80 (drawn log-uniformly): what public measurements span.
_FASTER = {"v100": (2.0, 10.0), "p100": (1.2, 4.0), "k80": (1.0, 1.0)}
#: GPUs of a job, and how often.
_SCALES = ((1, 0.7), (2, 0.15), (4, 0.15))


@generator("cluster-training")
def cluster_training(
    *,
    seed: int = 0,
    jobs: Size = 30,
    nodes_per_type: Size = 2,
    gpus: Annotated[int, Field(ge=4, le=64)] = 4,
    load: Rate = 0.8,
    mean_s: Rate = 3600.0,
    checkpoint_mb: Rate = 500.0,
    users: Size = 3,
) -> ClusterWorkload:
    """Training jobs that keep checkpoints, on nodes of v100, p100 and k80.

    Parameters
    ----------
    seed
        Speeds, scales, lengths (exponential), arrivals (Poisson).
    jobs, users
        How many, dealt to the users in turn.
    nodes_per_type, gpus
        Nodes of each type, and GPUs of a node.
    load
        GPU seconds that jobs ask for per second, each counted at its mean speed over the types, over all GPUs.
    mean_s
        Mean seconds of a job on k80.
    checkpoint_mb
        Read at every start, from two nodes that hold it.
    """
    rng = np.random.default_rng(seed)
    nodes = tuple(
        ClusterNode(
            name=f"{kind}-{k}",
            rack=f"rack-{kind}",
            labels=(kind,),
            places=(Place(name=f"{kind}-{k}.gpus", capacity={"gpu": gpus}),),
        )
        for kind in _FASTER
        for k in range(nodes_per_type)
    )
    scales = rng.choice([s for s, _ in _SCALES], jobs, p=[p for _, p in _SCALES]).tolist()
    seconds = rng.exponential(mean_s, jobs).tolist()
    speeds = [{kind: float(np.exp(rng.uniform(*np.log(ends)))) for kind, ends in _FASTER.items()} for _ in range(jobs)]
    asked = [s * t / np.mean(list(fast.values())) for s, t, fast in zip(scales, seconds, speeds, strict=True)]
    gap_s = float(np.mean(asked)) / (load * gpus * len(nodes))
    arrivals = np.cumsum(rng.exponential(gap_s, jobs)).tolist()
    made = []
    for k, (scale, time_s, fast, at_s) in enumerate(zip(scales, seconds, speeds, arrivals, strict=True)):
        held = tuple(nodes[n].name for n in rng.choice(len(nodes), 2, replace=False).tolist())
        task = ClusterTask(
            name=f"train{k}",
            demand={"gpu": scale},
            compute_s=time_s,
            reads=(Read(size_mb=checkpoint_mb, replicas=held),),
            fast={kind: speed for kind, speed in fast.items() if speed != 1.0},
            keeps=True,
        )
        made.append(ClusterJob(name=f"train{k}", tasks=(task,), arrival_s=at_s, user=f"user{k % users + 1}"))
    return ClusterWorkload(name="cluster-training", nodes=nodes, jobs=tuple(made))
