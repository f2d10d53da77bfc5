"""Small instances of the simulators' kinds, for ``flowlex example``."""

from __future__ import annotations

from flowlex.instances.generators.registry import generate
from flowlex.instances.instance_base import Instance
from flowlex.systems.simulation.scenario import Scenario


def cluster_workload() -> Instance:
    """Six pods on a small cluster."""
    return generate("cluster-pods", pods=6)


def scenario() -> Scenario:
    """Two queues on the testbed."""
    return Scenario.model_validate(
        {
            "kind": "scenario",
            "name": "queue",
            "simulator": "cluster",
            "workload": {"generator": "cluster-testbed", "parameters": {"count": 2}},
            "policies": ["FIFO", "FSP"],
            "seeds": [0],
        }
    )
