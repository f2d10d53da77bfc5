"""Arrivals of pods drawn from the Alibaba GPU-sharing trace, as in its published comparison of policies.

Weng et al., *Beware of Fragmentation*, section 6 (in our words): the pods are shuffled, and randomly drawn copies are
added until their requests reach a given share of all GPUs; they are submitted one after another.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from flowlex.instances.exact_rationals import rational
from flowlex.instances.generators.registry import generator
from flowlex.instances.instance_base import InstanceError
from flowlex.instances.pods import Pod, PodInstance
from flowlex.systems.traces.openb import read_openb

#: Most pods of an instance.
_MOST = 1_000_000
#: Values of fields that the protocol ignores.
_PLAIN = {"priority": 0, "created_s": None, "deleted_s": None}


@generator("openb-arrivals")
def openb_arrivals(
    nodes: Path, pods: Path, *, seed: int = 0, load: Annotated[float, Field(gt=0, le=10)] = 1.3
) -> PodInstance:
    """Pods of the openb trace with random copies, in a random order of submission (all of priority 0).

    - ``nodes``, ``pods``: ``openb_node_list_*.csv`` and ``openb_pod_list_*.csv``, plain or gzip.
    - ``load``: Total of the requested GPUs as a share of all GPUs; the last pod is the one that reaches it.
    """
    trace = read_openb(nodes, pods)
    rng = np.random.default_rng(seed)
    asked = [rational(pod.gpu_share) * pod.gpu_cards for pod in trace.pods]
    if not any(asked):
        raise InstanceError("no pod asks for a GPU, so no share of all GPUs is ever reached", path=pods)
    target, total = rational(load) * sum(node.cards for node in trace.nodes), Fraction(0)
    shuffled = iter(rng.permutation(len(trace.pods)).tolist())
    made: list[Pod] = []
    while total < target:
        pod = next(shuffled, -1)
        pod = int(rng.integers(len(trace.pods))) if pod < 0 else pod
        total += asked[pod]
        name = f"{len(made) + 1}-{trace.pods[pod].name}"
        made.append(trace.pods[pod].model_copy(update={"name": name} | _PLAIN))
        if len(made) > _MOST:
            raise InstanceError(f"more than {_MOST} pods for load={load:g}; give a smaller load")
    return PodInstance(name=f"openb-arrivals-{load:g}-{seed}", nodes=trace.nodes, pods=tuple(made))
