"""Classes of equal nodes and groups of equal pods, for bounds and patterns (exact; see `NodeClasses`).

The feasible patterns of a node depend on its capacity, labels, taints, cards and the pods that cannot leave it, so
nodes with the same data form one class. A node from which a pod may move away is its own class, because staying is
free only there. A placement over classes assigns a *pattern* (counts of pods by group) to each node of a class; nodes
of a class can exchange their patterns, so the aggregation is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.pods import PodInstance
from flowlex.models.pods.problem.cluster import stays
from flowlex.models.pods.problem.placement_columns import PlacementColumns, partition


@dataclass(frozen=True, eq=False)
class NodeClasses:
    """Classes of nodes that are equal except for their names. Sizes: N nodes, C classes."""

    of: Integers  # (N,) class of each node
    first: Integers  # (C,) one node of each class
    count: Integers  # (C,) nodes in each class

    @classmethod
    def of_instance(cls, instance: PodInstance, move_budget: float = 0.0) -> NodeClasses:
        """Partition the nodes into classes of equal nodes."""
        view = instance.arrays
        fixed = stays(view, move_budget)
        holds: dict[int, list[tuple[int, int]]] = {}
        for p in np.flatnonzero(view.running >= 0).tolist():
            at = int(view.running[p])
            # A pod that may leave makes this node its own class.
            here = (int(view.load.row[p]), int(view.home_cards[p])) if fixed[p] >= 0 else (-1 - at, 0)
            holds.setdefault(at, []).append(here)
        kinds = enumerate(view.load.column.tolist())
        return cls(*partition((kind, tuple(sorted(holds.get(n, ())))) for n, kind in kinds))


@dataclass(frozen=True, eq=False)
class Demand:
    """The pods that phase 2 has to place, in groups of equal pods. Sizes: G groups, C classes.

    Pods that cannot move are not included: they are the ``base`` of their class. If phase 1 admitted all pods of a
    level, the level does not matter any more, and equal pods of several such levels form one group.
    """

    classes: NodeClasses  # the node classes
    of: Integers  # (P,) group of each pod; -1 for pods that cannot move or fit nowhere
    pod: Integers  # (G,) one pod of each group
    # least, most: (G,) least and largest number of pods to place
    least: Integers
    most: Integers
    # Triples (groups, value of one pod of each, total value that must be placed)
    quota: tuple[tuple[Integers, Floats, int], ...]
    may: NDArray[np.bool_]  # (G, C) whether a group may use a class
    # load, move_cost: (G, C) load of one pod on a node, and its move cost there
    load: Floats
    move_cost: Floats
    # By class: the pods that cannot leave its first node; those of its other nodes are equal
    base: tuple[Integers, ...]
    base_load: Floats  # (C,) load of ``base``

    @classmethod
    def of_program(cls, instance: PodInstance, placeable: PlacementColumns, admitted: Sequence[int]) -> Demand:
        """Group the pods to place; ``admitted``: values fixed by phase 1, by level."""
        view, groups, levels = instance.arrays, placeable.groups, placeable.levels
        classes = NodeClasses.of_instance(instance, placeable.move_budget)
        fixed = stays(view, placeable.move_budget)
        allowed = np.zeros((len(groups.count), len(view.cards)), bool)
        allowed[placeable.pairs] = True
        free = np.flatnonzero((fixed[groups.first] < 0) & allowed.any(axis=1))
        level, worth = levels.of[groups.first], levels.worth[groups.first]
        all_of = groups.count[free] * worth[free]
        wanted = [int(all_of[level[free] == k].sum()) for k in range(len(levels.keys))]
        whole = {-1, *(k for k, total in enumerate(wanted) if admitted[k] >= total)}
        loose, pods = np.isin(level[free], list(whole)), groups.first[free]
        like = (view.load.row, view.running, view.home_cards, view.move_cost)
        kept = np.where(loose, -1, level[free]), np.where(loose, -1, worth[free])  # where priorities still matter
        columns = [*(column[pods] for column in like), *kept, loose]
        of, first, _ = partition(zip(*(column.tolist() for column in columns), strict=True))
        of_group = np.full(len(groups.count), -1)
        of_group[free] = of
        merged, pod_of = loose[first], pods[first]
        most = np.bincount(of, groups.count[free]).astype(np.int64)
        quota = []
        for k, total in enumerate(wanted):
            if k not in whole:
                members = np.flatnonzero(np.logical_not(merged) & (levels.of[pod_of] == k))
                quota.append((members, levels.worth[pod_of[members]].astype(np.float64), min(total, admitted[k])))
        may = allowed[np.ix_(groups.of[pod_of], classes.first)]
        home = np.where(view.running[pod_of] >= 0, classes.of[view.running[pod_of]], -1)
        cost = np.where(np.isfinite(view.move_cost[pod_of]), view.move_cost[pod_of], 0.0)
        base = tuple(np.flatnonzero(fixed == n) for n in classes.first.tolist())
        return cls(
            classes,
            of_group[groups.of],
            pod_of,
            np.where(merged, most, 0),
            most,
            tuple(quota),
            may,
            view.load[np.ix_(pod_of, classes.first)],
            np.where(home[:, None] == np.arange(len(classes.count)), 0.0, cost[:, None]),
            base,
            np.array([view.load[pods, n].sum() for pods, n in zip(base, classes.first.tolist(), strict=True)]),
        )

    def patterns(self, node: Integers) -> list[tuple[int, Integers]]:
        """Return (class, counts by group) of every node of a placement ((P,) nodes)."""
        table = np.zeros((len(self.classes.of), len(self.pod)), np.int64)
        placed = (node >= 0) & (self.of >= 0)
        np.add.at(table, (node[placed], self.of[placed]), 1)
        return list(zip(self.classes.of.tolist(), table, strict=True))

    def assign(self, chosen: dict[int, list[Integers]], fixed: Integers) -> Integers:
        """Assign patterns to nodes, and pods to patterns.

        ``chosen``: patterns by class, one for each node of the class. ``fixed``: (P,) node of the pods that cannot
        move, -1 for the others. Returns (P,) nodes, -1 for pods that exceed the counts of the patterns.
        """
        node = fixed.copy()
        waits = [np.flatnonzero(self.of == g).tolist()[::-1] for g in range(len(self.pod))]
        for k, patterns in chosen.items():
            for n, pattern in zip(np.flatnonzero(self.classes.of == k).tolist(), patterns, strict=True):
                for g in np.flatnonzero(pattern).tolist():
                    for _ in range(int(pattern[g])):
                        node[waits[g].pop()] = n
        return node
