"""Jobs of tasks on the places of a cluster, their data on its disks and links.

`ClusterRun` simulates, `state.Policy` is what decides, `policies` are those that come with the package, `figures` and
`plots` read a run's log.
"""

from flowlex.simulation.cluster import policies  # noqa: F401  # they register themselves
from flowlex.simulation.cluster.policy_interface import Policy, Start, State, Stop
from flowlex.simulation.cluster.simulate_cluster import SIMULATOR, simulate_cluster

__all__ = ["SIMULATOR", "Policy", "Start", "State", "Stop", "simulate_cluster"]
