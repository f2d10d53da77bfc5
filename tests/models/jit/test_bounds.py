"""Bounds from windows alone, compared with enumeration of all intervals and with the least largest load."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog

from flowlex.instances import generate
from flowlex.instances.importers.coflow import read_coflow_trace
from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer
from flowlex.models.jit.latest_arrival import latest_arrival_times
from flowlex.models.jit.model import JitBandwidth
from flowlex.models.jit.port_load_bounds import least_lateness, port_bound
from flowlex.models.jit.proportional_rates import proportional_plan
from flowlex.models.model_base import ModelError

TRACE = Path(__file__).parents[4] / "shared" / "data" / "coflow" / "FB2010-1Hr-150-0.txt.gz"


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_is_the_densest_interval_of_any_port(seed: int) -> None:
    instance = generate("jit-random", seed=seed, machines=3, jobs=3, transfers=4, slots=6, capacity=3)
    assert isinstance(instance, JitInstance)
    arrays, latest = instance.arrays, latest_arrival_times(instance).latest_s
    rate = [(m.out_mbps / 8, m.in_mbps / 8) for m in instance.machines]
    densest, peak = 0.0, 0.0
    for (side, ports), machine in product(enumerate((arrays.sender, arrays.receiver)), range(3)):
        own = [k for k in range(len(ports)) if ports[k] == machine]
        for a, b in product(arrays.start_s, latest):
            inside = sum(arrays.size_mb[k] for k in own if arrays.start_s[k] >= a and latest[k] <= b)
            densest = max(densest, inside / (b - a) / rate[machine][side] if b > a else 0.0)
        for a in arrays.start_s:
            now = [k for k in own if arrays.start_s[k] <= a < latest[k]]
            even = sum(arrays.size_mb[k] / (latest[k] - arrays.start_s[k]) for k in now)
            peak = max(peak, even / rate[machine][side])
    bound = port_bound(instance)
    assert bound.least == pytest.approx(densest, rel=1e-6)
    assert bound.even == pytest.approx(peak, rel=1e-9)
    assert 0 <= bound.gap < 1 and bound.least <= bound.even + 1e-9
    strict = JitBandwidth(instance, share=1.0, load="port", windows="strict", program="P1").solve("highs")
    if strict.status.has_answer:  # integer units per slot need at least as much as a fluid
        assert strict.objective >= bound.least * max(arrays.out_units.max(), arrays.in_units.max()) - 1e-6
    elif bound.even <= 1:
        assert strict.grid.widened or strict.grid.instance.rounding().size_added_mb


def test_a_port_that_must_carry_more_than_it_can() -> None:
    machines = tuple(Machine(name=n, out_mbps=8, in_mbps=16) for n in "abc")
    sizes = (("b", 2.0, 2.0), ("c", 1.0, 2.0))
    transfers = tuple(
        Transfer(name=f"to {to}", size_mb=mb, sender="a", receiver=to, feeds="c", deadline_s=end)
        for to, mb, end in sizes
    )
    job = Job(name="j", arrival_s=5, computations=(Computation(name="c", seconds=0),), transfers=transfers)
    bound = port_bound(JitInstance(machines=machines, jobs=(job,), slot_s=1.0, unit_mb=1.0))
    assert (bound.port, bound.begin_s, bound.end_s) == ("a out", 5.0, 7.0)
    assert bound.least == pytest.approx(1.5) and bound.even == pytest.approx(1.5) and bound.gap == pytest.approx(0)


@pytest.mark.parametrize("seed", range(6))
def test_how_late_some_transfer_must_be(seed: int) -> None:
    """For all a, b: the time a port needs for transfers that start from a and are due by b, less b - a, is lateness.

    The proportional plan is at least as late, respects every port rate, and sends every transfer after its start.
    """
    instance = generate("jit-random", seed=seed, machines=3, jobs=4, transfers=4, slots=2, capacity=3)
    assert isinstance(instance, JitInstance)
    arrays, latest = instance.arrays, latest_arrival_times(instance).latest_s
    late = 0.0
    for ports, side in ((arrays.sender, "out_mbps"), (arrays.receiver, "in_mbps")):
        for machine, a, b in product(range(3), arrays.start_s, latest):
            inside = (ports == machine) & (arrays.start_s >= a) & (latest <= b)
            needed = arrays.size_mb[inside].sum() / (getattr(instance.machines[machine], side) / 8)
            late = max(late, needed - (b - a)) if inside.any() else late
    assert least_lateness(instance) == pytest.approx(late, abs=1e-7)
    plan = proportional_plan(instance, windows="elastic")
    assert plan.must_late_s == least_lateness(instance)
    assert plan.late_s.max() >= late - 1e-7
    assert plan.largest <= 1 + 1e-9
    wrong = plan.violations()
    assert wrong["part_not_sent"] < 1e-9 and wrong["negative_part"] == 0
    assert wrong["seconds_outside"] == plan.late_s.max()
    begin = np.full(len(latest), np.inf)
    used = plan.share > 0
    np.minimum.at(begin, plan.row[used], plan.edges[plan.cell[used]])
    assert (begin[plan.group] >= arrays.start_s).all()
    if not late and proportional_plan(instance).largest <= 1:
        assert plan.late_s.max() <= 1e-9


@pytest.mark.skipif(not TRACE.exists(), reason="the Facebook trace is not beside this repository")
def test_coflows_of_facebook() -> None:
    """With deadlines at twice the bottleneck time a single coflow needs half a port; stopped solves give a plan."""
    instance = read_coflow_trace(TRACE, first=20, slack=2.0)
    bound = port_bound(instance)
    assert 0.5 <= bound.least <= bound.even
    assert bound.port == "p64 out"
    plan = proportional_plan(instance, time_limit_s=1e-9)
    assert all(value < 1e-9 for value in plan.violations().values())
    assert plan.bound.least <= plan.largest <= plan.bound.even + 1e-9
    late = proportional_plan(read_coflow_trace(TRACE, first=60, slack=1.0), windows="elastic", time_limit_s=1e-9)
    assert (np.diff(late.edges) >= 0).all() and np.isfinite(late.loads).all()
    assert late.largest <= 1 + 1e-9
    assert 0 < late.must_late_s <= late.late_s.max()


def test_nothing_to_send_needs_nothing() -> None:
    machines = tuple(Machine(name=n, out_mbps=80, in_mbps=80) for n in "ab")
    bound = port_bound(JitInstance(machines=machines, jobs=(), unit_mb=0.5))
    assert (bound.least, bound.even, bound.gap) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("seed", range(4))
def test_going_in_step_is_least_among_all_that_do(seed: int) -> None:
    """Independent program: a fraction per coflow and second, port loads per transfer, minimised by SciPy."""
    rng = np.random.default_rng(seed)
    machines = tuple(Machine(name=n, out_mbps=80, in_mbps=40) for n in "abcd")
    jobs = []
    for k in range(4):
        pairs = [rng.choice(list("abcd"), 2, replace=False) for _ in range(3)]
        length, start = int(rng.integers(2, 6)), int(rng.integers(0, 5))
        flows = tuple(
            Transfer(
                name=f"t{n}", size_mb=float(rng.integers(1, 9)), sender=a, receiver=b, feeds="c", deadline_s=length
            )
            for n, (a, b) in enumerate(pairs)
        )
        jobs.append(
            Job(name=f"j{k}", arrival_s=start, computations=(Computation(name="c", seconds=0),), transfers=flows)
        )
    instance = JitInstance(machines=machines, jobs=tuple(jobs), slot_s=1.0, unit_mb=1.0)
    columns = [(k, t) for k, job in enumerate(jobs) for t in range(int(job.arrival_s), int(job.arrival_s) + 9)]
    columns = [(k, t) for k, t in columns if t < jobs[k].arrival_s + jobs[k].transfers[0].deadline_s]
    rows = []
    for name, t, side in product("abcd", range(12), (0, 1)):
        weight = [
            sum(f.size_mb for f in jobs[k].transfers if (f.sender, f.receiver)[side] == name) / (10, 5)[side]
            for k, _ in columns
        ]
        rows.append([w * (at == t) for w, (_, at) in zip(weight, columns, strict=True)] + [-1.0])
    sums = [[float(k == job) for k, _ in columns] + [0.0] for job in range(4)]
    best = linprog([0.0] * len(columns) + [1.0], rows, [0.0] * len(rows), sums, [1.0] * 4)
    plan = proportional_plan(instance)
    assert plan.largest == pytest.approx(best.fun, abs=1e-7)
    assert plan.largest >= plan.bound.least - 1e-9
    assert all(value < 1e-9 for value in plan.violations().values())
    assert 0 <= plan.gap < 1


def test_a_transfer_without_time_is_named() -> None:
    """The paper's rule knows no ready time: a transfer may be due before it can start."""
    machines = tuple(Machine(name=n, out_mbps=80, in_mbps=80) for n in "ab")
    late = Transfer(name="t", size_mb=1.0, sender="a", receiver="b", feeds="c", ready_s=3.0)
    job = Job(name="job", computations=(Computation(name="c", seconds=0),), transfers=(late,))
    with pytest.raises(ModelError, match="'job/t' has no time"):
        proportional_plan(JitInstance(machines=machines, jobs=(job,), slot_s=1.0, unit_mb=1.0), "paper")


@pytest.mark.slow
@pytest.mark.skipif(not TRACE.exists(), reason="the Facebook trace is not beside this repository")
def test_the_largest_load_of_a_hundred_coflows_is_proven() -> None:
    plan = proportional_plan(read_coflow_trace(TRACE, first=100, slack=2.0))
    assert plan.gap < 1e-9
    assert all(value < 1e-9 for value in plan.violations().values())
