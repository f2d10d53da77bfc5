"""The assignment of tasks to machines, read off the flow; tasks stay where they run if the flow allows it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.network import ScheduleNetwork

__all__ = ["placements"]


def placements(schedule: ScheduleNetwork, instance: FlowInstance, flow: Integers) -> Integers:
    """(T,) number of each task's machine, -1 for none: the flow is cut into paths, first those of tasks that stay."""
    s, blocks = schedule, schedule.network.arc_blocks
    found = np.full(len(s.views), -1, np.int64)
    direct = s.ends["runs"][flow[blocks["runs"].slice] > 0]
    found[direct[:, 0]] = direct[:, 1]
    via = s.ends["via"][flow[blocks["via"].slice] > 0].tolist()
    #: Units from each group (number) to machines (number) and to other groups (-1 - number).
    units: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for name in ("offers", "single file", "blocks"):
        sent = flow[blocks[name].slice] if name in blocks else np.zeros(0, np.int64)
        for (group, head), count in zip(s.ends[name][sent > 0].tolist(), sent[sent > 0].tolist(), strict=True):
            units[group][head if name == "offers" else -1 - head] = count

    def path(group: int, machine: int | None) -> list[tuple[int, int]]:
        """Arcs with units left from a group to a machine, any one when None; empty where there are none."""
        for head in (*units[group],) if machine is None or machine not in units[group] else (machine,):
            if head >= 0 and machine in (None, head):
                return [(group, head)]
            if head < 0 and (rest := path(-1 - head, machine)):
                return [(group, head), *rest]
        return []

    def send(task: int, arcs: list[tuple[int, int]]) -> None:
        for group, head in arcs:
            units[group][head] -= 1
            if not units[group][head]:
                del units[group][head]
            found[task] = head

    at = {machine.name: m for m, machine in enumerate(instance.machines)}
    for task, group in via:
        if (own := s.views[task].machine) is not None and (arcs := path(group, at[own])):
            send(task, arcs)
    for task, group in via:
        if found[task] < 0:
            send(task, path(group, None))
    return found
