"""The live network with tasks that must run on different machines (`FlowJob.different_machines`).

Groups of such tasks (`Spot.once`) reach a machine by an arc of capacity 1. As soon as two groups with one name reach
the same machine, a vertex goes between, so that all pass it in single file. This is exact, whatever each task costs
on each machine; it takes an arc per group and machine of the cluster, and a vertex per machine that some of the tasks
reach by an arc of their own (data, explicit costs, or because they run there).
"""

from __future__ import annotations

from flowlex.formulations.arrays import Integers
from flowlex.models.flow.arc_costs import only_machine, single_file
from flowlex.models.flow.goals.base import ClusterView, Spot
from flowlex.models.flow.live.exclusion_groups import AllButNetwork
from flowlex.models.flow.live.network_parts import GroupNode, Session

__all__ = ["ApartNetwork"]


class ApartNetwork(AllButNetwork):
    """Groups with ``once`` pass every machine in single file."""

    def __init__(self, session: Session, cluster: ClusterView) -> None:
        super().__init__(session, cluster)
        self.apart: dict[str, dict[Spot, None]] = {}  # groups by their ``once``
        self._reach: dict[tuple[str, str], dict[Spot, None]] = {}  # groups by ``once`` and machine they reach

    def set_slots(self, name: str, slot_costs: list[tuple[int, int]]) -> None:
        """Set a machine's slots; what is in single file stays so."""
        super().set_slots(name, slot_costs)
        for spot in self.machines[name].groups:
            if spot.once:
                self._route(spot, name)

    def remove_machine(self, name: str) -> None:
        """Take a machine out; tasks must not have arcs of their own to it any more."""
        for spot in self.machines[name].groups:
            if spot.once:
                self._reach.pop((spot.once, name), None)
        super().remove_machine(name)

    def forget(self, once: str) -> None:
        """Drop the groups of a name whose tasks are all out."""
        for spot in self.apart.pop(once, {}):
            group = self.groups.pop(spot)
            self._stirred.pop(group, None)
            for name, arc in group.arcs.items():
                self._drop_arc(arc)
                del self.machines[name].groups[spot]
                self._reach.pop((once, name), None)
            self.session.remove_node(group.node)

    def _group(self, spot: Spot) -> GroupNode:
        group = self.groups.get(spot)
        if group is not None:
            return group
        if spot.once:
            self.apart.setdefault(spot.once, {})[spot] = None
        return super()._group(spot)

    def _link(self, group: GroupNode, name: str) -> None:
        spot = group.spot
        if not spot.once:
            super()._link(group, name)
            return
        single = single_file(name, spot.once)
        present = self._reach.setdefault((spot.once, name), {})
        if present and spot != single and single not in self.groups:
            self._group(single)
        group.arcs[name] = self._new_arc(group.node, self._head(spot, name), 1, 0, (group, name))
        self.machines[name].groups[spot] = None
        self._spare(group, name)
        if spot == single:
            for other in present:
                self._route(other, name)
        present[spot] = None

    def _head(self, spot: Spot, name: str) -> int:
        single = single_file(name, spot.once)
        through = self.groups.get(single)
        return self.machines[name].node if through is None or spot == single else through.node

    def _route(self, spot: Spot, name: str) -> None:
        group = self.groups[spot]
        self.session.change_arc(group.arcs[name], group.node, self._head(spot, name), 1, 0)

    def _assign(self, group: GroupNode, flow: Integers, before: dict[str, str | None]) -> None:
        machine = only_machine(group.spot) if group.spot.once else None
        if machine is None:
            super()._assign(group, flow, before)
            return
        group.spare.clear()  # its flow to the machine may be that of another group
        loose, group.loose = group.loose, {}
        for name in loose:
            before.setdefault(name, self.tasks[name].machine)
            self._hold(group, machine, name)
