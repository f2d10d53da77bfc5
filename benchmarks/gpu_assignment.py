"""GPU assignment and plain networks: seconds and memory to a proven optimum, against other solvers and modellers.

Two scopes. *Placements*: from the instance object (its arrays rebuilt) to certified placements. *Flow*: from arrays of
arcs to the flow, which is all that the peers compute. Costs are compared exactly, in seconds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import Row, Tables

from .peers import Measurement, measure

Answer = dict[str, Any]
#: Title, function of this module, its options.
Flows = list[tuple[str, str, dict[str, str]]]

_HERE = "benchmarks.gpu_assignment"
_FLOW: Flows = [("flowlex network", "flow", {"engine": "network"}), ("OR-Tools SimpleMinCostFlow", "ortools", {})]
_FLOW_HIGHS: Flows = [("flowlex highs", "flow", {"engine": "highs"})]
_LP: Flows = [("PuLP's manual (lpSum, pulp.HiGHS)", "pulp_manual", {}), ("linopy, HiGHS", "linopy", {})]
_NETWORKX: Flows = [("networkx network_simplex", "networkx", {})]


def tables(*, quick: bool = False) -> Tables:
    if quick:
        tiny = {"generator": "gpu-scale", "gpus": 12, "tasks": 24, "jobs": 3, "racks": 2}
        return [("A few GPUs", _gpu(tiny, ("network",), _FLOW, dense=True))]
    large = {"generator": "gpu-scale", "gpus": 10_000, "gpus_per_node": 1, "racks": 100, "jobs": 200, "tasks": 20_000}
    engines = ("network", "highs", "pulp")
    return [
        ("The paper's testbed", _gpu({"generator": "gpu-testbed"}, engines, _FLOW + _LP + _NETWORKX, dense=True)),
        (
            "2000 GPUs, 100 jobs, 4000 tasks (targets for placements: network 0.15 s, highs 1 s, pulp 2 s, under 1 GB; "
            "20 times faster than OR-Tools on the paper's network)",
            _gpu({"generator": "gpu-scale"}, engines, _FLOW + _LP, dense=True),
        ),
        ("10 000 machines of one GPU, 200 jobs, 20 000 tasks", _gpu(large, engines, _FLOW, dense=False)),
        ("From arrays, beside a Quincy-like prototype on OR-Tools (FSU)", _beside_quincy(200, 2_000, 20_000)),
        (
            "10 000 machines, 20 000 tasks, plain network of 220 000 arcs (target: network no slower than OR-Tools)",
            _network({"generator": "network-assignment"}, _FLOW + _FLOW_HIGHS),
        ),
    ]


def _beside_quincy(*sizes: int) -> list[Row]:
    """Certified placements from arrays, and the same optimum by plain lines on OR-Tools; without fairness."""
    rows: list[Row] = []
    for gpus in sizes:
        case = {"generator": "gpu-scale", "gpus": gpus, "tasks": 2 * gpus, "jobs": max(gpus // 20, 5)}
        got = {name: _measure(name, case=case) for name in ("certified", "quincy")}
        for name, each in got.items():
            row: Row = {"GPUs": gpus, "method": name}
            if each.error:
                rows.append(row | {"error": each.error})
                continue
            seconds = {"seconds": round(each.seconds, 4), "processor seconds": round(each.cpu_seconds, 4)}
            times = each.seconds / got["quincy"].seconds if not got["quincy"].error else None
            ratio = {"times the prototype": None if times is None else round(times, 2)}
            rows.append(row | seconds | ratio | {"peak MB": round(each.peak_mb), "transfer s": each.result["cost"]})
    return rows


def _gpu(case: Answer, engines: tuple[str, ...], flows: Flows, *, dense: bool) -> list[Row]:
    found = [
        ("placements", f"flowlex {engine}", "compact", _measure("place", case=case, engine=engine))
        for engine in engines
    ]
    with tempfile.TemporaryDirectory() as folder:
        for network in ("compact", "paper") if dense else ("compact",):
            path = str(Path(folder) / f"{network}.npz")
            saved = _measure("save_gpu", case=case, network=network, path=path)
            if saved.error:
                found.append(("flow", "making the network", network, saved))
                continue
            chosen = flows if network == "compact" else [flow for flow in flows if flow[1] == "ortools"]
            found += [("flow", title, network, _measure(job, path=path, **o)) for title, job, o in chosen]
    return _rows(found)


def _network(case: Answer, flows: Flows) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "network.npz")
        _measure("save_network", case=case, path=path)
        return _rows([("flow", title, "plain", _measure(job, path=path, **o)) for title, job, o in flows])


def _measure(job: str, **arguments: Any) -> Measurement:
    return measure(f"{_HERE}:{job}", **arguments)


def _rows(found: list[tuple[str, str, str, Measurement]]) -> list[Row]:
    """One row per measurement; ratios are to our network engine in the same scope."""
    ours = {scope: got for scope, title, network, got in found if title == "flowlex network"}
    optimum = next((got.result["cost"] for got in ours.values() if not got.error), None)
    rows: list[Row] = []
    for scope, title, network, got in found:
        row: Row = {"scope": scope, "method": title, "network": network}
        if got.error:
            rows.append(row | {"error": got.error})
            continue
        reference = ours.get(scope)
        ratio = got.seconds / reference.seconds if reference is not None and not reference.error else None
        rows.append(
            row
            | {
                "arcs": got.result["arcs"],
                "seconds": round(got.seconds, 4),
                "processor seconds": round(got.cpu_seconds, 4),
                "times ours": None if ratio is None else round(ratio, 2),
                "peak MB": round(got.peak_mb),
                "cost": got.result["cost"],
                "same optimum": got.result["cost"] == optimum,
            }
        )
    return rows


def _instance(case: Answer) -> Any:
    from flowlex.instances.generators import generate
    from flowlex.instances.generators import gpu as _gpu  # noqa: F401  registers
    from flowlex.instances.generators import min_cost_flow as _network  # noqa: F401

    return generate(case["generator"], **{key: value for key, value in case.items() if key != "generator"})


def place(case: Answer, engine: Any) -> Callable[[], Answer]:
    """Run flowlex from the instance object to certified placements."""
    from flowlex.models.gpu.model import GpuAssignment

    instance = _instance(case)

    def run() -> Answer:
        instance.__dict__.pop("arrays", None)
        model = GpuAssignment(instance)
        solution = model.solve(engine)
        assert solution.certificate is not None and solution.certificate.claim == "optimal"
        return {"cost": solution.objective, "arcs": model.sizes()["arcs"]}

    return run


def certified(case: Answer) -> Callable[[], Answer]:
    """Run flowlex from arrays to certified placements, without fairness."""
    from flowlex.models.gpu.model import GpuAssignment

    instance = _instance(case)
    _ = instance.arrays

    def run() -> Answer:
        solution = GpuAssignment(instance, policy="FSU").solve()  # type: ignore[arg-type]
        assert solution.certificate is not None and solution.certificate.claim == "optimal"
        return {"cost": round(float(solution.objective), 3)}

    return run


def quincy(case: Answer) -> Callable[[], Answer]:
    """Run forty plain lines: a task goes to nodes and racks with its data, to the cluster, or waits at a high price."""
    from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

    instance = _instance(case)
    view = instance.arrays

    def run() -> Answer:
        tasks, nodes, racks = len(view.task_job), len(view.node_rack), len(view.rack_names)
        speeds = (instance.disk_mb_per_s, instance.rack_mb_per_s, instance.between_racks_mb_per_s)
        here, near, far = (np.rint(view.shard_size_mb * 1e6 / speed).astype(np.int64) for speed in speeds)
        remote = np.bincount(view.shard_task, far, tasks).astype(np.int64)
        held = np.unique(view.replica_shard * racks + view.node_rack[view.replica_node])
        shard, rack = held // racks, held % racks
        rack_key, at = np.unique(view.shard_task[shard] * racks + rack, return_inverse=True)
        in_rack = remote[rack_key // racks] + np.bincount(at, (near - far)[shard]).astype(np.int64)
        node_key, at = np.unique(view.shard_task[view.replica_shard] * nodes + view.replica_node, return_inverse=True)
        task, node = node_key // nodes, node_key % nodes
        on_node = np.bincount(at, (here - near)[view.replica_shard]).astype(np.int64)
        on_node += in_rack[np.searchsorted(rack_key, task * racks + view.node_rack[node])]
        gpus = np.bincount(view.gpu_node, minlength=nodes)
        every, first_rack, first_node = np.arange(tasks), tasks, tasks + racks
        cluster = first_node + nodes
        waits, sink = cluster + 1, cluster + 2
        one, high = np.ones(tasks, np.int64), int(remote.max()) * 2 + 1
        price = high * min(tasks, 1000)  # of waiting; OR-Tools refuses much higher ones
        arcs = [  # tail, head, capacity, cost
            (task, first_node + node, np.ones_like(task), on_node),
            (rack_key // racks, first_rack + rack_key % racks, np.ones_like(rack_key), in_rack),
            (every, np.full(tasks, cluster), one, remote),
            (every, np.full(tasks, waits), one, one * price),
            (np.full(racks, cluster), first_rack + np.arange(racks), np.full(racks, tasks), np.zeros(racks, np.int64)),
            (first_rack + view.node_rack, first_node + np.arange(nodes), gpus, np.zeros(nodes, np.int64)),
            (first_node + np.arange(nodes), np.full(nodes, sink), gpus, np.zeros(nodes, np.int64)),
            (np.array([waits]), np.array([sink]), np.array([tasks]), np.array([0])),
        ]
        tail, head, capacity, cost = (np.concatenate(part) for part in zip(*arcs, strict=True))
        solver = SimpleMinCostFlow()
        made = solver.add_arcs_with_capacity_and_unit_cost(tail.astype(np.int32), head.astype(np.int32), capacity, cost)
        supply = np.zeros(sink + 1, np.int64)
        supply[:tasks], supply[sink] = 1, -tasks
        solver.set_nodes_supplies(np.arange(sink + 1, dtype=np.int32), supply)
        assert solver.solve() == solver.OPTIMAL
        flow = solver.flows(made)
        return {"cost": round(float((flow * np.where(cost < price, cost, 0)).sum()) / 1e6, 3)}

    return run


def save_gpu(case: Answer, network: Any, path: str) -> Callable[[], Answer]:
    """Write the arrays of a GPU network: least transfer and waiting, without ties."""
    from flowlex.models.gpu.model import GpuAssignment

    model = GpuAssignment(_instance(case), network=network)
    return lambda: _save(model.formulation, path)


def save_network(case: Answer, path: str) -> Callable[[], Answer]:
    """Write the arrays of an instance's network; ``preset``: of flow scheduling."""
    from flowlex.instances.generators import flow as _flow  # noqa: F401  registers
    from flowlex.models.registry import model_for

    options = {"preset": case["preset"]} if "preset" in case else {}
    model = model_for(_instance({key: value for key, value in case.items() if key != "preset"}), **options)
    return lambda: _save(model.formulation, path)


