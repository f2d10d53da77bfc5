r"""When must each transfer have arrived at the latest, so that no computation waits for it?

Algorithm 1 of Shi et al. 2021, with the gap in its listing filled (shared/papers/jit-bandwidth.md). Transfer i feeds
computation c(i). ``pred(i)`` are the transfers j whose computation has a path to c(i), ``comp(j, i)`` is the longest
path of computation from c(j) (included) to c(i) (excluded)::

    trans(i) = size(i) / min(B_out(a) / num(a), B_in(b) / num(b))
    l_i      = max over j in pred(i) of (l_j + comp(j, i) + trans(i)),   trans(i) if pred(i) is empty

a and b are sender and receiver, ``num`` the number of transfers of the same job out of a and into b. The empty case
is reconstructed: the listing leaves it 0, which no schedule can meet. A transfer with a deadline of its own keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.expression import Floats, Integers
from flowlex.instances.jit import JitInstance

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LatestArrival", "latest_arrival_times"]


@dataclass(frozen=True, eq=False)
class LatestArrival:
    """Latest arrival times of all transfers, in the order of the instance's arrays.

    Attributes
    ----------
    offset_s
        (F,) latest arrival, seconds from the job's arrival.
    trans_s
        (F,) time the transfer takes at its share of the slower port.
    waits_s
        (N,) per computation: the latest time, from the job's arrival, at which the transfers and computations
        before it are done; minus infinity where no transfer comes before it.
    rank
        (F,) place of the transfer among those of its job, in topological order of the computations they feed.
    """

    instance: JitInstance = field(repr=False)
    offset_s: Floats
    trans_s: Floats = field(repr=False)
    waits_s: Floats = field(repr=False)
    rank: Integers = field(repr=False)

    @property
    def latest_s(self) -> Floats:
        """(F,) latest arrival as absolute time."""
        arrays = self.instance.arrays
        return np.asarray(arrays.arrival_s[arrays.job] + self.offset_s)

    def to_frame(self) -> pd.DataFrame:
        """One row per transfer: job, what it feeds, size, earliest start, latest arrival."""
        import pandas as pd

        arrays = self.instance.arrays
        jobs = self.instance.jobs
        return pd.DataFrame(
            {
                "job": [job.name for job in jobs for _ in job.transfers],
                "transfer": [f.name for job in jobs for f in job.transfers],
                "feeds": [f.feeds for job in jobs for f in job.transfers],
                "sender": [f.sender for job in jobs for f in job.transfers],
                "receiver": [f.receiver for job in jobs for f in job.transfers],
                "size_mb": arrays.size_mb,
                "start_s": arrays.start_s,
                "trans_s": self.trans_s,
                "latest_s": self.latest_s,
                "rank": self.rank,
            }
        )


def latest_arrival_times(instance: JitInstance) -> LatestArrival:
    """Latest arrival time of every transfer (see the module for the rule and its source).

    One pass over the computations in topological order: with ``waits(c)`` the largest ``l_j + comp(j, .)`` over the
    transfers before c, the maximum over all predecessors is ``waits(c(i)) + trans(i)``.
    """
    arrays = instance.arrays
    trans = _transmission(instance)
    position, waits, latest = _propagate(instance, trans)
    order = np.lexsort((np.arange(len(trans)), position[arrays.feeds], arrays.job))
    first = np.searchsorted(arrays.job, np.arange(len(instance.jobs)))
    rank = np.empty(len(trans), np.int64)
    rank[order] = np.arange(len(trans)) - first[arrays.job[order]] if len(trans) else 0
    return LatestArrival(instance, latest, trans, waits, rank)


def _transmission(instance: JitInstance) -> Floats:
    """``trans(i)``, seconds."""
    arrays = instance.arrays
    machines = len(instance.machines)
    rates = np.array([(m.out_mbps / 8, m.in_mbps / 8) for m in instance.machines])
    share = np.full(len(arrays.job), np.inf)
    for side, port in enumerate((arrays.sender, arrays.receiver)):
        key = arrays.job * machines + port
        number = np.bincount(key, minlength=len(instance.jobs) * machines)[key]
        share = np.minimum(share, rates[port, side] / number)
    return np.asarray(arrays.size_mb / share)


def _propagate(instance: JitInstance, trans: Floats) -> tuple[Integers, Floats, Floats]:
    """Topological position and ``waits`` of every computation, and ``l_i`` of every transfer."""
    arrays = instance.arrays
    count = len(arrays.computation_s)
    followers: list[list[int]] = [[] for _ in range(count)]
    for tail, head in zip(arrays.tail.tolist(), arrays.head.tolist(), strict=True):
        followers[tail].append(head)
    feeding: dict[int, list[int]] = {}
    for transfer, fed in enumerate(arrays.feeds.tolist()):
        feeding.setdefault(fed, []).append(transfer)
    due = (arrays.deadline_s - arrays.arrival_s[arrays.job]).tolist()
    seconds, needs = arrays.computation_s.tolist(), trans.tolist()
    waits = [-np.inf] * count
    latest = [0.0] * len(needs)
    left = np.bincount(arrays.head, minlength=count).tolist()
    order = [c for c in range(count) if left[c] == 0]
    for c in order:
        before = done = waits[c]
        for i in feeding.get(c, ()):
            own = due[i] == due[i]  # NaN: no deadline of its own
            latest[i] = due[i] if own else max(before, 0.0) + needs[i]
            done = max(done, latest[i])
        done += seconds[c]
        for follower in followers[c]:
            if done > waits[follower]:
                waits[follower] = done
            left[follower] -= 1
            if not left[follower]:
                order.append(follower)
    position = np.empty(count, np.int64)
    position[order] = np.arange(count)
    return position, np.array(waits), np.array(latest)
