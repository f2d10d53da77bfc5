r"""Latest arrival time of each transfer, so that no computation waits for it.

``critical`` (the default): the critical path. In a forward pass, a computation c can start at ::

    e(c) = max(e(b) + seconds(b) for b before c,  ready(i) + size(i) / min(B_out(a), B_in(b)) for i feeding c)

if every transfer is sent at full rate as soon as it is ready. A transfer that arrives by ``e(c)`` delays no
computation; a later one delays c. These times may be infeasible even for a single job if its transfers share a port;
then plan with elastic windows.

``paper``: algorithm 1 of Shi et al. 2021, with the gaps in its listing filled (docs/papers/jit-bandwidth.md).
``pred(i)`` are the transfers j whose computation has a path to c(i), ``comp(j, i)`` is the longest path of computation
from c(j) (included) to c(i) (excluded)::

    trans(i) = size(i) / min(B_out(a) / num(a), B_in(b) / num(b))
    l_i      = max over j in pred(i) of (l_j + comp(j, i) + trans(i)),   trans(i) if pred(i) is empty

a and b are sender and receiver; ``num`` counts the transfers of the job out of a and into b that the algorithm takes
in the same pass (its ReadySet: all of whose predecessors are done). ``paper-job``, another reading of ``num``, counts
all transfers of the job: each link of a chain then pays for all of them. The empty case is reconstructed: the listing
leaves it 0, which no schedule can meet. These rules ignore ``ready_s`` and computations before the first transfer.

With every rule, a transfer with its own deadline keeps it. A transfer whose data a computation produces (a gradient)
is ready when this computation ends, if all earlier transfers are on time; this computation precedes the one that the
transfer feeds. The paper has no such transfers; here their ``l_i`` is at least this time plus ``trans(i)``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.jit import JitInstance

Rule: TypeAlias = Literal["critical", "paper", "paper-job"]


@dataclass(frozen=True, eq=False)
class LatestArrival:
    """Latest arrival times of all transfers, in the order of the instance's arrays."""

    instance: JitInstance = field(repr=False)
    offset_s: Floats  # (F,) latest arrival, seconds from the job's arrival
    # (F,) duration of the transfer: at full rate, or by the paper's rules at its share of the slower port
    trans_s: Floats = field(repr=False)
    # (F,) start of the computation that it feeds, from the job's arrival, if all transfers are on time
    use_s: Floats = field(repr=False)
    # (F,) time when the data become available, from the job's arrival: the later of the instance's ``ready_s`` and the
    # end of the computation that produces them, if all transfers are on time
    ready_s: Floats = field(repr=False)
    # (F,) position of the transfer within its job, in topological order of the computations that the transfers feed
    rank: Integers = field(repr=False)

    @property
    def start_s(self) -> Floats:
        """(F,) earliest start as absolute time."""
        arrays = self.instance.arrays
        return np.asarray(arrays.arrival_s[arrays.job] + self.ready_s)

    @property
    def latest_s(self) -> Floats:
        """(F,) latest arrival as absolute time."""
        arrays = self.instance.arrays
        return np.asarray(arrays.arrival_s[arrays.job] + self.offset_s)

    def to_columns(self) -> dict[str, Any]:
        """One row per transfer: job, computation that it feeds, size, earliest start, latest arrival."""
        arrays = self.instance.arrays
        jobs = self.instance.jobs
        return {
            "job": [job.name for job in jobs for _ in job.transfers],
            "transfer": [f.name for job in jobs for f in job.transfers],
            "feeds": [f.feeds for job in jobs for f in job.transfers],
            "sender": [f.sender for job in jobs for f in job.transfers],
            "receiver": [f.receiver for job in jobs for f in job.transfers],
            "size_mb": arrays.size_mb,
            "start_s": self.start_s,
            "trans_s": self.trans_s,
            "latest_s": self.latest_s,
            "use_s": arrays.arrival_s[arrays.job] + self.use_s,
            "rank": self.rank,
        }


def latest_arrival_times(instance: JitInstance, rule: Rule = "critical") -> LatestArrival:
    """Latest arrival time of every transfer (see the module for the rules and their sources)."""
    arrays = instance.arrays
    trans = _transmission(instance, rule)
    position, offset, use, ready = _propagate(instance, trans, critical=rule == "critical")
    order = np.lexsort((np.arange(len(trans)), position[arrays.feeds], arrays.job))
    first = np.searchsorted(arrays.job, np.arange(len(instance.jobs)))
    rank = np.empty(len(trans), np.int64)
    rank[order] = np.arange(len(trans)) - first[arrays.job[order]] if len(trans) else 0
    return LatestArrival(instance, offset, trans, use, ready, rank)


