"""Who runs where, read off the flow: tasks of a group are told apart, and stay where they ran if they can."""

from __future__ import annotations

from collections import defaultdict

from flowlex.formulations.arrays import Integers
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.exclusion_groups import Block, base_of, hand_out
from flowlex.models.flow.goals.base import ClusterView, Spot
from flowlex.models.flow.network import ScheduleNetwork

__all__ = ["placements"]

Pool = int | Spot


def placements(schedule: ScheduleNetwork, instance: FlowInstance, flow: Integers) -> dict[str, str]:
    """Machine by running task, in the order of the instance."""
    s, blocks = schedule, schedule.network.arc_blocks
    machines, names = instance.machines, [task.name for task in instance.tasks]
    place = {names[t]: machines[m].name for t, m in s.runs[flow[blocks["runs"].slice] > 0].tolist()}
    members: dict[Pool, dict[str, Spot | Block]] = defaultdict(dict)
    for t, g in s.via[flow[blocks["via"].slice] > 0].tolist():
        members[_pool(s, g)][names[t]] = s.groups[g]
    room = _room(schedule, instance, flow)
    before = {task.name: task.running.machine for task in instance.tasks if task.running is not None}
    cluster = ClusterView()
    for machine in machines if any(isinstance(pool, Spot) for pool in members) else ():
        cluster.add(machine)
    for pool, inside in members.items():
        free, held = room[pool], defaultdict[str, list[str]](list)

        def fits(task: str, machine: str, pool: Pool = pool, inside: dict[str, Spot | Block] = inside) -> bool:
            target = inside[task]
            return isinstance(pool, int) or (isinstance(target, Spot) and cluster.meets(machine, target))

        for task in inside:
            at = before.get(task, "")
            if free.get(at, 0) and fits(task, at):
                free[at] -= 1
                held[at].append(task)
        kept = {task: at for at, those in held.items() for task in those}
        rest = [task for task in inside if task not in kept]
        if isinstance(pool, int):
            found = dict(zip(rest, (m for m, units in free.items() for _ in range(units)), strict=True))
        else:
            found = hand_out(rest, free, held, fits)
        place |= kept | found
    return {name: place[name] for name in names if name in place}


def _pool(schedule: ScheduleNetwork, group: int) -> Pool:
    """Groups that leave something out of the same machines share their places; another group has its own."""
    spot = schedule.groups[group]
    if isinstance(spot, Block):
        return spot.base
    base = base_of(spot)
    return group if base is None else base


def _room(schedule: ScheduleNetwork, instance: FlowInstance, flow: Integers) -> dict[Pool, dict[str, int]]:
    """Tasks that each pool sends to each machine."""
    s, blocks = schedule, schedule.network.arc_blocks
    room: dict[Pool, dict[str, int]] = defaultdict(dict)
    sent = flow[blocks["offers"].slice]
    for (g, m), units in zip(s.offers[sent > 0].tolist(), sent[sent > 0].tolist(), strict=True):
        mine, name = room[_pool(s, g)], instance.machines[m].name
        mine[name] = mine.get(name, 0) + units
    if len(s.singles):  # a group that is one machine in single file: what others send through is theirs
        for g, single in s.singles[flow[blocks["single file"].slice] > 0].tolist():
            room[g][next(iter(room.pop(single)))] = 1
    return room
