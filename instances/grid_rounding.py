"""Losses from rounding to a grid of slots and units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowlex.instances.array_types import Floats, Integers

#: Relative tolerance within which a quotient counts as an integer (0.3 / 0.1 is three units, not four).
WHOLE = 1e-9


@dataclass(frozen=True)
class Rounding:
    """Losses from rounding to the grid of slots and units."""

    # rate_lost_mbps, rate_lost_share: port rate lost because capacities are rounded down to integer units per slot,
    # over all ports
    rate_lost_mbps: float
    rate_lost_share: float
    machine: str  # the machine that loses the largest share (empty when none loses)
    # size_added_mb, size_added_share: volume added because sizes are rounded up to integer units, over all transfers
    size_added_mb: float
    size_added_share: float

    def __str__(self) -> str:
        rates = (
            f"port rates are rounded down to integer units a slot: {self.rate_lost_mbps:.6g} Mbit/s lost "
            f"in all ({self.rate_lost_share:.2%}), most at {self.machine!r}"
            if self.machine
            else "port rates are integer units a slot"
        )
        return (
            f"{rates}; sizes are rounded up to integer units: {self.size_added_mb:.6g} MB added "
            f"({self.size_added_share:.2%})"
        )


def whole_below(value: Floats | float) -> Integers:
    """The largest integers not above the values."""
    return np.asarray(np.floor(np.asarray(value) * (1 + WHOLE)), dtype=np.int64)


def whole_above(value: Floats) -> Integers:
    """The least integers not below the values."""
    return np.asarray(np.ceil(value * (1 - WHOLE)), dtype=np.int64)
