"""Max-min fair rates by progressive filling; all disks, links, uplinks and ports are shared in this way.

All rates increase together until a resource is full; the flows through it are frozen and the others increase further
(Bertsekas and Gallager, Data Networks, section 6.5).
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.deferred_compilation import njit

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@njit(cache=True)
def fill(paths: Any, weight: Any, free: Any) -> Any:
    """Max-min fair rates of flows that share resources.

    ``paths``: (n, width) distinct resources of each item, padded with -1. ``weight``: (n,) integers: number of
    identical flows that an item represents. ``free``: (resources,) free capacity, updated in place. Returns (n,) rate
    of each flow of an item. An item without resources gets an infinite rate.
    """
    n, width = paths.shape
    amount, first = np.zeros(len(free), np.int64), np.zeros(len(free) + 1, np.int64)
    for k in range(n):
        for i in range(width):
            if paths[k, i] >= 0:
                amount[paths[k, i]] += weight[k]
                first[paths[k, i] + 1] += 1
    for p in range(len(free)):
        first[p + 1] += first[p]
    item, at = np.empty(first[-1], np.int64), first.copy()
    for k in range(n):
        for i in range(width):
            p = paths[k, i]
            if p >= 0:
                item[at[p]] = k
                at[p] += 1
    rate = np.full(n, np.inf)
    # The level at which a resource is full never decreases, so an outdated one in the heap is a lower bound.
    levels = [(max(free[p] / amount[p], 0.0), p) for p in range(len(free)) if amount[p]]
    heapify(levels)
    while levels:
        old, p = heappop(levels)
        if not amount[p]:
            continue
        level = max(free[p] / amount[p], 0.0)
        if level > old:
            heappush(levels, (level, p))
            continue
        for j in range(first[p], first[p + 1]):
            k = item[j]
            if rate[k] == np.inf:
                rate[k] = level
                for i in range(width):
                    q = paths[k, i]
                    if q >= 0:
                        free[q] = max(free[q] - level * weight[k], 0.0)
                        amount[q] -= weight[k]
        free[p] = 0.0
    return rate


def max_min_rates(paths: Integers, capacity: Floats) -> Floats:
    """Return fair rates of single flows, see `fill`; ``capacity`` is not changed.

    Examples
    --------
    >>> max_min_rates(np.array([[0, -1], [0, 1]]), np.array([3.0, 1.0])).tolist()
    [2.0, 1.0]
    """
    chosen = np.ascontiguousarray(paths, np.int64)
    return np.asarray(fill(chosen, np.ones(len(chosen), np.int64), np.array(capacity, np.float64)))
