"""The transfers of a just-in-time instance on the grid of slots and units, as the models see them.

A start is rounded up to a slot, a latest arrival time down, a size up to whole units. A window that is long enough
in real time, but not on the grid, is widened to the fewest slots in which the transfer fits, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.expression import Integers
from flowlex.instances.jit import WHOLE, JitInstance
from flowlex.models.base import ModelError
from flowlex.models.jit.latest_arrival import LatestArrival, latest_arrival_times

__all__ = ["Grid", "GridCost", "Load", "Runs", "Windows", "make_grid"]

Load: TypeAlias = Literal["pair", "port"]
Windows: TypeAlias = Literal["strict", "elastic"]


@dataclass(frozen=True, eq=False)
class Runs:
    """Rows of consecutive slots, numbered through: row k is slots ``first[k] .. last[k] - 1``.

    Attributes
    ----------
    offset
        (rows + 1,) number of the first entry of each row.
    row, slot
        (entries,) of every entry.
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
        """Numbers of the entries at these rows and slots (which must lie inside)."""
        return np.asarray(self.offset[row] + slot - self.first[row])


@dataclass(frozen=True)
class GridCost:
    """What the grid costs the transfers of the plan.

    Attributes
    ----------
    start_delay_s, latest_cut_s
        Mean time lost at the start and at the end of a window.
    added_mb
        Volume added by rounding sizes up.
    widened
        Number of windows widened because the grid left too few slots.
    widened_slots
        Slots by which they were widened, in all.
    """

    start_delay_s: float
    latest_cut_s: float
    added_mb: float
    widened: int
    widened_slots: int


@dataclass(frozen=True, eq=False)
class Grid:
    """Transfers of the plan on the grid. F transfers, M machines.

    Attributes
    ----------
    transfer
        (F,) position in the instance's arrays.
    rest
        Positions of the transfers left to the background (beyond the share).
    sender, receiver, units
        (F,).
    start, stop
        (F,) window: slots ``start .. stop - 1``.
    due
        (F,) latest arrival time rounded down; ``stop - due`` above 0 is how far the window was widened.
    cap
        (F,) most units of the transfer in one slot: the smaller of its two ports.
    out_units, in_units
        (M,) capacity of the ports.
    """

    instance: JitInstance = field(repr=False)
    latest: LatestArrival = field(repr=False)
    transfer: Integers
    rest: Integers
    sender: Integers
    receiver: Integers
    units: Integers
    start: Integers
    stop: Integers
    due: Integers
    cap: Integers
    out_units: Integers
    in_units: Integers

    @property
    def count(self) -> int:
        """Number of transfers."""
        return len(self.transfer)

    @property
    def horizon(self) -> int:
        """End of the last window, in slots."""
        return int(self.stop.max(initial=0))

    @cached_property
    def columns(self) -> Runs:
        """One row per transfer: the slots of its window."""
        return Runs(self.start, self.stop)

    @cached_property
    def pair(self) -> Integers:
        """(F,) number of the transfer's (sender, receiver)."""
        key = self.sender * len(self.out_units) + self.receiver
        return np.asarray(np.unique(key, return_inverse=True)[1])

    def groups(self, load: Load) -> tuple[Integers, ...]:
        """The loads a transfer counts towards: its pair, or its two ports (ingress after egress)."""
        return (self.pair,) if load == "pair" else (self.sender, self.receiver + len(self.out_units))

    def units_of_load(self, load: Load) -> int:
        """Number of pairs or of ports."""
        return int(self.pair.max(initial=-1)) + 1 if load == "pair" else 2 * len(self.out_units)

    def name(self, k: int) -> str:
        """``job/transfer`` of the plan's transfer k."""
        return self.instance.transfer_names[int(self.transfer[k])]

    def names(self, which: Integers | NDArray[np.bool_], shown: int = 4) -> str:
        """Names of some transfers, for a message."""
        chosen = np.arange(self.count)[which]
        text = ", ".join(repr(self.name(k)) for k in chosen[:shown].tolist())
        return text if len(chosen) <= shown else f"{text} and {len(chosen) - shown} more"

    def cost(self) -> GridCost:
        """What the grid costs."""
        arrays, slot = self.instance.arrays, self.instance.slot_s
        widened = np.maximum(self.stop - self.due, 0)
        size = arrays.size_mb[self.transfer]
        return GridCost(
            start_delay_s=_mean(self.start * slot - arrays.start_s[self.transfer]),
            latest_cut_s=_mean(self.latest.latest_s[self.transfer] - self.due * slot),
            added_mb=float(np.maximum(self.units * self.instance.unit_mb - size, 0).sum()),
            widened=int((widened > 0).sum()),
            widened_slots=int(widened.sum()),
        )


def make_grid(instance: JitInstance, share: float = 1.0, windows: Windows = "strict") -> Grid:
    """Put the first ``share`` of every job's transfers (topological order, rounded up) on the grid.

    Raises
    ------
    ModelError
        With strict windows: a window is shorter than its transfer takes at full rate (named).
    """
    latest = latest_arrival_times(instance)
    arrays = instance.arrays
    number = np.bincount(arrays.job, minlength=len(instance.jobs))
    kept = latest.rank < np.ceil(share * number - 1e-9)[arrays.job]
    chosen = np.flatnonzero(kept)
    sender, receiver, units = arrays.sender[chosen], arrays.receiver[chosen], arrays.size_units[chosen]
    cap = np.minimum(arrays.out_units[sender], arrays.in_units[receiver])
    start = _ceil(arrays.start_s[chosen] / instance.slot_s)
    due = _floor(latest.latest_s[chosen] / instance.slot_s)
    if windows == "strict":
        _refuse_short(instance, latest, chosen)
    return Grid(
        instance=instance,
        latest=latest,
        transfer=chosen,
        rest=np.flatnonzero(~kept),
        sender=sender,
        receiver=receiver,
        units=units,
        start=start,
        stop=np.maximum(due, start - (-units // cap)),
        due=due,
        cap=cap,
        out_units=arrays.out_units,
        in_units=arrays.in_units,
    )


def _refuse_short(instance: JitInstance, latest: LatestArrival, chosen: Integers) -> None:
    """Refuse a window that real time, not the grid, makes too short."""
    arrays = instance.arrays
    rates = np.array([(m.out_mbps / 8, m.in_mbps / 8) for m in instance.machines])
    full = np.minimum(rates[arrays.sender[chosen], 0], rates[arrays.receiver[chosen], 1])
    window = latest.latest_s[chosen] - arrays.start_s[chosen]
    needs = arrays.size_mb[chosen] / full
    short = needs > window * (1 + 1e-6) + 1e-9
    if short.any():
        k = int(np.argmax(short))
        name = instance.transfer_names[int(chosen[k])]
        raise ModelError(
            f"transfer {name!r} needs {needs[k]:.6g} s at full rate, its window is {max(window[k], 0):.6g} s "
            f"(and {int(short.sum()) - 1} more like it); give it more time, or pass windows='elastic' to accept the "
            "least total lateness"
        )


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0


def _ceil(value: NDArray[np.float64]) -> Integers:
    return np.asarray(np.ceil(value - WHOLE * np.maximum(1, np.abs(value))), dtype=np.int64)


def _floor(value: NDArray[np.float64]) -> Integers:
    return np.asarray(np.floor(value + WHOLE * np.maximum(1, np.abs(value))), dtype=np.int64)
