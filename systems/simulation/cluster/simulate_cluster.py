"""Interface of the cluster simulator for scenarios and users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, cast

from flowlex.formulations.deferred_compilation import small_work
from flowlex.instances.instance_base import Instance, InstanceError, Part
from flowlex.systems.simulation.cluster.log_to_events import replay_events
from flowlex.systems.simulation.cluster.policy_interface import Policy
from flowlex.systems.simulation.cluster.run_metrics import figures
from flowlex.systems.simulation.cluster.simulator import ClusterParameters, ClusterRun
from flowlex.systems.simulation.cluster_workload import ClusterWorkload
from flowlex.systems.simulation.event_log import RunLog
from flowlex.systems.simulation.policy_registry import Run, checked, make_policy
from flowlex.systems.simulation.scenario import Decision, PolicyChoice


class ClusterSimulator:
    """See `flowlex.systems.simulation.policy_registry.Simulator`."""

    kinds: ClassVar[tuple[str, ...]] = ("cluster-workload",)

    def check(self, parameters: Mapping[str, Any]) -> None:
        """See `flowlex.systems.simulation.cluster.simulator.ClusterParameters`."""
        ClusterParameters(**checked(ClusterParameters, parameters, "parameters"))

    def simulate(self, instance: Instance, policy: Policy, run: Run) -> RunLog:
        """Run once."""
        if not isinstance(instance, ClusterWorkload):
            raise InstanceError(f"the cluster simulator takes cluster-workload instances, this is {instance.kind!r}")
        if not isinstance(policy, Policy):
            raise InstanceError(f"{type(policy).__name__} is no cluster policy; make it a subclass of cluster.Policy")
        with small_work(instance.cells):
            return ClusterRun(instance, policy, run).simulate()

    def figures(self, log: RunLog) -> dict[str, float]:
        """From the log alone."""
        return figures(log)

    def plots(self) -> Mapping[str, Callable[..., Any]]:
        """Pictures by name."""
        from flowlex.systems.simulation.cluster.plots import PLOTS

        return PLOTS

    def events(self, instance: Instance, log: RunLog) -> Iterable[Part]:
        """The run for ``flowlex replay``."""
        return replay_events(instance, log)


SIMULATOR = ClusterSimulator()
#: Names under which `flowlex` exports the base class of policies and the metrics of a run.
ClusterPolicy, run_figures = Policy, figures


def simulate_cluster(
    workload: ClusterWorkload,
    policy: Policy | str,
    *,
    seed: int = 0,
    horizon_s: float | None = None,
    decision: Decision | None = None,
    **parameters: Any,
) -> RunLog:
    """Simulate a cluster under a policy.

    Parameters
    ----------
    workload
        Cluster and jobs.
    policy
        The policy; create a new one for each run. Or the name of one, such as ``"FSP"``.
    seed
        Seed of the random streams.
    horizon_s
        Time at which the run ends; None: when all jobs have ended.
    decision
        Decision time of the policy; 0 by default.
    parameters
        See `flowlex.systems.simulation.cluster.simulator.ClusterParameters`.

    Returns
    -------
    RunLog
        Events of the run; `figures` reads them.

    Raises
    ------
    SimulationError
        The policy answers nonsense, or nothing more can happen though tasks are left.
    """
    if isinstance(policy, str):
        policy = cast(Policy, make_policy("cluster", PolicyChoice(name=policy)))
    return SIMULATOR.simulate(workload, policy, Run(seed, horizon_s, decision or Decision(), parameters))
