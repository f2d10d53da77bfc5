"""Simulator of jobs of tasks on the places of a cluster, with their data on its disks and links.

`ClusterRun` simulates, a `policy_interface.Policy` decides, `policies` has those of the package, and `run_metrics` and
`plots` read a run's log.
"""

from flowlex.systems.simulation.cluster import policies  # noqa: F401  # they register themselves
from flowlex.systems.simulation.cluster.policy_interface import Policy, Start, State, Stop
from flowlex.systems.simulation.cluster.simulate_cluster import SIMULATOR, simulate_cluster

__all__ = ["SIMULATOR", "Policy", "Start", "State", "Stop", "simulate_cluster"]
