"""A just-in-time schedule as a solution file states it, and the data of its instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.jit import JitInstance
from flowlex.validation.certificates.jit.even_load_runs import Even
from flowlex.validation.certificates.jit.prices_and_windows import LevelProof
from flowlex.validation.certificates.jit.transfer_windows import TransferWindows, transfer_windows


@dataclass(frozen=True, eq=False)
class SchedulePart:
    """Some transfers (positions in the instance) that share no load with the others, and the proofs of their levels."""

    transfers: Integers
    proofs: tuple[LevelProof, ...]


@dataclass(frozen=True, eq=False)
class JitSchedule:
    """A schedule as stated in a solution file. R runs; slots count from the slot of the first arrival."""

    # share, share_of, load, lat, windows: Options of the model
    share: float
    load: str
    lat: str
    windows: str
    planned: Integers  # positions of the planned transfers in the instance's arrays
    # transfer, begin, end, amount: (R,) position, slots ``begin .. end - 1``, units, spread over these as evenly as
    # integers allow (see `Even`)
    transfer: Integers
    begin: Integers
    end: Integers
    amount: NDArray[Any]
    lateness: float  # units times the slots by which they arrive after their due slots
    integral: bool  # whether the amounts are stated as integers
    parts: tuple[SchedulePart, ...] = ()  # proofs; empty when nothing is claimed to be optimal
    share_of: str = "transfers"
    lowest: int = 1  # the lowest level that is proven; 1 when all are
    # if the levels are not proven: a proof that no schedule that is no later has a smaller largest load than the last
    # of its levels, or None
    least: SchedulePart | None = None
    # whether the goals after lateness and loads are stated: `flowlex.validation.certificates.jit.tie_break`
    ties: bool = False
    # whether the last part is proven elsewhere: `flowlex.validation.certificates.jit.user_written_rules`
    ruled: bool = False


class View:
    """The data of the instance that a schedule needs."""

    def __init__(self, instance: JitInstance, schedule: JitSchedule) -> None:
        self.instance, self.schedule = instance, schedule
        self.machines = len(instance.machines)
        self.windows: TransferWindows = transfer_windows(instance, schedule.lat)
        self.arrays = arrays = self.windows.columns
        self.port_most = np.concatenate([arrays.out_units, arrays.in_units])
        self.ports = (arrays.sender, arrays.receiver + self.machines)
        pair = arrays.sender * self.machines + arrays.receiver
        sides = {"pair": (pair,), "port": self.ports, "sender": self.ports[:1], "receiver": self.ports[1:]}
        self.groups: tuple[Integers, ...] = sides[schedule.load]
        self.load_most = self.port_most
        if schedule.load == "pair":
            self.load_most = np.minimum(arrays.out_units[:, None], arrays.in_units[None, :]).ravel()
        first = self.windows.due[schedule.transfer]
        begin = np.maximum(schedule.begin, first)
        length = np.maximum(schedule.end - begin, 0)
        slots = np.maximum(schedule.end - schedule.begin, 1)
        rate = schedule.amount // slots if schedule.integral else schedule.amount / slots
        # Slots begin .. end - 1 are begin + 1 - due, ..., end - due late: twice their mean. A remainder may be assigned
        # in either order of the slots, and in one of the two it is no later than the mean.
        uneven = (schedule.amount % slots != 0) if schedule.integral else length < 0
        twice = np.where(length > 0, begin + 1 + schedule.end - 2 * first, 0)
        self.twice_late = twice * np.where(uneven, schedule.amount, length * rate)
        self.open_lateness = uneven & (length > 0) & (length < slots)

    @classmethod
    def of(cls, instance: JitInstance, schedule: JitSchedule) -> View:
        """The view of a schedule, created once."""
        known: View | None = schedule.__dict__.get("_view")
        if known is None or known.instance is not instance:
            known = cls(instance, schedule)
            schedule.__dict__["_view"] = known
        return known

    def parts_apart(self) -> bool:
        part = np.full(len(self.arrays.job), -1)
        for number, each in enumerate(self.schedule.parts):
            part[each.transfers] = number
        planned = self.schedule.planned
        for group in self.groups:
            unit, inverse = np.unique(group[planned], return_inverse=True)
            low, high = np.full(len(unit), 1 << 62), np.full(len(unit), -1)
            np.minimum.at(low, inverse, part[planned])
            np.maximum.at(high, inverse, part[planned])
            if (low != high).any():
                return False
        return True

    def lateness(self, runs: NDArray[np.bool_] | slice = slice(None)) -> Any:
        """Lateness of some runs; rounded down for integer units, which one order of the slots achieves."""
        twice = self.twice_late[runs].sum()
        return twice // 2 if self.schedule.integral else twice / 2

    def even(self, group: Integers, runs: NDArray[np.bool_]) -> Even:
        """The chosen runs by the units of a group."""
        s = self.schedule
        return Even(group[s.transfer[runs]], s.begin[runs], s.end[runs], s.amount[runs])

    def loads(self, runs: NDArray[np.bool_]) -> tuple[NDArray[Any], Integers] | None:
        """Loads of the chosen runs, and their numbers of slots; None if remainders leave it open."""
        found = [self.even(group, runs).loads() for group in self.groups]
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            return None
        return np.concatenate([load for load, _ in known]), np.concatenate([width for _, width in known])
