"""A schedule whose transfers of one job and window go in step, with the least largest load among all such.

Transfers of one job that share a window (a coflow with a deadline) get rates in proportion to their sizes; then one
number per group and interval between neighbouring window ends says everything, and a small linear program finds the
least largest load. Any schedule needs at least `flowlex.models.jit.bounds.port_bound`; where the two meet, this one is
optimal among all schedules. Rates are those of a fluid: no slots and units.

Going in step is the MADD rule of coflow scheduling (Chowdhury, Zhong, Stoica, Varys, 2014); the program is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from flowlex.formulations.arrays import Floats, Integers
from flowlex.formulations.engines import solve
from flowlex.formulations.expression import Expression
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineName, SolveOptions
from flowlex.instances.jit import JitInstance
from flowlex.models.base import ModelError
from flowlex.models.jit.bounds import PortBound, port_bound
from flowlex.models.jit.latest_arrival import Rule, latest_arrival_times

__all__ = ["ProportionalPlan", "proportional_plan"]


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
    instance: JitInstance, lat: Rule = "critical", engine: EngineName = "highs", **options: Any
) -> ProportionalPlan:
    """The least largest load with every job's transfers of one window in step (see the module).

    Parameters
    ----------
    options
        See `flowlex.formulations.SolveOptions`.

    Raises
    ------
    ModelError
        The program was not solved (time ran out), or a transfer has no time.
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
    share = np.zeros(0)
    if len(row):
        program = _program(instance, group, edges, row, cell)
        outcome = solve(program, engine, SolveOptions(**options))
        if outcome.values is None:
            raise ModelError(f"no schedule was found: {outcome.message or outcome.status}; allow more time")
        share = np.maximum(outcome.values[: len(row)], 0.0)
        share /= np.bincount(row, weights=share)[row]
    return ProportionalPlan(instance, port_bound(instance, lat), group, edges, row, cell, share)


def _volumes(instance: JitInstance, group: Integers) -> Floats:
    """(2 M, G) MB of every group out of and into every machine."""
    arrays, machines = instance.arrays, len(instance.machines)
    volume = np.zeros((2 * machines, int(group.max(initial=-1)) + 1))
    np.add.at(volume, (arrays.sender, group), arrays.size_mb)
    np.add.at(volume, (arrays.receiver + machines, group), arrays.size_mb)
    return volume


def _program(instance: JitInstance, group: Integers, edges: Floats, row: Integers, cell: Integers) -> LinearProgram:
    """Minimise the largest load; one variable per group and interval."""
    machines, cells = instance.machines, len(edges) - 1
    rate = np.array([m.out_mbps for m in machines] + [m.in_mbps for m in machines]) / 8
    volume = _volumes(instance, group) / rate[:, None]
    port, entry = np.nonzero(volume[:, row])
    weight = volume[port, row[entry]] / np.diff(edges)[cell[entry]]
    place, number = np.unique(port * cells + cell[entry], return_inverse=True)
    program = LinearProgram(f"{instance.name}: in step")
    share = program.variables("share", len(row), upper=1.0)
    largest = program.variables("largest", 1)
    load = Expression(number, share.column[entry], weight, np.zeros(len(place)))
    program.constrain("largest_link", load - largest.repeated(len(place)).expression(), "<=", 0.0)
    program.constrain("size", share.sum_by(row), "==", 1.0)
    program.minimize(largest)
    return program
