"""Policies of the cluster simulator; importing this registers them."""

from flowlex.simulation.cluster.policies import gpu, greedy, live, queues  # noqa: F401  # they register themselves
