"""The data of proofs about schedules of transfers: prices, and when transfers may be sent."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Integers

#: The "level" of the proof that total lateness is least.
LATENESS = -1
#: Sums stay below this, so that 64 bits suffice in every order of summation.
SAFE = 2.0**61
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Prices:
    """Prices of loads or ports: ``unit`` (its number), slots ``begin .. end - 1``, price per unit sent.

    For lateness, ports may have another price in the ``last`` slot; between the two it is linear.
    """

    unit: Integers = field(default_factory=lambda: _NONE)
    begin: Integers = field(default_factory=lambda: _NONE)
    end: Integers = field(default_factory=lambda: _NONE)
    price: Integers = field(default_factory=lambda: _NONE)
    last: Integers = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.last is None:
            object.__setattr__(self, "last", self.price)


@dataclass(frozen=True, eq=False)
class LevelProof:
    """Prices that bound ``N_level`` (or the total lateness) from below for one part."""

    level: int
    lam: Integers  # (transfers of the part,) price of sending one unit
    # load, port: `Prices`; a pair is ``sender * machines + receiver``, a port ``machine``, or ``machines + machine``
    # inwards
    load: Prices
    port: Prices = field(default_factory=Prices)
    scale: int = 1  # the integer that stands for a price of 1
    mu: dict[int, int] = field(default_factory=dict)  # price by level, for higher levels whose own bound left a gap
    nu: int = 0  # price of total lateness
    # bound of an integer program, if duality leaves a gap; quoted, not recomputed
    solver_bound: float | None = None


@dataclass(frozen=True, eq=False)
class Allowed:
    """When transfers may be sent."""

    # row, begin, end: (P,) transfer (of the part) and slots; those of one transfer do not overlap
    row: Integers
    begin: Integers
    end: Integers
    # until, open_end: (F',) end of its last piece; whether it may be sent at any later time too
    until: Integers
    open_end: NDArray[np.bool_]
    full: Prices  # ports that are full in some slots (with price 1, which has no meaning)
    latest: int  # prices of later slots are refused


def greatest(values: Integers) -> float:
    """Largest absolute value, as a float, since that of the smallest 64-bit integer exceeds 64 bits."""
    return float(np.abs(values.astype(float)).max(initial=0.0))
