"""How ports are shared out, compiled: max-min fair, reserved by coflow, greedy in order.

Ports have ``free`` MB/s left, which each rule uses up. What is below a billionth of a port's rate counts as nothing.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import numpy as np

from flowlex.formulations.loops import njit
from flowlex.simulation.network.arrays import PACED, RUNNING, common, flip

__all__ = ["backfill", "backfill_listed", "fair_coflow", "fair_pairs", "open_ports", "reserve", "water_fill"]

#: Below this share of its rate a port is full.
NOTHING = 1e-9


@njit(cache=True)
def water_fill(out, into, weight, free):
    """Max-min fair rates of each unit of items between ports, by progressive filling (Bertsekas and Gallager).

    Parameters
    ----------
    out, into
        (n,) port of each item on either side.
    weight
        (n,) how many equal flows it stands for, integers.
    free
        (ports,) what is left; updated.

    Returns
    -------
    (n,) rate of each flow of an item.
    """
    n, ports = len(out), len(free)
    amount, first = np.zeros(ports, np.int64), np.zeros(ports + 1, np.int64)
    for k in range(n):
        amount[out[k]] += weight[k]
        amount[into[k]] += weight[k]
        first[out[k] + 1] += 1
        first[into[k] + 1] += 1
    for p in range(ports):
        first[p + 1] += first[p]
    item, at = np.empty(2 * n, np.int64), first.copy()
    for k in range(n):
        for p in (out[k], into[k]):
            item[at[p]] = k
            at[p] += 1
    rate = np.full(n, -1.0)
    while True:
        p, level = -1, np.inf
        for q in range(ports):
            if amount[q] and free[q] < level * amount[q]:
                p, level = q, max(free[q] / amount[q], 0.0)
        if p < 0:
            return rate
        for i in range(first[p], first[p + 1]):
            k = item[i]
            if rate[k] < 0.0:
                rate[k] = level
                for q in (out[k], into[k]):
                    free[q] -= level * weight[k]
                    amount[q] -= weight[k]
        free[p] = 0.0


@njit(cache=True)
def _give(net, f, rate):
    if net.rate[f] == 0.0:
        net.running[net.numbers[RUNNING]] = f
        net.numbers[RUNNING] += 1
    net.rate[f] += rate


@njit(cache=True)
def fair_pairs(net, order, free):
    """Max-min fair among all transfers, those of a pair (the groups of ``order``) served alike."""
    n = len(order)
    out, into, weight = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for k in range(n):
        g = order[k]
        out[k], into[k], weight[k] = net.port[net.first[g]], net.port[net.split[g]], net.alive[g]
    rate = water_fill(out, into, weight, free)
    for k in range(n):
        if rate[k] > 0.0:
            _give(net, order[k], rate[k])


@njit(cache=True)
def open_ports(net, free):
    """(2, W) bits of the ports that have something left, sending ones first."""
    machines = len(free) // 2
    found = np.zeros((2, (machines + 63) // 64), np.int64)
    for p in range(len(free)):
        if free[p] > 0.0:
            flip(found, p, machines)
    return found


@njit(cache=True)
def _room(net, g, has_room):
    """Whether any transfer of the group might still get something."""
    return common(net.bits[g, 0], has_room[0]) and common(net.bits[g, 1], has_room[1])


@njit(cache=True)
def _snap(net, p, free, has_room):
    """Take the last crumbs of a port that had something for nothing."""
    if free[p] < NOTHING * net.rate_of_port[p]:
        free[p] = 0.0
        flip(has_room, p, len(free) // 2)


@njit(cache=True)
def fair_coflow(net, g, free, has_room):
    """Max-min fair among the transfers of one group, in what is left: `water_fill` over the group's own rows."""
    if not _room(net, g, has_room):
        return
    first, split, stop = net.first[g], net.split[g], net.first[g + 1]
    amount = _rising(net, g, free)
    while True:
        e, level = -1, np.inf
        for k in range(first, stop):
            if amount[k - first] and free[net.port[k]] < level * amount[k - first]:
                e, level = k, max(free[net.port[k]] / amount[k - first], 0.0)
        if e < 0:
            break
        others = net.in_at if e < split else net.out_at
        for at in range(net.start[e], net.start[e] + net.count[e]):
            other = others[net.row[at]]
            if amount[other - first]:  # its other port rises still, and so does the transfer
                if level > 0.0:
                    _give(net, net.row[at], level)
                free[net.port[other]] -= level
                amount[other - first] -= 1
        free[net.port[e]], amount[e - first] = 0.0, 0
    for e in range(first, stop):
        if free[net.port[e]] < NOTHING * net.rate_of_port[net.port[e]]:
            free[net.port[e]] = 0.0
    has_room[:] = open_ports(net, free)


@njit(cache=True)
def _rising(net, g, free):
    """(entries,) how many transfers of a group have room at both their ports."""
    first, split, stop = net.first[g], net.split[g], net.first[g + 1]
    amount = np.zeros(stop - first, np.int64)
    for e in range(first, split):
        if free[net.port[e]] > 0.0:
            for at in range(net.start[e], net.start[e] + net.count[e]):
                into = net.in_at[net.row[at]]
                if free[net.port[into]] > 0.0:
                    amount[e - first] += 1
                    amount[into - first] += 1
    return amount


@njit(cache=True)
def reserve(net, g, free, has_room):
    """MADD: the least rates with which all transfers of a group end together, as soon as the free ports allow."""
    for side in range(2):
        if common(net.bits[g, side], ~has_room[side]):
            return
    longest, scale = 0.0, net.scale[g]
    for e in range(net.first[g], net.first[g + 1]):
        if net.count[e]:
            longest = max(longest, net.load[e] * scale / free[net.port[e]])
    if longest <= 0.0:
        return
    for e in range(net.first[g], net.first[g + 1]):
        if net.count[e]:
            p = net.port[e]
            free[p] = max(free[p] - net.load[e] * scale / longest, 0.0)
            _snap(net, p, free, has_room)
    net.pace[g] = longest
    net.paced[net.numbers[PACED]] = g
    net.numbers[PACED] += 1


@njit(cache=True)
def _fill(net, f, p, q, free, has_room):
    """Give a transfer all that its two ports have left."""
    amount = min(free[p], free[q])
    _give(net, f, amount)
    free[p] -= amount
    free[q] -= amount
    _snap(net, p, free, has_room)
    _snap(net, q, free, has_room)


@njit(cache=True)
def backfill(net, g, free, has_room):
    """Give every transfer of a group, one after another, all that its two ports have left."""
    if not _room(net, g, has_room):
        return
    for e in range(net.first[g], net.split[g]):
        p = net.port[e]
        if free[p] <= 0.0:
            continue
        for at in range(net.start[e], net.start[e] + net.count[e]):
            f = net.row[at]
            q = net.port[net.in_at[f]]
            if free[q] > 0.0:
                _fill(net, f, p, q, free, has_room)
                if free[p] <= 0.0:
                    break


@njit(cache=True)
def backfill_listed(net, g, free, has_room):
    """The same in the order in which the group's transfers are listed."""
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
    """Take what has ended out of a group's list."""
    stop = net.span[g, 0]
    for at in range(net.span[g, 0], net.span[g, 1]):
        f = net.listed[at]
        if net.end[f] != net.end[f]:
            net.listed[stop] = f
            stop += 1
    net.span[g, 1] = stop
