"""A load partition recomputed from its instance, in exact arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.load import LoadPartitionArrays
from flowlex.validation.certificates.certificate import Check

__all__ = ["check_makespan", "check_partition", "check_targets"]

Integers = NDArray[np.int64]


def check_partition(view: LoadPartitionArrays, share: Integers, after: Integers, cost: int) -> tuple[Check, ...]:
    """Every item is processed once, loads add up, and the moved cost is what the moves cost.

    Parameters
    ----------
    share
        (B, N) items of each block that each node processes.
    after
        (N,) load claimed.
    cost
        Microseconds claimed.
    """
    once = np.abs(share.sum(axis=1) - view.count)
    loads = np.abs(share.sum(axis=0) - after)
    moved = sum(
        int(share[b, n]) * int(min(view.cost[h, n] for h in np.flatnonzero(view.holds[b])))
        for b, n in zip(*np.nonzero(share), strict=True)
        if not view.holds[b, n]
    )
    return (
        Check("no negative share", bool((share >= 0).all()), int(max(0, -share.min(initial=0)))),
        Check("every item is processed once", not once.any(), int(once.max(initial=0))),
        Check("loads are the sums of shares", not loads.any(), int(loads.max(initial=0))),
        Check("moved cost", moved == cost, abs(moved - cost), f"{moved} microseconds, claimed {cost}"),
    )


def check_targets(capacity: Sequence[Fraction], total: int, targets: Integers) -> tuple[Check, ...]:
    """Targets are those of largest remainders: no node lost an item to one with a smaller remainder."""
    exact = list(capacity)
    whole = sum(exact)
    worst = max(
        (abs(Fraction(int(t)) - c / whole * total) for t, c in zip(targets, exact, strict=True)), default=Fraction(0)
    )
    left = [(c / whole * total - int(t), i) for i, (t, c) in enumerate(zip(targets, exact, strict=True))]
    # Rounded up where negative: by how much more than its quota; ties go to the earlier node.
    down = max(((x, -i) for x, i in left if x > 0), default=None)
    up = min(((x + 1, -i) for x, i in left if x < 0), default=None)
    envy = "" if down is None or up is None or down <= up else f"node {-down[1]} before node {-up[1]}"
    return (
        Check("targets sum to the items", int(targets.sum()) == total, abs(int(targets.sum()) - total)),
        Check("targets are rounded quotas", worst < 1, float(worst)),
        Check("no larger remainder was passed over", not envy, detail=envy),
    )


def check_makespan(capacity: Sequence[Fraction], total: int, after: Integers) -> tuple[Check, ...]:
    """No partition of whole items finishes earlier: before that time the nodes cannot process them all."""
    exact = list(capacity)
    idle = [i for i, c in enumerate(exact) if c == 0 and after[i]]
    finish = max((Fraction(int(n)) / c for n, c in zip(after, exact, strict=True) if c), default=Fraction(0))
    # The most whole items a node ends strictly before ``finish``.
    earlier = sum(max(0, -(-(c * finish).numerator // (c * finish).denominator) - 1) for c in exact)
    return (
        Check("no node of capacity zero has items", not idle, len(idle)),
        Check("no partition finishes earlier", earlier < total or total == 0, 0, f"{earlier} of {total} items before"),
    )
