"""The live flow scheduler: milliseconds from events to changes, compared with solving from scratch.

A step of n events withdraws n/2 random tasks and submits n/2 new ones (one task each, with data on up to six machines).
Timed end to end, from events to changes, with and without the exact certificate. Peers get the arrays of the same
network and are timed from arrays to flows: OR-Tools (in its own process, the best of three), pylmcf, and our own
session started cold (paths, then pylmcf). Every peer's cost must equal ours. The 99th percentile
includes the step at which all initial tasks reach an age of one minute, which changes the cost of each. Clusters have
free slots, are nearly full, or are full with waiting tasks. Full garbage collections are postponed
(`collect_on_request`), as in `flowlex serve scheduler`. All times are processor times, also those of the peers, so that
other load on the machine has little effect.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks import Row, Tables
from benchmarks.peers import measure, median_seconds, memory_mb
from flowlex.formulations.engines import solve
from flowlex.formulations.program_arrays import Integers, exact_dot
from flowlex.instances.flow import FlowInstance
from flowlex.instances.generators.flow import flow_scale, heavy_tailed_job
from flowlex.models.flow.goals import Continuity, DataLocality, Placement
from flowlex.systems.scheduler.live import decision, scheduler
from flowlex.systems.scheduler.live.garbage_collection import collect_on_request
from flowlex.systems.scheduler.live.scheduler import FlowScheduler
from flowlex.systems.scheduler.warm_network.network_session import NetworkSession

#: Of the day, so that nothing is tuned to it.
SEED = int(f"{date.today():%Y%m%d}")
GOALS = (Placement(), DataLocality(), Continuity(base=10, rate=10))
_OPTIONS: dict[str, Any] = {"wait_cost": 20_000, "cost_limit": 100_000, "task_limit": 500_000}


def tables(*, quick: bool = False) -> Tables:
    use_processor_time()
    if quick:
        small = {"machines": 200, "tasks": 400}
        return [("200 machines, 400 tasks", _against_peers(small, {1: 5, 10: 5}))]
    full = {"machines": 10_000, "tasks": 20_000}
    steps = {1: 50, 10: 50, 100: 30, 1000: 5}
    return [
        ("10 000 machines of 3 slots, 20 000 tasks", _against_peers(full, steps)),
        (
            "The same, nearly full: 28 500 tasks on 30 000 slots",
            _against_peers({"machines": 10_000, "tasks": 28_500}, steps),
        ),
        (
            "Overfull: 10 000 machines of 1 slot, 10 400 tasks",
            _against_peers({"machines": 10_000, "tasks": 10_400, "slots": 1}, steps),
        ),
        (
            "Steps of 100 events, growing clusters",
            _growth([(5_000, 10_000), (10_000, 10_000), (10_000, 20_000), (20_000, 40_000)]),
        ),
        ("100 000 machines, 2 and 10 tasks each", _growth([(100_000, 200_000), (100_000, 1_000_000)])),
    ]


def use_processor_time() -> None:
    """Time steps by processor time instead of wall time."""
    for module in (decision, scheduler):
        vars(module)["time"] = SimpleNamespace(perf_counter=time.process_time)


@dataclass
class Life:
    """A scheduler with arriving and departing tasks."""

    instance: FlowInstance
    scheduler: FlowScheduler
    rng: np.random.Generator
    names: list[str] = field(default_factory=list)
    count: int = 0

    @classmethod
    def of(cls, instance: FlowInstance, **options: Any) -> Life:
        goals = options.pop("goals", GOALS)
        scheduler = FlowScheduler(instance, goals, **(_OPTIONS | options))
        return cls(instance, scheduler, np.random.default_rng(1), [task.name for task in instance.tasks])

    def step(self, events: int) -> dict[str, float]:
        """Return the seconds of a step; submitting the jobs counts, generating them does not."""
        gone = [self.names.pop(int(self.rng.integers(len(self.names)))) for _ in range(events // 2)]
        jobs = []
        for _ in range(events - events // 2):
            self.count += 1
            jobs.append(heavy_tailed_job(self.rng, f"new{self.count}", self.instance.machines, most=1))
            self.names.append(jobs[-1].tasks[0].name)
        for task in gone:
            self.scheduler.cancel(task=task)
        for job in jobs:
            self.scheduler.submit(job)
        return self.scheduler.step(self.scheduler.state.now_s + 1.0).seconds


def _milliseconds(seconds: list[float]) -> tuple[float, float]:
    ms = 1e3 * np.array(seconds)
    return round(float(np.median(ms)), 2), round(float(np.percentile(ms, 99)), 2)


def ortools(session: NetworkSession, *, lowered: bool = False) -> tuple[float, int]:
    """Return the least seconds of OR-Tools from scratch, and the cost.

    ``lowered``: if the largest cost exceeds the cost of any flow over all other arcs, it is lowered to the least such
    value, which keeps the optima and gives smaller numbers.
    """
    network = session.network()
    total = int(network.supply[network.supply > 0].sum())
    capacity = np.minimum(network.upper, total)
    cost = _lowered(network.cost, capacity) if lowered else network.cost
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "network.npz")
        arrays = {"tail": network.tail, "head": network.head, "cost": cost, "supply": network.supply}
        np.savez(path, lower=0 * cost, upper=capacity, unit="1", constant="0", **arrays)
        found = measure("benchmarks.gpu_assignment:ortools", most=3, path=path)
    if found.error:
        raise RuntimeError(f"OR-Tools: {found.error}")
    more = exact_dot(network.cost - cost, session.flow)  # zero unless the cost was lowered
    return found.cpu_seconds, int(found.result["cost"]) + more


def _lowered(cost: Integers, capacity: Integers) -> Integers:
    """Lower the largest cost to the least value that exceeds every flow over the other arcs, if it is above that."""
    dearest = cost == cost.max()
    enough = exact_dot(np.abs(cost[~dearest]), capacity[~dearest]) + 1
    return np.where(dearest, min(enough, int(cost.max())), cost)


def _against_peers(sizes: dict[str, int], steps: dict[int, int]) -> list[Row]:
    life = Life.of(flow_scale(seed=SEED, **sizes))
    life.scheduler.step()
    collect_on_request()
    life.step(10)
    rows: list[Row] = []
    for events, repeats in steps.items():
        seconds = [life.step(events) for _ in range(repeats)]
        session = life.scheduler.state.session
        assert isinstance(session, NetworkSession)
        network = session.network()
        session.solve()
        ours = session.objective
        peer, cost = ortools(session)
        cold, _ = median_seconds(lambda session=session: session.solve(cold=True), 3)
        pylmcf, outcome = median_seconds(lambda network=network: solve(network, "network"), 3)
        assert ours == session.objective == cost == outcome.objective, "the optima differ"
        life.scheduler.step()
        proven = _milliseconds([s["total"] for s in seconds])
        plain = _milliseconds([s["total"] - s["check"] for s in seconds])
        parts = {name: _milliseconds([s[name] for s in seconds])[0] for name in ("events", "solve", "read", "check")}
        scratch = min(cold, pylmcf)
        rows.append(
            {
                "events": events,
                "steps": repeats,
                "step ms": plain[0],
                "p99": plain[1],
                "with certificate": proven[0],
                "its p99": proven[1],
                **{f"{name} ms": value for name, value in parts.items()},
                "OR-Tools ms": round(1e3 * peer, 1),
                "pylmcf cold ms": round(1e3 * pylmcf, 1),
                "own cold ms": round(1e3 * cold, 1),
                "x OR-Tools": round(1e3 * peer / plain[0], 1),
                "x own scratch": round(1e3 * scratch / plain[0], 1),
                "arcs": session.arc_count,
            }
        )
    return rows


def _growth(sizes: list[tuple[int, int]]) -> list[Row]:
    return [_growing(machines, tasks) for machines, tasks in sizes]


def _growing(machines: int, tasks: int) -> Row:
    """Measure one size in a separate process, so that memory is attributed correctly."""
    code = f"from benchmarks.flow_scheduling import _grown; _grown({machines}, {tasks})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-500:])
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def _grown(machines: int, tasks: int) -> None:
    instance = flow_scale(seed=SEED, machines=machines, tasks=tasks, slots=max(3, tasks * 3 // (2 * machines)))
    use_processor_time()
    held, started = memory_mb("VmRSS"), time.process_time()
    life = Life.of(instance, task_limit=2 * tasks)
    built = time.process_time() - started
    first = life.scheduler.step().seconds
    collect_on_request()
    life.step(100)
    seconds = [life.step(100) for _ in range(30)]
    step, p99 = _milliseconds([s["total"] - s["check"] for s in seconds])
    row = {
        "machines": machines,
        "tasks": tasks,
        "arcs": life.scheduler.state.session.arc_count,
        "build s": round(built, 2),
        "first solve s": round(first["solve"], 2),
        "first step s": round(first["total"] - first["check"], 2),
        "step ms": step,
        "p99": p99,
        "certificate ms": _milliseconds([s["check"] for s in seconds])[0],
        "its p99": _milliseconds([s["check"] for s in seconds])[1],
        "instance MB": round(held),
        "peak MB": round(memory_mb()),
    }
    print(json.dumps(row))
