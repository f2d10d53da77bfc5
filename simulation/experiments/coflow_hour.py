"""The public hour of Facebook's coflows under all policies that suit coflows. Not of a paper: shown without verdicts.

The trace is no part of this project (coflow-benchmark's ``FB2010-1Hr-150-0.txt``, plain or gzip). Coflows drawn at
random stand beside it: widths and sizes over orders of magnitude, on few ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from flowlex.instances.importers.coflow import parse_coflow_trace, read_coflow_trace
from flowlex.instances.jit import JitInstance
from flowlex.simulation.experiments.base import PROVEN, Experiment, Rule, Statement, Table
from flowlex.simulation.network.in_step import InStep
from flowlex.simulation.network.just_in_time import JustInTime
from flowlex.simulation.network.policies import Aalo, Fair, Fifo, Sebf, Sincronia, TicTac
from flowlex.simulation.network.record import figures, to_log
from flowlex.simulation.network.simulator import simulate_traffic
from flowlex.simulation.network.state import NetworkPolicy
from flowlex.simulation.network.traffic import Traffic
from flowlex.simulation.registry import Run

__all__ = ["EXPERIMENTS", "drawn_coflows"]

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
    """Coflows drawn at random, read from a text in the trace's own format."""
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
    """Completion times by policy, and their means relative to fair sharing.

    TensorFlow without computations starts every transfer when it is there and shares links fairly: it *is* fair sharing
    (its policy gives the same instruction), and that run stands for it.
    """
    traffic, found = Traffic.of(instance), dict[str, float]()
    for name, policy in policies.items():
        log = to_log(simulate_traffic(traffic, policy(), Run(seed=seed), bin_s=1.0), {"policy": name})
        shown = figures(log)
        found |= {f"{figure}_{name}": shown[figure] for figure in SHOWN}
    found |= {f"{figure}_tensorflow": found[f"{figure}_fair"] for figure in SHOWN}
    for name in (*policies, "tensorflow"):
        found[f"speedup_{name}"] = found["mean_cct_s_fair"] / found[f"mean_cct_s_{name}"]
    return found


def drawn(seed: int, quick: bool, *, ports: int = 20) -> Mapping[str, float]:
    """Coflows drawn at random."""
    return under_all_policies(drawn_coflows(seed, 30 if quick else 100, ports), seed)


def hour(seed: int, quick: bool, *, trace: Path) -> Mapping[str, float]:
    """The trace (when quick, its first hundred coflows) at 1000 Mbit/s; a coflow has four times what it needs alone."""
    instance = read_coflow_trace(trace, first=100 if quick else None, slack=4.0)
    return under_all_policies(instance, seed, {**POLICIES, "jit-in-step": InStep})


def beginning(seed: int, quick: bool, *, trace: Path, coflows: int = 40) -> Mapping[str, float]:
    """The first coflows of the trace under every policy of the network simulator."""
    instance = read_coflow_trace(trace, first=10 if quick else coflows)
    return under_all_policies(instance, seed, {**POLICIES, "jit": partial(JustInTime, certify=PROVEN)})


_RATES = "ports of 125 MB/s, remaining bottleneck, rates anew at every end of a transfer, greedy backfill"
#: How a policy that was made for computations reads a coflow, a job of one computation that needs all its transfers.
_READS = {
    "tensorflow": "without computations it is fair sharing",
    "tictac": "a coflow's transfers are needed alike: coflows first come, first served; inside, one transfer after the "
    "other in the trace's order, each at all that its ports have left",
    "jit": "a coflow is due after twice what it needs alone; planned slot by slot, so not the whole hour",
    "jit-in-step": "a coflow is due after four times what it needs alone (at twice, no schedule keeps all windows) "
    "and at least the slots of 0.1 s that its sizes fill; its transfers in step, all coflows known beforehand; it uses "
    "the time it has, to leave the ports even",
}
_ALL = (*POLICIES, "tensorflow")


def _shown(*names: str) -> tuple[Statement, ...]:
    """A row for each policy, without a verdict."""
    says = "mean of fair sharing over mean of {}"
    return tuple(
        Statement(f"speedup_{name}", says.format(name), "none stated", "", None, _READS.get(name, _RATES))
        for name in names
    )


_STATEMENTS = (
    *_shown(*_ALL),
    Statement(
        "speedup_sebf",
        "SEBF beats fair sharing",
        "faster",
        "",
        Rule((1.0, float("inf"))),
        "Varys' own claim of direction",
    ),
)

_HEADINGS = ("mean (s)", "median (s)", "95th percentile (s)", "99th percentile (s)", "mean over time alone")


def _times(names: Iterable[str]) -> tuple[Table, ...]:
    columns = {f"{figure}_{{}}": heading for figure, heading in zip(SHOWN, _HEADINGS, strict=True)}
    return (Table("Completion times", {name: name for name in names}, columns),)


EXPERIMENTS = (
    Experiment(
        "coflows-drawn",
        "coflow_hour",
        "Coflows drawn at random under coflow schedulers",
        _STATEMENTS,
        drawn,
        {"ports": (20, 60)},
        takes_s=1,
        quick_seeds=2,
        tables=_times(_ALL),
    ),
    Experiment(
        "coflow-hour",
        "coflow_hour",
        "An hour of Facebook's coflows",
        (*_STATEMENTS, *_shown("jit-in-step")),
        hour,
        seeds=1,
        takes_s=410,
        quick_seeds=1,
        sweep_seeds=0,
        tables=_times((*_ALL, "jit-in-step")),
        needs=("trace",),
    ),
    Experiment(
        "coflow-beginning",
        "coflow_hour",
        "The first 40 of Facebook's coflows under every policy of the network simulator",
        _shown("tensorflow", "tictac", "jit"),
        beginning,
        seeds=1,
        takes_s=300,
        quick_seeds=1,
        sweep_seeds=0,
        tables=_times((*_ALL, "jit")),
        needs=("trace",),
    ),
)
