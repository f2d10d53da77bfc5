"""Just-in-time bandwidth: seconds and memory to a proven integer schedule, compared with other methods.

Every measurement runs in a separate process, so that peak memory and imports are separate and peers cannot
disturb each other. Times are from the instance object to the certificate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import Row, Tables, peers

#: 70 VGG16 jobs on 100 machines at 1 Gbit/s.
BASE: dict[str, Any] = {"seed": 1, "jobs": 70, "mix": "VGG16", "gflops": 32.0, "machines": 100, "copies": 20}
#: Options of the paper's problem; the defaults are critical paths and elastic windows.
PAPER: dict[str, Any] = {"lat": "paper", "windows": "strict"}
#: Binding ports: all transfers, computations so fast that the network is the bottleneck.
BUSY: dict[str, Any] = {"share": 1.0, "gflops": 200.0, "load": "port"}
#: Options of the model; all others are parameters of the generator.
OPTIONS = ("share", "share_of", "load", "horizon", "lat", "windows")
#: Expected path of the public trace, next to the repository.
TRACE = Path(__file__).parents[2] / "shared" / "data" / "coflow" / "FB2010-1Hr-150-0.txt.gz"
#: Time limit of a peer, in seconds; flowlex stops a little earlier with the levels proven so far.
PATIENCE = 60


def tables() -> Tables:
    return [
        *_sizes(),
        *_growth(),
        *_facebook(),
        ("The same optimum by other means, 5 jobs on 30 machines", _peers({"jobs": 5, "machines": 30})),
        ("The same optimum by other means, 70 jobs", _peers({})),
    ]


def _sizes() -> Tables:
    """Tables of the paper's sizes, of binding ports and of overload."""
    return [
        (
            "Just-in-time bandwidth: VGG16 jobs, 100 machines, 0.1 s slots, C = 10, share 0.4, the paper's rule and "
            "strict windows (target: under 1 s at 70 jobs, under 1 GB)",
            [measure("flowlex", jobs=jobs, **PAPER) for jobs in (10, 30, 50, 70)],
        ),
        (
            "The same with today's defaults: critical paths, elastic windows",
            [measure("flowlex", jobs=jobs) for jobs in (10, 30, 50, 70)]
            + [measure("flowlex", share_of="bytes"), measure("flowlex", share=1.0), measure("pulp")],
        ),
        (
            "Where ports bind: share 1.0, 200 GFLOP/s, port loads (target at 70 jobs: every level under 10 s)",
            [measure("flowlex", jobs=jobs, **BUSY, **PAPER) for jobs in (5, 10, 20, 40, 70)]
            + [measure("flowlex", jobs=jobs, **BUSY) for jobs in (10, 20)]
            + [measure("flowlex", **BUSY | {"seed": seed}) for seed in range(1, 6)]
            + [measure("pulp", **BUSY)],
        ),
        (
            "Overloaded, elastic: share 1.0, 500 GFLOP/s (target at 70 jobs: under 3 s)",
            [
                measure("flowlex", share=1.0, gflops=500.0, lat="paper", windows="elastic"),
                measure("flowlex", share=1.0, gflops=500.0),
            ],
        ),
    ]


def _growth() -> Tables:
    """Tables of jobs that arrive over time and of larger instances."""
    return [
        (
            "Over time: a VGG16 job every 0.2 s, planned at its first transfer, every step certified",
            [
                measure("live", jobs=40, arrivals_per_s=5.0, copies=0, **change)
                for change in ({}, {"share": 1.0, "gflops": 100.0}, {"share": 1.0, "gflops": 500.0})
            ],
        ),
        (
            "Growth with machines, slots and share (the paper's rule, strict windows)",
            [
                measure("flowlex", **PAPER, **change)
                for change in (
                    {"machines": 50},
                    {"machines": 200},
                    {"slot_s": 0.05},
                    {"slot_s": 0.02},
                    {"share": 0.8},
                    {"share": 1.0},
                    {"share": 1.0, "gflops": 150.0},
                    {"placement": "worker"},
                    {"mix": "all"},
                )
            ],
        ),
    ]


def _facebook() -> Tables:
    if not TRACE.exists():
        return []
    return [
        (
            "The Facebook hour (target: first 20 coflows every level)",
            [measure("flowlex", coflows={"first": 20, "slack": 2.0}, share=1.0, windows="strict")],
        )
    ]


