"""Allocation of GPU time compared with cvxpy; column generation and partition at sizes that cvxpy cannot solve.

The peer formulates max-min fairness as Gavel does: a variable per combination and GPU type, the minimum of a list with
one term per job, default solver of cvxpy. Its time is from arrays to answer, ours from the instance to the certified
answer (engine ``highs``), both in processor seconds; ratios above 1 mean that ours is faster. Gavel's mix has a few
dozen job types, so most jobs are identical and aggregated (``classes``); with individual weights no two are identical,
and with individual throughputs every job is its own type. The latter is compared with plain column generation.
"""

from __future__ import annotations

import importlib
from typing import Any, cast

import numpy as np

from benchmarks import Row, Tables
from benchmarks.allocation_plain import plain_max_min
from benchmarks.peers import median_seconds
from flowlex.formulations.program_arrays import Floats
from flowlex.instances import AllocationInstance
from flowlex.instances.generators import generate
from flowlex.models.allocation.allocation_linear_program import JobColumns, equal_throughput, run_columns
from flowlex.models.allocation.methods.job_aggregation import job_classes
from flowlex.models.allocation.methods.pair_pricing import PairPrices
from flowlex.models.allocation.model import Allocation


def tables(quick: bool = False) -> Tables:
    peers = [(24, False), (24, True)] if quick else [(100, False), (1000, False), (64, True), (128, True), (256, True)]
    exact = [(48, 64)] if quick else [(256, 32), (1024, 128), (4096, 512)]
    mixes = ("identical", "own weights")
    own = [48] if quick else [128, 256, 512, 1024]
    return [
        (
            "Max-min fairness beside cvxpy as Gavel writes it, processor seconds",
            [_beside(*size, mix) for size in peers for mix in mixes],
        ),
        (
            "Space sharing by priced pairs, and by parts, processor seconds",
            [row for mix in mixes for size in exact for row in _exact(*size, mix, quick)],
        ),
        (
            "Throughputs of each job's own beside plain column generation without a certificate, processor seconds",
            [_own(jobs) for jobs in own],
        ),
    ]


def workload(jobs: int, gpus: int, mix: str = "identical", *, sharing: bool) -> AllocationInstance:
    """Jobs of Gavel's mix, with weights of 1 or (so that no two are identical) spread evenly over 1 to 2."""
    made = cast(AllocationInstance, generate("gavel-like", jobs=jobs, gpus=gpus, sharing=sharing, seed=1))
    if mix == "identical":
        return made
    rank = np.random.default_rng(1).permutation(jobs).tolist()
    weighed = [job.model_copy(update={"weight": 1 + rank[k] / jobs}) for k, job in enumerate(made.jobs)]
    return made.model_copy(update={"jobs": tuple(weighed)})


def _beside(jobs: int, sharing: bool, mix: str) -> Row:
    instance = workload(jobs, max(8, jobs // 8), mix, sharing=sharing)
    columns = run_columns(instance.arrays)
    ours, solution = median_seconds(lambda: Allocation(instance).solve("highs"), 5)
    _gavel(workload(4, 8, sharing=sharing), run_columns(workload(4, 8, sharing=sharing).arrays))  # its imports
    theirs, level = median_seconds(lambda: _gavel(instance, columns), 3 if jobs <= 128 else 1)
    off = abs(level - solution.objective) / solution.objective
    if off > 1e-3:
        raise AssertionError(f"{jobs} jobs: cvxpy answers {level}, we {solution.objective}")
    return {
        "jobs": jobs,
        "sharing": sharing,
        "jobs are": mix,
        "classes": _classes(instance),
        "columns": columns.count,
        "ours": round(ours, 4),
        "cvxpy": round(theirs, 3),
        "ratio": round(theirs / ours, 1),
        "answers differ by": f"{off:.0e}",
    }


def _classes(instance: AllocationInstance) -> int:
    return len(job_classes(instance, "max_min", None, deadlines=False).first)


def _gavel(instance: AllocationInstance, columns: JobColumns) -> float:
    cp: Any = importlib.import_module("cvxpy")

    view, n = instance.arrays, len(instance.jobs)
    scaled = view.scale / equal_throughput(view) / view.weight
    x = cp.Variable(columns.count)
    terms, limits = [], [x >= 0]
    for m in range(n):
        one, other = columns.first == m, columns.second == m
        mine = np.flatnonzero(one | other)
        speed: Floats = np.where(one[mine], columns.speed[mine, 0], columns.speed[mine, 1])
        terms.append(cp.sum(cp.multiply(speed * scaled[m], x[mine])))
        limits.append(cp.sum(x[mine]) <= 1)
    for j, count in enumerate(view.count):
        on = np.flatnonzero(columns.gpu == j)
        limits.append(cp.sum(cp.multiply(view.scale[columns.first[on]], x[on])) <= count)
    program = cp.Problem(cp.Maximize(cp.minimum(*terms)), limits)
    program.solve()
    return float(program.value)


def _own(jobs: int) -> Row:
    made = cast(AllocationInstance, generate("gavel-like", jobs=jobs, gpus=jobs // 8, own=True, sharing=True, seed=1))
    view, pairs = made.arrays, np.array([table.beside for table in made.pair_tables])
    Allocation(workload(4, 8, sharing=True)).solve("highs")  # imports
    taken, (level, columns) = median_seconds(lambda: plain_max_min(view.speed, pairs, view.scale, view.count), 3)
    fresh = [AllocationInstance.model_validate(made.model_dump()) for _ in range(3)]  # without views or fingerprint
    ours, solution = median_seconds(lambda: Allocation(fresh.pop()).solve("highs"), 3)
    off = abs(level - solution.objective) / level
    if off > 1e-6:
        raise AssertionError(f"{jobs} jobs: plain column generation answers {level}, we {solution.objective}")
    return {
        "jobs": jobs,
        "pairs": len(view.pair_gpu),
        "columns made": solution.columns.count,
        "columns, plain": columns,
        "ours, certified": round(ours, 3),
        "plain": round(taken, 3),
        "ours / plain": round(ours / taken, 2),
        "objective": float(f"{solution.objective:.6g}"),
    }


def _solved(instance: AllocationInstance, **options: Any) -> tuple[float, Any]:
    return median_seconds(lambda: Allocation(instance, **options).solve("highs"), 1)


def _exact(jobs: int, gpus: int, mix: str, quick: bool) -> list[Row]:
    instance = workload(jobs, gpus, mix, sharing=True)
    rows: list[Row] = []
    for policy in ("max_min", "max_throughput") if mix == "identical" else ("max_min",):
        took, best = _solved(instance, policy=policy)
        pairs = PairPrices(instance).count
        about: Row = {"jobs": jobs, "jobs are": mix, "classes": _classes(instance), "pairs": pairs, "policy": policy}
        figures = {"seconds": round(took, 2), "objective": float(f"{best.objective:.6g}"), "proven gap": "0"}
        rows.append(about | {"parts": 1, "columns made": best.columns.count, **figures, "lost": "0"})
        for parts in (2,) if quick else (4, 16, 64):
            if gpus // parts < 8:
                continue
            took, part = _solved(instance, policy=policy, parts=parts)
            figures = {"seconds": round(took, 2), "objective": float(f"{part.objective:.6g}")}
            gap, lost = f"{part.gap:.3f}", f"{1 - part.objective / best.objective:.3f}"
            rows.append(
                about | {"parts": parts, "columns made": part.columns.count, **figures, "proven gap": gap, "lost": lost}
            )
    return rows
