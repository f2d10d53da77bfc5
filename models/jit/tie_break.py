"""Tie-breaking among schedules of equal lateness and loads: fewest late jobs, least tardiness, then least wait.

There are three goals, in slots; a transfer arrives at the end of the last slot in which it is sent. If a block is not
expanded to slots (too many slots), each goal is its largest possible value:

``late_jobs``
    Jobs with a planned transfer that arrives after its due slot.
``tardiness``
    Sum over the planned transfers of the slots by which they arrive after their due slots. Arriving before the due slot
    is no gain.
``wait``
    Sum over the planned transfers of the slots between arrival and due slot (the planned use in the DAG), 0 if late.

All three are hard in general. With one unit due in the first slot per port of a job, the largest number of jobs on time
is a maximum set packing. With unit ports, sizes and starts, least tardiness is minimum-sum edge colouring of a
bipartite graph. So this is a heuristic: it orders the slots of an interval, redistributes every pair's slots among its
transfers (which changes no load), and reschedules small overloaded groups in other orders. A result is accepted only if
lateness and all loads stay equal. The certificate recomputes the three values and lower bounds on them
(`flowlex.validation.certificates.jit.tie_break`); a goal that attains its bound is proven optimal, any other is
``bounded``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Integers
from flowlex.models.jit.baselines import fill
from flowlex.models.jit.interval_schedules import Blocks, load_counts, overfull
from flowlex.models.jit.presolve import components
from flowlex.models.jit.transfer_sequencing import Pair
from flowlex.models.jit.transfer_slot_grid import Grid, Load, Windows
from flowlex.models.jit.unit_rounding import share_runs

#: Largest total number of slots of blocks that are expanded to slots.
_MOST_SLOTS = 10_000
#: Largest number of transfers of a group that is rescheduled in other orders.
_GROUP = 60

#: Late jobs, tardiness and wait.
Goals: TypeAlias = tuple[int, int, int]


def tie_stages(grid: Grid, blocks: Blocks) -> dict[str, float | int]:
    """The three goals of a schedule, by name."""
    first = np.zeros(grid.count, np.int64)
    np.maximum.at(first, blocks.item, np.where(blocks.steady, blocks.end, blocks.begin + 1))
    jobs, tardiness, _ = _goals(grid, _arrivals(grid, blocks))
    return {"late_jobs": jobs, "tardiness": tardiness, "wait": _goals(grid, first)[2]}


def break_ties(grid: Grid, blocks: Blocks, load: Load, windows: Windows) -> Blocks:
    """Return a schedule with equal lateness and loads that is lexicographically no worse in the three goals."""
    if not grid.count or not blocks.whole:
        return blocks
    best = _in_order(grid, blocks, load)
    last = grid.stop if windows == "strict" else grid.firm
    if (_arrivals(grid, best) > grid.due).any():
        best = _rescheduled(grid, best, load, last)
    return _dealt_anew(grid, best, last)


def _in_order(grid: Grid, blocks: Blocks, load: Load) -> Blocks:
    """Make blocks steady: remainders are sent in the last slots of a block unless it is late.

    Blocks stay unchanged if a port has no capacity for that.
    """
    before = load_counts(grid, blocks, load)

    def same(tried: Blocks) -> bool:
        if load != "pair" and not tried.steady.all():
            return False  # unsteady blocks need one constant load in all their slots
        return all(np.array_equal(a, b) for a, b in zip(before, load_counts(grid, tried, load), strict=True))

    found, fixed = _late_cut(grid, blocks), np.zeros(grid.count, np.bool_)
    over = overfull(grid, found)
    if over[0].any() or over[1].any() or not same(found):
        found = blocks
    for _ in range(3):
        tried = _extras_last(grid, found, fixed)
        over = overfull(grid, tried)
        if not over[0].any() and not over[1].any():
            return _rest_cut(grid, tried if same(tried) else found)
        fixed |= over[0][grid.sender] | over[1][grid.receiver]
    return _rest_cut(grid, found)


def _rest_cut(grid: Grid, blocks: Blocks) -> Blocks:
    """Expand all unsteady blocks to slots, unless there are too many."""
    return _cut(grid, blocks, np.flatnonzero(~blocks.steady))


def _late_cut(grid: Grid, blocks: Blocks) -> Blocks:
    """Expand the unsteady blocks with the same slots as late ones, unless there are too many slots."""
    rough = np.flatnonzero(~blocks.steady)
    key = blocks.begin[rough] * (int(blocks.end.max(initial=0)) + 1) + blocks.end[rough]
    late = blocks.end[rough] > grid.due[blocks.item[rough]]
    at = rough[np.isin(key, key[late])]
    return _cut(grid, blocks, at)


def _cut(grid: Grid, blocks: Blocks, at: Integers) -> Blocks:
    if (blocks.end - blocks.begin)[at].sum() > _MOST_SLOTS:
        return blocks
    cut = Blocks(blocks.item[at], blocks.begin[at], blocks.end[at], blocks.amount[at]).cut(grid)
    return _joined(blocks, ~np.isin(np.arange(len(blocks.item)), at), cut)


def _extras_last(grid: Grid, blocks: Blocks, fixed: NDArray[np.bool_]) -> Blocks:
    """Make all unsteady blocks that are not late steady, except those of fixed transfers."""
    rough = ~blocks.steady & (blocks.end <= grid.due[blocks.item]) & ~fixed[blocks.item]
    at = np.flatnonzero(rough)
    key = np.stack([grid.pair[blocks.item[at]], blocks.begin[at], blocks.end[at]], axis=1)
    kind, inverse, count = np.unique(key, axis=0, return_inverse=True, return_counts=True)
    alone = at[count[inverse.ravel()] == 1]
    amount, begin, end = blocks.amount[alone], blocks.begin[alone], blocks.end[alone]
    each, middle = amount // (end - begin), end - amount % (end - begin)
    rows = [(blocks.item[alone], begin, middle, each * (middle - begin))]
    rows.append((blocks.item[alone], middle, end, (each + 1) * (end - middle)))
    for number in np.flatnonzero(count > 1).tolist():
        members = at[inverse.ravel() == number]
        members = members[np.argsort(grid.due[blocks.item[members]], kind="stable")]
        first, last = kind[number, 1:].tolist()
        each, more = divmod(int(blocks.amount[members].sum()), last - first)
        runs = [(first, last - more, each), (last - more, last, each + 1)]
        table = np.array(share_runs(blocks, members, runs), np.int64).reshape(-1, 4)
        rows.append((table[:, 0], table[:, 1], table[:, 2], table[:, 3]))
    return _joined(blocks, ~rough, Blocks.of(*(np.concatenate(part) for part in zip(*rows, strict=True))))


def _joined(blocks: Blocks, kept: NDArray[np.bool_], other: Blocks) -> Blocks:
    """Merge the ``kept`` blocks with others of any items."""
    ours = (blocks.item[kept], blocks.begin[kept], blocks.end[kept], blocks.amount[kept])
    theirs = (other.item, other.begin, other.end, other.amount)
    return Blocks.of(*(np.concatenate(both) for both in zip(ours, theirs, strict=True)))


def _arrivals(grid: Grid, blocks: Blocks) -> Integers:
    end = np.zeros(grid.count, np.int64)
    np.maximum.at(end, blocks.item, blocks.end)
    return end


def _goals(grid: Grid, arrival: Integers) -> Goals:
    late = arrival - grid.due
    jobs = np.unique(grid.instance.arrays.job[grid.transfer][late > 0])
    return len(jobs), int(np.maximum(late, 0).sum()), int(np.maximum(-late, 0).sum())


def _rescheduled(grid: Grid, blocks: Blocks, load: Load, last: Integers) -> Blocks:
    """Reschedule small late groups of transfers with common ports in other orders, if lateness and loads stay equal."""
    every = np.ones_like(grid.out_units, np.bool_)
    labels = components(grid, "pair", (every, every))
    late = _arrivals(grid, blocks) > grid.due
    for label in np.unique(labels[late]).tolist():
        members = np.flatnonzero(labels == label)
        if 1 < len(members) <= _GROUP:
            blocks = min(_orders(grid, blocks, members, load, last), key=lambda b: _goals(grid, _arrivals(grid, b)))
    return blocks


def _orders(grid: Grid, blocks: Blocks, members: Integers, load: Load, last: Integers) -> Iterator[Blocks]:
    yield blocks
    own = blocks.only(members)
    wanted = _lateness_and_loads(grid, own, load)
    due, units = grid.due[members], grid.units[members]
    facts = (grid.sender[members], grid.receiver[members], units, grid.start[members])
    behind = np.zeros(len(members), np.bool_)
    for _ in range(len(members)):
        rank = np.empty(len(members), np.int64)
        rank[np.lexsort((units, np.where(behind, units, due), behind))] = np.arange(len(members))
        end, sent = fill(grid.out_units, grid.in_units, *facts, None, rank)
        found = Blocks(members[sent.item], sent.begin, sent.end, sent.amount)
        if (end <= last[members]).all() and _lateness_and_loads(grid, found, load) == wanted:
            yield blocks.without(members).and_also(found)
        late = np.flatnonzero((end > due) & ~behind)
        if not len(late):
            return
        first = late[np.argmin(end[late])]  # Moore-Hodgson: move the largest one so far to the end
        so_far = np.flatnonzero(~behind & (due <= due[first]))
        behind[so_far[np.argmax(units[so_far])]] = True


def _lateness_and_loads(grid: Grid, blocks: Blocks, load: Load) -> tuple[int, list[int], list[int]]:
    value, width = load_counts(grid, blocks, load)
    return int(blocks.lateness(grid.due)), value.tolist(), width.tolist()


def _dealt_anew(grid: Grid, blocks: Blocks, last: Integers) -> Blocks:
    """Redistribute every pair's slots among its transfers; loads of pairs and ports do not change."""
    job, arrival = grid.instance.arrays.job[grid.transfer], _arrivals(grid, blocks)
    late_of = np.bincount(job[arrival > grid.due], minlength=int(job.max(initial=-1)) + 1)
    order = np.argsort(blocks.item, kind="stable")
    cut = np.searchsorted(blocks.item[order], np.arange(grid.count + 1))
    by_pair = np.argsort(grid.pair, kind="stable")
    changed: list[int] = []
    rows: list[tuple[int, int, int, int]] = []
    for members in np.split(by_pair, np.flatnonzero(np.diff(grid.pair[by_pair])) + 1):
        own = np.concatenate([order[cut[k] : cut[k + 1]] for k in members.tolist()])
        if len(members) < 2 or not blocks.steady[own].all():
            continue
        elsewhere = late_of.copy()
        np.subtract.at(elsewhere, job[members[arrival[members] > grid.due[members]]], 1)
        facts = (grid.start, grid.due, last, grid.units, job)
        start, due, ends, units, jobs = (each[members].tolist() for each in facts)
        pair = Pair(start, due, ends, units, jobs, {j for j in job[members].tolist() if elsewhere[j]})
        place = {k: n for n, k in enumerate(members.tolist())}
        now = [(place[int(blocks.item[b])], int(blocks.begin[b]), int(blocks.end[b]), int(blocks.rate[b])) for b in own]
        found = pair.improved(now)
        if found is not now:
            changed += members.tolist()
            rows += [(int(members[k]), a, b, rate * (b - a)) for k, a, b, rate in found]
            late_of = elsewhere
            for k, end in enumerate(pair.arrivals(found)):
                late_of[pair.job[k]] += end > pair.due[k]
    if not changed:
        return blocks
    return blocks.without(np.array(changed)).and_also(Blocks.of(*np.array(rows, np.int64).T))
