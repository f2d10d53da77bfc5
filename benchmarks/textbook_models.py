"""Textbook integer programs by name: small by default, larger by their arguments, random data by seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flowlex.formulations.linear_program import LinearProgram


def _grid(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    return np.divmod(np.arange(rows * columns), columns)


def fixed_charge(plants: int = 5, sites: int = 12, seed: int = 0) -> LinearProgram:
    """Ship whole units from plants to sites that must be opened first."""
    generator = np.random.default_rng(seed)
    i, j = _grid(plants, sites)
    lp = LinearProgram("fixed_charge")
    flow = lp.variables("flow", plants * sites, upper=10, integer=True)
    open_ = lp.variables("open", sites, upper=1, integer=True)
    lp.constrain("supply", flow.sum_by(i, plants), "<=", generator.integers(8, 15, plants))
    lp.constrain("link", flow.sum_by(j, sites) - open_ * 10, "<=", 0)
    lp.constrain("total", flow.sum(), "==", 4 * plants)
    cost = generator.integers(1, 20, plants * sites), generator.integers(10, 40, sites)
    lp.minimize((flow * cost[0]).sum() + (open_ * cost[1]).sum())
    return lp


def facility_location(customers: int = 5, sites: int = 12, seed: int = 0) -> LinearProgram:
    """Uncapacitated facility location."""
    generator = np.random.default_rng(seed)
    i, j = _grid(customers, sites)
    lp = LinearProgram("facility_location")
    serve = lp.variables("serve", customers * sites, upper=1, integer=True)
    open_ = lp.variables("open", sites, upper=1, integer=True)
    lp.constrain("assign", serve.sum_by(i, customers), "==", 1)
    lp.constrain("link", serve - open_[j], "<=", 0)
    cost = generator.integers(1, 30, customers * sites), generator.integers(10, 40, sites)
    lp.minimize((serve * cost[0]).sum() + (open_ * cost[1]).sum())
    return lp


def capacitated_facility(customers: int = 5, sites: int = 12, seed: int = 0) -> LinearProgram:
    """Capacitated facility location; each customer needs several units."""
    generator = np.random.default_rng(seed)
    i, j = _grid(customers, sites)
    lp = LinearProgram("capacitated_facility")
    ship = lp.variables("ship", customers * sites, upper=9, integer=True)
    open_ = lp.variables("open", sites, upper=1, integer=True)
    lp.constrain("demand", ship.sum_by(i, customers), "==", generator.integers(2, 9, customers))
    lp.constrain("capacity", ship.sum_by(j, sites) - open_ * generator.integers(5, 12, sites), "<=", 0)
    cost = generator.integers(1, 30, customers * sites), generator.integers(10, 40, sites)
    lp.minimize((ship * cost[0]).sum() + (open_ * cost[1]).sum())
    return lp


def lot_sizing(periods: int = 12, seed: int = 0) -> LinearProgram:
    """Lot sizing with integer set-ups, continuous amounts and stock."""
    generator = np.random.default_rng(seed)
    lp = LinearProgram("lot_sizing")
    make = lp.variables("make", periods)
    stock = lp.variables("stock", periods)
    setup = lp.variables("setup", periods, upper=1, integer=True)
    demand = generator.integers(5, 20, periods)
    lp.constrain("first", make[:1] - stock[:1], "==", demand[:1])
    lp.constrain("balance", make[1:] + stock[:-1] - stock[1:], "==", demand[1:])
    lp.constrain("link", make - setup * float(demand.sum()), "<=", 0)
    lp.minimize(stock.sum() + (setup * 30).sum())
    return lp


def assignment(size: int = 6, seed: int = 0) -> LinearProgram:
    """Assignment of workers to jobs."""
    i, j = _grid(size, size)
    lp = LinearProgram("assignment")
    x = lp.variables("x", size * size, upper=1, integer=True)
    lp.constrain("worker", x.sum_by(i, size), "==", 1)
    lp.constrain("job", x.sum_by(j, size), "==", 1)
    lp.minimize((x * np.random.default_rng(seed).integers(1, 30, size * size)).sum())
    return lp


def transportation(plants: int = 5, sites: int = 6, seed: int = 0) -> LinearProgram:
    """Hitchcock's transportation problem with supply rows scaled by 12 and demand rows by 0.1."""
    generator = np.random.default_rng(seed)
    i, j = _grid(plants, sites)
    lp = LinearProgram("transportation")
    x = lp.variables("x", plants * sites, upper=40, integer=True)
    lp.constrain("supply", x.sum_by(i, plants) * 12, "<=", 12 * generator.integers(20, 30, plants))
    lp.constrain("demand", x.sum_by(j, sites) * 0.1, ">=", generator.integers(10, 16, sites) / 10)
    lp.minimize((x * generator.integers(1, 30, plants * sites)).sum())
    return lp


