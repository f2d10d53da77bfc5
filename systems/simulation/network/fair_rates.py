"""Compiled rules for sharing ports: max-min fair, reserved by coflow, greedy in order.

Ports have ``free`` MB/s left, which each rule reduces. Less than a billionth of a port's rate counts as 0.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import numpy as np

from flowlex.formulations.deferred_compilation import njit
from flowlex.systems.simulation.max_min import fill
from flowlex.systems.simulation.network.network_arrays import PACED, RUNNING, common, flip

#: A port with less than this fraction of its rate free is full.
NOTHING = 1e-9


@njit(cache=True)
def _give(net, f, rate):
    if net.rate[f] == 0.0:
        net.running[net.numbers[RUNNING]] = f
        net.numbers[RUNNING] += 1
    net.rate[f] += rate


@njit(cache=True)
def fair_pairs(net, order, free):
    """Set max-min fair rates of all transfers, equal for those of a pair (the groups of ``order``)."""
    n = len(order)
    paths, weight = np.empty((n, 2), np.int64), np.empty(n, np.int64)
    for k in range(n):
        g = order[k]
        paths[k, 0], paths[k, 1], weight[k] = net.port[net.first[g]], net.port[net.split[g]], net.alive[g]
    rate = fill(paths, weight, free)
    for k in range(n):
        if rate[k] > 0.0:
            _give(net, order[k], rate[k])


@njit(cache=True)
def open_ports(net, free):
    """Return (2, W) bits of the ports with free capacity, sending ports first."""
    machines = len(free) // 2
    found = np.zeros((2, (machines + 63) // 64), np.int64)
    for p in range(len(free)):
        if free[p] > 0.0:
            flip(found, p, machines)
    return found


@njit(cache=True)
def _room(net, g, has_room):
    """Return whether a transfer of the group may still get a positive rate."""
    return common(net.bits[g, 0], has_room[0]) and common(net.bits[g, 1], has_room[1])


@njit(cache=True)
def _snap(net, p, free, has_room):
    """Round a negligible free capacity of a port down to 0."""
    if free[p] < NOTHING * net.rate_of_port[p]:
        free[p] = 0.0
        flip(has_room, p, len(free) // 2)


@njit(cache=True)
def fair_coflow(net, g, free, has_room):
    """Set max-min fair rates of one group's transfers, within the free capacity."""
    if not _room(net, g, has_room):
        return
    chosen, n = np.empty(net.alive[g], np.int64), 0
    for e in range(net.first[g], net.split[g]):
        if free[net.port[e]] > 0.0:
            for at in range(net.start[e], net.start[e] + net.members[e]):
                if free[net.port[net.in_at[net.row[at]]]] > 0.0:
                    chosen[n] = net.row[at]
                    n += 1
    paths = np.empty((n, 2), np.int64)
    for k in range(n):
        paths[k, 0], paths[k, 1] = net.port[net.out_at[chosen[k]]], net.port[net.in_at[chosen[k]]]
    rate = fill(paths, np.ones(n, np.int64), free)
    for k in range(n):
        if rate[k] > 0.0:
            _give(net, chosen[k], rate[k])
    for e in range(net.first[g], net.first[g + 1]):
        if free[net.port[e]] < NOTHING * net.rate_of_port[net.port[e]]:
            free[net.port[e]] = 0.0
    has_room[:] = open_ports(net, free)


@njit(cache=True)
def reserve(net, g, free, has_room):
    """MADD: set the least rates with which all transfers of a group end together at the earliest possible time."""
    for side in range(2):
        if common(net.bits[g, side], ~has_room[side]):
            return
    longest, scale = 0.0, net.scale[g]
    for e in range(net.first[g], net.first[g + 1]):
        if net.members[e]:
            longest = max(longest, net.load[e] * scale / free[net.port[e]])
    if longest <= 0.0:
        return
    for e in range(net.first[g], net.first[g + 1]):
        if net.members[e]:
            p = net.port[e]
            free[p] = max(free[p] - net.load[e] * scale / longest, 0.0)
            _snap(net, p, free, has_room)
    net.pace[g] = longest
    net.paced[net.numbers[PACED]] = g
    net.numbers[PACED] += 1


@njit(cache=True)
def _fill(net, f, p, q, free, has_room):
    """Give a transfer the free capacity of its two ports."""
    amount = min(free[p], free[q])
    _give(net, f, amount)
    free[p] -= amount
    free[q] -= amount
    _snap(net, p, free, has_room)
    _snap(net, q, free, has_room)


@njit(cache=True)
def backfill(net, g, free, has_room):
    """Give every transfer of a group, one by one, the free capacity of its two ports."""
    if not _room(net, g, has_room):
        return
    for e in range(net.first[g], net.split[g]):
        p = net.port[e]
        if free[p] <= 0.0:
            continue
        for at in range(net.start[e], net.start[e] + net.members[e]):
            f = net.row[at]
            q = net.port[net.in_at[f]]
            if free[q] > 0.0:
                _fill(net, f, p, q, free, has_room)
                if free[p] <= 0.0:
                    break


@njit(cache=True)
def backfill_listed(net, g, free, has_room):
    """Backfill a group in the order of its list of transfers."""
    if not _room(net, g, has_room):
        return
    seen = ended = 0
    for at in range(net.span[g, 0], net.span[g, 1]):
        f = net.listed[at]
        seen += 1
        if net.place[f] < 0:
            ended += net.end[f] == net.end[f]
            continue
        p, q = net.port[net.out_at[f]], net.port[net.in_at[f]]
        if free[p] > 0.0 and free[q] > 0.0:
            _fill(net, f, p, q, free, has_room)
            if not _room(net, g, has_room):
                break
    if 2 * ended > seen:
        _drop_ended(net, g)


@njit(cache=True)
def _drop_ended(net, g):
    """Remove ended transfers from a group's list."""
    stop = net.span[g, 0]
    for at in range(net.span[g, 0], net.span[g, 1]):
        f = net.listed[at]
        if net.end[f] != net.end[f]:
            net.listed[stop] = f
            stop += 1
    net.span[g, 1] = stop
