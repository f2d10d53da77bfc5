"""Fluid flows on ports: coflows and jobs as DAGs, and the policies that share the ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flowlex.formulations.deferred_compilation import small_work
from flowlex.instances.instance_base import Instance, InstanceError, Part
from flowlex.instances.jit import JitInstance
from flowlex.systems.scheduler.event_log import events_of
from flowlex.systems.simulation.event_log import RunLog
from flowlex.systems.simulation.network import just_in_time, latest_arrival_first, policies
from flowlex.systems.simulation.network.plots import PLOTS
from flowlex.systems.simulation.network.policy_view import Instruction, NetworkPolicy, NetworkState, Rates
from flowlex.systems.simulation.network.run_record import figures, to_log
from flowlex.systems.simulation.network.simulator import simulate_traffic
from flowlex.systems.simulation.network.traffic_arrays import Traffic
from flowlex.systems.simulation.policy_registry import Run

__all__ = [
    "SIMULATOR",
    "Instruction",
    "NetworkPolicy",
    "NetworkState",
    "Rates",
    "Traffic",
    "just_in_time",
    "latest_arrival_first",
    "policies",
    "simulate_traffic",
]

#: Small runs are not compiled: sixty coflows on twenty machines take 1.5 s in plain loops, compiling takes 50 s.
_CELLS_PER_EVENT = 50


class _NetworkSimulator:
    """See `flowlex.systems.simulation.policy_registry.Simulator`."""

    kinds = ("jit-bandwidth",)

    def check(self, parameters: Mapping[str, Any]) -> None:
        """``bin_s``: initial width of the bins of port loads (by default the instance's slot)."""
        unknown = sorted(set(parameters) - {"bin_s"})
        if unknown:
            raise InstanceError(f"no parameter {unknown[0]!r}; it has: bin_s", place="parameters")
        bin_s = parameters.get("bin_s", 1.0)
        if isinstance(bin_s, bool) or not isinstance(bin_s, int | float) or not 0 < bin_s < float("inf"):
            raise InstanceError(f"bin_s must be a positive number of seconds, got {bin_s!r}", place="parameters")

    def simulate(self, instance: Instance, policy: Any, run: Run) -> RunLog:
        """Run once; `check` says which parameters it has."""
        if not isinstance(instance, JitInstance):
            reason = f"the network simulator takes jit-bandwidth instances, this is {instance.kind!r}"
            raise InstanceError(reason, place="workload")
        self.check(run.parameters)
        bin_s = run.parameters.get("bin_s", instance.slot_s)
        with small_work(instance.cells // _CELLS_PER_EVENT):
            done = simulate_traffic(Traffic.of(instance), policy, run, bin_s=float(bin_s))
        header = {"workload": instance.fingerprint, "seed": run.seed, "policy": type(policy).__name__}
        header |= {"comment": instance.comment} if instance.comment else {}
        return to_log(done, header)

    def figures(self, log: RunLog) -> dict[str, float]:
        """See `flowlex.systems.simulation.network.run_record.figures`."""
        return figures(log)

    def events(self, instance: Instance, log: RunLog) -> Iterator[Part]:
        """Return events for ``flowlex replay``: the network, and the jobs that arrived in the simulated time.

        The run's transfers are left out: the replaying scheduler sends by its own plan.
        """
        assert isinstance(instance, JitInstance)
        last_s = log.records[-1]["at_s"]
        return (event for event in events_of(instance) if event.at_s <= last_s)

    def plots(self) -> Mapping[str, Callable[..., Any]]:
        """Pictures by name."""
        return PLOTS


SIMULATOR = _NetworkSimulator()