def network_design(nodes: int = 7, arcs: int = 20, goods: int = 2, seed: int = 0) -> LinearProgram:
    """Network design: several commodities over arcs that must be built."""
    generator = np.random.default_rng(seed)
    tail = np.concatenate([np.arange(nodes), generator.integers(0, nodes, arcs - nodes)])
    head = (tail + np.concatenate([np.ones(nodes, int), generator.integers(1, nodes, arcs - nodes)])) % nodes
    lp = LinearProgram("network_design")
    flow = lp.variables("flow", goods * arcs, upper=5, integer=True)
    build = lp.variables("build", arcs, upper=1, integer=True)
    for good in range(goods):
        mine = flow[good * arcs : (good + 1) * arcs]
        need = np.zeros(nodes)
        need[[good % nodes, (good + 3) % nodes]] = 3, -3
        lp.constrain(f"balance{good}", mine.sum_by(tail, nodes) - mine.sum_by(head, nodes), "==", need)
    lp.constrain("link", flow - build[np.arange(goods * arcs) % arcs] * 5, "<=", 0)
    lp.minimize((flow * generator.integers(1, 9, goods * arcs)).sum() + (build * generator.integers(5, 30, arcs)).sum())
    return lp


def set_cover(rows: int = 15, columns: int = 20, seed: int = 0) -> LinearProgram:
    """Random set covering."""
    generator = np.random.default_rng(seed)
    dense = generator.random((rows, columns)) < 0.25
    dense[np.arange(rows), generator.integers(0, columns, rows)] = True
    row, column = np.nonzero(dense)
    lp = LinearProgram("set_cover")
    x = lp.variables("x", columns, upper=1, integer=True)
    lp.constrain("cover", x[column].sum_by(row, rows), ">=", 1)
    lp.minimize((x * generator.integers(5, 20, columns)).sum())
    return lp


