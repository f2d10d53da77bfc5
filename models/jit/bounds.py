"""How much must some port carry at some moment, whatever the schedule? Without slots, units or programs.

All transfers of a port whose windows lie in an interval must pass in it, so their sum over its length is a lower bound
on the largest load: the critical interval of Yao, Demers and Shenker (1995), port by port. Beside it, what sending
every transfer evenly over its window needs, which is a schedule where the ports are wide enough. A better schedule of
coflows is in `flowlex.models.jit.proportional`. Cost grows with distinct windows, not with time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowlex.formulations.arrays import Floats, Integers
from flowlex.formulations.balanced_load import greatest_intensity
from flowlex.instances.jit import JitInstance
from flowlex.models.jit.latest_arrival import Rule, latest_arrival_times

__all__ = ["PortBound", "port_bound"]

#: Windows are widened to whole nanoseconds and sizes cut to whole bytes, so that the bound stays one.
_NANO = 10**9


@dataclass(frozen=True)
class PortBound:
    """Bounds on the least largest load of a port, as share of its capacity.

    Attributes
    ----------
    least
        No schedule within the windows keeps every port below this share; above 1 there is no such schedule.
    port, begin_s, end_s
        Where: ``machine out`` or ``machine in``, and the critical interval.
    even
        Largest share when every transfer is sent evenly over its window; at most 1: it is a schedule.
    """

    least: float
    port: str
    begin_s: float
    end_s: float
    even: float

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
    arrays, machines = instance.arrays, len(instance.machines)
    latest = latest_arrival_times(instance, lat).latest_s
    begin = np.floor(arrays.start_s * _NANO).astype(np.int64)
    end = np.maximum(np.ceil(latest * _NANO).astype(np.int64), begin + 1)
    size = np.floor(arrays.size_mb * 10**6).astype(np.int64)
    density = arrays.size_mb / np.maximum(latest - arrays.start_s, 1e-9)
    best = PortBound(0.0, "", 0.0, 0.0, 0.0)
    even = 0.0
    for side, ports in (("out", arrays.sender), ("in", arrays.receiver)):
        order = np.argsort(ports, kind="stable")
        cuts = np.searchsorted(ports[order], np.arange(machines + 1))
        for k, machine in enumerate(instance.machines):
            members = order[cuts[k] : cuts[k + 1]]
            if not len(members):
                continue
            rate = (machine.out_mbps if side == "out" else machine.in_mbps) / 8
            a, b, amount = greatest_intensity(*_merged(begin[members], end[members], size[members]))
            share = amount / 10**6 / ((b - a) / _NANO) / rate
            if share > best.least:
                best = PortBound(share, f"{machine.name} {side}", a / _NANO, b / _NANO, 0.0)
            even = max(even, _peak(begin[members], end[members], density[members]) / rate)
    return PortBound(best.least, best.port, best.begin_s, best.end_s, even)


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
