"""Engines by shape of network: seconds from arrays of arcs to a proven flow, compared with OR-Tools."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import Row, Tables

from .peers import Measurement, measure

_FLOWS = "benchmarks.gpu_assignment"
#: Largest number of arcs for these engines: beyond it they take minutes or exhaust memory.
_MOST_ARCS = {"highs": 300_000, "pulp": 50_000}
_LARGE = {"generator": "gpu-scale", "gpus": 10_000, "gpus_per_node": 1, "racks": 100, "jobs": 200, "tasks": 20_000}
#: Shape, function that saves its arrays, its options.
_SHAPES: list[tuple[str, str, dict[str, Any]]] = [
    ("GPU assignment, compact, 10 000 machines", f"{_FLOWS}:save_gpu", {"case": _LARGE, "network": "compact"}),
    *(
        (
            f"flow scheduling, 10 000 machines, {preset}",
            f"{_FLOWS}:save_network",
            {"case": {"generator": "flow-scale", "seed": 20261128, "preset": preset}},
        )
        for preset in ("quincy", "borg", "load_spread", "random")
    ),
    ("plain assignment, 9 choices each", f"{_FLOWS}:save_network", {"case": {"generator": "network-assignment"}}),
    ("dense assignment 2000 x 2000, costs to 100 000", "benchmarks.networks:save_dense", {"size": 2000, "most": 10**5}),
    ("dense assignment 2000 x 2000, costs to 100", "benchmarks.networks:save_dense", {"size": 2000, "most": 100}),
    ("NETGEN-8, 2^12 nodes", f"{_FLOWS}:save_network", {"case": {"generator": "network-netgen"}}),
    (
        "NETGEN-8, 2^15 nodes",
        f"{_FLOWS}:save_network",
        {
            "case": {
                "generator": "network-netgen",
                **{"nodes": 2**15, "arcs": 2**18, "sources": 181, "sinks": 181, "supply": 181_000},
            }
        },
    ),
    ("NETGEN-SR, 2^12 nodes", f"{_FLOWS}:save_network", {"case": {"generator": "network-netgen", "arcs": 2**18}}),
]
_TINY: list[tuple[str, str, dict[str, Any]]] = [
    ("dense assignment 5 x 5", "benchmarks.networks:save_dense", {"size": 5, "most": 9})
]


def tables(*, quick: bool = False) -> Tables:
    rows = [_row(*shape) for shape in (_TINY if quick else _SHAPES)]
    what = "processor seconds, best run; the first run loads compiled loops; target: network at most 0.8 of OR-Tools"
    return [(f"Engine by shape of network ({what})", rows)]


def _row(shape: str, save: str, options: dict[str, Any]) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "network.npz")
        saved = measure(save, path=path, **options)
        if saved.error:
            return {"shape": shape, "error": saved.error}
        arcs = int(saved.result["arcs"])
        engines = [engine for engine in ("network", "highs", "pulp") if arcs <= _MOST_ARCS.get(engine, arcs)]
        found = {engine: measure(f"{_FLOWS}:flow", path=path, engine=engine, patience_s=120.0) for engine in engines}
        found["OR-Tools"] = measure(f"{_FLOWS}:ortools", path=path)
    answers = {got.result["cost"] for got in found.values() if not got.error}
    row: Row = {"shape": shape, "arcs": arcs}
    row |= {name: _seconds(found.get(name)) for name in ("network", "highs", "pulp", "OR-Tools")}
    ours, theirs = found["network"], found["OR-Tools"]
    ratio = None if ours.error or theirs.error else round(ours.cpu_seconds / theirs.cpu_seconds, 2)
    first = None if ours.error else round(ours.first_cpu_seconds, 4)
    return row | {"network / OR-Tools": ratio, "network, first run": first, "same optimum": len(answers) == 1}


def _seconds(got: Measurement | None) -> object:
    return None if got is None else got.error or round(got.cpu_seconds, 4)


def save_dense(size: int, most: int, path: str) -> Callable[[], dict[str, Any]]:
    """Write a complete assignment's arrays."""
    tail, head = np.divmod(np.arange(size * size), size)
    cost = np.random.default_rng(0).integers(1, most + 1, size * size)
    one = np.ones_like(cost)
    supply = np.repeat([1, -1], size)
    columns = {"tail": tail, "head": size + head, "lower": 0 * one, "upper": one, "cost": cost, "supply": supply}

    def run() -> dict[str, Any]:
        if not Path(path).exists():
            np.savez(path, **columns, unit="1", constant="0")
        return {"arcs": len(cost)}

    return run
