"""A small run of the compiled loops of network simulation, for ``flowlex warm-up``."""

from __future__ import annotations

from flowlex.systems.simulation.experiments.coflow_hour import drawn, drawn_coflows
from flowlex.systems.simulation.network import simulate_traffic
from flowlex.systems.simulation.network.just_in_time import JustInTime
from flowlex.systems.simulation.network.traffic_arrays import Traffic


def simulate_small_network() -> None:
    """Simulate five coflows under just-in-time bandwidth."""
    drawn(0, True)
    simulate_traffic(Traffic.of(drawn_coflows(0, 5)), JustInTime())