def _transmission(instance: JitInstance, rule: Rule) -> Floats:
    """``trans(i)`` in seconds: at full rate (``critical``), or with each port shared by ``num`` transfers."""
    arrays = instance.arrays
    machines = len(instance.machines)
    rates = np.array([(m.out_mbps / 8, m.in_mbps / 8) for m in instance.machines])
    rate = np.full(len(arrays.job), np.inf)
    together = _passes(instance) if rule == "paper" else np.zeros(len(arrays.job), np.int64)
    for side, port in enumerate((arrays.sender, arrays.receiver)):
        key = (together * len(instance.jobs) + arrays.job) * machines + port
        number = 1 if rule == "critical" else np.bincount(key)[key]
        rate = np.minimum(rate, rates[port, side] / number)
    return np.asarray(arrays.size_mb / rate)


def _passes(instance: JitInstance) -> Integers:
    """(F,) the pass in which the paper's algorithm takes each transfer: the first after all its predecessors."""
    arrays = instance.arrays
    followers, order = _precedence(instance, makers(instance))
    feeds = np.bincount(arrays.feeds, minlength=len(followers)) > 0
    number = [0] * len(followers)
    for c in order:
        for follower in followers[c]:
            number[follower] = max(number[follower], number[c] + int(feeds[c]))
    return np.array(number, np.int64)[arrays.feeds]


def makers(instance: JitInstance) -> list[int]:
    """Index of the computation that produces the data of every transfer; -1 if none does."""
    found, first = [], 0
    for job in instance.jobs:
        number = {c.name: first + k for k, c in enumerate(job.computations)}
        found += [-1 if f.made_by is None else number[f.made_by] for f in job.transfers]
        first += len(job.computations)
    return found


def _precedence(instance: JitInstance, maker: list[int]) -> tuple[list[list[int]], list[int]]:
    """Computations that follow each one, or use data that it makes; and all of them in topological order."""
    arrays = instance.arrays
    made = [(tail, head) for tail, head in zip(maker, arrays.feeds.tolist(), strict=True) if tail >= 0]
    edges = sorted([*zip(arrays.tail.tolist(), arrays.head.tolist(), strict=True), *made], key=lambda edge: edge[1])
    followers: list[list[int]] = [[] for _ in range(len(arrays.computation_s))]
    left = [0] * len(followers)
    for tail, head in edges:
        followers[tail].append(head)
        left[head] += 1
    order = [c for c, count in enumerate(left) if count == 0]
    for c in order:
        for follower in followers[c]:
            left[follower] -= 1
            if not left[follower]:
                order.append(follower)
    return followers, order


def _propagate(instance: JitInstance, trans: Floats, *, critical: bool) -> tuple[Integers, Floats, Floats, Floats]:
    """Topological position of every computation; latest arrival, time of use, and ready time of every transfer."""
    arrays, maker = instance.arrays, makers(instance)
    followers, order = _precedence(instance, maker)
    count = len(followers)
    feeding: dict[int, list[int]] = {}
    for transfer, fed in enumerate(arrays.feeds.tolist()):
        feeding.setdefault(fed, []).append(transfer)
    given, ready = arrays.deadline_s.tolist(), arrays.ready_s.tolist()
    seconds, needs = arrays.computation_s.tolist(), trans.tolist()
    before = [0.0 if critical else -np.inf] * count
    latest, use = [0.0] * len(needs), [0.0] * len(needs)
    end = [0.0] * count  # of computations, if all transfers arrive in time
    for c in order:
        fed_by = feeding.get(c, ())
        starts = before[c]
        for i in fed_by:
            if maker[i] >= 0:
                ready[i] = max(ready[i], end[maker[i]])
        if critical:
            starts = max([starts, *(ready[i] + needs[i] for i in fed_by)])
        for i in fed_by:
            begins = max(before[c], ready[i] if maker[i] >= 0 else 0.0, 0.0)
            latest[i] = starts if critical else begins + needs[i]
            if given[i] == given[i]:  # not NaN: a deadline of its own
                latest[i] = given[i]
        used = max([starts, *(latest[i] for i in fed_by)])
        for i in fed_by:
            use[i] = used
        done = (starts if critical else used) + seconds[c]
        end[c] = max(end[c], used) + seconds[c]
        for follower in followers[c]:
            before[follower] = max(before[follower], done)
            end[follower] = max(end[follower], end[c])
    position = np.empty(count, np.int64)
    position[order] = np.arange(count)
    return position, np.array(latest), np.array(use), np.array(ready)
