"""Lower bounds on the largest load of a port in any schedule, without slots, units or programs.

All transfers of a port whose windows lie in an interval must pass in it, so their sum over its length is a lower bound
on the largest load: the critical interval of Yao, Demers and Shenker (1995), port by port. Beside it, what sending
every transfer evenly over its window needs, which is a schedule where the ports are wide enough. A better schedule of
coflows is in `flowlex.models.jit.proportional_rates`. Cost grows with distinct windows, not with time.
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

__all__ = ["PortBound", "least_lateness", "port_bound"]

#: Windows are widened to whole nanoseconds and sizes cut to whole bytes, so that the bound stays one.
_NANO = 10**9


@dataclass(frozen=True)
class PortBound:
    """Bounds on the least largest load of a port, as share of its capacity."""

    least: float  # no schedule within the windows keeps every port below this share; above 1 there is no such schedule
    # port, begin_s, end_s: Where: ``machine out`` or ``machine in``, and the critical interval
    port: str
    begin_s: float
    end_s: float
    even: float  # largest share when every transfer is sent evenly over its window; at most 1: it is a schedule

    @property
    def gap(self) -> float:
        """How far the even schedule may be from the best, relative to itself."""
        return 1 - self.least / self.even if self.even else 0.0


def port_bound(instance: JitInstance, lat: Rule = "critical") -> PortBound:
    """Bound the largest load of all transfers from their windows alone (see the module).

    Examples
    --------
    >>> from flowlex.instances import generate
    >>> bound = port_bound(generate("jit-figure4"), "paper")
    >>> bound.port, round(bound.least, 3), round(bound.even, 3)
    ('m3 in', 0.385, 0.61)
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
    """Seconds by which some transfer must be late in every schedule of all transfers; 0 where none must.

    The earliest latest arrival first, interrupted by what has become ready, has the least largest lateness of all ways
    to use one port (Jackson 1955; Horn 1974); a schedule uses all ports at once, so the largest of them is a bound.

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
    """Largest lateness of one port, nanoseconds; ``rate`` in bytes a nanosecond."""
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
    """Windows in nanoseconds, never narrower than they are, and sizes in bytes, never larger."""
    begin = np.floor(latest.start_s * _NANO).astype(np.int64)
    end = np.maximum(np.ceil(latest.latest_s * _NANO).astype(np.int64), begin + 1)
    return begin, end, np.floor(latest.instance.arrays.size_mb * 10**6).astype(np.int64)


def _ports(instance: JitInstance) -> Iterator[tuple[str, float, Integers]]:
    """Name, MB a second and transfers of every port that is used."""
    arrays = instance.arrays
    for side, ports in (("out", arrays.sender), ("in", arrays.receiver)):
        order = np.argsort(ports, kind="stable")
        cuts = np.searchsorted(ports[order], np.arange(len(instance.machines) + 1))
        for k, machine in enumerate(instance.machines):
            members = order[cuts[k] : cuts[k + 1]]
            if len(members):
                yield f"{machine.name} {side}", (machine.out_mbps if side == "out" else machine.in_mbps) / 8, members


def _merged(begin: Integers, end: Integers, size: Integers) -> tuple[Integers, Integers, Integers]:
    """Transfers of one window as one."""
    windows, row = np.unique(np.stack([begin, end], axis=1), axis=0, return_inverse=True)
    total = np.zeros(len(windows), np.int64)
    np.add.at(total, row.ravel(), size)
    return windows[:, 0], windows[:, 1], total


def _peak(begin: Integers, end: Integers, density: Floats) -> float:
    """Largest sum of densities at one moment."""
    times = np.concatenate([begin, end])
    order = np.lexsort((np.concatenate([np.ones(len(begin)), np.zeros(len(end))]), times))  # ends before begins
    return float(np.cumsum(np.concatenate([density, -density])[order]).max(initial=0.0))
