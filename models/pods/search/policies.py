"""Policies that place pods one by one, by name; what each does stands in `flowlex.models.pods.search.scoring`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.arrays import Floats, Integers
from flowlex.instances.pods import PodArrays
from flowlex.models.pods.problem.cluster import Cluster
from flowlex.models.pods.search.state import SearchState

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["EVEN", "POLICIES", "by_priority", "place_by", "workload"]

#: Name to number in `place_all`.
POLICIES = {
    "first-fit": 0,
    "best-fit": 1,
    "dot-product": 2,
    "gpu-clustering": 3,
    "gpu-packing": 4,
    "fgd": 5,
    "kubernetes": 6,
    "random": 7,
}
#: Places where loads become least uneven; no baseline, but a start for the balance.
EVEN = 8
#: Requests that Kubernetes scores where a pod makes none: 0.1 cores, 200 MB.
_DEFAULT = (0.1, 200 / 1024)


def workload(view: PodArrays) -> Floats:
    """(R, 5) kinds of pods: number, share of all pods, cores, memory (exact), cards."""
    rows, first = np.unique(view.load.row, return_index=True)
    count = np.bincount(view.load.row, minlength=len(rows)).astype(np.float64)
    exact = view.exact
    table = (rows, count / max(1.0, count.sum()), exact.cpu[first], exact.memory[first], view.gpu_cards[first])
    return np.stack([np.asarray(column, np.float64) for column in table], axis=1)


def by_priority(view: PodArrays, *keys: Floats | Integers) -> Integers:
    """The pods to be placed, the most important first, then by falling keys, then as listed."""
    fresh = np.flatnonzero(view.running < 0)
    order: Integers = fresh[np.lexsort((fresh, *(-key[fresh] for key in keys[::-1]), -view.priority[fresh]))]
    return order


def place_by(policy: int, start: Cluster, pods: Sequence[int] | Integers, *, seed: int = 0) -> Cluster:
    """Place pods in this order; those that fit nowhere wait."""
    from flowlex.models.pods.search.scoring import place_all

    view, state = start.view, SearchState.of(start)
    units = [_unit(exact, size) for exact, size in zip(view.exact.node.T, view.capacity.T[1:], strict=True)]
    default = np.array([round(asked * unit) for asked, unit in zip(_DEFAULT, units, strict=True)], np.int64)
    exact, rng = view.exact, np.random.default_rng(seed)
    place_all(state, policy, np.asarray(pods, np.int64), exact.node, exact.card, workload(view), default, rng)
    return state.cluster(start)


def _unit(exact: Integers, size: Floats) -> float:
    """Exact units per core or GB."""
    largest = int(size.argmax())
    return float(exact[largest] / size[largest])
