"""Four textbook problems in flowlex, linopy and PuLP: lines, seconds and memory; and labelled models by size.

Every method states the same problem from the same pandas data and hands it to HiGHS in a process of its own, which
first solves a tiny one. A time is the median of the processor seconds of the runs, memory the peak of the process.
linopy and PuLP have no objectives in order: the shift problem has the first one only. A million variables are stated
in flowlex and linopy alone, as PuLP makes an object for each.
"""

from __future__ import annotations

import gc
import inspect
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import Row, Tables
from benchmarks.peers import measure

#: Runs of each method.
_RUNS = 5


# ---- data


def shift_data(workers: int, days: int) -> tuple[Any, ...]:
    shifts = pd.Index([f"d{day}.{part}" for day in range(days) for part in ("early", "late", "night")], name="shift")
    demand = pd.Series(np.tile([max(1, workers // 4), max(1, workers // 5), 1], days), index=shifts)
    wage = pd.Series(np.arange(workers) % 7 + 19, index=pd.Index([f"w{k}" for k in range(workers)], name="worker"))
    return demand, wage


def lot_data(items: int, weeks: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(1)
    week = pd.Index([f"w{k}" for k in range(weeks)], name="week")
    item = pd.Index([f"i{k}" for k in range(items)], name="item")
    demand = pd.DataFrame(rng.integers(0, 50, (items, weeks)), index=item, columns=week)
    columns = {"lot": (80, 130), "hold": (1, 4), "hours": (1, 3), "change": (2, 8), "first": (0, 20)}
    table = pd.DataFrame({name: rng.integers(*ends, items) for name, ends in columns.items()}, index=item)
    return demand, table, int(demand.to_numpy().sum() / weeks * 3) + 10 * items


def job_data(jobs: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(2)
    job = pd.Index([f"j{k}" for k in range(jobs)], name="job")
    columns = {"time": (1, 9), "due": (2, 4 * jobs), "weight": (1, 5)}
    table = pd.DataFrame({name: rng.integers(*ends, jobs) for name, ends in columns.items()}, index=job)
    first, second = np.triu_indices(jobs, 1)
    return table, pd.DataFrame({"first": job[first], "second": job[second]})


def bin_data(machines: int, hosts: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(3)
    machine = pd.Index([f"m{k}" for k in range(machines)], name="vm")
    load = pd.Series(rng.integers(1, 6, machines), index=machine)
    pairs = pd.DataFrame({"one": machine[:-3:2], "other": machine[3::2][: len(machine[:-3:2])]})
    return load, pairs, pd.Index([f"h{k}" for k in range(hosts)], name="host")


def cost_data(side: int) -> tuple[Any, ...]:
    task, gpu = (pd.Index([f"{word}{k:05}" for k in range(side)], name=word) for word in ("task", "gpu"))
    cost = np.random.default_rng(0).integers(1, 100, side * side)
    return task, gpu, pd.Series(cost, index=pd.MultiIndex.from_product([task, gpu]))


# ---- flowlex


def shifts_flowlex(demand, wage):  # type: ignore[no-untyped-def]
    import flowlex as fx

    p = fx.Problem("shifts")
    x = p.variables("x", worker=wage.index, shift=demand.index, binary=True)
    p.constrain("cover", x.sum(by="shift") >= demand)
    p.constrain("rest", x.rolling(shift=3).sum() <= 1)
    p.minimize("wages", (wage * x).sum())
    return p


def lots_flowlex(demand, items, hours):  # type: ignore[no-untyped-def]
    import flowlex as fx

    p = fx.Problem("lots")
    both = {"item": items.index, "week": demand.columns}
    make = p.variables("make", **both, upper=demand.sum(axis=1))
    stock = p.variables("stock", **both)
    setup = p.variables("setup", **both, binary=True)
    p.constrain("balance", stock.shift(week=1, start=items["first"]) + make == demand + stock)
    p.constrain("off", (make <= 0).when(1 - setup))
    p.constrain("machine", (items["hours"] * make + items["change"] * setup).sum(by="week") <= hours)
    p.minimize("cost", (items["lot"] * setup + items["hold"] * stock).sum())
    return p


def tardiness_flowlex(jobs, pairs):  # type: ignore[no-untyped-def]
    import flowlex as fx

    p = fx.Problem("tardiness")
    horizon = int(jobs["time"].sum())
    start = p.variables("start", job=jobs.index, upper=horizon - jobs["time"])
    late = p.variables("late", job=jobs.index, upper=horizon)
    before = p.variables("before", over=pairs, binary=True)
    end = start + jobs["time"]
    p.constrain("forth", (end.at(pairs, job="first") <= start.at(pairs, job="second")).when(before))
    p.constrain("back", (end.at(pairs, job="second") <= start.at(pairs, job="first")).when(1 - before))
    p.constrain("late", late >= end - jobs["due"])
    p.minimize("tardiness", (jobs["weight"] * late).sum())
    return p


def bins_flowlex(load, pairs, hosts):  # type: ignore[no-untyped-def]
    import flowlex as fx

    p = fx.Problem("bins")
    put = p.variables("put", vm=load.index, host=hosts, binary=True)
    used = p.variables("used", host=hosts, binary=True)
    p.constrain("once", put.sum(by="vm") == 1)
    p.constrain("size", (load * put).sum(by="host") <= 9 * used)
    p.constrain("apart", put.at(pairs, vm="one") + put.at(pairs, vm="other") <= used)
    p.minimize("hosts", used.sum())
    return p


def assignment_flowlex(task, gpu, cost):  # type: ignore[no-untyped-def]
    import flowlex as fx

    p = fx.Problem("assignment")
    x = p.variables("x", task=task, gpu=gpu, upper=1)
    p.constrain("task", x.sum(by="task") == 1)
    p.constrain("gpu", x.sum(by="gpu") <= 1)
    p.minimize("cost", (cost * x).sum())
    return p


# ---- linopy


def shifts_linopy(demand, wage):  # type: ignore[no-untyped-def]
    import linopy

    m = linopy.Model()
    x = m.add_variables(binary=True, coords=[wage.index, demand.index], name="x")
    m.add_constraints(x.sum("worker") >= demand, name="cover")
    m.add_constraints(x.rolling(shift=3).sum() <= 1, name="rest")
    m.add_objective((x * wage).sum())
    return m


def lots_linopy(demand, items, hours):  # type: ignore[no-untyped-def]
    import linopy

    m = linopy.Model()
    most, first = demand.sum(axis=1), demand * 0
    first[demand.columns[0]] = items["first"]
    both = [items.index, demand.columns]
    make = m.add_variables(lower=0, coords=both, name="make")
    stock = m.add_variables(lower=0, coords=both, name="stock")
    setup = m.add_variables(binary=True, coords=both, name="setup")
    m.add_constraints(stock.shift(week=1) + make - stock == demand - first, name="balance")
    m.add_constraints(make - setup * most <= 0, name="off")
    m.add_constraints((make * items["hours"] + setup * items["change"]).sum("item") <= hours, name="machine")
    m.add_objective((setup * items["lot"] + stock * items["hold"]).sum())
    return m


def tardiness_linopy(jobs, pairs):  # type: ignore[no-untyped-def]
    import linopy

    m = linopy.Model()
    horizon, pair = int(jobs["time"].sum()), pd.RangeIndex(len(pairs), name="pair")
    start = m.add_variables(0, horizon - jobs["time"], coords=[jobs.index], name="start")
    late = m.add_variables(0, horizon, coords=[jobs.index], name="late")
    before = m.add_variables(binary=True, coords=[pair], name="before")
    reads = [pairs[side].rename_axis("pair").to_xarray() for side in ("first", "second")]
    one, two = (start.sel(job=read).to_linexpr().drop_vars("job") for read in reads)
    first, second = (pd.Series(jobs["time"].loc[pairs[side]].to_numpy(), pair) for side in ("first", "second"))
    m.add_constraints(one - two + horizon * before <= horizon - first, name="forth")
    m.add_constraints(two - one - horizon * before <= -second, name="back")
    m.add_constraints(late - start >= jobs["time"] - jobs["due"], name="late_")
    m.add_objective((late * jobs["weight"]).sum())
    return m


def bins_linopy(load, pairs, hosts):  # type: ignore[no-untyped-def]
    import linopy

    m = linopy.Model()
    put = m.add_variables(binary=True, coords=[load.index, hosts], name="put")
    used = m.add_variables(binary=True, coords=[hosts], name="used")
    m.add_constraints(put.sum("host") == 1, name="once")
    m.add_constraints((put * load).sum("vm") - 9 * used <= 0, name="size")
    reads = [pairs[side].rename_axis("pair").to_xarray() for side in ("one", "other")]
    one, other = (put.sel(vm=read).to_linexpr().drop_vars("vm") for read in reads)
    m.add_constraints(one + other - used <= 0, name="apart")
    m.add_objective(used.sum())
    return m


def assignment_linopy(task, gpu, cost):  # type: ignore[no-untyped-def]
    import linopy

    m = linopy.Model()
    x = m.add_variables(lower=0, upper=1, coords=[task, gpu], name="x")
    m.add_constraints(x.sum("gpu") == 1, name="task")
    m.add_constraints(x.sum("task") <= 1, name="gpu")
    m.add_objective((x * cost.to_xarray()).sum())
    return m


# ---- PuLP


def shifts_pulp(demand, wage):  # type: ignore[no-untyped-def]
    import pulp

    m = pulp.LpProblem("shifts")
    x = m.add_variable_dicts("x", (wage.index, demand.index), cat="Binary")
    m += pulp.lpSum(wage[w] * x[w][s] for w in wage.index for s in demand.index)
    for s in demand.index:
        m += pulp.lpSum(x[w][s] for w in wage.index) >= int(demand[s]), f"cover_{s}"
    for w in wage.index:
        for k in range(2, len(demand)):
            m += pulp.lpSum(x[w][s] for s in demand.index[k - 2 : k + 1]) <= 1, f"rest_{w}_{k}"
    return m


def lots_pulp(demand, items, hours):  # type: ignore[no-untyped-def]
    import pulp

    m = pulp.LpProblem("lots")
    both = (items.index, demand.columns)
    make, stock = (m.add_variable_dicts(name, both, 0) for name in ("make", "stock"))
    setup = m.add_variable_dicts("setup", both, cat="Binary")
    pairs = [(i, w) for i in items.index for w in demand.columns]
    m += pulp.lpSum(items.loc[i, "lot"] * setup[i][w] + items.loc[i, "hold"] * stock[i][w] for i, w in pairs)
    for i in items.index:
        before, most = int(items.loc[i, "first"]), int(demand.loc[i].sum())
        for w in demand.columns:
            m += before + make[i][w] == int(demand.loc[i, w]) + stock[i][w], f"balance_{i}_{w}"
            m += make[i][w] <= most * setup[i][w], f"off_{i}_{w}"
            before = stock[i][w]
    for w in demand.columns:
        used = (items.loc[i, "hours"] * make[i][w] + items.loc[i, "change"] * setup[i][w] for i in items.index)
        m += pulp.lpSum(used) <= hours, f"machine_{w}"
    return m


def tardiness_pulp(jobs, pairs):  # type: ignore[no-untyped-def]
    import pulp

    m = pulp.LpProblem("tardiness")
    horizon, time = int(jobs["time"].sum()), jobs["time"].to_dict()
    start = {j: m.add_variable(f"start_{j}", 0, horizon - time[j]) for j in jobs.index}
    late = m.add_variable_dicts("late", jobs.index, 0, horizon)
    m += pulp.lpSum(jobs.loc[j, "weight"] * late[j] for j in jobs.index)
    for a, b in pairs.itertuples(index=False):
        before = m.add_variable(f"before_{a}_{b}", cat="Binary")
        m += start[a] + time[a] <= start[b] + horizon * (1 - before), f"forth_{a}_{b}"
        m += start[b] + time[b] <= start[a] + horizon * before, f"back_{a}_{b}"
    for j in jobs.index:
        m += late[j] >= start[j] + time[j] - int(jobs.loc[j, "due"]), f"late_{j}"
    return m


def bins_pulp(load, pairs, hosts):  # type: ignore[no-untyped-def]
    import pulp

    m = pulp.LpProblem("bins")
    put = m.add_variable_dicts("put", (load.index, hosts), cat="Binary")
    used = m.add_variable_dicts("used", hosts, cat="Binary")
    m += pulp.lpSum(used.values())
    for v in load.index:
        m += pulp.lpSum(put[v].values()) == 1, f"once_{v}"
    for h in hosts:
        m += pulp.lpSum(load[v] * put[v][h] for v in load.index) <= 9 * used[h], f"size_{h}"
        for a, b in pairs.itertuples(index=False):
            m += put[a][h] + put[b][h] <= used[h], f"apart_{a}_{b}_{h}"
    return m


def assignment_pulp(task, gpu, cost):  # type: ignore[no-untyped-def]
    import pulp

    m = pulp.LpProblem("assignment")
    x, price = m.add_variable_dicts("x", (task, gpu), 0, 1), cost.to_dict()
    m += pulp.lpSum(price[t, g] * x[t][g] for t in task for g in gpu)
    for t in task:
        m += pulp.lpSum(x[t].values()) == 1, f"task_{t}"
    for g in gpu:
        m += pulp.lpSum(x[t][g] for t in task) <= 1, f"gpu_{g}"
    return m


# ---- measuring

_DATA: dict[str, Callable[..., tuple[Any, ...]]] = {
    "shifts": shift_data,
    "lots": lot_data,
    "tardiness": job_data,
    "bins": bin_data,
    "assignment": cost_data,
}
#: Sizes that all solve, and sizes that are only stated.
_SMALL = {"shifts": (6, 7), "lots": (3, 6), "tardiness": (5,), "bins": (8, 5), "assignment": (5,)}
_STATED = {"shifts": (500, 28), "lots": (100, 100), "tardiness": (150,), "bins": (400, 60)}


def to_highs(language: str, model: Any) -> Any:
    """Hand a stated model to HiGHS; return its solver."""
    if language == "flowlex":
        from flowlex.formulations.engines.highs import pass_model, quiet

        solver = quiet()
        pass_model(solver, model.arrays(0))
        return solver
    if language == "linopy":
        from linopy.io import to_highspy

        return to_highspy(model, set_names=False)
    import pulp

    if language == "flowlex through PuLP":
        model = model.to_pulp()
    solver = pulp.HiGHS(msg=False)
    solver.createAndConfigureSolver(model)
    solver.buildSolverModel(model)
    return model.solverModel


def stated(language: str, problem: str, sizes: list[int], runs: int) -> Callable[[], dict[str, float]]:
    """The job of a process: state a problem and hand it to HiGHS, some times."""
    state = globals()[f"{problem}_{language.partition(' ')[0]}"]
    small = to_highs(language, state(*_DATA[problem](*_SMALL[problem])))
    small.setOptionValue("output_flag", False)
    small.run()
    best = float(small.getInfo().objective_function_value)
    data = _DATA[problem](*sizes)

    def work() -> dict[str, float]:
        taken = []
        for _ in range(runs):
            gc.collect()
            began = time.process_time()
            solver = to_highs(language, state(*data))
            taken.append(time.process_time() - began)
            columns = solver.getNumCol()
            del solver
        return {"columns": columns, "optimum": best, "seconds": statistics.median(taken)}

    return work


def lines_of(language: str, problem: str) -> int:
    """Lines of a statement, without its first, the import and the return."""
    source = inspect.getsource(globals()[f"{problem}_{language}"]).splitlines()
    return sum(bool(line.strip()) for line in source) - 3


def taken(language: str, problem: str, sizes: tuple[int, ...], runs: int) -> dict[str, float]:
    """Measure one method: columns, optimum of the small problem, median processor seconds, peak memory."""
    job = "benchmarks.languages:stated"
    measured = measure(job, most=1, patience_s=1200, language=language, problem=problem, sizes=sizes, runs=runs)
    if measured.error:
        raise RuntimeError(f"{problem} in {language}: {measured.error}")
    return {**measured.result, "peak": measured.peak_mb}


def tables(*, quick: bool = False) -> Tables:
    """Textbook problems, and labelled models by size."""
    runs = 1 if quick else _RUNS
    textbook: list[Row] = []
    for problem, large in _STATED.items():
        sizes = _SMALL[problem] if quick else large
        found = {language: taken(language, problem, sizes, runs) for language in ("flowlex", "linopy", "pulp")}
        ours = found["flowlex"]
        for language, each in found.items():
            textbook.append(
                {
                    "problem": problem,
                    "in": language,
                    "lines": lines_of(language, problem),
                    "columns": each["columns"],
                    "cpu s": round(each["seconds"], 3),
                    "times ours": round(each["seconds"] / ours["seconds"], 2),
                    "peak MB": round(each["peak"]),
                    "same optimum": abs(each["optimum"] - ours["optimum"]) <= 1e-6 * max(1.0, abs(ours["optimum"])),
                }
            )
    sized: list[Row] = []
    for side in (30,) if quick else (316, 1000):
        ways = ("linopy", "flowlex", "flowlex through PuLP", "pulp")[: 2 if side >= 1000 else 4]
        found = {language: taken(language, "assignment", (side,), runs) for language in ways}
        for language, each in found.items():
            sized.append(
                {
                    "columns": each["columns"],
                    "in": language,
                    "cpu s": round(each["seconds"], 3),
                    "times linopy": round(each["seconds"] / found["linopy"]["seconds"], 2),
                    "peak MB": round(each["peak"]),
                }
            )
    return [
        ("Textbook problems: lines of statement; stating and handing to HiGHS", textbook),
        ("An assignment with labels from pandas: stating and handing to HiGHS", sized),
    ]
