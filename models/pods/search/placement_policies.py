"""Names of the policies that place pods one by one; `flowlex.models.pods.search.node_scoring` describes them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.pods import PodArrays
from flowlex.models.pods.problem.node_fill_state import Cluster

#: Name to number in `flowlex.models.pods.search.node_scoring`.
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
#: Policy with the least deviation of loads; not a baseline, but the initial placement of the balance.
EVEN = 8
#: Default requests of Kubernetes in scores: 0.1 cores, 200 MB.
_DEFAULT = (0.1, 200 / 1024)
#: Largest number of cached scores (kinds of pods times nodes).
_TABLE = 20_000_000


def workload(view: PodArrays) -> Floats:
    """(R, 5) kinds of pods: number, share of all pods, cores, memory (exact), cards."""
    rows, first = np.unique(view.load.row, return_index=True)
    count = np.bincount(view.load.row, minlength=len(rows)).astype(np.float64)
    exact = view.exact
    table = (rows, count / max(1.0, count.sum()), exact.cpu[first], exact.memory[first], view.gpu_cards[first])
    return np.stack([np.asarray(column, np.float64) for column in table], axis=1)


def in_order(level: Integers, *keys: Floats | Integers) -> Integers:
    """Pods with a level, sorted by level, then by descending keys, then as listed."""
    pods = np.flatnonzero(level >= 0)
    order: Integers = pods[np.lexsort((pods, *(-key[pods] for key in keys[::-1]), level[pods]))]
    return order


def by_priority(view: PodArrays) -> Integers:
    """Waiting pods, the most important first, then as listed."""
    _, level = np.unique(-view.priority, return_inverse=True)
    return in_order(np.where(view.running < 0, level, -1))


class Scores(NamedTuple):
    """Parameters of scores besides the placement, and cached scores. Sizes as in `SearchState`."""

    # whole, size: (N, 2) cores and memory of the empty nodes, (N,) memory of a card; exact
    whole: Integers
    size: Integers
    top: Floats  # (3,) the largest node's cores, memory and GPU memory
    kinds: Floats  # (T, 5) the workload, see `workload`
    default: Integers  # (2,) default requests of Kubernetes
    # cost, known, version: (R, N) cached scores, (R, N) node versions they belong to, (N,) present version of each
    # node, which every change increases
    cost: Floats
    known: NDArray[np.int32]
    version: NDArray[np.int32]
    total: Floats  # (1,) the sum of all loads

    @classmethod
    def of(cls, cluster: Cluster) -> Scores:
        """Make an empty cache; scores are cached only if the table is small enough."""
        view, exact = cluster.view, cluster.view.exact
        units = [_unit(sizes, held) for sizes, held in zip(exact.node.T, view.capacity.T[1:], strict=True)]
        rows, nodes = exact.gpu.table.shape[0], len(view.cards)
        rows_kept = rows if rows * nodes <= _TABLE else 1
        gpu = exact.card * view.cards
        return cls(
            exact.node,
            exact.card if cluster.cards else gpu,
            np.array([*np.maximum(exact.node.max(axis=0), 1), gpu.max()], np.float64),
            workload(view),
            np.array([round(asked * unit) for asked, unit in zip(_DEFAULT, units, strict=True)], np.int64),
            np.zeros((rows_kept, nodes)),
            np.zeros((rows_kept, nodes), np.int32),
            np.ones(nodes, np.int32),
            np.array([cluster.loads.sum()]),
        )


def _unit(exact: Integers, size: Floats) -> float:
    """Exact units per core or GB."""
    largest = int(size.argmax())
    return float(exact[largest] / size[largest])
