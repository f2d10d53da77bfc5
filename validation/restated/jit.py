"""Just-in-time bandwidth read again from the data fields of an instance: names, ends, sizes and ports of transfers.

Nothing here comes from the arrays of the instance or from `flowlex.instances.grid_rounding`, which models use. A wrong
unit, capacity or index there is refused by the certificates, which read theirs here.

A transfer of ``size_mb`` is sent in units of ``unit_mb``, rounded up; a port carries ``mbps / 8 * slot_s`` MB a slot,
rounded down to units. A quotient within `NEAR` of an integer, relatively, counts as that integer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.jit import JitInstance

NEAR = 1e-9


@dataclass(frozen=True, eq=False)
class JitColumns:
    """Transfers (F) in the order of jobs, and machines (M) in the order of the document."""

    names: tuple[str, ...]  # ``job/transfer``
    job: NDArray[np.int64]
    sender: NDArray[np.int64]
    receiver: NDArray[np.int64]
    size_mb: NDArray[np.float64]
    size_units: NDArray[np.int64]
    # (M,) units a slot
    out_units: NDArray[np.int64]
    in_units: NDArray[np.int64]

    @classmethod
    def of(cls, instance: JitInstance) -> JitColumns:
        """Read an instance."""
        number = {machine.name: m for m, machine in enumerate(instance.machines)}
        each = [(j, job.name, transfer) for j, job in enumerate(instance.jobs) for transfer in job.transfers]
        size = np.array([transfer.size_mb for _, _, transfer in each], np.float64)

        def capacity(mbps: Iterable[float]) -> NDArray[np.int64]:
            units = np.array(list(mbps), np.float64) * instance.slot_s / 8 / instance.unit_mb
            return np.floor(units + NEAR * units).astype(np.int64)

        def numbers(values: Iterable[int]) -> NDArray[np.int64]:
            return np.array(list(values), np.int64)

        return cls(
            tuple(f"{job}/{transfer.name}" for _, job, transfer in each),
            numbers(j for j, _, _ in each),
            numbers(number[transfer.sender] for _, _, transfer in each),
            numbers(number[transfer.receiver] for _, _, transfer in each),
            size,
            np.ceil(size / instance.unit_mb * (1 - NEAR)).astype(np.int64),
            capacity(machine.out_mbps for machine in instance.machines),
            capacity(machine.in_mbps for machine in instance.machines),
        )
