"""The transfers of a just-in-time instance on the grid of slots and units.

Starts are rounded up to slots, latest arrival times down, and sizes up to integer units. A window with too few slots is
widened to the smallest number in which the transfer fits, and counted. Slots are numbered from the slot of the first
arrival; starts and given deadlines are read as exact decimals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.block_labels import label_text
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.exact_rationals import rational
from flowlex.instances.grid_rounding import WHOLE
from flowlex.instances.jit import JitInstance
from flowlex.models.jit.latest_arrival import LatestArrival, Rule, latest_arrival_times
from flowlex.models.model_base import ModelError

Load: TypeAlias = Literal["pair", "port", "sender", "receiver"]
Windows: TypeAlias = Literal["strict", "elastic"]
ShareOf: TypeAlias = Literal["transfers", "bytes"]

#: A slot after all others.
NEVER = 1 << 60


@dataclass(frozen=True, eq=False)
class Runs:
    """Rows of consecutive cells with numbered entries: row k has the cells ``first[k] .. last[k] - 1``.

    ``offset``: (rows + 1,) number of the first entry of each row. ``row``, ``slot``: (entries,) row and cell of each.
    """

    first: Integers
    last: Integers

    @cached_property
    def offset(self) -> Integers:
        return np.concatenate([[0], np.cumsum(self.last - self.first)])

    @cached_property
    def row(self) -> Integers:
        return np.repeat(np.arange(len(self.first)), self.last - self.first)

    @cached_property
    def slot(self) -> Integers:
        return np.asarray(np.arange(self.count) - self.offset[self.row] + self.first[self.row])

    @property
    def count(self) -> int:
        """Number of entries."""
        return int(self.offset[-1])

    def entry(self, row: Integers, slot: Integers) -> Integers:
        """Numbers of the entries at these rows and slots (which must exist)."""
        return np.asarray(self.offset[row] + slot - self.first[row])


@dataclass(frozen=True, eq=False)
class Loads:
    """The loads of a plan, numbered from 0: what the units of some transfers in a slot add up to."""

    level: str  # of their labels in the statement
    groups: tuple[Integers, ...]  # (F,) number of the load of each transfer; several if it counts towards several
    most: Integers  # largest units in a slot
    label: Callable[[int], str]  # by number
    ends: Mapping[str, Integers]  # further labels of each load, by level: positions among the labels of the level
    #: Whether every plan over intervals can be cut into slots of equal loads, as of pairs and ports; the programs of
    #: other loads are solved slot by slot, as they are stated.
    cut: bool = False

    @property
    def count(self) -> int:
        return len(self.most)


@dataclass(frozen=True, eq=False)
class Grid:
    """Planned transfers on the grid. F transfers, M machines."""

    instance: JitInstance = field(repr=False)
    latest: LatestArrival = field(repr=False)
    origin: int  # number, counted from time 0, of the grid's slot 0: the slot of the first arrival
    transfer: Integers  # (F,) position in the instance's arrays
    rest: Integers  # positions of the transfers outside the share, which are background traffic
    sender: Integers  # (F,)
    receiver: Integers  # (F,)
    units: Integers  # (F,)
    # (F,) window: slots ``start .. stop - 1``
    start: Integers
    stop: Integers
    due: Integers  # (F,) latest arrival time rounded down; the grid widened the window by ``stop - due`` slots
    firm: Integers  # (F,) deadline that holds even for elastic windows; `NEVER` if there is none
    cap: Integers  # (F,) upper bound on units in a slot: the smaller capacity of its two ports
    # (M,) capacities of the ports, units a slot
    out_units: Integers
    in_units: Integers
    #: Slots that elastic windows of a statement have beyond the end of every schedule of least lateness.
    extra_slots: int = 0

    @property
    def count(self) -> int:
        """Number of transfers."""
        return len(self.transfer)

    @property
    def horizon(self) -> int:
        """End of the last window, in slots."""
        return int(self.stop.max(initial=0))

    @cached_property
    def pair(self) -> Integers:
        """(F,) number of the transfer's (sender, receiver)."""
        key = self.sender * len(self.out_units) + self.receiver
        return np.asarray(np.unique(key, return_inverse=True)[1])

    @cached_property
    def _first_of_pair(self) -> Integers:
        return np.unique(self.pair, return_index=True)[1]

    def loads(self, load: Load) -> Loads:
        """What the option ``load`` counts. Ports are numbered: egress of all machines, then ingress."""
        machines, count = self.instance.machines, len(self.out_units)
        if load == "pair":
            first = self._first_of_pair
            ends = {"sender": self.sender[first], "receiver": self.receiver[first]}

            def link(k: int) -> str:
                return f"{machines[ends['sender'][k]].name}>{machines[ends['receiver'][k]].name}"

            return Loads("link", (self.pair,), self.cap[first], link, ends, cut=True)
        port, sides = np.arange(2 * count), (self.sender, self.receiver + count)
        groups = {"port": sides, "sender": sides[:1], "receiver": sides[1:]}[load]
        most = np.concatenate([self.out_units, self.in_units])
        return Loads(
            "port",
            groups,
            most,
            lambda k: f"{machines[k % count].name} {('out', 'in')[k // count]}",
            {"machine": port % count, "side": port // count},
            cut=True,
        )

    def level_count(self, load: Load) -> int:
        """Highest level that a load can reach, by the capacity of its ports and by its total units."""
        loads = self.loads(load)
        units = np.zeros(loads.count, np.int64)
        for group in loads.groups:
            np.add.at(units, group, self.units)
        return int(np.minimum(loads.most, units).max(initial=0))

    def widened_slots(self, which: Integers) -> Integers:
        """Slots by which windows of some transfers were widened; they differ in lateness."""
        late, stop = np.maximum(self.due[which], self.start[which]), self.stop[which]
        wide = np.flatnonzero(late < stop)
        return np.concatenate([np.zeros(0, np.int64), *(np.arange(late[k], stop[k]) for k in wide.tolist())])

    def seconds(self, slot: Integers) -> NDArray[np.float64]:
        """Start times of slots in seconds, on the clock of the instance."""
        return np.asarray((slot + self.origin) * self.instance.slot_s)

    @cached_property
    def full_rate_s(self) -> NDArray[np.float64]:
        """(F,) seconds of each transfer at full rate."""
        rates = np.array([(m.out_mbps / 8, m.in_mbps / 8) for m in self.instance.machines])
        return np.asarray(
            self.instance.arrays.size_mb[self.transfer] / np.minimum(rates[self.sender, 0], rates[self.receiver, 1])
        )

    @cached_property
    def too_short(self) -> NDArray[np.bool_]:
        """(F,) whether the window in real time is shorter than the transfer at full rate."""
        window = (self.latest.offset_s - self.latest.ready_s)[self.transfer]
        return np.asarray(self.full_rate_s > window * (1 + 1e-6) + 1e-9)

    def name(self, k: int) -> str:
        """``job/transfer`` of the plan's transfer k."""
        return self.instance.transfer_names[int(self.transfer[k])]

    def names(self, which: Integers | NDArray[np.bool_], shown: int = 4) -> str:
        """Names of some transfers, for a message."""
        chosen = np.arange(self.count)[which]
        text = ", ".join(repr(self.name(k)) for k in chosen[:shown].tolist())
        return text if len(chosen) <= shown else f"{text} and {len(chosen) - shown} more"

    @property
    def inflation(self) -> float:
        """Planned bytes divided by real bytes; it exceeds 1 because sizes are rounded up to units of ``unit_mb``."""
        size = float(self.instance.arrays.size_mb[self.transfer].sum())
        return float(self.units.sum()) * self.instance.unit_mb / size if size else 1.0

    @property
    def widened(self) -> int:
        """Number of windows that were widened because the grid left too few slots."""
        return int((self.stop > self.due).sum())


def make_grid(
    instance: JitInstance,
    share: float = 1.0,
    windows: Windows = "strict",
    lat: Rule = "critical",
    share_of: ShareOf = "transfers",
    extra_slots: int = 0,
) -> Grid:
    """Put the first ``share`` of every job's transfers (topological order, rounded up) on the grid.

    With strict windows, raises `ModelError` with the name of a transfer that full rate cannot finish in its window.
    """
    latest = latest_arrival_times(instance, lat)
    arrays = instance.arrays
    kept = _first_share(instance, latest, share, share_of)
    chosen = np.flatnonzero(kept)
    sender, receiver, units = arrays.sender[chosen], arrays.receiver[chosen], arrays.size_units[chosen]
    cap = np.minimum(arrays.out_units[sender], arrays.in_units[receiver])
    origin, start, due, firm = _slots(instance, latest)
    start, due, firm = start[chosen], due[chosen], firm[chosen]
    grid = Grid(
        instance=instance,
        latest=latest,
        origin=origin,
        transfer=chosen,
        rest=np.flatnonzero(~kept),
        sender=sender,
        receiver=receiver,
        units=units,
        start=start,
        stop=np.maximum(due, start - (-units // cap)),
        due=due,
        firm=firm,
        cap=cap,
        out_units=arrays.out_units,
        in_units=arrays.in_units,
        extra_slots=extra_slots,
    )
    if windows == "strict":
        _refuse_short(grid)
    _refuse_firm(grid)
    return grid


def _first_share(instance: JitInstance, latest: LatestArrival, share: float, share_of: ShareOf) -> NDArray[np.bool_]:
    """(F,) whether a transfer is planned: the shortest prefix of every job's order with the share."""
    arrays = instance.arrays
    weight = arrays.size_mb if share_of == "bytes" else np.ones(len(arrays.job))
    order = np.lexsort((latest.rank, arrays.job))
    sums = np.cumsum(weight[order])
    total = np.bincount(arrays.job, weights=weight, minlength=len(instance.jobs))
    first = np.concatenate([[0.0], np.cumsum(total)])[:-1][arrays.job[order]]
    before = np.empty(len(weight))
    before[order] = sums - weight[order] - first
    return np.asarray(before < (share * total - WHOLE * (1 + total))[arrays.job])


def _slots(instance: JitInstance, latest: LatestArrival) -> tuple[int, Integers, Integers, Integers]:
    """Return the origin slot, and the first slot, due slot and firm end of every transfer.

    Times given in the instance are exact; latest arrivals computed from a DAG are floats from the job's arrival.
    """
    arrays, slot = instance.arrays, rational(instance.slot_s)
    arrival = [rational(job.arrival_s) / slot for job in instance.jobs]
    origin = min((value // 1 for value in arrival), default=0)
    whole = np.array([value // 1 - origin for value in arrival], np.int64)
    part = [value % 1 for value in arrival]
    near = Fraction(1, 10**9)
    job = arrays.job.tolist()
    starts: dict[tuple[int, float], int] = {}
    ends: dict[tuple[int, float], int] = {}
    given = (arrays.deadline_s.tolist(), arrays.firm_s.tolist())
    for j, ready, *lasts in zip(job, latest.ready_s.tolist(), *given, strict=True):
        if (j, ready) not in starts:
            starts[j, ready] = -((near - part[j] - rational(ready) / slot) // 1)
        for last in lasts:
            if last == last and (j, last) not in ends:
                ends[j, last] = (part[j] + rational(last) / slot + near) // 1
    start = np.array([starts[key] for key in zip(job, latest.ready_s.tolist(), strict=True)], np.int64)
    steps = latest.offset_s / instance.slot_s
    due = (
        np.floor(np.array([float(p) for p in part])[arrays.job] + steps + WHOLE * np.maximum(1, steps))
        if job
        else start
    )
    due = np.asarray(due, np.int64)
    firm = np.full(len(job), NEVER)
    for end, seconds in ((due, arrays.deadline_s), (firm, arrays.firm_s)):
        at = np.flatnonzero(~np.isnan(seconds))
        end[at] = [ends[job[k], float(seconds[k])] for k in at.tolist()]
    return int(origin), start + whole[arrays.job], due + whole[arrays.job], firm + whole[arrays.job]


def _refuse_short(grid: Grid) -> None:
    """Raise `ModelError` if a window is too short in real time, independent of the grid."""
    if grid.too_short.any():
        k = int(np.argmax(grid.too_short))
        at = int(grid.transfer[k])
        window = grid.latest.offset_s[at] - grid.latest.ready_s[at]
        raise ModelError(
            f"transfer {grid.name(k)!r} needs {grid.full_rate_s[k]:.6g} s at full rate, its window is "
            f"{max(window, 0):.6g} s (and {int(grid.too_short.sum()) - 1} more like it); give it more time, or pass "
            "windows='elastic' to accept the least total lateness"
        )


def _refuse_firm(grid: Grid) -> None:
    """Raise `ModelError` if a firm end leaves too few slots even at full rate."""
    short = grid.firm < grid.start - (-grid.units // grid.cap)
    if short.any():
        k = int(np.argmax(short))
        needed, slots = int(-(-grid.units[k] // grid.cap[k])), int(grid.firm[k] - grid.start[k])
        raise ModelError(
            f"transfer {grid.name(k)!r} needs {needed} slots at full rate, its firm_s leaves {max(slots, 0)}; raise "
            "firm_s, or leave it out"
        )


def run_label(name: str, begin: int, end: int) -> str:
    """Label of the slots ``begin .. end - 1`` of a port or load, such as ``m1,3`` or ``m1,3..7``."""
    return label_text((name, begin if end == begin + 1 else f"{begin}..{end - 1}"))
