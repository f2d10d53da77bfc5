"""Lower bounds on the largest load of a port in any schedule, without slots, units or programs.

All transfers of a port whose windows lie in an interval must be sent in it, so their size divided by its length is a
lower bound on the largest load: the critical interval of Yao, Demers and Shenker (1995), port by port. For comparison,
``even`` is the largest load if every transfer is sent evenly over its window. `flowlex.models.jit.proportional_rates`
finds better schedules. The work depends on the number of distinct windows, not on time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from flowlex.formulations.balanced_load import greatest_intensity
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.jit import JitInstance
from flowlex.models.jit.latest_arrival import LatestArrival, Rule, latest_arrival_times

#: Windows are widened to integer nanoseconds and sizes rounded down to bytes, so that the bound stays valid.
_NANO = 10**9


@dataclass(frozen=True)
class PortBound:
    """Bounds on the least largest load of a port, as share of its capacity."""

    least: float  # lower bound on the largest load within the windows; above 1 no such schedule exists
    # critical port (``machine out`` or ``machine in``) and critical interval
    port: str
    begin_s: float
    end_s: float
    even: float  # largest load if every transfer is spread evenly over its window; feasible if at most 1

    @property
    def gap(self) -> float:
        """Relative gap of the even schedule."""
        return 1 - self.least / self.even if self.even else 0.0


def port_bound(instance: JitInstance, lat: Rule = "critical") -> PortBound:
    """Bound the largest load of all transfers from their windows alone (see the module).

    Examples
    --------
    >>> from flowlex.instances import generate
    >>> bound = port_bound(generate("jit-figure4"), "paper")
    >>> bound.port, round(bound.least, 3), round(bound.even, 3)
    ('m1 out', 1.0, 1.778)
    """
    arrays = instance.arrays
    latest = latest_arrival_times(instance, lat)
    begin, end, size = _whole(latest)
    density = arrays.size_mb / np.maximum(latest.latest_s - latest.start_s, 1e-9)
    best = PortBound(0.0, "", 0.0, 0.0, 0.0)
    even = 0.0
    for port, rate, members in _ports(instance):
        a, b, amount = greatest_intensity(*_merged(begin[members], end[members], size[members]))
        share = amount / 10**6 / ((b - a) / _NANO) / rate
        if share > best.least:
            best = PortBound(share, port, a / _NANO, b / _NANO, 0.0)
        even = max(even, _peak(begin[members], end[members], density[members]) / rate)
    return PortBound(best.least, best.port, best.begin_s, best.end_s, even)


def least_lateness(instance: JitInstance, lat: Rule = "critical") -> float:
    """Lower bound on the largest lateness of a transfer in every schedule, in seconds; 0 if none must be late.

    For one port, preemptive earliest deadline first minimises the largest lateness (Jackson 1955; Horn 1974); a
    schedule uses all ports, so the largest value over the ports is a bound.

    Examples
    --------
    >>> from flowlex.instances import generate
    >>> least_lateness(generate("jit-figure4"), "paper")
    0.0
    """
    begin, end, size = _whole(latest_arrival_times(instance, lat))
    worst = 0.0
    for _, rate, members in _ports(instance):
        worst = max(worst, _earliest_first(*_merged(begin[members], end[members], size[members]), rate * 10**6 / _NANO))
    return math.floor(worst) / _NANO


def _earliest_first(begin: Integers, end: Integers, size: Integers, rate: float) -> float:
    """Largest lateness of one port in nanoseconds; ``rate`` in bytes per nanosecond."""
    order, count = np.argsort(begin, kind="stable").tolist(), len(begin)
    waiting: list[tuple[int, float]] = []
    now, worst, k = 0.0, 0.0, 0
    while k < count or waiting:
        if not waiting:
            now = max(now, float(begin[order[k]]))
        while k < count and begin[order[k]] <= now:
            heapq.heappush(waiting, (int(end[order[k]]), int(size[order[k]]) / rate))
            k += 1
        due, left = heapq.heappop(waiting)
        until = float(begin[order[k]]) if k < count else np.inf
        if now + left > until:
            heapq.heappush(waiting, (due, left - (until - now)))
            now = until
        else:
            now += left
            worst = max(worst, now - due)
    return worst


def _whole(latest: LatestArrival) -> tuple[Integers, Integers, Integers]:
    """Windows in nanoseconds, rounded outwards, and sizes in bytes, rounded down."""
    begin = np.floor(latest.start_s * _NANO).astype(np.int64)
    end = np.maximum(np.ceil(latest.latest_s * _NANO).astype(np.int64), begin + 1)
    return begin, end, np.floor(latest.instance.arrays.size_mb * 10**6).astype(np.int64)


def _ports(instance: JitInstance) -> Iterator[tuple[str, float, Integers]]:
    """Name, capacity in MB/s and transfers of every port in use."""
    arrays = instance.arrays
    for side, ports in (("out", arrays.sender), ("in", arrays.receiver)):
        order = np.argsort(ports, kind="stable")
        cuts = np.searchsorted(ports[order], np.arange(len(instance.machines) + 1))
        for k, machine in enumerate(instance.machines):
            members = order[cuts[k] : cuts[k + 1]]
            if len(members):
                yield f"{machine.name} {side}", (machine.out_mbps if side == "out" else machine.in_mbps) / 8, members


def _merged(begin: Integers, end: Integers, size: Integers) -> tuple[Integers, Integers, Integers]:
    """Merge transfers with equal windows."""
    windows, row = np.unique(np.stack([begin, end], axis=1), axis=0, return_inverse=True)
    total = np.zeros(len(windows), np.int64)
    np.add.at(total, row.ravel(), size)
    return windows[:, 0], windows[:, 1], total


def _peak(begin: Integers, end: Integers, density: Floats) -> float:
    """Largest sum of densities at any time."""
    times = np.concatenate([begin, end])
    order = np.lexsort((np.concatenate([np.ones(len(begin)), np.zeros(len(end))]), times))  # ends before begins
    return float(np.cumsum(np.concatenate([density, -density])[order]).max(initial=0.0))
