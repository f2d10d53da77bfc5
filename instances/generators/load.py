"""The paper's inference cluster: one master, four workers that other programs share, 400 pictures in blocks.

The paper names the set-up (AlexNet, 400 ImageNet pictures, HDFS) but not the nodes' speeds; those here are ours.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from flowlex.instances.generators.registry import Share, Size, generator
from flowlex.instances.load import Block, Link, LoadNode, LoadPartitionInstance, RunRecord


@generator("inference-cluster")
def inference_cluster(
    *,
    seed: int = 0,
    workers: Annotated[int, Field(ge=1, le=10_000)] = 4,
    items: Annotated[int, Field(ge=0, le=10**7)] = 400,
    replicas: Annotated[int, Field(ge=1, le=10)] = 2,
    block_items: Size = 1,
    skew: Share = 0.5,
    processors: Literal["equal", "mixed"] = "equal",
) -> LoadPartitionInstance:
    """Workers with different background load and run history, items in blocks with replicas.

    - ``workers``, ``items``: sizes; the master only assigns and is not among the nodes.
    - ``replicas``: nodes that hold each block (at most all).
    - ``block_items``: items in a block.
    - ``skew``: 0 spreads blocks evenly over the workers; 1 concentrates them on a few.
    - ``processors``: ``equal``, as on the paper's testbed: four cores each, so a partition by configuration is even;
      ``mixed``: 4, 8 or 16 cores of slightly different speeds.
    """
    rng = np.random.default_rng(seed)
    equal = processors == "equal"
    cores = np.full(workers, 4) if equal else rng.choice([4, 8, 16], workers)
    # Background load takes cores away. ``cpu_free`` is a noisy reading of it; the history reflects the true speed.
    background = rng.uniform(0.0, 0.7, workers)
    per_core = np.ones(workers) if equal else rng.uniform(0.8, 1.2, workers)
    truth = np.maximum(0.2, cores * (1 - background) * per_core)
    reading = np.clip(1 - background + rng.normal(0, 0.15, workers), 0.05, 1.0)
    nodes = []
    for i in range(workers):
        speeds = truth[i] * rng.normal(1.0, 0.03, 5)
        runs = tuple(RunRecord(items=100, seconds=round(float(100 / max(0.1, s)), 4)) for s in speeds)
        nodes.append(
            LoadNode(
                name=f"worker-{i + 1}",
                configuration=float(cores[i]),
                cpu_free=round(float(reading[i]), 4),
                cpu_required=0.5,
                history=runs,
                true_items_per_s=round(float(truth[i]), 4),
            )
        )
    weights = (1 - skew) / workers + skew * rng.dirichlet(np.full(workers, 0.5))
    count = -(-items // block_items)
    homes = rng.choice(workers, count, p=weights / weights.sum())
    blocks = []
    for b in range(count):
        others = rng.permutation(np.delete(np.arange(workers), homes[b]))[: replicas - 1]
        size = min(block_items, items - b * block_items)
        holders = tuple(nodes[i].name for i in (homes[b], *others))
        blocks.append(Block(name=f"block-{b + 1:04d}", items=size, holders=holders))
    links = [
        Link(source=a.name, target=b.name, seconds_per_item=round(float(rng.uniform(0.002, 0.02)), 6))
        for a in nodes
        for b in nodes
        if a is not b and workers <= 100
    ]
    return LoadPartitionInstance(
        name=f"inference-cluster-{seed}", nodes=tuple(nodes), blocks=tuple(blocks), links=tuple(links)
    )
