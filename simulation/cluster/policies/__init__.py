"""Policies of the cluster simulator; importing this registers them."""

from flowlex.simulation.cluster.policies import allocation, gpu, greedy, kubernetes_queues, live, pods, queues  # noqa: F401  # they register themselves
