"""A schedule whose transfers of one job and window go in step, with the least largest load among all such.

Transfers of one job that share a window (a coflow with a deadline) get rates in proportion to their sizes; then one
number per group and interval between neighbouring window ends says everything, and a small linear program finds the
least largest load. Any schedule needs at least `flowlex.models.jit.bounds.port_bound`; where the two meet, this one is
optimal among all schedules. Rates are those of a fluid: no slots and units.

Going in step is the MADD rule of coflow scheduling (Chowdhury, Zhong, Stoica, Varys, 2014); the program is ours.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from flowlex.formulations.arrays import Floats, Integers
from flowlex.formulations.outcome import Status
from flowlex.formulations.sessions.growing import INFINITY, GrowingProgram
from flowlex.instances.jit import JitInstance
from flowlex.models.base import ModelError
from flowlex.models.jit.bounds import PortBound, port_bound
from flowlex.models.jit.latest_arrival import Rule, latest_arrival_times

__all__ = ["ProportionalPlan", "proportional_plan"]

#: Ports of every interval that become rows at once.
ROWS_ADDED = 6


@dataclass(frozen=True, eq=False)
class ProportionalPlan:
    """Groups in step. G groups, E entries (a group in an interval of its window).

    Attributes
    ----------
    bound
        What every schedule needs.
    group
        (F,) group of every transfer.
    edges
        (T + 1,) seconds between which rates are constant.
    row, cell, share
        (E,) group, interval, and part of the group that is sent in it.
    """

    instance: JitInstance = field(repr=False)
    bound: PortBound
    group: Integers
    edges: Floats
    row: Integers
    cell: Integers
    share: Floats

    @cached_property
    def loads(self) -> Floats:
        """(2 M, T) share of every port in every interval: egress, then ingress; recomputed from sizes and shares."""
        volume, machines = _volumes(self.instance, self.group), self.instance.machines
        part = np.zeros((volume.shape[1], len(self.edges) - 1))
        np.add.at(part, (self.row, self.cell), self.share)
        rate = np.array([m.out_mbps for m in machines] + [m.in_mbps for m in machines]) / 8
        return np.asarray(volume @ part / np.diff(self.edges) / rate[:, None])

    @property
    def largest(self) -> float:
        """The largest load, as share of its port; above 1 nothing that goes in step keeps all windows."""
        return float(self.loads.max(initial=0.0))

    @property
    def gap(self) -> float:
        """How far it may be from the best schedule, relative to itself; rounding aside, 0 is a proof."""
        return max(0.0, 1 - self.bound.least / self.largest) if self.largest else 0.0

    def violations(self, lat: Rule = "critical") -> dict[str, float]:
        """What is wrong with it, recomputed: parts not sent, seconds sent outside of windows; zeros when right."""
        arrays, latest = self.instance.arrays, latest_arrival_times(self.instance, lat).latest_s
        sent = np.bincount(self.row, weights=self.share, minlength=int(self.group.max(initial=-1)) + 1)
        first, last = np.full(len(sent), np.inf), np.zeros(len(sent))
        used = self.share > 0
        np.minimum.at(first, self.row[used], self.edges[self.cell[used]])
        np.maximum.at(last, self.row[used], self.edges[self.cell[used] + 1])
        early, late = arrays.start_s - first[self.group], last[self.group] - latest
        return {
            "part_not_sent": float(np.abs(sent - 1).max(initial=0.0)),
            "negative_part": float(-self.share.min(initial=0.0)),
            "seconds_outside": float(max(early.max(initial=0.0), late.max(initial=0.0))),
        }


def proportional_plan(
    instance: JitInstance, lat: Rule = "critical", time_limit_s: float | None = None
) -> ProportionalPlan:
    """The least largest load with every job's transfers of one window in step (see the module).

    Parameters
    ----------
    time_limit_s
        The best schedule so far is the answer then.

    Raises
    ------
    ModelError
        A transfer has no time.
    """
    arrays, latest = instance.arrays, latest_arrival_times(instance, lat).latest_s
    if (latest <= arrays.start_s).any():
        raise ModelError(f"transfer {instance.transfer_names[int((latest <= arrays.start_s).argmax())]!r} has no time")
    key = np.stack([arrays.job.astype(np.float64), arrays.start_s, latest], axis=1)
    windows, group = np.unique(key, axis=0, return_inverse=True)
    group = group.ravel()
    edges = np.unique(windows[:, 1:])
    first, last = np.searchsorted(edges, windows[:, 1]), np.searchsorted(edges, windows[:, 2])
    row = np.repeat(np.arange(len(windows)), last - first)
    cell = np.arange(len(row)) - np.repeat(np.cumsum(last - first) - (last - first), last - first) + first[row]
    plan = ProportionalPlan(instance, port_bound(instance, lat), group, edges, row, cell, np.zeros(0))
    return _least_largest(plan, time_limit_s) if len(row) else plan


def _least_largest(plan: ProportionalPlan, time_limit_s: float | None) -> ProportionalPlan:
    """Solve with few ports and intervals as rows, and add those that the answer breaks, until there are none.

    Every answer is a schedule, and so is all between two: when time runs out there is one, and `gap` says how good.
    """
    deadline = None if time_limit_s is None else time.perf_counter() + time_limit_s
    length = np.diff(plan.edges)[plan.cell]
    best = replace(plan, share=length / np.bincount(plan.row, weights=length)[plan.row])
    loads = best.loads
    program = _Program(plan)
    while True:
        # Of every interval the fullest ports; each answer that is not the last breaks a new one.
        program.add(np.argsort(-loads, axis=0)[:ROWS_ADDED])
        left = None if deadline is None else deadline - time.perf_counter()
        if left is not None and left <= 0:
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
    """The best plan between two, and the larger loads of either: where more rows are wanted.

    An answer to few rows is a corner that breaks others by far; on the way there from a schedule loads fall first.
    """
    here, there = best.loads, found.loads
    steps = np.linspace(0.0, 1.0, 41)
    largest = [float((here + (there - here) * step).max()) for step in steps]
    step = steps[int(np.argmin(largest))]
    mixed = replace(best, share=best.share + (found.share - best.share) * step)
    return mixed, np.maximum(there, mixed.loads)


def _volumes(instance: JitInstance, group: Integers) -> Floats:
    """(2 M, G) MB of every group out of and into every machine."""
    arrays, machines = instance.arrays, len(instance.machines)
    volume = np.zeros((2 * machines, int(group.max(initial=-1)) + 1))
    np.add.at(volume, (arrays.sender, group), arrays.size_mb)
    np.add.at(volume, (arrays.receiver + machines, group), arrays.size_mb)
    return volume


class _Program:
    """Minimise the largest load, one variable per group and interval; rows are added, the basis is kept."""

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

    def add(self, ports: Integers) -> None:
        """Rows of (n, T) ports in every interval, where they are new: no load is above the largest."""
        for cell, mine in enumerate(self.by_cell):
            for port in ports[:, cell].tolist():
                weight = self.volume[port, self.plan.row[mine]] / self.length[cell]
                used = np.flatnonzero(weight)
                if len(used) and not self.known[port, cell]:
                    columns = [*mine[used].tolist(), self.largest]
                    self.session.add_row(-INFINITY, 0.0, columns, [*weight[used].tolist(), -1.0])
                self.known[port, cell] = True
