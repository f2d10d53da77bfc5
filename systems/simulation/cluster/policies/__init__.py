"""Policies of the cluster simulator; importing this registers them."""

from flowlex.systems.simulation.cluster.policies import (  # noqa: F401  # they register themselves
    allocation,
    gpu_assignment,
    greedy,
    kubernetes_queues,
    live,
    pods,
    queues,
)