def knapsack(items: int = 12, seed: int = 0) -> LinearProgram:
    """Knapsack: a single row with different coefficients."""
    generator = np.random.default_rng(seed)
    lp = LinearProgram("knapsack")
    x = lp.variables("x", items, upper=1, integer=True)
    size = generator.integers(5, 40, items)
    lp.constrain("weight", (x * size).sum(), "<=", int(size.sum() // 2))
    lp.maximize((x * generator.integers(5, 40, items)).sum())
    return lp


def shift_scheduling(hours: int = 24, length: int = 8, seed: int = 0) -> LinearProgram:
    """Cover a day without wrap-around by shifts of consecutive hours: an interval matrix."""
    lp = LinearProgram("shift_scheduling")
    x = lp.variables("x", hours, upper=50, integer=True)
    hour, shift = np.nonzero(np.tri(hours, dtype=bool) & ~np.tri(hours, k=-length, dtype=bool))
    lp.constrain("cover", x[shift].sum_by(hour, hours), ">=", np.random.default_rng(seed).integers(1, 12, hours))
    lp.minimize(x.sum())
    return lp


def generalised_assignment(agents: int = 3, jobs: int = 10, seed: int = 0) -> LinearProgram:
    """Assign jobs of different sizes to agents with capacities."""
    generator = np.random.default_rng(seed)
    i, j = _grid(agents, jobs)
    lp = LinearProgram("generalised_assignment")
    x = lp.variables("x", agents * jobs, upper=1, integer=True)
    lp.constrain("job", x.sum_by(j, jobs), "==", 1)
    lp.constrain("capacity", (x * generator.integers(5, 15, agents * jobs)).sum_by(i, agents), "<=", 45)
    lp.minimize((x * generator.integers(1, 30, agents * jobs)).sum())
    return lp


def unit_commitment(units: int = 4, hours: int = 6, seed: int = 0) -> LinearProgram:
    """Unit commitment; an equation determines starts and stops from on/off."""
    generator = np.random.default_rng(seed)
    count = units * hours
    u, h = _grid(units, hours)
    lp = LinearProgram("unit_commitment")
    on, start, stop = (lp.variables(name, count, upper=1, integer=True) for name in ("on", "start", "stop"))
    power = lp.variables("power", count, upper=100)
    later = np.flatnonzero(h > 0)
    lp.constrain("switch", on[later] - on[later - 1] - start[later] + stop[later], "==", 0)
    lp.constrain("once", start + stop, "<=", 1)
    lp.constrain("demand", power.sum_by(h, hours), ">=", generator.integers(80, 220, hours) + 0.5)
    lp.constrain("most", power - on * generator.integers(60, 100, units)[u], "<=", 0)
    lp.constrain("least", power - on * generator.integers(10, 30, units)[u], ">=", 0)
    lp.minimize((power * generator.integers(1, 9, units)[u]).sum() + (start * 50).sum() + (on * 10).sum())
    return lp


def fixed_charge_transport(plants: int = 3, sites: int = 4, seed: int = 0) -> LinearProgram:
    """Transportation problem with a fixed cost per used arc."""
    generator = np.random.default_rng(seed)
    i, j = _grid(plants, sites)
    demand = generator.integers(5, 20, sites)
    total = int(demand.sum()) * 5 // 4
    cuts = np.sort(generator.integers(0, total, plants - 1))
    supply = np.diff(np.concatenate([[0], cuts, [total]]))
    most = np.minimum(supply[i], demand[j])
    lp = LinearProgram("fixed_charge_transport")
    ship = lp.variables("ship", plants * sites, upper=most, integer=True)
    use = lp.variables("use", plants * sites, upper=1, integer=True)
    lp.constrain("supply", ship.sum_by(i, plants), "<=", supply)
    lp.constrain("demand", ship.sum_by(j, sites), "==", demand)
    lp.constrain("link", ship - use * most, "<=", 0)
    cost = generator.integers(1, 8, plants * sites), generator.integers(20, 60, plants * sites)
    lp.minimize((ship * cost[0]).sum() + (use * cost[1]).sum())
    return lp


def capacitated_lot_sizing(items: int = 3, periods: int = 4, seed: int = 0) -> LinearProgram:
    """Lot sizing of several items in integer units that share the capacity of a period."""
    generator = np.random.default_rng(seed)
    count = items * periods
    _, t = _grid(items, periods)
    demand = generator.integers(0, 30, count)
    lp = LinearProgram("capacitated_lot_sizing")
    make, stock = (lp.variables(name, count, upper=500, integer=True) for name in ("make", "stock"))
    setup = lp.variables("setup", count, upper=1, integer=True)
    first, later = np.flatnonzero(t == 0), np.flatnonzero(t > 0)
    lp.constrain("first", make[first] - stock[first], "==", demand[first])
    lp.constrain("balance", make[later] + stock[later - 1] - stock[later], "==", demand[later])
    hours = int(demand.reshape(items, periods).sum(0).max())
    lp.constrain("capacity", make.sum_by(t, periods), "<=", hours)
    lp.constrain("link", make - setup * 500, "<=", 0)
    lp.minimize((stock * generator.integers(1, 4, count)).sum() + (setup * generator.integers(30, 90, count)).sum())
    return lp


#: Textbook models by name, small by default.
MODELS: dict[str, Callable[..., LinearProgram]] = {
    function.__name__: function
    for function in (
        fixed_charge,
        facility_location,
        capacitated_facility,
        lot_sizing,
        assignment,
        transportation,
        network_design,
        set_cover,
        knapsack,
        shift_scheduling,
        generalised_assignment,
        unit_commitment,
        fixed_charge_transport,
        capacitated_lot_sizing,
    )
}