def _peers(size: dict[str, Any]) -> list[Row]:
    size = size | PAPER
    ours = measure("flowlex", **size)
    rows = [ours]
    for method in ("levels_intervals", "levels_slots", "linopy_largest", "pulp_p4"):
        rows.append(measure(method, **size))
    for row in rows:
        seconds = row["seconds"]
        if isinstance(seconds, float) and isinstance(ours["seconds"], float):
            row["times ours"] = round(seconds / ours["seconds"], 1)
    return rows


def measure(method: str, **changes: Any) -> Row:
    """Run one method in a separate process; return a row with its result or its error."""
    options = {key: changes[key] for key in OPTIONS if key in changes}
    made = BASE | {key: value for key, value in changes.items() if key not in options}
    row: Row = {"method": method, **{k: v for k, v in changes.items() if k != "copies"}}
    got = peers.measure(f"{__name__}:prepared", patience_s=PATIENCE, most=1, method=method, made=made, options=options)
    if got.error:
        return row | {"seconds": "-", "answer": got.error}
    used = {"seconds": round(got.seconds, 3), "processor seconds": round(got.cpu_seconds, 3)}
    return row | used | {"peak MB": round(got.peak_mb)} | got.result


def prepared(method: str, made: Any, options: Any) -> Callable[[], Row]:
    """Prepare a method with its instance; the smallest instance is solved first to warm up imports."""
    from flowlex.instances.generators import generate
    from flowlex.models.jit.model import JitBandwidth
    from flowlex.systems.traces.coflow import read_coflow_trace

    coflows = made.pop("coflows", None)
    instance = generate("jit-cluster", **made) if coflows is None else read_coflow_trace(TRACE, **coflows)
    methods: dict[str, Callable[..., Row]] = {
        "flowlex": _flowlex,
        "pulp": partial(_flowlex, engine="pulp"),
        "live": _live,
        "levels_intervals": partial(_levels, horizon="intervals"),
        "levels_slots": partial(_levels, horizon="slots"),
        "linopy_largest": _linopy,
        "pulp_p4": _pulp_p4,
    }
    JitBandwidth(generate("jit-figure4"), share=1.0).solve("highs")  # type: ignore[arg-type]
    return lambda: methods[method](instance, **options)


def _flowlex(instance: Any, engine: Any = "highs", **options: Any) -> Row:
    from flowlex.models.jit.model import JitBandwidth

    solution = JitBandwidth(instance, **options).solve(engine, time_limit_s=PATIENCE - 8)
    assert solution.certificate is not None and solution.certificate.ok, solution.message
    size = instance.arrays.size_mb
    levels = ", ".join(f"{count} at {s}" for s, count in list(solution.levels.items())[:4])
    return {
        "blocks": len(solution.blocks.item),
        "MB in plan": f"{size[solution.grid.transfer].sum():.0f} of {size.sum():.0f}",
        "levels proven": f"{solution.lowest} and above" if solution.lowest > 1 else "all",
        "answer": levels,
        "proof": str(solution.certificate).splitlines()[0],
        "route": ", ".join(solution.route),
    }


def _live(instance: Any, **options: Any) -> Row:
    """Steps of a live scheduler, in milliseconds of processor time: submission to certified plan."""
    import time

    import numpy as np

    from flowlex.systems.scheduler.transfers.scheduler import JitScheduler

    live = JitScheduler(instance.machines, slot_s=instance.slot_s, unit_mb=instance.unit_mb, **options)
    used: list[float] = []
    for job in [*sorted(instance.jobs, key=lambda job: job.arrival_s), None]:
        while (due := live.next_step_s) is not None and (job is None or due < job.arrival_s):
            started = time.process_time()
            certificate = live.step(due).certificate
            used.append(1000 * (time.process_time() - started))
            assert certificate is None or certificate.claim == "optimal"
        if job is not None:
            live.submit(job, job.arrival_s)
    p50, p99 = np.percentile(used, [50, 99]).tolist()
    return {"steps": len(used), "median ms": round(p50), "p99 ms": round(p99), "worst ms": round(max(used))}


