r"""Late jobs, tardiness and wait of a schedule, recomputed, and lower bounds on them from the instance.

A transfer arrives at the end of its last block; if the slots of that block are not fixed, at the earliest in its first
slot and at the latest in its last (`flowlex.models.jit.tie_break` defines the three goals). All three are NP-hard in
general, so the bounds relax them; a goal that meets its bound is optimal, any other is ``bounded``:

- *late jobs*: jobs with a transfer that is late even alone; and port by port, each job counted at one port only, the
  jobs that the Moore-Hodgson rule leaves late if all of a job's units there are due with the last of them.
- *tardiness*: port by port, the k-th completion of the shortest-remaining-processing-time rule is the earliest of any
  schedule; sorted completions against sorted due slots bound the sum from below (Chu 1992). The ports of all senders
  or of all receivers count, and at least the tardiness of every transfer alone.
- *wait*: only if nothing is late. In one slot, at most as many transfers end at a pair as its largest load (proven
  least), and at a port as its capacity; filling the slots from the last due slot back gives the least wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.jit.schedule import View
from flowlex.validation.certificates.jit.transfer_cells import together

#: Number of evenly chosen start slots from which late jobs at a port are counted.
_STARTS = 16

#: The goals after lateness and loads, in their order.
TIES = ("late_jobs", "tardiness", "wait")


def tie_figures(view: View) -> dict[str, int]:
    """Late jobs, tardiness and wait of a schedule, in slots."""
    s = view.schedule
    first, last = np.zeros((2, len(view.arrays.job)), np.int64)
    np.maximum.at(last, s.transfer, s.end)
    np.maximum.at(first, s.transfer, np.where(s.amount % (s.end - s.begin) == 0, s.end, s.begin + 1))
    due, at = view.windows.due, s.planned
    late, early = np.maximum(last - due, 0)[at], np.maximum(due - first, 0)[at]
    return dict(
        zip(TIES, (len(np.unique(view.arrays.job[at][late > 0])), int(late.sum()), int(early.sum())), strict=True)
    )


def tie_checks(view: View, largest: int | None) -> Iterator[Check]:
    """Check each goal against its lower bound; ``largest`` bounds the loads of equally good answers."""
    figures = tie_figures(view)
    jobs, tardiness, _ = figures.values()
    bounds = (_late_jobs_bound(view, jobs), _tardiness_bound(view, tardiness), _wait_bound(view, largest))
    for (name, value), bound in zip(figures.items(), bounds, strict=True):
        unit = "" if name == "late_jobs" else " slots"
        says = "proven least" if bound == value else f"bounded: at least {bound}"
        yield Check(f"{name.replace('_', ' ')} {value}{unit}, {says}", bound <= value, 0.0, str(bound))


def _alone(view: View) -> Integers:
    """(planned,) slots by which a transfer is late even alone."""
    at, w = view.schedule.planned, view.windows
    return np.asarray(np.maximum(w.start[at] - (-w.units[at] // w.most[at]) - w.due[at], 0))


def _late_jobs_bound(view: View, value: int) -> int:
    """Lower bound on the number of late jobs; the search ends at ``value``."""
    at = view.schedule.planned
    job = view.arrays.job[at]
    counted = set(job[_alone(view) > 0].tolist())
    total, found = len(counted), []
    if total >= value:
        return total
    for group in view.ports:
        for port in np.unique(group[at]).tolist():
            own = np.flatnonzero((group[at] == port) & ~np.isin(job, list(counted)))
            found.append((_moore(view, port, own, counted), port, own))
    for _, port, own in sorted(found, key=lambda each: -each[0]):
        bound = _moore(view, port, own, counted)
        if bound:
            total += bound
            counted |= set(job[own].tolist())
    return total


def _moore(view: View, port: int, own: Integers, counted: set[int]) -> int:
    """Lower bound on the number of late jobs at a port, among those not yet counted."""
    at, w = view.schedule.planned[own], view.windows
    job, limit, worst = view.arrays.job[at], int(view.port_most[port]), 0
    starts = np.unique(w.start[at])
    for first in starts[:: max(len(starts) // _STARTS, 1)].tolist():
        units: dict[int, int] = {}
        due: dict[int, int] = {}
        for j, s, d, u in zip(*(x.tolist() for x in (job, w.start[at], w.due[at], w.units[at])), strict=True):
            if s >= first and j not in counted:
                units[j] = units.get(j, 0) + u
                due[j] = max(due.get(j, 0), d)
        removed, total, heap = 0, 0, list[int]()
        for j in sorted(units, key=lambda j: due[j]):
            heapq.heappush(heap, -units[j])
            total += units[j]
            if total > limit * (due[j] - first):
                total += heapq.heappop(heap)
                removed += 1
        worst = max(worst, removed)
    return worst


def _tardiness_bound(view: View, value: int) -> int:
    """Lower bound on the total tardiness in slots; the search ends at ``value``."""
    at = view.schedule.planned
    alone = _alone(view)
    if alone.sum() >= value:
        return int(alone.sum())
    part = together(len(at), (view.ports[0][at], view.ports[1][at]))
    sums = np.zeros((2, int(part.max()) + 1), np.int64)
    for side, group in enumerate(view.ports):
        for port in np.unique(group[at]).tolist():
            own = np.flatnonzero(group[at] == port)
            sums[side, part[own[0]]] += max(int(alone[own].sum()), _sorted_tardiness(view, port, at[own]))
    return int(sums.max(axis=0).sum())


def _sorted_tardiness(view: View, port: int, at: Integers) -> int:
    """Lower bound on tardiness at a port: sorted earliest completions against sorted due slots."""
    w, limit = view.windows, int(view.port_most[port])
    waiting = sorted(zip(w.start[at].tolist(), w.units[at].tolist(), strict=True), reverse=True)
    now, heap, ends = 0, list[int](), list[int]()  # time in units that the port could have sent
    while waiting or heap:
        if not heap:
            now = max(now, waiting[-1][0] * limit)
        while waiting and waiting[-1][0] * limit <= now:
            heapq.heappush(heap, waiting.pop()[1])
        left, until = heapq.heappop(heap), waiting[-1][0] * limit if waiting else None
        if until is not None and now + left > until:
            heapq.heappush(heap, left - (until - now))
            now = until
            continue
        now += left
        ends.append(-(-now // limit))
    due = sorted(w.due[at].tolist())
    return sum(max(end - by, 0) for end, by in zip(sorted(ends), due, strict=True))


def _wait_bound(view: View, largest: int | None) -> int:
    """Lower bound on the total wait in slots; 0 if anything is late."""
    at, w = view.schedule.planned, view.windows
    if not len(at) or view.schedule.lateness:
        return 0
    pair = view.arrays.sender * view.machines + view.arrays.receiver
    most = w.most if largest is None or view.schedule.load != "pair" else np.minimum(w.most, largest)
    sides = ((pair, most), *((g, view.port_most[g]) for g in view.ports))
    return max(_crowded(group[at], limit[at], w.due[at]) for group, limit in sides)


def _crowded(group: Integers, limit: Integers, due: Integers) -> int:
    """Least total of slots between end and due slot if at most ``limit`` transfers of a group end in one slot."""
    total, order = 0, np.lexsort((-due, group))
    unit, slot, room = -1, 0, 0
    for g, most, by in zip(group[order].tolist(), limit[order].tolist(), due[order].tolist(), strict=True):
        if g != unit or by < slot:
            unit, slot, room = g, by, most
        if not room:
            slot, room = slot - 1, most
        total += by - slot
        room -= 1
    return total
