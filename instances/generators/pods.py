"""Pod placement: a testbed like the paper's (three different nodes, too many pods), and clusters of any size."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from flowlex.instances.generators.registry import Share, generator
from flowlex.instances.pods import Pod, PodInstance, PodNode


@generator("kubeflow-testbed")
def kubeflow_testbed(
    *,
    seed: int = 0,
    pods: Annotated[int, Field(ge=1, le=1000)] = 12,
    draws: Literal["mixed", "digits"] = "mixed",
) -> PodInstance:
    """Three different nodes and about a dozen pods with priorities that exceed their capacity.

    The paper's own sizes are lost; those here are ours, drawn so that some pods have to wait.

    - ``draws``: ``mixed``: requests of usual sizes (cores run out first). ``digits``: single-digit integers on nodes
      with scarce GPU memory, as the paper says; GPU pods select the label of GPU nodes, and CPU pods tolerate the taint
      of CPU nodes.
    """
    rng = np.random.default_rng(seed)
    if draws == "digits":
        return _digits(rng, f"kubeflow-testbed-digits-{seed}", pods)
    nodes = (
        PodNode(name="node-1", cpu_cores=32, memory_gb=128, cards=2, card_gb=24, card_model="RTX3090"),
        PodNode(name="node-2", cpu_cores=16, memory_gb=64, cards=2, card_gb=11, card_model="RTX2080Ti"),
        PodNode(name="node-3", cpu_cores=24, memory_gb=96),
    )
    kinds = rng.permutation(np.arange(pods) % 4 == 3)
    made = []
    for i in range(pods):
        on_cpu = bool(kinds[i])
        made.append(
            Pod(
                name=f"pod-{i + 1}",
                cpu_cores=float(rng.integers(4, 11) + 2 * on_cpu),
                memory_gb=float(rng.choice([8, 12, 16, 24]) + 8 * on_cpu),
                gpu_memory_gb=0.0 if on_cpu else float(rng.choice([4, 6, 8, 10, 12, 16])),
                priority=int(rng.integers(1, 4)),
            )
        )
    return PodInstance(name=f"kubeflow-testbed-{seed}", nodes=nodes, pods=tuple(made))


def _digits(rng: np.random.Generator, name: str, pods: int) -> PodInstance:
    """Nodes with scarce GPU memory, single-digit requests, random priorities."""
    gpu, cpu = {"accelerator": "gpu"}, {"accelerator": "none"}
    nodes = (
        PodNode(name="node-1", cpu_cores=32, memory_gb=32, cards=2, card_gb=9, labels=gpu),
        PodNode(name="node-2", cpu_cores=24, memory_gb=24, cards=1, card_gb=9, labels=gpu),
        PodNode(name="node-3", cpu_cores=24, memory_gb=24, labels=cpu, taints=("no-gpu",)),
    )
    made = []
    for i, (cores, memory, gb, priority) in enumerate(rng.integers(1, (10, 10, 10, 4), (pods, 4)).tolist()):
        wishes: dict[str, Any] = {"gpu_memory_gb": gb, "node_labels": gpu}
        if i % 4 == 3:
            wishes = {"tolerations": ("no-gpu",)}
        made.append(Pod(name=f"pod-{i + 1}", cpu_cores=cores, memory_gb=memory, priority=priority, **wishes))
    return PodInstance(name=name, nodes=nodes, pods=tuple(made))


#: Cores, memory, cards, GB per card, model, and probability.
_NODE_TYPES = (
    (32, 128, 0, 0, None, 0.4),
    (64, 256, 0, 0, None, 0.1),
    (48, 192, 4, 16, "T4", 0.25),
    (64, 384, 4, 32, "V100", 0.15),
    (96, 768, 8, 24, "A10", 0.1),
)
#: Cores, memory, GB per card, cards, and probability.
_POD_TYPES = (
    (2, 4, 0, 1, 0.15),
    (4, 8, 0, 1, 0.15),
    (8, 24, 0, 1, 0.1),
    (1, 8, 0, 1, 0.05),
    (4, 16, 4, 1, 0.15),
    (4, 16, 8, 1, 0.15),
    (6, 24, 12, 1, 0.1),
    (8, 32, 16, 1, 0.08),
    (16, 64, 16, 2, 0.05),
    (12, 48, 24, 1, 0.02),
)


@generator("pods-scale")
def pods_scale(
    *,
    seed: int = 0,
    nodes: Annotated[int, Field(ge=1, le=100_000)] = 100,
    pods: Annotated[int, Field(ge=0, le=1_000_000)] = 500,
    running: Share = 0.0,
    classes: Annotated[int, Field(ge=1, le=100)] = 3,
) -> PodInstance:
    """A cluster of a few node types and pods of a few shapes.

    - ``running``: share of the pods that already run, on the first node that fits; half of them may move at a cost.
    - ``classes``: number of priorities.
    """
    rng = np.random.default_rng(seed)
    which = rng.choice(len(_NODE_TYPES), nodes, p=[t[-1] for t in _NODE_TYPES])
    which[0] = 3  # one node that takes the larger GPU pods
    made = []
    for i, kind in enumerate(which):
        cores, memory, cards, card_gb, model, _ = _NODE_TYPES[kind]
        labels = {"zone": "abc"[int(rng.integers(3))]}
        made.append(
            PodNode(
                name=f"node-{i + 1}",
                cpu_cores=cores,
                memory_gb=memory,
                cards=cards,
                card_gb=card_gb,
                card_model=model,
                labels=labels,
            )
        )
    shapes = rng.choice(len(_POD_TYPES), pods, p=[t[-1] for t in _POD_TYPES])
    wishes = rng.random(pods) < 0.1
    entries = []
    for i, kind in enumerate(shapes):
        cores, memory, gb, cards, _ = _POD_TYPES[kind]
        entries.append(
            Pod(
                name=f"pod-{i + 1}",
                cpu_cores=cores,
                memory_gb=memory,
                gpu_memory_gb=gb,
                gpu_cards=cards if gb else 1,
                priority=int(rng.integers(classes)),
                node_labels={"zone": "abc"[int(rng.integers(3))]} if wishes[i] else {},
            )
        )
    cluster = PodInstance(name=f"pods-scale-{nodes}x{pods}-{seed}", nodes=tuple(made), pods=tuple(entries))
    return _start(cluster, rng, round(running * pods)) if running else cluster


def _start(cluster: PodInstance, rng: np.random.Generator, count: int) -> PodInstance:
    """Start pods, each on the first node that fits, searching from a random node."""
    view = cluster.arrays
    free = view.capacity[:, 1:].copy()
    cards = [[gb] * many for gb, many in zip(view.card_gb.tolist(), view.cards.tolist(), strict=True)]
    pods = list(cluster.pods)
    for p in range(count):
        for n in np.roll(np.arange(len(cluster.nodes)), -int(rng.integers(len(cluster.nodes)))):
            need, many = view.gpu[p, n], int(view.gpu_cards[p])
            room = [k for k, left in enumerate(cards[n]) if left >= need] if many else []
            if view.allowed[p, n] and free[n, 0] >= view.cpu[p] and free[n, 1] >= view.memory[p] and len(room) >= many:
                free[n] -= (view.cpu[p], view.memory[p])
                for k in room[:many]:
                    cards[n][k] -= need
                where = {"node": cluster.nodes[n].name, "node_cards": tuple(room[:many]) if many else None}
                pods[p] = pods[p].model_copy(update=where | {"move_cost": 1.0 if p % 2 else None})
                break
    return cluster.model_copy(update={"pods": tuple(pods)})
