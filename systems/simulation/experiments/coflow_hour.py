"""The public hour of Facebook's coflows under all coflow policies. It is from no paper and has no verdicts.

The trace is not part of this project (coflow-benchmark's ``FB2010-1Hr-150-0.txt``, plain or gzip). Random coflows, with
widths and sizes over orders of magnitude on few ports, are measured too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from flowlex.instances.jit import JitInstance
from flowlex.systems.simulation.experiments.statements_and_verdicts import PROVEN
from flowlex.systems.simulation.network.just_in_time import JustInTime
from flowlex.systems.simulation.network.policies import Aalo, Fair, Fifo, Sebf, Sincronia, TicTac
from flowlex.systems.simulation.network.policy_view import NetworkPolicy
from flowlex.systems.simulation.network.run_record import figures, to_log
from flowlex.systems.simulation.network.simulator import simulate_traffic
from flowlex.systems.simulation.network.traffic_arrays import Traffic
from flowlex.systems.simulation.policy_registry import Run
from flowlex.systems.traces.coflow import parse_coflow_trace, read_coflow_trace

POLICIES: dict[str, Callable[[], NetworkPolicy]] = {
    "fair": Fair,
    "fifo": Fifo,
    "sebf": Sebf,
    "d-clas": Aalo,
    "sincronia": Sincronia,
    "tictac": TicTac,
}
SHOWN = ("mean_cct_s", "median_cct_s", "p95_cct_s", "p99_cct_s", "mean_slowdown")


def drawn_coflows(seed: int, count: int = 60, ports: int = 20) -> JitInstance:
    """Draw random coflows, by way of a text in the trace's format."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1500.0, count)).astype(int)
    lines = [f"{ports} {count}"]
    for k in range(count):
        width = np.minimum(np.ceil(np.exp(rng.exponential(1.2, 2))), ports).astype(int)
        mappers, reducers = (rng.choice(ports, size=n, replace=False).tolist() for n in width)
        each = round(float(np.exp(rng.uniform(0.0, 6.5))), 1)
        lines.append(
            " ".join(
                [str(k), str(arrival[k]), str(len(mappers)), *map(str, mappers), str(len(reducers))]
                + [f"{port}:{each}" for port in reducers]
            )
        )
    return parse_coflow_trace("\n".join(lines), "drawn")


def under_all_policies(
    instance: JitInstance, seed: int, policies: Mapping[str, Callable[[], NetworkPolicy]] = POLICIES
) -> dict[str, float]:
    """Completion times by policy."""
    traffic, found = Traffic.of(instance), dict[str, float]()
    for name, policy in policies.items():
        log = to_log(simulate_traffic(traffic, policy(), Run(seed=seed), bin_s=1.0), {"policy": name})
        shown = figures(log)
        found |= {f"{figure}_{name}": shown[figure] for figure in SHOWN}
    return found | {name: shown[name] for name in ("port_mb_per_s", "empty_coflows")}


def drawn(seed: int, quick: bool, *, ports: int = 20) -> Mapping[str, float]:
    """Coflows drawn at random."""
    return under_all_policies(drawn_coflows(seed, 30 if quick else 100, ports), seed)


def hour(seed: int, quick: bool, *, trace: Path) -> Mapping[str, float]:
    """The trace (when quick, its first hundred coflows) at 1000 Mbit/s."""
    return under_all_policies(read_coflow_trace(trace, first=100 if quick else None), seed)


def beginning(seed: int, quick: bool, *, trace: Path, coflows: int = 40) -> Mapping[str, float]:
    """The first coflows of the trace under every policy of the network simulator."""
    instance = read_coflow_trace(trace, first=10 if quick else coflows)
    return under_all_policies(instance, seed, {**POLICIES, "jit": partial(JustInTime, certify=PROVEN)})
