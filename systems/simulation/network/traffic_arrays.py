"""Traffic as arrays: transfers between ports, their coflows, and the computations that produce and use the data.

A transfer may start when its job has arrived, its data are ready and the computation that produces them (if any) is
done. A computation starts when the transfers that feed it have arrived and its predecessors are done. The transfers of
a job form one coflow; a file copy is a coflow of its own.

Rates are MB/s (a port of 1000 Mbit/s sends 125 MB/s), sizes MB (10**6 bytes), times seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.instance_base import read_only
from flowlex.instances.jit import JitInstance
from flowlex.models.jit.latest_arrival import makers

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Traffic:
    """M machines, F transfers (copies last), C coflows, N computations, E edges, J jobs."""

    machines: tuple[str, ...]
    # out_rate, in_rate: (M,) rate of the ports, MB/s
    out_rate: Floats
    in_rate: Floats
    # sender, receiver, coflow: (F,) machine, machine, coflow
    sender: Ints
    receiver: Ints
    coflow: Ints
    # size_mb, ready_s: (F,) size; earliest start (absolute), regardless of the computation that produces the data
    size_mb: Floats
    ready_s: Floats
    # made_by, feeds: (F,) computation that produces the data, and the one that waits for them; -1 for none
    made_by: Ints
    feeds: Ints
    copy: NDArray[np.bool_]  # (F,) whether it is a background copy
    transfer_names: tuple[str, ...] = field(repr=False)
    coflow_names: tuple[str, ...] = field(repr=False)
    coflow_arrival_s: Floats  # (C,) when the coflow becomes known
    job: Ints  # (N,) job of each computation; jobs are the first J coflows
    seconds: Floats  # (N,) duration of each computation
    # tail, head: (E,) edges tail -> head between computations
    tail: Ints
    head: Ints
    # the instance of the traffic, if any; the just-in-time policy plans on it
    instance: JitInstance | None = field(default=None, repr=False)

    @classmethod
    def of(cls, instance: JitInstance) -> Traffic:
        """Return the jobs and copies of an instance as traffic."""
        arrays, copies = instance.arrays, instance.copies
        place = {machine.name: k for k, machine in enumerate(instance.machines)}
        jobs, none = len(instance.jobs), np.full(len(copies), -1)
        arrival = [c.arrival_s for c in copies]
        return read_only(
            cls(
                machines=tuple(machine.name for machine in instance.machines),
                out_rate=np.array([m.out_mbps / 8 for m in instance.machines]),
                in_rate=np.array([m.in_mbps / 8 for m in instance.machines]),
                sender=_join(arrays.sender, [place[c.sender] for c in copies]),
                receiver=_join(arrays.receiver, [place[c.receiver] for c in copies]),
                coflow=_join(arrays.job, range(jobs, jobs + len(copies))),
                size_mb=np.concatenate([arrays.size_mb, [c.size_mb for c in copies]]),
                ready_s=np.concatenate([arrays.start_s, arrival]),
                made_by=_join(np.array(makers(instance), np.int64), none),
                feeds=_join(arrays.feeds, none),
                copy=np.arange(len(arrays.job) + len(copies)) >= len(arrays.job),
                transfer_names=instance.transfer_names + tuple(c.name for c in copies),
                coflow_names=tuple(job.name for job in instance.jobs) + tuple(c.name for c in copies),
                coflow_arrival_s=np.concatenate([arrays.arrival_s, arrival]),
                job=arrays.computation_job,
                seconds=arrays.computation_s,
                tail=arrays.tail,
                head=arrays.head,
                instance=instance,
            )
        )

    @property
    def count(self) -> int:
        """Number of transfers."""
        return len(self.sender)

    @property
    def jobs(self) -> int:
        """Number of jobs; coflows from here on are copies."""
        return len(self.coflow_names) - int(self.copy.sum())

    @cached_property
    def ports(self) -> Floats:
        """(2M,) rates of all ports: out of every machine, then into every machine."""
        return np.concatenate([self.out_rate, self.in_rate])

    @cached_property
    def alone_s(self) -> Floats:
        """(C,) time that a coflow needs alone on its busiest port if all its data are ready on arrival."""
        machines, count = len(self.machines), len(self.coflow_names)
        longest = np.zeros(count)
        for port, rate in ((self.sender, self.out_rate), (self.receiver, self.in_rate)):
            keys, at = np.unique(self.coflow * machines + port, return_inverse=True)
            load = np.bincount(at, weights=self.size_mb)
            np.maximum.at(longest, keys // machines, load / rate[keys % machines])
        return longest

    @cached_property
    def due_s(self) -> Floats:
        """(F,) deadline of each transfer's arrival in the instance; NaN if it has none."""
        due = np.full(self.count, np.nan)
        if self.instance is not None:
            arrays = self.instance.arrays
            due[: len(arrays.job)] = arrays.arrival_s[arrays.job] + arrays.deadline_s
        return due


def _join(first: Ints, second: object) -> Ints:
    return np.concatenate([first, np.asarray(list(second), dtype=np.int64)])  # type: ignore[call-overload]