def _problem(instance: Any, horizon: str, **options: Any) -> Any:
    import numpy as np

    from flowlex.models.jit.slot_programs import Cells, lexicographic_program
    from flowlex.models.jit.transfer_slot_grid import make_grid

    grid = make_grid(instance, options.get("share", 0.4), options["windows"], options["lat"])
    cells = Cells(grid, np.arange(grid.count), grid.stop, horizon)  # type: ignore[arg-type]
    return lexicographic_program(cells, options.get("load", "pair"), name="peer")


def _levels(instance: Any, horizon: str, **options: Any) -> Row:
    """Solve the programs of the levels without exploiting structure."""
    from flowlex.formulations.lexicographic.decreasing_minimisation import minimize_levels

    problem = _problem(instance, horizon, **options)
    found = minimize_levels(problem, integrality="lp")
    levels = {stage.level: round(stage.value, 3) for stage in found.stages}
    return {"columns": problem.base.column_count, "answer": ", ".join(f"{c:g} at {s}" for s, c in levels.items())}


def _linopy(instance: Any, **options: Any) -> Row:
    """Solve only the first program (least largest load), through linopy and HiGHS."""
    import linopy
    import numpy as np
    import pandas as pd
    import xarray as xr

    problem = _problem(instance, "slots", **options)
    arrays = problem.base.arrays()
    model = linopy.Model()
    columns = pd.RangeIndex(len(arrays.cost), name="column")
    upper = xr.DataArray(arrays.column_upper, coords=[columns])
    x = model.add_variables(lower=0, upper=upper, coords=[columns], name="rate")
    largest = model.add_variables(lower=0, name="largest")
    for name, block in problem.base.constraint_blocks.items():
        group = xr.DataArray(block.expression.row, dims=["column"], name="row")
        left = x.isel(column=block.expression.column).groupby(group).sum()
        model.add_constraints(left, block.relation.replace("==", "="), xr.DataArray(block.rhs, dims=["row"]), name=name)
    group = xr.DataArray(problem.loads.row, dims=["column"], name="row")
    load = x.isel(column=problem.loads.column).groupby(group).sum()
    model.add_constraints(load - largest <= 0, name="largest_link")
    model.add_objective(1 * largest)
    model.solve("highs", io_api="direct", output_flag=False)
    return {
        "columns": len(arrays.cost) + 1,
        "answer": f"largest load {np.ceil(float(largest.solution) - 1e-6):g} (only)",
    }


def _pulp_p4(instance: Any, **options: Any) -> Row:
    """Solve P4 as printed, variable by variable in PuLP, with the paper's weights despite their loss of precision."""
    import numpy as np
    import pulp

    problem = _problem(instance, "slots", **options)
    arrays = problem.base.arrays()
    model = pulp.LpProblem("P4", pulp.LpMinimize)
    x = [model.add_variable(f"x{k}", 0, float(u)) for k, u in enumerate(arrays.column_upper)]
    rows = arrays.matrix.tocsr()
    for r in range(rows.shape[0]):
        run = slice(rows.indptr[r], rows.indptr[r + 1])
        total = pulp.lpSum(x[c] for c in rows.indices[run])
        if np.isfinite(arrays.row_lower[r]):
            model += total == float(arrays.row_lower[r])
        else:
            model += total <= float(arrays.row_upper[r])
    members: list[list[int]] = [[] for _ in range(problem.loads.count)]
    for row, column in zip(problem.loads.row.tolist(), problem.loads.column.tolist(), strict=True):
        members[row].append(column)
    size, cost = float(len(members)), []
    for u, columns in enumerate(members):
        weights = [model.add_variable(f"l{u}_{s}", 0) for s in range(problem.levels + 1)]
        model += pulp.lpSum(weights) == 1
        model += pulp.lpSum(s * w for s, w in enumerate(weights)) == pulp.lpSum(x[c] for c in columns)
        cost += [size**s * w for s, w in enumerate(weights)]
    model.setObjective(pulp.lpSum(cost))
    model.solve(pulp.HiGHS(msg=False))
    values = np.array([variable.value() for variable in x])
    loads = np.array([values[columns].sum() for columns in members])
    levels = {s: float(np.clip(loads - (s - 1), 0, 1).sum()) for s in range(1, problem.levels + 1)}
    text = ", ".join(f"{count:g} at {s}" for s, count in sorted(levels.items(), reverse=True) if count > 1e-6)
    return {"columns": len(model.variables()), "answer": text}