def _save(net: Any, path: str) -> Answer:
    if not Path(path).exists():
        columns = {name: getattr(net, name) for name in ("tail", "head", "lower", "upper", "cost", "supply")}
        np.savez(path, **columns, unit=str(net.unit), constant=str(net.constant))
    return {"arcs": net.arc_count}


def _load(path: str) -> Answer:
    with np.load(path) as file:
        return dict(file)


def _answer(net: Answer, cost: float) -> Answer:
    """Return the cost in the unit of the problem, and the number of arcs."""
    stated = round(cost) * Fraction(str(net["unit"])) + Fraction(str(net["constant"]))
    return {"cost": int(stated) if stated.denominator == 1 else float(stated), "arcs": len(net["tail"])}


def _shifted(net: Answer) -> tuple[Any, Any, int]:
    """Shift lower bounds to zero, for peers without them: return capacities, supplies and constant cost."""
    supply = net["supply"].copy()
    np.subtract.at(supply, net["tail"], net["lower"])
    np.add.at(supply, net["head"], net["lower"])
    upper = np.minimum(net["upper"], np.abs(net["supply"]).sum() + net["lower"].sum() + 1)
    return upper - net["lower"], supply, int((net["cost"] * net["lower"]).sum())


def flow(path: str, engine: Any) -> Callable[[], Answer]:
    """Run flowlex from arrays to the flow and its potentials."""
    from flowlex.formulations import FlowNetwork, solve

    net = _load(path)
    columns = {name: net[name] for name in ("tail", "head", "lower", "upper", "cost", "supply")}

    def run() -> Answer:
        outcome = solve(FlowNetwork.from_arrays(**columns), engine)
        assert outcome.status == "optimal" and outcome.objective is not None
        return _answer(net, outcome.objective)

    return run


