"""Pod placement and load partition: seconds to a proven balance, growth with size, and the papers' baselines.

If programs over pods and nodes are small enough, OR-Tools CP-SAT and plain HiGHS solve them with the same time limit.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import Row, Tables
from benchmarks.peers import measure
from flowlex.formulations.program_files import write_program
from flowlex.instances.generators import generate
from flowlex.instances.pods import PodInstance
from flowlex.models.load.baselines import compare as compare_partitions
from flowlex.models.load.model import LoadPartition
from flowlex.models.pods.baselines import compare
from flowlex.models.pods.model import PodPlacement

_NAMES = ("cp_sat", "highs")
#: Time limit of flowlex and of each peer, in seconds.
LIMIT = 20
#: Nodes and pods.
SIZES = ((10, 50), (30, 150), (100, 500), (200, 1000), (1000, 5000))


def tables(quick: bool = False) -> Tables:
    sizes = SIZES[:1] if quick else SIZES
    return [
        (
            "Kubeflow testbed to a proven optimum (target: under 1 s)",
            [_testbed(seed) for seed in range(1 if quick else 5)],
        ),
        (
            "Balance and time against the baselines, testbed of seed 0",
            _frame(compare(_instance("kubeflow-testbed"), time_limit_s=LIMIT)),
        ),
        ("Five seeds of 100 nodes and 500 pods, gap 1 % of the balance itself", _seeds(quick)),
        ("Growth of pod placement, gap 1 % of the balance itself, 60 s at most", _growth(sizes)),
        (f"Largest load: ours, CP-SAT and plain HiGHS, {LIMIT} s each", _against_peers(sizes[:3])),
        (
            "Hardly two pods alike, gap 1 % or 0.001 of a node, 60 s at most",
            _unlike(((20, 100),) if quick else sizes[2::2]),
        ),
        (
            "Evaluations of capacity, finish at the true speeds",
            _frame(compare_partitions(_instance("inference-cluster"))),
        ),
        (
            "Growth of load partition, network simplex, replicas",
            [_partition(n) for n in (4, 50, 200)[: 1 if quick else 3]],
        ),
    ]


def _instance(name: str, **parameters: Any) -> Any:
    return generate(name, **parameters)


def _testbed(seed: int) -> Row:
    started = time.perf_counter()
    solution = PodPlacement(_instance("kubeflow-testbed", seed=seed)).solve("highs")
    row: Row = {"seed": seed, "status": str(solution.status), "sigma": solution.objective}
    return {**row, "waiting": len(solution.queue), "seconds": time.perf_counter() - started}


def _growth(sizes: tuple[tuple[int, int], ...]) -> list[Row]:
    rows: list[Row] = []
    for nodes, pods in sizes:
        for balance in ("deviation", "max_load", "mean_absolute"):
            instance = _instance("pods-scale", nodes=nodes, pods=pods, seed=1)
            started = time.perf_counter()
            model = PodPlacement(instance, balance=balance)
            solution = model.solve("highs", gap=0.01, time_limit_s=60)
            rows.append(
                {
                    "nodes": nodes,
                    "pods": pods,
                    "balance": balance,
                    "columns": len(model.placeable.pairs[0]) + len(model.placeable.card_slots[0]),
                    "without aggregation": _columns_apart(instance),
                    "objective": solution.objective,
                    "bound": solution.bound,
                    "gap, share of the objective": solution.gap,
                    "gap, absolute": solution.absolute_gap,
                    "seconds": time.perf_counter() - started,
                }
            )
    return rows


def _seeds(quick: bool) -> list[Row]:
    rows: list[Row] = []
    for seed in range(1, 2 if quick else 6):
        instance = _instance("pods-scale", nodes=20 if quick else 100, pods=100 if quick else 500, seed=seed)
        for balance in ("deviation", "max_load", "mean_absolute"):
            started = time.perf_counter()
            solution = PodPlacement(instance, balance=balance).solve("highs", gap=0.01, time_limit_s=60)
            row: Row = {"seed": seed, "balance": balance, "objective": solution.objective, "bound": solution.bound}
            rows.append({**row, "gap": solution.gap, "seconds": time.perf_counter() - started})
    return rows


def unlike(instance: PodInstance, seed: int = 0) -> PodInstance:
    """Scale the sizes of every pod by random factors from 0.75 to 1.25, so that hardly two pods are identical."""
    rng = np.random.default_rng(seed)
    pods = []
    for pod, (a, b, c) in zip(instance.pods, rng.uniform(0.75, 1.25, (len(instance.pods), 3)).tolist(), strict=True):
        sizes = {"cpu_cores": round(pod.cpu_cores * a, 2), "memory_gb": round(pod.memory_gb * b, 2)}
        if pod.wants_gpu:
            sizes["gpu_memory_gb"] = round(pod.gpu_memory_gb * min(1.0, c), 2)
        pods.append(pod.model_copy(update=sizes))
    return instance.model_copy(update={"pods": tuple(pods)})


def _unlike(sizes: tuple[tuple[int, int], ...]) -> list[Row]:
    rows: list[Row] = []
    for nodes, pods in sizes:
        instance = unlike(_instance("pods-scale", nodes=nodes, pods=pods, seed=1))
        started = time.process_time()
        solution = PodPlacement(instance, absolute_gap=0.001).solve("highs", gap=0.01, time_limit_s=60)
        assert solution.certificate is not None
        row: Row = {"nodes": nodes, "pods": pods, "kinds of pods": len(set(instance.arrays.load.row.tolist()))}
        row |= {"deviation": solution.objective, "proven": solution.bound, "apart": solution.absolute_gap}
        rows.append(row | {"claim": solution.certificate.claim, "cpu s": round(time.process_time() - started, 1)})
    return rows


def _against_peers(sizes: tuple[tuple[int, int], ...]) -> list[Row]:
    """Minimise the largest load with all pods placed: flowlex and two solvers on the balancing program."""
    rows: list[Row] = []
    for nodes, pods in sizes:
        instance = _instance("pods-scale", nodes=nodes, pods=pods, seed=1)
        started = time.perf_counter()
        solution = PodPlacement(instance, balance="max_load").solve("highs", time_limit_s=LIMIT)
        assert solution.objective is not None and solution.bound is not None
        row: Row = {"nodes": nodes, "pods": pods, "method": "flowlex", "largest load": solution.objective}
        row |= {"bound": solution.bound, "seconds": time.perf_counter() - started}
        rows.append(row)
        model = PodPlacement(instance, balance="max_load", stage="balance")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "program.mps"
            write_program(model.formulation.named(), path)
            rows += [{"nodes": nodes, "pods": pods, "method": name} | _peer(model, path, name) for name in _NAMES]
    return rows


def _peer(model: PodPlacement, path: Path, name: str) -> Row:
    """Return the largest load of a peer's placement, recomputed by us, and the bound and seconds that it reports."""
    got = measure(f"benchmarks.pods_peers:{name}", most=1, path=str(path), seconds=LIMIT)
    if got.error:
        return {"largest load": f"failed: {got.error[:80]}"}
    values, bound = got.result
    load = None
    if values is not None:
        cluster = model.programs.placement(model.formulation, np.array(values))
        load = float(cluster.loads.max())
        placed = model.levels.total(cluster.node >= 0)
        assert placed == model.levels.total(model.levels.of >= 0), f"{name} leaves pods out"
    return {"largest load": load, "bound": bound, "seconds": got.seconds}


def _columns_apart(instance: Any) -> int:
    return PodPlacement(instance)._by_pod.columns


def _partition(workers: int) -> Row:
    instance = _instance("inference-cluster", workers=workers, items=100 * workers, seed=1)
    started = time.perf_counter()
    model = LoadPartition(instance, capacity="history", level="item", objective="makespan")
    solution = model.solve("network")
    sizes: Row = {"nodes": workers, "items": 100 * workers, "arcs": model.sizes()["arcs"]}
    return {**sizes, "moved cost s": solution.objective, "seconds": time.perf_counter() - started}


def _frame(frame: Any) -> list[Row]:
    return [dict(row) for row in frame.reset_index().to_dict("records")]
