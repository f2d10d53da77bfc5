"""The network simulator: the Facebook hour under coflow schedulers, compiled fair sharing against plain Python, growth.

The hour needs the public trace: ``FLOWLEX_COFLOW_TRACE`` names the file, else ``../shared/data/coflow`` is looked at.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from flowlex.instances.importers.coflow import read_coflow_trace
from flowlex.simulation.experiments.coflow_hour import POLICIES, drawn_coflows
from flowlex.simulation.network.policies import Fair
from flowlex.simulation.network.simulator import simulate_traffic
from flowlex.simulation.network.state import NetworkState, Rates
from flowlex.simulation.network.traffic import Traffic

__all__ = ["tables"]

Row = dict[str, object]
TRACE = "FLOWLEX_COFLOW_TRACE"
NEAR = "../shared/data/coflow/FB2010-1Hr-150-0.txt.gz"


class PlainFair:
    """Max-min rates by raising all together, in Python, for every transfer on its own."""

    def decide(self, state: NetworkState) -> Rates:
        """Freeze the transfers of the scarcest port, again and again."""
        traffic, transfers = state.traffic, state.transfers
        left = traffic.ports.copy()
        ports = np.stack([traffic.sender[transfers], traffic.receiver[transfers] + len(traffic.machines)])
        rate, waiting = np.zeros(len(transfers)), np.ones(len(transfers), np.bool_)
        while waiting.any():
            count = np.bincount(ports[:, waiting].reshape(-1), minlength=len(left))
            share = np.where(count > 0, left / np.maximum(count, 1), np.inf)
            stopped = waiting & (ports == share.argmin()).any(axis=0)
            rate[stopped] = share.min()
            for side in ports[:, stopped]:
                np.subtract.at(left, side, share.min())
            left, waiting = np.maximum(left, 0.0), waiting & ~stopped
        return Rates(transfers, rate)


def tables(quick: bool = False) -> list[tuple[str, list[Row]]]:
    """Title and rows of every table."""
    simulate_traffic(Traffic.of(drawn_coflows(0, 5)), Fair())  # compiled, or from the cache
    found = [
        ("Fair sharing: compiled by pairs against plain Python by transfers, same ends", _peers(quick)),
        ("Growth: drawn coflows under SEBF on 40 ports", _growth((30,) if quick else (100, 400, 1600))),
    ]
    path = Path(os.environ.get(TRACE, NEAR))
    if path.is_file():
        first = 60 if quick else None
        found.append(("The Facebook hour (targets: SEBF 60 s, fair 180 s), every event checked", _hour(path, first)))
    return found


def _timed(traffic: Traffic, policy: Any) -> tuple[Any, float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    run = simulate_traffic(traffic, policy, bin_s=1.0)
    return run, time.perf_counter() - wall, time.process_time() - cpu


def _peers(quick: bool) -> list[Row]:
    rows: list[Row] = []
    for count in (20,) if quick else (50, 100, 200):
        traffic = Traffic.of(drawn_coflows(1, count))
        fast, seconds, _ = _timed(traffic, Fair())
        slow, longer, _ = _timed(traffic, PlainFair())
        assert np.allclose(fast.end_s, slow.end_s, atol=1e-6)
        row: Row = {"coflows": count, "transfers": traffic.count, "compiled s": seconds, "plain s": longer}
        rows.append({**row, "ratio": longer / seconds})
    return rows


def _growth(counts: tuple[int, ...]) -> list[Row]:
    rows: list[Row] = []
    for count in counts:
        traffic = Traffic.of(drawn_coflows(2, count, ports=40))
        run, seconds, cpu = _timed(traffic, POLICIES["sebf"]())
        row: Row = {"coflows": count, "transfers": traffic.count, "events": run.events, "s": seconds, "cpu s": cpu}
        rows.append({**row, "us an event": 1e6 * cpu / run.events})
    return rows


def _hour(path: Path, first: int | None) -> list[Row]:
    traffic = Traffic.of(read_coflow_trace(path, first=first))
    sending = np.unique(traffic.coflow)
    rows: list[Row] = []
    for name, policy in POLICIES.items():
        run, seconds, cpu = _timed(traffic, policy())
        assert np.isclose(run.sent_mb.sum() / 2, traffic.size_mb.sum(), rtol=1e-9)
        last = np.zeros(len(traffic.coflow_names))
        np.maximum.at(last, traffic.coflow, run.end_s)
        times = (last - traffic.coflow_arrival_s)[sending]
        row: Row = {"policy": name, "transfers": traffic.count, "events": run.events, "s": seconds, "cpu s": cpu}
        row |= {"mean CCT s": float(times.mean()), "median": float(np.median(times))}
        rows.append({**row, "p95": float(np.percentile(times, 95)), "p99": float(np.percentile(times, 99))})
    return rows