def ortools(path: str) -> Callable[[], Answer]:
    """Run OR-Tools from the same arrays to the flow."""
    from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

    net = _load(path)
    capacity, supply, constant = _shifted(net)
    tail, head = net["tail"].astype(np.int32), net["head"].astype(np.int32)

    def run() -> Answer:
        solver = SimpleMinCostFlow()
        arcs = solver.add_arcs_with_capacity_and_unit_cost(tail, head, capacity, net["cost"])
        solver.set_nodes_supplies(np.arange(len(supply), dtype=np.int32), supply)
        status = solver.solve()
        assert status == solver.OPTIMAL, status
        flows = solver.flows(arcs)
        assert solver.optimal_cost() == int((flows * net["cost"]).sum())
        return _answer(net, solver.optimal_cost() + constant)

    return run


def networkx(path: str) -> Callable[[], Answer]:
    """Run networkx from the same arrays to the flow."""
    import networkx as nx

    net = _load(path)

    def run() -> Answer:
        capacity, supply, constant = _shifted(net)
        graph = nx.MultiDiGraph()
        graph.add_nodes_from((node, {"demand": -units}) for node, units in enumerate(supply.tolist()))
        columns = (net["tail"], net["head"], capacity, net["cost"])
        for tail, head, room, cost in zip(*(c.tolist() for c in columns), strict=True):
            graph.add_edge(tail, head, capacity=room, weight=cost)
        return _answer(net, nx.network_simplex(graph)[0] + constant)

    return run


