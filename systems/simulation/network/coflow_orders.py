"""Orders of coflows and of a job's transfers.

`bottleneck_select_scale_iterate` is Sincronia's primal-dual order (Agarwal et al., SIGCOMM 2018, algorithm 1).
`tic` and `tac` are TicTac's (Hashemi et al., MLSys 2019, algorithms 2 and 3): the DAG alone, or with times.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowlex.systems.simulation.network.traffic_arrays import Floats, Ints, Traffic


def bottleneck_select_scale_iterate(load: Floats, weight: ArrayLike | None = None) -> Ints:
    """Order coflows by Sincronia's primal-dual algorithm.

    ``load``: (coflows, ports) seconds that each needs at each port. ``weight``: (coflows,) weights of completion times;
    equal by default. Returns (coflows,) row numbers in order of service. Built from last to first: at the most loaded
    port, the coflow with the least weight per load goes last; this ratio times their load is taken off other weights.

    Examples
    --------
    >>> bottleneck_select_scale_iterate(np.array([[3.0, 0.0], [1.0, 1.0], [0.0, 2.0]])).tolist()
    [1, 2, 0]
    """
    count = len(load)
    left = np.ones(count) if weight is None else np.array(weight, dtype=np.float64)
    total, waiting = load.sum(axis=0), np.ones(count, np.bool_)
    order = np.zeros(count, np.int64)
    for place in range(count - 1, -1, -1):
        here = load[:, int(total.argmax())]
        used = waiting & (here > 0)
        if not used.any():  # nothing left to send: any order
            used, here = waiting, np.ones(count)
        price = np.where(used, left / np.where(used, here, 1.0), np.inf)
        last = int(len(price) - 1 - price[::-1].argmin())  # of ties, the later one goes last
        order[place] = last
        waiting[last] = False
        left = np.where(waiting, np.maximum(left - price[last] * here, 0.0), left)
        total = np.maximum(total - load[last], 0.0)
    return order


@dataclass(frozen=True)
class Needs:
    """The transfers that a job's computations wait for, directly or through others. Hashable, as a cache key."""

    packed: bytes  # rows of bits, one per set of transfers that some computation waits for
    seconds: tuple[float, ...]  # seconds of computation that wait for exactly each of the sets
    transfers: int  # number of transfers

    @classmethod
    def of(cls, waits: NDArray[np.bool_], seconds: Floats) -> Needs:
        """Join computations (rows) that wait for the same transfers."""
        rows = [row.tobytes() for row in np.packbits(waits, axis=1)]
        total = dict.fromkeys(sorted(rows), 0.0)
        for row, time in zip(rows, seconds.tolist(), strict=True):
            total[row] += time
        return cls(b"".join(total), tuple(total.values()), waits.shape[1])

    @property
    def waits(self) -> NDArray[np.bool_]:
        """(sets, transfers)."""
        packed = np.frombuffer(self.packed, np.uint8).reshape(len(self.seconds), -1)
        return np.unpackbits(packed, axis=1, count=self.transfers).astype(np.bool_)


def needs_of_job(traffic: Traffic, job: int) -> tuple[Ints, Needs]:
    """Return the transfers that feed a job's computations, and the needs of its computations."""
    own = np.flatnonzero(traffic.job == job)
    place = {int(c): k for k, c in enumerate(own)}
    transfers = np.flatnonzero((traffic.coflow == job) & ~traffic.copy)
    waits = np.zeros((len(own), len(transfers)), np.bool_)
    for k, feeds in enumerate(traffic.feeds[transfers].tolist()):
        if feeds >= 0:
            waits[place[feeds], k] = True
    after: list[list[int]] = [[] for _ in own]
    left = np.zeros(len(own), np.int64)
    inside = np.flatnonzero(np.isin(traffic.head, own))
    for tail, head in zip(traffic.tail[inside].tolist(), traffic.head[inside].tolist(), strict=True):
        after[place[tail]].append(place[head])
        left[place[head]] += 1
    ready = [k for k in range(len(own)) if not left[k]]
    for k in ready:
        for follower in after[k]:
            waits[follower] |= waits[k]
            left[follower] -= 1
            if not left[follower]:
                ready.append(follower)
    return transfers, Needs.of(waits, traffic.seconds[own])


def tic(needs: Needs) -> Ints:
    """Order transfers by the least number that a computation with several needs in all (M+), smallest first.

    Ties, which the source leaves open, are ordered by the least number that any computation needs.
    """
    waits, number = needs.waits, needs.waits.sum(axis=1).astype(np.float64)
    several = number > 1
    return np.lexsort((_impending(waits, number), _impending(waits[several], number[several])))


@lru_cache(maxsize=64)
def tac(needs: Needs, times: tuple[float, ...]) -> tuple[int, ...]:
    """Order transfers by their times and those of computations (Johnson's rule, applied one by one).

    A goes before B if ``min(P_B, M_A) < min(P_A, M_B)``: M is the time of the transfer, P that of the computation which
    waits only for it; ties go to the least impending time (M+).
    """
    waits, count = needs.waits, len(times)
    if len(waits) == 1:  # a shuffle: every transfer is needed at the same time
        return tuple(range(count))
    seconds, time = np.array(needs.seconds), np.array(times)
    outstanding, missing = waits @ time, waits.sum(axis=1)
    order, waiting = np.zeros(count, np.int64), np.ones(count, np.bool_)
    for place in range(count):
        single = missing == 1
        alone = seconds[single] @ (waits[single] & waiting)
        impending = _impending(waits[missing > 1], outstanding[missing > 1])
        best = -1
        for k in np.flatnonzero(waiting).tolist():
            if best < 0 or _before(k, best, alone, time, impending):
                best = k
        order[place] = best
        waiting[best] = False
        missing = missing - waits[:, best]
        outstanding = outstanding - waits[:, best] * time[best]
    return tuple(order.tolist())


def _impending(waits: NDArray[np.bool_], outstanding: Floats) -> Floats:
    """(transfers,) least total need of a computation that waits for this transfer."""
    return np.asarray(np.where(waits, outstanding[:, None], np.inf).min(axis=0, initial=np.inf))


def _before(a: int, b: int, alone: Floats, times: Floats, impending: Floats) -> bool:
    first, second = min(alone[b], times[a]), min(alone[a], times[b])
    return bool(first < second) if first != second else bool(impending[a] < impending[b])
