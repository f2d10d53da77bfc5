"""A cluster in parts: what the cut costs, really and as proven, and a simulated cluster of a million machines.

What the cut costs: four cells of `flow-cell` are made one instance, which is solved whole and, cut by ``flowlex cut``
into more and more parts, part by part. Processor seconds of this process; ``longest`` is the part that others wait for.
What the cut costs is given for each task, in the unit of the costs: a MB read from another machine of the rack costs 1,
from another rack 2; a task reads 288 MB on average.

Many machines: the cells are files. ``flowlex solve`` solves them and ``flowlex join`` joins the answers, both on a Dask
cluster of two workers here. The whole instance is never in memory; the figures come from the answers and prices of the
cells. Wall seconds; memory is the largest sum of the resident memory of all processes of a command.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import Row, Tables
from flowlex import solve
from flowlex.instances.flow import FlowInstance
from flowlex.instances.flow_partition import cut
from flowlex.instances.generators import generate
from flowlex.validation.restated.flow.joined_parts import join

_PRESET = {"preset": "quincy"}
#: Share of replicas in other cells; how much the loads of cells differ around 0.9 tasks per slot.
_CELL = {"remote": 0.1, "load": 0.9, "imbalance": 0.1}


def tables(quick: bool = False) -> Tables:
    seed = time.localtime().tm_yday
    machines, parts = (200, (2, 4)) if quick else (10_000, (2, 4, 8, 32))
    sizes = [(4, 50)] if quick else [(10, 10_000), (100, 10_000)]
    costs = _what_the_cut_costs(machines, parts, seed)
    return [
        (f"What the cut costs: {machines} machines, quincy, seed {seed}; processor seconds", costs),
        (f"Cells on two Dask workers, quincy, seed {seed}; wall seconds", [_cells(n, m, seed) for n, m in sizes]),
    ]


def _what_the_cut_costs(machines: int, parts: Sequence[int], seed: int) -> list[Row]:
    made: list[Any] = [
        generate("flow-cell", seed=seed, cell=k, cells=4, machines=machines // 4, **_CELL) for k in range(4)
    ]
    own = {m.name: m for cell in made for m in cell.machines if m.slots}
    cluster = FlowInstance(
        name="cluster", machines=tuple(own.values()), jobs=tuple(job for cell in made for job in cell.jobs)
    )
    began = time.process_time()
    whole: Any = solve(cluster, **_PRESET)
    took = time.process_time() - began
    best, waiting, tasks = whole.score.cost, whole.score.waiting[0][1], sum(1 for _ in cluster.tasks)
    rows: list[Row] = [{"parts": "whole", "solve": round(took, 1), "waiting": waiting, "cost": best}]
    for count in parts:
        times, solved = list[float](), list[tuple[Any, Any]]()
        for part in cut(cluster, count):
            began = time.process_time()
            solved.append((part, solve(part, **_PRESET).to_dict()))
            times.append(time.process_time() - began)
        began = time.process_time()
        joined = join(solved)
        late, cost = joined.stages[-2:]
        rows.append(
            {
                "parts": count,
                "solve": round(sum(times), 1),
                "longest": round(max(times), 2),
                "join": round(time.process_time() - began, 1),
                "waiting": late.value,
                "waiting, at least": late.bound,
                "cost": cost.value,
                "cost, at least": cost.bound,
                "cut costs": round((cost.value - best) / tasks, 3) if late.value == waiting else "waits more",
                "proven: at most": "-" if cost.bound is None else round((cost.value - cost.bound) / tasks, 3),
            }
        )
    return rows


def _cells(cells: int, machines: int, seed: int) -> Row:
    with tempfile.TemporaryDirectory() as name:
        parts, out = Path(name) / "parts", Path(name) / "out"
        settings = [f"--set={key}={value}" for key, value in {**_CELL, "cells": cells, "machines": machines}.items()]

        def made(k: int) -> None:
            file = str(parts / f"cell-{k:04}.json.gz")
            _flowlex("generate", "flow-cell", f"--seed={seed}", f"--set=cell={k}", *settings, "-o", file)

        began = time.perf_counter()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(made, range(cells)))
        generated = time.perf_counter() - began
        size = sum(file.stat().st_size for file in parts.iterdir())
        cluster = "--scheduler=local:2"
        _, solved, solving = _flowlex("solve", str(parts), "--set=preset=quincy", cluster, "-o", str(out))
        told, joined, joining = _flowlex("join", str(out), str(parts), cluster, "--json")
    facts = json.loads(told)
    late, cost = (facts["stages"][name] for name in ("waiting_1", "cost"))
    return {
        "machines": facts["machines"],
        "parts": cells,
        "tasks": facts["tasks"],
        "files, MB": round(size / 1e6),
        "generate": round(generated),
        "solve": round(solved),
        "join": round(joined),
        "memory, GB: solve": round(solving / 1e9, 2),
        "join's": round(joining / 1e9, 2),
        "waiting": late["value"],
        "waiting, at least": late["at_least"],
        "cost": cost["value"],
        "cost, at least": cost["at_least"],
        "proven: at most": "-"
        if cost["at_least"] is None
        else round((cost["value"] - cost["at_least"]) / facts["tasks"], 3),
    }


def _flowlex(*arguments: str) -> tuple[str, float, float]:
    """Run a command; what it printed, its wall seconds, and the most memory of all its processes, in bytes."""
    psutil: Any = importlib.import_module("psutil")
    began, peak = time.perf_counter(), 0.0
    with subprocess.Popen(
        [sys.executable, "-m", "flowlex", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        done = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.5):
                peak = max(peak, _resident(psutil, process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        told, complaints = process.communicate()
        done.set()
        watcher.join()
    if process.returncode:
        raise AssertionError(f"{arguments[0]}: exit code {process.returncode}: {complaints[-500:]}")
    return told, time.perf_counter() - began, peak


def _resident(psutil: Any, pid: int) -> float:
    found = 0.0
    try:
        top = psutil.Process(pid)
        for process in (top, *top.children(recursive=True)):
            found += process.memory_info().rss
    except psutil.Error:  # it has just ended
        pass
    return found
