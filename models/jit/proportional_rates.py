"""Schedules with proportional rates for the transfers of one job and window, with the least largest load.

Transfers of one job with the same window (a coflow with a deadline) get rates in proportion to their sizes. Then there
is one variable per group and interval between consecutive window ends, and a small linear program minimises the largest
load. Any schedule needs at least `flowlex.models.jit.port_load_bounds.port_bound`; if this bound is attained, the
schedule is optimal among all schedules. Rates are continuous, without slots and units.

Multiplicative weights (Arora, Hazan, Kale 2012) compute the initial rates: with evenly spread rates, the coflows of an
hour overfill a port by a third, and a dozen programs are needed before a convex combination of their solutions fits.

If windows cannot be met, ``windows="elastic"`` moves all ends by the least lateness that some port must have
(`flowlex.models.jit.port_load_bounds.least_lateness`), and extends every interval as its fullest port needs.

Proportional rates are the MADD rule of coflow scheduling (Chowdhury, Zhong, Stoica, Varys, 2014); the program is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.sessions.growing_program import INFINITY, GrowingProgram
from flowlex.formulations.solver_outcome import Status
from flowlex.instances.jit import JitInstance
from flowlex.models.jit.latest_arrival import Rule, latest_arrival_times
from flowlex.models.jit.port_load_bounds import PortBound, least_lateness, port_bound
from flowlex.models.jit.transfer_slot_grid import Windows
from flowlex.models.model_base import ModelError

#: Number of ports of every interval that become rows in one round.
ROWS_ADDED = 6
#: Steps of multiplicative weights before the first program (they reduce the largest load of the coflows of an hour from
#: 1.35 to 0.95), and the sharpness of the weights of full ports.
RELIEVED, SHARPNESS = 24, 30.0


@dataclass(frozen=True, eq=False)
class ProportionalPlan:
    """A schedule with proportional rates. G groups, E entries (a group in an interval of its window)."""

    instance: JitInstance = field(repr=False)
    bound: PortBound  # what every schedule that keeps all windows needs
    # start_s, latest_s: (F,) earliest start and latest arrival of every transfer
    start_s: Floats = field(repr=False)
    latest_s: Floats = field(repr=False)
    group: Integers  # (F,) group of every transfer
    edges: Floats  # (T + 1,) seconds between which rates are constant
    # row, cell, share: (E,) group, interval, and part of the group that is sent in it
    row: Integers
    cell: Integers
    share: Floats
    must_late_s: float = 0.0  # seconds by which every schedule has some transfer late, where windows are elastic

    @cached_property
    def loads(self) -> Floats:
        """(2 M, T) share of every port in every interval: egress, then ingress; recomputed from sizes and shares."""
        volume, machines = _volumes(self.instance, self.group), self.instance.machines
        part = np.zeros((volume.shape[1], len(self.edges) - 1))
        np.add.at(part, (self.row, self.cell), self.share)
        rate = np.array([m.out_mbps for m in machines] + [m.in_mbps for m in machines]) / 8
        sent, seconds = volume @ part / rate[:, None], np.diff(self.edges)
        return np.divide(sent, seconds, out=np.zeros_like(sent), where=seconds > 0)  # `paced` may make empty intervals

    @property
    def largest(self) -> float:
        """The largest load as share of its port; above 1, no proportional schedule meets all windows."""
        return float(self.loads.max(initial=0.0))

    @property
    def gap(self) -> float:
        """Relative gap to the lower bound; 0 proves optimality, up to rounding."""
        return max(0.0, 1 - self.bound.least / self.largest) if self.largest else 0.0

    @cached_property
    def late_s(self) -> Floats:
        """(F,) seconds by which transfers end after their latest arrivals."""
        last = np.zeros(int(self.group.max(initial=-1)) + 1)
        used = self.share > 0
        np.maximum.at(last, self.row[used], self.edges[self.cell[used] + 1])
        return np.asarray(np.maximum(last[self.group] - self.latest_s, 0.0))

    def paced(self) -> ProportionalPlan:
        """Extend each interval to the time that its fullest port needs, so that no load exceeds 1."""
        need, edges = np.diff(self.edges) * self.loads.max(axis=0, initial=0.0), self.edges.copy()
        for k, seconds in enumerate(need.tolist()):
            edges[k + 1] = max(edges[k + 1], edges[k] + seconds)
        return replace(self, edges=edges)

    def violations(self) -> dict[str, float]:
        """Recompute violations: shares not sent, negative shares, seconds outside windows; zeros if feasible."""
        sent = np.bincount(self.row, weights=self.share, minlength=int(self.group.max(initial=-1)) + 1)
        first, used = np.full(len(sent), np.inf), self.share > 0
        np.minimum.at(first, self.row[used], self.edges[self.cell[used]])
        early = (self.start_s - first[self.group]).max(initial=0.0)
        return {
            "part_not_sent": float(np.abs(sent - 1).max(initial=0.0)),
            "negative_part": float(-self.share.min(initial=0.0)),
            "seconds_outside": float(max(early, self.late_s.max(initial=0.0))),
        }


def proportional_plan(
    instance: JitInstance, lat: Rule = "critical", time_limit_s: float | None = None, windows: Windows = "strict"
) -> ProportionalPlan:
    """Minimise the largest load with proportional rates for every job's transfers of one window (see the module).

    Parameters
    ----------
    time_limit_s
        At this limit, the best schedule found is returned.
    windows
        ``elastic``: if no proportional schedule meets the windows, transfers are late (``late_s``; lower bound:
        ``must_late_s``), and no load exceeds 1.

    Raises
    ------
    ModelError
        The window of a transfer is empty.

    Examples
    --------
    >>> from flowlex.instances import generate
    >>> plan = proportional_plan(generate("jit-figure4"), windows="elastic")
    >>> round(plan.largest, 3), float(plan.late_s.max()), plan.must_late_s
    (1.0, 3.0, 3.0)
    """
    windows_s = latest_arrival_times(instance, lat)
    start, latest = windows_s.start_s, windows_s.latest_s
    if (latest <= start).any():
        raise ModelError(f"transfer {instance.transfer_names[int((latest <= start).argmax())]!r} has no time")
    late = least_lateness(instance, lat) if windows == "elastic" else 0.0
    key = np.stack([instance.arrays.job.astype(np.float64), start, latest + late], axis=1)
    ends, group = np.unique(key, axis=0, return_inverse=True)
    group = group.ravel()
    edges = np.unique(ends[:, 1:])
    first, last = np.searchsorted(edges, ends[:, 1]), np.searchsorted(edges, ends[:, 2])
    row = np.repeat(np.arange(len(ends)), last - first)
    cell = np.arange(len(row)) - np.repeat(np.cumsum(last - first) - (last - first), last - first) + first[row]
    plan = ProportionalPlan(
        instance, port_bound(instance, lat), start, latest, group, edges, row, cell, np.zeros(0), late
    )
    found = _least_largest(plan, time_limit_s) if len(row) else plan
    return found.paced() if windows == "elastic" else found


def _least_largest(plan: ProportionalPlan, time_limit_s: float | None) -> ProportionalPlan:
    """Solve by row generation: start with few rows (port, interval), and add violated ones until there are none.

    Every solution and every convex combination is a schedule, so one exists at any time limit; `gap` is its quality.
    """
    deadline = math.inf if time_limit_s is None else processor_seconds() + time_limit_s
    program = _Program(plan)
    best = program.relieved(deadline)
    loads = best.loads
    while True:
        # Add the fullest ports of every interval; every solution except the last violates a new row.
        program.add(np.argsort(-loads, axis=0)[:ROWS_ADDED])
        left = deadline - processor_seconds()
        if left <= 0:
            return best
        answer = program.session.solve(time_limit_s=left)
        if answer.status is not Status.OPTIMAL or answer.values is None:
            if answer.status is Status.TIME_LIMIT:
                return best
            raise ModelError(f"no schedule was found: the solver ended with {answer.status}")
        share = np.maximum(answer.values[: len(plan.row)], 0.0)
        found = replace(plan, share=share / np.bincount(plan.row, weights=share)[plan.row])
        best, loads = _between(best, found)
        if best.largest <= answer.objective * (1 + 1e-7):
            return best


def _between(best: ProportionalPlan, found: ProportionalPlan) -> tuple[ProportionalPlan, Floats]:
    """Return the best convex combination of two plans, and the maximum of their loads, to choose further rows.

    A solution with few rows violates others by far; on the line from a schedule to it, the largest load first falls.
    """
    here, there = best.loads, found.loads
    steps = np.linspace(0.0, 1.0, 41)
    largest = [float((here + (there - here) * step).max()) for step in steps]
    step = steps[int(np.argmin(largest))]
    mixed = replace(best, share=best.share + (found.share - best.share) * step)
    return mixed, np.maximum(there, mixed.loads)


def _volumes(instance: JitInstance, group: Integers) -> Floats:
    """(2 M, G) MB that every group sends from and to every machine."""
    arrays, machines = instance.arrays, len(instance.machines)
    volume = np.zeros((2 * machines, int(group.max(initial=-1)) + 1))
    np.add.at(volume, (arrays.sender, group), arrays.size_mb)
    np.add.at(volume, (arrays.receiver + machines, group), arrays.size_mb)
    return volume


class _Program:
    """The program of the largest load, with one variable per group and interval; rows are added with a warm start."""

    def __init__(self, plan: ProportionalPlan) -> None:
        machines = plan.instance.machines
        rate = np.array([m.out_mbps for m in machines] + [m.in_mbps for m in machines]) / 8
        self.volume = _volumes(plan.instance, plan.group) / rate[:, None]
        self.plan, self.length = plan, np.diff(plan.edges)
        self.known = np.zeros((len(rate), len(self.length)), np.bool_)
        self.session = GrowingProgram()
        self.by_cell = np.split(
            order := np.argsort(plan.cell, kind="stable"),
            np.searchsorted(plan.cell[order], np.arange(1, len(self.length))),
        )
        for _ in plan.row:
            self.session.add_column(0.0, 1.0)
        self.largest = self.session.add_column(1.0)
        order = np.argsort(plan.row, kind="stable")
        for columns in np.split(order, np.flatnonzero(np.diff(plan.row[order])) + 1):
            self.session.add_row(1.0, 1.0, columns.tolist(), [1.0] * len(columns))

    def relieved(self, deadline: float) -> ProportionalPlan:
        """Return a plan of multiplicative weights: even shares, reduced by prices exponential in the loads of ports."""
        plan, volume = self.plan, self.volume
        share = self.length[plan.cell]
        found, least = plan, math.inf
        for step in range(RELIEVED):
            share = share / np.bincount(plan.row, weights=share)[plan.row]
            part = np.zeros((volume.shape[1], len(self.length)))
            part[plan.row, plan.cell] = share
            loads = volume @ part / self.length
            if (most := float(loads.max())) < least:
                found, least = replace(plan, share=share), most
            if processor_seconds() > deadline or not most:
                break
            price = (volume.T @ (np.exp(SHARPNESS * (loads / most - 1)) / self.length))[plan.row, plan.cell]
            share = share * np.exp(-price / price.max() / (1 + step / RELIEVED))
        return found

    def add(self, ports: Integers) -> None:
        """Add the rows of (n, T) ports by interval if they are new: the load is at most the largest."""
        for cell, mine in enumerate(self.by_cell):
            for port in ports[:, cell].tolist():
                weight = self.volume[port, self.plan.row[mine]] / self.length[cell]
                used = np.flatnonzero(weight)
                if len(used) and not self.known[port, cell]:
                    columns = [*mine[used].tolist(), self.largest]
                    self.session.add_row(-INFINITY, 0.0, columns, [*weight[used].tolist(), -1.0])
                self.known[port, cell] = True