def pulp_manual(path: str) -> Callable[[], Answer]:
    """Solve the same program as in PuLP's manual: variable by variable, sums by lpSum, PuLP's HiGHS interface."""
    import pulp

    net = _load(path)

    def run() -> Answer:
        upper = _shifted(net)[0] + net["lower"]
        problem = pulp.LpProblem("flow", pulp.LpMinimize)
        bounds = zip(net["lower"].tolist(), upper.tolist(), strict=True)
        x = [problem.add_variable(f"x{arc}", low, high) for arc, (low, high) in enumerate(bounds)]
        problem += pulp.lpSum(cost * var for cost, var in zip(net["cost"].tolist(), x, strict=True))
        out: list[list[Any]] = [[] for _ in net["supply"]]
        into: list[list[Any]] = [[] for _ in net["supply"]]
        for var, tail, head in zip(x, net["tail"].tolist(), net["head"].tolist(), strict=True):
            out[tail].append(var)
            into[head].append(var)
        for node, units in enumerate(net["supply"].tolist()):
            problem += pulp.lpSum(out[node]) - pulp.lpSum(into[node]) == units
        problem.solve(pulp.HiGHS(msg=False))
        return _answer(net, pulp.value(problem.objective))

    return run


def linopy(path: str) -> Callable[[], Answer]:
    """Solve the same program in linopy: sums by group, passed directly to HiGHS."""
    import linopy as lp
    import pandas as pd
    import xarray as xr

    net = _load(path)

    def run() -> Answer:
        arcs = pd.RangeIndex(len(net["tail"]), name="arc")
        upper = _shifted(net)[0] + net["lower"]
        model = lp.Model()
        bounds = [xr.DataArray(bound.astype(float), coords=[arcs]) for bound in (net["lower"], upper)]
        x = model.add_variables(lower=bounds[0], upper=bounds[1], name="flow")
        tails, heads = (xr.DataArray(net[end], coords=[arcs], name="node") for end in ("tail", "head"))
        balance = lp.merge([(1 * x).groupby(tails).sum(), (-1 * x).groupby(heads).sum()], join="outer")
        nodes = balance.coords["node"].to_numpy()
        model.add_constraints(balance == xr.DataArray(net["supply"][nodes], coords=[("node", nodes)]), name="balance")
        model.add_objective((x * xr.DataArray(net["cost"], coords=[arcs])).sum())
        model.solve("highs", io_api="direct", output_flag=False)
        assert model.termination_condition == "optimal"
        return _answer(net, float(model.objective.value))

    return run
