"""Seeded generators of instances: the published topologies and workloads, and random ones for tests."""

from flowlex.instances.generators import (  # noqa: F401  # they register their generators
    allocation,
    cluster,
    cluster_queues,
    cluster_training,
    flow,
    gpu,
    jit,
    load,
    network,
    openb,
    pods,
)
from flowlex.instances.generators.registry import GENERATORS, GeneratorSpec, all_generators, generate, generator

__all__ = ["GENERATORS", "GeneratorSpec", "all_generators", "generate", "generator"]
